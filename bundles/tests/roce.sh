# shellcheck shell=bash disable=SC2154 # sourced by test.sh, which sets these
# h200-roce.

# As many links as eight adapters in Ethernet mode show.
ethernet_fabric() {
    local folder number=0
    for folder in "$root"/sys/class/net/ibp*; do
        printf '1\n' >"$folder/type"
        mv -- "$folder" "$root/sys/class/net/ens${number}np0"
        number=$((number + 1))
    done
}

# Every input of h200-ib but those of the fabric is handed on under its own name.
test_roce_required_inputs() {
    python3 - "$here" >"$work/said" 2>&1 <<'PYTHON' || wrong "$(<"$work/said")"
import sys, yaml
roce, ib = (yaml.safe_load(open(f"{sys.argv[1]}/{name}/bundle.yaml")) for name in ("h200-roce", "h200-ib"))
(required,) = roce["requires"]
assert required["bundle"] == f"h200-ib@{ib['version']}", required["bundle"]
given, own = required["with"], roce["inputs"]
of_infiniband = {"host_role", "fabric_subnet", "ipoib_interfaces", "fabric_interface", "fabric_links", "ipoib_addresses", "ipoib_mode", "ipoib_mtu"}
assert given["ipoib"] == "0"
assert set(given) == set(ib["inputs"]) - of_infiniband, set(given) ^ (set(ib["inputs"]) - of_infiniband)
for name in set(given) - {"ipoib"}:
    mine, of = own[name], ib["inputs"][name]
    assert given[name] == "{%s}" % name, name
    assert all(mine.get(field) == of.get(field) for field in ("type", "default", "secret", "unique", "about")), name
    assert mine["environment"] == of["environment"].replace("H200_", "H200_ROCE_"), mine
PYTHON
}

test_roce_links() {
    use h200-roce
    local site=(H200_ROCE_FABRIC_INTERFACE='ens*')
    refused "found 0 of 8 RDMA over Ethernet links" roce-links "${site[@]}"
    ethernet_fabric
    twice roce-links "${site[@]}"
    said "the fabric links are ens0np0 ens1np0"
    [[ $(grep -c 'mtu: 9000' "$root/etc/netplan/61-gpuaas-roce.yaml") == 8 ]] || wrong "expected eight links"
    has_no /etc/netplan/61-gpuaas-roce.yaml enp0s1
    mode_is /etc/netplan/61-gpuaas-roce.yaml 600
    logged "networkctl reconfigure ens0np0 ens1np0"
    if tool netplan; then
        mkdir -p -- "$work/netplan/etc/netplan"
        cp -p -- "$root/etc/netplan/61-gpuaas-roce.yaml" "$work/netplan/etc/netplan/"
        # MAAS' own file, whose address stays.
        printf 'network:\n  version: 2\n  ethernets:\n    ens3np0:\n      addresses: [10.40.3.1/24]\n      mtu: 1500\n' >"$work/netplan/etc/netplan/50-cloud-init.yaml"
        chmod 600 -- "$work/netplan/etc/netplan/50-cloud-init.yaml"
        netplan generate --root-dir "$work/netplan" >"$work/said" 2>&1 || wrong "netplan: $(<"$work/said")"
        root=$work/netplan has_line /run/systemd/network/10-netplan-ens3np0.network "Address=10.40.3.1/24"
        grep -rqx 'MTUBytes=9000' "$work/netplan/run/systemd/network" || wrong "no MTU: $(cat "$work"/netplan/run/systemd/network/*)"
    fi
    twice roce-links "${site[@]}" H200_ROCE_FABRIC_MTU=0
    [[ ! -e $root/etc/netplan/61-gpuaas-roce.yaml ]] || wrong "the MTU stays"
    refused "expected 0 or 1280" roce-links "${site[@]}" H200_ROCE_FABRIC_MTU=100
    refused "a link name with an optional trailing" roce-links H200_ROCE_FABRIC_INTERFACE='../*'
    refused "a link name with an optional trailing" roce-links H200_ROCE_FABRIC_INTERFACE='ens*np*'
    # A card that lost its RDMA device is none of the fabric's.
    rm -- "$root/sys/class/net/ens7np0"
    refused "found 7 of 8 RDMA over Ethernet links" roce-links "${site[@]}"
}
