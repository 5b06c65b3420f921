#!/bin/sh
# --- Start MAAS 1.0 script metadata ---
# name: hello
# title: Hello
# description: Says hello, and always passes
# script_type: commissioning
# hardware_type: node
# parallel: disabled
# timeout: 00:01:00
# tags: gpuaas, noauto
# --- End MAAS 1.0 script metadata ---
#
# Ends with something else than 0 where the machine is not as it should be.
set -eu

echo "hello from $(uname -n)"
