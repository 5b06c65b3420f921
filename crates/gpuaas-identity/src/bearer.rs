//! The credential in a header (RFC 6750 section 2.1).

/// The credential of an `Authorization` header; none: it holds no bearer credential. The name of the
/// scheme counts in either case (RFC 9110 section 11.1).
#[must_use]
pub fn bearer_token(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::bearer_token;

    #[test]
    fn only_a_bearer_credential_is_one() {
        assert_eq!(bearer_token("Bearer gptoken_x"), Some("gptoken_x"));
        assert_eq!(bearer_token("bEARER  gptoken_x "), Some("gptoken_x"));
        for other in ["", "Bearer", "Bearer  ", "Basic eDp5", "gptoken_x", " Bearer x"] {
            assert_eq!(bearer_token(other), None, "{other:?}");
        }
    }
}
