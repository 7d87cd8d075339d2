//! Parses robots.txt by RFC 9309, and leniently as other crawlers do.
//!
//! Beyond the RFC: `Crawl-delay`; only rules end a group of stacked user-agent lines, not blank or
//! unknown lines or a Crawl-delay among them; common misspellings and missing colons are accepted;
//! UTF-16 files with a byte order mark are decoded.
//!
//! Hand-written: of three crates one hangs on a rule of many stars, one rejects whole files, one does not
//! reduce `foobot/1.2` to its token, and all end a group of stacked user-agents at a Crawl-delay.

use std::borrow::Cow;
use std::time::Duration;

mod pattern;
mod rules;

use rules::Packed;
pub use rules::{Rule, Rules, STEPS_MAX, Verdict};

use super::charset;
use super::octets::percent_encoded;
use crate::base::units::Units;

/// A parsed robots.txt with the groups of all agents.
#[derive(Clone, Debug, Default)]
pub struct Robots {
    groups: Vec<Group>,
    sitemaps: Vec<String>,
}

impl Robots {
    /// Parses a file. This cannot fail: invalid lines are skipped.
    ///
    /// Of a file longer than [`LENGTH_MAX`] only complete lines within it count.
    pub fn parse(file: &[u8]) -> Self {
        let mut reading = RobotsReading::of_all(file);
        while !reading.step(&mut Units::unbounded()) {}
        reading.robots
    }

    /// The rules for one agent: those of all groups that name it, or else those for `*`.
    ///
    /// A version is not part of a name: `foobot/1.2` means `foobot`. Names are compared as a whole,
    /// ignoring ASCII case.
    pub fn agent(&self, product: &str) -> Rules {
        let wanted = token(product.trim().as_bytes());
        let mut rules = self.of_token(&wanted);
        if rules.is_none() && wanted != "*" {
            rules = self.of_token("*");
        }
        rules.unwrap_or_default()
    }

    /// The sitemaps named in the file, as written; if not UTF-8, with each non-ASCII byte
    /// percent-encoded.
    pub fn sitemaps(&self) -> &[String] {
        &self.sitemaps
    }

    fn of_token(&self, wanted: &str) -> Option<Rules> {
        let mut named = false;
        let mut delay = None;
        let mut rules = Packed::default();
        for group in &self.groups {
            let mut here = false;
            for agent in group.agents.iter().filter(|agent| agent.token == wanted) {
                here = true;
                delay = delay.max(group.delays.get(agent.stack).copied());
            }
            if here {
                named = true;
                rules.append(&group.rules);
            }
        }
        named.then(|| rules.into_rules(delay))
    }
}

/// Parses a robots.txt in bounded steps.
#[derive(Debug)]
pub(crate) struct RobotsReading<B> {
    file: B,
    /// The file in UTF-8, if it is in UTF-16.
    recoded: Option<Vec<u8>>,
    at: usize,
    end: usize,
    line: u32,
    open: Opening,
    /// If set, only groups for this agent and for `*` are kept.
    agent: Option<Box<str>>,
    robots: Robots,
}

impl<B: AsRef<[u8]>> RobotsReading<B> {
    /// Parses a file for one agent: keeps the groups for that agent and for `*`.
    pub fn new(file: B, product: &str) -> Self {
        RobotsReading {
            agent: Some(token(product.trim().as_bytes()).into()),
            ..RobotsReading::of_all(file)
        }
    }

    fn of_all(file: B) -> Self {
        let octets = file.as_ref();
        let recoded = charset::utf_16(within_limit(octets)).map(String::into_bytes);
        let (at, end) = match &recoded {
            Some(text) => (0, text.len()),
            None => (mark_length(octets), within_limit(octets).len()),
        };
        RobotsReading {
            recoded,
            at: at.min(end),
            end,
            file,
            line: 0,
            open: Opening::default(),
            agent: None,
            robots: Robots::default(),
        }
    }

    /// Parses more; returns whether the file is finished.
    pub fn step(&mut self, units: &mut Units) -> bool {
        let file = match &self.recoded {
            Some(text) => &text[..],
            None => &self.file.as_ref()[..self.end],
        };
        while self.at < self.end {
            if units.is_spent() {
                return false;
            }
            let rest = &file[self.at..];
            let ends = |octet: &u8| matches!(octet, b'\r' | b'\n');
            let length = rest.iter().position(ends).unwrap_or(rest.len());
            let end = if rest[length..].starts_with(b"\r\n") {
                2
            } else {
                1
            };
            self.at += (length + end).min(rest.len());
            self.line += 1;
            units.spend(length * OCTET_UNITS + LINE_UNITS);
            let agent = self.agent.as_deref();
            let line = without_comment(&rest[..length]);
            read_line(&mut self.robots, &mut self.open, line, self.line, agent);
        }
        true
    }

    /// The rules for the agent, and the sitemaps in the file.
    pub fn into_rules(self) -> (Rules, Vec<String>) {
        let product = self.agent.as_deref().unwrap_or("*");
        (self.robots.agent(product), self.robots.sitemaps)
    }

    /// Bytes of memory used besides the file.
    pub fn memory(&self) -> usize {
        // Rules are about as long as their lines.
        self.recoded.as_ref().map_or(0, Vec::capacity) + self.end
    }
}

/// Handles one line. `only`: skip groups for agents other than this one and `*`.
fn read_line(
    robots: &mut Robots,
    open: &mut Opening,
    line: &[u8],
    number: u32,
    only: Option<&str>,
) {
    let Some((key, value)) = key_and_value(line) else {
        return;
    };
    match key {
        // Several names on one line are not in the RFC, but unambiguous.
        Key::UserAgent => value.split(|octet| *octet == b',').for_each(|name| {
            let token = token(name.trim_ascii());
            let matters = only.is_none_or(|only| token == only || token == "*");
            open.agent(&mut robots.groups, matters.then_some(token));
        }),
        Key::Allow | Key::Disallow => {
            let Some(group) = open.rule(&mut robots.groups) else {
                return;
            };
            // An empty path matches nothing, but its line is a rule and ends the stack.
            if !value.is_empty() && !group.agents.is_empty() {
                let allow = matches!(key, Key::Allow);
                if allow && let Some(folder) = folder_of_index(value) {
                    group.push(allow, &folder, number);
                }
                group.push(allow, value, number);
            }
        }
        Key::CrawlDelay => {
            if let Some(delay) = seconds(value) {
                open.delay(&mut robots.groups, delay);
            }
        }
        Key::Sitemap => {
            if !value.is_empty() {
                let sitemap = match str::from_utf8(value) {
                    Ok(text) => Cow::Borrowed(text),
                    Err(_) => percent_encoded(value),
                };
                robots.sitemaps.push(sitemap.into_owned());
            }
        }
    }
}

/// Cost of reading a line, and of each byte of it.
const LINE_UNITS: usize = 32;
const OCTET_UNITS: usize = 2;

/// Maximum number of bytes read of a file: the minimum required by RFC 9309, 2.5. No more needs to
/// be downloaded.
pub const LENGTH_MAX: usize = 500 * 1024;

#[derive(Clone, Debug, Default)]
struct Group {
    agents: Vec<Agent>,
    /// The delays of the stacks of agents that have one.
    delays: Vec<Duration>,
    rules: Packed,
}

impl Group {
    fn push(&mut self, allow: bool, path: &[u8], line: u32) {
        self.rules.push(allow, &pattern::of_rule(path), line);
    }
}

#[derive(Clone, Debug)]
struct Agent {
    token: String,
    /// Index of the stack that contains it.
    stack: usize,
}

/// Position of the parser between user-agent lines and rules.
///
/// The last group accepts further agents until it has had a rule. A Crawl-delay applies to the
/// agents stacked since the previous one: in `a`, delay, `b`, delay, rules, each agent gets its own
/// delay, and both get the rules.
#[derive(Debug, Default)]
struct Opening {
    /// A group is open.
    is_open: bool,
    /// It has had a rule.
    ruled: bool,
    /// The last agents have a delay already.
    delayed: bool,
}

impl Opening {
    /// Handles an agent; `None` for one that is not kept.
    fn agent(&mut self, groups: &mut Vec<Group>, token: Option<String>) {
        if !self.is_open || self.ruled {
            // An unused group is reused.
            match groups.last_mut().filter(|last| last.agents.is_empty()) {
                Some(last) => *last = Group::default(),
                None => groups.push(Group::default()),
            }
            *self = Opening {
                is_open: true,
                ..Opening::default()
            };
        }
        let group = groups.last_mut().expect("one was just pushed");
        self.delayed = false;
        if let Some(token) = token {
            let stack = group.delays.len();
            group.agents.push(Agent { token, stack });
        }
    }

    /// The group of a rule; `None` before the first user-agent line.
    fn rule<'a>(&mut self, groups: &'a mut [Group]) -> Option<&'a mut Group> {
        let group = groups.last_mut()?;
        self.ruled = true;
        Some(group)
    }

    fn delay(&mut self, groups: &mut [Group], delay: Duration) {
        let Some(group) = groups.last_mut() else {
            return;
        };
        match group.delays.last_mut().filter(|_| self.delayed) {
            Some(longest) => *longest = delay.max(*longest),
            None => group.delays.push(delay),
        }
        self.delayed = true;
    }
}

#[derive(Clone, Copy)]
enum Key {
    UserAgent,
    Allow,
    Disallow,
    CrawlDelay,
    Sitemap,
}

impl Key {
    fn of(name: &[u8]) -> Option<Self> {
        let names: [(Key, &[&str]); 5] = [
            (Key::UserAgent, &["user-agent", "useragent", "user agent"]),
            (Key::Allow, &["allow"]),
            (
                Key::Disallow,
                &[
                    "disallow",
                    "dissallow",
                    "dissalow",
                    "disalow",
                    "diasllow",
                    "disallaw",
                    "desallow",
                ],
            ),
            (
                Key::CrawlDelay,
                &["crawl-delay", "crawldelay", "crawl delay"],
            ),
            (Key::Sitemap, &["sitemap", "site-map"]),
        ];
        names.into_iter().find_map(|(key, spellings)| {
            spellings
                .iter()
                .any(|spelling| name.eq_ignore_ascii_case(spelling.as_bytes()))
                .then_some(key)
        })
    }
}

/// The file up to its limit, cut at the end of a line.
fn within_limit(file: &[u8]) -> &[u8] {
    if file.len() <= LENGTH_MAX {
        return file;
    }
    let head = &file[..LENGTH_MAX];
    let end = head
        .iter()
        .rposition(|octet| matches!(octet, b'\n' | b'\r'));
    &head[..end.unwrap_or(0)]
}

/// Length of a UTF-8 byte order mark.
fn mark_length(file: &[u8]) -> usize {
    if file.starts_with(b"\xEF\xBB\xBF") {
        3
    } else {
        0
    }
}

/// A line without its comment and surrounding blanks.
fn without_comment(line: &[u8]) -> &[u8] {
    let end = line.iter().position(|octet| *octet == b'#');
    line[..end.unwrap_or(line.len())].trim_ascii()
}

/// The key and value of a line, if it has a known key. A line of exactly two words counts as one
/// with a missing colon.
fn key_and_value(line: &[u8]) -> Option<(Key, &[u8])> {
    if let Some(colon) = line.iter().position(|octet| *octet == b':') {
        let key = Key::of(line[..colon].trim_ascii())?;
        return Some((key, line[colon + 1..].trim_ascii()));
    }
    let blank = line.iter().position(u8::is_ascii_whitespace)?;
    let (key, value) = (&line[..blank], line[blank..].trim_ascii());
    if value.iter().any(u8::is_ascii_whitespace) {
        return None;
    }
    Some((Key::of(key)?, value))
}

/// The product token at the beginning of an agent's name, in lower case; `*` for all agents.
fn token(name: &[u8]) -> String {
    let end = name
        .iter()
        .position(|octet| octet.is_ascii_whitespace() || b"/,;()<>[]{}&+\"".contains(octet));
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).to_ascii_lowercase()
}

/// The folder of an index page: allowing `/x/index.html` also allows `/x/`, as in Google's parser.
fn folder_of_index(path: &[u8]) -> Option<Vec<u8>> {
    let slash = path.iter().rposition(|octet| *octet == b'/')?;
    path[slash + 1..]
        .starts_with(b"index.htm")
        .then(|| [&path[..=slash], b"$"].concat())
}

/// A number of seconds with fractions; text after the number is ignored.
fn seconds(value: &[u8]) -> Option<Duration> {
    let end = value
        .iter()
        .position(|octet| !octet.is_ascii_digit() && *octet != b'.')
        .unwrap_or(value.len());
    let number: f64 = str::from_utf8(&value[..end]).ok()?.parse().ok()?;
    Duration::try_from_secs_f64(number.min(DELAY_MAX)).ok()
}

/// Maximum delay in a file, a year; crawls have their own, much lower limit.
const DELAY_MAX: f64 = 365.0 * 86_400.0;

#[cfg(test)]
mod tests;
