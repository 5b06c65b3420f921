//! Tables for people.
//!
//! A table on a terminal keeps within its width: first it leaves out columns, in the order that the
//! table names, then it goes on with a long text on the next line, between words. A word is never
//! cut, because half of an identifier is of no use. Where nobody looks at a terminal (a pipe, a
//! file) each row is one line with every column.

use crate::terminal::Style;
use crate::wrap::{TEXT, width, wrapped};

const GAP: usize = 2;

/// A table without lines and with every column; long texts go on between words.
pub fn table(style: Style, header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    table_dropping(style, header, &[], rows)
}

/// A table without lines that leaves out the columns `drops`, the first of them first, until it fits
/// the terminal.
pub fn table_dropping(
    style: Style,
    header: &[&str],
    drops: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut lines: Vec<Vec<String>> = vec![header.iter().map(|name| (*name).to_owned()).collect()];
    lines.extend(rows.into_iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()));
    let columns = header.len();
    lines.iter_mut().for_each(|line| line.resize(columns, String::new()));
    if !style.bounded {
        let widths = widths(&lines);
        return draw(&lines, &widths);
    }
    for name in drops {
        let mut wanted = widths(&lines);
        if let Some(text) = wanted.last_mut() {
            *text = (*text).min(TEXT);
        }
        let at = lines[0].iter().position(|column| column == name);
        if let Some(at) = at.filter(|_| total(&wanted) > style.width) {
            lines.iter_mut().for_each(|line| drop(line.remove(at)));
        }
    }
    let widths = shrunk(&lines, style.width);
    draw(&lines, &widths)
}

/// The text without line ends and escapes: neither belongs into a row.
fn one_line(cell: &str) -> String {
    cell.trim_end()
        .chars()
        .map(|c| if gpuaas_types::text::is_invisible(c) { ' ' } else { c })
        .collect()
}

fn widths(lines: &[Vec<String>]) -> Vec<usize> {
    column_maxima(lines, width)
}

fn longest_word(text: &str) -> usize {
    text.split(' ').map(width).max().unwrap_or_default()
}

fn column_maxima(lines: &[Vec<String>], measure: fn(&str) -> usize) -> Vec<usize> {
    let columns = lines.first().map_or(0, Vec::len);
    (0..columns)
        .map(|column| lines.iter().map(|line| measure(&line[column])).max().unwrap_or_default())
        .collect()
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Widths that fit, as far as the longest words allow: the widest column gives first.
fn shrunk(lines: &[Vec<String>], limit: usize) -> Vec<usize> {
    let (mut widths, words) = (widths(lines), column_maxima(lines, longest_word));
    while total(&widths) > limit {
        let can_give = (0..widths.len()).filter(|column| widths[*column] > words[*column]);
        let Some(widest) = can_give.max_by_key(|column| widths[*column]) else { break };
        widths[widest] -= 1;
    }
    widths
}

fn draw(lines: &[Vec<String>], widths: &[usize]) -> String {
    let mut text = String::new();
    for line in lines {
        let cells: Vec<Vec<String>> =
            line.iter().zip(widths).map(|(cell, limit)| wrapped(cell, *limit)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or_default();
        for row in 0..height {
            let mut drawn = String::new();
            for (cell, limit) in cells.iter().zip(widths) {
                let part = cell.get(row).map_or("", String::as_str);
                drawn.push_str(part);
                drawn.push_str(&" ".repeat(limit.saturating_sub(width(part)) + GAP));
            }
            text.push_str(drawn.trim_end());
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [&str; 4] = ["NODE", "SITE", "STATE", "WAITING FOR"];

    fn rows() -> Vec<Vec<String>> {
        let cells = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        vec![
            cells(["j22u11", "amsterdam", "registered", "the machine to be commissioned by MAAS"]),
            cells(["j22u15", "amsterdam", "active", "-"]),
        ]
    }

    #[test]
    fn a_narrow_terminal_loses_columns_and_no_words() {
        let narrow = Style { width: 50, ascii: true, bounded: true, now: None };
        let text = table_dropping(narrow, &HEADER, &["SITE"], rows());
        insta::assert_snapshot!(text, @r"
        NODE    STATE       WAITING FOR
        j22u11  registered  the machine to be commissioned
                            by MAAS
        j22u15  active      -
        ");
        assert!(text.lines().all(|line| line.len() <= 50), "{text}");
    }

    #[test]
    fn a_wide_terminal_and_a_pipe_have_all_of_it() {
        let wide = Style { width: 120, ascii: true, bounded: true, now: None };
        let pipe = Style { width: 10, ascii: true, bounded: false, now: None };
        let text = table_dropping(wide, &HEADER, &["SITE"], rows());
        assert_eq!(text, table_dropping(pipe, &HEADER, &["SITE"], rows()));
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("amsterdam"), "{text}");
    }

    #[test]
    fn identifiers_are_whole_and_escapes_gone() {
        let id = "0192c0de-7000-7000-8000-000000000001".to_owned();
        let style = Style { width: 20, ascii: true, bounded: true, now: None };
        let text = table(style, &["RUN", "TEXT"], vec![vec![id.clone(), "\u{1b}[31mred".into()]]);
        assert!(text.contains(&id), "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
