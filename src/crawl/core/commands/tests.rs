//! Steering in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::crawl::core::tests::adversity::FaultyServers;
use crate::crawl::core::tests::trial::{calm, crawl, finish, get, run_for};
use crate::crawl::finish::FinishReason;
use crate::crawl::{AdmitError, ControlError, SubmitError, Turn};
use crate::fetch::failure::FailureKind;
use crate::frontier::request::Request;
use crate::frontier::settings::Follow;
use crate::io::sim::Origins;
use crate::sink::page::Page;
use crate::throttle::settings::ScopePatch;

#[test]
fn each_number_ends_once() {
    let mut ends = BTreeMap::new();
    for seed in 0..40 {
        let mut rng = Rng::from_seed(seed);
        let (mut crawler, handle, record) =
            crawl(FaultyServers::new(8), seed, |config, settings| {
                config.throttle.default.concurrency = 1 + rng.below(4) as u32;
                config.throttle.default.delay = Duration::from_millis(rng.below(3) * 300);
                config.throttle.concurrent_requests = 1 + rng.below(30) as usize;
                config.frontier.robots_obey = rng.chance(0.5);
                config.frontier.pages_per_host_max = rng.below(2) as u32 * 15;
                config.frontier.pages_max = rng.below(6) / 5 * 40;
                config.frontier.queued_max = 20 + rng.below(100) as usize;
                settings.sockets_max = 4 + rng.below(30) as usize;
            });
        if seed % 2 == 1 {
            crawler.delay_admission(seed);
        }
        let mut accepted = Vec::new();
        let mut handle = Some(handle);
        let stopper = crawler.stopper();
        let stops_at = rng.below(80);
        let how = rng.below(5);
        let mut steps = 0;
        let reason = loop {
            steps += 1;
            assert!(steps < 100_000, "{seed}: no end: {:?}", crawler.progress());
            if let Some(handle) = &handle {
                for _ in 0..rng.below(4) {
                    let mut request = get(rng.below(9) as u32, rng.below(60) as u32);
                    if rng.chance(0.1) {
                        request = Request::get(format!("http://nowhere{}.test/", rng.below(3)));
                    }
                    if rng.chance(0.2) {
                        request = request.scope(["one", "two"][rng.below(2) as usize]);
                    }
                    accepted.extend(handle.try_submit(request).ok());
                }
                let some = |rng: &mut Rng| rng.below(accepted.len().max(1) as u64) as usize;
                let result = match rng.below(14) {
                    0 | 1 => accepted
                        .get(some(&mut rng))
                        .map_or(Ok(()), |id| handle.cancel(*id)),
                    2 => handle.cancel_scope(["one", "10.0.0.3", "nobody"][rng.below(3) as usize]),
                    3 => {
                        handle.pause();
                        Ok(())
                    }
                    4..=6 => {
                        handle.resume();
                        Ok(())
                    }
                    7 => {
                        let delay = Some(Duration::from_millis(rng.below(900)));
                        let patch = ScopePatch {
                            delay,
                            ..ScopePatch::default()
                        };
                        handle.set_scope("10.0.0.1", patch)
                    }
                    _ => Ok(()),
                };
                assert!(
                    matches!(result, Ok(()) | Err(ControlError::Over)),
                    "{result:?}"
                );
            }
            record.change_room(&mut rng);
            if steps == stops_at {
                record.stop(how, &stopper, &mut rng);
            }
            if steps > 100
                && let Some(last) = handle.take()
            {
                last.resume();
            }
            let patience = Duration::from_millis(1 + rng.below(300));
            if let Turn::Over(reason) = crawler.turn(Some(patience)) {
                break reason;
            }
        };
        let mut ended: BTreeMap<u64, u32> = BTreeMap::new();
        for page in record.pages.borrow().iter().filter(|page| page.is_final) {
            *ended.entry(page.root).or_default() += 1;
        }
        let cut: BTreeSet<u64> = {
            let pages = record.pages.borrow();
            let cut = pages.iter().filter(|page| {
                let failure = page.failure.as_ref();
                failure.is_some_and(|failure| failure.name == "stopped")
            });
            cut.map(|page| page.root).collect()
        };
        for pending in crawler.take_pending() {
            let id = pending
                .id
                .expect("all have been submitted by the handle, or found");
            // Links are returned as pending, too.
            if accepted.contains(&id) || !cut.contains(&id) {
                *ended.entry(id).or_default() += 1;
            }
        }
        for id in &accepted {
            assert_eq!(ended.get(id), Some(&1), "{seed} ({reason}): {id}");
        }
        let twice = ended.iter().find(|(_, times)| **times != 1);
        assert_eq!(twice, None, "{seed} ({reason})");
        *ends.entry(reason).or_insert(0) += 1;
        assert_eq!(crawler.core.throttle.in_flight(), 0, "{seed}: tickets");
        if reason == FinishReason::Finished {
            assert_eq!(crawler.core.frontier.lanes_open(), 0, "{seed}: lanes");
        }
    }
    for reason in [
        FinishReason::Finished,
        FinishReason::Shutdown,
        FinishReason::SinkFailed,
        FinishReason::PageCount,
    ] {
        assert!(ends.contains_key(&reason), "{ends:?}");
    }
}

#[test]
fn an_invalid_request_is_rejected_at_once_and_returned() {
    let (_crawler, handle, _) = crawl(Origins::default(), 1, |_, _| {});
    let check = |request: Request| {
        for submitted in [
            handle.try_submit(request.clone()),
            handle.submit(request.clone()),
        ] {
            let Err(SubmitError::Rejected { request: back, why }) = submitted else {
                panic!("{request:?} was taken");
            };
            assert_eq!(back.url, request.url);
            assert!(!matches!(why, AdmitError::Over));
        }
    };
    check(Request::get("no URL"));
    check(Request::get("http://a.test/").scope(""));
    check(Request::get("http://a.test/").header("x", "a\r\nb"));
}

#[test]
fn a_numbered_request_that_is_not_admitted_ends_as_filtered() {
    let (mut crawler, handle, record) = crawl(calm(Duration::ZERO), 1, |config, _| {
        config.frontier.deny = vec![regex::Regex::new("/2$").expect("an expression")];
    });
    let submit = |page| handle.submit(get(1, page)).expect("there is room");
    let ids = [submit(1), submit(1), submit(2)];
    for _ in 0..2 {
        handle.submit_seed(get(1, 3)).expect("there is room");
    }
    drop(handle);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(
        ids.map(|id| record.end(id).expect("it has ended")),
        ["200", "filtered.duplicate", "filtered.denied"]
    );
    assert_eq!(
        record.pages.borrow().len(),
        4,
        "of two equal seeds one has a page"
    );
    assert_eq!(crawler.stats().pages_failed, 0);
}

#[test]
fn the_number_of_the_first_attempt_is_the_root_of_its_redirect() {
    let (mut crawler, handle, record) = crawl(calm(Duration::ZERO), 1, |_, _| {});
    let id = handle
        .submit(Request::get("http://10.0.0.1/there"))
        .expect("there is room");
    drop(handle);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let pages = record.pages.borrow();
    let attempts: Vec<_> = pages
        .iter()
        .map(|page| (page.root, page.is_final))
        .collect();
    assert_eq!(attempts, [(id, false), (id, true)]);
    assert_eq!((pages[0].id, pages[1].parent), (id, Some(id)));
}

#[test]
fn a_cancelled_request_ends_wherever_it_is_and_is_not_tried_again() {
    let think = Duration::from_secs(5);
    let (mut crawler, handle, record) = crawl(calm(think), 1, |config, _| {
        config.throttle.default.concurrency = 1;
        config.frontier.retry_exceptions = vec!["cancelled".to_owned()];
    });
    let submit = |page| handle.submit(get(1, page)).expect("there is room");
    let (sent, queued, stays) = (submit(1), submit(2), submit(3));
    run_for(&mut crawler, Duration::from_secs(1));
    // The last request is cancelled before the crawl has admitted it.
    let new = submit(4);
    for id in [sent, queued, new, 999] {
        handle.cancel(id).expect("the crawl goes on");
    }
    run_for(&mut crawler, Duration::from_millis(1));
    for id in [sent, queued, new] {
        assert_eq!(record.end(id).as_deref(), Some("cancelled.asked"));
    }
    let has_left = |id| {
        let pages = record.pages.borrow();
        let page = pages.iter().find(|page| page.id == id).expect("a page");
        page.timings.sent.is_some()
    };
    assert_eq!([sent, queued, new].map(has_left), [true, false, false]);
    assert_eq!(
        crawler.stats().pages_failed,
        0,
        "the submitter gets the error"
    );
    handle.cancel(sent).expect("the crawl goes on");
    drop(handle);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(record.end(stays).as_deref(), Some("200"));
    assert_eq!(record.pages.borrow().len(), 4);
}

#[test]
fn cancelling_a_scope_cancels_all_of_its_requests_and_no_others() {
    let think = Duration::from_secs(5);
    let (mut crawler, handle, record) = crawl(calm(think), 1, |config, _| {
        config.throttle.default.concurrency = 1;
    });
    let submit = |host, page| handle.submit(get(host, page)).expect("there is room");
    let mut meant: Vec<u64> = (0..200).map(|page| submit(1, page)).collect();
    let mut others = vec![submit(2, 1)];
    run_for(&mut crawler, Duration::from_secs(1));
    // Submissions that are not handled yet are cancelled; later ones are not.
    meant.extend((200..250).map(|page| submit(1, page)));
    handle.cancel_scope("10.0.0.1").expect("the crawl goes on");
    others.push(submit(1, 299));
    drop(handle);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    for id in meant {
        assert_eq!(record.end(id).as_deref(), Some("cancelled.asked"));
    }
    for id in others {
        assert_eq!(record.end(id).as_deref(), Some("200"));
    }
    assert!(crawler.elapsed() < think * 3);
}

#[test]
fn a_request_cancelled_in_flight_is_not_followed() {
    let origins = calm(Duration::from_millis(10));
    let at: SocketAddr = "10.0.0.1:80".parse().expect("an address");
    let kind = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 1000";
    let half = format!("{kind}\r\n\r\n<a href=/1>1</a> <a href=/2>2</a>");
    let moved = "HTTP/1.1 302 Found\r\nlocation: /3\r\ncontent-length: 1000\r\n\r\n";
    for (path, reply) in [("/half", half.as_str()), ("/moved", moved)] {
        let mut origins = origins.borrow_mut();
        origins.reply(at, path, Duration::from_millis(10), reply.as_bytes());
    }
    for path in ["half", "moved"] {
        let (mut crawler, handle, record) = crawl(Shared::clone(&origins), 1, |_, _| {});
        let url = format!("http://10.0.0.1/{path}");
        let id = handle.submit(Request::get(url)).expect("there is room");
        run_for(&mut crawler, Duration::from_secs(1));
        handle.cancel_scope("10.0.0.1").expect("it listens");
        drop(handle);
        assert_eq!(finish(&mut crawler), FinishReason::Finished);
        assert_eq!(record.end(id).as_deref(), Some("cancelled.asked"));
        assert_eq!(record.pages.borrow().len(), 1, "{path} led on");
    }
}

#[test]
fn a_full_sink_gets_cancelled_requests_when_it_has_room() {
    let (mut crawler, handle, record) = crawl(calm(Duration::from_secs(5)), 1, |_, _| {});
    for page in 0..100 {
        handle.submit(get(1, page)).expect("there is room");
    }
    run_for(&mut crawler, Duration::from_secs(1));
    record.room.set(Some(10));
    handle.cancel_scope("10.0.0.1").expect("the crawl goes on");
    run_for(&mut crawler, Duration::from_secs(1));
    // Pages in flight are passed to the sink at once.
    let on_their_way = 8;
    let taken = record.pages.borrow().len();
    assert!(taken <= 10 + on_their_way, "{taken}");
    record.room.set(None);
    run_for(&mut crawler, Duration::from_millis(10));
    assert_eq!(record.pages.borrow().len(), 100);
}

#[test]
fn a_paused_crawl_sends_nothing_and_does_not_catch_up_later() {
    let world = calm(Duration::from_millis(300));
    let (mut crawler, handle, record) = crawl(world.clone(), 1, |config, _| {
        config.throttle.default.delay = Duration::from_secs(1);
        config.throttle.default.concurrency = 4;
    });
    for page in 0..10 {
        handle.submit(get(1, page)).expect("there is room");
    }
    run_for(&mut crawler, Duration::from_millis(2100));
    let (asked, ended) = (
        || world.borrow().hits().len(),
        || record.pages.borrow().len(),
    );
    assert_eq!((asked(), ended()), (3, 2), "one is on its way");
    handle.pause();
    run_for(&mut crawler, Duration::from_secs(1));
    assert_eq!((asked(), ended()), (3, 3), "which has come to its end");
    let turns = run_for(&mut crawler, Duration::from_secs(30));
    assert!(turns < 100, "it is awake without need: {turns}");
    assert_eq!(asked(), 3);
    assert!(handle.stats().paused);
    handle.resume();
    drop(handle);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let world = world.borrow();
    let hits: Vec<_> = world.hits().iter().map(|hit| hit.at).collect();
    assert_eq!(hits.len(), 10);
    for two in hits.windows(2) {
        let gap = two[1].saturating_since(two[0]);
        // The latency of the network varies by some milliseconds.
        assert!(gap > Duration::from_millis(900), "{gap:?}");
    }
}

#[test]
fn a_pause_ends_with_the_last_handle() {
    let (mut crawler, handle, record) = crawl(calm(Duration::ZERO), 1, |_, _| {});
    let id = handle.submit(get(1, 1)).expect("there is room");
    handle.pause();
    run_for(&mut crawler, Duration::from_secs(1));
    assert_eq!(record.end(id), None);
    drop(handle);
    // A pause ends with the last handle, so the next handle begins without one.
    let next = crawler.handle();
    run_for(&mut crawler, Duration::from_secs(1));
    assert_eq!(record.end(id).as_deref(), Some("200"));
    drop(next);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
}

#[test]
fn a_scope_changes_its_pace_by_a_handle() {
    let world = calm(Duration::from_millis(1));
    let (mut crawler, handle, _) = crawl(world.clone(), 1, |config, _| {
        config.throttle.default.delay = Duration::from_secs(1);
    });
    for page in 0..30 {
        handle.submit(get(1, page)).expect("there is room");
    }
    run_for(&mut crawler, Duration::from_millis(3500));
    let slow = world.borrow().hits().len();
    let quicker = ScopePatch {
        delay: Some(Duration::from_millis(100)),
        ..ScopePatch::default()
    };
    handle
        .set_scope("10.0.0.1", quicker)
        .expect("the crawl goes on");
    drop(handle);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert!(slow <= 4, "{slow}");
    assert!(crawler.elapsed() < Duration::from_secs(8));
}

#[test]
fn a_change_of_the_default_that_an_earlier_one_does_not_allow_is_refused() {
    let patch = |text: &str| text.parse::<ScopePatch>().expect("a patch");
    let (mut crawler, handle, _) = crawl(calm(Duration::ZERO), 1, |_, _| {});
    let later = patch(r#"{"backoff": {"min_delay": 100}}"#);
    handle.set_scope("default", later).expect("there is room");
    run_for(&mut crawler, Duration::from_secs(1));
    // Of its own it is sound.
    let sooner = patch(r#"{"backoff": {"max_delay": 50}}"#);
    let by_handle = handle.set_scope("default", sooner.clone());
    by_handle.expect("there is room");
    run_for(&mut crawler, Duration::from_secs(1));
    let refused = crawler.set_scope("default", sooner.clone());
    let refused = refused.expect_err("100 s are more than 50 s");
    assert!(refused.to_string().contains("min_delay"), "{refused}");
    let given = crawler.core.throttle.default_patch();
    assert_eq!(given, patch(r#"{"backoff": {"min_delay": 100}}"#));
    crawler.set_scope("a.test", sooner).expect("it is another");
}

#[test]
fn a_shorter_grace_can_follow_and_a_longer_one_has_no_effect() {
    let (mut crawler, handle, record) = crawl(calm(Duration::from_secs(90)), 1, |_, _| {});
    let sent = handle.submit(get(1, 1)).expect("there is room");
    run_for(&mut crawler, Duration::from_secs(1));
    handle.shutdown(Duration::from_secs(60));
    let late = handle
        .try_submit(get(1, 2))
        .expect("it has not begun to end");
    run_for(&mut crawler, Duration::from_secs(1));
    let refused = handle.try_submit(get(1, 3));
    assert!(matches!(refused, Err(SubmitError::Over(_))), "{refused:?}");
    handle.shutdown(Duration::from_secs(10));
    run_for(&mut crawler, Duration::from_secs(1));
    handle.shutdown(Duration::from_secs(1000));
    assert_eq!(finish(&mut crawler), FinishReason::Shutdown);
    let took = crawler.elapsed();
    assert!(
        took > Duration::from_secs(11) && took < Duration::from_secs(14),
        "{took:?}"
    );
    assert_eq!(record.end(sent).as_deref(), Some("cancelled.stopped"));
    assert_eq!(record.end(late), None);
    let pending: Vec<_> = crawler.take_pending().map(|pending| pending.id).collect();
    assert_eq!(pending, [Some(late)]);
    assert_eq!(handle.cancel(late), Err(ControlError::Over));
    assert_eq!(
        handle.stats().progress.finish_reason,
        Some(FinishReason::Shutdown)
    );
}

#[test]
fn a_crawl_with_nothing_to_do_sleeps() {
    let (mut crawler, handle, record) = crawl(calm(Duration::ZERO), 1, |_, _| {});
    handle.submit(get(1, 1)).expect("there is room");
    run_for(&mut crawler, Duration::from_secs(100));
    let turns = run_for(&mut crawler, Duration::from_secs(24 * 3600));
    assert!(turns < 10, "{turns} turns in a day");
    handle.submit(get(1, 2)).expect("there is room");
    drop(handle);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let failed = |page: &Page| page.failure.as_ref().map(|failure| failure.kind);
    let failed: Vec<Option<FailureKind>> = record.pages.borrow().iter().map(failed).collect();
    assert_eq!(failed, [None, None]);
}

#[test]
fn links_that_arrive_at_the_end_of_the_grace_time_are_not_lost() {
    let links = (1..=30).map(|number| format!("<a href='http://93.184.{number}.1/'>it</a>"));
    // Larger than one turn can search for links.
    let links = "<p>text</p>".repeat(100_000) + &links.collect::<String>();
    let page = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{links}",
        links.len()
    );
    let mut world = Origins::default();
    let at: SocketAddr = "10.0.0.1:80".parse().expect("an address");
    world.reply(at, "/1", Duration::from_millis(500), page.as_bytes());
    let (mut crawler, handle, record) = crawl(Shared::new(world), 1, |config, _| {
        config.frontier.follow = Follow::All;
        config.allow_net.clear();
        config.allow_net.push("10.0.0.1/32".to_owned());
    });
    let id = handle.submit(get(1, 1)).expect("there is room");
    while crawler.core.pages.is_empty() {
        assert_eq!(crawler.turn(None), Turn::GoesOn);
    }
    // The rest of the page waits until the sink takes more, or the crawl ends.
    record.room.set(Some(0));
    run_for(&mut crawler, Duration::from_secs(1));
    crawler.stopper().shutdown(Duration::from_millis(100));
    assert_eq!(finish(&mut crawler), FinishReason::Shutdown);
    assert_eq!(record.end(id).as_deref(), Some("200"));
    let pages = record.pages.borrow();
    let refused = pages.iter().filter(|page| {
        let failure = page.failure.as_ref();
        failure.is_some_and(|failure| failure.name == "no_contact")
    });
    let refused = refused.count();
    let pending = crawler.take_pending().count();
    assert_eq!((refused, pending), (20, 10));
}
