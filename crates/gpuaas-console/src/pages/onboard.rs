//! Onboarding a host.

use askama::Template;
use axum::Form;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use gpuaas_types::SecretText;
use gpuaas_types::api::{List, OnboardAccepted, ProfileResource, SiteResource};
use gpuaas_types::spec::OnboardRequest;
use serde::Deserialize;

use super::{Shell, draw_with, failed};
use crate::actions::{Button, ONBOARD};
use crate::api::{Failure, Viewer};
use crate::requests::part;
use crate::security::redirect;
use crate::state::Console;

/// What the form sends. A password is never shown again.
#[derive(Deserialize, Default)]
pub(crate) struct Fields {
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    site: String,
    #[serde(default)]
    profile: String,
    #[serde(default)]
    bmc_address: String,
    #[serde(default)]
    bmc_user: String,
    #[serde(default)]
    bmc_password: SecretText,
    #[serde(default)]
    mac_addresses: String,
}

#[derive(Template)]
#[template(path = "onboard.html")]
struct OnboardPage {
    shell: Shell,
    fields: Fields,
    sites: Vec<String>,
    profiles: Vec<String>,
    failure: Option<Failure>,
    button: Button,
}

/// `GET /onboard`.
pub(crate) async fn form(State(console): State<Console>, viewer: Viewer) -> Response {
    page(&console, &viewer, Fields::default(), None).await
}

/// `POST /onboard`: begins the run, or shows the form again with what is wrong.
pub(crate) async fn onboard(
    State(console): State<Console>,
    viewer: Viewer,
    Form(fields): Form<Fields>,
) -> Response {
    let answer = viewer.api.post_for::<OnboardAccepted>("/api/v1/nodes", &request(&fields)).await;
    match answer {
        Ok(accepted) => redirect(&format!("/nodes/{}", part(&accepted.node_id.to_string()))),
        Err(failure) => {
            let fields = Fields { bmc_password: SecretText::default(), ..fields };
            page(&console, &viewer, fields, Some(failure)).await
        }
    }
}

fn request(fields: &Fields) -> OnboardRequest {
    let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let words = fields.mac_addresses.split([',', ' ', '\n', '\r', '\t']);
    OnboardRequest {
        hostname: fields.hostname.trim().to_owned(),
        site: fields.site.clone(),
        profile: fields.profile.clone(),
        bmc_address: given(&fields.bmc_address),
        bmc_user: given(&fields.bmc_user),
        bmc_password: Some(fields.bmc_password.clone()).filter(|text| !text.is_empty()),
        mac_addresses: words.filter(|word| !word.is_empty()).map(str::to_owned).collect(),
        power_type: None,
        architecture: None,
        system_id: None,
        serial: None,
        take_over: None,
    }
}

async fn page(
    console: &Console,
    viewer: &Viewer,
    fields: Fields,
    failure: Option<Failure>,
) -> Response {
    let sites = viewer.api.get::<List<SiteResource>>("/api/v1/sites").await;
    let profiles = viewer.api.get::<List<ProfileResource>>("/api/v1/profiles").await;
    let now = console.now();
    let (sites, profiles) = match (sites, profiles) {
        (Ok(sites), Ok(profiles)) => (sites.items, profiles.items),
        (Err(failure), _) | (_, Err(failure)) => return failed(viewer, now, &failure),
    };
    let shell = Shell::new(viewer, "Onboard a node", "nodes", now).still().sources(
        "gpuaas node onboard HOSTNAME --site SITE --profile PROFILE".to_owned(),
        "POST /api/v1/nodes".to_owned(),
    );
    let status =
        failure.as_ref().and_then(|failure| StatusCode::from_u16(failure.problem.status).ok());
    let onboard = OnboardPage {
        shell,
        fields,
        sites: sites.into_iter().map(|site| site.spec.name).collect(),
        profiles: profiles.into_iter().map(|profile| profile.status.name).collect(),
        failure,
        button: Button::new(ONBOARD, "/onboard".to_owned(), viewer, None, ""),
    };
    draw_with(status.unwrap_or(StatusCode::OK), &onboard)
}
