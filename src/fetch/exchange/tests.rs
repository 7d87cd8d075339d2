//! Replies of every kind through an exchange.

mod long_bodies;

use std::sync::LazyLock;

use super::*;
use crate::base::stamp::Clock;
use crate::fetch::timings::Accuracy;
use crate::wire::coding::{ACCEPT_ENCODING, gzip};
use crate::wire::http::UsualFields;

/// The request is released at 0 s and departs at 1 s; replies arrive from 2 s on, a second apart.
fn at(seconds: u64) -> Instant {
    Instant::START + Duration::from_secs(seconds)
}

fn arrival(seconds: u64) -> Stamp {
    Stamp::exact(at(seconds))
}

static USUAL: LazyLock<UsualFields> = LazyLock::new(|| {
    FetchSettings::default()
        .usual_fields()
        .expect("good fields")
});

fn description() -> Description<'static> {
    Description {
        method: "GET",
        target: "/a",
        host: "a.test",
        usual: &USUAL,
        headers: &[],
        body: None,
        keep_wire: true,
        defers_decoding: false,
        body_max: None,
        timeout: None,
        proxy: None,
    }
}

fn exchange(description: &Description<'_>, settings: &FetchSettings) -> Exchange {
    let limits = Limits::default();
    let mut exchange = Exchange::new(description, settings, limits, Timings::default())
        .expect("a request that can be written");
    exchange.hand_out();
    exchange.handle_sent(at(1), Duration::ZERO);
    exchange
}

fn small() -> FetchSettings {
    FetchSettings {
        body_max: 100,
        ..FetchSettings::default()
    }
}

/// Result of a reply: `whole`, or the failure's kind and code.
struct Seen {
    result: String,
    reusable: bool,
    heads: u32,
    outcome: Outcome,
}

/// Feeds the parts a second apart, then, if the exchange is not over, the connection's end.
fn feed(mut exchange: Exchange, parts: &[&[u8]]) -> Seen {
    let mut heads = 0;
    let mut over = None;
    for (seconds, part) in (2..).zip(parts) {
        let mut input = *part;
        while let Some(step) = exchange.handle_bytes(&mut input, arrival(seconds)) {
            match step {
                Step::Head => heads += 1,
                // It is decoded in steps.
                Step::Piece => {}
                Step::Over { .. } => over = Some(step),
            }
            if over.is_some() {
                break;
            }
        }
        if over.is_some() {
            break;
        }
        assert!(
            input.is_empty(),
            "bytes are left over only after the end of the reply"
        );
    }
    let over = over.unwrap_or_else(|| exchange.handle_end(true));
    let Step::Over { failure, reusable } = over else {
        panic!("an exchange ends with Over");
    };
    Seen {
        result: match failure {
            None => "whole".to_owned(),
            Some(failure) => format!("{}.{}", failure.kind.as_str(), failure.name),
        },
        reusable,
        heads,
        outcome: exchange.into_outcome(),
    }
}

/// One GET with small limits, and its reply in one part.
fn check(reply: &[u8], result: &str, body: &[u8]) -> Outcome {
    let seen = feed(exchange(&description(), &small()), &[reply]);
    let shown = String::from_utf8_lossy(reply).into_owned();
    assert_eq!(seen.result, result, "{shown}");
    assert_eq!(
        String::from_utf8_lossy(&seen.outcome.body),
        String::from_utf8_lossy(body),
        "{shown}"
    );
    assert!(seen.heads <= 1);
    assert_eq!(seen.outcome.head.is_some(), seen.heads == 1);
    seen.outcome
}

#[test]
fn each_phase_of_a_reply_is_marked_exact_or_upper_bound() {
    let parts: [&[u8]; 3] = [b"HTTP/1.1 200 ", b"OK\r\nContent-Length: 2\r\n\r\n", b"ok"];
    let late = Duration::from_millis(1);
    for bound in 0..parts.len() {
        for kernel in [false, true] {
            let mut exchange = exchange(&description(), &small());
            for (part, mut input) in parts.into_iter().enumerate() {
                let is_bound = part == bound;
                let arrival = Stamp {
                    clock: if kernel || !is_bound {
                        Clock::Kernel
                    } else {
                        Clock::User
                    },
                    slack: if is_bound { late } else { Duration::ZERO },
                    ..arrival(2 + part as u64)
                };
                while exchange.handle_bytes(&mut input, arrival).is_some() {}
            }
            let timings = exchange.timings();
            let bounds = [timings.first_byte, timings.headers, timings.body]
                .map(|arrival| arrival.expect("it arrived").is_bound());
            assert_eq!(bounds, [bound == 0, bound == 1, bound == 2]);
            assert_eq!(timings.accuracy() != Some(Accuracy::Exact), bound == 1);
        }
    }
    // If the end of the connection marks the end of the body, the arrival of its last bytes counts.
    let mut exchange = exchange(&description(), &small());
    let mut input: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nok";
    let arrival = Stamp {
        clock: Clock::User,
        ..arrival(2)
    };
    while exchange.handle_bytes(&mut input, arrival).is_some() {}
    exchange.handle_end(true);
    let body = exchange.timings().body.expect("its end arrived");
    assert!(body.is_bound());
}

fn with_body(headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut reply = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {length}\r\n\r\n");
    let mut reply = std::mem::take(&mut reply).into_bytes();
    reply.extend_from_slice(body);
    reply
}

#[test]
fn a_request_carries_the_settings_and_its_own_fields_instead() {
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let settings = FetchSettings {
        user_agent: "spider".to_owned(),
        headers: vec![field("X-Both", "settings"), field("X-Ours", "1")],
        ..FetchSettings::default()
    };
    let own = [field("x-both", "request"), field("Accept", "text/plain")];
    let usual = settings.usual_fields().expect("good fields");
    let asked = Description {
        method: "POST",
        usual: &usual,
        headers: &own,
        body: Some(b"hi"),
        ..description()
    };
    let limits = Limits::default();
    let mut exchange = Exchange::new(&asked, &settings, limits, Timings::default()).unwrap();
    let expected = format!(
        "POST /a HTTP/1.1\r\nHost: a.test\r\nUser-Agent: spider\r\n\
        Accept-Encoding: {ACCEPT_ENCODING}\r\nX-Ours: 1\r\nx-both: request\r\n\
        Accept: text/plain\r\nContent-Length: 2\r\n\r\nhi"
    );
    assert_eq!(String::from_utf8_lossy(exchange.hand_out()), expected);
    assert_eq!(exchange.into_outcome().request_bytes, expected.as_bytes());
}

#[test]
fn a_reply_survives_every_cut() {
    let coded = gzip(b"the body, and the body, and the body");
    let mut reply = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n".to_vec();
    let begin = reply.len();
    reply
        .extend(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n");
    let head = reply.len() - begin;
    for piece in coded.chunks(7) {
        reply.extend(format!("{:x};x=y\r\n", piece.len()).bytes());
        reply.extend(piece);
        reply.extend(b"\r\n");
    }
    reply.extend(b"0\r\nTrailer: ignored\r\n\r\n");
    let same = |parts: &[&[u8]]| {
        let seen = feed(exchange(&description(), &FetchSettings::default()), parts);
        assert_eq!(seen.result, "whole");
        assert!(seen.reusable);
        assert_eq!(seen.heads, 1);
        assert_eq!(seen.outcome.body, b"the body, and the body, and the body");
        assert_eq!(seen.outcome.response_bytes, &reply[begin..]);
        assert_eq!(seen.outcome.bytes_wire, (reply.len() - begin) as u64);
        assert_eq!(seen.outcome.head_length, head);
        assert!(seen.outcome.chunked);
    };
    for cut in 0..=reply.len() {
        let (one, two) = reply.split_at(cut);
        same(&[one, two]);
    }
    let bytes: Vec<&[u8]> = reply.chunks(1).collect();
    same(&bytes);
}

#[test]
fn phases_end_with_the_bytes_that_end_them() {
    let seen = feed(
        exchange(&description(), &FetchSettings::default()),
        &[
            b"HTTP/1.1 103 Early Hints\r\n", // 2 s
            b"\r\n",                         // 3 s
            b"\r\nHT",                       // 4 s
            b"TP/1.1 200 OK\r\n",            // 5 s
            b"Content-Length: 2\r\n\r\n",    // 6 s
            b"a",                            // 7 s
            b"b",                            // 8 s
        ],
    );
    let timings = seen.outcome.timings;
    assert_eq!(timings.sent, Some(at(1)));
    assert_eq!(timings.first_byte, Some(Stamp::exact(at(4))));
    assert_eq!(timings.headers, Some(Stamp::exact(at(6))));
    assert_eq!(timings.body, Some(Stamp::exact(at(8))));
    assert_eq!(timings.accuracy(), Some(Accuracy::Exact));
    assert_eq!(timings.server_latency(), Some(Duration::from_secs(5)));
    assert!(
        seen.outcome.response_bytes.starts_with(b"HTTP/1.1 200"),
        "neither the interim reply nor the blank line is part of it"
    );
}

#[test]
fn the_first_byte_may_share_its_packet_with_an_interim_reply() {
    let parts: [&[u8]; 2] = [
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 ",
        b"204 No Content\r\n\r\n",
    ];
    let seen = feed(exchange(&description(), &FetchSettings::default()), &parts);
    assert_eq!(seen.outcome.timings.first_byte, Some(Stamp::exact(at(2))));
    assert_eq!(seen.outcome.timings.headers, Some(Stamp::exact(at(3))));
}

#[test]
fn a_reply_without_a_body_has_no_body_phase() {
    let head = Description {
        method: "HEAD",
        ..description()
    };
    let reply = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n";
    let seen = feed(exchange(&head, &small()), &[reply]);
    assert_eq!(seen.result, "whole");
    assert!(seen.reusable);
    assert_eq!(seen.outcome.timings.body, None);
    for status in [204, 304] {
        let reply = format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n");
        let outcome = check(reply.as_bytes(), "whole", b"");
        assert_eq!(outcome.timings.body, None);
    }
    let outcome = check(b"HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n", "whole", b"");
    assert!(outcome.timings.body.is_some(), "an empty body is a body");
}

#[test]
fn a_broken_reply_has_an_error_code_and_keeps_what_was_received() {
    let outcome = check(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        "truncated.body",
        b"abc",
    );
    assert_eq!(outcome.truncated, Some(Truncation::Disconnect));
    assert!(outcome.response_bytes.ends_with(b"\r\n\r\nabc"));
    assert_eq!(outcome.timings.body, None);
    let outcome = check(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabX",
        "protocol.chunk_end",
        b"ab",
    );
    assert_eq!(outcome.truncated, Some(Truncation::Disconnect));
    let outcome = check(b"SSH-2.0-OpenSSH\r\n", "protocol.not_http", b"");
    assert_eq!(outcome.truncated, None);
    assert!(outcome.response_bytes.is_empty(), "no reply without a head");
    check(b"", "truncated.no_reply", b"");
    check(b"HTTP/1.1 200 OK\r\nA: b\r\n", "truncated.head", b"");
    let endless = format!("HTTP/1.1 200 OK\r\n{}", "A: b\r\n".repeat(300));
    check(endless.as_bytes(), "too_large.header_lines", b"");
}

#[test]
fn a_close_delimited_body_ends_with_its_last_byte() {
    let reply: &[u8] = b"HTTP/1.0 200 OK\r\n\r\nall of it";
    let whole = |parts: &[&[u8]], body: &[u8], seconds| {
        let seen = feed(exchange(&description(), &small()), parts);
        assert_eq!(seen.result, "whole");
        assert!(!seen.reusable);
        assert_eq!(seen.outcome.body, body);
        // The end of the connection arrives a second after the last part.
        assert_eq!(seen.outcome.timings.body, Some(Stamp::exact(at(seconds))));
    };
    whole(&[reply], b"all of it", 2);
    whole(&[reply, b" and", b" more"], b"all of it and more", 4);
    whole(&[b"HTTP/1.0 200 OK\r\n\r\n"], b"", 2);
    let mut unsure = exchange(&description(), &small());
    let mut input = reply;
    while unsure.handle_bytes(&mut input, arrival(2)).is_some() {}
    let Step::Over { failure, .. } = unsure.handle_end(false) else {
        panic!("the end of the connection ends the exchange");
    };
    assert_eq!(failure.expect("it may be cut").name, "close_notify");
    let outcome = unsure.into_outcome();
    assert_eq!(outcome.truncated, Some(Truncation::Disconnect));
    assert_eq!(outcome.body, b"all of it");
}

#[test]
fn a_body_over_the_limit_is_cut_and_kept() {
    let mut long = [b'x'; 101];
    long[100] = b'y';
    for chunked in [false, true] {
        let reply = if chunked {
            let mut reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n".to_vec();
            reply.extend(long);
            reply.extend(b"\r\n0\r\n\r\n");
            reply
        } else {
            with_body("", &long)
        };
        let seen = feed(exchange(&description(), &small()), &[&reply]);
        assert_eq!(seen.result, "whole", "a cut body is not an error");
        assert!(!seen.reusable);
        assert_eq!(seen.outcome.truncated, Some(Truncation::Length));
        assert_eq!(seen.outcome.body, &long[..100]);
        let kept = seen.outcome.response_bytes.len();
        assert_eq!(seen.outcome.bytes_wire, kept as u64);
        assert!(seen.outcome.response_bytes.ends_with(&long[..100]));
        assert!(reply.starts_with(&seen.outcome.response_bytes));
    }
    let exact = check(&with_body("", &long[..100]), "whole", &long[..100]);
    assert_eq!(exact.truncated, None, "the limit itself is allowed");
}

#[test]
fn the_limit_holds_for_the_decoded_body_too() {
    let coded = gzip(&[b'x'; 5000]);
    let reply = with_body("Content-Encoding: gzip\r\n", &coded);
    let outcome = check(&reply, "whole", &[b'x'; 100]);
    assert_eq!(outcome.truncated, Some(Truncation::Length));
}

#[test]
fn a_limit_of_its_own_overrides_the_settings() {
    let robots = Description {
        body_max: Some(3),
        ..description()
    };
    let seen = feed(exchange(&robots, &small()), &[&with_body("", b"abcd")]);
    assert_eq!(seen.outcome.body, b"abc");
}

#[test]
fn a_decompression_bomb_is_an_early_error() {
    let bomb = gzip(&vec![0; 9 << 20]);
    let reply = with_body("Content-Encoding: gzip\r\n", &bomb);
    let seen = feed(
        exchange(&description(), &FetchSettings::default()),
        &[&reply],
    );
    assert_eq!(seen.result, "content_encoding.bomb");
    assert!(!seen.reusable);
    assert_eq!(seen.outcome.truncated, Some(Truncation::Length));
    assert!(seen.outcome.body.len() < 3 << 20);
}

#[test]
fn an_unknown_coding_is_a_failure_that_keeps_the_body_as_it_came() {
    let reply = with_body("Content-Encoding: rot13\r\n", b"uryyb");
    let seen = feed(exchange(&description(), &small()), &[&reply]);
    assert_eq!(seen.result, "content_encoding.unknown");
    assert!(seen.reusable, "the framing is in order");
    assert_eq!(seen.outcome.body, b"uryyb");
    assert_eq!(seen.outcome.truncated, None);
    check(&with_body("Content-Encoding: rot13\r\n", b""), "whole", b"");
}

#[test]
fn a_broken_coding_keeps_what_was_decoded_and_all_that_came() {
    let page = "a page of some length\n".repeat(5000);
    let mut coded = gzip(page.as_bytes());
    let last = coded.len() - 1;
    coded[last] ^= 1;
    let reply = with_body("Content-Encoding: gzip\r\n", &coded);
    let seen = feed(
        exchange(&description(), &FetchSettings::default()),
        &[&reply],
    );
    assert_eq!(seen.result, "content_encoding.broken");
    assert!(seen.outcome.body.len() > 50_000);
    assert!(page.as_bytes().starts_with(&seen.outcome.body));
    assert_eq!(seen.outcome.response_bytes, reply);
    assert!(seen.reusable);
    let short = with_body("Content-Encoding: gzip\r\n", &gzip(b"hello")[..12]);
    assert_eq!(
        feed(exchange(&description(), &small()), &[&short]).result,
        "content_encoding.truncated"
    );
}

#[test]
fn bytes_that_are_not_kept_are_only_counted() {
    let lean = Description {
        keep_wire: false,
        ..description()
    };
    let reply = with_body("", b"body");
    let seen = feed(exchange(&lean, &small()), &[&reply]);
    assert!(seen.outcome.response_bytes.is_empty());
    assert_eq!(seen.outcome.bytes_wire, reply.len() as u64);
    assert_eq!(seen.outcome.body, b"body");
}

#[test]
fn memory_counts_what_is_buffered() {
    let mut exchange = exchange(&description(), &FetchSettings::default());
    let before = exchange.memory();
    let reply = with_body("", &[b'x'; 10_000]);
    let mut input = &reply[..9000];
    while exchange.handle_bytes(&mut input, arrival(2)).is_some() {}
    assert!(exchange.memory() >= before + 2 * 8900, "wire and body");
}

#[test]
fn each_phase_has_its_deadline() {
    let settings = FetchSettings::default();
    let limits = Limits::default();
    let timings = Timings::default();
    let mut exchange = Exchange::new(&description(), &settings, limits, timings).unwrap();
    let expect = |exchange: &Exchange, seconds, phase| {
        assert_eq!(
            exchange.deadline(Instant::START, &settings),
            Deadline::new(at(seconds), phase)
        );
    };
    expect(&exchange, 120, Phase::Total);
    exchange.hand_out();
    exchange.handle_sent(at(1), Duration::ZERO);
    expect(&exchange, 31, Phase::FirstByte);
    let feed = |exchange: &mut Exchange, bytes: &[u8], seconds| {
        let mut input = bytes;
        while exchange
            .handle_bytes(&mut input, arrival(seconds))
            .is_some()
        {}
    };
    feed(&mut exchange, b"HTTP/1.1 103 Early Hints\r\n\r\n", 5);
    expect(&exchange, 31, Phase::FirstByte);
    feed(&mut exchange, b"HTTP/1.1 200 OK\r\n\r\n", 10);
    expect(&exchange, 30, Phase::Idle);
    feed(&mut exchange, b"x", 29);
    expect(&exchange, 35, Phase::Rate);
    exchange.handle_activity(at(34));
    expect(&exchange, 35, Phase::Rate);
    // 3 000 bytes fill the window, and the next one starts.
    feed(&mut exchange, &[b'x'; 3000], 34);
    expect(&exchange, 54, Phase::Idle);
    feed(&mut exchange, &[b'x'; 3000], 115);
    expect(&exchange, 120, Phase::Total);
}

#[test]
fn without_a_minimum_rate_only_silence_counts() {
    let settings = FetchSettings {
        rate_min: 0,
        idle_timeout: Duration::from_secs(40),
        ..FetchSettings::default()
    };
    let mut exchange = exchange(&description(), &settings);
    for seconds in [2, 15, 30, 45] {
        let mut input: &[u8] = if seconds == 2 {
            b"HTTP/1.1 200 OK\r\n\r\n"
        } else {
            b"x"
        };
        while exchange
            .handle_bytes(&mut input, arrival(seconds))
            .is_some()
        {}
    }
    assert_eq!(
        exchange.deadline(Instant::START, &settings),
        Deadline::new(at(85), Phase::Idle)
    );
}

#[test]
fn time_spent_waiting_to_depart_does_not_count_for_the_timeout() {
    let settings = FetchSettings::default();
    let wait = settings.download_timeout * 2;
    let timings = Timings {
        ready: Some(Instant::START),
        ..Timings::default()
    };
    let mut exchange = Exchange::new(&description(), &settings, Limits::default(), timings)
        .expect("a sound request");
    exchange.hand_out();
    exchange.handle_sent(Instant::START + wait, Duration::ZERO);
    assert!(exchange.deadline(Instant::START, &settings).at > Instant::START + wait);
}

#[test]
fn a_silence_that_is_ours_moves_the_deadline_of_its_phase_and_not_that_of_the_whole_fetch() {
    let settings = FetchSettings::default();
    let mut exchange = exchange(&description(), &settings);
    let check = |exchange: &Exchange, silent_from, second, phase| {
        let deadline = exchange.deadline(at(silent_from), &settings);
        assert_eq!(deadline, Deadline::new(at(second), phase));
    };
    let sent = exchange.timings().sent.expect("it was sent");
    let sent = sent.saturating_since(Instant::START).as_secs();
    check(&exchange, 0, sent + 30, Phase::FirstByte);
    check(&exchange, 50, 80, Phase::FirstByte);
    check(&exchange, 95, 120, Phase::Total);
    let mut input: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
    while exchange.handle_bytes(&mut input, arrival(2)).is_some() {}
    check(&exchange, 50, 22, Phase::Idle);
    // It was read at 10 s, and more waits at 50 s.
    exchange.handle_activity(at(10));
    check(&exchange, 0, 30, Phase::Idle);
    exchange.handle_resumed(Duration::ZERO, at(50));
    check(&exchange, 50, 70, Phase::Idle);
    exchange.handle_resumed(Duration::ZERO, at(110));
    check(&exchange, 110, 120, Phase::Total);
}

/// How long the exchange waits for a reply that arrives byte by byte each second from the 2nd
/// second on, after the bytes of `at_once`, and the phase that times out. A reply that ends starts
/// again.
fn drip(settings: &FetchSettings, at_once: &[u8], then: &[u8]) -> (u64, Phase) {
    let mut exchange = exchange(&description(), settings);
    let mut input = at_once;
    while exchange.handle_bytes(&mut input, arrival(2)).is_some() {}
    let mut then = then.iter().cycle();
    for second in 2.. {
        let deadline = exchange.deadline(Instant::START, settings);
        if deadline.at <= at(second) {
            return (second, deadline.phase);
        }
        let mut input = then.next().map_or(&[][..], std::slice::from_ref);
        while exchange.handle_bytes(&mut input, arrival(second)).is_some() {}
    }
    unreachable!("every reply times out")
}

#[test]
fn a_byte_per_second_times_out_in_every_part_of_a_reply() {
    let settings = FetchSettings::default();
    let check = |at_once: &[u8], then: &[u8], expected: (u64, Phase)| {
        assert_eq!(drip(&settings, at_once, then), expected);
    };
    let rate = (32, Phase::Rate);
    check(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", b"x", rate);
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(chunked, b"1\r\nx\r\n", rate);
    check(chunked, b"0", rate);
    check(b"HTTP/1.1 200 OK\r\n\r\n", b"x", rate);
    // In the head, and in an interim one; between two interim replies no reply has begun.
    check(b"", b"HTTP/1.1 200 OK\r\nA: b\r\n", rate);
    check(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n", rate);
    check(b"HTTP/1.1 103 Early Hints\r\n", b"A: b\r\n", rate);
    check(b"HTTP/1.1 103 A\r\n\r\n", b"", (31, Phase::FirstByte));
    check(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", rate);
}

#[test]
fn without_a_minimum_rate_the_total_timeout_still_applies() {
    let settings = FetchSettings {
        rate_min: 0,
        ..FetchSettings::default()
    };
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n";
    assert_eq!(drip(&settings, head, b"x"), (120, Phase::Total));
}

/// Feeds a reply byte by byte in this body mode: returns the bytes taken while it arrived, and the
/// outcome.
fn in_mode(body_mode: BodyMode, reply: &[u8], settings: &FetchSettings) -> (Vec<u8>, Outcome) {
    let mut exchange = exchange(&description(), settings);
    let (mut came, mut piece) = (Vec::new(), Vec::new());
    let mut over = false;
    for byte in reply {
        let mut input = std::slice::from_ref(byte);
        while let Some(step) = exchange.handle_bytes(&mut input, arrival(2)) {
            match step {
                Step::Head => exchange.set_body_mode(body_mode),
                Step::Piece => unreachable!("the body is taken after every byte"),
                Step::Over { failure, reusable } => {
                    assert_eq!((failure, reusable), (None, true));
                    over = true;
                }
            }
        }
        while exchange.swap_body(&mut piece) {
            came.append(&mut piece);
        }
    }
    assert!(over, "the reply is whole");
    (came, exchange.into_outcome())
}

#[test]
fn a_body_in_take_mode_is_decoded_in_pieces_without_a_length_limit() {
    let body = "the body, and the body again. ".repeat(20);
    let coded = gzip(body.as_bytes());
    for reply in [
        with_body("Content-Encoding: gzip\r\n", &coded),
        with_body("", body.as_bytes()),
    ] {
        let (came, outcome) = in_mode(BodyMode::Take, &reply, &small());
        assert_eq!(came, body.as_bytes());
        assert_eq!((outcome.bytes_taken, outcome.truncated), (600, None));
        assert!(outcome.body.is_empty());
        assert_eq!(outcome.response_bytes.len(), outcome.head_length);
        assert_eq!(outcome.bytes_wire as usize, reply.len());
    }
}

#[test]
fn a_skipped_body_leaves_only_its_length() {
    let reply = with_body("Content-Encoding: gzip\r\n", b"no gzip at all");
    let (came, outcome) = in_mode(BodyMode::Skip, &reply, &small());
    assert!(came.is_empty() && outcome.body.is_empty());
    assert_eq!(outcome.response_bytes.len(), outcome.head_length);
    assert_eq!(outcome.bytes_wire as usize, reply.len());
}

#[test]
fn a_407_is_a_proxy_failure_only_if_a_proxy_was_used() {
    let proxy = "http://proxy.test:3128".parse().expect("a proxy");
    let through = Description {
        proxy: Some(&proxy),
        ..description()
    };
    for (description, is_proxys) in [(through, true), (description(), false)] {
        let mut exchange = exchange(&description, &small());
        let mut input: &[u8] = b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n";
        match exchange.handle_bytes(&mut input, arrival(2)) {
            Some(Step::Over { failure, .. }) => {
                let failure = failure.expect("a proxy failure");
                assert!(is_proxys);
                assert_eq!(
                    (failure.kind, failure.name),
                    (FailureKind::Connect, "proxy_auth")
                );
            }
            step => assert!(!is_proxys && step == Some(Step::Head), "{step:?}"),
        }
    }
}
