//! User-data, as it is written for cloud-init and read back.

use std::hint::black_box;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gpuaas_artifact::{
    BootstrapInputs, ca_bundle_ends_at, parse_user_data, render_user_data, validate_ca_bundle,
};

/// Bytes as user-data, as its part for cloud-init, as the inputs of a bootstrap, as authorities.
///
/// What is rendered of inputs is read back as these inputs, and is written the same each time; user-data
/// of others is refused or read, and never more is made of it than what it holds.
pub fn cloud_init(data: &[u8]) {
    read(data);
    read(&message(data));
    if let Ok(inputs) = serde_json::from_slice::<BootstrapInputs>(data) {
        render(&inputs);
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if validate_ca_bundle(text).is_ok() {
        black_box(ca_bundle_ends_at(text).is_ok());
    }
}

fn read(message: &[u8]) {
    let Ok(parsed) = parse_user_data(message) else { return };
    let scripts: usize = parsed.scripts.iter().map(|(_, text)| text.len()).sum();
    assert!(scripts <= message.len());
    assert!(parsed.scripts.is_sorted());
    black_box(parsed.foreign_scripts());
    render(&parsed.inputs);
}

fn render(inputs: &BootstrapInputs) {
    let Ok(rendered) = render_user_data(inputs) else { return };
    assert_eq!(render_user_data(inputs).map(|again| again.bytes).as_ref(), Ok(&rendered.bytes));
    let parsed = parse_user_data(&rendered.bytes);
    let again = parsed.map(|parsed| {
        assert!(parsed.foreign_scripts().is_empty());
        parsed.inputs
    });
    assert!(again.as_ref() == Ok(inputs), "the rendered user-data parsed as {again:?}");
}

/// The bytes as the part for cloud-init of a message, which a fuzzer would not find through base64.
fn message(config: &[u8]) -> Vec<u8> {
    let mut text = b"Content-Type: multipart/mixed; boundary=\"==_\"\nMIME-Version: 1.0\n\n--==_\n\
        Content-Type: text/cloud-config; charset=\"utf-8\"\nContent-Transfer-Encoding: base64\n\
        Content-Disposition: attachment; filename=\"10-gpuaas.cfg\"\n\n"
        .to_vec();
    text.extend(STANDARD.encode(config).bytes());
    text.extend(b"\n--==_--\n");
    text
}
