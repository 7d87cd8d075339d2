//! Sitemaps: XML, indexes of them, plain text, and the feeds that serve as such.

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::charset;
use super::url::{Base, CrawlUrl};

/// What a sitemap names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sitemap {
    /// Pages.
    pub pages: Vec<CrawlUrl>,
    /// Further sitemaps, if this is an index.
    pub sitemaps: Vec<CrawlUrl>,
    /// It was longer than is read, or broke off.
    pub cut: bool,
}

impl Sitemap {
    /// Reads a sitemap (without its gzip, if it had one) that was found at `at`.
    ///
    /// What it names before a place that is no XML counts.
    pub fn parse(bytes: &[u8], content_type: Option<&str>, at: &CrawlUrl) -> Self {
        let read = &bytes[..bytes.len().min(LENGTH_MAX)];
        let text = charset::decode(read, content_type);
        let text = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        let mut taker = Taker {
            found: Sitemap::default(),
            base: Base::of(at),
        };
        taker.found.cut = read.len() < bytes.len();
        if text.starts_with('<') {
            read_xml(text, &mut taker);
        } else {
            for line in text.lines() {
                // The protocol wants absolute URLs; a text without any is no sitemap.
                if let Ok(url) = CrawlUrl::parse(line)
                    && !taker.put(Container::Url, url)
                {
                    break;
                }
            }
        }
        taker.found
    }
}

/// The most URLs one sitemap may hold (sitemaps.org).
pub const URLS_MAX: usize = 50_000;

/// The most bytes one sitemap may have (sitemaps.org).
pub const LENGTH_MAX: usize = 50 * 1024 * 1024;

/// The elements that hold one URL each.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    /// `url` of a sitemap: the URL is in `loc`.
    Url,
    /// `sitemap` of an index: likewise.
    Sitemap,
    /// `item` of RSS: the URL is in `link`.
    Item,
    /// `entry` of Atom: the URL is the `href` of `link`.
    Entry,
}

impl Container {
    fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"url" => Container::Url,
            b"sitemap" => Container::Sitemap,
            b"item" => Container::Item,
            b"entry" => Container::Entry,
            _ => return None,
        })
    }

    /// The child whose text is the URL.
    fn url_element(self) -> &'static [u8] {
        match self {
            Container::Url | Container::Sitemap => b"loc",
            Container::Item => b"link",
            Container::Entry => b"",
        }
    }
}

/// Takes in what is found, up to the limit.
struct Taker {
    found: Sitemap,
    base: Base,
}

impl Taker {
    fn put_reference(&mut self, container: Container, reference: &str) -> bool {
        match self.base.join(reference) {
            Ok(url) if !reference.trim().is_empty() => self.put(container, url),
            _ => true,
        }
    }

    /// Whether there is room for more.
    fn put(&mut self, container: Container, url: CrawlUrl) -> bool {
        if self.found.pages.len() + self.found.sitemaps.len() == URLS_MAX {
            self.found.cut = true;
            return false;
        }
        match container {
            Container::Sitemap => self.found.sitemaps.push(url),
            _ => self.found.pages.push(url),
        }
        true
    }
}

/// Reads as far as the text is XML; names of elements count without their prefixes, and end tags
/// need not match.
fn read_xml(text: &str, taker: &mut Taker) {
    let mut reader = Reader::from_str(text);
    let config = reader.config_mut();
    config.check_end_names = false;
    config.allow_unmatched_ends = true;
    config.allow_dangling_amp = true;
    let mut container = None;
    // Elements open within the container.
    let mut depth = 0usize;
    // The URL that is being read.
    let mut url: Option<String> = None;
    loop {
        let event = match reader.read_event() {
            Ok(Event::Eof) => break,
            Ok(event) => event,
            Err(_) => {
                taker.found.cut = true;
                break;
            }
        };
        match event {
            Event::Start(tag) => {
                let name = tag.local_name();
                if let Some(begun) = Container::of(name.as_ref()) {
                    (container, depth, url) = (Some(begun), 0, None);
                } else if let Some(container) = container {
                    depth += 1;
                    if depth == 1 && name.as_ref() == container.url_element() {
                        url = Some(String::new());
                    }
                    if depth == 1 && !put_link(taker, container, &tag) {
                        return;
                    }
                }
            }
            Event::Empty(tag) => {
                if let Some(container) = container
                    && depth == 0
                    && !put_link(taker, container, &tag)
                {
                    return;
                }
            }
            Event::End(tag) => {
                if Container::of(tag.local_name().as_ref()).is_some() {
                    container = None;
                }
                depth = depth.saturating_sub(1);
                if let (Some(container), Some(url)) = (container, url.take())
                    && !taker.put_reference(container, &url)
                {
                    return;
                }
            }
            Event::Text(text) => push(&mut url, &String::from_utf8_lossy(&text)),
            Event::CData(text) => push(&mut url, &String::from_utf8_lossy(&text)),
            Event::GeneralRef(reference) => push(&mut url, &resolved(&reference)),
            _ => {}
        }
    }
}

/// Takes the `href` of a feed's `link`, if it leads to what the entry is about.
fn put_link(taker: &mut Taker, container: Container, tag: &BytesStart<'_>) -> bool {
    if container != Container::Entry || tag.local_name().as_ref() != b"link" {
        return true;
    }
    let value = |wanted: &[u8]| {
        let mut attributes = tag.html_attributes();
        let mut readable = attributes.with_checks(false).flatten();
        readable
            .find(|attribute| attribute.key.local_name().as_ref() == wanted)
            .map(|attribute| unescaped(&attribute))
    };
    let is_alternate = value(b"rel").is_none_or(|rel| rel == "alternate");
    match value(b"href") {
        Some(href) if is_alternate => taker.put_reference(container, &href),
        _ => true,
    }
}

fn unescaped(attribute: &Attribute<'_>) -> String {
    attribute.unescape_value().map_or_else(
        |_| String::from_utf8_lossy(&attribute.value).into_owned(),
        |value| value.into_owned(),
    )
}

/// What an entity or a character reference stands for; one that is unknown stays as it is.
fn resolved(reference: &BytesRef<'_>) -> String {
    if let Ok(Some(character)) = reference.resolve_char_ref() {
        return character.to_string();
    }
    let name = String::from_utf8_lossy(reference);
    resolve_xml_entity(&name).map_or_else(|| format!("&{name};"), str::to_owned)
}

/// No URL is so long that more of it were of use.
fn push(url: &mut Option<String>, text: &str) {
    if let Some(url) = url
        && url.len() <= super::url::LENGTH_MAX
    {
        url.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Sitemap {
        let at = CrawlUrl::parse("http://a.test/maps/1.xml").unwrap();
        Sitemap::parse(text.as_bytes(), None, &at)
    }

    fn check(text: &str, pages: &[&str]) {
        let found = parse(text);
        let urls: Vec<&str> = found.pages.iter().map(CrawlUrl::as_str).collect();
        assert_eq!(urls, pages, "{text}");
    }

    const URLSET: &str = "\u{feff}<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
        <!DOCTYPE urlset [<!ENTITY x \"y\">]>\n\
        <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:image=\"x\">\n\
        <!-- <url><loc>http://a.test/no</loc></url> -->\n\
        <url><loc>\n http://a.test/1?a=1&amp;b=&#x32;\n</loc><lastmod>2020-01-01</lastmod></url>\n\
        <url><image:image><image:loc>http://a.test/no.png</image:loc></image:image>\
        <priority/><loc><![CDATA[http://a.test/2?x&y]]></loc></url>\n\
        <url><loc>/3</loc></url><url><loc> </loc></url><url><loc>mailto:x</loc></url>\n\
        </urlset>\n";

    #[test]
    fn a_urlset_names_pages() {
        check(
            URLSET,
            &[
                "http://a.test/1?a=1&b=2",
                "http://a.test/2?x&y",
                "http://a.test/3",
            ],
        );
        assert!(!parse(URLSET).cut);
        check(
            "<s:urlset xmlns:s='x'><s:url><s:loc>http://a.test/</s:loc></s:url></s:urlset>",
            &["http://a.test/"],
        );
    }

    #[test]
    fn an_index_names_sitemaps() {
        let index =
            "<sitemapindex><sitemap><loc>http://a.test/m.xml.gz</loc></sitemap></sitemapindex>";
        let found = parse(index);
        assert_eq!(found.sitemaps[0].as_str(), "http://a.test/m.xml.gz");
        assert!(found.pages.is_empty());
    }

    #[test]
    fn a_text_names_a_page_a_line() {
        check(
            "http://a.test/1\r\n\nhttps://b.test/2 \nnonsense\n",
            &["http://a.test/1", "https://b.test/2"],
        );
        check("", &[]);
        check("404 not found", &[]);
    }

    #[test]
    fn feeds_name_pages() {
        check(
            "<rss><channel><link>http://a.test/home</link><item><title>x</title>\
             <link>http://a.test/1</link></item></channel></rss>",
            &["http://a.test/1"],
        );
        check(
            "<feed><link href='/home'/><entry><link rel='self' href='/no'/><link href='/1?a&amp;b'/>\
             <link rel='alternate' href='/2'></link><content><link href='/no'/></content></entry></feed>",
            &["http://a.test/1?a&b", "http://a.test/2"],
        );
    }

    #[test]
    fn a_page_in_html_is_no_sitemap() {
        check(
            "<!DOCTYPE html><html><body><a href=/x>&nbsp;<br></p></body></html>",
            &[],
        );
    }

    #[test]
    fn what_stands_before_broken_xml_counts() {
        let broken = "<urlset><url><loc>http://a.test/1</loc></url><url><loc>http://a.test/2</loc></url><url <";
        check(broken, &["http://a.test/1", "http://a.test/2"]);
        assert!(parse(broken).cut);
        check(
            "<urlset><url><loc>http://a.test/?a&b</loc></urlset></x>",
            &["http://a.test/?a&b"],
        );
        check(
            "<urlset><url><loc>http://a.test/1</loc><url><loc>http://a.test/2</loc>",
            &["http://a.test/1", "http://a.test/2"],
        );
        check("<urlset><url><loc>http://a.test/1", &[]);
    }

    #[test]
    fn unknown_entities_are_not_expanded() {
        check(
            "<urlset><url><loc>http://a.test/?&x;</loc></url></urlset>",
            &["http://a.test/?&x;"],
        );
    }

    #[test]
    fn a_sitemap_in_another_encoding_is_read() {
        let at = CrawlUrl::parse("http://a.test/").unwrap();
        let bytes = b"<?xml version='1.0' encoding='iso-8859-1'?><urlset><url><loc>/\xFC</loc></url></urlset>";
        let found = Sitemap::parse(bytes, None, &at);
        assert_eq!(found.pages[0].as_str(), "http://a.test/%C3%BC");
    }

    #[test]
    fn the_number_of_urls_is_bounded() {
        let url = "<url><loc>/x</loc></url>";
        let full = parse(&format!("<urlset>{}</urlset>", url.repeat(URLS_MAX)));
        assert_eq!((full.pages.len(), full.cut), (URLS_MAX, false));
        let over = parse(&format!("<urlset>{}</urlset>", url.repeat(URLS_MAX + 1)));
        assert_eq!((over.pages.len(), over.cut), (URLS_MAX, true));
        let text = parse(&"http://a.test/\n".repeat(URLS_MAX + 1));
        assert_eq!((text.pages.len(), text.cut), (URLS_MAX, true));
    }

    #[test]
    fn a_sitemap_may_break_off_anywhere() {
        for cut in 0..=URLSET.len() {
            let at = CrawlUrl::parse("http://a.test/").unwrap();
            let found = Sitemap::parse(&URLSET.as_bytes()[..cut], None, &at);
            assert!(found.pages.len() <= 3);
            Sitemap::parse(&URLSET.as_bytes()[cut..], Some("application/xml"), &at);
        }
    }
}
