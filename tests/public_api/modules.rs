//! The library's modules, and the resolution of paths to items.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::slice;

use syn::{Attribute, Item, ItemImpl, Type, UseTree, Visibility};

/// A crate's modules, by their path from its root.
pub struct Crate {
    modules: BTreeMap<Vec<String>, Module>,
}

/// One module.
#[derive(Default)]
struct Module {
    items: Vec<Item>,
    uses: Vec<Use>,
    /// Modules below it that are shown.
    shown: Vec<String>,
}

/// One name that a `use` brings in.
struct Use {
    name: String,
    path: Vec<String>,
    is_pub: bool,
}

/// What a visible path means.
pub enum Thing<'a> {
    Module,
    /// An item, and the module that it is in.
    Item {
        item: &'a Item,
        home: Vec<String>,
    },
    /// Something of another crate, by its path.
    Foreign(String),
}

impl Crate {
    /// Reads a crate from the file of its root.
    pub fn read(root: &Path) -> Self {
        let mut modules = BTreeMap::new();
        let folder = root.parent().expect("a folder");
        read_file(root, folder, Vec::new(), &mut modules);
        Crate { modules }
    }

    /// Every path that others can name, and what it means.
    pub fn visible(&self) -> Vec<(String, Thing<'_>)> {
        let mut found = Vec::new();
        self.look_into(&[], "argiope", &mut found);
        found
    }

    fn look_into<'a>(
        &'a self,
        at: &[String],
        shown_as: &str,
        found: &mut Vec<(String, Thing<'a>)>,
    ) {
        let module = &self.modules[at];
        for item in &module.items {
            if let Some(name) = name_of(item) {
                let home = at.to_vec();
                found.push((format!("{shown_as}::{name}"), Thing::Item { item, home }));
            }
        }
        for name in &module.shown {
            let path = format!("{shown_as}::{name}");
            found.push((path.clone(), Thing::Module));
            self.look_into(&[at, slice::from_ref(name)].concat(), &path, found);
        }
        for brought in module.uses.iter().filter(|brought| brought.is_pub) {
            let path = format!("{shown_as}::{}", brought.name);
            match self.resolve(at, &brought.path) {
                Resolved::Module(home) => {
                    found.push((path.clone(), Thing::Module));
                    self.look_into(&home, &path, found);
                }
                Resolved::Item(item, home) => found.push((path, Thing::Item { item, home })),
                Resolved::Foreign => found.push((path, Thing::Foreign(brought.path.join("::")))),
            }
        }
    }

    /// What a path means, said in this module.
    fn resolve(&self, at: &[String], path: &[String]) -> Resolved<'_> {
        let (first, rest) = path.split_first().expect("a path has a name");
        match first.as_str() {
            "crate" => self.resolve_in(&[], rest),
            "self" => self.resolve_in(at, rest),
            "super" => self.resolve(&at[..at.len() - 1], &[&["self".to_owned()], rest].concat()),
            _ => self.resolve_in(at, path),
        }
    }

    fn resolve_in(&self, at: &[String], path: &[String]) -> Resolved<'_> {
        let Some((first, rest)) = path.split_first() else {
            return Resolved::Module(at.to_vec());
        };
        if first == "super" {
            return self.resolve_in(&at[..at.len() - 1], rest);
        }
        let module = &self.modules[at];
        let below = [at, slice::from_ref(first)].concat();
        if self.modules.contains_key(&below) {
            return self.resolve_in(&below, rest);
        }
        let mut items = module.items.iter();
        if let Some(item) = items.find(|item| any_name_of(item).as_deref() == Some(first)) {
            return Resolved::Item(item, at.to_vec());
        }
        let mut uses = module.uses.iter();
        match uses.find(|brought| brought.name == *first && brought.path != path) {
            Some(brought) => self.resolve(at, &[&brought.path[..], rest].concat()),
            None => Resolved::Foreign,
        }
    }

    /// The blocks that say what an item can do, and where they stand.
    pub fn impls_of<'a>(
        &'a self,
        item: &Item,
        home: &[String],
    ) -> Vec<(&'a ItemImpl, &'a [String])> {
        let Some(name) = any_name_of(item) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (at, module) in &self.modules {
            for block in module.items.iter() {
                let Item::Impl(block) = block else { continue };
                let Type::Path(path) = &*block.self_ty else {
                    continue;
                };
                let path: Vec<String> = path
                    .path
                    .segments
                    .iter()
                    .map(|s| s.ident.to_string())
                    .collect();
                if path.last() != Some(&name) {
                    continue;
                }
                if let Resolved::Item(_, there) = self.resolve(at, &path)
                    && there == home
                {
                    found.push((block, &at[..]));
                }
            }
        }
        found
    }
}

enum Resolved<'a> {
    Module(Vec<String>),
    Item(&'a Item, Vec<String>),
    Foreign,
}

/// Reads a file and those of the modules below it. Tests are left out.
fn read_file(
    file: &Path,
    below: &Path,
    at: Vec<String>,
    modules: &mut BTreeMap<Vec<String>, Module>,
) {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parsed =
        syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    read_items(parsed.items, below, at, modules);
}

fn read_items(
    items: Vec<Item>,
    below: &Path,
    at: Vec<String>,
    modules: &mut BTreeMap<Vec<String>, Module>,
) {
    let mut module = Module::default();
    for item in items {
        match item {
            Item::Mod(inner) if !is_of_tests(&inner.attrs) => {
                let name = inner.ident.to_string();
                let path = [&at[..], slice::from_ref(&name)].concat();
                if matches!(inner.vis, Visibility::Public(_)) && !is_hidden(&inner.attrs) {
                    module.shown.push(name.clone());
                }
                let folder = below.join(&name);
                match inner.content {
                    Some((_, items)) => read_items(items, &folder, path, modules),
                    None => {
                        let files = [below.join(format!("{name}.rs")), folder.join("mod.rs")];
                        let file: Option<&PathBuf> = files.iter().find(|file| file.exists());
                        // A module with a `#[path]` of its own is one of tests.
                        if let Some(file) = file {
                            read_file(file, &folder, path, modules);
                        }
                    }
                }
            }
            Item::Use(brought) => {
                let is_pub =
                    matches!(brought.vis, Visibility::Public(_)) && !is_hidden(&brought.attrs);
                read_use(&brought.tree, Vec::new(), is_pub, &mut module.uses);
            }
            Item::Macro(call) if call.mac.path.is_ident("debug_as_sentence") => {
                let error = call.mac.tokens;
                let block = format!("impl Debug for {error} {{}}");
                module
                    .items
                    .push(syn::parse_str(&block).expect("one error"));
            }
            item => module.items.push(item),
        }
    }
    modules.insert(at, module);
}

fn read_use(tree: &UseTree, before: Vec<String>, is_pub: bool, uses: &mut Vec<Use>) {
    let joined = |name: &syn::Ident| [&before[..], &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => read_use(&path.tree, joined(&path.ident), is_pub, uses),
        UseTree::Name(name) if name.ident == "self" => {
            let name = before.last().expect("something before it").clone();
            uses.push(Use {
                name,
                path: before,
                is_pub,
            });
        }
        UseTree::Name(name) => uses.push(Use {
            name: name.ident.to_string(),
            path: joined(&name.ident),
            is_pub,
        }),
        UseTree::Rename(name) => uses.push(Use {
            name: name.rename.to_string(),
            path: joined(&name.ident),
            is_pub,
        }),
        UseTree::Group(group) => {
            for tree in &group.items {
                read_use(tree, before.clone(), is_pub, uses);
            }
        }
        // In tests only, and so it is to stay: what it brings is not to be seen here.
        UseTree::Glob(_) => assert!(!is_pub, "a `pub use` of everything hides what is public"),
    }
}

/// The name of an item that others can use.
fn name_of(item: &Item) -> Option<String> {
    let (vis, attrs) = match item {
        Item::Const(item) => (&item.vis, &item.attrs),
        Item::Enum(item) => (&item.vis, &item.attrs),
        Item::Fn(item) => (&item.vis, &item.attrs),
        Item::Static(item) => (&item.vis, &item.attrs),
        Item::Struct(item) => (&item.vis, &item.attrs),
        Item::Trait(item) => (&item.vis, &item.attrs),
        Item::Type(item) => (&item.vis, &item.attrs),
        Item::Union(item) => (&item.vis, &item.attrs),
        _ => return None,
    };
    let is_shown = matches!(vis, Visibility::Public(_)) && !is_hidden(attrs);
    is_shown.then(|| any_name_of(item)).flatten()
}

/// The name of an item.
fn any_name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Whether the documentation leaves it out.
pub fn is_hidden(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("doc")
            && attr
                .parse_args::<syn::Ident>()
                .is_ok_and(|word| word == "hidden")
    })
}

fn is_of_tests(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("cfg")
            && attr
                .parse_args::<syn::Ident>()
                .is_ok_and(|word| word == "test")
    })
}
