"""What cloud-init makes of user-data, as JSON. Run with cloud-init's own interpreter.

parts FILE   every part as cloud-init's UserDataProcessor decodes it, and the cloud-config's meaning
yaml FILE    the file as PyYAML reads it
"""
import base64
import json
import sys

import yaml

mode, path = sys.argv[1:3]
raw = open(path, "rb").read()
if mode == "yaml":
    print(json.dumps(yaml.safe_load(raw)))
    sys.exit()

from cloudinit import distros, helpers, user_data
from cloudinit.distros import ug_util

message = user_data.UserDataProcessor(helpers.Paths({})).process(raw)
parts, config, login = [], None, None
for part in message.walk():
    if part.is_multipart():
        continue
    payload = part.get_payload(decode=True)
    parts.append(
        {
            "content_type": part.get_content_type(),
            "file_name": part.get_filename(),
            "payload": base64.b64encode(payload).decode(),
        }
    )
    if part.get_content_type() == "text/cloud-config":
        config = yaml.safe_load(payload)
        ubuntu = distros.fetch("ubuntu")(
            "ubuntu", {"default_user": {"name": "ubuntu"}}, helpers.Paths({})
        )
        image = {"users": ["default"]}  # /etc/cloud/cloud.cfg of the image
        users, _groups = ug_util.normalize_users_groups({**image, **config}, ubuntu)
        login = ug_util.extract_default(users)[0]
print(json.dumps({"parts": parts, "config": config, "login": login}))
