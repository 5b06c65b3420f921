# shellcheck shell=bash disable=SC2154 # sourced by the phase of the links, which sets links and addresses
# The links of the fabric, by the kernel: which there are, and which have lost what they were given.

infiniband=32 # ARPHRD_INFINIBAND

any=type:infiniband # links by their type alone

# InfiniBand links of adapters, by name: neither virtual functions', which are guests', nor children of a
# partition, nor bonds.
infiniband_links() {
    local folder
    for folder in "$GPUAAS_SYSFS"/class/net/*; do
        if [[ -e $folder/type && $(<"$folder/type") == "$infiniband" && -e $folder/device && ! -e $folder/device/physfn && ! -e $folder/parent ]]; then
            printf '%s\n' "${folder##*/}"
        fi
    done | sort -V
}

# is_meant LINK: whether the fabric's links are called so.
is_meant() {
    # shellcheck disable=SC2053 # a pattern
    [[ $H200_FABRIC_INTERFACE == "$any" || $1 == $H200_FABRIC_INTERFACE ]]
}

found_links() {
    local link
    infiniband_links | while read -r link; do
        if is_meant "$link"; then printf '%s\n' "$link"; fi
    done
}

# is_configured LINK: it is up, or waits for its cable alone.
is_configured() {
    local flags
    flags=$(sysfs_read "class/net/$1/flags")
    if [[ -n $flags ]]; then (((flags & 1) == 1)); else [[ $(sysfs_read "class/net/$1/operstate") == up ]]; fi
}

# Links whose state, address or route in the kernel is not as the file says.
lost_links() {
    local index link subnet bounds
    bounds=$(subnet_bounds "$H200_FABRIC_SUBNET")
    subnet=$(ip_text "${bounds% *}")/${H200_FABRIC_SUBNET#*/}
    for index in "${!links[@]}"; do
        link=${links[index]}
        if ! is_configured "$link"; then
            printf '%s\n' "$link"
        elif [[ $(sysfs_read "class/net/$link/operstate") == up ]] && ((index < ${#addresses[@]})) && ! {
            [[ $(host_ask ip -4 -o addr show dev "$link") == *" ${addresses[index]} "* && -n $(host_ask ip -4 -o route show "$subnet" dev "$link") ]]
        }; then
            printf '%s\n' "$link"
        fi
    done
}
