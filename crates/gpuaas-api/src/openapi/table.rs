//! The operations of the document: one row each, beside the row that says who may do it
//! ([`gpuaas_types::access::OPERATIONS`]).

use gpuaas_types::batch::BatchCreate;
use gpuaas_types::claim::{ClaimRequest, NodeClaimRequest};
use gpuaas_types::slot::DiscoveryRequest;
use gpuaas_types::spec::{OnboardRequest, ProfileSpec, SiteSpec};
use gpuaas_types::task::TaskRequest;
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::signature::{Described, Schemas, Signature};
use crate::{
    access, approvals, audit, authorities, batches, bundles, certificates, control, drift,
    event_sinks, events, experiments, explain, image_rollback, image_verdicts, images, metrics,
    node_change, node_claims, nodes, offboarding, onboard_plan, profiles, removal, roce, runs,
    secrets, sites, slice_claims, slice_launch, slices, stuck, task_keys, tasks, telemetry, tokens,
};

/// A row: an operation as the document shows it.
pub(crate) struct Row {
    /// HTTP method.
    pub(crate) method: &'static str,
    /// Path, with parameters in braces.
    pub(crate) path: &'static str,
    /// Its name: the module of the handler and the handler.
    pub(crate) id: String,
    /// What it does, in a few words.
    pub(crate) summary: &'static str,
    /// Statuses of its answers, but for refusals.
    pub(crate) statuses: &'static [u16],
    /// Media type of its answers.
    pub(crate) media_type: &'static str,
    signature: fn(&mut Schemas) -> Signature,
    body: Option<fn(&mut Schemas) -> Value>,
}

impl Row {
    /// What is sent and answered.
    pub(crate) fn signature(&self, schemas: &mut Schemas) -> Signature {
        let mut signature = (self.signature)(schemas);
        if let Some(body) = self.body {
            signature.body = Some(body(schemas));
        }
        signature
    }

    /// A handler that reads the bytes of its body itself: they are a `T`.
    fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(|schemas| schemas.sent.subschema_for::<T>().to_value());
        self
    }

    /// A patch: any of the fields of a `T`, `null` for the default.
    fn patch<T: JsonSchema>(mut self) -> Self {
        self.body = Some(|schemas| patch_of(&T::json_schema(&mut schemas.sent).to_value()));
        self
    }

    fn answers(mut self, statuses: &'static [u16]) -> Self {
        self.statuses = statuses;
        self
    }

    fn media_type(mut self, media_type: &'static str) -> Self {
        self.media_type = media_type;
        self
    }
}

/// The schema of a patch of `whole`.
fn patch_of(whole: &Value) -> Value {
    let required = whole["required"].as_array().cloned().unwrap_or_default();
    let fields = whole["properties"].as_object().into_iter().flatten();
    let fields: serde_json::Map<String, Value> = fields
        .map(|(name, schema)| {
            let mut schema = schema.clone();
            if let Some(fields) = schema.as_object_mut() {
                fields.remove("default");
            }
            if required.contains(&json!(name)) {
                return (name.clone(), schema);
            }
            (name.clone(), json!({ "anyOf": [schema, { "type": "null" }] }))
        })
        .collect();
    json!({ "type": "object", "properties": fields, "additionalProperties": false })
}

/// The schema of a patch of a site: its key is no field of what is read.
fn patch_of_site(schemas: &mut Schemas) -> Value {
    let mut patch = patch_of(&SiteSpec::json_schema(&mut schemas.sent).to_value());
    patch["properties"]["api_key"] = json!({
        "type": "string",
        "description": "`consumer:token:secret` of a MAAS administrator; sealed at once",
    });
    patch
}

const fn signature_of<A, H: Described<A>>(_: &H) -> fn(&mut Schemas) -> Signature {
    H::signature
}

macro_rules! row {
    ($method:ident $path:literal $module:ident :: $handler:ident $summary:literal) => {
        Row {
            method: stringify!($method),
            path: $path,
            id: concat!(stringify!($module), "_", stringify!($handler)).to_owned(),
            summary: $summary,
            statuses: &[200],
            media_type: "application/json",
            signature: signature_of(&$module::$handler),
            body: None,
        }
    };
}

/// All rows.
pub(crate) fn rows() -> Vec<Row> {
    [of_control_plane(), of_settings(), of_nodes(), of_runs()].into_iter().flatten().collect()
}

fn of_control_plane() -> Vec<Row> {
    vec![
        row!(GET "/metrics" metrics::show "Figures for Prometheus")
            .media_type("application/openmetrics-text"),
        row!(GET "/api/v1/access" access::show "What the credential may do"),
        row!(GET "/api/v1/audit" audit::list "The audit log, newest first"),
        row!(GET "/api/v1/audit/chain" audit::chain "The audit log as a chain of digests"),
        row!(GET "/api/v1/events" events::follow "What happens to nodes, as it happens")
            .media_type("text/event-stream"),
        row!(GET "/api/v1/event-sinks" event_sinks::list "Where events are delivered, and how far"),
        row!(POST "/api/v1/event-sinks/{sink}/remove" event_sinks::remove "Deliver events there no longer"),
        row!(POST "/api/v1/webhooks" event_sinks::add_webhook "Have events posted").answers(&[201]),
        row!(GET "/api/v1/dead-letters" event_sinks::dead_letters "Events that a sink did not take"),
        row!(POST "/api/v1/dead-letters/replay" event_sinks::replay "Deliver them again"),
        row!(GET "/api/v1/approvals" approvals::list "What waits for another person, newest first"),
        row!(GET "/api/v1/approvals/{approval}" approvals::show "What was asked, and what came of it"),
        row!(POST "/api/v1/approvals/{approval}/approve" approvals::approve "Let what another person asked go on"),
        row!(POST "/api/v1/approvals/{approval}/deny" approvals::deny "Say no to what was asked"),
        row!(GET "/api/v1/tokens" tokens::list "The tokens of programs"),
        row!(POST "/api/v1/tokens" tokens::create "Make a token").answers(&[201]),
        row!(POST "/api/v1/tokens/{token}/revoke" tokens::revoke "Take a token back"),
        row!(GET "/api/v1/authority" authorities::show "The certificate authority of nodes"),
        row!(POST "/api/v1/authority" authorities::stage_authority "Make the next certificate authority")
            .answers(&[201]),
        row!(POST "/api/v1/authority/activate" authorities::activate "Sign with the next authority"),
        row!(POST "/api/v1/authority/retire" authorities::retire "Trust an authority no longer"),
        row!(GET "/api/v1/task-keys" task_keys::list "The keys that sign what agents are told"),
        row!(POST "/api/v1/task-keys" task_keys::stage_key "Make the next key").answers(&[201]),
        row!(POST "/api/v1/task-keys/activate" task_keys::activate "Sign with the next key"),
        row!(POST "/api/v1/task-keys/retire" task_keys::retire "Trust a key no longer"),
        row!(GET "/api/v1/bundles" bundles::list "Bundles, all versions"),
        row!(POST "/api/v1/bundles" bundles::publish "Publish a bundle").answers(&[200, 201]),
        row!(GET "/api/v1/bundles/{bundle}" bundles::show "A bundle"),
        row!(GET "/api/v1/bundles/{bundle}/archive" bundles::archive "A bundle's archive"),
        row!(POST "/api/v1/bundles/{bundle}/approve" bundles::approve "Let sites run a bundle"),
        row!(POST "/api/v1/bundles/{bundle}/withdraw" bundles::withdraw "Let no site run a bundle"),
        row!(GET "/api/v1/images" images::list "Host images of sites"),
        row!(POST "/api/v1/images" images::record "Write down that an image was built, judged or uploaded").answers(&[200, 201]),
        row!(POST "/api/v1/image-verdicts" image_verdicts::record "Write down what the lint found in an image's file").answers(&[201]),
        row!(GET "/api/v1/images/{image}" images::show "A host image at a site, with what happened to it"),
        row!(POST "/api/v1/images/{image}/transition" images::transition "Say whether an image may be deployed at a site"),
        row!(POST "/api/v1/images/{image}/delete" images::delete "Delete an image that nothing names"),
        row!(GET "/api/v1/experiments" experiments::list "Experiments between images, newest first"),
        row!(POST "/api/v1/experiments" experiments::start "Deploy drawn nodes with two images").answers(&[200, 202]),
        row!(POST "/api/v1/experiments/import" experiments::import "Compare times of earlier runs").answers(&[201]),
        row!(GET "/api/v1/experiments/{experiment}" experiments::show "An experiment, and what its runs say"),
        row!(POST "/api/v1/experiments/{experiment}/next" experiments::next "Begin what may begin by now"),
        row!(POST "/api/v1/experiments/{experiment}/stop" experiments::stop "Begin nothing of it any more"),
        row!(GET "/api/v1/bundle-keys" bundles::keys "The keys that may sign bundles"),
        row!(POST "/api/v1/bundle-keys" bundles::trust "Trust a key").answers(&[201]),
    ]
}

fn of_settings() -> Vec<Row> {
    vec![
        row!(GET "/api/v1/sites" sites::list "Regions"),
        row!(POST "/api/v1/sites" sites::create "Add a region").answers(&[201]),
        row!(GET "/api/v1/sites/{name}" sites::show "A region"),
        Row {
            body: Some(patch_of_site),
            ..row!(PATCH "/api/v1/sites/{name}" sites::change "Change a region")
        },
        row!(POST "/api/v1/sites/{name}/remove" removal::site "Remove a region"),
        row!(POST "/api/v1/sites/{name}/take-control" control::take "Change a region's machines from here"),
        row!(GET "/api/v1/sites/{name}/secrets" secrets::list_of_site "A site's secret inputs, without their values"),
        row!(PUT "/api/v1/sites/{name}/secrets/{bundle}/{input}" secrets::set_of_site "Set a secret input of a site"),
        row!(DELETE "/api/v1/sites/{name}/secrets/{bundle}/{input}" secrets::delete_of_site "Forget a secret input of a site"),
        row!(GET "/api/v1/profiles" profiles::list "Profiles"),
        row!(POST "/api/v1/profiles" profiles::create "Add a profile").answers(&[201]),
        row!(GET "/api/v1/profiles/{name}" profiles::show "A profile"),
        row!(PATCH "/api/v1/profiles/{name}" profiles::change "Change a profile: a new revision")
            .patch::<ProfileSpec>(),
        row!(GET "/api/v1/admin/maas-sites/{site}/profiles/{profile}" profiles::show_at_site "A profile of a site"),
        row!(PATCH "/api/v1/admin/maas-sites/{site}/profiles/{profile}" profiles::change_at_site "Change a profile of a site")
            .patch::<ProfileSpec>(),
        row!(POST "/api/v1/profiles/{name}/remove" removal::profile "Remove a profile"),
        row!(POST "/api/v1/profiles/{name}/rollback-image" image_rollback::roll_back "Have a profile name the image before"),
        row!(GET "/api/v1/profiles/{name}/secrets" secrets::list_of_profile "A profile's secret inputs, without their values"),
        row!(PUT "/api/v1/profiles/{name}/secrets/{bundle}/{input}" secrets::set_of_profile "Set a secret input of a profile"),
        row!(DELETE "/api/v1/profiles/{name}/secrets/{bundle}/{input}" secrets::delete_of_profile "Forget a secret input of a profile"),
        row!(GET "/api/v1/profile-presets" profiles::presets "Profiles to begin with"),
        row!(GET "/api/v1/roce-assignments" roce::list "Fabric addresses"),
        row!(POST "/api/v1/roce-assignments" roce::create "Assign a fabric address").answers(&[201]),
        row!(POST "/api/v1/roce-assignments/change" roce::change "Change a fabric address"),
        row!(POST "/api/v1/roce-assignments/remove" removal::roce "Take a fabric address away"),
    ]
}

fn of_nodes() -> Vec<Row> {
    vec![
        row!(GET "/api/v1/nodes" nodes::list "Nodes, by hostname"),
        row!(POST "/api/v1/nodes" nodes::onboard "Onboard a machine")
            .body::<OnboardRequest>()
            .answers(&[202]),
        row!(POST "/api/v1/onboarding-plans" onboard_plan::plan "What an onboarding would do")
            .body::<OnboardRequest>(),
        row!(GET "/api/v1/nodes/stuck" stuck::list "Nodes that somebody has to look at"),
        row!(GET "/api/v1/nodes/{node}" nodes::show "A node"),
        row!(PATCH "/api/v1/nodes/{node}" node_change::change "Correct a node"),
        row!(GET "/api/v1/nodes/{node}/explain" explain::explain "Why a node is where it is, and what to do"),
        row!(GET "/api/v1/nodes/{node}/timeline" nodes::timeline "A node's history"),
        row!(GET "/api/v1/nodes/{node}/certificates" certificates::list "The certificates of a node's agent"),
        row!(POST "/api/v1/nodes/{node}/revoke-certificate" certificates::revoke "Revoke a certificate"),
        row!(GET "/api/v1/nodes/{node}/telemetry" telemetry::show "Whether a node's telemetry can be read"),
        row!(GET "/api/v1/nodes/{node}/telemetry/" telemetry::read "A node's telemetry").media_type("*/*"),
        row!(GET "/api/v1/nodes/{node}/telemetry/{path}" telemetry::read "A file of a node's telemetry").media_type("*/*"),
        row!(POST "/api/v1/nodes/{node}/runs" offboarding::begin "Begin a run of a node").answers(&[200, 202]),
        row!(GET "/api/v1/nodes/{node}/tasks" tasks::list "Tasks of a node's agent"),
        row!(POST "/api/v1/nodes/{node}/tasks" tasks::create "Have a node's agent do something")
            .body::<TaskRequest>()
            .answers(&[202]),
        row!(GET "/api/v1/tasks/{task}" tasks::show "A task"),
        row!(POST "/api/v1/admin/nodes/{node}/slice-topology/discovery" slices::discover "Discover what slices are made of")
            .body::<DiscoveryRequest>()
            .answers(&[202]),
        row!(GET "/api/v1/admin/nodes/{node}/slice-topology" slices::map "The map of a node's slots"),
        row!(GET "/api/v1/admin/nodes/{node}/slice-topology/diff" slices::difference "What changed in the map"),
        row!(POST "/api/v1/admin/nodes/{node}/slice-topology/approval" slices::approve "Make slots free for leases"),
        row!(GET "/api/v1/admin/slots" slices::list "Slots"),
        row!(GET "/api/v1/admin/slice-claims" slice_claims::list "Claims of slots"),
        row!(POST "/api/v1/admin/slice-claims" slice_claims::create "Reserve slots of a node")
            .body::<ClaimRequest>()
            .answers(&[201]),
        row!(GET "/api/v1/admin/slice-claims/{claim}" slice_claims::show "A claim"),
        row!(DELETE "/api/v1/admin/slice-claims/{claim}" slice_claims::release "End a claim, or take back what it launched"),
        row!(POST "/api/v1/admin/slice-claims/{claim}/launch" slice_launch::launch "Start the guest of a claim").answers(&[202]),
        row!(POST "/api/v1/admin/node-claims" node_claims::create "Claim a bare-metal host as a whole")
            .body::<NodeClaimRequest>()
            .answers(&[201]),
        row!(POST "/api/v1/admin/nodes/{node}/slots/{index}/recovery" slice_launch::recover "Answer for a slot"),
        row!(GET "/api/v1/drift" drift::list "Differences between nodes and what MAAS has"),
    ]
}

fn of_runs() -> Vec<Row> {
    vec![
        row!(GET "/api/v1/runs" runs::list "Runs, newest first"),
        row!(GET "/api/v1/runs/{run}" runs::show "A run"),
        row!(POST "/api/v1/runs/{run}/resume" runs::resume "Let a parked run go on"),
        row!(POST "/api/v1/runs/{run}/retry" runs::retry "Do a run's step again"),
        row!(POST "/api/v1/runs/{run}/cancel" runs::cancel "End a run"),
        row!(POST "/api/v1/runs/{run}/skip-check" runs::skip_check "Leave a check out"),
        row!(POST "/api/v1/runs/{run}/take-over" onboard_plan::take_over "Take a machine in use over"),
        row!(GET "/api/v1/batches" batches::list "Batches"),
        row!(POST "/api/v1/batches" batches::create "Onboard many machines")
            .body::<BatchCreate>()
            .answers(&[200, 202]),
        row!(GET "/api/v1/batches/{batch}" batches::show "A batch"),
        row!(POST "/api/v1/batches/{batch}/stop" batches::stop "Begin no further machine"),
        row!(POST "/api/v1/batches/{batch}/resume" batches::resume "Let a stopped batch go on"),
    ]
}
