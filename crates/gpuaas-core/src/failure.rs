//! What went wrong, from what MAAS and the node say: one table from words to class, and from
//! class to owner, next action and retry policy.
//!
//! MAAS' own verdict on a failed deployment is nearly always the same sentence ("refer to the
//! installation log"); the cause stands in the warnings and errors of the event feed before it.
//! The classes are ordered from the most to the least specific, and the first whose words occur
//! wins: a DKMS build that fails is also a package that fails, and both are a failed installation.

use gpuaas_types::api::Owner;
use gpuaas_types::codes::Cure;

/// What class of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// Disk, memory, BMC or another part of the machine.
    Hardware,
    /// curtin could not install the kernel, or a kernel module did not build.
    CurtinKernel,
    /// The image was written and booted, but the system never asked for its user-data.
    Datasource,
    /// A package could not be fetched or installed.
    PackageInstall,
    /// The agent could not enroll.
    Enrollment,
    /// The fabric: InfiniBand, RoCE, OFED.
    Fabric,
    /// The image was never written, or curtin failed for another reason.
    ImageDeploy,
}

/// Whether trying again by itself makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The same would happen again: a person has to change something first.
    Never,
    /// It may pass the next time: as often as the profile allows.
    ByProfile,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct FailureRow {
    /// The class.
    pub class: FailureClass,
    /// Stable name.
    pub name: &'static str,
    /// Words, in lower case, any of which tell the class.
    pub words: &'static [&'static str],
    /// Who has to act.
    pub owner: Owner,
    /// Whether to try again.
    pub retry: Retry,
    /// What mends the cause.
    pub remedy: &'static str,
    /// What lets a run go on whose deployment failed so.
    pub cure: Cure,
}

impl FailureRow {
    /// What to do about a deployment that failed so.
    #[must_use]
    pub fn advice(&self) -> String {
        let (remedy, command) = (self.remedy, self.cure.command());
        format!("{remedy}, then `{command}`, which releases the machine and deploys it again")
    }
}

/// Every class, the most specific first; the last one is what remains.
pub const FAILURES: &[FailureRow] = &[
    FailureRow {
        class: FailureClass::Hardware,
        name: "hardware",
        words: &[
            "i/o error",
            "medium error",
            "smart error",
            "smart failure",
            "uncorrectable",
            "ecc error",
            "memory error",
            "machine check",
            "no block devices",
            "nvidia-smi: no devices",
            "fallen off the bus",
            "xid ",
            "power fault",
        ],
        owner: Owner::InfraOperator,
        retry: Retry::Never,
        remedy: "run MAAS' hardware tests on the machine and have the part replaced",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::CurtinKernel,
        name: "curtin_kernel",
        words: &[
            "installing-kernel",
            "installing kernel",
            "linux-generic",
            "linux-image",
            "linux-headers",
            "dkms",
        ],
        owner: Owner::PlatformOperator,
        retry: Retry::Never,
        remedy: "have the profile name the image before, or ubuntu/noble, `gpuaas image rollback --profile PROFILE --site SITE --reason WHY`, and keep its `site_bootstrap_bundle_ref`, which adds the rest",
        cure: Cure::RetryLatestProfile,
    },
    FailureRow {
        class: FailureClass::Datasource,
        name: "datasource",
        words: &["datasource", "data source"],
        owner: Owner::InfraOperator,
        retry: Retry::ByProfile,
        remedy: "look at the machine's console for cloud-init and at its network to MAAS' metadata (port 5248)",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::Fabric,
        name: "fabric",
        words: &["infiniband", "ipoib", "openibd", "ofed", "mlx5", "rdma", "roce", "rshim", "mst "],
        owner: Owner::InfraOperator,
        retry: Retry::Never,
        remedy: "check the fabric's cables, subnet manager and firmware",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::PackageInstall,
        name: "package_install",
        words: &[
            "apt-get",
            "apt ",
            "dpkg",
            "unable to locate package",
            "unmet dependencies",
            "failed to fetch",
            "hash sum mismatch",
            "gpg error",
        ],
        owner: Owner::BundleOwner,
        retry: Retry::Never,
        remedy: "check that the package mirror can be reached from the node and holds the package",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::Enrollment,
        name: "enrollment",
        words: &["enroll", "token_expired", "token_used", "certificate verify failed"],
        owner: Owner::PlatformOperator,
        retry: Retry::Never,
        remedy: "read the agent's log on the host and check that it reaches the control plane",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::ImageDeploy,
        name: "image_deploy",
        words: &[],
        owner: Owner::InfraOperator,
        retry: Retry::Never,
        remedy: "read the installation log in MAAS and mend the cause",
        cure: Cure::Retry,
    },
];

impl FailureClass {
    /// The class's row.
    #[must_use]
    pub fn row(self) -> &'static FailureRow {
        FAILURES.iter().find(|row| row.class == self).unwrap_or(&FAILURES[FAILURES.len() - 1])
    }

    /// Stable name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

/// The class that words tell; none where they tell nothing.
#[must_use]
pub fn classify(texts: &[&str]) -> Option<FailureClass> {
    let text = texts.join("\n").to_ascii_lowercase();
    let matches = |row: &&FailureRow| row.words.iter().any(|word| contains_word(&text, word));
    FAILURES.iter().find(matches).map(|row| row.class)
}

/// Whether `word` occurs at the beginning of a word: "processing" does not contain "roce".
fn contains_word(text: &str, word: &str) -> bool {
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(|before: char| before.is_ascii_alphanumeric()))
}

/// Classifies a failed deployment. MAAS says *Deployed* when the deployed system asks for its
/// user-data, so a failure after curtin's reboot means that it never did: whatever other words occur,
/// it did not find its datasource. Before the reboot the words decide.
#[must_use]
pub fn classify_deployment(rebooted: bool, texts: &[&str]) -> FailureClass {
    if rebooted {
        return FailureClass::Datasource;
    }
    classify(texts).unwrap_or(FailureClass::ImageDeploy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_after_the_reboot_are_the_datasource() {
        assert_eq!(classify_deployment(true, &["linux-generic"]), FailureClass::Datasource);
        assert_eq!(
            classify_deployment(false, &["Installation failed (refer to the installation log)"]),
            FailureClass::ImageDeploy
        );
    }

    #[test]
    fn words_tell_the_class() {
        for (text, class) in [
            ("curtin: installing-kernel: linux-generic FAIL", FailureClass::CurtinKernel),
            ("Error! Bad return status for module build on DKMS", FailureClass::CurtinKernel),
            ("E: Unable to locate package nvidia-driver", FailureClass::PackageInstall),
            ("dpkg: error processing package smartmontools", FailureClass::PackageInstall),
            ("searching for network data from DataSourceMAAS", FailureClass::Datasource),
            ("openibd failed to start", FailureClass::Fabric),
            ("blk_update_request: I/O error, dev nvme0n1", FailureClass::Hardware),
            ("the agent cannot enroll: token_expired", FailureClass::Enrollment),
        ] {
            assert_eq!(classify(&[text]), Some(class), "{text}");
        }
        assert_eq!(classify(&["something"]), None);
    }

    #[test]
    fn a_module_build_that_breaks_a_package_is_the_kernel() {
        let texts = ["dpkg: error processing package doca-ofed", "DKMS build of mlnx-ofed failed"];
        let class = classify(&texts).unwrap();
        assert_eq!(class, FailureClass::CurtinKernel);
        assert!(class.row().advice().contains("ubuntu/noble"));
        assert!(class.row().advice().contains("--latest-profile"));
    }

    #[test]
    fn the_table_as_text() {
        let line = |row: &FailureRow| {
            format!("{:<16}{:<18?}{:<10?}{}", row.name, row.owner, row.retry, row.advice())
        };
        let table: Vec<String> = FAILURES.iter().map(line).collect();
        insta::assert_snapshot!(table.join("\n"));
    }
}
