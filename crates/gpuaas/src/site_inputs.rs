//! Values for inputs of site bundles, as the command line writes them.

use std::collections::BTreeMap;

use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;

use crate::args::Assignment;

/// Values by the bundle's name.
pub(crate) type BundleInputs = BTreeMap<String, BTreeMap<String, String>>;

/// Puts each `BUNDLE.INPUT=VALUE` among `inputs`; an empty value takes one away.
pub(crate) fn with_bundle_inputs(
    mut inputs: BundleInputs,
    assignments: &[Assignment],
) -> BundleInputs {
    for Assignment { field, value } in assignments {
        set_input(&mut inputs, field, value);
    }
    inputs
}

/// Puts each `HOST:BUNDLE.INPUT=VALUE` among `inputs`, by host; an empty value takes one away.
///
/// # Errors
/// `usage`: an assignment names no host.
pub(crate) fn with_host_inputs(
    mut inputs: BTreeMap<String, BundleInputs>,
    assignments: &[Assignment],
) -> Result<BTreeMap<String, BundleInputs>, Failure> {
    for Assignment { field, value } in assignments {
        let Some((host, field)) = field.split_once(':').filter(|(host, _)| !host.is_empty()) else {
            let text = format!("--host-input {field}={value} has no host");
            return Err(Failure::local(CommandCode::BundleInputInvalid, text)
                .hint("use HOST:BUNDLE.INPUT=VALUE"));
        };
        let host = host.to_ascii_lowercase();
        set_input(inputs.entry(host.clone()).or_default(), field, value);
        if inputs.get(&host).is_some_and(BTreeMap::is_empty) {
            inputs.remove(&host);
        }
    }
    Ok(inputs)
}

fn set_input(inputs: &mut BundleInputs, field: &str, value: &str) {
    let (bundle, input) = field.split_once('.').unwrap_or((field, ""));
    let of_bundle = inputs.entry(bundle.to_owned()).or_default();
    if value.is_empty() {
        of_bundle.remove(input);
    } else {
        of_bundle.insert(input.to_owned(), value.to_owned());
    }
    if inputs.get(bundle).is_some_and(BTreeMap::is_empty) {
        inputs.remove(bundle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(texts: &[&str]) -> Vec<Assignment> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_value_is_of_one_host_and_an_empty_one_takes_it_away() {
        let set = ["J22u11:net.address=10.0.0.1/8", "j22u15:net.address=10.0.0.2/8"];
        let known = with_host_inputs(BTreeMap::new(), &assigned(&set)).unwrap();
        assert_eq!(known["j22u11"]["net"]["address"], "10.0.0.1/8");
        let rest = with_host_inputs(known, &assigned(&["j22u11:net.address="])).unwrap();
        assert_eq!(rest.keys().collect::<Vec<_>>(), ["j22u15"]);
        for bad in [":net.a=1", "net.a=1"] {
            let failure = with_host_inputs(BTreeMap::new(), &assigned(&[bad])).unwrap_err();
            assert_eq!(failure.code(), "bundle_input_invalid", "{bad}");
        }
        let site =
            with_bundle_inputs(BTreeMap::new(), &assigned(&["net.a=1", "net.b=2", "net.a="]));
        assert_eq!(site["net"].len(), 1);
    }
}
