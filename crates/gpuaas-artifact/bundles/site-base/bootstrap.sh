#!/bin/bash
# site-base: names the site on the host and puts the site's certificate authority into trust.
# Changes nothing on a host that is already as it should be, and says what it did.
set -euo pipefail

ROOT="${GPUAAS_HOST_ROOT:-}"
SITE="${GPUAAS_SITE:?the site bootstrap sets it}"
CA_FILE="${GPUAAS_CA_FILE:-}"
TRUST="$ROOT/usr/local/share/ca-certificates/gpuaas-site.crt"
CHANGED=no

# FILE: makes FILE hold standard input, mode 644.
place() {
  local temporary
  mkdir -p "$(dirname "$1")"
  temporary="$(mktemp "$1.XXXXXX")"
  cat >"$temporary"
  chmod 644 "$temporary"
  if cmp -s "$temporary" "$1"; then
    rm -f "$temporary"
    CHANGED=no
    printf 'unchanged %s\n' "${1#"$ROOT"}"
  else
    mv -f "$temporary" "$1"
    CHANGED=yes
    printf 'wrote %s\n' "${1#"$ROOT"}"
  fi
}

place "$ROOT/etc/gpuaas/site.conf" <<<"GPUAAS_SITE=$SITE"
if [[ -n "$CA_FILE" && -s "$CA_FILE" ]]; then
  place "$TRUST" <"$CA_FILE"
  if [[ "$CHANGED" == yes && -z "$ROOT" ]] && command -v update-ca-certificates >/dev/null; then
    update-ca-certificates
  fi
else
  printf 'the site has no certificate authority of its own\n'
fi
