//! Keys and indices of archives beside the distribution's.

use super::publishing::{Archive, missing, serve, sh};
use super::repository::TrustedRepository;
use super::*;

/// A vendor's flat archive at `url` with its key beside it.
fn vendor(url: &str, fingerprints: &[&str]) -> SignedRepository {
    SignedRepository {
        name: "vendor".to_owned(),
        url: format!("{url}/"),
        key_url: format!("{url}/key.asc"),
        fingerprints: fingerprints.iter().map(|text| (*text).to_owned()).collect(),
        prefer: false,
    }
}

#[test]
fn keys_that_the_recipe_does_not_name_are_refused() {
    if let Some(tool) = missing(&["gpg", "dpkg-deb", "apt-get"]) {
        return test_report::skip(tool, "not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let scratch = folder.path();
    let archive = Archive { folder: &scratch.join("vendor"), packages: &["vendor-tool"] };
    archive.flat();
    let url = serve(archive.folder);
    let fingerprint = archive.fingerprint();
    let trusted = |repository: &SignedRepository| repository.trusted(scratch);
    let right = trusted(&vendor(&url, &[&fingerprint])).unwrap();
    assert_eq!(right, trusted(&vendor(&url, &[])).unwrap());
    // A key in its binary form is the same key, and an index without a signature in it counts too.
    sh(archive.folder, "gpg --homedir home --export >key.gpg; mv InRelease Old");
    let binary = SignedRepository { key_url: format!("{url}/key.gpg"), ..vendor(&url, &[]) };
    assert!(trusted(&binary).unwrap().disabled().content.starts_with(b"Enabled: no\n"));

    let error = trusted(&vendor(&url, &[&"A".repeat(40)])).unwrap_err();
    assert_eq!(error.code(), "image_repository_untrusted");
    assert!(error.to_string().contains(&fingerprint), "{error}");
    assert!(error.hint().contains("fingerprints"), "{}", error.hint());
    // As the hint says.
    trusted(&vendor(&url, &[&fingerprint])).unwrap();
    let elsewhere = SignedRepository { key_url: format!("{url}/none"), ..vendor(&url, &[]) };
    assert_eq!(trusted(&elsewhere).unwrap_err().code(), "image_source_unreachable");
    let no_key = SignedRepository { key_url: format!("{url}/Packages"), ..vendor(&url, &[]) };
    assert_eq!(trusted(&no_key).unwrap_err().code(), "image_repository_untrusted");
}

/// The digest of a build names archives by their indices and keys.
#[test]
fn an_archive_that_changed_makes_another_image() {
    let base = BaseSnapshot { digest: "base".to_owned(), epoch_seconds: 7 };
    assert_eq!(with_repositories(&base, &[]), base);
    let one = |digest: &str, at| TrustedRepository::sample(digest, at);
    let first = with_repositories(&base, &[one("a", 9)]);
    let second = with_repositories(&base, &[one("b", 5)]);
    assert_eq!((first.epoch_seconds, second.epoch_seconds), (9, 7));
    assert!(first.digest != second.digest && first.digest != base.digest);
}
