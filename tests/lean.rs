//! The crates of the library without features, and the crates of each feature.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// Most crates in the tree of a build without features: argiope and procedural macros included, build
/// dependencies excluded.
const CRATES_MAX: usize = 95;

/// Crates that only a program should choose, so only the command has them: flags, progress bars, error
/// reports, signals, settings files and allocators. Its logger is its own.
const PROGRAMS_OWN: &[&str] = &[
    "anyhow",
    "clap",
    "clap_complete",
    "clap_mangen",
    "indicatif",
    "mimalloc",
    "signal-hook",
    "strsim",
    "toml",
];

/// Crates that neither uses, except for what a feature of programs names: other loggers, allocators and async runtimes, and other TLS than that of
/// rustls.
const NEVER: &[&str] = &[
    "async-std",
    "ctrlc",
    "env_logger",
    "fern",
    "jemallocator",
    "native-tls",
    "openssl",
    "ring",
    "simplelog",
    "tikv-jemallocator",
    "tokio",
    "tracing-subscriber",
];

/// Each feature, and the crates that it enables.
const FEATURES: &[(&str, &[&str])] = &[
    ("brotli", &["brotli-decompressor"]),
    ("cookies", &["cookie_store"]),
    (
        "extract",
        &["cssparser", "html5ever", "scraper", "selectors"],
    ),
    ("zstd", &["zstd"]),
    ("cli", PROGRAMS_OWN),
    ("parquet", &["parquet"]),
    ("futures", &["futures-core", "futures-sink"]),
    ("tokio", &["tokio"]),
];

/// Features that the command has only in a build that asks for them: `parquet` brings fifteen crates for
/// one flag of one command, which most users never give.
const ONLY_ON_REQUEST: &[&str] = &["parquet"];

/// Features for programs that embed the library: the command has no use for them.
const OF_PROGRAMS: &[&str] = &["futures", "tokio"];

#[test]
fn library_without_features_has_at_most_95_crates() {
    let lean = tree(&[]);
    for expected in ["argiope", "libc", "rustls", "serde_derive"] {
        assert!(
            lean.contains(expected),
            "no tree without {expected}: {lean:?}"
        );
    }
    assert!(
        lean.len() <= CRATES_MAX,
        "{} crates in the library's tree, of {CRATES_MAX} that it may have: {lean:?}",
        lean.len()
    );
}

#[test]
fn library_has_no_flags_logger_signals_or_allocator() {
    let lean = tree(&[]);
    for name in PROGRAMS_OWN.iter().chain(NEVER) {
        assert!(!lean.contains(name), "{name} is the program's own affair");
    }
}

#[test]
fn features_are_additive() {
    let lean = tree(&[]);
    for (feature, crates) in FEATURES {
        let with = tree(&[feature]);
        assert!(with.is_superset(&lean), "{feature} takes something away");
        for name in *crates {
            assert!(with.contains(name), "{feature} does not bring {name}");
            assert!(!lean.contains(name), "{name} is there without {feature}");
        }
    }
}

#[test]
fn cli_enables_all_features_but_those_on_request() {
    let all = FEATURES.iter().map(|(feature, _)| *feature);
    let all = all.filter(|feature| !OF_PROGRAMS.contains(feature));
    let (without, with): (Vec<&str>, Vec<&str>) =
        all.partition(|feature| ONLY_ON_REQUEST.contains(feature));
    assert_eq!(without, ONLY_ON_REQUEST, "each is a feature");
    assert_eq!(
        tree(&["default"]),
        tree(&with),
        "the command has every other feature"
    );
    for feature in without {
        assert!(
            tree(&[feature]).is_superset(&tree(&["default"])),
            "{feature} is the command and more"
        );
    }
}

#[test]
fn features_of_programs_bring_traits_and_channels_alone() {
    let lean = tree(&[]).len();
    assert_eq!(tree(&["futures"]).len(), lean + 2);
    assert_eq!(tree(&["tokio"]).len(), lean + 4, "no runtime");
}

#[test]
fn every_feature_is_documented() {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo writes JSON");
    let features = metadata["packages"][0]["features"].as_object();
    let there: BTreeSet<&str> = features
        .expect("features")
        .keys()
        .map(String::as_str)
        .collect();
    let here = FEATURES.iter().map(|(feature, _)| *feature);
    assert_eq!(
        there,
        here.chain(["default"]).collect(),
        "this test knows all"
    );
    let guide = include_str!("../docs/guide/embedding.md");
    let (_, section) = guide.split_once("### Features").expect("a section");
    let section = section.split("\n#").next().unwrap_or(section);
    for (feature, _) in FEATURES {
        assert!(
            section.contains(&format!("| `{feature}` |")),
            "{feature} has no row in the guide"
        );
    }
}

/// The names and versions of the crates that a program gets with the library and these features.
fn tree(features: &[&str]) -> Tree {
    let features = features.join(",");
    let lines = cargo(&[
        "tree",
        "--no-default-features",
        "--features",
        &features,
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    // `name v1.2.3`, then perhaps its path, and a star if it was listed before.
    let name = |line: &str| {
        let mut words = line.split(' ');
        let (name, version) = (words.next()?, words.next()?);
        Some((name.to_owned(), version.to_owned()))
    };
    Tree(lines.lines().filter_map(name).collect())
}

/// Names and versions: two versions of a crate are two crates.
#[derive(Debug, PartialEq, Eq)]
struct Tree(BTreeSet<(String, String)>);

impl Tree {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|(own, _)| own == name)
    }

    fn is_superset(&self, other: &Tree) -> bool {
        self.0.is_superset(&other.0)
    }
}

/// Output of cargo for this package, offline: everything was downloaded to build this test.
fn cargo(arguments: &[&str]) -> String {
    let ran = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--offline", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(
        ran.status.success(),
        "cargo {arguments:?}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );
    String::from_utf8(ran.stdout).expect("cargo writes UTF-8")
}
