//! The form that onboards a node, as somebody sees it who may not.

use super::*;

#[tokio::test]
async fn a_viewer_is_told_why_and_a_refused_form_is_no_success() {
    let bench = Bench::over(false, |_| {
        let access = || async { Json(json!({"name": "vera", "grants": [{"role": "viewer"}]})) };
        let nothing = || async { Json(List::whole(Vec::<Value>::new())) };
        Router::new()
            .route("/api/v1/access", get(access))
            .route("/api/v1/sites", get(nothing))
            .route("/api/v1/profiles", get(nothing))
            .route("/api/v1/nodes", post(|| async { refused(403, "forbidden") }))
    });
    let cookie = bench.sign_in().await;
    let (status, _, html) = bench.get("/onboard", &cookie).await;
    assert_eq!(status, StatusCode::OK);
    assert!(html.contains("disabled title=\"needs the role operator\""), "{html}");
    let form = "hostname=j22u11&site=lab&profile=h200&bmc_password=planted";
    let (status, _, html) = bench.post("/onboard", &cookie, Some("same-origin"), form).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    // What was typed is still there, but for the password.
    assert!(html.contains("value=\"j22u11\"") && html.contains("forbidden"), "{html}");
    assert!(!html.contains("planted"), "{html}");
}
