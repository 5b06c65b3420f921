//! The operation `service`: starts, stops, restarts, enables or disables a systemd unit.

use std::collections::BTreeMap;

use gpuaas_types::agent::{Change, ServiceAction};

use super::operation::{OperationContext, OperationError, OperationOutcome};
use crate::command::{CommandError, CommandRunner};

/// Longest time of a change, in seconds: more than systemd waits for a unit that does not stop.
const CHANGE_SECONDS: u64 = 150;
/// Longest time of a query, in seconds.
const QUERY_SECONDS: u64 = 10;

/// Properties of a unit, as `systemctl show` prints them.
struct UnitProperties(BTreeMap<String, String>);

impl UnitProperties {
    /// A property; empty where systemd does not print it.
    fn property(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn is_active(&self) -> bool {
        self.property("ActiveState") == "active"
    }

    fn is_enabled(&self) -> bool {
        self.property("UnitFileState") == "enabled"
    }

    /// Whether a unit of type `oneshot` succeeded: it is inactive then.
    fn succeeded_once(&self) -> bool {
        self.property("Type") == "oneshot" && self.property("Result") == "success"
    }

    fn text(&self) -> String {
        let Self(properties) = self;
        let text = |name: &str| properties.get(name).map_or("unknown", String::as_str);
        format!("{} ({}), {}", text("ActiveState"), text("SubState"), text("UnitFileState"))
    }
}

pub(super) async fn run(
    context: &OperationContext<'_>,
    action: ServiceAction,
    unit: &str,
) -> Result<OperationOutcome, OperationError> {
    let runner = CommandRunner::with_systemd(context.host)?;
    let before = show(runner, unit).await?;
    if before.property("LoadState") != "loaded" {
        let message =
            format!("{unit} is not loaded: systemd reports {}", before.property("LoadState"));
        return Err(OperationError::new("unit_not_there", message));
    }
    let mut outcome = OperationOutcome::default();
    if is_in_effect(action, &before) {
        outcome.message = format!("{unit} is {} already", before.text());
        return Ok(outcome);
    }
    let mut change =
        Change { what: unit.to_owned(), before: before.text(), after: action.as_str().to_owned() };
    if context.dry_run {
        outcome.message = format!("systemctl {} {unit}", action.as_str());
        outcome.changes.push(change);
        return Ok(outcome);
    }
    let acted = runner.run("systemctl", &[action.as_str(), "--", unit], CHANGE_SECONDS).await;
    let after = show(runner, unit).await?;
    change.after = after.text();
    outcome.changes.push(change);
    acted.map_err(|error| {
        OperationError::from(error).with_partial(OperationOutcome {
            changes: outcome.changes.clone(),
            ..OperationOutcome::default()
        })
    })?;
    if had_effect(action, &before, &after) {
        return Ok(outcome);
    }
    let message =
        format!("systemctl {} succeeded, but {unit} is {}", action.as_str(), after.text());
    Err(OperationError::new("service_not_in_effect", message).with_partial(outcome))
}

async fn show(runner: CommandRunner<'_>, unit: &str) -> Result<UnitProperties, CommandError> {
    let properties = "--property=LoadState,ActiveState,SubState,UnitFileState,Type,Result,\
                      ActiveEnterTimestampMonotonic";
    let output =
        runner.query("systemctl", &["show", properties, "--", unit], QUERY_SECONDS).await?;
    let lines = output.stdout.lines().filter_map(|line| line.split_once('='));
    Ok(UnitProperties(lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
}

/// Whether the unit already is as `action` would make it.
fn is_in_effect(action: ServiceAction, unit: &UnitProperties) -> bool {
    match action {
        ServiceAction::Start => unit.is_active(),
        ServiceAction::Stop => matches!(unit.property("ActiveState"), "inactive" | "failed"),
        ServiceAction::Restart => false,
        ServiceAction::Enable => unit.is_enabled(),
        ServiceAction::Disable => unit.property("UnitFileState") == "disabled",
    }
}

fn had_effect(action: ServiceAction, before: &UnitProperties, after: &UnitProperties) -> bool {
    let entered = |unit: &UnitProperties| unit.property("ActiveEnterTimestampMonotonic").to_owned();
    match action {
        ServiceAction::Start => after.is_active() || after.succeeded_once(),
        ServiceAction::Restart => {
            after.succeeded_once() || (after.is_active() && entered(before) != entered(after))
        }
        ServiceAction::Stop | ServiceAction::Enable | ServiceAction::Disable => {
            is_in_effect(action, after)
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_types::agent::{Operation, TaskResult};

    use super::*;
    use crate::env::AgentEnv;
    use crate::host::Host;
    use crate::operate::test_host::{commands_run, emulated, operate};

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
        let context = OperationContext { host, env: &AgentEnv::default(), dry_run };
        operate(&context, &Operation::Service { action, unit: unit.to_owned() }).await
    }

    #[tokio::test]
    async fn a_service_is_changed_once_and_its_effect_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let host = emulated(dir.path(), SYSTEMD);
        let nginx = "nginx.service";
        let dry = ask(&host, ServiceAction::Start, nginx, true).await;
        assert!(dry.succeeded && dry.changes.len() == 1, "{dry:?}");
        assert!(commands_run(dir.path()).is_empty());
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
        assert_eq!(
            commands_run(dir.path()),
            ran.map(|verb| format!("systemctl {verb} -- {nginx}"))
        );
    }

    #[tokio::test]
    async fn what_has_no_effect_has_failed() {
        let dir = tempfile::tempdir().unwrap();
        let host = emulated(dir.path(), SYSTEMD);
        let code = async |action, unit| ask(&host, action, unit, false).await.code;
        assert_eq!(code(ServiceAction::Stop, "ssh.service").await, "operation_out_of_bounds");
        assert_eq!(code(ServiceAction::Start, "docker.service").await, "unit_not_there");
        std::fs::write(dir.path().join("dead"), "").unwrap();
        assert_eq!(code(ServiceAction::Start, "nginx.service").await, "service_not_in_effect");
        std::fs::write(dir.path().join("broken"), "").unwrap();
        let broken = ask(&host, ServiceAction::Start, "nginx.service", false).await;
        assert_eq!((broken.code.as_str(), broken.changes.len()), ("tool_failed", 1));
        assert!(broken.message.contains("Job failed"), "{}", broken.message);
        assert!(commands_run(dir.path()).iter().all(|call| call.contains("nginx")));
    }

    #[tokio::test]
    async fn a_folder_has_no_services() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::Root(host_facts::HostRoot::new(dir.path()));
        let refused = ask(&host, ServiceAction::Start, "nginx.service", false).await;
        assert_eq!(refused.code, "host_not_live");
    }
}
