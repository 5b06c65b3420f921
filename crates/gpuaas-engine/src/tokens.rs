//! Secrets handed to nodes: 256 random bits. The store keeps their SHA-256 only.

/// A fresh secret: a prefix that names its purpose and 64 hexadecimal characters.
///
/// # Errors
/// When the operating system gives no random bytes.
pub fn generate_token(prefix: &str) -> Result<String, getrandom::Error> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{prefix}_{}", hex::encode(bytes)))
}

#[cfg(test)]
mod tests {
    use super::generate_token;

    #[test]
    fn secrets_are_long_and_differ() {
        let (a, b) = (generate_token("gpb").unwrap(), generate_token("gpb").unwrap());
        assert_ne!(a, b);
        assert!(a.len() == 68 && a.starts_with("gpb_"));
    }
}
