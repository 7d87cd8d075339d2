//! Parses the specification of an origin: `name=bucket,rate=5,burst=5,latency=20ms`.

use std::time::Duration;

use super::fields::Generation;
use super::limit::{Burst, Limit, Schedule};

/// The grammar, part of `--help`.
pub const GRAMMAR: &str = "\
An origin is KEY=VALUE pairs, separated by commas. Durations are 500us, 20ms, 2s, 1m, or plain seconds.

  name=NAME            the host name on the common port
  port=N               also listens on this port; 0 takes a free one
  latency=20ms         from the request's last byte to the reply's first; in batches by count of
                       pages: 20x30ms+20x800ms
  size=600             bytes of a page
  links=next           each page N links to N+1
  body_time=2s         the head and half of the body are sent at once, the rest after this

Limits (one of them; counted from the first request that is not for robots.txt):
  rate=5               a token bucket, in units per second; changing over time: 20@0+5@60+40@120
  burst=5              its size, in units, or in time at the current rate: 1s (default: 1)
  fixed=60/60s         units per window; the first window begins with the first request
  sliding=60/60s       units in any period of this length
  strict               refused requests are charged as well
  cost=1.5..2.5        units of a request, uniform, sent in X-Actual-Cost (default: 1)
  refuse=FACE          the reply to a refused request (default: 429)
  refuse_after=0       the delay of that reply
  retry_after=10       on refusals by the limit, and on a block with a status: seconds, `exact` (until
                       a unit is available, rounded up) or date:10 (seconds as an HTTP date)
  headers=GENERATION   rate-limit headers on every reply: polli00, polli02, ietf03, ietf06, ietf07,
                       ietf10, github, x, gitlab, reddit, vimeo, discord

Blocks and faults:
  block=FACE           the reply to every request after block_after pages
  block_after=100      (default: 0)
  block_for=10s        then the count begins again (default: no end)
  fault=FACE           the reply in place of some pages
  fault_every=10       one in this many pages (default: 1)
  ban=HEADER:TEXT      requests with this text in this header get ban_as, at any pace
  ban_as=FACE          (default: 403)
  cache=9:1            of ten pages nine are cache hits, with Age and X-Cache: HIT; they take
                       hit_latency and are not charged to the limit
  hit_latency=1ms
  upstream             a request for /?url=U is charged to the origin named in U; the status that
                       origin would send is in X-Upstream-Status-Code, the own status is 200

robots.txt:
  robots=allow         or deny, or a status
  crawl_delay=1        the value of Crawl-delay

A FACE is a status, or one of captcha, empty, hang, reset, truncated, badchunk.
";

/// A reply that is not a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    Status(u16),
    /// A small CAPTCHA page with status 200.
    Captcha,
    /// A page with status 200 and no results.
    Empty,
    /// No reply, ever.
    Hang,
    /// The connection is reset.
    Reset,
    /// The connection is closed in the middle of a body with Content-Length.
    Truncated,
    /// A chunk with an invalid size.
    BadChunk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    Seconds(u64),
    Date(u64),
    Exact,
}

#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub face: Face,
    pub after: u64,
    pub span: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct Ban {
    /// In lower case.
    pub header: String,
    pub text: String,
    pub face: Face,
}

#[derive(Clone, Copy, Debug)]
pub struct Cache {
    pub hits: u64,
    pub misses: u64,
    pub latency: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Robots {
    Allow,
    Deny,
    Status(u16),
}

/// The specification of an origin.
#[derive(Clone, Debug)]
pub struct Spec {
    pub name: String,
    pub port: Option<u16>,
    /// Batches: a number of pages and their latency; cyclic.
    pub latency: Vec<(u64, Duration)>,
    pub size: usize,
    pub links: bool,
    pub body_time: Duration,
    pub limit: Option<Limit>,
    /// Minimum and maximum cost of a request.
    pub cost: Option<(f64, f64)>,
    pub refuse: Face,
    pub refuse_after: Duration,
    pub retry_after: Option<RetryAfter>,
    pub headers: Option<Generation>,
    pub block: Option<Block>,
    pub fault: Option<(Face, u64)>,
    pub ban: Option<Ban>,
    pub cache: Option<Cache>,
    pub upstream: bool,
    pub robots: Robots,
    pub crawl_delay: Option<String>,
}

/// The pairs of a specification; each is taken once, and a pair left over at the end is an error.
struct Pairs<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

impl Spec {
    /// # Errors
    /// One line that names the wrong key or value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pairs = text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "true")))
            .collect();
        let mut pairs = Pairs { pairs };
        let spec = Self::from_pairs(&mut pairs);
        let spec = spec.map_err(|wrong| format!("origin `{text}`: {wrong}"))?;
        match pairs.pairs.first() {
            None => Ok(spec),
            Some((key, _)) => Err(format!(
                "origin `{text}`: `{key}` is unknown, given twice, or lacks the key it belongs to"
            )),
        }
    }

    fn from_pairs(pairs: &mut Pairs<'_>) -> Result<Self, String> {
        let strict = pairs.take("strict", flag)?.unwrap_or(false);
        let limit = limit(pairs, strict)?;
        let block = match pairs.take("block", face)? {
            None => None,
            Some(face) => Some(Block {
                face,
                after: pairs.take("block_after", number)?.unwrap_or(0),
                span: pairs.take("block_for", span)?,
            }),
        };
        let fault = match pairs.take("fault", face)? {
            None => None,
            Some(face) => Some((face, pairs.take("fault_every", positive)?.unwrap_or(1))),
        };
        let ban = match pairs.take("ban", |text| text.split_once(':'))? {
            None => None,
            Some((header, text)) => Some(Ban {
                header: header.to_ascii_lowercase(),
                text: text.to_owned(),
                face: pairs.take("ban_as", face)?.unwrap_or(Face::Status(403)),
            }),
        };
        let cache = match pairs.take("cache", ratio)? {
            None => None,
            Some((hits, misses)) => Some(Cache {
                hits,
                misses,
                latency: pairs.take("hit_latency", span)?.unwrap_or_default(),
            }),
        };
        Ok(Spec {
            name: pairs
                .take("name", |name| Some(name.to_ascii_lowercase()))?
                .ok_or("no name")?,
            port: pairs.take("port", number)?,
            latency: pairs
                .take("latency", batches)?
                .unwrap_or_else(|| vec![(1, Duration::ZERO)]),
            size: pairs.take("size", number)?.unwrap_or(600),
            links: pairs
                .take("links", |text| (text == "next").then_some(()))?
                .is_some(),
            body_time: pairs.take("body_time", span)?.unwrap_or_default(),
            limit,
            cost: pairs.take("cost", costs)?,
            refuse: pairs.take("refuse", face)?.unwrap_or(Face::Status(429)),
            refuse_after: pairs.take("refuse_after", span)?.unwrap_or_default(),
            retry_after: pairs.take("retry_after", retry_after)?,
            headers: pairs.take("headers", Generation::named)?,
            block,
            fault,
            ban,
            cache,
            upstream: pairs.take("upstream", flag)?.unwrap_or(false),
            robots: pairs.take("robots", robots)?.unwrap_or(Robots::Allow),
            crawl_delay: pairs.take("crawl_delay", |text| Some(text.to_owned()))?,
        })
    }
}

fn limit(pairs: &mut Pairs<'_>, strict: bool) -> Result<Option<Limit>, String> {
    let mut limits = Vec::new();
    if let Some(rates) = pairs.take("rate", schedule)? {
        let burst = pairs.take("burst", burst)?.unwrap_or(Burst::Units(1.0));
        limits.push(Limit::bucket(rates, burst, strict));
    }
    if let Some((units, period)) = pairs.take("fixed", units_per_period)? {
        limits.push(Limit::fixed(units, period, strict));
    }
    if let Some((units, period)) = pairs.take("sliding", units_per_period)? {
        limits.push(Limit::sliding(units, period, strict));
    }
    match limits.len() {
        0 | 1 => Ok(limits.pop()),
        _ => Err("more than one of rate, fixed and sliding".to_owned()),
    }
}

impl<'a> Pairs<'a> {
    fn take<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(index) = self.pairs.iter().position(|(name, _)| *name == key) else {
            return Ok(None);
        };
        let (_, value) = self.pairs.remove(index);
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => Err(format!("invalid {key}: `{value}`")),
        }
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn positive(text: &str) -> Option<u64> {
    number(text).filter(|number| *number > 0)
}

fn units(text: &str) -> Option<f64> {
    number::<f64>(text).filter(|units| units.is_finite() && *units > 0.0)
}

fn flag(text: &str) -> Option<bool> {
    number(text)
}

/// Parses a duration from the command line.
pub fn span(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    let scale = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number::<f64>(digits)? * scale).ok()
}

fn period(text: &str) -> Option<Duration> {
    span(text).filter(|span| !span.is_zero())
}

fn batches(text: &str) -> Option<Vec<(u64, Duration)>> {
    let batch = |text: &str| match text.split_once('x') {
        Some((pages, latency)) => Some((positive(pages)?, span(latency)?)),
        None => Some((1, span(text)?)),
    };
    text.split('+').map(batch).collect()
}

fn schedule(text: &str) -> Option<Schedule> {
    let step = |text: &str| match text.split_once('@') {
        Some((rate, from)) => Some((span(from)?, units(rate)?)),
        None => Some((Duration::ZERO, units(text)?)),
    };
    let steps: Vec<_> = text.split('+').map(step).collect::<Option<_>>()?;
    let begins = steps.first()?.0.is_zero();
    (begins && steps.is_sorted_by(|a, b| a.0 < b.0)).then(|| Schedule::new(steps))
}

fn burst(text: &str) -> Option<Burst> {
    match units(text) {
        Some(units) => (units >= 1.0).then_some(Burst::Units(units)),
        None => period(text).map(Burst::Span),
    }
}

fn units_per_period(text: &str) -> Option<(f64, Duration)> {
    let (amount, length) = text.split_once('/')?;
    Some((units(amount)?, period(length)?))
}

fn costs(text: &str) -> Option<(f64, f64)> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let (least, most) = (units(least)?, units(most)?);
    (least <= most).then_some((least, most))
}

fn ratio(text: &str) -> Option<(u64, u64)> {
    let (hits, misses) = text.split_once(':')?;
    Some((positive(hits)?, positive(misses)?))
}

fn retry_after(text: &str) -> Option<RetryAfter> {
    match text.strip_prefix("date:") {
        Some(seconds) => number(seconds).map(RetryAfter::Date),
        None if text == "exact" => Some(RetryAfter::Exact),
        None => number(text).map(RetryAfter::Seconds),
    }
}

fn face(text: &str) -> Option<Face> {
    Some(match text {
        "captcha" => Face::Captcha,
        "empty" => Face::Empty,
        "hang" => Face::Hang,
        "reset" => Face::Reset,
        "truncated" => Face::Truncated,
        "badchunk" => Face::BadChunk,
        _ => Face::Status(status(text)?),
    })
}

fn status(text: &str) -> Option<u16> {
    number(text).filter(|status| (200..1000).contains(status))
}

fn robots(text: &str) -> Option<Robots> {
    match text {
        "allow" => Some(Robots::Allow),
        "deny" => Some(Robots::Deny),
        _ => status(text).map(Robots::Status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Spec {
        Spec::parse(text).unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    #[test]
    fn each_pair_sets_its_field() {
        let spec = check("name=Bucket, rate=5, burst=5, latency=20ms, retry_after=exact, strict");
        assert_eq!(spec.name, "bucket");
        assert_eq!(spec.latency, [(1, Duration::from_millis(20))]);
        assert_eq!(spec.retry_after, Some(RetryAfter::Exact));
        let mut limit = spec.limit.expect("a rate is a limit");
        assert!((0..5).all(|_| limit.take(1.0, Duration::ZERO)));
        assert!(!limit.take(1.0, Duration::ZERO));
    }

    #[test]
    fn blocks_bans_caches_and_batches_are_read() {
        let spec = check(
            "name=a,block=captcha,block_after=100,ban=User-Agent:bot,ban_as=429,cache=9:1,\
             hit_latency=1ms,latency=20x30ms+20x800ms,fault=reset,fault_every=7,cost=1.5..2.5",
        );
        let block = spec.block.expect("a block");
        assert_eq!((block.face, block.after), (Face::Captcha, 100));
        let ban = spec.ban.expect("a ban");
        assert_eq!(
            (ban.header.as_str(), ban.face),
            ("user-agent", Face::Status(429))
        );
        assert_eq!(
            spec.cache.map(|cache| (cache.hits, cache.misses)),
            Some((9, 1))
        );
        assert_eq!(spec.latency[1], (20, Duration::from_millis(800)));
        assert_eq!(spec.fault, Some((Face::Reset, 7)));
        assert_eq!(spec.cost, Some((1.5, 2.5)));
    }

    #[test]
    fn error_names_the_invalid_key_or_value() {
        let check = |text, part: &str| {
            let wrong = Spec::parse(text).expect_err(text);
            assert!(wrong.contains(part), "{wrong}");
        };
        check("rate=5", "no name");
        check("name=a,rats=5", "`rats`");
        check("name=a,rate=5,rate=6", "`rate`");
        check("name=a,rate=0", "invalid rate: `0`");
        check("name=a,rate=5@10", "`5@10`");
        check("name=a,rate=5@0+6@0", "`5@0+6@0`");
        check("name=a,burst=5", "`burst`");
        check("name=a,rate=5,burst=0.5", "`0.5`");
        check("name=a,rate=5,fixed=6/1s", "more than one");
        check("name=a,fixed=6/0s", "`6/0s`");
        check("name=a,latency=fast", "`fast`");
        check("name=a,block_after=9", "`block_after`");
        check("name=a,block=99", "`99`");
        check("name=a,links=all", "`all`");
        check("name=a,headers=new", "`new`");
    }

    #[test]
    fn every_key_of_the_grammar_is_accepted() {
        let keys = GRAMMAR.lines().filter_map(|line| {
            let word = line.strip_prefix("  ")?.split([' ', '=']).next()?;
            (!word.is_empty()).then_some(word)
        });
        for key in keys {
            // A known key rejects this value, or lacks the key it belongs to.
            let wrong = Spec::parse(&format!(
                "name=a,rate=5,block=captcha,fault=reset,ban=a:b,cache=1:1,{key}=?"
            ));
            let message = format!("`{key}` is unknown");
            let twice = ["name", "rate", "block", "fault", "ban", "cache"].contains(&key);
            assert!(
                twice || !wrong.is_err_and(|wrong| wrong.contains(&message)),
                "{key}"
            );
        }
    }
}
