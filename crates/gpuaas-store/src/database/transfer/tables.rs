//! Every table of a database, and whether it moves: the one list.
//!
//! In an order in which each row finds the rows that it refers to. A test compares it with the tables
//! of both databases, so a new table has to be added here before it can be forgotten; a transfer
//! compares it once more with what it finds.

/// The row of `store_meta` that says where a file's content was moved.
pub(super) const MOVED_TO: &str = "moved_to";

/// What a transfer does with a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Movement {
    /// Every row is copied.
    Moves,
    /// Every row is copied, in the place of the one that the migrations make.
    Replaces,
    /// Every row is copied but those of these names, which are of the file itself.
    MovesExcept(&'static [&'static str]),
    /// Nothing is copied: what it has is of the processes that have the database open.
    Stays,
}

use Movement::{Moves, MovesExcept, Replaces, Stays};

/// The tables.
pub(super) const TABLES: &[(&str, Movement)] = &[
    ("store_meta", MovesExcept(&["place", MOVED_TO])),
    ("secret", Moves),
    ("site", Moves),
    ("site_watch", Moves),
    ("profile", Moves),
    ("profile_revision", Moves),
    ("roce_assignment", Moves),
    ("node", Moves),
    ("node_mac", Moves),
    ("heartbeat", Moves),
    ("run", Moves),
    ("transition", Moves),
    ("run_moment", Moves),
    ("run_time", Moves),
    ("effect_attempt", Moves),
    ("timeline_event", Moves),
    ("observation", Moves),
    ("report", Moves),
    ("token", Moves),
    ("node_task", Moves),
    ("audit_entry", Moves),
    ("audit_chain", Moves),
    ("audit_head", Replaces),
    ("idempotency_record", Moves),
    ("request_replay", Moves),
    ("drift", Moves),
    ("batch", Moves),
    ("batch_member", Moves),
    ("bundle", Moves),
    ("bundle_approval", Moves),
    ("bundle_key", Moves),
    ("node_gate", Moves),
    ("task_key", Moves),
    ("certificate_authority", Moves),
    ("node_certificate", Moves),
    ("input_secret", Moves),
    ("agent_watch", Moves),
    ("region_control", Moves),
    ("access_token", Moves),
    ("host_value", Moves),
    ("node_tpm", Moves),
    ("slice_topology", Moves),
    ("slice_slot", Moves),
    ("slice_claim", Moves),
    ("slice_claim_device", Moves),
    ("slice_run", Moves),
    ("slice_proof", Moves),
    ("event_sink", Moves),
    ("dead_letter", Moves),
    ("approval", Moves),
    ("erasing_note", Moves),
    ("host_image", Moves),
    ("host_image_event", Moves),
    ("image_verdict", Moves),
    ("experiment", Moves),
    ("experiment_run", Moves),
    // After every table with sealed values: triggers refuse those of a former key, of which there are
    // some while a rotation is under way.
    ("former_master_key", Moves),
    // A row for each opened store.
    ("health_check", Stays),
    ("control_plane", Stays),
    // Rows of it are only locked.
    ("address_lock", Stays),
];

/// Those that move, in order.
pub(super) fn moving() -> impl Iterator<Item = (&'static str, Movement)> {
    TABLES.iter().copied().filter(|(_, movement)| *movement != Stays)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The texts of a folder of migrations, in order, as words without comments.
    fn words(folder: &str) -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(folder);
        let mut files: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let mut words = Vec::new();
        for file in files {
            let text = fs::read_to_string(file).unwrap();
            let code = text.lines().map(|line| line.split("--").next().unwrap_or_default());
            for line in code {
                words.extend(line.split_whitespace().map(str::to_owned));
            }
        }
        words
    }

    /// Tables that a folder of migrations makes, and which of them refers to which.
    fn schema(folder: &str) -> (BTreeSet<String>, Vec<(String, String)>) {
        let (mut tables, mut references, mut current) =
            (BTreeSet::new(), Vec::new(), String::new());
        for window in words(folder).windows(3) {
            match [window[0].as_str(), window[1].as_str()] {
                ["CREATE", "TABLE"] => {
                    current.clone_from(&window[2]);
                    tables.insert(current.clone());
                }
                ["ALTER", "TABLE"] => current.clone_from(&window[2]),
                ["DROP", "TABLE"] => drop(tables.remove(window[2].trim_end_matches(';'))),
                ["RENAME", "TO"] => panic!("this test knows no renamed table"),
                ["REFERENCES", table] => references.push((current.clone(), table.to_owned())),
                _ => {}
            }
        }
        (tables, references)
    }

    #[test]
    fn every_table_of_both_databases_is_in_the_list() {
        let listed: BTreeSet<String> = TABLES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(listed.len(), TABLES.len(), "a table is in the list twice");
        for folder in ["sqlite", "postgres"] {
            let (tables, _) = schema(folder);
            assert!(tables.len() > 40, "{folder}: only {tables:?} were found");
            let missing: Vec<_> = tables.difference(&listed).collect();
            assert!(missing.is_empty(), "{folder}: say whether {missing:?} move, in TABLES");
            let gone: Vec<_> = listed.difference(&tables).collect();
            assert!(gone.is_empty(), "{folder}: {gone:?} are no tables any more");
        }
    }

    #[test]
    fn a_table_comes_after_those_that_it_refers_to() {
        let position = |table: &str| TABLES.iter().position(|(name, _)| *name == table).unwrap();
        let (_, references) = schema("postgres");
        assert!(references.len() > 30, "{references:?}");
        for (from, to) in references {
            assert!(position(&to) < position(&from), "{from} refers to {to}");
        }
    }
}
