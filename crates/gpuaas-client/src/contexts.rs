//! Contexts: control planes by name, for who has several.
//!
//! They are kept in `gpuaas/contexts.json` below the user's folder of settings, readable by its owner
//! only. A context names the file of a token and not the token: a secret is kept in one place. What
//! `gpuaas login` got is kept in the context itself. Either is sent to the context's own server and to no
//! other, whatever else the command line names.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuaas_types::codes::CommandCode;
use serde::{Deserialize, Serialize};

use crate::arguments::ConnectionArgs;
use crate::failure::Failure;

/// Where `gpuaas serve` listens for operators when nothing else is said.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// How often, and with which pause between, a file is tried that another command holds: longer than an
/// identity provider is waited for.
const LOCK_TRIES: u32 = 600;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// A control plane, and who asks it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// URL of the control plane.
    pub server: String,
    /// File that holds the admin token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// File of what is trusted for an https control plane, PEM; none: this system's authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// What `gpuaas login` got for it; none: nobody is signed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<SignInRecord>,
}

/// A sign-in at an identity provider.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignInRecord {
    /// The provider.
    pub issuer: String,
    /// The client that signed in.
    pub client_id: String,
    /// File of what is trusted for the provider, PEM; none: this system's authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// What the control plane is shown.
    pub bearer: String,
    /// What another one is got with; none: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<String>,
    /// When the first ends, in seconds since the Unix epoch.
    pub expires_at: i64,
}

impl fmt::Debug for SignInRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &mut f.debug_struct("SignInRecord");
        let shown = shown.field("issuer", &self.issuer).field("client_id", &self.client_id);
        shown.field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The one that commands use where nothing is said.
    #[serde(default)]
    pub current: Option<String>,
    /// All of them, by name.
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

impl Contexts {
    /// The context `name`.
    ///
    /// # Errors
    /// `context_not_found`.
    pub fn find(&self, name: &str) -> Result<&Context, Failure> {
        self.contexts.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let known = if names.is_empty() { "none".into() } else { names.join(", ") };
            let detail = format!("unknown context {name:?}; known contexts: {known}");
            Failure::usage(CommandCode::ContextNotFound, detail).hint(
                "list the contexts with `gpuaas context list`, or add one with `gpuaas context add \
                 NAME --server URL`",
            )
        })
    }
}

/// The file of contexts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextFile(PathBuf);

impl ContextFile {
    /// The file below `config_home`, which is `$XDG_CONFIG_HOME`; without it, below `~/.config`. A
    /// relative folder there counts as none (XDG Base Directory Specification).
    #[must_use]
    pub fn below(config_home: Option<&Path>) -> Self {
        let named = config_home.filter(|folder| folder.is_absolute()).map(Path::to_owned);
        let folder =
            named.unwrap_or_else(|| std::env::home_dir().unwrap_or_default().join(".config"));
        Self(folder.join("gpuaas/contexts.json"))
    }

    /// What it holds; nothing where there is none.
    ///
    /// # Errors
    /// `context_file_unusable`.
    pub fn load(&self) -> Result<Contexts, Failure> {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Contexts::default()),
            Err(error) => return Err(self.unusable(&error)),
        };
        serde_json::from_str(&text).map_err(|error| self.unusable(&error))
    }

    /// Replaces it at once, so that no reader sees half of it.
    ///
    /// # Errors
    /// `context_file_unusable`.
    pub fn save(&self, contexts: &Contexts) -> Result<(), Failure> {
        let write = || -> io::Result<()> {
            let folder = self.0.parent().unwrap_or(Path::new("."));
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let new = self.0.with_extension("json.new");
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&new)?;
            serde_json::to_writer_pretty(&mut file, contexts)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&new, &self.0)
        };
        write().map_err(|error| self.unusable(&error))
    }

    /// Holds the file for this process alone, until what it answers is dropped: others that change it
    /// wait. A file beside it is locked, since the file itself is replaced.
    ///
    /// # Errors
    /// `context_file_unusable`, also where somebody holds it for too long.
    #[expect(clippy::disallowed_methods, reason = "a command waits on the wall")]
    pub async fn lock(&self) -> Result<fs::File, Failure> {
        let open = || -> io::Result<fs::File> {
            let folder = self.0.parent().unwrap_or(Path::new("."));
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            options.open(self.0.with_extension("json.lock"))
        };
        let file = open().map_err(|error| self.unusable(&error))?;
        for _ in 0..LOCK_TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_PAUSE).await,
                Err(TryLockError::Error(error)) => return Err(self.unusable(&error)),
            }
        }
        Err(self.unusable(&"another command has locked it"))
    }

    fn unusable(&self, error: &dyn std::fmt::Display) -> Failure {
        let detail = format!("{}: {error}", self.0.display());
        Failure::local(CommandCode::ContextFileUnusable, detail).hint(
            "give this user read and write access to the file, or remove it and add the \
                 contexts again",
        )
    }
}

/// Whom a command asks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// URL of the control plane.
    pub(crate) server: String,
    /// The context's name, where one says so.
    pub(crate) context: Option<String>,
    /// The context's file of the admin token.
    pub(crate) token_file: Option<PathBuf>,
    /// The context's file of what is trusted.
    pub(crate) ca_file: Option<PathBuf>,
    /// The context's sign-in.
    pub(crate) login: Option<ContextLogin>,
}

/// The sign-in of a context, and where it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextLogin {
    /// Where it is kept.
    pub file: ContextFile,
    /// Name of the context.
    pub context: String,
    /// The sign-in.
    pub login: SignInRecord,
}

impl Target {
    /// A server without a context.
    const fn new(server: String) -> Self {
        Self { server, context: None, token_file: None, ca_file: None, login: None }
    }
}

/// The server that is named, else the context that is named, else the one in use, else this machine.
///
/// # Errors
/// `context_not_found`, `context_file_unusable`.
pub(crate) fn target(args: &ConnectionArgs) -> Result<Target, Failure> {
    if let Some(server) = &args.server {
        return Ok(Target::new(server.clone()));
    }
    let file = ContextFile::below(args.config.config_home.as_deref());
    let contexts = file.load()?;
    let Some(name) = args.context.as_ref().or(contexts.current.as_ref()) else {
        return Ok(Target::new(DEFAULT_SERVER.to_owned()));
    };
    let Context { server, token_file, ca_file, login } = contexts.find(name)?.clone();
    let context = name.clone();
    let login = login.map(|login| ContextLogin { file, context: context.clone(), login });
    Ok(Target { server, context: Some(context), token_file, ca_file, login })
}

/// A context whose control plane wants a token that nobody gave.
pub(crate) fn without_token(name: &str) -> Failure {
    let detail = format!("context {name} has no token file");
    Failure::usage(CommandCode::TokenMissing, detail).hint(format!(
        "set one with `gpuaas context add {name} --server URL --token-file FILE`; or pass \
         --token-file, or set GPUAAS_TOKEN_FILE or GPUAAS_TOKEN; to sign in as a person, run \
         `gpuaas login --context {name}`"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::arguments::ConfigArgs;

    fn context(server: &str, token_file: Option<&str>) -> Context {
        let token_file = token_file.map(PathBuf::from);
        Context { server: server.to_owned(), token_file, ca_file: None, login: None }
    }

    #[test]
    fn a_server_that_is_named_comes_first_and_gets_no_token_of_a_context() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("settings");
        let file = ContextFile::below(Some(&home));
        assert_eq!(file.load().unwrap(), Contexts::default());
        let config = ConfigArgs { config_home: Some(home.clone()) };
        let args = ConnectionArgs { config, ..ConnectionArgs::default() };
        assert_eq!(target(&args).unwrap().server, DEFAULT_SERVER);

        let mut contexts = Contexts::default();
        contexts.contexts.insert("east".to_owned(), context("https://east.example", Some("/e")));
        contexts.contexts.insert("west".to_owned(), context("https://west.example", None));
        contexts.current = Some("east".to_owned());
        file.save(&contexts).unwrap();
        assert_eq!(file.load().unwrap(), contexts);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file.0), mode(&home.join("gpuaas"))), (0o600, 0o700));

        let east = target(&args).unwrap();
        assert_eq!(
            (east.server.as_str(), east.token_file),
            ("https://east.example", Some("/e".into()))
        );
        let west = ConnectionArgs { context: Some("west".to_owned()), ..args.clone() };
        assert_eq!(target(&west).unwrap().server, "https://west.example");
        let named = ConnectionArgs { server: Some("http://other".to_owned()), ..args.clone() };
        let named = target(&named).unwrap();
        assert_eq!((named.server.as_str(), named.token_file), ("http://other", None));
        let missing = ConnectionArgs { context: Some("north".to_owned()), ..args };
        let failure = target(&missing).unwrap_err();
        assert_eq!(failure.code(), "context_not_found");
        assert!(failure.problem.detail.contains("east, west"), "{failure}");
    }

    #[test]
    fn a_damaged_file_is_named_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = ContextFile::below(Some(dir.path()));
        fs::create_dir(dir.path().join("gpuaas")).unwrap();
        fs::write(&file.0, "{\"current\": 7}").unwrap();
        let failure = file.load().unwrap_err();
        assert_eq!(failure.code(), "context_file_unusable");
        assert!(failure.problem.detail.contains("contexts.json"), "{failure}");
        assert!(ContextFile::below(Some(Path::new("relative"))).0.is_absolute());
    }
}
