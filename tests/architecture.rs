//! The floors and the importers: which folder may import which, and the one file through which each
//! outside library comes in. A new row is a design decision; its commit says so first.

#[path = "architecture/paths.rs"]
mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use paths::{Tree, module_of, paths_in, untested};

/// What each floor may use, from the ground up. `main.rs` and `cli` use the public API only.
const FLOORS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("io", &["base"]),
    ("wire", &["base"]),
    ("fetch", &["base", "wire"]),
    ("throttle", &["base", "wire", "fetch"]),
    ("frontier", &["base", "wire"]),
    // The durable form of the frontier: bytes in, bytes out.
    ("state", &["base", "wire", "frontier"]),
    // A sink may find links, and links are requests.
    ("sink", &["base", "wire", "fetch", "throttle", "frontier"]),
    // Judges what a crawl wrote by other code than that which paces it.
    ("audit", &["base", "wire"]),
    // The control interface: bytes in, requests out, replies back. It knows nothing of crawls.
    ("admin", &["base", "wire"]),
    (
        "crawl",
        &[
            "base", "io", "wire", "fetch", "throttle", "frontier", "state", "sink", "admin",
        ],
    ),
    // Servers must not err as the crawler does: they know nothing of it.
    ("testkit", &["base"]),
];

/// The files that import each external library. Test modules use the same files.
const IMPORTERS: &[(&str, &[&str])] = &[
    ("mio", &["src/io/epoll.rs"]),
    // Strangers choose keys: every table hashes under the crawl's secret.
    ("foldhash", &["src/base/secret.rs"]),
    // Without a secret: for digests of bodies and of seeds files, and for a test.
    (
        "xxhash_rust",
        &[
            "src/crawl/classifier.rs",
            "src/base/sharded.rs",
            "src/cli/seed_file.rs",
        ],
    ),
    ("siphasher", &["src/base/keys.rs"]),
    ("crc32fast", &["src/state/journal.rs"]),
    ("xorf", &["src/frontier/seen/run.rs"]),
    ("io_uring", &["src/io/uring/ring.rs"]),
    ("rustls", &["src/fetch/tls.rs", "src/testkit/stream.rs"]),
    ("webpki_roots", &["src/fetch/tls.rs"]),
    ("httparse", &["src/wire/http/head.rs"]),
    ("httpdate", &["src/wire/date.rs"]),
    ("url", &["src/wire/url/standard.rs", "src/fetch/cookies.rs"]),
    ("cookie_store", &["src/fetch/cookies.rs"]),
    ("psl", &["src/wire/url.rs"]),
    ("html5gum", &["src/wire/html/tags.rs"]),
    ("memchr", &["src/wire/html/tags/skim.rs"]),
    (
        "html5ever",
        &[
            "src/wire/html/fields/extract.rs",
            "src/wire/html/tags/tests.rs",
        ],
    ),
    ("scraper", &["src/wire/html/fields/extract.rs"]),
    ("selectors", &["src/wire/html/fields/extract.rs"]),
    ("cssparser", &["src/wire/html/fields/extract.rs"]),
    ("encoding_rs", &["src/wire/charset.rs"]),
    ("chardetng", &["src/wire/charset.rs"]),
    ("quick_xml", &["src/wire/sitemap.rs"]),
    ("domain", &["src/wire/dns/message/tests.rs"]),
    ("resolv_conf", &["src/fetch/resolver/system.rs"]),
    (
        "flate2",
        &[
            "src/wire/coding/engine.rs",
            "src/base/gzip/members.rs",
            // Where members begin and end in a file.
            "src/base/gzip/reading.rs",
        ],
    ),
    ("libdeflate_sys", &["src/base/gzip.rs"]),
    ("brotli_decompressor", &["src/wire/coding/engine.rs"]),
    (
        "zstd",
        &["src/wire/coding/engine.rs", "src/base/compression.rs"],
    ),
    // For digests; rustls has a module of the same name.
    ("aws_lc_rs", &["src/wire/warc.rs", "src/fetch/tls.rs"]),
    (
        "data_encoding",
        &[
            "src/wire/warc.rs",
            "src/wire/proxy.rs",
            "src/wire/login.rs",
            "src/sink/robots.rs",
            "src/audit/robots.rs",
            "src/frontier/request.rs",
            "src/frontier/request/seeds.rs",
            "src/frontier/request/seeds/object.rs",
            "src/cli/json_lines.rs",
        ],
    ),
    (
        "hdrhistogram",
        &["src/crawl/stats.rs", "src/cli/probe/hdr.rs"],
    ),
    ("slab", &["src/base/slab.rs"]),
    ("futures_core", &["src/crawl/crawler/threaded/streams.rs"]),
    ("futures_sink", &["src/crawl/crawler/threaded/streams.rs"]),
    ("tokio", &["src/crawl/control/channel.rs"]),
    (
        "clap",
        &[
            "src/cli/args.rs",
            "src/cli/args/ctl.rs",
            "src/cli/args/explain.rs",
            "src/cli/args/filters.rs",
            "src/cli/args/probe.rs",
            "src/cli/args/sources.rs",
            "src/cli/generate.rs",
        ],
    ),
    ("clap_complete", &["src/cli/generate.rs"]),
    ("clap_mangen", &["src/cli/generate.rs"]),
    ("strsim", &["src/cli/foreign.rs"]),
    ("toml", &["src/cli/settings.rs"]),
    ("indicatif", &["src/cli/progress.rs"]),
    // Its tests read what it writes.
    (
        "parquet",
        &[
            "src/cli/export/parquet_file.rs",
            "src/cli/export/parquet_file/tests.rs",
        ],
    ),
    ("signal_hook", &["src/cli/signals.rs"]),
    ("mimalloc", &["src/cli/allocator.rs"]),
    ("libmimalloc_sys", &["src/cli/allocator.rs"]),
];

#[test]
fn imports_go_down() {
    let mut wrong = Vec::new();
    let sources = sources();
    let tree = Tree::new(&sources);
    for (file, code) in &sources {
        let floor = floor_of(file);
        let Some((_, may)) = FLOORS.iter().find(|(name, _)| *name == floor) else {
            continue;
        };
        for path in paths_in(code, &module_of(file)) {
            for path in [tree.resolve(&path), path] {
                let other = path.split("::").nth(1).unwrap_or("");
                let is_floor = FLOORS.iter().any(|(name, _)| *name == other);
                let is_ours = path.starts_with("crate::") && is_floor;
                if is_ours && other != floor && !may.contains(&other) {
                    wrong.push(format!("{file}: {floor}/ may not use {other}/ ({path})"));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "imports go down only; move the shared value to the lower floor:\n{}",
        wrong.join("\n")
    );
}

/// What the crawl's connections must do without: what is still to be fetched, when, and what becomes of it.
/// Events of a connection are returned, and the core decides what they mean.
const ABOVE_NETWORK: &[&str] = &[
    "crate::frontier::",
    "crate::state::",
    "crate::throttle::",
    "crate::crawl::breaker::",
    "crate::crawl::classifier::",
    "crate::crawl::control::",
    "crate::crawl::core::",
    "crate::crawl::flights::",
    "crate::crawl::outage::",
    "crate::crawl::output::",
    "crate::crawl::pages::",
    "crate::crawl::requests::",
    "crate::crawl::work::",
    "crate::crawl::workload::",
];

#[test]
fn network_does_not_import_queues_pace_or_results() {
    let mut wrong = Vec::new();
    let sources = sources();
    let tree = Tree::new(&sources);
    for (file, code) in &sources {
        if !file.starts_with("src/crawl/network/") {
            continue;
        }
        for path in paths_in(&untested(code), &module_of(file)) {
            let path = tree.resolve(&path);
            if ABOVE_NETWORK.iter().any(|above| path.starts_with(above)) {
                wrong.push(format!("{file}: {path}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "return what happened and let the core decide, or pass it as a value:\n{}",
        wrong.join("\n")
    );
}

/// The machines of a crawl: types that own a part of its state. They meet in `crawl/core` alone.
const MACHINES: &[&str] = &[
    "crate::crawl::classifier::Classifier",
    "crate::crawl::control::Control",
    "crate::crawl::core::Core",
    "crate::crawl::flights::Flights",
    "crate::crawl::network::Network",
    "crate::crawl::outage::Outage",
    "crate::crawl::output::Output",
    "crate::crawl::pages::Pages",
    "crate::crawl::requests::Requests",
    "crate::crawl::timer::Wakeups",
    "crate::crawl::work::Work",
    "crate::crawl::workload::Workload",
    "crate::frontier::Frontier",
    "crate::throttle::engine::Throttle",
];

/// What stands above the machines, and the report that reads the paces.
const ABOVE_MACHINES: &[&str] = &[
    "src/crawl/core/",
    "src/crawl/crawler/",
    "src/crawl/probe/",
    "src/crawl/pace_report.rs",
];

#[test]
fn machines_of_a_crawl_do_not_import_each_other() {
    let mut wrong = Vec::new();
    let sources = sources();
    let tree = Tree::new(&sources);
    let machines: Vec<String> = MACHINES.iter().map(|path| tree.resolve(path)).collect();
    for (file, code) in &sources {
        let is_above = ABOVE_MACHINES.iter().any(|above| file.starts_with(above));
        if !file.starts_with("src/crawl/") || is_above {
            continue;
        }
        let module = module_of(file);
        for path in paths_in(&untested(code), &module) {
            let path = tree.resolve(&path);
            let is_own = |machine: &str| {
                let (home, _) = machine.rsplit_once("::").expect("a path");
                module == home || module.starts_with(&format!("{home}::"))
            };
            if machines
                .iter()
                .any(|machine| path == *machine && !is_own(machine))
            {
                wrong.push(format!("{file}: {path}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "machines meet in crawl/core: return a value there, and let it be passed on:\n{}",
        wrong.join("\n")
    );
}

/// The machines that each file of `src/crawl/core` touches: what a step of the loop depends on, in the
/// order of the fields of `Core`. A further machine in a row is a further coupling: pass a value, or move
/// the method to where its machines are.
const TOUCHED: &[(&str, &str)] = &[
    (
        "adopting",
        "control frontier requests throttle network orders",
    ),
    (
        "cancelling",
        "work frontier throttle flights network journal",
    ),
    ("commands", "control work throttle outage pages"),
    (
        "connecting",
        "workload frontier throttle flights network output",
    ),
    (
        "connections",
        "workload frontier flights network pages output",
    ),
    ("commits", "control work frontier network output journal"),
    ("drive", "control network output"),
    ("keeping", "frontier throttle network"),
    ("evicting", "frontier throttle spill steering"),
    ("exclusions", "frontier network journal"),
    ("exchanges", "requests flights network output journal"),
    ("facts", "control frontier throttle network output journal"),
    ("finding", "frontier output"),
    ("follow", "workload frontier requests classifier network"),
    (
        "granting",
        "control frontier throttle flights network pages",
    ),
    ("health", "workload frontier classifier outage"),
    ("inputs", "control workload work frontier network output"),
    ("lanes", "frontier throttle network outage steering"),
    ("left_out", "frontier network output"),
    ("limiting", "journal overrides"),
    ("logging", "journal orders steering"),
    ("metrics", "control workload output"),
    ("names", "frontier requests throttle network outage"),
    ("offers", "work frontier pages journal"),
    ("orders", "work throttle network journal spill orders"),
    ("outage", "frontier throttle flights network outage"),
    ("outage_probes", "frontier network outage"),
    ("owner", "control workload throttle network output"),
    ("pages", "workload work frontier network pages output"),
    ("pending", "control work frontier requests pages output"),
    ("phase", "control workload frontier throttle network output"),
    ("program_orders", "steering"),
    ("progress", "control throttle network output journal spill"),
    ("reading", "control workload flights network output"),
    ("reloading", "control journal orders overrides steering"),
    ("removing", "work frontier throttle orders"),
    ("report", "control workload work throttle network output"),
    ("restoring", "work frontier requests network journal"),
    ("rotating", "output journal"),
    ("runs", "control frontier throttle network output"),
    ("samples", "network output steering"),
    ("scope_log", "throttle network output orders"),
    ("scope_orders", "throttle orders steering"),
    ("scopes", "work frontier throttle steering"),
    ("searching", "frontier throttle network spill steering"),
    ("seen", "control frontier journal"),
    ("set_up", ""),
    ("spilling", "frontier network journal spill steering"),
    ("starting", "work throttle flights journal"),
    (
        "signals",
        "workload throttle classifier flights network output",
    ),
    ("given", "control frontier journal"),
    ("operators", "control throttle network journal steering"),
    ("vain_orders", "throttle orders"),
    ("views", "control throttle network output"),
    ("host_orders", "frontier journal"),
    ("host_view", "frontier flights network spill"),
    ("url_log", ""),
    ("url_places", "work flights outage pages output"),
    ("url_search", "work frontier spill steering"),
    ("url_view", "frontier output"),
    (
        "waits_view",
        "control frontier throttle network outage output",
    ),
];

/// The most machines in a row: half of them.
const TOUCHED_MAX: usize = 6;

/// Where all machines may meet: the turn, the life of a URL, and questions that many answer together.
const MEETING_PLACES: &[&str] = &["mod", "life", "questions"];

/// Fields of `Core` that are no machines of the crawl but the loop's own.
const OWN_FIELDS: &[&str] = &["config", "now", "wakeups"];

#[test]
fn each_file_of_the_core_touches_the_machines_of_its_row() {
    let core = "src/crawl/core/";
    let sources = sources();
    let (_, definition) = sources
        .iter()
        .find(|(file, _)| file == "src/crawl/core/mod.rs")
        .expect("the core has its file");
    let machines = fields_of(definition, "struct Core<I: Io> {");
    assert!(machines.contains(&"network"), "{machines:?}");
    let mut wrong = Vec::new();
    let mut rows: BTreeMap<&str, &str> = TOUCHED.iter().copied().collect();
    for (file, code) in &sources {
        let name = file
            .strip_prefix(core)
            .and_then(|name| name.strip_suffix(".rs"));
        let Some(name) = name.filter(|name| !name.contains('/')) else {
            continue;
        };
        let code = untested(code);
        if MEETING_PLACES.contains(&name) {
            if name == "questions" && code.contains("&mut self") {
                wrong.push(format!("{file} asks machines and changes none"));
            }
            continue;
        }
        let used = own_fields_in(&code);
        let touched: Vec<&str> = machines
            .iter()
            .copied()
            .filter(|machine| !OWN_FIELDS.contains(machine) && used.contains(machine))
            .collect();
        let row = rows.remove(name);
        if row != Some(touched.join(" ").as_str()) {
            wrong.push(format!("{file}: {touched:?} is not its row {row:?}"));
        }
        if touched.len() > TOUCHED_MAX {
            wrong.push(format!("{file}: more than {TOUCHED_MAX} machines"));
        }
    }
    wrong.extend(rows.keys().map(|name| format!("{core}{name}.rs is gone")));
    assert!(
        wrong.is_empty(),
        "what a file of the core depends on is in the table `TOUCHED`:\n{}",
        wrong.join("\n")
    );
}

/// The names of a struct's fields.
fn fields_of<'a>(code: &'a str, definition: &str) -> Vec<&'a str> {
    let (_, body) = code.split_once(definition).expect("it is defined there");
    let (body, _) = body.split_once("\n}").expect("it ends");
    let lines = body.lines().map(str::trim);
    let fields = lines.filter(|line| !line.starts_with("//"));
    fields
        .filter_map(|line| Some(line.split_once(": ")?.0))
        .collect()
}

/// The fields of `self` that code names, without its methods.
fn own_fields_in(code: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for (at, own) in code.match_indices("self") {
        let line = code[..at].rsplit('\n').next().unwrap_or("");
        if line.contains("//") || line.ends_with(|before: char| before.is_alphanumeric()) {
            continue;
        }
        let rest = code[at + own.len()..].trim_start();
        let Some(rest) = rest.strip_prefix('.') else {
            continue;
        };
        let name = name_at_start(rest.trim_start());
        if !rest.trim_start()[name.len()..].starts_with('(') {
            found.insert(name);
        }
    }
    found
}

/// A file and the files of its floor that it imports from. A module and its parts are one: what a part
/// imports from the module that holds it is not counted.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn files_of_a_floor_have_no_import_circle() {
    let sources = sources();
    let tree = Tree::new(&sources);
    let mut imports = Imports::new();
    for (file, code) in &sources {
        let module = module_of(file);
        let targets = tree.files_named_in(code, &module).into_iter();
        let other_files = targets.filter(|target| {
            let is_part_of = module.starts_with(&format!("{}::", module_of(target)));
            target != file && !is_part_of && floor_of(target) == floor_of(file)
        });
        imports.insert(file.clone(), other_files.map(str::to_owned).collect());
    }
    let circles = circles(&imports);
    assert!(
        circles.is_empty(),
        "these files import each other in a circle; move what both need to a file below them, or let \
         the upper one pass it as a value:\n{}",
        circles.join("\n")
    );
}

#[test]
fn the_methods_of_a_type_are_in_its_own_file_or_folder() {
    let sources = sources();
    let mut homes: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for (file, code) in &sources {
        for line in untested(code).lines() {
            if let Some(name) = defined_type(line) {
                let floor = floor_of(file).to_owned();
                homes
                    .entry((floor, name.to_owned()))
                    .or_default()
                    .push(file.clone());
            }
        }
    }
    let mut wrong = Vec::new();
    for (file, code) in &sources {
        for (number, line) in untested(code).lines().enumerate() {
            let Some(name) = inherent_impl(line) else {
                continue;
            };
            let homes = homes.get(&(floor_of(file).to_owned(), name.to_owned()));
            let is_home = |home: &String| {
                let folder = home.strip_suffix("mod.rs").map(str::to_owned);
                let folder = folder.unwrap_or_else(|| home.replace(".rs", "/"));
                file == home || file.starts_with(&folder)
            };
            if !homes.is_some_and(|homes| homes.iter().any(is_home)) {
                wrong.push(format!("{file}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "a type's methods stand in the file or folder that defines it:\n{}",
        wrong.join("\n")
    );
}

/// The type that a line at a file's left edge defines.
fn defined_type(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let rest = ["struct ", "enum ", "union "]
        .iter()
        .find_map(|word| line.strip_prefix(word))?;
    Some(name_at_start(rest))
}

/// The type whose inherent methods begin on this line.
fn inherent_impl(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(_) => {
            let mut depth = 0;
            let end = rest.char_indices().find_map(|(at, letter)| {
                depth += i32::from(letter == '<') - i32::from(letter == '>');
                (depth == 0).then_some(at)
            })?;
            &rest[end + 1..]
        }
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    (!rest.contains(" for "))
        .then(|| name_at_start(rest))
        .filter(|name| !name.is_empty())
}

fn name_at_start(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    &text[..end.unwrap_or(text.len())]
}

/// Groups of files each of which reaches all others of its group by imports.
fn circles(imports: &Imports) -> Vec<String> {
    let reach = |from: &String| {
        let mut seen: BTreeSet<&String> = BTreeSet::new();
        let mut open: Vec<&String> = imports[from].iter().collect();
        while let Some(file) = open.pop() {
            if seen.insert(file) {
                open.extend(&imports[file]);
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|file| (file, reach(file))).collect();
    let mut reported: BTreeSet<&String> = BTreeSet::new();
    let mut circles = Vec::new();
    for (file, all) in &reached {
        if !all.contains(*file) || reported.contains(*file) {
            continue;
        }
        let group: BTreeSet<&String> = all
            .iter()
            .copied()
            .filter(|other| reached[*other].contains(*file))
            .collect();
        let arrows = group.iter().flat_map(|from| {
            let group = &group;
            imports[*from]
                .iter()
                .filter(move |to| group.contains(to))
                .map(move |to| format!("  {from} -> {to}"))
        });
        circles.push(arrows.collect::<Vec<_>>().join("\n"));
        reported.extend(group);
    }
    circles
}

#[test]
fn each_library_is_imported_by_one_file() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        for (library, importers) in IMPORTERS {
            if importers.contains(&file.as_str()) {
                continue;
            }
            for (number, line) in code.lines().enumerate() {
                if mentions(line, &format!("{library}::"))
                    && !line.contains(&format!("::{library}::"))
                {
                    wrong.push(format!(
                        "{file}:{}: {library} may be imported by {} only",
                        number + 1,
                        importers.join(" and ")
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "one importer per library:\n{}",
        wrong.join("\n")
    );
}

/// Modules that the front hides: the binary does without them, save where it plays servers, for
/// which `testkit` is there.
const HIDDEN: &[&str] = &[
    "base",
    "io",
    "wire",
    "fetch",
    "throttle",
    "frontier",
    "admin",
    "crawl",
    "sink::page",
    "sink::reply",
    "sink::results",
    "sink::function",
    "sink::traits",
];

#[test]
fn cli_uses_only_public_modules() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        let in_cli = file == "src/main.rs" || file.starts_with("src/cli/");
        if !in_cli {
            continue;
        }
        for (number, line) in code.lines().enumerate() {
            let ours = FLOORS
                .iter()
                .any(|(floor, _)| mentions(line, &format!("crate::{floor}::")));
            // The demo's servers have a house of their own to build, from the same ground.
            let plays_servers = file.starts_with("src/cli/demo/");
            let hidden = HIDDEN
                .iter()
                .filter(|hidden| !plays_servers || **hidden != "base")
                .any(|hidden| mentions(line, &format!("argiope::{hidden}::")));
            if ours || hidden {
                wrong.push(format!("{file}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "cli/ is an embedder like any other; what it needs belongs in lib.rs's front:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn listed_importers_exist() {
    let sources = sources();
    for (library, importers) in IMPORTERS {
        for importer in *importers {
            let (_, code) = sources
                .iter()
                .find(|(file, _)| file == importer)
                .unwrap_or_else(|| {
                    panic!("{importer} is listed for {library}, but does not exist")
                });
            let comes_in = code
                .lines()
                .any(|line| mentions(line, &format!("{library}::")));
            assert!(
                comes_in,
                "{importer} is listed, but does not import {library}"
            );
        }
    }
}

#[test]
fn no_stub_macros() {
    // Put together here, so that this file may name them.
    let stubs = ["todo", "unimplemented"].map(|name| format!("{name}!("));
    for (file, code) in sources() {
        for (number, line) in code.lines().enumerate() {
            assert!(
                !stubs.iter().any(|stub| mentions(line, stub)),
                "{file}:{}: what is not built yet has a seam, not a stub",
                number + 1
            );
        }
    }
}

#[test]
fn skipped_tests_print_past_the_harness() {
    // Put together here, so that this file may name it.
    let swallowed = format!("{}!(", "eprintln");
    let mut wrong = Vec::new();
    for (file, code) in sources().into_iter().chain(files("tests")) {
        for (number, line) in code.lines().enumerate() {
            if mentions(line, &swallowed) {
                wrong.push(format!("{file}:{}", number + 1));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "the harness hides this when a test passes; use loud::skip:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn cli_uses_no_macro_that_panics_on_write_errors() {
    // Put together here, so that a search for them finds uses alone.
    let macros = ["eprint", "eprintln", "print", "println", "dbg"].map(|name| format!("{name}!("));
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        let in_cli = file == "src/main.rs" || file.starts_with("src/cli/");
        // Elsewhere in the source only tests print, to stdout.
        let forbidden = if in_cli { &macros[..] } else { &macros[..2] };
        for (number, line) in code.lines().enumerate() {
            if forbidden.iter().any(|name| mentions(line, name)) {
                wrong.push(format!("{file}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "a closed terminal, a full disk or a reader that left makes these panic, and the frontier is \
         lost; use cli::stderr::write_line, or settings::print and its error:\n{}",
        wrong.join("\n")
    );
}

/// Identifiers that the style's table of words replaces, with what to write instead. `tell`, `say` and `hear`
/// are personification.
const REPLACED: &[(&str, &str)] = &[
    ("NotTaken", "SubmitError"),
    ("NotTold", "ControlError"),
    ("Heard", "Observation"),
    ("Ask", "ScopeQuery, or a verb: NeedsFetch"),
    ("Wish", "BodyMode"),
    ("Supply", "SourcePoll"),
    ("Load", "OpenLoop"),
    ("Roll", "ScopeTable"),
    ("Weather", "Faults"),
    ("Nowhere", "NullSink"),
    ("heed", "apply_commands"),
    ("heeded", "obeyed"),
    ("stir", "wake"),
    ("put_off", "requeue_at, defer"),
    ("go_on", "resume"),
    ("hear_nothing", "on_no_response"),
    ("let_in", "admit"),
    ("take_in", "drain_inbox"),
    ("scopes_untold", "scopes_omitted"),
    ("told", "reported, notified"),
    ("tell", "report, notify"),
    ("tells", "is_known, reports"),
    ("said", "given, sent, expected"),
    ("say", "send, set"),
    ("says", "contains, lists"),
    ("hear", "observe"),
    ("heard", "received"),
    ("final_", "is_final"),
];

/// The same of names that are plain words elsewhere: they may not be defined, except where they are meant
/// literally.
const REPLACED_DEFINITIONS: &[(&str, &str)] = &[
    ("Refused", "AdmitError"),
    ("Closed", "Over"),
    ("won", "on_race_won"),
    ("part", "close_flushed"),
    ("place", "slot"),
];

/// Where such a name is meant literally: closed connections, requests that a server refused, a piece of a
/// message, and a position in memory or on a wheel.
const LITERAL: &[(&str, &str)] = &[
    ("src/crawl/network/race.rs", "Closed"),
    ("src/throttle/suspect.rs", "Refused"),
    ("src/wire/dns/message.rs", "part"),
    ("src/base/pool.rs", "place"),
    ("src/base/wheel.rs", "place"),
    ("src/io/uring/buffers.rs", "place"),
];

#[test]
fn identifiers_are_the_plain_words_of_the_style() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        for (number, line) in code.lines().enumerate() {
            let mut before = "";
            for name in identifiers(line) {
                let is_defined = ["fn", "struct", "enum", "trait", "type"].contains(&before);
                let replaced = REPLACED.iter().find(|(old, _)| *old == name);
                let defined = REPLACED_DEFINITIONS
                    .iter()
                    .filter(|_| is_defined && !LITERAL.contains(&(file.as_str(), name)))
                    .find(|(old, _)| *old == name);
                if let Some((old, new)) = replaced.or(defined) {
                    wrong.push(format!("{file}:{}: {old}; write {new}", number + 1));
                }
                before = name;
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "use the field's word for what a thing is or does (CONTRIBUTING.md):\n{}",
        wrong.join("\n")
    );
}

/// The identifiers of a line's code, without its strings and comment.
fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or("");
    let outside = code.split('"').step_by(2);
    outside
        .flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|word| !word.is_empty())
}

/// The files that may contain `unsafe`: what the kernel, an allocator or a decompressor is asked through C, and what runs
/// before `main`.
const UNSAFE: &[&str] = &[
    "src/base/gzip.rs",
    "src/cli/allocator.rs",
    "src/cli/stdout.rs",
    "src/io/conformance/overtaken.rs",
    "src/io/results.rs",
    "src/io/shared_memory.rs",
    "src/io/sockets/socket.rs",
    "src/io/uring.rs",
    "src/io/uring/buffers.rs",
    "src/io/uring/pinned.rs",
    "src/io/uring/ring.rs",
    "src/testkit/stamp.rs",
];

#[test]
fn unsafe_code_is_in_named_files_alone() {
    let is_unsafe = |code: &str| {
        let forms = [
            "unsafe {",
            "unsafe fn ",
            "unsafe impl ",
            "unsafe extern ",
            "unsafe(",
        ];
        let mut lines = code.lines();
        lines.any(|line| forms.iter().any(|form| mentions(line, form)))
    };
    let found = sources().into_iter().filter(|(_, code)| is_unsafe(code));
    let found: Vec<String> = found.map(|(file, _)| file).collect();
    assert_eq!(
        found, UNSAFE,
        "a new file with unsafe code is a design decision"
    );
}

#[test]
fn every_file_begins_with_its_purpose() {
    for (file, code) in sources() {
        assert!(
            code.starts_with("//! ") || code.starts_with("#![doc"),
            "{file} must begin with a `//!` sentence that says why it exists"
        );
    }
}

/// Whether code (not a comment) on this line names the path.
fn mentions(line: &str, path: &str) -> bool {
    let code = line.split("//").next().unwrap_or("");
    code.match_indices(path).any(|(at, _)| {
        !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_')
    })
}

fn floor_of(file: &str) -> &str {
    file.strip_prefix("src/")
        .and_then(|rest| rest.split('/').next())
        .unwrap_or("")
}

/// Every source file as its path from the package's root, and its text.
fn sources() -> Vec<(String, String)> {
    files("src")
}

/// The same of the files in a folder.
fn files(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("it is readable") {
            let path: PathBuf = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let name = path.strip_prefix(root).expect("below the root");
                let text = fs::read_to_string(&path).expect("a source file is text");
                found.push((name.to_string_lossy().replace('\\', "/"), text));
            }
        }
    }
    found.sort();
    found
}
