//! Parses sitemaps in bounded steps: XML, indexes, plain text, and feeds.

mod text;

use std::collections::VecDeque;

use quick_xml::errors::SyntaxError;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::{Error, Reader};

use self::text::Text;
use super::url::{Base, CrawlUrl, Reach};
use crate::base::units::Units;

/// The URLs in a sitemap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sitemap {
    /// Pages.
    pub pages: Vec<CrawlUrl>,
    /// Further sitemaps, if it is an index.
    pub sitemaps: Vec<CrawlUrl>,
    /// It was longer than the limit, or truncated.
    pub cut: bool,
}

impl Sitemap {
    /// Parses an uncompressed sitemap that was found at `at`.
    ///
    /// URLs before malformed XML count.
    pub fn parse(bytes: &[u8], content_type: Option<&str>, at: &CrawlUrl) -> Self {
        let mut reading = SitemapReading::new(bytes, content_type, at, None, usize::MAX);
        let mut found = Sitemap::default();
        loop {
            match reading.step(&mut Units::unbounded()) {
                Step::Page(url) => found.pages.push(url),
                Step::Sitemap(url) => found.sitemaps.push(url),
                Step::TooLong | Step::Paused => {}
                Step::Over => break,
            }
        }
        found.cut = reading.cut;
        found
    }
}

/// Maximum number of URLs in a sitemap (sitemaps.org).
pub const URLS_MAX: usize = 50_000;

/// Maximum size of a sitemap in bytes (sitemaps.org).
pub const LENGTH_MAX: usize = 50 * 1024 * 1024;

/// Parses a sitemap in bounded steps.
#[derive(Debug)]
pub(crate) struct SitemapReading<B> {
    text: Text<B>,
    base: Base,
    reach: Reach,
    url_length_max: usize,
    form: Form,
    position: XmlPosition,
    /// The window ends within an element: more text is needed.
    is_stuck: bool,
    /// Results that were found but not returned yet.
    found: VecDeque<Step>,
    count: usize,
    cut: bool,
}

/// Result of a step.
#[derive(Debug)]
pub(crate) enum Step {
    /// The URL of a page.
    Page(CrawlUrl),
    /// The URL of another sitemap.
    Sitemap(CrawlUrl),
    /// A URL that would be longer than the maximum.
    TooLong,
    /// The units are used up.
    Paused,
    /// The end.
    Over,
}

/// How the rest of the text is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Only blanks so far.
    Unknown,
    Xml,
    /// One URL per line.
    Lines,
    /// Skips text up to and including this end marker, because the construct is longer than
    /// anything relevant; then continues as XML, or as lines.
    Skipping(&'static [u8]),
    Over,
}

/// Position in the XML.
#[derive(Debug, Default)]
struct XmlPosition {
    container: Option<Container>,
    /// Number of open elements within the container.
    depth: usize,
    /// The URL being read.
    url: Option<String>,
}

impl<B: AsRef<[u8]>> SitemapReading<B> {
    /// A new parser. With `ratio_max` a gzip file is decompressed, up to this many bytes for each
    /// of its own. A URL longer than `url_length_max` bytes is not built if its length is known
    /// before.
    pub fn new(
        body: B,
        content_type: Option<&str>,
        at: &CrawlUrl,
        ratio_max: Option<u32>,
        url_length_max: usize,
    ) -> Self {
        let base = Base::of(at);
        SitemapReading {
            text: Text::new(body, content_type, ratio_max),
            reach: base.reach(),
            base,
            url_length_max,
            form: Form::Unknown,
            position: XmlPosition::default(),
            is_stuck: false,
            found: VecDeque::new(),
            count: 0,
            cut: false,
        }
    }

    /// The next URL, if it is found before the units are used up.
    pub fn step(&mut self, units: &mut Units) -> Step {
        loop {
            if let Some(found) = self.found.pop_front() {
                return found;
            }
            if self.form == Form::Over {
                return Step::Over;
            }
            if units.is_spent() {
                return Step::Paused;
            }
            let least = if self.is_stuck { WINDOW } else { WINDOW / 2 };
            self.text.fill(least, WINDOW, units);
            if units.is_spent() {
                return Step::Paused;
            }
            self.is_stuck = false;
            match self.form {
                Form::Unknown => self.begin(),
                Form::Xml => self.read_xml(units),
                Form::Lines => self.read_lines(units),
                Form::Skipping(end) => self.skip(end, units),
                Form::Over => {}
            }
        }
    }

    /// Bytes of memory used besides the body.
    pub fn memory(&self) -> usize {
        self.text.memory() + self.found.capacity() * size_of::<Step>()
    }

    fn end(&mut self) {
        self.form = Form::Over;
        self.cut |= self.text.is_cut();
    }

    /// Skips blanks before the first mark and decides on the form.
    fn begin(&mut self) {
        let window = self.text.window();
        let text = String::from_utf8_lossy(&window[..window.len().min(BLANKS_AT_ONCE)]);
        let blank = |c: char| c.is_whitespace() || c == '\u{feff}';
        let rest = text.trim_start_matches(blank);
        let (blanks, is_xml, is_empty) = (
            text.len() - rest.len(),
            rest.starts_with('<'),
            rest.is_empty(),
        );
        if is_empty && self.text.is_over() && window.len() <= BLANKS_AT_ONCE {
            return self.end();
        }
        self.text.consume(blanks);
        if !is_empty {
            self.form = if is_xml { Form::Xml } else { Form::Lines };
        }
    }

    /// Parses as far as the text is XML. Prefixes of element names are ignored, and end tags need
    /// not match.
    fn read_xml(&mut self, units: &mut Units) {
        let (window, is_over) = (self.text.window(), self.text.is_over());
        let mut reader = Reader::from_reader(window);
        let config = reader.config_mut();
        config.check_end_names = false;
        config.allow_unmatched_ends = true;
        config.allow_dangling_amp = true;
        let mut read = 0;
        let mut failure = None;
        let mut finder = Finder {
            base: &self.base,
            reach: &self.reach,
            url_length_max: self.url_length_max,
            position: &mut self.position,
            found: &mut self.found,
            count: &mut self.count,
            is_full: false,
        };
        while !units.is_spent() && finder.found.len() < FOUND_AT_ONCE && !finder.is_full {
            let event = match reader.read_event() {
                Ok(Event::Eof) => {
                    read = window.len();
                    break;
                }
                Ok(event) => event,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            };
            let end = reader.buffer_position() as usize;
            let may_go_on = matches!(event, Event::Text(_) | Event::GeneralRef(_));
            if may_go_on && end == window.len() && !is_over && read > 0 {
                // It is parsed again with what follows. A text that fills the window is no URL.
                break;
            }
            units.spend(end - read + EVENT_UNITS);
            read = end;
            finder.take(event, units);
        }
        let (is_full, has_found) = (finder.is_full, !finder.found.is_empty());
        if is_full {
            self.cut = true;
            return self.end();
        }
        if let Some(error) = failure
            && read == 0
        {
            units.spend(window.len() / 8);
            // If it merely is not closed, more text may complete it.
            let is_open =
                matches!(error, Error::Syntax(syntax) if syntax != SyntaxError::InvalidBangMarkup);
            if !is_open || is_over {
                self.cut = true;
                self.form = Form::Over;
            } else if window.len() >= WINDOW {
                self.form = Form::Skipping(end_of(window));
            } else {
                self.is_stuck = true;
            }
            return;
        }
        self.text.consume(read);
        if self.text.is_over() && self.text.window().is_empty() && !has_found {
            self.end();
        }
    }

    /// Parses complete lines. The protocol requires absolute URLs; a text without any is no
    /// sitemap.
    fn read_lines(&mut self, units: &mut Units) {
        let (window, is_over) = (self.text.window(), self.text.is_over());
        let mut read = 0;
        while !units.is_spent() && self.found.len() < FOUND_AT_ONCE && read < window.len() {
            let rest = &window[read..];
            let line = match rest.iter().position(|octet| *octet == b'\n') {
                Some(end) => &rest[..end],
                None if is_over => rest,
                None => break,
            };
            read += (line.len() + 1).min(rest.len());
            units.spend(line.len() + LINE_UNITS);
            let line = String::from_utf8_lossy(line);
            let Ok(url) = CrawlUrl::parse(&line) else {
                continue;
            };
            if self.count == URLS_MAX {
                self.cut = true;
                return self.end();
            }
            self.count += 1;
            self.found.push_back(Step::Page(url));
        }
        if read == 0 && !units.is_spent() && !is_over {
            units.spend(window.len() / 8);
            if window.len() >= WINDOW {
                self.form = Form::Skipping(b"\n");
            } else {
                self.is_stuck = true;
            }
            return;
        }
        self.text.consume(read);
        if self.text.is_over() && self.text.window().is_empty() {
            self.end();
        }
    }

    fn skip(&mut self, end: &'static [u8], units: &mut Units) {
        let window = self.text.window();
        units.spend(window.len() / 2 + 1);
        if let Some(at) = window.windows(end.len()).position(|there| there == end) {
            self.text.consume(at + end.len());
            self.form = match end {
                b"\n" => Form::Lines,
                _ => Form::Xml,
            };
            return;
        }
        if self.text.is_over() {
            self.cut |= end != b"\n";
            return self.end();
        }
        let kept = end.len() - 1;
        self.text.consume(window.len().saturating_sub(kept));
    }
}

/// Size of the window: longer than any URL with its markup.
const WINDOW: usize = 128 << 10;

/// Maximum number of URLs found before they are returned.
const FOUND_AT_ONCE: usize = 64;

/// Maximum number of blanks skipped at once before the first mark.
const BLANKS_AT_ONCE: usize = 4096;

/// Costs of reading a tag or a line, and of building a URL, besides their bytes.
const EVENT_UNITS: usize = 24;
const LINE_UNITS: usize = 64;
const RESOLVED_UNITS: usize = 128;

/// The end marker of the markup that starts here.
fn end_of(window: &[u8]) -> &'static [u8] {
    let forms: [(&[u8], &'static [u8]); 3] =
        [(b"<!--", b"-->"), (b"<![CDATA[", b"]]>"), (b"<?", b"?>")];
    let form = forms.iter().find(|(start, _)| window.starts_with(start));
    form.map_or(b">", |(_, end)| end)
}

/// The elements that contain one URL each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    /// `url` of a sitemap: the URL is in `loc`.
    Url,
    /// `sitemap` of an index: the URL is in `loc`.
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

    /// The child element whose text is the URL.
    fn url_element(self) -> &'static [u8] {
        match self {
            Container::Url | Container::Sitemap => b"loc",
            Container::Item => b"link",
            Container::Entry => b"",
        }
    }
}

/// Collects the URLs that are found, up to the limit.
struct Finder<'a> {
    base: &'a Base,
    reach: &'a Reach,
    url_length_max: usize,
    position: &'a mut XmlPosition,
    found: &'a mut VecDeque<Step>,
    count: &'a mut usize,
    /// There are more than the maximum.
    is_full: bool,
}

impl Finder<'_> {
    fn take(&mut self, event: Event<'_>, units: &mut Units) {
        match event {
            Event::Start(tag) => {
                let name = tag.local_name();
                if let Some(begun) = Container::of(name.as_ref()) {
                    *self.position = XmlPosition {
                        container: Some(begun),
                        ..XmlPosition::default()
                    };
                } else if let Some(container) = self.position.container {
                    self.position.depth += 1;
                    if self.position.depth == 1 && name.as_ref() == container.url_element() {
                        self.position.url = Some(String::new());
                    }
                    if self.position.depth == 1 {
                        self.put_link(container, &tag, units);
                    }
                }
            }
            Event::Empty(tag) => {
                if let Some(container) = self.position.container
                    && self.position.depth == 0
                {
                    self.put_link(container, &tag, units);
                }
            }
            Event::End(tag) => {
                if Container::of(tag.local_name().as_ref()).is_some() {
                    self.position.container = None;
                }
                self.position.depth = self.position.depth.saturating_sub(1);
                if let (Some(container), Some(url)) =
                    (self.position.container, self.position.url.take())
                {
                    self.put_reference(container, &url, units);
                }
            }
            Event::Text(text) => push(&mut self.position.url, &text),
            Event::CData(text) => push(&mut self.position.url, &text),
            Event::GeneralRef(reference) => {
                push(&mut self.position.url, resolved(&reference).as_bytes());
            }
            _ => {}
        }
    }

    /// Handles the `href` of a feed's `link`, if it points to the entry itself.
    fn put_link(&mut self, container: Container, tag: &BytesStart<'_>, units: &mut Units) {
        if container != Container::Entry || tag.local_name().as_ref() != b"link" {
            return;
        }
        let value = |wanted: &[u8]| {
            let mut attributes = tag.html_attributes();
            let mut readable = attributes.with_checks(false).flatten();
            readable
                .find(|attribute| attribute.key.local_name().as_ref() == wanted)
                .map(|attribute| unescaped(&attribute))
        };
        units.spend(tag.len() * 2);
        let is_alternate = value(b"rel").is_none_or(|rel| rel == "alternate");
        if let Some(href) = value(b"href").filter(|_| is_alternate) {
            self.put_reference(container, &href, units);
        }
    }

    fn put_reference(&mut self, container: Container, reference: &str, units: &mut Units) {
        if reference.trim().is_empty() {
            return;
        }
        let found = if self.reach.length_min(reference) > self.url_length_max {
            units.spend(reference.len());
            Step::TooLong
        } else {
            units.spend(RESOLVED_UNITS + reference.len() + self.reach.length() / 4);
            match (self.base.join(reference), container) {
                (Err(_), _) => return,
                (Ok(url), _) if url.as_str().len() > self.url_length_max => Step::TooLong,
                (Ok(url), Container::Sitemap) => Step::Sitemap(url),
                (Ok(url), _) => Step::Page(url),
            }
        };
        self.is_full = *self.count == URLS_MAX;
        if !self.is_full {
            *self.count += 1;
            self.found.push_back(found);
        }
    }
}

fn unescaped(attribute: &Attribute<'_>) -> String {
    attribute.unescape_value().map_or_else(
        |_| String::from_utf8_lossy(&attribute.value).into_owned(),
        |value| value.into_owned(),
    )
}

/// The value of an entity or a character reference; an unknown one stays as it is.
fn resolved(reference: &BytesRef<'_>) -> String {
    if let Ok(Some(character)) = reference.resolve_char_ref() {
        return character.to_string();
    }
    let name = String::from_utf8_lossy(reference);
    resolve_xml_entity(&name).map_or_else(|| format!("&{name};"), str::to_owned)
}

/// Text beyond the maximum length of a URL is dropped.
fn push(url: &mut Option<String>, text: &[u8]) {
    if let Some(url) = url
        && url.len() <= super::url::LENGTH_MAX
    {
        url.push_str(&String::from_utf8_lossy(text));
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
    fn a_text_has_one_url_per_line() {
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
    fn an_html_page_is_not_a_sitemap() {
        check(
            "<!DOCTYPE html><html><body><a href=/x>&nbsp;<br></p></body></html>",
            &[],
        );
    }

    #[test]
    fn urls_before_malformed_xml_count() {
        let broken = "<urlset><url><loc>http://a.test/1</loc></url><url><loc>http://a.test/2</loc></url><url <";
        check(broken, &["http://a.test/1", "http://a.test/2"]);
        assert!(parse(broken).cut);
        check(
            "<urlset><url><loc>http://a.test/?a&b</loc></urlset></x>",
            &["http://a.test/?a&b"],
        );
        check(
            "<urlset><url><loc>http://a.test/1</lok></url><url><loc>http://a.test/2</loc>",
            &["http://a.test/1", "http://a.test/2"],
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

    /// Parses in the smallest steps; returns the result and the number of steps.
    fn steps(body: &[u8]) -> (Sitemap, usize) {
        let at = CrawlUrl::parse("http://a.test/maps/1.xml").unwrap();
        let mut reading = SitemapReading::new(body, None, &at, Some(200), usize::MAX);
        let (mut found, mut steps) = (Sitemap::default(), 0);
        loop {
            match reading.step(&mut Units::new(1)) {
                Step::Page(url) => found.pages.push(url),
                Step::Sitemap(url) => found.sitemaps.push(url),
                Step::TooLong => {}
                Step::Paused => steps += 1,
                Step::Over => break,
            }
        }
        found.cut = reading.cut;
        (found, steps)
    }

    #[test]
    fn a_sitemap_read_in_steps_from_plain_or_gzip_gives_the_same_urls() {
        let long: String = (0..5000)
            .map(|n| format!("<url><!-- {n} --><loc>/ü?a={n}&amp;b=&#38;</loc></url>\n"))
            .collect();
        for text in [
            URLSET,
            &format!("<urlset>{long}</urlset>"),
            "\n http://a.test/x\nhttp://b.test/",
        ] {
            let whole = parse(text);
            assert!(!whole.pages.is_empty());
            assert_eq!(steps(text.as_bytes()).0, whole);
            let packed = crate::wire::coding::gzip(text.as_bytes());
            assert_eq!(steps(&packed).0, whole);
            let wide = text.encode_utf16().flat_map(u16::to_le_bytes);
            let wide: Vec<u8> = [0xff, 0xfe].into_iter().chain(wide).collect();
            assert_eq!(steps(&wide).0, whole);
        }
    }

    #[test]
    fn a_construct_longer_than_the_window_is_skipped() {
        let long = "x".repeat(3 * WINDOW);
        let after = "<url><loc>/x</loc></url></urlset>";
        for inside in [
            format!("<!--{long}-->"),
            format!("<![CDATA[{long}]]>"),
            format!("<?{long}?>"),
            long.clone(),
            format!("<a {long}>"),
            format!("<url><loc>{long}</loc></url>"),
            " ".repeat(3 * WINDOW),
        ] {
            let text = format!("<urlset>{inside}{after}");
            for found in [parse(&text), steps(text.as_bytes()).0] {
                assert_eq!(found.pages.len(), 1, "{}", &inside[..20]);
                assert_eq!(found.pages[0].as_str(), "http://a.test/x");
                assert!(!found.cut);
            }
        }
        let lines = format!("http://a.test/1\n{long}\nhttp://a.test/2\n");
        assert_eq!(parse(&lines).pages.len(), 2);
        assert!(parse(&format!("<urlset><!--{long}")).cut);
    }

    #[test]
    fn no_construct_holds_a_step_for_longer_than_its_units() {
        for hostile in [
            "<a>", "<a b=\"", "'\"", "<!--", "-", "&", "&amp;", "\n", "x", " ", "<loc>", "]]>",
        ] {
            let body = format!("<urlset><url>{}", hostile.repeat(2_000_000 / hostile.len()));
            let (_, steps) = steps(body.as_bytes());
            assert!(steps >= 4, "{hostile}: {steps} steps");
        }
    }

    #[test]
    fn a_sitemap_may_be_truncated_anywhere() {
        for cut in 0..=URLSET.len() {
            let at = CrawlUrl::parse("http://a.test/").unwrap();
            let found = Sitemap::parse(&URLSET.as_bytes()[..cut], None, &at);
            assert!(found.pages.len() <= 3);
            Sitemap::parse(&URLSET.as_bytes()[cut..], Some("application/xml"), &at);
        }
    }
}
