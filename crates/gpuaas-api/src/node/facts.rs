//! What is known of nodes besides their rows: gates, differences, certificates, and what follows
//! from it, the problems. Read at once for all nodes of an answer.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use gpuaas_core::connectivity::{allowed_silence_seconds, connectivity_of};
use gpuaas_core::gates::{LatestGateReport, gate_view};
use gpuaas_core::node_problem::{
    BlockedSlots, CertificateFacts, NodeFacts, RunFacts, STALE_SECONDS, node_problems,
};
use gpuaas_core::record::{CheckOverride, NodeRecord};
use gpuaas_store::{
    BlockedSlotMap, CertificateEnding, ListedNode, ProfileBrief, StoredCertificate, StoredGate,
};
use gpuaas_types::agent::Gate;
use gpuaas_types::api::{Drift, GateView, NodeView, SiteControl, TimelineEvent};
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{DriftKind, NodeId, ProfileId, RunId, SiteId};

use crate::ctx::Ctx;
use crate::http::problem::ApiResult;
use crate::node::view::{mark, node_view};

/// What is known of the nodes of an answer.
pub(crate) struct KnownFacts {
    profiles: HashMap<ProfileId, ProfileBrief>,
    gates: HashMap<NodeId, HashMap<Gate, StoredGate>>,
    drift: HashMap<NodeId, Vec<Drift>>,
    certificates: HashMap<NodeId, StoredCertificate>,
    control: HashMap<SiteId, SiteControl>,
    overrides: HashMap<RunId, Vec<CheckOverride>>,
    /// Approved slots.
    slots: HashMap<NodeId, u32>,
    /// Slot maps that have blockers.
    blocked_slots: HashMap<NodeId, BlockedSlotMap>,
}

impl KnownFacts {
    /// What is known of one node.
    pub(crate) async fn of_node(ctx: &Ctx, listed: &ListedNode) -> ApiResult<Self> {
        Self::of_nodes(ctx, std::slice::from_ref(listed)).await
    }

    /// What is known of these nodes.
    pub(crate) async fn of_nodes(ctx: &Ctx, nodes: &[ListedNode]) -> ApiResult<Self> {
        let ids = || nodes.iter().map(|listed| listed.node.id);
        let profiles: HashSet<ProfileId> = nodes.iter().map(|it| it.node.profile_id).collect();
        let runs = nodes.iter().filter_map(|it| it.node.run_id);
        let sites: HashSet<SiteId> = nodes.iter().map(|it| it.node.site_id).collect();
        Ok(Self {
            profiles: ctx.store.profile_briefs(profiles).await?,
            gates: ctx.store.gates(ids()).await?,
            drift: ctx.store.drift_of_nodes(ids()).await?,
            certificates: ctx.store.latest_certificates(ids()).await?,
            control: ctx.store.held_sites(sites).await?,
            overrides: ctx.store.check_overrides(runs).await?,
            slots: ctx.store.slot_counts(ids()).await?,
            blocked_slots: ctx.store.blocked_slot_maps(ids()).await?,
        })
    }

    /// One of them as answers show it.
    pub(crate) fn view(
        &self,
        ctx: &Ctx,
        listed: &ListedNode,
        timeline: Vec<TimelineEvent>,
    ) -> NodeView {
        let now = ctx.now();
        let ListedNode { node, run, maas_status_at: said_at, .. } = listed;
        let allowed_silence_seconds = self.allowed_silence_seconds(ctx, node);
        let gates = self.gates(ctx, node, allowed_silence_seconds);
        let drift = self.drift.get(&node.id).cloned().unwrap_or_default();
        let view = node_view(listed, timeline, now);
        let open = run.as_ref().filter(|run| run.status.is_open());
        let seen_at = drift.iter().map(|drift| drift.seen_at).max();
        let problems = node_problems(
            &NodeFacts {
                hostname: &node.hostname,
                site: &view.site,
                system_id: node.system_id.as_deref(),
                state: node.state,
                updated_at: node.updated_at,
                run: open.map(|run| RunFacts {
                    status: run.status,
                    step: run.step,
                    step_since: run.step_since,
                    mark: mark(run, now),
                    park: run.park.as_ref(),
                    wait: run.wait.as_ref(),
                }),
                connectivity: connectivity_of(node, now),
                heartbeat_at: node.heartbeat_at,
                allowed_silence_seconds,
                troubles: &node.agent.troubles,
                certificate: self.certificate(ctx, node),
                gates: &gates,
                unusable_slots: self.unusable_slots(ctx, node),
                blocked_slots: self.blocked_slots(ctx, node),
                drift: &drift,
                overrides: node
                    .run_id
                    .and_then(|run| self.overrides.get(&run))
                    .map_or(&[], Vec::as_slice),
                control: self.control.get(&node.site_id),
                maas_said_at: said_at.map(|at| seen_at.map_or(at, |seen| seen.max(at))),
                stale_seconds: stale_seconds(ctx),
            },
            now,
        );
        NodeView { gates, drift, problems, ..view }
    }

    /// Whether the node's profile makes a slice host.
    fn is_for_slices(&self, ctx: &Ctx, node: &NodeRecord) -> bool {
        let pins = self.profiles.get(&node.profile_id).map(|profile| &profile.bundle_pins);
        pins.is_none_or(|pins| ctx.bundles.has_gate(pins, Gate::SliceReady))
    }

    /// Approved slots of a node whose profile makes no slice host.
    fn unusable_slots(&self, ctx: &Ctx, node: &NodeRecord) -> u32 {
        if self.is_for_slices(ctx, node) {
            return 0;
        }
        self.slots.get(&node.id).copied().unwrap_or(0)
    }

    /// What keeps the slots of a slice host from use.
    fn blocked_slots(&self, ctx: &Ctx, node: &NodeRecord) -> Option<BlockedSlots<'_>> {
        let BlockedSlotMap { observed_at, map, approved } = self.blocked_slots.get(&node.id)?;
        let slots = BlockedSlots { observed_at: *observed_at, map, approved };
        self.is_for_slices(ctx, node).then_some(slots)
    }

    /// Seconds of silence of its agent that the node's profile allows, as it is now.
    fn allowed_silence_seconds(&self, ctx: &Ctx, node: &NodeRecord) -> f64 {
        let profile = self.profiles.get(&node.profile_id);
        let seconds = profile.map_or_else(
            || ProfileSpec::default().offline_after_seconds,
            |profile| profile.offline_after_seconds,
        );
        allowed_silence(ctx, seconds)
    }

    fn gates(&self, ctx: &Ctx, node: &NodeRecord, allowed_seconds: f64) -> Vec<GateView> {
        let profile = self.profiles.get(&node.profile_id);
        let pins = profile.map_or(&[][..], |profile| &profile.bundle_pins);
        let heard = node.heartbeat_at.map(|at| ctx.now().seconds_since(at));
        let silent = heard.is_none_or(|seconds| seconds > allowed_seconds);
        let said = self.gates.get(&node.id);
        // What a person did to the tags in MAAS since the agent's last word.
        let mut drift = self.drift.get(&node.id).into_iter().flatten();
        let retagged = drift.find(|drift| drift.kind == DriftKind::Retagged);
        let tags: Option<Vec<String>> =
            retagged.map(|drift| drift.found.split(", ").map(str::to_owned).collect());
        let view = |gate: Gate| {
            let said = said.and_then(|gates| gates.get(&gate));
            let report = said.map(|said| match &tags {
                Some(tags) => Cow::Owned(said.report.retagged(tags)),
                None => Cow::Borrowed(&said.report),
            });
            let said = said.zip(report.as_deref());
            let said = said.map(|(StoredGate { since, at, .. }, report)| LatestGateReport {
                report,
                since: *since,
                at: *at,
            });
            // Whether telemetry answers is asked by whoever shows it, and active is the node's state.
            let wanted = gate == Gate::SliceReady && ctx.bundles.has_gate(pins, gate);
            gate_view(gate, wanted, node.state, silent, said)
        };
        Gate::ALL.iter().copied().filter_map(view).collect()
    }

    fn certificate(&self, ctx: &Ctx, node: &NodeRecord) -> Option<CertificateFacts> {
        let stored = self.certificates.get(&node.id)?;
        let revoked = |(ending, at, _): &(CertificateEnding, _, String)| {
            (*ending == CertificateEnding::Revoked).then_some(*at)
        };
        Some(CertificateFacts {
            not_before: stored.not_before,
            not_after: stored.not_after,
            revoked_at: stored.ended.as_ref().and_then(revoked),
            dated_now: ctx.signing_time(),
        })
    }
}

/// Seconds of silence of an agent that a profile allows with its `offline_after_seconds`, by the clock
/// of the control plane.
pub(crate) fn allowed_silence(ctx: &Ctx, offline_after_seconds: u32) -> f64 {
    allowed_silence_seconds(offline_after_seconds, ctx.clock.factor())
}

/// Seconds after which what MAAS or an agent said is too old to rely on, by the clock of the control
/// plane.
pub(crate) fn stale_seconds(ctx: &Ctx) -> f64 {
    STALE_SECONDS * ctx.clock.factor().max(1.0)
}
