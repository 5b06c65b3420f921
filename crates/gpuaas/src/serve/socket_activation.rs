//! Listening sockets that the service manager opened and passes on (sd_listen_fds(3), systemd.socket(5)).
//!
//! They stay open while the control plane is started again: whoever connects meanwhile waits instead of
//! being refused.

use std::net::{SocketAddr, TcpListener};

use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;
use listenfd::ListenFd;

/// `FileDescriptorName=` of the operators' socket.
const OPERATORS: &str = "operators";
/// `FileDescriptorName=` of the nodes' socket.
const NODES: &str = "nodes";

/// The sockets that were passed on. One that was not is opened by the control plane.
#[derive(Debug, Default)]
pub struct ActivatedSockets {
    /// That of operators.
    pub operators: Option<TcpListener>,
    /// That of nodes.
    pub nodes: Option<TcpListener>,
}

impl ActivatedSockets {
    /// Those of the environment, `names` being its `LISTEN_FDNAMES`. None where nothing is passed on, or
    /// where it is meant for another process.
    ///
    /// # Errors
    /// `socket_activation_invalid`: a name is neither `operators` nor `nodes`, two sockets have one name,
    /// or something passed on is no listening TCP socket.
    pub(crate) fn from_environment(names: Option<&str>) -> Result<Self, Failure> {
        let mut passed = ListenFd::from_env();
        let mut sockets = Self::default();
        let mut names = names.unwrap_or_default().split(':');
        for index in 0..passed.len() {
            let name = names.next().unwrap_or_default();
            let slot = match name {
                OPERATORS => &mut sockets.operators,
                NODES => &mut sockets.nodes,
                _ => {
                    return Err(invalid(format!(
                        "unknown socket name {name:?}: expected operators or nodes"
                    )));
                }
            };
            if slot.is_some() {
                return Err(invalid(format!("two sockets are named {name}")));
            }
            let listener = passed.take_tcp_listener(index);
            *slot = listener.map_err(|error| invalid(format!("socket {name}: {error}")))?;
        }
        Ok(sockets)
    }

    /// Where operators connect, if that socket was passed on.
    pub(crate) fn operators_address(&self) -> Result<Option<SocketAddr>, Failure> {
        address(OPERATORS, self.operators.as_ref())
    }

    /// Where nodes connect, if that socket was passed on.
    pub(crate) fn nodes_address(&self) -> Result<Option<SocketAddr>, Failure> {
        address(NODES, self.nodes.as_ref())
    }
}

fn address(name: &str, listener: Option<&TcpListener>) -> Result<Option<SocketAddr>, Failure> {
    let found = listener.map(TcpListener::local_addr).transpose();
    found.map_err(|error| invalid(format!("socket {name}: {error}")))
}

fn invalid(detail: String) -> Failure {
    Failure::usage(CommandCode::SocketActivationInvalid, detail).hint(
        "set one ListenStream=ADDRESS:PORT and FileDescriptorName=operators or nodes in each \
         socket unit, as in gpuaas-operators.socket and gpuaas-nodes.socket",
    )
}
