#!/usr/bin/env python3
# gpuaas: pins the kernel, then calls curtin's own steps
#
# curtin runs this instead of its own steps (curthooks). Left alone they would install the kernel that
# the archive has by now, and build every module of DKMS for it in the middle of a deploy. The image's
# drivers were built and tried for the one kernel that the image has.
import glob
import os
import sys

from curtin.commands.curthooks import builtin_curthooks
from curtin.config import load_command_config
from curtin.util import load_command_environment


def image_kernel(target):
    """The package of the image's one kernel."""
    found = glob.glob(os.path.join(target, "boot", "vmlinuz-*"))
    if len(found) != 1:
        sys.exit("gpuaas: the image has %d kernels in /boot, and one is wanted" % len(found))
    return "linux-image-" + os.path.basename(found[0])[len("vmlinuz-"):]


def main():
    state = load_command_environment()
    target = state.get("target")
    if not target:
        sys.exit("gpuaas: curtin names no target")
    config = load_command_config(None, state)
    package = image_kernel(target)
    config["kernel"] = {"package": package, "fallback-package": package, "mapping": {}}
    builtin_curthooks(config, target, state)


if __name__ == "__main__":
    main()
