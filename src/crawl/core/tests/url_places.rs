//! URLs that are in no queue and have not ended.

use std::time::Duration;

use serde_json::Value;

use crate::base::ids::LaneId;
use crate::crawl::Crawler;
use crate::crawl::breaker::Egress;
use crate::crawl::core::tests::operated::{THINK, Trial};
use crate::crawl::core::tests::trial::get;
use crate::crawl::network::socket::Carrier;
use crate::crawl::outage::Suspect;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::job::Job;
use crate::io::sim::{Faults, Sim};
use crate::wire::url::CrawlUrl;

fn url(text: &str) -> CrawlUrl {
    CrawlUrl::parse(text).expect("a URL")
}

/// The state of a URL that is in no queue.
#[track_caller]
fn check(crawler: &Crawler<Sim>, text: &str, expected: Option<&str>) -> Value {
    let state = crawler.core.place_json(&url(text)).unwrap_or_default();
    assert_eq!(state["state"].as_str(), expected, "{state:#}");
    assert!(expected.is_none() || state["why"].is_string(), "{state:#}");
    state
}

fn ask(trial: &mut Trial, url: &str) -> Value {
    let encoded = url.replace('/', "%2F").replace(':', "%3A");
    trial.ask_well("GET", &format!("/v1/urls/{encoded}"), "")
}

#[test]
fn a_failure_that_waits_for_the_breaker_is_named_with_its_error() {
    let mut trial = Trial::thinking(Duration::from_millis(50), 20, |_| ());
    let failure = || Failure::new(FailureKind::Connect, "timed_out", "");
    let apart = url("http://10.0.0.9/apart");
    trial.crawler.core.outage.suspend(Suspect::Unresolved {
        lane: LaneId(0),
        job: Box::new(Job::seed(7, apart.clone())),
        failure: failure(),
    });
    let state = check(&trial.crawler, apart.as_str(), Some("awaiting_verdict"));
    assert_eq!(state["error"], "connect.timed_out");
    trial.crawler.core.outage.take_suspects(|_| true);
    trial.run(130);
    let core = &mut trial.crawler.core;
    let (key, flight) = core.flights.find(|_| true).expect("one is in flight");
    let text = flight.job.url.as_str().to_owned();
    check(&trial.crawler, &text, Some("in_flight"));
    trial.crawler.core.outage.suspend(Suspect::Flight {
        key,
        failure: failure(),
        carrier: Carrier::default(),
        egress: Egress::Names,
        unrouted: None,
    });
    let state = check(&trial.crawler, &text, Some("awaiting_verdict"));
    assert!(state["for"].is_number(), "{state:#}");
    trial.crawler.core.outage.take_suspects(|_| true);
}

#[test]
fn a_reply_at_a_helper_thread_is_being_worked_on_and_waits_for_a_full_sink() {
    let faults = Faults {
        compute_max: Duration::from_secs(3),
        ..Faults::default()
    };
    let mut trial = Trial::configured(faults, THINK, |config| config.io.workers = 1);
    let html = "<a href=/2>two</a>".to_owned() + &" ".repeat(10_000);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}",
        html.len()
    );
    let reply = format!("{head}\r\n\r\n{html}");
    let at = "10.0.0.1:80".parse().expect("an address");
    let origins = crate::base::shared::Shared::clone(&trial.world.borrow().origins);
    origins
        .borrow_mut()
        .reply(at, "/long", THINK, reply.as_bytes());
    let long = "http://10.0.0.1/long";
    let request = crate::frontier::request::Request::get(long);
    trial.crawler.submit(request).expect("it is a URL");
    let mut states = Vec::new();
    for _ in 0..8000 {
        // It takes nothing while the reply is at the helper thread.
        let is_full = states.last().is_some_and(|state| state == "working");
        trial.record.room.set(is_full.then_some(0));
        trial.run(1);
        let state = ask(&mut trial, long);
        let name = state["state"].as_str().expect("it has one").to_owned();
        if name == "working" {
            assert_eq!(state["why"], "a helper thread works on its reply");
        }
        if states.last() != Some(&name) {
            states.push(name);
        }
        if states.last().is_some_and(|state| state == "ended") {
            break;
        }
    }
    let of_reply: Vec<&str> = states.iter().map(String::as_str).collect();
    assert_eq!(
        of_reply[of_reply.len() - 3..],
        ["working", "awaiting_sink", "ended"]
    );
}

#[test]
fn a_request_that_ended_unsent_waits_for_the_sink_and_has_its_error() {
    let mut trial = Trial::with(|_| ());
    trial.record.room.set(Some(0));
    let ids = (0..40).map(|page| trial.crawler.submit(get(1, page)).expect("it is a URL"));
    let ids: Vec<u64> = ids.collect();
    trial.run(20);
    for id in &ids[10..] {
        trial.crawler.handle().cancel(*id).expect("there is room");
    }
    trial.run(20);
    assert_eq!(ask(&mut trial, "http://10.0.0.1/5")["state"], "queued");
    for page in [10, 39] {
        let state = ask(&mut trial, &format!("http://10.0.0.1/{page}"));
        assert_eq!(state["state"], "awaiting_sink", "{state:#}");
        assert_eq!(state["error"], "cancelled.asked");
    }
    trial.record.room.set(None);
    trial.run(200);
    assert_eq!(ask(&mut trial, "http://10.0.0.1/39")["state"], "ended");
}

#[test]
fn what_a_stopped_crawl_was_fetching_is_pending() {
    let mut trial = Trial::thinking(Duration::from_secs(30), 3, |config| {
        config.stop_grace = Duration::ZERO;
    });
    trial.run(100);
    check(&trial.crawler, "http://10.0.0.1/0", Some("in_flight"));
    trial.crawler.stopper().stop_now();
    while trial.crawler.core.control.phase().is_fetching() {
        trial.crawler.turn(None);
    }
    check(&trial.crawler, "http://10.0.0.1/0", Some("pending"));
    let pending = trial.crawler.take_pending().count();
    assert_eq!(pending, 6);
}
