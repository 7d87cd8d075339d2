//! Finds the paths in source files, and the files that they refer to.
//!
//! Reads text formatted by rustfmt; resolves `use` with groups, globs and renames, re-exports, and relative
//! paths. Macros are not expanded.

use std::collections::{BTreeMap, BTreeSet};

/// The modules of the crate, to follow a path to the file that defines what it names.
pub struct Tree(BTreeMap<String, Module>);

struct Module {
    file: String,
    /// Types, functions and the like that it defines.
    items: BTreeSet<String>,
    /// Names that it imports, perhaps to export them again, with their paths.
    imports: BTreeMap<String, String>,
    /// Modules whose names it imports all.
    globs: Vec<String>,
}

impl Tree {
    pub fn new(sources: &[(String, String)]) -> Self {
        let modules = sources.iter().map(|(file, code)| {
            let path = module_of(file);
            let code = untested(code);
            let mut module = Module {
                file: file.clone(),
                items: code.lines().filter_map(defined).collect(),
                imports: BTreeMap::new(),
                globs: Vec::new(),
            };
            for import in imports_in(&code, &path) {
                match import.path.strip_suffix("::*") {
                    Some(all_of) => module.globs.push(all_of.to_owned()),
                    None => drop(module.imports.insert(import.name, import.path)),
                }
            }
            (path, module)
        });
        Tree(modules.collect())
    }

    /// The path of the definition that a path leads to. Of a name whose definition is not found, the
    /// path where the search ended.
    pub fn resolve(&self, path: &str) -> String {
        self.search(path, IMPORTS_MAX)
    }

    fn search(&self, path: &str, imports_max: usize) -> String {
        let Some((module, rest)) = self.split(path) else {
            return path.to_owned();
        };
        let (first, tail) = match rest.split_once("::") {
            Some((first, tail)) => (first, format!("::{tail}")),
            None => (rest, String::new()),
        };
        let known = &self.0[module];
        if first.is_empty() || imports_max == 0 || known.items.contains(first) {
            return path.to_owned();
        }
        if let Some(target) = known.imports.get(first) {
            return self.search(&format!("{target}{tail}"), imports_max - 1);
        }
        let mut globs = known.globs.iter().map(|all_of| {
            let all_of = self.search(all_of, imports_max - 1);
            self.search(&format!("{all_of}::{first}"), imports_max - 1)
        });
        let found = globs.find(|found| {
            let Some((module, name)) = self.split(found) else {
                return false;
            };
            name.is_empty() || self.0[module].items.contains(name)
        });
        found.map_or_else(|| path.to_owned(), |found| format!("{found}{tail}"))
    }

    /// The longest prefix of a path that is a module, and the rest.
    fn split<'a>(&self, path: &'a str) -> Option<(&'a str, &'a str)> {
        let mut module = path;
        while !self.0.contains_key(module) {
            module = module.rsplit_once("::")?.0;
        }
        Some((module, path[module.len()..].trim_start_matches(':')))
    }

    /// The files that define what a file's code names.
    pub fn files_named_in(&self, code: &str, module: &str) -> BTreeSet<&str> {
        let code = untested(code);
        let mut paths = paths_in(&code, module);
        for all_of in paths.clone() {
            let Some(all_of) = all_of.strip_suffix("::*") else {
                continue;
            };
            if let Some(other) = self.0.get(&self.resolve(all_of)) {
                let words = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
                let named = words.filter_map(|word| other.imports.get(word));
                paths.extend(named.cloned().collect::<BTreeSet<_>>());
            }
        }
        let files = paths.iter().filter_map(|path| {
            let path = self.resolve(path);
            let (module, _) = self.split(&path)?;
            Some(self.0[module].file.as_str())
        });
        files.collect()
    }
}

/// A name that a module imports.
struct Import {
    name: String,
    path: String,
}

/// The module that a file is: `crate::io::epoll` of `src/io/epoll.rs`.
pub fn module_of(file: &str) -> String {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs");
    let path = path.trim_end_matches("/mod");
    match path {
        "lib" | "main" => "crate".to_owned(),
        path => format!("crate::{}", path.replace('/', "::")),
    }
}

/// The code without the modules and methods that exist for tests alone; their lines are left empty.
pub fn untested(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut lines = code.lines().peekable();
    while let Some(line) = lines.next() {
        let is_block = |next: &&str| !next.starts_with(' ') && next.ends_with('{');
        if line == "#[cfg(test)]" && lines.peek().is_some_and(is_block) {
            // A formatted block ends with the next brace at the left edge.
            while lines.next().is_some_and(|line| line != "}") {
                kept.push('\n');
            }
            kept.push('\n');
        } else {
            kept.push_str(line);
        }
        kept.push('\n');
    }
    kept
}

fn without_comments(code: &str) -> String {
    let lines = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

/// The absolute paths that the code of a module names, in its imports and elsewhere; a glob ends in `*`.
pub fn paths_in(code: &str, module: &str) -> Vec<String> {
    let code = without_comments(code);
    let parts: Vec<String> = parts_of(&code).map(|part| format!("{part}::")).collect();
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"]
        .into_iter()
        .chain(parts.iter().map(String::as_str))
    {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|letter| letter.is_alphanumeric() || "_:.".contains(letter)) {
                continue;
            }
            let end = code[at..]
                .find(|letter: char| !letter.is_alphanumeric() && !"_:{}, \n*".contains(letter));
            let text = &code[at..at + end.unwrap_or(code.len() - at)];
            let is_part = parts.iter().any(|part| part == start);
            found.extend(expanded(text).into_iter().map(|import| {
                let path = import.path;
                absolute(
                    &if is_part {
                        format!("self::{path}")
                    } else {
                        path
                    },
                    module,
                )
            }));
        }
    }
    found
}

/// The names that the `use` statements of a module bring in from the crate.
fn imports_in(code: &str, module: &str) -> Vec<Import> {
    let code = without_comments(code);
    let parts: BTreeSet<&str> = parts_of(&code).collect();
    let mut found = Vec::new();
    for (at, line) in at_left_edge(&code) {
        let Some(rest) = without_visibility(line).strip_prefix("use ") else {
            continue;
        };
        let start = at + line.len() - rest.len();
        let end = code[start..].find(';').unwrap_or(0);
        for import in expanded(&code[start..start + end]) {
            let first = import.path.split("::").next().unwrap_or("");
            let path = match first {
                "crate" | "super" | "self" => import.path,
                part if parts.contains(part) => format!("self::{}", import.path),
                _ => continue,
            };
            let path = absolute(&path, module);
            found.push(Import { path, ..import });
        }
    }
    found
}

/// The lines that begin at the left edge, with their offsets.
fn at_left_edge(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    let lines = code.split_inclusive('\n').map(move |line| {
        at += line.len();
        (at - line.len(), line)
    });
    lines.filter(|(_, line)| line.starts_with(|letter: char| letter.is_alphabetic()))
}

/// The modules that the code declares as files of their own.
fn parts_of(code: &str) -> impl Iterator<Item = &str> {
    at_left_edge(code).filter_map(|(_, line)| {
        let name = without_visibility(line.trim_end()).strip_prefix("mod ")?;
        name.strip_suffix(';')
    })
}

fn without_visibility(line: &str) -> &str {
    match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map_or(line, |(_, rest)| rest),
        None => line.strip_prefix("pub ").unwrap_or(line),
    }
}

/// What a line at the left edge defines.
fn defined(line: &str) -> Option<String> {
    const BEFORE: &[&str] = &["unsafe ", "async ", "extern \"C\" "];
    const KINDS: &[&str] = &[
        "struct ",
        "enum ",
        "union ",
        "trait ",
        "type ",
        "const fn ",
        "fn ",
        "const ",
        "static ",
        "macro_rules! ",
    ];
    let mut line = without_visibility(line);
    for word in BEFORE {
        line = line.strip_prefix(word).unwrap_or(line);
    }
    let rest = KINDS.iter().find_map(|kind| line.strip_prefix(kind))?;
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    Some(rest[..end.unwrap_or(rest.len())].to_owned())
}

/// `a::{b, c::{d}}` as `a::b` and `a::c::d`, `a::{self}` as `a`; of other text its first path.
fn expanded(text: &str) -> Vec<Import> {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && !"_:*".contains(letter));
    let head = &text[..end.unwrap_or(text.len())];
    let rest = &text[head.len()..];
    if !head.ends_with("::") || !rest.starts_with('{') {
        let path = head.trim_end_matches(':');
        let path = path.strip_suffix("::self").unwrap_or(path);
        let renamed = rest.trim_start().strip_prefix("as ").map(|name| {
            let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
            &name[..end.unwrap_or(name.len())]
        });
        let last = path.rsplit("::").next().unwrap_or(path);
        return vec![Import {
            name: renamed.unwrap_or(last).to_owned(),
            path: path.to_owned(),
        }];
    }
    let mut imports = Vec::new();
    let (mut depth, mut from) = (0, 1);
    for (at, letter) in rest.char_indices() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        if (letter == ',' && depth == 1) || depth == 0 {
            let part = rest[from..at].trim();
            if part == "self" || part.starts_with("self ") {
                let whole = head.trim_end_matches(':');
                imports.extend(expanded(&part.replacen("self", whole, 1)));
            } else if !part.is_empty() {
                imports.extend(expanded(part).into_iter().map(|import| Import {
                    path: format!("{head}{}", import.path),
                    ..import
                }));
            }
            from = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    imports
}

/// A path seen from the crate's root.
fn absolute(path: &str, module: &str) -> String {
    let mut module = module.to_owned();
    let mut segments = path.split("::").peekable();
    match segments.peek() {
        Some(&"self") => drop(segments.next()),
        Some(&"super") => {}
        _ => return path.to_owned(),
    }
    while segments.next_if_eq(&"super").is_some() {
        let above = module.rsplit_once("::").map_or("crate", |(above, _)| above);
        module = above.to_owned();
    }
    for segment in segments {
        module = format!("{module}::{segment}");
    }
    module
}

/// Longest chain of names exported again; ends a search in a circle of them.
const IMPORTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, module: &str, expected: &[&str]) {
        let mut found = paths_in(code, module);
        found.sort();
        assert_eq!(found, expected, "{code}");
    }

    #[test]
    fn import_groups_are_expanded() {
        check(
            "use crate::{base::{self, time::Instant}, io};",
            "crate::a",
            &["crate::base", "crate::base::time::Instant", "crate::io"],
        );
        check(
            "use super::{\n    Chunk, // a comment\n    Io as Kernel,\n};",
            "crate::io::sim",
            &["crate::io::Chunk", "crate::io::Io"],
        );
    }

    #[test]
    fn relative_paths_are_resolved_from_the_root() {
        check(
            "super::super::a::B; self::c::D",
            "crate::x::y",
            &["crate::a::B", "crate::x::y::c::D"],
        );
        check("use super::*;", "crate::x::y", &["crate::x::*"]);
        check("use super::y;", "crate::x", &["crate::y"]);
    }

    #[test]
    fn paths_without_a_keyword_are_found() {
        check(
            "mod lanes;\npub(crate) use lanes::{Lane, offers};\nlet lane = lanes::Lane::new();",
            "crate::frontier",
            &[
                "crate::frontier::lanes::Lane",
                "crate::frontier::lanes::Lane::new",
                "crate::frontier::lanes::offers",
            ],
        );
        check("use lanes::Lane; other.lanes::<u8>()", "crate::a", &[]);
    }

    #[test]
    fn comments_and_longer_words_are_ignored() {
        check(
            "// crate::a::B\nmy_crate::a; std::crate::b",
            "crate::x",
            &[],
        );
    }

    #[test]
    fn code_after_the_tests_is_read() {
        let code =
            "use super::a;\n#[cfg(test)]\nmod tests {\n    use super::*;\n}\n\nuse super::b;\n";
        let untested = untested(code);
        assert_eq!(untested, "use super::a;\n\n\n\n\n\nuse super::b;\n");
        check(&untested, "crate::x::y", &["crate::x::a", "crate::x::b"]);
    }

    fn tree(sources: &[(&str, &str)]) -> Tree {
        let sources: Vec<_> = sources
            .iter()
            .map(|(file, code)| ((*file).to_owned(), (*code).to_owned()))
            .collect();
        Tree::new(&sources)
    }

    #[test]
    fn names_exported_again_lead_to_their_definition() {
        let tree = tree(&[
            (
                "src/io/sim.rs",
                "mod net;\nmod socket;\npub use self::net::ConnId;\npub use socket::*;\nuse net::Net as Web;\n",
            ),
            (
                "src/io/sim/net.rs",
                "pub struct ConnId(u64);\nstruct Net;\n",
            ),
            ("src/io/sim/socket.rs", "pub(super) enum Socket {\n"),
            (
                "src/io/mod.rs",
                "mod sim;\npub use self::sim::{ConnId, Socket};\n",
            ),
        ]);
        for (path, expected) in [
            ("crate::io::ConnId", "crate::io::sim::net::ConnId"),
            ("crate::io::ConnId::new", "crate::io::sim::net::ConnId::new"),
            ("crate::io::Socket", "crate::io::sim::socket::Socket"),
            ("crate::io::sim::Web", "crate::io::sim::net::Net"),
            ("crate::io::sim", "crate::io::sim"),
            ("std::fmt", "std::fmt"),
        ] {
            assert_eq!(tree.resolve(path), expected);
        }
    }

    #[test]
    fn files_are_named_through_globs_and_exports() {
        let tree = tree(&[
            (
                "src/a.rs",
                "mod b;\nmod c;\npub use self::b::B;\nuse self::c::C;\n",
            ),
            ("src/a/b.rs", "pub struct B;\n"),
            ("src/a/c.rs", "pub struct C;\n"),
        ]);
        let files = |code| tree.files_named_in(code, "crate::a::d");
        assert_eq!(files("use super::B;"), BTreeSet::from(["src/a/b.rs"]));
        assert_eq!(
            files("use super::*;\nfn f(_: C) {}"),
            BTreeSet::from(["src/a.rs", "src/a/c.rs"])
        );
    }
}
