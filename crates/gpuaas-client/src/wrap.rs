//! Long lines, broken between words.

/// Columns that a text wants at least before something else gives way.
pub(crate) const TEXT: usize = 30;

/// Columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    console::measure_text_width(text)
}

/// The text with its long lines going on below, between words, as far in as they began; a line that
/// begins with a name goes on below its value. Commands stay whole, so that they can be copied.
pub(crate) fn wrap_lines(text: &str, limit: usize) -> String {
    let mut wrapped_text = String::new();
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end_matches('\n');
        let begin = bare.trim_start();
        if width(bare) <= limit || is_command(begin) {
            wrapped_text.push_str(line);
            continue;
        }
        let (head, rest) = split_head(bare);
        let indent = width(head);
        for (index, part) in
            wrapped(rest, limit.saturating_sub(indent).max(TEXT)).iter().enumerate()
        {
            let margin = if index == 0 { head.to_owned() } else { " ".repeat(indent) };
            wrapped_text.push_str(&format!("{margin}{part}\n"));
        }
        if !line.ends_with('\n') {
            wrapped_text.pop();
        }
    }
    wrapped_text
}

/// A line that a shell takes: of this program, by its name or its path, or one that exports.
fn is_command(line: &str) -> bool {
    let program = match line.strip_prefix('\'') {
        Some(quoted) => quoted.split_once("' ").map(|(path, _)| path),
        None => line.split_once(' ').map(|(first, _)| first),
    };
    program.is_some_and(|word| matches!(word, "gpuaas" | "export") || word.ends_with("/gpuaas"))
}

/// Help with its long lines going on below, between words; what an option means below its meaning.
pub(crate) fn wrap_help(text: &str, limit: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let margin = line.len() - line.trim_start().len();
        // Two blanks or more part an option from what it means.
        let meaning = line[margin..].find("  ").map(|at| {
            let rest = line[margin + at..].trim_start();
            line.len() - rest.len()
        });
        let (head, rest) = line.split_at(meaning.filter(|_| margin > 0).unwrap_or(margin));
        let below = if width(head) + TEXT > limit { margin + 4 } else { width(head) };
        let mut parts = wrapped(rest, limit.saturating_sub(width(head)).max(TEXT));
        if width(line) > limit && width(head) + TEXT > limit && !head.trim().is_empty() {
            out.push_str(head.trim_end());
            out.push('\n');
            parts = wrapped(rest, limit.saturating_sub(below));
            parts.iter().for_each(|part| out.push_str(&format!("{}{part}\n", " ".repeat(below))));
            continue;
        }
        for (index, part) in parts.iter().enumerate() {
            let begin = if index == 0 { head.to_owned() } else { " ".repeat(below) };
            out.push_str(format!("{begin}{part}").trim_end());
            out.push('\n');
        }
    }
    out
}

/// A line's margin, with the name and the mark that it begins with, and the rest.
fn split_head(line: &str) -> (&str, &str) {
    let margin = line.len() - line.trim_start().len();
    let after = &line[margin..];
    if let Some(rest) = after.strip_prefix("- ") {
        return line.split_at(line.len() - rest.len());
    }
    let named = after.find(":  ").filter(|at| *at < TEXT && margin == 0);
    let Some(at) = named else { return line.split_at(margin) };
    let value = after[at + 1..].trim_start();
    line.split_at(line.len() - value.len())
}

/// The text in lines of `limit` columns, broken between words.
pub(crate) fn wrapped(text: &str, limit: usize) -> Vec<String> {
    if width(text) <= limit {
        return vec![text.to_owned()];
    }
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= limit => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_go_on_below_their_value_and_commands_stay_whole() {
        let text = "next action:      mend the power of the machine in MAAS, then resume it\n  \
                    gpuaas run resume 0192c0de-7000-7000-8000-000000000001 --reason WHY\n  - one \
                    two three four five six seven eight nine\n  export GPUAAS_SERVER=http://127.0.0.1:8080\n  \
                    '/a b/gpuaas' node list --state active\nshort";
        insta::assert_snapshot!(wrap_lines(text, 40), @r"
        next action:      mend the power of the machine
                          in MAAS, then resume it
          gpuaas run resume 0192c0de-7000-7000-8000-000000000001 --reason WHY
          - one two three four five six seven
            eight nine
          export GPUAAS_SERVER=http://127.0.0.1:8080
          '/a b/gpuaas' node list --state active
        short
        ");
    }

    #[test]
    fn help_goes_on_below_what_an_option_means() {
        let text = "Options:\n      --log <FILTER>  What to log on stderr, such as `info` or more\n      \
                    --a-very-long-option <VALUE>  What it does to those who give it\n";
        insta::assert_snapshot!(wrap_help(text, 54), @r"
        Options:
              --log <FILTER>  What to log on stderr, such as
                              `info` or more
              --a-very-long-option <VALUE>
                  What it does to those who give it
        ");
    }
}
