# shellcheck shell=bash
# Identities of virtual functions on the fabric: GUIDs of InfiniBand, MAC addresses of Ethernet. The phase and
# the unit of the virtual functions source this file.
#
# NVIDIA's driver shows and takes them in sysfs, the kernel's own driver through the adapter's link. Each is
# derived from the adapter's own, so that it is the same after each boot.

# Identities that releases of slices took away, by the agent: these functions get theirs with the next claim.
released_identities=/var/lib/gpuaas/slices/fabric-identities.json

# identity_settings ADAPTER: what an identity consists of, by the adapter's class; an NVMe controller has none.
identity_settings() {
    case $(sysfs_read "bus/pci/devices/$1/class") in
        0x0207*) say "node port" ;;
        0x0200*) say mac ;;
    esac
}

# adapter_link ADAPTER: its first network link.
adapter_link() {
    local link
    link=$(ls -- "$GPUAAS_SYSFS/bus/pci/devices/$1/net" 2>/dev/null || true)
    printf '%s' "${link%%$'\n'*}"
}

# answer_for ADAPTER INDEX: the line of `ip link` about a virtual function, or nothing.
answer_for() {
    local text line
    text=$(host_ask ip link show dev "$(adapter_link "$1")" 2>/dev/null || true)
    while read -r line; do
        # iproute2 before 5.0 writes MAC.
        if [[ $line == "vf $2 "* ]]; then printf '%s,' "${line/ MAC / link\/ether }"; fi
    done <<<"$text"
}

# identity ADAPTER INDEX SETTING: the value that a virtual function has, or nothing if no driver shows it.
identity() {
    local file=bus/pci/devices/$1/sriov/$2/$3 name line
    if [[ -e $GPUAAS_SYSFS/$file ]]; then
        sysfs_read "$file"
        return 0
    fi
    case $3 in
        node) name=NODE_GUID ;;
        port) name=PORT_GUID ;;
        mac) name=link/ether ;;
    esac
    line=$(answer_for "$1" "$2")
    if [[ $line =~ [\ ,]$name\ ([0-9a-fA-F:]+) ]]; then printf '%s' "${BASH_REMATCH[1],,}"; fi
}

# identity_is_missing ADAPTER INDEX: whether a virtual function has zeros for an identity. A value that no driver
# shows is not known and does not count, and neither does one that a release took away.
identity_is_missing() {
    local setting function
    function=$(readlink -- "$GPUAAS_SYSFS/bus/pci/devices/$1/virtfn$2" || true)
    if grep -qsF "\"${function##*/}\"" "$(at "$released_identities")"; then return 1; fi
    for setting in $(identity_settings "$1"); do
        if [[ $(identity "$1" "$2" "$setting") =~ ^[0:]+$ ]]; then return 0; fi
    done
    return 1
}

# derived_guid GUID INDEX: GUID (946d:ae03:0012:3456) with the local bit, and the index in its middle.
derived_guid() {
    local hex=${1//:/}
    [[ $hex =~ ^[0-9a-f]{16}$ ]] || fail "invalid node GUID $1: expected 16 hexadecimal digits"
    hex=$(printf '%02x%s%04x%s' $((16#${hex:0:2} | 2)) "${hex:2:4}" $((16#f000 + $2)) "${hex:10}")
    sed 's/../&:/g; s/:$//' <<<"$hex"
}

# derived_mac MAC INDEX: MAC address with the local bit, and the index in its second byte, which is the vendor's.
derived_mac() {
    [[ $1 =~ ^([0-9a-f]{2}):([0-9a-f]{2})((:[0-9a-f]{2}){4})$ ]] || fail "invalid MAC address $1: expected six hex pairs"
    printf '%02x:%02x%s' $((16#${BASH_REMATCH[1]} | 2)) $(((16#${BASH_REMATCH[2]} ^ ($2 + 1)) & 255)) "${BASH_REMATCH[3]}"
}

# give_identity ADAPTER INDEX: the derived one, and a state that follows the adapter's port. What is as it should
# be is not written again: a guest may use the function.
give_identity() {
    local folder=bus/pci/devices/$1 settings setting value link line
    settings=$(identity_settings "$1") link=$(adapter_link "$1")
    if [[ -z $settings ]]; then return 0; fi
    if [[ $settings == mac ]]; then
        value=$(derived_mac "$(sysfs_read "$folder/net/$link/address")" "$2")
    else
        value=$(cat -- "$GPUAAS_SYSFS/$folder"/infiniband/*/node_guid)
        value=$(derived_guid "$value" "$2")
    fi
    for setting in $settings; do
        if [[ $(identity "$1" "$2" "$setting") == "$value" ]]; then continue; fi
        if [[ -e $GPUAAS_SYSFS/$folder/sriov/$2/$setting ]]; then
            sysfs_write "$folder/sriov/$2/$setting" "$value"
            continue
        fi
        if [[ $setting != mac ]]; then setting=${setting}_guid; fi
        kernel_do ip link set dev "$link" vf "$2" "$setting" "$value"
    done
    if [[ -e $GPUAAS_SYSFS/$folder/sriov/$2 ]]; then
        if [[ -e $GPUAAS_SYSFS/$folder/sriov/$2/policy && $(sysfs_read "$folder/sriov/$2/policy") != Follow ]]; then
            sysfs_write "$folder/sriov/$2/policy" Follow
        fi
        return 0
    fi
    line=$(answer_for "$1" "$2")
    if [[ $line != *"link-state auto,"* ]]; then kernel_do ip link set dev "$link" vf "$2" state auto; fi
}
