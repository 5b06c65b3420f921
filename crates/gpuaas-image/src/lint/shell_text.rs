//! Assignments of a file that a shell sources, read as the shell reads them.
//!
//! Quotes, line continuations, comments, `export` and variables of the same file count, so
//! `GRUB_CMDLINE_LINUX="$ARGS"` is not mistaken for a file without arguments. Variables that the file
//! does not set, and commands, stand for nothing: what another file sets is judged where it is set.
//! Both branches of a condition are read.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

/// A variable that a file sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Name of the variable.
    pub(crate) name: String,
    /// Its value, or what `+=` adds to it.
    pub(crate) value: String,
}

/// Words behind which a command may still set a variable.
const TRANSPARENT: [&str; 12] = [
    "export", "readonly", "declare", "typeset", "local", "then", "do", "else", "if", "elif", "{",
    "!",
];

/// The assignments of a shell file, in order.
pub(crate) fn assignments(text: &str) -> Vec<Assignment> {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let mut reader = Reader { rest: text.chars().peekable(), values: BTreeMap::new() };
    let mut found = Vec::new();
    let mut may_assign = true;
    while let Some(token) = reader.token() {
        let Token::Word(word) = token else {
            may_assign = true;
            continue;
        };
        match word.split_once('=').filter(|_| may_assign) {
            Some((name, value)) if is_variable(name.trim_end_matches('+')) => {
                let added = name.ends_with('+');
                let name = name.trim_end_matches('+').to_owned();
                let known = reader.values.entry(name.clone()).or_default();
                if !added {
                    known.clear();
                }
                known.push_str(value);
                found.push(Assignment { name, value: value.to_owned() });
            }
            _ => may_assign = may_assign && TRANSPARENT.contains(&word.as_str()),
        }
    }
    found
}

fn is_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(plain)
}

enum Token {
    Word(String),
    /// The end of a command.
    End,
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    values: BTreeMap<String, String>,
}

impl Reader<'_> {
    fn token(&mut self) -> Option<Token> {
        loop {
            match *self.rest.peek()? {
                ' ' | '\t' | '\r' => drop(self.rest.next()),
                '#' => while self.rest.next_if(|c| *c != '\n').is_some() {},
                '\n' | ';' | '&' | '|' | '(' | ')' => {
                    self.rest.next();
                    return Some(Token::End);
                }
                _ => return Some(Token::Word(self.word())),
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.rest.peek().copied() {
            match c {
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '(' | ')' => break,
                '\'' => {
                    self.rest.next();
                    while let Some(c) = self.rest.next().filter(|c| *c != '\'') {
                        word.push(c);
                    }
                }
                '"' => {
                    self.rest.next();
                    self.quoted(&mut word);
                }
                '\\' => {
                    self.rest.next();
                    // A line goes on.
                    word.extend(self.rest.next().filter(|c| *c != '\n'));
                }
                '$' | '`' => self.expand(&mut word),
                _ => word.extend(self.rest.next()),
            }
        }
        word
    }

    /// Up to the second of two double quotes.
    fn quoted(&mut self, word: &mut String) {
        while let Some(c) = self.rest.peek().copied() {
            match c {
                '"' => {
                    self.rest.next();
                    return;
                }
                '\\' => {
                    self.rest.next();
                    match self.rest.next() {
                        Some('\n') | None => {}
                        Some(c @ ('$' | '`' | '"' | '\\')) => word.push(c),
                        Some(c) => word.extend(['\\', c]),
                    }
                }
                '$' | '`' => self.expand(word),
                _ => word.extend(self.rest.next()),
            }
        }
    }

    /// What stands for a variable or a command.
    fn expand(&mut self, word: &mut String) {
        if self.rest.next() == Some('`') {
            while self.rest.next().is_some_and(|c| c != '`') {}
            return;
        }
        match self.rest.peek().copied() {
            Some('{') => {
                self.rest.next();
                let mut inside = String::new();
                while let Some(c) = self.rest.next().filter(|c| *c != '}') {
                    inside.push(c);
                }
                let end = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let (name, rest) = inside.split_at(end.unwrap_or(inside.len()));
                match self.values.get(name).filter(|value| !value.is_empty()) {
                    Some(value) => word.push_str(value),
                    // `${NAME:-other}` and `${NAME-other}`.
                    None => {
                        word.push_str(rest.trim_start_matches(':').strip_prefix('-').unwrap_or(""))
                    }
                }
            }
            Some('(') => {
                let mut depth = 0_u32;
                for c in self.rest.by_ref() {
                    depth = match c {
                        '(' => depth + 1,
                        ')' => depth.saturating_sub(1),
                        _ => depth,
                    };
                    if depth == 0 {
                        break;
                    }
                }
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let mut name = String::new();
                while let Some(c) = self.rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                word.push_str(self.values.get(&name).map_or("", String::as_str));
            }
            _ => word.push('$'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_as_a_shell_reads_them() {
        for (text, wanted) in [
            ("A=b", vec![("A", "b")]),
            ("# A=b\n  A=b # c\n", vec![("A", "b")]),
            ("export A='b c'", vec![("A", "b c")]),
            ("A=\"b \\\n c\"", vec![("A", "b  c")]),
            ("A=b; B=\"$A ${A}c\"\n", vec![("A", "b"), ("B", "b bc")]),
            ("A=\"$A root=x\"", vec![("A", " root=x")]),
            ("A+=\" b\"", vec![("A", " b")]),
            ("A=$(cat x; B=c)d", vec![("A", "d")]),
            ("if true; then\n\tA=b\nfi", vec![("A", "b")]),
            ("echo A=b", vec![]),
            ("\u{feff}A=b\r\nB=c\r\n", vec![("A", "b"), ("B", "c")]),
            ("A=${B:-x}", vec![("A", "x")]),
            ("A='$B'\"'\"c", vec![("A", "$B'c")]),
        ] {
            let found = assignments(text);
            let found: Vec<_> =
                found.iter().map(|one| (one.name.as_str(), one.value.as_str())).collect();
            assert_eq!(found, wanted, "{text:?}");
        }
    }
}
