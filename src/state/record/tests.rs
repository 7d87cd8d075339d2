//! Round trips of records, and bytes that are not one.

use std::sync::Arc;

use super::entry::{
    ALL_FLAGS, ATTEMPT, DEPTH, EXTRA, META, PRIORITY, REDIRECTS, ROBOTS, ROUTE, SITEMAP, VIA,
    flags_of,
};
use super::*;
use crate::base::ids::ScopeId;
use crate::base::rng::Rng;
use crate::frontier::extra::Extra;
use crate::frontier::request::{PageKind, Request};
use crate::state::samples;
use crate::wire::proxy::Route;
use crate::wire::url::CrawlUrl;

fn bytes_of(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes
}

/// The record is read again from its bytes.
fn check(record: &Record) {
    let bytes = bytes_of(record);
    let read = Record::decode(&bytes).expect("a record");
    // This form has all fields but passwords.
    assert_eq!(format!("{read:?}"), format!("{record:?}"));
    // The bytes have the passwords as well.
    assert_eq!(bytes_of(&read), bytes, "{record:?}");
}

fn job(url: &str) -> Job {
    Job::seed(1, CrawlUrl::parse(url).expect("a URL"))
}

fn admitted(job: Job) -> Record {
    Record::Admitted(Entry {
        job,
        replaces: 0,
        not_before: None,
    })
}

fn read_job(bytes: &[u8]) -> Job {
    match Record::decode(bytes).expect("a record") {
        Record::Admitted(entry) => entry.job,
        other => panic!("not an admission: {other:?}"),
    }
}

#[test]
fn records_round_trip_with_all_fields() {
    let mut rng = Rng::from_seed(17);
    for _ in 0..20_000 {
        check(&samples::record(&mut rng));
    }
}

#[test]
fn every_cut_of_a_record_is_an_error() {
    let mut rng = Rng::from_seed(18);
    for _ in 0..1_000 {
        let record = samples::record(&mut rng);
        let bytes = bytes_of(&record);
        for cut in 0..bytes.len() {
            let read = Record::decode(&bytes[..cut]);
            match (&record, read) {
                // As many keys as there are bytes for.
                (Record::Seen(keys), Ok(Record::Seen(read)))
                | (Record::Requested(keys), Ok(Record::Requested(read))) => {
                    assert!(keys.starts_with(&read));
                }
                (Record::SeedHosts(hosts), Ok(Record::SeedHosts(read))) => {
                    assert!(hosts.starts_with(&read));
                }
                (_, Err(RecordError::Truncated(_))) => {}
                (_, read) => panic!("{cut} bytes of {record:?}: {read:?}"),
            }
        }
    }
}

#[test]
fn bytes_after_a_record_are_an_error() {
    let mut rng = Rng::from_seed(19);
    for _ in 0..1_000 {
        let record = samples::record(&mut rng);
        let bytes = [&bytes_of(&record)[..], &[0]].concat();
        let expected = match record {
            Record::Seen(_) | Record::SeedHosts(_) | Record::Requested(_) => {
                RecordError::Truncated("keys")
            }
            _ => RecordError::Trailing(1),
        };
        assert_eq!(Record::decode(&bytes).expect_err("too long"), expected);
    }
}

#[test]
fn no_changed_byte_makes_decoding_panic() {
    let mut rng = Rng::from_seed(20);
    for _ in 0..2_000 {
        let bytes = bytes_of(&samples::record(&mut rng));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] = rng.next_u64() as u8;
            if let Ok(read) = Record::decode(&changed) {
                // What is read is valid: it can be stored and used again.
                check(&read);
                if let Record::Admitted(entry) | Record::Offered(entry) = read {
                    entry.job.to_request();
                }
            }
        }
    }
}

#[test]
fn unknown_kinds_and_flags_are_errors() {
    let check = |bytes: &[u8], expected: RecordError| {
        let error = Record::decode(bytes).expect_err("not a record");
        assert_eq!(error, expected, "{bytes:?}");
    };
    check(&[], RecordError::Truncated("kind"));
    for kind in [0, 200, u8::MAX] {
        check(&[kind, 1], RecordError::Kind(kind));
    }
    for flags in [ALL_FLAGS + 1, ROBOTS | SITEMAP, META, ROUTE] {
        let mut bytes = vec![ADMITTED];
        put_number(flags, &mut bytes);
        check(&bytes, RecordError::Flags(flags));
    }
    let error = RecordError::Kind(200);
    assert_eq!(error.code(), "record.kind");
    assert_eq!(error.to_string(), "record kind 200 is unknown");
}

#[test]
fn invalid_values_are_errors_that_name_the_field() {
    let check = |fields: &[u8], flags: u64, expected: &'static str| {
        let mut bytes = vec![OFFERED];
        put_number(flags, &mut bytes);
        bytes.extend_from_slice(fields);
        let error = Record::decode(&bytes).expect_err("not a record");
        assert_eq!(error, RecordError::Value(expected), "{fields:?}");
    };
    check(b"\x01\x80\x02\x02a/", REDIRECTS, "redirects");
    check(b"\x01\x80\x80\x04\x02a/", ATTEMPT, "attempt");
    check(b"\x01\x80\x80\x80\x80\x10\x02a/", DEPTH, "depth");
    check(b"\x01\x80\x80\x80\x80\x10\x02a/", PRIORITY, "priority");
    check(b"\x01\x02a ", 0, "url");
    check(b"\x01\x02a/\x0a\x00", VIA, "via");
    check(b"\x01\x02a/\x01{\x00", EXTRA | META, "meta");
    check(b"\x01\x02a/\x01x\x00", EXTRA | ROUTE, "route");
    check(b"\x01\x02a/\x01x", EXTRA, "extra");
}

#[test]
fn a_plain_link_takes_about_60_bytes() {
    let url = "https://www.example.com/articles/2026/1234";
    assert_eq!(job(url).url.request_target().len(), 19);
    let link = Job {
        id: 5_000_000,
        parent: 4_900_000,
        via: Some(Arc::from("https://www.example.com/articles/index.html")),
        seed: false,
        depth: 3,
        ..job(url)
    };
    let bytes = bytes_of(&admitted(link)).len();
    assert_eq!(bytes, 1 + 1 + 4 + 3 + 1 + (1 + 15 + 19) + (1 + 1 + 10));
}

#[test]
fn the_bytes_of_an_entry_stay_as_they_are() {
    let request = Request::post("http://a.test/x", "b").meta(7).tag(9);
    let job = Job {
        id: 300,
        parent: 299,
        via: Some(Arc::from("http://a.test/")),
        priority: -1,
        attempt: 2,
        kind: PageKind::Sitemap,
        extra: Extra::of(&request.without_proxy()),
        ..job("http://a.test/x")
    };
    let mut bytes = Vec::new();
    encode_admitted(&job, 298, Some(5), &mut bytes);
    let expected = [
        &b"\x02\xee\xd2\x07\xac\x02\x02\x04\x05\x02\x01\x08a.test/x\x0e\x00"[..],
        b"\x017\x06direct\x0c\x00\x01\x09\x02\x04POST\x06\x01b",
    ];
    assert_eq!(
        bytes.escape_ascii().to_string(),
        expected.concat().escape_ascii().to_string()
    );
}

#[test]
fn kinds_and_flags_keep_their_numbers() {
    let entry = |job: Job, replaces: u64, not_before: Option<u64>| Entry {
        job,
        replaces,
        not_before,
    };
    let plain = || Job {
        seed: false,
        ..job("http://a.test/")
    };
    let check_kind = |record: Record, expected: u8| {
        assert_eq!(bytes_of(&record)[0], expected, "{record:?}");
    };
    let begin = Record::Begin {
        keys: [0; 16],
        settings: String::new(),
    };
    check_kind(begin, 1);
    check_kind(Record::Admitted(entry(plain(), 0, None)), 2);
    check_kind(Record::Offered(entry(plain(), 0, None)), 3);
    check_kind(Record::Dropped(0), 4);
    check_kind(Record::Ended(0), 5);
    check_kind(Record::Seen(Vec::new()), 6);
    check_kind(Record::SeedsTaken(0), 7);
    check_kind(Record::EpochEnd(0), 8);
    check_kind(Record::Departed(0), 30);
    check_kind(Record::Requested(Vec::new()), 32);
    check_kind(Record::Started(0), 33);
    check_kind(Record::StartUndone(0), 35);
    let spilled = Record::Spilled {
        origin: 0,
        entries: Vec::new(),
    };
    check_kind(spilled, 12);
    let block = SpilledBlock {
        file: 0,
        offset: 0,
        length: 0,
        origin: 0,
        priority: 0,
        requests: 0,
        first: 0,
    };
    let numbers = Vec::new();
    check_kind(Record::Spill { block, numbers }, 13);
    let block = SpilledBlock { first: 1, ..block };
    let numbers = Vec::new();
    check_kind(Record::Spill { block, numbers }, 16);
    let admission = BlockAdmission::default();
    check_kind(Record::AdmittedToBlock { block, admission }, 18);
    check_kind(Record::Unspilled { file: 0, offset: 0 }, 31);
    check_kind(Record::SeenFrozen(0), 20);
    check_kind(Record::SeenRuns(Vec::new()), 21);
    check_kind(Record::SeenUndone(Vec::new()), 22);
    let commit = CommitRecord {
        epoch: 0,
        files: Vec::new(),
        next_number: 1,
        at: 0,
    };
    check_kind(Record::Commit(commit), 9);
    let fact = |about| Fact {
        about,
        name: String::new(),
        at: 0,
        value: Vec::new(),
    };
    check_kind(Record::Fact(fact(About::Scope)), 14);
    check_kind(Record::Quiet, 15);
    for (about, code) in About::ALL.into_iter().zip(1..) {
        assert_eq!(bytes_of(&Record::Fact(fact(about)))[1], code);
    }

    assert_eq!(flags_of(&plain(), 0, None), 0);
    assert_eq!(flags_of(&job("https://a.test/"), 0, None), 1 << 0 | 1 << 1);
    assert_eq!(flags_of(&plain(), 1, None), 1 << 6);
    assert_eq!(flags_of(&plain(), 0, Some(0)), 1 << 11);
    let check_flag = |change: fn(&mut Job), bit: u32| {
        let mut job = plain();
        change(&mut job);
        assert_eq!(flags_of(&job, 0, None), 1 << bit, "{job:?}");
    };
    check_flag(|job| job.parent = 1, 2);
    check_flag(|job| job.via = Some(Arc::from("")), 3);
    check_flag(|job| job.depth = 1, 4);
    check_flag(|job| job.priority = 1, 5);
    check_flag(|job| job.redirects = 1, 7);
    check_flag(|job| job.attempt = 2, 8);
    check_flag(|job| job.fresh = true, 9);
    check_flag(|job| job.awaited = true, 10);
    check_flag(|job| job.kind = PageKind::Robots, 12);
    check_flag(|job| job.kind = PageKind::Sitemap, 13);
    check_flag(|job| job.extra = Some(Box::default()), 14);
    check_flag(|job| job.flags.dont_adjust_delay = true, 17);
    check_flag(|job| job.flags.ignore_robots = true, 18);
    check_flag(|job| job.flags.dont_follow = true, 19);
    check_flag(|job| job.flags.dont_filter = true, 20);
    check_flag(|job| job.flags.dont_merge_cookies = true, 21);
    let request = Request::get("http://a.test/").meta(1).without_proxy();
    let mut job = plain();
    job.extra = Extra::of(&request);
    assert_eq!(flags_of(&job, 0, None), 1 << 14 | 1 << 15 | 1 << 16);
    job.extra_mut().route = None;
    assert_eq!(flags_of(&job, 0, None), 1 << 14 | 1 << 15);
}

#[test]
fn numbers_of_the_process_and_shares_are_not_stored() {
    let mut job = job("http://a.test/");
    job.share = 0.5;
    job.extra_mut().set_tag(3);
    job.extra_mut().set_costs(&[(ScopeId(1), 2.0)]);
    job.extra_mut().set_robots_for(7);
    let read = read_job(&bytes_of(&admitted(job)));
    assert_eq!(read.share, 0.0);
    assert_eq!(read.robots_for(), None);
    assert!(read.costs().is_empty());
    assert_eq!(read.tag(), 3);
}

#[test]
fn a_proxy_keeps_its_credentials() {
    let proxy = "http://user:p%40ss@proxy.test:3128";
    let request = Request::get("http://a.test/").proxy(proxy.parse().expect("a proxy"));
    let mut job = job("http://a.test/");
    job.extra = Extra::of(&request);
    let read = read_job(&bytes_of(&admitted(job)));
    assert_eq!(read.route().map(Route::to_text).as_deref(), Some(proxy));
}
