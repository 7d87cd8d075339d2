//! Segments that are whole, cut, changed, or of others.

use super::*;
use crate::base::rng::Rng;
use crate::state::samples;

/// A segment of random records: its bytes, the offsets at which frames end (the header first), and the
/// records in the form of `Debug`.
fn segment(seed: u64, records: usize) -> (Vec<u8>, Vec<usize>, Vec<String>) {
    let mut rng = Rng::from_seed(seed);
    let framer = Framer::new(3, 0xc4a_4715);
    let mut bytes = framer.header();
    let mut ends = vec![bytes.len()];
    let mut texts = Vec::new();
    for _ in 0..records {
        let record = samples::record(&mut rng);
        framer.frame(&mut bytes, |out| record.encode(out));
        assert_eq!(framer.length(), bytes.len() as u64);
        ends.push(bytes.len());
        texts.push(format!("{record:?}"));
    }
    (bytes, ends, texts)
}

/// The records of a segment in the form of `Debug`, and the reader after them.
fn read(bytes: &[u8]) -> Result<(Vec<String>, Reader<'_>), SegmentError> {
    let mut reader = Reader::new(bytes)?;
    let mut texts = Vec::new();
    for record in &mut reader {
        texts.push(format!("{:?}", record?));
    }
    assert!(reader.next().is_none(), "it stays at its end");
    Ok((texts, reader))
}

#[test]
fn records_of_a_segment_are_read_in_order() {
    let (bytes, _, texts) = segment(1, 200);
    let (found, reader) = read(&bytes).expect("a segment");
    assert_eq!(found, texts);
    assert_eq!((reader.segment(), reader.crawl()), (3, 0xc4a_4715));
    assert_eq!(reader.intact(), bytes.len() as u64);
    assert!(!reader.is_torn());
}

#[test]
fn a_segment_may_be_written_in_pieces() {
    let framer = Framer::new(1, 1);
    let mut bytes = framer.header();
    for number in 0..5 {
        let mut piece = Vec::new();
        framer.frame(&mut piece, |out| Record::Ended(number).encode(out));
        bytes.append(&mut piece);
    }
    assert_eq!(read(&bytes).expect("a segment").0.len(), 5);
}

#[test]
fn every_cut_of_a_segment_gives_the_records_before_it() {
    let (bytes, ends, texts) = segment(2, 30);
    for cut in 0..=bytes.len() {
        let result = read(&bytes[..cut]);
        if cut < HEADER_BYTES {
            let error = result.expect_err("no header");
            assert_eq!(error, SegmentError::Incomplete { length: cut });
            continue;
        }
        let (found, reader) = result.expect("a segment");
        let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
        assert_eq!(found, texts[..whole], "{cut}");
        assert_eq!(reader.intact(), ends[whole] as u64);
        assert_eq!(reader.is_torn(), ends[whole] < cut);
    }
}

#[test]
fn every_flipped_bit_gives_an_error_or_the_records_before_it() {
    let (bytes, ends, texts) = segment(3, 12);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match read(&flipped) {
            Ok((found, reader)) => {
                let before = ends.iter().filter(|end| **end <= bit / 8).count() - 1;
                assert_eq!(found, texts[..before], "bit {bit}");
                assert!(reader.is_torn());
            }
            Err(error) => {
                assert!(bit / 8 < HEADER_BYTES, "bit {bit}: {error}");
                let expected = match bit / 8 {
                    0..8 => SegmentError::NotAJournal,
                    _ => SegmentError::Damaged,
                };
                assert_eq!(error, expected);
            }
        }
    }
}

#[test]
fn frames_of_another_place_segment_or_crawl_are_not_intact() {
    let frame = |framer: &Framer, number: u64| {
        let mut bytes = Vec::new();
        framer.frame(&mut bytes, |out| Record::Ended(number).encode(out));
        bytes
    };
    let ours = Framer::new(1, 1);
    let header = ours.header();
    let (first, second) = (frame(&ours, 1), frame(&ours, 2));
    let check = |frames: &[&[u8]], expected: usize| {
        let bytes = [&[&header[..]], frames].concat().concat();
        assert_eq!(read(&bytes).expect("a segment").0.len(), expected);
    };
    check(&[&first, &second], 2);
    check(&[&first, &first], 1);
    check(&[&second], 0);
    check(&[&frame(&Framer::new(2, 1), 1)], 0);
    check(&[&frame(&Framer::new(1, 2), 1)], 0);
    check(&[&first, &[0; 100]], 1);
}

#[test]
fn what_is_no_segment_is_an_error_by_its_kind() {
    let check = |bytes: &[u8], expected: SegmentError| {
        assert_eq!(Reader::new(bytes).expect_err("no segment"), expected);
    };
    check(b"WARC/1.1", SegmentError::NotAJournal);
    check(&[b'x'; 100], SegmentError::NotAJournal);
    check(b"", SegmentError::Incomplete { length: 0 });
    check(&[0; 10], SegmentError::Incomplete { length: 10 });
    check(&[0; 100], SegmentError::Incomplete { length: 0 });
    // The sectors of a write reach the disk in any order.
    let late = [[0; 512], [7; 512]].concat();
    check(&late, SegmentError::Incomplete { length: 0 });
    let (mut newer, _) = header(VERSION + 1, 1, 1);
    let error = SegmentError::Newer {
        version: 2,
        supported: VERSION,
    };
    assert_eq!(error.code(), "journal.newer");
    assert!(error.to_string().contains("has version 2"), "{error}");
    check(&newer, error);
    newer[8] += 1;
    check(&newer, SegmentError::Damaged);
}

#[test]
fn an_intact_frame_that_is_no_record_is_an_error_and_the_next_is_read() {
    let framer = Framer::new(1, 1);
    let mut bytes = framer.header();
    framer.frame(&mut bytes, |out| out.extend_from_slice(&[99, 1, 2]));
    framer.frame(&mut bytes, |out| Record::Ended(5).encode(out));
    let mut reader = Reader::new(&bytes).expect("a segment");
    let error = reader.next().expect("a frame").expect_err("no record");
    let expected = SegmentError::Record {
        offset: HEADER_BYTES as u64,
        cause: RecordError::Kind(99),
    };
    assert_eq!((error, error.code()), (expected, "record.kind"));
    assert!(matches!(reader.next(), Some(Ok(Record::Ended(5)))));
    assert!(reader.next().is_none() && !reader.is_torn());
}

#[test]
fn a_length_beyond_the_bound_ends_the_records() {
    let mut bytes = Framer::new(1, 1).header();
    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    bytes.extend_from_slice(&[0; 100]);
    assert!(read(&bytes).expect("a segment").1.is_torn());
}

#[test]
#[should_panic(expected = "a record has 1 to 67108864 bytes, and not 0")]
fn an_empty_record_is_a_mistake() {
    Framer::new(1, 1).frame(&mut Vec::new(), |_| {});
}

#[test]
#[should_panic(expected = "and not 67108865")]
fn a_record_beyond_the_bound_is_a_mistake() {
    let frame = |out: &mut Vec<u8>| out.resize(out.len() + PAYLOAD_MAX + 1, 0);
    Framer::new(1, 1).frame(&mut Vec::new(), frame);
}

/// Keys of URLs are like any bytes: some begin with the length of a frame.
#[test]
fn few_bytes_are_read_to_find_the_next_frame_behind_damage() {
    let mut rng = Rng::from_seed(9);
    let framer = Framer::new(3, 1);
    let mut bytes = framer.header();
    while bytes.len() < 16 << 20 {
        let keys = (0..4096).map(|_| rng.next_u64()).collect();
        framer.frame(&mut bytes, |out| Record::Seen(keys).encode(out));
    }
    let damaged = 1 << 20;
    let offsets = (HEADER_BYTES..damaged).filter(|offset| may_begin(&bytes[*offset..]));
    let read = offsets.map(|offset| u64::from(u32::from_le_bytes(array(&bytes[offset..][..4]))));
    let read: u64 = read.sum();
    assert!(read < 64 * damaged as u64, "{read} bytes for {damaged}");
    bytes[HEADER_BYTES..damaged].fill(0xff);
    let mut reader = Reader::new(&bytes).expect("a segment");
    assert!(reader.next().is_none() && reader.skip_damage().is_some());
    assert!(reader.filter(Result::is_ok).count() > 400);
}
