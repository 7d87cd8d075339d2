//! Crawls in virtual time for the tests of feeding and steering.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::crawl::config::Config;
use crate::crawl::control::feed::RequestSource;
use crate::crawl::core::tests::watch::Watch;
use crate::crawl::{Crawler, FinishReason, Handle, Parts, Stopper, Turn};
use crate::fetch::resolver;
use crate::frontier::request::Request;
use crate::io::sim::web::Web;
use crate::io::sim::{Faults, Origins, Sim, World};
use crate::io::{Io, IoSettings};
use crate::sink::later::LinksLater;
use crate::sink::page::Page;
use crate::sink::reply::{BodyMode, Reply};
use crate::sink::{Sink, WriteError};
use crate::throttle::settings::Jitter;

/// State of a crawl's sink, shared with the test that reads and steers it.
#[derive(Clone, Default)]
pub struct SinkRecord {
    pub pages: Shared<Vec<Page>>,
    /// Number of pages it accepts before it is full; `None` for any number.
    pub room: Shared<Option<usize>>,
    pub fails: Shared<bool>,
    /// Each page whose head has arrived, held open, with its URL; `None` to hold none.
    pub open: Shared<Option<Vec<(String, LinksLater)>>>,
}

struct RecordingSink {
    record: SinkRecord,
    failure: WriteError,
}

impl Sink for RecordingSink {
    fn on_head(&mut self, reply: &Reply<'_>) -> BodyMode {
        if let Some(open) = &mut *self.record.open.borrow_mut() {
            open.push((reply.url.to_owned(), reply.links_later()));
        }
        BodyMode::Keep
    }

    fn put(&mut self, page: &mut Page) {
        self.record.pages.borrow_mut().push(std::mem::take(page));
    }

    fn is_ready(&self) -> bool {
        let room = self.record.room.get();
        room.is_none_or(|room| self.record.pages.borrow().len() < room)
    }

    fn failure(&self) -> Option<&WriteError> {
        self.record.fails.get().then_some(&self.failure)
    }
}

impl SinkRecord {
    /// End of a request by its number, if it is final: `200`, or `cancelled.asked`.
    pub fn end(&self, id: u64) -> Option<String> {
        let pages = self.pages.borrow();
        let mut ends = pages.iter().filter(|page| page.root == id && page.is_final);
        let end = ends.next()?;
        assert!(ends.next().is_none(), "{id} has ended twice");
        Some(match (&end.failure, end.status) {
            (Some(failure), _) => format!("{}.{}", failure.kind.as_str(), failure.name),
            (None, status) => status.unwrap_or(0).to_string(),
        })
    }
}

/// A crawler of simulated servers, its handle, and the record of its sink.
pub fn crawl(
    world: impl World + 'static,
    seed: u64,
    edit: impl FnOnce(&mut Config, &mut IoSettings),
) -> (Crawler<Sim>, Handle, SinkRecord) {
    let (crawler, record) = crawl_from(None, world, seed, edit);
    let handle = crawler.handle();
    (crawler, handle, record)
}

/// A crawler as of [`crawl`], of which handles submit at most `ahead` beyond what is being fetched.
pub fn crawl_ahead(
    ahead: usize,
    world: impl World + 'static,
    edit: impl FnOnce(&mut Config, &mut IoSettings),
) -> (Crawler<Sim>, Handle, SinkRecord) {
    let edit_parts = |parts: &mut Parts| parts.ahead_max = ahead;
    let world = Box::new(world);
    let (crawler, record) = crawl_with(Faults::default(), edit_parts, world, 1, edit);
    let handle = crawler.handle();
    (crawler, handle, record)
}

/// A crawler as of [`crawl`], with a source.
pub fn crawl_from(
    source: Option<Box<dyn RequestSource>>,
    world: impl World + 'static,
    seed: u64,
    edit: impl FnOnce(&mut Config, &mut IoSettings),
) -> (Crawler<Sim>, SinkRecord) {
    crawl_under(Faults::default(), source, world, seed, edit)
}

/// A crawler as of [`crawl`], on a network with faults.
pub fn crawl_under(
    faults: Faults,
    source: Option<Box<dyn RequestSource>>,
    world: impl World + 'static,
    seed: u64,
    edit: impl FnOnce(&mut Config, &mut IoSettings),
) -> (Crawler<Sim>, SinkRecord) {
    crawl_in(faults, source, Box::new(world), seed, edit)
}

/// A crawler of a world that the test shares, under faults, and the record of its sink.
pub fn crawl_in_world(
    world: impl World + 'static,
    faults: Faults,
    edit: impl FnOnce(&mut Config, &mut IoSettings),
) -> (Crawler<Sim>, SinkRecord) {
    crawl_in(faults, None, Box::new(world), 1, edit)
}

/// A crawler of a [`Web`] with names, and the record of its sink.
pub fn crawl_named_web(
    web: &Web,
    edit: impl FnOnce(&mut Config, &mut IoSettings),
) -> (Crawler<Sim>, SinkRecord) {
    let world = web.world();
    crawl_by(web_resolver(), Faults::default(), |_| {}, world, 1, edit)
}

/// A crawler of a [`Web`], and the record of its sink.
pub fn crawl_web(
    web: &Web,
    edit: impl FnOnce(&mut Config, &mut IoSettings),
) -> (Crawler<Sim>, SinkRecord) {
    crawl_in(Faults::default(), None, web.world(), 1, edit)
}

/// Settings of a resolver that asks the name server of a simulated web.
pub fn web_resolver() -> resolver::ResolverSettings {
    resolver::ResolverSettings {
        servers: vec![Web::name_server()],
        ..resolver::ResolverSettings::default()
    }
}

/// Settings without delay and robots.txt, which allow the simulated addresses.
pub fn config(seed: u64) -> Config {
    let mut config = Config::default();
    config.throttle.default.delay = Duration::ZERO;
    config.throttle.default.delay_per_slot = Duration::ZERO;
    config.throttle.default.jitter = Jitter::NONE;
    config.frontier.robots_obey = false;
    config.allow_net = vec!["10.0.0.0/8".to_owned()];
    config.random_seed = Some(seed);
    config
}

fn crawl_in(
    faults: Faults,
    source: Option<Box<dyn RequestSource>>,
    world: Box<dyn World>,
    seed: u64,
    edit: impl FnOnce(&mut Config, &mut IoSettings),
) -> (Crawler<Sim>, SinkRecord) {
    crawl_with(faults, |parts| parts.source = source, world, seed, edit)
}

fn crawl_with(
    faults: Faults,
    edit_parts: impl FnOnce(&mut Parts),
    world: Box<dyn World>,
    seed: u64,
    edit: impl FnOnce(&mut Config, &mut IoSettings),
) -> (Crawler<Sim>, SinkRecord) {
    let names = resolver::ResolverSettings {
        servers: vec!["10.0.0.53:53".parse().expect("an address")],
        ..resolver::ResolverSettings::default()
    };
    crawl_by(names, faults, edit_parts, world, seed, edit)
}

fn crawl_by(
    names: resolver::ResolverSettings,
    faults: Faults,
    edit_parts: impl FnOnce(&mut Parts),
    world: Box<dyn World>,
    seed: u64,
    edit: impl FnOnce(&mut Config, &mut IoSettings),
) -> (Crawler<Sim>, SinkRecord) {
    let mut config = config(seed);
    let mut settings = IoSettings::default();
    edit(&mut config, &mut settings);
    let io = Sim::with(seed, settings, faults, world);
    let record = SinkRecord::default();
    let sink = RecordingSink {
        record: record.clone(),
        failure: WriteError {
            path: PathBuf::from("nowhere"),
            cause: io::ErrorKind::StorageFull.into(),
        },
    };
    let config = config.finish().expect("a sound config");
    let mut parts = Parts::new(sink);
    edit_parts(&mut parts);
    let crawler = Crawler::on(io, config, names, parts).expect("a crawler");
    (crawler, record)
}

/// Servers at 10.0.0.1 to 10.0.0.3, each with many pages, which answer after `think`.
pub fn calm(think: Duration) -> Shared<Origins> {
    let mut origins = Origins::default();
    for host in 1..=3 {
        let at: SocketAddr = format!("10.0.0.{host}:80").parse().expect("an address");
        for page in 0..300 {
            let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n!";
            origins.reply(at, &format!("/{page}"), think, reply);
        }
        let reply = b"HTTP/1.1 302 Found\r\nlocation: /1\r\ncontent-length: 0\r\n\r\n";
        origins.reply(at, "/there", think, reply);
    }
    Shared::new(origins)
}

pub fn get(host: u32, page: u32) -> Request {
    Request::get(format!("http://10.0.0.{host}/{page}"))
}

/// Runs one turn, and checks the timers.
pub fn turn(crawler: &mut Crawler<Sim>, patience: Option<Duration>) -> Turn {
    Watch::default().turn(crawler, patience)
}

/// Runs turns for this long.
pub fn run_for(crawler: &mut Crawler<Sim>, span: Duration) -> usize {
    let until = crawler.io().now() + span;
    let mut turns = 0;
    let mut watch = Watch::default();
    while crawler.io().now() < until {
        let left = until.saturating_since(crawler.io().now());
        assert_eq!(watch.turn(crawler, Some(left)), Turn::GoesOn);
        turns += 1;
    }
    turns
}

pub fn finish(crawler: &mut Crawler<Sim>) -> FinishReason {
    let mut watch = Watch::default();
    for _ in 0..300_000 {
        if let Turn::Over(reason) = watch.turn(crawler, Some(Duration::from_secs(3600))) {
            return reason;
        }
    }
    panic!("the crawl does not end: {:?}", crawler.progress());
}

impl SinkRecord {
    /// Gives the sink room for a few more pages, or for any number.
    pub fn change_room(&self, rng: &mut Rng) {
        let taken = self.pages.borrow().len();
        self.room
            .set(rng.chance(0.2).then_some(taken + rng.below(3) as usize));
    }

    /// Stops a crawl in one of four ways; by any other number not at all.
    pub fn stop(&self, how: u64, stopper: &Stopper, rng: &mut Rng) {
        match how {
            0 => stopper.shutdown(Duration::from_millis(rng.below(2500))),
            1 => stopper.stop_now(),
            2 => stopper.stop(),
            3 => self.fails.set(true),
            _ => {}
        }
    }
}
