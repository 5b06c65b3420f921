//! An authority outside: a program of the operator's, asked for each certificate.
//!
//! Whatever signs in a house (step-ca, Vault's PKI, an HSM behind openssl, a registration
//! authority's HTTP API) has a command line or is three lines of shell away from one, and the key
//! never comes near the control plane. It gets the request as one JSON object on its standard
//! input and writes the chain as PEM, the leaf first. Exit code 2 means that the signing request
//! is at fault; any other but 0, that there is no certificate now. Its last line on standard error
//! is the reason.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::authority::{Authority, AuthorityError, CertificateRequest, Subject};
use crate::pem;

/// Longest that the program may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of its answer that are read.
const MOST_BYTES: u64 = 256 * 1024;
/// Its exit code for a signing request that nobody would sign.
const EXIT_CSR: i32 = 2;

/// See the module text.
#[derive(Debug)]
pub struct CommandAuthority {
    program: PathBuf,
    anchors: Vec<CertificateDer<'static>>,
    anchors_pem: String,
    patience: Duration,
}

impl CommandAuthority {
    /// Asks `program`; what it signs has to be under one of the certificates in `anchors_pem`.
    ///
    /// # Errors
    /// [`AuthorityError::Broken`] when there is no certificate in `anchors_pem`.
    pub fn new(program: &Path, anchors_pem: String) -> Result<Self, AuthorityError> {
        let anchors = pem::certificates(&anchors_pem)?;
        Ok(Self { program: program.to_owned(), anchors, anchors_pem, patience: PATIENCE })
    }

    /// The same with another patience.
    #[must_use]
    pub const fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    async fn ask(&self, request: &str) -> Result<(Option<i32>, String, String), String> {
        let mut child = Command::new(&self.program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| error.to_string())?;
        tokio::time::timeout(self.patience, talk(&mut child, request))
            .await
            .map_err(|_| format!("it did not finish within {} s", self.patience.as_secs_f64()))?
            .map_err(|error| error.to_string())
    }
}

async fn talk(child: &mut Child, request: &str) -> std::io::Result<(Option<i32>, String, String)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let say = async {
        if let Some(mut stdin) = stdin {
            // A program may know its answer without having read everything.
            drop(stdin.write_all(request.as_bytes()).await);
        }
    };
    let (mut out, mut words) = (Vec::new(), Vec::new());
    let hear = async {
        if let Some(stdout) = stdout {
            stdout.take(MOST_BYTES).read_to_end(&mut out).await?;
        }
        std::io::Result::Ok(())
    };
    let listen = async {
        if let Some(stderr) = stderr {
            stderr.take(MOST_BYTES).read_to_end(&mut words).await?;
        }
        std::io::Result::Ok(())
    };
    let ((), heard, listened) = tokio::join!(say, hear, listen);
    heard.and(listened)?;
    let status = child.wait().await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((status.code(), text(&out), text(&words)))
}

#[async_trait]
impl Authority for CommandAuthority {
    fn anchors(&self) -> &[CertificateDer<'static>] {
        &self.anchors
    }

    fn anchors_pem(&self) -> &str {
        &self.anchors_pem
    }

    async fn issue(&self, request: &CertificateRequest) -> Result<String, AuthorityError> {
        let (kind, usage) = match request.subject {
            Subject::Node(_) => ("node", "client_auth"),
            Subject::Server(_) => ("server", "server_auth"),
        };
        let asked = json!({
            "kind": kind,
            "common_name": request.subject.common_name(),
            "names": request.subject.names(),
            "usage": usage,
            "csr_pem": request.csr_pem,
            "serial": hex::encode(request.serial),
            "not_before": request.not_before,
            "not_after": request.not_after,
        });
        let unavailable =
            |why: &str| AuthorityError::Unavailable(format!("{}: {why}", self.program.display()));
        let answer = self.ask(&format!("{asked}\n")).await.map_err(|why| unavailable(&why))?;
        let (code, out, words) = answer;
        let last: String = words.lines().last().unwrap_or_default().chars().take(300).collect();
        match code {
            Some(0) => Ok(out),
            Some(EXIT_CSR) => Err(AuthorityError::Csr(last)),
            Some(code) => Err(unavailable(&format!("it exited with code {code}: {last}"))),
            None => Err(unavailable("it was killed")),
        }
    }
}
