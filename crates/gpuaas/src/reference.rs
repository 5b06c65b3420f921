//! `gpuaas explain` of a field, a code or a step: the row of the reference that names it.
//!
//! The pages in `docs/reference` are written from the tables of the code and checked against them,
//! so what is printed here is what holds. No control plane is asked.

use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::api::List;
use serde::Serialize;

use crate::args::Format;

/// What a page's rows are, and the page.
const PAGES: [(&str, &str); 12] = [
    ("profile field", include_str!("../../../docs/reference/profile-fields.md")),
    ("step", include_str!("../../../docs/reference/steps.md")),
    ("wait or park", include_str!("../../../docs/reference/waits-and-parks.md")),
    ("request problem", include_str!("../../../docs/reference/problems.md")),
    ("node problem", include_str!("../../../docs/reference/node-problems.md")),
    ("slot blocker", include_str!("../../../docs/reference/slot-blockers.md")),
    ("doctor check", include_str!("../../../docs/reference/doctor.md")),
    ("timeline entry", include_str!("../../../docs/reference/timeline.md")),
    ("audit action", include_str!("../../../docs/reference/audit-actions.md")),
    ("image fault", include_str!("../../../docs/reference/image-lint.md")),
    ("image override", include_str!("../../../docs/reference/image-overrides.md")),
    ("command failure", include_str!("../../../docs/reference/command-failures.md")),
];

/// One row of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ReferenceRow {
    /// The field, the code or the step.
    name: String,
    /// What the row is about, such as `step`.
    kind: &'static str,
    /// The row's cells with the names of their columns, in order.
    cells: Vec<(String, String)>,
}

/// Rows that name `text`, over all pages.
#[must_use]
pub(crate) fn find(text: &str) -> Vec<ReferenceRow> {
    PAGES.iter().flat_map(|(kind, page)| rows(kind, page)).filter(|row| row.name == text).collect()
}

/// Prints rows.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn print(
    rows: Vec<ReferenceRow>,
    format: Format,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    output::print(terminal, format, &List::whole(rows), draw)
}

/// Prints every field of profiles.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn print_profile_fields(format: Format, terminal: &mut Terminal) -> Result<(), Failure> {
    let [(kind, page), ..] = PAGES;
    let fields = List::whole(rows(kind, page));
    output::print(terminal, format, &fields, |fields, style| {
        let cell = |row: &ReferenceRow, at: usize| {
            row.cells.get(at).map(|(_, value)| value.replace('`', "")).unwrap_or_default()
        };
        let rows = fields
            .items
            .iter()
            .map(|row| vec![row.name.clone(), cell(row, 0), cell(row, 1), cell(row, 2)]);
        output::table_dropping(style, &["FIELD", "TYPE", "DEFAULT", "MEANING"], &["TYPE"], rows)
    })
}

fn draw(rows: &List<ReferenceRow>, _: Style) -> String {
    let drawn = rows.items.iter().map(|row| {
        let mut fields = vec![(row.kind, row.name.clone())];
        let cells = row.cells.iter().filter(|(_, value)| !value.is_empty());
        fields.extend(cells.map(|(name, value)| (name.as_str(), value.clone())));
        output::fields(&fields)
    });
    drawn.collect::<Vec<_>>().join("\n")
}

/// The rows of a page's tables.
fn rows(kind: &'static str, page: &str) -> Vec<ReferenceRow> {
    let mut columns: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for line in page.lines() {
        let Some(inner) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            columns.clear();
            continue;
        };
        let inner = inner.replace("\\|", "\u{1}");
        let cells: Vec<String> =
            inner.split('|').map(|cell| cell.replace('\u{1}', "|").trim().to_owned()).collect();
        if columns.is_empty() {
            columns = cells;
        } else if let Some(name) =
            cells[0].strip_prefix('`').and_then(|name| name.strip_suffix('`'))
        {
            let others = columns.iter().zip(&cells).skip(1);
            rows.push(ReferenceRow {
                name: name.to_owned(),
                kind,
                cells: others.map(|(column, cell)| (column.clone(), cell.clone())).collect(),
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_types::audit_action::AUDIT_ACTIONS;
    use gpuaas_types::codes::{
        COMMANDS, DOCTOR_CHECKS, NODE_PROBLEMS, PARKS, PROBLEMS, SLOT_BLOCKERS, TIMELINE, WAITS,
    };
    use gpuaas_types::spec::ProfileSpec;
    use gpuaas_types::steps::ROWS;

    #[test]
    fn every_code_field_and_step_is_explained() {
        let mut names: Vec<String> = Vec::new();
        names.extend(PROBLEMS.iter().map(|row| row.code.to_string()));
        names.extend(PARKS.iter().map(|row| row.code.to_string()));
        names.extend(WAITS.iter().map(|row| row.code.to_string()));
        names.extend(NODE_PROBLEMS.iter().map(|row| row.code.to_string()));
        names.extend(SLOT_BLOCKERS.iter().map(|row| row.code.to_string()));
        names.extend(DOCTOR_CHECKS.iter().map(|row| row.code.to_string()));
        names.extend(TIMELINE.iter().map(|row| row.code.to_string()));
        names.extend(COMMANDS.iter().map(|row| row.code.to_string()));
        names.extend(ROWS.iter().map(|row| row.step.to_string()));
        names.extend(AUDIT_ACTIONS.iter().map(|row| row.action.to_string()));
        let spec = serde_json::to_value(ProfileSpec::default()).unwrap();
        names.extend(spec.as_object().unwrap().keys().cloned());
        let unexplained: Vec<&String> =
            names.iter().filter(|name| find(name).iter().all(|row| row.cells.len() < 2)).collect();
        assert!(unexplained.is_empty(), "{unexplained:?}");
        assert!(find("j22u11").is_empty());
    }

    #[test]
    fn a_park_as_it_is_printed() {
        let rows = find("two_candidates");
        let text = draw(&List::whole(rows), Style::default());
        assert!(text.starts_with("wait or park:     two_candidates\n"), "{text}");
        assert!(text.contains("next action:"), "{text}");
    }
}
