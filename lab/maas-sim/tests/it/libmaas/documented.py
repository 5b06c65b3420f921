"""The calls of python-libmaas' own documentation, one by one: `ok NAME` or `FAIL NAME WHY`."""

import asyncio
import sys

from maas.client import login
from maas.client.enum import InterfaceType, IPRangeType, LinkMode
async def main(url):
    client = await login(url, username="admin", password="admin")
    async def t(name, f):
        try:
            r = f()
            if asyncio.iscoroutine(r):
                r = await r
            print("ok", name)
            return r
        except Exception as e:
            print("FAIL", name, type(e).__name__, str(e)[:200].replace("\n", " "))
    c=client
    ms = await t("machines.list", lambda: c.machines.list())
    m = [x for x in ms if x.hostname=="lab1"][0]
    m = await t("machines.get", lambda: c.machines.get(m.system_id))
    await t("allocate hostname", lambda: c.machines.allocate(hostname="lab2"))
    await t("machines.create", lambda: c.machines.create("amd64",["02:00:00:00:00:11"],"manual",{},hostname="made"))
    await t("get_power_parameters", lambda: m.get_power_parameters())
    await t("query_power_state", lambda: m.query_power_state())
    await t("power_on?", lambda: m.power_off())
    await t("get_details", lambda: m.get_details())
    await t("commission", lambda: m.commission(wait=True, wait_interval=0.05))
    await t("rescue", lambda: m.enter_rescue_mode(wait=True, wait_interval=0.05))
    await t("exit rescue", lambda: m.exit_rescue_mode(wait=True, wait_interval=0.05))
    await t("interfaces", lambda: m.interfaces)
    await t("restore_networking", lambda: m.restore_networking_configuration())
    await t("restore_storage", lambda: m.restore_storage_configuration())
    await t("restore_default", lambda: m.restore_default_configuration())
    await t("clear gw", lambda: m.clear_default_gateways())
    async def save():
        m.hostname="lab1x"
        await m.save()
        return m.hostname
    await t("save", save)
    tag = await t("tags.create", lambda: c.tags.create("new-tag", comment="x"))
    await t("tags.list", lambda: c.tags.list())
    await t("tags.get", lambda: c.tags.get("new-tag"))
    async def addtag():
        await m.tags.add(tag)
        await m.refresh()
        r = [x.name for x in m.tags]
        await m.tags.remove(tag)
        return r
    await t("m.tags.add", addtag)
    boot=m.boot_disk
    await t("boot_disk", lambda: boot)
    await t("block_devices", lambda: list(m.block_devices))
    bd = list(m.block_devices)
    async def parts():
        d = [x for x in bd if x.id!=boot.id][0]
        p = await d.partitions.create(20*1024**3)
        await p.format("ext4")
        await p.mount("/data")
        await p.umount()
        await p.unformat()
        await p.delete()
        return p
    await t("partitions", parts)
    async def dtag():
        d = [x for x in bd if x.id!=boot.id][0]
        await d.set_as_boot_disk()
        return d
    await t("device fs", dtag)
    await t("volume_groups", lambda: list(m.volume_groups))
    await t("raids", lambda: list(m.raids))
    await t("bcaches", lambda: list(m.bcaches))
    async def nic():
        e=m.interfaces[0] if not hasattr(m.interfaces,'by_name') else list(m.interfaces.by_name.values())[0]
        fab = await c.fabrics.get(0)
        sub = (await c.subnets.list())[0]
        await e.links.create(LinkMode.STATIC, subnet=sub)
        await e.disconnect()
        return e
    await t("nic link", nic)
    async def nic2():
        fab = await c.fabrics.get(0)
        v = list(fab.vlans)[0]
        return await m.interfaces.create(name="eth9", mac_address="02:00:00:00:00:12", vlan=v)
    await t("nic create", nic2)
    async def nic3():
        await m.refresh()
        es = list(m.interfaces.by_name.values())
        e = [x for x in es if x.name=="eth9"][0]
        b = await m.interfaces.create(InterfaceType.BRIDGE, name="br0", parent=e)
        e.tags = ["a"]
        await e.save()
        await b.delete()
        await e.refresh()
        await e.delete()
    await t("bridge", nic3)
    f = await t("fabrics.create", lambda: c.fabrics.create(name="newf"))
    await t("fabrics.list", lambda: c.fabrics.list())
    await t("default", lambda: c.fabrics.get_default())
    v = await t("vlans.create", lambda: f.vlans.create(20, name="v20"))
    async def vsave():
        v.name="v21"
        await v.save()
        return v.name
    await t("vlan.save", vsave)
    await t("vlans.get_default", lambda: f.vlans.get_default())
    s = await t("subnets.create", lambda: c.subnets.create("192.168.77.0/24", v, name="s77"))
    async def ssave():
        s.gateway_ip="192.168.77.1"
        await s.save()
        return s.gateway_ip
    await t("subnet.save", ssave)
    await t("subnets.get", lambda: c.subnets.get(s.id))
    r = await t("ip_ranges.create", lambda: c.ip_ranges.create("192.168.77.10","192.168.77.20", type=IPRangeType.DYNAMIC))
    await t("ip_ranges.list", lambda: c.ip_ranges.list())
    await t("ip_ranges.get", lambda: c.ip_ranges.get(r.id))
    await t("range.delete", lambda: r.delete())
    s2 = await c.subnets.get(2)
    sr = await t("static_routes.create", lambda: c.static_routes.create(destination=s2, source=s, gateway_ip="192.168.77.1", metric=10))
    await t("static_routes.list", lambda: c.static_routes.list())
    await t("sr get", lambda: c.static_routes.get(sr.id))
    await t("sr delete", lambda: sr.delete())
    await t("subnet.delete", lambda: s.delete())
    await t("vlan.delete", lambda: v.delete())
    await t("fabric.delete", lambda: f.delete())
    sp = await t("spaces.create", lambda: c.spaces.create(name="sp1"))
    await t("spaces.list", lambda: c.spaces.list())
    await t("spaces.get", lambda: c.spaces.get(sp.id))
    await t("space.delete", lambda: sp.delete())
    z = await t("zones.create", lambda: c.zones.create(name="z1", description="d"))
    await t("zones.list", lambda: c.zones.list())
    await t("zones.get", lambda: c.zones.get(name="z1"))
    async def zs():
        z.description="e"
        await z.save()
    await t("zone.save", zs)
    await t("zone.delete", lambda: z.delete())
    p = await t("pools.create", lambda: c.resource_pools.create(name="p1", description="d"))
    await t("pools.list", lambda: c.resource_pools.list())
    await t("pools.get", lambda: c.resource_pools.get(p.id))
    await t("pool.delete", lambda: p.delete())
    await t("domains.list", lambda: c.domains.list())
    d = await t("domains.create", lambda: c.domains.create("example.org"))
    await t("domain.delete", lambda: d.delete())
    u = await t("users.create", lambda: c.users.create("bo", "pw", email="bo@x.y", is_admin=False))
    await t("users.list", lambda: c.users.list())
    await t("whoami", lambda: c.users.whoami());
    await t("account.create_credentials", lambda: c.account.create_credentials())
    async def cred():
        x = await c.account.create_credentials()
        await c.account.delete_credentials(x)
    await t("account.delete_credentials", cred)
    await t("files.list", lambda: c.files.list())
    await t("version", lambda: c.version.get())
    await t("events", lambda: c.events.query(limit=3))
    async def evs():
        
        e = await c.events.query(limit=2)
        return await e.prev()
    await t("events.prev", evs)
    dv = await t("devices.create", lambda: c.devices.create(["02:00:00:00:00:99"], hostname="dev1"))
    await t("devices.list", lambda: c.devices.list())
    await t("devices.get", lambda: c.devices.get(dv.system_id))
    await t("device.interfaces", lambda: dv.interfaces)
    await t("device.delete", lambda: dv.delete())
    await t("rack", lambda: c.rack_controllers.list())
    await t("region", lambda: c.region_controllers.list())
    await t("boot_resources", lambda: c.boot_resources.list())
    await t("boot_resource.get", lambda: c.boot_resources.get(1))
    await t("import", lambda: c.boot_resources.start_import())
    await t("stop", lambda: c.boot_resources.stop_import())
    bs = await t("boot_sources", lambda: c.boot_sources.list())
    await t("bs get", lambda: c.boot_sources.get(1)); 
    b2 = await t("boot_sources.create", lambda: c.boot_sources.create("http://x.example/", keyring_filename="/k"))
    await t("bs delete", lambda: b2.delete())
    await t("ssh list", lambda: c.ssh_keys.list())
    await t("pods", lambda: c.pods.list())
    for g in ["get_name","get_default_os","get_default_distro_series","get_commissioning_distro_series","get_upstream_dns","get_http_proxy","get_enable_http_proxy","get_kernel_options","get_curtin_verbose","get_third_party_drivers","get_enable_disk_erasing_on_release","get_windows_kms_host","get_boot_images_auto_import","get_check_compatibility","get_default_storage_layout","get_default_min_hwe_kernel","get_dnssec_validation","get_default_dns_ttl","get_network_discovery","get_active_discovery_interval","get_enable_third_party_drivers"]:
        if hasattr(c.maas,g): await t("maas."+g, getattr(c.maas,g))
    await t("maas.set_name", lambda: c.maas.set_name("hello"))
    x = (await c.machines.list())
    y = [q for q in x if q.hostname=="lab3"][0]
    await t("deploy", lambda: y.deploy(wait=True, wait_interval=0.05))
    await t("lock", lambda: y.lock())
    await t("unlock", lambda: y.unlock())
    await t("release erase", lambda: y.release(erase=True, quick_erase=True, wait=True, wait_interval=0.05))
    z = [q for q in x if q.hostname=="lab2"][0]
    await t("mark_broken", lambda: z.mark_broken(comment="x"))
    await t("mark_fixed", lambda: z.mark_fixed())
    await t("test", lambda: z.test(wait=True, wait_interval=0.05) if hasattr(z,'test') else None)
    await t("delete", lambda: z.delete())
asyncio.run(main(sys.argv[1]))
