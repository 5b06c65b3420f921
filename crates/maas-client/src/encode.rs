//! Percent-encoding, forms and the one multipart form that MAAS needs (docs/maas.md#parameters).

use std::fmt::Write as _;

use secrecy::zeroize::Zeroizing;

/// RFC 3986: everything but unreserved characters is encoded, a space as `%20`. Right for OAuth
/// values, path segments, queries and form bodies alike (MAAS reads `%20` in forms).
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    out
}

/// Parameters in order; a repeated key is a list (docs/maas.md#parameters).
#[derive(Clone, Default)]
pub(crate) struct Params(pub(crate) Vec<(String, Zeroizing<String>)>);

impl Params {
    /// Adds all of others.
    pub(crate) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Adds one parameter.
    pub(crate) fn add(&mut self, key: &str, value: impl Into<String>) {
        self.0.push((key.to_owned(), Zeroizing::new(value.into())));
    }

    /// Adds a parameter that may be absent.
    pub(crate) fn opt(&mut self, key: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(key, value.to_string());
        }
    }

    /// Adds a key once per value.
    pub(crate) fn each(&mut self, key: &str, values: &[String]) {
        for value in values {
            self.add(key, value.clone());
        }
    }

    /// Adds `key=true` where set. Both boolean parsers of MAAS read `true`; absent is false in
    /// both, and `no` would be true in one of them (docs/maas.md#parameters).
    pub(crate) fn flag(&mut self, key: &str, set: bool) {
        if set {
            self.add(key, "true");
        }
    }

    /// `k=v&k2=v2`, encoded.
    pub(crate) fn encode(&self) -> String {
        let mut out = String::new();
        for (key, value) in &self.0 {
            if !out.is_empty() {
                out.push('&');
            }
            out.push_str(&escape(key));
            out.push('=');
            out.push_str(&escape(value));
        }
        out
    }
}

/// One file part with form fields.
pub(crate) struct FileForm {
    pub(crate) fields: Params,
    pub(crate) part: &'static str,
    pub(crate) file_name: String,
    pub(crate) content: Vec<u8>,
}

impl FileForm {
    /// Renders the body with a boundary that must not occur in the content. Returns the content
    /// type and the body. Never empty: there is always the file part.
    pub(crate) fn encode(&self, boundary: &str) -> (String, Vec<u8>) {
        let mut head = String::new();
        for (key, value) in &self.fields.0 {
            let key = quoted(key);
            // Writing to a String cannot fail.
            write!(
                head,
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{key}\"\r\n\r\n{}\r\n",
                value.as_str()
            )
            .ok();
        }
        let (part, file) = (quoted(self.part), quoted(&self.file_name));
        write!(
            head,
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{part}\"; filename=\"{file}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        )
        .ok();
        let mut body = head.into_bytes();
        body.extend_from_slice(&self.content);
        body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        (format!("multipart/form-data; boundary={boundary}"), body)
    }
}

/// The escapes that browsers use inside quoted multipart names.
fn quoted(text: &str) -> String {
    text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_all_but_unreserved() {
        assert_eq!(escape("t&s/+"), "t%26s%2F%2B");
        assert_eq!(escape("aZ09-._~"), "aZ09-._~");
        assert_eq!(escape("a b=ü"), "a%20b%3D%C3%BC");
    }

    #[test]
    fn forms_repeat_keys_and_leave_out_what_is_unset() {
        let mut params = Params::default();
        params.add("op", "deploy");
        params.opt("comment", None::<String>);
        params.each("add", &["a".to_owned(), "b c".to_owned()]);
        params.flag("erase", false);
        params.flag("force", true);
        assert_eq!(params.encode(), "op=deploy&add=a&add=b%20c&force=true");
    }

    #[test]
    fn file_form_is_complete_multipart() {
        let mut fields = Params::default();
        fields.add("name", "burn");
        let form = FileForm {
            fields,
            part: "script",
            file_name: "bu\"rn".to_owned(),
            content: b"#!/bin/sh\n".to_vec(),
        };
        let (content_type, body) = form.encode("XX");
        assert_eq!(content_type, "multipart/form-data; boundary=XX");
        assert_eq!(
            String::from_utf8(body).unwrap(),
            "--XX\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nburn\r\n\
             --XX\r\nContent-Disposition: form-data; name=\"script\"; filename=\"bu%22rn\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n#!/bin/sh\n\r\n--XX--\r\n"
        );
    }
}
