//! cloud-init's own configuration in an image, read as cloud-init reads it.

use serde_json::Value;

use super::subject::LintSubject;

const MAIN: &str = "etc/cloud/cloud.cfg";
const FOLDER: &str = "etc/cloud/cloud.cfg.d/";

/// A file of cloud-init's configuration.
pub(super) struct CloudConfig<'a> {
    /// Its path in the archive.
    pub(super) path: &'a str,
    text: &'a str,
    value: Option<Value>,
}

/// The files that cloud-init reads: `cloud.cfg`, then what ends with `.cfg` in its folder.
pub(super) fn cloud_configs<'a>(
    image: &'a LintSubject<'_>,
) -> impl Iterator<Item = CloudConfig<'a>> {
    let below = image.leaves(FOLDER).map(|(path, _)| path).filter(|path| path.ends_with(".cfg"));
    let paths = std::iter::once(MAIN).chain(below);
    paths.filter_map(|path| {
        let text = image.text(path)?.trim_start_matches('\u{feff}');
        Some(CloudConfig { path, text, value: parse(text) })
    })
}

/// YAML as cloud-init's parser takes it, where a key that is there twice counts once, the last time.
fn parse(text: &str) -> Option<Value> {
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
    };
    serde_saphyr::from_str_with_options(text, options).ok()
}

impl CloudConfig<'_> {
    /// Sources that may be asked; none: the file does not say.
    pub(super) fn datasource_list(&self) -> Option<Vec<String>> {
        let Some(value) = &self.value else {
            // cloud-init warns about a file that it cannot read; ds-identify still looks for this line.
            let mut lines = self.text.lines();
            let line = lines.find_map(|line| line.strip_prefix("datasource_list:"))?;
            let plain = |c: char| !c.is_ascii_alphanumeric() && c != '_';
            return Some(
                line.split(plain).filter(|one| !one.is_empty()).map(str::to_owned).collect(),
            );
        };
        let names = |text: &str| text.split(',').map(|one| one.trim().to_owned()).collect();
        match value.get("datasource_list")? {
            Value::Array(list) => {
                Some(list.iter().map(|one| one.as_str().unwrap_or("None").to_owned()).collect())
            }
            Value::String(text) => Some(names(text)),
            _ => None,
        }
    }

    /// Whether cloud-init may not configure the network.
    pub(super) fn disables_network(&self) -> bool {
        let Some(value) = &self.value else {
            let squeezed: String = self.text.split_whitespace().collect();
            let plain = squeezed.replace(['"', '\'', '{', '}'], "");
            return plain.contains("network:config:disabled");
        };
        value["network"] == "disabled" || value["network"]["config"] == "disabled"
    }

    /// Whether it configures ports of a machine by itself.
    pub(super) fn configures_network(&self) -> bool {
        let network = self.value.as_ref().map_or(&Value::Null, |value| &value["network"]);
        let nested = network.get("network").unwrap_or(network);
        let kinds = ["ethernets", "bonds", "vlans", "bridges", "wifis"];
        let is_set = |value: &Value| value.as_object().is_some_and(|map| !map.is_empty());
        kinds.iter().any(|kind| is_set(&nested[*kind]))
            || nested["config"].as_array().is_some_and(|ports| !ports.is_empty())
    }

    /// Whether user-data is left aside.
    pub(super) fn refuses_user_data(&self) -> bool {
        self.value.as_ref().is_some_and(|value| value["allow_userdata"] == false)
    }

    /// Whether it names MAAS' metadata of another machine, or a key to it.
    pub(super) fn names_metadata(&self) -> bool {
        let maas = self.value.as_ref().map_or(&Value::Null, |value| &value["datasource"]["MAAS"]);
        let fields = ["metadata_url", "consumer_key", "token_key", "token_secret"];
        fields.iter().any(|field| maas[*field].as_str().is_some_and(|text| !text.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> CloudConfig<'_> {
        CloudConfig { path: MAIN, text, value: parse(text) }
    }

    #[test]
    fn the_network_is_off_in_every_style_of_yaml() {
        for text in [
            "network: {config: disabled}\n",
            "network: {\"config\": \"disabled\"}\n",
            "network:\n    config: \"disabled\"\n",
            "network:\n  # off\n  config: 'disabled' # yes\n",
            "{network: {config: disabled}}",
            "a: &off {config: disabled}\nnetwork: *off\n",
            "a: 1\na: 2\nnetwork:\n  config: disabled\n",
        ] {
            assert!(of(text).disables_network(), "{text}");
        }
        for text in ["network: {version: 2}\n", "#network: {config: disabled}\n", "x: [network]\n"]
        {
            assert!(!of(text).disables_network(), "{text}");
        }
    }

    #[test]
    fn sources_are_listed_in_every_style_of_yaml() {
        for text in [
            "datasource_list: [ NoCloud, None ]\n",
            "datasource_list:\n- NoCloud\n- None\n",
            "datasource_list: [\"NoCloud\",\n  'None']\n",
            "datasource_list: [MAAS]\ndatasource_list: [NoCloud, None]\n",
        ] {
            let list = of(text).datasource_list().unwrap();
            assert_eq!(list, ["NoCloud", "None"], "{text}");
        }
        assert_eq!(of("# datasource_list: [None]\n").datasource_list(), None);
        let broken = of("datasource_list: [ None ]\nx: [\n");
        assert_eq!(broken.datasource_list().unwrap(), ["None"]);
    }

    #[test]
    fn leftovers_of_another_machine_are_told_from_settings() {
        assert!(of("datasource: {MAAS: {metadata_url: 'http://x'}}").names_metadata());
        assert!(!of("datasource: {MAAS: {timeout: 5}}").names_metadata());
        assert!(of("network: {version: 2, ethernets: {eno1: {dhcp4: true}}}").configures_network());
        assert!(of("network: {version: 1, config: [{type: physical}]}").configures_network());
        assert!(!of("network: {config: disabled}").configures_network());
    }
}
