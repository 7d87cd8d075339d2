//! What a usage error says: clap's message on one line, and how to mend it.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Subcommand};

use super::super::foreign::{self, Answer, Unknown};
use super::{Cli, Command};

/// Clap's message on one line: what was wrong, where, and how to mend it.
pub fn explain(error: &clap::Error, args: &[OsString]) -> String {
    let command = command_of(args);
    let context = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    };
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
            flag.map(|flag| format!("write {flag}"))
        }
        ErrorKind::MissingRequiredArgument => command.and_then(|command| {
            let example = example_of(command)?;
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
    let text = error.render().to_string();
    let what: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let what = what.join(" ");
    let what = what.trim_start_matches("error: ");
    let mend = mend.or_else(suggested).unwrap_or_else(help);
    format!("{what}; {mend}")
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
    let texts = args.iter().skip(1).filter_map(|arg| arg.to_str());
    let flags = texts.filter(|text| text.starts_with('-'));
    let mut unknown = flags.map(|text| Unknown {
        command,
        flag: text.split('=').next().unwrap_or(text),
    });
    unknown
        .find(|unknown| unknown.is_foreign())
        .or_else(|| found.map(|flag| Unknown { command, flag }))
}

/// The long flags of each command, with its name.
fn flags_of_commands() -> Vec<(String, Vec<String>)> {
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
