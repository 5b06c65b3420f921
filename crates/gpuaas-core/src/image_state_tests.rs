use super::*;

const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const OTHER: &str = "0000000000000000000000000000000000000000000000000000000000000000";

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn standing(state: ImageState) -> ImageStanding<'static> {
    ImageStanding {
        state,
        expires_at: None,
        sha256: DIGEST,
        canary_nodes: 1,
        nodes_before: 0,
        revoked_parent: None,
        said: ("ann", "tried"),
    }
}

fn judged(standing: Option<&ImageStanding<'static>>, pinned: &'static str) -> String {
    match deployable_digests("h200", standing, &[], pinned, at(100)) {
        Ok(digests) => digests.join(","),
        Err(refusal) => refusal.code.to_string(),
    }
}

#[test]
fn every_state_has_a_row_and_none_follows_on_a_revocation() {
    let rows: Vec<Option<ImageState>> = TRANSITIONS.iter().map(|row| row.from).collect();
    for state in ImageState::ALL {
        assert_eq!(rows.iter().filter(|from| **from == Some(*state)).count(), 1, "{state}");
        assert!(check_transition(Some(Revoked), *state, SaidBy::Approver).is_err(), "{state}");
    }
    assert_eq!(rows.iter().filter(|from| from.is_none()).count(), 1);
}

#[test]
fn what_was_done_is_recorded_and_what_may_be_deployed_is_approved() {
    for (from, to, said_by, may) in [
        (None, Built, SaidBy::Record, true),
        (None, Uploaded, SaidBy::Record, true),
        (None, Approved, SaidBy::Approver, false),
        (Some(Built), Verified, SaidBy::Record, true),
        (Some(Verified), Built, SaidBy::Record, false),
        (Some(Verified), Uploaded, SaidBy::Record, true),
        (Some(Verified), Approved, SaidBy::Approver, false),
        (Some(Uploaded), Approved, SaidBy::Record, false),
        (Some(Uploaded), Approved, SaidBy::Approver, true),
        (Some(Uploaded), Canary, SaidBy::Approver, true),
        (Some(Canary), Approved, SaidBy::Approver, true),
        (Some(Approved), Deprecated, SaidBy::Approver, true),
        (Some(Approved), Uploaded, SaidBy::Record, false),
        (Some(Deprecated), Approved, SaidBy::Approver, true),
        (Some(Expired), Approved, SaidBy::Approver, true),
        (Some(Approved), Expired, SaidBy::Approver, false),
        (Some(Approved), Expired, SaidBy::Time, true),
    ] {
        assert_eq!(check_transition(from, to, said_by).is_ok(), may, "{from:?} {to} {said_by:?}");
    }
    let refused = check_transition(Some(Uploaded), Deprecated, SaidBy::Approver).unwrap_err();
    assert_eq!(
        refused,
        "the image is uploaded: it can become canary, approved, revoked, not deprecated"
    );
}

#[test]
fn each_reason_against_a_deployment_has_its_code() {
    for (state, answer) in [
        (Built, "image_not_approved"),
        (Verified, "image_not_approved"),
        (Uploaded, "image_not_approved"),
        (Canary, DIGEST),
        (Approved, DIGEST),
        (Deprecated, DIGEST),
        (Revoked, "image_revoked"),
    ] {
        assert_eq!(judged(Some(&standing(state)), ""), answer, "{state}");
    }
    assert_eq!(judged(None, ""), "image_not_approved");
    let full = ImageStanding { nodes_before: 1, ..standing(Canary) };
    assert_eq!(judged(Some(&full), ""), "image_canary_full");
    let child = ImageStanding { revoked_parent: Some(OTHER), ..standing(Approved) };
    assert_eq!(judged(Some(&child), ""), "image_parent_revoked");
    assert_eq!(judged(Some(&standing(Approved)), DIGEST), DIGEST);
    assert_eq!(judged(Some(&standing(Approved)), OTHER), "image_digest_differs");
}

#[test]
fn an_approval_ends_at_its_moment() {
    for state in [Canary, Approved, Deprecated] {
        for (end, answer) in [(101, DIGEST), (100, "image_expired"), (99, "image_expired")] {
            let one = ImageStanding { expires_at: Some(at(end)), ..standing(state) };
            assert_eq!(judged(Some(&one), ""), answer, "{state} {end}");
        }
    }
    for state in [Built, Verified, Uploaded, Revoked] {
        assert_eq!(state_at(state, Some(at(1)), at(100)), state, "{state}");
    }
}

#[test]
fn the_sites_own_list_counts_where_there_is_no_record() {
    let list = |entries: &[&str]| entries.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    let with_digest = format!("custom/h200@sha256:{DIGEST}");
    for (listed, pinned, answer) in [
        (list(&["custom/h200"]), "", Ok(vec![])),
        (list(&["h200"]), DIGEST, Ok(vec![DIGEST])),
        (list(&[&with_digest]), "", Ok(vec![DIGEST])),
        (list(&[&with_digest]), OTHER, Err(ProblemCode::ImageDigestDiffers)),
        (list(&["custom/other", "ubuntu/noble"]), "", Err(ProblemCode::ImageNotApproved)),
    ] {
        let found = deployable_digests("h200", None, &listed, pinned, at(1));
        assert_eq!(found.map_err(|refusal| refusal.code), answer, "{listed:?} {pinned}");
    }
    let revoked = standing(Revoked);
    let listed = list(&["custom/h200"]);
    let found = deployable_digests("h200", Some(&revoked), &listed, "", at(1)).unwrap_err();
    assert_eq!(found.code, ProblemCode::ImageRevoked, "the record goes before the list");
}

#[test]
fn builds_of_one_recipe_are_a_family() {
    for (name, family) in [
        ("gpuaas-h200-host-20261123-9f86d081884c", "gpuaas-h200-host"),
        ("h200-20261123-9f86d081884", "h200-20261123-9f86d081884"),
        ("h200-2026112-9f86d081884c", "h200-2026112-9f86d081884c"),
        ("20261123-9f86d081884c", "20261123-9f86d081884c"),
        ("h200", "h200"),
    ] {
        assert_eq!(image_family(name), family, "{name}");
    }
}

#[test]
fn a_rollback_goes_to_the_youngest_other_image_that_may_be_deployed() {
    let earlier = [("custom/c", "3"), ("custom/c", ""), ("custom/b", "2"), ("ubuntu/noble", "")];
    let back =
        |refused: &[&str]| previous_image(("c", "3"), earlier, |name, _| !refused.contains(&name));
    assert_eq!(back(&[]), Some(("custom/b", "2")));
    assert_eq!(back(&["custom/b"]), Some(("ubuntu/noble", "")));
    assert_eq!(back(&["custom/b", "ubuntu/noble"]), None);
    let again = [("custom/c", "2")];
    assert_eq!(previous_image(("custom/c", "3"), again, |_, _| true), Some(("custom/c", "2")));
}

#[test]
fn a_site_has_at_most_three_live_images_of_a_family() {
    let names = ["20260101", "20260201", "20260301", "20260401"]
        .map(|day| format!("h200-{day}-9f86d081884c"));
    let of_states = |states: [ImageState; 4]| {
        let all = names.iter().map(String::as_str).zip(states);
        let all = all.map(|(name, state)| ("lab", name, state));
        crowded_families(all.chain([("other", "h200", Approved)])).into_iter().collect::<Vec<_>>()
    };
    let crowded = of_states([Uploaded, Canary, Approved, Expired]);
    assert_eq!(crowded, [(("lab", "h200"), 4)]);
    for gone in [Built, Verified, Revoked] {
        assert_eq!(of_states([Uploaded, gone, Approved, Deprecated]), [], "{gone}");
    }
}
