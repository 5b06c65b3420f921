#!/bin/sh
# --- Start MAAS 1.0 script metadata ---
# name: control-plane
# title: GPUaaS answers this host
# description: Fails where this host cannot reach the address that nodes are told, or must not trust it
# script_type: commissioning
# hardware_type: node
# parallel: any
# timeout: 00:03:00
# tags: gpuaas,noauto
# --- End MAAS 1.0 script metadata ---
#
# Asked from the network of nodes, by the very certificates that nodes are told to trust. The last line
# says what came of it.
set -eu

exec python3 - <<'END'
import socket
import ssl
import sys
import time
import urllib.parse
import urllib.request

URL = @URL@
TRUSTED = @TRUSTED@
TRIES = 3
PAUSE_SECONDS = 5
TIMEOUT_SECONDS = 10


def own_address():
    parts = urllib.parse.urlsplit(URL)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    with socket.create_connection((parts.hostname, port), TIMEOUT_SECONDS) as connection:
        return connection.getsockname()[0]


def ask():
    context = ssl.create_default_context(cadata=TRUSTED or None) if URL.startswith("https") else None
    with urllib.request.urlopen(URL, timeout=TIMEOUT_SECONDS, context=context) as answer:
        answer.read(65536)
        return answer.status


for attempt in range(1, TRIES + 1):
    try:
        print(f"{URL} answered {own_address()} with {ask()}")
        sys.exit(0)
    except OSError as error:
        failure = error
        print(f"try {attempt}: {error}")
    if attempt < TRIES:
        time.sleep(PAUSE_SECONDS)
print(f"{URL} cannot be reached from this host: {failure}")
sys.exit(1)
END
