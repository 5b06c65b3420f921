
# The infra-owned part: fetches the launcher, which verifies the site's bundle and runs it.
# The node bootstrap goes on only where run.done names this run.
PHASE=site_bootstrap
SUMMARY="the profile names no site bundle"

record() {
  printf '%s\n' "$RUN_ID" | place "$SITE_STATE/run.done" 644
}

# The launcher bounds every phase; what it says last is what became of it.
run_bundle() {
  local rc=0 out="$LOG_DIR/site-bootstrap.log"
  mkdir -p "$LOG_DIR"
  "$LAUNCHER" bundle boot --config "$CONFIG" --root "${ROOT:-/}" >"$out" 2>&1 </dev/null || rc=$?
  cat "$out" >&2
  SUMMARY="$(tail -n 1 "$out")"
  if ((rc != 0)); then fail "${SUMMARY:-the launcher ended with $rc}"; fi
}

load_config
mkdir -p "$SITE_STATE"
rm -f "$SITE_STATE/run.done"
# What is fetched before this word is time of the fetch, not of the site's bundle.
if [[ -n "${INPUT[has_bundle]}" ]]; then fetch_launcher; fi
callback started ""
if [[ -n "${INPUT[has_bundle]}" ]]; then run_bundle; fi
record
callback succeeded "$SUMMARY"
