use super::results::ResultType;
use crate::client::{Body, Call, Client, path_segment};
use crate::encode::{FileForm, Params};
use crate::error::Error;
use crate::model::Script;

/// Selects scripts (docs/maas.md#scripts).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptFilter {
    /// Only of this kind.
    pub kind: Option<ResultType>,
    /// Names or tags, any of them; empty for all.
    pub filters: Vec<String>,
    /// Whether the texts of the scripts are sent along.
    pub include_script: bool,
}

/// A script to create (docs/maas.md#scripts). Metadata inside the text wins over these fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewScript {
    /// Name, also of the uploaded file.
    pub name: String,
    /// Kind; installation is none that MAAS takes.
    pub kind: ResultType,
    /// The text; must start with `#!`.
    pub content: Vec<u8>,
    /// Comment on the first revision.
    pub comment: Option<String>,
}

impl Client {
    /// Scripts that match (docs/maas.md#scripts).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn scripts(&self, filter: &ScriptFilter) -> Result<Vec<Script>, Error> {
        let mut query = Params::default();
        query.opt("type", filter.kind.map(ResultType::as_str));
        if !filter.filters.is_empty() {
            query.add("filters", filter.filters.join(","));
        }
        if filter.include_script {
            query.add("include_script", "1");
        }
        self.send_for_json(Call::get("scripts/", "GET scripts/").query(query)).await
    }

    /// One script; with its texts where asked for (docs/maas.md#scripts).
    ///
    /// # Errors
    /// `NotFound`; see [`Error`].
    pub async fn script(&self, name: &str, include_script: bool) -> Result<Script, Error> {
        let mut query = Params::default();
        if include_script {
            query.add("include_script", "1");
        }
        self.send_for_json(Call::get(script_path(name)?, "GET scripts/{name}").query(query)).await
    }

    /// Uploads a new script (docs/maas.md#scripts). Administrators only.
    ///
    /// # Errors
    /// Validation under `name` where it exists: then [`Client::update_script`].
    pub async fn create_script(&self, new: &NewScript) -> Result<Script, Error> {
        let mut fields = Params::default();
        fields.add("name", new.name.clone());
        fields.add("type", new.kind.as_str());
        fields.opt("comment", new.comment.as_deref());
        let mut call = Call::post("scripts/", "POST scripts/", Params::default());
        let (file_name, content) = (new.name.clone(), new.content.clone());
        call.body = Body::File(FileForm { fields, part: "script", file_name, content });
        self.send_for_json(call).await
    }

    /// Adds a revision of a script (docs/maas.md#scripts). Administrators only.
    ///
    /// # Errors
    /// `NotFound`; validation under `script`; see [`Error`].
    pub async fn update_script(
        &self,
        name: &str,
        content: &str,
        comment: Option<&str>,
    ) -> Result<Script, Error> {
        let mut form = Params::default();
        form.add("script", content);
        form.opt("comment", comment);
        self.send_for_json(Call::put(script_path(name)?, "PUT scripts/{name}", form)).await
    }

    /// Deletes a script (docs/maas.md#scripts). Administrators only.
    ///
    /// # Errors
    /// Bad request for a script that comes with MAAS; `NotFound`.
    pub async fn delete_script(&self, name: &str) -> Result<(), Error> {
        self.send(Call::delete(script_path(name)?, "DELETE scripts/{name}")).await
    }
}

/// Path of a script, the one without a trailing slash (docs/maas.md#paths).
fn script_path(name: &str) -> Result<String, Error> {
    Ok(format!("scripts/{}", path_segment(name)?))
}
