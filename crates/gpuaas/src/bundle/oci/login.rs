//! Registries that want a login: HTTP Basic (RFC 7617), and the tokens of the distribution's
//! specification, where the registry names a realm that gives tokens for a scope.
//!
//! No credential is sent before the registry asks for one. A password goes to the registry or to the
//! realm that it names: over https, or over http on this machine. An attacker on the way to a
//! registry without TLS could name a realm of its own, so such a registry gets no login at all.
//!
//! Credential helpers are not run: that would execute a program that a file names.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_types::SecretText;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::text::is_loopback_host;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Response, Url};
use serde::Deserialize;

use super::http::{MAX_SMALL_BYTES, client, unreachable_failure};
use crate::args::RegistryArgs;
use crate::input_file::read_secret;

/// Where Docker Hub's own login is kept, whatever its registry is called.
const HUB: (&[&str], &str) = (&["docker.io", "registry-1.docker.io"], "index.docker.io");
const HINT: &str = "use --registry-user NAME --registry-password-file FILE, or log in with a tool \
                    that stores the password in Docker's config.json";

const REFUSED: CommandCode = CommandCode::RegistryLoginRefused;

/// A user name, its password, and their source. `Debug` leaves the password out.
#[derive(Clone, PartialEq, Eq)]
struct Credentials {
    user: String,
    password: SecretText,
    from: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.user, self.from)
    }
}

/// The result of the search for credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CredentialSource {
    Nothing,
    Credentials(Credentials),
    /// Credentials that cannot be used, and why.
    Unusable(String),
}

/// How to log in to one registry.
pub(in crate::bundle) struct Login {
    args: RegistryArgs,
    password: Option<SecretText>,
}

impl Login {
    /// As the command line says. Docker's file is read when a registry asks for a login.
    ///
    /// # Errors
    /// The password's file cannot be read.
    pub(in crate::bundle) fn from_args(args: &RegistryArgs) -> Result<Self, Failure> {
        let password = args.registry_password_file.as_deref().map(read_secret).transpose()?;
        Ok(Self { args: args.clone(), password })
    }

    fn find_credentials(&self, registry: &Url) -> CredentialSource {
        if let (Some(user), Some(password)) = (&self.args.registry_user, &self.password) {
            let (user, password) = (user.clone(), password.clone());
            return CredentialSource::Credentials(Credentials {
                user,
                password,
                from: "--registry-user".to_owned(),
            });
        }
        let folder = self
            .args
            .docker_config
            .clone()
            .or_else(|| std::env::home_dir().map(|home| home.join(".docker")));
        folder.map_or(CredentialSource::Nothing, |folder| {
            docker_credentials(&folder.join("config.json"), registry)
        })
    }

    /// The `Authorization` header for a registry that answered 401.
    ///
    /// # Errors
    /// `registry_login_...`: no credentials, or none that may be sent; `registry_silent`.
    pub(super) async fn authorize(
        &self,
        registry: &Url,
        refusal: &Response,
    ) -> Result<HeaderValue, Failure> {
        let challenges = challenges(refusal.headers());
        let origin = registry.origin().ascii_serialization();
        if registry.scheme() != "https" && !is_loopback(registry) {
            let detail = format!(
                "{origin} requires a login but has no TLS: the password could be intercepted"
            );
            return Err(login_failure(CommandCode::RegistryLoginUnsafe, detail)
                .hint("use the registry's https address"));
        }
        let known = self.find_credentials(registry);
        let of = |scheme: &str| challenges.iter().find(|one| one.scheme == scheme);
        if let Some(bearer) = of("bearer") {
            let shown = match &known {
                CredentialSource::Credentials(credentials) => Some(credentials),
                // A public repository needs none.
                CredentialSource::Nothing | CredentialSource::Unusable(_) => None,
            };
            let token = token(registry, bearer, shown).await;
            return token.map_err(|failure| match known {
                CredentialSource::Unusable(why) if failure.code() == REFUSED.as_str() => {
                    login_unusable(&origin, &why)
                }
                _ => failure,
            });
        }
        if of("basic").is_none() {
            let names: Vec<&str> = challenges.iter().map(|one| one.scheme.as_str()).collect();
            let names = names.join(", ");
            let detail = format!(
                "{origin} requires authentication with {names:?}: only Basic and Bearer are \
                 supported"
            );
            return Err(login_failure(CommandCode::RegistryLoginUnknown, detail));
        }
        match known {
            CredentialSource::Credentials(credentials) => basic(&credentials),
            CredentialSource::Nothing => Err(login_missing(&origin)),
            CredentialSource::Unusable(why) => Err(login_unusable(&origin, &why)),
        }
    }

    /// The failure of a login that the registry refused.
    pub(super) fn refused(&self, registry: &Url) -> Failure {
        let origin = registry.origin().ascii_serialization();
        match self.find_credentials(registry) {
            CredentialSource::Credentials(credentials) => {
                login_failure(REFUSED, format!("{origin} rejected {credentials:?}")).hint(
                    "check the user name, the password and the user's permissions in the \
                     repository",
                )
            }
            CredentialSource::Nothing => login_missing(&origin),
            CredentialSource::Unusable(why) => login_unusable(&origin, &why),
        }
    }
}

fn login_missing(origin: &str) -> Failure {
    let detail = format!("{origin} requires a login, but no credentials are configured");
    login_failure(CommandCode::RegistryLoginMissing, detail).hint(HINT)
}

fn login_unusable(origin: &str, why: &str) -> Failure {
    login_failure(CommandCode::RegistryLoginUnusable, format!("{origin} requires a login: {why}"))
        .hint(HINT)
}

fn login_failure(code: CommandCode, detail: impl Into<String>) -> Failure {
    Failure::new(Exit::Refused, code, detail)
}

/// Whether the host of a URL is this machine.
fn is_loopback(url: &Url) -> bool {
    is_loopback_host(url.host_str().unwrap_or_default())
}

fn basic(credentials: &Credentials) -> Result<HeaderValue, Failure> {
    let Credentials { user, password, .. } = credentials;
    let pair = SecretText::from(format!("{user}:{}", password.expose()));
    header(format!("Basic {}", BASE64.encode(pair.expose())))
}

fn header(text: String) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::try_from(text).map_err(|_| {
        login_failure(
            CommandCode::RegistryLoginUnusable,
            "the credentials cannot be sent in an HTTP header",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

/// Requests a token from the realm; without credentials an anonymous one, for public repositories.
async fn token(
    registry: &Url,
    challenge: &Challenge,
    known: Option<&Credentials>,
) -> Result<HeaderValue, Failure> {
    let named = |name: &str| challenge.parameters.get(name).map(String::as_str);
    let realm = named("realm").unwrap_or_default();
    let unsafe_realm = |why: &str| {
        login_failure(
            CommandCode::RegistryLoginUnsafe,
            format!("the registry sends logins to {realm:?}, {why}"),
        )
    };
    let mut url = Url::parse(realm).map_err(|_| unsafe_realm("which is not a URL"))?;
    let fits = url.scheme() == "https"
        || (url.scheme() == "http" && is_loopback(&url) && is_loopback(registry));
    if !fits {
        return Err(unsafe_realm("which does not use TLS"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(unsafe_realm("which contains a user name"));
    }
    for name in ["service", "scope"] {
        if let Some(value) = named(name) {
            url.query_pairs_mut().append_pair(name, value);
        }
    }
    let mut request = client(&url, true)?.get(url.clone());
    if let Some(credentials) = known {
        request = request.header(AUTHORIZATION, basic(credentials)?);
    }
    let origin = url.origin().ascii_serialization();
    let mut answer = request.send().await.map_err(|error| unreachable_failure(&url, error))?;
    let status = answer.status();
    if !status.is_success() {
        let who = known.map_or_else(|| "an anonymous client".to_owned(), |one| format!("{one:?}"));
        let detail = format!("{origin} issued no token to {who}: HTTP {status}");
        return Err(login_failure(REFUSED, detail).hint(HINT));
    }
    let mut text = Vec::new();
    while let Some(chunk) =
        answer.chunk().await.map_err(|error| unreachable_failure(&url, error))?
    {
        text.extend_from_slice(&chunk);
        if text.len() as u64 > MAX_SMALL_BYTES {
            let detail = format!("the response of {origin} exceeds {MAX_SMALL_BYTES} bytes");
            return Err(login_failure(REFUSED, detail));
        }
    }
    let given: Option<TokenAnswer> = serde_json::from_slice(&text).ok();
    let token =
        given.map(|given| if given.token.is_empty() { given.access_token } else { given.token });
    let token = token.filter(|token| !token.is_empty()).ok_or_else(|| {
        login_failure(REFUSED, format!("the response of {origin} contains no token"))
    })?;
    header(format!("Bearer {token}"))
}

/// One way in that a registry offers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Challenge {
    /// In small letters.
    scheme: String,
    parameters: BTreeMap<String, String>,
}

fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let texts = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(parse).collect()
}

/// A list of challenges (RFC 9110, section 11.6.1). What is no challenge is left out.
fn parse(text: &str) -> Vec<Challenge> {
    let mut found: Vec<Challenge> = Vec::new();
    let mut rest = text.trim_start_matches([' ', ',']);
    while !rest.is_empty() {
        let end = rest.find(['=', ' ', ',']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if let Some(value) = after.strip_prefix('=') {
            let (value, left) = value_of(value);
            if let Some(last) = found.last_mut() {
                last.parameters.insert(word.to_ascii_lowercase(), value);
            }
            rest = left;
        } else {
            found.push(Challenge { scheme: word.to_ascii_lowercase(), ..Challenge::default() });
            rest = after;
        }
        rest = rest.trim_start_matches([' ', ',']);
    }
    found
}

/// A token or a quoted string, and what comes after it.
fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(letters.next().map(|(_, escaped)| escaped)),
            plain => value.push(plain),
        }
    }
    (value, "")
}

/// Docker's `config.json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
    #[serde(default)]
    creds_store: String,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct Auth {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    identitytoken: String,
}

fn docker_credentials(file: &PathBuf, registry: &Url) -> CredentialSource {
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return CredentialSource::Nothing;
        }
        Err(error) => return CredentialSource::Unusable(format!("{}: {error}", file.display())),
    };
    let config: DockerConfig = match serde_json::from_slice(&text) {
        Ok(config) => config,
        // The error's text may quote the file.
        Err(error) => {
            let (line, file) = (error.line(), file.display());
            return CredentialSource::Unusable(format!(
                "{file} is not a valid Docker config.json: error in line {line}"
            ));
        }
    };
    credentials_in(&config, file, registry)
}

fn credentials_in(config: &DockerConfig, file: &Path, registry: &Url) -> CredentialSource {
    let host = registry.host_str().unwrap_or_default();
    let host = if HUB.0.contains(&host) { HUB.1 } else { host };
    let name = registry.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let is_it = |key: &str| names_registry(key, &name, registry);
    let file = file.display();
    let helper = |helper: &str| {
        CredentialSource::Unusable(format!(
            "{file} uses the credential helper {helper:?}: credential helpers are not supported"
        ))
    };
    if let Some((_, named)) = config.cred_helpers.iter().find(|(key, _)| is_it(key)) {
        return helper(named);
    }
    let kept = config.auths.iter().find(|(key, _)| is_it(key)).map(|(_, auth)| auth);
    let own = kept.and_then(credentials_of);
    match (own, kept) {
        (Some((user, password)), _) => {
            let (password, from) = (password.into(), file.to_string());
            CredentialSource::Credentials(Credentials { user, password, from })
        }
        (None, _) if !config.creds_store.is_empty() => helper(&config.creds_store),
        (None, Some(auth)) if !auth.identitytoken.is_empty() => CredentialSource::Unusable(
            format!("{file} has an identity token for {name} but no password"),
        ),
        (None, Some(_)) => CredentialSource::Unusable(format!(
            "the entry for {name} in {file} is not a valid login"
        )),
        (None, None) => CredentialSource::Nothing,
    }
}

/// Whether a key of `auths` means this registry: its host and port, as such or in a URL of its API.
fn names_registry(key: &str, name: &str, registry: &Url) -> bool {
    let (scheme, rest) = key.split_once("://").map_or((None, key), |(s, rest)| (Some(s), rest));
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let usual = if registry.scheme() == "https" { ":443" } else { ":80" };
    scheme.is_none_or(|scheme| scheme == registry.scheme())
        && host.strip_suffix(usual).unwrap_or(host).eq_ignore_ascii_case(name)
        && matches!(path.trim_end_matches('/'), "" | "v1" | "v2")
}

fn credentials_of(auth: &Auth) -> Option<(String, String)> {
    if !auth.username.is_empty() && !auth.password.is_empty() {
        return Some((auth.username.clone(), auth.password.clone()));
    }
    let text = String::from_utf8(BASE64.decode(auth.auth.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    let password = password.trim_end_matches('\0');
    (!user.is_empty() && !password.is_empty()).then(|| (user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn known(config: serde_json::Value, registry: &str) -> CredentialSource {
        let config = serde_json::from_value(config).unwrap();
        credentials_in(&config, Path::new("c.json"), &url(registry))
    }

    fn user(config: serde_json::Value, registry: &str) -> Option<String> {
        match known(config, registry) {
            CredentialSource::Credentials(one) => {
                Some(format!("{}:{}", one.user, one.password.expose()))
            }
            _ => None,
        }
    }

    #[test]
    fn challenges_are_read_as_the_specification_writes_them() {
        let one = parse(
            r#"Bearer realm="https://auth.example/token",service="registry, \"ours\"",scope="repository:a/b:pull,push""#,
        );
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].scheme, "bearer");
        assert_eq!(one[0].parameters["realm"], "https://auth.example/token");
        assert_eq!(one[0].parameters["service"], "registry, \"ours\"");
        assert_eq!(one[0].parameters["scope"], "repository:a/b:pull,push");
        let two = parse("BASIC realm=x, Bearer realm=\"y\"");
        let schemes: Vec<&str> = two.iter().map(|one| one.scheme.as_str()).collect();
        assert_eq!(schemes, ["basic", "bearer"]);
        assert_eq!(two[1].parameters["realm"], "y");
        assert_eq!(parse("Negotiate")[0].scheme, "negotiate");
        for odd in ["", ",", "=", "=x", "\"", "Bearer realm=\"open", "Bearer =,=,", "a b c"] {
            parse(odd);
        }
    }

    #[test]
    fn dockers_file_is_read_for_this_registry_alone() {
        let auth = BASE64.encode("ann:pa:ss");
        let file = |key: &str| json!({ "auths": { key: { "auth": auth } } });
        for key in ["r.example", "https://r.example", "https://r.example/v2/", "R.example:443"] {
            assert_eq!(
                user(file(key), "https://r.example/").as_deref(),
                Some("ann:pa:ss"),
                "{key}"
            );
        }
        for key in [
            "r.example.evil",
            "evil.r.example",
            "r.example:5000",
            "http://r.example",
            "r.example/team",
            "example",
            "",
        ] {
            assert_eq!(known(file(key), "https://r.example/"), CredentialSource::Nothing, "{key}");
        }
        assert_eq!(
            user(file("127.0.0.1:5000"), "http://127.0.0.1:5000").as_deref(),
            Some("ann:pa:ss")
        );
        let hub = file("https://index.docker.io/v1/");
        assert!(user(hub, "https://registry-1.docker.io/").is_some());
        let apart = json!({ "auths": { "r.example": { "username": "ann", "password": "x" } } });
        assert_eq!(user(apart, "https://r.example/").as_deref(), Some("ann:x"));
    }

    #[test]
    fn what_a_helper_keeps_is_said_and_not_fetched() {
        let of = |config| match known(config, "https://r.example/") {
            CredentialSource::Unusable(why) => why,
            other => format!("{other:?}"),
        };
        let store = of(json!({ "auths": { "r.example": {} }, "credsStore": "desktop" }));
        assert!(store.contains("credential helper \"desktop\""), "{store}");
        let helper = of(json!({ "credHelpers": { "r.example": "gcr" } }));
        assert!(helper.contains("credential helper \"gcr\""), "{helper}");
        assert_eq!(of(json!({ "credHelpers": { "other.example": "gcr" } })), "Nothing");
        let token = of(json!({ "auths": { "r.example": { "identitytoken": "x" } } }));
        assert!(token.contains("identity token"), "{token}");
        let broken = of(json!({ "auths": { "r.example": { "auth": "%" } } }));
        assert!(broken.contains("not a valid login"), "{broken}");
    }

    #[test]
    fn a_password_is_not_printed() {
        let (user, password) = ("ann".to_owned(), "secret".into());
        let one = Credentials { user, password, from: "f".to_owned() };
        assert!(!format!("{one:?} {:?}", basic(&one).unwrap()).contains("secret"));
        assert!(!format!("{:?}", basic(&one).unwrap()).contains(&BASE64.encode("ann:secret")));
    }

    #[test]
    fn only_this_machine_is_here() {
        for here in
            ["http://127.0.0.1:5000", "http://localhost/", "http://[::1]:5/", "http://127.9.9.9"]
        {
            assert!(is_loopback(&url(here)), "{here}");
        }
        for there in ["http://10.0.0.1", "http://localhost.evil", "http://127.0.0.1.evil/"] {
            assert!(!is_loopback(&url(there)), "{there}");
        }
    }
}
