//! Words in place of the orders of `argiope ctl`, and arguments that these do not take. A test parses each cure.

use super::nearest;

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
            let asked = self.line(&format!("url {}", self.word));
            return format!("{what}; to add it as a seed write {added}, to ask about it {asked}");
        }
        if let Some(cure) = self.synonym(&word) {
            return format!("{what}; write {cure}");
        }
        // Also one in capitals.
        if let Some(near) = nearest(&word, orders()) {
            let line = self.line(&[&[near][..], self.rest].concat().join(" "));
            return format!("{what}; did you mean {near}? write {line}");
        }
        let swapped = Order {
            folder: self.word,
            word: self.folder,
            ..self
        };
        if let Some(cure) = swapped.synonym(&self.folder.to_ascii_lowercase()) {
            let folder = self.folder;
            return format!("{folder:?} stands where the directory does; write {cure}");
        }
        let all: Vec<&str> = orders().collect();
        format!(
            "{what}; the orders are {}, see `argiope ctl --help`",
            all.join(", ")
        )
    }

    /// The whole message about an argument that a known order does not take; `None`: there is none.
    pub fn unexpected(self, argument: &str) -> Option<String> {
        let cure = match (self.word, argument) {
            ("pause", name) if is_name(name) => {
                format!(
                    "for one scope write {}",
                    self.line(&format!("hold {name} 1h"))
                )
            }
            ("resume", name) if is_name(name) => {
                format!(
                    "for one scope write {}",
                    self.line(&format!("release {name}"))
                )
            }
            ("stop", "now") => format!("write {}", self.line("stop --now")),
            ("stop", span) if starts_with_digit(span) => {
                format!("write {}", self.line(&format!("stop --grace {span}")))
            }
            ("stop", name) if is_name(name) => {
                format!(
                    "for one scope write {}",
                    self.line(&format!("cancel {name}"))
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
                let value = self.value_of(flag).unwrap_or("1000");
                format!("write {}", self.line(&format!("limits {name}={value}")))
            }
            ("set", "--delay" | "--concurrency") => {
                let key = argument.trim_start_matches('-');
                let value = self.value_of(argument).unwrap_or("2");
                let name = self.rest.first().filter(|name| is_name(name));
                let name = name.unwrap_or(&"example.com");
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
            Some(name) if is_name(name) => example.replace("example.com", name),
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
        let name = self
            .rest
            .iter()
            .find(|word| is_name(word) && !starts_with_digit(word));
        let number = self.rest.iter().find(|word| starts_with_digit(word));
        // The address of a host is a name.
        let is_address = number.is_some_and(|number| number.matches('.').count() > 1);
        let (name, number) = match is_address {
            true => (number, None),
            false => (name, number),
        };
        let own = |part: &str| match part {
            "example.com" => (*name.unwrap_or(&"example.com")).to_owned(),
            // Without a name it is about all.
            "default" => (*name.unwrap_or(&"default")).to_owned(),
            part => match (part.split_once('='), number) {
                (Some((key, _)), Some(number)) => format!("{key}={number}"),
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
        format!("argiope ctl {} {order}", self.folder)
    }
}

/// The command that adds a URL as a seed.
pub fn from_standard_input(folder: &str, url: &str) -> String {
    format!("echo '{url}' | argiope ctl {folder} seeds -")
}

/// The limit that a flag of `crawl` sets: of `max-pages` or `--max-pages`.
pub fn limit_of_flag(flag: &str) -> Option<&'static str> {
    let flag = flag.trim_start_matches('-').replace('_', "-");
    let mut limits = LIMITS.iter();
    let (_, name) = limits.find(|(own, _)| own.eq_ignore_ascii_case(&flag))?;
    Some(name)
}

const LIMITS: [(&str, &str); 4] = [
    ("max-pages", "CLOSESPIDER_PAGECOUNT"),
    ("max-pages-per-host", "PAGES_PER_HOST_MAX"),
    ("max-bytes", "CLOSESPIDER_BYTECOUNT"),
    ("max-time", "CLOSESPIDER_TIMEOUT"),
];

fn starts_with_digit(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && !word.starts_with('-')
}

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
