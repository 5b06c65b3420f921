//! MIME multipart as cloud-init reads it (RFC 2046): base64 parts, nothing that varies by run.
//!
//! The boundary comes from the parts' digest, so equal parts give equal bytes; it cannot occur in
//! a part because `_` is no base64 digit.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use gpuaas_bundle::Digest;

/// One part of a message: MIME type, file name and decoded bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) content_type: String,
    pub(crate) file_name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Writes `parts` as one `multipart/mixed` message.
pub(crate) fn write(parts: &[Part]) -> Vec<u8> {
    let mut content = Vec::new();
    for part in parts {
        for field in [part.content_type.as_bytes(), part.file_name.as_bytes(), &part.bytes] {
            content.extend_from_slice(&(field.len() as u64).to_be_bytes());
            content.extend_from_slice(field);
        }
    }
    let boundary = format!("==_{}", Digest::sha256(&content));
    let boundary = boundary.get(..35).unwrap_or(&boundary);
    let mut text =
        format!("Content-Type: multipart/mixed; boundary=\"{boundary}\"\nMIME-Version: 1.0\n\n");
    for part in parts {
        text.push_str(&format!(
            "--{boundary}\nContent-Type: {}; charset=\"utf-8\"\nMIME-Version: 1.0\n\
             Content-Transfer-Encoding: base64\n\
             Content-Disposition: attachment; filename=\"{}\"\n\n",
            part.content_type, part.file_name
        ));
        for line in STANDARD.encode(&part.bytes).as_bytes().chunks(76) {
            text.extend(line.iter().map(|&byte| char::from(byte)));
            text.push('\n');
        }
    }
    text.push_str(&format!("--{boundary}--\n"));
    text.into_bytes()
}

/// Reads a message as [`write`] writes it; `None` when it is not one.
pub(crate) fn read(message: &[u8]) -> Option<Vec<Part>> {
    let text = std::str::from_utf8(message).ok()?;
    let (head, body) = text.split_once("\n\n")?;
    let boundary = head.lines().find_map(|line| {
        let value = line.strip_prefix("Content-Type: multipart/mixed;")?;
        parameter(value, "boundary")
    })?;
    let mut parts = Vec::new();
    let (body, _) = body.split_once(&format!("--{boundary}--"))?;
    for section in body.split(&format!("--{boundary}\n")).skip(1) {
        let (head, payload) = section.split_once("\n\n")?;
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let content_type = field("Content-Type: ")?.split(';').next()?.to_owned();
        let file_name = parameter(field("Content-Disposition: ")?, "filename")?.to_owned();
        let payload: String = payload.split_whitespace().collect();
        parts.push(Part { content_type, file_name, bytes: STANDARD.decode(payload).ok()? });
    }
    Some(parts)
}

fn parameter<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    value.split_once(&format!("{name}=\""))?.1.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_and_equal_parts_give_equal_bytes() {
        let parts: Vec<Part> = (0..4u8)
            .map(|n| Part {
                content_type: "text/x-shellscript".into(),
                file_name: format!("{n}0-x.sh"),
                bytes: (0..usize::from(n) * 100).map(|b| (b % 256) as u8).collect(),
            })
            .collect();
        let message = write(&parts);
        assert_eq!(message, write(&parts));
        assert_eq!(read(&message).unwrap(), parts);
        let mut other = parts.clone();
        other[3].bytes[0] ^= 1;
        assert_ne!(write(&other)[..100], message[..100]);
    }

    #[test]
    fn other_texts_are_not_messages() {
        for other in
            [&b""[..], b"#cloud-config\n", b"\xff\n\n", b"Content-Type: multipart/mixed;\n\n"]
        {
            assert!(read(other).is_none());
        }
    }
}
