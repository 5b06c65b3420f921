//! Where exported rows of the audit log go: stdout, a file, datagrams or a stream.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::codes::CommandCode;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::args::{AuditForm, AuditTarget};

/// Longest time until a receiver takes a connection, or a row.
const LIMIT: Duration = Duration::from_secs(10);
/// Largest datagram: receivers take 2,048 bytes and should take 8,192 (RFC 5426, section 3.2).
const DATAGRAM_BYTES: usize = 8_192;

/// A target that is open.
pub(crate) enum AuditSink {
    Stdout,
    File(File),
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl AuditSink {
    /// Opens a target.
    ///
    /// # Errors
    /// `audit_export_failed`.
    pub(crate) async fn open(target: &AuditTarget) -> Result<Self, Failure> {
        let opened = match target {
            AuditTarget::Stdout => Ok(Self::Stdout),
            AuditTarget::File(path) => {
                let mut options = OpenOptions::new();
                options.create(true).append(true).mode(0o600).open(path).map(Self::File)
            }
            AuditTarget::Udp(address) => within_limit(udp(address)).await.map(Self::Udp),
            AuditTarget::Tcp(address) => {
                within_limit(TcpStream::connect(address)).await.map(Self::Tcp)
            }
        };
        opened.map_err(|error| failed(target, &error))
    }

    /// Sends a row.
    ///
    /// # Errors
    /// `audit_export_failed`; the rows before it are there.
    pub(crate) async fn send(
        &mut self,
        target: &AuditTarget,
        form: AuditForm,
        row: &str,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        let sent = match self {
            Self::Stdout => return terminal.data(row),
            Self::File(file) => writeln!(file, "{row}"),
            Self::Udp(socket) => {
                let end = row.floor_char_boundary(DATAGRAM_BYTES);
                within_limit(socket.send(row.get(..end).unwrap_or(row).as_bytes())).await.map(drop)
            }
            Self::Tcp(stream) => {
                let framed = match form {
                    AuditForm::Syslog => format!("{} {row}", row.len()),
                    AuditForm::JsonLines => format!("{row}\n"),
                };
                within_limit(stream.write_all(framed.as_bytes())).await
            }
        };
        sent.map_err(|error| failed(target, &error))
    }

    /// Waits until everything is out of this process's hands.
    ///
    /// # Errors
    /// `audit_export_failed`.
    pub(crate) async fn close(self, target: &AuditTarget) -> Result<(), Failure> {
        let closed = match self {
            Self::Stdout | Self::Udp(_) => Ok(()),
            Self::File(file) => file.sync_data(),
            Self::Tcp(mut stream) => within_limit(stream.shutdown()).await,
        };
        closed.map_err(|error| failed(target, &error))
    }
}

async fn udp(address: &str) -> io::Result<UdpSocket> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in tokio::net::lookup_host(address).await? {
        let own = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(own).await?;
        match socket.connect(address).await {
            Ok(()) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn within_limit<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(LIMIT, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn failed(target: &AuditTarget, error: &io::Error) -> Failure {
    let name = match target {
        AuditTarget::Stdout => "stdout".to_owned(),
        AuditTarget::File(path) => path.display().to_string(),
        AuditTarget::Udp(address) => format!("udp://{address}"),
        AuditTarget::Tcp(address) => format!("tcp://{address}"),
    };
    Failure::local(CommandCode::AuditExportFailed, format!("{name}: {error}")).hint(
        "check that the receiver is running, or set another target with `--to`; the previous \
         message shows where to continue with `--after`",
    )
}
