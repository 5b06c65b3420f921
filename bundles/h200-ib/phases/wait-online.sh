#!/bin/bash
# A boot waits for one link, and not for ever: an H200 host has fabric and spare ports that nobody
# plugged in. netplan writes a drop-in 10-netplan.conf of its own, so ours sorts behind it.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

((H200_WAIT_ONLINE_SECONDS >= 1 && H200_WAIT_ONLINE_SECONDS <= 600)) ||
    fail "H200_WAIT_ONLINE_SECONDS is from 1 to 600"
drop_in=/etc/systemd/system/systemd-networkd-wait-online.service.d/90-gpuaas-bounded.conf
place "$drop_in" 0644 <<UNIT
[Service]
ExecStart=
ExecStart=/lib/systemd/systemd-networkd-wait-online --any --timeout=$H200_WAIT_ONLINE_SECONDS
UNIT
after_change wait-online "$drop_in" -- host_do systemctl daemon-reload
