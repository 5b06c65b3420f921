//! The TPM of a machine: what signs that an enrollment comes from this hardware.
//!
//! The key is made anew each time, from the endorsement seed with one template, and is the same each time:
//! nothing is kept on a disk that an installation erases. `gpuaas_bundle::tpm_quote` checks what it signs.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gpuaas_bundle::Digest;
use gpuaas_types::agent::TpmQuote;
use host_facts::HostRoot;

use crate::command::{CommandError, CommandRunner};

/// The kernel's resource manager of a TPM 2.0.
const DEVICE: &str = "/dev/tpmrm0";
/// Longest time of one command, in seconds: a hardware TPM takes some of them for a key.
const COMMAND_SECONDS: u64 = 60;
/// Template of the key. A restricted key signs nothing of others that looks like a quote.
const KEY_ATTRIBUTES: &str =
    "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign";
/// The registers of firmware and of Secure Boot.
const REGISTERS: &str = "sha256:0,7";

/// Why there is no quote.
#[derive(Debug, thiserror::Error)]
pub enum QuoteError {
    /// A program of tpm2-tools is missing, failed or gave no answer in time.
    #[error("{0}")]
    Command(String),
    /// What it wrote cannot be kept or read.
    #[error("its files: {0}")]
    File(#[from] std::io::Error),
}

impl From<CommandError> for QuoteError {
    fn from(error: CommandError) -> Self {
        Self::Command(error.to_string())
    }
}

/// What signs a nonce with a key that is of one machine alone.
#[async_trait]
pub trait QuoteSource: Debug + Send + Sync {
    /// A quote with this nonce.
    ///
    /// # Errors
    /// [`QuoteError`].
    async fn quote(&self, nonce: &Digest) -> Result<TpmQuote, QuoteError>;
}

/// A TPM 2.0, by the programs of tpm2-tools.
#[derive(Debug, Clone, Default)]
pub struct TpmTools {
    /// How the programs reach the TPM, as their option `--tcti` has it; `None`: the kernel's device.
    pub tcti: Option<String>,
}

/// The TPM of the host whose `/` is `root`; `None` where that is a folder, or has no TPM.
#[must_use]
pub fn of_host(root: &HostRoot) -> Option<Arc<dyn QuoteSource>> {
    let has_tpm = root.path() == Path::new("/") && Path::new(DEVICE).exists();
    has_tpm.then(|| Arc::new(TpmTools::default()) as Arc<dyn QuoteSource>)
}

impl TpmTools {
    /// Runs a program, and drops what it left in the TPM: where no resource manager stands before it, three
    /// objects fill it.
    async fn run(&self, program: &str, arguments: &[&str]) -> Result<(), QuoteError> {
        let tcti = self.tcti.as_ref().map(|tcti| format!("--tcti={tcti}"));
        let through = |arguments: &[&str]| -> Vec<String> {
            arguments.iter().map(|word| (*word).to_owned()).chain(tcti.clone()).collect()
        };
        let exec = async |program: &str, arguments: &[&str]| {
            let words = through(arguments);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            CommandRunner::Native.query(program, &words, COMMAND_SECONDS).await
        };
        exec(program, arguments).await?;
        exec("tpm2_flushcontext", &["--transient-object"]).await?;
        Ok(())
    }
}

#[async_trait]
impl QuoteSource for TpmTools {
    async fn quote(&self, nonce: &Digest) -> Result<TpmQuote, QuoteError> {
        let folder = tempfile::tempdir()?;
        let file = |name: &str| folder.path().join(name).display().to_string();
        let (context, key) = (file("key.ctx"), file("key.pem"));
        let (message, signature, nonce) = (file("message"), file("signature"), nonce.to_string());
        let create = ["--quiet", "--hierarchy=e", "--key-algorithm=ecc256:ecdsa-sha256:null"];
        let attributes = format!("--attributes={KEY_ATTRIBUTES}");
        self.run("tpm2_createprimary", &[&create[..], &[&attributes, "-c", &context]].concat())
            .await?;
        let read = ["--quiet", "-c", &context, "--format=pem", "-o", &key];
        self.run("tpm2_readpublic", &read).await?;
        let quote = ["--quiet", "-c", &context, "-l", REGISTERS, "-q", &nonce, "-g", "sha256"];
        let into = ["-m", &message, "-s", &signature, "--format=plain"];
        self.run("tpm2_quote", &[&quote[..], &into].concat()).await?;
        let encoded = |path: &str| std::fs::read(path).map(|bytes| BASE64.encode(bytes));
        Ok(TpmQuote {
            key_pem: std::fs::read_to_string(&key)?,
            message: encoded(&message)?,
            signature: encoded(&signature)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use gpuaas_bundle::tpm_quote::{TpmQuoteFault, verify};

    use super::*;

    /// A TPM of software, with an endorsement seed of its own.
    struct Swtpm(Child, PathBuf);

    impl Swtpm {
        fn start(folder: &Path) -> Option<Self> {
            std::fs::create_dir_all(folder).unwrap();
            let socket = folder.join("s");
            let at = |name: &str| format!("type=unixio,path={}{name}", socket.display());
            let state = format!("dir={}", folder.display());
            let mut swtpm = Command::new("swtpm");
            swtpm.args(["socket", "--tpm2", "--tpmstate", &state, "--server", &at("")]);
            swtpm.args(["--ctrl", &at(".ctrl"), "--flags", "not-need-init,startup-clear"]);
            let child = swtpm.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
            Some(Self(child, socket))
        }

        /// Once it listens.
        async fn tools(&self) -> TpmTools {
            let control = self.1.with_extension("ctrl");
            let mut looks = tokio::time::interval(Duration::from_millis(20));
            while !control.exists() || !self.1.exists() {
                looks.tick().await;
            }
            TpmTools { tcti: Some(format!("swtpm:path={}", self.1.display())) }
        }
    }

    impl Drop for Swtpm {
        fn drop(&mut self) {
            self.0.kill().ok();
            self.0.wait().ok();
        }
    }

    #[tokio::test]
    async fn a_tpm_of_software_is_known_again_and_another_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let has_tools = Command::new("tpm2_quote").arg("--version").output().is_ok();
        let (Some(one), true) = (Swtpm::start(&dir.path().join("one")), has_tools) else {
            return test_report::skip("swtpm", "there is no swtpm or no tpm2-tools");
        };
        let (first, second) = (Digest::sha256(b"first"), Digest::sha256(b"second"));
        let tools = one.tools().await;
        let quote = tools.quote(&first).await.unwrap();
        let key = verify(&quote, &first).unwrap();
        assert_eq!(verify(&quote, &second), Err(TpmQuoteFault::OtherNonce));
        let again = tools.quote(&second).await.unwrap();
        assert_eq!(verify(&again, &second), Ok(key), "the machine is known again");
        let other = Swtpm::start(&dir.path().join("other")).unwrap();
        let stranger = other.tools().await.quote(&first).await.unwrap();
        assert_ne!(verify(&stranger, &first).unwrap(), key);
        let forged = TpmQuote { key_pem: quote.key_pem, ..stranger };
        assert_eq!(verify(&forged, &first), Err(TpmQuoteFault::Forged));
    }

    #[tokio::test]
    async fn a_tpm_that_does_not_answer_is_said() {
        let tools = TpmTools { tcti: Some("swtpm:path=/no/tpm".to_owned()) };
        let error = tools.quote(&Digest::sha256(b"x")).await.unwrap_err();
        assert!(error.to_string().contains("tpm2_createprimary"), "{error}");
        assert!(of_host(&HostRoot::new("/srv/host")).is_none(), "a folder has no TPM");
    }
}
