//! Detects the character encoding of a document and decodes it.

use std::borrow::Cow;
use std::cell::Cell;

use encoding_rs::{Decoder, EncoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

use crate::base::units::Units;

/// The text of a document in any encoding; invalid bytes become U+FFFD.
///
/// Borrowed if the document is UTF-8, as most are.
pub fn decode<'a>(bytes: &'a [u8], content_type: Option<&str>) -> Cow<'a, str> {
    let (encoding, mark) = encoding_of(bytes, content_type);
    encoding.decode_without_bom_handling(&bytes[mark..]).0
}

/// The text of a document that begins with the byte order mark of UTF-16, without the mark; `None` of others.
/// Half a character at the end is omitted.
pub(crate) fn utf_16(bytes: &[u8]) -> Option<String> {
    let (encoding, mark) = Encoding::for_bom(bytes).filter(|(marked, _)| *marked != UTF_8)?;
    let text = &bytes[mark..bytes.len() & !1];
    Some(encoding.decode_without_bom_handling(text).0.into_owned())
}

/// Detection of a document's encoding, in bounded steps.
#[derive(Debug)]
pub(crate) struct Detection {
    /// The encoding, once known.
    encoding: Option<&'static Encoding>,
    /// Length of the byte order mark.
    mark: usize,
    /// This many bytes are known to be valid UTF-8.
    checked: usize,
}

impl Detection {
    /// Considers declarations only, at the beginning of the document.
    pub fn new(bytes: &[u8], content_type: Option<&str>) -> Self {
        let (encoding, mark) = match Encoding::for_bom(bytes) {
            Some((encoding, mark)) => (Some(encoding), mark),
            None => (stated(bytes, content_type), 0),
        };
        Detection {
            encoding,
            mark,
            checked: 0,
        }
    }

    /// Examines more of the document. Returns whether its encoding is known.
    pub fn step(&mut self, bytes: &[u8], units: &mut Units) -> bool {
        while self.encoding.is_none() {
            if units.is_spent() {
                return false;
            }
            let end = bytes.len().min(self.checked + CHECKED_AT_ONCE);
            units.spend((end - self.checked) / 4 + 1);
            match str::from_utf8(&bytes[self.checked..end]) {
                Ok(_) => self.checked = end,
                Err(error) if error.error_len().is_none() && end < bytes.len() => {
                    self.checked += error.valid_up_to();
                }
                // An incomplete character at the cut.
                Err(error) if error.error_len().is_none() => self.checked = end,
                Err(_) => self.encoding = Some(guessed(bytes)),
            }
            if self.checked == bytes.len() {
                self.encoding.get_or_insert(UTF_8);
            }
        }
        true
    }

    /// Offset of the text, after the byte order mark.
    pub fn start(&self) -> usize {
        self.mark
    }

    /// The encoding of queries in its references; `None` if UTF-8.
    pub fn query_encoding(&self) -> Option<QueryEncoding> {
        let encoding = self.encoding.unwrap_or(UTF_8).output_encoding();
        (encoding != UTF_8).then_some(QueryEncoding(encoding))
    }

    /// A decoder that converts the document to UTF-8 in pieces; `None` if it is UTF-8 already, as
    /// far as it is valid.
    pub fn recoder(&self) -> Option<Box<Recoder>> {
        let encoding = self.encoding.unwrap_or(UTF_8);
        (encoding != UTF_8).then(|| Box::new(Recoder(encoding.new_decoder_without_bom_handling())))
    }
}

/// Converts a document in another encoding to UTF-8, in pieces.
pub(crate) struct Recoder(Decoder);

impl Recoder {
    /// Appends the text of the next bytes. `last`: they end the document.
    pub fn decode(&mut self, mut bytes: &[u8], last: bool, text: &mut Vec<u8>) {
        loop {
            let start = text.len();
            text.resize(start + 3 * bytes.len() + RECODED_ROOM, 0);
            let (_, read, written, _) = self.0.decode_to_utf8(bytes, &mut text[start..], last);
            text.truncate(start + written);
            bytes = &bytes[read..];
            if bytes.is_empty() {
                return;
            }
        }
    }
}

impl std::fmt::Debug for Recoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recoder")
    }
}

/// The encoding of a document whose references have queries in that encoding (WHATWG URL, 1.3,
/// "percent-encode after encoding").
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryEncoding(&'static Encoding);

impl QueryEncoding {
    /// Encodes the text of a query. A character missing in the encoding is written as its number,
    /// like `%26%238364%3B`. `lacking` counts these; after [`LACKING_MAX`] the rest is omitted.
    pub fn encode<'a>(self, text: &'a str, lacking: &Cell<usize>) -> Cow<'a, [u8]> {
        // In ISO-2022-JP other ASCII bytes switch between character sets.
        if text.bytes().all(|octet| matches!(octet, b' '..=b'~')) {
            return text.as_bytes().into();
        }
        let mut encoder = self.0.new_encoder();
        let mut octets = Vec::new();
        let mut buffer = [0; 512];
        let mut rest = text;
        loop {
            let (result, read, written) =
                encoder.encode_from_utf8_without_replacement(rest, &mut buffer, true);
            octets.extend_from_slice(&buffer[..written]);
            rest = &rest[read..];
            match result {
                EncoderResult::InputEmpty => return octets.into(),
                EncoderResult::OutputFull => {}
                EncoderResult::Unmappable(character) => {
                    lacking.set(lacking.get() + 1);
                    if lacking.get() > LACKING_MAX {
                        return octets.into();
                    }
                    octets.extend_from_slice(b"%26%23");
                    octets.extend_from_slice(
                        itoa::Buffer::new().format(u32::from(character)).as_bytes(),
                    );
                    octets.extend_from_slice(b"%3B");
                }
            }
        }
    }
}

/// Maximum number of characters in a query that its encoding may lack: each requires a search
/// through all its tables. With this many, written as numbers, a URL has about 3000 bytes.
pub(crate) const LACKING_MAX: usize = 256;

/// Cost of finding that an encoding lacks a character, in bytes of HTML read.
pub(crate) const LACKING_UNITS: usize = 2048;

/// Bytes validated between two checks of the step's budget.
const CHECKED_AT_ONCE: usize = 16 << 10;

/// Space for bytes that the decoder held back from the previous call.
const RECODED_ROOM: usize = 32;

/// A text in the encoding with this label.
#[cfg(test)]
pub(crate) fn encoded(text: &str, label: &str) -> Vec<u8> {
    let encoding = Encoding::for_label(label.as_bytes()).expect("a label of the WHATWG");
    encoding.encode(text).0.into_owned()
}

/// The name of a document's encoding in the WHATWG's list.
pub fn name(bytes: &[u8], content_type: Option<&str>) -> &'static str {
    encoding_of(bytes, content_type).0.name()
}

/// Length of the beginning of a document in which a declaration counts (WHATWG HTML, 13.2.3.2).
pub const PRESCAN_LENGTH: usize = 1024;

/// Bytes examined if no encoding is declared: enough to distinguish languages, and about half a
/// millisecond of work.
pub const DETECTION_LENGTH: usize = 8192;

/// The encoding, and the length of the byte order mark.
///
/// A byte order mark takes precedence over the server's declaration, and that over the document's:
/// a server that declares it knows more than a guess.
fn encoding_of(bytes: &[u8], content_type: Option<&str>) -> (&'static Encoding, usize) {
    if let Some(marked) = Encoding::for_bom(bytes) {
        return marked;
    }
    let stated = stated(bytes, content_type);
    (stated.unwrap_or_else(|| detected(bytes)), 0)
}

/// The encoding declared by the server or the document.
fn stated(bytes: &[u8], content_type: Option<&str>) -> Option<&'static Encoding> {
    content_type
        .and_then(charset_parameter)
        .and_then(|label| Encoding::for_label(label.as_bytes()))
        .or_else(|| declared(&bytes[..bytes.len().min(PRESCAN_LENGTH)]))
}

/// The charset parameter of a Content-Type (or of the content of an equivalent meta element).
fn charset_parameter(content_type: &str) -> Option<&str> {
    let mut rest = content_type;
    loop {
        let at = find_ignoring_case(rest.as_bytes(), b"charset")?;
        rest = rest[at + b"charset".len()..].trim_start();
        let Some(value) = rest.strip_prefix('=') else {
            continue;
        };
        let value = value.trim_start();
        let quoted = ['"', '\''].into_iter().find_map(|quote| {
            let inner = value.strip_prefix(quote)?;
            inner.split(quote).next()
        });
        let bare = || value.split([';', ' ', '\t', '\r', '\n', ',']).next();
        return quoted.or_else(bare).map(str::trim);
    }
}

/// The encoding declared in the document: by an XML declaration or a meta element.
fn declared(head: &[u8]) -> Option<&'static Encoding> {
    let label = xml_declaration(head).or_else(|| meta(head))?;
    let encoding = Encoding::for_label(label.as_bytes())?;
    // A declaration that can be read as ASCII is not in UTF-16.
    if encoding == UTF_16LE || encoding == UTF_16BE {
        return Some(UTF_8);
    }
    if encoding.name() == "x-user-defined" {
        return Some(WINDOWS_1252);
    }
    Some(encoding)
}

fn xml_declaration(head: &[u8]) -> Option<String> {
    let declaration = head.strip_prefix(b"<?xml")?;
    let end = declaration.iter().position(|octet| *octet == b'>')?;
    attributes(&declaration[..end])
        .into_iter()
        .find_map(|(name, value)| (name == "encoding").then_some(value))
}

/// The label in the first meta element that has one; comments are skipped.
fn meta(head: &[u8]) -> Option<String> {
    let mut rest = head;
    while let Some(at) = rest.iter().position(|octet| *octet == b'<') {
        rest = &rest[at..];
        if rest.starts_with(b"<!--") {
            // From the second hyphen on: `<!-->` is a complete comment.
            let end = rest[2..].windows(3).position(|three| three == b"-->")?;
            rest = &rest[2 + end + 3..];
            continue;
        }
        let is_meta = rest.len() > 5
            && rest[..5].eq_ignore_ascii_case(b"<meta")
            && (rest[5].is_ascii_whitespace() || rest[5] == b'/');
        if !is_meta {
            rest = &rest[1..];
            continue;
        }
        let end = tag_end(&rest[5..])?;
        let found = attributes(&rest[5..5 + end]);
        let value = |wanted: &str| {
            let same = |pair: &&(String, String)| pair.0 == wanted;
            found.iter().find(same).map(|(_, value)| value.as_str())
        };
        let of_type = value("http-equiv").is_some_and(|v| v.eq_ignore_ascii_case("content-type"));
        let label = value("charset").or_else(|| {
            let content = value("content").filter(|_| of_type)?;
            charset_parameter(content)
        });
        if let Some(label) = label {
            return Some(label.to_owned());
        }
        rest = &rest[5 + end..];
    }
    None
}

/// The end of a tag: the first `>` outside quotes.
fn tag_end(tag: &[u8]) -> Option<usize> {
    let mut quote = None;
    tag.iter().position(|octet| {
        match (quote, octet) {
            (Some(open), _) if open == *octet => quote = None,
            (None, b'"' | b'\'') => quote = Some(*octet),
            (None, b'>') => return true,
            _ => {}
        }
        false
    })
}

/// Attribute names, in lower case, and values.
fn attributes(tag: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(tag);
    let blank = |c: char| c.is_ascii_whitespace() || c == '/';
    let mut rest = text.trim_start_matches(blank);
    let mut found = Vec::new();
    while !rest.is_empty() {
        let name_end = rest.find(|c| c == '=' || blank(c)).unwrap_or(rest.len());
        let name = rest[..name_end].to_ascii_lowercase();
        rest = rest[name_end..].trim_start();
        let mut value = "";
        if let Some(after) = rest.strip_prefix('=') {
            let after = after.trim_start();
            let (inner, ends): (&str, &[char]) = match after.chars().next() {
                Some('"') => (&after[1..], &['"']),
                Some('\'') => (&after[1..], &['\'']),
                _ => (after, &[' ', '\t', '\r', '\n', '\x0C']),
            };
            let end = inner.find(ends).unwrap_or(inner.len());
            value = &inner[..end];
            let quote = usize::from(ends.len() == 1 && end < inner.len());
            rest = &inner[end + quote..];
        }
        found.push((name, value.trim().to_owned()));
        rest = rest.trim_start_matches(blank);
    }
    found
}

/// Guesses the encoding from the bytes. UTF-8 that is valid to the end (or to the cut) is certain.
fn detected(bytes: &[u8]) -> &'static Encoding {
    match str::from_utf8(bytes) {
        Ok(_) => UTF_8,
        Err(error) if error.error_len().is_none() => UTF_8,
        Err(_) => guessed(bytes),
    }
}

fn guessed(bytes: &[u8]) -> &'static Encoding {
    let first_odd = bytes.iter().position(|octet| !octet.is_ascii());
    // A long start in ASCII shows nothing: examine the part with non-ASCII bytes.
    let start = first_odd.unwrap_or(0).saturating_sub(DETECTION_LENGTH / 8);
    let end = bytes.len().min(start + DETECTION_LENGTH);
    let mut detector = chardetng::EncodingDetector::new();
    detector.feed(&bytes[start..end], end == bytes.len());
    detector.guess(None, true)
}

fn find_ignoring_case(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], content_type: Option<&str>, encoding: &str, text: &str) {
        assert_eq!(name(bytes, content_type), encoding);
        assert_eq!(decode(bytes, content_type), text);
    }

    #[test]
    fn a_byte_order_mark_overrides_the_server() {
        check(
            b"\xEF\xBB\xBF\xC3\xBC",
            Some("text/html; charset=latin1"),
            "UTF-8",
            "ü",
        );
        check(
            b"\xFF\xFEa\0",
            Some("text/html; charset=utf-8"),
            "UTF-16LE",
            "a",
        );
        check(b"\xFE\xFF\0a", None, "UTF-16BE", "a");
    }

    #[test]
    fn the_server_overrides_the_document() {
        let html = b"<meta charset=utf-8>\xFC";
        let text = "<meta charset=utf-8>ü";
        check(
            html,
            Some("text/html;charset=ISO-8859-1"),
            "windows-1252",
            text,
        );
        check(
            html,
            Some("text/html; Charset = \"latin1\" ; x=y"),
            "windows-1252",
            text,
        );
        check(
            html,
            Some("text/html; charset=unheard-of"),
            "UTF-8",
            "<meta charset=utf-8>\u{fffd}",
        );
        check(
            html,
            Some("text/html"),
            "UTF-8",
            "<meta charset=utf-8>\u{fffd}",
        );
    }

    #[test]
    fn a_document_declares_its_encoding_in_its_first_kilobyte() {
        let declared = |html: &str| name(html.as_bytes(), None);
        assert_eq!(declared("<meta charset=latin1>"), "windows-1252");
        assert_eq!(declared("<!-- <meta charset=latin1> -->"), "UTF-8");
        assert_eq!(declared("<meta charset=utf-16>"), "UTF-8");
        let late = format!("{}<meta charset=latin1>", " ".repeat(PRESCAN_LENGTH));
        assert_eq!(declared(&late), "UTF-8");
    }

    #[test]
    fn a_document_declares_any_encoding() {
        let declared = |html: &str| name(html.as_bytes(), None);
        assert_eq!(declared("<META  CHARSET='koi8-r'>"), "KOI8-R");
        assert_eq!(
            declared("<meta charset=koi8-r/>"),
            "UTF-8",
            "the slash is part of a bare value"
        );
        assert_eq!(
            declared("<meta http-equiv=Content-Type content='text/html; charset=gb2312'>"),
            "GBK"
        );
        assert_eq!(
            declared("<meta name=x content='text/html; charset=gb2312'>"),
            "UTF-8"
        );
        assert_eq!(
            declared("<!-- <meta charset=koi8-r> --><meta charset=big5>"),
            "Big5"
        );
        assert_eq!(declared("<!--><meta charset=koi8-r>"), "KOI8-R");
        assert_eq!(declared("<metas charset=koi8-r>"), "UTF-8");
        assert_eq!(declared("<meta content='>' charset=koi8-r>"), "KOI8-R");
        assert_eq!(
            declared("<?xml version='1.0' encoding='iso-8859-2'?><x/>"),
            "ISO-8859-2"
        );
    }

    #[test]
    fn utf_8_needs_no_declaration() {
        check("grün".as_bytes(), None, "UTF-8", "grün");
        check(&"grün".as_bytes()[..3], None, "UTF-8", "gr\u{fffd}");
        check(b"plain", None, "UTF-8", "plain");
        check(b"gr\xfcn", None, "windows-1252", "grün");
    }

    #[test]
    fn an_undeclared_encoding_is_detected() {
        let ascii = "x".repeat(3 * DETECTION_LENGTH);
        let russian =
            b"\xcf\xf0\xe8\xe2\xe5\xf2, \xea\xe0\xea \xe4\xe5\xeb\xe0? \xd5\xee\xf0\xee\xf8\xee.";
        assert_eq!(name(russian, None), "windows-1251");
        let late = [ascii.as_bytes(), russian].concat();
        assert_eq!(name(&late, None), "windows-1251");
    }

    /// Reads the document in steps and pieces of every size.
    fn check_steps(bytes: &[u8], content_type: Option<&str>) {
        let whole = decode(bytes, content_type);
        for piece in [1, 2, 3, 7, 4096] {
            let mut detection = Detection::new(bytes, content_type);
            while !detection.step(bytes, &mut Units::new(1)) {}
            let mut text = Vec::new();
            let rest = &bytes[detection.start()..];
            match detection.recoder() {
                None => text.extend_from_slice(rest),
                Some(mut recoder) => {
                    let mut pieces = rest.chunks(piece).peekable();
                    while let Some(next) = pieces.next() {
                        recoder.decode(next, pieces.peek().is_none(), &mut text);
                    }
                }
            }
            assert_eq!(
                String::from_utf8_lossy(&text),
                whole,
                "{bytes:?} by {piece}"
            );
        }
    }

    #[test]
    fn a_document_read_in_steps_has_the_same_text() {
        let long = [&b"x".repeat(CHECKED_AT_ONCE - 1)[..], "ü€".as_bytes()].concat();
        check_steps(&long, None);
        check_steps(&long[..long.len() - 1], None);
        check_steps(&[&long[..], b"\xfc "].concat(), None);
        for bytes in [
            &b""[..],
            b"plain",
            b"gr\xfcn \x80\x9f",
            b"\xEF\xBB\xBF\xC3\xBC",
            b"\xFF\xFEa\0\x3d\xd8\x00\xdeb\0",
            b"\xFE\xFF\0a\xd8\x3d\xde\x00\0b",
            b"<meta charset=latin1>\xe9",
            b"<meta charset=utf-8>\xe9 \xe2\x82",
        ] {
            check_steps(bytes, None);
            check_steps(bytes, Some("text/html; charset=utf-16le"));
        }
        check_steps(b"\x82\xa0\x82\xa2", Some("text/html; charset=shift_jis"));
    }

    #[test]
    fn every_cut_of_a_document_has_a_text() {
        let html = b"\xEF\xBB\xBF<?xml encoding='x'?><!-- - --><meta http-equiv='content-type' \
            content='a; charset = \"koi8-r' charset=\"big5\"\xFC\x80<meta charset";
        for cut in 0..=html.len() {
            decode(&html[..cut], None);
            decode(&html[cut..], Some("text/html; charset"));
        }
    }
}
