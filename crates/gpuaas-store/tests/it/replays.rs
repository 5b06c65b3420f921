//! Requests with an idempotency key: carried out once, answered as often as they are sent.

use gpuaas_store::{KeptResponse, ReplayKey};

use crate::fixture::{Fixture, NOON, at, code, on_each_database};

const HELD_SECONDS: f64 = 90.0;

fn key(caller: &str) -> ReplayKey {
    ReplayKey { caller: caller.to_owned(), key: "k1".to_owned() }
}

fn response(body: &str) -> KeptResponse {
    let content_type = Some("application/json".to_owned());
    KeptResponse { status: 201, content_type, etag: None, body: body.to_owned() }
}

#[test]
fn a_key_is_its_caller_s_and_its_answer_is_kept() {
    on_each_database(|database| async move {
        let store = Fixture::new(database).await.store;
        let begin = |moment, caller: &'static str, digest: u8| {
            let store = store.clone();
            let digest = [digest; 32];
            async move { store.begin_replayable(moment, &key(caller), digest, HELD_SECONDS).await }
        };
        assert_eq!(begin(NOON, "ada", 1).await.unwrap(), None);
        assert_eq!(code(begin(at(1.0), "ada", 1).await), "idempotency_key_in_use");
        assert_eq!(code(begin(at(1.0), "ada", 2).await), "idempotency_key_reused");
        assert_eq!(begin(at(1.0), "eve", 2).await.unwrap(), None, "another's key");
        let kept = Some(response("{\"token\":\"gptoken_secret\"}"));
        store.end_replayable(&key("ada"), [1; 32], kept.clone()).await.unwrap();
        assert_eq!(begin(at(2.0), "ada", 1).await.unwrap(), kept);
        assert_eq!(code(begin(at(2.0), "ada", 2).await), "idempotency_key_reused");
        // A refusal leaves nothing behind.
        store.end_replayable(&key("eve"), [2; 32], None).await.unwrap();
        assert_eq!(begin(at(2.0), "eve", 3).await.unwrap(), None);
        // Its process died: the key is free after a while, for one of those who ask.
        assert_eq!(code(begin(at(80.0), "eve", 3).await), "idempotency_key_in_use");
        assert_eq!(begin(at(100.0), "eve", 3).await.unwrap(), None);
        assert_eq!(code(begin(at(101.0), "eve", 3).await), "idempotency_key_in_use");
        // After a week it is forgotten.
        assert_eq!(begin(at(8.0 * 86_400.0), "ada", 9).await.unwrap(), None);
    });
}
