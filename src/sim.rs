//! A web in virtual time, for tests of programs that embed a crawl.
//!
//! A function gives the answer to each request, and its delay; the crawl runs as it would over the kernel,
//! with your own sink, scope map and strategies in it, but waiting takes no real time: a day of pacing
//! takes milliseconds. Nothing is sent, no clock is read, and random numbers come from a seed: the same
//! seed gives the same crawl to the nanosecond.
//!
//! ```
//! use argiope::sim::{Reply, Web};
//! use argiope::{Config, Crawler, FinishReason, Page, Request};
//! use std::time::Duration;
//!
//! let web = Web::new(|asked| match &*asked.target {
//!     "/robots.txt" => Reply::text("User-agent: *\nCrawl-delay: 20\n"),
//!     _ => Reply::page("<a href=/next>on</a>").after(Duration::from_millis(200)),
//! });
//! let mut crawler = Crawler::builder(Config::default())
//!     .sink(|page: Page| assert_eq!(page.status, Some(200)))
//!     .build_in(&web, 1)?;
//! crawler.submit(Request::get("http://example.com/"))?;
//! assert_eq!(crawler.run(), FinishReason::Finished);
//!
//! // The origin's requests: robots.txt, then two pages, separated by its Crawl-delay.
//! let asked = web.asked();
//! assert_eq!(asked.len(), 3);
//! assert!(asked[2].at.saturating_since(asked[1].at) >= Duration::from_secs(20));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! By default each connection has a round trip of its own, drawn between 5 and 50 ms, so the gaps between arrivals at
//! an origin ([`Asked::at`]) differ from those between departures by some milliseconds. A test of gaps fixes it:
//! `Web::new(…).round_trip(Duration::from_millis(20))` ([`Web::round_trip`]).
//!
//! A function with the bound [`Platform`](crate::Platform) takes a crawler on the kernel as well as one here, so
//! that what a program runs is what its tests run.
//!
//! The simulation covers names, connections, their round trips, bytes that come in pieces, and the
//! disk. Not simulated: TLS (a connection to port 443 is refused, so use `http`), losses, and other
//! machines: what another thread does happens at no moment of this time, and a crawl that waits for
//! a [`Handle`](crate::Handle) does so without rest.

#[doc(inline)]
pub use crate::io::sim::Sim;
#[doc(inline)]
pub use crate::io::sim::web::{Asked, Reply, Web};
