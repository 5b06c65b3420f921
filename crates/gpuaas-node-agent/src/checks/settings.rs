//! Settings of daemons that are in force, whatever file they come from.

use std::path::Path;

use super::query::{QUERY_SECONDS, query};
use super::verdict::Verdict;
use crate::command::CommandRunner;

/// Whom sshd is asked about: root from elsewhere, so that a `Match` block for either counts. The address
/// is of the network for documentation (RFC 5737).
const SSHD_ASKED: [&str; 3] = ["-T", "-C", "user=root,host=elsewhere,addr=192.0.2.1"];
/// sshd refuses to answer without its folder, which systemd makes for the daemon alone.
const SSHD_FOLDER: &str = "/run/sshd";

/// Whether sshd would act on a value of a setting.
pub(super) async fn sshd(runner: CommandRunner<'_>, name: &str, value: &str) -> Verdict {
    if matches!(runner, CommandRunner::Native)
        && !Path::new(SSHD_FOLDER).is_dir()
        && let Err(error) = std::fs::create_dir(SSHD_FOLDER)
    {
        return (false, format!("{SSHD_FOLDER}: {error}"));
    }
    match query(runner, "sshd", &SSHD_ASKED, QUERY_SECONDS).await {
        Ok(text) => sshd_setting(&text, name, value),
        Err(reason) => (false, reason),
    }
}

fn sshd_setting(printed: &str, name: &str, wanted: &str) -> Verdict {
    let name = name.to_ascii_lowercase();
    let found = printed.lines().find_map(|line| {
        let (other, value) = line.trim().split_once(' ')?;
        other.eq_ignore_ascii_case(&name).then(|| value.trim())
    });
    let Some(found) = found else { return (false, format!("sshd does not report {name}")) };
    let passed = plain(found) == plain(wanted) || found.split(' ').any(|word| word == wanted);
    (passed, format!("it is {found}"))
}

/// A value in one of the ways to write it: sshd prints the older word for one of them.
fn plain(value: &str) -> String {
    match value.to_ascii_lowercase().as_str() {
        "1" => "yes".to_owned(),
        "0" => "no".to_owned(),
        "without-password" => "prohibit-password".to_owned(),
        other => other.to_owned(),
    }
}

/// Whether the only command of a unit, as systemd has it of all of the unit's files, has the arguments.
pub(super) async fn unit_command(
    runner: CommandRunner<'_>,
    unit: &str,
    arguments: &str,
) -> Verdict {
    let show = ["show", "--property=ExecStart", "--value", "--", unit];
    match query(runner, "systemctl", &show, QUERY_SECONDS).await {
        Ok(text) => command_has(&text, arguments),
        Err(reason) => (false, reason),
    }
}

/// `{ path=/lib/x ; argv[]=/lib/x --any --timeout=30 ; ignore_errors=no ; ... }`, a line each.
fn command_has(printed: &str, arguments: &str) -> Verdict {
    let commands: Vec<&str> = printed
        .lines()
        .filter_map(|line| line.split(" ; ").find_map(|part| part.strip_prefix("argv[]=")))
        .collect();
    match commands.as_slice() {
        [] => (false, "systemd reports no command for it".to_owned()),
        [command] => {
            let words: Vec<&str> = command.split_whitespace().collect();
            let has = arguments.split_whitespace().all(|wanted| words.contains(&wanted));
            (has, format!("it starts {command}"))
        }
        several => (false, format!("it starts {}", several.join(", then "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_that_sshd_prints_decides() {
        let printed = "port 22\npermitrootlogin without-password\npasswordauthentication no\n\
                       authorizedkeysfile .ssh/authorized_keys /etc/ssh/authorized_keys.d/%u\n";
        for (name, value, passed) in [
            ("PasswordAuthentication", "no", true),
            ("passwordauthentication", "0", true),
            ("passwordauthentication", "1", false),
            ("PermitRootLogin", "prohibit-password", true),
            ("PermitRootLogin", "no", false),
            ("authorizedkeysfile", "/etc/ssh/authorized_keys.d/%u", true),
            ("authorizedkeysfile", "/etc/ssh/authorized_keys", false),
            ("usepam", "yes", false),
        ] {
            assert_eq!(sshd_setting(printed, name, value).0, passed, "{name} {value}");
        }
    }

    #[test]
    fn only_a_units_effective_command_counts() {
        let one = "{ path=/lib/systemd/x ; argv[]=/lib/systemd/x --any --timeout=30 ; \
                   ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; \
                   status=0/0 }\n";
        assert!(command_has(one, "--any --timeout=30").0);
        assert!(!command_has(one, "--any --timeout=3").0);
        assert!(!command_has(&format!("{one}{one}"), "--any").0);
        assert!(!command_has("\n", "--any").0);
    }
}
