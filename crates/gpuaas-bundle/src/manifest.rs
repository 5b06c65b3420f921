//! The manifest of a bundle.
//!
//! A person writes it as `bundle.yaml`; an archive has it as `manifest.json`, its first entry.
//! [`Manifest::faults`] returns everything that is wrong with it at once. A bundle with a fault is
//! never built, so nothing that runs on a node has to guess.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

pub use gpuaas_types::agent::Gate;
use gpuaas_types::agent::{AgentVersion, HostCheck};
use serde::{Deserialize, Serialize};

use crate::bundle_kind::{AGENT_FILE, BundleKind};
pub use crate::expectation::{BY_REQUIRED, EstablishedCheck, Expectation};
use crate::format::{self, FORMAT};
use crate::host_value;
use crate::input::{self, Input, InputError, Inputs, is_path};
pub use crate::packages::Packages;

/// Name of the manifest in a bundle's folder.
pub const SOURCE_NAME: &str = "bundle.yaml";
/// Name of the manifest in an archive.
pub const ARCHIVED_NAME: &str = "manifest.json";
/// The format that brought who establishes an effect.
const FORMAT_OF_BY: u32 = 4;
/// Longest time that a phase may take, in seconds.
const MAX_PHASE_SECONDS: u32 = 4 * 3600;

/// A bundle's name and version, written `name@version`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleReference {
    /// Name, `[a-z0-9-]`, at most 64 characters. Also a file name on the node.
    pub name: String,
    /// Version, `[0-9A-Za-z.+-]`, at most 64 characters.
    pub version: String,
}

/// A bundle's manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Name, `[a-z0-9-]`.
    pub name: String,
    /// Version, `[0-9A-Za-z.+-]`.
    pub version: String,
    /// Format of the manifest, at most [`FORMAT`]; an agent of an older one refuses it.
    #[serde(default = "format::first_format", skip_serializing_if = "format::is_first_format")]
    pub format: u32,
    /// When and where the bundle runs.
    pub kind: BundleKind,
    /// Purpose of the bundle, one line.
    pub about: String,
    /// Bundles that run before this one, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<Requirement>,
    /// Values that a site may set, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, Input>,
    /// Debian packages that the node needs.
    #[serde(default, skip_serializing_if = "Packages::is_none")]
    pub packages: Packages,
    /// Scripts that run on the node, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<ManifestPhase>,
    /// Effects on a node on which it ran: [`HostCheck`]s, in which `{input}` stands for an input's
    /// value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expects: Vec<Expectation>,
}

/// A bundle that runs before another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// The bundle's reference, `name@version`.
    pub bundle: String,
    /// Values for its inputs, in which `{input}` stands for a value of the requiring bundle.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub with: Inputs,
}

/// One script of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestPhase {
    /// Name, `[a-z0-9-]`, as the timeline shows it.
    pub name: String,
    /// The script, a file of the bundle, run by bash.
    pub run: String,
    /// Seconds after which the phase is killed.
    pub timeout_seconds: u32,
    /// Boolean input; where it is 0, the phase is skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_when: Option<String>,
    /// Whether the phase only installs packages: it is skipped on a curated image that has them all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub installs_packages: bool,
    /// Paths of the node below which the phase changes files. It changes no others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touches: Vec<String>,
}

/// What is wrong with a manifest, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestFault {
    /// Path of the field, such as `phases[3]`.
    pub at: String,
    /// What is wrong, in a sentence.
    pub text: String,
}

impl fmt::Display for ManifestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.text)
    }
}

impl fmt::Display for BundleReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

impl FromStr for BundleReference {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, version) =
            text.split_once('@').ok_or("expected an @ between name and version")?;
        if !is_name(name) {
            return Err(
                "expected a name of 1 to 64 characters of a-z, 0-9 and -, starting with a letter or digit",
            );
        }
        if !is_version(version) {
            return Err(
                "expected a version of 1 to 64 letters, digits, dots, + and -, starting with a letter or digit",
            );
        }
        Ok(Self { name: name.to_owned(), version: version.to_owned() })
    }
}

/// Whether `text` may name a bundle, a phase or a file of a marker.
#[must_use]
pub fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether `text` may be a version.
#[must_use]
pub fn is_version(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".+-".contains(&b))
}

fn is_input_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn is_environment_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// Environment variables that the launcher sets.
const RESERVED_VARIABLES: [&str; 5] =
    ["GPUAAS_HOST_ROOT", "GPUAAS_BUNDLE_DIR", "GPUAAS_RUN_ID", "GPUAAS_SITE", "GPUAAS_HOSTNAME"];

impl Manifest {
    /// The bundle's reference, `name@version`.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// The values of its inputs: those of `set`, else the defaults.
    ///
    /// # Errors
    /// See [`input::resolve`].
    pub fn resolve(&self, set: &Inputs) -> Result<Inputs, InputError> {
        input::resolve(&self.inputs, set)
    }

    /// The values of its inputs with every secret empty.
    ///
    /// # Errors
    /// See [`input::resolve`].
    pub fn resolve_public(&self, set: &Inputs) -> Result<Inputs, InputError> {
        let (secret, open): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.inputs.clone().into_iter().partition(|(_, input)| input.secret);
        let mut set = set.clone();
        set.retain(|name, _| !secret.contains_key(name));
        let mut values = input::resolve(&open, &set)?;
        values.extend(secret.into_keys().map(|name| (name, String::new())));
        Ok(values)
    }

    /// The values that a required bundle gets when this one has `values`.
    ///
    /// # Errors
    /// A placeholder that names no input; a bundle that was built has none.
    pub fn values_for(
        &self,
        requirement: &Requirement,
        values: &Inputs,
    ) -> Result<Inputs, InputError> {
        requirement
            .with
            .iter()
            .map(|(name, text)| Ok((name.clone(), input::fill_text(text, values)?)))
            .collect()
    }

    /// An input of `required` that is not secret, and to which this bundle hands down a secret.
    #[must_use]
    pub fn leaked_secret(&self, requirement: &Requirement, required: &Self) -> Option<String> {
        let open = |name: &str| required.inputs.get(name).is_some_and(|input| !input.secret);
        let mut handed_down = requirement.with.iter();
        handed_down
            .find(|(name, text)| open(name) && self.mentions_secret(text))
            .map(|(name, _)| name.clone())
    }

    /// Whether `text` has a placeholder of a secret.
    fn mentions_secret(&self, text: &str) -> bool {
        let mut secrets = self.inputs.iter().filter(|(_, input)| input.secret);
        secrets.any(|(name, _)| {
            text.contains(&format!("{{{name}}}")) || text.contains(&format!("{{{name}:"))
        })
    }

    /// Whether a phase or check with this `only_when` applies.
    #[must_use]
    pub fn applies(&self, only_when: Option<&str>, values: &Inputs) -> bool {
        only_when.is_none_or(|name| values.get(name).is_some_and(|value| value == "1"))
    }

    /// The checks that apply with these values.
    ///
    /// # Errors
    /// A check that cannot be filled with the values; a bundle that was built has none.
    pub fn checks(&self, values: &Inputs) -> Result<Vec<HostCheck>, ManifestFault> {
        self.checks_where(values, |_| true)
    }

    /// The checks that block a gate with these values; `required`: whether another bundle of the host
    /// requires this one.
    ///
    /// # Errors
    /// See [`Self::checks`].
    pub fn gate_checks(
        &self,
        gate: Gate,
        values: &Inputs,
        required: bool,
    ) -> Result<Vec<HostCheck>, ManifestFault> {
        self.checks_where(values, |expected| expected.blocks(gate, required))
    }

    /// [`Self::gate_checks`] without those that contain a secret value; these may be stored and shown.
    ///
    /// # Errors
    /// See [`Self::checks`].
    pub fn public_gate_checks(
        &self,
        gate: Gate,
        values: &Inputs,
        required: bool,
    ) -> Result<Vec<HostCheck>, ManifestFault> {
        let is_public = |expected: &Expectation| {
            let mut texts = expected.check.values();
            !texts.any(|text| self.mentions_secret(&text.to_string()))
        };
        self.checks_where(values, |expected| expected.blocks(gate, required) && is_public(expected))
    }

    /// [`Self::gate_checks`] with what establishes each.
    ///
    /// # Errors
    /// See [`Self::checks`].
    pub fn established_checks(
        &self,
        gate: Gate,
        values: &Inputs,
        required: bool,
    ) -> Result<Vec<EstablishedCheck>, ManifestFault> {
        self.established_where(values, |expected| expected.blocks(gate, required))
    }

    fn checks_where(
        &self,
        values: &Inputs,
        applies: impl Fn(&Expectation) -> bool,
    ) -> Result<Vec<HostCheck>, ManifestFault> {
        let established = self.established_where(values, applies)?;
        Ok(established.into_iter().map(|one| one.check).collect())
    }

    /// The bundle and the phase that `by` names.
    fn establisher(&self, by: Option<&str>) -> (String, Option<String>) {
        match by {
            None | Some(BY_REQUIRED) => (self.name.clone(), None),
            Some(by) => match by.split_once('/') {
                Some((bundle, phase)) => (bundle.to_owned(), Some(phase.to_owned())),
                None => (self.name.clone(), Some(by.to_owned())),
            },
        }
    }

    fn established_where(
        &self,
        values: &Inputs,
        applies: impl Fn(&Expectation) -> bool,
    ) -> Result<Vec<EstablishedCheck>, ManifestFault> {
        let mut checks = Vec::new();
        for (index, expected) in self.expects.iter().enumerate() {
            if !applies(expected) || !self.applies(expected.only_when.as_deref(), values) {
                continue;
            }
            let fault = |text: String| ManifestFault { at: format!("expects[{index}]"), text };
            let document = serde_json::Value::Object(expected.check.clone());
            let filled = input::fill_placeholders(&document, &self.inputs, values)
                .map_err(|error| fault(error.to_string()))?;
            let check = serde_json::from_value(filled).map_err(|error| {
                // The error's own text may show a value.
                let hidden = self.mentions_secret(&document.to_string());
                fault(if hidden {
                    "the value of a secret does not fit the check".to_owned()
                } else {
                    error.to_string()
                })
            })?;
            let (bundle, phase) = self.establisher(expected.by.as_deref());
            let otherwise = expected.otherwise.clone();
            checks.push(EstablishedCheck { check, bundle, phase, otherwise });
        }
        Ok(checks)
    }

    /// Everything that is wrong with the manifest; `files` are the paths of the bundle.
    #[must_use]
    pub fn faults(&self, files: &BTreeSet<String>) -> Vec<ManifestFault> {
        let mut faults = Vec::new();
        let mut report = |at: &str, text: String| {
            faults.push(ManifestFault { at: at.to_owned(), text });
        };
        if let Err(reason) = self.reference().parse::<BundleReference>() {
            report("name", reason.to_owned());
        }
        if self.format == 0 || self.format > FORMAT {
            report("format", format!("expected 1 to {FORMAT}"));
        }
        if self.about.trim().is_empty() || self.about.contains('\n') {
            report("about", "expected one line that says what the bundle is for".to_owned());
        }
        self.faults_of_kind(files, &mut report);
        self.faults_of_requires(&mut report);
        self.faults_of_inputs(&mut report);
        host_value::faults(&self.inputs, self.format, &mut report);
        self.faults_of_phases(files, &mut report);
        for package in self.packages.all() {
            if input::InputType::Package.parse(package).is_err() {
                report("packages", format!("{package:?} is not a package name"));
            }
        }
        for name in self.packages.when.keys() {
            self.fault_of_condition("packages.when", Some(name), &mut report);
        }
        self.faults_of_checks(&mut report);
        faults
    }

    fn faults_of_kind(&self, files: &BTreeSet<String>, report: &mut impl FnMut(&str, String)) {
        match self.kind {
            BundleKind::SiteBootstrap if self.phases.is_empty() => {
                report("phases", "a site bootstrap needs at least one phase".to_owned());
            }
            BundleKind::PostDeployValidation if self.expects.is_empty() => {
                report("expects", "a validation needs at least one check".to_owned());
            }
            BundleKind::SiteBootstrap => {}
            _ if !self.phases.is_empty() => {
                report("phases", format!("a {} bundle cannot have phases", self.kind.as_str()));
            }
            BundleKind::NodeAgent => self.faults_of_agent(files, report),
            _ => {}
        }
    }

    /// What is wrong with a bundle that holds an agent and nothing else.
    fn faults_of_agent(&self, files: &BTreeSet<String>, report: &mut impl FnMut(&str, String)) {
        if let Err(reason) = self.version.parse::<AgentVersion>() {
            report("version", reason.to_owned());
        }
        if !files.contains(AGENT_FILE) {
            report("kind", format!("the executable {AGENT_FILE:?} is missing"));
        }
        if !(self.requires.is_empty() && self.inputs.is_empty() && self.expects.is_empty()) {
            report("kind", "an agent bundle cannot have requires, inputs or checks".to_owned());
        }
    }

    fn faults_of_requires(&self, report: &mut impl FnMut(&str, String)) {
        let mut seen = BTreeSet::new();
        let samples = self.samples();
        for requirement in &self.requires {
            let required = &requirement.bundle;
            match required.parse::<BundleReference>() {
                Err(reason) => report("requires", format!("{required:?}: {reason}")),
                Ok(reference) if reference.name == self.name => {
                    report("requires", format!("{required} requires itself"));
                }
                Ok(reference) if !seen.insert(reference.name.clone()) => {
                    report("requires", format!("{} is listed twice", reference.name));
                }
                Ok(_) => {}
            }
            if let Err(error) = self.values_for(requirement, &samples) {
                report("requires", format!("{required}: {error}"));
            }
        }
    }

    fn faults_of_inputs(&self, report: &mut impl FnMut(&str, String)) {
        let mut seen = BTreeSet::new();
        for (name, input) in &self.inputs {
            let at = format!("inputs.{name}");
            if !is_input_name(name) {
                report(
                    &at,
                    "expected a name of a-z, 0-9 and _ that starts with a letter".to_owned(),
                );
            }
            let environment = input.environment.as_str();
            if !is_environment_name(environment) || RESERVED_VARIABLES.contains(&environment) {
                report(&at, format!("invalid environment variable {environment:?}"));
            }
            if !seen.insert(environment) {
                report(&at, format!("another input also uses the variable {environment}"));
            }
            if input.about.trim().is_empty() {
                report(&at, "the description is empty: say what the input is for".to_owned());
            }
            if input.secret && input.default.as_deref().is_some_and(|text| !text.is_empty()) {
                report(&at, "a secret cannot have a default: everybody could read it".to_owned());
            }
            if input.secret && self.kind != BundleKind::SiteBootstrap {
                let kind = self.kind.as_str();
                report(&at, format!("a {kind} bundle cannot have secrets: its values are shown"));
            }
            if let Some(Err(reason)) = input.default.as_ref().map(|text| input.kind.parse(text)) {
                report(&at, format!("invalid default: {reason}"));
            }
        }
    }

    fn faults_of_phases(&self, files: &BTreeSet<String>, report: &mut impl FnMut(&str, String)) {
        let mut seen = BTreeSet::new();
        for (index, phase) in self.phases.iter().enumerate() {
            let at = format!("phases[{index}]");
            if !is_name(&phase.name) || !seen.insert(&phase.name) {
                report(&at, format!("phase name {:?} is invalid or used twice", phase.name));
            }
            if !files.contains(&phase.run) {
                report(&at, format!("the bundle contains no file {:?}", phase.run));
            }
            if !(1..=MAX_PHASE_SECONDS).contains(&phase.timeout_seconds) {
                report(&at, format!("timeout_seconds must be from 1 to {MAX_PHASE_SECONDS}"));
            }
            self.fault_of_condition(&at, phase.only_when.as_deref(), report);
            for path in phase.touches.iter().filter(|path| !is_path(path)) {
                report(&at, format!("touches: expected an absolute path, found {path:?}"));
            }
        }
    }

    fn fault_of_condition(
        &self,
        at: &str,
        only_when: Option<&str>,
        report: &mut impl FnMut(&str, String),
    ) {
        let Some(name) = only_when else { return };
        match self.inputs.get(name) {
            Some(input) if input.kind == input::InputType::Boolean => {}
            Some(_) => report(at, format!("only_when: input {name} is not a boolean")),
            None => report(at, format!("only_when: unknown input {name}")),
        }
    }

    /// Parses every check with sample values: the defaults, and a value of the type where an input has
    /// none.
    fn faults_of_checks(&self, report: &mut impl FnMut(&str, String)) {
        for (index, expected) in self.expects.iter().enumerate() {
            let at = format!("expects[{index}]");
            self.fault_of_condition(&at, expected.only_when.as_deref(), report);
            if let Some(reason) = self.fault_of_establisher(expected) {
                report(&at, reason);
            }
        }
        if let Err(fault) = self.checks(&self.samples()) {
            report(&fault.at, fault.text);
        }
    }

    /// What is wrong with who establishes an effect. From format 4 on a site bootstrap names it for each.
    fn fault_of_establisher(&self, expected: &Expectation) -> Option<String> {
        let has_phases = self.kind == BundleKind::SiteBootstrap;
        let Some(by) = expected.by.as_deref() else {
            let wanted = has_phases && (FORMAT_OF_BY..=FORMAT).contains(&self.format);
            return wanted.then(|| {
                "by: name the phase that establishes the effect, so that a repair can force it"
                    .to_owned()
            });
        };
        let requires =
            |name: &str| self.requires.iter().any(|one| one.bundle.split('@').next() == Some(name));
        let known = match by.split_once('/') {
            _ if by == BY_REQUIRED => !self.requires.is_empty(),
            Some((bundle, phase)) => requires(bundle) && is_name(phase),
            None => self.phases.iter().any(|phase| phase.name == by),
        };
        if self.format < FORMAT_OF_BY || !has_phases {
            return Some(format!(
                "by: allowed only in site bootstraps of format {FORMAT_OF_BY} or later"
            ));
        }
        (!known).then(|| {
            format!("by: {by:?} is neither a phase of this bundle nor of a required bundle")
        })
    }

    /// A value of each input: its default, or something of its type.
    fn samples(&self) -> Inputs {
        let sample = |input: &Input| match (&input.default, &input.kind) {
            (_, input::InputType::Boolean) | (None, input::InputType::Integer) => "1".to_owned(),
            (Some(default), kind) => kind.parse(default).unwrap_or_default(),
            (None, input::InputType::Socket) => "127.0.0.1:1".to_owned(),
            (None, _) => String::new(),
        };
        self.inputs.iter().map(|(name, input)| (name.clone(), sample(input))).collect()
    }
}

#[cfg(test)]
mod tests;
