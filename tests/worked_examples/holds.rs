//! Holds requested by a server, and holds known before the first request.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use argiope::serde_json::json;
use argiope::settings::ScopePatch;
use argiope::{Answer, Classify, Config, Crawler, Feedback, Signal, Turn};

use crate::loopback::{self, Asked, Reply, Server, gaps};
use crate::{
    LATE, TOLERANCE, assert_gaps, assert_silent, crawl, crawl_under, get, kept, millis, set,
    to_the_end,
};

/// Refusals alone ask for little, so that what a reply asks for beyond that can be seen.
fn quick_backoff(server: &Server) -> Config {
    let config = set(server.config(), "BACKOFF_MIN_DELAY", "30ms");
    set(config, "BACKOFF_JITTER", false)
}

fn is_first(asked: &Asked) -> bool {
    asked.target == "/0"
}

/// A server that refuses `/0` of each host with the field that stands for the host.
fn refusing(field: &'static str, values: &'static [(&str, &str)]) -> Server {
    Server::start(move |asked| {
        let of = values.iter().find(|(host, _)| *host == asked.host);
        match of.filter(|_| is_first(asked)) {
            Some((_, value)) => Reply::status("429 Too Many Requests").field(field, value),
            None => Reply::page("a page").after(millis(20)),
        }
    })
}

fn pages_of(hosts: &[(&'static str, &str)], count: usize) -> Vec<argiope::Request> {
    let pages = |host: &str| {
        let host = host.to_owned();
        (0..count).map(move |number| get(format!("http://{host}/{number}")))
    };
    hosts.iter().flat_map(|(host, _)| pages(host)).collect()
}

/// How long each of these hosts was left alone after its refusal.
fn silences(server: &Server, hosts: &[(&'static str, &str)]) -> Vec<Duration> {
    let of = |host: &'static str| {
        let asked = server.asked_of(|asked| asked.host == host);
        asked[1].at.saturating_sub(asked[0].done)
    };
    hosts.iter().map(|(host, _)| of(host)).collect()
}

#[test]
fn f33_the_first_refusal_of_a_scope_makes_the_next_gap_a_second() {
    let server = refusing("X", &[("a.test", "y")]);
    let config = set(server.config(), "BACKOFF_JITTER", false);
    crawl_under(config, pages_of(&[("a.test", "")], 2));
    assert_gaps(&server.asked(), millis(1000));
}

#[test]
fn f38_the_connection_that_is_refused_slows_down_alone_on_the_wire() {
    const SLOTS: usize = 4;
    let server = Server::start(|asked| match asked.conn {
        0 => Reply::status("429 Too Many Requests").after(millis(20)),
        _ => Reply::page("a page").after(millis(20)),
    });
    // By the delay connections are idle in between, and none is taken for another's slot.
    let own = json!({"a.test": {
        "concurrency": SLOTS,
        "delay": 0.01,
        "backoff": {"per_slot": true, "min_delay": 0.2, "jitter": 0},
    }});
    crawl_under(
        set(server.config(), "THROTTLING_SCOPES", own),
        pages_of(&[("a.test", "")], 200),
    );
    let on = |conn: usize| server.asked_of(|asked| asked.conn == conn);
    assert!(on(SLOTS).is_empty(), "each slot keeps its connection");
    // Doubled by each refusal, between a reply and the next request.
    let refused = on(0);
    assert!(refused.len() >= 4, "{} were refused", refused.len());
    for (pair, delay) in refused.windows(2).zip([200, 400, 800, 1600]) {
        let gap = pair[1].at.saturating_sub(pair[0].at);
        assert!(gap + TOLERANCE >= millis(delay), "{gap:?} after a refusal");
        // The others go on meanwhile, one request after the other.
        for other in 1..SLOTS {
            let within = |asked: &&Asked| asked.at > pair[0].at && asked.at < pair[1].at;
            let meanwhile = on(other).iter().filter(within).count();
            assert!(meanwhile >= 3, "slot {other} sent {meanwhile} in {gap:?}");
        }
    }
}

#[test]
fn f44_retry_after_holds_the_scope_once_and_one_request_probes() {
    let server = refusing("Retry-After", &[("a.test", "2")]);
    let config = set(quick_backoff(&server), "CONCURRENT_REQUESTS_PER_DOMAIN", 4);
    // The others are submitted when the refusal is known.
    let (pages, mut crawler) = kept(Crawler::builder(config));
    let goes_on = crawler.handle();
    crawler.submit(get("http://a.test/0")).expect("a URL");
    while pages.borrow().is_empty() {
        crawler.turn(Some(millis(10)));
    }
    for number in 1..6 {
        crawler
            .submit(get(format!("http://a.test/{number}")))
            .expect("a URL");
    }
    drop(goes_on);
    to_the_end(&mut crawler);
    let asked = server.asked();
    assert_eq!(asked.len(), 6);
    assert_silent(&asked[0], &asked[1], millis(2000));
    assert!(
        asked[1].done < asked[2].at,
        "the next ones wait for the probe"
    );
    for gap in &gaps(&asked)[1..] {
        assert!(*gap < millis(1000), "stuck: {:?}", gaps(&asked));
    }
}

#[test]
fn f45_retry_after_may_be_a_date_and_garbage_is_ignored() {
    // A date counts whole seconds: the wall clock's next but two is two to three seconds ahead.
    let server = Server::start(|asked| {
        if !is_first(asked) {
            return Reply::page("a page");
        }
        let now = SystemTime::now();
        let value = match asked.host.as_str() {
            "ahead.test" => httpdate::fmt_http_date(now + Duration::from_secs(2)),
            "past.test" => httpdate::fmt_http_date(now - Duration::from_secs(60)),
            "naive.test" => "Sun Nov 6 2094 08:49:37".to_owned(),
            "soon.test" => "soon".to_owned(),
            "negative.test" => "-5".to_owned(),
            "huge.test" => "1e999".to_owned(),
            _ => "demn\u{e4}chst".to_owned(),
        };
        let reply = Reply::status("429 Too Many Requests").field("Retry-After", value);
        let since = now
            .duration_since(UNIX_EPOCH)
            .expect("it is later than 1970");
        // How long it is from this answer to the date.
        reply.field("X-Ahead", 2000 - since.subsec_millis())
    });
    let hosts = [
        "ahead.test",
        "past.test",
        "naive.test",
        "soon.test",
        "negative.test",
        "huge.test",
        "odd.test",
    ];
    let urls = hosts
        .iter()
        .flat_map(|host| (0..2).map(move |n| get(format!("http://{host}/{n}"))));
    let pages = crawl_under(quick_backoff(&server), urls);
    assert_eq!(pages.len(), 14);
    let ahead = pages.iter().find_map(|page| {
        let first = &*page.url == "http://ahead.test/0";
        let field = page.headers.get("X-Ahead").filter(|_| first)?;
        str::from_utf8(field).ok()?.parse().ok()
    });
    let of_ahead = server.asked_of(|asked| asked.host == "ahead.test");
    let until = of_ahead[0].at + millis(ahead.expect("it was fed back"));
    // The date was read off a clock after the arrival, so this is early by that.
    assert!(of_ahead[1].at + TOLERANCE >= until);
    for host in &hosts[1..] {
        let of = server.asked_of(|asked| asked.host == *host);
        assert_eq!(of.len(), 2, "{host}");
        assert!(of[1].at < of_ahead[1].at, "{host} is not held");
    }
}

#[test]
fn f46_ratelimit_reset_holds_as_seconds_or_as_an_epoch_and_garbage_does_not() {
    const HOSTS: &[(&str, &str)] = &[
        ("two.test", "2"),
        ("negative.test", "-1"),
        ("nan.test", "nan"),
        ("inf.test", "inf"),
        ("words.test", "tomorrow"),
        ("past.test", "1500000000"),
    ];
    let server = refusing("RateLimit-Reset", HOSTS);
    crawl_under(quick_backoff(&server), pages_of(HOSTS, 2));
    let silent = silences(&server, HOSTS);
    assert!(silent[0] + TOLERANCE >= millis(2000), "{silent:?}");
    for other in &silent[1..] {
        assert!(*other < millis(1500), "{silent:?}");
    }
}

#[test]
fn f49_retry_after_of_a_redirect_delays_that_redirect_alone() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/from" => Reply::redirect("302 Found", "/to").field("Retry-After", 2),
        _ => Reply::page("a page"),
    });
    let mut urls = vec![get("http://a.test/from").priority(1)];
    urls.extend((0..5).map(|number| get(format!("http://a.test/{number}"))));
    let pages = crawl_under(server.config(), urls);
    let asked = server.asked();
    assert_eq!(asked[0].target, "/from");
    assert_eq!(asked[6].target, "/to", "its siblings go on");
    assert_silent(&asked[0], &asked[6], millis(2000));
    assert!(pages.iter().all(|page| page.failure.is_none()));
}

#[test]
fn f49_no_redirect_waits_longer_than_its_cap() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/from" => Reply::redirect("302 Found", "/to").field("Retry-After", 9999),
        _ => Reply::page("a page"),
    });
    let config = set(server.config(), "REDIRECT_MAX_DELAY", "400ms");
    crawl_under(config, [get("http://a.test/from")]);
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    assert_silent(&asked[0], &asked[1], millis(400));
}

#[test]
fn f50_a_known_hold_applies_before_the_first_request() {
    let server = Server::start(|_| Reply::page("a page"));
    let scopes = json!({
        "busy.test": {},
        "spent.test": {"quota": 10.0, "window": 1.0},
    });
    let config = set(server.config(), "THROTTLING_SCOPES", scopes);
    let builder = Crawler::builder(config).initial_feedback(|scope| match scope {
        "busy.test" => Some(Feedback::new(scope).delay(millis(1000))),
        "spent.test" => Some(Feedback::new(scope).remaining(1.0)),
        _ => None,
    });
    let hosts = ["busy.test", "spent.test", "other.test"];
    let urls = hosts
        .iter()
        .flat_map(|host| (0..2).map(move |n| get(format!("http://{host}/{n}"))));
    let began = loopback::now();
    crawl(builder, urls);
    let of = |host: &'static str| server.asked_of(|asked| asked.host == host);
    let (busy, spent, other) = (of("busy.test"), of("spent.test"), of("other.test"));
    assert!(busy[0].at + TOLERANCE >= began + millis(1000));
    assert!(other[1].at < busy[0].at && spent[0].at < busy[0].at);
    assert!(spent[1].at + TOLERANCE >= began + millis(1000));
}

#[test]
fn f68_a_signal_accepts_feedback_in_every_form() {
    struct Says;
    impl Classify for Says {
        fn classify(&self, answer: &Answer<'_>) -> Signal {
            let signal = Signal::from_answer(answer);
            let host = answer.scopes[0].to_owned();
            match &*host {
                _ if !answer.url.ends_with("/0") => signal,
                // A name, a list of them, what is known of one; what was not asked is left out.
                "name.test" => signal.feedback("name.test"),
                "list.test" => ["elsewhere.test", "list.test"]
                    .into_iter()
                    .fold(signal, |signal, name| signal.feedback(name)),
                "delay.test" => signal.feedback(Feedback::new(host).delay(millis(700))),
                "quota.test" => signal.feedback(Feedback::new(host).remaining(0.0)),
                "cost.test" => signal.feedback(Feedback::new(host).actual(10.0)),
                _ => signal,
            }
        }
    }
    let server = Server::start(|_| Reply::page("a page"));
    let quota = json!({"concurrency": 1, "delay": 0.0, "quota": 10.0, "window": 0.7});
    let scopes = json!({"quota.test": quota, "cost.test": quota});
    let config = set(server.config(), "THROTTLING_SCOPES", scopes);
    let config = set(config, "BACKOFF_MIN_DELAY", "700ms");
    let config = set(config, "BACKOFF_JITTER", false);
    let hosts = [
        ("none.test", ""),
        ("elsewhere.test", ""),
        ("name.test", ""),
        ("list.test", ""),
        ("delay.test", ""),
        ("quota.test", ""),
        ("cost.test", ""),
    ];
    crawl(Crawler::builder(config).classify(Says), pages_of(&hosts, 2));
    let silent = silences(&server, &hosts);
    for (at, (host, _)) in hosts.iter().enumerate() {
        match at {
            0 | 1 => assert!(silent[at] < millis(600), "{host}: {silent:?}"),
            // The state of a quota counts from its arrival; its window, from the departure.
            _ => assert!(silent[at] + LATE >= millis(700), "{host}: {silent:?}"),
        }
    }
}

#[test]
fn f68_a_program_can_exhaust_or_hold_a_scope_at_any_time() {
    let check = |feedback: Feedback| {
        let server = Server::start(|_| Reply::page("a page"));
        let config = set(server.config(), "BACKOFF_MIN_DELAY", "700ms");
        let config = set(config, "BACKOFF_JITTER", false);
        let (pages, mut crawler) = kept(Crawler::builder(config));
        let goes_on = crawler.handle();
        crawler.submit(get("http://a.test/0")).expect("a URL");
        while pages.borrow().is_empty() {
            crawler.turn(Some(millis(10)));
        }
        crawler.feedback(&feedback);
        crawler.submit(get("http://a.test/1")).expect("a URL");
        drop(goes_on);
        to_the_end(&mut crawler);
        assert_gaps(&server.asked(), millis(700));
    };
    check(Feedback::new("a.test").delay(millis(700)));
    check(Feedback::from("a.test"));
}

#[test]
fn f68_feedback_takes_effect_from_the_call() {
    let server = Server::start(|_| Reply::page("a page"));
    let builder = Crawler::builder(server.config()).initial_feedback(|scope| {
        (scope == "known.test").then(|| Feedback::new(scope).delay(millis(500)))
    });
    let (_, mut crawler) = kept(builder);
    let goes_on = crawler.handle();
    crawler.turn(Some(millis(1)));
    // The program has other things to do than to take turns.
    thread::sleep(millis(400));
    let fed_back = loopback::now();
    crawler.feedback(&Feedback::new("slowed.test").delay(millis(500)));
    for host in ["slowed.test", "known.test"] {
        let request = get(format!("http://{host}/"));
        crawler.submit(request).expect("a URL");
    }
    drop(goes_on);
    to_the_end(&mut crawler);
    for asked in server.asked() {
        assert!(asked.at + TOLERANCE >= fed_back + millis(500), "{asked:?}");
    }
}

#[test]
fn f81_set_scope_takes_effect_during_a_crawl() {
    let server = Server::start(|_| Reply::page("a page").after(millis(100)));
    let config = set(server.config(), "DOWNLOAD_DELAY", "50ms");
    let (pages, mut crawler) = kept(Crawler::builder(config));
    for number in 0..26 {
        crawler
            .submit(get(format!("http://a.test/{number}")))
            .expect("a URL");
    }
    let until = |crawler: &mut Crawler, count: usize| {
        while pages.borrow().len() < count {
            assert_eq!(crawler.turn(Some(millis(10))), Turn::GoesOn);
        }
    };
    let fed_back = |crawler: &mut Crawler, count, delay, concurrency| {
        until(crawler, count);
        let patch = ScopePatch::default()
            .delay(millis(delay))
            .concurrency(concurrency);
        crawler.set_scope("a.test", patch).expect("a sound patch");
        server.asked().len()
    };
    let slower = fed_back(&mut crawler, 2, 500, 1);
    let faster = fed_back(&mut crawler, 5, 0, 4);
    let fewer = fed_back(&mut crawler, 10, 0, 1);
    to_the_end(&mut crawler);
    let asked = server.asked();
    // What had left or was leaving when it was said is of the pace before.
    assert_gaps(&asked[slower..faster], millis(500));
    let peak = |asked: &[Asked]| loopback::peak(asked);
    assert_eq!(peak(&asked[faster..fewer]), 4);
    // Four may have been on their way when the last word came.
    assert_eq!(peak(&asked[fewer + 4..]), 1);
}
