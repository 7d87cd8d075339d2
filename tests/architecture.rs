//! The floors and the doors: which folder may import which, and the one file through which each
//! outside library comes in. A new row is a design decision; its commit says so first.

use std::fs;
use std::path::{Path, PathBuf};

/// What each floor may use, from the ground up. `main.rs` and `cli` use the public API only.
const FLOORS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("io", &["base"]),
    ("wire", &["base"]),
    ("fetch", &["base", "wire"]),
    ("throttle", &["base", "wire", "fetch"]),
    ("frontier", &["base", "wire", "throttle"]),
    // A sink may find links, and links are requests.
    ("sink", &["base", "wire", "fetch", "throttle", "frontier"]),
    (
        "crawl",
        &[
            "base", "io", "wire", "fetch", "throttle", "frontier", "sink",
        ],
    ),
];

/// The files through which a library comes in. Test modules use the same doors.
const DOORS: &[(&str, &[&str])] = &[
    ("mio", &["src/io/epoll.rs"]),
    // Strangers choose keys: every table hashes under the crawl's secret.
    ("foldhash", &["src/base/secret.rs"]),
    ("io_uring", &["src/io/uring/ring.rs"]),
    ("rustls", &["src/fetch/tls.rs"]),
    ("webpki_roots", &["src/fetch/tls.rs"]),
    ("httparse", &["src/wire/http/head.rs"]),
    ("httpdate", &["src/wire/date.rs"]),
    ("url", &["src/wire/url/standard.rs", "src/fetch/cookies.rs"]),
    ("cookie_store", &["src/fetch/cookies.rs"]),
    ("psl", &["src/wire/url.rs"]),
    ("html5gum", &["src/wire/html/tags.rs"]),
    ("encoding_rs", &["src/wire/charset.rs"]),
    ("chardetng", &["src/wire/charset.rs"]),
    ("quick_xml", &["src/wire/sitemap.rs"]),
    ("domain", &["src/wire/dns/message/tests.rs"]),
    ("resolv_conf", &["src/fetch/resolver/system.rs"]),
    ("flate2", &["src/wire/coding/engine.rs", "src/io/disk.rs"]),
    ("brotli_decompressor", &["src/wire/coding/engine.rs"]),
    ("zstd", &["src/wire/coding/engine.rs"]),
    // For digests; rustls has a module of the same name.
    ("aws_lc_rs", &["src/wire/warc.rs", "src/fetch/tls.rs"]),
    (
        "data_encoding",
        &[
            "src/wire/warc.rs",
            "src/wire/proxy.rs",
            "src/frontier/request.rs",
            "src/frontier/seeds.rs",
            "src/frontier/seeds/object.rs",
            "src/cli/json_lines.rs",
        ],
    ),
    (
        "hdrhistogram",
        &["src/crawl/stats.rs", "src/cli/probe/hdr.rs"],
    ),
    ("slab", &["src/base/slab.rs"]),
    ("clap", &["src/cli/args.rs", "src/cli/args/probe.rs"]),
    ("toml", &["src/cli/settings.rs"]),
    ("indicatif", &["src/cli/progress.rs"]),
    ("signal_hook", &["src/cli/signals.rs"]),
    ("mimalloc", &["src/cli/allocator.rs"]),
    ("libmimalloc_sys", &["src/cli/allocator.rs"]),
];

#[test]
fn imports_go_down() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        let floor = floor_of(&file);
        let Some((_, may)) = FLOORS.iter().find(|(name, _)| *name == floor) else {
            continue;
        };
        for (number, line) in code.lines().enumerate() {
            for (other, _) in FLOORS {
                let named = ["crate::", "super::super::"]
                    .iter()
                    .any(|prefix| mentions(line, &format!("{prefix}{other}::")));
                if named && *other != floor && !may.contains(other) {
                    wrong.push(format!(
                        "{file}:{}: {floor}/ may not use {other}/",
                        number + 1
                    ));
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

#[test]
fn each_library_has_its_door() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        for (library, doors) in DOORS {
            if doors.contains(&file.as_str()) {
                continue;
            }
            for (number, line) in code.lines().enumerate() {
                if mentions(line, &format!("{library}::"))
                    && !line.contains(&format!("::{library}::"))
                {
                    wrong.push(format!(
                        "{file}:{}: {library} comes in through {} only",
                        number + 1,
                        doors.join(" and ")
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "one door a library:\n{}",
        wrong.join("\n")
    );
}

/// Floors whose names the front hides: the binary does without them, save where it plays servers.
const HIDDEN: &[&str] = &["base", "io", "fetch", "throttle", "frontier", "crawl"];

#[test]
fn the_door_uses_the_public_front_only() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        let in_door = file == "src/main.rs" || file.starts_with("src/cli/");
        if !in_door {
            continue;
        }
        for (number, line) in code.lines().enumerate() {
            for (floor, _) in FLOORS {
                let ours = mentions(line, &format!("crate::{floor}::"));
                // The demo's servers have a house of their own to build, from the same ground.
                let plays_servers = file.starts_with("src/cli/demo/") && *floor == "base";
                let hidden = HIDDEN.contains(floor)
                    && !plays_servers
                    && mentions(line, &format!("argiope::{floor}::"));
                if ours || hidden {
                    wrong.push(format!("{file}:{}: {}", number + 1, line.trim()));
                }
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
fn every_door_exists_and_lets_its_library_in() {
    let sources = sources();
    for (library, doors) in DOORS {
        for door in *doors {
            let (_, code) = sources
                .iter()
                .find(|(file, _)| file == door)
                .unwrap_or_else(|| panic!("{door} is a door for {library}, but is not there"));
            let comes_in = code
                .lines()
                .any(|line| mentions(line, &format!("{library}::")));
            assert!(comes_in, "{door} is a door, but {library} does not use it");
        }
    }
}

#[test]
fn nothing_pretends_to_be_there() {
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
fn tests_say_past_their_harness_what_they_skip() {
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
        "nobody sees this when a test passes; say it with loud::skip:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_command_line_uses_no_macro_that_panics_when_its_output_is_lost() {
    // Put together here, so that a search for them finds uses alone.
    let macros = ["eprint", "eprintln", "print", "println", "dbg"].map(|name| format!("{name}!("));
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        let in_door = file == "src/main.rs" || file.starts_with("src/cli/");
        // Elsewhere in the source only tests print, to stdout.
        let forbidden = if in_door { &macros[..] } else { &macros[..2] };
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

#[test]
fn every_file_says_first_what_it_is_for() {
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
