//! Operations that move a machine through its statuses (docs/maas.md#transitions).
//!
//! All answers were rendered before the hardware acted, and 500, 503 or a timeout says nothing
//! about whether the change was committed (docs/maas.md#unknown-outcomes): see
//! [`Error::may_have_happened`].

use base64::Engine as _;

use super::machines::machine_path;
use crate::client::{Call, Client};
use crate::encode::Params;
use crate::error::Error;
use crate::model::{Machine, PowerState};

/// How to commission (docs/maas.md#commissioning).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommissionOptions {
    /// Leave the machine on with SSH.
    pub enable_ssh: bool,
    /// Keep the BMC's settings.
    pub skip_bmc_config: bool,
    /// Keep the network configuration.
    pub skip_networking: bool,
    /// Keep the storage configuration.
    pub skip_storage: bool,
    /// Names or tags; empty for the default.
    pub commissioning_scripts: Vec<String>,
    /// Names or tags; `None` for the default, an empty list for no tests.
    pub testing_scripts: Option<Vec<String>>,
}

/// What to allocate (docs/maas.md#allocating).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllocateOptions {
    /// The machine; MAAS would take any free one without it.
    pub system_id: String,
    /// Free word, kept until release; a filter of lists.
    pub agent_name: Option<String>,
    /// Stands in the event.
    pub comment: Option<String>,
    /// Only ask whether it would work.
    pub dry_run: bool,
}

/// How to deploy (docs/maas.md#deploying).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DeployOptions {
    /// `jammy`, `ubuntu/jammy`, `custom/NAME`; `None` for the region's default.
    pub distro_series: Option<String>,
    /// E.g. `ga-22.04`.
    pub hwe_kernel: Option<String>,
    /// The user-data as cloud-init shall see it; base64 is done here.
    pub user_data: Option<Vec<u8>>,
    /// Let the deployed system report its hardware (docs/maas.md#hardware-sync).
    pub enable_hw_sync: bool,
    /// Stands in the event.
    pub comment: Option<String>,
    /// Free word, kept until release.
    pub agent_name: Option<String>,
    /// Run from memory, leave the disks alone.
    pub ephemeral_deploy: bool,
}

impl std::fmt::Debug for DeployOptions {
    /// User-data can hold tokens; only its size is shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeployOptions")
            .field("distro_series", &self.distro_series)
            .field("hwe_kernel", &self.hwe_kernel)
            .field("user_data_bytes", &self.user_data.as_ref().map(Vec::len))
            .field("enable_hw_sync", &self.enable_hw_sync)
            .field("comment", &self.comment)
            .field("agent_name", &self.agent_name)
            .field("ephemeral_deploy", &self.ephemeral_deploy)
            .finish()
    }
}

/// How to release (docs/maas.md#releasing).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReleaseOptions {
    /// Stands in the event.
    pub comment: Option<String>,
    /// Erase the disks.
    pub erase: bool,
    /// By the drive's own command.
    pub secure_erase: bool,
    /// Only the ends of each disk.
    pub quick_erase: bool,
    /// Release also where a deployed pod would be lost.
    pub force: bool,
}

impl Client {
    /// Starts commissioning (docs/maas.md#commissioning). From New, Failed commissioning, Ready and
    /// Broken only: MAAS answers 400 (validation under `__all__`), not 409, elsewhere.
    ///
    /// # Errors
    /// See [`Error`]; after a BMC failure MAAS reverts the status but not the network links.
    pub async fn commission(
        &self,
        system_id: &str,
        options: &CommissionOptions,
    ) -> Result<Machine, Error> {
        let mut form = Params::default();
        form.flag("enable_ssh", options.enable_ssh);
        form.flag("skip_bmc_config", options.skip_bmc_config);
        form.flag("skip_networking", options.skip_networking);
        form.flag("skip_storage", options.skip_storage);
        if !options.commissioning_scripts.is_empty() {
            form.add("commissioning_scripts", options.commissioning_scripts.join(","));
        }
        if let Some(scripts) = &options.testing_scripts {
            form.add(
                "testing_scripts",
                if scripts.is_empty() { "none".to_owned() } else { scripts.join(",") },
            );
        }
        self.machine_op(system_id, "POST machines/{id}/ op=commission", "commission", form).await
    }

    /// Stops commissioning, testing, deploying or erasing (docs/maas.md#aborting).
    ///
    /// # Errors
    /// `StateConflict` in other statuses; see [`Error`].
    pub async fn abort(&self, system_id: &str, comment: Option<&str>) -> Result<Machine, Error> {
        self.machine_op(system_id, "POST machines/{id}/ op=abort", "abort", comment_form(comment))
            .await
    }

    /// Releases a machine (docs/maas.md#releasing); does nothing, with success, in Ready and
    /// Releasing.
    ///
    /// # Errors
    /// `StateConflict`, `Forbidden` (locked or not the owner); see [`Error`].
    pub async fn release(
        &self,
        system_id: &str,
        options: &ReleaseOptions,
    ) -> Result<Machine, Error> {
        let mut form = comment_form(options.comment.as_deref());
        form.flag("erase", options.erase);
        form.flag("secure_erase", options.secure_erase);
        form.flag("quick_erase", options.quick_erase);
        form.flag("force", options.force);
        self.machine_op(system_id, "POST machines/{id}/ op=release", "release", form).await
    }

    /// Marks a machine broken (docs/maas.md#broken-machines). Owner only; a deployed machine is
    /// powered off and released by it.
    ///
    /// # Errors
    /// `Forbidden` for an unowned machine, even for administrators; see [`Error`].
    pub async fn mark_broken(&self, system_id: &str, comment: &str) -> Result<Machine, Error> {
        let form = comment_form(Some(comment));
        self.machine_op(system_id, "POST machines/{id}/ op=mark_broken", "mark_broken", form).await
    }

    /// Ends Broken (docs/maas.md#broken-machines). Administrators only.
    ///
    /// # Errors
    /// `StateConflict`; see [`Error`].
    pub async fn mark_fixed(
        &self,
        system_id: &str,
        comment: Option<&str>,
    ) -> Result<Machine, Error> {
        self.machine_op(
            system_id,
            "POST machines/{id}/ op=mark_fixed",
            "mark_fixed",
            comment_form(comment),
        )
        .await
    }

    /// Turns a machine on (docs/maas.md#power). **On an Allocated machine this starts a
    /// deployment.** `None` where MAAS has nothing to do.
    ///
    /// # Errors
    /// `StateConflict` for an unowned machine; see [`Error`].
    pub async fn power_on(
        &self,
        system_id: &str,
        comment: Option<&str>,
    ) -> Result<Option<Machine>, Error> {
        let call = Call::op(
            machine_path(system_id)?,
            "POST machines/{id}/ op=power_on",
            "power_on",
            comment_form(comment),
        );
        self.send_for_json(call.waiting_for_bmc()).await
    }

    /// Turns a machine off, hard unless `soft` (docs/maas.md#power). `None` where MAAS has nothing
    /// to do.
    ///
    /// # Errors
    /// `Forbidden` while locked; see [`Error`].
    pub async fn power_off(
        &self,
        system_id: &str,
        soft: bool,
        comment: Option<&str>,
    ) -> Result<Option<Machine>, Error> {
        let mut form = Params::default();
        if soft {
            form.add("stop_mode", "soft");
        }
        form.opt("comment", comment);
        let call = Call::op(
            machine_path(system_id)?,
            "POST machines/{id}/ op=power_off",
            "power_off",
            form,
        );
        self.send_for_json(call.waiting_for_bmc()).await
    }

    /// Asks the BMC (docs/maas.md#power); takes up to 60 s.
    ///
    /// # Errors
    /// [`Error::ServerError`] with the driver's message; `Unavailable` without a rack.
    pub async fn query_power_state(&self, system_id: &str) -> Result<PowerState, Error> {
        let mut query = Params::default();
        query.add("op", "query_power_state");
        let call = Call::get(machine_path(system_id)?, "GET machines/{id}/ op=query_power_state");
        self.send_for_json(call.query(query).waiting_for_bmc()).await
    }

    /// Takes a Ready machine (docs/maas.md#allocating).
    ///
    /// # Errors
    /// `StateConflict` for a wrong state, an unknown id and another's machine alike;
    /// [`Error::Invalid`] without a system id.
    pub async fn allocate(&self, options: &AllocateOptions) -> Result<Machine, Error> {
        if options.system_id.is_empty() {
            return Err(Error::invalid(
                "allocation requires a system ID: MAAS would pick any machine",
            ));
        }
        let mut form = Params::default();
        form.add("system_id", options.system_id.clone());
        form.opt("agent_name", options.agent_name.as_deref());
        form.opt("comment", options.comment.as_deref());
        form.flag("dry_run", options.dry_run);
        self.send_for_machine(Call::op("machines/", "POST machines/ op=allocate", "allocate", form))
            .await
    }

    /// Deploys an Allocated or Ready machine (docs/maas.md#deploying).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// use maas_client::{Client, DeployOptions, Error, UnknownCause};
    /// # use maas_client::{Config, Request, Response, Transport, TransportError};
    /// # struct LostAnswer;
    /// # #[async_trait::async_trait]
    /// # impl Transport for LostAnswer {
    /// #     async fn send(&self, request: Request, _: Duration) -> Result<Response, TransportError> {
    /// #         assert_eq!(&request.body[..], b"op=deploy&distro_series=ubuntu%2Fnoble&user_data=aGk%3D");
    /// #         Err(TransportError::Timeout)
    /// #     }
    /// # }
    /// # fn client() -> Result<Client, Error> {
    /// #     let config = Config::new("http://127.0.0.1:5240/MAAS", "CONSUMER:TOKEN:SECRET".parse()?);
    /// #     Client::with_transport(&config, Arc::new(LostAnswer), Arc::new(|| 0))
    /// # }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let client = client()?;
    /// let options = DeployOptions {
    ///     distro_series: Some("ubuntu/noble".to_owned()),
    ///     user_data: Some(b"hi".to_vec()), // sent as base64
    ///     ..DeployOptions::default()
    /// };
    /// // No answer came: the machine may be deploying. Read it, never send this again unseen.
    /// let error = runtime.block_on(client.deploy("abc123", &options)).unwrap_err();
    /// assert!(error.may_have_happened());
    /// assert!(matches!(error, Error::UnknownOutcome { cause: UnknownCause::Timeout, .. }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `StateConflict`, `Forbidden`, validation (`distro_series`, `hwe_kernel`, `network`,
    /// `storage`); see [`Error`].
    pub async fn deploy(&self, system_id: &str, options: &DeployOptions) -> Result<Machine, Error> {
        let mut form = Params::default();
        form.opt("distro_series", options.distro_series.as_deref());
        form.opt("hwe_kernel", options.hwe_kernel.as_deref());
        let encode = |bytes: &Vec<u8>| base64::engine::general_purpose::STANDARD.encode(bytes);
        form.opt("user_data", options.user_data.as_ref().map(encode));
        form.flag("enable_hw_sync", options.enable_hw_sync);
        form.flag("ephemeral_deploy", options.ephemeral_deploy);
        form.opt("comment", options.comment.as_deref());
        form.opt("agent_name", options.agent_name.as_deref());
        self.machine_op(system_id, "POST machines/{id}/ op=deploy", "deploy", form).await
    }

    /// Locks a Deploying or Deployed machine against changes (docs/maas.md#locks).
    ///
    /// # Errors
    /// `StateConflict`; see [`Error`].
    pub async fn lock(&self, system_id: &str, comment: Option<&str>) -> Result<Machine, Error> {
        self.machine_op(system_id, "POST machines/{id}/ op=lock", "lock", comment_form(comment))
            .await
    }

    /// Ends a lock (docs/maas.md#locks).
    ///
    /// # Errors
    /// `StateConflict` where it is not locked; see [`Error`].
    pub async fn unlock(&self, system_id: &str, comment: Option<&str>) -> Result<Machine, Error> {
        self.machine_op(system_id, "POST machines/{id}/ op=unlock", "unlock", comment_form(comment))
            .await
    }

    /// Moves Failed testing to Ready, or Deployed where it was (docs/maas.md#testing).
    ///
    /// # Errors
    /// `StateConflict`; see [`Error`].
    pub async fn override_failed_testing(
        &self,
        system_id: &str,
        comment: Option<&str>,
    ) -> Result<Machine, Error> {
        const LABEL: &str = "POST machines/{id}/ op=override_failed_testing";
        self.machine_op(system_id, LABEL, "override_failed_testing", comment_form(comment)).await
    }

    /// All of these can wait for the BMC in one version or another (docs/maas.md#unknown-outcomes).
    async fn machine_op(
        &self,
        id: &str,
        label: &'static str,
        op: &str,
        form: Params,
    ) -> Result<Machine, Error> {
        self.send_for_machine(Call::op(machine_path(id)?, label, op, form).waiting_for_bmc()).await
    }
}

fn comment_form(comment: Option<&str>) -> Params {
    let mut form = Params::default();
    form.opt("comment", comment);
    form
}
