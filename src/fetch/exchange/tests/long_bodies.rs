//! Bodies that are long, or that expand to long ones: steps, copies and limits.

use super::*;
use crate::base::memory::is_room_scarce;

#[test]
fn a_body_that_expands_a_lot_is_decoded_in_steps() {
    let body = vec![b'x'; 5 * KEPT_STEP / 2];
    let coded = crate::wire::coding::gzip(&body);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        coded.len()
    );
    let settings = FetchSettings {
        ratio_max: u32::MAX,
        ..FetchSettings::default()
    };
    let mut exchange = exchange(&description(), &settings);
    let reply = [head.as_bytes(), &coded].concat();
    let mut input = &reply[..];
    let mut lengths = Vec::new();
    loop {
        match exchange.handle_bytes(&mut input, arrival(2)) {
            Some(Step::Head) => {}
            Some(Step::Piece) => {
                assert!(exchange.is_long());
                lengths.push(exchange.received.body.len());
            }
            Some(Step::Over { failure, .. }) => {
                assert_eq!(failure, None);
                break;
            }
            None => panic!("the reply is whole"),
        }
    }
    assert_eq!(lengths, [KEPT_STEP, 2 * KEPT_STEP]);
    assert!(!exchange.is_long());
    assert_eq!(exchange.into_outcome().body, body);
}

#[test]
fn a_coded_body_decoded_in_steps_is_cut_at_its_limit() {
    const MOST: usize = 3 * KEPT_STEP / 2;
    // Its coded form is the longer one: most of it decodes to nothing, and the rest takes two
    // steps.
    let body = vec![b' '; KEPT_STEP + 1000];
    let nothing = gzip(b"");
    let nothing = nothing.repeat(KEPT_STEP * 11 / 10 / nothing.len());
    let coded = [&nothing[..], &gzip(&body), &nothing].concat();
    // The excess may be in the last piece that arrives, or in later ones.
    for sent in [MOST + 1, MOST + 100, 2 * KEPT_STEP] {
        let settings = FetchSettings {
            body_max: MOST as u64,
            ratio_max: u32::MAX,
            ..FetchSettings::default()
        };
        let mut exchange = exchange(&description(), &settings);
        let head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n";
        let reply = [head.as_bytes(), &coded[..sent]].concat();
        let mut input = &reply[..];
        let mut steps = 0;
        let failure = loop {
            match exchange.handle_bytes(&mut input, arrival(2)) {
                Some(Step::Over { failure, .. }) => break failure,
                Some(_) => steps += 1,
                None => panic!("{sent}: it goes on at its limit"),
            }
        };
        assert!(failure.is_none() && steps > 1, "{sent}: {failure:?}");
        let outcome = exchange.into_outcome();
        assert_eq!(outcome.truncated, Some(Truncation::Length), "{sent}");
        assert_eq!(outcome.response_bytes.len(), head.len() + MOST, "{sent}");
        assert!(outcome.body == body, "{sent}");
    }
}

#[test]
fn a_taken_or_finished_body_is_not_long() {
    let reply = with_body("Content-Encoding: gzip\r\n", &gzip(b"some text"));
    let settings = small();
    for (body_mode, is_long) in [
        (BodyMode::Keep, true),
        (BodyMode::Take, false),
        (BodyMode::Skip, false),
    ] {
        let mut exchange = exchange(&description(), &settings);
        assert!(!exchange.is_long(), "no byte of the body yet");
        let mut input = &reply[..];
        assert_eq!(
            exchange.handle_bytes(&mut input, arrival(2)),
            Some(Step::Head)
        );
        exchange.set_body_mode(body_mode);
        assert_eq!(exchange.is_long(), is_long, "{body_mode:?}");
    }
}

#[test]
fn a_long_body_is_read_in_steps_and_copied_once() {
    let body: Vec<u8> = (0..5 * LONG).map(|at| at as u8).collect();
    let length = body.len();
    let heads = [
        format!("Content-Length: {length}\r\n"),
        String::new(),
        // The declared length may be more than ever arrives, and more than is kept.
        format!("Content-Length: {}\r\n", 1_u64 << 40),
    ];
    for head in heads {
        let settings = FetchSettings {
            body_max: 40 << 20,
            ..FetchSettings::default()
        };
        let mut exchange = exchange(&description(), &settings);
        let reply = [format!("HTTP/1.1 200 OK\r\n{head}\r\n").as_bytes(), &body].concat();
        let mut rooms = std::collections::BTreeSet::new();
        let mut before = 0;
        for mut input in reply.chunks(64 << 10) {
            while let Some(step) = exchange.handle_bytes(&mut input, arrival(2)) {
                let here = exchange.received.body.len();
                if step == Step::Piece && before >= LONG {
                    assert!(here - before <= KEPT_STEP, "{here} after {before}");
                }
                before = here;
                assert!(step == Step::Head || step == Step::Piece || input.is_empty());
            }
            if exchange.received.body.len() > 2 * LONG {
                rooms.insert(exchange.received.body.capacity());
                rooms.insert(exchange.received.wire.capacity());
                let most = 2 * (before + (3 << 20));
                assert!(is_room_scarce() || exchange.memory() <= most, "{head}");
            }
        }
        // One allocation per buffer, unless the process has a limit of address space.
        assert!(is_room_scarce() || rooms.len() <= 2, "{head}: {rooms:?}");
        if exchange.head().is_some() && !matches!(exchange.state, State::Over) {
            exchange.handle_end(true);
        }
        assert!(exchange.into_outcome().body == body, "{head}");
    }
}

#[test]
fn a_long_chunked_reply_is_rarely_copied_with_any_chunk_size() {
    let settings = FetchSettings {
        body_max: 2 << 20,
        ..FetchSettings::default()
    };
    let mut exchange = exchange(&description(), &settings);
    let chunks = b"1\r\nx\r\n".repeat(2 << 20);
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let reply = [&head[..], &chunks].concat();
    let mut rooms = std::collections::BTreeSet::new();
    for mut input in reply.chunks(1 << 10) {
        while exchange.handle_bytes(&mut input, arrival(2)).is_some() {}
        if exchange.received.wire.len() > LONG {
            rooms.insert(exchange.received.wire.capacity());
        }
    }
    assert_eq!(exchange.received.body.len(), 2 << 20);
    assert_eq!(exchange.received.wire.len(), reply.len());
    // The initial allocation, the expected one, and one more.
    assert!(is_room_scarce() || rooms.len() <= 3, "{rooms:?}");
}

/// Compares replies with a declared length or in chunks, whose bodies are held, with one that ends with its
/// connection, whose body is decoded as it arrives.
#[test]
fn a_held_body_ends_like_one_that_is_decoded_as_it_arrives() {
    let text = b"some text of a page".repeat(20);
    let zeros = gzip(&vec![0; 4 << 20]);
    let usual = gzip(&text);
    let mut damaged = usual.clone();
    *damaged.last_mut().expect("a trailer") ^= 1;
    let twice = [&usual[..], &gzip(b" and more")].concat();
    let over = gzip(&b"x".repeat(5000));
    let nothing = gzip(b"").repeat(100);
    let large = gzip(&vec![b'x'; 200 << 10]);
    let plain = b"no gzip at all".to_vec();
    for coded in [
        &usual, &damaged, &twice, &over, &zeros, &nothing, &large, &plain,
    ] {
        for body_max in [10, 300, 10_000, 10 << 20] {
            let settings = FetchSettings {
                body_max,
                ..FetchSettings::default()
            };
            let seen_with = |head: &str, body: &[u8], piece: usize| {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n{head}\r\n");
                let parts = std::iter::once(head.as_bytes()).chain(body.chunks(piece));
                let parts: Vec<&[u8]> = parts.collect();
                let seen = feed(exchange(&description(), &settings), &parts);
                let truncated = seen.outcome.truncated;
                let mut body = seen.outcome.body;
                if seen.result == "content_encoding.bomb" {
                    // How much of it is decoded depends on its pieces.
                    assert!(body.len() <= 1 << 20);
                    body.truncate(1000);
                }
                (seen.result, truncated, body)
            };
            let length = coded.len();
            for piece in [length, 1 + length / 3, 7] {
                let expected = seen_with("", coded, piece);
                let declared = format!("Content-Length: {length}\r\n");
                assert_eq!(seen_with(&declared, coded, piece), expected);
                let chunked = [
                    format!("{length:x}\r\n").as_bytes(),
                    coded,
                    b"\r\n0\r\n\r\n",
                ]
                .concat();
                let head = "Transfer-Encoding: chunked\r\n";
                assert_eq!(seen_with(head, &chunked, piece), expected);
            }
            // A body that is cut: one that is declared too long to be held is decoded as it arrives.
            for cut in [1, 11, length / 2, length - 1] {
                let expected = seen_with("Content-Length: 100000\r\n", &coded[..cut], 7);
                let held = seen_with("Content-Length: 32000\r\n", &coded[..cut], 7);
                assert_eq!(held, expected, "cut at {cut} of {length}");
            }
        }
    }
}

#[test]
fn a_held_body_counts_as_memory_and_is_not_decoded_before_its_end() {
    let coded = gzip(b"some text of a page");
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        coded.len()
    );
    let mut exchange = exchange(
        &Description {
            keep_wire: false,
            ..description()
        },
        &small(),
    );
    let mut input = head.as_bytes();
    exchange.handle_bytes(&mut input, arrival(2));
    let before = exchange.memory();
    let (mut most, mut last) = coded.split_at(coded.len() - 1);
    assert_eq!(exchange.handle_bytes(&mut most, arrival(2)), None);
    assert_eq!(exchange.body_length(), 0);
    assert!(exchange.memory() >= before + coded.len() - 1);
    assert!(exchange.handle_bytes(&mut last, arrival(3)).is_some());
    assert_eq!(exchange.into_outcome().body, b"some text of a page");
}

#[test]
fn a_body_that_becomes_too_long_to_be_held_is_decoded_in_steps() {
    let mut rng = crate::base::rng::Rng::from_seed(1);
    let body: Vec<u8> = (0..7000)
        .flat_map(|_| {
            let block: [u8; 200] = std::array::from_fn(|_| rng.next_u64() as u8);
            block.repeat(4)
        })
        .collect();
    let coded = gzip(&body);
    assert!((1 << 20..body.len() / 3).contains(&coded.len()));
    let settings = FetchSettings {
        body_max: 64 << 20,
        ..FetchSettings::default()
    };
    let description = Description {
        defers_decoding: true,
        ..description()
    };
    let mut exchange = exchange(&description, &settings);
    let head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut reply = head.as_bytes().to_vec();
    for chunk in coded.chunks(10_000) {
        reply.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        reply.extend_from_slice(chunk);
        reply.extend_from_slice(b"\r\n");
    }
    reply.extend_from_slice(b"0\r\n\r\n");
    let mut is_over = false;
    for mut piece in reply.chunks(16 << 10) {
        loop {
            let before = exchange.body_length();
            let step = exchange.handle_bytes(&mut piece, arrival(2));
            let after = exchange.body_length();
            assert!(
                after <= before + KEPT_STEP + 1,
                "{} at once",
                after - before
            );
            is_over |= matches!(step, Some(Step::Over { failure: None, .. }));
            if step.is_none() || is_over {
                break;
            }
        }
    }
    assert!(is_over);
    assert!(exchange.into_outcome().body == body);
}
