//! Credentials of the crawl are for the origins of its seeds, in later runs, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::crawl::core::tests::trial::{config, crawl_named_web, finish, run_for};
use crate::crawl::journal::state::State;
use crate::crawl::{Crawler, FinishReason, Parts};
use crate::fetch::resolver::ResolverSettings;
use crate::frontier::request::Request;
use crate::frontier::settings::Follow;
use crate::io::IoSettings;
use crate::io::sim::web::{Asked, Reply, Web};
use crate::io::sim::{Faults, Sim};
use crate::sink::NullSink;

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Runs the crawl for a while, with these fields of all requests; returns what was asked, and what the disk has then.
/// It had `files`.
fn run(
    state: State,
    mut files: Files,
    span: Duration,
    fields: &[(&str, &str)],
) -> (Vec<Asked>, Files) {
    let web = Web::new(|asked: &Asked| {
        let links = (0..9).map(|page| format!("<a href=/{page}>x</a>"));
        let other = format!("<a href=http://other.test{}>y</a>", asked.target);
        Reply::page(links.collect::<String>() + &other)
    });
    let mut config = config(1);
    config.frontier.follow = Follow::All;
    let fields = fields.iter();
    let fields = fields.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    config.fetch.headers = fields.collect();
    config.throttle.default.delay = Duration::from_secs(1);
    let resolver = ResolverSettings {
        servers: vec![Web::name_server()],
        ..ResolverSettings::default()
    };
    let mut io = Sim::with(1, IoSettings::default(), Faults::default(), web.world());
    state.beginning().write_to(&mut files);
    io.put_files(files);
    let is_new = state.seeds_taken() == Some(0);
    let mut parts = Parts::new(NullSink);
    parts.state = Some(state);
    let config = config.finish().expect("a sound config");
    let mut crawler = Crawler::on(io, config, resolver, parts).expect("a crawler");
    if is_new {
        let seed = Request::get("http://seed.test/");
        let submitted = crawler.handle().submit_seed_at(seed, 1);
        submitted.expect("there is room");
    }
    run_for(&mut crawler, span);
    (web.asked(), crawler.io().files().clone())
}

const LOGIN: [(&str, &str); 1] = [("Authorization", "Basic eDp5")];

/// Whether requests to a host carried credentials.
fn carry(asked: &[Asked], host: &str) -> Vec<bool> {
    let of_host = asked.iter().filter(|asked| asked.host == host);
    let carries = |asked: &Asked| {
        let mut names = asked.fields.iter().map(|(name, _)| name);
        names.any(|name| name.eq_ignore_ascii_case("authorization"))
    };
    of_host.map(carries).collect()
}

#[test]
fn links_to_the_origin_of_a_seed_that_ended_in_an_earlier_run_carry_the_credentials() {
    // Also those that only the later runs are given.
    for first in [&LOGIN[..], &[]] {
        let out = Path::new("out");
        let mut state = State::new(out, String::new(), [1; 16]).expect("it is short");
        let mut files = Files::new();
        for number in 0..3 {
            let fields = if number == 0 { first } else { &LOGIN };
            let asked;
            (asked, files) = run(state, files, Duration::from_secs(4), fields);
            for host in ["seed.test", "other.test"] {
                let carry = carry(&asked, host);
                assert!(carry.len() >= 2, "run {number}, {host}: {carry:?}");
                let is_for = host == "seed.test" && !fields.is_empty();
                assert!(carry.iter().all(|carries| *carries == is_for), "{host}");
            }
            state = State::load_from(out, &files).expect("it can be read");
        }
    }
}

#[test]
fn what_a_program_submits_with_a_depth_names_no_origin() {
    for is_handle in [true, false] {
        let web = Web::new(|_: &Asked| Reply::page("a page"));
        let (mut crawler, _) = crawl_named_web(&web, |config, _| {
            let fields = LOGIN.map(|(name, value)| (name.to_owned(), value.to_owned()));
            config.fetch.headers = fields.to_vec();
        });
        let urls = [
            ("http://seed.test/", 0),
            ("http://seed.test/link", 1),
            ("http://other.test/link", 1),
        ];
        for (url, depth) in urls {
            let mut request = Request::get(url);
            request.depth = depth;
            let accepted = match is_handle {
                true => crawler.handle().submit(request).is_ok(),
                false => crawler.submit(request).is_ok(),
            };
            assert!(accepted, "{url}");
        }
        assert_eq!(finish(&mut crawler), FinishReason::Finished);
        assert_eq!(carry(&web.asked(), "seed.test"), [true, true]);
        assert_eq!(carry(&web.asked(), "other.test"), [false]);
    }
}

#[test]
fn requests_left_by_a_crawl_without_credentials_get_none_of_a_later_one_elsewhere() {
    // Submitted before the crawl began, or links of pages.
    for is_begun in [false, true] {
        for every_origin in [false, true] {
            let web = Web::new(|_: &Asked| {
                Reply::page("<a href=/own>x</a><a href=http://other.test/link>y</a>")
            });
            let (mut crawler, _) = crawl_named_web(&web, |config, _| {
                config.frontier.follow = Follow::All;
                config.throttle.default.delay = Duration::from_secs(9);
                if every_origin {
                    config.fetch.credential_origins = vec!["*".to_owned()];
                }
            });
            let handle = crawler.handle();
            let mut urls = vec!["http://seed.test/"];
            if !is_begun {
                urls.extend(["http://other.test/link", "http://seed.test/own"]);
            }
            for (depth, url) in (0..).zip(urls) {
                let mut request = Request::get(url);
                request.depth = depth;
                handle.submit(request).expect("there is room");
            }
            if is_begun {
                // The other host's page was sent at once: it links to itself.
                run_for(&mut crawler, Duration::from_secs(5));
            }
            crawler.stopper().stop_now();
            assert_eq!(finish(&mut crawler), FinishReason::Shutdown);
            let pending = crawler.take_pending().map(|pending| pending.request);
            let pending: BTreeMap<String, bool> = pending
                .map(|request| (request.url, request.dont_send_credentials))
                .collect();
            let other = match is_begun {
                true => "http://other.test/own",
                false => "http://other.test/link",
            };
            assert_eq!(pending.get(other), Some(&!every_origin), "{pending:?}");
            let own = pending.iter().filter(|(url, _)| url.contains("seed.test"));
            let own: Vec<bool> = own.map(|(_, without)| *without).collect();
            assert!(!own.is_empty(), "{pending:?}");
            // Before the crawl began nothing was admitted, and the origin not known.
            assert!(
                !is_begun || own.iter().all(|without| !without),
                "{pending:?}"
            );
        }
    }
}
