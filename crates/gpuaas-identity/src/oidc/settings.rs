//! Which provider is trusted, for what, and what its people may do.

use gpuaas_types::issuer::IssuerUrl;

use super::role_rules::RoleRules;

/// Which provider is trusted, for what, and what its people may do.
#[derive(Debug, Clone)]
pub struct OidcSettings {
    /// The provider.
    pub issuer: IssuerUrl,
    /// Whom a token has to be for: one of these.
    pub audiences: Vec<String>,
    /// The client that `gpuaas login` is at the provider; none: it is not told.
    pub client_id: Option<String>,
    /// What `gpuaas login` asks for, with spaces between.
    pub scopes: String,
    /// The claim whose values give roles.
    pub roles_claim: String,
    /// The claim that has a name for people.
    pub name_claim: String,
    /// What its values give.
    pub rules: RoleRules,
}

impl OidcSettings {
    /// What an answer to a request without a credential says of signing in (RFC 9110 section 11.6.1):
    /// all that `gpuaas login` needs to know.
    #[must_use]
    pub fn challenge(&self) -> String {
        // None of these holds a quote: they were read from arguments that refuse them.
        let quoted = |text: &str| text.replace(['"', '\\'], "");
        let client = self.client_id.as_deref().map_or_else(String::new, |client| {
            let scope = quoted(&self.scopes);
            format!(", client_id=\"{}\", scope=\"{scope}\"", quoted(client))
        });
        format!("Bearer realm=\"gpuaas\", issuer=\"{}\"{client}", self.issuer)
    }
}
