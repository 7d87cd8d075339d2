//! One origin: decides how each request is answered, and records it.

use std::time::Duration;

use argiope::testkit::http::{Reply, Request, Step};
use argiope::testkit::ledger::ArrivalId;
use percent_encoding::percent_decode_str;

use super::fields::date;
use super::ledger::{Answered, Kind, Ledger};
use super::spec::{Face, RetryAfter, Robots, Spec};

/// The current time, by the monotonic clock and by the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Since the server's start.
    pub at: Duration,
    /// Since 1970.
    pub wall: Duration,
}

/// One origin: its specification, state and record.
pub struct Origin {
    pub spec: Spec,
    pub ledger: Ledger,
    /// First request that was not for robots.txt; limits start there.
    epoch: Option<Duration>,
    /// Pages served, by the origin or its cache.
    pages: u64,
    /// Requests that were looked up in the cache.
    looked_up: u64,
    /// Since when everything is blocked, and the pages left until then.
    blocked: Option<Duration>,
    pages_until_block: u64,
}

/// Every origin of the server.
pub struct World {
    origins: Vec<Origin>,
}

/// A reply in progress: its origin and arrival.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub origin: usize,
    pub arrival: ArrivalId,
}

impl World {
    pub fn new(specs: Vec<Spec>) -> Self {
        World {
            origins: specs.into_iter().map(Origin::new).collect(),
        }
    }

    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// The origin with this host name.
    pub fn named(&self, host: &str) -> Option<usize> {
        let mut origins = self.origins.iter();
        origins.position(|origin| origin.spec.name.eq_ignore_ascii_case(host))
    }

    /// Decides how to answer a request, and records it.
    pub fn answer(&mut self, index: usize, request: &Request, now: Now) -> (Entry, Vec<Step>) {
        let upstream = self.origins[index].spec.upstream;
        let target = upstream.then(|| self.upstream(&request.target)).flatten();
        let upstream = target.map(|target| {
            let origin = &mut self.origins[target];
            let (kind, units, status) = origin.charge_upstream(now);
            let answered = Answered {
                kind,
                units,
                hold: None,
            };
            let arrival = origin.ledger.arrive(now.at, answered);
            origin.ledger.end(arrival, now.at);
            ("X-Upstream-Status-Code", status.to_string())
        });
        let origin = &mut self.origins[index];
        let mut decision = origin.decide(request, now);
        let steps = origin.steps(&mut decision, upstream, request, now);
        let answered = Answered {
            kind: decision.kind,
            units: decision.units,
            hold: decision.hold,
        };
        let arrival = origin.ledger.arrive(now.at, answered);
        let entry = Entry {
            origin: index,
            arrival,
        };
        (entry, steps)
    }

    /// Ends the exchange: the kernel has taken the reply, or the client has disconnected.
    pub fn end(&mut self, entry: Entry, now: Duration) {
        self.origins[entry.origin].ledger.end(entry.arrival, now);
    }

    /// The origin in the `url` parameter of a request to a scraping API.
    fn upstream(&self, target: &str) -> Option<usize> {
        let (_, query) = target.split_once('?')?;
        let url = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("url="))?;
        let url = percent_decode_str(url).decode_utf8_lossy();
        let (_, rest) = url.split_once("://")?;
        let host = rest.split(['/', '?', '#']).next()?;
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        self.named(host.rsplit_once(':').map_or(host, |(name, _)| name))
    }
}

/// How a request is answered, before the reply is serialized.
struct Decision {
    kind: Kind,
    look: Look,
    after: Duration,
    units: f64,
    cached: bool,
    /// The Retry-After of the reply.
    hold: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Page,
    Robots,
    Face(Face),
}

impl Origin {
    fn new(spec: Spec) -> Self {
        let pages_until_block = spec.block.map_or(0, |block| block.after);
        Origin {
            spec,
            ledger: Ledger::default(),
            epoch: None,
            pages: 0,
            looked_up: 0,
            blocked: None,
            pages_until_block,
        }
    }

    fn decide(&mut self, request: &Request, now: Now) -> Decision {
        if request.target == "/robots.txt" {
            return Decision {
                kind: Kind::Robots,
                look: Look::Robots,
                after: Duration::ZERO,
                units: 0.0,
                cached: false,
                hold: None,
            };
        }
        let since = now.at - *self.epoch.get_or_insert(now.at);
        let spec = &self.spec;
        let plain = |kind, face, after| Decision {
            kind,
            look: Look::Face(face),
            after,
            units: 0.0,
            cached: false,
            hold: None,
        };
        let banned = spec.ban.as_ref().filter(|ban| {
            let mut headers = request.headers.iter();
            headers.any(|(name, value)| {
                name.eq_ignore_ascii_case(&ban.header) && value.contains(&ban.text)
            })
        });
        if let Some(ban) = banned {
            return plain(Kind::Banned, ban.face, Duration::ZERO);
        }
        if let Some(face) = self.block(now.at) {
            let mut decision = plain(Kind::Blocked, face, Duration::ZERO);
            if matches!(face, Face::Status(_)) {
                decision.hold = self.hold(since, now);
            }
            return decision;
        }
        let spec = &self.spec;
        if let Some(cache) = spec.cache {
            let place = self.looked_up % (cache.hits + cache.misses);
            self.looked_up += 1;
            // The first is a miss: nothing is cached yet.
            if place >= cache.misses {
                self.pages += 1;
                return Decision {
                    kind: Kind::Hit,
                    look: Look::Page,
                    after: cache.latency,
                    units: 0.0,
                    cached: true,
                    hold: None,
                };
            }
        }
        let units = self.cost();
        if !self.charge(units, since) {
            let (face, after) = (self.spec.refuse, self.spec.refuse_after);
            let mut decision = plain(Kind::Refused, face, after);
            decision.hold = self.hold(since, now);
            return decision;
        }
        let after = self.latency();
        self.pages += 1;
        self.pages_until_block = self.pages_until_block.saturating_sub(1);
        let (kind, look) = match self.spec.fault {
            Some((face, every)) if self.pages.is_multiple_of(every) => {
                (Kind::Fault, Look::Face(face))
            }
            _ => (Kind::Served, Look::Page),
        };
        Decision {
            kind,
            look,
            after,
            units,
            cached: false,
            hold: None,
        }
    }

    /// Charges the limit for a fetch by a scraping API; returns the status the target would have sent.
    fn charge_upstream(&mut self, now: Now) -> (Kind, f64, u16) {
        let since = now.at - *self.epoch.get_or_insert(now.at);
        let units = self.cost();
        if self.charge(units, since) {
            return (Kind::Served, units, 200);
        }
        let status = match self.spec.refuse {
            Face::Status(status) => status,
            _ => 429,
        };
        (Kind::Refused, 0.0, status)
    }

    fn charge(&mut self, units: f64, since: Duration) -> bool {
        let limit = self.spec.limit.as_mut();
        limit.is_none_or(|limit| limit.take(units, since))
    }

    /// Uniformly distributed, and the same in every run.
    fn cost(&self) -> f64 {
        let Some((least, most)) = self.spec.cost else {
            return 1.0;
        };
        let golden = (self.pages as f64 * 0.618_033_988_749_895).fract();
        least + (most - least) * golden
    }

    fn latency(&self) -> Duration {
        let batches = &self.spec.latency;
        let round: u64 = batches.iter().map(|(pages, _)| pages).sum();
        let mut place = self.pages % round;
        for (pages, latency) in batches {
            if place < *pages {
                return *latency;
            }
            place -= pages;
        }
        unreachable!("the place is less than the sum of the batches")
    }

    /// The face of the block, if it is active or becomes active now.
    fn block(&mut self, now: Duration) -> Option<Face> {
        let block = self.spec.block?;
        if self.pages_until_block > 0 {
            return None;
        }
        let since = *self.blocked.get_or_insert(now);
        if block.span.is_some_and(|span| now >= since + span) {
            self.blocked = None;
            self.pages_until_block = block.after;
            // A block from the first page starts again at once.
            return (block.after == 0).then_some(block.face);
        }
        Some(block.face)
    }

    fn hold(&mut self, since: Duration, now: Now) -> Option<Duration> {
        Some(match self.spec.retry_after? {
            RetryAfter::Seconds(seconds) => Duration::from_secs(seconds),
            // A date has no fraction: it means the start of its second.
            RetryAfter::Date(seconds) => {
                let until = Duration::from_secs(now.wall.as_secs() + seconds);
                until.saturating_sub(now.wall)
            }
            RetryAfter::Exact => {
                let limit = self.spec.limit.as_mut()?;
                let until = limit.until(1.0, since);
                Duration::from_secs_f64(until.as_secs_f64().ceil())
            }
        })
    }

    fn steps(
        &mut self,
        decision: &mut Decision,
        upstream: Option<(&'static str, String)>,
        request: &Request,
        now: Now,
    ) -> Vec<Step> {
        let mut reply = match decision.look {
            Look::Page => self.page(request),
            Look::Robots => self.robots(),
            Look::Face(Face::Captcha) => html(200, CAPTCHA),
            Look::Face(Face::Empty) => html(200, EMPTY),
            Look::Face(Face::Status(status)) => html(status, &format!("<h1>{status}</h1>\n")),
            // An incomplete reply has the head of a page, if any.
            Look::Face(_) => self.page(request),
        };
        reply = reply.field("Date", date(now.wall));
        if let Some((name, value)) = upstream {
            reply = reply.field(name, value);
        }
        if let Some(hold) = decision.hold {
            let value = match self.spec.retry_after {
                Some(RetryAfter::Date(seconds)) => {
                    date(Duration::from_secs(now.wall.as_secs() + seconds))
                }
                _ => hold.as_secs().to_string(),
            };
            reply = reply.field("Retry-After", value);
        }
        if self.spec.cache.is_some() {
            let (look, age) = if decision.cached {
                ("HIT", "60")
            } else {
                ("MISS", "0")
            };
            reply = reply.field("X-Cache", look).field("Age", age);
        }
        if self.spec.cost.is_some() && decision.units > 0.0 {
            let cost = format!("{:.3}", decision.units);
            reply = reply.field("X-Actual-Cost", cost);
        }
        if let Some(generation) = self.spec.headers
            && decision.kind != Kind::Robots
            && let Some(limit) = &mut self.spec.limit
        {
            let since = now.at - self.epoch.unwrap_or(now.at);
            let fields = generation.fields(limit.standing(since), now.wall);
            reply = fields
                .into_iter()
                .fold(reply, |reply, (name, value)| reply.field(name, value));
        }
        if request.is_last {
            reply = reply.field("Connection", "close");
        }
        let begin = Step::Wait(decision.after);
        match decision.look {
            Look::Face(Face::Hang) => vec![begin, Step::Hang],
            Look::Face(Face::Reset) => vec![begin, Step::Reset],
            Look::Face(Face::Truncated) => {
                let mut bytes = reply.to_bytes();
                bytes.truncate(bytes.len() - reply.body.len() / 2);
                vec![begin, Step::Send(bytes), Step::Close]
            }
            Look::Face(Face::BadChunk) => {
                reply.is_chunked = true;
                let mut bytes = reply.head();
                bytes.extend_from_slice(b"5\r\nhello\r\nno size\r\n");
                vec![begin, Step::Send(bytes), Step::Close]
            }
            Look::Page if !self.spec.body_time.is_zero() && !decision.cached => {
                let mut first = reply.to_bytes();
                let rest = first.split_off(first.len() - reply.body.len() / 2);
                let pause = Step::Wait(self.spec.body_time);
                vec![begin, Step::Send(first), pause, Step::Send(rest)]
            }
            _ => vec![begin, Step::Send(reply.to_bytes())],
        }
    }

    /// A page whose text depends on its number, without links unless `links` is set.
    fn page(&self, request: &Request) -> Reply {
        let number: u64 = request.path().trim_start_matches('/').parse().unwrap_or(0);
        let next = match self.spec.links {
            true => format!("<a href=\"/{}\">next</a>\n", number + 1),
            false => String::new(),
        };
        let mut text = format!(
            "<!doctype html>\n<title>Page {number}</title>\n<h1>Page {number}</h1>\n{next}<p>"
        );
        let mut word = number;
        while text.len() < self.spec.size {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text += &format!("{:x} ", word >> 40);
        }
        html(200, &text)
    }

    fn robots(&self) -> Reply {
        let rule = match self.spec.robots {
            Robots::Allow => "Allow: /",
            Robots::Deny => "Disallow: /",
            Robots::Status(status) => return html(status, ""),
        };
        let mut text = format!("User-agent: *\n{rule}\n");
        if let Some(delay) = &self.spec.crawl_delay {
            text += &format!("Crawl-delay: {delay}\n");
        }
        Reply::new(200)
            .field("Content-Type", "text/plain")
            .body(text)
    }
}

fn html(status: u16, text: &str) -> Reply {
    Reply::new(status)
        .field("Content-Type", "text/html; charset=utf-8")
        .body(text)
}

const CAPTCHA: &str = "<!doctype html>\n<title>Just a moment...</title>\n\
    <form id=\"challenge-form\"><div class=\"g-recaptcha\" data-sitekey=\"0\"></div></form>\n\
    <p>Are you a robot? Please solve this CAPTCHA.</p>\n";

const EMPTY: &str = "<!doctype html>\n<title>Results</title>\n<p>No results found.</p>\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn world(specs: &[&str]) -> World {
        let specs = specs.iter().map(|text| Spec::parse(text).expect(text));
        World::new(specs.collect())
    }

    /// Sends a request to the first origin at this millisecond; returns its kind, delay and reply.
    fn ask(world: &mut World, target: &str, at: u64) -> (Kind, Duration, String) {
        let now = Now {
            at: Duration::from_millis(at),
            wall: Duration::from_millis(1_000_000_000_250 + at),
        };
        let request = Request {
            target: target.to_owned(),
            headers: vec![("User-Agent".to_owned(), "robot/1".to_owned())],
            ..Request::default()
        };
        let (entry, steps) = world.answer(0, &request, now);
        world.end(entry, now.at);
        let after = steps.iter().map(|step| match step {
            Step::Wait(span) => *span,
            _ => Duration::ZERO,
        });
        let after = after.sum();
        let text = steps.iter().map(|step| match step {
            Step::Wait(_) => String::new(),
            Step::Send(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => format!("{other:?}"),
        });
        let kind = world.origins()[0].ledger.last_kind();
        (kind.expect("an arrival"), after, text.collect())
    }

    fn kinds(world: &mut World, requests: u64) -> Vec<Kind> {
        (0..requests).map(|at| ask(world, "/1", at).0).collect()
    }

    #[test]
    fn limit_starts_at_the_first_page_not_at_robots_txt() {
        let mut world = world(&["name=a,rate=5@0+50@1s,burst=1"]);
        assert_eq!(ask(&mut world, "/robots.txt", 100).0, Kind::Robots);
        assert_eq!(ask(&mut world, "/1", 5000).0, Kind::Served);
        assert_eq!(ask(&mut world, "/2", 5100).0, Kind::Refused);
        assert_eq!(ask(&mut world, "/3", 6100).0, Kind::Served);
        assert_eq!(ask(&mut world, "/3", 6120).0, Kind::Served);
    }

    #[test]
    fn a_refusal_has_a_retry_after() {
        let mut exact = world(&["name=a,fixed=1/10s,retry_after=exact"]);
        ask(&mut exact, "/1", 0);
        let (kind, after, text) = ask(&mut exact, "/1", 1500);
        assert_eq!((kind, after), (Kind::Refused, Duration::ZERO));
        assert!(
            text.contains("429 ") && text.contains("Retry-After: 9\r\n"),
            "{text}"
        );
        let mut dated = world(&["name=a,fixed=1/10s,retry_after=date:3,refuse=503"]);
        ask(&mut dated, "/1", 0);
        let text = ask(&mut dated, "/1", 0).2;
        assert!(text.contains("503 "), "{text}");
        assert!(
            text.contains("Retry-After: Sun, 09 Sep 2001 01:46:43 GMT"),
            "{text}"
        );
    }

    #[test]
    fn block_begins_after_its_pages_and_ends_after_its_span() {
        let mut world = world(&["name=a,latency=5ms,block=captcha,block_after=3,block_for=1s"]);
        assert_eq!(
            kinds(&mut world, 5),
            [
                Kind::Served,
                Kind::Served,
                Kind::Served,
                Kind::Blocked,
                Kind::Blocked
            ]
        );
        let (_, after, text) = ask(&mut world, "/1", 1000);
        assert!(after.is_zero() && text.contains("200 OK") && text.contains("CAPTCHA"));
        assert_eq!(ask(&mut world, "/1", 1003).0, Kind::Served);
        let one = ask(&mut world, "/1", 1004);
        assert_eq!((one.0, one.1), (Kind::Served, Duration::from_millis(5)));
    }

    #[test]
    fn cache_hits_follow_the_ratio_and_are_not_charged() {
        let mut world = world(&["name=a,rate=1,cache=9:1,latency=300ms,hit_latency=1ms"]);
        let first = ask(&mut world, "/1", 0);
        assert_eq!((first.0, first.1.as_millis()), (Kind::Served, 300));
        assert!(first.2.contains("X-Cache: MISS"));
        let second = ask(&mut world, "/1", 0);
        assert_eq!((second.0, second.1.as_millis()), (Kind::Hit, 1));
        assert!(second.2.contains("X-Cache: HIT") && second.2.contains("Age: 60"));
        let hits = kinds(&mut world, 18);
        assert_eq!(hits.iter().filter(|kind| **kind == Kind::Hit).count(), 17);
        assert!(hits.contains(&Kind::Refused), "a miss is charged");
    }

    #[test]
    fn latency_follows_the_batches() {
        let mut world = world(&["name=a,latency=2x30ms+1x800ms"]);
        let latency = (0..6).map(|_| ask(&mut world, "/1", 0).1.as_millis());
        assert_eq!(latency.collect::<Vec<_>>(), [30, 30, 800, 30, 30, 800]);
    }

    #[test]
    fn ban_depends_on_the_header_and_not_on_the_pace() {
        let mut world = world(&["name=a,ban=User-Agent:robot/", "name=b,ban=User-Agent:bird"]);
        assert_eq!(ask(&mut world, "/1", 0).0, Kind::Banned);
        assert_eq!(ask(&mut world, "/1", 1_000_000).0, Kind::Banned);
        world.origins.swap(0, 1);
        assert_eq!(ask(&mut world, "/1", 0).0, Kind::Served);
    }

    #[test]
    fn each_fault_sends_its_face() {
        let check = |face: &str, part: &str| {
            let mut world = world(&[&format!("name=a,latency=3ms,fault={face},fault_every=2")]);
            assert_eq!(ask(&mut world, "/1", 0).0, Kind::Served);
            let (kind, after, text) = ask(&mut world, "/1", 0);
            assert_eq!((kind, after.as_millis()), (Kind::Fault, 3), "{face}");
            assert!(text.ends_with(part), "{face}: {text}");
        };
        check("hang", "Hang");
        check("reset", "Reset");
        check("badchunk", "no size\r\nClose");
        check("truncated", "Close");
        check("empty", "No results found.</p>\n");
        check("500", "<h1>500</h1>\n");
    }

    #[test]
    fn body_time_delays_only_the_body() {
        let mut world = world(&["name=a,body_time=2s"]);
        assert_eq!(ask(&mut world, "/1", 0).1, Duration::from_secs(2));
    }

    #[test]
    fn upstream_fetch_is_charged_to_its_target() {
        let mut world = world(&["name=api,upstream", "name=t.test,rate=1", "name=u.test"]);
        let mut upstream = |target: &str| {
            let text = ask(&mut world, target, 0).2;
            let line = text
                .lines()
                .find_map(|l| l.strip_prefix("X-Upstream-Status-Code: "));
            assert!(text.contains("200 OK"));
            line.map(str::to_owned)
        };
        assert_eq!(
            upstream("/?url=http%3A%2F%2Ft.test%3A80%2Fx").as_deref(),
            Some("200")
        );
        assert_eq!(
            upstream("/?key=1&url=http://t.test").as_deref(),
            Some("429")
        );
        assert_eq!(upstream("/?url=http://u.test/").as_deref(), Some("200"));
        assert_eq!(upstream("/?url=nothing"), None);
        assert_eq!(upstream("/"), None);
    }

    #[test]
    fn a_cost_is_sent_and_charged() {
        let mut world = world(&["name=a,fixed=10/1s,cost=2.5"]);
        let text = ask(&mut world, "/1", 0).2;
        assert!(text.contains("X-Actual-Cost: 2.500"));
        assert_eq!(
            kinds(&mut world, 4),
            [Kind::Served, Kind::Served, Kind::Served, Kind::Refused]
        );
    }

    #[test]
    fn pages_differ_and_have_links_only_if_set() {
        let mut plain = world(&["name=a"]);
        let (first, second) = (ask(&mut plain, "/1", 0).2, ask(&mut plain, "/2", 0).2);
        assert!(first != second && !first.contains("href") && first.len() > 600);
        let mut linked = world(&["name=a,links=next"]);
        assert!(ask(&mut linked, "/7", 0).2.contains("href=\"/8\""));
    }
}
