#!/bin/sh
# The pipeline under its old name: the same environment, the same four ways.
set -eu
exec gpuaas image pipeline "$@"
