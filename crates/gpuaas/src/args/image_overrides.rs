//! The overrides of `gpuaas image pipeline`: options from the table that the reference is written of.

use std::collections::BTreeMap;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use gpuaas_image::overrides::{OVERRIDES, OverrideKind, PREFIX};

/// Overrides as set by the caller, by name without the prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverrideArgs {
    /// Set on the command line.
    pub flags: BTreeMap<&'static str, String>,
    /// Set in the environment.
    pub environment: BTreeMap<&'static str, String>,
}

/// Environment variables with the prefix of overrides, including misspelled ones.
#[must_use]
pub fn override_names() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with(PREFIX)).collect()
}

impl FromArgMatches for OverrideArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for row in OVERRIDES {
            let Some(value) = matches.get_one::<String>(row.flag) else { continue };
            let set = match matches.value_source(row.flag) {
                Some(ValueSource::EnvVariable) => &mut self.environment,
                _ => &mut self.flags,
            };
            set.insert(row.name, value.clone());
        }
        Ok(())
    }
}

impl Args for OverrideArgs {
    fn augment_args(command: Command) -> Command {
        command.args(OVERRIDES.map(|row| {
            let arg = Arg::new(row.flag)
                .long(row.flag)
                .env(row.variable)
                .hide_env_values(true)
                .help(row.doc)
                .help_heading("Overrides");
            match row.kind {
                // `--dry-run` alone is `--dry-run=1`.
                OverrideKind::Switch => arg
                    .value_name("0|1")
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("1"),
                OverrideKind::Url | OverrideKind::KeyUrl => arg.value_name("URL"),
                OverrideKind::Size => arg.value_name("SIZE"),
                OverrideKind::Packages => arg.value_name("A,B"),
                OverrideKind::Words => arg.value_name("ARGUMENTS"),
                OverrideKind::Socket => arg.value_name("ADDRESS:PORT"),
                OverrideKind::Number => arg.value_name("N"),
                OverrideKind::Name => arg.value_name("NAME"),
                OverrideKind::FileType => arg.value_name("TYPE"),
                OverrideKind::BaseImage => arg.value_name("OS/SERIES"),
                OverrideKind::Folder => arg.value_name("DIR"),
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
