//! Every action of the audit log, and its one spelling. A write of the store takes an entry, and an entry
//! takes an action of this table, so a new effect needs a row here.

use crate::RunKind;
use crate::image::ImageState;
use crate::string_enum::string_enum;

/// A row of [`AUDIT_ACTIONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditActionRow {
    /// The action.
    pub action: AuditAction,
    /// What was done, as a Markdown text.
    pub about: &'static str,
}

macro_rules! audit_actions {
    ($($variant:ident = $text:literal, $about:literal;)+) => {
        string_enum! {
            /// An action of the audit log. Its spelling is a machine identifier and does not change.
            AuditAction { $(#[doc = $about] $variant = $text,)+ }
        }

        /// Every action, in the order of [`AuditAction`].
        pub const AUDIT_ACTIONS: &[AuditActionRow] =
            &[$(AuditActionRow { action: AuditAction::$variant, about: $about }),+];
    };
}

audit_actions! {
    AgentTaskRefused = "agent.task_refused",
        "An agent refused a task that the control plane did not sign, or that was for another node.";
    ApprovalApprove = "approval.approve", "A second person approved a request.";
    ApprovalAsk = "approval.ask", "A request was held for approval by a second person.";
    ApprovalDeny = "approval.deny", "A second person denied a request.";
    AuditExpire = "audit.expire", "Old entries of the audit log were exported and deleted.";
    AuthorityActivate = "authority.activate", "The next certificate authority was activated.";
    AuthorityRetire = "authority.retire",
        "The former certificate authority was retired and is no longer trusted.";
    AuthorityStage = "authority.stage", "The next certificate authority was created.";
    BackupRestore = "backup.restore", "The database was restored from a backup.";
    BatchCreate = "batch.create", "A batch was created.";
    BatchResume = "batch.resume", "A stopped batch was resumed.";
    BatchStop = "batch.stop",
        "A batch was stopped by a person or because it reached its failure ratio.";
    BundleApprove = "bundle.approve", "A bundle was approved for a site.";
    BundlePublish = "bundle.publish", "A bundle was published.";
    BundleTrust = "bundle.trust", "A bundle signing key was added to the trusted keys.";
    BundleWithdraw = "bundle.withdraw", "The approval of a bundle for a site was withdrawn.";
    BundleKeyRotate = "bundle_key.rotate", "The control plane's bundle signing key was replaced.";
    CredentialRefused = "credential.refused", "Credentials were rejected.";
    DeadLetterReplay = "dead-letter.replay",
        "Undelivered events of a sink were queued for redelivery.";
    EventSinkRemove = "event-sink.remove", "An event sink was removed.";
    ExperimentEnd = "experiment.end", "An experiment received its last result.";
    ExperimentImport = "experiment.import",
        "Results measured elsewhere were imported as an experiment.";
    ExperimentStart = "experiment.start", "An experiment was started.";
    ExperimentStop = "experiment.stop", "An experiment was stopped.";
    ImageApproved = "image.approved", "An image was approved for deployment.";
    ImageBuilt = "image.built", "An image was set to `built`.";
    ImageCanary = "image.canary", "An image was approved for a limited number of nodes.";
    ImageDelete = "image.delete", "An image was revoked and its record was deleted.";
    ImageDeprecated = "image.deprecated", "An image was deprecated.";
    ImageExpired = "image.expired", "An image was set to `expired`.";
    ImageRecord = "image.record", "An image was recorded, or found in the region.";
    ImageRevoked = "image.revoked", "An image was revoked and can no longer be deployed.";
    ImageUploaded = "image.uploaded", "An image was set to `uploaded`.";
    ImageVerdict = "image.verdict", "The lint verdict of an archive was recorded.";
    ImageVerified = "image.verified", "An image was set to `verified`.";
    MasterKeyRetire = "master_key.retire",
        "The former master key was retired: it seals nothing any more.";
    MasterKeyRotate = "master_key.rotate",
        "The master key was replaced; the new one seals from now on.";
    NodeChange = "node.change", "The record of a node's hardware or site was changed.";
    NodeDecommission = "node.decommission", "A decommission was started.";
    NodeDetach = "node.detach", "A machine was detached from GPUaaS and left unchanged.";
    NodeOnboard = "node.onboard", "An onboarding was started.";
    NodeReimage = "node.reimage", "A reimage was started.";
    NodeRemove = "node.remove", "The record of a removed node was archived.";
    NodeRevokeCertificate = "node.revoke_certificate", "A node's certificate was revoked.";
    NodeSoftReset = "node.soft_reset",
        "A soft reset was started: the node's agent removes what a tenant left.";
    NodeStorageCleanup = "node.storage_cleanup",
        "A storage cleanup was started: the node's agent empties the scratch storage.";
    NodeTask = "node.task", "A task was created for a node's agent.";
    NodeTaskRefused = "node.task_refused", "A request for a task on a node was refused.";
    ProfileChange = "profile.change", "A new revision of a profile was created.";
    ProfileCreate = "profile.create", "A profile was created.";
    ProfileRemove = "profile.remove", "A profile was removed.";
    ProfileRollbackImage = "profile.rollback_image",
        "A profile was rolled back to its previous image.";
    ProfileSecretDelete = "profile.secret.delete", "A secret input of a profile was deleted.";
    ProfileSecretSet = "profile.secret.set", "A secret input of a profile was set.";
    RequestRefused = "request.refused",
        "A request was refused because its credentials do not permit it.";
    RoceAdd = "roce.add", "A fabric address was added.";
    RoceChange = "roce.change", "A fabric address was changed.";
    RoceRemove = "roce.remove", "Fabric addresses were removed.";
    RunCancel = "run.cancel", "A run was cancelled.";
    RunResume = "run.resume", "A parked run was resumed.";
    RunRetry = "run.retry", "A run's step was restarted.";
    RunSkipCheck = "run.skip_check", "A check of a run was skipped.";
    RunTakeOver = "run.take_over",
        "A run was allowed to take over a machine that someone else owns.";
    SiteChange = "site.change", "A site was changed.";
    SiteCreate = "site.create", "A site was created.";
    SiteRemove = "site.remove", "A site was removed.";
    SiteSecretDelete = "site.secret.delete", "A secret input of a site was deleted.";
    SiteSecretSet = "site.secret.set", "A secret input of a site was set.";
    SiteTakeControl = "site.take_control",
        "This control plane took control of a region from another one.";
    SliceApprove = "slice.approve", "Slots of a host were approved for leasing.";
    SliceClaim = "slice.claim", "Slots or a whole node were claimed.";
    SliceLaunch = "slice.launch", "A guest was launched on a claim.";
    SliceRecover = "slice.recover", "A person cleared a slot that was in doubt; it is free again.";
    SliceRelease = "slice.release", "A claim was released or expired.";
    StoreMigrate = "store.migrate", "The embedded database was moved to PostgreSQL.";
    TaskKeyActivate = "task_key.activate", "The next key for signing agent tasks was activated.";
    TaskKeyRetire = "task_key.retire", "A key for signing agent tasks was retired.";
    TaskKeyStage = "task_key.stage", "The next key for signing agent tasks was created.";
    TestWrite = "test.write",
        "A test or a simulation wrote data; no control plane makes this entry.";
    TokenCreate = "token.create", "An access token was created.";
    TokenReset = "token.reset", "The first administrator's token was replaced.";
    TokenRevoke = "token.revoke", "An access token was revoked.";
    WebhookAdd = "webhook.add", "A webhook was added.";
}

impl AuditAction {
    /// The action of a request for a run of this kind.
    #[must_use]
    pub const fn of_run(kind: RunKind) -> Self {
        match kind {
            RunKind::Onboard => Self::NodeOnboard,
            RunKind::Decommission => Self::NodeDecommission,
            RunKind::Reimage => Self::NodeReimage,
            RunKind::SoftReset => Self::NodeSoftReset,
            RunKind::StorageCleanup => Self::NodeStorageCleanup,
            RunKind::Detach => Self::NodeDetach,
            RunKind::Remove => Self::NodeRemove,
        }
    }

    /// The action of a transition of an image to this state.
    #[must_use]
    pub const fn of_image(to: ImageState) -> Self {
        match to {
            ImageState::Built => Self::ImageBuilt,
            ImageState::Verified => Self::ImageVerified,
            ImageState::Uploaded => Self::ImageUploaded,
            ImageState::Canary => Self::ImageCanary,
            ImageState::Approved => Self::ImageApproved,
            ImageState::Deprecated => Self::ImageDeprecated,
            ImageState::Revoked => Self::ImageRevoked,
            ImageState::Expired => Self::ImageExpired,
        }
    }

    /// Whether nothing was done: the detail's `code` says why.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::AgentTaskRefused
                | Self::CredentialRefused
                | Self::NodeTaskRefused
                | Self::RequestRefused
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_action_has_one_row_and_one_spelling() {
        assert_eq!(AUDIT_ACTIONS.len(), AuditAction::ALL.len());
        let spellings: BTreeSet<String> =
            AuditAction::ALL.iter().map(|one| one.as_str().replace(['-', '_'], "")).collect();
        assert_eq!(spellings.len(), AuditAction::ALL.len(), "two spellings differ in a dash alone");
        let sorted = AUDIT_ACTIONS.is_sorted_by_key(|row| row.action.as_str());
        assert!(sorted, "rows are in the order of their spellings");
        for row in AUDIT_ACTIONS {
            assert_eq!(row.action.as_str().parse(), Ok(row.action));
            assert_eq!(row.action.is_refusal(), row.action.as_str().ends_with("refused"));
        }
    }

    #[test]
    fn actions_of_runs_and_images_are_spelled_like_their_kinds() {
        for kind in RunKind::ALL {
            assert_eq!(AuditAction::of_run(*kind).as_str(), format!("node.{kind}"));
        }
        for state in ImageState::ALL {
            assert_eq!(AuditAction::of_image(*state).as_str(), format!("image.{state}"));
        }
    }
}
