//! The operators of `gpuaas bench mend` and `gpuaas bench people`: each simulation's control plane
//! gets the admin API on a loopback port, and command lines go through the executable's own parser.

use std::sync::Arc;

use async_trait::async_trait;
use clap::Parser as _;
use clap::error::ErrorKind;
use gpuaas_api::{
    ApiSettings, ApiState, NodeAccess, ensure_admin_token, propose_admin_token, routers,
};
use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::Supervisor;
use gpuaas_simulation::ControlPlaneParts;
use gpuaas_simulation::recovery::{CommandLine, Operators};
use gpuaas_types::codes::CommandCode;

use crate::args::Cli;
use crate::requests;

/// Serves the admin API of a simulation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ApiOperators;

#[async_trait(?Send)]
impl Operators for ApiOperators {
    async fn serve(&self, parts: ControlPlaneParts) -> Result<Box<dyn CommandLine>, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::local(CommandCode::ApiNotServed, error.to_string())
        };
        gpuaas_client::install_cryptography();
        let token = propose_admin_token().map_err(|error| failed(&error))?;
        let now = parts.clock.now();
        ensure_admin_token(&parts.store, now, &token).await.map_err(|error| failed(&error))?;
        let routers = routers(ApiState {
            store: parts.store,
            clock: parts.clock,
            ids: parts.ids,
            connect: parts.connect,
            bundles: parts.bundles,
            bundle_key: parts.bundle_key,
            artifacts: parts.artifacts,
            wake: Arc::new(|| ()),
            nodes: NodeAccess::StandIns,
            supervisor: Supervisor::default(),
            engine: None,
            settings: ApiSettings::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        tokio::spawn(async move { axum::serve(listener, routers.operators).await });
        Ok(Box::new(AdminCommandLine { server: format!("http://{address}"), token }))
    }
}

/// A command line with an administrator's token.
struct AdminCommandLine {
    server: String,
    token: String,
}

#[async_trait(?Send)]
impl CommandLine for AdminCommandLine {
    async fn run(&self, command: &str) -> Result<String, String> {
        let words = command.split_whitespace();
        let connection = ["--server", &self.server, "--token", &self.token];
        let cli = match Cli::try_parse_from(words.clone().chain(connection)) {
            // Some commands need no control plane.
            Err(error) if error.kind() == ErrorKind::UnknownArgument => {
                Cli::try_parse_from(words).map_err(|error| error.to_string())?
            }
            parsed => parsed.map_err(|error| error.to_string())?,
        };
        let (mut terminal, captured) = Terminal::captured();
        let ran = requests::run(cli.command, &mut terminal).await;
        ran.map_err(|failure| failure.to_string())?;
        Ok(captured.stdout())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gpuaas_simulation::recovery::{CASES, run_after_yielding, run_case, run_case_by_itself};
    use gpuaas_types::RunStatus;
    use gpuaas_types::codes::ParkCode;

    use super::*;

    /// Makes the park, follows its first advice, and wants the run at its proper end; where the run
    /// looks again by itself, also if it is mended in MAAS and nobody tells us.
    async fn is_cured(code: &str) {
        let case = CASES.iter().find(|case| case.code == *code).unwrap();
        let outcome = run_case(case, &ApiOperators).await.unwrap();
        assert_eq!(outcome.why, None, "{code}");
        assert!(outcome.seconds.is_some(), "{outcome:?}");
        if case.code.row().looked_at_again {
            let outcome = run_case_by_itself(case, &ApiOperators).await.unwrap();
            assert!(outcome.by_itself, "{code} by itself: {:?}", outcome.why);
        }
    }

    #[tokio::test]
    async fn a_run_goes_on_after_the_advice_of_a_control_plane_that_yielded() {
        let ended = run_after_yielding(&ApiOperators).await.unwrap();
        assert_eq!(ended.command, "gpuaas site take-control simulated --reason ours");
        assert_eq!(ended.status, RunStatus::Succeeded);
    }

    macro_rules! cures {
        ($($code:ident)+) => {
            $(#[tokio::test]
            async fn $code() {
                is_cured(stringify!($code)).await;
            })+

            const TRIED: &[&str] = &[$(stringify!($code)),+];
        };
    }

    cures! {
        deadline_exceeded
        unknown_outcome_unresolved
        machine_locked
        two_candidates
        machine_mismatch
        machine_in_use
        power_type_differs
        machine_held
        several_new_machines
        machine_not_found
        created_machine_missing
        machine_busy
        machine_taken
        machine_vanished
        machine_repurposed
        host_released
        commissioning_bundle_missing
        script_not_as_asked
        tag_not_as_asked
        hardware_test_failed
        commissioning_failed
        commissioning_script_failed
        commissioning_reverted
        pxe_preflight_failed
        storage_layout_unknown
        no_data_disk
        no_boot_disk
        storage_not_as_asked
        roce_assignments_missing
        roce_interface_missing
        roce_boot_interface
        roce_subnet_unknown
        roce_link_stays
        roce_link_missing
        hardware_sync_interval_differs
        predeploy_checks_failed
        deploy_reverted
        deploy_failed
        site_bootstrap_failed
        node_bootstrap_failed
        host_checks_unknown
        diagnostics_failed
        reboot_did_not_help
        prerequisite_missing
        completion_gate_failed
        enrollment_contested
        cleanup_failed
        release_failed
        machine_handed_off
        effect_not_prepared
        decision_loop
        internal_error
        maas_validation
        maas_bad_request
        maas_forbidden
        maas_not_found
        maas_address_in_use
        maas_unknown_endpoint
        maas_method_not_allowed
        maas_state_conflict
        maas_database_conflict
        maas_refused
    }

    /// A park without a row here fails this.
    #[test]
    fn every_park_is_tried() {
        let tried: BTreeSet<&str> = TRIED.iter().copied().collect();
        let all: BTreeSet<&str> = ParkCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(tried, all);
    }
}
