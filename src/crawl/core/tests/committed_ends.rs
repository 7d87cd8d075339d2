//! A source is notified of an end after the commit that covers it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::base::shared::Shared;
use crate::crawl::control::feed::{EndedRequest, RequestSource, SourceError, SourcePoll, Wake};
use crate::crawl::core::tests::trial::{config, web_resolver};
use crate::crawl::journal::state::State;
use crate::crawl::{Crawler, FinishReason, Turn};
use crate::frontier::request::Request;
use crate::io::IoSettings;
use crate::io::sim::web::{Reply, Web};
use crate::io::sim::{Faults, Sim};
use crate::sink::Sink;
use crate::sink::commit::Epoch;
use crate::sink::page::Page;

const ROWS: u64 = 40;

/// Tags of pages, by how far they are.
#[derive(Clone, Default)]
struct Table {
    put: Shared<BTreeSet<u64>>,
    prepared: Shared<BTreeSet<u64>>,
    committed: Shared<BTreeSet<u64>>,
    ended: Shared<BTreeSet<u64>>,
    requeued: Shared<BTreeSet<u64>>,
}

/// The number of the last row, the table, and whether it keeps its rows until they have ended.
struct Rows(u64, Table, bool);

impl RequestSource for Rows {
    fn next(&mut self, _wake: &Wake) -> Result<SourcePoll, SourceError> {
        self.0 += 1;
        Ok(match self.0 {
            tag @ 1..=ROWS => {
                SourcePoll::Request(Request::get(format!("http://a.test/{tag}")).tag(tag))
            }
            _ => SourcePoll::Finished,
        })
    }

    fn ended(&mut self, ended: &EndedRequest<'_>) {
        let Table {
            ended: all,
            requeued,
            ..
        } = &self.1;
        match ended.should_requeue() {
            true => assert!(requeued.borrow_mut().insert(ended.tag), "once"),
            false => assert!(all.borrow_mut().insert(ended.tag), "once"),
        }
    }

    fn at_once(&self) -> usize {
        5
    }

    fn keeps_requests(&self) -> bool {
        self.2
    }
}

impl Sink for Table {
    fn put(&mut self, page: &mut Page) {
        self.put.borrow_mut().insert(page.tag);
    }

    fn prepare(&mut self, _epoch: Epoch) {
        let mut put = self.put.borrow_mut();
        self.prepared.borrow_mut().append(&mut put);
    }

    fn committed(&mut self, _epoch: Epoch) {
        let mut prepared = self.prepared.borrow_mut();
        self.committed.borrow_mut().append(&mut prepared);
    }
}

/// A crawl of the rows, and the table.
fn crawl(keeps: bool, state_sync: Duration) -> (Crawler<Sim>, Table) {
    let web = Web::new(|_| Reply::page("a page").after(Duration::from_millis(5)));
    let mut config = config(1);
    config.frontier.robots_obey = false;
    config.state_sync = state_sync;
    config.stop_grace = Duration::from_secs(1);
    let resolver = web_resolver();
    let faults = Faults {
        disk_latency_max: Duration::from_millis(10),
        ..Faults::default()
    };
    let mut io = Sim::with(1, IoSettings::default(), faults, web.world());
    let state = State::new("out".as_ref(), String::new(), [1; 16]).expect("it is short");
    let mut files = BTreeMap::new();
    state.beginning().write_to(&mut files);
    io.put_files(files);
    let table = Table::default();
    let config = config.finish().expect("a sound config");
    let builder = Crawler::builder(config).state(state).sink(table.clone());
    let builder = builder.source(Rows(0, table.clone(), keeps));
    let crawler = builder.build_on(io, resolver).expect("a crawler");
    (crawler, table)
}

/// Runs the crawl for so many turns at most; returns why it ended, and the table.
fn run(turns: usize, stops: bool) -> (Option<FinishReason>, Table) {
    let (mut crawler, table) = crawl(true, Duration::from_millis(30));
    for turn in 0..turns {
        if stops && turn == turns / 2 {
            crawler.stopper().stop();
        }
        if let Turn::Over(reason) = crawler.turn(None) {
            return (Some(reason), table);
        }
        let (ended, committed) = (table.ended.borrow(), table.committed.borrow());
        assert!(ended.is_subset(&committed), "{ended:?} of {committed:?}");
    }
    (None, table)
}

#[test]
fn a_source_is_notified_of_ends_that_are_committed() {
    let (reason, table) = run(100_000, false);
    assert_eq!(reason, Some(FinishReason::Finished));
    assert_eq!(table.ended.borrow().len() as u64, ROWS);
    assert_eq!(table.requeued.borrow().len(), 0);
    assert_eq!(*table.ended.borrow(), *table.committed.borrow());
}

#[test]
fn ends_that_are_not_committed_are_left_for_the_next_run() {
    let mut requeued = 0;
    for turns in [20, 60, 100, 140, 180] {
        let (reason, table) = run(turns, false);
        assert_eq!(reason, None, "it was dropped in the middle");
        let (ended, left) = (table.ended.borrow(), table.requeued.borrow());
        assert!(ended.is_disjoint(&left));
        assert!(ended.is_subset(&table.committed.borrow()));
        assert!(
            table.put.borrow().is_subset(&left),
            "their results are lost"
        );
        requeued += left.len();
    }
    assert!(requeued > 0);
    let (reason, table) = run(200, true);
    assert_eq!(reason, Some(FinishReason::Shutdown));
    let (ended, left) = (table.ended.borrow(), table.requeued.borrow());
    assert!(ended.is_disjoint(&left) && ended.is_subset(&table.committed.borrow()));
}

#[test]
fn a_source_that_keeps_no_requests_gives_more_before_a_commit() {
    let (mut crawler, table) = crawl(false, Duration::from_secs(100));
    assert_eq!(crawler.run(), FinishReason::Finished);
    assert_eq!(table.ended.borrow().len() as u64, ROWS);
    let took = crawler.elapsed();
    assert!(took < Duration::from_secs(50), "{took:?}");
}
