use gpuaas_types::agent::{Operation, TaskResult};

use super::*;
use crate::env::AgentEnv;
use crate::host::Host;
use crate::operate::test_host::{commands_run, emulated, operate};

/// apt and dpkg of a host: what is installed is the file `installed`, what apt would do is `plan`.
const APT: &str = r#"
verb=$1; program=$2; shift 2
case "$program" in
  dpkg-query)
    while [ "$1" != -- ]; do shift; done; shift
    for name; do
      grep "^$name	" "$D/installed" || missing=1
    done
    [ -z "$missing" ] ;;
  apt-get)
    if [ -f "$D/fails" ]; then cat "$D/fails" >&2; exit 100; fi
    [ "$verb" = ask ] && { cat "$D/plan"; exit; }
    case " $* " in *' update '*) exit 0 ;; esac
    [ -f "$D/lazy" ] || cp "$D/then" "$D/installed" ;;
esac
"#;

const PLAN: &str = "NOTE: This is only a simulation!\n\
    Inst libnvidia-cfg1 [550.1-1] (550.2-1 CUDA:repo [amd64])\n\
    Inst nvidia-driver [550.1-1] (550.2-1 CUDA:repo [amd64]) []\n\
    Conf nvidia-driver (550.2-1 CUDA:repo [amd64])\n";

struct Fixture {
    dir: tempfile::TempDir,
    host: Host,
}

impl Fixture {
    fn new(plan: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = emulated(dir.path(), APT);
        let fixture = Self { dir, host };
        let installed = |version: &str| {
            format!("libnvidia-cfg1\tii \t{version}\nnvidia-driver\tii \t{version}\ngone\trc \t1\n")
        };
        fixture.file("installed", &installed("550.1-1"));
        fixture.file("then", &installed("550.2-1"));
        fixture.file("plan", plan);
        fixture
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    async fn update(
        &self,
        packages: &[&str],
        along: &[&str],
        hold: &[&str],
        dry: bool,
    ) -> TaskResult {
        let target = |text: &&str| {
            let (name, version) = text.split_once('=').map_or((*text, None), |(n, v)| (n, Some(v)));
            PackageTarget { name: name.to_owned(), version: version.map(str::to_owned) }
        };
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let operation = Operation::UpdatePackages {
            packages: packages.iter().map(target).collect(),
            along: owned(along),
            hold: owned(hold),
            refresh_lists: true,
            lock_seconds: 7,
        };
        let context =
            OperationContext { host: &self.host, env: &AgentEnv::default(), dry_run: dry };
        operate(&context, &operation).await
    }
}

#[tokio::test]
async fn packages_within_the_policy_are_updated_and_verified() {
    let fixture = Fixture::new(PLAN);
    let dry = fixture.update(&["nvidia-driver"], &["libnvidia-cfg1"], &[], true).await;
    assert!(dry.succeeded && dry.changes.len() == 2, "{dry:?}");
    assert!(commands_run(fixture.dir.path()).is_empty());
    let done = fixture.update(&["nvidia-driver=550.2-1"], &["libnvidia-cfg1"], &[], false).await;
    assert!(done.succeeded && done.changes.len() == 2, "{done:?}");
    let change = &done.changes[1];
    assert_eq!((change.before.as_str(), change.after.as_str()), ("550.1-1", "550.2-1"));
    let ran = commands_run(fixture.dir.path());
    assert_eq!(ran[0], "apt-get -q -o DPkg::Lock::Timeout=7 update");
    assert!(ran[1].ends_with(
        "--no-remove --no-install-recommends --only-upgrade install -- nvidia-driver=550.2-1"
    ));
    fixture.file("plan", "");
    let again = fixture.update(&["nvidia-driver"], &[], &[], false).await;
    assert!(again.succeeded && again.changes.is_empty(), "{again:?}");
}

#[tokio::test]
async fn what_leaves_the_policy_changes_nothing() {
    let fixture = Fixture::new(PLAN);
    let both = ["nvidia-driver", "libnvidia-cfg1"];
    let code = async |packages: &[&str], along: &[&str], hold: &[&str]| {
        let result = fixture.update(packages, along, hold, false).await;
        assert!(!result.succeeded && result.changes.is_empty());
        result.code
    };
    assert_eq!(code(&["nvidia-driver"], &[], &[]).await, "package_outside_policy");
    assert_eq!(code(&["nvidia-driver"], &[], &["libnvidia-cfg1"]).await, "package_held");
    let pinned = ["nvidia-driver=550.3-1", "libnvidia-cfg1"];
    assert_eq!(code(&pinned, &[], &[]).await, "package_version_mismatch");
    assert_eq!(code(&["gone"], &[], &[]).await, "package_not_installed");
    fixture.file("plan", &format!("{PLAN}Remv docker-ce [27.1]\n"));
    assert_eq!(code(&both, &[], &[]).await, "packages_removed");
    fixture.file("plan", "Inst new-dependency (1.0 Ubuntu:24.04/noble [amd64])\n");
    assert_eq!(code(&both, &[], &[]).await, "package_outside_policy");
    let ran = commands_run(fixture.dir.path());
    assert!(ran.iter().all(|call| call.ends_with("update")), "{ran:?}");
}

#[tokio::test]
async fn an_error_of_apt_gets_the_code_of_its_cause() {
    let fixture = Fixture::new(PLAN);
    fixture.file("lazy", "");
    let lazy = fixture.update(&["nvidia-driver"], &["libnvidia-cfg1"], &[], false).await;
    assert_eq!((lazy.code.as_str(), lazy.changes.len()), ("packages_not_in_effect", 0));
    for (text, code) in [
        (
            "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7",
            "dpkg_locked",
        ),
        (
            "E: dpkg was interrupted, you must manually run 'dpkg --configure -a'",
            "dpkg_interrupted",
        ),
        ("E: Unable to locate package nvidia-driver", "package_not_available"),
        ("E: Write error - write (28: No space left on device)", "disk_full"),
        ("E: Packages need to be removed but remove is disabled.", "packages_removed"),
        ("E: something else", "tool_failed"),
    ] {
        fixture.file("fails", text);
        let failed = fixture.update(&["nvidia-driver"], &[], &[], true).await;
        assert_eq!(failed.code, code, "{}", failed.message);
    }
}

#[test]
fn a_simulation_of_apt_is_parsed() {
    let plan = read_plan(
        "Inst libc6 [2.39-0ubuntu8.3] (2.39-0ubuntu8.4 Ubuntu:24.04/noble-updates [amd64]) [libc-bin:amd64 ]\n\
         Inst fresh (1.0 Debian:13 [all])\nInst libx:i386 [1] (2 Debian:13 [i386])\n\
         Remv old [1.0]\nConf libc6 (2.39 x [amd64])\nInst\n",
    );
    let text = |text: &str| text.to_owned();
    assert_eq!(
        plan.installs,
        [
            (text("libc6"), Some(text("2.39-0ubuntu8.3")), text("2.39-0ubuntu8.4")),
            (text("fresh"), None, text("1.0")),
            (text("libx"), Some(text("1")), text("2")),
        ]
    );
    assert_eq!(plan.removes, ["old"]);
}

/// A host whose dpkg and apt are this machine's own, below a folder, with a source of three
/// packages: `demo` 1.0 is installed, 2.0 needs `demo-extra`.
const REAL_HOST: &str = r#"
set -e
D=$1
export PATH=$PATH:/usr/sbin:/sbin
apt=$D/host/var/lib/apt
mkdir -p "$D/host/var/lib/dpkg/info" "$D/host/var/lib/dpkg/updates" "$apt/lists/partial" \
  "$D/host/var/cache/apt/archives/partial" "$D/host/var/log/apt" "$D/repo"
mkdir -p "$D/host/etc/apt/apt.conf.d" "$D/host/etc/apt/preferences.d" "$D/host/etc/apt/trusted.gpg.d"
: > "$D/host/var/lib/dpkg/status"
deb() {
  mkdir -p "$D/build/DEBIAN" "$D/build/usr/share/$1"
  echo "$2" > "$D/build/usr/share/$1/version"
  printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: x <x@example.org>\n' "$1" "$2" \
    > "$D/build/DEBIAN/control"
  printf 'Description: for a test\n' >> "$D/build/DEBIAN/control"
  [ -z "$3" ] || printf 'Depends: %s\n' "$3" >> "$D/build/DEBIAN/control"
  dpkg-deb --root-owner-group -b "$D/build" "$D/repo/$1_$2.deb"
  rm -r "$D/build"
}
deb demo 1.0 ''
dpkg --root="$D/host" --force-not-root --force-script-chrootless -i "$D/repo/demo_1.0.deb"
deb demo 2.0 demo-extra
deb demo-extra 1.0 ''
for file in "$D"/repo/*.deb; do
  dpkg-deb -f "$file"
  printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "${file##*/}" "$(stat -c %s "$file")" \
    "$(sha256sum < "$file" | cut -d' ' -f1)"
done > "$D/repo/Packages"
echo "deb [trusted=yes] file:$D/repo ./" > "$D/host/etc/apt/sources.list"
"#;

/// Hands what it is asked to the machine's own programs, for that host.
const REAL_EMULATOR: &str = r#"
program=$2; shift 2
H=$D/host
case "$program" in
  dpkg-query) exec dpkg-query --root="$H" "$@" ;;
  apt-get) exec apt-get -o Dir="$H" -o Dir::State::status="$H/var/lib/dpkg/status" \
    -o Dpkg::Options::=--root="$H" "$@" ;;
esac
"#;

#[tokio::test]
async fn the_machines_own_apt_is_understood() {
    let is_root = rustix::process::geteuid().is_root();
    let has = |tool: &str| std::path::Path::new("/usr/bin").join(tool).exists();
    if !is_root || !has("apt-get") || !has("dpkg-deb") {
        test_report::skip("root", "it takes root, apt-get and dpkg-deb");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("bash")
        .args(["-c", REAL_HOST, "host"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let host = emulated(dir.path(), REAL_EMULATOR);
    let fixture = Fixture { dir, host };
    let version = || {
        let path = fixture.dir.path().join("host/usr/share/demo/version");
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    };
    // The lists are fetched before apt is asked, so the first dry run knows of nothing.
    let stale = fixture.update(&["demo"], &[], &[], true).await;
    assert!(stale.succeeded && stale.changes.is_empty(), "{stale:?}");
    let alone = fixture.update(&["demo"], &[], &[], false).await;
    assert_eq!(alone.code, "package_outside_policy", "{alone:?}");
    assert_eq!(fixture.update(&["demo"], &[], &["demo-extra"], true).await.code, "package_held");
    let missing = fixture.update(&["demo=3.0"], &[], &[], true).await;
    assert_eq!(missing.code, "package_not_available", "{missing:?}");
    assert_eq!(version(), "1.0");

    let dry = fixture.update(&["demo"], &["demo-extra"], &[], true).await;
    assert_eq!((dry.changes.len(), version().as_str()), (2, "1.0"), "{dry:?}");
    let done = fixture.update(&["demo=2.0"], &["demo-extra"], &[], false).await;
    assert!(done.succeeded, "{done:?}");
    assert_eq!(done.changes.len(), 2);
    assert_eq!(done.changes.iter().find(|change| change.what == "demo").unwrap().before, "1.0");
    assert_eq!(version(), "2.0");
    let again = fixture.update(&["demo=2.0"], &["demo-extra"], &[], false).await;
    assert!(again.succeeded && again.changes.is_empty(), "{again:?}");
    let back = fixture.update(&["demo=1.0"], &[], &[], false).await;
    assert_eq!((back.code.as_str(), version().as_str()), ("package_downgrade", "2.0"), "{back:?}");
}
