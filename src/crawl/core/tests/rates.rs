//! `BYTES_PER_SECOND_MAX` in virtual time, judged by what servers have sent.

use std::time::Duration;

use crate::base::time::Instant;
use crate::crawl::config::Config;
use crate::crawl::core::tests::spilled::{crawl, page};
use crate::crawl::core::tests::trial::{finish, run_for};
use crate::crawl::{Crawler, FinishReason, Handle};
use crate::frontier::request::Request;
use crate::io::sim::Sim;
use crate::io::sim::web::{Reply, Web};
use crate::throttle::settings::ScopePatch;

/// A crawl without delays of so many pages of this size, 50 ms each, at most so many bytes per second.
fn limited(pages: u64, size: usize, rate: u64) -> (Crawler<Sim>, Web) {
    let web = Web::new(move |_| Reply::text("x".repeat(size)).after(Duration::from_millis(50)));
    let edit = |config: &mut Config| {
        config.throttle.default.concurrency = 100;
        config.frontier.memory_max = 1 << 30;
        config.bytes_per_second_max = rate;
    };
    let mut crawler = crawl(&web, edit);
    for number in 0..pages {
        crawler.submit(page(number)).expect("it is a URL");
    }
    (crawler, web)
}

/// Bytes of the bodies that the server was asked for in each second from the start.
fn by_second(web: &Web, size: usize) -> Vec<usize> {
    let mut seconds = Vec::new();
    for asked in web.asked() {
        let second = asked.at.saturating_since(Instant::START).as_secs() as usize;
        seconds.resize(seconds.len().max(second + 1), 0);
        seconds[second] += size;
    }
    seconds
}

#[test]
fn requests_are_as_many_as_the_bytes_per_second_allow() {
    const RATE: usize = 200_000;
    const SIZE: usize = 10_000;
    let (mut crawler, web) = limited(600, SIZE, RATE as u64);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let seconds = by_second(&web, SIZE);
    let elapsed = crawler.elapsed().as_secs_f64();
    assert!((28.0..34.0).contains(&elapsed), "{elapsed}: {seconds:?}");
    let mut sum = 0;
    for (second, bytes) in seconds.iter().enumerate() {
        sum += bytes;
        // What is in flight is of one second at most.
        let most = RATE * (second + 1) + RATE * 5 / 4;
        assert!(sum <= most, "{sum} bytes after {second} s: {seconds:?}");
        assert!(
            *bytes <= 2 * RATE,
            "{bytes} bytes in second {second}: {seconds:?}"
        );
    }
}

#[test]
fn a_long_reply_is_read_at_the_rate() {
    let (mut crawler, _) = limited(1, 1_000_000, 100_000);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let elapsed = crawler.elapsed().as_secs_f64();
    assert!((9.0..11.0).contains(&elapsed), "{elapsed}");
    let stats = crawler.stats();
    assert_eq!(stats.pages, 1);
}

#[test]
fn many_long_replies_share_the_rate_and_none_is_out_of_time() {
    let (mut crawler, web) = limited(20, 100_000, 100_000);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let elapsed = crawler.elapsed().as_secs_f64();
    assert!((19.0..22.0).contains(&elapsed), "{elapsed}");
    assert_eq!(crawler.stats().pages, 20);
    assert_eq!(web.asked().len(), 20, "none was tried again");
}

#[test]
fn the_rate_is_changed_while_the_crawl_runs() {
    const SIZE: usize = 10_000;
    let (mut crawler, web) = limited(5000, SIZE, 0);
    let handle = crawler.handle();
    run_for(&mut crawler, Duration::from_secs(1));
    let sent_in_ten_seconds = |crawler: &mut Crawler<Sim>| {
        run_for(crawler, Duration::from_secs(2));
        let before = web.asked().len();
        run_for(crawler, Duration::from_secs(10));
        web.asked().len() - before
    };
    assert!(web.asked().len() > 500, "without a limit");
    handle
        .set_limit("BYTES_PER_SECOND_MAX", 50_000)
        .expect("a limit");
    // What was in flight takes twenty seconds at the new rate.
    run_for(&mut crawler, Duration::from_secs(25));
    let slow = sent_in_ten_seconds(&mut crawler);
    assert!((40..=56).contains(&slow), "{slow}");
    handle
        .set_limit("bytes_per_second_max", "200kB")
        .expect("a limit");
    let faster = sent_in_ten_seconds(&mut crawler);
    assert!((170..=215).contains(&faster), "{faster}");
    handle
        .withdraw_limit("BYTES_PER_SECOND_MAX")
        .expect("a limit");
    assert!(web.asked().len() < 4600, "{}", web.asked().len());
    run_for(&mut crawler, Duration::from_secs(10));
    assert_eq!(web.asked().len(), 5000);
}

#[test]
fn a_scope_with_a_rate_gets_no_more_bytes_on_average_and_others_are_not_held_up() {
    const SIZE: usize = 10_000;
    let (mut crawler, web) = limited(300, SIZE, 0);
    let handle = crawler.handle();
    let rate = ScopePatch::default().bytes_per_second(20_000);
    let rate = rate.delay(Duration::ZERO).concurrency(1);
    handle.set_scope("a.test", rate).expect("it is valid");
    for number in 0..100 {
        let other = Request::get(format!("http://b.test/{number}"));
        crawler.submit(other).expect("it is a URL");
    }
    run_for(&mut crawler, Duration::from_secs(2));
    let of = |host: &str| {
        let asked = web.asked();
        asked.iter().filter(|asked| asked.host == host).count()
    };
    assert_eq!(of("b.test"), 100);
    let before = of("a.test");
    run_for(&mut crawler, Duration::from_secs(20));
    let sent = of("a.test") - before;
    assert!((35..=40).contains(&sent), "{sent}");
    let faster = ScopePatch::default().bytes_per_second(100_000);
    let faster = faster.delay(Duration::ZERO).concurrency(1);
    handle.set_scope("a.test", faster).expect("it is valid");
    let before = of("a.test");
    run_for(&mut crawler, Duration::from_secs(10));
    let sent = of("a.test") - before;
    assert!((88..=101).contains(&sent), "{sent}");
    assert_eq!(finish_without(handle, &mut crawler), FinishReason::Finished);
}

fn finish_without(handle: Handle, crawler: &mut Crawler<Sim>) -> FinishReason {
    drop(handle);
    finish(crawler)
}
