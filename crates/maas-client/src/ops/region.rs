use crate::client::{Call, Client};
use crate::encode::Params;
use crate::error::Error;
use crate::model::{BootResource, NamedGroup, RegionVersion, Subnet, WhoAmI};

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
