//! Names and comments speak the field's language: words that may not come back, and docs that
//! say something.
//!
//! The tables below are the memory of what once had a private name. A reader who knows MAAS,
//! Linux, HTTP and Kubernetes should guess what a name stands for before opening the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Ident, Lit, Meta, Visibility};

use crate::metadata::Workspace;
use crate::ratchet::{self, Offence};
use crate::source_lints;

/// The rules of this module, as `xtask/ratchet.txt` names them.
const RULES: [&str; 4] = ["word", "doc", "meaning", "citation"];

/// Names of functions and modules that hide their verb or their object, or paint a picture.
const FUNCTIONS: &[(&str, &str)] = &[
    ("acts", "scenario_actions"),
    ("at_gate", "at_deploy_admission"),
    ("chance", "rng"),
    ("climb", "escalate"),
    ("crew", "executor"),
    ("dress", "init_from_status"),
    ("drop_it", "drop_database"),
    ("fly", "track_in_flight"),
    ("fuse", "failpoint"),
    ("gave_place_back", "deploy_slot_released"),
    ("give", "issue, with what is issued"),
    ("given", "the verb and its object"),
    ("given_up", "exhausted"),
    ("hold", "renew_lease_while, or the verb and its object"),
    ("house", "source_lints"),
    ("hub", "long_poll"),
    ("keep", "write_file, run_loop, or the verb and its object"),
    ("kept", "the noun of what is stored"),
    ("knock", "enroll_request"),
    ("knows_checks", "host_checks_loaded"),
    ("leave", "offboarding"),
    ("look", "find_or_refresh, read, check"),
    ("lookups", "queries"),
    ("loose", "lenient"),
    ("mend", "clear, repair"),
    ("moments", "failpoint"),
    ("obey", "apply_operator_command"),
    ("occasion", "fault_trigger"),
    ("of", "the verb and its object"),
    ("place", "the noun of the place"),
    ("player", "host_emulator"),
    ("racked", "machine_inventory"),
    ("rung", "escalation_step"),
    ("said", "the noun of what was reported"),
    ("saw", "sync_cursor, or the verb and its object"),
    ("say", "exec, print, or the verb and its object"),
    ("seen", "the predicate as a question"),
    ("side", "control_api"),
    ("stage", "lab_setup, or the noun of what is set up"),
    ("stock", "seed_built_in"),
    ("strike", "inject"),
    ("take_up", "process_run"),
    ("tally", "summary"),
    ("tell", "the verb and its object"),
    ("told", "the noun of what was reported"),
    ("torment", "kill_loop"),
    ("trap", "breakpoint"),
    ("word", "enum_str"),
    ("world", "simulation"),
];

/// Names of types that say nothing outside of their module, or paint a picture.
const TYPES: &[(&str, &str)] = &[
    ("Air", "InFlight"),
    ("Asked", "the noun of the request"),
    ("BeginMember", "MemberStart"),
    ("Bell", "Waker"),
    ("By", "Actor"),
    ("Came", "the noun of what came"),
    ("Enroll", "NewEnrollment"),
    ("Faces", "Routers"),
    ("Flight", "InFlightGuard"),
    ("Given", "IssuedCredential"),
    ("Heard", "the noun of what was heard"),
    ("How", "ReleaseOptions, or the noun of the options"),
    ("Journal", "RunSession, TaskJournal"),
    ("Left", "the noun of what is left"),
    ("Line", "the noun of the transport"),
    ("Lit", "Armed"),
    ("Lite", "SqliteConnection"),
    ("Lives", "the noun of what is counted"),
    ("Lost", "the noun of what was lost"),
    ("Memory", "RunState"),
    ("Moment", "Failpoint"),
    ("Newborn", "FirstBoot"),
    ("Newcomer", "EnrollmentAuth"),
    ("NodeFace", "NodeListener"),
    ("Onboard", "NewOnboarding"),
    ("Pace", "StepDurationEstimate"),
    ("Paces", "StepDurationEstimates"),
    ("Place", "the noun of the place"),
    ("Played", "the noun of the emulated host"),
    ("Racked", "MachineInventory"),
    ("Refusals", "RejectionAudit"),
    ("Said", "the noun of what was reported"),
    ("Seat", "PollPermit"),
    ("Setting", "RunContext, AgentEnv"),
    ("Shelf", "Index"),
    ("StartRun", "NewRunOfNode"),
    ("Stranger", "UnknownClient"),
    ("Surroundings", "Environment"),
    ("TaskHub", "TaskSignals"),
    ("TokenFault", "TokenRejection"),
    ("Voice", "CommandRunner"),
    ("Wanted", "the noun of what is wanted"),
    ("Watched", "WatchedMachine"),
    ("Which", "PciFilter, or the noun of the choice"),
    ("Whose", "InputScope"),
    ("Within", "InProcessTransport"),
    ("Workplace", "AgentEnv"),
    ("World", "Simulation"),
];

/// Names of public types that more than one crate may have, because the language's own custom
/// gives every library one.
const SHARED_TYPES: [&str; 3] = ["Error", "Result", "Config"];

/// Pages that comments cite, by heading.
const PAGES: [&str; 2] = ["docs/maas.md", "docs/hosts.md"];

/// Checks every Rust file that git knows or would add.
///
/// # Errors
/// A sentence, where git, a page or the exceptions cannot be read.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>, String> {
    let mut offences = Vec::new();
    let mut public: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let headings = headings(workspace);
    for path in source_lints::files(&workspace.root)? {
        let Ok(text) = fs::read_to_string(workspace.root.join(&path)) else { continue };
        offences.extend(judge_citations(&path, &text, &headings));
        if !path.ends_with(".rs") {
            continue;
        }
        let parsed = syn::parse_file(&text).map_err(|error| format!("{path}: {error}"))?;
        let mut names = Names::default();
        names.visit_file(&parsed);
        offences.extend(names.offences(&path));
        if let Some((krate, _)) = path.split_once("/src/") {
            for name in names.public_types {
                public.entry(name).or_default().insert(krate.to_owned());
            }
        }
    }
    offences.extend(two_meanings(&public));
    Ok(ratchet::load(&workspace.root)?.compare(&offences, &RULES))
}

/// What one file defines, as far as the rules ask.
#[derive(Default)]
struct Names {
    /// Each banned name with the field's word.
    banned: Vec<(String, &'static str)>,
    one_word_docs: Vec<String>,
    public_types: BTreeSet<String>,
}

impl Names {
    fn offences(&self, path: &str) -> Vec<Offence> {
        let mut offences = Vec::new();
        if !self.banned.is_empty() {
            let advice: Vec<String> =
                self.banned.iter().map(|(name, use_)| format!("`{name}` is {use_}")).collect();
            let (count, advice) = (self.banned.len(), advice.join("; "));
            offences.push(Offence { rule: "word", path: path.to_owned(), count, advice });
        }
        if !self.one_word_docs.is_empty() {
            let count = self.one_word_docs.len();
            let quoted = self.one_word_docs.join(" ");
            let advice = format!("name the noun, the unit or the source: {quoted}");
            offences.push(Offence { rule: "doc", path: path.to_owned(), count, advice });
        }
        offences
    }

    fn name(&mut self, table: &'static [(&'static str, &'static str)], ident: &Ident) {
        let name = ident.to_string();
        if let Some((_, use_)) = table.iter().find(|(banned, _)| *banned == name) {
            self.banned.push((name, use_));
        }
    }

    fn public_type(&mut self, visibility: &Visibility, ident: &Ident) {
        self.name(TYPES, ident);
        if matches!(visibility, Visibility::Public(_)) {
            self.public_types.insert(ident.to_string());
        }
    }

    fn function(&mut self, ident: &Ident) {
        self.name(FUNCTIONS, ident);
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.name(FUNCTIONS, &item.ident);
        visit::visit_item_mod(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.public_type(&item.vis, &item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.public_type(&item.vis, &item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.public_type(&item.vis, &item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.public_type(&item.vis, &item.ident);
        visit::visit_item_type(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig.ident);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig.ident);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(&item.sig.ident);
        visit::visit_trait_item_fn(self, item);
    }

    // Attributes of one item come together, doc lines among them.
    fn visit_field(&mut self, item: &'ast syn::Field) {
        self.docs(&item.attrs);
        visit::visit_field(self, item);
    }

    fn visit_variant(&mut self, item: &'ast syn::Variant) {
        self.docs(&item.attrs);
        visit::visit_variant(self, item);
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::Item::{Const, Enum, Fn, Mod, Static, Struct, Trait, Type};
        match item {
            Const(syn::ItemConst { attrs, .. })
            | Enum(syn::ItemEnum { attrs, .. })
            | Fn(syn::ItemFn { attrs, .. })
            | Mod(syn::ItemMod { attrs, .. })
            | Static(syn::ItemStatic { attrs, .. })
            | Struct(syn::ItemStruct { attrs, .. })
            | Trait(syn::ItemTrait { attrs, .. })
            | Type(syn::ItemType { attrs, .. }) => self.docs(attrs),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if let syn::ImplItem::Fn(item) = item {
            self.docs(&item.attrs);
        }
        visit::visit_impl_item(self, item);
    }
}

impl Names {
    fn docs(&mut self, attributes: &[Attribute]) {
        // On an argument's field the doc is its help text, which may be a noun alone.
        if attributes.iter().any(|a| a.path().is_ident("arg") || a.path().is_ident("command")) {
            return;
        }
        let lines: Vec<String> = attributes.iter().filter_map(doc_line).collect();
        let text = lines.join(" ");
        if text.split_whitespace().count() == 1 {
            self.one_word_docs.push(format!("\"{}\"", text.trim()));
        }
    }
}

fn doc_line(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

fn two_meanings(public: &BTreeMap<String, BTreeSet<String>>) -> Vec<Offence> {
    let shared = public
        .iter()
        .filter(|(name, crates)| crates.len() > 1 && !SHARED_TYPES.contains(&name.as_str()));
    shared
        .map(|(name, crates)| Offence {
            rule: "meaning",
            path: name.clone(),
            count: crates.len(),
            advice: format!(
                "a public type in {}; one name has one meaning",
                crates.iter().cloned().collect::<Vec<_>>().join(" and ")
            ),
        })
        .collect()
}

/// The anchors of each cited page, as forges make them of headings.
fn headings(workspace: &Workspace) -> BTreeMap<&'static str, BTreeSet<String>> {
    let anchors = |page: &'static str| {
        let text = fs::read_to_string(workspace.root.join(page)).unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with('#'));
        (page, lines.map(|line| anchor(line.trim_start_matches('#'))).collect())
    };
    PAGES.into_iter().map(anchors).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

fn judge_citations(
    path: &str,
    text: &str,
    headings: &BTreeMap<&'static str, BTreeSet<String>>,
) -> Vec<Offence> {
    let mut wrong = Vec::new();
    // These are not in the repository; the patterns are put together so as not to find themselves.
    for (mark, digit) in [(concat!("contract sec", "tion "), true), (concat!("se", "ed "), true)] {
        for (at, _) in text.match_indices(mark) {
            let before = text[..at].chars().next_back();
            let after = text[at + mark.len()..].chars().next();
            let word = before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
            let number = after.is_some_and(|c| c.is_ascii_digit());
            if number == digit && !word && path.ends_with(".rs") && in_comment(text, at) {
                wrong.push(format!("`{mark}N` is not in the repository"));
            }
        }
    }
    for (page, known) in headings {
        for (at, _) in text.match_indices(&format!("{page}#")) {
            let cited: String = text[at + page.len() + 1..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '-' || *c == '_')
                .collect();
            if !known.contains(&cited) {
                wrong.push(format!("{page} has no heading #{cited}"));
            }
        }
    }
    if wrong.is_empty() {
        return Vec::new();
    }
    let count = wrong.len();
    wrong.dedup();
    vec![Offence { rule: "citation", path: path.to_owned(), count, advice: wrong.join("; ") }]
}

fn in_comment(text: &str, at: usize) -> bool {
    let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    text[line_start..at].contains("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(text: &str) -> Names {
        let mut names = Names::default();
        names.visit_file(&syn::parse_file(text).unwrap());
        names
    }

    #[test]
    fn private_words_are_named_with_the_word_to_use() {
        let names = judge("struct Newcomer; impl X { fn take_up(&self) {} } mod leave {}");
        let advice = &names.offences("a.rs")[0];
        assert_eq!((advice.rule, advice.count), ("word", 3));
        assert!(advice.advice.contains("`Newcomer` is EnrollmentAuth"), "{}", advice.advice);
        assert!(judge("struct EnrollmentAuth; fn process_run() {}").banned.is_empty());
    }

    #[test]
    fn a_doc_comment_of_one_word_says_nothing() {
        let names = judge("struct A {\n/// When.\nat: u8,\n/// Seconds since the epoch.\nb: u8 }");
        assert_eq!(names.one_word_docs, ["\"When.\""]);
        let help = judge("struct A {\n/// Region\n#[arg(long)]\nregion: u8 }");
        assert!(help.one_word_docs.is_empty());
    }

    #[test]
    fn one_public_name_has_one_meaning() {
        let of = |crates: &[&str]| crates.iter().map(|name| (*name).to_owned()).collect();
        let public = BTreeMap::from([
            ("Fault".to_owned(), of(&["crates/a", "crates/b"])),
            ("Error".to_owned(), of(&["crates/a", "crates/b"])),
            ("Node".to_owned(), of(&["crates/a"])),
        ]);
        let offences = two_meanings(&public);
        assert_eq!(offences.len(), 1);
        assert_eq!(offences[0].path, "Fault");
    }

    #[test]
    fn citations_lead_somewhere() {
        let headings = BTreeMap::from([(PAGES[0], BTreeSet::from([anchor(" Power, and BMCs")]))]);
        let judge = |text: &str| judge_citations("a.rs", text, &headings);
        assert!(judge(&format!("// {}#power-and-bmcs", PAGES[0])).is_empty());
        let wrong = judge(&format!("// {}#power", PAGES[0]));
        assert!(wrong[0].advice.contains("no heading #power"), "{wrong:?}");
        let old = judge(concat!("// see contract sec", "tion 7\n// as se", "ed 2 says"));
        assert_eq!(old[0].count, 2);
        assert!(judge(concat!("let x = \"se", "ed 1\";")).is_empty());
    }
}
