#!/usr/bin/env python3
# gpuaas: pins the kernel, then calls curtin's own steps
#
# curtin runs this instead of its own steps (curthooks). Left alone they would install the kernel that
# the archive has by now, and build every module of DKMS for it in the middle of a deploy. The image's
# drivers were built and tried for the one kernel that the image has.
#
# MAAS sets its metadata_url and keys as debconf answers of the package cloud-init. Debian's package reads
# them at its first installation only; where nothing has written them afterwards, this does.
import glob
import json
import os
import sys
from urllib.parse import parse_qs

from curtin.commands.curthooks import builtin_curthooks
from curtin.config import load_command_config
from curtin.util import load_command_environment


def image_kernel(target):
    """The package of the image's one kernel."""
    found = glob.glob(os.path.join(target, "boot", "vmlinuz-*"))
    if len(found) != 1:
        sys.exit("gpuaas: the image has %d kernels in /boot, and one is wanted" % len(found))
    return "linux-image-" + os.path.basename(found[0])[len("vmlinuz-"):]


def cloud_init_answers(config):
    """What MAAS has curtin answer for the package cloud-init, by question."""
    found = {}
    for text in (config.get("debconf_selections") or {}).values():
        for line in str(text).splitlines():
            words = line.split(None, 3)
            if len(words) == 4 and words[0] == "cloud-init":
                found[words[1]] = words[3]
    return found


def keys(credentials):
    """Consumer key, token key and token secret, of either form."""
    names = ["consumer_key", "token_key", "token_secret"]
    if "&" in credentials:
        values = parse_qs(credentials)
        return {name: values.get("oauth_" + name, [""])[0] for name in names}
    return dict(zip(names, credentials.split(":")))


def write_private(path, text):
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def write_data_source(config, target):
    """Does what the package leaves undone, where it does."""
    folder = os.path.join(target, "etc", "cloud", "cloud.cfg.d")
    answers = cloud_init_answers(config)
    url = answers.get("cloud-init/maas-metadata-url")
    if not url or not os.path.isdir(folder):
        return
    if os.path.exists(os.path.join(folder, "90_dpkg_maas.cfg")):
        return
    source = {"metadata_url": url}
    source.update(keys(answers.get("cloud-init/maas-metadata-credentials", "")))
    cloud = {"datasource_list": ["MAAS"], "datasource": {"MAAS": source}}
    write_private(os.path.join(folder, "91_gpuaas_maas.cfg"), json.dumps(cloud) + "\n")
    local = answers.get("cloud-init/local-cloud-config", "").replace("\\n", "\n")
    if local:
        write_private(os.path.join(folder, "91_gpuaas_local.cfg"), local + "\n")


def main():
    state = load_command_environment()
    target = state.get("target")
    if not target:
        sys.exit("gpuaas: curtin names no target")
    config = load_command_config(None, state)
    package = image_kernel(target)
    config["kernel"] = {"package": package, "fallback-package": package, "mapping": {}}
    builtin_curthooks(config, target, state)
    write_data_source(config, target)


if __name__ == "__main__":
    main()
