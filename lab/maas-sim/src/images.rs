//! Boot images: what the region has synced and what was uploaded to it.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// A file of an image set.
#[derive(Debug, Clone)]
pub(crate) struct ImageFile {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) filetype: String,
    pub(crate) sha256: String,
    pub(crate) size: u64,
    pub(crate) received: u64,
    /// Whether every region controller has it.
    pub(crate) complete: bool,
    /// When the last byte came, in simulated microseconds.
    whole_at_us: Option<i64>,
    hasher: Sha256,
}

#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) id: i64,
    pub(crate) uploaded: bool,
    pub(crate) name: String,
    pub(crate) architecture: String,
    pub(crate) title: String,
    pub(crate) base_image: String,
    pub(crate) last_deployed_us: Option<i64>,
    /// `(version, files)`.
    pub(crate) sets: Vec<(String, Vec<ImageFile>)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Images {
    pub(crate) list: Vec<Image>,
    /// Seconds that writing an image takes beyond what the machine's class says, by its name.
    pub(crate) write_seconds: BTreeMap<String, f64>,
    /// Region controllers, and the microseconds that the others take to copy what one has whole.
    controllers: (u32, i64),
    next_image: i64,
    next_file: i64,
}

/// Why a chunk was refused, in MAAS's words.
pub(crate) type ChunkError = &'static str;

/// Synced Ubuntu series and their kernels.
const SERIES: &[(&str, &[&str])] = &[
    ("jammy", &["ga-22.04", "hwe-22.04", "hwe-22.04-edge"]),
    ("noble", &["ga-24.04", "hwe-24.04"]),
];

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

impl ImageFile {
    fn declared(id: i64, name: &str, filetype: &str, sha256: &str, size: u64) -> Self {
        Self {
            id,
            name: name.to_owned(),
            filetype: filetype.to_owned(),
            sha256: sha256.to_owned(),
            size,
            received: 0,
            complete: false,
            whole_at_us: None,
            hasher: Sha256::new(),
        }
    }

    /// Percent of its bytes that are there, over all of `controllers`.
    pub(crate) fn progress(&self, controllers: u32) -> f64 {
        100.0 * self.received as f64 / (self.size.max(1) as f64 * f64::from(controllers))
    }

    /// Takes the next chunk.
    pub(crate) fn append_chunk(&mut self, chunk: &[u8], now_us: i64) -> Result<(), ChunkError> {
        if self.complete || self.whole_at_us.is_some() {
            return Err("Cannot upload to a complete file.");
        }
        if chunk.is_empty() {
            return Err("Missing data.");
        }
        if self.received + chunk.len() as u64 > self.size {
            return Err("Too much data received.");
        }
        self.hasher.update(chunk);
        self.received += chunk.len() as u64;
        if self.received == self.size {
            if hex::encode(self.hasher.clone().finalize()) != self.sha256 {
                self.received = 0;
                self.hasher = Sha256::new();
                return Err("Saved content does not match given SHA256 value.");
            }
            self.whole_at_us = Some(now_us);
        }
        Ok(())
    }
}

impl Images {
    /// Files that are not complete lose their bytes, as when a region controller starts.
    pub(crate) fn discard_incomplete(&mut self) {
        let sets = self.list.iter_mut().flat_map(|image| &mut image.sets);
        let files = sets.flat_map(|(_, files)| files).filter(|file| !file.complete);
        for file in files {
            (file.received, file.whole_at_us, file.hasher) = (0, None, Sha256::new());
        }
    }

    pub(crate) fn synced() -> Self {
        let mut out = Self {
            list: Vec::new(),
            write_seconds: BTreeMap::new(),
            controllers: (1, 0),
            next_image: 0,
            next_file: 0,
        };
        for (series, kernels) in SERIES {
            for arch in ["amd64", "arm64"] {
                for kernel in *kernels {
                    out.sync(series, &format!("{arch}/{kernel}"));
                }
            }
        }
        out
    }

    fn sync(&mut self, series: &str, architecture: &str) {
        self.next_image += 1;
        let id = self.next_image;
        let files = ["boot-kernel", "boot-initrd", "squashfs"].map(|kind| {
            self.next_file += 1;
            let sha = sha256_hex(format!("{series}/{architecture}/{kind}").as_bytes());
            let mut file = ImageFile::declared(self.next_file, kind, kind, &sha, 512);
            (file.received, file.complete) = (512, true);
            file
        });
        self.list.push(Image {
            id,
            uploaded: false,
            name: format!("ubuntu/{series}"),
            architecture: architecture.to_owned(),
            title: String::new(),
            base_image: String::new(),
            last_deployed_us: None,
            sets: vec![("20261101".to_owned(), files.to_vec())],
        });
    }

    /// Sets how many region controllers there are, and how long they copy.
    pub(crate) fn set_controllers(&mut self, count: u32, copy_us: i64) {
        self.controllers = (count.max(1), copy_us);
    }

    /// Number of region controllers.
    pub(crate) fn controllers(&self) -> u32 {
        self.controllers.0
    }

    /// Completes what all region controllers have copied by now.
    pub(crate) fn copy(&mut self, now_us: i64) {
        let (count, copy_us) = self.controllers;
        let needs = if count > 1 { copy_us } else { 0 };
        let files =
            self.list.iter_mut().flat_map(|image| &mut image.sets).flat_map(|set| &mut set.1);
        for file in files.filter(|file| !file.complete) {
            file.complete = file.whole_at_us.is_some_and(|at| now_us >= at.saturating_add(needs));
        }
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<&Image> {
        self.list.iter().find(|i| i.id.to_string() == id)
    }

    /// Adds an uploaded image, or a new set to the one of this name and architecture; the files
    /// of its older sets are gone at once.
    #[expect(clippy::too_many_arguments, reason = "the fields of the form")]
    pub(crate) fn add_upload(
        &mut self,
        name: &str,
        architecture: &str,
        title: &str,
        base_image: &str,
        filename: &str,
        filetype: &str,
        sha256: &str,
        size: u64,
        version: &str,
    ) -> &mut Image {
        self.next_file += 1;
        let file = ImageFile::declared(self.next_file, filename, filetype, sha256, size);
        let known = self
            .list
            .iter()
            .position(|i| i.uploaded && i.name == name && i.architecture == architecture);
        let index = known.unwrap_or_else(|| {
            self.next_image += 1;
            self.list.push(Image {
                id: self.next_image,
                uploaded: true,
                name: name.to_owned(),
                architecture: architecture.to_owned(),
                title: title.to_owned(),
                base_image: base_image.to_owned(),
                last_deployed_us: None,
                sets: Vec::new(),
            });
            self.list.len() - 1
        });
        let image = &mut self.list[index];
        let again = image.sets.iter().filter(|(v, _)| v.starts_with(version)).count();
        let label = if again == 0 { version.to_owned() } else { format!("{version}.{again}") };
        image.sets.iter_mut().for_each(|(_, files)| files.clear());
        image.sets.push((label, vec![file]));
        image
    }

    /// An image that is there and complete, as an operator would have put it there.
    pub(crate) fn preload(&mut self, name: &str) {
        let bytes = name.as_bytes();
        let (sha, size) = (sha256_hex(bytes), bytes.len() as u64);
        let image = self.add_upload(
            name,
            "amd64/generic",
            "",
            "ubuntu/jammy",
            "root.tgz",
            "root-tgz",
            &sha,
            size,
            "20261101",
        );
        if let Some(file) = image.sets.last_mut().and_then(|(_, files)| files.first_mut()) {
            (file.received, file.complete) = (size, true);
        }
    }

    /// `osystem/series` names that can be deployed.
    pub(crate) fn deployable(&self) -> Vec<String> {
        let mut out: Vec<String> = self
            .list
            .iter()
            .map(|i| if i.uploaded { format!("custom/{}", i.name) } else { i.name.clone() })
            .collect();
        out.sort();
        out.dedup();
        out
    }

    /// What a `distro_series` parameter means: `(osystem, distro_series)`.
    pub(crate) fn resolve(&self, asked: &str) -> Option<(String, String)> {
        let bare = asked.strip_prefix("ubuntu/").unwrap_or(asked);
        let series = match bare {
            "22.04" => "jammy",
            "24.04" => "noble",
            other => other,
        };
        if !asked.starts_with("custom/") && SERIES.iter().any(|(s, _)| *s == series) {
            return Some(("ubuntu".to_owned(), series.to_owned()));
        }
        let name = asked.strip_prefix("custom/").unwrap_or(asked);
        let found = self.list.iter().any(|i| i.uploaded && i.name == name);
        found.then(|| ("custom".to_owned(), name.to_owned()))
    }

    /// Names of the Ubuntu series that are synced.
    pub(crate) fn series(&self) -> Vec<&'static str> {
        SERIES.iter().map(|(name, _)| *name).collect()
    }

    fn kernels(osystem: &str, series: &str) -> &'static [&'static str] {
        // Custom images boot the commissioning kernel.
        let series = if osystem == "custom" { "jammy" } else { series };
        SERIES.iter().find(|(s, _)| *s == series).map_or(&[], |(_, kernels)| kernels)
    }

    pub(crate) fn default_kernel(&self, osystem: &str, series: &str) -> String {
        Self::kernels(osystem, series).first().map(|k| (*k).to_owned()).unwrap_or_default()
    }

    pub(crate) fn has_kernel(&self, osystem: &str, series: &str, kernel: &str) -> bool {
        Self::kernels(osystem, series).contains(&kernel)
    }

    pub(crate) fn has_any_kernel(&self, kernel: &str) -> bool {
        SERIES.iter().any(|(_, kernels)| kernels.contains(&kernel))
    }

    /// Whether all of an uploaded image is there; MAAS takes one that is not and fails later.
    pub(crate) fn can_be_written(&self, osystem: &str, series: &str) -> bool {
        osystem != "custom"
            || !self.list.iter().any(|i| i.uploaded && i.name == series && !i.is_complete())
    }

    pub(crate) fn record_deployment(&mut self, osystem: &str, series: &str, now_us: i64) {
        let name =
            if osystem == "custom" { series.to_owned() } else { format!("{osystem}/{series}") };
        for image in
            self.list.iter_mut().filter(|i| i.name == name && i.architecture.starts_with("amd64"))
        {
            image.last_deployed_us = Some(now_us);
        }
    }
}

impl Image {
    pub(crate) fn is_complete(&self) -> bool {
        self.sets
            .last()
            .is_some_and(|(_, files)| !files.is_empty() && files.iter().all(|f| f.complete))
    }
}
