//! Random records and jobs, for tests.

use std::sync::Arc;
use std::time::Duration;

use super::record::{
    About, BlockAdmission, CommitRecord, Entry, Fact, Record, Resumption, RunRecord, SpilledBlock,
};
use crate::base::keys::UrlKey;
use crate::base::rng::Rng;
use crate::base::scopes::Scopes;
use crate::frontier::extra::{Extra, Flags};
use crate::frontier::job::Job;
use crate::frontier::request::{PageKind, Request};
use crate::wire::url::CrawlUrl;

/// A record of any kind, with any values.
pub fn record(rng: &mut Rng) -> Record {
    match rng.below(14) {
        0 => Record::Begin {
            keys: std::array::from_fn(|_| rng.next_u64() as u8),
            settings: one_of(rng, &["", "{}", r#"{"USER_AGENT":"ä"}"#]).to_owned(),
        },
        1 | 2 => Record::Admitted(entry(rng)),
        3 => Record::Offered(entry(rng)),
        4 => Record::Dropped(number(rng)),
        5 => Record::Ended(number(rng)),
        6 => match rng.below(10) {
            9 => Record::SeenUndone((0..rng.below(5)).map(|_| rng.next_u64()).collect()),
            7 => Record::SeenFrozen(number(rng)),
            8 => Record::SeenRuns(
                (0..rng.below(4))
                    .map(|_| RunRecord {
                        number: number(rng),
                        keys: number(rng),
                        length: number(rng),
                    })
                    .collect(),
            ),
            3 => Record::Departed(number(rng)),
            4 => match rng.chance(0.5) {
                true => Record::Started(number(rng)),
                false => Record::StartUndone(number(rng)),
            },
            5 => Record::Requested((0..rng.below(5)).map(|_| rng.next_u64()).collect()),
            2 => Record::CrawlDelay {
                host: format!("h{}.test", rng.below(3)),
                delay: number(rng),
            },
            0 => Record::Seen((0..rng.below(5)).map(|_| rng.next_u64()).collect()),
            _ => Record::SeedHosts(
                (0..rng.below(5))
                    .map(|_| (rng.next_u64(), rng.next_u64()))
                    .collect(),
            ),
        },
        7 => match rng.chance(0.5) {
            true => Record::SeedsTaken(number(rng)),
            false => Record::EpochEnd(number(rng)),
        },
        8 => Record::Spilled {
            origin: rng.next_u64(),
            entries: (0..rng.below(4)).map(|_| entry(rng)).collect(),
        },
        9 => match rng.chance(0.5) {
            true if rng.chance(0.3) => Record::AdmittedBefore(number(rng)),
            true => Record::Unspilled {
                file: number(rng),
                offset: number(rng),
            },
            false if rng.chance(0.5) => Record::AdmittedToBlock {
                block: block(rng),
                admission: BlockAdmission {
                    requests: (0..rng.below(5))
                        .map(|_| (number(rng), rng.next_u64()))
                        .collect(),
                    seed_host: rng.chance(0.5).then(|| (rng.next_u64(), rng.next_u64())),
                },
            },
            false => Record::Spill {
                block: block(rng),
                numbers: (0..rng.below(5)).map(|_| number(rng)).collect(),
            },
        },
        10 => Record::Fact(fact(rng)),
        11 => Record::Quiet,
        12 => Record::Resumed(Resumption {
            settings: one_of(rng, &["", "{}"]).to_owned(),
            seeds_taken: number(rng),
            commit: commit(rng),
        }),
        _ => Record::Commit(commit(rng)),
    }
}

fn block(rng: &mut Rng) -> SpilledBlock {
    SpilledBlock {
        file: number(rng),
        offset: number(rng),
        length: number(rng),
        origin: rng.next_u64(),
        priority: number(rng) as i32,
        requests: number(rng),
        first: number(rng),
    }
}

fn commit(rng: &mut Rng) -> CommitRecord {
    CommitRecord {
        epoch: number(rng),
        files: (0..rng.below(3))
            .map(|_| {
                let name = one_of(rng, &["results.jsonl", "", "a/ä.warc.gz"]);
                (name.to_owned(), number(rng))
            })
            .collect(),
        next_number: number(rng),
        at: number(rng),
    }
}

/// A fact with any values.
pub fn fact(rng: &mut Rng) -> Fact {
    let about = [
        About::Scope,
        About::Robots,
        About::Host,
        About::Counts,
        About::SeedOrigin,
        About::Cancelled,
    ];
    Fact {
        about: about[rng.below(6) as usize],
        name: one_of(rng, &["", "a.test", "host/b.test:81"]).to_owned(),
        at: number(rng),
        value: (0..rng.below(4)).map(|_| rng.next_u64() as u8).collect(),
    }
}

/// An entry with any values.
pub fn entry(rng: &mut Rng) -> Entry {
    Entry {
        job: job(rng),
        replaces: number(rng),
        not_before: rng.chance(0.2).then(|| number(rng)),
    }
}

/// A job with any values of the fields that are stored.
pub fn job(rng: &mut Rng) -> Job {
    let kinds = [PageKind::Page, PageKind::Robots, PageKind::Sitemap];
    let url = url(rng);
    Job {
        id: number(rng),
        parent: number(rng),
        via: via(rng, &url),
        url,
        kind: kinds[rng.below(3) as usize],
        seed: rng.chance(0.5),
        fresh: rng.chance(0.2),
        awaited: rng.chance(0.2),
        redirects: number(rng) as u8,
        attempt: number(rng) as u16,
        depth: number(rng) as u32,
        priority: number(rng) as i32,
        share: 0.0,
        flags: Flags {
            dont_adjust_delay: rng.chance(0.2),
            ignore_robots: rng.chance(0.2),
            dont_follow: rng.chance(0.2),
            dont_filter: rng.chance(0.2),
            dont_merge_cookies: rng.chance(0.2),
        },
        extra: extra(rng),
    }
}

/// A number of any size, often small.
fn number(rng: &mut Rng) -> u64 {
    let bits = [0, 1, 3, 7, 8, 21, 32, 63, 64][rng.below(9) as usize];
    match bits {
        0 => 0,
        bits => rng.next_u64() >> (64 - bits),
    }
}

fn url(rng: &mut Rng) -> CrawlUrl {
    let origins = [
        "http://a.test",
        "https://www.example.co.uk:8443",
        "http://127.0.0.1:18080",
        "http://[::1]",
        "https://[2001:db8::1]:65535",
        "https://xn--bcher-kva.example",
    ];
    let targets = ["/", "/a/b.html?q=1&r=%20", "?", "/%C3%BC//x;y=1", "/?a'b"];
    let text = [one_of(rng, &origins), one_of(rng, &targets)].concat();
    CrawlUrl::parse(&text).expect("a URL")
}

fn via(rng: &mut Rng, page: &CrawlUrl) -> Option<Arc<str>> {
    Some(match rng.below(5) {
        0 => return None,
        1 => Arc::from(page.as_str()),
        2 => Arc::from([page.origin(), "/from"].concat()),
        3 => Arc::from(url(rng).as_str()),
        _ => Arc::from(one_of(rng, &["", "http://ä.test/", "stdin"])),
    })
}

fn extra(rng: &mut Rng) -> Option<Box<Extra>> {
    if rng.chance(0.5) {
        return None;
    }
    let mut request = Request::get("http://a.test/");
    let mut some = |chance| rng.chance(chance);
    if some(0.3) {
        request.method = "PURGE".to_owned();
        request.body = vec![0, 0xff, b'x'];
    }
    if some(0.3) {
        request = request.header("Accept", "*/*").header("a", "");
    }
    if some(0.2) {
        request = request.private_header("X-Key", "ä").dont_send_credentials();
    }
    if some(0.3) {
        request = request.scope_cost("x", 0.1).scope("y");
    }
    if some(0.3) {
        request = request.meta(("mine", 7)).tag(u64::MAX);
    }
    if some(0.2) {
        request = request.without_proxy();
    } else if some(0.2) {
        let proxy = "socks5://us%3aer:p%40ss@proxy.test:1080";
        request = request.proxy(proxy.parse().expect("a proxy"));
    }
    if some(0.2) {
        request = request.timeout(Duration::from_millis(1500)).body_max(300);
    }
    let mut extra = Extra::of(&request).unwrap_or_default();
    if some(0.3) {
        extra.set_root(77);
        extra.add_redirected_from(UrlKey(u64::MAX));
        extra.add_redirected_from(UrlKey(1));
    }
    if some(0.2) {
        extra.set_mapped(&Scopes::from([("host", 2.5), ("domain", 1.0)]));
        extra.set_nesting(2);
    }
    Some(extra)
}

fn one_of<'a>(rng: &mut Rng, texts: &[&'a str]) -> &'a str {
    texts[rng.below(texts.len() as u64) as usize]
}
