//! How far a host image has come at a site: what follows on what, who may say so, and what may be
//! deployed.
//!
//! An image that MAAS synced (`ubuntu/noble`) needs nobody's approval: it is the distribution's, and
//! MAAS verified it. An uploaded one (`custom/NAME`) is deployed at a site only where the site's record
//! of it lets it, or where the site's own list of images names it. A run is refused before its
//! deployment, each time by its own code.

use std::collections::BTreeMap;

use gpuaas_types::codes::ProblemCode;
use gpuaas_types::image::ImageState;
use gpuaas_types::{Problem, Timestamp};

use crate::image_approval::ImageApproval;
use crate::policy::normalise_distro_series;

use ImageState::{Approved, Built, Canary, Deprecated, Expired, Revoked, Uploaded, Verified};

/// Live images of one family that a site needs at most: the one in use, the one before, the next one.
pub const MOST_LIVE_OF_FAMILY: usize = 3;

/// What names of uploaded images begin with.
const CUSTOM: &str = "custom/";

/// Who says that an image is in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaidBy {
    /// Whoever builds and uploads: what was done is written down.
    Record,
    /// An approver.
    Approver,
    /// The time: nobody says so.
    Time,
}

/// A row of [`TRANSITIONS`].
#[derive(Debug, Clone, Copy)]
pub struct TransitionRow {
    /// State before; none: the site does not know the image.
    pub from: Option<ImageState>,
    /// States that may follow.
    pub to: &'static [(ImageState, SaidBy)],
}

/// What may follow on what. A revoked image is never deployed again: another build is another image.
pub const TRANSITIONS: &[TransitionRow] = &[
    TransitionRow {
        from: None,
        to: &[(Built, SaidBy::Record), (Verified, SaidBy::Record), (Uploaded, SaidBy::Record)],
    },
    TransitionRow {
        from: Some(Built),
        to: &[(Verified, SaidBy::Record), (Uploaded, SaidBy::Record), (Revoked, SaidBy::Approver)],
    },
    TransitionRow {
        from: Some(Verified),
        to: &[(Uploaded, SaidBy::Record), (Revoked, SaidBy::Approver)],
    },
    TransitionRow {
        from: Some(Uploaded),
        to: &[
            (Canary, SaidBy::Approver),
            (Approved, SaidBy::Approver),
            (Revoked, SaidBy::Approver),
        ],
    },
    TransitionRow {
        from: Some(Canary),
        to: &[
            (Canary, SaidBy::Approver),
            (Approved, SaidBy::Approver),
            (Deprecated, SaidBy::Approver),
            (Revoked, SaidBy::Approver),
            (Expired, SaidBy::Time),
        ],
    },
    TransitionRow {
        from: Some(Approved),
        to: &[
            (Approved, SaidBy::Approver),
            (Canary, SaidBy::Approver),
            (Deprecated, SaidBy::Approver),
            (Revoked, SaidBy::Approver),
            (Expired, SaidBy::Time),
        ],
    },
    TransitionRow {
        from: Some(Deprecated),
        to: &[(Approved, SaidBy::Approver), (Revoked, SaidBy::Approver), (Expired, SaidBy::Time)],
    },
    TransitionRow { from: Some(Revoked), to: &[] },
    TransitionRow {
        from: Some(Expired),
        to: &[
            (Canary, SaidBy::Approver),
            (Approved, SaidBy::Approver),
            (Revoked, SaidBy::Approver),
        ],
    },
];

/// Whether `said_by` may say that an image in state `from` is in state `to`.
///
/// # Errors
/// A sentence that names the states that may follow.
pub fn check_transition(
    from: Option<ImageState>,
    to: ImageState,
    said_by: SaidBy,
) -> Result<(), String> {
    let row = TRANSITIONS.iter().find(|row| row.from == from);
    let following = row.map_or(&[] as &[_], |row| row.to);
    if following.contains(&(to, said_by)) {
        return Ok(());
    }
    let may: Vec<&str> =
        following.iter().filter(|one| one.1 == said_by).map(|one| one.0.as_str()).collect();
    let may = if may.is_empty() { "nothing".to_owned() } else { may.join(", ") };
    let from = from.map_or("unknown in the site", ImageState::as_str);
    Err(format!("the image is {from}: it can become {may}, not {to}"))
}

/// The state at a moment: what lets an image be deployed may have ended.
#[must_use]
pub fn state_at(state: ImageState, expires_at: Option<Timestamp>, now: Timestamp) -> ImageState {
    let ends = matches!(state, Canary | Approved | Deprecated);
    if ends && expires_at.is_some_and(|end| now >= end) { Expired } else { state }
}

/// Whether the region has an image in this state, or may have, beside what is gone.
#[must_use]
pub const fn is_live(state: ImageState) -> bool {
    match state {
        Uploaded | Canary | Approved | Deprecated | Expired => true,
        Built | Verified | Revoked => false,
    }
}

/// What builds of one recipe have in common: the name without the day and the digits of the digest
/// that an upload adds.
#[must_use]
pub fn image_family(name: &str) -> &str {
    let digits = |text: &str, count: usize, digit: fn(&u8) -> bool| {
        text.len() == count && text.as_bytes().iter().all(digit)
    };
    let mut parts = name.rsplitn(3, '-');
    let (digest, day, base) = (parts.next(), parts.next(), parts.next());
    match (base, day, digest) {
        (Some(base), Some(day), Some(digest))
            if !base.is_empty()
                && digits(day, 8, u8::is_ascii_digit)
                && digits(digest, 12, u8::is_ascii_hexdigit) =>
        {
            base
        }
        _ => name,
    }
}

/// Families of which a site has more live images than it needs, by site and family, with how many.
/// `images` has their sites, names and states.
pub fn crowded_families<'a>(
    images: impl IntoIterator<Item = (&'a str, &'a str, ImageState)>,
) -> BTreeMap<(&'a str, &'a str), usize> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (site, name, _) in images.into_iter().filter(|(_, _, state)| is_live(*state)) {
        *counts.entry((site, image_family(name))).or_default() += 1;
    }
    counts.retain(|_, count| *count > MOST_LIVE_OF_FAMILY);
    counts
}

/// The name of an uploaded image as the site's records have it; none: it is one that MAAS synced.
#[must_use]
pub fn uploaded_name(distro_series: &str) -> Option<String> {
    normalise_distro_series(distro_series).strip_prefix(CUSTOM).map(str::to_owned)
}

/// The record of an image at a site, as far as a deployment is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageStanding<'a> {
    /// State that was written last.
    pub state: ImageState,
    /// When what lets it be deployed ends.
    pub expires_at: Option<Timestamp>,
    /// SHA-256 of its file, hex.
    pub sha256: &'a str,
    /// Nodes that may have it while it is a canary.
    pub canary_nodes: u32,
    /// Nodes that have it, or whose run got to deploy it before this one.
    pub nodes_before: u32,
    /// SHA-256 of a parent that was revoked.
    pub revoked_parent: Option<&'a str>,
    /// Who said last what its state is, and why.
    pub said: (&'a str, &'a str),
}

/// Why an image is not deployed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRefusal {
    /// Its code.
    pub code: ProblemCode,
    /// A sentence for the operator.
    pub text: String,
}

impl ImageRefusal {
    fn new(code: ProblemCode, text: String) -> Self {
        Self { code, text }
    }

    /// The sentence, with its code.
    #[must_use]
    pub fn with_code(&self) -> String {
        format!("{} ({})", self.text, self.code)
    }
}

impl From<ImageRefusal> for Problem {
    fn from(refusal: ImageRefusal) -> Self {
        refusal.code.problem().with_detail(refusal.text)
    }
}

/// Digests one of which the file of an uploaded image has to have; none: any file of its name.
/// `listed` is the site's own list of images, which counts where the site has no record of the image;
/// `pinned` the digest that the profile names, empty where it names none.
///
/// # Errors
/// Why it may not be deployed.
pub fn deployable_digests<'a>(
    name: &str,
    standing: Option<&ImageStanding<'a>>,
    listed: &'a [String],
    pinned: &'a str,
    now: Timestamp,
) -> Result<Vec<&'a str>, ImageRefusal> {
    let digests = match standing {
        Some(standing) => vec![check_standing(name, standing, now)?],
        None => listed_digests(name, listed)?,
    };
    if pinned.is_empty() {
        return Ok(digests);
    }
    let is_pinned = |digest: &&str| digest.eq_ignore_ascii_case(pinned);
    if digests.is_empty() || digests.iter().any(is_pinned) {
        return Ok(vec![pinned]);
    }
    let text = format!(
        "the profile pins custom/{name} to sha256 {pinned}, but the site has approved {}",
        digests.join(" or ")
    );
    Err(ImageRefusal::new(ProblemCode::ImageDigestDiffers, text))
}

fn check_standing<'a>(
    name: &str,
    standing: &ImageStanding<'a>,
    now: Timestamp,
) -> Result<&'a str, ImageRefusal> {
    let (actor, reason) = standing.said;
    if let Some(parent) = standing.revoked_parent {
        let text = format!("custom/{name} was built on sha256 {parent}, which was revoked");
        return Err(ImageRefusal::new(ProblemCode::ImageParentRevoked, text));
    }
    let (code, text) = match state_at(standing.state, standing.expires_at, now) {
        Approved | Deprecated => return Ok(standing.sha256),
        Canary if standing.nodes_before < standing.canary_nodes => return Ok(standing.sha256),
        Canary => (
            ProblemCode::ImageCanaryFull,
            format!(
                "custom/{name} is a canary limited to {} nodes, and the limit is reached",
                standing.canary_nodes
            ),
        ),
        Revoked => {
            (ProblemCode::ImageRevoked, format!("custom/{name} was revoked by {actor}: {reason}"))
        }
        Expired => {
            let end = standing.expires_at.map(|end| end.to_string()).unwrap_or_default();
            (ProblemCode::ImageExpired, format!("the approval of custom/{name} expired at {end}"))
        }
        state @ (Built | Verified | Uploaded) => {
            let text = format!("custom/{name} is {state} but not approved for the site");
            (ProblemCode::ImageNotApproved, text)
        }
    };
    Err(ImageRefusal::new(code, text))
}

/// The digests of an image that the site's own list names.
fn listed_digests<'a>(name: &str, listed: &'a [String]) -> Result<Vec<&'a str>, ImageRefusal> {
    let wanted = format!("{CUSTOM}{name}");
    let entries = listed.iter().filter_map(|text| ImageApproval::parse(text).ok());
    let named: Vec<ImageApproval<'_>> =
        entries.filter(|entry| normalise_distro_series(entry.name) == wanted).collect();
    if named.is_empty() {
        let text = format!("{wanted} is not approved for the site");
        return Err(ImageRefusal::new(ProblemCode::ImageNotApproved, text));
    }
    // An entry without a digest lets every image of the name through.
    let digests: Option<Vec<&str>> = named.iter().map(|entry| entry.sha256).collect();
    Ok(digests.unwrap_or_default())
}

/// The image to go back to: the youngest of those that a profile named before, that is another one
/// than now and that may be deployed; none: `ubuntu/noble`. `earlier` has the names and digests of the
/// profile's revisions, the newest first.
pub fn previous_image<'a, I>(
    current: (&str, &str),
    earlier: I,
    mut may_deploy: impl FnMut(&str, &str) -> bool,
) -> Option<(&'a str, &'a str)>
where
    I: IntoIterator<Item = (&'a str, &'a str)>,
{
    let is_same = |(name, digest): (&str, &str)| {
        let same_name = normalise_distro_series(name) == normalise_distro_series(current.0);
        same_name && (digest.is_empty() || current.1.is_empty() || digest == current.1)
    };
    earlier.into_iter().find(|one| !is_same(*one) && may_deploy(one.0, one.1))
}

#[cfg(test)]
#[path = "image_state_tests.rs"]
mod tests;
