//! Findings about the source of a bundle.

/// What is wrong with a bundle's folder, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintFinding {
    /// File, relative to the bundle's folder.
    pub file: String,
    /// Line, from 1; `None`: the file as a whole.
    pub line: Option<u64>,
    /// What is wrong, in a sentence.
    pub text: String,
}

impl std::fmt::Display for LintFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.text),
            None => write!(f, "{}: {}", self.file, self.text),
        }
    }
}

impl LintFinding {
    /// A finding about a file as a whole.
    pub(crate) fn of_file(file: &str, text: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: None, text: text.into() }
    }
}
