use crate::client::{Call, Client, path_segment};
use crate::encode::Params;
use crate::error::Error;
use crate::model::{Tag, TagCounts};

impl Client {
    /// All tags (docs/maas.md#tags).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn tags(&self) -> Result<Vec<Tag>, Error> {
        self.send_for_json(Call::get("tags/", "GET tags/")).await
    }

    /// One tag (docs/maas.md#tags).
    ///
    /// # Errors
    /// `NotFound`; see [`Error`].
    pub async fn tag(&self, name: &str) -> Result<Tag, Error> {
        self.send_for_json(Call::get(format!("tags/{}/", path_segment(name)?), "GET tags/{name}/"))
            .await
    }

    /// Creates a tag: letters, digits, `-`, `_` (docs/maas.md#tags). Administrators only.
    ///
    /// # Errors
    /// Validation under `name` where it exists or has other characters; `Forbidden`.
    pub async fn create_tag(
        &self,
        name: &str,
        comment: Option<&str>,
        kernel_opts: Option<&str>,
    ) -> Result<Tag, Error> {
        let mut form = Params::default();
        form.add("name", name);
        form.opt("comment", comment);
        form.opt("kernel_opts", kernel_opts);
        self.send_for_json(Call::post("tags/", "POST tags/", form)).await
    }

    /// Writes the comment of a tag (docs/maas.md#tags). Administrators only.
    ///
    /// # Errors
    /// `NotFound` where there is no such tag; `Forbidden`.
    pub async fn update_tag(&self, name: &str, comment: &str) -> Result<Tag, Error> {
        let mut form = Params::default();
        form.add("comment", comment);
        let path = format!("tags/{}/", path_segment(name)?);
        self.send_for_json(Call::put(path, "PUT tags/{name}/", form)).await
    }

    /// Writes the kernel options of a tag (docs/maas.md#tags). Administrators only.
    ///
    /// # Errors
    /// `NotFound` where there is no such tag; `Forbidden`.
    pub async fn set_tag_kernel_opts(&self, name: &str, kernel_opts: &str) -> Result<Tag, Error> {
        let mut form = Params::default();
        form.add("kernel_opts", kernel_opts);
        let path = format!("tags/{}/", path_segment(name)?);
        self.send_for_json(Call::put(path, "PUT tags/{name}/", form)).await
    }

    /// Adds a tag to machines and takes it from others (docs/maas.md#tags); unknown ids are
    /// ignored.
    ///
    /// # Errors
    /// `NotFound` where there is no such tag; `Forbidden`.
    pub async fn update_tag_nodes(
        &self,
        name: &str,
        add: &[String],
        remove: &[String],
    ) -> Result<TagCounts, Error> {
        let mut form = Params::default();
        form.each("add", add);
        form.each("remove", remove);
        let path = format!("tags/{}/", path_segment(name)?);
        self.send_for_json(Call::op(
            path,
            "POST tags/{name}/ op=update_nodes",
            "update_nodes",
            form,
        ))
        .await
    }
}
