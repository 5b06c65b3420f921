use crate::client::{Call, Client};
use crate::encode::Params;
use crate::error::Error;
use crate::model::{NamedGroup, RegionVersion, Subnet, WhoAmI};
use crate::time::parse_maas_time;

impl Client {
    /// The region's version; sent without credentials (docs/maas.md#probing-credentials).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn version(&self) -> Result<RegionVersion, Error> {
        let mut call = Call::get("version/", "GET version/");
        call.anonymous = true;
        self.send_for_json(call).await
    }

    /// Seconds that the region's clock is ahead of the one that signs here, negative where it is
    /// behind; none where the answer has no date.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn clock_offset_seconds(&self) -> Result<Option<i64>, Error> {
        let mut call = Call::get("version/", "GET version/");
        call.anonymous = true;
        let answer = self.exchange(call).await?;
        let region = answer.date.as_deref().and_then(parse_maas_time);
        Ok(region.map(|seconds| seconds - self.unix_seconds()))
    }

    /// The user behind the key: the cheapest probe of credentials
    /// (docs/maas.md#probing-credentials).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn whoami(&self) -> Result<WhoAmI, Error> {
        let mut query = Params::default();
        query.add("op", "whoami");
        self.send_for_json(Call::get("users/", "GET users/ op=whoami").query(query)).await
    }

    /// A setting of the region (docs/maas.md#settings): text, number or bool; readable by anyone.
    ///
    /// # Errors
    /// Validation naming the setting where MAAS does not know it; see [`Error`].
    pub async fn get_config(&self, name: &str) -> Result<serde_json::Value, Error> {
        let mut query = Params::default();
        query.add("op", "get_config");
        query.add("name", name);
        self.send_for_json(Call::get("maas/", "GET maas/ op=get_config").query(query)).await
    }

    /// All resource pools.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn resource_pools(&self) -> Result<Vec<NamedGroup>, Error> {
        self.send_for_json(Call::get("resourcepools/", "GET resourcepools/")).await
    }

    /// All availability zones.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn zones(&self) -> Result<Vec<NamedGroup>, Error> {
        self.send_for_json(Call::get("zones/", "GET zones/")).await
    }

    /// All subnets with their VLANs (docs/maas.md#networks).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn subnets(&self) -> Result<Vec<Subnet>, Error> {
        self.send_for_json(Call::get("subnets/", "GET subnets/")).await
    }
}
