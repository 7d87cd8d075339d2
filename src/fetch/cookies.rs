//! Cookies that replies set and later requests send (RFC 6265).
//!
//! The `cookie_store` crate parses cookies and matches them to URLs. This file adds what it lacks:
//! bounds, a deterministic order, the time as an argument, and the public suffixes for which no
//! cookie may be set.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ::url::Url;
use cookie_store::{Cookie, CookieDomain, RawCookie};
use hashbrown::HashMap;

use crate::base::records::{self, Records};
use crate::base::secret::Secret;
use crate::base::time::{Instant, Wall, nanos};
use crate::fetch::cookie_file::{self, NoCookie};
use crate::wire::url::{CrawlUrl, is_public_suffix};

/// The cookies of a crawl.
#[derive(Debug)]
pub struct Jar {
    /// By registrable domain: no cookie is shared across domains.
    domains: HashMap<Box<str>, Vec<Stored>, Secret>,
    /// The domain of each cookie, by the order in which it was last set: oldest first.
    ages: BTreeMap<u64, Box<str>>,
    next: u64,
    bounds: Bounds,
    /// Domains whose cookies changed since they were saved, if they are saved.
    unsaved: Option<BTreeSet<Box<str>>>,
}

/// Limits of the jar.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum number of cookies per registrable domain; the oldest is dropped.
    pub per_domain: usize,
    /// Maximum number of cookies in total; the oldest is dropped.
    pub in_all: usize,
}

/// What a file of cookies has.
#[derive(Debug)]
pub struct LoadedFile {
    /// Cookies that can be sent, also those that were dropped for later ones.
    pub kept: usize,
    /// Cookies that have expired.
    pub expired: usize,
    /// Cookies that were dropped at the bounds.
    pub dropped: usize,
    /// What is no cookie, or none that a reply could set.
    pub refused: Vec<NoCookie>,
    /// The bounds.
    pub bounds: Bounds,
}

/// One cookie.
#[derive(Debug)]
struct Stored {
    cookie: Cookie<'static>,
    /// Time of expiry; `None`: the end of the crawl.
    until: Option<Instant>,
    /// Position in the order of creation, which a new value does not change.
    created: u64,
    /// Position in the order of last setting.
    set: u64,
}

impl Jar {
    /// An empty jar; domains are hashed under a secret.
    pub fn new(secret: &Secret) -> Self {
        Jar {
            domains: HashMap::with_hasher(*secret),
            ages: BTreeMap::new(),
            next: 0,
            unsaved: None,
            // The minimum that RFC 6265, section 6.1, asks of a client, and a few megabytes in
            // total.
            bounds: Bounds {
                per_domain: 50,
                in_all: 10_000,
            },
        }
    }
}

impl Jar {
    /// Stores the values of a reply's Set-Cookie fields. `wall` is the wall-clock time at `now`.
    ///
    /// Rejected are cookies for a public suffix or a foreign domain, cookies longer than 4096 bytes
    /// or not sendable, `Secure` ones received over plain HTTP, those that would overwrite a
    /// `Secure` cookie from plain HTTP, and those whose name prefix (`__Secure-`, `__Host-`) does
    /// not match their attributes.
    pub fn take<'a>(
        &mut self,
        url: &CrawlUrl,
        fields: impl Iterator<Item = &'a [u8]>,
        wall: Wall,
        now: Instant,
    ) {
        let mut parsed = None;
        for field in fields.take(self.bounds.per_domain) {
            let Ok(text) = std::str::from_utf8(field) else {
                continue;
            };
            if parsed.is_none() {
                parsed = Url::parse(url.as_str()).ok();
            }
            let Some(by) = &parsed else {
                return;
            };
            if let Some((cookie, until)) = read(text, url, by, wall, now) {
                let domain = url.registrable_domain();
                if url.is_https() || !self.covers_secure(domain, &cookie, now) {
                    self.keep(domain, cookie, until, now);
                }
            }
        }
    }

    /// Saves cookies from now on.
    pub fn start_saving(&mut self) {
        self.unsaved = Some(BTreeSet::new());
    }

    /// The next registrable domain whose cookies changed since they were saved, and these as bytes; none if
    /// it has no more.
    pub fn poll_unsaved(&mut self, now: Instant) -> Option<(Box<str>, Vec<u8>)> {
        let domain = self.unsaved.as_mut()?.pop_first()?;
        let mut out = Vec::new();
        let all = self.domains.get(&domain).map_or(&[][..], Vec::as_slice);
        for stored in all.iter().filter(|stored| !stored.is_over(now)) {
            let left = stored
                .until
                .map_or(u64::MAX, |until| nanos(until.saturating_since(now)));
            let (url, text) = set_again(&stored.cookie);
            records::encode_number(LEFT, left, &mut out);
            records::encode(URL, url.as_bytes(), &mut out);
            records::encode(TEXT, text.as_bytes(), &mut out);
        }
        Some((domain, out))
    }

    /// Adds the cookies of a domain that an earlier run saved `elapsed` ago. Returns whether there are any.
    pub fn restore(&mut self, saved: &[u8], elapsed: Duration, wall: Wall, now: Instant) -> bool {
        let Some(fields) = Records::from_encoded(saved) else {
            return false;
        };
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let (urls, texts) = (fields.all(URL).map(text), fields.all(TEXT).map(text));
        let lefts = fields.all(LEFT).map(|value| {
            let mut bytes = [0; 8];
            let length = value.len().min(8);
            bytes[..length].copy_from_slice(&value[..length]);
            u64::from_le_bytes(bytes)
        });
        let mut is_any = false;
        for ((left, url), text) in lefts.zip(urls).zip(texts) {
            let left = match left {
                u64::MAX => None,
                left => Some(Duration::from_nanos(left).saturating_sub(elapsed)),
            };
            let url = CrawlUrl::parse(&url).ok();
            if let Some(url) = url.filter(|_| left.is_none_or(|left| !left.is_zero()))
                && let Ok(by) = Url::parse(url.as_str())
                && let Some((cookie, _)) = read(&text, &url, &by, wall, now)
            {
                let until = left.map(|left| now + left);
                self.keep(url.registrable_domain(), cookie, until, now);
                is_any = true;
            }
        }
        is_any
    }

    /// Adds the cookies of a file.
    pub fn load(&mut self, file: &str, wall: Wall, now: Instant) -> LoadedFile {
        let mut loaded = LoadedFile {
            kept: 0,
            expired: 0,
            dropped: 0,
            refused: Vec::new(),
            bounds: self.bounds,
        };
        for cookie in cookie_file::parse(file) {
            let cookie = match cookie {
                Ok(cookie) => cookie,
                Err(why) => {
                    loaded.refused.push(why);
                    continue;
                }
            };
            let left = match cookie.expires {
                None => None,
                Some(at) => match at.checked_sub(wall.unix_seconds()) {
                    None | Some(0) => {
                        loaded.expired += 1;
                        continue;
                    }
                    Some(left) => Some(Duration::from_secs(left).min(LIFETIME_MAX)),
                },
            };
            let url = CrawlUrl::parse(&cookie.url).ok();
            let by = url.as_ref().and_then(|url| Url::parse(url.as_str()).ok());
            let read = match (&url, &by) {
                (Some(url), Some(by)) => read(&cookie.field, url, by, wall, now),
                _ => None,
            };
            let (Some(url), Some((read, _))) = (url, read) else {
                let why = "no reply of its domain could set it";
                let place = cookie.place;
                loaded.refused.push(NoCookie { place, why });
                continue;
            };
            let until = left.map(|left| now + left);
            loaded.dropped += self.keep(url.registrable_domain(), read, until, now);
            loaded.kept += 1;
        }
        loaded
    }

    /// The value of the Cookie field for a request to this URL: longer paths first, then in order
    /// of creation (section 5.4), up to 8 KiB. `None` without cookies.
    pub fn header(&self, url: &CrawlUrl, now: Instant) -> Option<String> {
        let stored = self.domains.get(url.registrable_domain())?;
        let url = Url::parse(url.as_str()).ok()?;
        let is_for = |stored: &&Stored| !stored.is_over(now) && stored.cookie.matches(&url);
        let mut fitting: Vec<&Stored> = stored.iter().filter(is_for).collect();
        fitting.sort_by_key(|stored| (std::cmp::Reverse(stored.cookie.path.len()), stored.created));
        let mut value = String::new();
        for stored in fitting {
            let (name, held) = stored.cookie.name_value();
            if value.len() + name.len() + held.len() + 3 > HEADER_MAX {
                break;
            }
            if !value.is_empty() {
                value.push_str("; ");
            }
            value.push_str(name);
            value.push('=');
            value.push_str(held);
        }
        (!value.is_empty()).then_some(value)
    }

    /// Returns whether a cookie received over plain HTTP would overlay a `Secure` one with the same
    /// name (RFC 6265bis, section 5.7, step 16).
    fn covers_secure(&self, domain: &str, cookie: &Cookie<'_>, now: Instant) -> bool {
        let all = self.domains.get(domain).map_or(&[][..], Vec::as_slice);
        all.iter().any(|stored| {
            let other = &stored.cookie;
            other.secure() == Some(true)
                && !stored.is_over(now)
                && other.name() == cookie.name()
                && is_same_or_below(domain_of(other), domain_of(cookie))
                && path_matches(&cookie.path, &other.path)
        })
    }

    /// Keeps a cookie. Returns the number of others that are dropped for it, at the bounds.
    fn keep(
        &mut self,
        domain: &str,
        cookie: Cookie<'static>,
        until: Option<Instant>,
        now: Instant,
    ) -> usize {
        if let Some(unsaved) = &mut self.unsaved {
            unsaved.insert(domain.into());
        }
        let number = self.next;
        self.next += 1;
        let all = self.domains.entry_ref(domain).or_default();
        let same = |stored: &Stored| {
            let other = &stored.cookie;
            other.name() == cookie.name()
                && other.domain == cookie.domain
                && *other.path == *cookie.path
        };
        let mut created = number;
        all.retain(|stored| {
            if same(stored) && !stored.is_over(now) {
                created = stored.created;
            }
            let stays = !same(stored) && !stored.is_over(now);
            if !stays {
                self.ages.remove(&stored.set);
            }
            stays
        });
        let stored = Stored {
            cookie,
            until,
            created,
            set: number,
        };
        let mut dropped = 0;
        if !stored.is_over(now) {
            if all.len() >= self.bounds.per_domain {
                dropped += 1;
                // They are in the order in which they were last set.
                self.ages.remove(&all.remove(0).set);
            }
            all.push(stored);
            self.ages.insert(number, domain.into());
        }
        if all.is_empty() {
            self.domains.remove(domain);
        }
        if self.ages.len() > self.bounds.in_all {
            self.drop_oldest();
            dropped += 1;
        }
        dropped
    }

    fn drop_oldest(&mut self) {
        let Some((_, domain)) = self.ages.pop_first() else {
            return;
        };
        let all = self.domains.get_mut(&domain);
        let all = all.expect("every stored cookie is listed under its domain");
        all.remove(0);
        if all.is_empty() {
            self.domains.remove(&domain);
        }
    }
}

impl Stored {
    fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// Reads one Set-Cookie field of a reply to `url`; `by` is the same URL in the `url` crate's form.
fn read(
    text: &str,
    url: &CrawlUrl,
    by: &Url,
    wall: Wall,
    now: Instant,
) -> Option<(Cookie<'static>, Option<Instant>)> {
    let mut raw = RawCookie::parse(text.to_owned()).ok()?;
    let (name, value) = raw.name_value();
    let can_be_sent = !name.chars().chain(value.chars()).any(char::is_control);
    if text.len() > COOKIE_MAX || !can_be_sent || raw.secure() == Some(true) && !url.is_https() {
        return None;
    }
    if !matches_prefix_rules(&raw) {
        return None;
    }
    let domain = raw.domain().map(str::to_ascii_lowercase);
    if let Some(domain) = domain.as_deref().filter(|name| is_public_suffix(name)) {
        if domain != url.host_str() {
            return None;
        }
        // A host that is a public suffix itself may have cookies of its own (section 5.3).
        raw.unset_domain();
    }
    let until = lifetime(&raw, wall).map(|span| now + span);
    // Expiry is checked here, by the crawl's own clock.
    raw.set_max_age(None);
    raw.unset_expires();
    let cookie = Cookie::try_from_raw_cookie(&raw, by).ok()?;
    Some((cookie.into_owned(), until))
}

/// A URL and a Set-Cookie field that set a cookie again, without its lifetime.
fn set_again(cookie: &Cookie<'_>) -> (String, String) {
    let (name, value) = cookie.name_value();
    let is_secure = cookie.secure() == Some(true);
    let scheme = if is_secure { "https" } else { "http" };
    let path: &str = &cookie.path;
    let mut text = format!("{name}={value}; Path={path}");
    if let CookieDomain::Suffix(domain) = &cookie.domain {
        text.push_str("; Domain=");
        text.push_str(domain);
    }
    if is_secure {
        text.push_str("; Secure");
    }
    (format!("{scheme}://{}/", domain_of(cookie)), text)
}

/// The host or domain that a cookie is for.
fn domain_of<'a>(cookie: &'a Cookie<'_>) -> &'a str {
    match &cookie.domain {
        CookieDomain::HostOnly(name) | CookieDomain::Suffix(name) => name,
        CookieDomain::NotPresent | CookieDomain::Empty => "",
    }
}

/// Returns whether one of these domains equals the other or is below it.
fn is_same_or_below(one: &str, other: &str) -> bool {
    let below = |name: &str, domain: &str| {
        let rest = name.strip_suffix(domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    below(one, other) || below(other, one)
}

/// Path matching of section 5.1.4.
fn path_matches(path: &str, of: &str) -> bool {
    let rest = path.strip_prefix(of);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || of.ends_with('/'))
}

/// Returns whether a cookie matches the rules of its name prefix (RFC 6265bis, section 4.1.3). A
/// server relies on them for cookies that it did not set just now.
fn matches_prefix_rules(raw: &RawCookie<'_>) -> bool {
    let begins = |prefix: &str| {
        let start = raw.name().get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    let is_secure = raw.secure() == Some(true);
    let is_hosts = raw.domain().is_none() && raw.path() == Some("/");
    (is_secure || !begins("__Secure-")) && (is_secure && is_hosts || !begins("__Host-"))
}

/// Lifetime of a cookie, if it has one: Max-Age takes precedence over Expires (section 5.3).
fn lifetime(raw: &RawCookie<'_>, wall: Wall) -> Option<Duration> {
    let seconds = match (raw.max_age(), raw.expires_datetime()) {
        (Some(age), _) => age.whole_seconds(),
        (None, Some(date)) => {
            let now = i64::try_from(wall.unix_seconds()).unwrap_or(i64::MAX);
            date.unix_timestamp().saturating_sub(now)
        }
        (None, None) => return None,
    };
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Some(Duration::from_secs(seconds).min(LIFETIME_MAX))
}

// Labels of saved cookies. None is changed or used again.
const LEFT: u8 = 1;
const URL: u8 = 2;
const TEXT: u8 = 3;

/// Maximum length of a cookie with its attributes: the minimum that RFC 6265, section 6.1, asks of
/// a client.
const COOKIE_MAX: usize = 4096;
/// Maximum length of a Cookie field: common servers accept no more in one line.
const HEADER_MAX: usize = 8192;
/// Upper bound of a lifetime, longer than any crawl.
const LIFETIME_MAX: Duration = Duration::from_secs(400 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    /// Unix time at the start of the crawl: 2026-01-01 00:00:00 UTC.
    const WALL: u64 = 1_767_225_600;

    fn at(seconds: u64) -> Instant {
        Instant::START + Duration::from_secs(seconds)
    }

    fn url(text: &str) -> CrawlUrl {
        CrawlUrl::parse(text).expect("a URL")
    }

    fn set(jar: &mut Jar, by: &str, field: &str, seconds: u64) {
        let wall = Wall((WALL + seconds) * 1_000_000_000);
        jar.take(&url(by), [field.as_bytes()].into_iter(), wall, at(seconds));
    }

    /// Asserts what a jar that received this one field at 0 s sends to each of these URLs.
    fn check(by: &str, field: &str, expected: &[(&str, &str)]) {
        let mut jar = Jar::new(&Secret::from_seed(1));
        set(&mut jar, by, field, 0);
        for (to, value) in expected {
            let sent = jar.header(&url(to), at(1)).unwrap_or_default();
            assert_eq!(sent, *value, "{by} set {field:?}, {to}");
        }
    }

    #[test]
    fn cookies_of_a_file_are_sent_to_their_hosts_until_they_expire() {
        let mut jar = Jar::new(&Secret::from_seed(1));
        let later = WALL + 60;
        let file = format!(
            ".example.com\tTRUE\t/\tFALSE\t0\tall\t1\n\
             www.example.com\tFALSE\t/x\tTRUE\t{later}\town\t2\n\
             www.example.com\tFALSE\t/\tFALSE\t5\tgone\t3\n\
             .co.uk\tTRUE\t/\tFALSE\t0\tsuffix\t4\n\
             nonsense\n"
        );
        let loaded = jar.load(&file, Wall(WALL * 1_000_000_000), at(0));
        let places: Vec<usize> = loaded.refused.iter().map(|refused| refused.place).collect();
        assert_eq!((loaded.kept, places), (3, vec![5]));
        assert_eq!((loaded.expired, loaded.dropped), (1, 0));
        let sent = |to: &str, seconds| jar.header(&url(to), at(seconds)).unwrap_or_default();
        assert_eq!(sent("https://www.example.com/x", 1), "own=2; all=1");
        assert_eq!(sent("https://www.example.com/x", 61), "all=1");
        assert_eq!(sent("http://www.example.com/x", 1), "all=1");
        assert_eq!(sent("http://a.example.com/", 1), "all=1");
        assert_eq!(sent("http://example.org/", 1), "");
    }

    #[test]
    fn cookies_of_a_file_beyond_those_of_a_domain_are_counted() {
        let mut jar = Jar::new(&Secret::from_seed(1));
        let line = |number: usize| format!("a.example.com\tFALSE\t/\tFALSE\t0\tc{number}\t1\n");
        let file: String = (0..53).map(line).collect();
        let loaded = jar.load(&file, Wall(WALL * 1_000_000_000), at(0));
        assert_eq!((loaded.kept, loaded.dropped), (53, 3));
        assert_eq!(loaded.bounds.per_domain, 50);
    }

    #[test]
    fn cookies_are_sent_by_the_next_run_while_they_are_valid() {
        let mut jar = Jar::new(&Secret::from_seed(1));
        jar.start_saving();
        set(
            &mut jar,
            "https://a.example.com/x/y",
            "one=1; Path=/x; Secure",
            0,
        );
        set(
            &mut jar,
            "http://a.example.com/",
            "two=\"2 3\"; Domain=example.com",
            0,
        );
        set(&mut jar, "http://a.example.com/", "short=1; Max-Age=50", 0);
        set(&mut jar, "http://a.example.com/", "long=1; Max-Age=500", 0);
        let (domain, saved) = jar.poll_unsaved(at(10)).expect("it has changed");
        assert_eq!((&*domain, jar.poll_unsaved(at(10))), ("example.com", None));
        let check = |elapsed: u64, to: &str, now: u64| {
            let mut next = Jar::new(&Secret::from_seed(2));
            let wall = Wall(WALL * 1_000_000_000);
            assert!(next.restore(&saved, Duration::from_secs(elapsed), wall, at(0)));
            let next = next.header(&url(to), at(now)).unwrap_or_default();
            let same = jar
                .header(&url(to), at(10 + elapsed + now))
                .unwrap_or_default();
            assert_eq!(next, same, "{elapsed} s, {to}");
        };
        for elapsed in [0, 39, 40, 600] {
            for to in [
                "https://a.example.com/x/z",
                "http://a.example.com/",
                "http://b.example.com/x",
            ] {
                check(elapsed, to, 0);
                check(elapsed, to, 100);
            }
        }
        for cut in 0..saved.len() {
            Jar::new(&Secret::from_seed(2)).restore(&saved[..cut], Duration::ZERO, Wall(0), at(0));
        }
    }

    #[test]
    fn a_cookie_is_sent_only_to_the_urls_it_is_for() {
        check(
            "http://a.example.com/x/y",
            "n=v",
            &[
                ("http://a.example.com/x/", "n=v"),
                ("https://a.example.com:8443/x/z", "n=v"),
                ("http://a.example.com/", ""),
                ("http://a.example.com/xy", ""),
                ("http://b.example.com/x/", ""),
                ("http://example.com/x/", ""),
            ],
        );
        check(
            "http://a.example.com/x/y",
            "n=v; Domain=.Example.com; Path=/; HttpOnly",
            &[
                ("http://b.example.com/", "n=v"),
                ("http://example.com/", "n=v"),
                ("http://other.com/", ""),
            ],
        );
        check(
            "https://a.test/",
            "n=v; Secure",
            &[("https://a.test/", "n=v"), ("http://a.test/", "")],
        );
        check(
            "http://127.0.0.1:81/",
            "n=v",
            &[("http://127.0.0.1/", "n=v"), ("http://127.0.0.2/", "")],
        );
    }

    #[test]
    fn a_secure_cookie_is_not_overwritten_in_the_clear() {
        let check = |theirs: &str, by: &str, expected: &str| {
            let mut jar = Jar::new(&Secret::from_seed(1));
            set(
                &mut jar,
                "https://a.example.com/x",
                "sid=ours; Secure; Path=/x",
                0,
            );
            set(&mut jar, by, theirs, 1);
            let sent = jar.header(&url("https://a.example.com/x/y"), at(2));
            assert_eq!(sent.unwrap_or_default(), expected, "{by} set {theirs:?}");
        };
        let (clear, safe) = ("http://a.example.com/x", "https://a.example.com/x");
        check("sid=theirs; Path=/x", clear, "sid=ours");
        check("sid=theirs; Path=/x/y", clear, "sid=ours");
        check("sid=theirs; Domain=example.com; Path=/x", clear, "sid=ours");
        check("sid=; Max-Age=0; Path=/x", clear, "sid=ours");
        check("sid=theirs; Path=/", clear, "sid=ours; sid=theirs");
        check("other=theirs; Path=/", clear, "sid=ours; other=theirs");
        check("sid=theirs; Path=/x", safe, "sid=theirs");
    }

    #[test]
    fn a_cookie_must_match_the_rules_of_its_name_prefix() {
        let (clear, safe) = ("http://a.example.com/x", "https://a.example.com/x");
        for (by, field, is_stored) in [
            (safe, "__Secure-n=v; Secure", true),
            (safe, "__Secure-n=v", false),
            (clear, "__Secure-n=v; Secure", false),
            (safe, "__Host-n=v; Secure; Path=/", true),
            (safe, "__host-n=v; Secure; Path=/x", false),
            (
                safe,
                "__Host-n=v; Secure; Path=/; Domain=a.example.com",
                false,
            ),
            (safe, "__Host-n=v; Path=/", false),
            (safe, "__Hostess=v", true),
        ] {
            let value = field
                .split(';')
                .next()
                .filter(|_| is_stored)
                .unwrap_or_default();
            check(by, field, &[(safe, value)]);
        }
    }

    #[test]
    fn a_host_cannot_set_cookies_for_other_domains() {
        let none = |by: &str, field: &str, to: &str| check(by, field, &[(by, ""), (to, "")]);
        none("http://a.co.uk/", "n=v; Domain=co.uk", "http://b.co.uk/");
        none(
            "http://a.github.io/",
            "n=v; Domain=github.io",
            "http://b.github.io/",
        );
        none("http://a.test/", "n=v; Domain=test", "http://b.test/");
        none("http://a.test/", "n=v; Domain=b.test", "http://b.test/");
        none("http://a.test/", "n=v; Domain=b.a.test", "http://b.a.test/");
        none(
            "http://127.0.0.1/",
            "n=v; Domain=0.0.1",
            "http://127.0.0.1/",
        );
        none("http://a.test/", "n=v; Secure", "https://a.test/");
        none("http://a.test/", "n=a\u{1}b", "http://a.test/");
        none("http://a.test/", "no cookie", "http://a.test/");
        none(
            "http://a.test/",
            &format!("n={}", "x".repeat(4100)),
            "http://a.test/",
        );
        // A host that is a public suffix has its own cookies.
        check(
            "http://github.io/",
            "n=v; Domain=github.io",
            &[("http://github.io/", "n=v"), ("http://a.github.io/", "")],
        );
    }

    #[test]
    fn a_cookie_expires_and_a_new_value_replaces_the_old() {
        let mut jar = Jar::new(&Secret::from_seed(1));
        let sent = |jar: &Jar, seconds| jar.header(&url("http://a.test/"), at(seconds));
        set(
            &mut jar,
            "http://a.test/",
            "a=1; Max-Age=10; Expires=Thu, 01 Jan 2037 00:00:00 GMT",
            5,
        );
        set(
            &mut jar,
            "http://a.test/",
            "b=1; Expires=Thu, 01 Jan 2026 00:01:00 GMT",
            5,
        );
        set(&mut jar, "http://a.test/", "c=1", 5);
        assert_eq!(sent(&jar, 14).as_deref(), Some("a=1; b=1; c=1"));
        assert_eq!(sent(&jar, 15).as_deref(), Some("b=1; c=1"));
        assert_eq!(sent(&jar, 60).as_deref(), Some("c=1"));
        set(&mut jar, "http://a.test/", "a=2", 20);
        set(&mut jar, "http://a.test/", "c=2", 20);
        assert_eq!(
            sent(&jar, 20).as_deref(),
            Some("b=1; c=2; a=2"),
            "in order of creation"
        );
        set(&mut jar, "http://a.test/", "c=; Max-Age=0", 21);
        set(
            &mut jar,
            "http://a.test/",
            "b=; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            21,
        );
        assert_eq!(sent(&jar, 21).as_deref(), Some("a=2"));
        set(&mut jar, "http://a.test/", "a=; Max-Age=-1", 22);
        assert_eq!(sent(&jar, 22), None);
        assert!(
            jar.domains.is_empty() && jar.ages.is_empty(),
            "no entry is left"
        );
    }

    #[test]
    fn longer_paths_are_sent_first_and_the_field_is_bounded() {
        let mut jar = Jar::new(&Secret::from_seed(1));
        for field in [
            "a=1; Path=/",
            "b=1; Path=/x/y",
            "c=1; Path=/x",
            "d=1; Path=/x/y",
        ] {
            set(&mut jar, "http://a.test/", field, 0);
        }
        let sent = jar.header(&url("http://a.test/x/y/z"), at(0));
        assert_eq!(sent.as_deref(), Some("b=1; d=1; c=1; a=1"));
        for name in ["e", "f", "g"] {
            let field = format!("{name}={}", "x".repeat(4000));
            set(&mut jar, "http://a.test/", &field, 0);
        }
        let sent = jar.header(&url("http://a.test/"), at(0)).expect("cookies");
        assert!(sent.len() <= HEADER_MAX && sent.contains("f=") && !sent.contains("g="));
    }

    #[test]
    fn the_oldest_cookies_are_dropped_beyond_the_bounds() {
        let mut jar = Jar {
            bounds: Bounds {
                per_domain: 3,
                in_all: 5,
            },
            ..Jar::new(&Secret::from_seed(1))
        };
        let sent = |jar: &Jar, host: &str| jar.header(&url(&format!("http://{host}/")), at(0));
        for name in ["a", "b", "c"] {
            set(&mut jar, "http://a.test/", &format!("{name}=1"), 0);
        }
        // Setting it again makes it the newest.
        set(&mut jar, "http://a.test/", "a=2", 0);
        set(&mut jar, "http://a.test/", "d=1", 0);
        assert_eq!(sent(&jar, "a.test").as_deref(), Some("a=2; c=1; d=1"));
        for host in ["b.test", "c.test", "d.test"] {
            set(&mut jar, &format!("http://{host}/"), "n=1", 0);
        }
        assert_eq!(sent(&jar, "a.test").as_deref(), Some("a=2; d=1"));
        for host in ["e.test", "f.test"] {
            set(&mut jar, &format!("http://{host}/"), "n=1", 0);
        }
        assert_eq!(sent(&jar, "a.test"), None);
        assert_eq!(sent(&jar, "b.test").as_deref(), Some("n=1"));
        assert_eq!((jar.domains.len(), jar.ages.len()), (5, 5));
    }
}
