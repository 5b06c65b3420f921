use clap::error::ErrorKind;

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    super::parse(line.split_whitespace())
}

#[test]
fn the_command_line_holds_together() {
    tree().debug_assert();
}

#[test]
fn every_list_that_takes_a_filter_can_be_watched() {
    fn lists(command: &clap::Command, path: &str) -> usize {
        let takes = |name| command.get_arguments().any(|one| one.get_long() == Some(name));
        assert!(!takes("filter") || takes("watch"), "{path} takes no --watch");
        let within = command.get_subcommands();
        let within = within.map(|one| lists(one, &format!("{path} {}", one.get_name())));
        usize::from(takes("filter")) + within.sum::<usize>()
    }
    let found = lists(&tree(), "gpuaas");
    assert!(found >= gpuaas_types::filter::FilterList::ALL.len(), "{found} lists");
}

#[cfg(feature = "bench")]
#[test]
fn help_of_every_command() {
    fn all(command: &mut clap::Command, text: &mut String) {
        if command.get_name() == "help" {
            return;
        }
        text.push_str(&format!("$ {} --help\n", command.get_bin_name().unwrap_or("gpuaas")));
        text.push_str(&command.clone().term_width(100).render_help().to_string());
        text.push('\n');
        command.get_subcommands_mut().for_each(|command| all(command, text));
    }
    let mut command = tree().term_width(100);
    command.build();
    let mut text = String::new();
    all(&mut command, &mut text);
    insta::assert_snapshot!(text);
}

#[test]
fn lines_that_parse() {
    for line in [
        "gpuaas site add lab --url http://m/MAAS --api-key-file k --pxe-vlan 7 \
         --approve-image custom/a --approve-image ubuntu/noble",
        "gpuaas profile add p --set strict_pxe_preflight=false --set distro_series=custom/a=b",
        "gpuaas profile set p distro_series=noble -o yaml",
        "gpuaas roce add --site s --host h --interface ens1 --subnet 10.0.0.0/24 --ip 10.0.0.7",
        "gpuaas node onboard h1 h2 --site s --profile p --wait --timeout 60 -o json",
        "gpuaas node onboard h --site s --profile p --bmc-address 10.0.0.1 --bmc-user u \
         --bmc-pass-file f --mac aa:bb:cc:dd:ee:ff",
        "gpuaas node list --site s --state active",
        "gpuaas node set j22u11 --mac aa:bb:cc:dd:ee:ff --power-type ipmi --reason misread",
        "gpuaas site set lab --api-key-file k --clear pxe_vlan",
        "gpuaas site remove lab --reason moved --yes",
        "gpuaas profile remove h200 --reason old --dry-run",
        "gpuaas roce remove --site s --host h --interface ens1",
        "gpuaas bundle withdraw site-net@0.1.0 --site lab --reason broken",
        "gpuaas run list --site lab --status parked --open",
        "gpuaas run wait j22u11 --timeout 60",
        "gpuaas audit list --site lab --node j22u11 --actor ann --since 2026-11-23 --after 9",
        "gpuaas node timeline j22u11 --limit 5",
        "gpuaas node revoke-certificate j22u11 --reason lost --dry-run",
        "gpuaas run resume 0198 --reason fixed",
        "gpuaas run retry 0198 --reason fixed --latest-profile",
        "gpuaas explain j22u11 --server http://x --token t",
    ] {
        assert!(parse(line).is_ok(), "{line}");
    }
}

#[test]
fn lines_that_are_refused() {
    for (line, kind) in [
        ("gpuaas", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
        ("gpuaas site add lab --url u", ErrorKind::MissingRequiredArgument),
        ("gpuaas profile set p", ErrorKind::MissingRequiredArgument),
        ("gpuaas profile set p distro_series", ErrorKind::ValueValidation),
        ("gpuaas node list --state ready", ErrorKind::ValueValidation),
        (
            "gpuaas node onboard h --site s --profile p --timeout 5",
            ErrorKind::MissingRequiredArgument,
        ),
        (
            "gpuaas node onboard h --site s --profile p --bmc-user u",
            ErrorKind::MissingRequiredArgument,
        ),
        ("gpuaas run resume 0198", ErrorKind::MissingRequiredArgument),
        ("gpuaas node set h --reason r", ErrorKind::MissingRequiredArgument),
        ("gpuaas site set lab", ErrorKind::MissingRequiredArgument),
        ("gpuaas site remove lab", ErrorKind::MissingRequiredArgument),
        ("gpuaas run list --status asleep", ErrorKind::ValueValidation),
        ("gpuaas audit list --since yesterday", ErrorKind::ValueValidation),
    ] {
        assert_eq!(parse(line).unwrap_err().kind(), kind, "{line}");
    }
}
