//! Boot images: listing, announcing, sending and deleting (docs/maas.md#uploading-images).

use bytes::Bytes;

use super::typed_answer::unexpected_shape;
use crate::client::{Call, Client};
use crate::encode::Params;
use crate::error::Error;
use crate::model::BootResource;

/// An image to announce.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewBootResource {
    /// Name, with `custom/` before it or without; MAAS keeps it without.
    pub name: String,
    /// Title that the web interface shows; none: the name.
    pub title: Option<String>,
    /// E.g. `amd64/generic`.
    pub architecture: String,
    /// File type such as `tgz`; none: `tgz`.
    pub filetype: Option<String>,
    /// Image that it counts as, e.g. `ubuntu/noble`; none: that of commissioning.
    pub base_image: Option<String>,
    /// SHA-256 of the content, 64 hex digits.
    pub sha256: String,
    /// Length of the content in bytes.
    pub size: u64,
}

/// Where the bytes of an announced image go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadTarget {
    /// Id of the image.
    pub resource_id: u64,
    /// Id of its file.
    pub file_id: u64,
}

impl UploadTarget {
    /// Reads an `upload_uri`. Its host and root are those of the client, so that an answer cannot
    /// send credentials elsewhere.
    ///
    /// ```
    /// use maas_client::UploadTarget;
    ///
    /// let target = UploadTarget::parse("/MAAS/api/2.0/boot-resources/14/upload/22/");
    /// assert_eq!(target, Some(UploadTarget { resource_id: 14, file_id: 22 }));
    /// assert_eq!(UploadTarget::parse("http://elsewhere/14/22"), None);
    /// ```
    #[must_use]
    pub fn parse(upload_uri: &str) -> Option<Self> {
        let (_, rest) = upload_uri.rsplit_once("/boot-resources/")?;
        let (resource, file) = rest.trim_end_matches('/').split_once("/upload/")?;
        Some(Self { resource_id: resource.parse().ok()?, file_id: file.parse().ok()? })
    }
}

impl Client {
    /// All boot images, without their files (docs/maas.md#boot-images).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn boot_resources(&self) -> Result<Vec<BootResource>, Error> {
        self.send_for_json(Call::get("boot-resources/", "GET boot-resources/")).await
    }

    /// One boot image with its sets and files (docs/maas.md#boot-images).
    ///
    /// # Errors
    /// `NotFound`; see [`Error`].
    pub async fn boot_resource(&self, id: u64) -> Result<BootResource, Error> {
        self.send_for_json(Call::get(format!("boot-resources/{id}/"), "GET boot-resources/{id}/"))
            .await
    }

    /// Announces an image, whose bytes follow by [`Client::upload_chunk`]
    /// (docs/maas.md#uploading-images). Administrators only. A name that is in use loses its old
    /// files at once, so the caller looks before.
    ///
    /// # Errors
    /// Validation with messages by field; `Forbidden`; see [`Error`].
    pub async fn create_boot_resource(&self, new: &NewBootResource) -> Result<BootResource, Error> {
        let mut form = Params::default();
        form.add("name", new.name.clone());
        form.opt("title", new.title.as_deref());
        form.add("architecture", new.architecture.clone());
        form.opt("filetype", new.filetype.as_deref());
        form.opt("base_image", new.base_image.as_deref());
        form.add("sha256", new.sha256.clone());
        form.add("size", new.size.to_string());
        let label = "POST boot-resources/";
        let created: BootResource =
            self.send_for_json(Call::post("boot-resources/", label, form)).await?;
        if created.name.is_empty() {
            return Err(unexpected_shape(label, "boot resource"));
        }
        Ok(created)
    }

    /// Appends bytes to the file of an announced image (docs/maas.md#uploading-images).
    /// Administrators only. The region appends whatever comes, so a piece whose answer was lost is
    /// sent again only when the file's progress shows that it did not arrive.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no bytes; bad request where the file has all its bytes, would get more,
    /// or has another digest at its end; see [`Error`].
    pub async fn upload_chunk(&self, target: UploadTarget, chunk: Bytes) -> Result<(), Error> {
        if chunk.is_empty() {
            return Err(Error::invalid("cannot upload an empty chunk of an image"));
        }
        let UploadTarget { resource_id, file_id } = target;
        let path = format!("boot-resources/{resource_id}/upload/{file_id}/");
        self.send(Call::put_bytes(path, "PUT boot-resources/{id}/upload/{file}/", chunk)).await
    }

    /// Deletes an image, even one that is being deployed (docs/maas.md#boot-images).
    /// Administrators only.
    ///
    /// # Errors
    /// An unknown id is a 500 of MAAS, so [`Error::UnknownOutcome`]; see [`Error`].
    pub async fn delete_boot_resource(&self, id: u64) -> Result<(), Error> {
        self.send(Call::delete(format!("boot-resources/{id}/"), "DELETE boot-resources/{id}/"))
            .await
    }
}
