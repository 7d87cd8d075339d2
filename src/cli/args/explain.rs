//! What a usage error says: clap's message on one line, and how to mend it.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Subcommand};

use super::super::foreign::orders::Order;
use super::super::foreign::{self, Answer, Unknown};
use super::{Cli, Command};
use crate::cli::shell::{quoted, word as quoted_word};

/// Clap's message on one line: what was wrong, where, and how to mend it.
pub fn explain(error: &clap::Error, args: &[OsString]) -> String {
    let command = command_of(args);
    if let Some(whole) = with_one_dash(args).or_else(|| verb_first(args)) {
        return whole;
    }
    if error.kind() == ErrorKind::MissingRequiredArgument
        && let Some(whole) = directory_behind_fields(args)
    {
        return whole;
    }
    let texts: Vec<&str> = args.iter().skip(1).filter_map(|arg| arg.to_str()).collect();
    let order = order_in(&texts);
    if let Some(whole) = order.and_then(|order| wrong_order(error, order)) {
        return whole;
    }
    if let Some(whole) = negative(error, args) {
        return whole;
    }
    let context = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    };
    let option = context(ContextKind::InvalidArg).and_then(form_of);
    let text = error.render().to_string();
    let what: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let what = what.join(" ");
    let what = what.trim_start_matches("error: ");
    if error.kind() == ErrorKind::ValueValidation && option.is_none() && what.contains("; ") {
        // It says how to mend it.
        return what.to_owned();
    }
    let mend = match error.kind() {
        ErrorKind::UnknownArgument => match unknown_of(args, context(ContextKind::InvalidArg)) {
            Some(unknown) => match unknown.answer(&flags_of_commands()) {
                Some(Answer::Instead(whole)) => return whole,
                Some(Answer::Guess(guess)) => Some(guess),
                None => None,
            },
            None => None,
        },
        ErrorKind::InvalidSubcommand if command.is_none() => {
            let word = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            foreign::cure_of_command(
                word,
                Cli::command().get_subcommands().map(|it| it.get_name()),
            )
        }
        ErrorKind::InvalidValue if context(ContextKind::InvalidValue) == Some("") => {
            let flag = context(ContextKind::InvalidArg).filter(|arg| arg.starts_with('-'));
            flag.map(|flag| match flag.split(' ').next() {
                Some("--header") => {
                    "write -H 'Name: value'; to follow links to all hosts, as wget's -H, write --follow all"
                        .to_owned()
                }
                Some("--set") => {
                    let silent = match command {
                        Some("crawl") => "write --quiet",
                        _ => "leave it out",
                    };
                    format!("write -s NAME=VALUE, a setting; for no progress, as curl's -s, {silent}")
                }
                _ => format!("write {flag}"),
            })
        }
        ErrorKind::TooManyValues => {
            let flag = context(ContextKind::InvalidArg).and_then(|arg| arg.split(' ').next());
            let value = context(ContextKind::InvalidValue).unwrap_or("DIR");
            flag.map(|flag| match flag {
                "--resume" => format!("write --resume --out {}", quoted(Path::new(value))),
                flag => format!("write {flag} without a value"),
            })
        }
        ErrorKind::WrongNumberOfValues => context(ContextKind::InvalidArg).and_then(of_pair),
        ErrorKind::MissingRequiredArgument if companion(args).is_some() => {
            companion(args).map(|both| format!("write {both}"))
        }
        ErrorKind::MissingRequiredArgument if swallowed(error, args).is_some() => {
            swallowed(error, args)
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation if option.is_some() => option,
        ErrorKind::MissingRequiredArgument => command.and_then(|command| {
            let of_order = order.and_then(Order::example);
            let example = of_order.or_else(|| example_of(command))?;
            Some(format!("as in `{example}`; see `argiope {command} --help`"))
        }),
        _ => None,
    };
    let suggested = || {
        // Of values and nested commands; clap's guesses at flags are too bold.
        let suggested = error.get(ContextKind::SuggestedSubcommand)?;
        let name = match suggested {
            ContextValue::String(name) => name,
            // The best guess comes last.
            ContextValue::Strings(names) => names.last()?,
            _ => return None,
        };
        Some(format!("did you mean {name}?"))
    };
    let help = || match command {
        Some(command) => format!("see `argiope {command} --help`"),
        None => "see `argiope --help`".to_owned(),
    };
    let mend = mend.or_else(suggested).unwrap_or_else(help);
    format!("{what}; {mend}")
}

/// A long flag with one dash, which is read as several short ones: the whole message.
fn with_one_dash(args: &[OsString]) -> Option<String> {
    let command = command_of(args)?;
    let flags = flags_of_commands();
    let (_, flags) = flags.iter().find(|(name, _)| name == command)?;
    let mut texts = args.iter().skip(1).filter_map(|arg| arg.to_str());
    let wrong = texts.find(|text| {
        let name = text.split('=').next().unwrap_or(text);
        name.len() > 3
            && flags
                .iter()
                .any(|flag| flag.strip_prefix('-') == Some(name))
    })?;
    Some(format!("no {wrong}; write -{wrong}, with two hyphens"))
}

/// `ctl stop DIR`: the whole message.
fn verb_first(args: &[OsString]) -> Option<String> {
    let mut words = args.iter().skip(1).filter_map(|arg| arg.to_str());
    words.find(|word| *word == "ctl")?;
    let (verb, folder) = (words.next()?, words.next());
    let line = Cli::command();
    line.find_subcommand("ctl")?.find_subcommand(verb)?;
    let folder = quoted_word(folder.unwrap_or("DIR"));
    Some(format!(
        "{verb:?} stands where the directory does; write argiope ctl {folder} {verb}"
    ))
}

/// The order among the words of `ctl DIR ORDER …`.
fn order_in<'a>(texts: &'a [&'a str]) -> Option<Order<'a>> {
    let is_flag = |text: &str| text.starts_with('-');
    let at = texts.iter().position(|text| !is_flag(text))?;
    let words = (texts[at] == "ctl").then(|| &texts[at + 1..])?;
    let mut plain = (0..words.len()).filter(|at| !is_flag(words[*at]));
    let (folder, at) = (plain.next()?, plain.next()?);
    Some(Order {
        folder: words[folder],
        word: words[at],
        rest: &words[at + 1..],
    })
}

/// An order that `ctl` does not have, or an argument that its order does not take: the whole message.
fn wrong_order(error: &clap::Error, order: Order<'_>) -> Option<String> {
    let line = Cli::command();
    let ctl = line.find_subcommand("ctl")?;
    if order.word != "help" && ctl.find_subcommand(order.word).is_none() {
        let names = ctl.get_subcommands().map(|it| it.get_name().to_owned());
        return Some(order.unknown(&names.collect::<Vec<_>>()));
    }
    match (error.kind(), error.get(ContextKind::InvalidArg)?) {
        (ErrorKind::UnknownArgument, ContextValue::String(argument)) => order.unexpected(argument),
        _ => None,
    }
}

/// A negative number behind a flag with a value, which is read as a flag: the whole message.
fn negative(error: &clap::Error, args: &[OsString]) -> Option<String> {
    let found = match (error.kind(), error.get(ContextKind::InvalidArg)?) {
        (ErrorKind::UnknownArgument, ContextValue::String(found)) => found.as_str(),
        _ => return None,
    };
    let texts: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let is_negative = |text: &str| text.parse::<f64>().is_ok_and(|number| number < 0.0);
    // Clap may name its first letter alone.
    let begins = |text: &&str| is_negative(text) && text.starts_with(found);
    let at = texts.iter().position(begins)?;
    let (flag, value) = (texts[at.checked_sub(1)?], texts[at]);
    takes_value(args, flag).then(|| {
        format!("{value:?} is read as a flag; as the value of {flag} write {flag}={value}")
    })
}

/// Whether the command has this flag, with a value.
fn takes_value(args: &[OsString], flag: &str) -> bool {
    let line = Cli::command();
    let command = command_of(args).and_then(|name| line.find_subcommand(name));
    let is_flag = |arg: &&clap::Arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}"));
        [long, short].into_iter().flatten().any(|name| name == flag)
    };
    let arg = command.and_then(|command| command.get_arguments().find(is_flag));
    arg.is_some_and(|arg| arg.get_action().takes_values())
}

/// Flags that are given without those that they need: all of them.
fn companion(args: &[OsString]) -> Option<&'static str> {
    const PAIRS: [(&str, &str, &str); 5] = [
        (
            "--ignore-robots-everywhere",
            "--ignore-robots",
            "--ignore-robots --ignore-robots-everywhere",
        ),
        ("--salvage", "--resume", "--resume --salvage --out DIR"),
        (
            "--admin-token-file",
            "--admin",
            "--admin 127.0.0.1:9115 --admin-token-file FILE",
        ),
        ("--targets", "--every", "--targets FILE --every 15s"),
        ("--depth", "--from", "--from SEED --depth N"),
    ];
    let has = |flag: &str| {
        let mut texts = args.iter().filter_map(|arg| arg.to_str());
        texts.any(|text| text.split('=').next() == Some(flag))
    };
    let mut pairs = PAIRS.iter();
    let pair = pairs.find(|(flag, needed, _)| has(flag) && !has(needed))?;
    Some(pair.2)
}

/// A URL that a flag has taken as its value, where the URL is what is missing. The value of the flag is none.
fn swallowed(error: &clap::Error, args: &[OsString]) -> Option<String> {
    const MAY_BE_URLS: [&str; 12] = [
        "--allow",
        "--base",
        "--contact",
        "--data",
        "--data-binary",
        "--deny",
        "--extract",
        "--from",
        "--proxy",
        "--url",
        "-A",
        "-d",
    ];
    let is_url = |text: &String| text.starts_with("<URL>");
    match error.get(ContextKind::InvalidArg)? {
        ContextValue::Strings(missing) if missing.iter().any(is_url) => {}
        _ => return None,
    }
    let texts: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let begins = |text: &&str| text.starts_with("http://") || text.starts_with("https://");
    let at = texts.iter().rposition(begins)?;
    // The flags with two words take the last but one, too.
    let before = texts[..at].iter().rev().take(2);
    let flag = before.copied().find(|text| text.starts_with('-'))?;
    if !takes_value(args, flag) || MAY_BE_URLS.contains(&flag) {
        return None;
    }
    let of_others = match flag {
        "-H" | "--header" => "; to follow links to all hosts, as wget's -H, write --follow all",
        "-s" => "; curl's -s is not needed: leave it out",
        _ => "",
    };
    Some(format!(
        "{flag} has taken {} as its value: give {flag} its own, and the URL behind that{of_others}",
        texts[at]
    ))
}

/// `export --csv url status DIR`, where the directory is read as a field: the whole message.
fn directory_behind_fields(args: &[OsString]) -> Option<String> {
    if command_of(args)? != "export" {
        return None;
    }
    let texts: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let at = |flag: &&str| texts.iter().position(|text| text == flag);
    let flag = ["--csv", "--parquet"]
        .into_iter()
        .find(|flag| at(flag).is_some())?;
    let is_field = |text: &&&str| !text.starts_with('-');
    let begin = at(&flag)?;
    let values: Vec<&str> = (texts[begin + 1..].iter().take_while(is_field))
        .copied()
        .collect();
    let (folder, fields) = values.split_last()?;
    if fields.is_empty() || !Path::new(folder).is_dir() {
        return None;
    }
    let folder = quoted(Path::new(folder));
    let before = texts.get(at(&"export")? + 1..begin)?;
    let behind = &texts[begin + 1 + values.len()..];
    let words = [before, &[flag], fields, behind].concat();
    let words: Vec<String> = words.into_iter().map(quoted_word).collect();
    Some(format!(
        "{flag} has taken {folder} as a field: write argiope export {folder} {}",
        words.join(" ")
    ))
}

/// How the value of an option is written.
fn form_of(arg: &str) -> Option<String> {
    let form = match arg.split(' ').next()? {
        "--results" => "write --results - > FILE, or --out DIR for files",
        "--depth" => "write --depth 1 or more; without --from a URL is judged as a seed",
        "<PRIORITY>" => "write a whole number from -1000 to 1000",
        _ => return None,
    };
    Some(form.to_owned())
}

/// An example of a flag that takes two words.
fn of_pair(flag: &str) -> Option<String> {
    let example = match flag.split(' ').next()? {
        "--user-for" => "--user-for example.com name:password",
        "--header-for" => "--header-for example.com 'X-Key: value'",
        _ => return None,
    };
    Some(format!("as in `{example}`"))
}

/// The first example of a command's help.
fn example_of(command: &str) -> Option<String> {
    let line = Cli::command();
    let help = line.find_subcommand(command)?.get_after_help()?.to_string();
    let mut lines = help.lines().map(str::trim);
    lines
        .find(|line| line.starts_with("argiope "))
        .map(str::to_owned)
}

/// The flag that a command does not have. Clap takes `-np` for several; other programs do not.
fn unknown_of<'a>(args: &'a [OsString], found: Option<&'a str>) -> Option<Unknown<'a>> {
    let command = command_of(args).unwrap_or_default();
    let texts: Vec<&str> = (args.iter().skip(1))
        .filter_map(|arg| arg.to_str())
        .collect();
    let with_value = |at: usize| {
        let (flag, value) = match texts[at].split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (texts[at], texts.get(at + 1).copied()),
        };
        Unknown {
            command,
            flag,
            value,
        }
    };
    let flags = (0..texts.len()).filter(|at| texts[*at].starts_with('-'));
    let mut unknown = flags.map(with_value);
    let no_value = |flag| Unknown {
        command,
        flag,
        value: None,
    };
    unknown
        .find(|unknown| unknown.is_foreign())
        .or_else(|| found.map(no_value))
}

/// The long flags of each command, with its name.
pub fn flags_of_commands() -> Vec<(String, Vec<String>)> {
    let line = Cli::command();
    let commands = line.get_subcommands();
    commands
        .map(|command| {
            let longs = command.get_arguments().filter_map(|arg| arg.get_long());
            let flags = longs.map(|long| format!("--{long}"));
            (command.get_name().to_owned(), flags.collect())
        })
        .collect()
}

/// The first word that is a command.
fn command_of(args: &[OsString]) -> Option<&str> {
    let words = args.iter().skip(1).filter_map(|arg| arg.to_str());
    words.into_iter().find(|word| Command::has_subcommand(word))
}
