//! A build on another host, over ssh: the same command there, and its archive back here.
//!
//! The other host has the same version of gpuaas, so the same recipe and overrides are the same plan there.
//! What comes back is hashed: a file with another digest than the build said is no result.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use gpuaas_client::failure::Failure;
use gpuaas_image::overrides::ResolvedOverrides;
use gpuaas_types::codes::CommandCode;
use maas_upload::digest_of;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::build::ImageBuildReport;
use super::planning::PlannedImage;

/// How long the other host may take to say its version.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// How long a build may take.
const BUILD_LIMIT: Duration = Duration::from_secs(3 * 3600);
/// How long an archive may take to come back.
const FETCH_LIMIT: Duration = Duration::from_secs(6 * 3600);
/// Overrides of what happens here, whatever is built there.
const NOT_SENT: [&str; 5] =
    ["DRY_RUN", "UPLOAD", "SKIP_BUILD", "MAAS_PROFILE", "UPLOAD_STAGING_DIR"];

/// The other host.
pub(super) struct BuildHost<'a> {
    /// `USER@HOST`, as ssh(1) takes it.
    pub(super) name: &'a str,
    /// The program that reaches it.
    pub(super) ssh: &'a Path,
}

impl BuildHost<'_> {
    /// Builds there, and fetches the archive to where a build here would put it.
    ///
    /// # Errors
    /// `image_build_host_unfit`; what the build there fails with.
    pub(super) async fn build(
        &self,
        planned: &PlannedImage,
        cache: &Path,
    ) -> Result<ImageBuildReport, Failure> {
        self.check().await?;
        let root = self.as_root().await?;
        let artifact = planned.plan.artifact.as_str();
        let mut words: Vec<&str> = root.iter().map(String::as_str).collect();
        if words.is_empty() {
            words.push("gpuaas");
        }
        words.extend(["image", "build", "--json", "--to", artifact, "--cache"]);
        let cache = cache.display().to_string();
        words.push(&cache);
        let flags = flags(&planned.overrides);
        words.extend(flags.iter().map(String::as_str));
        // A recipe of a file of this host goes there as standard input.
        words.push(planned.recipe_text.as_ref().map_or(planned.recipe.name.as_str(), |_| "-"));
        let input = planned.recipe_text.as_deref().unwrap_or_default();
        let said = self.run(&words, input, BUILD_LIMIT).await?;
        let report: ImageBuildReport = serde_json::from_str(&said)
            .map_err(|error| self.unfit(format!("invalid build report: {error}")))?;
        let sudo = &root[..root.len().saturating_sub(1)];
        self.fetch(artifact, &report, sudo).await?;
        Ok(report)
    }

    /// Whether it has the same version of this program.
    async fn check(&self) -> Result<(), Failure> {
        let is_name = !self.name.starts_with('-') && !self.name.contains(char::is_whitespace);
        if !is_name {
            return Err(self.unfit("not a valid host name".to_owned()));
        }
        let said = self.run(&["gpuaas", "--version"], "", ANSWER_LIMIT).await?;
        let wanted = concat!("gpuaas ", env!("CARGO_PKG_VERSION"));
        match said.lines().next().unwrap_or_default().starts_with(wanted) {
            true => Ok(()),
            false => Err(self.unfit(format!("found {:?}, expected {wanted}", said.trim()))),
        }
    }

    /// What a command begins with that needs root there: nothing for root, else sudo and the program by its
    /// path, which sudo's own path need not have. Asked before anything is fetched.
    async fn as_root(&self) -> Result<Vec<String>, Failure> {
        if self.run(&["id", "-u"], "", ANSWER_LIMIT).await?.trim() == "0" {
            return Ok(Vec::new());
        }
        let path = self.run(&["sh", "-c", "command -v gpuaas"], "", ANSWER_LIMIT).await?;
        let path = path.trim().to_owned();
        if let Err(failure) =
            self.run(&["sudo", "-n", "--", &path, "--version"], "", ANSWER_LIMIT).await
        {
            let said = failure.problem.detail;
            let user = self.name.split_once('@').map_or("the user", |(user, _)| user);
            let detail = format!("{user} is not root on the host, and sudo failed: {said}");
            return Err(self.unfit(detail).hint(
                "add to sudoers on the host: USER ALL=(root) NOPASSWD: PATH-OF-gpuaas, \
                 /usr/bin/cat; or use root@HOST",
            ));
        }
        Ok(["sudo", "-n", "--", &path].map(str::to_owned).to_vec())
    }

    /// Runs a command there; what it printed on stdout.
    async fn run(&self, words: &[&str], input: &str, limit: Duration) -> Result<String, Failure> {
        let mut child = self.start(words)?;
        let mut stdin = child.stdin.take();
        let finished = async {
            if let Some(mut stdin) = stdin.take() {
                // One that ends before it has read all of it says why by itself.
                stdin.write_all(input.as_bytes()).await.ok();
            }
            child.wait_with_output().await
        };
        let output = timeout(limit, finished).await.map_err(|_| self.silent(limit))?;
        let output = output.map_err(|error| self.unreachable(&error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(self.failed(output.status, &String::from_utf8_lossy(&output.stderr)))
    }

    fn start(&self, words: &[&str]) -> Result<Child, Failure> {
        let mut command = Command::new(self.ssh);
        command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "--", self.name]);
        command.arg(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true).spawn().map_err(|error| self.unreachable(&error))
    }

    /// Copies an archive here, and wants the digest and the length that the build said.
    async fn fetch(
        &self,
        artifact: &str,
        report: &ImageBuildReport,
        sudo: &[String],
    ) -> Result<(), Failure> {
        let target = Path::new(artifact);
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let unwritable = |error: std::io::Error| {
            Failure::local(CommandCode::ImageUnwritable, format!("{artifact}: {error}"))
                .hint("free up space, or choose another folder with --upload-staging-dir")
        };
        std::fs::create_dir_all(folder).map_err(unwritable)?;
        let file = tempfile::NamedTempFile::new_in(folder).map_err(unwritable)?;
        let mut writer = tokio::fs::File::from_std(file.reopen().map_err(unwritable)?);
        let mut words: Vec<&str> = sudo.iter().map(String::as_str).collect();
        words.extend(["cat", "--", artifact]);
        let mut child = self.start(&words)?;
        drop(child.stdin.take());
        let mut stdout = child.stdout.take();
        let copied = async {
            if let Some(stdout) = stdout.as_mut() {
                tokio::io::copy(stdout, &mut writer).await.map_err(unwritable)?;
            }
            writer.sync_all().await.map_err(unwritable)
        };
        timeout(FETCH_LIMIT, copied).await.map_err(|_| self.silent(FETCH_LIMIT))??;
        let found = digest_of(file.as_file()).map_err(unwritable)?;
        let copied = (found.sha256, found.size_bytes);
        let outcome = &report.outcome;
        if copied != (outcome.digest.clone(), outcome.size_bytes) {
            let (digest, bytes) = copied;
            return Err(self.unfit(format!(
                "received {bytes} bytes with sha256 {digest}, expected {} with {}",
                outcome.size_bytes, outcome.digest
            )));
        }
        file.persist(target).map_err(|error| unwritable(error.error))?;
        Ok(())
    }

    fn unfit(&self, detail: String) -> Failure {
        Failure::local(CommandCode::ImageBuildHostUnfit, format!("{}: {detail}", self.name)).hint(
            "install this version of gpuaas on the host, or unset PLATFORM_CONTROL_SSH_HOST to \
             build here",
        )
    }

    fn unreachable(&self, error: &std::io::Error) -> Failure {
        self.unfit(format!("{}: {error}", self.ssh.display()))
    }

    fn silent(&self, limit: Duration) -> Failure {
        self.unfit(format!("the command did not finish within {} s", limit.as_secs()))
    }

    /// A command that failed there: its own problem where it printed one, else what ssh said.
    fn failed(&self, status: ExitStatus, said: &str) -> Failure {
        let last: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
        let last = last[last.len().saturating_sub(6)..].join("; ");
        // ssh's own status for what it could not do, and the shell's for a command that is not there.
        if matches!(status.code(), Some(127 | 255) | None) {
            return self.unfit(last);
        }
        let failure =
            Failure::local(CommandCode::ImageBuildFailed, format!("{}: {last}", self.name));
        failure.hint(
            "fix the reported problem on the host, and repeat the command; finished layers are \
             kept",
        )
    }
}

/// The overrides that somebody set, as flags.
fn flags(overrides: &ResolvedOverrides) -> Vec<String> {
    let set = overrides.values().iter().filter(|value| {
        matches!(value.source.as_str(), "flag" | "environment")
            && !NOT_SENT.contains(&value.row.name)
    });
    set.map(|value| format!("--{}={}", value.row.flag, value.value)).collect()
}

/// A word as the other host's shell reads it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::args::{Cli, Command as CliCommand, ImageCommand, parse};

    /// In the place of ssh: what would run there runs here, with a gpuaas of its own.
    const SSH: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
echo "$2" >>"$0.hosts"
cd "${0%/*}"
PATH="${0%/*}/there:$PATH" exec sh -c "$3"
"#;
    /// Says what it was asked, and builds an archive of five bytes.
    const GPUAAS: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo "gpuaas VERSION"; exit; fi
for word in "$@"; do printf '%s\n' "$word"; done >asked
cat >input
while [ "$1" != --to ]; do shift; done
mkdir -p "$(dirname "$2")"
printf image >"$2.there"
digest=$(sha256sum "$2.there" | cut -d ' ' -f 1)
mv "$2.there" "$2"
echo "{\"name\": \"h\", \"digest\": \"$digest\", \"input_digest\": \"i\", \"size_bytes\": 5, \"tree_bytes\": 9,
  \"packages\": 1, \"optional_missing\": [], \"kernel\": \"6.1\", \"reused_layers\": 0, \"built_layers\": 2,
  \"wall_seconds\": 1.5, \"peak_rss_bytes\": 7}"
"#;

    struct Rig {
        folder: tempfile::TempDir,
    }

    impl Rig {
        fn new(gpuaas: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("there")).unwrap();
            for (name, text) in [("ssh", SSH), ("there/gpuaas", gpuaas)] {
                let path = folder.path().join(name);
                fs::write(&path, text.replace("VERSION", env!("CARGO_PKG_VERSION"))).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
            Self { folder }
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.folder.path().join(name)).unwrap()
        }

        async fn build(&self, host: &str, words: &str) -> Result<ImageBuildReport, Failure> {
            let staging = self.folder.path().join("it's here");
            let line = format!("gpuaas image pipeline --upload=0 --build-host b7 {words}");
            let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            words.push(format!("--upload-staging-dir={}", staging.display()));
            let Cli { command: CliCommand::Image(ImageCommand::Pipeline(args)), .. } =
                parse(words).unwrap()
            else {
                panic!("{line}")
            };
            let planned =
                super::super::planning::plan_image(&args.recipe, &args.overrides, Some(host))
                    .unwrap();
            let ssh = self.folder.path().join("ssh");
            BuildHost { name: host, ssh: &ssh }.build(&planned, Path::new("/layers of it")).await
        }
    }

    #[tokio::test]
    async fn the_same_command_runs_there_and_its_archive_comes_back() {
        let rig = Rig::new(GPUAAS);
        let report =
            rig.build("build@b7", "--size=40G --slice-kernel-args=iommu=pt").await.unwrap();
        assert_eq!((report.outcome.size_bytes, report.outcome.kernel.as_str()), (5, "6.1"));
        let asked = rig.read("asked");
        let asked: Vec<&str> = asked.lines().collect();
        let folder = rig.folder.path().display().to_string();
        let artifact = format!("{folder}/it's here/gpuaas-h200-host-ubuntu2404.tar.gz");
        assert_eq!(asked[..6], ["image", "build", "--json", "--to", &artifact, "--cache"]);
        assert_eq!(
            asked[6..],
            ["/layers of it", "--size=40G", "--slice-kernel-args=iommu=pt", "h200-host-ubuntu2404"]
        );
        assert_eq!(fs::read_to_string(&artifact).unwrap(), "image");
        assert_eq!(rig.read("ssh.hosts").lines().collect::<Vec<_>>(), ["build@b7"; 4]);
        // A recipe of a file of this host.
        let recipe = rig.folder.path().join("own.yaml");
        let text = include_str!("../../../../images/host-debian12.yaml");
        fs::write(&recipe, text).unwrap();
        rig.build("b7", &format!("--recipe={}", recipe.display())).await.unwrap();
        assert_eq!(rig.read("input"), text);
        assert!(rig.read("asked").ends_with("\n-\n"));
    }

    #[tokio::test]
    async fn a_user_who_is_not_root_builds_with_sudo() {
        let rig = Rig::new(GPUAAS);
        let program = |name: &str, text: &str| {
            let path = rig.folder.path().join("there").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        program("id", "#!/bin/sh\necho 1000\n");
        program("sudo", "#!/bin/sh\necho sudo: a password is required >&2\nexit 1\n");
        let failure = rig.build("hpcadmin@b7", "").await.unwrap_err();
        assert_eq!(failure.code(), "image_build_host_unfit", "{failure}");
        assert!(failure.problem.detail.contains("hpcadmin is not root on the host"), "{failure}");
        assert!(failure.problem.hint.contains("NOPASSWD"), "{failure}");
        assert!(!rig.folder.path().join("asked").exists(), "nothing is built before that");
        program(
            "sudo",
            "#!/bin/sh\n[ \"$1 $2\" = '-n --' ] || exit 1\nshift 2\necho \"$1\" >>\"${0%/*}/../sudo.log\"\nexec \"$@\"\n",
        );
        let report = rig.build("hpcadmin@b7", "").await.unwrap();
        assert_eq!(report.outcome.size_bytes, 5);
        let gpuaas = rig.folder.path().join("there/gpuaas").display().to_string();
        assert_eq!(
            rig.read("sudo.log").lines().collect::<Vec<_>>(),
            [gpuaas.as_str(), &gpuaas, "cat"]
        );
    }

    #[tokio::test]
    async fn what_does_not_fit_is_no_result() {
        let other = GPUAAS.replace("gpuaas VERSION", "gpuaas 0.0.1");
        let damaged =
            GPUAAS.replace("mv \"$2.there\"", "echo more >>\"$2.there\"; mv \"$2.there\"");
        let silent = GPUAAS.replace("echo \"{", "echo \"[");
        for (gpuaas, wanted) in [
            (other.as_str(), "found \"gpuaas 0.0.1\""),
            (&damaged, ", expected 5 with"),
            (&silent, "invalid build report"),
            ("#!/bin/sh\necho no such user >&2\nexit 255\n", "no such user"),
        ] {
            let rig = Rig::new(gpuaas);
            let failure = rig.build("b7", "").await.unwrap_err();
            assert_eq!(failure.code(), "image_build_host_unfit", "{failure}");
            assert!(failure.problem.detail.contains(wanted), "{failure}");
            assert!(failure.problem.hint.contains("PLATFORM_CONTROL_SSH_HOST"), "{failure}");
        }
        let rig = Rig::new(&GPUAAS.replace("cat >input", "echo no room >&2; exit 1"));
        let failure = rig.build("b7", "").await.unwrap_err();
        assert_eq!(failure.code(), "image_build_failed", "{failure}");
        assert!(failure.problem.detail.contains("no room"), "{failure}");
        for host in ["-oProxyCommand=x", "a b"] {
            let failure = rig.build(host, "").await.unwrap_err();
            assert!(failure.problem.detail.contains("not a valid host name"), "{failure}");
        }
    }
}
