//! Crawls in virtual time whose memory is limited.

use std::time::Duration;

use crate::crawl::control::feed::{EndedRequest, RequestSource, SourceError, SourcePoll, Wake};
use crate::crawl::core::tests::log::{capture, captured};
use crate::crawl::core::tests::trial::{calm, crawl_under, get, run_for};
use crate::io::Memory;
use crate::io::sim::Faults;

fn used(megabytes: u64) -> Memory {
    Memory {
        used: megabytes << 20,
        limit: 1000 << 20,
        by: "memory.max",
    }
}

/// A source of this many requests.
struct Many(u32);

impl RequestSource for Many {
    fn next(&mut self, _wake: &Wake) -> Result<SourcePoll, SourceError> {
        let Some(rest) = self.0.checked_sub(1) else {
            return Ok(SourcePoll::Finished);
        };
        self.0 = rest;
        let request = get(1 + rest % 3, rest % 300).dont_filter();
        Ok(SourcePoll::Request(request))
    }

    fn ended(&mut self, _ended: &EndedRequest<'_>) {}

    fn at_once(&self) -> usize {
        usize::MAX
    }
}

#[test]
fn reading_of_seeds_pauses_while_memory_is_short() {
    capture();
    let minute = Duration::from_secs(60);
    let faults = Faults {
        memory: vec![(Duration::ZERO, used(850)), (minute, used(300))],
        ..Faults::default()
    };
    let world = calm(Duration::from_millis(10));
    let source = Some(Box::new(Many(40_000)) as Box<dyn RequestSource>);
    let (mut crawler, _) = crawl_under(faults, source, world, 1, |config, _| {
        config.throttle.default.delay = Duration::from_secs(1);
    });
    let lines = captured();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [
        "1000 MiB (memory.max)",
        "FRONTIER_MAX",
        "BUFFERED_BODIES_MAX",
    ] {
        assert!(lines[0].contains(part), "{lines:?}");
    }
    run_for(&mut crawler, minute - Duration::from_millis(1));
    let lines = captured();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("850 MiB of 1000 MiB"), "{lines:?}");
    let queued = crawler.progress().queued;
    assert!((3000..4200).contains(&queued), "{queued}");
    run_for(&mut crawler, Duration::from_secs(3));
    let queued = crawler.progress().queued;
    assert!((39_000..40_000).contains(&queued), "{queued}");
    assert_eq!(captured(), [""; 0]);
}

#[test]
fn once_all_seeds_are_in_memory_is_seldom_looked_at() {
    capture();
    let short = Faults {
        memory: vec![(Duration::from_secs(10), used(850))],
        ..Faults::default()
    };
    let check = |takes_more: bool, warnings: usize| {
        let world = calm(Duration::from_millis(10));
        let (mut crawler, _) = crawl_under(short.clone(), None, world, 1, |config, _| {
            config.throttle.default.delay = Duration::from_secs(1);
        });
        let handle = takes_more.then(|| crawler.handle());
        for number in 0..2000 {
            let request = get(1 + number % 3, number).dont_filter();
            crawler.submit(request).expect("there is room");
        }
        run_for(&mut crawler, Duration::from_secs(29));
        let lines = captured();
        assert_eq!(lines.len(), warnings, "{takes_more}: {lines:?}");
        run_for(&mut crawler, Duration::from_secs(2));
        assert_eq!(warnings + captured().len(), 1);
        drop(handle);
    };
    check(true, 1);
    check(false, 0);
}

#[test]
fn nothing_is_logged_if_memory_is_not_limited() {
    capture();
    let world = calm(Duration::from_millis(10));
    let _ = crawl_under(Faults::default(), None, world, 1, |_, _| {});
    assert_eq!(captured(), [""; 0]);
}
