//! Refusals over host images.

/// The rows of this file, put between what it is given of a table and the rows after it.
macro_rules! rows_of_images {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
ImageNotFound "image_not_found" "The site knows no such image" {
    status: 404, owner: None, next_action: "`gpuaas image list --site SITE` shows the images of a site; `gpuaas image upload FILE --site SITE --api-key-file KEY` brings one there",
    doc: "The site has no record of an image of this name, and its region has none",
}
ImageNotApproved "image_not_approved" "The image is not approved for the site" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas image approve IMAGE --site SITE --reason WHY`",
    doc: "An uploaded image is deployed at a site only when an approver approved it for the site, or when `approved_images` of the site names it",
}
ImageNotLinted "image_not_linted" "The site has no verdict of the lint on the image's file" {
    status: 409, owner: None, next_action: "`gpuaas image lint FILE --record SITE`, then approve again; or approve with `--lint-waiver WHY`",
    doc: "An image is approved when `gpuaas image lint FILE` found no error in a file of its digest, or with a reason why it need not",
}
ImageLintFailed "image_lint_failed" "The lint found errors in the image's file" {
    status: 409, owner: None, next_action: "`gpuaas image lint FILE` names each fix; build and upload it again, or approve with `--lint-waiver WHY`",
    doc: "An image is approved when `gpuaas image lint FILE` found no error in a file of its digest, or with a reason why it need not",
}
ImageCanaryFull "image_canary_full" "As many nodes have the image as a canary may have" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas image approve IMAGE --site SITE --reason WHY` once those nodes are well, or with `--canary NODES` for more of them",
    doc: "The image is a canary at the site, for a number of nodes",
}
ImageRevoked "image_revoked" "The image was revoked for the site" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas image rollback --profile PROFILE --site SITE --reason WHY` has the profile name an image that may be deployed",
    doc: "An approver said that no node of the site is deployed with the image any more; another build is another image",
}
ImageExpired "image_expired" "The approval of the image has ended" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas image approve IMAGE --site SITE --reason WHY`, or name another image: `gpuaas image rollback --profile PROFILE --site SITE --reason WHY`",
    doc: "The approval of the image had an end, which has passed",
}
ImageParentRevoked "image_parent_revoked" "What the image was built on was revoked" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "build the image anew; until then `gpuaas image rollback --profile PROFILE --site SITE --reason WHY`",
    doc: "A digest of the image's lineage is that of an image that was revoked",
}
ImageDigestDiffers "image_digest_differs" "It is another image than the one of this name" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas image list --site SITE` shows the digests; each build has a name of its own, so upload the file under another one",
    doc: "The digest that is given, pinned or found is not the one that the site has for the name",
}
ImageTransitionRefused "image_transition_refused" "The image cannot get into this state from the one it is in" {
    status: 409, owner: None, next_action: "`gpuaas image show IMAGE --site SITE` shows its state and what happened to it",
    doc: "What may follow on a state is a table (docs/adr/0042-image-approvals.md)",
}
ImageInUse "image_in_use" "Something names the image" {
    status: 409, owner: None, next_action: "have the profiles that are named here name another image, `gpuaas image rollback --profile PROFILE --site SITE --reason WHY`, and the nodes deployed with it, `gpuaas node reimage NODE`",
    doc: "An image is deleted only when no node of the site, no open run or batch and no profile names it; the detail has the names",
}
ExperimentNotFound "experiment_not_found" "There is no such experiment" {
    status: 404, owner: None, next_action: "`gpuaas experiment list` shows the experiments",
    doc: "No experiment has this name",
}
ExperimentNameTaken "experiment_name_taken" "There is an experiment of this name" {
    status: 409, owner: None, next_action: "choose another name; `gpuaas experiment list` shows what is there",
    doc: "Names of experiments are unique, and none is deleted",
}
ExperimentNodesMissing "experiment_nodes_missing" "Too few nodes are active" {
    status: 409, owner: None, next_action: "take fewer nodes, `--nodes N`, or bring more of the profile into service; `gpuaas node list --site SITE` shows them",
    doc: "An experiment draws its nodes of those that are active with the profile at the site",
}
$($rows)* } };
}
