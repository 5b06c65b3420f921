//! Bundles in an OCI registry: a standard artifact (OCI image manifest 1.1 with an `artifactType`,
//! an empty config, the archive and its signature as layers), pushed and pulled with the calls of
//! the distribution specification 1.1. Any registry serves it. Every blob and manifest is checked
//! against its digest; whether a bundle is trusted is decided by its signature, as everywhere.

mod http;
mod login;

use std::sync::{Mutex, PoisonError};

use gpuaas_bundle::archive::MAX_ARCHIVE_BYTES;
use gpuaas_bundle::{Digest, Manifest};
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_types::codes::CommandCode;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};

use http::{MAX_SMALL_BYTES, client, unreachable_failure};
pub(super) use login::Login;

const ARTIFACT_TYPE: &str = "application/vnd.gpuaas.bundle.v1";
const ARCHIVE_TYPE: &str = "application/vnd.gpuaas.bundle.v1.tar";
const SIGNATURE_TYPE: &str = "application/vnd.dsse.envelope.v1+json";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
const EMPTY: &[u8] = b"{}";
const TITLE: &str = "org.opencontainers.image.title";

/// A repository of a registry, with the tag or digest of one artifact in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OciReference {
    /// The registry's root, `http://HOST:PORT`.
    base: Url,
    /// The repository's name in the registry, such as `gpuaas/h200-ib`.
    repository: String,
    /// Tag or digest; none: the bundle's version.
    reference: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OciManifest {
    schema_version: u32,
    media_type: String,
    #[serde(default)]
    artifact_type: String,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    annotations: std::collections::BTreeMap<String, String>,
}

fn descriptor(media_type: &str, bytes: &[u8], title: Option<String>) -> Descriptor {
    Descriptor {
        media_type: media_type.to_owned(),
        digest: format!("sha256:{}", Digest::sha256(bytes)),
        size: bytes.len() as u64,
        annotations: title.into_iter().map(|title| (TITLE.to_owned(), title)).collect(),
    }
}

fn registry_refused(detail: impl Into<String>) -> Failure {
    Failure::new(Exit::Refused, CommandCode::RegistryRefused, detail)
}

fn artifact_refused(detail: impl Into<String>) -> Failure {
    Failure::new(Exit::Refused, CommandCode::RegistryArtifactRefused, detail)
}

/// A part of a repository's name (distribution specification, section "Pulling manifests").
fn is_component(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.bytes().all(|b| plain(b) || b"._-".contains(&b))
        && text.bytes().next().is_some_and(plain)
        && text.bytes().last().is_some_and(plain)
}

fn is_tag(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && !text.starts_with(['.', '-'])
}

/// The tag of a version: a tag has no plus.
fn tag_of(version: &str) -> String {
    version.replace('+', "_")
}

impl std::str::FromStr for OciReference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = "expected http://HOST:PORT/REPOSITORY, with optional :TAG or @sha256:DIGEST";
        let (text, digest) = match text.split_once("@sha256:") {
            Some((text, digest)) => {
                let digest: Digest = digest.parse().map_err(|e| format!("{e}; {form}"))?;
                (text, Some(format!("sha256:{digest}")))
            }
            None => (text, None),
        };
        let mut base = Url::parse(text).map_err(|error| format!("{error}; {form}"))?;
        if !matches!(base.scheme(), "http" | "https") || base.query().is_some() {
            return Err(form.to_owned());
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err("the URL contains a login: use --registry-user instead".to_owned());
        }
        let path = base.path().trim_matches('/').to_owned();
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository.to_owned(), Some(tag.to_owned())),
            None => (path, None),
        };
        if !repository.split('/').all(is_component) || tag.as_deref().is_some_and(|t| !is_tag(t)) {
            return Err(form.to_owned());
        }
        base.set_path("/");
        Ok(Self { base, repository, reference: digest.or(tag) })
    }
}

/// Client of one repository of a registry.
pub(super) struct Registry {
    reference: OciReference,
    http: reqwest::Client,
    login: Login,
    /// `Authorization` header that the registry accepted last.
    authorization: Mutex<Option<HeaderValue>>,
}

/// A bundle as it was pulled.
pub(super) struct PulledBundle {
    /// The archive.
    pub(super) archive: Vec<u8>,
    /// Its signature; none: it was pushed without.
    pub(super) signature: Option<Vec<u8>>,
}

impl Registry {
    pub(super) fn new(reference: OciReference, login: Login) -> Result<Self, Failure> {
        let http = client(&reference.base, false)?;
        Ok(Self { reference, http, login, authorization: Mutex::default() })
    }

    /// Pushes a bundle; answers the digest of its OCI manifest.
    pub(super) async fn push(
        &self,
        manifest: &Manifest,
        archive: &[u8],
        signature: Option<&[u8]>,
    ) -> Result<String, Failure> {
        let file = format!("{}-{}.tar", manifest.name, manifest.version);
        let mut layers = vec![descriptor(ARCHIVE_TYPE, archive, Some(file.clone()))];
        let mut blobs = vec![EMPTY, archive];
        if let Some(signature) = signature {
            layers.push(descriptor(SIGNATURE_TYPE, signature, Some(format!("{file}.sig"))));
            blobs.push(signature);
        }
        for blob in blobs {
            self.push_blob(blob).await?;
        }
        let body = OciManifest {
            schema_version: 2,
            media_type: MANIFEST_TYPE.to_owned(),
            artifact_type: ARTIFACT_TYPE.to_owned(),
            config: descriptor(EMPTY_TYPE, EMPTY, None),
            layers,
        };
        let body =
            serde_json::to_vec(&body).map_err(|error| registry_refused(error.to_string()))?;
        let digest = format!("sha256:{}", Digest::sha256(&body));
        let tag = self.reference.reference.clone().unwrap_or_else(|| tag_of(&manifest.version));
        let url = self.url(&["manifests", &tag])?;
        let request = self.http.put(url).header(CONTENT_TYPE, MANIFEST_TYPE).body(body);
        self.send(request, &[StatusCode::CREATED]).await?;
        Ok(digest)
    }

    async fn push_blob(&self, bytes: &[u8]) -> Result<(), Failure> {
        let digest = format!("sha256:{}", Digest::sha256(bytes));
        let there = self.http.head(self.url(&["blobs", &digest])?);
        let there = self.send(there, &[StatusCode::OK, StatusCode::NOT_FOUND]).await?;
        if there.status() == StatusCode::OK {
            return Ok(());
        }
        let mut begin = self.url(&["blobs", "uploads"])?;
        begin.set_path(&format!("{}/", begin.path()));
        let begun = self.send(self.http.post(begin), &[StatusCode::ACCEPTED]).await?;
        let location = begun.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let location =
            location.ok_or_else(|| registry_refused("the registry returned no upload location"))?;
        let mut url =
            self.reference.base.join(location).map_err(|e| registry_refused(e.to_string()))?;
        if url.origin() != self.reference.base.origin() {
            return Err(registry_refused(format!(
                "the registry redirects uploads to another origin, {}",
                url.origin().ascii_serialization()
            )));
        }
        url.query_pairs_mut().append_pair("digest", &digest);
        let put = self.http.put(url).header(CONTENT_TYPE, "application/octet-stream");
        self.send(put.body(bytes.to_vec()), &[StatusCode::CREATED]).await.map(drop)
    }

    /// Pulls a bundle.
    pub(super) async fn pull(&self) -> Result<PulledBundle, Failure> {
        let reference = self.reference.reference.as_deref().ok_or_else(|| {
            Failure::usage(
                CommandCode::RegistryReferenceMissing,
                "the reference has no tag or digest",
            )
            .hint("append :VERSION or @sha256:DIGEST to the repository")
        })?;
        let request =
            self.http.get(self.url(&["manifests", reference])?).header(ACCEPT, MANIFEST_TYPE);
        let text = self.read_body(request, MAX_SMALL_BYTES).await?;
        let seen = format!("sha256:{}", Digest::sha256(&text));
        if reference.starts_with("sha256:") && seen != reference {
            return Err(artifact_refused(format!(
                "the manifest has digest {seen}, expected {reference}"
            )));
        }
        let manifest: OciManifest =
            serde_json::from_slice(&text).map_err(|error| artifact_refused(error.to_string()))?;
        let layer = |media_type: &str| manifest.layers.iter().find(|l| l.media_type == media_type);
        let archive = layer(ARCHIVE_TYPE).filter(|_| manifest.artifact_type == ARTIFACT_TYPE);
        let archive = archive.ok_or_else(|| {
            artifact_refused(format!(
                "the artifact has type {:?}, expected {ARTIFACT_TYPE}",
                manifest.artifact_type
            ))
        })?;
        let signature = match layer(SIGNATURE_TYPE) {
            Some(signature) => Some(self.pull_blob(signature, MAX_SMALL_BYTES).await?),
            None => None,
        };
        Ok(PulledBundle { archive: self.pull_blob(archive, MAX_ARCHIVE_BYTES).await?, signature })
    }

    async fn pull_blob(&self, wanted: &Descriptor, most: u64) -> Result<Vec<u8>, Failure> {
        if wanted.size > most {
            return Err(artifact_refused(format!(
                "{} bytes, at most {most} are allowed",
                wanted.size
            )));
        }
        let request = self.http.get(self.url(&["blobs", &wanted.digest])?);
        let bytes = self.read_body(request, wanted.size).await?;
        let seen = format!("sha256:{}", Digest::sha256(&bytes));
        if seen == wanted.digest {
            return Ok(bytes);
        }
        Err(artifact_refused(format!("the content has digest {seen}, expected {}", wanted.digest)))
    }

    async fn read_body(&self, request: RequestBuilder, most: u64) -> Result<Vec<u8>, Failure> {
        let mut response = self.send(request, &[StatusCode::OK]).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(error))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > most {
                return Err(artifact_refused(format!("more than {most} bytes")));
            }
        }
        Ok(bytes)
    }

    async fn send(
        &self,
        request: RequestBuilder,
        expected: &[StatusCode],
    ) -> Result<Response, Failure> {
        let again = request.try_clone();
        let mut response = self.send_authorized(request).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && let Some(again) = again
        {
            // A token is for a scope and a time, so an accepted one may be refused here.
            let answer = self.login.authorize(&self.reference.base, &response).await?;
            *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
            response = self.send_authorized(again).await?;
            if response.status() == StatusCode::UNAUTHORIZED {
                return Err(self.login.refused(&self.reference.base));
            }
        }
        let status = response.status();
        if expected.contains(&status) {
            return Ok(response);
        }
        let path = response.url().path().to_owned();
        let text = response.text().await.unwrap_or_default();
        let text: String =
            text.chars().filter(|c| !gpuaas_types::text::is_invisible(*c)).take(300).collect();
        Err(registry_refused(format!("HTTP {status} for {path}: {text}")))
    }

    /// Sends a request with the accepted login; every request is for the registry's own origin.
    async fn send_authorized(&self, mut request: RequestBuilder) -> Result<Response, Failure> {
        let authorization =
            self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.send().await.map_err(|error| self.unreachable(error))
    }

    fn unreachable(&self, error: reqwest::Error) -> Failure {
        unreachable_failure(&self.reference.base, error)
    }

    fn url(&self, path: &[&str]) -> Result<Url, Failure> {
        let mut url = self.reference.base.clone();
        let segments = url.path_segments_mut().map(|mut segments| {
            segments.clear().push("v2").extend(self.reference.repository.split('/')).extend(path);
        });
        segments.map(|()| url).map_err(|()| registry_refused("the registry URL is unusable"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_reference(text: &str) -> Result<OciReference, String> {
        text.parse()
    }

    #[test]
    fn places_are_read_with_tag_and_digest() {
        let plain = parse_reference("http://127.0.0.1:5000/gpuaas/h200-ib").unwrap();
        assert_eq!((plain.repository.as_str(), &plain.reference), ("gpuaas/h200-ib", &None));
        assert_eq!(plain.base.as_str(), "http://127.0.0.1:5000/");
        let tagged = parse_reference("https://registry.example/h200-ib:1.0.0").unwrap();
        assert_eq!(tagged.reference.as_deref(), Some("1.0.0"));
        let digest = "0".repeat(64);
        let exact = parse_reference(&format!("http://h/a@sha256:{digest}")).unwrap();
        assert_eq!(exact.reference, Some(format!("sha256:{digest}")));
        for bad in [
            "h200-ib",
            "ftp://h/a",
            "http://h/",
            "http://h/A",
            "http://h/a:..",
            "http://h/a@sha256:x",
            "http://ann:secret@h/a",
        ] {
            parse_reference(bad).unwrap_err();
        }
        assert_eq!(tag_of("1.0.0+site"), "1.0.0_site");
    }

    #[test]
    fn the_empty_config_is_the_specifications() {
        let digest = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(descriptor(EMPTY_TYPE, EMPTY, None).digest, digest);
    }
}
