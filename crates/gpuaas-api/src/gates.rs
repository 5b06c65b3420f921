//! How the gates of nodes stand: what their profiles' bundles ask, and what their agents say.

use std::collections::HashMap;

use gpuaas_core::gates::{LatestGateReport, gate_view};
use gpuaas_core::record::NodeRecord;
use gpuaas_store::StoredGate;
use gpuaas_types::agent::Gate;
use gpuaas_types::api::{BundlePin, GateView};
use gpuaas_types::{NodeId, ProfileId};

use crate::ctx::Ctx;
use crate::problem::ApiResult;

/// Heartbeats that an agent may miss before what it said is history.
const MISSED_HEARTBEATS: f64 = 10.0;

/// The gates of nodes that are shown.
pub(crate) struct GateReports {
    wanted: HashMap<ProfileId, Vec<BundlePin>>,
    said: HashMap<NodeId, HashMap<Gate, StoredGate>>,
}

impl GateReports {
    /// Reads what is known of the gates of these nodes.
    pub(crate) async fn read(
        ctx: &Ctx,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> ApiResult<Self> {
        let profiles = ctx.store.profiles().await?.into_iter();
        let wanted = profiles.map(|profile| (profile.id, profile.status.bundle_pins)).collect();
        Ok(Self { wanted, said: ctx.store.gates(nodes).await? })
    }

    /// How the gates of one of them stand.
    pub(crate) fn view(&self, ctx: &Ctx, node: &NodeRecord) -> Vec<GateView> {
        let pins = self.wanted.get(&node.profile_id).map(Vec::as_slice).unwrap_or_default();
        let patience = patience(ctx);
        let heard = node.heartbeat_at.map(|at| ctx.now().seconds_since(at));
        let silent = heard.is_none_or(|seconds| seconds > patience);
        let said = self.said.get(&node.id);
        let view = |gate: Gate| {
            let said = said.and_then(|gates| gates.get(&gate));
            let said = said.map(|StoredGate { report, since, at, .. }| LatestGateReport {
                report,
                since: *since,
                at: *at,
            });
            // Whether telemetry answers is asked by whoever shows it, and active is the node's state.
            let wanted = gate == Gate::SliceReady && ctx.bundles.has_gate(pins, gate);
            gate_view(gate, wanted, node.state, silent, said)
        };
        Gate::ALL.into_iter().filter_map(view).collect()
    }
}

/// Seconds of silence after which what an agent said is history.
pub(crate) fn patience(ctx: &Ctx) -> f64 {
    f64::from(ctx.settings.heartbeat_interval_seconds) * MISSED_HEARTBEATS * ctx.clock.factor()
}
