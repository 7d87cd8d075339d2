//! Recognizes by their first bytes files that are no lists of seeds, with the command that makes a list of each.

use std::path::Path;

use argiope::Request;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::shell::quoted;

/// What a file is that is no list of seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A JSON array of texts.
    JsonTexts,
    /// A JSON array of objects.
    JsonObjects(Objects),
    /// A JSON array of something else, or of what is not read yet.
    JsonArray,
    /// The result lines of a crawl.
    Results,
    /// A JSON object that begins with a line of its brace alone.
    JsonObject(Objects),
    /// UTF-16 with a byte order mark.
    Utf16,
    Html,
    Sitemap,
    /// RSS or Atom.
    Feed,
    /// Other XML, or a part of an HTML page.
    Markup,
    Zip,
    /// A zip archive that a spreadsheet program wrote.
    Workbook,
    Tar,
    /// A web archive.
    Warc,
    Xz,
    Bzip2,
    /// No text.
    Binary,
}

/// Objects of a JSON file, by the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    /// It has the keys of a seeds line.
    Seeds,
    /// It has others, and its URL in `url`.
    WithUrl,
    /// It has others, or is not read to its end.
    Other,
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
            _ if beginning.starts_with(b"WARC/") => Content::Warc,
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
                Some(b'{') => Some(Content::JsonObjects(Objects::of(rest))),
                Some(b'[' | b']') | None => Some(Content::JsonArray),
                // An IPv6 address.
                Some(_) => None,
            },
            b'{' => {
                let line = rest.split(|byte| *byte == b'\n').next()?;
                let has = |key: &[u8]| line.windows(key.len()).any(|part| part == key);
                if RESULT_KEYS.iter().all(|key| has(key)) {
                    return Some(Content::Results);
                }
                let is_alone = line.trim_ascii().is_empty() && line.len() < rest.len();
                is_alone.then(|| Content::JsonObject(Objects::of(text)))
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
        } else if has(&["<rss", "<feed"]) {
            Content::Feed
        } else {
            Content::Markup
        })
    }

    /// What it is, behind "is".
    pub fn name(self) -> &'static str {
        match self {
            Content::JsonTexts | Content::JsonObjects(_) | Content::JsonArray => "a JSON array",
            Content::Results => "a file of result lines",
            Content::JsonObject(_) => "a JSON object over several lines",
            Content::Utf16 => "text in UTF-16",
            Content::Html => "an HTML page",
            Content::Sitemap => "a sitemap",
            Content::Feed => "a feed",
            Content::Markup => "XML or HTML",
            Content::Zip => "a zip archive",
            Content::Workbook => "a workbook of a spreadsheet",
            Content::Tar => "a tar archive",
            Content::Warc => "a WARC file",
            Content::Xz => "a file compressed by xz",
            Content::Bzip2 => "a file compressed by bzip2",
            Content::Binary => "no text",
        }
    }

    /// How a list of seeds is made of it. Nothing is written to a file: one of the name may exist.
    pub fn advice(self, origin: Origin<'_>) -> String {
        let piped = |tool| origin.piped(tool, "");
        match self {
            Content::JsonTexts => piped("jq -r '.[]' {}"),
            Content::JsonObjects(objects) => objects.advice(origin, ".[]"),
            Content::JsonArray => piped("jq -c '.[]' {}"),
            Content::Results => match origin.path {
                Some(path) if path.ends_with("results.jsonl") => {
                    let folder = path
                        .parent()
                        .filter(|folder| !folder.as_os_str().is_empty());
                    let folder = quoted(folder.unwrap_or(Path::new(".")));
                    format!(
                        "write argiope export {folder} --csv url | {}",
                        origin.reader
                    )
                }
                _ => piped("jq -r .url {}"),
            },
            Content::JsonObject(objects) => objects.advice(origin, "."),
            Content::Utf16 => piped("iconv -f UTF-16 -t UTF-8 {}"),
            Content::Html | Content::Markup => {
                let list = origin.piped("argiope links {} --base URL", "/dev/stdin");
                format!("{list}, where URL is that of the page")
            }
            Content::Sitemap => crawl_itself("sitemap.xml"),
            Content::Feed => crawl_itself("feed.xml"),
            Content::Zip => match origin {
                Origin {
                    path: Some(_),
                    decompressor: Some(tool),
                    ..
                } => format!("decompress it first, as by {tool} -d"),
                Origin { path: Some(_), .. } => piped("unzip -p {}"),
                // It is not read from standard input.
                Origin { reader, .. } => {
                    format!("save it as a file, and write unzip -p FILE | {reader}")
                }
            },
            Content::Workbook => "save it as CSV, and give that file".to_owned(),
            Content::Tar => origin.piped("tar -xOf {}", "-"),
            // Requests, replies and notes of a page have its URL each: it is crawled once.
            Content::Warc => piped("sed -n 's/^WARC-Target-URI: http/http/p' {}"),
            Content::Xz => piped("xz -dc {}"),
            Content::Bzip2 => piped("bzip2 -dc {}"),
            Content::Binary => "give a text file with a URL in each line".to_owned(),
        }
    }
}

/// The advice about what the crawl reads itself, with its depth.
fn crawl_itself(name: &str) -> String {
    format!(
        r#"crawl its own URL: argiope crawl '{{"url": "https://example.com/{name}", "sitemap": 1}}'"#
    )
}

impl Objects {
    /// What the first object in this text is, which may be cut.
    fn of(text: &[u8]) -> Self {
        let mut values = serde_json::Deserializer::from_slice(text).into_iter::<&RawValue>();
        let Some(Ok(first)) = values.next() else {
            return Objects::Other;
        };
        let url = |object: &Value| object.get("url").is_some_and(Value::is_string);
        match Request::from_line(first.get()) {
            Ok(Some(_)) => Objects::Seeds,
            _ if serde_json::from_str(first.get()).is_ok_and(|object| url(&object)) => {
                Objects::WithUrl
            }
            _ => Objects::Other,
        }
    }

    /// How a list is made of those at this path of jq.
    fn advice(self, origin: Origin<'_>, at: &str) -> String {
        let of_url = format!("{}.url", at.trim_end_matches('.'));
        let whole = format!("jq -c '{at}'");
        match self {
            Objects::Seeds => origin.piped(&format!("{whole} {{}}"), ""),
            Objects::WithUrl => origin.piped(&format!("jq -r '{of_url}' {{}}"), ""),
            Objects::Other => {
                let list = origin.piped(&format!("jq -r '{of_url}' {{}}"), "");
                format!(
                    "{list}, with the key of the URL in place of url, or with {whole} if its keys are those of a seeds line"
                )
            }
        }
    }
}

/// Where a file that is no list comes from, and what reads a list.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Its path. `None` if it is read from a pipe, or cannot be opened again.
    pub path: Option<&'a Path>,
    /// The tool that decompresses it.
    pub decompressor: Option<&'a str>,
    /// The command that reads a list from standard input.
    pub reader: &'a str,
}

impl Origin<'_> {
    /// The command by which the list that a tool makes is read. `{}` is the tool's file, `stdin` the word for standard
    /// input in its place, if it needs one.
    fn piped(self, tool: &str, stdin: &str) -> String {
        let reader = self.reader;
        let tool_of = |file: &str| match file {
            "" => tool.replace(" {}", ""),
            file => tool.replace("{}", file),
        };
        let filter = match self.decompressor {
            Some(decompressor) => format!("{decompressor} -dc | {}", tool_of(stdin)),
            None => tool_of(stdin),
        };
        match (self.path.map(quoted), self.decompressor) {
            (Some(file), None) => format!("write {} | {reader}", tool_of(&file)),
            (Some(file), Some(decompressor)) => {
                // A name without the tool's suffix is none of its files.
                format!(
                    "write {decompressor} -dc < {file} | {} | {reader}",
                    tool_of(stdin)
                )
            }
            (None, _) => {
                format!("put {filter} before it, as in … | {filter} | {reader}")
            }
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

/// Keys that each result line has, and no seeds line.
const RESULT_KEYS: [&[u8]; 3] = [b"\"id\":", b"\"final\":", b"\"attempt\":"];

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
            Some(Content::JsonObjects(Objects::Other)),
        );
        check(
            b"[{\"url\": \"a.test\", \"method\": \"POST\"}, {",
            Some(Content::JsonObjects(Objects::Seeds)),
        );
        check(
            b"[\n{\n\"url\": \"a.test\",\n\"title\": \"}\"}\n]",
            Some(Content::JsonObjects(Objects::WithUrl)),
        );
        check(
            b"[{\"link\": \"http://a.test/\"}]",
            Some(Content::JsonObjects(Objects::Other)),
        );
        check(b"[\n", Some(Content::JsonArray));
        check(b"[[1], [2]]", Some(Content::JsonArray));
        check(
            b"{\r\n  \"url\": \"a.test\"\n}",
            Some(Content::JsonObject(Objects::Seeds)),
        );
        check(
            b"{\n  \"url\": \"a.te",
            Some(Content::JsonObject(Objects::Other)),
        );
        let line = b"{\"id\":1,\"final\":true,\"url\":\"http://a.test/\",\"attempt\":1}\n";
        check(line, Some(Content::Results));
        check(b"\xff\xfeh\0t\0", Some(Content::Utf16));
        check(b"\xfe\xff\0h\0t", Some(Content::Utf16));
        check(b"\n<!DOCTYPE html><title>", Some(Content::Html));
        check(b"<?xml version='1.0'?>\n<urlset>", Some(Content::Sitemap));
        check(b"<sitemapindex xmlns='x'>", Some(Content::Sitemap));
        check(b"<rss version='2.0'>", Some(Content::Feed));
        check(b"<?xml version='1.0'?><opml>", Some(Content::Markup));
        check(b"<a href='http://a.test/'>a</a>", Some(Content::Markup));
        check(b"PK\x03\x04\x14\0urls.txt", Some(Content::Zip));
        check(
            b"PK\x03\x04\x14\0[Content_Types].xml",
            Some(Content::Workbook),
        );
        check(b"WARC/1.1\r\nWARC-Type: warcinfo\r\n", Some(Content::Warc));
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
    fn advice_is_a_command_that_can_be_typed_and_writes_no_file() {
        let check = |content: Content, path: Option<&str>, decompressor, expected: &str| {
            let origin = Origin {
                path: path.map(Path::new),
                decompressor,
                reader: "argiope crawl --seeds -",
            };
            let advice = content.advice(origin);
            assert!(advice.starts_with(expected), "{advice}");
            assert!(!advice.contains('>') && !advice.contains("<("), "{advice}");
        };
        let (file, gzip) = (Some("my urls"), Some("gzip"));
        let texts = Content::JsonTexts;
        let reader = "argiope crawl --seeds -";
        check(
            texts,
            file,
            None,
            &format!("write jq -r '.[]' 'my urls' | {reader}"),
        );
        let unpacked = format!("write gzip -dc < 'my urls' | jq -r '.[]' | {reader}");
        check(texts, file, gzip, &unpacked);
        let put = format!("put jq -r '.[]' before it, as in … | jq -r '.[]' | {reader}");
        check(texts, None, None, &put);
        check(
            texts,
            None,
            gzip,
            "put gzip -dc | jq -r '.[]' before it, as in … | gzip -dc | jq",
        );
        let objects = Content::JsonObjects;
        check(
            objects(Objects::Seeds),
            file,
            None,
            "write jq -c '.[]' 'my urls' | argiope",
        );
        check(
            objects(Objects::WithUrl),
            file,
            None,
            "write jq -r '.[].url' 'my urls' | argiope",
        );
        check(
            objects(Objects::Other),
            file,
            None,
            "write jq -r '.[].url' 'my urls' | argiope",
        );
        let object = Content::JsonObject;
        check(
            object(Objects::Seeds),
            file,
            None,
            "write jq -c '.' 'my urls' | argiope",
        );
        check(
            object(Objects::WithUrl),
            file,
            None,
            "write jq -r '.url' 'my urls' | argiope",
        );
        check(
            Content::Utf16,
            None,
            None,
            "put iconv -f UTF-16 -t UTF-8 before it",
        );
        check(Content::Tar, None, None, "put tar -xOf - before it");
        check(
            Content::Html,
            None,
            None,
            "put argiope links /dev/stdin --base URL before",
        );
        check(
            Content::Zip,
            file,
            None,
            "write unzip -p 'my urls' | argiope",
        );
        check(
            Content::Zip,
            file,
            gzip,
            "decompress it first, as by gzip -d",
        );
        check(
            Content::Zip,
            None,
            gzip,
            "save it as a file, and write unzip -p FILE | argiope",
        );
        check(
            Content::Sitemap,
            file,
            gzip,
            "crawl its own URL: argiope crawl '{\"url\": ",
        );
    }
}
