//! The upload itself: announce, send, look up, wait, read back.
//!
//! One value holds all that is known; every way to go on begins with what the region says. Waiting is
//! the caller's clock's.

use std::time::Duration;

use bytes::BytesMut;
use maas_client::{
    AuthCause, BootResource, Client, Error as MaasError, NewBootResource, RefusalKind,
    UnknownCause, UploadTarget,
};

use crate::error::UploadError;
use crate::image_name::bare_name;
use crate::preflight::{PreflightFacts, check_preflight};
use crate::progress::{ChunkVerdict, judge, received_bytes, region_controllers};
use crate::request::{UploadClock, UploadProgress, UploadReport, UploadRequest};
use crate::retry::{RETRY_SECONDS, Retry, is_final};
use crate::source::{ImageDigest, ImageSource, digest_of};
use crate::state::{StateFile, UploadState};

/// Length of a piece in bytes; MAAS' own command line sends as much.
pub const CHUNK_BYTES: u64 = 4 << 20;
/// Shortest piece, for links that carry no more within the time that a signature counts.
const LEAST_CHUNK_BYTES: u64 = 64 << 10;
/// Seconds before each look for a piece without an answer. A region that a proxy gave up on may
/// still be writing it.
const SETTLE_SECONDS: [u64; 6] = [0, 1, 2, 4, 8, 15];
/// How long a region may be away, in seconds.
const PATIENCE_SECONDS: u64 = 1800;
/// Pieces in a row that did not arrive, after which an upload ends.
const MOST_FAILURES: u32 = 100;
/// How often an upload begins anew because the region discarded what it had: a region that starts
/// deletes every image that is not complete (docs/maas.md#uploading-images).
const MOST_DISCARDED: u32 = 5;
/// How long region controllers may copy what one of them has, in seconds.
const COPY_SECONDS: u64 = 3600;

/// Uploads an image, or goes on with an upload that was begun, and reads it back.
///
/// # Errors
/// [`UploadError`]; its hint says whether the next call goes on.
pub async fn upload(
    client: &Client,
    source: &dyn ImageSource,
    state_file: &StateFile,
    clock: &dyn UploadClock,
    request: &UploadRequest,
    observe: &mut (dyn FnMut(UploadProgress) + Send),
) -> Result<UploadReport, UploadError> {
    let begun = clock.unix_seconds();
    let digest = digest_of(source).map_err(UploadError::Source)?;
    if digest.size_bytes == 0 {
        return Err(UploadError::Empty);
    }
    let fresh = UploadState {
        region_url: request.region_url.clone(),
        address: request.address.clone(),
        name: bare_name(&request.name).to_owned(),
        sha256: digest.sha256.clone(),
        size_bytes: digest.size_bytes,
        actor: request.actor.clone(),
        ..UploadState::default()
    };
    let report = UploadReport {
        name: fresh.name.clone(),
        resource_id: 0,
        sha256: digest.sha256.clone(),
        size_bytes: digest.size_bytes,
        sent_bytes: 0,
        cuts: 0,
        resumes: 0,
        restarts: 0,
        seconds: 0.0,
    };
    let mut run = Upload {
        client,
        source,
        state_file,
        clock,
        request,
        observe,
        state: fresh,
        report,
        chunk_bytes: CHUNK_BYTES,
        buffer: BytesMut::new(),
        to_confirm: false,
        failures: 0,
    };
    run.adopt_state(&digest).await?;
    let mut discarded = 0;
    loop {
        if run.state.resource_id.is_none() {
            run.announce().await?;
        }
        match run.send_all().await {
            // No byte of it is left, so none can be wrong.
            Err(UploadError::Diverged { received: 0, expected, .. })
                if discarded < MOST_DISCARDED =>
            {
                tracing::info!(expected, "the region discarded the upload; starting again");
                discarded += 1;
                run.begin_anew().await?;
            }
            other => break other?,
        }
    }
    run.finish(begun).await
}

struct Upload<'a> {
    client: &'a Client,
    source: &'a dyn ImageSource,
    state_file: &'a StateFile,
    clock: &'a dyn UploadClock,
    request: &'a UploadRequest,
    observe: &'a mut (dyn FnMut(UploadProgress) + Send),
    state: UploadState,
    report: UploadReport,
    chunk_bytes: u64,
    /// Memory of the piece before, for the next one.
    buffer: BytesMut,
    /// A piece was sent again because it was absent; whether it arrived late shows next.
    to_confirm: bool,
    /// Pieces in a row that did not arrive.
    failures: u32,
}

/// The file of an image as the region shows it.
struct RegionFile {
    complete: bool,
    progress: f64,
    target: Option<UploadTarget>,
}

impl Upload<'_> {
    /// Takes up what an earlier call left.
    async fn adopt_state(&mut self, digest: &ImageDigest) -> Result<(), UploadError> {
        let Some(earlier) = self.state_file.read()? else { return Ok(()) };
        if earlier.region_url != self.state.region_url {
            let path = self.state_file.path().to_owned();
            let error = std::io::Error::other(format!("it is of {}", earlier.region_url));
            return Err(UploadError::State { path, error });
        }
        if self.request.start_over {
            return self.discard(&earlier).await;
        }
        let is_done = earlier.uploaded_at_seconds.is_some();
        if earlier.sha256 != digest.sha256 || earlier.size_bytes != digest.size_bytes {
            return match is_done {
                true => Ok(()),
                false => {
                    let (begun, found) = (earlier.sha256, digest.sha256.clone());
                    Err(UploadError::FileChanged { begun, found })
                }
            };
        }
        let id = match earlier.resource_id {
            Some(id) => self.find(|image| image.id == id).await?.map(|image| image.id),
            // Announced, and the process ended before an answer was kept.
            None => self.find_announced(&earlier.name).await?,
        };
        if let Some(id) = id {
            self.report.name.clone_from(&earlier.name);
            self.report.resumes += 1;
            self.state = UploadState { resource_id: Some(id), ..earlier };
        }
        Ok(())
    }

    /// Deletes what was begun, if it is not complete.
    async fn discard(&mut self, earlier: &UploadState) -> Result<(), UploadError> {
        let name = earlier.name.clone();
        let found = self.find(|image| bare_name(&image.name) == name).await?;
        let Some(found) = found.filter(|image| earlier.resource_id.is_none_or(|id| id == image.id))
        else {
            return Ok(());
        };
        let image = self.read_image(found.id).await?;
        if image.sets.values().all(|set| set.complete) {
            return Ok(());
        }
        let what = "delete the unfinished image";
        match self.client.delete_boot_resource(image.id).await {
            Ok(()) => {}
            // Deleting what is gone is a 500 of MAAS, so the list says what happened.
            Err(error) if error.may_have_happened() => {
                if self.find(|known| known.id == image.id).await?.is_some() {
                    return Err(UploadError::Refused { what, error });
                }
            }
            Err(error) => return Err(UploadError::Refused { what, error }),
        }
        self.report.restarts += 1;
        Ok(())
    }

    /// Forgets what was sent, so that it is announced and sent from its first byte.
    async fn begin_anew(&mut self) -> Result<(), UploadError> {
        let earlier = self.state.clone();
        self.discard(&earlier).await?;
        self.state = UploadState {
            resource_id: None,
            acknowledged_bytes: 0,
            in_flight_bytes: 0,
            controllers: None,
            ..earlier
        };
        (self.to_confirm, self.failures) = (false, 0);
        self.state_file.sync(&self.state)
    }

    /// Checks what has to hold, and has MAAS make the image.
    async fn announce(&mut self) -> Result<(), UploadError> {
        self.preflight().await?;
        self.state_file.sync(&self.state)?;
        let request = self.request;
        let new = NewBootResource {
            name: format!("custom/{}", self.state.name),
            title: Some(request.title.clone()).filter(|title| !title.is_empty()),
            architecture: request.architecture.clone(),
            filetype: Some(request.filetype.clone()),
            base_image: Some(request.base_image.clone()),
            sha256: self.state.sha256.clone(),
            size: self.state.size_bytes,
        };
        let what = "announce the image";
        let mut retry = Retry::new(PATIENCE_SECONDS);
        loop {
            match self.client.create_boot_resource(&new).await {
                Ok(image) => {
                    self.state.resource_id = Some(image.id);
                    return self.state_file.sync(&self.state);
                }
                Err(error) if is_final(&error) => return Err(UploadError::Refused { what, error }),
                Err(error) => {
                    if error.may_have_happened()
                        && let Some(id) = self.settle_announced().await?
                    {
                        self.state.resource_id = Some(id);
                        return self.state_file.sync(&self.state);
                    }
                    retry.wait(self.clock, what, &error).await?;
                }
            }
        }
    }

    async fn preflight(&mut self) -> Result<(), UploadError> {
        let what = "ask the region";
        let refused = |error| UploadError::Refused { what, error };
        let clock_offset_seconds = self.client.clock_offset_seconds().await.map_err(refused)?;
        let user = self.client.whoami().await.map_err(refused)?;
        let series =
            self.client.get_config("commissioning_distro_series").await.map_err(refused)?;
        let facts = PreflightFacts {
            clock_offset_seconds,
            user: user.username,
            is_administrator: user.is_superuser,
            commissioning_series: series.as_str().unwrap_or_default().to_owned(),
            images: self.client.boot_resources().await.map_err(refused)?,
            free_bytes: self.request.free_bytes,
            name: self.state.name.clone(),
            architecture: self.request.architecture.clone(),
            base_image: self.request.base_image.clone(),
        };
        let faults = check_preflight(&facts);
        if faults.is_empty() { Ok(()) } else { Err(UploadError::Preflight(faults)) }
    }

    /// The id of the image that was announced without an answer, looked for until it would be there.
    async fn settle_announced(&mut self) -> Result<Option<u64>, UploadError> {
        let name = self.state.name.clone();
        for seconds in SETTLE_SECONDS {
            self.clock.wait(Duration::from_secs(seconds)).await;
            if let Some(id) = self.find_announced(&name).await? {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// The id of the image of that name, if it is this file's.
    async fn find_announced(&self, name: &str) -> Result<Option<u64>, UploadError> {
        let Some(found) = self.find(|image| bare_name(&image.name) == name).await? else {
            return Ok(None);
        };
        let image = self.read_image(found.id).await?;
        Ok(self.file_of(&image).map(|_| image.id))
    }

    async fn find(
        &self,
        is: impl Fn(&BootResource) -> bool,
    ) -> Result<Option<BootResource>, UploadError> {
        let mut retry = Retry::new(PATIENCE_SECONDS);
        let what = "list images";
        loop {
            match self.client.boot_resources().await {
                Ok(images) => {
                    return Ok(images
                        .into_iter()
                        .find(|image| image.kind == "Uploaded" && is(image)));
                }
                Err(error) if is_final(&error) => return Err(UploadError::Refused { what, error }),
                Err(error) => retry.wait(self.clock, what, &error).await?,
            }
        }
    }

    async fn read_image(&self, id: u64) -> Result<BootResource, UploadError> {
        let mut retry = Retry::new(PATIENCE_SECONDS);
        let what = "read the image";
        loop {
            match self.client.boot_resource(id).await {
                Ok(image) => return Ok(image),
                Err(error) if is_final(&error) => return Err(UploadError::Refused { what, error }),
                Err(error) => retry.wait(self.clock, what, &error).await?,
            }
        }
    }

    /// This file among those of the image.
    fn file_of(&self, image: &BootResource) -> Option<RegionFile> {
        let files = image.sets.values().flat_map(|set| set.files.values());
        let mut own = files
            .filter(|file| file.sha256 == self.state.sha256 && file.size == self.state.size_bytes);
        let file = own.next()?;
        Some(RegionFile {
            complete: file.complete,
            progress: if file.complete { 100.0 } else { file.progress.unwrap_or(0.0) },
            target: file.upload_uri.as_deref().and_then(UploadTarget::parse),
        })
    }

    async fn read_file(&self) -> Result<RegionFile, UploadError> {
        let id = self.state.resource_id.unwrap_or_default();
        let image = self.read_image(id).await?;
        let what = "a different sha256 or size".to_owned();
        self.file_of(&image).ok_or(UploadError::ReadBack { id, what })
    }

    /// Sends everything that the region does not have.
    async fn send_all(&mut self) -> Result<(), UploadError> {
        let mut file = self.read_file().await?;
        if !file.complete && (self.state.in_flight_bytes > 0 || self.state.acknowledged_bytes > 0) {
            self.look_up(self.state.in_flight_bytes, true).await?;
            file = self.read_file().await?;
        }
        while !file.complete && self.state.acknowledged_bytes < self.state.size_bytes {
            let Some(target) = file.target else {
                let id = self.state.resource_id.unwrap_or_default();
                let what = "no upload location".to_owned();
                return Err(UploadError::ReadBack { id, what });
            };
            self.send_chunk(target).await?;
            (self.observe)(UploadProgress {
                acknowledged_bytes: self.state.acknowledged_bytes,
                size_bytes: self.state.size_bytes,
                cuts: self.report.cuts,
            });
        }
        Ok(())
    }

    async fn send_chunk(&mut self, target: UploadTarget) -> Result<(), UploadError> {
        let left = self.state.size_bytes - self.state.acknowledged_bytes;
        let length = left.min(self.chunk_bytes);
        let mut chunk = std::mem::take(&mut self.buffer);
        chunk.resize(usize::try_from(length).unwrap_or_default(), 0);
        self.source
            .read_at(self.state.acknowledged_bytes, &mut chunk)
            .map_err(UploadError::Source)?;
        self.state.in_flight_bytes = length;
        self.state_file.write(&self.state)?;
        self.report.sent_bytes += length;
        let chunk = chunk.freeze();
        let sent = self.client.upload_chunk(target, chunk.clone()).await;
        // A transport that gave up may still have it.
        self.buffer = chunk.try_into_mut().unwrap_or_default();
        match sent {
            Ok(()) => self.acknowledge(length).await,
            Err(error) => self.recover(length, error).await,
        }
    }

    async fn acknowledge(&mut self, length: u64) -> Result<(), UploadError> {
        self.state.acknowledged_bytes += length;
        self.state.in_flight_bytes = 0;
        self.failures = 0;
        let is_last = self.state.acknowledged_bytes == self.state.size_bytes;
        // Progress is worth a look where it says how many controllers there are, and where a piece
        // that was given up may have come late.
        if !is_last && (self.state.controllers.is_none() || self.to_confirm) {
            self.to_confirm = false;
            let file = self.read_file().await?;
            self.received(&file, self.state.acknowledged_bytes)?;
        }
        self.state_file.write(&self.state)
    }

    /// Decides what follows a chunk without acknowledgement.
    async fn recover(&mut self, length: u64, error: MaasError) -> Result<(), UploadError> {
        let id = self.state.resource_id.unwrap_or_default();
        let what = "send a chunk";
        tracing::debug!(%error, offset = self.state.acknowledged_bytes, "a chunk was not acknowledged");
        if let MaasError::Refused { kind, text, .. } = &error {
            match kind {
                // The last byte came more than 300 s after the signature: a link this slow gets
                // shorter pieces.
                RefusalKind::Unauthorized { cause: AuthCause::ClockSkew { .. } }
                    if self.chunk_bytes > LEAST_CHUNK_BYTES =>
                {
                    self.halve();
                    self.state.in_flight_bytes = 0;
                    return self.state_file.write(&self.state);
                }
                RefusalKind::BadRequest if text.contains("does not match given SHA256") => {
                    return Err(UploadError::DigestDiffers(id));
                }
                // Both say that there is more than was acknowledged, which the look shows.
                RefusalKind::BadRequest
                    if text.contains("complete file") || text.contains("Too much data") => {}
                RefusalKind::DatabaseConflict => {}
                _ => return Err(UploadError::Refused { what, error }),
            }
        }
        self.report.cuts += 1;
        self.failures += 1;
        if self.failures > MOST_FAILURES {
            let (seconds, error) = (PATIENCE_SECONDS, error.to_string());
            return Err(UploadError::Silent { what, seconds, error });
        }
        if matches!(error, MaasError::UnknownOutcome { cause: UnknownCause::Timeout, .. }) {
            self.halve();
        }
        let was_sent = !matches!(error, MaasError::Unavailable { sent: false, .. });
        if !was_sent {
            let last = RETRY_SECONDS.len() - 1;
            let step = usize::try_from(self.failures - 1).unwrap_or(last).min(last);
            self.clock.wait(Duration::from_secs(RETRY_SECONDS[step])).await;
        }
        self.look_up(length, was_sent).await?;
        self.report.resumes += 1;
        Ok(())
    }

    fn halve(&mut self) {
        self.chunk_bytes = (self.chunk_bytes / 2).max(LEAST_CHUNK_BYTES);
    }

    /// Finds out what became of a piece of `length` bytes. One that may still be written is looked
    /// for several times before it counts as absent.
    async fn look_up(&mut self, length: u64, was_sent: bool) -> Result<(), UploadError> {
        let looks = if was_sent { SETTLE_SECONDS.len() } else { 1 };
        for seconds in &SETTLE_SECONDS[..looks] {
            self.clock.wait(Duration::from_secs(*seconds)).await;
            let file = self.read_file().await?;
            let received = self.received(&file, self.state.acknowledged_bytes + length)?;
            let (offset, size) = (self.state.acknowledged_bytes, self.state.size_bytes);
            match judge(received, offset, length, size) {
                ChunkVerdict::Taken => {
                    self.failures = 0;
                    self.state.acknowledged_bytes += length;
                    self.state.in_flight_bytes = 0;
                    return self.state_file.write(&self.state);
                }
                ChunkVerdict::Absent => {}
                ChunkVerdict::Diverged => return Err(self.diverged(received)),
            }
        }
        self.state.in_flight_bytes = 0;
        self.to_confirm = was_sent;
        self.state_file.write(&self.state)
    }

    /// Bytes that the region has. Until it is known over how many controllers they are counted, they
    /// are `expected` or none.
    fn received(&mut self, file: &RegionFile, expected: u64) -> Result<u64, UploadError> {
        let size = self.state.size_bytes;
        if file.complete {
            return Ok(size);
        }
        if self.state.controllers.is_none() && file.progress > 0.0 {
            self.state.controllers = region_controllers(file.progress, expected, size);
        }
        let controllers = self.state.controllers.unwrap_or(1);
        let received = received_bytes(file.progress, size, controllers);
        let is_known = received == expected || received == self.state.acknowledged_bytes;
        if is_known || received > size { Ok(received) } else { Err(self.diverged(received)) }
    }

    fn diverged(&self, received: u64) -> UploadError {
        UploadError::Diverged {
            id: self.state.resource_id.unwrap_or_default(),
            received,
            expected: self.state.acknowledged_bytes,
        }
    }

    /// Waits until the region has it whole, and compares.
    async fn finish(mut self, begun: f64) -> Result<UploadReport, UploadError> {
        let id = self.state.resource_id.unwrap_or_default();
        let mut waited = 0;
        let mut steps = RETRY_SECONDS.iter();
        while !self.read_file().await?.complete {
            if waited >= COPY_SECONDS {
                return Err(UploadError::NotCopied { id, seconds: waited });
            }
            let seconds = steps.next().copied().unwrap_or(30);
            waited += seconds;
            self.clock.wait(Duration::from_secs(seconds)).await;
        }
        let image = self.read_image(id).await?;
        if bare_name(&image.name) != self.state.name {
            let what = format!("the name {}", image.name);
            return Err(UploadError::ReadBack { id, what });
        }
        let now = self.clock.unix_seconds();
        #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
        let uploaded_at = now as i64;
        if self.state.uploaded_at_seconds.is_none() {
            self.state.uploaded_at_seconds = Some(uploaded_at);
        }
        self.state.acknowledged_bytes = self.state.size_bytes;
        self.state.in_flight_bytes = 0;
        self.state_file.sync(&self.state)?;
        self.report.resource_id = id;
        self.report.seconds = now - begun;
        Ok(self.report)
    }
}
