
# The GPUaaS part: installs the agent by digest, starts it, waits for its first heartbeat.
PHASE=node_bootstrap
AGENT="$ROOT/usr/local/bin/gpuaas-node-agent"
AGENT_CONFIG="$ROOT/etc/gpuaas/agent.json"
RUN_DIR="$ROOT/run/gpuaas"
AGENT_LOG="$LOG_DIR/agent.log"
UNIT=gpuaas-node-agent.service
CHANGED=no

site_is_done() {
  [[ -r "$SITE_STATE/run.done" ]] && [[ "$(<"$SITE_STATE/run.done")" == "$RUN_ID" ]]
}

install_agent() {
  if is_the_agent "$AGENT"; then return 0; fi
  fetch_launcher
  place "$AGENT" 755 <"$LAUNCHER"
  CHANGED=yes
}

configure_agent() {
  python3 -I -S - "$CONFIG" >"$WORK/agent.json" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    inputs = json.load(file)
names = ("run_id", "hostname", "control_plane_url", "enrollment_token")
config = {name: inputs[name] for name in names}
if inputs.get("control_plane_ca_pem"):
    config["ca_file"] = "/etc/gpuaas/control-plane-ca.pem"
else:
    # The certificate is of a public authority, or of one that the site's machines trust.
    config["trust_system"] = True
    if inputs.get("ca_pem"):
        config["ca_file"] = "/etc/gpuaas/ca.pem"
print(json.dumps(config, indent=2, sort_keys=True))
PYTHON
  if cmp -s "$WORK/agent.json" "$AGENT_CONFIG"; then return 0; fi
  place "$AGENT_CONFIG" 600 <"$WORK/agent.json"
  CHANGED=yes
}

has_systemd() {
  [[ -z "$ROOT" && -d /run/systemd/system ]]
}

# What the agent does as root, it does for bundles too: packages, mounts, modules, namespaces of the
# network. So the host's folders, devices and kernel stay in its reach (ProtectSystem, PrivateDevices,
# ProtectKernelModules, RestrictNamespaces and their like would break that, or, with a mount
# namespace, hide from the host what a phase mounts). What none of its tasks needs is shut.
start_systemd() {
  place "/etc/systemd/system/$UNIT" 644 <<'UNIT_FILE'
[Unit]
Description=GPUaaS node agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStartPre=-/usr/local/bin/gpuaas-node-agent.previous guard
ExecStart=/usr/local/bin/gpuaas-node-agent run --config /etc/gpuaas/agent.json
Restart=always
RestartSec=10
RestartPreventExitStatus=3
# A dump would hold the node's key and the secret inputs of bundles.
LimitCORE=0
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=~@cpu-emulation @obsolete
SystemCallErrorNumber=EPERM
CapabilityBoundingSet=~CAP_BLOCK_SUSPEND CAP_LEASE CAP_SYS_BOOT CAP_SYS_TTY_CONFIG CAP_WAKE_ALARM
RestrictAddressFamilies=~AF_APPLETALK AF_ATMPVC AF_AX25 AF_BLUETOOTH AF_CAN AF_DECnet AF_IPX AF_X25

[Install]
WantedBy=multi-user.target
UNIT_FILE
  systemctl daemon-reload
  systemctl enable "$UNIT"
  if [[ "$CHANGED" == yes ]]; then systemctl restart "$UNIT"; else systemctl start "$UNIT"; fi
}

# Whether PID is a process that runs the agent; a pid alone may have been used again.
is_agent() {
  [[ -n "$1" && -r "/proc/$1/cmdline" ]] &&
    tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline" | grep -Fxq -- "$AGENT"
}

agent_pid() {
  if [[ -r "$RUN_DIR/agent.pid" ]]; then cat "$RUN_DIR/agent.pid"; fi
}

start_background() {
  local pid wait
  mkdir -p "$RUN_DIR" "$LOG_DIR"
  pid="$(agent_pid)"
  if is_agent "$pid"; then
    if [[ "$CHANGED" == no ]]; then return 0; fi
    kill "$pid" || true
    for ((wait = 0; wait < 50; wait++)); do
      if ! is_agent "$pid"; then break; fi
      sleep 0.1
    done
    if is_agent "$pid"; then kill -KILL "$pid" || true; fi
  fi
  rm -f "$RUN_DIR/ready.json"
  setsid "$AGENT" run --config "$AGENT_CONFIG" --host-root "${ROOT:-/}" \
    </dev/null >>"$AGENT_LOG" 2>&1 &
  printf '%s\n' "$!" | place "$RUN_DIR/agent.pid" 644
}

agent_is_gone() {
  if has_systemd; then
    systemctl is-failed --quiet "$UNIT"
  else
    [[ ! -d "/proc/$(agent_pid)" ]]
  fi
}

last_words() {
  if has_systemd; then
    journalctl --unit "$UNIT" --lines 3 --output cat --no-pager 2>/dev/null || true
  else
    tail -n 3 "$AGENT_LOG" 2>/dev/null || true
  fi | tr '\n' ' '
}

# The agent writes ready.json, on one line, once a heartbeat was accepted.
wait_until_ready() {
  local limit="${INPUT[limits.ready_seconds]}" until
  until=$((SECONDS + limit))
  while ((SECONDS <= until)); do
    if grep -Fqs "\"run_id\":\"$RUN_ID\"" "$RUN_DIR/ready.json"; then return 0; fi
    if agent_is_gone; then fail "the agent ended: $(last_words)"; fi
    sleep 0.1
  done
  fail "no heartbeat was accepted within $limit s: $(last_words)"
}

load_config
site_is_done || fail "the site bootstrap of this run did not succeed"
callback started ""
install_agent
configure_agent
if has_systemd; then start_systemd; else start_background; fi
wait_until_ready
callback succeeded "agent ${INPUT[agent.version]}"
