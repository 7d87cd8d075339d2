//! Recognizes by their first bytes files that are no lists of seeds, and says how each is made one.

use std::path::Path;

use crate::cli::shell::quoted;

/// What a file is that is no list of seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A JSON array of texts.
    JsonTexts,
    /// A JSON array of objects.
    JsonObjects,
    /// A JSON array of something else, or of what is not read yet.
    JsonArray,
    /// A JSON object that begins with a line of its brace alone.
    JsonObject,
    /// UTF-16 with a byte order mark.
    Utf16,
    Html,
    Sitemap,
    /// Other XML, or a part of an HTML page.
    Markup,
    Zip,
    /// A zip archive that a spreadsheet program wrote.
    Workbook,
    Tar,
    Xz,
    Bzip2,
    /// No text.
    Binary,
}

impl Content {
    /// What a file with this beginning is; `None` if it may be a list of seeds.
    pub fn of(beginning: &[u8]) -> Option<Self> {
        Content::of_bytes(beginning).or_else(|| Content::of_text(beginning))
    }

    fn of_bytes(beginning: &[u8]) -> Option<Self> {
        let has = |text: &[u8]| beginning.windows(text.len()).any(|part| part == text);
        Some(match beginning {
            [0xff, 0xfe, 0, 0, ..] => Content::Binary,
            [0xff, 0xfe, _, 0, ..] | [0xfe, 0xff, 0, ..] => Content::Utf16,
            [b'P', b'K', 3, 4, ..] => {
                let parts: [&[u8]; 3] = [b"[Content_Types].xml", b"xl/", b"opendocument"];
                match parts.iter().any(|part| has(part)) {
                    true => Content::Workbook,
                    false => Content::Zip,
                }
            }
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Content::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', b'Y', ..] => Content::Bzip2,
            _ if is_tar(beginning) => Content::Tar,
            _ if is_binary(&beginning[..beginning.len().min(BINARY_SEEN)]) => Content::Binary,
            _ => return None,
        })
    }

    fn of_text(beginning: &[u8]) -> Option<Self> {
        let text = beginning.strip_prefix(b"\xef\xbb\xbf").unwrap_or(beginning);
        let text = text.trim_ascii_start();
        let (first, rest) = text.split_first()?;
        match first {
            b'[' => match rest.trim_ascii_start().first() {
                Some(b'"') => Some(Content::JsonTexts),
                Some(b'{') => Some(Content::JsonObjects),
                Some(b'[' | b']') | None => Some(Content::JsonArray),
                // An IPv6 address.
                Some(_) => None,
            },
            b'{' => {
                let line = rest.split(|byte| *byte == b'\n').next()?;
                let is_alone = line.trim_ascii().is_empty() && line.len() < rest.len();
                is_alone.then_some(Content::JsonObject)
            }
            b'<' => Content::of_markup(text),
            _ => None,
        }
    }

    /// What begins with `<`, unless that is a URL in angle brackets.
    fn of_markup(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text).to_ascii_lowercase();
        let is_tag = |c: char| c.is_ascii_alphabetic() || c == '!' || c == '?';
        if text.starts_with("<http") || !text[1..].starts_with(is_tag) {
            return None;
        }
        let has = |tags: &[&str]| tags.iter().any(|tag| text.contains(tag));
        Some(if has(&["<urlset", "<sitemapindex"]) {
            Content::Sitemap
        } else if has(&["<!doctype html", "<html", "<head", "<body"]) {
            Content::Html
        } else {
            Content::Markup
        })
    }

    /// What it is, behind "is".
    pub fn name(self) -> &'static str {
        match self {
            Content::JsonTexts | Content::JsonObjects | Content::JsonArray => "a JSON array",
            Content::JsonObject => "a JSON object over several lines",
            Content::Utf16 => "text in UTF-16",
            Content::Html => "an HTML page",
            Content::Sitemap => "a sitemap",
            Content::Markup => "XML or HTML",
            Content::Zip => "a zip archive",
            Content::Workbook => "a workbook of a spreadsheet",
            Content::Tar => "a tar archive",
            Content::Xz => "a file compressed by xz",
            Content::Bzip2 => "a file compressed by bzip2",
            Content::Binary => "no text",
        }
    }

    /// How a list of seeds is made of the file of this name. `decompress`: the command that decompresses it.
    pub fn cure(self, name: &str, decompress: Option<&str>) -> String {
        let file = match (quoted(Path::new(name)), decompress) {
            (file, None) => file,
            (file, Some(command)) => format!("<({command} {file})"),
        };
        let list = |command: &str| format!("write {command} > urls.txt, and give urls.txt");
        match self {
            Content::JsonTexts => list(&format!("jq -r '.[]' {file}")),
            Content::JsonObjects => list(&format!("jq -r '.[].url' {file}")),
            Content::JsonArray => list(&format!("jq -c '.[]' {file}")),
            Content::JsonObject => list(&format!("jq -c . {file}")),
            Content::Utf16 => list(&format!("iconv -f UTF-16 -t UTF-8 {file}")),
            Content::Html => {
                let list = list(&format!("argiope links {file} --base URL"));
                format!("{list}, where URL is that of the page")
            }
            Content::Sitemap => format!(
                "give its own URL in place of it, {SITEMAP_SEED}; or {}",
                list(&format!("grep -o '<loc>[^<]*' {file} | cut -c 6-"))
            ),
            Content::Markup => list(&format!("grep -oE 'https?://[^<>\" ]+' {file}")),
            Content::Zip => list(&format!("unzip -p {file}")),
            Content::Workbook => format!(
                "save it as CSV, as by libreoffice --headless --convert-to csv {file}, and give that file"
            ),
            Content::Tar => list(&format!("tar -xOf {file}")),
            Content::Xz => list(&format!("xz -dc {file}")),
            Content::Bzip2 => list(&format!("bzip2 -dc {file}")),
            Content::Binary => "give a text file with a URL in each line".to_owned(),
        }
    }
}

fn is_tar(beginning: &[u8]) -> bool {
    let header = beginning.get(TAR_MAGIC_AT..);
    header.is_some_and(|header| header.starts_with(b"ustar"))
}

/// Whether these first bytes are no text in any usual coding.
fn is_binary(bytes: &[u8]) -> bool {
    let is_control = |byte: &u8| *byte < b' ' && !b"\t\n\r\x0c\x1b".contains(byte);
    // A character that is cut at the end is no error.
    let is_utf8 = str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true);
    bytes.contains(&0) || !is_utf8 && bytes.iter().any(is_control)
}

/// Bytes of a file that are looked at: comments and stylesheets may precede the element of a sitemap.
pub const BEGINNING: usize = 16 << 10;

/// Those in which no text has a NUL.
const BINARY_SEEN: usize = 512;

/// Where the header of a tar archive has its magic.
const TAR_MAGIC_AT: usize = 257;

/// The seed that is a sitemap.
const SITEMAP_SEED: &str = r#"'{"url": "https://example.com/sitemap.xml", "sitemap": 1}'"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_list_is_recognized_by_its_beginning() {
        let check = |beginning: &[u8], expected: Option<Content>| {
            let shown = String::from_utf8_lossy(beginning);
            assert_eq!(Content::of(beginning), expected, "{shown:?}");
        };
        check(b"[\"http://a.test/\"]", Some(Content::JsonTexts));
        check(
            b"\xef\xbb\xbf[\r\n  {\"url\": 1}",
            Some(Content::JsonObjects),
        );
        check(b"[\n", Some(Content::JsonArray));
        check(b"[[1], [2]]", Some(Content::JsonArray));
        check(b"{\r\n  \"url\": \"a.test\"\n}", Some(Content::JsonObject));
        check(b"\xff\xfeh\0t\0", Some(Content::Utf16));
        check(b"\xfe\xff\0h\0t", Some(Content::Utf16));
        check(b"\n<!DOCTYPE html><title>", Some(Content::Html));
        check(b"<?xml version='1.0'?>\n<urlset>", Some(Content::Sitemap));
        check(b"<sitemapindex xmlns='x'>", Some(Content::Sitemap));
        check(b"<rss version='2.0'>", Some(Content::Markup));
        check(b"<a href='http://a.test/'>a</a>", Some(Content::Markup));
        check(b"PK\x03\x04\x14\0urls.txt", Some(Content::Zip));
        check(
            b"PK\x03\x04\x14\0[Content_Types].xml",
            Some(Content::Workbook),
        );
        check(b"\xfd7zXZ\0\0", Some(Content::Xz));
        check(b"BZh91AY&SY", Some(Content::Bzip2));
        check(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", Some(Content::Binary));
        check(&[0; 9], Some(Content::Binary));
        check(b"\x01\xff\x02", Some(Content::Binary));
        let mut tar = vec![b'x'; 300];
        tar[TAR_MAGIC_AT..][..5].copy_from_slice(b"ustar");
        check(&tar, Some(Content::Tar));
    }

    #[test]
    fn what_may_be_a_list_is_none_of_these() {
        for beginning in [
            &b""[..],
            b"http://a.test/\n",
            b"# [\n[\"x\"]",
            b"[2001:db8::1]:80\n",
            b"[::1]",
            b"{\"url\": \"a.test\"}",
            b"{",
            b"<http://a.test/>",
            b"< 3",
            b"\xff\xfe\nhttp://a.test/",
            b"http://a.test/\xe9\n",
            b"caf\xc3",
            b"BZh.test",
            b"url\tstatus\n",
        ] {
            let shown = String::from_utf8_lossy(beginning);
            assert_eq!(Content::of(beginning), None, "{shown:?}");
        }
    }

    #[test]
    fn a_cure_names_the_file_as_a_word_of_the_shell() {
        let check = |content: Content, decompress, expected: &str| {
            let cure = content.cure("my urls", decompress);
            assert!(cure.contains(expected), "{cure}");
        };
        check(Content::JsonTexts, None, "jq -r '.[]' 'my urls' > urls.txt");
        let gzip = Some("gzip -dc");
        check(Content::Utf16, gzip, "-t UTF-8 <(gzip -dc 'my urls') > ");
    }
}
