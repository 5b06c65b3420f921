//! Commands of operators that the cases have in common.

pub(super) const DISKS_MANY: &str =
    "gpuaas site set simulated --bundle-input validate-h200.disk_count=many";
pub(super) const DISKS_ONE: &str =
    "gpuaas site set simulated --bundle-input validate-h200.disk_count=1";
pub(super) const APPROVE: &str = "gpuaas bundle approve late@0.1.0 --site simulated --reason tried";
pub(super) const ROCE: &str = "gpuaas roce add --site simulated --host {host} --interface ens108np0 \
     --subnet 10.101.0.0/16 --ip 10.101.0.21";
pub(super) const ROCE_ON_BOOT: &str = "gpuaas roce add --site simulated --host {host} --interface eno8303 \
     --subnet 10.101.0.0/16 --ip 10.101.0.21";
pub(super) const ROCE_TO_FABRIC: &str = "gpuaas roce set --site simulated --host {host} --interface eno8303 \
     --to-interface ens108np0";
pub(super) const ROCE_NOWHERE: &str = "gpuaas roce add --site simulated --host {host} --interface ens108np0 \
     --subnet 10.250.0.0/16 --ip 10.250.0.21";
pub(super) const ROCE_INTO_SUBNET: &str = "gpuaas roce set --site simulated --host {host} \
     --interface ens108np0 --subnet 10.101.0.0/16 --ip 10.101.0.21";
pub(super) const ROCE_ELSEWHERE: &str = "gpuaas roce add --site simulated --host {host} --interface ens999 \
     --subnet 10.101.0.0/16 --ip 10.101.0.21";
