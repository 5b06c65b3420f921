//! Is a site what its operator says? Asked of MAAS before anything is stored.

use std::time::Duration;

use gpuaas_engine::KeyUnreadable;
use gpuaas_engine::region_identity::identify_region;
use gpuaas_types::api::SiteStatus;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{Problem, Timestamp};
use maas_client::{ApiKey, AuthCause, Client, Error, RefusalKind};

use crate::ctx::ApiState;
use crate::http::problem::{invalid, problem};

/// For all questions together, in wall time.
const PATIENCE: Duration = Duration::from_secs(20);
/// Tries to ask a region that does not answer.
const MAX_TRIES: u32 = 4;
/// Wall seconds between two of them.
const PAUSE_SECONDS: f64 = 0.5;
/// MAAS refuses a timestamp that is further behind, in seconds (docs/maas.md#authentication).
const ALLOWED_SECONDS: u32 = 300;
const OLDEST: (u32, u32) = (3, 4);
/// What the region of `gpuaas maas-sim` says in the place of a revision.
const SIMULATED_SUBVERSION: &str = "simulated";

/// Asks the region for its version, for the owner of the key, and which region it is.
///
/// # Errors
/// `maas_unreachable`, `not_a_maas`, `maas_version_unsupported`, `clock_skew`,
/// `maas_key_refused`, `maas_not_admin`, or `invalid_field`.
pub(crate) async fn probe(
    api: &ApiState,
    spec: &SiteSpec,
    api_key: &str,
) -> Result<SiteStatus, Problem> {
    let client = connect(api, spec, api_key)?;
    let asked = tokio::time::timeout(PATIENCE, ask_again(api, &client)).await;
    let (version, user) = asked.unwrap_or_else(|_| {
        let seconds = PATIENCE.as_secs();
        Err(problem(ProblemCode::MaasUnreachable)
            .with_detail(format!("no answer within {seconds} s")))
    })?;
    let region = identify(api, &client).await;
    Ok(status(version, user, region, api.clock.now()))
}

/// Asks the region whether it has the pool whose machines are to be the site's.
///
/// # Errors
/// `pool_unknown`, which names those that there are; those of [`probe`].
pub(crate) async fn check_pool(
    api: &ApiState,
    spec: &SiteSpec,
    api_key: &str,
) -> Result<(), Problem> {
    let Some(pool) = &spec.pool else { return Ok(()) };
    let client = connect(api, spec, api_key)?;
    let asked = tokio::time::timeout(PATIENCE, client.resource_pools()).await;
    let pools = asked.unwrap_or_else(|_| {
        let seconds = PATIENCE.as_secs();
        let text = format!("no answer within {seconds} s");
        Err(Error::Unavailable { sent: true, retry_after: None, text })
    });
    let pools = pools.map_err(|error| explain_call(&error))?;
    if pools.iter().any(|one| one.name == *pool) {
        return Ok(());
    }
    let names: Vec<&str> = pools.iter().map(|one| one.name.as_str()).collect();
    let detail = format!("the region has no pool {pool}; it has {}", names.join(", "));
    Err(problem(ProblemCode::PoolUnknown).with_detail(detail))
}

/// A client for the region at `spec`.
///
/// # Errors
/// `invalid_field`: the key or the address cannot be used.
pub(crate) fn connect(api: &ApiState, spec: &SiteSpec, api_key: &str) -> Result<Client, Problem> {
    let field = if spec.api_key_ref.is_some() { "api_key_ref" } else { "api_key" };
    let key: ApiKey = api_key.parse().map_err(|_| {
        invalid(field, "expected a MAAS API key: three parts joined by colons")
            .with_hint("print it on the region: maas apikey --username=NAME")
    })?;
    api.connect.connect(spec, key).map_err(|error| explain_call(&error))
}

/// What an operator is told of an API key that is kept elsewhere and not to be had.
pub(crate) fn key_problem(error: &KeyUnreadable) -> Problem {
    problem(error.code).with_detail(&error.text)
}

/// What an operator is told of a call that failed.
pub(crate) fn explain_call(error: &Error) -> Problem {
    explain(error, ProbeRequest::Version)
}

/// The identity of the region; empty where its mark cannot be read or written: then the region is
/// known by its address until it can.
async fn identify(api: &ApiState, client: &Client) -> String {
    let asked = identify_region(client, &*api.ids, api.clock.now());
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(region)) => region,
        Ok(Err(error)) => {
            tracing::warn!(%error, "cannot read or write the region's mark");
            String::new()
        }
        Err(_) => String::new(),
    }
}

fn status(maas_version: String, maas_user: String, region: String, now: Timestamp) -> SiteStatus {
    SiteStatus {
        region,
        maas_version,
        maas_user,
        health: "ok".to_owned(),
        health_detail: String::new(),
        answered_at: Some(now),
        missed_work: 0,
        past: None,
        control: None,
    }
}

/// Asks until the region answers, a few times: one lost answer says nothing of a site.
async fn ask_again(api: &ApiState, client: &Client) -> Result<(String, String), Problem> {
    let mut tries = 1;
    loop {
        let answer = ask(client).await;
        let unreachable =
            answer.as_ref().is_err_and(|no| no.code == ProblemCode::MaasUnreachable.as_str());
        if !unreachable || tries == MAX_TRIES {
            return answer;
        }
        tries += 1;
        let pause = PAUSE_SECONDS * api.clock.factor();
        api.clock.sleep_until(api.clock.now().plus_seconds(pause)).await;
    }
}

async fn ask(client: &Client) -> Result<(String, String), Problem> {
    let version = client.version().await.map_err(|error| explain(&error, ProbeRequest::Version))?;
    let release = version.release().ok_or_else(|| {
        problem(ProblemCode::NotAMaas).with_detail("the response contains no MAAS version")
    })?;
    if release < OLDEST {
        let detail = format!("MAAS reports version {}", version.version);
        return Err(problem(ProblemCode::MaasVersionUnsupported).with_detail(detail));
    }
    let user = client.whoami().await.map_err(|error| explain(&error, ProbeRequest::Key))?;
    if !user.is_superuser {
        let detail = format!("MAAS user {} is not an administrator", user.username);
        return Err(problem(ProblemCode::MaasNotAdmin).with_detail(detail));
    }
    let named = if version.subversion == SIMULATED_SUBVERSION {
        SiteStatus::simulated_version(&version.version)
    } else {
        version.version
    };
    Ok((named, user.username))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ProbeRequest {
    Version,
    Key,
}

/// Explains why a region did not answer as one. Until a URL has proven to be a MAAS region, only the
/// status of its answer is told: the caller chose the URL, and may not be allowed to read what is there.
fn explain(error: &Error, request: ProbeRequest) -> Problem {
    if request == ProbeRequest::Version {
        let status = match error {
            Error::Refused { status, .. } => {
                return problem(ProblemCode::NotAMaas).with_detail(format!("HTTP status {status}"));
            }
            Error::ServerError { status, .. } => Some(*status),
            Error::Unavailable { sent: true, .. } => Some(503),
            _ => None,
        };
        if let Some(status) = status {
            let detail = format!("HTTP status {status}");
            return problem(ProblemCode::MaasUnreachable).with_detail(detail);
        }
    }
    match error {
        Error::Unavailable { text, .. } | Error::UnknownOutcome { text, .. } => unreachable(text),
        Error::ServerError { .. } => {
            problem(ProblemCode::MaasUnreachable).with_detail(error.to_string())
        }
        Error::Malformed { text, .. } => problem(ProblemCode::NotAMaas).with_detail(text),
        Error::Invalid { text } => invalid("spec.url", text),
        Error::Refused { kind: RefusalKind::Unauthorized { cause }, text, .. } => match cause {
            AuthCause::ClockSkew { seconds_behind } => clock_skew(*seconds_behind),
            _ => problem(ProblemCode::MaasKeyRefused).with_detail(text),
        },
        Error::Refused { kind: RefusalKind::Forbidden, text, .. }
            if request == ProbeRequest::Key =>
        {
            problem(ProblemCode::MaasKeyRefused).with_detail(text)
        }
        Error::Refused { .. } => problem(ProblemCode::NotAMaas).with_detail(error.to_string()),
    }
}

/// A region that gave no answer. The words are those of rustls.
fn unreachable(text: &str) -> Problem {
    let found = problem(ProblemCode::MaasUnreachable).with_detail(text);
    if text.contains("UnknownIssuer") {
        return found.with_hint(
            "pass the certificate authority of the region with `--ca-file FILE` when you add or \
             change the site: this host does not trust the region's certificate",
        );
    }
    if text.contains("peer certificate") {
        return found.with_hint(
            "check the certificate's names and dates: `openssl s_client -connect HOST:PORT </dev/null`",
        );
    }
    if text.contains("InvalidContentType") {
        return found.with_hint("use http:// in `--url`: the port speaks plain http");
    }
    found
}

fn clock_skew(seconds_behind: Option<i64>) -> Problem {
    let detail = match seconds_behind {
        Some(seconds) => format!("this host's clock is {seconds} s behind MAAS's"),
        None => format!("this host's clock is more than {ALLOWED_SECONDS} s behind MAAS's"),
    };
    problem(ProblemCode::ClockSkew).with_detail(detail).with_hint(format!(
        "set this host's clock (chronyc makestep), then retry; MAAS allows a difference of \
         {ALLOWED_SECONDS} s"
    ))
}
