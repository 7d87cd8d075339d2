//! Bodies in every split, damaged, endless, and too large.

use super::engine::encode;
use super::*;

const TEXT: &[u8] = b"the web, the wheel, the weaver; the web, the wheel, the weaver; \
    the web, the wheel, the weaver; the web, the wheel, the weaver; \
    the web, the wheel, the weaver; the web, the wheel, the weaver; \
    the web, the wheel, the weaver; the web, the wheel, the weaver; ";

/// [`TEXT`] as encoded by the reference encoder.
#[cfg(feature = "brotli")]
const TEXT_BR: &[u8] = b"\x1b\xff\x00\xf8\x8d\x94\xa9\xe3\x1b\x78\xc8\x52\x7d\xae\x84\x68\x46\
    \x97\xb1\xec\xa0\xcd\x42\x76\x99\x2d\x03\x78\x61\xa5\xf4\x38\xb7\x2e\xb9\x86\x26\x23";

/// 8 MiB of zeros as encoded by the reference encoder.
#[cfg(feature = "brotli")]
const ZEROS_BR: &[u8] = b"\x9b\xff\xff\x7f\xf8\x27\x00\xe2\xb1\x40\x20\xf7\xfe\x0f";

/// The decoded body and how it ended.
type Decoded = (Vec<u8>, Result<DecodeProgress, CodingError>);

fn decode<'a>(
    codings: &str,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    budget: Budget,
) -> Decoded {
    let mut out = Vec::new();
    let mut decoder = match Decoder::new([codings.as_bytes()], budget) {
        Ok(decoder) => decoder,
        Err(error) => return (out, Err(error)),
    };
    let mut last = DecodeProgress::More;
    for piece in pieces {
        match decoder.write(piece, &mut out) {
            Ok(progress) => last = progress,
            Err(error) => {
                assert_eq!(
                    decoder.write(piece, &mut out),
                    Err(error.clone()),
                    "an error is permanent"
                );
                assert_eq!(decoder.finish(), Err(error.clone()));
                return (out, Err(error));
            }
        }
    }
    (out, decoder.finish().map(|()| last))
}

/// The same with every split: whole, in two parts, and byte by byte.
fn decoded_with(codings: &str, body: &[u8], budget: Budget) -> Decoded {
    let whole = decode(codings, [body], budget);
    let places = (0..=body.len().min(300)).chain(body.len().saturating_sub(20)..=body.len());
    for at in places {
        let (one, two) = body.split_at(at);
        let cut = decode(codings, [one, two], budget);
        assert_same(&cut, &whole);
    }
    assert_same(&decode(codings, body.chunks(1), budget), &whole);
    for bytes_max in [1, 7, 5_000] {
        if whole.0.len() as u64 / bytes_max < 20_000 {
            assert_same(&in_portions(codings, body, bytes_max, budget), &whole);
        }
    }
    whole
}

/// The same, decoded in portions of at most `bytes_max`.
fn in_portions(codings: &str, body: &[u8], bytes_max: u64, budget: Budget) -> Decoded {
    let mut out = Vec::new();
    let mut decoder = match Decoder::new([codings.as_bytes()], budget) {
        Ok(decoder) => decoder,
        Err(error) => return (out, Err(error)),
    };
    let mut body = body;
    loop {
        let before = out.len();
        let progress = decoder.write_some(&mut body, bytes_max, &mut out);
        assert!(
            (out.len() - before) as u64 <= bytes_max,
            "more than the requested amount"
        );
        match progress {
            Ok(DecodeProgress::Paused) => {}
            Ok(last) => return (out, decoder.finish().map(|()| last)),
            Err(error) => return (out, Err(error)),
        }
    }
}

/// Asserts the same end and the same bytes; before damage the libraries may return different
/// amounts.
fn assert_same(one: &Decoded, other: &Decoded) {
    assert_eq!(one.1, other.1);
    let same = match one.1 {
        Err(CodingError::Broken(_)) => one.0.starts_with(&other.0) || other.0.starts_with(&one.0),
        _ => one.0 == other.0,
    };
    assert!(same, "the bytes depend on the split");
}

fn check(codings: &str, body: &[u8], expected: &[u8]) {
    let (out, end) = decoded_with(codings, body, Budget::default());
    assert_eq!(end, Ok(DecodeProgress::More), "{codings}");
    assert!(
        out == expected,
        "{codings}: {:?}",
        String::from_utf8_lossy(&out)
    );
}

/// As [`check`], for bodies too long to try every split.
fn check_whole(codings: &str, body: &[u8], expected: &[u8]) {
    for step in [body.len(), 1, 7] {
        let (out, end) = decode(codings, body.chunks(step), Budget::default());
        assert_eq!(
            (&out[..], end),
            (expected, Ok(DecodeProgress::More)),
            "{codings}"
        );
    }
}

fn check_error(codings: &str, body: &[u8], error: CodingError) {
    let (_, end) = decoded_with(codings, body, Budget::default());
    assert_eq!(end, Err(error), "{codings}");
}

fn encoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    match coding {
        Coding::Gzip => gzip(bytes),
        Coding::Deflate => encode::zlib(bytes),
        #[cfg(feature = "brotli")]
        Coding::Brotli => encode::brotli(bytes),
        #[cfg(feature = "zstd")]
        Coding::Zstd => encode::zstd(bytes),
        #[cfg(not(all(feature = "brotli", feature = "zstd")))]
        absent => panic!("{absent:?} is not in this build"),
    }
}

/// The codings included in this build.
const ALL: &[Coding] = &[
    Coding::Gzip,
    Coding::Deflate,
    #[cfg(feature = "brotli")]
    Coding::Brotli,
    #[cfg(feature = "zstd")]
    Coding::Zstd,
];

#[test]
fn every_coding_is_decoded() {
    for coding in ALL {
        for text in [TEXT, b"x", b""] {
            check(coding.as_str(), &encoded(*coding, text), text);
        }
    }
    #[cfg(feature = "brotli")]
    check("br", TEXT_BR, TEXT);
}

#[test]
fn a_coding_is_requested_or_rejected_by_its_feature() {
    let asked_for: Vec<&str> = ACCEPT_ENCODING.split(", ").collect();
    let undone: Vec<&str> = ALL.iter().map(|coding| coding.as_str()).collect();
    assert_eq!(asked_for, undone);
    for coding in [Coding::Brotli, Coding::Zstd] {
        let made = Decoder::new([coding.as_str().as_bytes()], Budget::default());
        match made.err() {
            None => assert!(ALL.contains(&coding)),
            Some(error) => {
                assert_eq!(error, CodingError::Absent(coding));
                assert_eq!(error.code(), "absent");
                assert!(error.to_string().ends_with(coding.feature()), "{error}");
                assert!(!ALL.contains(&coding));
            }
        }
    }
}

#[test]
fn without_a_coding_bytes_are_copied() {
    for codings in ["", "identity", "none", " , Identity,"] {
        check(codings, TEXT, TEXT);
    }
    let decoder = Decoder::new([], Budget::default()).unwrap();
    assert!(decoder.is_identity());
}

#[test]
fn names_come_in_any_case_and_gzip_has_two() {
    for codings in ["GZIP", "x-gzip", " gzip ,", "gzip, identity"] {
        check(codings, &gzip(TEXT), TEXT);
    }
}

#[test]
fn an_unknown_coding_is_named() {
    let long = "x".repeat(1000);
    for (codings, name) in [
        ("utf-8", "utf-8"),
        ("gzip, a b", "a b"),
        (&long, &long[..40]),
    ] {
        let made = Decoder::new([codings.as_bytes()], Budget::default());
        assert_eq!(made.err(), Some(CodingError::Unknown(name.to_owned())));
    }
}

#[test]
fn up_to_three_codings_lie_over_each_other() {
    let body = gzip(&encode::zlib(&gzip(TEXT)));
    check("gzip, deflate, gzip", &body, TEXT);
    #[cfg(feature = "zstd")]
    check(
        "gzip, deflate, zstd",
        &encode::zstd(&encode::zlib(&gzip(TEXT))),
        TEXT,
    );
    let mut out = Vec::new();
    let fields: [&[u8]; 2] = [b"gzip", b"deflate,gzip"];
    let mut decoder = Decoder::new(fields, Budget::default()).unwrap();
    decoder.write(&body, &mut out).unwrap();
    assert_eq!(decoder.finish(), Ok(()));
    assert_eq!(out, TEXT);
    check_error("gzip, gzip, gzip, gzip", b"", CodingError::TooMany);
}

#[test]
fn gzip_may_have_several_members() {
    let body = [gzip(b"one "), gzip(b""), gzip(b"two")].concat();
    check("gzip", &body, b"one two");
}

#[test]
#[cfg(feature = "zstd")]
fn zstd_may_have_several_frames() {
    let skipped = b"\x5a\x2a\x4d\x18\x03\0\0\0abc".to_vec();
    let body = [encode::zstd(b"one "), skipped, encode::zstd(b"two")].concat();
    check("zstd", &body, b"one two");
}

#[test]
fn thousands_of_empty_members_and_frames_decode_to_nothing() {
    for (coding, body) in [
        ("gzip", gzip(b"")),
        #[cfg(feature = "zstd")]
        ("zstd", encode::zstd(b"")),
    ] {
        let many = body.repeat(2_000);
        check_whole(coding, &many, b"");
        let within = [gzip(b"").repeat(100), gzip(&body), gzip(b"").repeat(100)].concat();
        check_whole(&format!("{coding}, gzip"), &within, b"");
    }
}

#[test]
fn deflate_is_zlib_or_raw() {
    check("deflate", &encode::raw_deflate(TEXT), TEXT);
    check("deflate", &encode::raw_deflate(b""), b"");
}

#[test]
fn rubbish_after_the_end_is_ignored() {
    for coding in ALL {
        for rubbish in [&b"\n"[..], b"\x1f", b"\x28\xb5\x2f", b"rubbish\0\0\0"] {
            let body = [&encoded(*coding, TEXT), rubbish].concat();
            check(coding.as_str(), &body, TEXT);
        }
    }
}

#[test]
fn no_body_is_an_empty_body() {
    for coding in ALL {
        check(coding.as_str(), b"", b"");
    }
    check("gzip, deflate", b"", b"");
}

#[test]
fn a_truncated_stream_is_an_error_and_keeps_its_output() {
    // Hard to compress, so that there is output early.
    let noise: Vec<u8> = (0..300_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    for &coding in ALL {
        let body = encoded(coding, &noise);
        let body = &body[..body.len() - 1];
        let (out, end) = decoded_with(coding.as_str(), body, Budget::default());
        assert_eq!(end, Err(CodingError::Truncated(coding)));
        assert!(!out.is_empty() && noise.starts_with(&out), "{coding:?}");
        check_error(coding.as_str(), &body[..1], CodingError::Truncated(coding));
    }
    let second = [gzip(b"one"), gzip(b"two")[..5].to_vec()].concat();
    check_error("gzip", &second, CodingError::Truncated(Coding::Gzip));
}

#[test]
fn the_truncated_layer_is_named_in_the_error() {
    let inner = encode::zlib(TEXT);
    let body = gzip(&inner[..inner.len() - 1]);
    check_error(
        "deflate, gzip",
        &body,
        CodingError::Truncated(Coding::Deflate),
    );
}

#[test]
fn a_damaged_stream_is_broken() {
    for &coding in ALL {
        let rubbish = b"<html>\xff\xff\xff\xff this is not a coded stream at all".repeat(4);
        check_error(coding.as_str(), &rubbish, CodingError::Broken(coding));
    }
    // The checksum, and the length, which comes last.
    for from_end in [5, 1] {
        let mut body = gzip(TEXT);
        let at = body.len() - from_end;
        body[at] ^= 1;
        check_error("gzip", &body, CodingError::Broken(Coding::Gzip));
    }
}

#[test]
#[cfg(feature = "zstd")]
fn a_zstd_window_beyond_8_mib_is_refused() {
    let body = vec![b'x'; 100];
    check("zstd", &encode::zstd_with_window(&body, 23), &body);
    let too_large = encode::zstd_with_window(&body, 24);
    check_error("zstd", &too_large, CodingError::Window);
}

#[test]
fn a_body_over_the_budget_is_cut_and_kept() {
    for &coding in ALL {
        for (bytes_max, progress) in [
            (TEXT.len(), DecodeProgress::More),
            (TEXT.len() - 1, DecodeProgress::Full),
            (1, DecodeProgress::Full),
            (0, DecodeProgress::Full),
        ] {
            let budget = Budget {
                bytes_max: bytes_max as u64,
                ..Budget::default()
            };
            let (out, end) = decoded_with(coding.as_str(), &encoded(coding, TEXT), budget);
            assert_eq!(end, Ok(progress));
            assert_eq!(out, &TEXT[..bytes_max]);
        }
    }
    let budget = Budget {
        bytes_max: 3,
        ..Budget::default()
    };
    let (out, end) = decoded_with("", TEXT, budget);
    assert_eq!((&out[..], end), (&b"the"[..], Ok(DecodeProgress::Full)));
}

#[test]
fn a_body_cut_at_its_budget_may_be_truncated() {
    let budget = Budget {
        bytes_max: 3,
        ..Budget::default()
    };
    let body = gzip(TEXT);
    let (out, end) = decode("gzip", [&body[..body.len() - 4]], budget);
    assert_eq!((&out[..], end), (&b"the"[..], Ok(DecodeProgress::Full)));
}

/// Feeds a bomb and checks the size of the output and its capacity.
fn check_bomb(codings: &str, bomb: &[u8], bytes_max: u64) {
    let budget = Budget {
        bytes_max,
        ..Budget::default()
    };
    let (out, end) = decode(codings, [bomb], budget);
    assert_eq!(end, Err(CodingError::Bomb), "{codings}");
    let allowed = (1 << 20).max(bomb.len() * 200);
    assert!(out.len() <= allowed, "{codings}: {} bytes", out.len());
    assert!(out.capacity() <= 2 * allowed + STEP_BYTES);
}

#[test]
fn a_bomb_is_an_error_in_bounded_memory() {
    let zeros = vec![0; 8 << 20];
    check_bomb("gzip", &gzip(&zeros), u64::MAX);
    check_bomb("deflate", &encode::raw_deflate(&zeros), u64::MAX);
    #[cfg(feature = "brotli")]
    check_bomb("br", ZEROS_BR, u64::MAX);
    #[cfg(feature = "zstd")]
    check_bomb("zstd", &encode::zstd(&zeros), u64::MAX);
    check_bomb("gzip, gzip", &gzip(&gzip(&zeros)), u64::MAX);
    // A body that the budget would cut is a bomb as well.
    check_bomb("gzip", &gzip(&zeros), 2 << 20);
    #[cfg(feature = "brotli")]
    check_bomb("br", ZEROS_BR, 2 << 20);
}

#[test]
#[cfg(feature = "zstd")]
fn a_bomb_in_an_inner_layer_is_detected_without_output() {
    // Skippable zstd frames: a lot in the middle layer, no final output.
    let skipped = [&b"\x50\x2a\x4d\x18\0\0\x40\0"[..], &vec![0; 4 << 20]].concat();
    check_bomb("zstd, gzip", &gzip(&skipped), u64::MAX);
}

#[test]
fn a_high_ratio_with_little_output_is_no_bomb() {
    let zeros = vec![0; 1 << 20];
    let (out, end) = decode("gzip", [&gzip(&zeros)[..]], Budget::default());
    assert_eq!((out.len(), end), (1 << 20, Ok(DecodeProgress::More)));
}

#[test]
fn output_is_limited_to_the_requested_amount_per_call() {
    let zeros = vec![0; 4 << 20];
    let coded = gzip(&gzip(&zeros));
    assert!(coded.len() < 1 << 10, "{} bytes", coded.len());
    let mut decoder = Decoder::new(
        [&b"gzip, gzip"[..]],
        Budget {
            ratio_max: 100_000,
            ..Budget::default()
        },
    )
    .unwrap();
    let (mut input, mut out, mut times) = (&coded[..], Vec::new(), 0);
    while decoder.write_some(&mut input, 64 << 10, &mut out) == Ok(DecodeProgress::Paused) {
        assert_eq!(out.len(), 64 << 10);
        times += 1;
        out.clear();
    }
    assert_eq!((times, out.len(), decoder.finish()), (64, 0, Ok(())));
}

#[test]
fn gzip_writes_the_same_bytes_every_time() {
    assert_eq!(gzip(TEXT), gzip(TEXT));
    assert_eq!(gzip(TEXT)[4..8], [0; 4], "the header has no time");
}

/// What a whole body is decoded to at once, if at all, is what the decoder makes of it.
fn check_at_once(coded: &[u8], decoded_max: usize) -> bool {
    let mut out = b"before".to_vec();
    let is_done = inflate(coded, decoded_max, &mut out);
    let expected = match is_done {
        false => Vec::new(),
        true => {
            let (expected, end) = decode("gzip", [coded], Budget::default());
            assert_eq!(end, Ok(DecodeProgress::More));
            expected
        }
    };
    assert!(out.strip_prefix(b"before") == Some(&expected[..]));
    assert!(expected.len() <= decoded_max);
    is_done
}

#[test]
fn a_whole_gzip_body_is_decoded_at_once() {
    let coded = gzip(TEXT);
    assert!(check_at_once(&coded, TEXT.len()));
    assert!(check_at_once(&gzip(b""), 0));
    assert!(!check_at_once(&coded, TEXT.len() - 1), "beyond the limit");
    for cut in 0..coded.len() {
        assert!(!check_at_once(&coded[..cut], TEXT.len()), "cut at {cut}");
    }
    let twice = coded.repeat(2);
    assert!(!check_at_once(&twice, 2 * TEXT.len()), "two members");
    let more = [&coded[..], b"\n"].concat();
    assert!(!check_at_once(&more, usize::MAX), "rubbish after it");
    assert!(!check_at_once(&encode::zlib(TEXT), TEXT.len()), "zlib");
    let mut named = coded.clone();
    named[3] |= 8;
    named.splice(10..10, *b"page.html\0");
    assert!(check_at_once(&named, TEXT.len()), "with a name");
    // The checksum of the header is checked by the decoder alone.
    named[3] |= 2;
    assert!(!check_at_once(&named, TEXT.len()));
}

#[test]
fn gzip_alone_is_recognized() {
    for (values, expected) in [
        (&[&b"gzip"[..]][..], true),
        (&[b" X-GZIP "], true),
        (&[], false),
        (&[b"gzip", b"gzip"], false),
        (&[b"gzip, gzip"], false),
        (&[b"deflate"], false),
        (&[b"identity"], false),
    ] {
        assert_eq!(is_gzip(values.iter().copied()), expected, "{values:?}");
    }
}

mod random {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_panic_and_no_cut_matters(
            body in prop::collection::vec(any::<u8>(), 0..200),
            which in 0..ALL.len(),
            start in 0_usize..20,
        ) {
            let coding = ALL[which];
            let honest = encoded(coding, TEXT);
            let start = &honest[..start.min(honest.len())];
            let _ = decoded_with(coding.as_str(), &[start, &body].concat(), Budget::default());
        }

        #[test]
        fn what_is_decoded_at_once_is_what_the_decoder_decodes(
            body in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..3_000),
                "[a-d ]{0,3000}".prop_map(String::into_bytes),
            ],
            second in "[a-d]{0,9}",
            members in 1..3_usize,
            damage in prop::option::weighted(0.5, (any::<prop::sample::Index>(), 1..=255_u8)),
            cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
            room in 0..4_000_usize,
        ) {
            let mut coded = gzip(&body);
            if members == 2 {
                coded.extend(gzip(second.as_bytes()));
            }
            if let Some((at, bits)) = damage {
                let at = at.index(coded.len());
                coded[at] ^= bits;
            }
            if let Some(cut) = cut {
                coded.truncate(cut.index(coded.len()));
            }
            let is_done = check_at_once(&coded, room);
            let is_usual = members == 1 && damage.is_none() && cut.is_none();
            prop_assert!(is_done || !is_usual || body.len() > room);
        }

        #[test]
        fn encoded_bytes_are_decoded_to_the_original(body in prop::collection::vec(any::<u8>(), 0..100_000), which in 0..ALL.len(), step in 1_usize..9_000) {
            let coding = ALL[which];
            let coded = encoded(coding, &body);
            let (out, end) = decode(coding.as_str(), coded.chunks(step), Budget::default());
            prop_assert_eq!(end, Ok(DecodeProgress::More));
            prop_assert!(out == body);
        }
    }
}

#[test]
fn many_streams_in_one_body_are_decoded_with_pauses() {
    let member = [gzip(b""), gzip(b"x")].concat();
    let members = member.repeat(500);
    let mut decoder = Decoder::new([&b"gzip"[..]], Budget::default()).expect("a known coding");
    let (mut input, mut out, mut pauses) = (&members[..], Vec::new(), 0);
    while decoder.write_some(&mut input, u64::MAX, &mut out) == Ok(DecodeProgress::Paused) {
        pauses += 1;
        assert!(members.len() - input.len() <= (pauses + 1) * 16 * member.len());
    }
    assert_eq!(out, vec![b'x'; 500]);
    assert!(pauses >= 1000 / 16 - 1, "{pauses} pauses");
    assert_eq!(decoder.finish(), Ok(()));
    let twice = gzip(&member.repeat(40));
    let (out, end) = decoded_with("gzip, gzip", &twice, Budget::default());
    assert_eq!((out, end), (vec![b'x'; 40], Ok(DecodeProgress::More)));
}
