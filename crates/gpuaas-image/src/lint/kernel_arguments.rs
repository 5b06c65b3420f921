//! Kernel arguments of an image: every file that a boot loader's configuration is made of.
//!
//! Of curtin's own code: `install_grub.py` replaces the value of `GRUB_CMDLINE_LINUX_DEFAULT` in
//! `/etc/default/grub` and moves `50-cloudimg-settings.cfg` out of the way, and leaves other files of
//! `/etc/default/grub.d` alone.

use super::shell_text::assignments;
use super::subject::LintSubject;

/// GRUB's defaults.
pub(super) const GRUB: &str = "etc/default/grub";
/// Moved away by curtin.
pub(super) const CLOUD_IMAGE: &str = "etc/default/grub.d/50-cloudimg-settings.cfg";

/// A variable of GRUB's defaults, or the arguments of another file.
pub(super) struct KernelSetting<'a> {
    /// Its file in the archive.
    pub(super) path: &'a str,
    /// GRUB's variable; empty for a file that has nothing but arguments.
    pub(super) name: String,
    /// What the file says by itself.
    pub(super) value: String,
}

impl KernelSetting<'_> {
    /// Whether the value is a list of kernel arguments.
    pub(super) fn has_arguments(&self) -> bool {
        self.name.is_empty() || self.name.starts_with("GRUB_CMDLINE_LINUX")
    }

    /// Whether curtin replaces it.
    pub(super) fn is_replaced(&self) -> bool {
        let rewritten = self.path == GRUB && self.name == "GRUB_CMDLINE_LINUX_DEFAULT";
        rewritten || self.path == CLOUD_IMAGE
    }

    /// Its arguments, without the quotes that the kernel takes off.
    pub(super) fn arguments(&self) -> impl Iterator<Item = String> {
        split_arguments(if self.has_arguments() { &self.value } else { "" }).into_iter()
    }
}

/// Splits as the kernel does: blanks within double quotes belong to a value, and the quotes go.
fn split_arguments(text: &str) -> Vec<String> {
    let (mut found, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            c if c.is_whitespace() && !is_quoted => found.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    found.push(word);
    found.retain(|word| !word.is_empty());
    found
}

/// Variables of GRUB's defaults, in the order in which they are read.
pub(super) fn grub_settings<'a>(image: &'a LintSubject<'_>) -> Vec<KernelSetting<'a>> {
    let below = image.leaves("etc/default/grub.d/").map(|(path, _)| path);
    let files = std::iter::once(GRUB).chain(below.filter(|path| path.ends_with(".cfg")));
    let settings = files.flat_map(|path| {
        let text = image.text(path).unwrap_or_default();
        let of_file = assignments(text).into_iter();
        of_file.map(move |one| KernelSetting { path, name: one.name, value: one.value })
    });
    settings.collect()
}

/// The same, with what other boot loaders and makers of initrds read.
pub(super) fn kernel_settings<'a>(image: &'a LintSubject<'_>) -> Vec<KernelSetting<'a>> {
    let mut found = grub_settings(image);
    let plain = |path: &'a str, value: String| KernelSetting { path, name: String::new(), value };
    let command_lines = image.leaves("etc/kernel/").map(|(path, _)| path);
    let is_command_line =
        |path: &&str| *path == "etc/kernel/cmdline" || path.starts_with("etc/kernel/cmdline.d/");
    for path in command_lines.filter(is_command_line) {
        found.push(plain(path, image.lines(path).collect::<Vec<_>>().join(" ")));
    }
    let entries = image.leaves("boot/loader/entries/").map(|(path, _)| path);
    for path in entries.filter(|path| path.ends_with(".conf")) {
        let options = image.lines(path).filter_map(|line| line.strip_prefix("options"));
        found.push(plain(path, options.collect::<Vec<_>>().join(" ")));
    }
    let below = image.leaves("etc/dracut.conf.d/").map(|(path, _)| path);
    let dracut = std::iter::once("etc/dracut.conf").chain(below);
    for path in dracut.filter(|path| path.ends_with(".conf")) {
        let set = assignments(image.text(path).unwrap_or_default()).into_iter();
        let set = set.filter(|one| one.name == "kernel_cmdline");
        found.push(plain(path, set.map(|one| one.value).collect::<Vec<_>>().join(" ")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_split_as_the_kernel_does() {
        assert_eq!(split_arguments(" a  b=\"c d\" \"e=f\" "), ["a", "b=c d", "e=f"]);
        assert_eq!(split_arguments(""), Vec::<String>::new());
    }
}
