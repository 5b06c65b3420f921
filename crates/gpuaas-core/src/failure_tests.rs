use super::*;
use FailureClass as C;
use FailureStage::{BeforeInstallation, FirstBoot, Installation, NodeBootstrap, SiteBootstrap};

/// Texts as MAAS, curtin, cloud-init, apt, Linux and our own scripts write them, with the stage at which
/// they are read and the class that they state.
const CORPUS: &[(FailureStage, &str, FailureClass)] = &[
    (BeforeInstallation, "Node operation 'Deploying' timed out after 30 minutes.", C::NetworkBoot),
    (BeforeInstallation, "PXE-E18: Server response timeout", C::NetworkBoot),
    (BeforeInstallation, "TFTP request - bootx64.efi requested by 10.0.0.7", C::NetworkBoot),
    (BeforeInstallation, "mce: [Hardware Error]: Machine check events logged", C::Hardware),
    (BeforeInstallation, "EDAC MC0: 1 UE memory read error: uncorrectable", C::Hardware),
    (BeforeInstallation, "dpkg: error processing package (of another machine)", C::NetworkBoot),
    (
        Installation,
        "Installation failed (refer to the installation log for more information).",
        C::ImageDeploy,
    ),
    (Installation, "Node operation 'Deploying' timed out after 60 minutes.", C::ImageDeploy),
    (
        Installation,
        "curtin: Installation failed with exception: Unexpected error while running command.",
        C::ImageDeploy,
    ),
    (
        Installation,
        "finish: cmd-install/stage-extract/builtin/cmd-extract: FAIL: acquiring and extracting image from http://10.0.0.2:5248/images/custom",
        C::ImageDeploy,
    ),
    (Installation, "tar: Unexpected EOF in archive", C::ImageDeploy),
    (Installation, "wget: server returned error: HTTP/1.1 404 Not Found", C::ImageDeploy),
    (Installation, "curtin: installing-kernel: linux-generic FAIL", C::CurtinKernel),
    (
        Installation,
        "finish: cmd-install/stage-curthooks/builtin/cmd-curthooks/installing-kernel: FAIL: installing kernel",
        C::CurtinKernel,
    ),
    (Installation, "E: Unable to locate package linux-image-6.8.0-51-generic", C::CurtinKernel),
    (
        Installation,
        "Error! Bad return status for module build on kernel: DKMS build failed",
        C::CurtinKernel,
    ),
    (
        Installation,
        "Error! Your kernel headers for kernel 6.8.0 cannot be found: linux-headers-6.8.0",
        C::CurtinKernel,
    ),
    (Installation, "grub-install: error: cannot find EFI directory.", C::BootLoader),
    (
        Installation,
        "finish: cmd-install/stage-curthooks/builtin/cmd-curthooks/install-grub: FAIL: installing grub to target devices",
        C::BootLoader,
    ),
    (
        Installation,
        "Could not prepare Boot variable: efibootmgr: No space left on device",
        C::BootLoader,
    ),
    (Installation, "No EFI system partition was found in the storage configuration", C::BootLoader),
    (
        Installation,
        "finish: cmd-install/stage-partitioning/builtin/cmd-block-meta: FAIL: curtin command block-meta",
        C::Storage,
    ),
    (Installation, "curtin.block.clear_holders: failed to shut down device /dev/md127", C::Storage),
    (
        Installation,
        "wipefs: error: /dev/nvme0n1: probing initialization failed: Device or resource busy",
        C::Storage,
    ),
    (Installation, "sgdisk: Problem opening /dev/nvme1n1 for reading!", C::Storage),
    (Installation, "mkfs.ext4: Device size reported to be zero.", C::Storage),
    (Installation, "mdadm: cannot open /dev/nvme2n1: Device or resource busy", C::Storage),
    (Installation, "blk_update_request: I/O error, dev nvme0n1, sector 2048", C::Hardware),
    (Installation, "nvme nvme3: critical medium error, dev nvme3n1", C::Hardware),
    (
        Installation,
        "sd 0:0:0:0: [sda] Unrecovered read error - auto reallocate failed",
        C::Hardware,
    ),
    (Installation, "E: Unable to locate package nvidia-driver-570-server", C::PackageInstall),
    (Installation, "dpkg: error processing package smartmontools (--configure)", C::PackageInstall),
    (
        Installation,
        "E: Failed to fetch http://archive.ubuntu.com/ubuntu/pool/main/c/chrony.deb 503",
        C::PackageInstall,
    ),
    (
        Installation,
        "W: GPG error: http://archive.ubuntu.com noble InRelease: NO_PUBKEY",
        C::PackageInstall,
    ),
    (Installation, "searching for network data from DataSourceMAAS", C::ImageDeploy),
    (FirstBoot, "Node operation 'Deploying' timed out after 30 minutes.", C::FirstBoot),
    (
        FirstBoot,
        "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)",
        C::FirstBoot,
    ),
    (
        FirstBoot,
        "error: no such device: 1b2c3d4e. Entering rescue mode... grub rescue>",
        C::FirstBoot,
    ),
    (
        FirstBoot,
        "Gave up waiting for root file system device. ALERT! UUID=1b2c does not exist. Dropping to a shell!",
        C::FirstBoot,
    ),
    (FirstBoot, "curtin: installing-kernel: linux-generic", C::FirstBoot),
    (FirstBoot, "dpkg was interrupted on the build host", C::FirstBoot),
    (FirstBoot, "'cloudinit' searching for network data from DataSourceMAAS", C::Datasource),
    (
        FirstBoot,
        "cloud-init: No data source found: did not find any data source, searched classes: ()",
        C::Datasource,
    ),
    (
        FirstBoot,
        "url_helper.py: Calling metadata service http://10.0.0.2:5248/MAAS/metadata/ failed: timed out",
        C::Datasource,
    ),
    (
        FirstBoot,
        "EXT4-fs error (device nvme0n1p2): I/O error while reading superblock",
        C::Hardware,
    ),
    (SiteBootstrap, "openibd failed to start", C::Fabric),
    (SiteBootstrap, "h200-ib@1.2.0: ipoib: ib0 has no carrier", C::Fabric),
    (SiteBootstrap, "mlx5_core 0000:18:00.0: probe failed: firmware is not responding", C::Fabric),
    (SiteBootstrap, "E: Unable to locate package nvidia-driver-570", C::PackageInstall),
    (SiteBootstrap, "E: Package 'netdata' has no installation candidate", C::PackageInstall),
    (
        SiteBootstrap,
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1234",
        C::PackageInstall,
    ),
    (SiteBootstrap, "Error! DKMS build of mlnx-ofed-kernel failed", C::CurtinKernel),
    (SiteBootstrap, "NVRM: GPU 0000:19:00.0: GPU has fallen off the bus.", C::Hardware),
    (SiteBootstrap, "NVRM: Xid (PCI:0000:19:00): 79, pid=1234", C::Hardware),
    (SiteBootstrap, "nvidia-smi: no devices were found", C::Hardware),
    (SiteBootstrap, "processing of mount /data did not end within 600 s", C::SiteBootstrap),
    (SiteBootstrap, "the phase base ended with 1", C::SiteBootstrap),
    (SiteBootstrap, "the agent cannot enroll: token_expired", C::SiteBootstrap),
    (NodeBootstrap, "the agent stopped: the agent cannot enroll: token_expired", C::Enrollment),
    (NodeBootstrap, "the agent stopped: token_spent", C::Enrollment),
    (NodeBootstrap, "curl: (60) SSL: certificate verify failed", C::Enrollment),
    (NodeBootstrap, "no heartbeat was accepted within 300 s: connection refused", C::NodeBootstrap),
    (NodeBootstrap, "the site bootstrap of this run did not succeed", C::NodeBootstrap),
    (
        NodeBootstrap,
        "agent 0.1.0 cannot be fetched from https://10.0.0.1:8443: HTTP 404",
        C::NodeBootstrap,
    ),
    (NodeBootstrap, "apt-get was here", C::NodeBootstrap),
];

#[test]
fn each_text_of_the_corpus_has_its_class() {
    assert!(CORPUS.len() >= 50, "{}", CORPUS.len());
    for (stage, text, class) in CORPUS {
        assert_eq!(classify(*stage, &[text]).class, *class, "{stage:?}: {text}");
    }
    for row in FAILURES {
        assert!(CORPUS.iter().any(|(.., class)| *class == row.class), "no text for {}", row.name());
    }
}

#[test]
fn unknown_text_keeps_the_class_of_its_stage() {
    for stage in [BeforeInstallation, Installation, FirstBoot, SiteBootstrap, NodeBootstrap] {
        assert_eq!(
            classify(stage, &["something (hardware_test) curtin-kernel: no"]).class,
            stage.class()
        );
        assert_eq!(classify(stage, &[]).class, stage.class());
    }
}

#[test]
fn module_build_that_breaks_a_package_is_the_kernel() {
    let texts = ["dpkg: error processing package doca-ofed", "DKMS build of mlnx-ofed failed"];
    let row = classify(Installation, &texts);
    assert_eq!(row.class, FailureClass::CurtinKernel);
    assert!(row.advice().contains("ubuntu/noble"));
    assert!(row.advice().contains("--latest-profile"));
}

#[test]
fn deadline_has_the_class_of_its_step() {
    let class = |step| class_of_park(ParkCode::DeadlineExceeded, step);
    assert_eq!(class(Step::Commission), FailureClass::Commissioning);
    assert_eq!(class(Step::FirstBoot), FailureClass::FirstBoot);
    assert_eq!(class(Step::Release), FailureClass::Unknown);
    assert_eq!(class_of_park(ParkCode::MachineTaken, Step::FirstBoot), FailureClass::Person);
}

#[test]
fn the_table_as_text() {
    let line = |row: &FailureRow| {
        format!("{:<16}{:<18?}{:<10?}{}", row.name(), row.owner, row.retry, row.advice())
    };
    let table: Vec<String> = FAILURES.iter().map(line).collect();
    insta::assert_snapshot!(table.join("\n"));
}
