//! Why a run stopped: one table from the words of a stated cause to its class, and from the class to
//! owner, next action and retry policy.
//!
//! The cause is structured: the park's code, and for a deployment or a bootstrap the stage at which it
//! failed and the texts that state why. Stages come first, so a word has a meaning only where its cause
//! can occur: an image that does not boot is no matter of packages, whatever its log mentions. A text that
//! no row knows keeps the class of its stage. Lines of a timeline have no part in it, since hosts write
//! there.
//!
//! MAAS' own verdict on a failed deployment is nearly always the same sentence ("refer to the
//! installation log"); the cause is in the warnings and errors of the event feed before it. The rows are
//! ordered from the most to the least specific, and the first whose words occur wins: a DKMS build that
//! fails is also a package that fails, and both are a failed installation.

use gpuaas_types::Step;
use gpuaas_types::api::Owner;
use gpuaas_types::codes::{Cure, ParkCode};
pub use gpuaas_types::failure::FailureClass;

/// At which stage a deployment or a bootstrap failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureStage {
    /// MAAS deployed the machine, and curtin did not begin.
    BeforeInstallation,
    /// curtin installed the image.
    Installation,
    /// curtin rebooted the machine into the image, which never asked MAAS for its user-data.
    FirstBoot,
    /// The site's bundle ran.
    SiteBootstrap,
    /// The agent was installed.
    NodeBootstrap,
}

impl FailureStage {
    /// The class of a failure whose cause nothing states.
    #[must_use]
    pub const fn class(self) -> FailureClass {
        match self {
            Self::BeforeInstallation => FailureClass::NetworkBoot,
            Self::Installation => FailureClass::ImageDeploy,
            Self::FirstBoot => FailureClass::FirstBoot,
            Self::SiteBootstrap => FailureClass::SiteBootstrap,
            Self::NodeBootstrap => FailureClass::NodeBootstrap,
        }
    }
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
    /// Stages at which a text can state this cause.
    pub stages: &'static [FailureStage],
    /// Words, in lower case, any of which state the cause.
    pub words: &'static [&'static str],
    /// Who has to act.
    pub owner: Owner,
    /// Whether to try again.
    pub retry: Retry,
    /// What cures the cause.
    pub remedy: &'static str,
    /// What lets a run continue whose deployment failed so.
    pub cure: Cure,
}

impl FailureRow {
    /// Stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.class.as_str()
    }

    /// What to do about a deployment that failed so.
    #[must_use]
    pub fn advice(&self) -> String {
        let (remedy, command) = (self.remedy, self.cure.command());
        format!("{remedy}, then `{command}`, which releases the machine and deploys it again")
    }
}

use FailureStage::{BeforeInstallation, FirstBoot, Installation, NodeBootstrap, SiteBootstrap};

/// Every class of a deployment and of a bootstrap, the most specific first.
pub const FAILURES: &[FailureRow] = &[
    FailureRow {
        class: FailureClass::Hardware,
        stages: &[BeforeInstallation, Installation, FirstBoot, SiteBootstrap, NodeBootstrap],
        words: &[
            "i/o error",
            "medium error",
            "unrecovered read error",
            "smart error",
            "smart failure",
            "uncorrectable",
            "ecc error",
            "memory error",
            "machine check",
            "hardware error",
            "no block devices",
            "nvidia-smi: no devices",
            "fallen off the bus",
            "xid ",
            "power fault",
        ],
        owner: Owner::InfraOperator,
        retry: Retry::Never,
        remedy: "run MAAS hardware tests on the machine and replace the failed part",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::CurtinKernel,
        stages: &[Installation, SiteBootstrap],
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
        remedy: "switch the profile back to its previous image with `gpuaas image rollback --profile PROFILE --site SITE --reason WHY`, or to ubuntu/noble, and keep its `site_bootstrap_bundle_ref`, which installs the rest",
        cure: Cure::RetryLatestProfile,
    },
    FailureRow {
        class: FailureClass::BootLoader,
        stages: &[Installation],
        words: &[
            "grub-install",
            "grub2-install",
            "install-grub",
            "update-grub",
            "efibootmgr",
            "efi system partition",
        ],
        owner: Owner::PlatformOperator,
        retry: Retry::Never,
        remedy: "fix the boot loader of the image, or the machine's boot mode (UEFI or legacy) in its firmware",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::Storage,
        stages: &[Installation],
        words: &[
            "block-meta",
            "curtin.block",
            "clear-holders",
            "wipefs",
            "sgdisk",
            "sfdisk",
            "partprobe",
            "mkfs",
            "mdadm",
            "lvcreate",
            "vgcreate",
            "pvcreate",
            "make-bcache",
        ],
        owner: Owner::InfraOperator,
        retry: Retry::Never,
        remedy: "compare the storage layout in MAAS with the machine's disks, and wipe leftovers of an earlier system from them",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::Datasource,
        stages: &[FirstBoot],
        words: &["datasource", "data source", "metadata service"],
        owner: Owner::InfraOperator,
        retry: Retry::ByProfile,
        remedy: "check the cloud-init output on the machine's console and the network path to the MAAS metadata service (port 5248)",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::Fabric,
        stages: &[SiteBootstrap],
        words: &["infiniband", "ipoib", "openibd", "ofed", "mlx5", "rdma", "roce", "rshim", "mst "],
        owner: Owner::InfraOperator,
        retry: Retry::Never,
        remedy: "check the fabric's cables, subnet manager and firmware",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::PackageInstall,
        stages: &[Installation, SiteBootstrap],
        words: &[
            "apt-get",
            "apt ",
            "dpkg",
            "unable to locate package",
            "unmet dependencies",
            "has no installation candidate",
            "failed to fetch",
            "hash sum mismatch",
            "gpg error",
        ],
        owner: Owner::BundleOwner,
        retry: Retry::Never,
        remedy: "check that the node can reach the package mirror and that the mirror has the package",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::Enrollment,
        stages: &[NodeBootstrap],
        words: &[
            "enroll",
            "token_expired",
            "token_spent",
            "token_used",
            "token_revoked",
            "certificate verify failed",
        ],
        owner: Owner::PlatformOperator,
        retry: Retry::Never,
        remedy: "read the agent's log on the host and check that the agent can reach the control plane",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::NetworkBoot,
        stages: &[],
        words: &[],
        owner: Owner::InfraOperator,
        retry: Retry::Never,
        remedy: "check the machine's console, its boot order, the link of its boot interface and DHCP on its network",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::ImageDeploy,
        stages: &[],
        words: &[],
        owner: Owner::InfraOperator,
        retry: Retry::Never,
        remedy: "read the installation log in MAAS and fix the cause",
        cure: Cure::Retry,
    },
    FailureRow {
        class: FailureClass::FirstBoot,
        stages: &[],
        words: &[],
        owner: Owner::PlatformOperator,
        retry: Retry::Never,
        remedy: "check the machine's console: the image was written, but the boot did not reach cloud-init; `gpuaas image boot-test FILE` boots the image elsewhere",
        cure: Cure::RetryLatestProfile,
    },
    FailureRow {
        class: FailureClass::SiteBootstrap,
        stages: &[],
        words: &[],
        owner: Owner::BundleOwner,
        retry: Retry::Never,
        remedy: "read /var/log/cloud-init-output.log on the host for the phase that failed",
        cure: Cure::Resume,
    },
    FailureRow {
        class: FailureClass::NodeBootstrap,
        stages: &[],
        words: &[],
        owner: Owner::PlatformOperator,
        retry: Retry::Never,
        remedy: "read /var/log/cloud-init-output.log on the host",
        cure: Cure::Resume,
    },
];

/// The row of the class.
#[must_use]
pub fn row_of(class: FailureClass) -> Option<&'static FailureRow> {
    FAILURES.iter().find(|row| row.class == class)
}

/// The row that the stated cause tells; if it tells nothing, that of the stage.
#[must_use]
pub fn classify(stage: FailureStage, texts: &[&str]) -> &'static FailureRow {
    let text = texts.join("\n").to_ascii_lowercase();
    let states = |row: &&FailureRow| {
        row.stages.contains(&stage) && row.words.iter().any(|word| contains_word(&text, word))
    };
    let of_stage = || FAILURES.iter().find(|row| row.class == stage.class());
    FAILURES.iter().find(states).or_else(of_stage).unwrap_or(&FAILURES[0])
}

/// Whether `word` occurs at the beginning of a word: "processing" does not contain "roce".
fn contains_word(text: &str, word: &str) -> bool {
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(|before: char| before.is_ascii_alphanumeric()))
}

/// The class of a park without a cause of its own: that of its code, and where a deadline passed, that of
/// the step which took too long.
#[must_use]
pub const fn class_of_park(code: ParkCode, step: Step) -> FailureClass {
    match (code, step) {
        (ParkCode::DeadlineExceeded, Step::Commission) => FailureClass::Commissioning,
        (ParkCode::DeadlineExceeded, Step::Deploy) => FailureClass::ImageDeploy,
        (ParkCode::DeadlineExceeded, Step::FirstBoot) => FailureClass::FirstBoot,
        (ParkCode::DeadlineExceeded, Step::BootstrapFetch | Step::SiteBootstrap) => {
            FailureClass::SiteBootstrap
        }
        (ParkCode::DeadlineExceeded, Step::NodeBootstrap) => FailureClass::NodeBootstrap,
        (ParkCode::DeadlineExceeded, Step::Enrollment) => FailureClass::Enrollment,
        (
            ParkCode::DeadlineExceeded,
            Step::HostReboot | Step::PrereqChecks | Step::Confirmation,
        ) => FailureClass::HostChecks,
        _ => FailureClass::of_park(code),
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
