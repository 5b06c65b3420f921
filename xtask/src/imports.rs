//! Which file of a crate takes names from which other file of it.
//!
//! The compiler allows files of a crate to import each other in circles, and then none of them can
//! be read alone. This module reads the sources with `syn`, follows every path to the file that
//! defines the name, and hands out the edges; [`crate::circles`] judges them.
//!
//! An edge is a name: `use` lines, paths in code, and paths in the tokens of macros all count, and
//! a re-export is followed to the file that defines what it exports. A bare `mod name;` is no edge.
//! Code below `#[cfg(test)]` is left out: tests may look anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Meta, UseTree};

/// The files of one crate target (a library or an executable) and the names between them.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    modules: Vec<Module>,
    /// Files by their path below the crate's folder.
    pub(crate) files: Vec<String>,
    /// Index of the file that takes a name to the indices of the files that define it.
    pub(crate) edges: BTreeMap<usize, BTreeSet<usize>>,
}

/// One module, inline ones included; the first is the crate's root.
#[derive(Debug, Default)]
struct Module {
    parent: Option<usize>,
    file: usize,
    children: BTreeMap<String, usize>,
    defined: BTreeSet<String>,
    /// What `use` brings into scope: the name here, and the path it stands for.
    aliases: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    paths: BTreeSet<Vec<String>>,
}

impl Sources {
    /// Reads a crate target from its root file on; `folder` is the crate's own.
    ///
    /// # Errors
    /// A sentence that names the file which cannot be read or parsed.
    pub(crate) fn read(folder: &Path, root: &Path) -> Result<Self, String> {
        let mut sources = Self::default();
        let beside = root.parent().unwrap_or(folder).to_path_buf();
        sources.add_file(folder, root, &beside, None)?;
        sources.link();
        Ok(sources)
    }

    /// Folders of files that belong together: each module's children, with the files of each
    /// child's whole subtree. A circle between two of one group is a circle between modules.
    pub(crate) fn siblings(&self) -> Vec<BTreeMap<String, BTreeSet<usize>>> {
        let mut groups = Vec::new();
        for module in &self.modules {
            let subtree = |child: &usize| {
                let mut files = BTreeSet::new();
                self.collect_files(*child, &mut files);
                files.remove(&module.file);
                files
            };
            let children = module.children.iter();
            let group: BTreeMap<_, _> = children
                .map(|(name, child)| (name.clone(), subtree(child)))
                .filter(|(_, files)| !files.is_empty())
                .collect();
            if group.len() > 1 {
                groups.push(group);
            }
        }
        groups
    }

    fn collect_files(&self, module: usize, files: &mut BTreeSet<usize>) {
        files.insert(self.modules[module].file);
        for child in self.modules[module].children.values() {
            self.collect_files(*child, files);
        }
    }

    fn add_file(
        &mut self,
        folder: &Path,
        path: &Path,
        below: &Path,
        parent: Option<usize>,
    ) -> Result<usize, String> {
        let text = fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let parsed = syn::parse_file(&text)
            .map_err(|error| format!("cannot parse {}: {error}", path.display()))?;
        self.files.push(path.strip_prefix(folder).unwrap_or(path).display().to_string());
        let file = self.files.len() - 1;
        self.add_module(folder, below, Module { parent, file, ..Module::default() }, &parsed.items)
    }

    fn add_module(
        &mut self,
        folder: &Path,
        below: &Path,
        module: Module,
        items: &[Item],
    ) -> Result<usize, String> {
        let file = module.file;
        self.modules.push(module);
        let this = self.modules.len() - 1;
        for item in items {
            match item {
                Item::Mod(inner) if !only_for_tests(&inner.attrs) => {
                    let name = inner.ident.to_string();
                    let child = self.add_child(folder, below, this, file, inner)?;
                    self.modules[this].children.insert(name, child);
                }
                Item::Mod(_) => {}
                other => self.modules[this].take(other),
            }
        }
        Ok(this)
    }

    fn add_child(
        &mut self,
        folder: &Path,
        below: &Path,
        parent: usize,
        file: usize,
        item: &ItemMod,
    ) -> Result<usize, String> {
        let name = item.ident.to_string();
        let inside = below.join(&name);
        if let Some((_, items)) = &item.content {
            let module = Module { parent: Some(parent), file, ..Module::default() };
            return self.add_module(folder, &inside, module, items);
        }
        let named = path_attribute(&item.attrs).map(|given| below.join(given));
        let flat = below.join(format!("{name}.rs"));
        let nested = inside.join("mod.rs");
        let path: PathBuf = match named {
            Some(path) => path,
            None if flat.exists() => flat,
            None => nested,
        };
        self.add_file(folder, &path, &inside, Some(parent))
    }

    fn link(&mut self) {
        let mut edges: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (index, module) in self.modules.iter().enumerate() {
            let taken = module.paths.iter().chain(module.aliases.values());
            for path in taken {
                let Some(found) = self.resolve(index, path, 0) else { continue };
                if found != module.file {
                    edges.entry(module.file).or_default().insert(found);
                }
            }
            for glob in &module.globs {
                let target = self.module_of(index, glob);
                for name in target.into_iter().flat_map(|found| &self.modules[found].defined) {
                    if self.modules[index].mentions(name)
                        && let Some(found) = target
                        && self.modules[found].file != module.file
                    {
                        edges.entry(module.file).or_default().insert(self.modules[found].file);
                    }
                }
            }
        }
        self.edges = edges;
    }

    /// The file that defines what `path` names, seen from `module`; none for other crates, and
    /// for a path that ends at a module: whoever takes a name through that makes the edge.
    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Option<usize> {
        // Aliases of aliases end well before this; a circle among them is no program.
        if depth > 16 {
            return None;
        }
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.resolve_in(0, rest, depth),
            "self" => self.resolve_in(module, rest, depth),
            "super" => self.resolve_in(self.modules[module].parent?, rest, depth),
            _ => self.resolve_in(module, path, depth),
        }
    }

    fn resolve_in(&self, module: usize, path: &[String], depth: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let here = &self.modules[module];
        if first == "super" {
            return self.resolve_in(here.parent?, rest, depth);
        }
        if let Some(child) = here.children.get(first) {
            return self.resolve_in(*child, rest, depth);
        }
        if here.defined.contains(first) {
            return Some(here.file);
        }
        if let Some(alias) = here.aliases.get(first) {
            // `use first::first` of another crate would lead back to itself.
            if alias.first() == Some(first) && !here.children.contains_key(first) {
                return None;
            }
            let whole: Vec<String> = alias.iter().chain(rest).cloned().collect();
            return self.resolve(module, &whole, depth + 1);
        }
        here.globs.iter().find_map(|glob| {
            let target = self.module_of(module, glob).filter(|target| *target != module)?;
            self.modules[target].defined.contains(first).then_some(self.modules[target].file)
        })
    }

    /// The module that a path names, through modules only.
    fn module_of(&self, module: usize, path: &[String]) -> Option<usize> {
        path.iter().enumerate().try_fold(module, |at, (index, segment)| match segment.as_str() {
            "crate" if index == 0 => Some(0),
            "self" => Some(at),
            "super" => self.modules[at].parent,
            name => self.modules[at].children.get(name).copied(),
        })
    }
}

impl Module {
    fn take(&mut self, item: &Item) {
        let mut names = Names { module: self };
        names.visit_item(item);
        if let Some(name) = defined_name(item) {
            self.defined.insert(name);
        }
    }

    fn mentions(&self, name: &str) -> bool {
        self.paths.iter().any(|path| path.first().is_some_and(|first| first == name))
    }

    fn import(&mut self, before: &[String], tree: &UseTree) {
        let joined = |name: &syn::Ident| {
            let mut path = before.to_vec();
            path.push(name.to_string());
            path
        };
        match tree {
            UseTree::Path(path) => self.import(&joined(&path.ident), &path.tree),
            UseTree::Group(group) => {
                group.items.iter().for_each(|inner| self.import(before, inner));
            }
            UseTree::Glob(_) => self.globs.push(before.to_vec()),
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = before.last() {
                    self.aliases.insert(last.clone(), before.to_vec());
                }
            }
            UseTree::Name(name) => {
                self.aliases.insert(name.ident.to_string(), joined(&name.ident));
            }
            // `as _` brings a trait into scope under no name, which is an edge all the same.
            UseTree::Rename(rename) if rename.rename == "_" => {
                self.paths.insert(joined(&rename.ident));
            }
            UseTree::Rename(rename) => {
                self.aliases.insert(rename.rename.to_string(), joined(&rename.ident));
            }
        }
    }
}

/// Collects every path of a module's code, `use` lines and macros included.
struct Names<'a> {
    module: &'a mut Module,
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !only_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() && !only_for_tests(&item.attrs) {
            self.module.import(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().map(|segment| segment.ident.to_string());
            self.module.paths.insert(names.collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.take_tokens(call.tokens.clone());
    }
}

impl Names<'_> {
    /// Finds `a::b::c` in tokens that only a macro understands.
    fn take_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        let end = |path: &mut Vec<String>, module: &mut Module| {
            if !path.is_empty() {
                module.paths.insert(std::mem::take(path));
            }
        };
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        end(&mut path, self.module);
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    end(&mut path, self.module);
                    colons = 0;
                    self.take_tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    end(&mut path, self.module);
                    colons = 0;
                }
            }
        }
        end(&mut path, self.module);
    }
}

fn defined_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn only_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        _ => false,
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the files into a folder of its own and reads them as one crate.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let sources = Sources::read(folder.path(), &folder.path().join(files[0].0)).unwrap();
        let name = |index: &usize| sources.files[*index].clone();
        let pairs = sources.edges.iter();
        pairs
            .flat_map(|(from, to)| {
                to.iter().map(move |to| format!("{} > {}", name(from), name(to)))
            })
            .collect()
    }

    #[test]
    fn a_declared_module_is_no_edge_and_a_name_is_one() {
        assert_eq!(edges(&[("lib.rs", "mod a;"), ("a.rs", "pub struct A;")]), [""; 0]);
        let used = edges(&[("lib.rs", "mod a; fn f(_: a::A) {}"), ("a.rs", "pub struct A;")]);
        assert_eq!(used, ["lib.rs > a.rs"]);
    }

    #[test]
    fn a_re_export_is_followed_to_where_the_name_is_defined() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::A;"),
            ("a.rs", "pub struct A;"),
            ("b.rs", "use crate::A; fn f(_: A) {}"),
        ];
        assert_eq!(edges(&files), ["lib.rs > a.rs", "b.rs > a.rs"]);
    }

    #[test]
    fn a_module_that_is_imported_leads_on_to_what_is_taken_through_it() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub fn go() {}"),
            ("b.rs", "use crate::a; fn f() { a::go(); }"),
        ];
        assert_eq!(edges(&files), ["b.rs > a.rs"]);
    }

    #[test]
    fn tests_look_anywhere_and_macros_are_read() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub fn go() -> u8 { 1 } #[cfg(test)] mod tests { use crate::b::x; }"),
            ("b.rs", "pub fn x() { println!(\"{}\", crate::a::go()); }"),
        ];
        assert_eq!(edges(&files), ["b.rs > a.rs"]);
    }

    #[test]
    fn a_child_that_takes_from_its_parent_is_an_edge_up() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod c; pub struct P; pub use c::C;"),
            ("a/c.rs", "use super::P; pub struct C(P);"),
        ];
        assert_eq!(edges(&files), ["a/mod.rs > a/c.rs", "a/c.rs > a/mod.rs"]);
    }
}
