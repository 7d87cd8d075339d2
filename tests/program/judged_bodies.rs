//! Refusals that only the body shows: a `Classify` reads its first bytes, or all of it, and its verdict counts
//! like a status.

use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::base::shared::Shared;
use argiope::parts::gzip;
use argiope::sim::{Asked, Reply, Web};
use argiope::{
    Answer, Blame, BodyMode, BodyPart, BodySignal, Builder, Classify, Config, Crawler, ExchangeEnd,
    FailureKind, FinishReason, Flow, Instant, Page, PageKind, Request, ScopeMap, ScopeQuery, Sink,
    Strategy,
};

use argiope::settings::ScopeSettings;

const ASKS: &str = "please slow down";

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}

/// Without links, robots.txt and jitter.
fn config() -> Config {
    let config = Config::default()
        .with("DOWNLOAD_DELAY", "1s")
        .and_then(|config| config.with("RANDOMIZE_DOWNLOAD_DELAY", false))
        .and_then(|config| config.with("ROBOTSTXT_OBEY", false))
        .and_then(|config| config.with("FOLLOW", "none"));
    config.expect("the settings are valid")
}

fn with(config: Config, name: &str, value: u32) -> Config {
    config.with(name, value).expect("the setting is valid")
}

/// Crawls so many pages of each host to the end; returns every attempt.
fn crawl(builder: Builder, web: &Web, hosts: &[&str], count: u32) -> Vec<Page> {
    let builder = builder.every_attempt();
    let mut crawler = builder.build_in(web, 7).expect("it can be set up");
    for number in 0..count {
        for host in hosts {
            let request = Request::get(format!("http://{host}/{number}"));
            crawler.submit(request).expect("it is a request");
        }
    }
    let pages = std::iter::from_fn(|| crawler.next_result()).collect();
    let reason = crawler.progress().finish_reason;
    assert_eq!(reason, Some(FinishReason::Finished));
    pages
}

/// A web that asks for patience where `is_refused` says so.
fn asking(mut is_refused: impl FnMut(&Asked) -> bool + Send + 'static) -> Web {
    Web::new(move |asked| match is_refused(asked) {
        true => Reply::page(format!("<p>Sorry, {ASKS}.")),
        false => Reply::page("a page"),
    })
}

#[test]
fn the_example_doubles_the_delay_up_to_a_minute_and_halves_it_after_ten_good_pages() {
    // The server wants three seconds between two requests.
    let refused = Shared::new(Vec::new());
    let (notes, mut last) = (Shared::clone(&refused), None);
    let web = asking(move |asked| {
        let before: Option<Instant> = last.replace(asked.at);
        let is_early = before.is_some_and(|at| asked.at.saturating_since(at) < seconds(3.0));
        notes.borrow_mut().push(is_early);
        is_early
    });
    let builder = crate::pace_by_body::by_body(Crawler::builder(config()));
    let pages = crawl(builder, &web, &["a.test"], 60);
    let refused = refused.borrow().clone();
    let mut delay = 1.0;
    let mut good = 0;
    for (pair, is_refused) in web.asked().windows(2).zip(&refused) {
        (delay, good) = match (is_refused, good) {
            (true, _) => (f64::min(delay * 2.0, 60.0), 0),
            (false, 9) => (f64::max(delay / 2.0, 1.0), 0),
            (false, good) => (delay, good + 1),
        };
        let gap = pair[1].at.saturating_since(pair[0].at).as_secs_f64();
        assert!(
            (delay - 0.1..delay + 0.3).contains(&gap),
            "{gap} s, not {delay}"
        );
    }
    // One in eleven, after the first few.
    let count = refused.iter().filter(|is_refused| **is_refused).count();
    assert!((5..10).contains(&count), "{count} of {}", refused.len());
    assert!(
        pages
            .iter()
            .all(|page| !page.is_final || page.judged.is_none())
    );
    assert_eq!(pages.iter().filter(|page| page.is_final).count(), 60);

    let web = asking(|_| true);
    let builder = crate::pace_by_body::by_body(Crawler::builder(config()));
    crawl(builder, &web, &["a.test"], 4);
    let asked = web.asked();
    let gaps = asked
        .windows(2)
        .map(|pair| pair[1].at.saturating_since(pair[0].at));
    let gaps: Vec<u64> = gaps.map(|gap| (gap.as_secs_f64() + 0.1) as u64).collect();
    assert_eq!(gaps, [2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60]);
}

#[test]
fn the_example_also_slows_down_for_requests_without_an_answer() {
    let web = Web::new(|_| Reply::reset());
    let config = with(config(), "HOST_DOWN_AFTER", 0);
    let builder = crate::pace_by_body::by_body(Crawler::builder(config));
    crawl(builder, &web, &["a.test"], 1);
    let asked = web.asked();
    let gaps = asked
        .windows(2)
        .map(|pair| pair[1].at.saturating_since(pair[0].at));
    let gaps: Vec<u64> = gaps.map(|gap| (gap.as_secs_f64() + 0.1) as u64).collect();
    assert_eq!(gaps, [2, 4]);
}

#[test]
fn the_example_is_never_faster_than_the_configured_delay() {
    let config = config().with("DOWNLOAD_DELAY", "2min").expect("valid");
    let web = asking(|asked| asked.target.ends_with('1'));
    crawl(
        crate::pace_by_body::by_body(Crawler::builder(config)),
        &web,
        &["a.test"],
        4,
    );
    let asked = web.asked();
    assert!(asked.len() > 4, "one is retried");
    for pair in asked.windows(2) {
        let gap = pair[1].at.saturating_since(pair[0].at).as_secs_f64();
        assert!(gap > 119.9, "{gap} s");
    }
}

#[test]
fn the_example_doubles_the_delay_once_for_all_refusals_of_a_round() {
    // Four are in flight: they are sent at 0, 1, 2 and 3 s, and the first is answered after 3.5 s.
    let mut count = 0;
    let web = Web::new(move |_| {
        count += 1;
        Reply::page(if count <= 4 { ASKS } else { "a page" }).after(seconds(3.5))
    });
    let config = with(config(), "CONCURRENT_REQUESTS_PER_DOMAIN", 4);
    let builder = crate::pace_by_body::by_body(Crawler::builder(config));
    crawl(builder, &web, &["a.test"], 20);
    let asked = web.asked();
    let gaps = asked
        .windows(2)
        .map(|pair| pair[1].at.saturating_since(pair[0].at));
    let gaps: Vec<u64> = gaps.map(|gap| (gap.as_secs_f64() + 0.1) as u64).collect();
    // 2 s until the tenth good page of those sent at that delay.
    let expected = [&[1; 3][..], &[2; 11], &[1; 9]].concat();
    assert_eq!(gaps, expected);
}

#[test]
fn the_delay_grows_with_each_refusal_though_each_head_is_a_200() {
    let web = asking(|_| true);
    // A head that counted as an answer would end a window without refusals.
    let config = config().with("BACKOFF_WINDOW", "1s").expect("valid");
    let config = with(config, "RETRY_TIMES", 5);
    let builder = Crawler::builder(config).classify(Reader::of(BodyPart::Start(100)));
    crawl(builder, &web, &["a.test"], 1);
    let asked = web.asked();
    let gaps = asked
        .windows(2)
        .map(|pair| pair[1].at.saturating_since(pair[0].at).as_secs_f64());
    let gaps: Vec<f64> = gaps.collect();
    assert_eq!(gaps.len(), 5);
    assert!(
        gaps.windows(2).all(|pair| pair[1] > pair[0] * 1.5),
        "{gaps:?}"
    );
}

/// What a classifier read of a body.
#[derive(Clone, Debug)]
struct Read {
    bytes: Vec<u8>,
    /// The failure at that time.
    failure: Option<FailureKind>,
    /// Bytes that the sink had taken by then.
    taken: u64,
}

/// Judges by the words of a part of the body, and keeps what it was asked.
#[derive(Clone)]
struct Reader {
    part: BodyPart,
    blame: Blame,
    read: Shared<Vec<Read>>,
    taken: Shared<u64>,
    /// The status of the body, where retries are decided.
    decided: Shared<Vec<Option<u16>>>,
}

impl Reader {
    fn of(part: BodyPart) -> Self {
        Reader {
            part,
            blame: Blame::Specific,
            read: Shared::default(),
            taken: Shared::default(),
            decided: Shared::default(),
        }
    }
}

impl Classify for Reader {
    fn body_part(&self, _: &Answer<'_>) -> BodyPart {
        self.part
    }

    fn classify_body(&self, answer: &Answer<'_>, body: &[u8]) -> BodySignal {
        self.read.borrow_mut().push(Read {
            bytes: body.to_vec(),
            failure: answer.failure,
            taken: self.taken.get(),
        });
        match body
            .windows(ASKS.len())
            .any(|words| words == ASKS.as_bytes())
        {
            true => BodySignal::nothing().status(429).blame(self.blame.clone()),
            false => BodySignal::nothing(),
        }
    }

    fn retries(&self, answer: &Answer<'_>, _: u32) -> Option<bool> {
        self.decided.borrow_mut().push(answer.body_status);
        None
    }
}

/// Takes bodies in this mode, and counts the bytes that it takes in pieces.
struct InMode(BodyMode, Shared<u64>, Shared<Vec<Page>>);

impl Sink for InMode {
    fn on_head(&mut self, _: &argiope::Reply<'_>) -> BodyMode {
        self.0
    }

    fn on_body(&mut self, _: u64, piece: &[u8]) -> Flow {
        self.1.set(self.1.get() + piece.len() as u64);
        Flow::Ready
    }

    fn put(&mut self, page: &mut Page) {
        self.2.borrow_mut().push(page.clone());
    }
}

/// Fetches a page of this body, coded or not; returns what was read of it, and the pages.
fn fetch(
    part: BodyPart,
    mode: BodyMode,
    body: &[u8],
    coding: Option<&str>,
    workers: u32,
) -> (Vec<Read>, Vec<Page>) {
    let reader = Reader::of(part);
    let pages = Shared::default();
    let sink = InMode(mode, Shared::clone(&reader.taken), Shared::clone(&pages));
    let body = match coding {
        Some("gzip") => gzip(body),
        _ => body.to_vec(),
    };
    let coding = coding.map(str::to_owned);
    let web = Web::new(move |_| match &coding {
        None => Reply::page(body.clone()),
        Some(coding) => Reply::page(body.clone()).field("Content-Encoding", coding),
    });
    let config = with(with(config(), "RETRY_TIMES", 0), "WORKERS", workers);
    let builder = Crawler::builder(config).sink(sink).classify(reader.clone());
    let mut crawler = builder.build_in(&web, 1).expect("it can be set up");
    let request = Request::get("http://a.test/");
    crawler.submit(request).expect("it is a request");
    assert_eq!(crawler.run(), FinishReason::Finished);
    (reader.read.borrow().clone(), pages.borrow().clone())
}

/// Letters that no coding makes much shorter, for long bodies.
fn letters(count: usize) -> Vec<u8> {
    let mut rng = Rng::from_seed(1);
    (0..count).map(|_| b'a' + rng.below(26) as u8).collect()
}

#[test]
fn the_first_bytes_are_judged_once_decoded_whatever_the_sink_does_with_the_body() {
    let long = [b"please slow down, it begins. ".to_vec(), letters(300_000)].concat();
    for mode in [BodyMode::Keep, BodyMode::Take, BodyMode::Skip] {
        for coding in [None, Some("gzip"), Some("identity")] {
            for (body, workers) in [
                (&long[..], 0),
                (&long[..50_000], 2),
                (b"please slow down", 0),
                (b"", 0),
            ] {
                let (read, pages) = fetch(BodyPart::Start(100), mode, body, coding, workers);
                let expected = &body[..100.min(body.len())];
                let case = format!("{mode:?} {coding:?} {} bytes", body.len());
                assert_eq!(read.len(), 1, "{case}");
                assert_eq!(
                    (&*read[0].bytes, read[0].failure),
                    (expected, None),
                    "{case}"
                );
                let judged = (!body.is_empty()).then_some(429);
                assert_eq!(
                    (pages[0].status, pages[0].judged),
                    (Some(200), judged),
                    "{case}"
                );
                assert_eq!(pages[0].body_mode, mode, "{case}");
                assert!(pages[0].failure.is_none(), "{case}: {:?}", pages[0].failure);
                let (kept, taken) = match mode {
                    BodyMode::Keep => (body.len(), 0),
                    BodyMode::Take => (0, body.len()),
                    _ => (0, 0),
                };
                assert_eq!(pages[0].body.len(), kept, "{case}");
                assert_eq!(pages[0].bytes_taken, taken as u64, "{case}");
            }
        }
    }
}

#[test]
fn a_long_body_is_judged_before_its_end() {
    let long = [b"please slow down. ".to_vec(), letters(3_000_000)].concat();
    let (read, pages) = fetch(BodyPart::Start(100), BodyMode::Take, &long, None, 0);
    assert!(
        read[0].taken < 200_000,
        "the sink had {} bytes",
        read[0].taken
    );
    assert_eq!(pages[0].bytes_taken, long.len() as u64);
    assert_eq!(pages[0].judged, Some(429));
    // Not more than 64 KiB are held beside it.
    let (read, _) = fetch(BodyPart::Start(usize::MAX), BodyMode::Take, &long, None, 0);
    assert_eq!(read[0].bytes.len(), 64 << 10);
    // All of a body is there at its end only.
    let (read, _) = fetch(BodyPart::Kept, BodyMode::Keep, &long, None, 0);
    assert_eq!((read.len(), read[0].bytes.len()), (1, long.len()));
    let (read, _) = fetch(BodyPart::Kept, BodyMode::Take, &long, None, 0);
    assert_eq!((read.len(), &*read[0].bytes), (1, &b""[..]));
}

#[test]
fn a_coding_that_is_unknown_or_broken_is_judged_by_what_there_is() {
    let check = |coding: &str, body: &[u8], mode, expected: &[u8]| {
        let (read, pages) = fetch(BodyPart::Start(64), mode, body, Some(coding), 0);
        assert_eq!(
            (read.len(), &*read[0].bytes),
            (1, expected),
            "{coding} {mode:?}"
        );
        pages[0].failure.as_ref().map(|failure| failure.kind)
    };
    let asks = ASKS.as_bytes();
    let encoding = Some(FailureKind::ContentEncoding);
    assert_eq!(check("weird", asks, BodyMode::Keep, asks), encoding);
    // Of a body that is skipped the coding does not matter.
    assert_eq!(check("weird", asks, BodyMode::Skip, asks), None);
    assert_eq!(
        check("deflate", b"\xff\xff\xff\xff", BodyMode::Skip, b""),
        None
    );
}

#[test]
fn a_body_that_breaks_off_is_judged_with_its_failure() {
    let reader = Reader::of(BodyPart::Start(1024));
    let web = Web::new(|_| {
        Reply::page(gzip(ASKS.as_bytes())[..30].to_vec()).field("Content-Encoding", "gzip")
    });
    let builder = Crawler::builder(config()).classify(reader.clone());
    let pages = crawl(builder, &web, &["a.test"], 1);
    // It is retried for its status, though not for its failure.
    assert_eq!(pages.len(), 3);
    let encoding = Some(FailureKind::ContentEncoding);
    let failures = reader
        .read
        .borrow()
        .iter()
        .map(|read| read.failure)
        .collect::<Vec<_>>();
    assert_eq!(failures, [encoding; 3]);
}

#[test]
fn a_verdict_is_retried_like_a_status_and_both_are_in_the_page() {
    for part in [BodyPart::Kept, BodyPart::Start(100)] {
        let reader = Reader::of(part);
        let web = asking(|asked| asked.target == "/0");
        let twice = with(config(), "RETRY_TIMES", 2);
        let builder = Crawler::builder(twice.clone()).classify(reader.clone());
        let pages = crawl(builder, &web, &["a.test"], 2);
        let seen = |page: &Page| (page.url.clone(), page.attempt, page.judged, page.is_final);
        let (asks, other) = ("http://a.test/0".to_owned(), "http://a.test/1".to_owned());
        let mut expected = vec![
            (asks.clone(), 1, Some(429), false),
            (asks.clone(), 2, Some(429), false),
            (asks, 3, Some(429), true),
            (other, 1, None, true),
        ];
        let mut seen: Vec<_> = pages.iter().map(seen).collect();
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected);
        assert!(pages.iter().all(|page| page.status == Some(200)));
        assert_eq!(pages[0].judged_status(), Some(429));
        let decided = reader.decided.borrow().clone();
        assert_eq!(
            decided
                .iter()
                .filter(|status| **status == Some(429))
                .count(),
            3
        );
        // As often as the settings say, for the status that they name.
        let for_others = twice.with("RETRY_HTTP_CODES", [503]).expect("valid");
        let builder = Crawler::builder(for_others).classify(reader.clone());
        assert_eq!(crawl(builder, &web, &["a.test"], 1).len(), 1);
    }
}

#[test]
fn only_the_blamed_scope_is_slowed_down() {
    /// Each request belongs to its host and to an account.
    struct Both;
    impl ScopeMap for Both {
        fn scopes(&self, query: &mut ScopeQuery<'_>) {
            query.add("account");
            let host = query.url().host_str().to_owned();
            query.add(&host);
        }
    }
    let refused = |blame: Blame| {
        let reader = Reader {
            blame,
            ..Reader::of(BodyPart::Start(100))
        };
        let web = asking(|asked| asked.host == "a.test");
        let config = with(config(), "RETRY_TIMES", 0);
        let builder = Crawler::builder(config).classify(reader).scope_map(Both);
        let mut crawler = builder.build_in(&web, 1).expect("it can be set up");
        for host in ["a.test", "b.test"] {
            for number in 0..3 {
                let request = Request::get(format!("http://{host}/{number}"));
                crawler.submit(request).expect("it is a request");
            }
        }
        assert_eq!(crawler.run(), FinishReason::Finished);
        let pacing = crawler.pacing();
        let scopes = pacing.scopes.iter().filter(|scope| scope.refused > 0);
        let mut names: Vec<String> = scopes.map(|scope| scope.scope.clone()).collect();
        names.sort();
        names
    };
    assert_eq!(refused(Blame::Specific), ["a.test"]);
    assert_eq!(
        refused(Blame::Only(vec!["account".to_owned()])),
        ["account"]
    );
    assert_eq!(refused(Blame::All), ["a.test", "account"]);
    assert_eq!(refused(Blame::NoScope), [""; 0]);
}

#[test]
fn a_judged_page_leads_nowhere() {
    let web = Web::new(|asked| match &*asked.target {
        "/robots.txt" => Reply::text("User-agent: *\nAllow: /\n"),
        "/" => Reply::page(format!("<a href=/next>{ASKS}</a>")),
        _ => Reply::page("a page"),
    });
    let config = Config::default().with("RETRY_TIMES", 0).expect("valid");
    let builder = Crawler::builder(config).classify(Reader::of(BodyPart::Start(100)));
    let mut crawler = builder.build_in(&web, 1).expect("it can be set up");
    let request = Request::get("http://a.test/");
    crawler.submit(request).expect("it is a request");
    let pages: Vec<Page> = std::iter::from_fn(|| crawler.next_result()).collect();
    let urls: Vec<&str> = pages.iter().map(|page| &*page.url).collect();
    assert_eq!(urls, ["http://a.test/"]);
}

#[test]
fn bodies_of_robots_txt_and_sitemaps_are_not_judged() {
    /// Notes what is asked about, by kind.
    struct Kinds(Reader, Shared<Vec<(&'static str, PageKind)>>);
    impl Classify for Kinds {
        fn classify(&self, answer: &Answer<'_>) -> argiope::Signal {
            self.1.borrow_mut().push(("head", answer.kind));
            argiope::Signal::from_answer(answer)
        }
        fn body_part(&self, answer: &Answer<'_>) -> BodyPart {
            self.1.borrow_mut().push(("part", answer.kind));
            self.0.part
        }
        fn classify_body(&self, answer: &Answer<'_>, body: &[u8]) -> BodySignal {
            self.1.borrow_mut().push(("body", answer.kind));
            self.0.classify_body(answer, body)
        }
    }
    for part in [BodyPart::Kept, BodyPart::Start(1024)] {
        let web = Web::new(|asked| match &*asked.target {
            "/robots.txt" => Reply::text(format!(
                "# Bots: {ASKS}.\nUser-agent: *\nDisallow: /private\nSitemap: http://a.test/map.xml\n"
            )),
            "/map.xml" => Reply::page(format!(
                "<!-- {ASKS} --><urlset><url><loc>http://a.test/listed</loc></url></urlset>"
            )),
            _ => Reply::page("a page"),
        });
        let config = Config::default()
            .with("FOLLOW_SITEMAPS", true)
            .expect("valid");
        let asked = Shared::default();
        let kinds = Kinds(Reader::of(part), Shared::clone(&asked));
        let builder = Crawler::builder(config).classify(kinds).every_attempt();
        let mut crawler = builder.build_in(&web, 1).expect("it can be set up");
        for url in ["http://a.test/", "http://a.test/private"] {
            crawler.submit(Request::get(url)).expect("it is a request");
        }
        let pages: Vec<Page> = std::iter::from_fn(|| crawler.next_result()).collect();
        let end = |page: &Page| {
            let failure = page.failure.as_ref().map(|failure| failure.code());
            let path = page.url.trim_start_matches("http://a.test").to_owned();
            (path, page.judged, failure.unwrap_or_default())
        };
        let mut ends: Vec<_> = pages.iter().map(end).collect();
        ends.sort();
        let of = |path: &str, failure: &str| (path.to_owned(), None, failure.to_owned());
        let expected = [
            of("/", ""),
            of("/listed", ""),
            of("/map.xml", ""),
            of("/private", "robots.disallowed"),
            of("/robots.txt", ""),
        ];
        assert_eq!(ends, expected, "{part:?}");
        assert!(
            crawler
                .pacing()
                .scopes
                .iter()
                .all(|scope| scope.refused == 0)
        );
        let asked = asked.borrow();
        for kind in [PageKind::Robots, PageKind::Sitemap] {
            let of_kind = asked.iter().filter(|(_, asked)| *asked == kind);
            let of_kind: Vec<&str> = of_kind.map(|(what, _)| *what).collect();
            assert_eq!(of_kind, ["head"], "{part:?} {kind}");
        }
    }
}

#[test]
fn a_strategy_gets_the_whole_verdict_at_the_end_of_an_exchange() {
    struct Ends(Shared<Vec<(Option<u16>, bool)>>);
    impl Strategy for Ends {
        fn ended(
            &mut self,
            _: &ScopeSettings,
            pace: argiope::Pace,
            end: &ExchangeEnd,
            _: Instant,
        ) -> argiope::Pace {
            self.0.borrow_mut().push((end.status, end.refused));
            pace
        }
    }
    let web = Web::new(|asked| match &*asked.target {
        "/0" => Reply::page(ASKS),
        "/1" => Reply::status(503),
        _ => Reply::page("a page"),
    });
    let ends = Shared::default();
    let notes = Shared::clone(&ends);
    let builder = Crawler::builder(with(config(), "RETRY_TIMES", 0))
        .classify(Reader::of(BodyPart::Start(100)))
        .strategy(move |_| Some(Box::new(Ends(Shared::clone(&notes)))));
    crawl(builder, &web, &["a.test"], 3);
    let expected = [(Some(429), true), (Some(503), true), (Some(200), false)];
    assert_eq!(*ends.borrow(), expected);
}
