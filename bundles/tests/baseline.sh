# shellcheck shell=bash disable=SC2154,SC2016 # sourced by test.sh, which sets these
# h200-ib.

test_wait_online() {
    use h200-ib
    twice wait-online
    local folder=/etc/systemd/system/systemd-networkd-wait-online.service.d
    starts() { "$here/fixture/kernel" ask systemctl show --property=ExecStart --value -- systemd-networkd-wait-online.service; }
    [[ $(starts) == *"argv[]=/lib/systemd/systemd-networkd-wait-online --any --timeout=30 ; "* ]] || wrong "systemd starts $(starts)"
    # Of an image that has a drop-in of its own, and of a host that an older bundle set up.
    printf '[Service]\nExecStart=\nExecStart=/lib/systemd/systemd-networkd-wait-online --timeout=120\n' | tee "$root$folder/gpuaas.conf" >"$root$folder/90-gpuaas-bounded.conf"
    twice wait-online
    [[ $(starts) == *" --any --timeout=30 ; "* && ! -e $root$folder/90-gpuaas-bounded.conf ]] || wrong "systemd starts $(starts)"
    ! grep -q warning "$work/said" || wrong "it warns: $(<"$work/said")"
    mv -- "$root$folder/gpuaas.conf" "$root$folder/zzz.conf"
    passes wait-online
    said "warning: another file overrides what systemd-networkd-wait-online.service starts: .*timeout=120"
    refused "expected 1 to 600" wait-online H200_WAIT_ONLINE_SECONDS=0
}

test_packages() {
    use h200-ib
    twice packages
    logged "install --no-install-recommends -- ca-certificates docker-compose-v2 docker.io"
    said "optional package rshim cannot be installed"
}

# A boot's own apt-daily has the lists, and an installation broke off: both are waited for and mended.
test_packages_amid_another_installation() {
    use h200-ib
    printf '#!/bin/bash\ncase "$*" in\n"ask dpkg --audit") printf "The following packages are only half configured\\n" ;;\n*" update") if [[ ! -e %q ]]; then : >%q; printf "E: Could not get lock /var/lib/apt/lists/lock.\\n" >&2; exit 100; fi ;;\nesac\nexec %q "$@"\n' \
        "$work/locked" "$work/locked" "$here/fixture/kernel" >"$work/player"
    sed -i 's/^"ask dpkg --audit") \(.*\) ;;$/"ask dpkg --audit") \1; exit 0 ;;/' "$work/player"
    chmod +x -- "$work/player"
    passes packages GPUAAS_FIXTURE_KERNEL="$work/player"
    [[ -e $work/locked ]] || wrong "the lists were not asked for"
    logged "dpkg --configure -a"
    logged "install --no-install-recommends -- ca-certificates"
}

test_packages_that_stay_away() {
    use h200-ib
    if phase packages GPUAAS_PACKAGES=rshim GPUAAS_OPTIONAL_PACKAGES=; then wrong "a required package is missing"; fi
    said "Unable to locate package rshim"
}

test_ofed() {
    use h200-ib
    twice ofed
    said "on request only"
    twice ofed H200_OFED=inbox
    has_line /etc/modules-load.d/gpuaas-fabric.conf ib_ipoib
    logged "modprobe mlx5_ib"
    twice ofed
    [[ ! -e $root/etc/modules-load.d/gpuaas-fabric.conf ]] || wrong "none leaves the modules' file"
    refused "expected none, inbox or doca" ofed H200_OFED=mine
}

# Who installs no packages installs none of DKMS either.
test_ofed_of_the_image() {
    use h200-ib
    local doca=(H200_OFED=doca H200_DOCA_REPO_URL=https://repo.example/doca)
    passes ofed "${doca[@]}"
    said "would install doca-ofed from https://repo.example/doca"
    twice ofed "${doca[@]}" H200_INSTALL_PACKAGES=0
    said "warning: doca-ofed is not installed; with H200_INSTALL_PACKAGES=0 the image must include it"
    printf 'Package: doca-ofed\nStatus: install ok installed\nVersion: 1\nArchitecture: amd64\nMaintainer: x\nDescription: x\n\n' >>"$root/var/lib/dpkg/status"
    twice ofed "${doca[@]}" H200_INSTALL_PACKAGES=0
    said "unchanged doca-ofed is installed"
}

# The key is compared with what the site says of it, and fetched once.
test_nvidia_repository() {
    use h200-ib
    local url=https://repo.example/cuda/ubuntu2404/x86_64 key=https://repo.example/nvidia.asc digest
    local site=(H200_NVIDIA_REPO_URL="$url" H200_NVIDIA_KEY_URL="$key")
    digest=$(printf 'key of %s\n' "$key" | sha256sum) digest=${digest%% *}
    twice nvidia-repository
    refused "wrong SHA-256" nvidia-repository "${site[@]}" H200_NVIDIA_KEY_SHA256="${digest//[0-9]/0}"
    refused "needs its URL" nvidia-repository "${site[@]}"
    refused "needs its URL" nvidia-repository "${site[@]}" H200_NVIDIA_REPO_URL="http://repo.example/cuda" H200_NVIDIA_KEY_SHA256="$digest"
    refused "needs its URL" nvidia-repository "${site[@]}" H200_NVIDIA_REPO_URL="https://repo.example/ [trusted=yes]" H200_NVIDIA_KEY_SHA256="$digest"
    twice nvidia-repository "${site[@]}" H200_NVIDIA_KEY_SHA256="$digest"
    has_line /etc/apt/sources.list.d/gpuaas-nvidia.list "deb [signed-by=/etc/apt/keyrings/gpuaas-nvidia.asc] $url ./"
    has_line /etc/apt/preferences.d/gpuaas-nvidia "Pin: origin repo.example"
    refused "cannot download the key" nvidia-repository "${site[@]}" H200_NVIDIA_KEY_URL=https://gone.example/x H200_NVIDIA_KEY_SHA256="${digest//[0-9]/1}"
    twice nvidia-repository
    [[ ! -e $root/etc/apt/keyrings/gpuaas-nvidia.asc && ! -e $root/etc/apt/sources.list.d/gpuaas-nvidia.list && ! -e $root/etc/apt/preferences.d/gpuaas-nvidia ]] || wrong "it stays"
}

# Netdata of its makers has go.d.plugin. A repository that cannot be read keeps no host.
test_netdata_repository() {
    use h200-ib
    local url=https://repo.example/netdata/noble/ key=https://repo.example/netdata.asc digest
    local list=/etc/apt/sources.list.d/gpuaas-netdata.list
    local site=(H200_NETDATA_REPO_URL="$url" H200_NETDATA_KEY_URL="$key")
    digest=$(printf 'key of %s\n' "$key" | sha256sum) digest=${digest%% *}
    twice netdata-repository
    refused "needs its URL" netdata-repository "${site[@]}" H200_NETDATA_REQUIRED=1
    refused "wrong SHA-256" netdata-repository "${site[@]}" H200_NETDATA_REQUIRED=1 H200_NETDATA_KEY_SHA256="${digest//[0-9]/0}"
    again netdata-repository "${site[@]}" H200_NETDATA_KEY_SHA256="${digest//[0-9]/0}"
    said "warning: Netdata's repository cannot be used"
    site+=(H200_NETDATA_KEY_SHA256="$digest")
    twice netdata-repository "${site[@]}"
    has_line "$list" "deb [signed-by=/etc/apt/keyrings/gpuaas-netdata.asc] $url ./"
    logged "apt-get .*Dir::Etc::sourcelist=$list .*update"
    # Without a Release file every other update would fail as well.
    passes netdata-repository "${site[@]}" H200_NETDATA_REPO_URL=https://gone.example/
    said "warning: Netdata's repository cannot be used"
    [[ ! -e $root$list ]] || wrong "a repository stays that apt cannot read"
    if phase netdata-repository "${site[@]}" H200_NETDATA_REPO_URL=https://gone.example/ H200_NETDATA_REQUIRED=1; then wrong "a host that requires Netdata went on"; fi
    passes netdata-repository "${site[@]}"
    has_line "$list" "deb [signed-by=/etc/apt/keyrings/gpuaas-netdata.asc] $url ./"
    twice netdata-repository "${site[@]}" H200_ENABLE_NETDATA=0
    [[ ! -e $root$list && ! -e $root/etc/apt/keyrings/gpuaas-netdata.asc ]] || wrong "it stays"
}

# A fabric manager of another version than the driver's does not start: that is said.
test_nvidia_of_two_versions() {
    use h200-ib
    "$here/fixture/kernel" have broken nvidia-smi
    printf 'Package: nvidia-fabricmanager-570\nStatus: install ok installed\nVersion: 570.86.15-1\nArchitecture: amd64\nMaintainer: x\nDescription: x\n\n' >>"$root/var/lib/dpkg/status"
    passes nvidia
    said "warning: NVIDIA's packages have different versions"
}

# A stock image brings no driver: it is installed, comes with a boot, and its daemons start then.
test_nvidia() {
    use h200-ib
    local kernel=$here/fixture/kernel
    "$kernel" have broken nvidia-smi
    twice nvidia
    logged "install --no-install-recommends -- nvidia-headless-570-server nvidia-utils-570-server nvidia-fabricmanager-570"
    logged "install --no-install-recommends -- linux-headers-6.8.0-60-generic"
    said "reboot needed: nvidia-smi lists no GPU yet"
    [[ -e $root/run/gpuaas/reboot-needed.d/h200-ib.nvidia ]] || wrong "nobody is told of the reboot"
    [[ -L $root/etc/systemd/system/multi-user.target.wants/nvidia-fabricmanager.service ]] || wrong "the fabric manager is not enabled"
    [[ ! -e $root/run/fixture/active/nvidia-fabricmanager.service ]] || wrong "the fabric manager started without a driver"
    "$kernel" boot
    "$kernel" have broken nvidia-smi
    twice nvidia
    said "warning: .* no reboot is pending"
    "$kernel" lose broken nvidia-smi
    twice nvidia
    said "unchanged nvidia-smi lists 8 GPUs"
    [[ -e $root/run/fixture/active/nvidia-fabricmanager.service && -e $root/run/fixture/active/nvidia-persistenced.service ]] || wrong "its daemons do not run"
}

# H200 NVL has no NVSwitches, and its GPUs no fabric manager.
test_nvidia_without_switches() {
    use h200-ib
    rm -- "$root"/sys/bus/pci/devices/0000:00:0[2345].0
    put_unit nvidia-fabricmanager.service
    twice nvidia
    said "no NVSwitch on this host: the fabric manager is not started"
    [[ ! -e $root/run/fixture/active/nvidia-fabricmanager.service ]] || wrong "the fabric manager was started"
    [[ -e $root/run/fixture/active/nvidia-persistenced.service ]] || wrong "the persistence daemon does not run"
}
put_unit() { printf '[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n' >"$root/usr/lib/systemd/system/$1"; }

# An image with the driver and without the fabric manager gets that of the driver's version; nobody can use
# the GPUs before. One that runs and has not made the fabric is started again by a repair alone.
test_nvidia_fabric_manager() {
    use h200-ib
    local kernel=$here/fixture/kernel
    passes nvidia H200_INSTALL_PACKAGES=0
    said "warning: nvidia-fabricmanager.service is missing, and no fabric manager package"
    passes nvidia H200_NVIDIA_PACKAGES="nvidia-headless-580-server nvidia-fabricmanager-580"
    said "no fabric manager package for this driver"
    ! grep -q apt-get "$root/run/fixture/log" || wrong "a fabric manager of another version was installed"
    twice nvidia
    logged "install --no-install-recommends -- nvidia-fabricmanager-570"
    fabric() { "$kernel" ask nvidia-smi -q | grep -c ': Success'; }
    [[ $(fabric) == 8 ]] || wrong "the GPUs did not join: $(fabric)"
    "$kernel" have broken fabric
    passes nvidia
    said "warning: the GPUs have not joined"
    passes nvidia GPUAAS_REPAIR=1
    logged "systemctl restart nvidia-fabricmanager.service"
    [[ $(fabric) == 8 ]] || wrong "the repair did not start it again"
}

# The driver may come up at once.
test_nvidia_without_a_reboot() {
    use h200-ib
    mkdir -- "$root/drivers"
    mv -- "$root"/sys/bus/pci/drivers/nvidia/0000:* "$root/drivers/"
    # The player's modprobe, and then the driver has its GPUs.
    printf '#!/bin/bash\nif [[ "$*" == "run modprobe nvidia" ]]; then mv -- "$GPUAAS_HOST_ROOT"/drivers/* "$GPUAAS_SYSFS/bus/pci/drivers/nvidia/"; fi\nexec %q "$@"\n' "$here/fixture/kernel" >"$work/player"
    chmod +x -- "$work/player"
    twice nvidia GPUAAS_FIXTURE_KERNEL="$work/player"
    [[ -e $root/run/fixture/active/nvidia-fabricmanager.service ]] || wrong "the fabric manager does not run"
    [[ ! -e $root/run/gpuaas/reboot-needed.d/h200-ib.nvidia ]] || wrong "a reboot is asked for"
}

# Nothing is installed where a driver is, where the image has to bring it, and where guests have the GPUs.
test_nvidia_left_alone() {
    use h200-ib
    put_unit nvidia-fabricmanager.service
    twice nvidia
    "$here/fixture/kernel" have broken nvidia-smi
    twice nvidia H200_INSTALL_PACKAGES=0
    said "warning: nvidia-smi lists no GPU, and driver installation is off"
    twice nvidia H200_NVIDIA_PACKAGES=
    said "warning: nvidia-smi lists no GPU, and driver installation is off"
    twice nvidia H200_HOST_ROLE=slice
    said "reserves its GPUs for guests"
    ! grep -q apt-get "$root/run/fixture/log" || wrong "something was installed"
}

test_docker() {
    use h200-ib
    local text
    twice docker
    [[ -e $root/run/fixture/active/docker.service ]] || wrong "docker does not run"
    has_line /etc/docker/daemon.json '    "buildkit": true'
    has_line /etc/docker/daemon.json '    "max-size": "20m"'
    [[ $(grep -c "restart docker" "$root/run/fixture/log") == 1 ]] || wrong "docker was not restarted once"
    if tool jq; then
        # What a site's image says stays, and what it does not say is added.
        mkdir -p -- "$root/usr/bin"
        : >"$root/usr/bin/nvidia-container-runtime"
        printf '{"bip": "172.30.0.1/16", "log-opts": {"max-size": "1m"}}' >"$root/etc/docker/daemon.json"
        twice docker
        [[ $(jq -c . "$root/etc/docker/daemon.json") == '{"bip":"172.30.0.1/16","features":{"buildkit":true},"log-driver":"json-file","log-opts":{"max-file":"5","max-size":"1m"},"runtimes":{"nvidia":{"args":[],"path":"nvidia-container-runtime"}}}' ]] ||
            wrong "merged: $(<"$root/etc/docker/daemon.json")"
        printf '{"log-driver": "journald"}' >"$root/etc/docker/daemon.json"
        twice docker H200_HOST_ROLE=slice
        [[ $(jq -c . "$root/etc/docker/daemon.json") == '{"features":{"buildkit":true},"log-driver":"journald"}' ]] ||
            wrong "merged: $(<"$root/etc/docker/daemon.json")"
        for text in 'not JSON' '{"debug":true,}' '[]' '{} {}'; do
            printf '%s' "$text" >"$root/etc/docker/daemon.json"
            refused "/etc/docker/daemon.json is not a JSON object" docker
        done
        # A runtime that is there stays as it is; so do a driver's options, and settings behind a byte order mark.
        printf '\xef\xbb\xbf{"default-runtime":"nvidia","log-driver":"local","log-opts":{"max-size":"5m"},"runtimes":{"nvidia":{"path":"/usr/bin/nvidia-container-runtime","runtimeArgs":[]}},"insecure-registries":["192.0.2.1:5000"]}' >"$root/etc/docker/daemon.json"
        twice docker
        [[ $(jq -cS . "$root/etc/docker/daemon.json") == '{"default-runtime":"nvidia","features":{"buildkit":true},"insecure-registries":["192.0.2.1:5000"],"log-driver":"local","log-opts":{"max-size":"5m"},"runtimes":{"nvidia":{"path":"/usr/bin/nvidia-container-runtime","runtimeArgs":[]}}}' ]] ||
            wrong "merged: $(<"$root/etc/docker/daemon.json")"
        printf ' \n\n' >"$root/etc/docker/daemon.json"
        twice docker
        has_line /etc/docker/daemon.json '    "buildkit": true'
        rm -- "$root/etc/docker/daemon.json"
        passes docker
    fi
    rm -- "$root/run/fixture/active/docker.service"
    passes docker
    logged "systemctl start docker.service"
    rm -- "$root/usr/lib/systemd/system/docker.service"
    refused "no docker.service on this host" docker
}

# As the phase asks it on a host.
netplan_of_this_machine_knows_mode() {
    local folder=$work/asked/etc/netplan
    mkdir -p -- "$folder"
    printf 'network:\n  ethernets:\n    ib0:\n      infiniband-mode: datagram\n' >"$folder/1.yaml"
    chmod 600 -- "$folder/1.yaml"
    netplan generate --root-dir "$work/asked" >/dev/null 2>&1
}

test_ipoib() {
    use h200-ib
    twice ipoib
    mode_is /etc/netplan/60-ipoib.yaml 600
    said "derived 192.168.36.100/16 for ibp20s0"
    has_line /etc/netplan/60-ipoib.yaml "    ibp132s0:"
    [[ $(grep -c 'infiniband-mode: datagram' "$root/etc/netplan/60-ipoib.yaml") == 8 ]] || wrong "expected eight links"
    has_no /etc/netplan/60-ipoib.yaml enp0s1
    logged "networkctl reconfigure ibp20s0 ibp36s0"
    if tool netplan; then
        mkdir -p -- "$work/netplan/etc/netplan"
        cp -p -- "$root/etc/netplan/60-ipoib.yaml" "$work/netplan/etc/netplan/"
        # That of Debian 11 does not know the mode, and a host of it is not given one.
        if ! netplan_of_this_machine_knows_mode; then
            sed -i '/infiniband-mode:/d' "$work/netplan/etc/netplan/60-ipoib.yaml"
            printf 'skip %s: this netplan does not know infiniband-mode\n' "$current"
        fi
        netplan generate --root-dir "$work/netplan" >"$work/said" 2>&1 || wrong "netplan: $(<"$work/said")"
        # That of Debian 13 asks systemd to look at its files again, and says so where none runs.
        if [[ ! -d /run/systemd/system ]]; then
            sed -i '/reload request\|booted with systemd\|system scope bus\|daemon-reload/d' "$work/said"
        fi
        [[ ! -s $work/said ]] || wrong "netplan says: $(<"$work/said")"
        local network=/run/systemd/network/10-netplan-ibp20s0.network
        root=$work/netplan has_line "$network" "Address=192.168.36.100/16"
        root=$work/netplan has_line "$network" "Destination=192.168.0.0/16"
        root=$work/netplan has_line "$network" "Scope=link"
        if netplan_of_this_machine_knows_mode; then root=$work/netplan has_line "$network" "Mode=datagram"; fi
    fi
}

# What the kernel lost comes back with the next run, and only that is touched; a link that is as it should
# be keeps its address all the time.
test_ipoib_restores_the_kernel() {
    use h200-ib
    local kernel=$here/fixture/kernel net=$root/sys/class/net
    "$kernel" cold
    twice ipoib
    [[ $(cat "$net"/ibp*/operstate | sort -u) == up ]] || wrong "a link is down"
    restored() { # LINK: by this run, and nothing else
        : >"$root/run/fixture/log"
        passes ipoib
        [[ $(grep reconfigure "$root/run/fixture/log") == "networkctl reconfigure $1" ]] || wrong "of $1: $(<"$root/run/fixture/log")"
        "$kernel" ask ip -4 -o addr show dev ibp20s0 | grep ' 192.168.36.100/16 ' >/dev/null || wrong "no address"
        "$kernel" ask ip -4 -o route show 192.168.0.0/16 dev ibp20s0 | grep . >/dev/null || wrong "no route"
    }
    "$kernel" lose addresses "ibp20s0 192.168.36.100/16"
    restored ibp20s0
    "$kernel" lose routes "ibp20s0 192.168.0.0/16"
    "$kernel" lose addresses "ibp20s0 192.168.36.100/16"
    restored ibp20s0
    printf 'down\n' >"$net/ibp52s0/operstate"
    restored ibp52s0
    : >"$root/run/fixture/log"
    passes ipoib GPUAAS_REPAIR=1
    logged "networkctl reconfigure ibp20s0 ibp36s0"
    "$kernel" have cut ibp52s0
    passes ipoib
    said "warning: ibp52s0 did not get the settings in /etc/netplan/60-ipoib.yaml"
}

# The type says what a link is: firmware numbers some slots and not others. What is on top of a link, or a
# guest's, is none of the fabric's. A name that a site sets leaves others alone, and says so.
test_ipoib_by_the_type_of_links() {
    use h200-ib
    local net=$root/sys/class/net child=$root/sys/devices/virtual/net/ibp36s0.8001
    mv -- "$net/ibp100s0" "$net/ibs100" && mv -- "$net/ibp84s0" "$net/ibP1p84s0" && mv -- "$net/ibp68s0" "$net/fab0"
    mkdir -p -- "$child"
    printf '32\n' >"$child/type" && printf 'up\n' >"$child/operstate" && printf 'ibp36s0\n' >"$child/parent"
    ln -sr "$child" "$net/ibp36s0.8001"
    twice ipoib
    [[ $(grep -c 'infiniband-mode: datagram' "$root/etc/netplan/60-ipoib.yaml") == 8 ]] || wrong "expected eight links"
    has_line /etc/netplan/60-ipoib.yaml "    fab0:"
    has_no /etc/netplan/60-ipoib.yaml 8001
    ! grep -q warning "$work/said" || wrong "it warns: $(<"$work/said")"
    passes ipoib H200_FABRIC_INTERFACE="ibp*" H200_FABRIC_LINKS=5
    said "warning: the InfiniBand link ibs100 was not changed: it is not one of the fabric links \\(ibp\\*\\)"
    passes ipoib H200_FABRIC_INTERFACE="ibp*"
    said "warning: found 5 fabric links, expected 8"
}

# Drivers may still be loading: the first link gets the address although others were there before it.
test_ipoib_waits_for_its_links() {
    use h200-ib
    local link late=$root/run/fixture/late-links
    mkdir -p -- "$late"
    for link in ibp20s0 ibp36s0; do
        mv -- "$root/sys/class/net/$link" "$late/$link"
        "$here/fixture/kernel" have late "$link"
    done
    twice ipoib
    said "derived 192.168.36.100/16 for ibp20s0"
    [[ $(grep -c 'infiniband-mode: datagram' "$root/etc/netplan/60-ipoib.yaml") == 8 ]] || wrong "expected eight links"
}

test_ipoib_of_a_site() {
    use h200-ib
    twice ipoib H200_IPOIB_INTERFACES="ibp36s0 ibp52s0" H200_IPOIB_ADDRESSES="192.168.7.1/24 192.168.7.2/24" H200_IPOIB_MTU=4092
    has_line /etc/netplan/60-ipoib.yaml "        - 192.168.7.2/24"
    has_line /etc/netplan/60-ipoib.yaml "      mtu: 4092"
    has_no /etc/netplan/60-ipoib.yaml ibp20s0
    # The firmware may name slots: ibs3.
    mv -- "$root/sys/class/net/ibp36s0" "$root/sys/class/net/ibs3"
    twice ipoib H200_FABRIC_INTERFACE="ibs*"
    has_line /etc/netplan/60-ipoib.yaml "    ibs3:"
    has_no /etc/netplan/60-ipoib.yaml ibp20s0
    refused "a link name with an optional trailing" ipoib H200_FABRIC_INTERFACE="../*"
    twice ipoib H200_MANAGEMENT_ADDRESS=10.9.8.7/20 H200_FABRIC_SUBNET=172.20.4.0/22
    has_line /etc/netplan/60-ipoib.yaml "        - 172.20.4.7/22"
}

test_ipoib_refusals() {
    use h200-ib
    refused "is not a host address in the fabric" ipoib H200_IPOIB_ADDRESSES=10.0.0.1/24
    refused "is not a host address in the fabric" ipoib H200_IPOIB_ADDRESSES=192.168.255.255/16
    refused "is not a host address in the fabric" ipoib H200_MANAGEMENT_ADDRESS=10.1.0.0/8
    refused "2 addresses for 1 links" ipoib H200_IPOIB_INTERFACES=ibp20s0 H200_IPOIB_ADDRESSES="192.168.0.1/16 192.168.0.2/16"
    refused "no management address" ipoib GPUAAS_FIXTURE_KERNEL=
    rm -- "$root"/sys/class/net/ibp*
    refused "no InfiniBand link" ipoib
}

test_login_user() {
    use h200-ib
    local key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHRlc3Q= ops@example" hash='$6$salt$abcdefghijk./'
    twice login-user
    has_line /etc/ssh/sshd_config.d/10-gpuaas.conf "PasswordAuthentication no"
    has_no /etc/passwd hpcadmin
    if ! tool useradd; then return; fi
    if ((EUID != 0)); then printf 'skip %s: useradd needs root\n' "$current" && return; fi
    twice login-user H200_LOGIN_USER=hpcadmin H200_LOGIN_KEYS="$key;$key 2" H200_LOGIN_PASSWORD_HASH="$hash"
    ! grep -qF -- "$hash" "$work/first" "$work/said" || wrong "the hash was shown"
    has_line /etc/ssh/authorized_keys.d/hpcadmin "$key"
    grep -qF "hpcadmin:$hash:" "$root/etc/shadow" || wrong "the password is not set: $(<"$root/etc/shadow")"
    mode_is /etc/sudoers.d/90-gpuaas-hpcadmin 440
    if tool visudo; then visudo -cqf "$root/etc/sudoers.d/90-gpuaas-hpcadmin" || wrong "visudo"; fi
    twice login-user H200_LOGIN_USER=hpcadmin H200_LOGIN_SUDO=0 H200_SSH_PASSWORD_AUTH=1
    [[ ! -e $root/etc/sudoers.d/90-gpuaas-hpcadmin ]] || wrong "sudo stays"
    has_line /etc/ssh/sshd_config.d/10-gpuaas.conf "PasswordAuthentication yes"
    refused "an invalid public key" login-user H200_LOGIN_USER=x H200_LOGIN_KEYS="command=\"id\" $key"
    refused "not a valid user name" login-user H200_LOGIN_USER="-x"
    refused "a system user" login-user H200_LOGIN_USER=root
    refused "is not a crypt" login-user H200_LOGIN_USER=hpcadmin H200_LOGIN_PASSWORD_HASH=secret
}

# An sshd_config that never reads drop-ins, or has its own value before, or a Match block that decides.
test_login_user_of_a_hardened_image() {
    use h200-ib
    local config=/etc/ssh/sshd_config kernel=$here/fixture/kernel
    in_force() { "$kernel" ask sshd -T -C user=root,host=x,addr=192.0.2.1 | grep -qix -- "$1" || wrong "not in force: $1"; }
    printf 'Port 22\nPasswordAuthentication yes\nPermitRootLogin yes\nUsePAM yes\n' >"$root$config"
    twice login-user
    in_force "passwordauthentication no"
    in_force "permitrootlogin without-password"
    [[ $(head -n 1 -- "$root$config") == "Include /etc/ssh/sshd_config.d/10-gpuaas.conf" && $(tail -n 1 -- "$root$config") == "UsePAM yes" ]] || wrong "$config: $(<"$root$config")"
    printf 'PasswordAuthentication yes\nInclude /etc/ssh/sshd_config.d/*.conf\n' >"$root$config"
    twice login-user
    in_force "passwordauthentication no"
    twice login-user H200_SSH_PASSWORD_AUTH=1
    in_force "passwordauthentication yes"
    # Somebody's file sorts before ours.
    printf 'Include /etc/ssh/sshd_config.d/*.conf\n' >"$root$config"
    printf 'PasswordAuthentication yes\n' >"$root/etc/ssh/sshd_config.d/00-site.conf"
    twice login-user
    in_force "passwordauthentication no"
}

test_data_disks() {
    use h200-ib
    local before
    before=$(sha256sum "$root"/dev/nvme[023]n1)
    twice data-disks H200_DATA_DISK_MIN_GB=0
    said "unchanged nvme0n1: it has partitions"
    said "changed nvme1n1 is /share1"
    said "unchanged nvme2n1: it has a signature"
    said "unchanged nvme3n1: it holds data"
    said "changed nvme4n1 is /share2"
    [[ $(sha256sum "$root"/dev/nvme[023]n1) == "$before" ]] || wrong "a disk that holds something was written to"
    has_line /etc/fstab "UUID=$(blkid -p -s UUID -o value "$root/dev/nvme1n1") /share1 ext4 defaults,nofail,x-systemd.device-timeout=30s 0 2"
    [[ $(grep -c UUID "$root/etc/fstab") == 3 && $(head -n 1 "$root/etc/fstab") == *" / ext4 "* ]] || wrong "fstab: $(<"$root/etc/fstab")"
    logged "mount /share2"
}

test_data_disks_too_small_and_held() {
    use h200-ib
    twice data-disks
    said "unchanged nvme1n1: it is smaller than 500 GB"
    : >"$root/sys/block/nvme1n1/holders/md0"
    printf '/dev/nvme4n1 /data xfs defaults 0 0\n' >>"$root/etc/fstab"
    twice data-disks H200_DATA_DISK_MIN_GB=0
    said "unchanged nvme1n1: another device uses it"
    said "unchanged nvme4n1: it is listed in fstab"
}

# A tool that fails says nothing of a disk, so the disk stays.
test_data_disks_with_a_broken_tool() {
    use h200-ib
    local tool before
    before=$(sha256sum "$root"/dev/*)
    mkdir -- "$work/broken"
    for tool in wipefs blkid cmp; do
        printf '#!/bin/bash\nexit 1\n' >"$work/broken/$tool"
        chmod +x "$work/broken/$tool"
        passes data-disks H200_DATA_DISK_MIN_GB=0 PATH="$work/broken:$PATH"
        rm -- "$work/broken/$tool"
        [[ $(sha256sum "$root"/dev/*) == "$before" ]] || wrong "a disk was written to without $tool"
    done
}

# A run that ended between fstab and the disk is completed, not repeated.
test_data_disks_broken_off() {
    use h200-ib
    mkdir -p -- "$root/var/lib/gpuaas/data-disks" "$root/share1"
    printf '22222222-2222-4222-8222-222222222222 /share1\n' >"$root/var/lib/gpuaas/data-disks/nvme1n1"
    printf 'UUID=22222222-2222-4222-8222-222222222222 /share1 ext4 defaults,nofail 0 2\n' >>"$root/etc/fstab"
    twice data-disks H200_DATA_DISK_MIN_GB=0
    [[ $(blkid -p -s UUID -o value "$root/dev/nvme1n1") == 22222222-* ]] || wrong "another UUID than planned"
    [[ $(grep -c ' /share1 ' "$root/etc/fstab") == 1 ]] || wrong "fstab has /share1 twice"
}

test_acs() {
    use h200-ib
    if ! tool setpci; then return; fi
    refused "refused: without ACS" acs H200_HOST_ROLE=slice
    twice acs
    said "ACS is off on 24 of 32 bridges"
    [[ $(setpci -A linux-sysfs -O "sysfs.path=$root/sys/bus/pci" -s 0000:12:00.0 ECAP_ACS+6.w) == 0000 ]] || wrong "ACS is on"
    # A reset of a bus turns it on again.
    setpci -A linux-sysfs -O "sysfs.path=$root/sys/bus/pci" -s 0000:12:00.0 ECAP_ACS+6.w=001d
    twice acs
    [[ $(setpci -A linux-sysfs -O "sysfs.path=$root/sys/bus/pci" -s 0000:12:00.0 ECAP_ACS+6.w) == 0000 ]] || wrong "ACS is on again"
}

test_hardware_sync() {
    use h200-ib
    twice hardware-sync
    [[ -e $root/run/fixture/active/maas_hardware_sync.timer ]] || wrong "the timer does not run"
    rm -- "$root"/usr/lib/systemd/system/maas_hardware_sync.timer
    again hardware-sync
    refused "deployed without enable_hw_sync" hardware-sync H200_REQUIRE_HW_SYNC=1
}

# A phase that changes what its manifest does not name is found out, and one that removes it too.
test_touches() {
    local other=$work/other
    mkdir -p -- "$other/stray/phases"
    cat >"$other/stray/bundle.yaml" <<'YAML'
name: stray
version: 1.0.0
inputs: {}
packages: {required: [], optional: []}
expects: []
phases: [{name: stray, run: phases/stray.sh, touches: [/etc/netplan, /etc/host]}]
YAML
    printf '#!/bin/bash\nmkdir -p "$GPUAAS_HOST_ROOT"/{etc/netplan,var/lib/gpuaas}\n: >"$GPUAAS_HOST_ROOT/etc/netplan/a"\n: >"$GPUAAS_HOST_ROOT/var/lib/gpuaas/b"\n' >"$other/stray/phases/stray.sh"
    (here=$other && use stray && passes stray && ((failures == 0))) || wrong "what it may touch was held against it"
    printf ': >"$GPUAAS_HOST_ROOT/etc/hosts"\nrm -- "$GPUAAS_HOST_ROOT/etc/fstab"\nchmod 600 "$GPUAAS_HOST_ROOT/etc/hostname"\n' >>"$other/stray/phases/stray.sh"
    (here=$other && use stray && passes stray) >"$work/found"
    [[ $(sed -n 's/.* changed \([^,]*\),.*/\1/p' "$work/found") == $'/etc/fstab\n/etc/hostname\n/etc/hosts' ]] || wrong "found: $(<"$work/found")"
}

# No phase may write past the host's folder, not even along a link that is inside of it.
test_a_link_out_of_the_host() {
    use h200-ib
    mkdir -- "$work/outside"
    ln -s -- "$work/outside" "$root/etc/netplan"
    refused "leads out of" ipoib
    [[ -z $(ls -A -- "$work/outside") ]] || wrong "something was written outside"
    rmdir -- "$work/outside"
    refused "this machine's own /sys" ipoib GPUAAS_SYSFS=/sys
}

# Without somebody who plays the host, commands are named and nothing counts as applied.
test_nobody_plays_the_host() {
    use h200-ib
    passes ipoib GPUAAS_FIXTURE_KERNEL= H200_MANAGEMENT_ADDRESS=10.177.36.100/24
    said "would run netplan generate"
    [[ ! -e $root/var/lib/gpuaas/applied/netplan-ipoib ]] || wrong "it counts as applied"
    again ipoib GPUAAS_FIXTURE_KERNEL= H200_MANAGEMENT_ADDRESS=10.177.36.100/24
    said "would run netplan generate"
}
