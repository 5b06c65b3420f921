//! Rows of `profile` at their newest revisions.

use std::collections::HashMap;

use gpuaas_types::ProfileId;
use gpuaas_types::api::{ProfileResource, ProfileStatus, Resource};

use crate::database::{Cols, Conn, Val, padded, with_list};
use crate::error::StoreError;

/// Profiles with their newest revisions.
macro_rules! profile_from {
    () => {
        "profile JOIN profile_revision ON profile_revision.profile_id = profile.id \
         AND profile_revision.revision = profile.revision"
    };
}
pub(crate) use profile_from;

macro_rules! profile_select {
    ($rest:literal) => {
        concat!(
            "SELECT profile.id, profile_revision.spec, profile.name, \
             profile_revision.bundle_digest, profile_revision.bundle_pins, \
             profile.revision, profile.created_at, profile.updated_at FROM ",
            profile_from!(),
            " ",
            $rest
        )
    };
}
pub(crate) use profile_select;

/// The profiles with these names, by name.
pub(crate) async fn profiles_named(
    conn: &mut Conn,
    names: impl IntoIterator<Item = String>,
) -> Result<HashMap<String, ProfileResource>, StoreError> {
    let names: Vec<String> = names.into_iter().collect();
    let mut found = HashMap::new();
    for names in padded(names.iter().map(String::as_str)) {
        let sql = with_list(profile_select!("WHERE profile.name IN ({LIST})"), 1, names.len());
        for row in conn.all(sql, names.into_iter().map(Val::from).collect()).await? {
            let profile = read_profile(row.cols())?;
            found.insert(profile.status.name.clone(), profile);
        }
    }
    Ok(found)
}

pub(crate) fn read_profile(mut cols: Cols<'_>) -> Result<ProfileResource, StoreError> {
    Ok(Resource {
        id: cols.id(ProfileId)?,
        spec: cols.json()?,
        status: ProfileStatus {
            name: cols.next()?,
            site_bootstrap_bundle_digest: cols.next()?,
            bundle_pins: cols.json()?,
        },
        revision: cols.next()?,
        created_at: cols.at()?,
        updated_at: cols.at()?,
    })
}
