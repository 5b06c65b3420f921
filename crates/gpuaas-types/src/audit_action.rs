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
        "An agent refused a task that the control plane did not sign, or that is for another node.";
    ApprovalApprove = "approval.approve", "A second person approved a request.";
    ApprovalAsk = "approval.ask", "A request waits for a second person.";
    ApprovalDeny = "approval.deny", "A second person denied a request.";
    AuditExpire = "audit.expire", "Old entries of the audit log were exported and deleted.";
    AuthorityActivate = "authority.activate", "The next certificate authority signs from now on.";
    AuthorityRetire = "authority.retire", "The former certificate authority is no longer trusted.";
    AuthorityStage = "authority.stage", "A next certificate authority was made.";
    BackupRestore = "backup.restore", "The database is that of a backup.";
    BatchCreate = "batch.create", "A batch was created.";
    BatchResume = "batch.resume", "A stopped batch continues.";
    BatchStop = "batch.stop", "A batch was stopped, by a person or at its failure ratio.";
    BundleApprove = "bundle.approve", "A bundle may run at a site.";
    BundlePublish = "bundle.publish", "A bundle was published.";
    BundleTrust = "bundle.trust", "A key that signs bundles is trusted.";
    BundleWithdraw = "bundle.withdraw", "The approval of a bundle at a site was withdrawn.";
    BundleKeyRotate = "bundle_key.rotate", "The control plane's key that signs bundles was replaced.";
    CredentialRefused = "credential.refused", "A credential was refused.";
    DeadLetterReplay = "dead-letter.replay", "Events that a sink did not take are delivered again.";
    EventSinkRemove = "event-sink.remove", "A sink of events was removed.";
    ExperimentEnd = "experiment.end", "An experiment has its last result.";
    ExperimentImport = "experiment.import", "Results that were measured elsewhere became an experiment.";
    ExperimentStart = "experiment.start", "An experiment was started.";
    ExperimentStop = "experiment.stop", "An experiment was stopped.";
    ImageApproved = "image.approved", "An image may be deployed.";
    ImageBuilt = "image.built", "An image was set to `built`.";
    ImageCanary = "image.canary", "An image may be deployed to a limited number of nodes.";
    ImageDelete = "image.delete", "An image was revoked and its record deleted.";
    ImageDeprecated = "image.deprecated", "An image is deprecated.";
    ImageExpired = "image.expired", "An image was set to `expired`.";
    ImageRecord = "image.record", "An image was recorded, or found in the region.";
    ImageRevoked = "image.revoked", "An image may no longer be deployed.";
    ImageUploaded = "image.uploaded", "An image was set to `uploaded`.";
    ImageVerdict = "image.verdict", "The lint verdict of an archive was recorded.";
    ImageVerified = "image.verified", "An image was set to `verified`.";
    MasterKeyRetire = "master_key.retire", "Nothing is sealed with the former master key any more.";
    MasterKeyRotate = "master_key.rotate", "The next master key seals from now on.";
    NodeChange = "node.change", "The record of a node's hardware or site was changed.";
    NodeDecommission = "node.decommission", "A node is taken out of service.";
    NodeDetach = "node.detach", "A machine was given up as it is.";
    NodeOnboard = "node.onboard", "An onboarding was started.";
    NodeReimage = "node.reimage", "A node is deployed again.";
    NodeRemove = "node.remove", "The record of a node that left was put away.";
    NodeRevokeCertificate = "node.revoke_certificate", "A node's certificate was revoked.";
    NodeSoftReset = "node.soft_reset", "A node's agent removes what a tenant left.";
    NodeStorageCleanup = "node.storage_cleanup", "A node's agent empties the scratch storage.";
    NodeTask = "node.task", "An operation was given to a node's agent.";
    NodeTaskRefused = "node.task_refused", "An operation that a person wanted on a node was refused.";
    ProfileChange = "profile.change", "A profile has a new revision.";
    ProfileCreate = "profile.create", "A profile was created.";
    ProfileRemove = "profile.remove", "A profile was removed.";
    ProfileRollbackImage = "profile.rollback_image", "A profile names its former image again.";
    ProfileSecretDelete = "profile.secret.delete", "A secret input of a profile was deleted.";
    ProfileSecretSet = "profile.secret.set", "A secret input of a profile was set.";
    RequestRefused = "request.refused", "A request was refused that its credential does not permit.";
    RoceAdd = "roce.add", "A fabric address was added.";
    RoceChange = "roce.change", "A fabric address was changed.";
    RoceRemove = "roce.remove", "Fabric addresses were removed.";
    RunCancel = "run.cancel", "A run was cancelled.";
    RunResume = "run.resume", "A parked run was resumed.";
    RunRetry = "run.retry", "The step of a run was started again.";
    RunSkipCheck = "run.skip_check", "A check of a run was skipped.";
    RunTakeOver = "run.take_over", "A run may use a machine that somebody else owns.";
    SiteChange = "site.change", "A site was changed.";
    SiteCreate = "site.create", "A site was created.";
    SiteRemove = "site.remove", "A site was removed.";
    SiteSecretDelete = "site.secret.delete", "A secret input of a site was deleted.";
    SiteSecretSet = "site.secret.set", "A secret input of a site was set.";
    SiteTakeControl = "site.take_control", "This control plane took over a region from another one.";
    SliceApprove = "slice.approve", "Slots of a host may be leased.";
    SliceClaim = "slice.claim", "Slots or a whole node were claimed.";
    SliceLaunch = "slice.launch", "A guest was launched on a claim.";
    SliceRecover = "slice.recover", "A person answered for a slot in doubt; it is free again.";
    SliceRelease = "slice.release", "A claim was released, or it expired.";
    StoreMigrate = "store.migrate", "The embedded database was moved to PostgreSQL.";
    TaskKeyActivate = "task_key.activate", "The next key signs the tasks of agents from now on.";
    TaskKeyRetire = "task_key.retire", "A key that signs tasks was retired.";
    TaskKeyStage = "task_key.stage", "A next key that signs tasks was made.";
    TestWrite = "test.write", "A write of a test or a simulation; no control plane makes this entry.";
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
