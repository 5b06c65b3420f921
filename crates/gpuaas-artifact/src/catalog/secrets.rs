//! Secret inputs: which bundles have them, and what may be kept for one.

use std::collections::BTreeSet;

use gpuaas_bundle::{Input, InputError, Kind};

use super::{BundleCatalog, CatalogError};

/// Which command sets a secret of a bundle.
#[must_use]
pub fn secret_hint(bundle: &str, input: &str) -> String {
    let name = bundle.split('@').next().unwrap_or(bundle);
    format!(
        "gpuaas site secret set SITE {name} {input} --file FILE keeps it sealed for a site, \
         gpuaas profile secret set for a profile"
    )
}

impl BundleCatalog {
    /// Whether a version of the site bundle named `bundle` has the secret input `name`, and takes
    /// `value` for it.
    ///
    /// # Errors
    /// [`CatalogError::NotFound`]; [`CatalogError::Input`], which never holds the value.
    pub fn check_secret(&self, bundle: &str, name: &str, value: &str) -> Result<(), CatalogError> {
        let all = self.list();
        let manifests = || {
            let manifests = all.iter().map(|one| &one.bundle.manifest);
            manifests.filter(|manifest| manifest.kind == Kind::SiteBootstrap)
        };
        if !manifests().any(|manifest| manifest.name == bundle) {
            let known: BTreeSet<String> = manifests().map(|one| one.name.clone()).collect();
            let (reference, what) = (bundle.to_owned(), Kind::SiteBootstrap.as_str());
            let known = known.into_iter().collect();
            return Err(CatalogError::NotFound { reference, what, known });
        }
        let of_name = manifests().filter(|manifest| manifest.name == bundle);
        let inputs: Vec<&Input> = of_name.filter_map(|one| one.inputs.get(name)).collect();
        let refuse = |source| CatalogError::Input { bundle: bundle.to_owned(), source };
        if inputs.is_empty() {
            return Err(refuse(InputError::Unknown { name: name.to_owned() }));
        }
        let mut wrong = InputError::NotSecret { name: name.to_owned() };
        for input in inputs.into_iter().filter(|input| input.secret) {
            match input.kind.parse(value) {
                Ok(_) => return Ok(()),
                Err(reason) => wrong = InputError::Invalid { name: name.to_owned(), reason },
            }
        }
        Err(refuse(wrong))
    }
}
