//! Host images of sites.

use gpuaas_types::api::List;
use gpuaas_types::image::{
    ImageDeletion, ImageRecordRequest, ImageRollback, ImageRollbackView, ImageTransition,
    ImageVerdict, ImageVerdictRequest, ImageView,
};
use reqwest::Method;

use super::ApiClient;
use crate::failure::Failure;

impl ApiClient {
    /// `GET /api/v1/images`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn images(&self, site: Option<&str>) -> Result<List<ImageView>, Failure> {
        self.get_all(&["images"], &[("site", site)]).await
    }

    /// `GET /api/v1/images/IMAGE`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn image(&self, image: &str, site: &str) -> Result<ImageView, Failure> {
        let mut url = self.url(&["images", image])?;
        url.query_pairs_mut().append_pair("site", site);
        self.answer(self.http.get(url)).await
    }

    /// `POST /api/v1/images`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn record_image(&self, body: &ImageRecordRequest) -> Result<ImageView, Failure> {
        self.send(Method::POST, &["images"], Some(body)).await
    }

    /// `POST /api/v1/image-verdicts`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn record_image_verdict(
        &self,
        body: &ImageVerdictRequest,
    ) -> Result<ImageVerdict, Failure> {
        self.send(Method::POST, &["image-verdicts"], Some(body)).await
    }

    /// `POST /api/v1/images/IMAGE/transition`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn move_image(
        &self,
        image: &str,
        body: &ImageTransition,
    ) -> Result<ImageView, Failure> {
        self.send(Method::POST, &["images", image, "transition"], Some(body)).await
    }

    /// `POST /api/v1/images/IMAGE/delete`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn delete_image(
        &self,
        image: &str,
        body: &ImageDeletion,
    ) -> Result<ImageView, Failure> {
        self.send(Method::POST, &["images", image, "delete"], Some(body)).await
    }

    /// `POST /api/v1/profiles/PROFILE/rollback-image`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn roll_back_image(
        &self,
        profile: &str,
        body: &ImageRollback,
    ) -> Result<ImageRollbackView, Failure> {
        self.send(Method::POST, &["profiles", profile, "rollback-image"], Some(body)).await
    }
}
