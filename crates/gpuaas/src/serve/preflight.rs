//! What a control plane refuses to start with, before it writes anything that would hide the cause.

use std::path::Path;

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_engine::HostScope;
use gpuaas_store::{SchemaChange, Store, StoreError, insecure_database_host};
use gpuaas_types::codes::CommandCode;

use super::nodes::NodeListenerOptions;
use crate::master_key::{KEY_FILE, KeySource, MasterKeySources, key_missing};

const START: &str = "use an address that nodes can reach: `gpuaas serve --node-listen \
                     0.0.0.0:8443 --advertise https://ADDRESS:8443`";

/// Refuses a URL for nodes that names no host, such as that of `--node-listen 0.0.0.0:8443`.
///
/// # Errors
/// `advertise_missing`.
pub(super) fn url_names_a_host(
    nodes: &NodeListenerOptions,
    advertise: Option<&str>,
) -> Result<(), Failure> {
    let NodeListenerOptions::Tls(tls) = nodes else { return Ok(()) };
    let url = advertise.map_or_else(|| format!("https://{}", tls.listen), str::to_owned);
    if HostScope::of_url(&url) != HostScope::Unspecified {
        return Ok(());
    }
    let detail = format!("{url} is a listen address, which nodes cannot connect to");
    Err(Failure::usage(CommandCode::AdvertiseMissing, detail).hint(START))
}

/// Refuses a URL for nodes that only this host can reach, where a region is elsewhere.
///
/// # Errors
/// `advertise_loopback`, which names the site; the store's.
pub(super) async fn nodes_reach(store: &Store, url: &str) -> Result<(), Failure> {
    if HostScope::of_url(url) != HostScope::Loopback {
        return Ok(());
    }
    let sites = store.sites().await.map_err(store_failure)?;
    let elsewhere =
        sites.iter().find(|site| HostScope::of_url(&site.spec.url) == HostScope::Elsewhere);
    let Some(site) = elsewhere else { return Ok(()) };
    let detail = format!(
        "nodes would get {url}, which only this host can reach, but the region of site {} is at {}",
        site.spec.name, site.spec.url
    );
    Err(Failure::usage(CommandCode::AdvertiseLoopback, detail).hint(START))
}

/// Refuses a database on another host whose certificate is not verified.
/// `anyway` is the command that goes on nevertheless.
///
/// # Errors
/// `database_insecure`; `database_url_invalid`.
pub(crate) fn database_is_verified(url: &str, anyway: &str) -> Result<(), Failure> {
    let Some(host) = insecure_database_host(url).map_err(store_failure)? else { return Ok(()) };
    let detail = format!("PostgreSQL at {host} is on another host, but sslmode is not verify-full");
    Err(Failure::usage(CommandCode::DatabaseInsecure, detail).hint(format!(
        "add `?sslmode=verify-full&sslrootcert=FILE` to the URL; if you trust the network path, \
         use `{anyway}`"
    )))
}

/// Opens the database at `url` with the master keys of a data folder, or of where they are; a file of
/// one is made where there is no database either. `later`: changes of the tables that the executable knows
/// beside its own.
///
/// # Errors
/// `master_key_missing` where a database is there and its key is not; the store's.
pub(super) async fn open_store(
    (url, embedded): (&str, Option<&Path>),
    data: &Path,
    keys: &MasterKeySources,
    later: &[SchemaChange],
) -> Result<Store, Failure> {
    let is_used = |path: &Path| path.metadata().is_ok_and(|file| file.len() > 0);
    let loaded = keys.load(data, !embedded.is_some_and(is_used)).await?;
    let first = loaded.keys.first().map(|(source, _)| source.clone());
    let (Some(ring), Some(first)) = (loaded.ring(), first) else {
        return Err(key_missing(&KeySource::File(data.join(KEY_FILE))));
    };
    match Store::open_with_later(url, ring, later).await {
        Ok(store) => Ok(store),
        Err(error) => {
            // A key that was made now opens nothing that was sealed before.
            let lost = loaded.made.is_some() && error.code() == "master_key_wrong";
            if let Some(file) = &loaded.made {
                remove(file)?;
            }
            Err(if lost { key_missing(&first) } else { store_failure(error) })
        }
    }
}

fn remove(key_file: &Path) -> Result<(), Failure> {
    std::fs::remove_file(key_file).map_err(|error| {
        let detail = format!("{}: {error}", key_file.display());
        store_failure(StoreError::Unavailable { detail })
    })
}
