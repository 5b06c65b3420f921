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
// An operation's id has the name under which its module is known here, and callers rely on it. So a
// module that has another name keeps the one of its id.
use crate::agent::{tasks, telemetry};
use crate::audit::entries as audit;
use crate::bundle::{bundles, secrets};
use crate::event::{events, sinks as event_sinks};
use crate::identity::{access, approvals, authorities, certificates, task_keys, tokens};
use crate::image::{experiments, images, verdicts as image_verdicts};
use crate::monitoring::metrics;
use crate::node::{change as node_change, drift, explain, nodes, stuck};
use crate::profile::{image_rollback, profiles};
use crate::run::{batches, begin as offboarding, onboard_plan, runs};
use crate::site::{ownership as control, removal, roce, sites};
use crate::slice::{claims as slice_claims, launch as slice_launch, node_claims, slots as slices};

/// A row: an operation as the document shows it.
pub(crate) struct Row {
    /// HTTP method.
    pub(crate) method: &'static str,
    /// Path, with parameters in braces.
    pub(crate) path: &'static str,
    /// Its id: the module of the handler, as it is named in this file, and the handler.
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
        "description": "`consumer:token:secret` of a MAAS administrator; stored encrypted",
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
        row!(GET "/metrics" metrics::show "Show metrics for Prometheus")
            .media_type("application/openmetrics-text"),
        row!(GET "/api/v1/access" access::show "Show the credential's identity and roles"),
        row!(GET "/api/v1/audit" audit::list "List audit entries, newest first"),
        row!(GET "/api/v1/audit/chain" audit::chain "Show the audit log as a chain of digests"),
        row!(GET "/api/v1/events" events::follow "Stream node events as they happen")
            .media_type("text/event-stream"),
        row!(GET "/api/v1/event-sinks" event_sinks::list "List event sinks and their delivery progress"),
        row!(POST "/api/v1/event-sinks/{sink}/remove" event_sinks::remove "Remove an event sink"),
        row!(POST "/api/v1/webhooks" event_sinks::add_webhook "Add a webhook that receives events").answers(&[201]),
        row!(GET "/api/v1/dead-letters" event_sinks::dead_letters "List events that could not be delivered"),
        row!(POST "/api/v1/dead-letters/replay" event_sinks::replay "Deliver undelivered events again"),
        row!(GET "/api/v1/approvals" approvals::list "List approvals, newest first"),
        row!(GET "/api/v1/approvals/{approval}" approvals::show "Show a requested approval and its outcome"),
        row!(POST "/api/v1/approvals/{approval}/approve" approvals::approve "Approve another person's request"),
        row!(POST "/api/v1/approvals/{approval}/deny" approvals::deny "Deny a request"),
        row!(GET "/api/v1/tokens" tokens::list "List tokens of programs"),
        row!(POST "/api/v1/tokens" tokens::create "Create a token").answers(&[201]),
        row!(POST "/api/v1/tokens/{token}/revoke" tokens::revoke "Revoke a token"),
        row!(GET "/api/v1/authority" authorities::show "Show the certificate authority of nodes"),
        row!(POST "/api/v1/authority" authorities::stage_authority "Create the next certificate authority")
            .answers(&[201]),
        row!(POST "/api/v1/authority/activate" authorities::activate "Activate the next certificate authority"),
        row!(POST "/api/v1/authority/retire" authorities::retire "Stop trusting a certificate authority"),
        row!(GET "/api/v1/task-keys" task_keys::list "List the keys that sign agent tasks"),
        row!(POST "/api/v1/task-keys" task_keys::stage_key "Create the next task signing key").answers(&[201]),
        row!(POST "/api/v1/task-keys/activate" task_keys::activate "Activate the next task signing key"),
        row!(POST "/api/v1/task-keys/retire" task_keys::retire "Stop trusting a task signing key"),
        row!(GET "/api/v1/bundles" bundles::list "List bundles, all versions"),
        row!(POST "/api/v1/bundles" bundles::publish "Publish a bundle").answers(&[200, 201]),
        row!(GET "/api/v1/bundles/{bundle}" bundles::show "Show a bundle"),
        row!(GET "/api/v1/bundles/{bundle}/archive" bundles::archive "Download a bundle's archive"),
        row!(POST "/api/v1/bundles/{bundle}/approve" bundles::approve "Approve a bundle for sites"),
        row!(POST "/api/v1/bundles/{bundle}/withdraw" bundles::withdraw "Withdraw a bundle from sites"),
        row!(GET "/api/v1/images" images::list "List host images of sites"),
        row!(POST "/api/v1/images" images::record "Record that an image was built, linted or uploaded").answers(&[200, 201]),
        row!(POST "/api/v1/image-verdicts" image_verdicts::record "Record the lint verdict for an image file").answers(&[201]),
        row!(GET "/api/v1/images/{image}" images::show "Show a host image at a site with its history"),
        row!(POST "/api/v1/images/{image}/transition" images::transition "Change whether an image may be deployed at a site"),
        row!(POST "/api/v1/images/{image}/delete" images::delete "Delete an unused image"),
        row!(GET "/api/v1/experiments" experiments::list "List image experiments, newest first"),
        row!(POST "/api/v1/experiments" experiments::start "Start an experiment: deploy random nodes with two images").answers(&[200, 202]),
        row!(POST "/api/v1/experiments/import" experiments::import "Import times of earlier runs and compare them").answers(&[201]),
        row!(GET "/api/v1/experiments/{experiment}" experiments::show "Show an experiment and its results"),
        row!(POST "/api/v1/experiments/{experiment}/next" experiments::next "Start the runs that may start now"),
        row!(POST "/api/v1/experiments/{experiment}/stop" experiments::stop "Stop an experiment"),
        row!(GET "/api/v1/bundle-keys" bundles::keys "List the keys that may sign bundles"),
        row!(POST "/api/v1/bundle-keys" bundles::trust "Trust a bundle signing key").answers(&[201]),
    ]
}

fn of_settings() -> Vec<Row> {
    vec![
        row!(GET "/api/v1/sites" sites::list "List sites"),
        row!(POST "/api/v1/sites" sites::create "Add a site").answers(&[201]),
        row!(GET "/api/v1/sites/{name}" sites::show "Show a site"),
        Row {
            body: Some(patch_of_site),
            ..row!(PATCH "/api/v1/sites/{name}" sites::change "Change a site")
        },
        row!(POST "/api/v1/sites/{name}/remove" removal::site "Remove a site"),
        row!(POST "/api/v1/sites/{name}/take-control" control::take "Take control of a region's machines"),
        row!(GET "/api/v1/sites/{name}/secrets" secrets::list_of_site "List a site's secret inputs, without values"),
        row!(PUT "/api/v1/sites/{name}/secrets/{bundle}/{input}" secrets::set_of_site "Set a secret input of a site"),
        row!(DELETE "/api/v1/sites/{name}/secrets/{bundle}/{input}" secrets::delete_of_site "Delete a secret input of a site"),
        row!(GET "/api/v1/profiles" profiles::list "List profiles"),
        row!(POST "/api/v1/profiles" profiles::create "Add a profile").answers(&[201]),
        row!(GET "/api/v1/profiles/{name}" profiles::show "Show a profile"),
        row!(PATCH "/api/v1/profiles/{name}" profiles::change "Change a profile (creates a new revision)")
            .patch::<ProfileSpec>(),
        row!(GET "/api/v1/admin/maas-sites/{site}/profiles/{profile}" profiles::show_at_site "Show a profile at a site"),
        row!(PATCH "/api/v1/admin/maas-sites/{site}/profiles/{profile}" profiles::change_at_site "Change a profile at a site")
            .patch::<ProfileSpec>(),
        row!(POST "/api/v1/profiles/{name}/remove" removal::profile "Remove a profile"),
        row!(POST "/api/v1/profiles/{name}/rollback-image" image_rollback::roll_back "Roll a profile back to its previous image"),
        row!(GET "/api/v1/profiles/{name}/secrets" secrets::list_of_profile "List a profile's secret inputs, without values"),
        row!(PUT "/api/v1/profiles/{name}/secrets/{bundle}/{input}" secrets::set_of_profile "Set a secret input of a profile"),
        row!(DELETE "/api/v1/profiles/{name}/secrets/{bundle}/{input}" secrets::delete_of_profile "Delete a secret input of a profile"),
        row!(GET "/api/v1/profile-presets" profiles::presets "List profile presets"),
        row!(GET "/api/v1/roce-assignments" roce::list "List fabric addresses"),
        row!(POST "/api/v1/roce-assignments" roce::create "Assign a fabric address").answers(&[201]),
        row!(POST "/api/v1/roce-assignments/change" roce::change "Change a fabric address"),
        row!(POST "/api/v1/roce-assignments/remove" removal::roce "Remove a fabric address"),
    ]
}

fn of_nodes() -> Vec<Row> {
    vec![
        row!(GET "/api/v1/nodes" nodes::list "List nodes by hostname"),
        row!(POST "/api/v1/nodes" nodes::onboard "Onboard a machine")
            .body::<OnboardRequest>()
            .answers(&[202]),
        row!(POST "/api/v1/onboarding-plans" onboard_plan::plan "Preview an onboarding")
            .body::<OnboardRequest>(),
        row!(GET "/api/v1/nodes/stuck" stuck::list "List nodes that need attention"),
        row!(GET "/api/v1/nodes/{node}" nodes::show "Show a node"),
        row!(PATCH "/api/v1/nodes/{node}" node_change::change "Correct a node's details"),
        row!(GET "/api/v1/nodes/{node}/explain" explain::explain "Explain why a node is in its state and what to do"),
        row!(GET "/api/v1/nodes/{node}/timeline" nodes::timeline "Show a node's history"),
        row!(GET "/api/v1/nodes/{node}/certificates" certificates::list "List the certificates of a node's agent"),
        row!(POST "/api/v1/nodes/{node}/revoke-certificate" certificates::revoke "Revoke a node's certificates"),
        row!(GET "/api/v1/nodes/{node}/telemetry" telemetry::show "Check whether a node's telemetry can be read"),
        row!(GET "/api/v1/nodes/{node}/telemetry/" telemetry::read "Read a node's telemetry").media_type("*/*"),
        row!(GET "/api/v1/nodes/{node}/telemetry/{path}" telemetry::read "Read a file of a node's telemetry").media_type("*/*"),
        row!(POST "/api/v1/nodes/{node}/runs" offboarding::begin "Start a run on a node").answers(&[200, 202]),
        row!(GET "/api/v1/nodes/{node}/tasks" tasks::list "List tasks of a node's agent"),
        row!(POST "/api/v1/nodes/{node}/tasks" tasks::create "Run a task on a node's agent")
            .body::<TaskRequest>()
            .answers(&[202]),
        row!(GET "/api/v1/tasks/{task}" tasks::show "Show a task"),
        row!(POST "/api/v1/admin/nodes/{node}/slice-topology/discovery" slices::discover "Discover a node's GPU slots")
            .body::<DiscoveryRequest>()
            .answers(&[202]),
        row!(GET "/api/v1/admin/nodes/{node}/slice-topology" slices::map "Show a node's slot map"),
        row!(GET "/api/v1/admin/nodes/{node}/slice-topology/diff" slices::difference "Show changes in a node's slot map"),
        row!(POST "/api/v1/admin/nodes/{node}/slice-topology/approval" slices::approve "Approve slots for leasing"),
        row!(GET "/api/v1/admin/slots" slices::list "List slots"),
        row!(GET "/api/v1/admin/slice-claims" slice_claims::list "List slot claims"),
        row!(POST "/api/v1/admin/slice-claims" slice_claims::create "Reserve slots of a node")
            .body::<ClaimRequest>()
            .answers(&[201]),
        row!(GET "/api/v1/admin/slice-claims/{claim}" slice_claims::show "Show a claim"),
        row!(DELETE "/api/v1/admin/slice-claims/{claim}" slice_claims::release "Release a claim and stop its guest, if any"),
        row!(POST "/api/v1/admin/slice-claims/{claim}/launch" slice_launch::launch "Start a claim's guest").answers(&[202]),
        row!(POST "/api/v1/admin/node-claims" node_claims::create "Claim a whole bare-metal host")
            .body::<NodeClaimRequest>()
            .answers(&[201]),
        row!(POST "/api/v1/admin/nodes/{node}/slots/{index}/recovery" slice_launch::recover "Confirm that a slot is clean"),
        row!(GET "/api/v1/drift" drift::list "List differences between nodes and MAAS"),
    ]
}

fn of_runs() -> Vec<Row> {
    vec![
        row!(GET "/api/v1/runs" runs::list "List runs, newest first"),
        row!(GET "/api/v1/runs/{run}" runs::show "Show a run"),
        row!(POST "/api/v1/runs/{run}/resume" runs::resume "Resume a parked run"),
        row!(POST "/api/v1/runs/{run}/retry" runs::retry "Retry a run's step"),
        row!(POST "/api/v1/runs/{run}/cancel" runs::cancel "Cancel a run"),
        row!(POST "/api/v1/runs/{run}/skip-check" runs::skip_check "Skip a check"),
        row!(POST "/api/v1/runs/{run}/take-over" onboard_plan::take_over "Take over a machine that is in use"),
        row!(GET "/api/v1/batches" batches::list "List batches"),
        row!(POST "/api/v1/batches" batches::create "Onboard many machines")
            .body::<BatchCreate>()
            .answers(&[200, 202]),
        row!(GET "/api/v1/batches/{batch}" batches::show "Show a batch"),
        row!(POST "/api/v1/batches/{batch}/stop" batches::stop "Stop a batch"),
        row!(POST "/api/v1/batches/{batch}/resume" batches::resume "Resume a stopped batch"),
    ]
}
