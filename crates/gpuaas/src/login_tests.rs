//! Whose sign-in it is; the flow itself is tried with a provider (`tests/it/oidc.rs`).

use gpuaas_client::contexts::Context;

use super::*;
use crate::args::{Command, parse};

async fn typed(home: &Path, line: &str) -> (Result<(), Failure>, String) {
    let home = format!("--config-home={}", home.display());
    let words = line.split(' ').chain([home.as_str()]);
    let (mut terminal, captured) = Terminal::captured();
    let ended = match parse(words).unwrap().command {
        Command::Login(args) => login(args, &mut terminal).await,
        Command::Logout(args) => logout(args, &mut terminal).await,
        _ => panic!("{line} is no command about sign-ins"),
    };
    (ended, captured.stderr())
}

#[tokio::test]
async fn a_sign_in_wants_a_context_and_an_offer() {
    let dir = tempfile::tempdir().unwrap();
    let failure = typed(dir.path(), "gpuaas login").await.0.unwrap_err();
    assert_eq!(failure.code(), "context_not_found");
    assert!(failure.problem.hint.contains("gpuaas context add"), "{failure}");
    // Something that answers, and offers nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let router = axum::Router::new().fallback(|| async { "hello" });
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let file = ContextFile::below(Some(dir.path()));
    let mut contexts = Contexts::default();
    let context = Context { server, token_file: None, ca_file: None, login: None };
    contexts.contexts.insert("east".to_owned(), context);
    contexts.current = Some("east".to_owned());
    file.save(&contexts).unwrap();
    let failure = typed(dir.path(), "gpuaas login").await.0.unwrap_err();
    assert_eq!(failure.code(), "sign_in_not_offered");
    let failure = typed(dir.path(), "gpuaas login --context west").await.0.unwrap_err();
    assert_eq!(failure.code(), "context_not_found");
    let (ended, said) = typed(dir.path(), "gpuaas logout").await;
    assert!(ended.is_ok() && said.contains("not signed in"), "{said}");
}

#[tokio::test]
async fn a_sign_in_is_taken_away_even_where_its_provider_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let file = ContextFile::below(Some(dir.path()));
    let login = SignInRecord {
        issuer: "http://127.0.0.1:1".to_owned(),
        client_id: "cli".to_owned(),
        ca_file: None,
        bearer: "secret-bearer".to_owned(),
        refresh: Some("secret-refresh".to_owned()),
        expires_at: 0,
    };
    assert!(!format!("{login:?}").contains("secret"), "{login:?}");
    let mut contexts = Contexts::default();
    let server = "http://127.0.0.1:1".to_owned();
    let context = Context { server, token_file: None, ca_file: None, login: Some(login) };
    contexts.contexts.insert("east".to_owned(), context);
    file.save(&contexts).unwrap();
    let (ended, said) = typed(dir.path(), "gpuaas logout --context east").await;
    assert!(ended.is_ok() && said.contains("was not notified"), "{said}");
    assert_eq!(file.load().unwrap().contexts["east"].login, None);
    let kept = std::fs::read_to_string(dir.path().join("gpuaas/contexts.json")).unwrap();
    assert!(!kept.contains("secret"), "{kept}");
}
