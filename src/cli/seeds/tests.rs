//! Seeds files: cut into pieces, compressed, damaged, and with lines that are too long.

use super::*;

/// A source that returns a few bytes per read.
struct Slow<'a>(&'a [u8], usize);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(self.0.len()).min(buffer.len());
        let (now, later) = self.0.split_at(count);
        buffer[..count].copy_from_slice(now);
        self.0 = later;
        Ok(count)
    }
}

/// Every line as `number:text`, every error as its message.
fn read(bytes: &[u8], step: usize) -> Vec<String> {
    SeedLines::new(Slow(bytes, step), "seeds.txt")
        .map(|line| match line {
            Ok(line) => format!("{}:{}", line.number, line.text),
            Err(error) if error.is_of_one_line() => error.to_string(),
            Err(error) => format!("the end: {error}"),
        })
        .collect()
}

#[test]
fn lines_are_numbered_however_the_source_is_cut() {
    let check = |text: &str, expected: &[&str]| {
        for step in [1, 2, 3, 5, 1000] {
            assert_eq!(read(text.as_bytes(), step), expected, "{text:?} by {step}");
        }
    };
    check("", &[]);
    check("a", &["1:a"]);
    check(
        "a.test\nb.test\r\n\n# c\nlast",
        &["1:a.test", "2:b.test", "3:", "4:# c", "5:last"],
    );
    check("a\n", &["1:a"]);
    check("\n\n", &["1:", "2:"]);
}

#[test]
fn a_line_is_at_hand_once_its_end_was_read() {
    let mut lines = SeedLines::new(Slow(b"a.test\nb.test\nc.te", 16), "seeds.txt");
    assert!(!lines.is_at_hand(), "nothing was read");
    for (line, another) in [("a.test", true), ("b.test", false)] {
        let text = lines.next().map(|text| text.map(|line| line.text));
        assert_eq!(text.and_then(Result::ok).as_deref(), Some(line));
        assert_eq!(lines.is_at_hand(), another, "after {line}");
    }
    // The last line has no line end: it ends with the source.
    assert!(lines.next().is_some() && lines.is_at_hand());
    assert!(lines.next().is_none());
}

#[test]
fn compression_is_detected_from_the_first_bytes() {
    let text: String = (0..50_000).map(|n| format!("host-{n}.test\n")).collect();
    let gzip = argiope::parts::gzip(text.as_bytes());
    let two_members = [gzip.as_slice(), &gzip].concat();
    for step in [7, 1 << 20] {
        let lines = read(&two_members, step);
        assert_eq!(lines.len(), 100_000);
        assert_eq!(lines[99_999], "100000:host-49999.test");
    }
    let zstd = b"\x28\xb5\x2f\xfd\x04\x58\x71\0\0a.test\nb.test\n\x90\xad\x13\xd3";
    assert_eq!(read(zstd, 3), ["1:a.test", "2:b.test"]);
}

#[test]
fn a_damaged_file_gives_its_lines_and_then_an_error() {
    let gzip = argiope::parts::gzip(b"a.test\nb.test\n");
    let lines = read(&gzip[..gzip.len() - 4], 1000);
    assert_eq!(
        lines,
        [
            "1:a.test",
            "2:b.test",
            "the end: cannot read seeds from seeds.txt after line 2: the gzip stream ends too early"
        ]
    );
}

#[test]
fn a_line_that_cannot_be_a_seed_does_not_end_the_file() {
    let mut bytes = b"a.test\n\xff\xfe\n".to_vec();
    bytes.extend(vec![b'x'; 3 * LINE_MAX]);
    bytes.extend(b"\nb.test\n");
    assert_eq!(
        read(&bytes, 1 << 20),
        [
            "1:a.test".to_owned(),
            "seeds.txt:2: the line is not UTF-8".to_owned(),
            format!("seeds.txt:3: the line is longer than {LINE_MAX} bytes"),
            "4:b.test".to_owned(),
        ]
    );
}

#[test]
fn memory_is_bounded_by_a_line_and_not_by_the_file() {
    let bytes = vec![b'x'; 8 * LINE_MAX];
    let mut lines = SeedLines::new(bytes.as_slice(), "seeds.txt");
    while lines.next().is_some() {}
    assert!(lines.text.capacity() <= 2 * LINE_MAX + BLOCK_SIZE);
}

#[test]
fn a_checked_file_keeps_neither_text_nor_decoder_until_it_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("seeds.gz");
    let text: String = (0..50_000).map(|n| format!("host-{n}.test\n")).collect();
    std::fs::write(&path, argiope::parts::gzip(text.as_bytes())).expect("a file");
    let path = path.to_str().expect("text");
    let lines = open(path, "argiope crawl --seeds -").and_then(SeedLines::checked);
    let lines = lines.expect("a list");
    assert_eq!(lines.text.capacity(), 0);
    assert!(lines.decoder.is_none());
    let numbers = lines.map(|line| line.expect("a line").number);
    assert!(numbers.eq(1..=50_000));
}

#[test]
fn an_error_of_opening_names_the_file() {
    let check = |name: &str, expected: &str| {
        let opened = open(name, "argiope crawl --seeds -");
        let text = opened.err().expect("an error").to_string();
        assert!(text.starts_with(expected), "{text}");
    };
    check(
        "/nowhere/seeds.txt",
        "cannot read seeds from /nowhere/seeds.txt: No such file",
    );
    check("/", "cannot read seeds from /: is a directory");
}
