//! Components of the crawler, for programs that need one of them without a crawl.
//!
//! Nothing in this module reads a clock, opens a socket or starts a thread: time is an argument
//! ([`Instant`](crate::Instant) counts from an origin that the caller chooses), bytes go in and values
//! come out.
//!
//! # Links of a page
//!
//! ```
//! use argiope::CrawlUrl;
//! use argiope::parts::{LinkOptions, links};
//!
//! let page = CrawlUrl::parse("https://example.com/a/")?;
//! let found = links("<a href='../b'>b</a> <a href='mailto:c@example.com'>c</a>", &page, &LinkOptions::default());
//! let urls: Vec<_> = found.links.iter().map(|link| link.url.as_str()).collect();
//! assert_eq!(urls, ["https://example.com/b"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Any URL, also of schemes that are not fetched
//!
//! ```
//! use argiope::parts::{parse_any, printable, request_target_of};
//!
//! let found = parse_any("ftp://me@example.com/a b?c#d", None)?;
//! assert_eq!(found.href, "ftp://me@example.com/a%20b?c#d");
//! assert_eq!(found.url.unwrap_err().code(), "scheme");
//! // What the rules of a robots.txt apply to.
//! assert_eq!(request_target_of("http://example.com/a b?c")?, "/a%20b?c");
//! // Text from a server, safe for a terminal.
//! assert_eq!(printable("\x1b[31mred"), "\\u001b[31mred");
//! # Ok::<(), argiope::UrlError>(())
//! ```
//!
//! # Rules of robots.txt
//!
//! ```
//! use argiope::parts::Robots;
//!
//! let robots = Robots::parse(b"User-agent: *\nDisallow: /private\nCrawl-delay: 2\n");
//! let rules = robots.agent("mybot");
//! assert!(rules.allowed("/public?q=1").allowed);
//! assert!(!rules.allowed("/private/page").allowed);
//! assert_eq!(rules.crawl_delay(), Some(std::time::Duration::from_secs(2)));
//! ```
//!
//! # Parsing a response incrementally
//!
//! ```
//! use argiope::parts::{Item, Limits, ResponseReader};
//!
//! let mut reader = ResponseReader::new(false, Limits::default());
//! let mut body = Vec::new();
//! let mut status = 0;
//! for mut piece in [&b"HTTP/1.1 200 OK\r\nContent-Le"[..], b"ngth: 5\r\n\r\nhel", b"lo"] {
//!     while let Some(item) = reader.next(&mut piece)? {
//!         match item {
//!             Item::Head(head) => status = head.status,
//!             Item::Body(bytes) => body.extend_from_slice(bytes),
//!             Item::End { reusable } => assert!(reusable),
//!             _ => {}
//!         }
//!     }
//! }
//! assert_eq!((status, &*body), (200, &b"hello"[..]));
//! # Ok::<(), argiope::parts::HttpError>(())
//! ```
//!
//! # Writing a request
//!
//! ```
//! use argiope::parts::{RequestHead, UsualFields, write_request};
//!
//! let usual = UsualFields::new(&[("User-Agent", "mybot/1.0")], &[])?;
//! let mut out = Vec::new();
//! write_request(&mut out, &RequestHead {
//!     method: "GET",
//!     target: "/a?b=c",
//!     host: "example.com",
//!     proxy_authorization: "",
//!     usual: &usual,
//!     headers: &[],
//!     body_bytes: None,
//! })?;
//! assert_eq!(out, b"GET /a?b=c HTTP/1.1\r\nHost: example.com\r\nUser-Agent: mybot/1.0\r\n\r\n");
//! # Ok::<(), argiope::parts::RequestError>(())
//! ```
//!
//! # Decoding a body
//!
//! Content codings are removed incrementally, within a budget; the result is text in the encoding
//! that the page declares.
//!
//! ```
//! use argiope::parts::{Budget, Decoder, decode_text, gzip};
//!
//! let coded = gzip(b"caf\xe9");
//! let mut decoder = Decoder::new([&b"gzip"[..]], Budget::default())?;
//! let mut body = Vec::new();
//! for piece in coded.chunks(7) {
//!     decoder.write(piece, &mut body)?;
//! }
//! decoder.finish()?;
//! assert_eq!(decode_text(&body, Some("text/html; charset=iso-8859-1")), "caf\u{e9}");
//! # Ok::<(), argiope::parts::CodingError>(())
//! ```
//!
//! # Retry-After and RateLimit
//!
//! ```
//! use argiope::parts::{Item, Limits, RateLimit, ResponseReader, http_date, retry_after};
//! use std::time::Duration;
//!
//! let now = http_date(b"Tue, 24 Nov 2026 10:00:00 GMT").expect("a date");
//! let wait = retry_after(b"Tue, 24 Nov 2026 10:02:00 GMT", now);
//! assert_eq!(wait, Some(Duration::from_secs(120)));
//! assert_eq!(retry_after(b"30", now), Some(Duration::from_secs(30)));
//!
//! let mut reader = ResponseReader::new(false, Limits::default());
//! let mut reply = &b"HTTP/1.1 200 OK\r\nRateLimit-Remaining: 0\r\nRateLimit-Reset: 9\r\n\r\n"[..];
//! let Some(Item::Head(head)) = reader.next(&mut reply)? else {
//!     panic!("a whole head");
//! };
//! let limit = RateLimit::read(&head.headers, now);
//! assert!(limit.is_exhausted());
//! assert_eq!(limit.reset, Some(Duration::from_secs(9)));
//! # Ok::<(), argiope::parts::HttpError>(())
//! ```
//!
//! # The URLs of a sitemap
//!
//! ```
//! use argiope::CrawlUrl;
//! use argiope::parts::Sitemap;
//!
//! let at = CrawlUrl::parse("https://example.com/sitemap.xml")?;
//! let text = b"<urlset><url><loc>https://example.com/a</loc></url></urlset>";
//! let found = Sitemap::parse(text, Some("application/xml"), &at);
//! assert_eq!(found.pages[0].as_str(), "https://example.com/a");
//! # Ok::<(), argiope::UrlError>(())
//! ```
//!
//! # Whether a crawl would fetch a URL
//!
//! [`UrlCheck`] applies the filters of a configuration, and names the one that a URL does not pass.
//!
//! # Seeds in a table
//!
//! [`SeedColumns`] finds the URL in each row of CSV with a header; [`Request::from_line`](crate::Request::from_line) reads
//! lines of every other form.
//!
//! # Millions of timers
//!
//! ```
//! use argiope::Instant;
//! use argiope::parts::PacingWheel;
//! use std::time::Duration;
//!
//! let second = Duration::from_secs(1);
//! let mut wheel = PacingWheel::new(Instant::START);
//! wheel.insert(Instant::START + 2 * second, 7);
//! wheel.insert(Instant::START + second, 8);
//! assert_eq!(wheel.next(), Some(Instant::START + second));
//! let mut due = Vec::new();
//! wheel.expire(Instant::START + 2 * second, usize::MAX, &mut due);
//! let ids: Vec<_> = due.iter().map(|(id, _)| *id).collect();
//! assert_eq!(ids, [8, 7]);
//! ```
//!
//! # Pacing of requests to many hosts
//!
//! The pacing engine, for use in another client: lanes with something to send are offered, and
//! granted when all of their scopes allow.
//!
//! ```
//! use argiope::parts::{Grant, ScopeSet, Throttle};
//! use argiope::{Config, Instant};
//! use std::time::Duration;
//!
//! let config = Config::default()
//!     .with("DOWNLOAD_DELAY", "1s")?
//!     .with("RANDOMIZE_DOWNLOAD_DELAY", false)?;
//! let mut throttle = Throttle::new(config.throttle().clone(), 1, Instant::START);
//! let scope = throttle.scope("example.com");
//! let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
//! let mut now = Instant::START;
//! let mut sent = Vec::new();
//! throttle.offer(lane, now);
//! while sent.len() < 3 {
//!     while let Some(grant) = throttle.poll(now) {
//!         match grant {
//!             // Here a connection would be made or taken, and reported when it is there.
//!             Grant::Release(_, ticket) => throttle.ready(ticket, None, now),
//!             Grant::Depart(ticket) => {
//!                 sent.push(now);
//!                 throttle.finish(ticket, now);
//!                 throttle.offer(lane, now);
//!             }
//!         }
//!     }
//!     now = throttle.next_wake().expect("there is more to send").max(now);
//! }
//! let gaps: Vec<_> = sent.windows(2).map(|pair| pair[1].saturating_since(pair[0])).collect();
//! assert_eq!(gaps, [Duration::from_secs(1); 2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[doc(inline)]
pub use crate::base::ids::LaneId;
#[doc(inline)]
pub use crate::base::ids::{ScopeId, ScopeSet};
#[doc(inline)]
pub use crate::base::wheel::PacingWheel;
#[doc(inline)]
pub use crate::crawl::{LeftOut, UrlCheck};
#[doc(inline)]
pub use crate::frontier::request::seeds::columns::SeedColumns;
#[doc(inline)]
pub use crate::throttle::engine::{Grant, Throttle, TicketId};
#[doc(inline)]
pub use crate::wire::charset::decode as decode_text;
pub use crate::wire::coding::{Budget, Coding, CodingError, DecodeProgress, Decoder, gzip};
#[doc(inline)]
pub use crate::wire::date::http_date;
#[doc(inline)]
pub use crate::wire::directives::DirectiveWords;
#[doc(inline)]
pub use crate::wire::directives::Directives;
#[doc(inline)]
pub use crate::wire::html::fields::Fields;
#[doc(inline)]
pub use crate::wire::html::{Found, Link, LinkOptions, links, links_of};
#[doc(inline)]
pub use crate::wire::http::{
    Framing, Head, HttpError, Item, Limits, RequestError, RequestHead, ResponseReader, UsualFields,
    write_request,
};
#[doc(inline)]
pub use crate::wire::rate_limit::RateLimit;
#[doc(inline)]
pub use crate::wire::retry_after::parse as retry_after;
#[doc(inline)]
pub use crate::wire::robots::{LENGTH_MAX as ROBOTS_LENGTH_MAX, Robots, Rule, Rules, Verdict};
#[doc(inline)]
pub use crate::wire::sitemap::Sitemap;
#[doc(inline)]
pub use crate::wire::text::printable;
#[doc(inline)]
pub use crate::wire::url::{ParsedUrl, parse_any, request_target_of};
