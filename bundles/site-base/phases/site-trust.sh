#!/bin/bash
# Puts the site's certificate authority, which the user-data brought, into the system's trust.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

ca=$(at /etc/gpuaas/ca.pem)
trust=/usr/local/share/ca-certificates/gpuaas-site.crt
if [[ ! -s $ca ]]; then
    say "the site has no certificate authority of its own"
    exit 0
fi
said=$(place "$trust" 0644 <"$ca")
say "$said"
if [[ $said == changed* ]]; then host_do update-ca-certificates; fi
