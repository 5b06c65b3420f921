//! Filesystems on whole disks. Not among the recordings: states and refusals are those that MAAS'
//! handler of block devices has.

#![expect(clippy::expect_used, reason = "test code")]

use crate::common::{TestRegion, zero};
use maas_sim::{MachineSpec, Status};
use serde_json::Value;

fn sim(status: Status) -> (TestRegion, String) {
    let mut sim = TestRegion::new(zero());
    let id = sim.region.add_machine(MachineSpec::new("a", status));
    (sim, id)
}

/// The first disk without a partition, or with one.
fn disk(sim: &mut TestRegion, id: &str, partitioned: bool) -> Value {
    let disks = sim.get(&format!("nodes/{id}/blockdevices/"));
    let disks = disks.as_array().expect("disks").clone();
    let has = |disk: &Value| !disk["partitions"].as_array().expect("partitions").is_empty();
    disks.into_iter().find(|disk| has(disk) == partitioned).expect("a disk")
}

fn path(id: &str, disk: &Value) -> String {
    format!("nodes/{id}/blockdevices/{}/", disk["id"])
}

#[test]
fn a_disk_is_formatted_and_mounted_and_a_layout_clears_it() {
    let (mut sim, id) = sim(Status::Ready);
    let bare = disk(&mut sim, &id, false);
    let (size, path) = (bare["size"].clone(), path(&id, &bare));
    assert_eq!(bare["used_for"], "Unused");
    let made = sim.post(&path, "op=format&fstype=xfs").body_json();
    assert_eq!(made["filesystem"]["fstype"], "xfs");
    assert_eq!(made["filesystem"]["mount_point"], Value::Null);
    assert_eq!(made["used_for"], "Unmounted xfs formatted filesystem");
    assert_eq!((&made["used_size"], &made["available_size"]), (&size, &Value::from(0)));
    let mounted = sim.post(&path, "op=mount&mount_point=/data/0").body_json();
    assert_eq!(mounted["filesystem"]["mount_point"], "/data/0");
    let machine = sim.get(&format!("machines/{id}/"));
    let disks = machine["physicalblockdevice_set"].as_array().expect("disks");
    let seen = disks.iter().find(|d| d["id"] == bare["id"]).expect("the disk");
    assert_eq!(seen["used_for"], "xfs formatted filesystem mounted at /data/0");
    let laid = sim.post(&format!("machines/{id}/"), "op=set_storage_layout&storage_layout=flat");
    assert_eq!(laid.status, 200, "{}", laid.body_text());
    assert_eq!(sim.get(&path)["filesystem"], Value::Null);
}

#[test]
fn what_cannot_be_done_is_refused() {
    let (mut sim, id) = sim(Status::Ready);
    let (bare, parts) = (disk(&mut sim, &id, false), disk(&mut sim, &id, true));
    let (bare, parts) = (path(&id, &bare), path(&id, &parts));
    for (path, form, text) in [
        (&bare, "op=format", "This field is required."),
        (&bare, "op=format&fstype=zfs-on-tape", "Select a valid choice. zfs-on-tape"),
        (&parts, "op=format&fstype=ext4", "with a partition table"),
        (&bare, "op=mount&mount_point=/x", "Cannot mount an unformatted"),
    ] {
        let refused = sim.post(path, form);
        assert_eq!(refused.status, 400, "{form}");
        assert!(refused.body_text().contains(text), "{form}: {}", refused.body_text());
    }
    let (mut sim, id) = self::sim(Status::Deployed);
    let bare = disk(&mut sim, &id, false);
    let bare = path(&id, &bare);
    for (form, verb) in [("op=format&fstype=ext4", "format"), ("op=mount&mount_point=/x", "mount")]
    {
        let refused = sim.post(&bare, form);
        let text =
            format!("Cannot {verb} block device because the machine is not Ready or Allocated.");
        assert_eq!((refused.status, refused.body_text()), (409, text));
    }
}
