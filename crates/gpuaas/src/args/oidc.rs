//! `gpuaas serve`: sign-in of people.

use std::path::PathBuf;

use clap::Args;
use gpuaas_api::SignIn;
use gpuaas_client::failure::Failure;
use gpuaas_identity::oidc::{OidcSettings, RoleRule, RoleRules};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::issuer::IssuerUrl;

use crate::input_file::read_file;

/// Identity provider options of `gpuaas serve`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sign-in at an identity provider (OpenID Connect)")]
pub struct OidcArgs {
    /// Issuer URL of the provider, as in its tokens (`iss`): https, or http on loopback [default:
    /// sign-in is off].
    #[arg(long, value_name = "URL", requires_all = ["oidc_audience", "oidc_role"])]
    pub oidc_issuer: Option<IssuerUrl>,
    /// Audience that tokens must contain (`aud`). Repeat for more.
    #[arg(long, value_name = "NAME", value_parser = token_word, requires = "oidc_issuer")]
    pub oidc_audience: Vec<String>,
    /// Role for a value of the claim: viewer, operator, approver or admin, optionally with sites
    /// after @, such as `gpu-ops=operator@lab,prod`. Repeat for more.
    #[arg(long, value_name = "VALUE=ROLE[@SITE,...]", requires = "oidc_issuer")]
    pub oidc_role: Vec<RoleRule>,
    /// Claim whose values map to roles; use dots for a nested claim, such as `realm_access.roles`.
    #[arg(long, value_name = "CLAIM", default_value = "groups")]
    pub oidc_roles_claim: String,
    /// Claim that the audit log shows next to the subject.
    #[arg(long, value_name = "CLAIM", default_value = "preferred_username")]
    pub oidc_name_claim: String,
    /// Client ID of `gpuaas login` at the provider: a public client with the device flow enabled
    /// [default: `gpuaas login` is off].
    #[arg(long, value_name = "ID", value_parser = token_word, requires = "oidc_issuer")]
    pub oidc_client_id: Option<String>,
    /// Scopes that `gpuaas login` requests.
    #[arg(long, value_name = "SCOPES", value_parser = token_words, default_value = "openid offline_access")]
    pub oidc_scopes: String,
    /// PEM file of certificate authorities to trust for the provider, besides this system's.
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    pub oidc_ca_file: Option<PathBuf>,
}

impl OidcArgs {
    /// Sign-in configuration from the arguments; `None` turns sign-in off.
    ///
    /// # Errors
    /// `file_unreadable`; `ca_file_unusable`.
    pub fn sign_in(&self) -> Result<Option<SignIn>, Failure> {
        let Some(issuer) = self.oidc_issuer.clone() else { return Ok(None) };
        let settings = OidcSettings {
            issuer,
            audiences: self.oidc_audience.clone(),
            client_id: self.oidc_client_id.clone(),
            scopes: self.oidc_scopes.clone(),
            roles_claim: self.oidc_roles_claim.clone(),
            name_claim: self.oidc_name_claim.clone(),
            rules: RoleRules(self.oidc_role.clone()),
        };
        let anchors = self.oidc_ca_file.as_deref().map(read_file).transpose()?;
        let sign_in = SignIn::new(settings, anchors.as_deref().map(str::as_bytes));
        sign_in.map(Some).map_err(|why| {
            Failure::usage(CommandCode::CaFileUnusable, why)
                .hint("pass a PEM file of certificates with --oidc-ca-file")
        })
    }
}

/// Text that fits into a quoted header value.
fn token_words(text: &str) -> Result<String, String> {
    let fits = |b: u8| b == b' ' || b.is_ascii_graphic() && b != b'"' && b != b'\\';
    if !text.trim().is_empty() && text.bytes().all(fits) {
        Ok(text.trim().to_owned())
    } else {
        Err("expected printable ASCII characters without quotes or backslashes".to_owned())
    }
}

fn token_word(text: &str) -> Result<String, String> {
    token_words(text).and_then(|word| match word.contains(' ') {
        true => Err("expected one word".to_owned()),
        false => Ok(word),
    })
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command, ServeArgs, parse};

    fn serve(line: &str) -> Result<ServeArgs, String> {
        let words = line.split(' ').map(|word| word.replace('_', " "));
        match parse(words).map_err(|error| error.to_string())? {
            Cli { command: Command::Serve(args), .. } => Ok(*args),
            _ => Err("another command".to_owned()),
        }
    }

    #[test]
    fn sign_in_is_off_unless_a_provider_is_named() {
        let args = serve("gpuaas serve").unwrap();
        assert!(args.oidc.sign_in().unwrap().is_none());
        let whole = "gpuaas serve --oidc-issuer https://idp.example --oidc-audience gpuaas \
                     --oidc-role ops=operator@lab,prod --oidc-role admins=admin \
                     --oidc-client-id cli --oidc-scopes openid_offline";
        gpuaas_client::install_cryptography();
        let sign_in = serve(whole).unwrap().oidc.sign_in().unwrap().unwrap();
        let challenge = "Bearer realm=\"gpuaas\", issuer=\"https://idp.example\", \
                         client_id=\"cli\", scope=\"openid offline\"";
        assert_eq!(sign_in.challenge(), challenge);
    }

    #[test]
    fn half_a_sign_in_is_refused() {
        for (line, part) in [
            ("--oidc-issuer https://idp.example", "--oidc-audience"),
            ("--oidc-issuer https://idp.example --oidc-audience a", "--oidc-role"),
            ("--oidc-audience a", "--oidc-issuer"),
            ("--oidc-issuer http://idp.example --oidc-audience a --oidc-role x=admin", "loopback"),
            ("--oidc-issuer https://i.example --oidc-audience a --oidc-role x=boss", "viewer"),
            ("--oidc-issuer https://i.example --oidc-audience a_b --oidc-role x=admin", "one word"),
            ("--oidc-issuer https://i.example --oidc-audience \" --oidc-role x=admin", "quotes"),
        ] {
            let refused = serve(&format!("gpuaas serve {line}")).unwrap_err();
            assert!(refused.contains(part), "{line}: {refused}");
        }
        let line = "gpuaas serve --oidc-issuer https://i.example --oidc-audience a \
                    --oidc-role x=admin --oidc-ca-file Cargo.toml";
        let failure = serve(line).unwrap().oidc.sign_in().unwrap_err();
        assert_eq!(failure.code(), "ca_file_unusable");
        assert!(failure.problem.hint.contains("--oidc-ca-file"), "{failure}");
    }
}
