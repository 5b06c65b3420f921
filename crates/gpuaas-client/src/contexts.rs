//! Contexts: control planes by name, for who has several.
//!
//! They are kept in `gpuaas/contexts.json` below the user's folder of settings, readable by its owner
//! only. A context names the file of a token and not the token: a secret is kept in one place. Its
//! token is sent to its own server and to no other, whatever else the command line names.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use gpuaas_types::codes::CommandCode;
use serde::{Deserialize, Serialize};

use crate::arguments::ConnectionArgs;
use crate::failure::Failure;

/// Where `gpuaas serve` listens for operators when nothing else is said.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

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
            let known = if names.is_empty() { "there is none".into() } else { names.join(", ") };
            Failure::usage(CommandCode::ContextNotFound, format!("{name:?} is none of: {known}"))
                .hint("`gpuaas context list` shows them; `gpuaas context add NAME --server URL` makes one")
        })
    }
}

/// The file of contexts.
#[derive(Debug, Clone)]
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

    fn unusable(&self, error: &dyn std::fmt::Display) -> Failure {
        let detail = format!("{}: {error}", self.0.display());
        Failure::local(CommandCode::ContextFileUnusable, detail)
            .hint("let this user read and write it, or remove it and add the contexts again")
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
}

impl Target {
    /// A server without a context.
    const fn new(server: String) -> Self {
        Self { server, context: None, token_file: None, ca_file: None }
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
    let contexts = ContextFile::below(args.config.config_home.as_deref()).load()?;
    let Some(name) = args.context.as_ref().or(contexts.current.as_ref()) else {
        return Ok(Target::new(DEFAULT_SERVER.to_owned()));
    };
    let Context { server, token_file, ca_file } = contexts.find(name)?.clone();
    Ok(Target { server, context: Some(name.clone()), token_file, ca_file })
}

/// A context whose control plane wants a token that nobody gave.
pub(crate) fn without_token(name: &str) -> Failure {
    let detail = format!("and context {name} names no file of one");
    Failure::usage(CommandCode::TokenMissing, detail).hint(format!(
        "`gpuaas context add {name} --server URL --token-file FILE` names one; or give --token-file, \
         or set GPUAAS_TOKEN_FILE or GPUAAS_TOKEN"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::arguments::ConfigArgs;

    fn context(server: &str, token_file: Option<&str>) -> Context {
        let token_file = token_file.map(PathBuf::from);
        Context { server: server.to_owned(), token_file, ca_file: None }
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
