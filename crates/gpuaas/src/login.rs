//! `gpuaas login` and `gpuaas logout`: a person signs in in a browser, and the context keeps what came of
//! it.

use std::path::Path;

use gpuaas_client::ApiClient;
use gpuaas_client::contexts::{ContextFile, Contexts, SignInRecord};
use gpuaas_client::failure::Failure;
use gpuaas_client::provider::{DeviceCode, Provider};
use gpuaas_client::sign_in::with_tokens;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::codes::CommandCode;

use crate::args::{LoginArgs, LogoutArgs, SignInContextArgs};
use crate::token::grants_text;

/// `gpuaas login`.
///
/// # Errors
/// `context_not_found`, `sign_in_not_offered`, `sign_in_failed`, `provider_unreachable`,
/// `context_file_unusable`; what the control plane says of who signed in.
pub(crate) async fn login(args: LoginArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let file = context_file(&args.of);
    let name = context_name(&file.load()?, &args.of)?;
    let client = ApiClient::anonymous(&args.of.connection())?;
    let offer = client.sign_in_offer().await?;
    let ca_file = args.issuer_ca_file.as_deref().map(std::path::absolute).transpose();
    let ca_file = ca_file.map_err(|error| {
        Failure::usage(CommandCode::CaFileUnusable, error.to_string())
            .hint("pass a PEM file of certificates: `gpuaas login --issuer-ca-file FILE`")
    })?;
    let provider = Provider::discover(&offer.issuer, ca_file.as_deref()).await?;
    let code = provider.begin(&offer.client_id, &offer.scope).await?;
    terminal.message(&invitation(&code));
    let tokens = provider.wait(&offer.client_id, &code).await?;
    let new = SignInRecord {
        issuer: offer.issuer,
        client_id: offer.client_id,
        ca_file,
        bearer: String::new(),
        refresh: None,
        expires_at: 0,
    };
    write_login(&file, &name, Some(with_tokens(new, tokens))).await?;
    let access = ApiClient::connect(&args.of.connection())?.access().await?;
    let may = grants_text(&access.grants);
    terminal.message(&format!("signed in to context {name} as {}: {may}", access.name));
    Ok(())
}

/// `gpuaas logout`.
///
/// # Errors
/// `context_not_found`; `context_file_unusable`.
pub(crate) async fn logout(args: LogoutArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let file = context_file(&args.of);
    let contexts = file.load()?;
    let name = context_name(&contexts, &args.of)?;
    let Some(login) = contexts.find(&name)?.login.clone() else {
        terminal.message(&format!("not signed in to context {name}"));
        return Ok(());
    };
    write_login(&file, &name, None).await?;
    let ended = end(&login).await;
    terminal.message(&format!("signed out of context {name}"));
    match ended {
        Ok(true) => {}
        // What is left of it there ends by itself, and nobody has it any more.
        Ok(false) => terminal
            .message("the identity provider was not notified; the session expires there later"),
        Err(failure) => {
            let detail = &failure.problem.detail;
            terminal.message(&format!("the identity provider was not notified: {detail}"));
        }
    }
    Ok(())
}

/// Tells the provider that a sign-in is over; false: it takes no such word.
async fn end(login: &SignInRecord) -> Result<bool, Failure> {
    let Some(refresh) = &login.refresh else { return Ok(false) };
    let ca_file = login.ca_file.as_deref();
    let provider = Provider::discover(&login.issuer, ca_file.map(Path::new)).await?;
    provider.revoke(&login.client_id, refresh).await
}

fn context_file(of: &SignInContextArgs) -> ContextFile {
    ContextFile::below(of.config.config_home.as_deref())
}

fn context_name(contexts: &Contexts, of: &SignInContextArgs) -> Result<String, Failure> {
    let Some(name) = of.context.as_ref().or(contexts.current.as_ref()) else {
        return Err(Failure::usage(CommandCode::ContextNotFound, "no current context").hint(
            "add a context with `gpuaas context add NAME --server URL`, then run `gpuaas login`",
        ));
    };
    contexts.find(name)?;
    Ok(name.clone())
}

/// Puts a sign-in into its context, or takes it away.
async fn write_login(
    file: &ContextFile,
    name: &str,
    login: Option<SignInRecord>,
) -> Result<(), Failure> {
    let _lock = file.lock().await?;
    let mut contexts = file.load()?;
    contexts.find(name)?;
    if let Some(context) = contexts.contexts.get_mut(name) {
        context.login = login;
    }
    file.save(&contexts)
}

/// What somebody has to do, who may sit at another machine.
fn invitation(code: &DeviceCode) -> String {
    let DeviceCode { user_code, verification_uri, verification_uri_complete, .. } = code;
    let enter = format!("to sign in, open {verification_uri} and enter {user_code}");
    match verification_uri_complete {
        Some(whole) => format!("{enter}\nor open {whole} and check that it shows this code"),
        None => enter,
    }
}

#[cfg(test)]
#[path = "login_tests.rs"]
mod tests;
