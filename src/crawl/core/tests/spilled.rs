//! Requests that are admitted to a file: when they are recorded, and how their URLs count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::base::time::Instant;
use crate::crawl::config::{Config, SettingSource};
use crate::crawl::core::tests::trial::{config, run_for, web_resolver};
use crate::crawl::journal::state::State;
use crate::crawl::{Admin, Crawler, Parts, Turn};
use crate::frontier::request::Request;
use crate::frontier::settings::Follow;
use crate::io::sim::web::{Reply, Web};
use crate::io::sim::{Faults, FullDisk, Sim};
use crate::io::{Io, IoSettings};
use crate::sink::function::FunctionSink;
use crate::sink::page::Page;
use crate::sink::{NullSink, Sink};
use crate::state::record::About;
use crate::throttle::settings::ScopePatch;

/// A crawl with a state, whose requests wait in files.
pub fn crawl(web: &Web, edit: impl FnOnce(&mut Config)) -> Crawler<Sim> {
    crawl_under(Faults::default(), web, edit)
}

/// The same, on a disk with faults.
fn crawl_under(faults: Faults, web: &Web, edit: impl FnOnce(&mut Config)) -> Crawler<Sim> {
    let mut config = config(1);
    config.frontier.memory_max = 1;
    config.state_sync = Duration::from_millis(100);
    edit(&mut config);
    let state = State::new(Path::new("out"), String::new(), [3; 16]).expect("it is short");
    let mut io = Sim::with(1, IoSettings::default(), faults, web.world());
    let mut files = io.files().clone();
    state.beginning().write_to(&mut files);
    io.put_files(files);
    let mut parts = Parts::new(NullSink);
    parts.state = Some(state);
    let config = config.finish().expect("a sound config");
    Crawler::on(io, config, web_resolver(), parts).expect("a crawler")
}

/// What a crawl that is killed now leaves.
pub fn killed(crawler: &Crawler<Sim>) -> State {
    State::load_from(Path::new("out"), crawler.io().files()).expect("it can be read")
}

/// How many requests and how many scopes a state says are to be cancelled.
pub fn orders_in(state: &State) -> [usize; 2] {
    let facts = &state.restored.as_ref().expect("of a crawl").facts;
    [About::Cancelled, About::CancelledScope].map(|about| facts.about(about).count())
}

/// Continues a crawl that was killed.
pub fn resumed(killed: &Crawler<Sim>, web: &Web, edit: impl FnOnce(&mut Config)) -> Crawler<Sim> {
    resumed_into(NullSink, killed, web, edit)
}

/// The same, with results in this sink.
pub fn resumed_into(
    sink: impl Sink + 'static,
    killed: &Crawler<Sim>,
    web: &Web,
    edit: impl FnOnce(&mut Config),
) -> Crawler<Sim> {
    let mut config = config(1);
    config.frontier.memory_max = 1;
    config.state_sync = Duration::from_millis(100);
    edit(&mut config);
    let mut io = Sim::with(2, IoSettings::default(), Faults::default(), web.world());
    let mut files = killed.io().files().clone();
    let state = State::load_from(Path::new("out"), &files).expect("it can be read");
    state.beginning().write_to(&mut files);
    io.put_files(files);
    let mut parts = Parts::new(sink);
    parts.state = Some(state);
    let config = config.finish().expect("a sound config");
    Crawler::on(io, config, web_resolver(), parts).expect("a crawler")
}

pub fn page(number: u64) -> Request {
    Request::get(format!("http://a.test/{number}"))
}

#[test]
fn a_request_in_the_tail_is_committed_though_nothing_else_happens() {
    let web = Web::new(|_| Reply::text("done").after(Duration::from_secs(7200)));
    let mut crawler = crawl(&web, |_| ());
    let handle = crawler.handle();
    for number in 0..20 {
        crawler.submit(page(number)).expect("it is a URL");
    }
    run_for(&mut crawler, Duration::from_secs(10));
    assert_eq!(killed(&crawler).queued(), 20);
    for number in 20..30 {
        crawler.submit(page(number)).expect("it is a URL");
    }
    run_for(&mut crawler, Duration::from_secs(10));
    assert_eq!(killed(&crawler).queued(), 30);
    drop(handle);
}

#[test]
fn a_url_that_goes_to_a_file_counts_once_among_those_that_were_seen() {
    let (mut in_memory, mut in_runs) = (0, 0);
    for seen_memory_max in [1, 200, 700, 1400] {
        let web = Web::new(|_| Reply::text("done").after(Duration::from_secs(7200)));
        let mut crawler = crawl(&web, |config| {
            config.frontier.seen_memory_max = seen_memory_max;
        });
        let handle = crawler.handle();
        for number in 0..300 {
            crawler.submit(page(number)).expect("it is a URL");
            run_for(&mut crawler, Duration::from_millis(number % 3 * 30));
        }
        run_for(&mut crawler, Duration::from_secs(10));
        drop(handle);
        let left = killed(&crawler).restored.expect("it is committed");
        let keys: u64 = left.runs.iter().map(|run| run.keys).sum();
        assert_eq!(left.seen.len() as u64 + keys, 300, "{seen_memory_max}");
        in_memory += left.seen.len();
        in_runs += keys;
    }
    assert!(in_memory > 10 && in_runs > 500, "{in_memory} {in_runs}");
}

#[test]
fn no_seeds_are_taken_while_requests_on_their_way_to_a_file_wait_for_the_disk() {
    let web = Web::new(|_| Reply::text("done").after(Duration::from_secs(7200)));
    let full = FullDisk {
        below: "out".into(),
        from: Duration::from_secs(1),
        until: Duration::from_secs(1000),
        free: 0,
    };
    let faults = Faults {
        disk_full: vec![full],
        ..Faults::default()
    };
    let mut crawler = crawl_under(faults, &web, |_| ());
    let handle = crawler.handle();
    run_for(&mut crawler, Duration::from_secs(2));
    for number in 0..SEEDS {
        let url = format!("http://a.test/{number:01900}");
        handle
            .submit_seed(Request::get(url))
            .expect("there is room");
        if number % 500 == 0 {
            run_for(&mut crawler, Duration::from_secs(1));
        }
    }
    run_for(&mut crawler, Duration::from_secs(100));
    let queued = crawler.progress().queued;
    // 8 MiB that wait for the disk, and two tails.
    assert!((4000..6000).contains(&queued), "{queued}");
    run_for(&mut crawler, Duration::from_secs(1000));
    let queued = crawler.progress().queued;
    assert!(queued > SEEDS - 10, "{queued}: a few are on their way");
    drop(handle);
}

const SEEDS: usize = 8000;

#[test]
fn requests_that_were_cancelled_in_files_are_not_fetched_by_later_runs() {
    let web = || Web::new(|_| Reply::text("done"));
    let edit = |config: &mut Config| config.throttle.default.delay = Duration::from_millis(50);
    let first = web();
    let mut crawler = crawl(&first, edit);
    let handle = crawler.handle();
    for number in 0..400 {
        let id = crawler.submit(page(number)).expect("it is a URL");
        let other = Request::get(format!("http://b.test/{number}"));
        crawler.submit(other).expect("it is a URL");
        if number >= 200 {
            handle.cancel(id).expect("there is room");
        }
    }
    run_for(&mut crawler, Duration::from_secs(1));
    handle.cancel_scope("b.test").expect("there is room");
    run_for(&mut crawler, Duration::from_secs(1));
    // The orders are in a segment that two more runs append to.
    let second = web();
    let mut next = resumed(&crawler, &second, edit);
    run_for(&mut next, Duration::from_secs(1));
    let third = web();
    let mut last = resumed(&next, &third, edit);
    while last.turn(None) == Turn::GoesOn {}
    let mut fetched = BTreeSet::new();
    for asked in [second.asked(), third.asked()].concat() {
        assert_eq!(asked.host, "a.test", "{}", asked.target);
        let number: u64 = asked.target[1..].parse().expect("a number");
        assert!(number < 200, "{number}");
        fetched.insert(number);
    }
    let earlier = first.asked().into_iter();
    let earlier = earlier.filter(|asked| asked.host == "a.test");
    fetched.extend(earlier.filter_map(|asked| asked.target[1..].parse::<u64>().ok()));
    assert_eq!(fetched.len(), 200);
    let state = killed(&last);
    assert_eq!(state.queued(), 0);
    assert_eq!(orders_in(&state), [0, 0], "all of them were carried out");
}

#[test]
fn a_request_stays_cancelled_while_its_result_waits_for_the_sink() {
    let web = || Web::new(|_| Reply::text("done"));
    let edit = |config: &mut Config| config.throttle.default.delay = Duration::from_millis(50);
    let first = web();
    let mut crawler = crawl(&first, edit);
    let handle = crawler.handle();
    for number in 0..100 {
        let id = crawler.submit(page(number)).expect("it is a URL");
        if number >= 50 {
            handle.cancel(id).expect("there is room");
        }
    }
    run_for(&mut crawler, Duration::from_secs(1));
    let full = FunctionSink::new(|_: Page| unreachable!("it is full")).ready_when(|| false);
    let second = web();
    let mut next = resumed_into(full, &crawler, &second, edit);
    run_for(&mut next, Duration::from_secs(5));
    let third = web();
    let mut last = resumed(&next, &third, edit);
    while last.turn(None) == Turn::GoesOn {}
    assert!(third.asked().len() > 10, "the others are fetched");
    for asked in third.asked() {
        let number: u64 = asked.target[1..].parse().expect("a number");
        assert!(number < 50, "{number}");
    }
}

#[test]
fn a_request_that_waits_for_its_answer_or_its_turn_stays_cancelled_while_its_result_waits() {
    let edit = |config: &mut Config| {
        config.throttle.default.delay = Duration::from_secs(100);
        config.frontier.memory_max = 1 << 30;
    };
    let (mut offered, mut queued) = (0, 0);
    for is_ready in [false, true] {
        for seed in 0..10 {
            let web = || Web::new(|_| Reply::text("done"));
            let sink = |is_ready| FunctionSink::new(|_: Page| ()).ready_when(move || is_ready);
            let begun = crawl(&web(), edit);
            let mut crawler = resumed_into(sink(is_ready), &begun, &web(), edit);
            crawler.delay_admission(seed);
            crawler.submit(page(0)).expect("it is a URL");
            let ids = (1..20).map(|number| crawler.submit(page(number)).expect("it is a URL"));
            let ids: Vec<u64> = ids.collect();
            run_for(&mut crawler, Duration::from_millis(5));
            let waits = crawler.core.work.len();
            for id in ids {
                crawler.handle().cancel(id).expect("there is room");
            }
            run_for(&mut crawler, Duration::from_millis(1000));
            let left = killed(&crawler).restored.expect("it is committed");
            offered += left.offered.len();
            queued += 19 - waits;
            // It is killed twice.
            let second = web();
            let mut next = resumed_into(sink(seed % 2 == 0), &crawler, &second, edit);
            next.delay_admission(seed);
            run_until(&mut next, Duration::from_secs(200));
            let third = web();
            let mut last = resumed(&next, &third, edit);
            while last.turn(None) == Turn::GoesOn {}
            for asked in [second.asked(), third.asked()].concat() {
                let target = asked.target;
                assert_eq!(target, "/0", "seed {seed}, sink is ready: {is_ready}");
            }
            assert_eq!(orders_in(&killed(&last)), [0, 0], "seed {seed}");
        }
    }
    assert!(offered > 40 && queued > 100, "{offered} {queued}");
}

#[test]
fn a_scope_stays_cancelled_while_its_results_wait_for_the_sink() {
    let web = || Web::new(|_| Reply::text("done"));
    let edit = |config: &mut Config| {
        config.throttle.default.delay = Duration::from_millis(50);
        config.frontier.memory_max = 1 << 30;
    };
    let mut crawler = crawl(&web(), edit);
    for number in 0..100 {
        crawler.submit(page(number)).expect("it is a URL");
    }
    run_for(&mut crawler, Duration::from_millis(300));
    let full = FunctionSink::new(|_: Page| unreachable!("it is full")).ready_when(|| false);
    let mut next = resumed_into(full, &crawler, &web(), edit);
    run_for(&mut next, Duration::from_millis(300));
    let cancelled = next.handle().cancel_scope("a.test");
    cancelled.expect("there is room");
    run_for(&mut next, Duration::from_secs(2));
    let third = web();
    let mut last = resumed(&next, &third, edit);
    while last.turn(None) == Turn::GoesOn {}
    assert_eq!(third.asked().len(), 0);
    assert_eq!(orders_in(&killed(&last)), [0, 0]);
}

#[test]
fn of_many_cancelled_scopes_those_that_are_over_are_not_kept_in_the_state() {
    let web = Web::new(|asked| match asked.target.as_str() {
        "/late" => Reply::status(302)
            .field("location", "/done")
            .field("retry-after", "60"),
        _ => Reply::text("done"),
    });
    let mut crawler = crawl(&web, |config| config.frontier.memory_max = 1 << 30);
    let handle = crawler.handle();
    let late = |host: &str| Request::get(format!("http://{host}/late"));
    let cancel = |names: std::ops::Range<u64>| {
        for number in names {
            let cancelled = handle.cancel_scope(&format!("{number}.test"));
            cancelled.expect("there is room");
        }
    };
    crawler.submit(late("a.test")).expect("it is a URL");
    run_for(&mut crawler, Duration::from_secs(10));
    cancel(0..64);
    run_for(&mut crawler, Duration::from_secs(20));
    assert_eq!(orders_in(&killed(&crawler)), [0, 64], "a request waits");
    crawler.submit(late("b.test")).expect("it is a URL");
    run_for(&mut crawler, Duration::from_secs(40));
    cancel(64..128);
    run_for(&mut crawler, Duration::from_secs(1));
    assert_eq!(orders_in(&killed(&crawler)), [0, 64], "the first are over");
    drop(handle);
    while crawler.turn(None) == Turn::GoesOn {}
    assert_eq!(orders_in(&killed(&crawler)), [0, 0]);
}

#[test]
fn a_setting_that_is_new_at_a_resume_holds_and_other_orders_are_kept() {
    let web = || Web::new(|_| Reply::text("done").after(Duration::from_secs(7200)));
    let delayed = |delay: u64| {
        move |config: &mut Config| {
            let set = config.set("DOWNLOAD_DELAY", delay, SettingSource::Option);
            set.expect("it is a delay");
        }
    };
    let given = |crawler: &Crawler<Sim>| {
        let throttle = &crawler.core.throttle;
        (throttle.default_patch(), throttle.patch_of("a.test"))
    };
    let patch = |text: &str| text.parse::<ScopePatch>().expect("a patch");
    let mut first = crawl(&web(), delayed(1));
    first.submit(page(0)).expect("it is a URL");
    let ordered = patch(r#"{"delay": 10, "concurrency": 3}"#);
    for name in ["default", "a.test"] {
        let is_set = first.set_scope(name, ordered.clone());
        is_set.expect("it is sound");
    }
    run_for(&mut first, Duration::from_secs(1));
    let mut same = resumed(&first, &web(), delayed(1));
    assert_eq!(given(&same), (ordered.clone(), ordered.clone()));
    run_for(&mut same, Duration::from_secs(1));
    let left = (patch(r#"{"concurrency": 3}"#), ordered);
    let mut changed = resumed(&same, &web(), delayed(5));
    assert_eq!(given(&changed), left);
    run_for(&mut changed, Duration::from_secs(1));
    let last = resumed(&changed, &web(), delayed(5));
    assert_eq!(given(&last), left);
}

/// Requests of a random crawl, half of them to each of two hosts.
const ORDERED: u64 = 300;

/// After so long an order is durable.
const ORDER_TIME: Duration = Duration::from_millis(500);

#[test]
fn a_crawl_stops_at_once_while_the_memory_of_its_seen_set_is_full() {
    let mut undecided = 0;
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let memory = [1000, 5000, 20_000][rng.below(3) as usize];
        let web = Web::new(|asked| {
            let (host, target) = (&asked.host, &asked.target);
            let links = (0..500).map(|link| format!("<a href='{target}/{link}'>{host}</a>"));
            Reply::page(links.collect::<String>())
        });
        let mut crawler = crawl(&web, |config| {
            config.frontier.follow = Follow::All;
            config.frontier.seen_memory_max = memory;
            config.stop_grace = Duration::from_secs(1000);
        });
        for number in 0..12 {
            let seed = Request::get(format!("http://{number}.test/a"));
            crawler.submit(seed).expect("it is a URL");
        }
        run_until(&mut crawler, Duration::from_millis(rng.below(400)));
        let began = crawler.io().now();
        crawler.stopper().stop();
        while crawler.turn(None) == Turn::GoesOn {}
        let took = crawler.io().now().saturating_since(began);
        assert!(took < Duration::from_secs(5), "seed {seed}: {took:?}");
        let left = killed(&crawler).restored.expect("of a crawl");
        undecided += usize::from(!left.offered.is_empty());
    }
    assert!(undecided > 10, "{undecided}");
}

/// Where a request of a random crawl goes.
fn target_of(number: u64) -> (String, String) {
    let host = ["a.test", "b.test"][number as usize % 2];
    (host.to_owned(), format!("/{number}"))
}

/// Runs for so long, or to the end.
pub fn run_until(crawler: &mut Crawler<Sim>, span: Duration) {
    let until = crawler.io().now() + span;
    let mut left = span;
    while !left.is_zero() && crawler.turn(Some(left)) == Turn::GoesOn {
        left = until.saturating_since(crawler.io().now());
    }
}

/// What arrives within this time of an order may have left before it.
const UNDER_WAY: Duration = Duration::from_millis(15);

/// Delays that were ordered in a random crawl, each longer than those before.
#[derive(Default)]
struct OrderedDelays {
    last: Duration,
    /// Those of each host that were ordered in this run, and when.
    given: Vec<(&'static str, Instant, Duration)>,
    /// Those that are durable.
    durable: BTreeMap<&'static str, Duration>,
    /// Hosts with an order of their own, which those for all scopes do not change.
    own: BTreeSet<&'static str>,
    /// Gaps that were judged.
    judged: usize,
}

impl OrderedDelays {
    fn order(&mut self, crawler: &mut Crawler<Sim>, rng: &mut Rng) {
        let now = crawler.io().now();
        let name = ["a.test", "b.test", "default"][rng.below(3) as usize];
        self.last += Duration::from_millis(1 + rng.below(40));
        let patch = ScopePatch::default().delay(self.last);
        // Once the crawl is over an order is an error.
        if crawler.handle().set_scope(name, patch).is_err() {
            return;
        }
        for host in ["a.test", "b.test"] {
            let applies = match name == "default" {
                true => !self.own.contains(host),
                false => name == host,
            };
            if applies {
                self.given.push((host, now, self.last));
            }
        }
        self.own.extend((name != "default").then_some(name));
    }

    /// No gap of a run is shorter than ordered before it.
    fn check_run(&mut self, web: &Web, seed: u64) {
        for host in ["a.test", "b.test"] {
            let asked = web.asked().into_iter();
            let mut times: Vec<Instant> = asked
                .filter(|asked| asked.host == host)
                .map(|asked| asked.at)
                .collect();
            times.sort_unstable();
            for pair in times.windows(2) {
                let before = |at: Instant| at + UNDER_WAY < pair[0];
                let given = self.given.iter().filter(|given| given.0 == host);
                let given = given.filter(|given| before(given.1)).map(|given| given.2);
                let Some(least) = given.chain(self.durable.get(host).copied()).max() else {
                    continue;
                };
                let gap = pair[1].saturating_since(pair[0]);
                assert!(
                    gap >= least,
                    "seed {seed}: {host}: {gap:?} after {least:?} were ordered"
                );
                self.judged += 1;
            }
        }
    }

    /// A run is killed now, or over.
    fn end_run(&mut self, crawler: &Crawler<Sim>) {
        for (host, at, delay) in self.given.drain(..) {
            if is_durable(crawler, at) {
                self.durable.insert(host, delay);
            }
        }
    }
}

/// Whether an order that a crawl took then holds in later runs.
fn is_durable(crawler: &Crawler<Sim>, at: Instant) -> bool {
    crawler.core.control.phase().is_over() || crawler.io().now() > at + ORDER_TIME
}

/// A crawl that is killed or stopped again and again; requests are cancelled at any time, alone and by their scopes, and
/// longer delays are ordered. Returns how many gaps were judged.
fn check_random_orders(seed: u64) -> usize {
    let mut rng = Rng::from_seed(seed);
    let (delay, memory) = (rng.below(60), [1 << 30, 3000, 1][rng.below(3) as usize]);
    let seen_memory = [1 << 30, 700, 1][rng.below(3) as usize];
    let edit = |config: &mut Config| {
        config.throttle.default.delay = Duration::from_millis(delay);
        config.frontier.memory_max = memory;
        config.frontier.seen_memory_max = seen_memory;
    };
    let is_ready = Shared::new(true);
    let sink = || {
        let is_ready = is_ready.clone();
        FunctionSink::new(|_: Page| ()).ready_when(move || is_ready.get())
    };
    // Gaps are the same where requests arrive.
    let web_of_run = || Web::new(|_| Reply::text("done")).round_trip(Duration::from_millis(20));
    let mut web = web_of_run();
    let mut crawler = crawl(&web, edit);
    let mut delays = OrderedDelays {
        last: Duration::from_millis(delay),
        ..OrderedDelays::default()
    };
    if rng.chance(0.5) {
        crawler.delay_admission(seed);
    }
    let mut ids = Vec::new();
    for number in 0..ORDERED {
        let (host, target) = target_of(number);
        let request = Request::get(format!("http://{host}{target}"));
        ids.push(crawler.submit(request).expect("it is a URL"));
    }
    let take_asked = |web: &Web, durable: &BTreeSet<_>, asked: &mut BTreeSet<_>| {
        for request in web.asked() {
            let target = (request.host, request.target);
            assert!(
                !durable.contains(&target),
                "seed {seed}: {target:?} was cancelled"
            );
            asked.insert(target);
        }
    };
    let (mut asked, mut given, mut durable) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for _ in 0..8 {
        let mut ordered: Vec<(u64, Instant)> = Vec::new();
        for _ in 0..rng.below(5) {
            is_ready.set(rng.chance(0.8));
            run_until(&mut crawler, Duration::from_millis(rng.below(400)));
            if rng.chance(0.3) {
                delays.order(&mut crawler, &mut rng);
                continue;
            }
            let handle = crawler.handle();
            if rng.chance(0.1) {
                let grace = Duration::from_millis(rng.below(2) * rng.below(300));
                handle.stopper().shutdown(grace);
                for _ in 0..rng.below(8) {
                    crawler.turn(Some(Duration::from_millis(rng.below(10))));
                }
            }
            // Once the crawl is over an order is an error.
            let cancelled: Vec<u64> = match rng.below(4) {
                0 => {
                    let is_taken = handle.cancel_scope("b.test").is_ok();
                    let all = (0..ORDERED).filter(|number| number % 2 == 1);
                    all.filter(|_| is_taken).collect()
                }
                _ => {
                    let numbers = (0..rng.below(20)).map(|_| rng.below(ORDERED));
                    numbers
                        .filter(|number| handle.cancel(ids[*number as usize]).is_ok())
                        .collect()
                }
            };
            let now = crawler.io().now();
            ordered.extend(cancelled.into_iter().map(|number| (number, now)));
        }
        run_until(&mut crawler, Duration::from_millis(rng.below(800)));
        delays.check_run(&web, seed);
        delays.end_run(&crawler);
        take_asked(&web, &durable, &mut asked);
        for (number, at) in ordered {
            given.insert(target_of(number));
            if is_durable(&crawler, at) {
                durable.insert(target_of(number));
            }
        }
        web = web_of_run();
        crawler = resumed_into(sink(), &crawler, &web, edit);
        if rng.chance(0.5) {
            crawler.delay_admission(rng.next_u64());
        }
    }
    is_ready.set(true);
    while crawler.turn(None) == Turn::GoesOn {}
    delays.check_run(&web, seed);
    take_asked(&web, &durable, &mut asked);
    for target in (0..ORDERED).map(target_of) {
        let is_done = asked.contains(&target) || given.contains(&target);
        assert!(is_done, "seed {seed}: {target:?} was not fetched");
    }
    assert_eq!(killed(&crawler).queued(), 0, "seed {seed}");
    assert_eq!(orders_in(&killed(&crawler)), [0, 0], "seed {seed}");
    delays.judged
}

#[test]
fn whatever_was_ordered_before_a_commit_holds_in_later_runs() {
    let judged: usize = (0..60).map(check_random_orders).sum();
    assert!(judged > 1000, "{judged} gaps");
}

#[test]
fn a_crawl_whose_state_cannot_be_written_ends_without_waiting_for_its_orders() {
    let web = Web::new(|_| Reply::text("done").after(Duration::from_secs(7200)));
    let full = FullDisk {
        below: "out".into(),
        from: Duration::from_secs(1),
        until: Duration::from_secs(100_000),
        free: 0,
    };
    let faults = Faults {
        disk_full: vec![full],
        ..Faults::default()
    };
    let mut crawler = crawl_under(faults, &web, |config| {
        config.stop_grace = Duration::from_secs(100);
    });
    let admin = Admin::new().orders("/crawl/orders.jsonl", 0);
    crawler.serve(admin).expect("it listens nowhere");
    let handle = crawler.handle();
    crawler.submit(page(1)).expect("it is a URL");
    run_for(&mut crawler, Duration::from_secs(2));
    // More than the space that is allocated for the journal ahead.
    for number in 0..2000 {
        let url = format!("http://a.test/{number}/{}", "x".repeat(1900));
        crawler.submit(Request::get(url)).expect("it is a URL");
    }
    let patch = r#"{"delay": 3}"#.parse().expect("a patch");
    handle.set_scope("a.test", patch).expect("it is sound");
    run_for(&mut crawler, Duration::from_secs(1));
    assert!(crawler.core.is_recording_orders());
    handle.shutdown(Duration::from_secs(1));
    let began = crawler.io().now();
    while crawler.turn(None) == Turn::GoesOn {}
    let elapsed = crawler.io().now().saturating_since(began);
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
}
