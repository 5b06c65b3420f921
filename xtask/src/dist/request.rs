//! The arguments of `cargo xtask dist`.

use std::path::PathBuf;

/// The arguments of the command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) profile: Option<String>,
    pub(super) only: Option<Form>,
    pub(super) out: Option<PathBuf>,
    pub(super) bin: Option<PathBuf>,
    pub(super) sign_key: Option<PathBuf>,
    pub(super) quick: bool,
}

/// Form of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Deb,
    Tar,
    Oci,
}

impl Form {
    /// End of its files' names.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Deb => ".deb",
            Self::Tar => ".tar.xz",
            Self::Oci => ".oci.tar",
        }
    }
}

const FORMS: [(&str, Form); 3] = [("deb", Form::Deb), ("tar", Form::Tar), ("oci", Form::Oci)];
/// Arguments that have a value.
const WITH_VALUE: [&str; 5] = ["--profile", "--only", "--out", "--bin", "--sign-key"];

impl Request {
    /// # Errors
    /// An argument is unknown, has no value, or contradicts another one.
    pub(super) fn parse(args: &[String]) -> Result<Self, String> {
        let mut request = Self::default();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            if arg == "--quick" {
                request.quick = true;
                continue;
            }
            if !WITH_VALUE.contains(&arg.as_str()) {
                return Err(format!("unknown argument `{arg}`; see cargo xtask dist --help"));
            }
            let value = rest.next().ok_or_else(|| format!("{arg} has no value"))?;
            match arg.as_str() {
                "--profile" => request.profile = Some(value.clone()),
                "--out" => request.out = Some(PathBuf::from(value)),
                "--bin" => request.bin = Some(PathBuf::from(value)),
                "--sign-key" => request.sign_key = Some(PathBuf::from(value)),
                _ => request.only = Some(form(value)?),
            }
        }
        if request.profile.is_some() && request.bin.is_some() {
            return Err("give --profile or --bin: --bin builds nothing".to_owned());
        }
        Ok(request)
    }

    pub(super) fn wants(&self, form: Form) -> bool {
        self.only.is_none_or(|only| only == form)
    }

    /// The command without folders and keys, which change no byte.
    pub(super) fn command(&self) -> String {
        let mut command = "cargo xtask dist".to_owned();
        if let Some(profile) = &self.profile {
            command += &format!(" --profile {profile}");
        }
        let only = FORMS.iter().find(|(_, form)| self.only == Some(*form));
        if let Some((name, _)) = only {
            command += &format!(" --only {name}");
        }
        if self.bin.is_some() {
            command += " --bin DIR";
        }
        if self.quick {
            command += " --quick";
        }
        command
    }
}

fn form(text: &str) -> Result<Form, String> {
    let form = FORMS.iter().find(|(name, _)| *name == text).map(|(_, form)| *form);
    form.ok_or_else(|| format!("invalid value `{text}` of --only: expected deb, tar or oci"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_are_checked_before_anything_is_built() {
        let line = "--only deb --bin target/lab --out x --quick --sign-key key";
        let request = Request::parse(&words(line)).unwrap();
        assert!(request.wants(Form::Deb) && !request.wants(Form::Oci) && request.quick);
        assert_eq!(request.sign_key, Some(PathBuf::from("key")));
        assert_eq!(request.command(), "cargo xtask dist --only deb --bin DIR --quick");
        let request = Request::parse(&[]).unwrap();
        assert!(FORMS.iter().all(|(_, form)| request.wants(*form)));
        for wrong in ["--only rpm", "--out", "--static", "--bin x --profile dev"] {
            Request::parse(&words(wrong)).unwrap_err();
        }
    }
}
