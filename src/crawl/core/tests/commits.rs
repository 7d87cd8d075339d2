//! The commit at the end of a crawl, in virtual time.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use crate::base::disk::DiskJob;
use crate::base::shared::Shared;
use crate::crawl::config::Config;
use crate::crawl::core::tests::trial::{self, calm, finish, get, web_resolver};
use crate::crawl::finish::FinishReason;
use crate::crawl::journal::state::State;
use crate::crawl::{Crawler, Parts, Turn};
use crate::fetch::resolver::ResolverSettings;
use crate::frontier::request::Request;
use crate::io::IoSettings;
use crate::io::sim::web::{Asked, Reply, Web};
use crate::io::sim::{Faults, Sim};
use crate::sink::commit::{Epoch, FileLength};
use crate::sink::files::{FileSink, FileSinkOptions, WarcOptions};
use crate::sink::page::Page;
use crate::sink::tee::Tee;
use crate::sink::{DiskSink, NullSink, WriteError};
use crate::state::journal::Reader;
use crate::state::record::{About, Record};

/// A call that the crawl makes to the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Put,
    Finish,
    Prepare(Epoch),
    Prepared(Epoch),
    Committed(Epoch),
}

/// The second sink of a tee: asked whether it is prepared once the first one is.
struct Witness {
    calls: Shared<Vec<Call>>,
    /// Whether a write fails while an epoch is being prepared.
    fails: bool,
    failure: Option<WriteError>,
}

impl DiskSink for Witness {
    fn put(&mut self, _page: &mut Page, _disk: &mut Vec<DiskJob>) {
        self.calls.borrow_mut().push(Call::Put);
    }

    fn finish(&mut self, _disk: &mut Vec<DiskJob>) {
        self.calls.borrow_mut().push(Call::Finish);
    }

    fn prepare(&mut self, epoch: Epoch, _disk: &mut Vec<DiskJob>) {
        self.calls.borrow_mut().push(Call::Prepare(epoch));
        let full = || WriteError::new("out", &ErrorKind::StorageFull.into());
        self.failure = self.fails.then(full);
    }

    fn failure(&self) -> Option<&WriteError> {
        self.failure.as_ref()
    }

    fn prepared(&self, epoch: Epoch) -> Option<Vec<FileLength>> {
        self.calls.borrow_mut().push(Call::Prepared(epoch));
        Some(Vec::new())
    }

    fn committed(&mut self, epoch: Epoch, _disk: &mut Vec<DiskJob>) {
        self.calls.borrow_mut().push(Call::Committed(epoch));
    }
}

/// A crawl of three pages into files, on a slow disk.
fn run(fails: bool) -> (Crawler<Sim>, FinishReason, Vec<Call>) {
    let world = calm(Duration::from_millis(10));
    let mut config = Config::default();
    config.frontier.robots_obey = false;
    config.allow_net = vec!["10.0.0.0/8".to_owned()];
    config.random_seed = Some(1);
    let faults = Faults {
        disk_latency_max: Duration::from_millis(500),
        ..Faults::default()
    };
    let io = Sim::with(1, IoSettings::default(), faults, Box::new(world));
    let calls = Shared::new(Vec::new());
    let files = FileSink::new(FileSinkOptions {
        warc: Some(WarcOptions::new("a.test", [7; 16])),
        ..FileSinkOptions::new("out")
    });
    let witness = Witness {
        calls: calls.clone(),
        fails,
        failure: None,
    };
    let parts = Parts::new(Tee::new(files, witness));
    let config = config.finish().expect("a sound config");
    let mut crawler =
        Crawler::on(io, config, ResolverSettings::default(), parts).expect("a crawler");
    for page in 0..3 {
        crawler.submit(get(1, page)).expect("it is a URL");
    }
    for _ in 0..100_000 {
        if let Turn::Over(reason) = crawler.turn(None) {
            let calls = calls.borrow().clone();
            return (crawler, reason, calls);
        }
    }
    panic!("the crawl does not end: {:?}", crawler.progress());
}

#[test]
fn the_last_epoch_is_committed_once_every_file_is_durable() {
    let (crawler, reason, calls) = run(false);
    assert_eq!(reason, FinishReason::Finished);
    let files = crawler.io().files();
    assert_eq!(files.len(), 3, "result lines, records and their index");
    for (path, content) in files {
        let synced = crawler.io().synced(path);
        assert_eq!(synced, content.len(), "{}", path.display());
    }
    let epoch = Epoch(1);
    let ends = [
        Call::Finish,
        Call::Prepare(epoch),
        Call::Prepared(epoch),
        Call::Committed(epoch),
    ];
    assert_eq!(calls[..3], [Call::Put, Call::Put, Call::Put]);
    assert_eq!(calls[3..], ends);
}

#[test]
fn an_epoch_is_not_committed_if_a_write_fails_while_it_is_prepared() {
    let (_, reason, calls) = run(true);
    assert_eq!(reason, FinishReason::SinkFailed);
    assert!(calls.contains(&Call::Prepare(Epoch(1))));
    assert!(!calls.contains(&Call::Committed(Epoch(1))));
}

#[test]
fn counts_of_many_hosts_are_recorded_before_they_are_committed() {
    const HOSTS: u64 = 40;
    let out = Path::new("out");
    let web = Web::new(|asked: &Asked| {
        let host = asked.host.trim_start_matches('h').trim_end_matches(".test");
        let host: u64 = host.parse().unwrap_or(0);
        Reply::page("a page").after(Duration::from_millis(20 * host))
    });
    let mut config = trial::config(1);
    config.frontier.pages_per_host_max = 5;
    config.state_sync = Duration::from_secs(60);
    let state = State::new(out, String::new(), [1; 16]).expect("it is short");
    let mut io = Sim::with(1, IoSettings::default(), Faults::default(), web.world());
    let mut files = BTreeMap::new();
    state.beginning().write_to(&mut files);
    io.put_files(files);
    let mut parts = Parts::new(NullSink);
    parts.state = Some(state);
    let config = config.finish().expect("a sound config");
    let mut crawler = Crawler::on(io, config, web_resolver(), parts).expect("a crawler");
    for host in 0..HOSTS {
        let request = Request::get(format!("http://h{host}.test/"));
        crawler.submit(request).expect("it is a URL");
    }
    finish(&mut crawler);
    let is_count = |record: &Record| matches!(record, Record::Fact(fact) if fact.about == About::Counts && !fact.name.is_empty());
    let journal = &crawler.io().files()[&out.join("state/journal-00000001")];
    let records = Reader::new(journal).expect("a segment");
    let records: Vec<Record> = records.map(|record| record.expect("a record")).collect();
    let counted = records.iter().filter(|record| is_count(record)).count();
    assert_eq!(counted as u64, HOSTS);
    let together = records.chunk_by(|one, next| is_count(one) && is_count(next));
    let longest = together.map(<[Record]>::len).max();
    assert!(longest <= Some(8), "{longest:?} in one turn");
}
