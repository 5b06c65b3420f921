#!/bin/bash
# The login user that a site's profile asks for, and whether SSH takes passwords.
#
# Keys go to a file of root's beside the user's own, so that the keys that MAAS put there stay.
# sshd takes the first value that it reads: 10- comes before cloud-init's 50-. An sshd_config that includes
# no drop-ins, or has a value before it does, gets ours as its first line. What counts is asked of sshd.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

user=$H200_LOGIN_USER
sshd_config=/etc/ssh/sshd_config.d/10-gpuaas.conf

# field N: a field of the user's line in a file of accounts.
field() { awk -F: -v user="$user" -v n="$2" '$1 == user { print $n }' "$(at "$1")"; }

create_user() {
    [[ $user =~ ^[a-z_][a-z0-9_-]{0,31}$ ]] || fail "H200_LOGIN_USER is $user, not a valid user name"
    local id
    id=$(field /etc/passwd 3)
    if [[ -n $id ]]; then
        ((id >= 1000)) || fail "$user is a system user (ID $id), expected an ID of 1000 or more"
        say "unchanged user $user"
    elif live; then
        useradd --create-home --shell /bin/bash -- "$user"
        say "changed user $user"
    else
        useradd --prefix "$GPUAAS_HOST_ROOT" --create-home --shell /bin/bash -- "$user"
        say "changed user $user"
    fi
}

set_password() {
    local hash=$H200_LOGIN_PASSWORD_HASH lines
    [[ $hash =~ ^\$(6|y|gy|2b)\$[./A-Za-z0-9\$=,]+$ ]] ||
        fail "H200_LOGIN_PASSWORD_HASH is not a crypt(5) hash (sha512, yescrypt or bcrypt)"
    if [[ $(field /etc/shadow 2) == "$hash" ]]; then
        say "unchanged password of $user"
    elif live; then
        chpasswd -e <<<"$user:$hash"
        say "changed password of $user"
    else
        # Through the environment: arguments are for everybody to see.
        lines=$(awk -F: -v OFS=: -v user="$user" \
            '$1 == user { $2 = ENVIRON["H200_LOGIN_PASSWORD_HASH"] } { print }' "$(at /etc/shadow)")
        place /etc/shadow 0640 <<<"$lines"
    fi
}

# One key a line, with nothing before it: an option could run a command.
keys() {
    local key
    tr ';' '\n' <<<"$H200_LOGIN_KEYS" | while read -r key; do
        [[ -n $key ]] || continue
        [[ $key =~ ^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-[a-z0-9@.-]+)\ [A-Za-z0-9+/]+=*(\ [^[:cntrl:]]*)?$ ]] ||
            fail "H200_LOGIN_KEYS contains an invalid public key: ${key:0:40}"
        printf '%s\n' "$key"
    done
}

check_and_reload() {
    if live; then mkdir -p /run/sshd; fi
    host_do sshd -t
    host_do systemctl try-reload-or-restart ssh.service
}

if [[ -n $user ]]; then
    keys=$(keys)
    create_user
    if [[ -n $H200_LOGIN_PASSWORD_HASH ]]; then set_password; fi
    place "/etc/ssh/authorized_keys.d/$user" 0644 <<<"$keys"
    if [[ $H200_LOGIN_SUDO == 1 ]]; then
        place "/etc/sudoers.d/90-gpuaas-$user" 0440 <<<"$user ALL=(ALL) NOPASSWD:ALL"
    else
        absent "/etc/sudoers.d/90-gpuaas-$user"
    fi
else
    say "no login user is configured"
fi
password=no
if [[ $H200_SSH_PASSWORD_AUTH == 1 ]]; then password=yes; fi

# Settings that sshd would not act on, as it says for root from elsewhere; nothing where it cannot be asked.
not_in_force() {
    local said setting
    if live; then mkdir -p /run/sshd; fi
    said=$(host_ask sshd -T -C user=root,host=elsewhere,addr=192.0.2.1) || return 0
    for setting in "passwordauthentication $password" "kbdinteractiveauthentication no" \
        "permitrootlogin (without|prohibit)-password" "authorizedkeysfile .*/etc/ssh/authorized_keys\.d/%u.*"; do
        grep -qixE -- "$setting" <<<"$said" || say "${setting%% *}"
    done
}
in_force() { [[ -z $(not_in_force) ]]; }

place "$sshd_config" 0644 <<CONF
PasswordAuthentication $password
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/authorized_keys.d/%u
CONF
if ! dry && ! in_force; then
    lines=$(cat -- "$(at /etc/ssh/sshd_config)" 2>/dev/null || true)
    if [[ ${lines%%$'\n'*} != "Include $sshd_config" ]]; then
        place /etc/ssh/sshd_config 0644 <<<"Include $sshd_config${lines:+$'\n'$lines}"
    fi
    wrong=$(not_in_force)
    [[ -z $wrong ]] || fail "sshd ignores $sshd_config: another file or a Match block sets ${wrong//$'\n'/, }"
fi
after_change sshd "$sshd_config" -- check_and_reload
