//! Style, scripts and the icon, from the executable.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};

/// An asset; its name changes when its bytes do, so that browsers may keep it.
struct Asset {
    name: &'static str,
    media: &'static str,
    bytes: &'static [u8],
}

/// Increase it when the style or the own script changes.
macro_rules! version {
    () => {
        "6"
    };
}
pub(crate) const STYLE: &str = concat!("/assets/console-", version!(), ".css");
pub(crate) const SCRIPT: &str = concat!("/assets/console-", version!(), ".js");
/// htmx 4.0.1 as its authors publish it (0BSD).
pub(crate) const HTMX: &str = "/assets/htmx-4.0.1.js";
pub(crate) const ICON: &str = "/assets/icon.svg";

const ASSETS: [Asset; 4] = [
    Asset {
        name: STYLE,
        media: "text/css; charset=utf-8",
        bytes: include_bytes!("../assets/console.css"),
    },
    Asset {
        name: SCRIPT,
        media: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../assets/console.js"),
    },
    Asset {
        name: HTMX,
        media: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../assets/htmx-4.0.1.min.js"),
    },
    Asset { name: ICON, media: "image/svg+xml", bytes: include_bytes!("../assets/icon.svg") },
];

/// `GET /assets/NAME`.
pub(crate) async fn show(Path(name): Path<String>) -> Response {
    let found = ASSETS.iter().find(|asset| asset.name.strip_prefix("/assets/") == Some(&*name));
    let Some(asset) = found else { return StatusCode::NOT_FOUND.into_response() };
    let headers =
        [(CONTENT_TYPE, asset.media), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, asset.bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest as _, Sha256};

    /// What the library's authors publish, and nothing that was added to it.
    #[test]
    fn htmx_is_the_published_file() {
        let htmx = ASSETS.iter().find(|asset| asset.name == HTMX).unwrap();
        assert_eq!(
            hex::encode(Sha256::digest(htmx.bytes)),
            "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"
        );
    }

    /// Scripts are additions: more than this is an application. Compressed, it is about a third.
    #[test]
    fn own_script_stays_small() {
        let script = ASSETS.iter().find(|asset| asset.name == SCRIPT).unwrap();
        assert!(script.bytes.len() < 8 * 1024, "{}", script.bytes.len());
    }

    /// A browser that kept the file of another version would show a broken page.
    #[test]
    fn version_follows_the_bytes() {
        let mut digest = Sha256::new();
        for asset in ASSETS.iter().filter(|asset| [STYLE, SCRIPT].contains(&asset.name)) {
            digest.update(asset.bytes);
        }
        insta::assert_snapshot!(format!("{} {}", version!(), hex::encode(digest.finalize())));
    }
}
