//! Words in place of the orders of `argiope ctl`, and arguments that these do not take. A test parses each cure.

use std::path::Path;

use argiope::settings::span;

use super::{delay_of_rate, nearest};
use crate::cli::shell::{in_quotes, quoted, word as quoted_word};

/// The words of `argiope ctl DIR ORDER …`.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The directory.
    pub folder: &'a str,
    /// The word where an order is expected.
    pub word: &'a str,
    /// The words behind it.
    pub rest: &'a [&'a str],
}

impl<'a> Order<'a> {
    /// The whole message about a word that is no order. `orders`: those that there are.
    pub fn unknown(self, orders: &[String]) -> String {
        let word = self.word.to_ascii_lowercase();
        let orders = || orders.iter().map(String::as_str);
        let what = format!("{:?} is no order", self.word);
        if self.word.contains("://") {
            let added = from_standard_input(self.folder, self.word);
            let asked = self.line(&format!("url {}", quoted_word(self.word)));
            return format!("{what}; to add it as a seed write {added}, to ask about it {asked}");
        }
        if self.is_swapped()
            && let Some(message) = self.of_swapped()
        {
            return message;
        }
        if let Some(cure) = self.synonym(&word) {
            return format!("{what}; write {cure}");
        }
        // Also one in capitals.
        if let Some(near) = nearest(&word, orders()) {
            let rest = self.rest.iter().map(|word| quoted_word(word));
            let words: Vec<String> = [near.to_owned()].into_iter().chain(rest).collect();
            let line = self.line(&words.join(" "));
            return format!("{what}; did you mean {near}? write {line}");
        }
        if let Some(message) = self.of_swapped() {
            return message;
        }
        let all: Vec<&str> = orders().collect();
        format!(
            "{what}; the orders are {}, see `argiope ctl --help`",
            all.join(", ")
        )
    }

    /// Whether the word behind is rather the directory: it is one, or has the name that a crawl's has without --out.
    fn is_swapped(self) -> bool {
        let adds_seeds = self.rest.iter().any(|word| word.contains("://"));
        let is_folder = self.word == "crawl" && !adds_seeds || Path::new(self.word).is_dir();
        is_folder && !Path::new(self.folder).is_dir()
    }

    /// The whole message about a word of other programs that stands before the directory.
    fn of_swapped(self) -> Option<String> {
        let swapped = Order {
            folder: self.word,
            word: self.folder,
            ..self
        };
        let cure = swapped.synonym(&self.folder.to_ascii_lowercase())?;
        let folder = self.folder;
        Some(format!(
            "{folder:?} stands where the directory does; write {cure}"
        ))
    }

    /// The whole message about an argument that a known order does not take; `None`: there is none.
    pub fn unexpected(self, argument: &str) -> Option<String> {
        let given = quoted_word(argument);
        let cure = match (self.word, argument) {
            ("pause" | "resume", "now" | "all" | "crawl") => {
                format!("write {}", self.line(self.word))
            }
            ("pause", span) if is_number(span) => {
                let (now, later) = (self.line("pause"), self.line("resume"));
                format!("a pause has no end of its own; write {now}, and later {later}")
            }
            ("pause", name) if is_name(name) => {
                format!(
                    "for one scope write {}",
                    self.line(&format!("hold {given} 1h"))
                )
            }
            ("resume", name) if is_name(name) => {
                format!(
                    "for one scope write {}",
                    self.line(&format!("release {given}"))
                )
            }
            ("stop", "now") => format!("write {}", self.line("stop --now")),
            ("stop", span) if is_number(span) => {
                format!("write {}", self.line(&format!("stop --grace {given}")))
            }
            ("stop", name) if is_name(name) => {
                format!(
                    "for one scope write {}",
                    self.line(&format!("cancel {given}"))
                )
            }
            ("reload", _) => {
                format!(
                    "it reads the files of --config and --exclude again: write {}",
                    self.line("reload")
                )
            }
            ("limits", flag) => {
                let name = limit_of_flag(flag)?.to_ascii_lowercase();
                let value = quoted_word(self.value_of(flag).unwrap_or("1000"));
                format!("write {}", self.line(&format!("limits {name}={value}")))
            }
            ("set", "--delay" | "--concurrency") => {
                let key = argument.trim_start_matches('-');
                let value = quoted_word(self.value_of(argument).unwrap_or("2"));
                let name = self.rest.first().filter(|name| is_name(name));
                let name = quoted_word(name.unwrap_or(&"example.com"));
                format!("write {}", self.line(&format!("set {name} {key}={value}")))
            }
            ("status" | "rotate", _) => format!("write {}", self.line(self.word)),
            _ => return None,
        };
        Some(format!("{} does not take {argument:?}; {cure}", self.word))
    }

    /// An example of an order that lacks arguments.
    pub fn example(self) -> Option<String> {
        let mut examples = EXAMPLES.iter();
        let (_, example) = examples.find(|(order, _)| *order == self.word)?;
        // With the name that was given.
        let example = match self.rest.first() {
            Some(name) if is_name(name) => example.replace("example.com", &quoted_word(name)),
            _ => (*example).to_owned(),
        };
        Some(self.line(&example))
    }

    /// What does the same as a word of other programs.
    fn synonym(self, word: &str) -> Option<String> {
        let mut rows = SYNONYMS.iter();
        let (_, cure) = rows.find(|(words, _)| words.contains(&word))?;
        let url = self.rest.first().filter(|word| word.contains("://"));
        if let (Some(url), true) = (url, cure.starts_with("seeds ")) {
            return Some(from_standard_input(self.folder, url));
        }
        let mut words = self.rest.iter();
        let name = words.find(|word| is_name(word) && !is_number(word));
        let number = self.rest.iter().find(|word| is_number(word));
        let own = |part: &str| match part {
            // Without a name `default` is about all.
            "example.com" | "default" => name.map_or(part.to_owned(), |name| quoted_word(name)),
            part => match (part.split_once('='), number) {
                (Some((key @ "delay", _)), Some(number)) if RATES.contains(&word) => {
                    format!("{key}={}", quoted_word(&delay_of_rate(number)))
                }
                (Some((key, _)), Some(number)) => format!("{key}={}", quoted_word(number)),
                _ => part.to_owned(),
            },
        };
        let cure: Vec<String> = cure.split(' ').map(own).collect();
        Some(self.line(&cure.join(" ")))
    }

    /// The value of a flag among the words behind the order.
    fn value_of(self, flag: &str) -> Option<&'a str> {
        let joined = |word: &&'a str| word.strip_prefix(flag)?.strip_prefix('=');
        self.rest.iter().find_map(joined).or_else(|| {
            let at = self.rest.iter().position(|word| *word == flag)?;
            self.rest.get(at + 1).copied()
        })
    }

    fn line(self, order: &str) -> String {
        let folder = quoted(Path::new(self.folder));
        format!("argiope ctl {folder} {order}")
    }
}

/// The command that adds a URL as a seed.
pub fn from_standard_input(folder: &str, url: &str) -> String {
    let (url, folder) = (in_quotes(url), quoted(Path::new(folder)));
    format!("echo {url} | argiope ctl {folder} seeds -")
}

/// The limit that a flag of `crawl` sets: of `max-pages` or `--max-pages`.
pub fn limit_of_flag(flag: &str) -> Option<&'static str> {
    let flag = flag.trim_start_matches('-').replace('_', "-");
    let mut limits = LIMITS.iter();
    let (_, name) = limits.find(|(own, _)| own.eq_ignore_ascii_case(&flag))?;
    Some(name)
}

/// The limit of this name among those that an order changes.
pub fn limit_named(setting: &str) -> Option<&'static str> {
    let others = OTHER_LIMITS.iter().copied();
    let mut names = LIMITS.iter().map(|(_, name)| *name).chain(others);
    names.find(|name| name.eq_ignore_ascii_case(setting))
}

const OTHER_LIMITS: [&str; 5] = [
    "CONCURRENT_REQUESTS",
    "BYTES_PER_SECOND_MAX",
    "CLOSESPIDER_ERRORCOUNT",
    "PAGES_PER_DOMAIN_MAX",
    "BYTES_PER_DOMAIN_MAX",
];

const LIMITS: [(&str, &str); 4] = [
    ("max-pages", "CLOSESPIDER_PAGECOUNT"),
    ("max-pages-per-host", "PAGES_PER_HOST_MAX"),
    ("max-bytes", "CLOSESPIDER_BYTECOUNT"),
    ("max-time", "CLOSESPIDER_TIMEOUT"),
];

/// Whether a word is a number or a duration. Others that begin with a digit are names: `163.com`, `10.0.0.1`.
fn is_number(word: &str) -> bool {
    let begins = word.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let is_span = || match span(word) {
        Ok(_) => true,
        // A rate, or a duration in other units, is answered with the one that is meant.
        Err(problem) => problem.mend.starts_with("write "),
    };
    begins && (word.parse::<f64>().is_ok() || is_span())
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && !word.starts_with('-')
}

/// Words whose number is of requests per second.
const RATES: [&str; 2] = ["rate", "speed"];

/// Words of other programs, and the order that does the same.
pub(super) const SYNONYMS: &[(&[&str], &str)] = &[
    (
        &[
            "halt",
            "quit",
            "end",
            "exit",
            "finish",
            "shutdown",
            "terminate",
            "term",
        ],
        "stop",
    ),
    (&["kill", "abort", "stop-now", "force-stop"], "stop --now"),
    (&["continue", "unpause", "start", "run", "go"], "resume"),
    (&["suspend", "freeze", "wait", "sleep"], "pause"),
    (
        &[
            "delay", "throttle", "slow", "rate", "speed", "pace", "interval",
        ],
        "set default delay=2",
    ),
    (
        &["concurrency", "parallel", "connections"],
        "set default concurrency=2",
    ),
    (
        &[
            "block",
            "ban",
            "skip",
            "deny",
            "ignore",
            "blacklist",
            "reject",
            "blocklist",
        ],
        "exclude example.com",
    ),
    (
        &["unblock", "unban", "allow", "unexclude"],
        "include example.com",
    ),
    (
        &["add", "seed", "feed", "submit", "enqueue", "push", "crawl"],
        "seeds urls.txt",
    ),
    (
        &[
            "stats",
            "stat",
            "info",
            "progress",
            "show",
            "ps",
            "state",
            "statistics",
        ],
        "status",
    ),
    (&["queue", "pending", "frontier"], "queues"),
    (&["list", "ls", "top", "slowest"], "scopes"),
    (&["hosts", "domains"], "scopes"),
    (&["why", "where"], "url https://example.com/"),
    (&["reset", "clear", "relearn"], "forget default"),
    (
        &["unhold", "unfreeze", "unblock-scope"],
        "release example.com",
    ),
    (
        &["remove", "delete", "drop", "purge", "rm"],
        "cancel example.com",
    ),
    (
        &["limit", "max-pages", "maxpages", "max_pages", "pages"],
        "limits closespider_pagecount=1000",
    ),
    (
        &["refresh", "hup", "reconfigure", "config", "restart"],
        "reload",
    ),
    (&["loglevel", "log-level", "verbose", "debug"], "log debug"),
    (&["quiet", "silent"], "log error"),
    (&["flush", "logrotate", "reopen"], "rotate"),
    (
        &["prioritize", "prio", "boost", "nice"],
        "priority example.com 5",
    ),
    (
        &["settings", "options", "change", "update"],
        "set example.com delay=2",
    ),
];

/// An example of each order that needs arguments.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    ("scope", "scope example.com"),
    ("decisions", "decisions example.com"),
    ("host", "host example.com"),
    ("url", "url https://example.com/"),
    ("set", "set example.com delay=2"),
    ("hold", "hold example.com 1h"),
    ("release", "release example.com"),
    ("priority", "priority example.com 5"),
    ("forget", "forget default"),
    ("unset", "unset example.com"),
    ("cancel", "cancel example.com"),
    ("include", "include example.com"),
    ("seeds", "seeds urls.txt"),
];
