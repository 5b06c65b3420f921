# shellcheck shell=bash disable=SC2154 # sourced by test.sh, which sets these
# The table of packages.

# Every package that a bundle may ask for has a row, and no row is of anything else. On a system that
# make-rootfs.sh made, the release's column is what its apt said.
test_package_table() {
    python3 - "$here" >"$work/said" 2>&1 <<'PYTHON' || wrong "$(<"$work/said")"
import pathlib, sys, yaml
here = pathlib.Path(sys.argv[1])
rows = [line.split("\t") for line in (here / "packages.tsv").read_text().splitlines() if not line.startswith("#")]
head, rows = rows[0], rows[1:]
assert head == ["package", "asked by", "bullseye", "bookworm", "trixie", "jammy", "noble", "source of jammy and noble"], head
asked = {}
for manifest in here.glob("*/bundle.yaml"):
    bundle = yaml.safe_load(manifest.read_text())
    packages = bundle.get("packages", {})
    for name in packages.get("required", []) + packages.get("optional", []) + sum(packages.get("when", {}).values(), []):
        asked.setdefault(name, set()).add(bundle["name"])
    for name, of in bundle.get("inputs", {}).items():
        if of["type"] == {"list": "package"}:
            for package in of["default"].split():
                asked.setdefault(package, set()).add(bundle["name"])
asked["doca-ofed"] = {"h200-ib"}
table = {row[0]: row for row in rows}
assert len(table) == len(rows), "a package has two rows"
assert set(table) == set(asked), f"the table and the bundles differ: {sorted(set(table) ^ set(asked))}"
for name, row in table.items():
    assert len(row) == len(head), row
    assert set(row[1].split(", ")) == asked[name], f"{name} is asked for by {asked[name]}, and the table says {row[1]}"
    assert all(word in ("yes", "no", "?") for word in row[2:7]), row
    assert row[7] or row[5:7] == ["?", "?"], f"{name}: where is it from that jammy or noble has it?"
system = pathlib.Path("/etc/gpuaas-rootfs-packages")
if system.exists():
    release = next(line.split("=")[1].strip().strip('"') for line in open("/etc/os-release") if line.startswith("VERSION_CODENAME="))
    if release in head:
        for line in system.read_text().splitlines():
            name, version = line.split("\t")
            said = "no" if version == "(none)" else "yes"
            if name in table:
                assert table[name][head.index(release)] == said, f"{release} has {name}: {said} ({version}), and the table says otherwise"
PYTHON
}
