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

/// Where layers of images are kept.
const IMAGE_CACHE: &str = "/var/cache/gpuaas/images";

/// `gpuaas image`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Pack a root file system for MAAS; the same tree gives the same bytes everywhere.
    Pack(ImagePackArgs),
    /// Say what MAAS, curtin or the first boot would fail on, of a finished archive.
    Lint(ImageLintArgs),
    /// Boot a finished archive: as a container, and as a machine with UEFI firmware, shim and grub.
    BootTest(ImageBootTestArgs),
    /// Build an archive from a recipe; what did not change is not made again.
    Build(Box<ImageBuildArgs>),
    /// Build a recipe and give it to MAAS, do one of both, or show the plan (with --dry-run).
    Pipeline(Box<ImagePipelineArgs>),
    /// Say what a finished archive holds: packages, kernel, bundles, what it was built from; or,
    /// with --site, what happened to an image there.
    Show(ImageShowArgs),
    /// Say what differs between two archives: packages, kernel, arguments, files, size.
    Diff(ImageDiffArgs),
    /// Write an SPDX document and a signed statement of provenance beside an archive.
    Sign(ImageSignArgs),
    /// Give a finished archive to a site's MAAS; the same command goes on after a cut or a crash.
    Upload(Box<ImageUploadArgs>),
    /// List the images of sites: how far each has come, and who said so.
    List(ImageListArgs),
    /// Let nodes of a site be deployed with an uploaded image, or with --canary some of them.
    Approve(ImageApproveArgs),
    /// Say that another image is to take the place of one, which may still be deployed.
    Deprecate(ImageStateArgs),
    /// Let no node of a site be deployed with an image any more, for good.
    Revoke(ImageStateArgs),
    /// Have a profile name the image before again, or ubuntu/noble.
    Rollback(ImageRollbackArgs),
    /// Delete an image in MAAS that no node, run or profile names.
    Delete(ImageDeleteArgs),
}

/// Where a region is, and who gives it an image.
#[derive(Debug, Clone, Args)]
pub struct RegionArgs {
    /// File that holds CONSUMER:TOKEN:SECRET of a MAAS administrator; `-` reads stdin.
    #[arg(
        long = "api-key-file",
        value_name = "FILE",
        env = "GPUAAS_MAAS_API_KEY_FILE",
        hide_env_values = true,
        default_value = "maas.key"
    )]
    pub maas_key_file: PathBuf,
    /// MAAS base URL [default: that of the site, from the control plane].
    #[arg(long, value_name = "MAAS_URL")]
    pub maas_url: Option<String>,
    /// Certificate authority of an https region, PEM [default: that of the site].
    #[arg(long, value_name = "FILE")]
    pub maas_ca_file: Option<PathBuf>,
    /// Delete what was begun of this file and is not complete, and begin anew.
    #[arg(long)]
    pub start_over: bool,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// The control plane that knows the site.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `gpuaas image build`.
#[derive(Debug, Clone, Args)]
pub struct ImageBuildArgs {
    /// Recipe: the name of one that comes with gpuaas, or a file.
    #[arg(value_name = "RECIPE")]
    pub recipe: String,
    /// Archive to write [default: the recipe's name in the folder of --upload-staging-dir].
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Folder of layers that are kept between builds.
    #[arg(long, value_name = "DIR", default_value = IMAGE_CACHE)]
    pub cache: PathBuf,
    /// What is made, instead of what the recipe says.
    #[command(flatten)]
    pub overrides: OverrideArgs,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image show`.
#[derive(Debug, Clone, Args)]
pub struct ImageShowArgs {
    /// The archive, or with --site the image's name in MAAS.
    #[arg(value_name = "FILE|IMAGE")]
    pub file: PathBuf,
    /// Site that has the image.
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// Public key, as `bundle key` prints it, whose statements beside the archive count; may be given
    /// more than once.
    #[arg(long, value_name = "KEY", conflicts_with = "site")]
    pub trust: Vec<String>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    /// The control plane that knows the site.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `gpuaas image diff`.
#[derive(Debug, Clone, Args)]
pub struct ImageDiffArgs {
    /// The older archive.
    #[arg(value_name = "A")]
    pub first: PathBuf,
    /// The newer archive.
    #[arg(value_name = "B")]
    pub second: PathBuf,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image sign`.
#[derive(Debug, Clone, Args)]
pub struct ImageSignArgs {
    /// The archive; FILE.spdx.json and FILE.intoto.json are written beside it.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Private key (see `bundle key`).
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image upload`.
#[derive(Debug, Clone, Args)]
pub struct ImageUploadArgs {
    /// The archive. What was sent of it is kept beside it, as FILE.SITE.upload.json.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Site whose MAAS gets it.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Name in MAAS, to which the day and the digest are added [default: that of the file].
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Title that MAAS shows.
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// MAAS' architecture.
    #[arg(long, value_name = "ARCH", default_value = "amd64/generic")]
    pub architecture: String,
    /// MAAS' file type.
    #[arg(long, value_name = "TYPE", default_value = "tgz")]
    pub file_type: String,
    /// Image of MAAS that it counts as.
    #[arg(long = "maas-base-image", value_name = "OS/SERIES", default_value = "ubuntu/noble")]
    pub base_image: String,
    /// Host of an apt source that every deploy may ask, beside the distribution's own.
    #[arg(long = "allow-source", value_name = "HOST")]
    pub allowed_sources: Vec<String>,
    /// Upload although the lint finds errors in it, for this reason. An approval needs a reason then,
    /// too.
    #[arg(long, value_name = "TEXT")]
    pub lint_waiver: Option<String>,
    /// Private key that signs a statement of the result, which is written beside the archive (see
    /// `bundle key`).
    #[arg(long, value_name = "FILE")]
    pub sign_key: Option<PathBuf>,
    /// Where the region is, and who uploads.
    #[command(flatten)]
    pub region: RegionArgs,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image pipeline`.
#[derive(Debug, Clone, Args)]
pub struct ImagePipelineArgs {
    /// Recipe: the name of one that comes with gpuaas, or a file.
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
    /// Program that reaches it, and takes arguments as ssh(1) does.
    #[arg(long, value_name = "PROGRAM", default_value = "ssh")]
    pub ssh_program: PathBuf,
    /// Folder of layers that are kept between builds.
    #[arg(long, value_name = "DIR", default_value = IMAGE_CACHE)]
    pub cache: PathBuf,
    /// What is made and where it goes, instead of what the recipe says.
    #[command(flatten)]
    pub overrides: OverrideArgs,
    /// Where the region is, and who uploads.
    #[command(flatten)]
    pub region: RegionArgs,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image pack`.
#[derive(Debug, Clone, Args)]
pub struct ImagePackArgs {
    /// Root of the file system; nothing may be mounted in it, and nothing may change it.
    #[arg(value_name = "DIR")]
    pub tree: PathBuf,
    /// File to write; it appears when it is complete, and replaces one that is there.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// Threads that compress [default: as many as this machine has cores]; the bytes are the same
    /// for any number.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// How hard to compress, 0 to 12; another level gives other bytes.
    #[arg(long, value_name = "LEVEL", default_value_t = 6, value_parser = clap::value_parser!(i32).range(0..=12))]
    pub level: i32,
    /// Give what was changed later this time, in seconds since 1970, so that two builds are equal.
    #[arg(long, value_name = "SECONDS")]
    pub newest_mtime: Option<i64>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image lint`.
#[derive(Debug, Clone, Args)]
pub struct ImageLintArgs {
    /// The archive, as MAAS would get it.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// MAAS' file type of it.
    #[arg(long, value_name = "TYPE", default_value = "tgz", value_parser = file_type)]
    pub file_type: ImageFileType,
    /// MAAS' storage layout of the machines that get it.
    #[arg(long, value_name = "LAYOUT", default_value = "flat")]
    pub storage_layout: String,
    /// Debian's name of their architecture.
    #[arg(long, value_name = "ARCH", default_value = "amd64")]
    pub architecture: String,
    /// Size of their smallest boot disk, such as 80G; not judged without it.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub boot_disk: Option<u64>,
    /// Room for images on the site's rack controllers, such as 20G; not judged without it.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub rack_cache: Option<u64>,
    /// Host of an apt source that every deploy may ask, beside the distribution's own.
    #[arg(long = "allow-source", value_name = "HOST")]
    pub allowed_sources: Vec<String>,
    /// Kernel argument that a host has to boot with, beside those of the image's build record.
    #[arg(long = "kernel-argument", value_name = "ARGUMENT")]
    pub kernel_arguments: Vec<String>,
    /// Private key that signs a statement of the result, which is written beside the archive (see
    /// `bundle key`).
    #[arg(long, value_name = "FILE")]
    pub sign_key: Option<PathBuf>,
    /// Tell this site the verdict, so that the file may be approved there.
    #[arg(long, value_name = "SITE")]
    pub record: Option<String>,
    /// Who tells it.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where the control plane is.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas image boot-test`.
#[derive(Debug, Clone, Args)]
pub struct ImageBootTestArgs {
    /// The archive, as MAAS would get it.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Folder for what is unpacked and for the machine's disk, which are deleted [default: the folder for
    /// temporary files].
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Kernel argument that the machine has to boot with, beside those of the image's build record.
    #[arg(long = "kernel-argument", value_name = "ARGUMENT")]
    pub kernel_arguments: Vec<String>,
    /// Private key that signs a statement of the result, which is written beside the archive (see
    /// `bundle key`).
    #[arg(long, value_name = "FILE")]
    pub sign_key: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

fn file_type(text: &str) -> Result<ImageFileType, String> {
    let names = || DISK_TYPES.map(|one| one.name).join(", ");
    ImageFileType::find(text).ok_or_else(|| format!("write it as tgz, or one of {}", names()))
}

fn size(text: &str) -> Result<u64, String> {
    gpuaas_image::size::parse(text)
        .ok_or_else(|| "write it as 80G, 512M or a number of bytes".to_owned())
}

/// `gpuaas bench pack`.
#[cfg(feature = "bench")]
#[derive(Debug, Clone, Args)]
pub struct BenchPackArgs {
    /// Root of the tree to pack.
    #[arg(value_name = "DIR")]
    pub tree: PathBuf,
    /// Threads that compress, here and in pigz [default: as many as this machine has cores].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// How often each packs; the fastest counts.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Folder for what is packed, which is deleted [default: the folder for temporary files].
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
