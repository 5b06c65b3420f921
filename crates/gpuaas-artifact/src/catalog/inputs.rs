//! Inputs of bundles: whether values are accepted, and what hosts get of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gpuaas_bundle::{
    BundleKind, Delivery, Gate, Input, InputError, Inputs, Manifest, Requirement, TrustedKey,
    host_value, input,
};
use gpuaas_types::Timestamp;
use gpuaas_types::agent::HostCheck;
use gpuaas_types::api::BundlePin;

use super::bundle::CatalogBundle;
use super::error::CatalogError;
use super::index::BundleCatalog;
use crate::lint::LintFinding;

impl BundleCatalog {
    /// The checks of a validation bundle, with its values in `set`, which is by name of a bundle.
    ///
    /// # Errors
    /// See [`Self::find`]; [`CatalogError::Input`].
    pub fn validation(
        &self,
        reference: &str,
        set: &BTreeMap<String, Inputs>,
    ) -> Result<Vec<HostCheck>, CatalogError> {
        let found = self.find_kind(reference, Some(BundleKind::PostDeployValidation))?;
        let manifest = &found.bundle.manifest;
        let values = resolve(manifest, set.get(&manifest.name).unwrap_or(&Inputs::new()))?;
        manifest.checks(&values).map_err(|fault| invalid(manifest, &fault))
    }

    /// Whether the bundles that a bundle requires exist and accept what it hands down.
    ///
    /// # Errors
    /// See [`Self::find`]; [`CatalogError::Input`].
    pub fn check_requires(&self, manifest: &Manifest) -> Result<(), CatalogError> {
        for requirement in &manifest.requires {
            let required = self.find_kind(&requirement.bundle, Some(BundleKind::SiteBootstrap))?;
            let refuse =
                |source| Err(CatalogError::Input { bundle: requirement.bundle.clone(), source });
            let inputs = &required.bundle.manifest.inputs;
            if let Some(name) = requirement.with.keys().find(|name| !inputs.contains_key(*name)) {
                return refuse(InputError::Unknown { name: name.clone() });
            }
            if let Some(name) = manifest.leaked_secret(requirement, &required.bundle.manifest) {
                return refuse(InputError::SecretLeaked { name });
            }
        }
        Ok(())
    }

    /// Whether `set` names inputs of the site bundle, each with a value of its type. An input
    /// without a value is accepted: a site may still set it.
    ///
    /// # Errors
    /// [`CatalogError::Input`].
    pub fn check_inputs(&self, pins: &[BundlePin], set: &Inputs) -> Result<(), CatalogError> {
        let pinned = self.pinned(pins)?;
        let Some(main) = pinned.last() else { return Ok(()) };
        let manifest = &main.bundle.manifest;
        let refuse = |source| CatalogError::Input { bundle: manifest.reference(), source };
        input::refuse_secrets(&manifest.inputs, set).map_err(refuse)?;
        host_value::refuse_for_many(&manifest.inputs, set).map_err(refuse)?;
        for (name, value) in set {
            let input = manifest.inputs.get(name);
            let input = input.ok_or_else(|| refuse(InputError::Unknown { name: name.clone() }))?;
            let invalid = |reason| refuse(InputError::Invalid { name: name.clone(), reason });
            input.kind.parse(value).map_err(invalid)?;
        }
        Ok(())
    }

    /// The values for the site bundle among those of `set`, which is by name of a bundle: its own, over
    /// those for bundles that it requires, where it hands an input of its own on to them. With the first
    /// that reaches none of them, because the site bundle decides it.
    ///
    /// # Errors
    /// See [`Self::pinned`].
    pub fn values_of_site_bundle(
        &self,
        pins: &[BundlePin],
        set: &BTreeMap<String, Inputs>,
    ) -> Result<(Inputs, Option<CatalogError>), CatalogError> {
        let pinned = self.pinned(pins)?;
        let Some(main) = pinned.last().map(|main| &main.bundle.manifest) else {
            return Ok((Inputs::new(), None));
        };
        let (mut values, mut lost) = (Inputs::new(), None);
        for requirement in &main.requires {
            let name = requirement.bundle.split('@').next().unwrap_or_default();
            for (input, value) in set.get(name).into_iter().flatten() {
                match handed_on(requirement, input) {
                    Some(own) => {
                        values.insert(own.to_owned(), value.clone());
                    }
                    None => {
                        let by = main.reference();
                        let source = InputError::NotPassedOn { name: input.clone(), by };
                        let bundle = requirement.bundle.clone();
                        lost.get_or_insert(CatalogError::Input { bundle, source });
                    }
                }
            }
        }
        values.extend(set.get(&main.name).cloned().unwrap_or_default());
        Ok((values, lost))
    }

    /// What a node is told, when no value is missing and a trusted key has signed every bundle. Of
    /// `secrets` only those count that the bundle declares as secret.
    ///
    /// # Errors
    /// [`CatalogError::Input`], also for what is handed down to a required bundle;
    /// [`CatalogError::Signature`].
    pub fn delivery(
        &self,
        pins: &[BundlePin],
        inputs: Inputs,
        mut secrets: Inputs,
        trusted: &[TrustedKey],
        now: Timestamp,
    ) -> Result<Option<Delivery>, CatalogError> {
        let pinned = self.pinned(pins)?;
        let Some(main) = pinned.last() else { return Ok(None) };
        let manifest = &main.bundle.manifest;
        input::refuse_secrets(&manifest.inputs, &inputs)
            .map_err(|source| CatalogError::Input { bundle: manifest.reference(), source })?;
        secrets.retain(|name, _| manifest.inputs.get(name).is_some_and(|input| input.secret));
        let mut delivery =
            Delivery { bundles: Vec::new(), inputs, secrets, trusted_keys: Vec::new() };
        for_each_manifest(
            manifest,
            &delivery.values(),
            &pinned,
            resolve,
            &mut |manifest, values| {
                manifest.checks(values).map(drop).map_err(|fault| invalid(manifest, &fault))
            },
        )?;
        let mut trusted_keys = vec![self.own_key().clone()];
        // A key that control planes had before, or have since, is in the database as well.
        trusted_keys.extend(trusted.iter().filter(|one| one.key != self.own_key().key).cloned());
        for one in &pinned {
            let bundle = one.bundle.reference();
            let claimed =
                one.envelope.verify_digest(&trusted_keys, &bundle, one.bundle.digest, now);
            claimed.map_err(|source| CatalogError::Signature { bundle, source })?;
        }
        delivery.bundles = pinned.iter().map(|one| one.signed()).collect();
        delivery.trusted_keys = trusted_keys;
        Ok(Some(delivery))
    }

    /// The checks that a site bundle and those that it requires have for `gate`, each once. Checks
    /// with a secret value are left out: only the host evaluates those.
    ///
    /// # Errors
    /// See [`Self::find`]; [`CatalogError::Input`].
    pub fn gate_checks(
        &self,
        pins: &[BundlePin],
        inputs: &Inputs,
        gate: Gate,
    ) -> Result<Vec<HostCheck>, CatalogError> {
        let pinned = self.pinned(pins)?;
        let Some(main) = pinned.last() else { return Ok(Vec::new()) };
        let mut checks = Vec::new();
        let main = &main.bundle.manifest;
        for_each_manifest(main, inputs, &pinned, resolve_public, &mut |manifest, values| {
            let required = manifest.name != main.name;
            let own = manifest.public_gate_checks(gate, values, required);
            let own = own.map_err(|fault| invalid(manifest, &fault))?;
            checks.extend(own);
            Ok(())
        })?;
        let mut once: Vec<HostCheck> = Vec::new();
        for check in checks {
            if !once.contains(&check) {
                once.push(check);
            }
        }
        Ok(once)
    }

    /// Whether a version of the site bundle named `bundle` has the secret input `name`, and accepts
    /// `value` for it.
    ///
    /// # Errors
    /// [`CatalogError::NotFound`]; [`CatalogError::Input`], which never holds the value.
    pub fn check_secret(&self, bundle: &str, name: &str, value: &str) -> Result<(), CatalogError> {
        let all = self.list();
        let manifests = || {
            let manifests = all.iter().map(|one| &one.bundle.manifest);
            manifests.filter(|manifest| manifest.kind == BundleKind::SiteBootstrap)
        };
        if !manifests().any(|manifest| manifest.name == bundle) {
            let known: BTreeSet<String> = manifests().map(|one| one.name.clone()).collect();
            let (reference, kind) = (bundle.to_owned(), BundleKind::SiteBootstrap.as_str());
            let known = known.into_iter().collect();
            return Err(CatalogError::NotFound { reference, kind, known });
        }
        let of_name = manifests().filter(|manifest| manifest.name == bundle);
        let inputs: Vec<&Input> = of_name.filter_map(|one| one.inputs.get(name)).collect();
        let refuse = |source| CatalogError::Input { bundle: bundle.to_owned(), source };
        if inputs.is_empty() {
            return Err(refuse(InputError::Unknown { name: name.to_owned() }));
        }
        let mut refusal = InputError::NotSecret { name: name.to_owned() };
        for input in inputs.into_iter().filter(|input| input.secret) {
            match input.kind.parse(value) {
                Ok(_) => return Ok(()),
                Err(reason) => refusal = InputError::Invalid { name: name.to_owned(), reason },
            }
        }
        Err(refuse(refusal))
    }
}

/// The input of the requiring bundle whose value a required one gets for `input`.
fn handed_on<'a>(requirement: &'a Requirement, input: &'a str) -> Option<&'a str> {
    let text = requirement.with.get(input)?;
    if text.contains(&format!("{{{input}}}")) {
        return Some(input);
    }
    let name = text.strip_prefix('{')?.strip_suffix('}')?;
    (!name.contains(['{', ':'])).then_some(name)
}

fn resolve(manifest: &Manifest, set: &Inputs) -> Result<Inputs, CatalogError> {
    let bundle = manifest.reference();
    manifest.resolve(set).map_err(|source| CatalogError::Input { bundle, source })
}

fn resolve_public(manifest: &Manifest, set: &Inputs) -> Result<Inputs, CatalogError> {
    let bundle = manifest.reference();
    manifest.resolve_public(set).map_err(|source| CatalogError::Input { bundle, source })
}

fn invalid(manifest: &Manifest, fault: &gpuaas_bundle::ManifestFault) -> CatalogError {
    let file = manifest.reference();
    CatalogError::Invalid(vec![LintFinding { file, line: None, text: fault.to_string() }])
}

/// Calls `visit` with each bundle and its values: the main one with `set`, a required one with what
/// is handed down to it, as the launcher does.
fn for_each_manifest<'a>(
    manifest: &'a Manifest,
    set: &Inputs,
    pinned: &'a [Arc<CatalogBundle>],
    resolve: fn(&Manifest, &Inputs) -> Result<Inputs, CatalogError>,
    visit: &mut impl FnMut(&'a Manifest, &Inputs) -> Result<(), CatalogError>,
) -> Result<(), CatalogError> {
    let values = resolve(manifest, set)?;
    visit(manifest, &values)?;
    for requirement in &manifest.requires {
        let mut manifests = pinned.iter().map(|one| &one.bundle.manifest);
        let Some(required) = manifests.find(|m| m.reference() == requirement.bundle) else {
            continue;
        };
        let refuse = |source| CatalogError::Input { bundle: manifest.reference(), source };
        // A version that was published before secrets were checked may hand one down openly.
        if let Some(name) = manifest.leaked_secret(requirement, required) {
            return Err(refuse(InputError::SecretLeaked { name }));
        }
        let given = manifest.values_for(requirement, &values).map_err(refuse)?;
        for_each_manifest(required, &given, pinned, resolve, visit)?;
    }
    Ok(())
}
