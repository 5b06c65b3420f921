//! Problems with host images.

/// Inserts the rows of this file into a table, before the rows that it is given.
macro_rules! rows_of_images {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
ImageNotFound "image_not_found" "Image not found" {
    status: 404, owner: None, next_action: "run `gpuaas image list --site SITE` to see the site's images; `gpuaas image upload FILE --site SITE --api-key-file KEY` uploads one",
    doc: "The site has no record of an image with this name, and its region has no such image",
}
ImageNotApproved "image_not_approved" "The image is not approved for the site" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas image approve IMAGE --site SITE --reason WHY`",
    doc: "A site deploys an uploaded image only if an approver approved it for the site, or if the site's `approved_images` lists it",
}
ImageNotLinted "image_not_linted" "The site has no lint result for the image file" {
    status: 409, owner: None, next_action: "run `gpuaas image lint FILE --record SITE`, then approve again; or approve with `--lint-waiver WHY`",
    doc: "An image can be approved only if `gpuaas image lint FILE` found no error in a file with its digest, or if the approver gives a reason for a waiver",
}
ImageLintFailed "image_lint_failed" "The lint found errors in the image file" {
    status: 409, owner: None, next_action: "run `gpuaas image lint FILE` to see each fix, then build and upload the image again; or approve with `--lint-waiver WHY`",
    doc: "An image can be approved only if `gpuaas image lint FILE` found no error in a file with its digest, or if the approver gives a reason for a waiver",
}
ImageCanaryFull "image_canary_full" "The image has reached its canary limit" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas image approve IMAGE --site SITE --reason WHY` once the canary nodes are healthy, or add `--canary NODES` to allow more of them",
    doc: "The image is a canary at the site, limited to a number of nodes",
}
ImageRevoked "image_revoked" "The image was revoked for the site" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas image rollback --profile PROFILE --site SITE --reason WHY` to switch the profile to an image that may be deployed",
    doc: "An approver revoked the image, so the site deploys it to no more nodes; a new build is a new image",
}
ImageExpired "image_expired" "The approval of the image has expired" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas image approve IMAGE --site SITE --reason WHY`, or switch to another image with `gpuaas image rollback --profile PROFILE --site SITE --reason WHY`",
    doc: "The expiry time of the image's approval has passed",
}
ImageParentRevoked "image_parent_revoked" "The image was built on a revoked image" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "rebuild the image; until then, run `gpuaas image rollback --profile PROFILE --site SITE --reason WHY`",
    doc: "A digest in the image's lineage belongs to a revoked image",
}
ImageDigestDiffers "image_digest_differs" "Another image already has this name" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas image list --site SITE` to see the digests, then upload the file under another name; each build needs its own name",
    doc: "The given, pinned or found digest differs from the one that the site has for this name",
}
ImageTransitionRefused "image_transition_refused" "The image's state does not allow this change" {
    status: 409, owner: None, next_action: "run `gpuaas image show IMAGE --site SITE` to see its state and history",
    doc: "docs/adr/0042-image-approvals.md lists the allowed state changes",
}
ImageInUse "image_in_use" "The image is in use" {
    status: 409, owner: None, next_action: "switch the profiles in the detail to another image with `gpuaas image rollback --profile PROFILE --site SITE --reason WHY`, and redeploy the nodes that use the image with `gpuaas node reimage NODE`",
    doc: "An image can be deleted only if no node of the site, no open run or batch, and no profile uses it; the detail lists them",
}
ExperimentNotFound "experiment_not_found" "Experiment not found" {
    status: 404, owner: None, next_action: "run `gpuaas experiment list` to see the experiments",
    doc: "No experiment has this name",
}
ExperimentNameTaken "experiment_name_taken" "An experiment with this name already exists" {
    status: 409, owner: None, next_action: "choose another name; `gpuaas experiment list` shows the existing experiments",
    doc: "Experiment names are unique, and experiments are never deleted",
}
ExperimentNodesMissing "experiment_nodes_missing" "Not enough active nodes" {
    status: 409, owner: None, next_action: "use fewer nodes with `--nodes N`, or bring more nodes with the profile into service; `gpuaas node list --site SITE` shows the nodes",
    doc: "An experiment selects its nodes from the active nodes of the site that use the profile",
}
$($rows)* } };
}
