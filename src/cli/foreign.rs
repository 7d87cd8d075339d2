//! Answers to flags and words that a command does not have: what users of Scrapy, wget, curl and Heritrix write instead,
//! another command that has the flag, or the nearest one if it is a typing error.

mod beginners;
mod generators;
pub mod orders;
mod settings;
mod short;
mod table;

use std::time::Duration;

use argiope::settings::{interval_of_rate, span};
use strsim::osa_distance;

pub use self::settings::cure_of_setting;

/// What to write in place of flags of other programs.
#[derive(Debug)]
struct Foreign {
    /// The commands that lack them.
    commands: &'static [&'static str],
    /// The flags, as users of other programs write them.
    flags: &'static [&'static str],
    /// What to write instead: a part of a sentence.
    cure: &'static str,
    /// Command lines that do it.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test parses them"))]
    tries: &'static [&'static str],
}

/// All of them.
fn rows() -> impl Iterator<Item = &'static Foreign> {
    let tables = [table::ROWS, generators::ROWS, beginners::ROWS, short::ROWS];
    tables.into_iter().flatten()
}

/// A flag of a command, without its value.
#[derive(Clone, Copy, Debug)]
pub struct Unknown<'a> {
    /// The command; empty: none.
    pub command: &'a str,
    /// The flag, as it was given: `--max-size`, `-r`.
    pub flag: &'a str,
    /// Its value, if it has one.
    pub value: Option<&'a str>,
}

/// What to write in place of an unknown flag.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The whole message: the flag is known elsewhere.
    Instead(String),
    /// A guess at a typing error.
    Guess(String),
}

impl Unknown<'_> {
    /// What to write instead. `flags_of`: the long flags of each command, with its name.
    pub fn answer(self, flags_of: &[(String, Vec<String>)]) -> Option<Answer> {
        let instead = |cure: String| Answer::Instead(format!("no {}; {cure}", self.flag));
        let known = || self.of_table().map(|cure| with_value(cure, self.value));
        short::of_value(self)
            .or_else(known)
            .or_else(|| self.of_other_command(flags_of))
            .map(instead)
            .or_else(|| self.nearest(flags_of).map(Answer::Guess))
            .or_else(|| self.nearest_of_table().map(Answer::Guess))
    }

    /// The cure of a flag in the table that differs by a typing error.
    fn nearest_of_table(self) -> Option<String> {
        let own = rows().filter(|row| row.commands.contains(&self.command));
        let flags = own.flat_map(|row| row.flags);
        let flag = nearest(
            self.flag,
            flags.copied().filter(|flag| flag.starts_with("--")),
        )?;
        let meant = Unknown { flag, ..self };
        let cure = with_value(meant.of_table()?, self.value);
        Some(format!("if {flag} is meant: {cure}"))
    }

    /// Whether the table knows it.
    pub fn is_foreign(self) -> bool {
        self.of_table().is_some()
    }

    /// What the table knows, in whatever case the flag was given, and with _ in place of -.
    fn of_table(self) -> Option<&'static str> {
        let is_named = |flag: &&str| match self.flag.strip_prefix("--") {
            Some(_) => flag.eq_ignore_ascii_case(&self.flag.replace('_', "-")),
            None => *flag == self.flag,
        };
        let mut rows = rows().filter(|row| row.commands.contains(&self.command));
        rows.find(|row| row.flags.iter().any(is_named))
            .map(|row| row.cure)
    }

    /// The commands that have the flag.
    fn of_other_command(self, flags_of: &[(String, Vec<String>)]) -> Option<String> {
        let has = |(_, flags): &&(String, Vec<String>)| flags.iter().any(|flag| flag == self.flag);
        let names: Vec<&str> = (flags_of.iter().filter(has))
            .map(|(name, _)| name.as_str())
            .collect();
        match names.as_slice() {
            [] => None,
            [name] => Some(format!("it is a flag of `argiope {name}`")),
            [names @ .., last] => Some(format!(
                "it is a flag of the commands {} and {last}",
                names.join(", ")
            )),
        }
    }

    /// A flag that differs by a typing error.
    fn nearest(self, flags_of: &[(String, Vec<String>)]) -> Option<String> {
        let (_, flags) = flags_of.iter().find(|(name, _)| name == self.command)?;
        let near = nearest(self.flag, flags.iter().map(String::as_str))?;
        Some(format!("did you mean {near}?"))
    }
}

/// A cure with the value that was given, where it is a number and the cure leaves its place open.
fn with_value(cure: &str, value: Option<&str>) -> String {
    if let Some(endings) = value.and_then(Endings::of) {
        let cure = cure.replace("--allow REGEX", &endings.allowing());
        return cure.replace("--deny REGEX", &endings.denying());
    }
    if let (TWO_PER_SECOND, Some(rate), Some(gap)) = (cure, value, value.and_then(interval_of_rate))
    {
        let delay = gap.as_secs_f64();
        return format!("to send {rate} to a host write --delay {delay}");
    }
    if let (true, Some(tries)) = (
        cure == TRIES,
        value.and_then(|value| value.parse::<u64>().ok()),
    ) {
        let retries = tries.saturating_sub(1);
        return format!("write -s RETRY_TIMES={retries}, one less than the tries");
    }
    let is_number = |value: &&str| {
        value.starts_with(|c: char| c.is_ascii_digit())
            && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
    };
    let Some(value) = value.filter(is_number) else {
        return cure.to_owned();
    };
    if let (TWO_PER_SECOND, Ok(rate @ 0.001..)) = (cure, value.parse::<f64>()) {
        let delay = reciprocal(rate, f64::ceil);
        return format!("to send {value} requests per second to a host write --delay {delay}");
    }
    if let (EVERY_SECOND, Ok(gap)) = (cure, span(value))
        && gap >= Duration::from_millis(1)
    {
        let rate = reciprocal(gap.as_secs_f64(), f64::floor);
        return format!("for a request every {value} write --rate {rate}");
    }
    // A number without a unit of its own.
    let is_bare = value.chars().all(|c| c.is_ascii_digit() || c == '.');
    let word = |word: &str| {
        let (word, comma) = match word.strip_suffix(',') {
            Some(word) => (word, ","),
            None => (word, ""),
        };
        let own = match word {
            "D" | "N" | "BYTES" => value.to_owned(),
            _ => match (word.strip_suffix("=N"), word.strip_suffix("=NkB")) {
                (Some(name), _) => format!("{name}={value}"),
                (_, Some(name)) if is_bare => format!("{name}={value}kB"),
                (_, Some(name)) => format!("{name}={value}"),
                _ => word.to_owned(),
            },
        };
        own + comma
    };
    cure.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The endings of files, as wget has them behind `-A` and `-R`: `jpg,pdf`, `*.pdf`.
pub struct Endings(Vec<String>);

impl Endings {
    /// The endings that a text lists; `None` if it is rather something else.
    pub fn of(text: &str) -> Option<Endings> {
        let items: Vec<&str> = text.split(',').map(str::trim).collect();
        let bare = |item: &&str| {
            item.trim_start_matches('*')
                .trim_start_matches('.')
                .to_owned()
        };
        let endings: Vec<String> = items.iter().map(bare).collect();
        let is_part = |part: &str| {
            let is_short = (1..=5).contains(&part.len());
            is_short && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        let is_ending = |ending: &String| {
            ending.split('.').all(is_part) && ending.contains(|c: char| c.is_ascii_alphabetic())
        };
        let is_marked = |item: &&str| item.starts_with("*.") || item.starts_with('.');
        let is_list = items.len() > 1
            || items.iter().any(is_marked)
            || endings
                .iter()
                .any(|ending| ENDINGS.contains(&ending.as_str()));
        (is_list && endings.iter().all(is_ending)).then_some(Endings(endings))
    }

    /// The flag by which URLs with these endings are fetched, and pages that may link to them.
    pub fn allowing(&self) -> String {
        format!("--allow '(/|[.]html?|{})$'", self.pattern())
    }

    /// The flag by which URLs with these endings are not fetched.
    pub fn denying(&self) -> String {
        format!("--deny '{}$'", self.pattern())
    }

    fn pattern(&self) -> String {
        let all: Vec<String> = self.0.iter().map(|it| it.replace('.', "[.]")).collect();
        match all.as_slice() {
            [one] => format!("[.]{one}"),
            all => format!("[.]({})", all.join("|")),
        }
    }
}

/// Endings that are known without a dot.
const ENDINGS: &[&str] = &[
    "html", "htm", "pdf", "jpg", "jpeg", "png", "gif", "svg", "webp", "zip", "gz", "mp3", "mp4",
    "xml", "txt", "csv", "doc", "docx", "xls", "xlsx", "css", "js", "php",
];

/// The seconds between requests at a rate: `2` per second, or `30/min`. What is no rate is returned as it is.
fn delay_of_rate(rate: &str) -> String {
    match (rate.parse::<f64>(), interval_of_rate(rate)) {
        (Ok(number @ 0.001..), _) => reciprocal(number, f64::ceil).to_string(),
        (_, Some(gap)) => gap.as_secs_f64().to_string(),
        _ => rate.to_owned(),
    }
}

/// One divided by `value`, with as many digits as show it, and rounded to the side that asks for less of a server.
fn reciprocal(value: f64, round: fn(f64) -> f64) -> f64 {
    let steps = if value > 100.0 { 1e6 } else { 1e3 };
    round(steps / value) / steps
}

/// The cure of flags for the time between two requests of a probe, whose value is not a rate.
const EVERY_SECOND: &str =
    "requests leave at a rate: for one every second write --rate 1, for one every two --rate 0.5";

/// The cure of flags for the number of tries, whose value is not that of retries.
const TRIES: &str = "write -s RETRY_TIMES=RETRIES, one less than the tries";

/// The cure of flags for a rate, whose value is not that of a delay.
const TWO_PER_SECOND: &str = "to send two requests per second to a host write --delay 0.5";

/// What to write in place of a word that is no command. `commands`: those that there are.
pub fn cure_of_command<'a>(word: &str, commands: impl Iterator<Item = &'a str>) -> Option<String> {
    if word.contains("://") {
        return Some(format!(
            "to crawl it write `argiope crawl {word}`, to fetch it alone `argiope fetch {word}`"
        ));
    }
    let mut rows = COMMANDS.iter();
    let known = rows.find(|(words, _)| words.contains(&word));
    let cure = known.map(|(_, cure)| format!("write `{cure}`"));
    cure.or_else(|| nearest(word, commands).map(|near| format!("did you mean {near}?")))
}

/// Commands of other programs, and what does the same here.
const COMMANDS: &[(&[&str], &str)] = &[
    (
        &[
            "run",
            "runspider",
            "spider",
            "start",
            "mirror",
            "scrape",
            "broad",
        ],
        "argiope crawl URL",
    ),
    (
        &["get", "download", "curl", "wget", "view", "shell"],
        "argiope fetch URL",
    ),
    (
        &["resume", "continue", "restart", "recover"],
        "argiope crawl --resume --out DIR",
    ),
    (&["status", "stats", "jobs"], "argiope ctl DIR status"),
    (&["stop", "quit", "kill"], "argiope ctl DIR stop"),
    (&["pause"], "argiope ctl DIR pause"),
    (&["config", "options", "params"], "argiope settings"),
    (
        &["bench", "benchmark", "load", "attack", "ping"],
        "argiope probe URL",
    ),
    (
        &["csv", "dump", "convert"],
        "argiope export DIR --csv url status",
    ),
    (&["index", "cdx", "warc"], "argiope cdxj DIR"),
    (
        &["slowest", "top", "hosts", "summary", "analyze"],
        "argiope report DIR",
    ),
    (&["parse", "extract"], "argiope links FILE --base URL"),
    (&["version"], "argiope --version"),
];

/// The word that differs from `word` by at most two letters, and by no more than a fourth of them, if there is one.
/// Letters that changed places are one difference.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_MAX {
        return None;
    }
    let letters = |word: &str| word.trim_start_matches('-').to_ascii_lowercase();
    let word = letters(word);
    let distances = known.map(|known| (osa_distance(&word, &letters(known)), known));
    let (distance, known) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= DISTANCE_MAX && distance * 4 <= letters(known).len()).then_some(known)
}

/// Longest word that is compared.
const WORD_MAX: usize = 60;

/// Most differences of a typing error.
const DISTANCE_MAX: usize = 2;

#[cfg(test)]
mod tests;
