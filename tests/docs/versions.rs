//! The version of the compiler: as documented, and enough for every dependency.

use std::process::Command;

use argiope::serde_json::{self, Value};

use crate::tree::read;

#[test]
fn documented_msrv_matches_the_manifest() {
    let manifest = read("Cargo.toml");
    let (_, version) = manifest
        .split_once("\nrust-version = \"")
        .expect("a version");
    let version = version.split('"').next().expect("a version");
    let page = read("docs/stability.md");
    assert!(page.contains(&format!("**{version}**")), "{version}");
}

#[test]
fn no_dependency_needs_a_newer_compiler() {
    let ran = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version", "1"])
        // Cargo has fetched only what this platform builds.
        .args(["--filter-platform", &host()])
        .args([
            "--manifest-path",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ])
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    let metadata: Value = serde_json::from_slice(&ran.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let version = |package: &Value| -> Option<Vec<u32>> {
        let version = package["rust_version"].as_str()?;
        version
            .split('.')
            .take(2)
            .map(|part| part.parse().ok())
            .collect()
    };
    let ours = packages.iter().find(|package| package["name"] == "argiope");
    let ours = ours.and_then(version).expect("our own version");
    for package in packages {
        let theirs = version(package).unwrap_or_default();
        let name = &package["name"];
        assert!(
            theirs <= ours,
            "{name} wants {theirs:?}, we promise {ours:?}"
        );
    }
}

/// The platform of the compiler, such as `x86_64-unknown-linux-gnu`.
fn host() -> String {
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let ran = Command::new(compiler)
        .arg("-vV")
        .output()
        .expect("rustc runs");
    let said = String::from_utf8(ran.stdout).expect("rustc writes UTF-8");
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc names its host").to_owned()
}
