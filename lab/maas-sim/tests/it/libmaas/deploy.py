"""Log in, list, allocate and deploy, as a user of python-libmaas would."""

import asyncio
import sys

from maas.client import login
from maas.client.enum import NodeStatus


async def main(url):
    client = await login(url, username="admin", password="admin")
    machines = await client.machines.list()
    names = sorted(machine.hostname for machine in machines)
    print("listed", *names)
    print("whoami", (await client.users.whoami()).username)
    wanted = next(machine for machine in machines if machine.hostname == "lab2")
    await client._origin.Machines._handler.allocate(system_id=wanted.system_id)
    machine = await client.machines.get(wanted.system_id)
    print("allocated", machine.hostname, machine.status == NodeStatus.ALLOCATED)
    await machine.deploy(user_data=b"#cloud-config\n", wait=True, wait_interval=0.05)
    print("deployed", machine.hostname, machine.status == NodeStatus.DEPLOYED, machine.distro_series)
    events = await client.events.query(limit=3)
    print("newest", next(iter(events)).event_type)


asyncio.run(main(sys.argv[1]))
