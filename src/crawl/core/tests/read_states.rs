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

#[test]
fn runs_that_a_crawl_merges_away_can_still_be_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path();
    fs::create_dir(out.join("state")).expect("it can be made");
    let files = files_of_a_crawl(out);
    for (path, bytes) in files.iter().filter(|(path, _)| path.starts_with(out)) {
        fs::write(path, bytes).expect("it can be written");
    }
    let ended = |contents: &StateContents| {
        let pages = (0..PAGES).filter(|page| contents.has_ended(&url(*page)));
        pages.count() as u64
    };
    let contents = StateContents::read(out).expect("it can be read");
    let runs: Vec<&PathBuf> = (files.keys())
        .filter(|path| path.display().to_string().contains(SEEN))
        .collect();
    assert!(!runs.is_empty(), "{:?}", files.keys());
    for run in runs {
        fs::remove_file(run).expect("it is there");
    }
    assert_eq!(ended(&contents), PAGES);
    assert!(!contents.has_ended(&url(PAGES)));
    // Those that are missing are left out.
    let contents = StateContents::read(out).expect("the rest can be read");
    assert!(ended(&contents) < PAGES);
}
