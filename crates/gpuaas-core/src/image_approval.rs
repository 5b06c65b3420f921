//! Whether an image may be deployed: it is there, whole, of a form that takes a storage layout, and
//! the very one that the site approved.
//!
//! A name is no identity: whoever may upload to MAAS may put another image under an approved name
//! (docs/maas.md#boot-images). A site may therefore approve an image as `NAME@sha256:HEX`, the
//! digest of its file as MAAS keeps it.

use crate::policy::normalise_distro_series;

/// What stands between the name and the digest of an approval.
const DIGEST_MARK: &str = "@sha256:";
/// What the types of the files of whole-disk images begin with, such as `root-dd.gz`.
const WHOLE_DISK: &str = "root-dd";

/// One entry of a site's approved images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageApproval<'a> {
    /// Name of the image, as a profile may write it.
    pub name: &'a str,
    /// SHA-256 of its file, 64 hexadecimal digits; none: any image of this name.
    pub sha256: Option<&'a str>,
}

impl<'a> ImageApproval<'a> {
    /// The parts of `text`.
    ///
    /// # Errors
    /// A sentence that says which form is wanted.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let (name, sha256) = match text.split_once('@') {
            None => (text, None),
            Some((name, _)) => {
                let digest = text[name.len()..].strip_prefix(DIGEST_MARK).filter(|digest| {
                    digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit())
                });
                let digest = digest.ok_or(
                    "invalid image digest: expected @sha256: and 64 hexadecimal digits after the name",
                )?;
                (name, Some(digest))
            }
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || "/._-:+".contains(c);
        if !(1..=128).contains(&name.len()) || !name.chars().all(fits) {
            return Err(
                "invalid image name: expected 1 to 128 characters of letters, digits and /._-:+"
                    .to_owned(),
            );
        }
        Ok(Self { name, sha256 })
    }
}

/// The file of an uploaded image, as MAAS describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFile {
    /// E.g. `root-tgz`, `root-dd.gz`.
    pub filetype: String,
    /// SHA-256 in hexadecimal digits.
    pub sha256: String,
    /// Whether all of it arrived.
    pub complete: bool,
}

/// Whether the site's list lets an image of this name through; the digests of which one has to be
/// its own, none of them: the name does.
///
/// # Errors
/// A sentence for the operator: the name is in no entry.
pub fn approved_digests<'a>(
    approved: &'a [String],
    distro_series: &str,
) -> Result<Vec<&'a str>, String> {
    if approved.is_empty() {
        return Ok(Vec::new());
    }
    let wanted = normalise_distro_series(distro_series);
    let entries = approved.iter().filter_map(|text| ImageApproval::parse(text).ok());
    let named: Vec<ImageApproval<'_>> =
        entries.filter(|entry| normalise_distro_series(entry.name) == wanted).collect();
    if named.is_empty() {
        return Err(format!(
            "{wanted} is not approved for the site; approved: {}",
            approved.join(", ")
        ));
    }
    // An entry without a digest lets every image of the name through.
    let digests: Option<Vec<&str>> = named.iter().map(|entry| entry.sha256).collect();
    Ok(digests.unwrap_or_default())
}

/// Whether the file of an uploaded image may be deployed with `layout`; what was seen.
///
/// # Errors
/// A sentence for the operator.
pub fn check_image_file(
    name: &str,
    file: Option<&ImageFile>,
    digests: &[&str],
    layout: &str,
) -> Result<String, String> {
    let file = file.filter(|file| file.complete).ok_or_else(|| {
        format!(
            "the upload of {name} is incomplete: MAAS cannot deploy it until the upload has \
             finished"
        )
    })?;
    if file.filetype.starts_with(WHOLE_DISK) {
        return Err(format!(
            "{name} is a whole-disk image ({}) with its own partitions, so the profile's storage \
             layout {layout} would not be created; upload the image as tgz",
            file.filetype
        ));
    }
    let has = |digest: &&&str| digest.eq_ignore_ascii_case(&file.sha256);
    match digests.iter().find(has) {
        Some(_) => Ok(format!("its file has the approved sha256 {}", file.sha256)),
        None if digests.is_empty() => Ok(format!("sha256 {}", file.sha256)),
        None => Err(format!(
            "{name} is not the approved image: its file has sha256 {}, the approved one is {}",
            file.sha256,
            digests.join(" or ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn file(filetype: &str) -> ImageFile {
        let (filetype, sha256) = (filetype.to_owned(), DIGEST.to_owned());
        ImageFile { filetype, sha256, complete: true }
    }

    #[test]
    fn an_approval_is_a_name_with_or_without_a_digest() {
        let full = format!("custom/h200@sha256:{DIGEST}");
        let parsed = ImageApproval::parse(&full).unwrap();
        assert_eq!((parsed.name, parsed.sha256), ("custom/h200", Some(DIGEST)));
        assert_eq!(ImageApproval::parse("ubuntu/noble").unwrap().sha256, None);
        let short = &full[..full.len() - 1];
        for wrong in ["", "a b", "custom/h200@", "custom/h200@sha256:", short, "@sha256:"] {
            assert!(ImageApproval::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_list_says_which_digests_count() {
        let list = |entries: &[&str]| -> Vec<String> {
            entries.iter().map(|entry| (*entry).to_owned()).collect()
        };
        let digest = format!("custom/h200@sha256:{DIGEST}");
        let of = |entries: &[&str], name: &str| {
            approved_digests(&list(entries), name)
                .map(|digests| digests.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&[], "custom/any"), Ok(vec![]));
        assert_eq!(of(&[&digest], "custom/h200"), Ok(vec![DIGEST.to_owned()]));
        assert_eq!(of(&[&digest, "custom/h200"], "custom/h200"), Ok(vec![]));
        assert_eq!(of(&["noble"], "ubuntu/noble"), Ok(vec![]));
        assert!(of(&[&digest], "ubuntu/noble").unwrap_err().contains("not approved"));
    }

    #[test]
    fn only_the_approved_whole_file_of_a_root_filesystem_passes() {
        let other = "0".repeat(64);
        let judge = |file: Option<&ImageFile>, digests: &[&str]| {
            check_image_file("custom/h200", file, digests, "flat")
        };
        assert!(judge(Some(&file("root-tgz")), &[]).unwrap().contains(DIGEST));
        let upper = DIGEST.to_uppercase();
        assert!(judge(Some(&file("root-tgz")), &[&other, &upper]).unwrap().contains("approved"));
        let wrong = judge(Some(&file("root-tgz")), &[&other]).unwrap_err();
        assert!(wrong.contains(DIGEST) && wrong.contains(&other), "{wrong}");
        for whole in ["root-dd", "root-dd.gz", "root-dd.raw"] {
            assert!(judge(Some(&file(whole)), &[]).unwrap_err().contains("as tgz"), "{whole}");
        }
        let half = ImageFile { complete: false, ..file("root-tgz") };
        assert!(judge(Some(&half), &[]).unwrap_err().contains("is incomplete"));
        assert!(judge(None, &[]).unwrap_err().contains("is incomplete"));
    }
}
