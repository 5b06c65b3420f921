#!/bin/bash
# GPUaaS bootstrap. Constant text: every input comes from bootstrap.json, read as data.
#
# GPUAAS_HOST_ROOT  folder that stands for / on a simulated host; empty on a real one.
#
# Callbacks inform, they never decide: one that fails is logged and forgotten.
set -Eeuo pipefail
umask 022
export LC_ALL=C

ROOT="${GPUAAS_HOST_ROOT:-}"
ROOT="${ROOT%/}"
CONFIG="$ROOT/etc/gpuaas/bootstrap.json"
CA_FILE="$ROOT/etc/gpuaas/ca.pem"
CONTROL_PLANE_CA_FILE="$ROOT/etc/gpuaas/control-plane-ca.pem"
SITE_STATE="$ROOT/var/lib/gpuaas/site-bootstrap"
LOG_DIR="$ROOT/var/log/gpuaas"
LAUNCHER="$ROOT/usr/local/lib/gpuaas/launcher"
WORK="$(mktemp -d)"
PROGRESS_URL=""
BOOTSTRAP_TOKEN=""
FAILURE=""
ATTEMPT=""

log() {
  printf '%s gpuaas %s: %s\n' "$(date -u +%FT%TZ)" "$PHASE" "$*" >&2
}

# MESSAGE: ends the script; the message is reported.
fail() {
  FAILURE="$1"
  exit 1
}

finish() {
  local rc=$?
  trap - EXIT ERR
  set +e
  if ((rc != 0)); then
    log "failed: ${FAILURE:-ended with $rc}"
    callback failed "${FAILURE:-ended with $rc}"
  fi
  rm -rf "$WORK"
  exit "$rc"
}
trap finish EXIT
trap 'FAILURE="${FAILURE:-line $LINENO: $BASH_COMMAND}"' ERR

# Every scalar of bootstrap.json as NAME NUL VALUE NUL; nested names are joined by dots. What the
# site's bundle is told is the launcher's matter.
config_values() {
  python3 -I -S - "$CONFIG" <<'PYTHON'
import json
import sys


def walk(prefix, value):
    if isinstance(value, dict):
        for key, inner in value.items():
            walk(prefix + "." + key if prefix else key, inner)
    elif value is not None and not isinstance(value, list):
        text = str(value)
        if "\0" in text:
            sys.exit(prefix + " holds a NUL")
        sys.stdout.buffer.write((prefix + "\0" + text + "\0").encode())


with open(sys.argv[1], encoding="utf-8") as file:
    inputs = json.load(file)
inputs["has_bundle"] = "1" if inputs.pop("bundle", None) else ""
walk("", inputs)
PYTHON
}

declare -A INPUT=()

load_config() {
  local name value
  [[ -r "$CONFIG" ]] || fail "$CONFIG is missing"
  while IFS= read -r -d '' name && IFS= read -r -d '' value; do
    INPUT["$name"]="$value"
  done < <(config_values)
  for name in run_id hostname site control_plane_url bootstrap_token enrollment_token \
    agent.version agent.digest agent.url limits.callback_attempts limits.fetch_attempts \
    limits.retry_milliseconds limits.ready_seconds; do
    value="${INPUT["$name"]:-}"
    [[ -n "$value" ]] || fail "$CONFIG has no $name"
    [[ "$name" != limits.* || "$value" =~ ^[0-9]{1,9}$ ]] || fail "$CONFIG: $name is no number"
  done
  RUN_ID="${INPUT[run_id]}"
  BOOTSTRAP_TOKEN="${INPUT[bootstrap_token]}"
  CONTROL_PLANE_URL="${INPUT[control_plane_url]%/}"
  PROGRESS_URL="$CONTROL_PLANE_URL/bootstrap/v1/runs/$RUN_ID/progress"
  number_attempt
  value="${INPUT[limits.retry_milliseconds]}"
  printf -v RETRY_PAUSE '%d.%03d' "$((10#$value / 1000))" "$((10#$value % 1000))"
  TLS=()
  if [[ -s "$CA_FILE" ]]; then TLS=(--cacert "$CA_FILE"); fi
  if [[ -s "$CONTROL_PLANE_CA_FILE" ]]; then
    CA_FILE="$CONTROL_PLANE_CA_FILE"
    # Without a folder of its own curl trusts the system's authorities as well.
    TLS=(--cacert "$CA_FILE" --capath "$(dirname "$CA_FILE")")
  fi
}

# FILE MODE: replaces FILE by standard input, whole or not at all.
place() {
  local folder temporary
  folder="$(dirname "$1")"
  mkdir -p "$folder"
  temporary="$(mktemp "$folder/.place.XXXXXX")"
  cat >"$temporary"
  chmod "$2" "$temporary"
  mv -f "$temporary" "$1"
}

# Numbers this execution of the scripts: the control plane judges a phase by its latest attempt. The
# seconds of the clock let the number grow where the file was lost.
number_attempt() {
  local file="$SITE_STATE/attempt" last="" now
  if [[ -r "$file" ]]; then read -r -n 16 last <"$file" || true; fi
  [[ "$last" =~ ^[0-9]{1,15}$ ]] || last=0
  now="$(date +%s)"
  ATTEMPT=$((10#$last + 1))
  if ((now > ATTEMPT)); then ATTEMPT="$now"; fi
  printf '%s\n' "$ATTEMPT" | place "$file" 644 || log "the number of the attempt was not kept"
}

# METHOD URL OUT [BODY_FILE]: prints the HTTP status, 000 when nothing answered. The token goes
# through a pipe or the environment, never through an argument list that other users can read.
http() {
  local method="$1" url="$2" out="$3" body="${4:-}"
  local own=no
  if [[ "$url" == "$CONTROL_PLANE_URL"/* ]]; then own=yes; fi
  local arguments=(--silent --show-error --proto '=http,https' --connect-timeout 5
    --request "$method" --output "$out" --write-out '%{http_code}' "${TLS[@]}")
  if ! command -v curl >/dev/null; then
    if [[ "$own" == yes ]]; then
      GPUAAS_TOKEN="$BOOTSTRAP_TOKEN" http_python "$method" "$url" "$out" "$body" || true
    else
      GPUAAS_TOKEN="" http_python "$method" "$url" "$out" "$body" || true
    fi
  elif [[ -n "$body" ]]; then
    curl "${arguments[@]}" --max-time 15 --header 'Content-Type: application/json' \
      --data-binary "@$body" \
      --config <(printf 'header = "Authorization: Bearer %s"\n' "$BOOTSTRAP_TOKEN") "$url" || true
  elif [[ "$own" == yes ]]; then
    # No redirect: the token is for the control plane alone.
    curl "${arguments[@]}" --max-time 900 --speed-limit 1024 --speed-time 30 \
      --config <(printf 'header = "Authorization: Bearer %s"\n' "$BOOTSTRAP_TOKEN") "$url" || true
  else
    curl "${arguments[@]}" --location --max-time 900 --speed-limit 1024 --speed-time 30 \
      "$url" || true
  fi
}

http_python() {
  python3 -I -c '
import os, ssl, sys, urllib.error, urllib.request
method, url, out, body, ca = sys.argv[1:6]
headers, data = {}, None
if body:
    with open(body, "rb") as file:
        data = file.read()
    headers["Content-Type"] = "application/json"
if os.environ["GPUAAS_TOKEN"]:
    headers["Authorization"] = "Bearer " + os.environ["GPUAAS_TOKEN"]
context = ssl.create_default_context()
if os.path.exists(ca):
    context.load_verify_locations(ca)
request = urllib.request.Request(url, data=data, headers=headers, method=method)
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None
handlers = [urllib.request.HTTPSHandler(context=context)]
if "Authorization" in headers:
    handlers.append(Stay())
try:
    with urllib.request.build_opener(*handlers).open(request, timeout=15) as answer:
        with open(out, "wb") as file:
            while chunk := answer.read(1 << 16):
                file.write(chunk)
        print(answer.status, end="")
except urllib.error.HTTPError as error:
    print(error.code, end="")
except OSError as error:
    print(error, file=sys.stderr)
    print("000", end="")
' "$1" "$2" "$3" "$4" "$CA_FILE"
}

# STATUS MESSAGE [ATTEMPT]: prints the body of a callback.
progress_body() {
  python3 -I -S -c '
import json, sys
phase, status, message = (a.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
                          for a in sys.argv[1:4])
body = {"phase": phase, "status": status, "message": message[:2000]}
if sys.argv[4]:
    body["attempt"] = int(sys.argv[4])
print(json.dumps(body))
' "$PHASE" "$1" "${2//"$BOOTSTRAP_TOKEN"/***}" "${3:-}"
}

# STATUS MESSAGE: tells the control plane; bounded, and never fatal.
callback() {
  local attempt code body="$WORK/progress.json" attempts="${INPUT[limits.callback_attempts]:-1}"
  local number="$ATTEMPT"
  [[ -n "$PROGRESS_URL" ]] || return 0
  progress_body "$1" "$2" "$number" >"$body" || return 0
  for ((attempt = 1; attempt <= attempts; attempt++)); do
    if ((attempt > 1)); then sleep "$RETRY_PAUSE"; fi
    code="$(http POST "$PROGRESS_URL" /dev/null "$body")" || code=000
    case "$code" in
      2??) return 0 ;;
      408 | 425 | 429 | 5?? | 000) log "callback $1: HTTP $code" ;;
      400)
        # A control plane of an earlier version knows no attempts.
        if [[ -z "$number" ]]; then
          log "callback $1 was refused: HTTP $code"
          return 0
        fi
        number=""
        attempt=0
        progress_body "$1" "$2" >"$body" || return 0
        ;;
      *)
        log "callback $1 was refused: HTTP $code"
        return 0
        ;;
    esac
  done
  log "callback $1 was given up; going on without it"
}

# WHAT URL DIGEST FILE: fetches until the bytes have the digest; bounded.
fetch() {
  local what="$1" url="$2" digest="$3" file="$4"
  local attempt attempts="${INPUT[limits.fetch_attempts]}" code="" seen="" reason="no attempt"
  [[ "$digest" =~ ^[0-9a-f]{64}$ ]] || fail "the digest of $what is malformed"
  if [[ "$url" == /* ]]; then url="$CONTROL_PLANE_URL$url"; fi
  for ((attempt = 1; attempt <= attempts; attempt++)); do
    if ((attempt > 1)); then sleep "$RETRY_PAUSE"; fi
    code="$(http GET "$url" "$file")" || code=000
    case "$code" in
      200)
        seen="$(sha256sum <"$file")"
        if [[ "${seen%% *}" == "$digest" ]]; then return 0; fi
        reason="its digest is ${seen%% *}, not $digest"
        ;;
      408 | 425 | 429 | 5?? | 000) reason="HTTP $code" ;;
      4??) fail "$what cannot be fetched: HTTP $code from $url" ;;
      *) reason="HTTP $code" ;;
    esac
    log "fetch of $what, attempt $attempt: $reason"
  done
  fail "$what cannot be fetched from $url: $reason, after $attempts attempts"
}

# Whether FILE is the agent that this run names.
is_the_agent() {
  local seen
  [[ -x "$1" ]] || return 1
  seen="$(sha256sum <"$1")"
  [[ "${seen%% *}" == "${INPUT[agent.digest]}" ]]
}

# The agent's executable is the launcher of bundles. It is not installed by this.
fetch_launcher() {
  if is_the_agent "$LAUNCHER"; then return 0; fi
  fetch "agent ${INPUT[agent.version]}" "${INPUT[agent.url]}" "${INPUT[agent.digest]}" "$WORK/agent"
  place "$LAUNCHER" 755 <"$WORK/agent"
}
