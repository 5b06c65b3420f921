//! What an output has to contain: a text, in which `*` stands for anything within a line.

/// Whether `output` contains `pattern`.
pub(crate) fn contains(output: &str, pattern: &str) -> bool {
    if !pattern.contains('*') {
        return output.contains(pattern);
    }
    // A text with stars may also stand there as it is.
    output.contains(pattern) || output.lines().any(|line| line_contains(line, pattern))
}

fn line_contains(line: &str, pattern: &str) -> bool {
    let mut rest = line;
    pattern.split('*').all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything_within_a_line() {
        let output = "error  curtin_hook\npath   /curtin\n";
        assert!(contains(output, "error*curtin") && contains(output, "/curtin"));
        assert!(!contains(output, "error*/curtin") && !contains(output, "hook*error"));
        assert!(contains("Include x/*.conf", "x/*.conf"));
    }
}
