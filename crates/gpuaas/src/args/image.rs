//! Arguments of `gpuaas image`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::image_overrides::OverrideArgs;

/// `gpuaas image`. None of these asks a control plane.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Pack a root file system for MAAS; the same tree gives the same bytes everywhere.
    Pack(ImagePackArgs),
    /// Say what MAAS, curtin or the first boot would fail on, of a finished archive.
    Lint(ImageLintArgs),
    /// Show what becomes of a recipe: sources, packages, names and calls (with --dry-run).
    Pipeline(Box<ImagePipelineArgs>),
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
    /// What is made and where it goes, instead of what the recipe says.
    #[command(flatten)]
    pub overrides: OverrideArgs,
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
    #[arg(long, value_enum, default_value = "tgz")]
    pub file_type: FileTypeArgument,
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
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// MAAS' file type of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileTypeArgument {
    /// A root file system.
    Tgz,
    /// A whole disk.
    Ddgz,
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
