# shellcheck shell=bash # sourced by the phases that bring repositories
# A flat apt repository that a site names, with its key.

# apt_repository NAME URL KEY_URL SHA256: the repository, and the key that signs it, whose file has this
# digest. A key that is there with it is not fetched again.
apt_repository() {
    local name=$1 url=$2 key_url=$3 digest=$4 key
    local keyring=/etc/apt/keyrings/gpuaas-$name.asc
    [[ $url =~ ^https://[^][:space:]\[]+$ && $key_url =~ ^https://[^][:space:]\[]+$ && $digest =~ ^[0-9a-f]{64}$ ]] ||
        fail "the $name repository needs its URL, the URL of its key (both https) and the SHA-256 of the key file"
    if sha256sum --quiet -c - <<<"$digest  $(at "$keyring")" >/dev/null 2>&1; then
        say "unchanged $keyring"
    elif dry; then
        say "would change $keyring"
    else
        key=$(mktemp)
        # shellcheck disable=SC2064 # the name of now
        trap "rm -f -- '$key'" EXIT
        host_ask curl -fsS --proto '=https' --max-time 60 --retry 3 -o "$key" -- "$key_url" ||
            fail "cannot download the key of the $name repository from $key_url"
        sha256sum --quiet -c - <<<"$digest  $key" >/dev/null 2>&1 ||
            fail "the key at $key_url has the wrong SHA-256: expected $digest"
        place "$keyring" 0644 <"$key"
    fi
    place "/etc/apt/sources.list.d/gpuaas-$name.list" 0644 <<<"deb [signed-by=$keyring] $url ./"
}

# no_apt_repository NAME: the site names none.
no_apt_repository() {
    absent "/etc/apt/sources.list.d/gpuaas-$1.list"
    absent "/etc/apt/keyrings/gpuaas-$1.asc"
}
