
# The infra-owned part: fetches the site's bundle by digest, runs it, leaves a record.
# The node bootstrap goes on only where run.done names this run.
PHASE=site_bootstrap
BUNDLE="" VERSION="" DIGEST=""

record() {
  python3 -I -S -c '
import json, sys
names = ("run_id", "hostname", "site", "bundle", "version", "digest", "finished_at")
print(json.dumps(dict(zip(names, sys.argv[1:])), sort_keys=True))
' "$RUN_ID" "${INPUT[hostname]}" "${INPUT[site]}" "$BUNDLE" "$VERSION" "$DIGEST" \
    "$(date -u +%FT%TZ)" >"$WORK/identity.json"
  place "$SITE_STATE/identity.json" 644 <"$WORK/identity.json"
  if [[ -n "$BUNDLE" ]]; then
    printf '%s %s %s\n' "$RUN_ID" "$VERSION" "$DIGEST" |
      place "$SITE_STATE/$BUNDLE.done" 644
  fi
  printf '%s\n' "$RUN_ID" | place "$SITE_STATE/run.done" 644
}

# Whether this run has already run this bundle to its end.
already_done() {
  [[ -r "$SITE_STATE/$BUNDLE.done" && -r "$SITE_STATE/run.done" ]] &&
    [[ "$(<"$SITE_STATE/$BUNDLE.done")" == "$RUN_ID $VERSION $DIGEST" ]] &&
    [[ "$(<"$SITE_STATE/run.done")" == "$RUN_ID" ]]
}

run_bundle() {
  local rc=0 out="$LOG_DIR/site-bootstrap.log" last
  mkdir -p "$LOG_DIR"
  chmod 700 "$WORK/bundle"
  env GPUAAS_HOST_ROOT="$ROOT" GPUAAS_SITE="${INPUT[site]}" GPUAAS_RUN_ID="$RUN_ID" \
    GPUAAS_HOSTNAME="${INPUT[hostname]}" GPUAAS_CA_FILE="$CA_FILE" \
    GPUAAS_PROGRESS_URL="$PROGRESS_URL" GPUAAS_BOOTSTRAP_TOKEN="$BOOTSTRAP_TOKEN" \
    timeout --kill-after=10 "${INPUT[limits.bundle_seconds]}" bash "$WORK/bundle" >"$out" 2>&1 </dev/null || rc=$?
  cat "$out" >&2
  if ((rc == 0)); then return 0; fi
  last="$(tail -n 3 "$out" | tr '\n' ' ')"
  if ((rc == 124 || rc == 137)); then last="stopped after ${INPUT[limits.bundle_seconds]} s; $last"; fi
  fail "bundle $BUNDLE@$VERSION ended with $rc: $last"
}

load_config
BUNDLE="${INPUT[bundle.name]:-}"
VERSION="${INPUT[bundle.version]:-}"
DIGEST="${INPUT[bundle.digest]:-}"
mkdir -p "$SITE_STATE"
callback started ""
if [[ -z "$BUNDLE" ]]; then
  record
  callback succeeded "the profile names no site bundle"
elif already_done; then
  callback succeeded "$BUNDLE@$VERSION was already done in this run"
else
  rm -f "$SITE_STATE/run.done" "$SITE_STATE/$BUNDLE.done"
  fetch "bundle $BUNDLE@$VERSION" "${INPUT[bundle.url]}" "$DIGEST" "$WORK/bundle"
  run_bundle
  record
  callback succeeded "$BUNDLE@$VERSION"
fi
