//! Faults of builds and installers: what they left of their machine, its disks and its network.

use super::{FaultPlant, PlantedFault, other, tree};

/// A UUID of the build.
const UUID: &str = "11111111-2222-3333-4444-555555555555";

/// A further line in GRUB's defaults of its own file.
macro_rules! grub {
    ($code:literal, $about:literal, $content:expr) => {
        added!($code, $about, "etc/default/grub.d/95-left.cfg", $content)
    };
}

/// Each of them.
pub(super) const FAULTS: &[PlantedFault] = &[
    added!(
        "cloud_init_disabled",
        "ds-identify's policy",
        "etc/cloud/ds-identify.cfg",
        "policy: disabled\n"
    ),
    added!(
        "cloud_init_disabled",
        "network disabled, in quotes",
        "etc/cloud/cloud.cfg.d/99-net.cfg",
        "network: {\"config\": \"disabled\"}\n"
    ),
    added!(
        "cloud_init_disabled",
        "user-data refused",
        "etc/cloud/cloud.cfg.d/99-x.cfg",
        "allow_userdata: false\n"
    ),
    tree("cloud_init_disabled", "a unit is masked", |image| {
        image.link("etc/systemd/system/cloud-init-local.service", "/dev/null");
    }),
    tree("cloud_init_disabled", "the generator is masked", |image| {
        image.link("etc/systemd/system-generators/cloud-init-generator", "../../../dev/null");
    }),
    tree("cloud_init_disabled", "a unit is not enabled", |image| {
        image.file("usr/lib/systemd/system/cloud-final.service", "[Unit]\n");
    }),
    added!(
        "cloud_init_disabled",
        "a drop-in replaces the command",
        "etc/systemd/system/cloud-init.service.d/off.conf",
        "[Service]\nExecStart=\nExecStart=/bin/true\n"
    ),
    grub!(
        "cloud_init_disabled",
        "a kernel argument set through a variable",
        "OFF='cloud-init=disabled'\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX ${OFF}\"\n"
    ),
    added!(
        "datasource_excludes_maas",
        "ds-identify's source",
        "etc/cloud/ds-identify.cfg",
        "policy: search\ndatasource: \"NoCloud\"\n"
    ),
    added!(
        "datasource_excludes_maas",
        "a list that spans several lines",
        "etc/cloud/cloud.cfg.d/99-installer.cfg",
        "datasource_list:\n  - None\n"
    ),
    grub!(
        "datasource_excludes_maas",
        "a kernel argument",
        "export GRUB_CMDLINE_LINUX=\"ds=nocloud;s=http://192.0.2.1/\"\n"
    ),
    added!(
        "maas_datasource_left",
        "a deployed machine was captured",
        "etc/cloud/cloud.cfg.d/90_dpkg_maas.cfg",
        "datasource:\n  MAAS: {metadata_url: 'http://10.0.0.1:5240/MAAS/metadata/', token_key: x}\n"
    ),
    tree("cloud_init_ignores_maas", "Debian's package without a hook", |image| {
        image
            .file("usr/lib/os-release", "ID=debian\nVERSION_ID=\"12\"\n")
            .remove("curtin")
            .remove("var/lib/dkms");
    }),
    tree("cloud_init_ignores_maas", "a script for an old Python", |image| {
        image
            .file(
                "var/lib/dpkg/info/cloud-init.postinst",
                "db_get cloud-init/maas-metadata-url\npython -c 'cand.iteritems()'\n",
            )
            .remove("curtin")
            .remove("var/lib/dkms");
    }),
    added!(
        "network_config_left",
        "the installer's port configuration for cloud-init",
        "etc/cloud/cloud.cfg.d/50-curtin-networking.cfg",
        "network:\n  version: 1\n  config: [{type: physical, name: eno1}]\n"
    ),
    added!(
        "network_config_left",
        "port configuration of Debian's installer",
        "etc/network/interfaces",
        "auto lo\niface lo inet loopback\nauto ens3\niface ens3 inet dhcp\n"
    ),
    added!(
        "network_config_left",
        "a name for a MAC address",
        "etc/systemd/network/10-eth.link",
        "[Match]\nMACAddress=52:54:00:12:34:56\n[Link]\nName=eth0\n"
    ),
    added!(
        "credential_left",
        "the installer's answers",
        "var/log/installer/autoinstall-user-data",
        "autoinstall: {identity: {password: x}}\n"
    ),
    added!(
        "credential_left",
        "a password stored by debconf",
        "var/cache/debconf/passwords.dat",
        "Name: mysql-server/root_password\nValue: secret\n"
    ),
    tree("sshd_ignores_drop_ins", "settings before the Include", |image| {
        image.packages(&["openssh-server"]).file(
            "etc/ssh/sshd_config",
            "PermitRootLogin yes\nInclude /etc/ssh/sshd_config.d/*.conf\n",
        );
    }),
    added!(
        "host_identity_left",
        "the NVMe initiator name",
        "etc/nvme/hostnqn",
        "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555\n"
    ),
    added!(
        "host_identity_left",
        "the iSCSI initiator name",
        "etc/iscsi/initiatorname.iscsi",
        "# made\nInitiatorName=iqn.2004-10.com.example:01:abcdef012345\n"
    ),
    added!("host_identity_left", "the key of a cluster", "etc/munge/munge.key", "key"),
    grub!("grub_names_build_disk", "the partition of the cloud image", "GRUB_FORCE_PARTUUID=x\n"),
    grub!(
        "grub_names_build_disk",
        "the build's root",
        "GRUB_CMDLINE_LINUX=\"root=UUID=11111111-2222-3333-4444-555555555555\"\n"
    ),
    grub!("grub_names_build_disk", "the build's swap", "GRUB_CMDLINE_LINUX+=' resume=/dev/vda3'\n"),
    added!(
        "grub_names_build_disk",
        "kernel arguments of systemd-boot",
        "etc/kernel/cmdline",
        "root=PARTUUID=1 quiet\n"
    ),
    tree("build_disk_named", "the initrd waits for swap", |image| {
        image.file("etc/initramfs-tools/conf.d/resume", &format!("RESUME=UUID={UUID}\n"));
    }),
    added!(
        "build_disk_named",
        "encrypted swap",
        "etc/crypttab",
        "swap /dev/vda3 /dev/urandom swap\n"
    ),
    added!(
        "build_disk_named",
        "software RAID",
        "etc/mdadm/mdadm.conf",
        "HOMEHOST <system>\nARRAY /dev/md0 metadata=1.2 UUID=1:2:3:4\n"
    ),
    added!(
        "build_disk_named",
        "the LVM device list",
        "etc/lvm/devices/system.devices",
        "IDTYPE=devname IDNAME=/dev/vda3 DEVNAME=/dev/vda3 PVID=A\n"
    ),
    added!(
        "build_disk_named",
        "a mount unit",
        "etc/systemd/system/data.mount",
        "[Mount]\nWhat=/dev/disk/by-uuid/x\nWhere=/data\n"
    ),
    added!(
        "debconf_names_build_disk",
        "GRUB's disk on the build machine",
        "var/cache/debconf/config.dat",
        "Name: grub-pc/install_devices\nTemplate: grub-pc/install_devices\nValue: /dev/vda\n"
    ),
    tree("curtin_hook_unknown", "a template hook that calls curtin's own steps", |image| {
        let text = "#!/usr/bin/env python3\nfrom curtin.commands import curthooks\n\
                    curthooks.builtin_curthooks(config, target, state)\n";
        image.file("curtin/curtin-hooks", text).mode("curtin/curtin-hooks", 0o755);
    }),
    tree("system_mode_wrong", "a root folder created by mktemp", |image| {
        image.mode("", 0o700);
    }),
    tree("system_mode_wrong", "umask 077", |image| {
        for path in ["usr", "etc", "usr/bin"] {
            image.mode(path, 0o700);
        }
        image.mode("etc/passwd", 0o600);
    }),
    tree("system_mode_open", "world-readable passwords", |image| {
        image.mode("etc/shadow", 0o644);
    }),
    tree("system_mode_open", "a world-writable /etc", |image| {
        image.mode("etc", 0o777);
    }),
    other(
        "file_type_differs",
        "a disk declared ddtgz but not in a tar",
        FaultPlant::Declared("ddtgz"),
    ),
    other(
        "file_type_differs",
        "a disk declared as a root file system",
        FaultPlant::Declared("tgz"),
    ),
];
