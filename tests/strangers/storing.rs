//! Tests of `examples/sqlite.rs`: rows of a crawl that is killed and continued.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use argiope::{Config, FinishReason};
use rusqlite::Connection;

use crate::in_time;
use crate::loopback::{Reply, Server, crawling};
use crate::sqlite::crawl;

const PAGES: usize = 150;
/// Names of what a process that is to be killed is given.
const FOLDER: &str = "ARGIOPE_TEST_FOLDER";
const HERE: &str = "ARGIOPE_TEST_RESOLVE";

fn config(here: &str) -> Config {
    crawling::config(&[
        ("ALLOW_NET", "loopback"),
        ("RESOLVE", here),
        ("DOWNLOAD_DELAY", "3ms"),
        ("STATE_SYNC", "20ms"),
        ("FOLLOW", "host"),
    ])
}

/// Crawls in a process of its own.
fn start(folder: &Path, here: &str) -> Child {
    Command::new(env::current_exe().expect("its path"))
        .args(["--ignored", "--exact", "storing::a_crawl_to_be_killed"])
        .env(FOLDER, folder)
        .env(HERE, here)
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts")
}

/// Adds a row of an epoch that the crawl has not recorded, as if it had been killed just before that.
fn prepare_a_row(path: &Path) {
    let database = Connection::open(path).expect("a database");
    let insert = "INSERT OR REPLACE INTO page VALUES (1000000, 1000000, 'lost', 1, 200, NULL, '')";
    let has_table = "SELECT count(*) FROM sqlite_master WHERE name = 'page'";
    let tables: u32 = database
        .query_row(has_table, [], |row| row.get(0))
        .expect("a number");
    if tables > 0 {
        database.execute(insert, []).expect("it is written");
    }
}

#[test]
#[ignore = "a process for the other test, which kills it"]
fn a_crawl_to_be_killed() {
    let (Ok(folder), Ok(here)) = (env::var(FOLDER), env::var(HERE)) else {
        return;
    };
    let urls = vec!["http://a.test/0".to_owned()];
    let reason = crawl(folder.as_ref(), config(&here), urls).expect("it crawls");
    assert_eq!(reason, FinishReason::Finished);
}

#[test]
fn each_page_is_a_row_once_when_the_crawl_is_killed_again_and_again() {
    in_time(|| {
        let server = Server::start(|asked| {
            let number: usize = asked.target.trim_start_matches('/').parse().unwrap_or(0);
            let link = |step: usize| format!("<a href=/{}>x</a>", (number + step) % PAGES);
            Reply::page([1, 2, 40].map(link).concat()).after(Duration::from_millis(2))
        });
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pages.sqlite");
        let mut kills = 0;
        loop {
            let mut process = start(folder.path(), &server.here());
            thread::sleep(Duration::from_millis(100 + kills * 37 % 90));
            if let Some(status) = process.try_wait().expect("it can be waited for") {
                assert!(status.success(), "{status}");
                break;
            }
            process.kill().expect("it runs");
            process.wait().expect("it can be waited for");
            kills += 1;
            prepare_a_row(&path);
            assert!(kills < 200, "the crawl makes no progress");
        }
        assert!(kills >= 3, "it was killed {kills} times");
        let asked = server.asked_of(|asked| asked.target != "/robots.txt").len();
        assert!(asked > PAGES, "some are asked for again: {asked}");
        let database = Connection::open(&path).expect("a database");
        let mut rows = database
            .prepare("SELECT url FROM page WHERE final")
            .expect("a query");
        let urls = rows.query_map([], |row| row.get(0)).expect("rows");
        let urls: Vec<String> = urls.collect::<Result<_, _>>().expect("texts");
        assert_eq!(urls.len(), PAGES);
        let urls: BTreeSet<String> = urls.into_iter().collect();
        assert_eq!(urls.len(), PAGES, "each has one row");
    });
}
