//! `gpuaas image upload`: a finished archive into a site's region.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gpuaas_bundle::Envelope;
use gpuaas_client::ApiClient;
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::output;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_image::lineage::UPLOAD_PREDICATE;
use gpuaas_image::lint::{ImageFileType, ImageVerdict, LintOptions};
use gpuaas_types::codes::{CommandCode, ProblemCode};
use gpuaas_types::image::{ImageRecordRequest, ImageState};
use maas_client::{ApiKey, Client, Config};
use maas_upload::{
    StateFile, UploadClock, UploadError, UploadProgress, UploadReport, UploadRequest, build_name,
    digest_of, pinned, upload,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::lint;
use super::report::json as printed_json;
use super::statement::write_statement;
use crate::args::{ImageUploadArgs, RegionArgs};
use crate::input_file::{read_file, read_secret};

/// Bytes between two lines of progress.
const LINE_BYTES: u64 = 1 << 28;

/// What `gpuaas image upload --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ImageUploadReport {
    /// Site whose region has it.
    pub(super) site: String,
    /// Name in MAAS; a profile names it as `custom/NAME`.
    pub(super) name: String,
    /// Id in MAAS.
    pub(super) resource_id: u64,
    /// SHA-256 of the file, read back from the region.
    pub(super) sha256: String,
    /// Length of the file in bytes.
    pub(super) size_bytes: u64,
    /// Bytes that this call sent.
    pub(super) sent_bytes: u64,
    /// Pieces without an answer.
    pub(super) cuts: u64,
    /// How often it went on from what the region had.
    pub(super) resumes: u64,
    /// How often it began anew.
    pub(super) restarts: u64,
    /// Seconds that it took.
    pub(super) seconds: f64,
}

/// What is uploaded as what.
#[derive(Debug, Clone)]
pub(super) struct ImageUpload<'a> {
    /// The archive.
    pub(super) file: PathBuf,
    /// Name of the site.
    pub(super) site: String,
    /// Name in MAAS, to which day and digest are added.
    pub(super) base_name: String,
    /// Title that MAAS shows.
    pub(super) title: String,
    /// Architecture in MAAS' words.
    pub(super) architecture: String,
    /// MAAS' file type.
    pub(super) file_type: String,
    /// Image of MAAS that it counts as.
    pub(super) base_image: String,
    /// Hosts of apt sources that a deploy may ask, beside the distribution's own.
    pub(super) allowed_sources: Vec<String>,
    /// Why it is uploaded although the lint finds errors in it.
    pub(super) lint_waiver: Option<String>,
    /// Where the region is, and who uploads.
    pub(super) region: &'a RegionArgs,
}

/// Uploads a file.
///
/// # Errors
/// What is wrong with the file, this machine, or the region.
pub(super) async fn run(args: &ImageUploadArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let wanted = ImageUpload {
        file: args.file.clone(),
        site: args.site.clone(),
        base_name: args.name.clone().unwrap_or_else(|| stem(&args.file)),
        title: args.title.clone().unwrap_or_default(),
        architecture: args.architecture.clone(),
        file_type: args.file_type.clone(),
        base_image: args.base_image.clone(),
        allowed_sources: args.allowed_sources.clone(),
        lint_waiver: args.lint_waiver.clone(),
        region: &args.region,
    };
    let report = send(&wanted, terminal).await?;
    if let Some(key) = &args.sign_key {
        let predicate = json!({
            "passed": true,
            "site": report.site,
            "name": report.name,
            "maas_id": report.resource_id,
            "size_bytes": report.size_bytes,
            "read_back_sha256": report.sha256,
            "actor": args.region.who.actor,
        });
        let kind = (format!("{}.upload", args.site), UPLOAD_PREDICATE);
        let written =
            write_statement(&args.file, (&kind.0, kind.1), key, (&report.sha256, &predicate))?;
        terminal.message(&format!("wrote the signed statement {}", written.display()));
    }
    print(&report, args.json, terminal)
}

/// Prints what was done.
///
/// # Errors
/// When stdout cannot be written.
pub(super) fn print(
    report: &ImageUploadReport,
    as_json: bool,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    if as_json {
        return terminal.data(&printed_json(report)?);
    }
    terminal.data(&output::fields(&[
        ("site", report.site.clone()),
        ("name", format!("custom/{}", report.name)),
        ("id", report.resource_id.to_string()),
        ("sha256", report.sha256.clone()),
        ("size", format!("{} bytes", report.size_bytes)),
        ("sent", format!("{} bytes, {} cuts", report.sent_bytes, report.cuts)),
    ]))
}

/// Uploads, and reads it back.
///
/// # Errors
/// As [`run`].
pub(super) async fn send(
    wanted: &ImageUpload<'_>,
    terminal: &mut Terminal,
) -> Result<ImageUploadReport, Failure> {
    let image = File::open(&wanted.file).map_err(|error| {
        let detail = format!("{}: {error}", wanted.file.display());
        upload_failure(&UploadError::Source(std::io::Error::other(detail)))
    })?;
    let state = StateFile::open(&wanted.file, &wanted.site);
    let state = state.map_err(|error| upload_failure(&error))?;
    let earlier = state.read().map_err(|error| upload_failure(&error))?;
    let config = region_config(wanted).await?;
    let address = earlier.as_ref().and_then(|state| state.address.as_deref());
    let config = pinned(config, address).map_err(|error| region_failure(&error))?;
    let region_url = config.base_url.clone();
    let address = config.address.map(|address| address.to_string());
    let now = Arc::new(|| RealClock.now().as_micros() / 1_000_000);
    let client = Client::new(&config, now).map_err(|error| region_failure(&error))?;
    // A key that the region refuses is told now, and not after minutes of reading the file.
    client.whoami().await.map_err(|error| region_failure(&error))?;
    let verdict = verdict(wanted, terminal)?;
    let name = match earlier.filter(|state| state.uploaded_at_seconds.is_none()) {
        // Begun on another day.
        Some(state) => state.name,
        None => {
            let digest = digest_of(&image).map_err(UploadError::Source);
            let digest = digest.map_err(|error| upload_failure(&error))?;
            let day = RealClock.now().to_chrono().format("%Y%m%d").to_string();
            build_name(&wanted.base_name, &day, &digest.sha256)
        }
    };
    let request = UploadRequest {
        name,
        title: wanted.title.clone(),
        architecture: wanted.architecture.clone(),
        filetype: wanted.file_type.clone(),
        base_image: wanted.base_image.clone(),
        region_url,
        address,
        actor: wanted.region.who.actor.clone(),
        start_over: wanted.region.start_over,
        free_bytes: free_bytes(&wanted.file),
    };
    let mut next_line = LINE_BYTES;
    let mut observe = |progress: UploadProgress| {
        if progress.acknowledged_bytes >= next_line {
            next_line = progress.acknowledged_bytes + LINE_BYTES;
            terminal.message(&format!(
                "{} of {} MiB, {} cuts",
                progress.acknowledged_bytes >> 20,
                progress.size_bytes >> 20,
                progress.cuts
            ));
        }
    };
    let report = upload(&client, &image, &state, &WallClock, &request, &mut observe).await;
    let report = printed(&wanted.site, report.map_err(|error| upload_failure(&error))?);
    record(wanted, &report, verdict.as_ref(), terminal).await;
    Ok(report)
}

/// What the lint finds in the file; none: it knows no file of this type.
///
/// # Errors
/// `image_unreadable`; `image_faulty` where there is an error, and no reason to upload it all the same.
fn verdict(
    wanted: &ImageUpload<'_>,
    terminal: &mut Terminal,
) -> Result<Option<(ImageVerdict, ImageFileType)>, Failure> {
    let Some(file_type) = ImageFileType::find(&wanted.file_type) else {
        let name = &wanted.file_type;
        terminal.message(&format!(
            "cannot check files of type {name}; approving the image will need a reason"
        ));
        return Ok(None);
    };
    let is_disk = file_type != ImageFileType::Tgz;
    let options = LintOptions {
        file_type,
        // Which layout machines get is not known here; for a disk there is one that works.
        storage_layout: if is_disk { "none" } else { "flat" }.to_owned(),
        architecture: wanted.architecture.split('/').next().unwrap_or_default().to_owned(),
        excused_sources: wanted.allowed_sources.clone(),
        ..LintOptions::default()
    };
    let verdict = lint::judged(&wanted.file, &options)?;
    match (lint::faulty(&wanted.file, &verdict), &wanted.lint_waiver) {
        (Err(failure), None) => {
            return Err(failure.hint(
                "run `gpuaas image lint FILE` to see each fix, or upload the image with \
                 `--lint-waiver WHY`",
            ));
        }
        (Err(failure), Some(reason)) => {
            terminal.message(&format!("{failure}; uploading anyway: {reason}"));
        }
        (Ok(()), _) => {}
    }
    Ok(Some((verdict, file_type)))
}

/// Has the control plane know the upload. It is there in any case: what is not written down now, `image
/// approve` writes down as the region has it.
async fn record(
    wanted: &ImageUpload<'_>,
    report: &ImageUploadReport,
    verdict: Option<&(ImageVerdict, ImageFileType)>,
    terminal: &mut Terminal,
) {
    if wanted.region.maas_url.is_some() {
        return;
    }
    let body = ImageRecordRequest {
        name: report.name.clone(),
        site: report.site.clone(),
        state: ImageState::Uploaded,
        sha256: report.sha256.clone(),
        size_bytes: report.size_bytes,
        resource_id: Some(report.resource_id),
        parents: parents(&wanted.file),
        actor: wanted.region.who.actor.clone(),
    };
    let actor = &wanted.region.who.actor;
    let judged = verdict.map(|(verdict, file_type)| {
        lint::verdict_request(&report.site, &report.sha256, (verdict, *file_type), actor)
    });
    let recorded = match ApiClient::connect(&wanted.region.connection) {
        Ok(client) => {
            let told = match &judged {
                Some(judged) => client.record_image_verdict(judged).await.map(drop),
                None => Ok(()),
            };
            match told {
                Ok(()) => client.record_image(&body).await,
                Err(failure) => Err(failure),
            }
        }
        Err(failure) => Err(failure),
    };
    if let Err(failure) = recorded {
        let name = &report.name;
        if failure.code() == ProblemCode::ImageTransitionRefused.as_str() {
            // The same file was uploaded before, and its record is past that.
            terminal.message(&format!(
                "the control plane already has a record of this image: see `gpuaas image show \
                 {name} --site {}`",
                report.site
            ));
            return;
        }
        terminal.message(&format!(
            "the control plane did not record the upload ({}): `gpuaas image approve {name} \
             --site {} --reason WHY` records it, too",
            failure.code(),
            report.site
        ));
    }
}

/// What an archive was built on, as the statement of provenance beside it says (`image sign`).
fn parents(file: &Path) -> Vec<String> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".intoto.json");
    let statement = std::fs::read(Path::new(&beside)).ok().and_then(|text| {
        let envelope = Envelope::parse(&text).ok()?;
        let payload = BASE64.decode(&envelope.payload).ok()?;
        serde_json::from_slice::<Value>(&payload).ok()
    });
    let statement = statement.unwrap_or_default();
    let named = &statement["predicate"]["buildDefinition"]["resolvedDependencies"];
    let digests = named.as_array().into_iter().flatten();
    let digests = digests.filter_map(|one| one["digest"]["sha256"].as_str());
    digests.filter(|digest| digest.len() == 64).take(64).map(str::to_owned).collect()
}

fn printed(site: &str, report: UploadReport) -> ImageUploadReport {
    ImageUploadReport {
        site: site.to_owned(),
        name: report.name,
        resource_id: report.resource_id,
        sha256: report.sha256,
        size_bytes: report.size_bytes,
        sent_bytes: report.sent_bytes,
        cuts: report.cuts,
        resumes: report.resumes,
        restarts: report.restarts,
        seconds: report.seconds,
    }
}

/// The region of a site: its URL from the control plane, unless the command line has it. The control
/// plane has the site's key sealed and gives it to nobody, so the key is a file.
async fn region_config(wanted: &ImageUpload<'_>) -> Result<Config, Failure> {
    let args = wanted.region;
    let key = read_secret(&args.maas_key_file)?;
    let key: ApiKey = key.expose().parse().map_err(|error| region_failure(&error))?;
    let (url, ca) = match &args.maas_url {
        Some(url) => (url.clone(), None),
        None => {
            let site = ApiClient::connect(&args.connection)?.site(&wanted.site).await?;
            (site.spec.url, site.spec.ca_pem)
        }
    };
    let named = args.maas_ca_file.as_deref().map(read_file).transpose()?;
    let mut config = Config::new(url, key);
    config.extra_ca_pem = named.or(ca).map(String::into_bytes);
    Ok(config)
}

/// The name of the file without what says how it is packed.
fn stem(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let ends = [".tar.gz", ".tgz", ".tar.xz", ".gz", ".raw", ".img"];
    ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name).to_owned()
}

/// Free bytes of the disk that a file is on.
fn free_bytes(file: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(file).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

fn upload_failure(error: &UploadError) -> Failure {
    Failure::coded(Exit::Local, error.code(), "The image was not uploaded", error.to_string())
        .hint(error.hint())
}

fn region_failure(error: &maas_client::Error) -> Failure {
    Failure::local(CommandCode::ImageUploadRefused, error.to_string())
        .hint("check --maas-url and --api-key-file, which holds CONSUMER:TOKEN:SECRET; `gpuaas doctor` checks the regions of all sites")
}

/// The wall clock, for an upload.
struct WallClock;

#[async_trait]
impl UploadClock for WallClock {
    fn unix_seconds(&self) -> f64 {
        RealClock.now().seconds_since(gpuaas_types::Timestamp::from_micros(0))
    }

    async fn wait(&self, time: Duration) {
        let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let now = RealClock.now().as_micros();
        let at = gpuaas_types::Timestamp::from_micros(now.saturating_add(micros));
        RealClock.sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_that_of_the_file() {
        for (file, name) in [("/x/h200.tar.gz", "h200"), ("h200.tgz", "h200"), ("h200", "h200")] {
            assert_eq!(stem(Path::new(file)), name);
        }
    }
}
