//! robots.txt as RFC 9309 defines it, and as the field reads what people really write.
//!
//! Beyond the RFC: `Crawl-delay`; a group of stacked user-agent lines is ended by rules alone, not
//! by blank lines, unknown lines or a Crawl-delay among them; common misspellings and a forgotten
//! colon are understood; files in UTF-16 that say so are read.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::time::Duration;

mod pattern;

use pattern::Steps;

use super::octets::percent_encoded;

/// A robots.txt, parsed for every agent it names.
#[derive(Clone, Debug, Default)]
pub struct Robots {
    groups: Vec<Group>,
    sitemaps: Vec<String>,
}

impl Robots {
    /// Reads a file. Nothing can be wrong with it: lines that say nothing are passed over.
    ///
    /// Of a file longer than [`LENGTH_MAX`] the lines that are whole within it count.
    pub fn parse(file: &[u8]) -> Self {
        let mut robots = Robots::default();
        let mut open = Opening::default();
        let file = as_utf8(within_limit(file));
        for (number, line) in (1u32..).zip(lines(&file)) {
            let Some((key, value)) = key_and_value(line) else {
                continue;
            };
            match key {
                // Several names on one line are no RFC, but leave no doubt of what is wished.
                Key::UserAgent => value.split(|octet| *octet == b',').for_each(|name| {
                    open.agent(&mut robots.groups, token(name.trim_ascii()));
                }),
                Key::Allow | Key::Disallow => {
                    let Some(group) = open.rule(&mut robots.groups) else {
                        continue;
                    };
                    // An empty path matches nothing, but its line is a rule and ends the stack.
                    if !value.is_empty() {
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
        robots
    }

    /// What the file says to one agent: all groups that name it, together, or else those for `*`.
    ///
    /// A version is no part of a name: `foobot/1.2` is `foobot`. Names compare without regard to
    /// ASCII case, and as wholes.
    pub fn agent(&self, product: &str) -> Rules {
        let wanted = token(product.trim().as_bytes());
        let mut rules = self.of_token(&wanted);
        if rules.is_none() && wanted != "*" {
            rules = self.of_token("*");
        }
        rules.unwrap_or_default()
    }

    /// The sitemaps that the file names, as it writes them; where that is not UTF-8, with each octet
    /// beyond ASCII percent-encoded.
    pub fn sitemaps(&self) -> &[String] {
        &self.sitemaps
    }

    fn of_token(&self, wanted: &str) -> Option<Rules> {
        let mut named = false;
        let mut delay = None;
        let mut lines: Vec<&RuleLine> = Vec::new();
        for group in &self.groups {
            let mut here = false;
            for agent in group.agents.iter().filter(|agent| agent.token == wanted) {
                here = true;
                delay = delay.max(agent.delay);
            }
            if here {
                named = true;
                lines.extend(&group.rules);
            }
        }
        named.then(|| Rules::new(lines, delay))
    }
}

/// What a robots.txt says to one agent: compact, to be kept for as long as it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The patterns one after the other, in the order of `rules`.
    text: Box<str>,
    /// The longest pattern first, and Allow before Disallow: the first that matches decides.
    rules: Box<[Entry]>,
    delay: Option<Duration>,
}

impl Rules {
    /// Rules that forbid everything: what an unreachable robots.txt says (RFC 9309, 2.3.1.4).
    pub fn disallow_all() -> Self {
        let line = RuleLine {
            allow: false,
            pattern: "/".to_owned(),
            line: 0,
        };
        Rules::new(vec![&line], None)
    }

    /// Rules that forbid nothing: what an absent robots.txt says (RFC 9309, 2.3.1.3).
    pub fn allow_all() -> Self {
        Rules::default()
    }

    /// Whether a URL may be fetched, by its path and query.
    ///
    /// The longest pattern that matches decides, Allow among equals; `/robots.txt` itself is
    /// always allowed. A file made to cost more than [`STEPS_MAX`] comparisons forbids: its
    /// owner can have no better wish than to be left alone.
    pub fn allowed(&self, path_and_query: &str) -> Verdict<'_> {
        let undecided = Verdict {
            allowed: true,
            rule: None,
        };
        let path = path_and_query.split('?').next().unwrap_or("");
        if self.rules.is_empty() || path == "/robots.txt" {
            return undecided;
        }
        let path = match path_and_query {
            "" => Cow::Borrowed("/"),
            given => pattern::of_path(given),
        };
        let mut steps = Steps(STEPS_MAX);
        let mut start = 0;
        for entry in &self.rules {
            let text = &self.text[start..entry.end as usize];
            start = entry.end as usize;
            match pattern::matches(text, &path, &mut steps) {
                Some(false) => {}
                Some(true) => {
                    return Verdict {
                        allowed: entry.allow,
                        rule: Some(Rule {
                            allow: entry.allow,
                            pattern: text,
                            line: entry.line,
                        }),
                    };
                }
                None => {
                    return Verdict {
                        allowed: false,
                        rule: None,
                    };
                }
            }
        }
        undecided
    }

    /// The pause that the file asks for between requests.
    pub fn crawl_delay(&self) -> Option<Duration> {
        self.delay
    }

    /// Bytes on the heap, for whoever keeps many within a bound.
    pub fn heap_size(&self) -> usize {
        self.text.len() + size_of_val(&*self.rules)
    }

    fn new(mut lines: Vec<&RuleLine>, delay: Option<Duration>) -> Self {
        lines.sort_by_key(|line| (Reverse(line.pattern.len()), !line.allow, line.line));
        let mut text = String::with_capacity(lines.iter().map(|line| line.pattern.len()).sum());
        let rules = lines
            .into_iter()
            .map(|line| {
                text.push_str(&line.pattern);
                Entry {
                    end: text.len() as u32,
                    line: line.line,
                    allow: line.allow,
                }
            })
            .collect();
        Rules {
            text: text.into(),
            rules,
            delay,
        }
    }
}

/// Whether a URL may be fetched, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// It may.
    pub allowed: bool,
    /// The rule that decided; `None` where none matched.
    pub rule: Option<Rule<'a>>,
}

/// One rule, as it was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    /// `Allow`, not `Disallow`.
    pub allow: bool,
    /// Its path pattern, percent-encoded in the one spelling used for comparing.
    pub pattern: &'a str,
    /// Its line in the file, from 1.
    pub line: u32,
}

/// How much of a file is read: the least that RFC 9309, 2.5, asks for. Whoever fetches it need not
/// take in more.
pub const LENGTH_MAX: usize = 500 * 1024;

/// How many octets one decision may compare: some ten milliseconds of work. The longest honest
/// files known take a hundredth.
pub const STEPS_MAX: usize = 16 << 20;

#[derive(Clone, Debug, Default)]
struct Group {
    agents: Vec<Agent>,
    rules: Vec<RuleLine>,
}

impl Group {
    fn push(&mut self, allow: bool, path: &[u8], line: u32) {
        self.rules.push(RuleLine {
            allow,
            pattern: pattern::of_rule(path),
            line,
        });
    }
}

#[derive(Clone, Debug)]
struct Agent {
    token: String,
    delay: Option<Duration>,
}

#[derive(Clone, Debug)]
struct RuleLine {
    allow: bool,
    pattern: String,
    line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Where its pattern ends in the text.
    end: u32,
    line: u32,
    allow: bool,
}

/// Where the reader stands between user-agent lines and rules.
///
/// The last group takes further agents until it has had a rule. A Crawl-delay is for the agents
/// stacked since the one before it: of `a`, delay, `b`, delay, rules each agent gets its own delay,
/// and both get the rules.
#[derive(Default)]
struct Opening {
    /// The last group has had a rule.
    ruled: bool,
    /// The last agents have had their delay.
    delayed: bool,
    /// The first of the agents that the next delay is for.
    stack_start: usize,
}

impl Opening {
    fn agent(&mut self, groups: &mut Vec<Group>, token: String) {
        if groups.is_empty() || self.ruled {
            groups.push(Group::default());
            *self = Opening::default();
        }
        let agents = &mut groups.last_mut().expect("one was just pushed").agents;
        if self.delayed {
            self.delayed = false;
            self.stack_start = agents.len();
        }
        agents.push(Agent { token, delay: None });
    }

    /// The group that a rule belongs to; none before the first user-agent line.
    fn rule<'a>(&mut self, groups: &'a mut [Group]) -> Option<&'a mut Group> {
        let group = groups.last_mut()?;
        self.ruled = true;
        Some(group)
    }

    fn delay(&mut self, groups: &mut [Group], delay: Duration) {
        let Some(group) = groups.last_mut() else {
            return;
        };
        self.delayed = true;
        for agent in &mut group.agents[self.stack_start..] {
            agent.delay = agent.delay.max(Some(delay));
        }
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

/// The file without its byte order mark, and in UTF-8 if the mark says that it is in UTF-16.
fn as_utf8(file: &[u8]) -> Cow<'_, [u8]> {
    let wide = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        let text: String = char::decode_utf16(units)
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
        Cow::Owned(text.into_bytes())
    };
    match file {
        [0xEF, 0xBB, 0xBF, rest @ ..] => Cow::Borrowed(rest),
        [0xFF, 0xFE, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => wide(rest, u16::from_be_bytes),
        _ => Cow::Borrowed(file),
    }
}

/// The lines, ended by CR, LF or CRLF, without comments and surrounding blanks.
fn lines(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut after_cr = false;
    file.split(move |octet| {
        let of_the_same_end = after_cr && *octet == b'\n';
        after_cr = *octet == b'\r';
        matches!(octet, b'\r' | b'\n') && !of_the_same_end
    })
    .map(|line| {
        let end = line.iter().position(|octet| *octet == b'#');
        line[..end.unwrap_or(line.len())].trim_ascii()
    })
}

/// What a line says, if anything. A line of just two words is taken as one whose colon is missing.
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

/// The product token at the beginning of an agent's name, in lower case; `*` for everybody.
fn token(name: &[u8]) -> String {
    let end = name
        .iter()
        .position(|octet| octet.is_ascii_whitespace() || b"/,;()<>[]{}&+\"".contains(octet));
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).to_ascii_lowercase()
}

/// The folder whose index page this is: who allows `/x/index.html` allows `/x/` too, as Google
/// reads it.
fn folder_of_index(path: &[u8]) -> Option<Vec<u8>> {
    let slash = path.iter().rposition(|octet| *octet == b'/')?;
    path[slash + 1..]
        .starts_with(b"index.htm")
        .then(|| [&path[..=slash], b"$"].concat())
}

/// A number of seconds, with fractions; what follows the number is passed over.
fn seconds(value: &[u8]) -> Option<Duration> {
    let end = value
        .iter()
        .position(|octet| !octet.is_ascii_digit() && *octet != b'.')
        .unwrap_or(value.len());
    let number: f64 = str::from_utf8(&value[..end]).ok()?.parse().ok()?;
    Duration::try_from_secs_f64(number.min(DELAY_MAX)).ok()
}

/// The longest pause a file can ask for, a year; a crawl has its own, much lower, limit.
const DELAY_MAX: f64 = 365.0 * 86_400.0;

#[cfg(test)]
mod tests;
