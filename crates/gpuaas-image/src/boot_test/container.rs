//! The image as a container.

use std::fs;
use std::path::Path;

use super::outcome::{BootTestProblem, SEED};
use super::report::SystemReport;
use crate::command::{Isolation, Tool};
use crate::machine_disk::tail;
use crate::tree_path::below;

/// Seconds that a container may take until it has reported.
const CONTAINER_SECONDS: u64 = 400;
/// It has no network, and a system without one does not wait for it.
const NO_NETWORK: &str = "network: {config: disabled}\n";

/// Boots the folder until it has reported.
pub(super) fn boot_container(tree: &Path) -> Result<SystemReport, BootTestProblem> {
    let failed = |detail: String| BootTestProblem::new("container_not_booted", detail);
    let settings = below(tree, "/etc/cloud/cloud.cfg.d/91_boot_test.cfg");
    let reported = below(tree, &format!("{SEED}/reported"));
    let (settings, reported) = match (settings, reported) {
        (Ok(settings), Ok(reported)) => (settings, reported),
        (Err(error), _) | (_, Err(error)) => return Err(failed(error.to_string())),
    };
    fs::write(settings, NO_NETWORK).map_err(|error| failed(error.to_string()))?;
    let script = include_str!("../../assets/boot-test-container.sh");
    let tool = Tool::isolated(
        "boot the image as a container",
        "sh",
        Isolation::WithNetwork,
        CONTAINER_SECONDS,
    );
    let console = tool.arg("-c").arg(script).arg("boot").arg(tree).run();
    let console = console.map_err(|error| failed(error.to_string()))?;
    let text = fs::read_to_string(reported).unwrap_or_default();
    SystemReport::parse(&text).ok_or_else(|| {
        failed(format!(
            "the container ended before it reported; its console ended with:\n{}",
            tail(&console)
        ))
    })
}
