//! What a profile may say of its machines' kernel.

use gpuaas_types::Problem;
use gpuaas_types::spec::{KERNEL_TAG_PREFIX, ProfileSpec};

use crate::http::problem::invalid;

const MAX_ARGUMENT_BYTES: usize = 1024;

/// Checks the tag and the kernel arguments of `spec`; `at` is the path of a field.
///
/// # Errors
/// `invalid_field`, with what is expected.
pub(crate) fn check(spec: &ProfileSpec, at: &impl Fn(&str) -> String) -> Result<(), Problem> {
    if spec.machine_tag.starts_with(KERNEL_TAG_PREFIX) {
        let message =
            format!("the prefix {KERNEL_TAG_PREFIX} is reserved for tags that GPUaaS creates");
        return Err(invalid(&at("machine_tag"), message)
            .with_hint("choose another tag; GPUaaS creates the tag for kernel_arguments"));
    }
    let arguments = &spec.kernel_arguments;
    let fits = |b: u8| b == b' ' || b.is_ascii_graphic() && !b"\"'`$\\;|&<>".contains(&b);
    if arguments.len() > MAX_ARGUMENT_BYTES || !arguments.bytes().all(fits) {
        let message = format!("expected at most {MAX_ARGUMENT_BYTES} bytes without quotes");
        return Err(invalid(&at("kernel_arguments"), message).with_hint(
            "write them as on the kernel's command line: hugepagesz=1G hugepages=64 nokaslr",
        ));
    }
    let mut words = arguments.split_ascii_whitespace();
    let pages = words.find(|word| word.starts_with("hugepages="));
    if let Some(pages) = pages.filter(|_| !arguments.contains("hugepagesz=")) {
        let message = format!("{pages} without hugepagesz= requests 2 MiB pages");
        return Err(invalid(&at("kernel_arguments"), message)
            .with_hint(format!("write the size before it: hugepagesz=1G {pages}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_a_size_and_our_own_tags_are_ours() {
        let refused = |machine_tag: &str, kernel_arguments: &str| {
            let (machine_tag, kernel_arguments) =
                (machine_tag.to_owned(), kernel_arguments.to_owned());
            let spec = ProfileSpec { machine_tag, kernel_arguments, ..ProfileSpec::default() };
            check(&spec, &str::to_owned).is_err()
        };
        assert!(refused("", "hugepages=64") && refused("", "nokaslr; reboot"));
        assert!(refused("gpuaas-kernel-0123", "") && !refused("gold", ""));
        assert!(!refused("", "hugepagesz=1G hugepages=64 nokaslr"));
        assert!(!refused("", "default_hugepagesz=1G hugepages=64"));
    }
}
