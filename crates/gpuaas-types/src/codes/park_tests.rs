//! Advice of the table of parks, taken apart into commands.

use super::*;

fn rendered(code: ParkCode) -> Vec<(String, String)> {
    let all = actions(code.row().next_action, "0198", "j22u11", &["pxe_vlan", "pxe_linked"]);
    all.into_iter().map(|action| (action.command, action.needs)).collect()
}

/// Each cure of a row is an action, whole but for the reason, and says what it needs.
#[test]
fn every_advice_is_taken_apart_into_commands_and_what_they_need() {
    for row in PARKS {
        let actions = rendered(row.code);
        let skips = usize::from(row.cures.contains(&Cure::SkipCheck));
        assert_eq!(actions.len(), row.cures.len() + skips, "{}", row.code);
        for (command, needs) in actions {
            assert!(command.starts_with("gpuaas run ") && command.contains(" 0198 "));
            assert!(!command.contains("NAME") && !needs.contains("NODE"), "{}", row.code);
            assert!(!needs.is_empty(), "{}: {command}", row.code);
            let loose = [",", ";", " and", " then", ":"].iter().any(|end| needs.ends_with(end));
            assert!(!loose && needs.matches('`').count() % 2 == 0, "{}: {needs}", row.code);
            assert!(!needs.starts_with([' ', ',']), "{}: {needs}", row.code);
        }
    }
}

#[test]
fn an_action_names_what_comes_before_and_after_it() {
    let resume = "gpuaas run resume 0198 --reason WHY".to_owned();
    let latest = "gpuaas run resume 0198 --latest-profile --reason WHY".to_owned();
    assert_eq!(
        rendered(ParkCode::PxePreflightFailed),
        [
            (resume.clone(), "correct the boot interface in MAAS".to_owned()),
            (latest, "set `strict_pxe_preflight=false` in the profile".to_owned()),
        ]
    );
    let (command, needs) = rendered(ParkCode::SiteBootstrapFailed).remove(0);
    assert_eq!(command, resume);
    assert!(
        needs.ends_with(
            "fix the cause; afterwards run the scripts under \
         /var/lib/cloud/instance/scripts on the host again"
        ),
        "{needs}"
    );
    let skip = rendered(ParkCode::CommissioningScriptFailed).pop().unwrap();
    assert_eq!(skip.0, "gpuaas run skip-check 0198 --check pxe_linked --reason WHY");
    assert_eq!(skip.1, "override the check");
    let vanished = rendered(ParkCode::MachineVanished);
    let detaches = |(_, needs): &(String, String)| needs.contains("`gpuaas node detach j22u11`");
    assert!(vanished.iter().any(detaches), "{vanished:?}");
}
