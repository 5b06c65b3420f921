//! Uploads into a simulated region over a link that does what a test says, on a virtual clock.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{
    CHUNK_BYTES, StateFile, UploadClock, UploadError, UploadReport, UploadRequest, build_name,
    digest_of, upload,
};
use async_trait::async_trait;
use maas_client::{Client, Config, Method, Request, Response, Transport, TransportError};
use maas_sim::{
    ClockWait, Fault, FaultKind, ResponseDelivery, SharedRegion, SimClock, SimOptions, SimRequest,
    build_region,
};
use tempfile::TempDir;

/// 2026-11-20T13:00:00Z, in seconds since 1970.
const START_SECONDS: i64 = 1_795_179_600;

/// Time that goes on when somebody waits.
#[derive(Clone)]
struct TestClock(Arc<AtomicI64>);

impl SimClock for TestClock {
    fn now_us(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    fn wall_seconds(&self) -> i64 {
        self.now_us() / 1_000_000
    }

    fn wait_until(&self, at_us: i64) -> ClockWait<'_> {
        self.0.fetch_max(at_us, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }
}

#[async_trait]
impl UploadClock for TestClock {
    fn unix_seconds(&self) -> f64 {
        self.wall_seconds() as f64
    }

    async fn wait(&self, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

/// What becomes of a piece on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Arrives,
    /// Nobody listens there.
    Unreachable,
    /// It arrives, and its sender never hears of it: it waits for ever.
    ArrivesSilently,
    /// Its sender hears nothing and waits for ever; it does not arrive.
    Vanishes,
    /// Its sender gives up, and it arrives behind the next piece that does.
    ArrivesLate,
}

struct Link {
    region: Arc<SharedRegion>,
    fates: Mutex<VecDeque<Fate>>,
    late: Mutex<Vec<SimRequest>>,
    pieces: AtomicU64,
}

impl Link {
    fn call(&self, request: &SimRequest) -> Result<Response, TransportError> {
        let answer = self.region.call(request);
        if answer.delivery == ResponseDelivery::Reset {
            return Err(TransportError::Reset("cut".to_owned()));
        }
        Ok(Response {
            status: answer.status,
            content_type: Some(answer.content_type.to_owned()).filter(|kind| !kind.is_empty()),
            body: answer.body,
            ..Response::default()
        })
    }
}

#[async_trait]
impl Transport for Link {
    async fn send(&self, request: Request, _: Duration) -> Result<Response, TransportError> {
        let (path, query) =
            request.path_and_query.split_once('?').unwrap_or((&request.path_and_query, ""));
        let arriving = SimRequest {
            method: request.method.as_str().to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            authorization: request.header("authorization").map(str::to_owned),
            content_type: request.header("content-type").map(str::to_owned),
            body: request.body.clone(),
        };
        if request.method != Method::Put {
            return self.call(&arriving);
        }
        self.pieces.fetch_add(1, Ordering::SeqCst);
        let fate = self.fates.lock().unwrap().pop_front().unwrap_or(Fate::Arrives);
        match fate {
            Fate::Arrives => {
                let answer = self.call(&arriving);
                for late in self.late.lock().unwrap().drain(..) {
                    self.region.call(&late);
                }
                answer
            }
            Fate::Unreachable => Err(TransportError::Connect("refused".to_owned())),
            Fate::ArrivesSilently => {
                self.call(&arriving)?;
                std::future::pending().await
            }
            Fate::Vanishes => std::future::pending().await,
            Fate::ArrivesLate => {
                self.late.lock().unwrap().push(arriving);
                Err(TransportError::Timeout)
            }
        }
    }
}

/// A region, a link to it, and a file of some pieces and a bit.
struct Bench {
    folder: TempDir,
    clock: TestClock,
    region: Arc<SharedRegion>,
    link: Arc<Link>,
    client: Client,
}

impl Bench {
    fn new(pieces: u64, faults: Vec<Fault>, fates: &[Fate]) -> Self {
        let clock = TestClock(Arc::new(AtomicI64::new(START_SECONDS * 1_000_000)));
        let options = SimOptions { faults, ..SimOptions::default() };
        let (region, key) = build_region(&options);
        let region = SharedRegion::new(region, Arc::new(clock.clone()));
        let link = Arc::new(Link {
            region: region.clone(),
            fates: Mutex::new(fates.iter().copied().collect()),
            late: Mutex::default(),
            pieces: AtomicU64::new(0),
        });
        let config = Config::new("http://region:5240/MAAS", key.parse().unwrap());
        let now = clock.clone();
        let client =
            Client::with_transport(&config, link.clone(), Arc::new(move || now.wall_seconds()));
        let folder = tempfile::tempdir().unwrap();
        let bench = Self { folder, clock, region, link, client: client.unwrap() };
        bench.write(pieces, 0);
        bench
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("image.tar.gz")
    }

    /// A file of that many pieces and a bit, none like another.
    fn write(&self, pieces: u64, salt: u64) {
        let words = (pieces * CHUNK_BYTES + 1000) / 8;
        let bytes: Vec<u8> = (0..words).flat_map(|word| (word ^ salt).to_le_bytes()).collect();
        std::fs::write(self.file(), bytes).unwrap();
    }

    fn request(&self) -> UploadRequest {
        let digest = digest_of(&File::open(self.file()).unwrap()).unwrap();
        UploadRequest {
            name: build_name("custom/h200", "20261120", &digest.sha256),
            title: "H200".to_owned(),
            architecture: "amd64/generic".to_owned(),
            filetype: "tgz".to_owned(),
            base_image: "ubuntu/noble".to_owned(),
            region_url: "http://region:5240/MAAS".to_owned(),
            actor: "ada".to_owned(),
            ..UploadRequest::default()
        }
    }

    async fn upload_as(&self, request: &UploadRequest) -> Result<UploadReport, UploadError> {
        let image = File::open(self.file()).unwrap();
        let state = StateFile::open(&self.file(), "lab").unwrap();
        upload(&self.client, &image, &state, &self.clock, request, &mut |_| {}).await
    }

    async fn upload(&self) -> Result<UploadReport, UploadError> {
        self.upload_as(&self.request()).await
    }

    /// Uploads until as many pieces were sent, and ends without a word, as a process that is killed.
    async fn upload_until_killed(&self, pieces: u64) {
        tokio::select! {
            result = self.upload() => panic!("it should hang: {result:?}"),
            () = async {
                while self.link.pieces.load(Ordering::SeqCst) < pieces {
                    tokio::task::yield_now().await;
                }
            } => {}
        }
    }

    /// How often the region was asked to make an image.
    fn announcements(&self) -> u64 {
        self.client.stats().get("POST boot-resources/").map_or(0, |row| row.calls)
    }

    /// The region has the file once, whole, with its digest.
    async fn assert_arrived(&self, report: &UploadReport) {
        let image = self.client.boot_resource(report.resource_id).await.unwrap();
        let set = image.sets.values().next().unwrap();
        let file = set.files.values().next().unwrap();
        assert!(file.complete && file.sha256 == report.sha256, "{image:?}");
        assert_eq!(file.size, report.size_bytes);
        assert_eq!(image.name, report.name);
        assert!(image.name.starts_with("h200-20261120-"), "{}", image.name);
        assert_eq!(self.announcements(), 1 + report.restarts);
    }
}

fn on_pieces(kind: FaultKind, skip: u32) -> Fault {
    let mut fault = Fault::new(kind).at("image.upload").times(1);
    fault.skip = skip;
    fault
}

#[tokio::test]
async fn an_image_arrives_and_is_read_back() {
    let bench = Bench::new(3, Vec::new(), &[]);
    let report = bench.upload().await.unwrap();
    bench.assert_arrived(&report).await;
    assert_eq!((report.sent_bytes, report.cuts), (3 * CHUNK_BYTES + 1000, 0));
    let state = StateFile::open(&bench.file(), "lab").unwrap().read().unwrap().unwrap();
    assert_eq!((state.actor.as_str(), state.resource_id), ("ada", Some(report.resource_id)));
    assert!(state.uploaded_at_seconds.is_some_and(|at| at >= START_SECONDS));
    // Again: it is there, and nothing is sent.
    let again = bench.upload().await.unwrap();
    assert_eq!((again.sent_bytes, again.resource_id), (0, report.resource_id));
}

#[tokio::test]
async fn a_piece_without_an_answer_is_looked_up_and_never_sent_blindly() {
    // The first, one in the middle and the last: each taken, and each lost.
    for (kind, sent_again) in [
        (FaultKind::Accepted504, 0),
        (FaultKind::ResetAfterAccept, 0),
        (FaultKind::Refused504, 1),
        (FaultKind::ResetBefore, 1),
        (FaultKind::Unavailable503, 1),
    ] {
        for skip in [0, 1, 2] {
            let bench = Bench::new(2, vec![on_pieces(kind, skip)], &[]);
            let report = bench.upload().await.unwrap();
            bench.assert_arrived(&report).await;
            assert_eq!(
                (report.cuts, report.resumes, report.restarts),
                (1, 1, 0),
                "{kind:?} {skip}"
            );
            let pieces = bench.link.pieces.load(Ordering::SeqCst);
            assert_eq!(pieces, 3 + sent_again, "{kind:?} {skip}");
        }
    }
}

#[tokio::test]
async fn an_announcement_without_an_answer_is_found_and_not_repeated() {
    for (kind, posts) in [(FaultKind::Accepted504, 1), (FaultKind::Refused504, 2)] {
        let bench = Bench::new(1, vec![Fault::new(kind).at("images.create").times(1)], &[]);
        let report = bench.upload().await.unwrap();
        assert_eq!(bench.announcements(), posts, "{kind:?}");
        let images = bench.client.boot_resources().await.unwrap();
        let own: Vec<_> = images.iter().filter(|image| image.kind == "Uploaded").collect();
        assert_eq!((own.len(), own[0].id), (1, report.resource_id));
    }
}

#[tokio::test]
async fn a_killed_upload_goes_on_from_what_the_region_has() {
    for fate in [Fate::ArrivesSilently, Fate::Vanishes] {
        for piece in [1, 3, 5] {
            let mut fates = vec![Fate::Arrives; piece - 1];
            fates.push(fate);
            let bench = Bench::new(4, Vec::new(), &fates);
            bench.upload_until_killed(piece as u64).await;
            let report = bench.upload().await.unwrap();
            bench.assert_arrived(&report).await;
            assert_eq!((report.resumes, report.restarts), (1, 0), "{fate:?} {piece}");
            let again = u64::from(fate == Fate::Vanishes);
            assert_eq!(bench.link.pieces.load(Ordering::SeqCst), 5 + again, "{fate:?} {piece}");
        }
    }
}

#[tokio::test]
async fn a_region_that_is_away_is_waited_for_and_then_left_with_what_it_has() {
    let bench = Bench::new(2, Vec::new(), &[Fate::Arrives, Fate::Unreachable, Fate::Unreachable]);
    let report = bench.upload().await.unwrap();
    bench.assert_arrived(&report).await;
    assert_eq!((report.cuts, report.sent_bytes), (2, 4 * CHUNK_BYTES + 1000));

    // The first look finds where the bytes go.
    let mut away = Fault::new(FaultKind::Unavailable503).at("image.read").times(500);
    away.skip = 1;
    let bench = Bench::new(2, vec![away, on_pieces(FaultKind::ResetAfterAccept, 0)], &[]);
    let error = bench.upload().await.unwrap_err();
    assert_eq!(error.code(), "image_upload_no_answer", "{error}");
    assert!(error.hint().contains("it continues from what"));
    bench.region.with(|region| region.clear_faults());
    let report = bench.upload().await.unwrap();
    bench.assert_arrived(&report).await;
    assert_eq!(bench.link.pieces.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_piece_that_comes_late_is_noticed_and_a_fresh_start_cures_it() {
    let bench = Bench::new(4, Vec::new(), &[Fate::Arrives, Fate::ArrivesLate]);
    let error = bench.upload().await.unwrap_err();
    assert_eq!(error.code(), "image_upload_damaged", "{error}");
    assert!(error.hint().contains("--start-over"));
    // The hint's cure, and nothing else: the same command meets the same bytes.
    assert_eq!(bench.upload().await.unwrap_err().code(), "image_upload_damaged");
    let anew = UploadRequest { start_over: true, ..bench.request() };
    let report = bench.upload_as(&anew).await.unwrap();
    bench.assert_arrived(&report).await;
    assert_eq!(report.restarts, 1);
}

#[tokio::test]
async fn progress_over_several_region_controllers_is_understood() {
    for cut in [0, 1, 2] {
        let bench = Bench::new(2, vec![on_pieces(FaultKind::Accepted504, cut)], &[]);
        bench.region.with(|region| region.set_region_controllers(3, 120));
        let report = bench.upload().await.unwrap();
        bench.assert_arrived(&report).await;
        assert_eq!((report.cuts, report.restarts), (1, 0));
        assert!(report.seconds >= 120.0, "it waits until all of them have it: {report:?}");
    }
    let bench = Bench::new(1, Vec::new(), &[]);
    bench.region.with(|region| region.set_region_controllers(2, 1_000_000));
    let error = bench.upload().await.unwrap_err();
    assert_eq!(error.code(), "image_upload_not_copied", "{error}");
    assert!(error.hint().contains("it continues to wait"));
    bench.region.with(|region| region.set_region_controllers(2, 0));
    bench.assert_arrived(&bench.upload().await.unwrap()).await;
}

#[tokio::test]
async fn a_file_that_changed_is_not_mixed_with_what_was_begun() {
    let bench = Bench::new(2, Vec::new(), &[Fate::Arrives, Fate::Vanishes]);
    bench.upload_until_killed(2).await;
    bench.write(2, 1 << 60);
    let error = bench.upload().await.unwrap_err();
    assert_eq!(error.code(), "image_upload_file_changed", "{error}");
    let anew = UploadRequest { start_over: true, ..bench.request() };
    let report = bench.upload_as(&anew).await.unwrap();
    let image = bench.client.boot_resource(report.resource_id).await.unwrap();
    assert!(image.sets.values().all(|set| set.complete));
    let images = bench.client.boot_resources().await.unwrap();
    assert_eq!(images.iter().filter(|image| image.kind == "Uploaded").count(), 1);
}

#[tokio::test]
async fn nothing_is_announced_that_cannot_be_finished() {
    let bench = Bench::new(1, Vec::new(), &[]);
    bench.region.with(|region| region.preload_image(&bench.request().name));
    let error = bench.upload().await.unwrap_err();
    assert_eq!((error.code(), bench.announcements()), ("image_upload_name_taken", 0));

    let bench = Bench::new(1, Vec::new(), &[]);
    let odd = UploadRequest { base_image: "ubuntu/bionic".to_owned(), ..bench.request() };
    let error = bench.upload_as(&odd).await.unwrap_err();
    assert_eq!((error.code(), bench.announcements()), ("image_upload_base_missing", 0));

    let refused = Fault::new(FaultKind::Answered).at("image.upload").with_message("no room");
    let bench = Bench::new(1, vec![refused], &[]);
    let error = bench.upload().await.unwrap_err();
    assert_eq!(error.code(), "image_upload_refused", "{error}");
    assert!(error.to_string().contains("no room"));
    bench.region.with(|region| region.clear_faults());
    bench.assert_arrived(&bench.upload().await.unwrap()).await;

    let bench = Bench::new(1, Vec::new(), &[]);
    std::fs::write(bench.file(), "").unwrap();
    assert_eq!(bench.upload().await.unwrap_err().code(), "image_unreadable");
}

#[tokio::test]
async fn the_state_of_another_region_is_not_used() {
    let bench = Bench::new(1, Vec::new(), &[Fate::Vanishes]);
    bench.upload_until_killed(1).await;
    let other = UploadRequest { region_url: "http://other/MAAS".to_owned(), ..bench.request() };
    let error = bench.upload_as(&other).await.unwrap_err();
    assert_eq!(error.code(), "image_upload_state_unusable", "{error}");
    assert!(error.hint().contains("rm "), "{}", error.hint());
}
