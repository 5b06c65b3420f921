//! What a client trusts for a control plane.

use std::path::{Path, PathBuf};

use gpuaas_types::codes::CommandCode;
use reqwest::{Certificate, ClientBuilder, Url};

use crate::failure::Failure;

/// What clients of a control plane on this host trust, where `gpuaas serve` was started here.
const DEFAULT_CA_FILE: &str = "gpuaas-data/ca.pem";

/// Whose certificates a client takes.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// Those of this system's authorities.
    #[default]
    System,
    /// Those of the authorities in this PEM, and no others.
    Only(Vec<u8>),
    /// Those of this system's authorities and of the ones in this PEM.
    Also(Vec<u8>),
}

impl Trust {
    /// What `file` says; without one, for a control plane on this host, what its data folder says.
    ///
    /// # Errors
    /// `ca_file_unusable`.
    pub(super) fn of_file(file: Option<&Path>, server: &str) -> Result<Self, Failure> {
        if let Some(file) = file {
            return std::fs::read(file).map(Self::Only).map_err(|error| unusable(file, &error));
        }
        let default = PathBuf::from(DEFAULT_CA_FILE);
        if is_local(server) && default.exists() {
            return std::fs::read(&default)
                .map(Self::Also)
                .map_err(|error| unusable(&default, &error));
        }
        Ok(Self::System)
    }

    /// A client that trusts this.
    ///
    /// # Errors
    /// `ca_file_unusable`.
    pub(super) fn apply(&self, builder: ClientBuilder) -> Result<ClientBuilder, Failure> {
        let parse = |pem: &[u8]| {
            Certificate::from_pem_bundle(pem).ok().filter(|found| !found.is_empty()).ok_or_else(
                || {
                    let detail = "it contains no certificate";
                    Failure::usage(CommandCode::CaFileUnusable, detail).hint(HINT)
                },
            )
        };
        Ok(match self {
            Self::System => builder,
            Self::Only(pem) => builder.tls_certs_only(parse(pem)?),
            Self::Also(pem) => builder.tls_certs_merge(parse(pem)?),
        })
    }
}

const HINT: &str = "copy `ca.pem` from the control plane's data folder, and pass the copy with \
                    --server-ca-file or GPUAAS_SERVER_CA_FILE";

fn unusable(file: &Path, error: &std::io::Error) -> Failure {
    let detail = format!("{}: {error}", file.display());
    Failure::usage(CommandCode::CaFileUnusable, detail).hint(HINT)
}

/// Whether a URL names this host's loopback.
fn is_local(server: &str) -> bool {
    let url = Url::parse(server).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// What to do where a control plane's certificate or scheme is the trouble; none: it is not.
pub(super) fn hint(base: &Url, cause: &str) -> Option<(CommandCode, &'static str)> {
    if cause.contains("invalid peer certificate") {
        return Some((CommandCode::ServerUntrusted, HINT));
    }
    // What a TLS server says to a plain request, as hyper reads it.
    let is_tls = base.scheme() == "http" && cause.contains("invalid HTTP version");
    is_tls.then_some((
        CommandCode::ServerSilent,
        "use https:// in --server, because the server speaks TLS, and pass `ca.pem` of its data \
         folder with --server-ca-file",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_folder_that_lies_here_is_of_a_control_plane_on_this_host() {
        for local in ["https://127.0.0.1:8080", "https://localhost", "https://[::1]:1/"] {
            assert!(is_local(local), "{local}");
        }
        for other in ["https://gpuaas.example", "https://127.0.0.1.example", "x"] {
            assert!(!is_local(other), "{other}");
        }
    }

    #[test]
    fn a_file_without_a_certificate_is_refused() {
        let failure = Trust::of_file(Some(Path::new("/no/ca")), "https://x").unwrap_err();
        assert_eq!(failure.code(), "ca_file_unusable");
        let failure = Trust::Only(b"text".to_vec()).apply(reqwest::Client::builder()).unwrap_err();
        assert_eq!(failure.code(), "ca_file_unusable");
    }
}
