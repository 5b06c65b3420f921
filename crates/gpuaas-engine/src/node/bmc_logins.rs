//! How MAAS logs in at the BMCs of nodes in service, and whether that is as it was.
//!
//! A run may change it: commissioning makes a user of MAAS' own on the BMC. So what stands in MAAS
//! after the node's last run is what is expected, until an operator gives the node another user or
//! password. It is remembered in the database, since a control plane that takes over has to know it,
//! and as a salted digest, since nobody has to read it.

use std::collections::{BTreeMap, HashMap};

use gpuaas_core::drift::{BmcLogin, action_of_policy};
use gpuaas_store::{BmcAccess, BmcAccessNote, StoreError, SweepSubject};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::{DriftAction, DriftKind, NodeId, Timestamp};
use maas_client::PowerParameters;

use crate::shared::Shared;
use crate::site::Site;

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct BmcLogins {
    /// What is remembered of a node, and the revision of its record when that was read.
    known: HashMap<NodeId, (i64, BmcAccess)>,
}

fn access(
    shared: &Shared,
    parameters: &PowerParameters,
    read_at: Timestamp,
    now: Timestamp,
) -> BmcAccess {
    let salt = shared.ids.uuid(now).to_string();
    let fingerprint = parameters.password.as_ref().map(|password| password.fingerprint(&salt));
    BmcAccess { read_at, user: parameters.power_user.clone(), salt, fingerprint }
}

fn compare(known: &BmcAccess, parameters: &PowerParameters) -> BmcLogin {
    let password = parameters.password.as_ref();
    let fingerprint = password.map(|password| password.fingerprint(&known.salt));
    let same_password = fingerprint == known.fingerprint;
    BmcLogin::new(known.user.as_deref(), parameters.power_user.as_deref(), same_password)
}

fn adopted(login: &BmcLogin, now: Timestamp) -> TimelineEvent {
    TimelineEvent {
        at: now,
        run_id: None,
        step: None,
        source: Source::ControlPlane,
        code: TimelineCode::DriftAdopted.into(),
        text: format!("GPUaaS adopted the BMC login from MAAS: {}", login.found),
    }
}

impl BmcLogins {
    /// Compares the logins of all machines that MAAS lists with what is remembered, by `system_id`,
    /// and remembers what is seen for the first time or taken over. A machine without a BMC is left
    /// out.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn compare(
        &mut self,
        shared: &Shared,
        site: &Site,
        subjects: &[SweepSubject],
        parameters: &BTreeMap<String, PowerParameters>,
    ) -> Result<HashMap<String, BmcLogin>, StoreError> {
        self.read(shared, subjects).await?;
        let now = shared.clock.now();
        let policy = action_of_policy(&site.record.spec, DriftKind::BmcAccessChanged);
        let (mut logins, mut notes) = (HashMap::new(), Vec::new());
        for SweepSubject { node, observation, .. } in subjects {
            let Some(system_id) = node.system_id.as_ref() else { continue };
            let Some(seen) = parameters.get(system_id) else { continue };
            let Some(read_at) = observation.as_ref().map(|seen| seen.read_at) else { continue };
            if seen.power_address.is_none() {
                continue;
            }
            let known = self.known.get(&node.id).map(|(_, known)| known);
            let known = known.filter(|known| known.read_at == read_at);
            let mut login = match known {
                Some(known) => compare(known, seen),
                None => BmcLogin::new(seen.power_user.as_deref(), seen.power_user.as_deref(), true),
            };
            let takes_over = login.differs() && policy == DriftAction::Adopt;
            if known.is_none() || takes_over {
                let line = takes_over.then(|| adopted(&login, now));
                let access = access(shared, seen, read_at, now);
                self.known.insert(node.id, (node.revision, access.clone()));
                notes.push(BmcAccessNote { node_id: node.id, access, line });
                login.expected.clone_from(&login.found);
            }
            logins.insert(system_id.clone(), login);
        }
        if !notes.is_empty() {
            shared.store.remember_bmc_accesses(notes).await?;
        }
        Ok(logins)
    }

    /// Reads what is remembered of nodes that are new here, or whose record changed since.
    async fn read(&mut self, shared: &Shared, subjects: &[SweepSubject]) -> Result<(), StoreError> {
        let nodes: HashMap<NodeId, i64> =
            subjects.iter().map(|subject| (subject.node.id, subject.node.revision)).collect();
        self.known.retain(|id, (revision, _)| nodes.get(id) == Some(revision));
        let missing = nodes.keys().copied().filter(|id| !self.known.contains_key(id));
        let missing: Vec<NodeId> = missing.collect();
        if missing.is_empty() {
            return Ok(());
        }
        for (id, access) in shared.store.bmc_accesses(missing).await? {
            if let Some(revision) = nodes.get(&id) {
                self.known.insert(id, (*revision, access));
            }
        }
        Ok(())
    }
}
