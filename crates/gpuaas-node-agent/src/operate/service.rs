//! Starting, stopping, enabling services.

use std::collections::BTreeMap;

use gpuaas_types::agent::{Change, ServiceAction};

use super::{Fault, Outcome, Work};
use crate::tools::{ToolError, Tools};

/// Longer than systemd's own patience with a unit that does not stop.
const ACT_SECONDS: u64 = 150;
const ASK_SECONDS: u64 = 10;

/// What systemd says of a unit.
struct Unit(BTreeMap<String, String>);

impl Unit {
    fn word(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn is_active(&self) -> bool {
        self.word("ActiveState") == "active"
    }

    fn is_enabled(&self) -> bool {
        self.word("UnitFileState") == "enabled"
    }

    /// A unit that runs something once and rests then.
    fn ran_once(&self) -> bool {
        self.word("Type") == "oneshot" && self.word("Result") == "success"
    }

    fn text(&self) -> String {
        let Self(words) = self;
        let word = |name: &str| words.get(name).map_or("unknown", String::as_str);
        format!("{} ({}), {}", word("ActiveState"), word("SubState"), word("UnitFileState"))
    }
}

pub(super) async fn carry_out(
    work: &Work<'_>,
    action: ServiceAction,
    unit: &str,
) -> Result<Outcome, Fault> {
    let tools = Tools::with_systemd(work.host)?;
    let before = show(tools, unit).await?;
    if before.word("LoadState") != "loaded" {
        let message = format!("the host has no {unit}: systemd says {}", before.word("LoadState"));
        return Err(Fault::new("unit_not_there", message));
    }
    let mut outcome = Outcome::default();
    if is_so(action, &before) {
        outcome.message = format!("{unit} is {} already", before.text());
        return Ok(outcome);
    }
    let mut change =
        Change { what: unit.to_owned(), before: before.text(), after: action.as_str().to_owned() };
    if work.dry_run {
        outcome.message = format!("systemctl {} {unit}", action.as_str());
        outcome.changes.push(change);
        return Ok(outcome);
    }
    let acted = tools.run("systemctl", &[action.as_str(), "--", unit], ACT_SECONDS).await;
    let after = show(tools, unit).await?;
    change.after = after.text();
    outcome.changes.push(change);
    acted.map_err(|error| {
        Fault::from(error).after(Outcome { changes: outcome.changes.clone(), ..Outcome::default() })
    })?;
    if had_effect(action, &before, &after) {
        return Ok(outcome);
    }
    let message =
        format!("systemctl {} ended well, and {unit} is {}", action.as_str(), after.text());
    Err(Fault::new("service_not_in_effect", message).after(outcome))
}

async fn show(tools: Tools<'_>, unit: &str) -> Result<Unit, ToolError> {
    let properties = "--property=LoadState,ActiveState,SubState,UnitFileState,Type,Result,\
                      ActiveEnterTimestampMonotonic";
    let said = tools.ask("systemctl", &["show", properties, "--", unit], ASK_SECONDS).await?;
    let words = said.out.lines().filter_map(|line| line.split_once('='));
    Ok(Unit(words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
}

/// Whether nothing is to be done.
fn is_so(action: ServiceAction, unit: &Unit) -> bool {
    match action {
        ServiceAction::Start => unit.is_active(),
        ServiceAction::Stop => matches!(unit.word("ActiveState"), "inactive" | "failed"),
        ServiceAction::Restart => false,
        ServiceAction::Enable => unit.is_enabled(),
        ServiceAction::Disable => unit.word("UnitFileState") == "disabled",
    }
}

fn had_effect(action: ServiceAction, before: &Unit, after: &Unit) -> bool {
    let entered = |unit: &Unit| unit.word("ActiveEnterTimestampMonotonic").to_owned();
    match action {
        ServiceAction::Start => after.is_active() || after.ran_once(),
        ServiceAction::Restart => {
            after.ran_once() || (after.is_active() && entered(before) != entered(after))
        }
        ServiceAction::Stop | ServiceAction::Enable | ServiceAction::Disable => {
            is_so(action, after)
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_types::agent::{Operation, TaskResult};

    use super::*;
    use crate::operate::{Workplace, carry_out as operate, played};
    use crate::tasks::Host;

    /// A systemd with one unit: `nginx.service`, whose state is a file.
    const SYSTEMD: &str = r#"
[ -f "$D/state" ] || echo inactive > "$D/state"
case "$1 $3" in
  'ask show')
    for unit; do :; done
    if [ "$unit" != nginx.service ]; then echo LoadState=not-found; exit; fi
    printf 'LoadState=loaded\nActiveState=%s\nSubState=x\nType=simple\n' "$(cat "$D/state")"
    [ -f "$D/enabled" ] && echo UnitFileState=enabled || echo UnitFileState=disabled
    echo ActiveEnterTimestampMonotonic="$(wc -l < "$D/calls")" ;;
  'run start' | 'run restart')
    [ -f "$D/broken" ] && { echo 'Job failed' >&2; exit 1; }
    [ -f "$D/dead" ] || echo active > "$D/state" ;;
  'run stop') echo inactive > "$D/state" ;;
  'run enable') touch "$D/enabled" ;;
  'run disable') rm "$D/enabled" ;;
  *) exit 9 ;;
esac
"#;

    async fn ask(host: &Host, action: ServiceAction, unit: &str, dry_run: bool) -> TaskResult {
        let work = Work { host, place: &Workplace::default(), dry_run };
        operate(&work, &Operation::Service { action, unit: unit.to_owned() }).await
    }

    #[tokio::test]
    async fn a_service_is_changed_once_and_its_effect_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let host = played::host(dir.path(), SYSTEMD);
        let nginx = "nginx.service";
        let dry = ask(&host, ServiceAction::Start, nginx, true).await;
        assert!(dry.succeeded && dry.changes.len() == 1, "{dry:?}");
        assert!(played::ran(dir.path()).is_empty());
        for action in [ServiceAction::Start, ServiceAction::Enable] {
            let done = ask(&host, action, nginx, false).await;
            assert!(done.succeeded && done.changes.len() == 1, "{done:?}");
            let again = ask(&host, action, nginx, false).await;
            assert!(again.succeeded && again.changes.is_empty(), "{again:?}");
        }
        let restarted = ask(&host, ServiceAction::Restart, nginx, false).await;
        assert_eq!(restarted.changes[0].after, "active (x), enabled");
        for action in [ServiceAction::Disable, ServiceAction::Stop] {
            assert!(ask(&host, action, nginx, false).await.succeeded);
        }
        let ran = ["start", "enable", "restart", "disable", "stop"];
        assert_eq!(played::ran(dir.path()), ran.map(|verb| format!("systemctl {verb} -- {nginx}")));
    }

    #[tokio::test]
    async fn what_has_no_effect_has_failed() {
        let dir = tempfile::tempdir().unwrap();
        let host = played::host(dir.path(), SYSTEMD);
        let code = async |action, unit| ask(&host, action, unit, false).await.code;
        assert_eq!(code(ServiceAction::Stop, "ssh.service").await, "operation_out_of_bounds");
        assert_eq!(code(ServiceAction::Start, "docker.service").await, "unit_not_there");
        std::fs::write(dir.path().join("dead"), "").unwrap();
        assert_eq!(code(ServiceAction::Start, "nginx.service").await, "service_not_in_effect");
        std::fs::write(dir.path().join("broken"), "").unwrap();
        let broken = ask(&host, ServiceAction::Start, "nginx.service", false).await;
        assert_eq!((broken.code.as_str(), broken.changes.len()), ("tool_failed", 1));
        assert!(broken.message.contains("Job failed"), "{}", broken.message);
        assert!(played::ran(dir.path()).iter().all(|call| call.contains("nginx")));
    }

    #[tokio::test]
    async fn a_folder_has_no_services() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::Root(host_facts::HostRoot::new(dir.path()));
        let refused = ask(&host, ServiceAction::Start, "nginx.service", false).await;
        assert_eq!(refused.code, "host_not_live");
    }
}
