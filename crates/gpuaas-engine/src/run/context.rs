//! What the decisions about a run need beside the run itself, prepared once when it is claimed.

use std::sync::Arc;

use gpuaas_artifact::CommissioningScript;
use gpuaas_core::policy::normalise_distro_series;
use gpuaas_core::record::{NodeRecord, RunRecord};
use gpuaas_core::snapshot::Snapshot;
use gpuaas_core::step_duration::StepDurationEstimate;
use gpuaas_store::{LeasedRun, ProfileRevision, RunClass, StoreError};
use gpuaas_types::agent::HostCheck;
use gpuaas_types::scripts::MaasScript;
use gpuaas_types::spec::{RoceAssignmentSpec, SiteSpec};
use gpuaas_types::{Step, Timestamp};

use crate::bundles::{self, NodeBundles};
use crate::node::trust::trusted_pem;
use crate::predeploy::reach_script::reach_script;
use crate::shared::Shared;
use crate::site::{CallError, Site};

/// The surroundings of a claimed run. They stay as they are for as long as a worker has the run.
pub(crate) struct RunContext {
    /// The site as written by the operator.
    pub(crate) site: SiteSpec,
    /// The site's region, or why it cannot be called.
    pub(crate) connection: Result<Arc<Site>, CallError>,
    /// The pinned profile with the bundles that it pins.
    pub(crate) profile: Arc<ProfileRevision>,
    /// Addresses assigned to the host's fabric interfaces.
    pub(crate) roce: Vec<RoceAssignmentSpec>,
    /// Whether the site's event feed is read.
    pub(crate) watched: bool,
    /// How long each step takes by what earlier runs took.
    pub(crate) durations: Arc<StepDurationEstimate>,
    /// The bundles that the profile names.
    pub(crate) bundles: NodeBundles,
    commissioning: Option<Vec<MaasScript>>,
    clock_factor: f64,
}

/// The scripts of a commissioning bundle with the control plane's own; none where there are none.
fn with_own(
    shared: &Shared,
    site: &SiteSpec,
    mut scripts: Vec<CommissioningScript>,
) -> Result<Vec<CommissioningScript>, String> {
    if !scripts.is_empty() {
        let anchor = trusted_pem(site, shared.config.node_anchors.pem().as_deref());
        let trusted = anchor.as_ref().or(site.node_ca_pem.as_ref()).map(String::as_str);
        scripts.push(reach_script(&shared.config.advertise_url, trusted)?);
    }
    Ok(scripts)
}

impl RunContext {
    /// Reads everything that decisions about `claimed` need.
    ///
    /// # Errors
    /// The store's. A site or a bundle that cannot be used is no error here: decisions say what
    /// becomes of the run then.
    pub(crate) async fn prepare(shared: &Shared, claimed: &LeasedRun) -> Result<Self, StoreError> {
        let run = &claimed.run;
        let (site_id, profile_id) = (run.site_id, run.profile_id);
        let profile = shared.profile(profile_id, run.profile_revision).await?;
        let roce = if profile.spec.enable_phase2_roce {
            let assigned =
                shared.store.roce_assignments_of_host(site_id, &claimed.node.hostname).await?;
            assigned.into_iter().map(|resource| resource.spec).collect()
        } else {
            Vec::new()
        };
        let revision = claimed.site_revision;
        let connection = shared.sites.get_for_run(site_id, revision, run.state.resumed_at).await;
        let site = match &connection {
            Ok(site) => site.record.spec.clone(),
            Err(_) => shared.store.site(site_id).await?.spec,
        };
        let watched = run.step != Step::Accept
            || shared.store.is_watched(site_id, shared.clock.now()).await?;
        let class = RunClass { site_id, profile_id, kind: run.kind };
        let image = normalise_distro_series(&profile.spec.distro_series);
        let durations =
            shared.durations.estimate(&shared.store, &*shared.clock, class, image).await;
        let hostname = &claimed.node.hostname;
        let mut bundles =
            bundles::for_node(&shared.store, &shared.bundles, &profile, &site, hostname).await;
        bundles.commissioning =
            bundles.commissioning.and_then(|scripts| with_own(shared, &site, scripts));
        let scripts = bundles.commissioning.as_ref().ok();
        let commissioning =
            scripts.map(|scripts| scripts.iter().map(|one| one.script.clone()).collect());
        let clock_factor = shared.clock.factor();
        Ok(Self {
            site,
            connection,
            profile,
            roce,
            watched,
            durations,
            bundles,
            commissioning,
            clock_factor,
        })
    }

    /// A snapshot with everything that is prepared here; what the run's session knows beside it is
    /// left as for a run of which nothing was read or reported.
    pub(crate) fn snapshot<'a>(
        &'a self,
        now: Timestamp,
        run: &'a RunRecord,
        node: &'a NodeRecord,
    ) -> Snapshot<'a> {
        Snapshot {
            roce: &self.roce,
            host_checks: self.host_checks(),
            commissioning: self.commissioning(),
            kernel_arguments: self.bundles.kernel_arguments.as_deref().map_err(String::as_str),
            for_slices: self.bundles.for_slices,
            maas_user: self.maas_user(),
            watched: self.watched,
            answering_since: self.connection.as_ref().ok().and_then(|site| site.answering_since()),
            away: self.connection.as_ref().is_ok_and(|site| site.is_away()),
            expected: self.durations.expected(run.step),
            clock_factor: self.clock_factor,
            ..Snapshot::new(now, run, node, &self.site, &self.profile.spec)
        }
    }

    /// What the validation bundle asks of the host, and the site bundle of an active one; or why
    /// that is not known.
    pub(crate) fn host_checks(&self) -> Result<&[HostCheck], &str> {
        self.bundles.host_checks.as_deref().map_err(String::as_str)
    }

    /// Scripts of the commissioning bundle; none: it is not to be had.
    pub(crate) fn commissioning(&self) -> Option<&[MaasScript]> {
        self.commissioning.as_deref()
    }

    /// The MAAS user that the site's key belongs to; empty: not known.
    fn maas_user(&self) -> &str {
        self.connection.as_ref().map_or("", |site| &site.record.status.maas_user)
    }
}
