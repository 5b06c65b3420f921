//! Commands of a case: bash with the product's executables on the path, and nothing of the caller's home.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// The executable of the control plane, on the path of a case.
pub(crate) const PROGRAM: &str = "gpuaas";

/// Functions that every command has.
pub(crate) const PRELUDE: &str = r#"
put() { mkdir -p -- "${1%/*}"; printf '%s\n' "$2" >"$1"; }
run_bundle() {
    gpuaas-node-agent bundle run "$BUNDLE" --root "$ROOT" --site lab --hostname gpu-a --run-id run-1 "$@"
}
maas() {
    local method=$1 path=$2 consumer token secret
    shift 2
    IFS=: read -r consumer token secret <"$API_KEY_FILE"
    local said="oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"$consumer\""
    said+=", oauth_token=\"$token\", oauth_signature=\"%26$secret\", oauth_nonce=\"$RANDOM$RANDOM$RANDOM\""
    local fields=()
    for field in "$@"; do fields+=(--form-string "$field"); done
    curl -sS --fail-with-body --max-time 60 -X "$method" "$REGION/api/2.0$path" "${fields[@]}" \
        -H "Authorization: OAuth $said, oauth_timestamp=\"$(date +%s)\""
}
"#;

/// Where commands run.
pub(crate) struct Shell<'a> {
    /// The working folder.
    pub(crate) folder: &'a Path,
    /// Folder of the executables.
    pub(crate) bin: &'a Path,
    /// The case's own folder, as `$CASE`.
    pub(crate) case: &'a Path,
    /// The repository, as `$REPOSITORY`.
    pub(crate) repository: &'a Path,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit code; 124 where it took too long.
    pub(crate) code: i32,
    /// stdout, then stderr.
    pub(crate) output: String,
}

impl Shell<'_> {
    /// A program with the environment of commands.
    pub(crate) fn program(&self, name: &str, variables: &BTreeMap<String, String>) -> Command {
        #[expect(
            clippy::disallowed_methods,
            reason = "bash and the system's tools are on the caller's path"
        )]
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(name);
        command.env_clear().env("PATH", format!("{}:{path}:/usr/sbin:/sbin", self.bin.display()));
        command.env("HOME", self.folder).env("XDG_CONFIG_HOME", self.folder.join("config"));
        command.env("CASE", self.case).env("REPOSITORY", self.repository);
        command.env("LC_ALL", "C.UTF-8").env("USER", "operator").env("COLUMNS", "200");
        command.envs(variables).current_dir(self.folder).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// There is no bash or no timeout.
    pub(crate) fn run(
        &self,
        script: &str,
        seconds: u64,
        variables: &BTreeMap<String, String>,
    ) -> Result<Ended, String> {
        let mut command = self.program("timeout", variables);
        command.args(["--kill-after=5", &seconds.to_string(), "bash", "-c"]);
        let output = command.arg(format!("{PRELUDE}\n{script}")).output();
        let output = output.map_err(|error| format!("cannot start bash: {error}"))?;
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        Ok(Ended { code: output.status.code().unwrap_or(-1), output: format!("{stdout}{stderr}") })
    }

    /// Runs what a case's input is made with.
    ///
    /// # Errors
    /// What it said, where it fails.
    pub(crate) fn must(
        &self,
        what: &str,
        script: &str,
        variables: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        let ended = self.run(script, 120, variables)?;
        match ended.code {
            0 => Ok(()),
            code => Err(format!("cannot {what} (exit {code}): {}", tail(&ended.output))),
        }
    }
}

/// The end of a long output.
pub(crate) fn tail(output: &str) -> &str {
    const MOST: usize = 3000;
    let output = output.trim();
    let mut begin = output.len().saturating_sub(MOST);
    while !output.is_char_boundary(begin) {
        begin += 1;
    }
    &output[begin..]
}
