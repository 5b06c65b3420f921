use gpuaas_types::agent::{Operation, TaskResult};

use super::*;
use crate::operate::{Workplace, carry_out as operate, played};

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

struct Stage {
    dir: tempfile::TempDir,
    host: crate::tasks::Host,
}

impl Stage {
    fn new(plan: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = played::host(dir.path(), APT);
        let stage = Self { dir, host };
        let installed = |version: &str| {
            format!("libnvidia-cfg1\tii \t{version}\nnvidia-driver\tii \t{version}\ngone\trc \t1\n")
        };
        stage.file("installed", &installed("550.1-1"));
        stage.file("then", &installed("550.2-1"));
        stage.file("plan", plan);
        stage
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
        let work = Work { host: &self.host, place: &Workplace::default(), dry_run: dry };
        operate(&work, &operation).await
    }
}

#[tokio::test]
async fn packages_within_the_policy_are_updated_and_looked_at() {
    let stage = Stage::new(PLAN);
    let dry = stage.update(&["nvidia-driver"], &["libnvidia-cfg1"], &[], true).await;
    assert!(dry.succeeded && dry.changes.len() == 2, "{dry:?}");
    assert!(played::ran(stage.dir.path()).is_empty());
    let done = stage.update(&["nvidia-driver=550.2-1"], &["libnvidia-cfg1"], &[], false).await;
    assert!(done.succeeded && done.changes.len() == 2, "{done:?}");
    let change = &done.changes[1];
    assert_eq!((change.before.as_str(), change.after.as_str()), ("550.1-1", "550.2-1"));
    let ran = played::ran(stage.dir.path());
    assert_eq!(ran[0], "apt-get -q -o DPkg::Lock::Timeout=7 update");
    assert!(ran[1].ends_with(
        "--no-remove --no-install-recommends --only-upgrade install -- nvidia-driver=550.2-1"
    ));
    stage.file("plan", "");
    let again = stage.update(&["nvidia-driver"], &[], &[], false).await;
    assert!(again.succeeded && again.changes.is_empty(), "{again:?}");
}

#[tokio::test]
async fn what_leaves_the_policy_changes_nothing() {
    let stage = Stage::new(PLAN);
    let both = ["nvidia-driver", "libnvidia-cfg1"];
    let code = async |packages: &[&str], along: &[&str], hold: &[&str]| {
        let result = stage.update(packages, along, hold, false).await;
        assert!(!result.succeeded && result.changes.is_empty());
        result.code
    };
    assert_eq!(code(&["nvidia-driver"], &[], &[]).await, "package_outside_policy");
    assert_eq!(code(&["nvidia-driver"], &[], &["libnvidia-cfg1"]).await, "package_held");
    let pinned = ["nvidia-driver=550.3-1", "libnvidia-cfg1"];
    assert_eq!(code(&pinned, &[], &[]).await, "package_version_mismatch");
    assert_eq!(code(&["gone"], &[], &[]).await, "package_not_installed");
    stage.file("plan", &format!("{PLAN}Remv docker-ce [27.1]\n"));
    assert_eq!(code(&both, &[], &[]).await, "packages_removed");
    stage.file("plan", "Inst new-dependency (1.0 Ubuntu:24.04/noble [amd64])\n");
    assert_eq!(code(&both, &[], &[]).await, "package_outside_policy");
    let ran = played::ran(stage.dir.path());
    assert!(ran.iter().all(|call| call.ends_with("update")), "{ran:?}");
}

#[tokio::test]
async fn what_apt_says_becomes_a_cause() {
    let stage = Stage::new(PLAN);
    stage.file("lazy", "");
    let lazy = stage.update(&["nvidia-driver"], &["libnvidia-cfg1"], &[], false).await;
    assert_eq!((lazy.code.as_str(), lazy.changes.len()), ("packages_not_in_effect", 0));
    for (words, code) in [
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
        stage.file("fails", words);
        let failed = stage.update(&["nvidia-driver"], &[], &[], true).await;
        assert_eq!(failed.code, code, "{}", failed.message);
    }
}

#[test]
fn the_words_of_apt_are_understood() {
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
