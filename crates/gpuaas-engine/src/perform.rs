//! Effects: one call each, and an outcome that is never guessed.

use std::collections::BTreeMap;

use gpuaas_artifact::{BootstrapInputs, Limits, render_user_data};
use gpuaas_core::decide::leave;
use gpuaas_core::effect::{Effect, Intent, Outcome};
use gpuaas_core::memory::{Candidate, Found};
use gpuaas_store::{NewToken, TokenPurpose};
use gpuaas_types::agent::HostCheck;
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{RunId, Timestamp, TokenId};
use maas_client::{
    BlockDevice, Client, CommissionOptions, CreateMachine, DeployOptions, Error as MaasError,
    Interface, LinkMode, LinkSubnet, Machine, NewScript, PowerSettings, Refusal, ReleaseOptions,
    Secret, StorageLayout,
};

use crate::bundles;
use crate::convert;
use crate::engine::Shared;
use crate::journal::Journal;
use crate::scripts;
use crate::site::{CallError, Site};
use crate::tokens;
use crate::worker::Lease;

/// What an effect needs that must exist, and be durable, before the call.
pub(crate) enum Prepared {
    /// Nothing beyond the effect.
    Plain,
    /// The BMC password.
    Bmc(Option<String>),
    /// A script of the profile's commissioning bundle.
    Script(Box<NewScript>),
    /// Rendered user-data whose tokens go into the same commit as the intent.
    UserData(Vec<u8>),
}

/// Gets ready for `effect`.
///
/// # Errors
/// A sentence when it cannot be: no call is made then.
pub(crate) async fn prepare(
    shared: &Shared,
    journal: &mut Journal,
    effect: &Effect,
) -> Result<Prepared, String> {
    match effect {
        Effect::CreateMachine => {
            let password = shared.store.bmc_password(journal.node.id).await;
            let password = password.map_err(|e| e.to_string())?;
            Ok(Prepared::Bmc(password.map(|secret| secret.expose().to_owned())))
        }
        Effect::RegisterScript { name, .. } => {
            let reference = &journal.profile().commissioning_bundle_ref;
            let scripts = shared.bundles.commissioning(reference).map_err(|e| e.to_string())?;
            let script = scripts.iter().find(|script| script.script.name == *name);
            let script = script.ok_or_else(|| format!("{reference} has no script {name}"))?;
            Ok(Prepared::Script(Box::new(scripts::to_send(script, journal.run.id))))
        }
        Effect::Deploy { .. } => {
            let bootstrap = tokens::mint("gpb").map_err(|e| e.to_string())?;
            let enrollment = tokens::mint("gpe").map_err(|e| e.to_string())?;
            let now = shared.clock.now();
            let names = Names {
                run_id: journal.run.id,
                hostname: journal.node.hostname.clone(),
                bootstrap_token: bootstrap.clone(),
                enrollment_token: enrollment.clone(),
            };
            let inputs = inputs(shared, journal, names).await?;
            let user_data = render_user_data(&inputs).map_err(|e| e.to_string())?;
            let token = |secret: &str, purpose, single_use| NewToken {
                id: TokenId::new(&*shared.ids, now),
                hash: gpuaas_store::sha256(secret),
                purpose,
                node_id: Some(journal.node.id),
                run_id: Some(journal.run.id),
                single_use,
                usable_from: Timestamp::EPOCH,
                expires_at: None,
            };
            let minted = vec![
                token(&bootstrap, TokenPurpose::Bootstrap, false),
                token(&enrollment, TokenPurpose::Enrollment, true),
            ];
            journal.mint(minted);
            Ok(Prepared::UserData(user_data.bytes))
        }
        _ => Ok(Prepared::Plain),
    }
}

/// Who the user-data is for.
pub(crate) struct Names {
    pub(crate) run_id: RunId,
    pub(crate) hostname: String,
    pub(crate) bootstrap_token: String,
    pub(crate) enrollment_token: String,
}

/// What nodes of a site trust when they speak to a control plane with an authority of its own, PEM:
/// that and the site's, behind which artifacts may be. The rest of the host trusts the site's only.
pub(crate) fn trusted(site: &SiteSpec, anchor_pem: Option<&str>) -> Option<String> {
    let parts = [Some(anchor_pem?), site.node_ca_pem.as_deref()];
    let parts: Vec<&str> = parts.into_iter().flatten().map(str::trim_end).collect();
    Some(format!("{}\n", parts.join("\n")))
}

/// What the profile's validation bundle asks of a host, and its site bundle of an active one.
pub(crate) async fn host_checks(
    shared: &Shared,
    journal: &Journal,
) -> Result<Vec<HostCheck>, String> {
    let (store, catalog) = (&shared.store, &shared.bundles);
    let checks = bundles::host_checks(store, catalog, journal.revision(), journal.site()).await;
    checks.map_err(|error| error.to_string())
}

/// Everything that the node is told.
pub(crate) async fn inputs(
    shared: &Shared,
    journal: &Journal,
    names: Names,
) -> Result<BootstrapInputs, String> {
    let (site, profile) = (journal.site(), journal.profile());
    let (store, catalog) = (&shared.store, &shared.bundles);
    let pins = bundles::pins(store, catalog, journal.revision()).await;
    let pins = pins.map_err(|e| e.to_string())?;
    let now = shared.clock.now();
    let (site_id, profile_id) = (journal.node.site_id, journal.node.profile_id);
    let whose = bundles::Whose { site_id, site, profile_id, profile };
    let bundle = bundles::delivery(store, catalog, &pins, &whose, now).await;
    Ok(BootstrapInputs {
        run_id: names.run_id,
        hostname: names.hostname,
        site: site.name.clone(),
        control_plane_url: shared.config.advertise_url.clone(),
        bootstrap_token: names.bootstrap_token,
        enrollment_token: names.enrollment_token,
        bundle: bundle.map_err(|e| e.to_string())?,
        agent: shared.config.agent.clone(),
        ca_pem: site.node_ca_pem.clone(),
        control_plane_ca_pem: trusted(site, shared.config.node_anchor_pem.as_deref()),
        deploy_user: Some(profile.deploy_user.clone()).filter(|u| !u.is_empty()),
        limits: Limits::default(),
    })
}

/// What MAAS gave back.
enum Answer {
    Machine(Box<Machine>),
    Interface(Box<Interface>),
    Disk(Box<BlockDevice>),
    Nothing,
}

/// Makes the call of `intent` and notes what came of it.
pub(crate) async fn perform(
    shared: &Shared,
    site: &Site,
    journal: &mut Journal,
    lease: &Lease,
    intent: &Intent,
    prepared: Prepared,
) {
    let asked_at = shared.clock.now();
    if let Some(outcome) = handed_off(journal, asked_at) {
        return journal.end(outcome, asked_at);
    }
    let request = Request::new(journal, &intent.effect, prepared);
    let result = match request {
        Ok(request) => {
            let send = |client: Client| async move {
                if lease.holds(shared.clock.now()) {
                    return request.send(&client).await.map(Some);
                }
                Ok(None)
            };
            site.change(send).await
        }
        Err(text) => Err(CallError::Site(text)),
    };
    let outcome = match result {
        Ok(None) => Outcome::NotSent {
            code: "lease_over".to_owned(),
            text: "this worker stood still for so long that another one may have the run"
                .to_owned(),
        },
        Ok(Some(answer)) => {
            take(journal, &intent.effect, answer, asked_at, shared.clock.now());
            Outcome::Accepted
        }
        Err(error) => {
            if is_database_conflict(&error) {
                site.forget_bmcs().await;
            }
            outcome_of(&error)
        }
    };
    journal.end(outcome, shared.clock.now());
}

/// The one place through which every mutation goes: a machine that was handed over is never
/// touched again, whatever a decision says.
fn handed_off(journal: &Journal, now: Timestamp) -> Option<Outcome> {
    leave::handed_off(&journal.snapshot(now)).then(|| Outcome::Rejected {
        code: "machine_handed_off".to_owned(),
        text: "the profile hands the machine over (release_mode=handoff): GPUaaS does not touch it"
            .to_owned(),
        conflict: false,
    })
}

fn take(
    journal: &mut Journal,
    effect: &Effect,
    answer: Answer,
    asked_at: Timestamp,
    answered_at: Timestamp,
) {
    match answer {
        Answer::Machine(machine) => {
            if *effect == Effect::CreateMachine {
                let candidate = Candidate {
                    system_id: machine.system_id.clone(),
                    hostname: machine.hostname.clone(),
                    matched_by: vec!["created".to_owned()],
                    held_by: None,
                };
                journal.run.memory.found = Some(Found {
                    asked_at: answered_at,
                    candidates: vec![candidate],
                    unclaimed_new: Vec::new(),
                });
            }
            journal.observe(convert::machine(&machine), asked_at);
        }
        Answer::Interface(interface) => {
            let nic = convert::nic(&interface);
            if let Some(mut seen) = journal.observation.clone()
                && let Some(machine) = seen.machine.as_mut()
                && let Some(old) = machine.nics.iter_mut().find(|n| n.id == nic.id)
            {
                *old = nic;
                journal.observe_as(seen);
            }
        }
        Answer::Disk(device) => {
            let disk = convert::disk(&device);
            if let Some(mut seen) = journal.observation.clone()
                && let Some(machine) = seen.machine.as_mut()
                && let Some(old) = machine.disks.iter_mut().find(|d| d.id == disk.id)
            {
                *old = disk;
                journal.observe_as(seen);
            }
        }
        Answer::Nothing => {
            if let Effect::SetBootDisk { block_device_id } = effect
                && let Some(mut seen) = journal.observation.clone()
                && let Some(machine) = seen.machine.as_mut()
            {
                machine.boot_disk_id = Some(*block_device_id);
                journal.observe_as(seen);
            }
        }
    }
}

/// As MAAS answers a create with the BMC of another machine (docs/maas.md#duplicate-bmc).
fn is_database_conflict(error: &CallError) -> bool {
    matches!(error, CallError::Maas(MaasError::Refused { kind: Refusal::DatabaseConflict, .. }))
}

fn outcome_of(error: &CallError) -> Outcome {
    let code = error.code().to_owned();
    let text = error.to_string();
    match error {
        CallError::Open(_)
        | CallError::Site(_)
        | CallError::Maas(MaasError::Unavailable { sent: false, .. }) => {
            Outcome::NotSent { code, text }
        }
        CallError::Maas(MaasError::Refused { kind, .. }) => {
            let conflict = matches!(kind, Refusal::StateConflict | Refusal::DatabaseConflict);
            Outcome::Rejected { code, text, conflict }
        }
        CallError::Maas(MaasError::Invalid { .. }) => {
            Outcome::Rejected { code, text, conflict: false }
        }
        CallError::Maas(_) => Outcome::Unknown { code, text },
    }
}

/// A call with everything it needs, free of the journal.
enum Request {
    Create(Box<CreateMachine>),
    Release { system_id: String, erase: bool },
    Script { script: Box<NewScript>, replace: bool },
    Commission { system_id: String, options: Box<CommissionOptions> },
    Override { system_id: String },
    SetBootDisk { system_id: String, block_device_id: i64 },
    SetStorageLayout { system_id: String, layout: String, root_device: i64 },
    Format { system_id: String, block_device_id: i64, fstype: String },
    Mount { system_id: String, block_device_id: i64, mount_point: String },
    Unlink { system_id: String, interface_id: i64, link_id: i64 },
    Link { system_id: String, interface_id: i64, subnet_cidr: String, ip_address: String },
    Deploy { system_id: String, options: Box<DeployOptions> },
    PowerOff { system_id: String, comment: String },
    PowerOn { system_id: String, comment: String },
    Abort { system_id: String, comment: String },
    MarkBroken { system_id: String, comment: String },
    MarkFixed { system_id: String, comment: String },
}

impl Request {
    fn new(journal: &Journal, effect: &Effect, prepared: Prepared) -> Result<Self, String> {
        if let (Effect::CreateMachine, Prepared::Bmc(password)) = (effect, &prepared) {
            return Ok(Self::Create(Box::new(create(journal, password.clone()))));
        }
        let prepared = match (effect, prepared) {
            (Effect::RegisterScript { replace, .. }, Prepared::Script(script)) => {
                return Ok(Self::Script { script, replace: *replace });
            }
            (_, prepared) => prepared,
        };
        let system_id = journal.node.system_id.clone().ok_or("the node has no machine yet")?;
        let comment = format!("GPUaaS {} run {}", journal.run.kind, journal.run.id);
        Ok(match effect.clone() {
            Effect::CreateMachine => return Err("the BMC password was not loaded".to_owned()),
            Effect::Release { erase } => Self::Release { system_id, erase },
            Effect::RegisterScript { .. } => return Err("the script was not loaded".to_owned()),
            Effect::Commission { scripts } => {
                let options = CommissionOptions {
                    commissioning_scripts: scripts.commissioning,
                    testing_scripts: Some(scripts.testing).filter(|tests| !tests.is_empty()),
                    ..CommissionOptions::default()
                };
                Self::Commission { system_id, options: Box::new(options) }
            }
            Effect::OverrideFailedTesting => Self::Override { system_id },
            Effect::PowerOff => Self::PowerOff { system_id, comment },
            Effect::PowerOn => Self::PowerOn { system_id, comment },
            Effect::Abort => Self::Abort { system_id, comment },
            Effect::MarkBroken => Self::MarkBroken { system_id, comment },
            Effect::MarkFixed => Self::MarkFixed { system_id, comment },
            Effect::SetBootDisk { block_device_id } => {
                Self::SetBootDisk { system_id, block_device_id }
            }
            Effect::SetStorageLayout { layout, root_device } => {
                Self::SetStorageLayout { system_id, layout, root_device }
            }
            Effect::FormatBlockDevice { block_device_id, fstype } => {
                Self::Format { system_id, block_device_id, fstype }
            }
            Effect::MountBlockDevice { block_device_id, mount_point } => {
                Self::Mount { system_id, block_device_id, mount_point }
            }
            Effect::UnlinkSubnet { interface_id, link_id } => {
                Self::Unlink { system_id, interface_id, link_id }
            }
            Effect::LinkSubnet { interface_id, subnet_cidr, ip_address } => {
                Self::Link { system_id, interface_id, subnet_cidr, ip_address }
            }
            Effect::Deploy { distro_series, enable_hw_sync } => {
                let Prepared::UserData(user_data) = prepared else {
                    return Err("the user-data was not rendered".to_owned());
                };
                let options = DeployOptions {
                    distro_series: Some(distro_series),
                    user_data: Some(user_data),
                    enable_hw_sync,
                    comment: Some(comment),
                    ..DeployOptions::default()
                };
                Self::Deploy { system_id, options: Box::new(options) }
            }
        })
    }

    async fn send(self, client: &Client) -> Result<Answer, MaasError> {
        let machine = |machine: Machine| Answer::Machine(Box::new(machine));
        match self {
            Self::Create(request) => client.create_machine(&request).await.map(machine),
            Self::Release { system_id, erase } => {
                let options = ReleaseOptions { erase, ..ReleaseOptions::default() };
                client.release(&system_id, &options).await.map(machine)
            }
            Self::Script { script, replace: false } => {
                client.create_script(&script).await.map(|_| Answer::Nothing)
            }
            Self::Script { script, replace: true } => {
                let text = String::from_utf8_lossy(&script.content);
                let comment = script.comment.as_deref();
                let updated = client.update_script(&script.name, &text, comment).await;
                updated.map(|_| Answer::Nothing)
            }
            Self::Commission { system_id, options } => {
                client.commission(&system_id, &options).await.map(machine)
            }
            Self::Override { system_id } => {
                let comment = "GPUaaS: the failed test was answered for";
                client.override_failed_testing(&system_id, Some(comment)).await.map(machine)
            }
            Self::SetBootDisk { system_id, block_device_id } => client
                .set_boot_disk(&system_id, number(block_device_id))
                .await
                .map(|()| Answer::Nothing),
            Self::SetStorageLayout { system_id, layout, root_device } => {
                let root_device = Some(number(root_device));
                let layout = StorageLayout { layout, root_device, ..StorageLayout::default() };
                client.set_storage_layout(&system_id, &layout).await.map(machine)
            }
            Self::Format { system_id, block_device_id, fstype } => client
                .format_block_device(&system_id, number(block_device_id), &fstype)
                .await
                .map(|disk| Answer::Disk(Box::new(disk))),
            Self::Mount { system_id, block_device_id, mount_point } => client
                .mount_block_device(&system_id, number(block_device_id), &mount_point)
                .await
                .map(|disk| Answer::Disk(Box::new(disk))),
            Self::Unlink { system_id, interface_id, link_id } => client
                .unlink_subnet(&system_id, number(interface_id), number(link_id))
                .await
                .map(|i| Answer::Interface(Box::new(i))),
            Self::Link { system_id, interface_id, subnet_cidr, ip_address } => {
                let link = LinkSubnet {
                    mode: LinkMode::Static,
                    subnet: Some(format!("cidr:{subnet_cidr}")),
                    ip_address: Some(ip_address),
                    force: false,
                    default_gateway: false,
                };
                client
                    .link_subnet(&system_id, number(interface_id), &link)
                    .await
                    .map(|i| Answer::Interface(Box::new(i)))
            }
            Self::PowerOff { system_id, comment } => {
                let answer = client.power_off(&system_id, false, Some(&comment)).await?;
                Ok(answer.map_or(Answer::Nothing, machine))
            }
            Self::PowerOn { system_id, comment } => {
                let answer = client.power_on(&system_id, Some(&comment)).await?;
                Ok(answer.map_or(Answer::Nothing, machine))
            }
            Self::Abort { system_id, comment } => {
                client.abort(&system_id, Some(&comment)).await.map(machine)
            }
            Self::MarkBroken { system_id, comment } => {
                client.mark_broken(&system_id, &comment).await.map(machine)
            }
            Self::MarkFixed { system_id, comment } => {
                client.mark_fixed(&system_id, Some(&comment)).await.map(machine)
            }
            Self::Deploy { system_id, options } => {
                client.deploy(&system_id, &options).await.map(machine)
            }
        }
    }
}

/// Ids come from MAAS and are positive.
const fn number(id: i64) -> u64 {
    id.unsigned_abs()
}

fn create(journal: &Journal, bmc_password: Option<String>) -> CreateMachine {
    let hardware = &journal.node.hardware;
    let mut parameters = BTreeMap::new();
    if let Some(address) = &hardware.bmc_address {
        parameters.insert("power_address".to_owned(), Secret::new(address));
        if let Some(user) = &hardware.bmc_user {
            parameters.insert("power_user".to_owned(), Secret::new(user));
        }
        if let Some(password) = bmc_password {
            parameters.insert("power_pass".to_owned(), Secret::new(password));
        }
    }
    let power_type = hardware.power_type.clone();
    let power = (!power_type.is_empty()).then_some(PowerSettings { power_type, parameters });
    CreateMachine {
        hostname: Some(journal.node.hostname.clone()),
        architecture: hardware.architecture.clone(),
        mac_addresses: hardware.mac_addresses.clone(),
        power,
        commission: false,
        ..CreateMachine::default()
    }
}
