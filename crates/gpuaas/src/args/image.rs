//! Arguments of `gpuaas image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use gpuaas_client::arguments::ConnectionArgs;
use gpuaas_image::disk_type::DISK_TYPES;
use gpuaas_image::lint::ImageFileType;

use super::image_overrides::OverrideArgs;
use super::image_site::{
    ImageApproveArgs, ImageDeleteArgs, ImageListArgs, ImageRollbackArgs, ImageStateArgs,
};
use super::shared::ActorArgs;

/// Default cache of image layers.
const IMAGE_CACHE: &str = "/var/cache/gpuaas/images";

/// `gpuaas image`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Pack a root file system for MAAS; builds are reproducible.
    Pack(ImagePackArgs),
    /// Check an archive for problems in MAAS, in curtin or at first boot.
    Lint(ImageLintArgs),
    /// Boot an archive as a container, and as a machine with UEFI firmware, shim and grub.
    BootTest(ImageBootTestArgs),
    /// Build an archive from a recipe; reuses unchanged layers.
    Build(Box<ImageBuildArgs>),
    /// Build a recipe and upload the image to MAAS, do only one of the two, or show the plan (with
    /// --dry-run).
    Pipeline(Box<ImagePipelineArgs>),
    /// Show an archive's packages, kernel, bundles and build inputs; or, with --site, an image's
    /// history there.
    Show(ImageShowArgs),
    /// Compare two archives: packages, kernel, arguments, files, size.
    Diff(ImageDiffArgs),
    /// Write an SPDX document and a signed provenance statement next to an archive.
    Sign(ImageSignArgs),
    /// Upload an archive to a site's MAAS; repeat the command to resume after an interruption.
    Upload(Box<ImageUploadArgs>),
    /// List the images of sites, with their state and who set it.
    List(ImageListArgs),
    /// Approve an uploaded image for the nodes of a site, or for some of them with --canary.
    Approve(ImageApproveArgs),
    /// Deprecate an image in favor of another one; it can still be deployed.
    Deprecate(ImageStateArgs),
    /// Permanently stop deploying nodes of a site with an image.
    Revoke(ImageStateArgs),
    /// Switch a profile back to its previous image, or to ubuntu/noble.
    Rollback(ImageRollbackArgs),
    /// Delete an image in MAAS that no node, run or profile uses.
    Delete(ImageDeleteArgs),
}

/// Region and uploader options.
#[derive(Debug, Clone, Args)]
pub struct RegionArgs {
    /// File with CONSUMER:TOKEN:SECRET of a MAAS administrator; `-` reads stdin.
    #[arg(
        long = "api-key-file",
        value_name = "FILE",
        env = "GPUAAS_MAAS_API_KEY_FILE",
        hide_env_values = true,
        default_value = "maas.key"
    )]
    pub maas_key_file: PathBuf,
    /// MAAS base URL [default: the site's URL, from the control plane].
    #[arg(long, value_name = "MAAS_URL")]
    pub maas_url: Option<String>,
    /// PEM file of the certificate authority of an https region [default: the site's].
    #[arg(long, value_name = "FILE")]
    pub maas_ca_file: Option<PathBuf>,
    /// Delete incomplete uploads of this file, and start over.
    #[arg(long)]
    pub start_over: bool,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Control plane that manages the site.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `gpuaas image build`.
#[derive(Debug, Clone, Args)]
pub struct ImageBuildArgs {
    /// Recipe: name of a built-in recipe, or a file.
    #[arg(value_name = "RECIPE")]
    pub recipe: String,
    /// Archive to write [default: named after the recipe, in the folder of --upload-staging-dir].
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Folder that caches layers between builds.
    #[arg(long, value_name = "DIR", default_value = IMAGE_CACHE)]
    pub cache: PathBuf,
    /// Overrides of the recipe.
    #[command(flatten)]
    pub overrides: OverrideArgs,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image show`.
#[derive(Debug, Clone, Args)]
pub struct ImageShowArgs {
    /// Archive, or the image's name in MAAS with --site.
    #[arg(value_name = "FILE|IMAGE")]
    pub file: PathBuf,
    /// Site that has the image.
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// Public key, as printed by `bundle key`; statements next to the archive are accepted only if
    /// signed by one of these keys. Repeat for more.
    #[arg(long, value_name = "KEY", conflicts_with = "site")]
    pub trust: Vec<String>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    /// Control plane that manages the site.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `gpuaas image diff`.
#[derive(Debug, Clone, Args)]
pub struct ImageDiffArgs {
    /// Older archive.
    #[arg(value_name = "A")]
    pub first: PathBuf,
    /// Newer archive.
    #[arg(value_name = "B")]
    pub second: PathBuf,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image sign`.
#[derive(Debug, Clone, Args)]
pub struct ImageSignArgs {
    /// Archive; FILE.spdx.json and FILE.intoto.json are written next to it.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Private key that signs the statement (see `bundle key`).
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image upload`.
#[derive(Debug, Clone, Args)]
pub struct ImageUploadArgs {
    /// Archive; FILE.SITE.upload.json next to it keeps the upload progress.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Site whose MAAS receives the image.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Name in MAAS; date and digest are appended [default: file name].
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Title shown in MAAS.
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// MAAS' architecture.
    #[arg(long, value_name = "ARCH", default_value = "amd64/generic")]
    pub architecture: String,
    /// MAAS' file type.
    #[arg(long, value_name = "TYPE", default_value = "tgz")]
    pub file_type: String,
    /// Base image in MAAS.
    #[arg(long = "maas-base-image", value_name = "OS/SERIES", default_value = "ubuntu/noble")]
    pub base_image: String,
    /// Host of an additional apt source that deploys may use, besides the distribution's own.
    #[arg(long = "allow-source", value_name = "HOST")]
    pub allowed_sources: Vec<String>,
    /// Reason to upload despite lint errors. Approving the image then needs a reason, too.
    #[arg(long, value_name = "TEXT")]
    pub lint_waiver: Option<String>,
    /// Private key that signs a statement of the result (see `bundle key`); the statement is
    /// written next to the archive.
    #[arg(long, value_name = "FILE")]
    pub sign_key: Option<PathBuf>,
    /// Region and uploader options.
    #[command(flatten)]
    pub region: RegionArgs,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image pipeline`.
#[derive(Debug, Clone, Args)]
pub struct ImagePipelineArgs {
    /// Recipe: name of a built-in recipe, or a file.
    #[arg(long, value_name = "NAME|FILE", default_value = "h200-host-ubuntu2404")]
    pub recipe: String,
    /// Host to build on, over ssh [default: this one].
    #[arg(
        long,
        value_name = "USER@HOST",
        env = "PLATFORM_CONTROL_SSH_HOST",
        hide_env_values = true
    )]
    pub build_host: Option<String>,
    /// Program that connects to the host, with the arguments of ssh(1).
    #[arg(long, value_name = "PROGRAM", default_value = "ssh")]
    pub ssh_program: PathBuf,
    /// Folder that caches layers between builds.
    #[arg(long, value_name = "DIR", default_value = IMAGE_CACHE)]
    pub cache: PathBuf,
    /// Overrides of the recipe and the target.
    #[command(flatten)]
    pub overrides: OverrideArgs,
    /// Region and uploader options.
    #[command(flatten)]
    pub region: RegionArgs,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image pack`.
#[derive(Debug, Clone, Args)]
pub struct ImagePackArgs {
    /// Root of the file system; it must not contain mounts or change during packing.
    #[arg(value_name = "DIR")]
    pub tree: PathBuf,
    /// File to write; replaces an existing file once complete.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// Compression threads [default: one per core]; does not change the output.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Compression level, 0 to 12; changes the output bytes.
    #[arg(long, value_name = "LEVEL", default_value_t = 6, value_parser = clap::value_parser!(i32).range(0..=12))]
    pub level: i32,
    /// Latest modification time in seconds since 1970; later times are set to it to make builds
    /// reproducible.
    #[arg(long, value_name = "SECONDS")]
    pub newest_mtime: Option<i64>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image lint`.
#[derive(Debug, Clone, Args)]
pub struct ImageLintArgs {
    /// Archive to check, as uploaded to MAAS.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// MAAS file type of the archive.
    #[arg(long, value_name = "TYPE", default_value = "tgz", value_parser = file_type)]
    pub file_type: ImageFileType,
    /// MAAS storage layout of the target machines.
    #[arg(long, value_name = "LAYOUT", default_value = "flat")]
    pub storage_layout: String,
    /// Debian architecture name of the target machines.
    #[arg(long, value_name = "ARCH", default_value = "amd64")]
    pub architecture: String,
    /// Size of the smallest boot disk, such as 80G [default: not checked].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub boot_disk: Option<u64>,
    /// Space for images on the site's rack controllers, such as 20G [default: not checked].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub rack_cache: Option<u64>,
    /// Host of an additional apt source that deploys may use, besides the distribution's own.
    #[arg(long = "allow-source", value_name = "HOST")]
    pub allowed_sources: Vec<String>,
    /// Kernel argument that a host must boot with, besides those in the image's build record.
    #[arg(long = "kernel-argument", value_name = "ARGUMENT")]
    pub kernel_arguments: Vec<String>,
    /// Private key that signs a statement of the result (see `bundle key`); the statement is
    /// written next to the archive.
    #[arg(long, value_name = "FILE")]
    pub sign_key: Option<PathBuf>,
    /// Report the verdict to this site, so that the file can be approved there.
    #[arg(long, value_name = "SITE")]
    pub record: Option<String>,
    /// Who reports the verdict.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection options.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image boot-test`.
#[derive(Debug, Clone, Args)]
pub struct ImageBootTestArgs {
    /// Archive to check, as uploaded to MAAS.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Folder for temporary files: unpacked content and the machine's disk [default: the system's
    /// temporary folder].
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Kernel argument that the machine must boot with, besides those in the image's build record.
    #[arg(long = "kernel-argument", value_name = "ARGUMENT")]
    pub kernel_arguments: Vec<String>,
    /// Private key that signs a statement of the result (see `bundle key`); the statement is
    /// written next to the archive.
    #[arg(long, value_name = "FILE")]
    pub sign_key: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

fn file_type(text: &str) -> Result<ImageFileType, String> {
    let names = || DISK_TYPES.map(|one| one.name).join(", ");
    ImageFileType::find(text).ok_or_else(|| format!("expected tgz, or one of {}", names()))
}

fn size(text: &str) -> Result<u64, String> {
    gpuaas_image::size::parse(text)
        .ok_or_else(|| "expected a size such as 80G or 512M, or a number of bytes".to_owned())
}

/// `gpuaas bench pack`.
#[cfg(feature = "bench")]
#[derive(Debug, Clone, Args)]
pub struct BenchPackArgs {
    /// Root of the tree to pack.
    #[arg(value_name = "DIR")]
    pub tree: PathBuf,
    /// Compression threads, here and in pigz [default: one per core].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Rounds per packer; the fastest one counts.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Folder for temporary archives [default: the system's temporary folder].
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench lint`.
#[cfg(feature = "bench")]
#[derive(Debug, Clone, Copy, Args)]
pub struct BenchLintArgs {
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}
