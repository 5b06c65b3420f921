# shellcheck shell=bash disable=SC2154,SC2016 # sourced by test.sh, which sets these
# h200-slice-vm.

driver_of() { basename -- "$(readlink -- "$root/sys/bus/pci/devices/$1/driver")"; }

# A slice host's profile sets every input of h200-ib but those that a slice host decides: each is
# passed on under the same name, with the same type and default, and a variable of its own.
test_required_inputs() {
    python3 - "$here" >"$work/said" 2>&1 <<'PYTHON' || wrong "$(<"$work/said")"
import sys, yaml
slice_vm, ib = (yaml.safe_load(open(f"{sys.argv[1]}/{name}/bundle.yaml")) for name in ("h200-slice-vm", "h200-ib"))
(required,) = slice_vm["requires"]
assert required["bundle"] == f"h200-ib@{ib['version']}", required["bundle"]
given, own = required["with"], slice_vm["inputs"]
decided = {
    "host_role": "slice",
    "netdata_required": "0",  # no slice waits for telemetry
    "nvidia_smi": "0",  # the GPUs are the guests'
    "disable_acs": None,  # without ACS guests are not apart
    "nvidia_packages": None,  # the same
    "gpu_count": None,  # of nvidia-smi, which nobody asks
    "gpu_model": None,  # the same
    "ipoib": None,  # a slice host's fabric is InfiniBand
    "nvidia_repo_url": None,  # no driver of NVIDIA's
    "nvidia_key_url": None,
    "nvidia_key_sha256": None,
}
assert set(given) <= set(ib["inputs"]), set(given) - set(ib["inputs"])
for name, of in ib["inputs"].items():
    if name in decided:
        assert given.get(name) == decided[name], name
        continue
    assert "{%s}" % name in given.get(name, ""), f"{name} is not passed on"
    mine = own[name]
    fields = ("type", "default", "secret", "unique", "derived")
    if name == "telemetry_groups":  # without the GPUs, which are the guests'
        assert of["default"] == mine["default"] + " nvidia_smi", mine
        fields = ("type",)
    # What hangs on an input that is decided here hangs on nothing.
    if of.get("derived", {}).get("only_when") in decided: of["derived"].pop("only_when")
    assert all(mine.get(field) == of.get(field) for field in fields), name
    assert mine["environment"] == of["environment"].replace("H200_", "GPUAAS_SLICE_"), mine
assert "{guest_subnet}" in given["telemetry_deny"]
PYTHON
}

test_settings() {
    use h200-slice-vm
    twice settings
    has_line /etc/gpuaas/slice.env "GPUAAS_SLICE_GATEWAY=10.100.0.1/24"
    has_line /etc/gpuaas/slice.env "GPUAAS_SLICE_GUEST_CALL_PORT=18775"
    has_line /etc/gpuaas/slice.env "GPUAAS_SLICE_MEMORY_GIB_PER_GPU=64"
    has_line /etc/gpuaas/slice.env "GPUAAS_SLICE_VIRT_TYPE=kvm"
    refused "expected 1 to 9999" settings GPUAAS_SLICE_MEMORY_GIB_PER_GPU=0
    refused "a character that the boot loader" settings GPUAAS_SLICE_KERNEL_ARGUMENTS='quiet $(reboot)'
    refused "expected a number of cores" settings GPUAAS_SLICE_HOST_CORES_PER_NODE=many
    refused "expected a port from 1024 to 65535" settings GPUAAS_SLICE_GUEST_CALL_PORT=80
    refused "expected a port from 1024 to 65535" settings GPUAAS_SLICE_GUEST_CALL_PORT=65536
    twice settings GPUAAS_SLICE_GUEST_SUBNET=10.7.0.0/22 GPUAAS_SLICE_GATEWAY=10.7.3.254/22 GPUAAS_SLICE_DHCP_FIRST=10.7.0.1 GPUAAS_SLICE_DHCP_LAST=10.7.3.253
    refused "is reversed" settings GPUAAS_SLICE_DHCP_FIRST=10.100.0.200 GPUAAS_SLICE_DHCP_LAST=10.100.0.100
    refused "DHCP_LAST 10.101.0.9 is not a host address of" settings GPUAAS_SLICE_DHCP_LAST=10.101.0.9
    refused "DHCP_LAST 10.100.0.255 is not a host address of" settings GPUAAS_SLICE_DHCP_LAST=10.100.0.255
    refused "is inside the DHCP range" settings GPUAAS_SLICE_DHCP_FIRST=10.100.0.1
    refused "7 addresses for 8 GPUs" settings GPUAAS_SLICE_DHCP_FIRST=10.100.0.10 GPUAAS_SLICE_DHCP_LAST=10.100.0.16
    refused "is not a host address of the guest subnet" settings GPUAAS_SLICE_GATEWAY=10.100.0.1/16
    refused "is a host address, expected a subnet" settings GPUAAS_SLICE_GUEST_SUBNET=10.100.0.9/24
    refused "expected 16: 8 HCAs with 2 each" settings GPUAAS_SLICE_VFS_PER_HCA=2
    refused "four hexadecimal digits" settings GPUAAS_SLICE_GPU_VENDOR=0x10de
    refused "two, four or six hexadecimal digits" settings GPUAAS_SLICE_HCA_CLASS=207
}

test_kernel_arguments() {
    use h200-slice-vm
    twice kernel-arguments
    local pages="hugepagesz=1G hugepages=512"
    has_line /etc/default/grub "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet iommu=pt intel_iommu=on $pages\""
    has_line /etc/default/grub "# kept"
    has_line /boot/grub/cmdline "console=tty1 console=ttyS0 intel_iommu=on iommu=pt $pages"
    said "reboot needed: the kernel was started without intel_iommu=on iommu=pt $pages"
    [[ $(grep -c update-grub "$root/run/fixture/log") == 1 ]] || wrong "update-grub ran more than once"
    printf 'ro intel_iommu=on iommu=pt intel_iommu=off %s\n' "$pages" >"$root/proc/cmdline"
    passes kernel-arguments
    said "reboot needed: the kernel was started without intel_iommu=on$"
    printf 'ro intel_iommu=on,sm_on iommu=pt "%s"\n' "$pages" >"$root/proc/cmdline"
    local others=$root/run/gpuaas/reboot-needed.d/h200-ib.nvidia
    printf 'a driver\n' >"$others"
    passes kernel-arguments
    again kernel-arguments
    [[ ! -e $root/run/gpuaas/reboot-needed.d/h200-slice-vm.kernel-arguments ]] || wrong "it still wants a reboot"
    [[ -e $others ]] || wrong "another phase's reason is gone"
    # Without the cloud image's drop-in nothing is there twice, and without a file there is one.
    rm -- "$root/etc/default/grub.d/50-cloudimg-settings.cfg" "$root/etc/default/grub"
    twice kernel-arguments GPUAAS_SLICE_IOMMU_ARGUMENT=amd_iommu=on
    has_line /boot/grub/cmdline "amd_iommu=on iommu=pt $pages"
    # Another shape takes the place of the earlier one; a profile's own pages take the place of both.
    twice kernel-arguments GPUAAS_SLICE_IOMMU_ARGUMENT=amd_iommu=on GPUAAS_SLICE_MEMORY_GIB_PER_GPU=32
    has_line /boot/grub/cmdline "amd_iommu=on iommu=pt hugepagesz=1G hugepages=256"
    twice kernel-arguments GPUAAS_SLICE_IOMMU_ARGUMENT=amd_iommu=on GPUAAS_SLICE_KERNEL_ARGUMENTS="nokaslr hugepagesz=1G hugepages=600"
    has_line /boot/grub/cmdline "amd_iommu=on iommu=pt nokaslr hugepagesz=1G hugepages=600"
}

test_gpu_modules() {
    local record=/var/lib/gpuaas/slices/nvidia-smi.xml
    use h200-slice-vm
    passes settings
    twice gpu-modules
    has_line "$record" "<gpu_module_id>6</gpu_module_id>"
    has_line "$record" "<!-- gpuaas hardware: product_uuid=4c4c4544-0038-3010-8051-b4c04f4a3232 product_serial=J22U110 board_serial=.J22U110.CNFCP0025B00A1. -->"
    passes fabric-vfs
    passes vfio-devices
    again gpu-modules
    said "has the module IDs of 8 GPUs"
    # A record of other hardware does not count, and GPUs bound to vfio-pci report no module ID.
    printf 'OTHER\n' >"$root/sys/class/dmi/id/board_serial"
    again gpu-modules
    said "warning: 0000:13:00.0 is bound to vfio-pci .*gpuaas node reimage j22u11"
    # Without its driver the image gets it for this.
    new_host
    use h200-slice-vm
    passes settings
    "$GPUAAS_FIXTURE_KERNEL" have broken nvidia-smi
    passes gpu-modules GPUAAS_SLICE_INSTALL_PACKAGES=0
    said "warning: nvidia-smi does not report a module ID"
    passes gpu-modules
    logged "install --no-install-recommends -- nvidia-headless-570-server nvidia-utils-570-server"
    [[ ! -e $root$record ]] || wrong "there is a record that nobody could make"
    "$GPUAAS_FIXTURE_KERNEL" lose broken nvidia-smi
    passes gpu-modules
    [[ -e $root$record ]] || wrong "there is no record"
    rm -r -- "$root"/sys/bus/pci/devices/0000:00:0[2-5].0 "$root$record"
    again gpu-modules
    said "no NVSwitch connects the GPUs"
}

test_fabric_vfs_and_vfio() {
    use h200-slice-vm
    passes settings
    twice fabric-vfs
    [[ $(compgen -G "$root/sys/bus/pci/devices/*/physfn" | wc -l) == 8 ]] || wrong "expected eight virtual functions"
    [[ $(<"$root/sys/bus/pci/devices/0000:00:01.0/sriov_numvfs") == 0 ]] || wrong "the Ethernet adapter has functions"
    logged "ip link set dev ibp36s0 vf 0 node_guid 96:6d:ae:f0:00:12:34:01"
    logged "ip link set dev ibp36s0 vf 0 state auto"
    twice vfio-devices
    has_line /etc/modprobe.d/gpuaas-slice.conf "install nvidia /bin/false"
    said "note: 4 NVSwitches connect the GPUs"
    [[ $(driver_of 0000:13:00.0) == vfio-pci && $(driver_of 0000:84:00.1) == vfio-pci ]] || wrong "not bound to vfio-pci"
    [[ $(driver_of 0000:14:00.0) == mlx5_core ]] || wrong "the HCA itself was taken"
    [[ $(compgen -G "$root/sys/bus/pci/drivers/vfio-pci/0000:*" | wc -l) == 16 ]] || wrong "expected 16 functions"
    # IPoIB does not take a guest's link for the host's.
    use h200-ib
    passes ipoib
    # After a boot the kernel knows nothing of it, and the units do it all again.
    use h200-slice-vm
    passes fabric-vfs
    said "unchanged /etc/systemd/system/gpuaas-slice-fabric-vfs.service"
}

# What the kernel and its switch lost comes back with the next run, although no file has changed.
test_slice_restores_the_kernel() {
    use h200-slice-vm
    local kernel=$here/fixture/kernel state=$root/run/fixture phase
    for phase in settings fabric-vfs vfio-devices network-baseline ovs-bridge dnsmasq; do passes "$phase"; done
    "$kernel" unplug 0000:24:00.1
    printf '0\n' >"$root/sys/bus/pci/devices/0000:34:00.0/sriov_numvfs"
    twice fabric-vfs
    said "changed 0000:24:00.0 has 1 virtual functions|runs|systemctl"
    [[ $(compgen -G "$root/sys/bus/pci/devices/*/physfn" | wc -l) == 8 ]] || wrong "expected eight virtual functions"
    twice vfio-devices
    [[ $(driver_of 0000:24:00.1) == vfio-pci && $(driver_of 0000:34:00.1) == vfio-pci ]] || wrong "not bound to vfio-pci"
    rm -f -- "$root/sys/bus/pci/devices/0000:13:00.0/driver"
    twice vfio-devices
    [[ $(driver_of 0000:13:00.0) == vfio-pci ]] || wrong "the GPU is not bound"
    rm -rf -- "$state/rules"
    twice network-baseline
    [[ -e $state/rules/slice.nft ]] || wrong "the rules are not loaded"
    rm -rf -- "$state/iptables"
    twice network-baseline
    [[ $(find "$state/iptables" -type f | wc -l) == 2 ]] || wrong "Docker's firewall keeps guests out"
    "$kernel" have networks default
    twice libvirt
    [[ ! -e $state/networks/default ]] || wrong "libvirt's own network is up"
    "$kernel" have networks default
    twice libvirt
    [[ ! -e $state/networks/default ]] || wrong "libvirt's own network is up again"
    printf '0\n' >"$root/proc/sys/net/ipv4/ip_forward"
    twice network-baseline
    [[ $(<"$root/proc/sys/net/ipv4/ip_forward") == 1 ]] || wrong "nothing is forwarded"
    rm -rf -- "$state/flows"
    twice ovs-bridge
    [[ -s $state/flows/ovsbr0 ]] || wrong "the switch has no flows"
    "$kernel" lose addresses "ovsbr0 10.100.0.1/24"
    twice ovs-bridge
    "$kernel" ask ip -4 -o addr show dev ovsbr0 | grep -q ' 10.100.0.1/24 ' || wrong "the bridge has no address"
    # What only a check sees, a repair restores: another flow, other settings of a daemon.
    printf 'table=0,priority=0,actions=NORMAL\n' >"$state/flows/ovsbr0"
    passes ovs-bridge GPUAAS_REPAIR=1
    ! grep -q NORMAL "$state/flows/ovsbr0" || wrong "the flows are not replaced"
    : >"$state/log"
    passes dnsmasq GPUAAS_REPAIR=1
    logged "systemctl restart dnsmasq.service"
}

# The kernel shows sriov_totalvfs before the driver is there, and refuses functions until it is. Of
# InfiniBand the device and the link are brought by further drivers.
test_fabric_vfs_wait_for_the_driver() {
    use h200-slice-vm
    passes settings
    local lost=$root/sys/bus/pci/devices/0000:34:00.0 one
    for one in driver net infiniband; do
        mv -- "$lost/$one" "$work/$one"
        if phase fabric-vfs; then wrong "an HCA without its $one was taken"; fi
        said "found 7 adapters with SR-IOV and a driver, expected 8"
        mv -- "$work/$one" "$lost/$one"
    done
    twice fabric-vfs
}

# A virtual function that lost its identity gets it again with the next run, and others are left alone.
test_fabric_vfs_restore_identities() {
    use h200-slice-vm
    local vf=$root/run/fixture/vfs/ibp36s0/0 log=$root/run/fixture/log none=00:00:00:00:00:00:00:00 name record
    passes settings
    passes fabric-vfs
    for name in node_guid port_guid; do
        printf '%s\n' "$none" >"$vf/$name"
        : >"$log"
        twice fabric-vfs
        [[ $(<"$vf/$name") == 96:6d:ae:f0:00:12:34:01 ]] || wrong "$name is $(<"$vf/$name")"
        [[ $(grep -c '^ip link set' "$log") == 1 ]] || wrong "more than $name was written: $(<"$log")"
    done
    # A function that a release took down comes up again.
    printf 'disable\n' >"$vf/state"
    : >"$log"
    passes fabric-vfs GPUAAS_REPAIR=1
    logged "ip link set dev ibp36s0 vf 0 state auto"
    # A release took this one away.
    record=$root/var/lib/gpuaas/slices/fabric-identities.json
    mkdir -p -- "${record%/*}"
    printf '{"0000:24:00.1":{"physical_function":"0000:24:00.0","index":0}}' >"$record"
    printf '%s\n' "$none" >"$vf/node_guid"
    again fabric-vfs
}

# Another fabric than InfiniBand has MAC addresses and no GUIDs.
test_fabric_vfs_of_ethernet() {
    use h200-slice-vm
    local ethernet=(GPUAAS_SLICE_HCA_CLASS=0200 GPUAAS_SLICE_HCA_COUNT=1 GPUAAS_SLICE_VF_COUNT=1)
    twice settings "${ethernet[@]}"
    twice fabric-vfs "${ethernet[@]}"
    [[ $(<"$root/sys/bus/pci/devices/0000:00:01.0/sriov_numvfs") == 1 ]] || wrong "the Ethernet adapter has no function"
    ! grep -q node_guid "$root/run/fixture/log" || wrong "an Ethernet function got a GUID"
    logged "ip link set dev enp0s1 vf 0 mac 96:6c:ae:12:35:08"
    printf '00:00:00:00:00:00\n' >"$root/run/fixture/vfs/enp0s1/0/mac"
    twice fabric-vfs "${ethernet[@]}"
    [[ $(<"$root/run/fixture/vfs/enp0s1/0/mac") == 96:6c:ae:12:35:08 ]] || wrong "the function has no MAC address"
    twice vfio-devices "${ethernet[@]}"
    [[ $(driver_of 0000:00:01.1) == vfio-pci && $(driver_of 0000:13:00.0) == vfio-pci ]] || wrong "not bound to vfio-pci"
}

# NVIDIA's driver has the GUIDs in sysfs.
test_fabric_vfs_of_doca() {
    use h200-slice-vm
    passes settings
    mkdir -p -- "$root/run/fixture/driver"
    : >"$root/run/fixture/driver/nvidia"
    twice fabric-vfs
    [[ $(<"$root/sys/bus/pci/devices/0000:14:00.0/sriov/0/policy") == Follow ]] || wrong "the link's policy"
    [[ $(<"$root/sys/bus/pci/devices/0000:24:00.0/sriov/0/node") == 96:6d:ae:f0:00:12:34:01 ]] ||
        wrong "the GUID is $(<"$root/sys/bus/pci/devices/0000:24:00.0/sriov/0/node")"
    printf '00:00:00:00:00:00:00:00\n' >"$root/sys/bus/pci/devices/0000:24:00.0/sriov/0/port"
    twice fabric-vfs
    [[ $(<"$root/sys/bus/pci/devices/0000:24:00.0/sriov/0/port") == 96:6d:ae:f0:00:12:34:01 ]] || wrong "the port has no GUID"
}

test_fabric_vfs_change_only_without_guests() {
    use h200-slice-vm
    passes settings
    passes fabric-vfs
    passes settings GPUAAS_SLICE_VFS_PER_HCA=2 GPUAAS_SLICE_VF_COUNT=16
    passes fabric-vfs
    [[ $(compgen -G "$root/sys/bus/pci/devices/*/physfn" | wc -l) == 16 ]] || wrong "expected 16 virtual functions"
    passes settings GPUAAS_SLICE_VFS_PER_HCA=17 GPUAAS_SLICE_VF_COUNT=136
    if phase fabric-vfs; then wrong "more functions than the HCA can have"; fi
    said "supports 16 virtual functions, expected 17"
    passes settings
    : >"$root/run/fixture/qemu"
    if phase fabric-vfs; then wrong "functions were taken from a running guest"; fi
    said "a running guest may use one"
    rm -- "$root/run/fixture/qemu"
    : >"$root/run/fixture/no-pgrep"
    if phase fabric-vfs; then wrong "nobody knows whether a guest runs"; fi
    said "pgrep: 127"
    rm -- "$root/run/fixture/no-pgrep"
    twice fabric-vfs
    [[ $(compgen -G "$root/sys/bus/pci/devices/*/physfn" | wc -l) == 8 ]] || wrong "expected eight virtual functions"
}

test_vfio_refusals() {
    use h200-slice-vm
    passes settings
    passes fabric-vfs
    ln -s -- ../../../bus/pci/devices/0000:00:01.0 "$root/sys/kernel/iommu_groups/$(basename -- "$(readlink -- "$root/sys/bus/pci/devices/0000:13:00.0/iommu_group")")/devices/0000:00:01.0"
    if phase vfio-devices; then wrong "a shared group was taken"; fi
    said "0000:13:00.0 shares IOMMU group [0-9]+ with 0000:00:01.0"
    [[ $(driver_of 0000:13:00.0) == nvidia ]] || wrong "it was bound all the same"
    passes settings GPUAAS_SLICE_GPU_COUNT=9
    if phase vfio-devices; then wrong "a GPU is missing"; fi
    said "found 8 GPUs, expected 9"
}

# A GPU that is open is not taken from its program, and the program is named.
test_vfio_held_gpus() {
    use h200-slice-vm
    passes settings
    passes fabric-vfs
    mkdir -p -- "$root/proc/4242/fd"
    printf 'netdata\n' >"$root/proc/4242/comm"
    ln -s /dev/nvidia3 "$root/proc/4242/fd/7"
    if phase vfio-devices; then wrong "a GPU that is open was taken"; fi
    said "GPUs are held open by 4242 \(netdata\): stop these"
    [[ $(driver_of 0000:13:00.0) == nvidia ]] || wrong "it was bound all the same"
    rm -- "$root/proc/4242/fd/7"
    twice vfio-devices
    [[ $(driver_of 0000:13:00.0) == vfio-pci ]] || wrong "it is not taken"
}

# The nodes of the display core hold a GPU as well, and so does the kernel's own module.
test_vfio_held_by_displays() {
    use h200-slice-vm
    local gpu=$root/sys/bus/pci/devices/0000:23:00.0 module
    passes settings
    passes fabric-vfs
    mkdir -p -- "$gpu/drm/card1" "$gpu/drm/renderD128" "$root/proc/4242/fd"
    printf 'Xorg\n' >"$root/proc/4242/comm"
    for module in /dev/dri/card1 /dev/dri/renderD128 /dev/nvidia-modeset; do
        ln -sfn "$module" "$root/proc/4242/fd/7"
        if phase vfio-devices; then wrong "a GPU that is open as $module was taken"; fi
        said "GPUs are held open by 4242 \(Xorg\): stop these"
    done
    # A display of another adapter does not count.
    ln -sfn /dev/dri/card0 "$root/proc/4242/fd/7"
    mkdir -p -- "$root"/sys/module/{nvidia,nvidia_drm,nvidia_modeset,nvidia_uvm}
    "$here/fixture/kernel" have busy nvidia_drm
    if phase vfio-devices; then wrong "a GPU that nvidia_drm holds was taken"; fi
    said "the kernel module nvidia_drm uses the GPUs and cannot be removed"
    "$here/fixture/kernel" lose busy nvidia_drm
    twice vfio-devices
    [[ $(driver_of 0000:23:00.0) == vfio-pci ]] || wrong "it is not taken"
    [[ -d $root/sys/module/nvidia && ! -d $root/sys/module/nvidia_modeset ]] || wrong "other modules than these are loaded"
}

# The initramfs has the settings of modprobe: those of each kernel, and once.
test_vfio_initramfs() {
    use h200-slice-vm
    local image=$root/boot/initrd.img-6.8.0-60-generic log=$root/run/fixture/log
    passes settings
    passes fabric-vfs
    mkdir -p -- "$root/usr/sbin" "$root/boot"
    install -m 755 /dev/null "$root/usr/sbin/update-initramfs"
    printf 'nvidia\n' >"$image"
    twice vfio-devices
    logged "update-initramfs -u -k all"
    grep -qx 'install nvidia /bin/false' "$image" || wrong "the initramfs lacks the settings"
    # One of before, which another program brought back.
    printf 'nvidia\n' >"$image"
    touch -d '2020-01-01' "$image"
    twice vfio-devices
    grep -qx 'install nvidia /bin/false' "$image" || wrong "the initramfs lacks the settings again"
    [[ $(grep -c '^update-initramfs' "$log") == 2 ]] || wrong "it was made more than twice: $(<"$log")"
    # A host with another program for it.
    rm -- "$root/usr/sbin/update-initramfs"
    touch -d '2020-01-01' "$image"
    again vfio-devices
}

test_fabric_vfs_without_sriov() {
    use h200-slice-vm
    passes settings
    rm -- "$root/sys/bus/pci/devices/0000:34:00.0/sriov_totalvfs" "$root/sys/bus/pci/devices/0000:34:00.0/sriov_numvfs"
    if phase fabric-vfs; then wrong "an adapter without SR-IOV was counted"; fi
    said "SR-IOV is off in the firmware of 0000:34:00.0: run mstconfig -d ADDRESS set SRIOV_EN=1 NUM_OF_VFS=1"
}

# Before the reboot that turns the IOMMU on, the unit waits for it.
test_vfio_before_the_reboot() {
    use h200-slice-vm
    passes settings
    rm -rf -- "$root/sys/kernel/iommu_groups"
    twice vfio-devices
    said "starts at the next boot"
    [[ -L $root/etc/systemd/system/multi-user.target.wants/gpuaas-slice-vfio-devices.service ]] || wrong "it is not enabled"
    [[ ! -e $root/run/fixture/active/gpuaas-slice-vfio-devices.service ]] || wrong "it was started"
}

test_network() {
    use h200-slice-vm
    passes settings
    twice network-baseline
    [[ $(<"$root/proc/sys/net/ipv4/ip_forward") == 1 ]] || wrong "nothing is forwarded"
    logged "iptables -w 10 -I DOCKER-USER -i ovsbr0 -j ACCEPT"
    twice ovs-bridge
    logged "ovs-vsctl --timeout=30 --may-exist add-br ovsbr0 -- set bridge ovsbr0 datapath_type=system"
    logged "ip addr replace 10.100.0.1/24 dev ovsbr0"
    if tool nft && own_network; then
        # Twice, as a restart does: the rules are there once.
        unshare -n bash -euc 'nft -c -f "$0"; nft -f "$0"; nft -f "$0"; nft list ruleset' "$root/etc/gpuaas/slice.nft" >"$work/said" 2>&1 ||
            wrong "nft: $(<"$work/said")"
        [[ $(grep -c "ip saddr 10.100.0.0/24 ip daddr != 10.100.0.0/24 masquerade" "$work/said") == 1 ]] || wrong "rules: $(<"$work/said")"
    fi
}

test_dnsmasq_and_libvirt() {
    use h200-slice-vm
    passes settings
    twice dnsmasq
    has_line /etc/dnsmasq.d/gpu_subnet.conf "dhcp-range=10.100.0.10,10.100.0.250,255.255.255.0,12h"
    has_line /etc/dnsmasq.d/gpu_subnet.conf "resolv-file=/run/systemd/resolve/resolv.conf"
    twice dnsmasq GPUAAS_SLICE_DNS_SERVERS="10.9.9.9 10.9.9.10"
    has_line /etc/dnsmasq.d/gpu_subnet.conf "server=10.9.9.10"
    has_line /etc/dnsmasq.d/gpu_subnet.conf no-resolv
    rm -- "$root/run/systemd/resolve/resolv.conf"
    twice dnsmasq
    has_line /etc/dnsmasq.d/gpu_subnet.conf "resolv-file=/etc/resolv.conf"
    if tool dnsmasq; then
        # Beside the file that libvirt's package puts there.
        printf 'bind-interfaces\nexcept-interface=virbr0\n' >"$root/etc/dnsmasq.d/libvirt-daemon"
        dnsmasq --test --conf-file=/dev/null --conf-dir="$root/etc/dnsmasq.d" >"$work/said" 2>&1 || wrong "dnsmasq: $(<"$work/said")"
        said "syntax check OK"
    fi
    twice libvirt
    has_line /etc/systemd/system/libvirtd.service.d/10-gpuaas-slice.conf "ExecStart=/usr/sbin/libvirtd"
    has_line /etc/systemd/system/libvirtd.service.d/10-gpuaas-slice.conf "After=dev-hugepages1G.mount"
    has_line /etc/systemd/system/dev-hugepages1G.mount "Options=pagesize=1G"
    [[ ! -e $root/etc/apparmor.d ]] || wrong "rules of AppArmor where there is none"
    mkdir -p -- "$root/etc/apparmor.d/abstractions" "$root/etc/apparmor.d/local/abstractions"
    printf '#include <local/abstractions/libvirt-qemu>\n' >"$root/etc/apparmor.d/abstractions/libvirt-qemu"
    printf '# the site\n/srv/isos/** r,\n' >"$root/etc/apparmor.d/local/abstractions/libvirt-qemu"
    twice libvirt
    has_line /etc/apparmor.d/local/abstractions/libvirt-qemu "/srv/isos/** r,"
    has_line /etc/apparmor.d/local/abstractions/libvirt-qemu '/sys/devices/system/node/node[0-9]*/{cpumap,cpulist} r,'
}

test_units() {
    local name copy=$work/units
    tool systemd-analyze || return 0
    mkdir -- "$copy"
    for name in "$here"/h200-*/files/*.service; do
        sed "s|/usr/local/sbin/|$(dirname -- "$name")/|; s|^EnvironmentFile=|&-|" "$name" >"$copy/${name##*/}"
    done
    printf '[Service]\nExecStart=/bin/true\n' | tee "$copy/openvswitch-switch.service" >"$copy/libvirtd.service"
    for name in "$copy"/gpuaas-*.service; do
        SYSTEMD_UNIT_PATH="$copy:" systemd-analyze verify --man=no "$name" >"$work/said" 2>&1 || wrong "verify ${name##*/}: $(<"$work/said")"
        ! grep -F "${name##*/}" "$work/said" || wrong "verify ${name##*/} said that"
    done
}

# By hand: the launcher is called with the bundle's folder.
test_bootstrap() {
    local bundle
    printf '#!/bin/bash\nprintf "%%s|" "$@"\n' >"$work/launcher"
    chmod +x "$work/launcher"
    for bundle in h200-ib h200-slice-vm; do
        [[ $(cd / && GPUAAS_LAUNCHER=$work/launcher "$here/$bundle/bootstrap.sh" --plan) == "bundle|run|$here/$bundle|--plan|" ]] || wrong "$bundle"
        if GPUAAS_LAUNCHER=$work/none "$here/$bundle/bootstrap.sh" >"$work/said" 2>&1; then wrong "it ran without a launcher"; fi
        said "no launcher at"
    done
}

test_scripts() {
    local name
    for name in "$here"/h200-*/phases/*.sh "$here"/h200-*/bootstrap.sh "$here"/h200-ib/files/gpuaas-acs "$here"/h200-slice-vm/files/gpuaas-slice-*; do
        [[ $name == *.service ]] && continue
        [[ $(head -n 1 -- "$name") == '#!/bin/bash' ]] || wrong "$name begins otherwise"
        grep -qx 'set -euo pipefail' "$name" || wrong "$name does not stop at a failure"
        (($(wc -l <"$name") < 120)) || wrong "$name has 120 lines or more"
    done
    tool shellcheck || return 0
    # Every script of the repository, but for the parts of which a node's are rendered: those are
    # looked at as a whole where they are.
    local scripts=("$here"/fixture/kernel "$here"/../.ci/run "$GPUAAS_LIB" "$here"/tests/*.sh "$here"/h200-ib/files/gpuaas-acs)
    for name in "$here"/h200-slice-vm/files/gpuaas-slice-*; do
        [[ $name == *.service ]] || scripts+=("$name")
    done
    while read -r name; do
        if [[ $(head -c 2 -- "$name") == '#!' ]]; then scripts+=("$name"); fi
    done < <(find "$here" "$here/../crates" "$here/../xtask" -name '*.sh' -not -path '*/gpuaas-artifact/scripts/*')
    shellcheck -x -P "$here:$(dirname -- "$GPUAAS_LIB")" "${scripts[@]}" || wrong "shellcheck"
}
