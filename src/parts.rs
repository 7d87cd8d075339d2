//! What the crawler is made of, for programs that need one part of it and no crawl.
//!
//! Nothing in here reads a clock, opens a socket or starts a thread: time is an argument
//! ([`Instant`] counts from where the caller begins to count), bytes go in and values come out.
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
//! # What robots.txt says
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
//! # A reply, read as it comes
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
//! # When each of many hosts may be asked
//!
//! The engine of pacing, for a client of one's own: lanes with something to send are offered, and
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
//! let mut throttle = Throttle::new(config.throttle, 1, Instant::START);
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
pub use crate::base::time::Instant;
#[doc(inline)]
pub use crate::base::wheel::PacingWheel;
#[doc(inline)]
pub use crate::throttle::engine::{Grant, Throttle, TicketId};
#[doc(inline)]
pub use crate::wire::html::{Found, Link, LinkOptions, links, links_of};
#[doc(inline)]
pub use crate::wire::http::{
    Framing, Head, Headers, HttpError, HttpVersion, Item, Limits, RequestError, RequestHead,
    ResponseReader, UsualFields, write_request,
};
#[doc(inline)]
pub use crate::wire::robots::{Robots, Rule, Rules, Verdict};
