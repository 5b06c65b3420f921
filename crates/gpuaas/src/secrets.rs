//! `gpuaas site secret` and `gpuaas profile secret`: a value goes in from a file, never from the
//! command line, which every user of the machine can read, and is never printed.

use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_client::{ApiClient, SecretScope};
use gpuaas_types::api::List;
use gpuaas_types::bundle::{InputSecretSet, InputSecretView};
use gpuaas_types::codes::CommandCode;

use crate::args::SecretCommand;
use crate::input_file::read_secret;

/// Runs the command.
///
/// # Errors
/// What the control plane or this machine refuses, or that the former does not answer.
pub async fn run(
    of: SecretScope,
    command: SecretCommand,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    match command {
        SecretCommand::Set(args) => {
            let value = read_secret(&args.file)?;
            check_form(&args.input, value.expose())?;
            let body = InputSecretSet { value, actor: args.who.actor };
            let client = ApiClient::from_args(&args.api)?;
            let set = client.set_secret(of, &args.name, &args.bundle, &args.input, &body).await?;
            terminal.message("later deployments use the value; reimage running hosts to apply it");
            let one = |set: &InputSecretView, style| table(&List::whole(vec![set.clone()]), style);
            output::print(terminal, args.api.format, &set, one)
        }
        SecretCommand::List(args) => {
            let set = ApiClient::from_args(&args.api)?.secrets(of, &args.name).await?;
            output::print(terminal, args.api.format, &set, table)
        }
        SecretCommand::Delete(args) => {
            let client = ApiClient::from_args(&args.api)?;
            let (bundle, input) = (&args.bundle, &args.input);
            let left = client.delete_secret(of, &args.name, bundle, input, &args.who.actor).await?;
            terminal.message(&format!("deleted {bundle} {input}; values still set:"));
            output::print(terminal, args.api.format, &left, table)
        }
    }
}

/// Refuses a text that cannot be what the input's name says: a password in the place of its hash
/// would lock everybody out of the hosts, and be readable there.
///
/// # Errors
/// `secret_malformed`.
fn check_form(input: &str, value: &str) -> Result<(), Failure> {
    if !input.ends_with("password_hash") || is_crypt_hash(value) {
        return Ok(());
    }
    Err(Failure::usage(
        CommandCode::SecretMalformed,
        format!("{input} is not a password hash as in /etc/shadow"),
    )
    .hint("create one with `openssl passwd -6`, or copy it from /etc/shadow: $6$SALT$HASH"))
}

/// `$ID$...$HASH` of crypt(5): yescrypt, SHA-512, SHA-256 or bcrypt.
fn is_crypt_hash(value: &str) -> bool {
    let parts: Vec<&str> = value.split('$').collect();
    let is_text =
        |part: &&str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b"./=,".contains(&b));
    let known = ["y", "gy", "7", "6", "5", "2a", "2b", "2y"];
    parts.len() >= 4
        && parts[0].is_empty()
        && known.contains(&parts[1])
        && parts.iter().all(is_text)
        && parts.last().is_some_and(|hash| hash.len() >= 22)
}

fn table(list: &List<InputSecretView>, style: Style) -> String {
    let rows = list.items.iter().map(|one| {
        let InputSecretView { bundle, input, set_by, set_at } = one;
        vec![bundle.clone(), input.clone(), set_by.clone(), style.moment(*set_at)]
    });
    output::table(style, &["BUNDLE", "INPUT", "SET BY", "AT"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_no_hash() {
        let sha512 = format!("$6$rounds=5000$salt${}", "a".repeat(86));
        let yescrypt = format!("$y$j9T$salt${}", "b".repeat(43));
        for hash in [sha512, yescrypt] {
            check_form("login_password_hash", &hash).unwrap();
        }
        for bad in [
            "hunter2",
            "$6$salt",
            "$1$salt$0123456789012345678901",
            "$6$s a$0123456789012345678901",
        ] {
            let failure = check_form("login_password_hash", bad).unwrap_err();
            assert_eq!(failure.code(), "secret_malformed", "{bad}");
            assert!(!failure.to_string().contains(bad), "a secret is never shown");
        }
        check_form("registry_token", "hunter2").unwrap();
    }
}
