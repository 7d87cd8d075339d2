//! How an origin is described: `name=bucket,rate=5,burst=5,latency=20ms`.

use std::time::Duration;

use super::fields::Generation;
use super::limit::{Burst, Limit, Schedule};

/// The grammar, as `--help` tells it.
pub const GRAMMAR: &str = "\
An origin is KEY=VALUE pairs, parted by commas. Spans are 500us, 20ms, 2s, 1m, or plain seconds.

  name=NAME            answers to Host NAME on the common port
  port=N               has a port of its own as well; 0 takes any that is free
  latency=20ms         from the request's last byte to the reply's first; in batches by count of
                       pages: 20x30ms+20x800ms
  size=600             bytes of a page
  links=next           each page N links to N+1
  body_time=2s         the head and half of the body come at once, the rest after this

Limits (one of them; counted from the first request that is not for robots.txt):
  rate=5               a token bucket of so many units per second; moving: 20@0+5@60+40@120
  burst=5              what it holds, in units, or in time at the present rate: 1s (default: 1)
  fixed=60/60s         so many units per window; the first begins with the first request
  sliding=60/60s       so many units in any stretch of this length
  strict               refused requests are charged as well
  cost=1.5..2.5        units of a request, drawn evenly and sent in X-Actual-Cost (default: 1)
  refuse=FACE          what is refused looks like this (default: 429)
  refuse_after=0       how long a refusal takes
  retry_after=10       on refusals of the limit, and on statuses of block: seconds, `exact` (until
                       there is a unit, rounded up) or date:10 (the same as an HTTP date)
  headers=GENERATION   rate-limit fields on every reply: polli00, polli02, ietf03, ietf06, ietf07,
                       ietf10, github, x, gitlab, reddit, vimeo, discord

Blocks and faults:
  block=FACE           after so many pages every request gets this
  block_after=100      (default: 0)
  block_for=10s        then the count begins anew (default: for ever)
  fault=FACE           pages that go wrong
  fault_every=10       every so many pages (default: 1)
  ban=HEADER:TEXT      requests with this text in this header get ban_as, whatever their pace
  ban_as=FACE          (default: 403)
  cache=9:1            of ten pages nine are hits of a cache, with Age and X-Cache: HIT; they take
                       hit_latency and pass by the limit
  hit_latency=1ms
  upstream             a fetch of /?url=U is charged to the origin named in U, whose refusal is
                       sent in X-Upstream-Status-Code with status 200

robots.txt:
  robots=allow         or deny, or a status
  crawl_delay=1        as it is written there

A FACE is a status, or one of captcha, empty, hang, reset, truncated, badchunk.
";

/// How a reply looks that is not a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    Status(u16),
    /// A small page with status 200 that asks for proof of being human.
    Captcha,
    /// A page with status 200 on which nothing was found.
    Empty,
    /// No reply, ever.
    Hang,
    /// The connection is reset.
    Reset,
    /// The connection ends in the middle of a body of declared length.
    Truncated,
    /// A chunk whose size is none.
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

/// An origin as it was described.
#[derive(Clone, Debug)]
pub struct Spec {
    pub name: String,
    pub port: Option<u16>,
    /// Batches of so many pages, each with its latency; then from the first again.
    pub latency: Vec<(u64, Duration)>,
    pub size: usize,
    pub links: bool,
    pub body_time: Duration,
    pub limit: Option<Limit>,
    /// The least and the most that a request costs.
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

/// The pairs of a description; each is taken once, and what is left over at the end is a mistake.
struct Pairs<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

impl Spec {
    /// # Errors
    /// One line: which key or value is wrong.
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
                "origin `{text}`: `{key}` is unknown, given twice, or has nothing to apply to"
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
                .ok_or("it has no name")?,
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
        _ => Err("it has more than one of rate, fixed and sliding".to_owned()),
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
            None => Err(format!("`{value}` cannot be a {key}")),
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

/// A span as it is written on a command line.
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
    fn an_origin_is_what_its_pairs_say() {
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
    fn what_cannot_be_is_named() {
        let check = |text, part: &str| {
            let wrong = Spec::parse(text).expect_err(text);
            assert!(wrong.contains(part), "{wrong}");
        };
        check("rate=5", "no name");
        check("name=a,rats=5", "`rats`");
        check("name=a,rate=5,rate=6", "`rate`");
        check("name=a,rate=0", "`0` cannot be a rate");
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
    fn every_key_of_the_grammar_is_one() {
        let keys = GRAMMAR.lines().filter_map(|line| {
            let word = line.strip_prefix("  ")?.split([' ', '=']).next()?;
            (!word.is_empty()).then_some(word)
        });
        for key in keys {
            // A key that is known has something against this value, or nothing to apply to.
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
