//! Feeding in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::crawl::Turn;
use crate::crawl::control::error::ControlError;
use crate::crawl::control::feed::*;
use crate::crawl::core::tests::adversity::FaultyServers;
use crate::crawl::core::tests::trial::{SinkRecord, calm, crawl_from, finish, get, run_for};
use crate::crawl::finish::FinishReason;
use crate::io::Io;
use crate::io::sim::Origins;

/// Record of a scripted source.
#[derive(Clone, Default)]
struct Seen {
    /// Tags of the requests that it returned.
    given: Shared<Vec<u64>>,
    ended: Shared<Vec<Ack>>,
    /// Number of polls.
    asked: Shared<u64>,
    wake: Shared<Option<Wake>>,
}

/// A notification of a source about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ack {
    id: Option<u64>,
    tag: u64,
    end: String,
    again: bool,
}

impl Seen {
    /// Returns how the request with this tag ended.
    fn end(&self, tag: u64) -> Option<String> {
        let ended = self.ended.borrow();
        let mut ends = ended.iter().filter(|ack| ack.tag == tag);
        let end = ends.next()?.end.clone();
        assert!(ends.next().is_none(), "{tag} has ended twice");
        Some(end)
    }

    fn open(&self) -> usize {
        self.given.borrow().len() - self.ended.borrow().len()
    }
}

/// A source that polls a function with the number of the next request, from 1.
struct Played<F> {
    next: F,
    at_once: usize,
    seen: Seen,
    record: Shared<Option<SinkRecord>>,
}

impl<F> RequestSource for Played<F>
where
    F: FnMut(u64) -> Result<SourcePoll, SourceError> + Send,
{
    fn next(&mut self, wake: &Wake) -> Result<SourcePoll, SourceError> {
        assert!(self.seen.open() < self.at_once, "there is no room");
        *self.seen.asked.borrow_mut() += 1;
        *self.seen.wake.borrow_mut() = Some(wake.clone());
        let tag = self.seen.given.borrow().len() as u64 + 1;
        let supply = (self.next)(tag)?;
        Ok(match supply {
            SourcePoll::Request(request) => {
                self.seen.given.borrow_mut().push(tag);
                SourcePoll::Request(request.tag(tag).meta([tag]))
            }
            other => other,
        })
    }

    fn ended(&mut self, ended: &EndedRequest<'_>) {
        let end = match ended.end {
            RequestEnd::Final {
                failure: Some(failure),
                ..
            } => format!("{}.{}", failure.kind.as_str(), failure.name),
            RequestEnd::Final { status, .. } => status.unwrap_or(0).to_string(),
            RequestEnd::NotBegun => "not begun".to_owned(),
            RequestEnd::Unfinished => "unfinished".to_owned(),
            RequestEnd::Rejected(_) => "refused".to_owned(),
        };
        let meta = ended.meta;
        assert_eq!(meta, Some(&*format!("[{}]", ended.tag)), "it is its own");
        if matches!(ended.end, RequestEnd::Final { .. }) {
            let record = self.record.borrow();
            let record = record.as_ref().expect("the test has set it");
            let id = ended.id.expect("a page has a number");
            assert_eq!(record.end(id).as_ref(), Some(&end), "the sink has had it");
        }
        self.seen.ended.borrow_mut().push(Ack {
            id: ended.id,
            tag: ended.tag,
            end,
            again: ended.should_requeue(),
        });
    }

    fn at_once(&self) -> usize {
        self.at_once
    }
}

/// A scripted source, the place of the sink's record in it, and its own record.
fn played(
    at_once: usize,
    next: impl FnMut(u64) -> Result<SourcePoll, SourceError> + Send + 'static,
) -> (
    Option<Box<dyn RequestSource>>,
    Shared<Option<SinkRecord>>,
    Seen,
) {
    let (seen, record) = (Seen::default(), Shared::default());
    let source = Played {
        next,
        at_once,
        seen: seen.clone(),
        record: record.clone(),
    };
    (Some(Box::new(source)), record, seen)
}

/// A random result of a poll.
fn moods(seed: u64, errs: bool) -> impl FnMut(u64) -> Result<SourcePoll, SourceError> + Send {
    let mut rng = Rng::from_seed(seed).fork("source");
    let last = 1 + rng.below(120);
    move |tag| {
        if tag > last {
            return match errs {
                true => Err("the database is gone".into()),
                false => Ok(SourcePoll::Finished),
            };
        }
        Ok(match rng.below(20) {
            0 | 1 => SourcePoll::Nothing,
            2 | 3 => SourcePoll::Later(Duration::from_millis(rng.below(700))),
            4 => SourcePoll::Request(Request::get("no URL")),
            5 => SourcePoll::Request(Request::get("http://nowhere.test/")),
            _ => SourcePoll::Request(
                get(rng.below(9) as u32, rng.below(60) as u32)
                    .scope(["one", "two", "three"][rng.below(3) as usize]),
            ),
        })
    }
}

#[test]
fn each_request_of_a_source_is_acknowledged_once() {
    let mut reasons = BTreeMap::new();
    let mut ends = BTreeSet::new();
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let errs = rng.chance(0.2);
        let at_once = 1 + rng.below(40) as usize;
        let (source, place, seen) = played(at_once, moods(seed, errs));
        let (mut crawler, record) =
            crawl_from(source, FaultyServers::new(8), seed, |config, settings| {
                config.throttle.default.concurrency = 1 + rng.below(4) as u32;
                config.throttle.default.delay = Duration::from_millis(rng.below(3) * 300);
                config.throttle.concurrent_requests = 1 + rng.below(30) as usize;
                config.frontier.robots_obey = rng.chance(0.5);
                config.frontier.pages_per_host_max = rng.below(2) as u32 * 15;
                config.frontier.pages_max = rng.below(6) / 5 * 30;
                config.frontier.queued_max = 5 + rng.below(100) as usize;
                settings.sockets_max = 4 + rng.below(30) as usize;
            });
        if seed % 2 == 1 {
            crawler.delay_admission(seed);
        }
        place.set(Some(record.clone()));
        if rng.chance(0.5) {
            *record.open.borrow_mut() = Some(Vec::new());
        }
        let handle = crawler.handle();
        let mut handle = Some(handle);
        let stops_at = rng.below(120);
        let how = rng.below(7);
        let mut crawler = Some(crawler);
        // `None` if the crawl was dropped.
        let mut reason = None;
        for step in 0.. {
            let Some(crawl) = &mut crawler else {
                break;
            };
            assert!(step < 100_000, "{seed}: no end: {:?}", crawl.progress());
            if let Some(handle) = &handle {
                let obeyed = match rng.below(12) {
                    0 => handle.cancel(1 + rng.below(80)),
                    1 => handle.cancel_scope(["one", "10.0.0.3", "nobody"][rng.below(3) as usize]),
                    2 => {
                        handle.pause();
                        Ok(())
                    }
                    3..=5 => {
                        handle.resume();
                        Ok(())
                    }
                    _ => Ok(()),
                };
                let is_known = obeyed.is_ok() || obeyed == Err(ControlError::Over);
                assert!(is_known, "{seed}: {obeyed:?}");
            }
            if rng.chance(0.3)
                && let Some(wake) = &*seen.wake.borrow()
            {
                wake.wake();
            }
            if let Some(open) = &mut *record.open.borrow_mut()
                && rng.chance(0.3)
            {
                for (_, later) in open.drain(..) {
                    let links = (0..rng.below(4)).map(|_| get(rng.below(9) as u32, 99));
                    later.links(links.collect::<Vec<_>>());
                }
            }
            record.change_room(&mut rng);
            if step == stops_at {
                record.stop(how, &crawl.stopper(), &mut rng);
                if how == 4 {
                    crawler = None;
                    break;
                }
            }
            if step > 100
                && let Some(last) = handle.take()
            {
                last.resume();
            }
            let patience = Duration::from_millis(1 + rng.below(300));
            if let Turn::Over(why) = crawl.turn(Some(patience)) {
                reason = Some(why);
                break;
            }
        }
        let mut pending = BTreeSet::new();
        if let Some(crawl) = &mut crawler {
            let failed = crawl.source_error().map(ToString::to_string);
            let expected = (reason == Some(FinishReason::SourceFailed))
                .then(|| "the database is gone".to_owned());
            assert!(failed == expected || errs && reason != Some(FinishReason::Finished));
            pending.extend(crawl.take_pending().filter_map(|pending| pending.id));
        }
        let mut acknowledged: Vec<u64> = seen.ended.borrow().iter().map(|ack| ack.tag).collect();
        acknowledged.sort_unstable();
        assert_eq!(acknowledged, *seen.given.borrow(), "{seed} ({reason:?})");
        for ack in seen.ended.borrow().iter() {
            let pages = record.pages.borrow();
            let of_it = pages.iter().filter(|page| page.tag == ack.tag);
            let sent = of_it.clone().any(|page| page.timings.sent.is_some());
            let ended = of_it.clone().any(|page| page.is_final);
            match ack.end.as_str() {
                "not begun" => assert!(!sent && !ended, "{seed}: {ack:?}"),
                "unfinished" => {
                    assert!(!ended, "{seed}: {ack:?}");
                    assert!(sent || reason.is_none(), "{seed}: {ack:?}");
                }
                "refused" => assert_eq!((of_it.count(), ack.id), (0, None)),
                _ => assert!(ended, "{seed}: {ack:?}"),
            }
            if let Some(id) = ack.id {
                assert!(!pending.contains(&id), "{seed}: it was notified already");
            }
            assert_eq!(
                ack.again,
                ["not begun", "unfinished", "cancelled.stopped"].contains(&ack.end.as_str())
            );
            ends.insert(ack.end.clone());
        }
        *reasons.entry(reason).or_insert(0) += 1;
    }
    for reason in [
        Some(FinishReason::Finished),
        Some(FinishReason::Shutdown),
        Some(FinishReason::SinkFailed),
        Some(FinishReason::SourceFailed),
        Some(FinishReason::PageCount),
        None,
    ] {
        assert!(reasons.contains_key(&reason), "{reasons:?}");
    }
    for end in [
        "200",
        "not begun",
        "unfinished",
        "refused",
        "cancelled.asked",
        "cancelled.stopped",
        "filtered.duplicate",
    ] {
        assert!(ends.contains(end), "{end} is not among {ends:?}");
    }
}

/// Returns these results one after the other.
fn lines(mut polls: Vec<SourcePoll>) -> impl FnMut(u64) -> Result<SourcePoll, SourceError> + Send {
    polls.reverse();
    move |_| Ok(polls.pop().unwrap_or(SourcePoll::Finished))
}

#[test]
fn an_empty_source_is_not_polled_for_an_hour_and_polled_at_once_when_it_wakes() {
    let hour = Duration::from_secs(3600);
    let (source, place, seen) = played(
        10,
        lines(vec![
            SourcePoll::Request(get(1, 1)),
            SourcePoll::Nothing,
            SourcePoll::Request(get(1, 2)),
            SourcePoll::Later(hour),
            SourcePoll::Request(get(1, 3)),
        ]),
    );
    let (mut crawler, record) = crawl_from(source, calm(Duration::ZERO), 1, |_, _| {});
    place.set(Some(record.clone()));
    let turns = run_for(&mut crawler, hour);
    assert!(turns < 40, "it sleeps: {turns}");
    assert_eq!((seen.asked.get(), seen.end(1)), (2, Some("200".to_owned())));
    let woken = crawler.io().now();
    seen.wake.borrow().as_ref().expect("it was asked").wake();
    let turns = run_for(&mut crawler, hour / 2);
    assert!(turns < 40, "it sleeps: {turns}");
    assert_eq!((seen.asked.get(), seen.end(2)), (4, Some("200".to_owned())));
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!((seen.asked.get(), seen.end(3)), (6, Some("200".to_owned())));
    let pages = record.pages.borrow();
    let began = |page: usize| pages[page].timings.started.saturating_since(woken);
    assert_eq!(began(1), Duration::ZERO);
    assert!(began(2) >= hour && began(2) < hour + Duration::from_millis(2));
}

#[test]
fn a_source_that_fails_ends_the_crawl_in_good_order() {
    // Two requests may be open at once; it is polled for a third once one has ended.
    let (source, place, seen) = played(2, |tag| match tag {
        1 | 2 => Ok(SourcePoll::Request(get(1, tag as u32))),
        _ => Err("the database is gone".into()),
    });
    let think = Duration::from_secs(2);
    let (mut crawler, record) = crawl_from(source, calm(think), 1, |config, _| {
        config.throttle.default.delay = Duration::from_secs(5);
    });
    place.set(Some(record));
    let handle = crawler.handle();
    run_for(&mut crawler, Duration::from_secs(1));
    let on_its_way = handle.submit(get(2, 1)).expect("there is room");
    assert_eq!(finish(&mut crawler), FinishReason::SourceFailed);
    let error = crawler.source_error().map(ToString::to_string);
    assert_eq!(error.as_deref(), Some("the database is gone"));
    assert_eq!(seen.end(1).as_deref(), Some("200"));
    assert_eq!(seen.end(2).as_deref(), Some("not begun"));
    let record = place.borrow().clone().expect("it was set");
    assert_eq!(record.end(on_its_way).as_deref(), Some("200"));
}

#[test]
fn the_requests_of_a_source_in_the_crawl_are_bounded() {
    const AT_ONCE: usize = 700;
    let mut world = Origins::default();
    for host in 0..250 {
        let at: SocketAddr = format!("10.0.1.{host}:80").parse().expect("an address");
        world.page(at, "/", "");
    }
    let (source, place, seen) = played(AT_ONCE, |tag| {
        Ok(match tag {
            10_000_001.. => SourcePoll::Finished,
            _ => SourcePoll::Request(Request::get(format!("http://10.0.1.{}/{tag}", tag % 250))),
        })
    });
    let (mut crawler, record) = crawl_from(source, world, 1, |config, _| {
        config.throttle.concurrent_requests = 100;
        config.throttle.default.delay = Duration::from_millis(20);
    });
    place.set(Some(record.clone()));
    let mut most = 0;
    while seen.ended.borrow().len() < 2000 {
        assert_eq!(crawler.turn(None), Turn::GoesOn);
        let progress = crawler.progress();
        assert!(progress.queued + progress.in_flight <= AT_ONCE);
        assert!(seen.open() <= AT_ONCE);
        most = most.max(seen.open());
    }
    assert_eq!(most, AT_ONCE, "nor are there fewer");
    crawler.stopper().shutdown(Duration::from_secs(1));
    assert_eq!(finish(&mut crawler), FinishReason::Shutdown);
    assert_eq!(seen.open(), 0);
    let unsent = seen.ended.borrow().iter().filter(|ack| ack.again).count();
    assert!(unsent >= AT_ONCE - 100, "{unsent}");
    assert_eq!(crawler.take_pending().count(), 0);
}

#[test]
fn the_frontiers_bound_holds_a_source_too_and_the_end_of_the_last_makes_room() {
    // Requests to a blocked address end within a turn, and nothing else wakes the crawl.
    let nowhere = |tag| Request::get(format!("http://0.0.0.0/{tag}"));
    for (at_once, queued_max) in [(1, 100), (100, 1)] {
        let (source, place, seen) = played(at_once, move |tag| {
            Ok(match tag {
                31.. => SourcePoll::Finished,
                _ => SourcePoll::Request(nowhere(tag)),
            })
        });
        let (mut crawler, record) = crawl_from(source, calm(Duration::ZERO), 1, |config, _| {
            config.frontier.queued_max = queued_max;
        });
        place.set(Some(record));
        assert_eq!(finish(&mut crawler), FinishReason::Finished);
        assert!(crawler.elapsed() < Duration::from_secs(1));
        assert_eq!((seen.given.borrow().len(), seen.open()), (30, 0));
    }
}

#[test]
fn a_request_is_not_over_while_its_page_is_held_open() {
    let (source, place, seen) = played(10, lines(vec![SourcePoll::Request(get(1, 1))]));
    let (mut crawler, record) = crawl_from(source, calm(Duration::ZERO), 1, |_, _| {});
    place.set(Some(record.clone()));
    *record.open.borrow_mut() = Some(Vec::new());
    run_for(&mut crawler, Duration::from_secs(60));
    assert_eq!((record.pages.borrow().len(), seen.open()), (1, 1));
    let open = record.open.borrow_mut().take().expect("there is one");
    for (_, later) in open {
        assert_eq!(later.links([get(1, 2)]), 1);
    }
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!((record.pages.borrow().len(), seen.open()), (2, 0));
}
