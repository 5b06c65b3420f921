//! Stable codes: one table for each kind of thing that has one.
//!
//! | table | what the codes name | where they are read |
//! |---|---|---|
//! | [`PROBLEMS`] | refusals of the HTTP API | `code` of a problem body |
//! | [`PARKS`] | reasons that a run stopped | `park.code` of a run |
//! | [`WAITS`] | what a run waits for | `wait.code` of a run |
//! | [`NODE_PROBLEMS`] | what is wrong with a node in service | `problems[].code` of a node |
//! | [`TIMELINE`] | lines of a node's history | `code` of a timeline event |
//! | [`SLOT_BLOCKERS`] | what keeps a slot from being used | `blockers[].code` of a slot map |
//! | [`DOCTOR_CHECKS`] | what `gpuaas doctor` looks at | `code` of a finding |
//! | [`COMMANDS`] | what stops a command before or after the API | the first word of an error text |
//!
//! The string of a code is what is on the wire and in the database, and never changes its meaning.
//! Resources hold the string, so that a newer control plane's code can be read by an older client;
//! whoever makes a resource takes the code from the enum. A row says who has to act and what to do
//! next; commands stand in backticks, and a test runs each of them through the command line's
//! parser. The pages in `docs/reference` are written from these tables.

#[macro_use]
mod table;
mod command;
mod cure;
mod doctor;
mod node_problem;
mod park;
mod problem;
mod slot_blocker;
mod timeline;
mod wait;

pub use command::{COMMANDS, CommandCode, CommandRow};
pub use cure::Cure;
pub use doctor::{DOCTOR_CHECKS, DoctorCheckCode, DoctorCheckRow};
pub use node_problem::{NODE_PROBLEMS, NodeProblemCode, NodeProblemRow, advised_commands};
pub use park::{PARKS, ParkCode, ParkRow};
pub use problem::{PROBLEMS, ProblemCode, ProblemRow};
pub use slot_blocker::{SLOT_BLOCKERS, SlotBlockerCode, SlotBlockerRow};
pub use timeline::{TIMELINE, TimelineCode, TimelineRow};
pub use wait::{WAITS, WaitCode, WaitRow};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Code, title, next action and documentation of each row.
    fn well_formed(rows: impl IntoIterator<Item = [&'static str; 4]>) {
        let mut codes = BTreeSet::new();
        for [code, title, next_action, doc] in rows {
            assert!(code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{code}");
            assert!(codes.insert(code), "{code} stands twice");
            for text in [title, next_action, doc] {
                assert!(!text.ends_with('.') && !text.contains('\n'), "{code}: {text}");
                assert_eq!(text.matches('`').count() % 2, 0, "{code}: {text}");
            }
            assert!(!title.is_empty() && !doc.is_empty(), "{code}");
        }
    }

    #[test]
    fn every_table_is_well_formed() {
        well_formed(
            PROBLEMS.iter().map(|row| [row.code.as_str(), row.title, row.next_action, row.doc]),
        );
        well_formed(
            PARKS.iter().map(|row| [row.code.as_str(), row.title, row.next_action, row.doc]),
        );
        well_formed(COMMANDS.iter().map(|row| [row.code.as_str(), row.title, "", row.doc]));
        well_formed(
            WAITS.iter().map(|row| [row.code.as_str(), row.title, row.next_action, row.doc]),
        );
        well_formed(
            NODE_PROBLEMS
                .iter()
                .map(|row| [row.code.as_str(), row.title, row.next_action, row.doc]),
        );
        well_formed(
            SLOT_BLOCKERS
                .iter()
                .map(|row| [row.code.as_str(), row.title, row.next_action, row.doc]),
        );
        well_formed(
            DOCTOR_CHECKS
                .iter()
                .map(|row| [row.code.as_str(), row.title, row.next_action, row.doc]),
        );
        well_formed(
            TIMELINE.iter().map(|row| [row.code.as_str(), row.title, row.next_action, row.doc]),
        );
    }

    #[test]
    fn a_code_finds_its_own_row() {
        assert!(PROBLEMS.iter().enumerate().all(|(at, row)| row.code as usize == at));
        assert!(PARKS.iter().enumerate().all(|(at, row)| row.code.row().title == PARKS[at].title));
        for code in ParkCode::ALL {
            assert_eq!(code.row().code, *code);
            assert_eq!(ParkCode::from_code(code.as_str()), Some(*code));
        }
        assert_eq!(WaitCode::from_code("no_such_wait"), None);
        assert_eq!(TimelineCode::Drained, "drained");
        assert_eq!(String::from(TimelineCode::Drained), "drained");
    }

    #[test]
    fn a_problem_has_an_error_status_and_says_what_to_do() {
        for row in PROBLEMS {
            assert!((400..=599).contains(&row.status), "{}", row.code);
            assert!(!row.next_action.is_empty(), "{} has no next action", row.code);
        }
    }

    /// What a park advises is exactly what its row says would work.
    #[test]
    fn the_advice_of_a_park_names_its_cures_and_no_others() {
        for row in PARKS {
            assert!(!row.cures.is_empty(), "{} has no cure", row.code);
            for cure in Cure::ALL {
                let named = cure.is_named_in(row.next_action);
                assert_eq!(named, row.cures.contains(cure), "{}: {cure:?}", row.code);
            }
        }
    }
}
