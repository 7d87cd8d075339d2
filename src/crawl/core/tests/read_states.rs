//! What is read of a crawl's state while the crawl may be running.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::crawl::core::tests::trial::{config, finish, web_resolver};
use crate::crawl::journal::contents::StateContents;
use crate::crawl::journal::state::State;
use crate::crawl::{Crawler, Parts};
use crate::frontier::request::Request;
use crate::io::IoSettings;
use crate::io::sim::web::{Reply, Web};
use crate::io::sim::{Faults, Sim};
use crate::sink::NullSink;
use crate::sink::directory::SEEN;
use crate::wire::url::CrawlUrl;

const PAGES: u64 = 40;

fn url(page: u64) -> CrawlUrl {
    CrawlUrl::parse(&format!("http://a.test/{page}")).expect("a URL")
}

/// The files of a crawl that is over; most of its seen set is on disk.
fn files_of_a_crawl(out: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let web = Web::new(|_| Reply::page("a page"));
    let mut config = config(1);
    config.frontier.seen_memory_max = 1;
    let state = State::new(out, String::new(), [1; 16]).expect("it is short");
    let mut io = Sim::with(1, IoSettings::default(), Faults::default(), web.world());
    let mut files = BTreeMap::new();
    state.beginning().write_to(&mut files);
    io.put_files(files);
    let mut parts = Parts::new(NullSink);
    parts.state = Some(state);
    let config = config.finish().expect("a sound config");
    let mut crawler = Crawler::on(io, config, web_resolver(), parts).expect("a crawler");
    for page in 0..PAGES {
        let request = Request::get(url(page).to_string());
        crawler.submit(request).expect("it is a URL");
    }
    finish(&mut crawler);
    crawler.io().files().clone()
}

/// Writes these files to disk. Returns those of the seen set.
fn write(out: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<PathBuf> {
    fs::create_dir(out.join("state")).expect("it can be made");
    for (path, bytes) in files.iter().filter(|(path, _)| path.starts_with(out)) {
        fs::write(path, bytes).expect("it can be written");
    }
    let is_run = |path: &&PathBuf| path.display().to_string().contains(SEEN);
    let runs: Vec<PathBuf> = files.keys().filter(is_run).cloned().collect();
    assert!(!runs.is_empty(), "{:?}", files.keys());
    runs
}

fn remove(files: &[PathBuf]) {
    for file in files {
        fs::remove_file(file).expect("it is there");
    }
}

/// Number of pages that have ended.
fn ended(contents: &StateContents) -> u64 {
    let pages = (0..PAGES).filter(|page| contents.has_ended(&url(*page)));
    pages.count() as u64
}

#[test]
fn runs_that_a_crawl_merges_away_can_still_be_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path();
    let runs = write(out, &files_of_a_crawl(out));
    let contents = StateContents::read(out).expect("it can be read");
    remove(&runs);
    assert_eq!(ended(&contents), PAGES);
    assert!(!contents.has_ended(&url(PAGES)));
    // Those that are missing are left out.
    let contents = StateContents::read(out).expect("the rest can be read");
    assert!(ended(&contents) < PAGES);
}

#[test]
fn files_that_a_crawl_removes_while_its_journal_is_read_are_open_by_then() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path();
    let mut runs = write(out, &files_of_a_crawl(out));
    let contents = StateContents::read_watched(out, |_| remove(&std::mem::take(&mut runs)));
    assert_eq!(ended(&contents.expect("it can be read")), PAGES);
    assert!(runs.is_empty(), "they were removed meanwhile");
}
