//! Every flag of the table is given to its commands, and every cure is parsed.

use std::collections::BTreeSet;
use std::ffi::OsString;

use argiope::Config;

use super::*;
use crate::cli::args::{Parsed, command_line, parse};

/// The command line of a try: its words follow those of the command and a URL, unless it begins with a command.
fn words_of(command: &str, text: &str) -> Vec<String> {
    let words = || text.split_whitespace().map(str::to_owned);
    let has_command = ["fetch", "crawl", "export"];
    let first = words().next().unwrap_or_default();
    let mut all = vec!["argiope".to_owned()];
    if !has_command.contains(&first.as_str()) {
        all.extend([command.to_owned(), "http://a.test/".to_owned()]);
    }
    all.extend(words());
    all
}

fn parsed(words: &[String]) -> Result<(), String> {
    match parse(words.iter().map(OsString::from)) {
        Ok(Parsed::Run { .. }) => Ok(()),
        Ok(Parsed::Show(text)) => Err(text),
        Err(usage) => Err(usage.0),
    }
}

#[test]
fn each_flag_of_another_program_is_answered_with_its_cure_and_the_cure_is_accepted() {
    let mut answers = 0;
    for row in rows() {
        for command in row.commands {
            for flag in row.flags {
                let words = words_of(command, &format!("{flag} 5"));
                let error = parsed(&words).expect_err(flag);
                let cure = with_value(row.cure, Some("5"));
                assert_eq!(error, format!("no {flag}; {cure}"), "{command}");
                answers += 1;
            }
            for text in row.tries {
                let words = words_of(command, text);
                parsed(&words).unwrap_or_else(|error| panic!("{:?}: {words:?}: {error}", row.cure));
                check_settings(&words, row.cure);
            }
        }
    }
    assert!(answers > 250, "{answers}");
}

/// The flags that a cure names, and the settings with a value: `-s NAME=`.
fn named_in(cure: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_=".contains(c);
    let words = cure.split(|c: char| !is_part(c));
    let named = words.filter_map(|word| match word.split_once('=') {
        Some((name, _)) if is_setting(name) => Some(format!("{name}=")),
        _ if word.len() > 1 && word.starts_with('-') => Some(word.to_owned()),
        _ => None,
    });
    named.collect()
}

fn is_setting(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
    name.len() > 2 && name.chars().all(is_part) && name != "NAME"
}

/// Checks that the tries have all that a cure names.
fn check_tried(cure: &str, tries: &[&str]) {
    for named in named_in(cure) {
        let has = |word: &str| word == named || named.ends_with('=') && word.starts_with(&named);
        let is_tried = tries.iter().any(|text| text.split_whitespace().any(has));
        assert!(is_tried, "{named} in {cure:?} is not tried: {tries:?}");
    }
}

#[test]
fn each_flag_and_setting_in_a_cure_is_tried() {
    rows().for_each(|row| check_tried(row.cure, row.tries));
    let rows = settings::ROWS.iter();
    rows.for_each(|(_, cure, tries)| check_tried(cure, tries));
    let named = named_in("write -s RETRY_TIMES=N, or --delay D");
    assert_eq!(named, ["-s", "RETRY_TIMES=", "--delay"]);
}

/// Checks the settings of a command line, and that they are the tries' own.
fn check_settings(words: &[String], cure: &str) {
    for pair in words.windows(2).filter(|pair| pair[0] == "-s") {
        let (name, value) = pair[1].split_once('=').expect("an assignment");
        let set = Config::default().with(name, value);
        set.unwrap_or_else(|error| panic!("{cure:?}: {error}"));
    }
}

#[test]
fn each_setting_of_another_program_has_a_cure_that_is_accepted() {
    let mut names = 0;
    for (known, cure, tries) in settings::ROWS {
        for name in *known {
            assert_eq!(cure_of_setting(&name.to_lowercase()), Some(*cure));
            let unknown = Config::default().with(name, "x").expect_err(name);
            assert_eq!(unknown.problem.what, "unknown setting", "{name}");
            names += 1;
        }
        for text in *tries {
            let words = words_of("crawl", text);
            parsed(&words).unwrap_or_else(|error| panic!("{cure:?}: {error}"));
            check_settings(&words, cure);
            let flag = text.split(' ').next().expect("a flag");
            assert!(cure.contains(flag), "{flag} is not in {cure}");
        }
    }
    assert!(names > 50, "{names}");
    assert_eq!(cure_of_setting("DOWNLOAD_DELAY"), None);
}

#[test]
fn a_cure_takes_the_value_that_was_given() {
    let check_of = |command: &str, words: &str, part: &str| {
        let words: Vec<String> = format!("argiope {command} http://a.test/ {words}")
            .split(' ')
            .map(str::to_owned)
            .collect();
        let error = parsed(&words).expect_err("no such flag");
        assert!(error.contains(part), "{error}");
    };
    let check = |words: &str, part: &str| check_of("crawl", words, part);
    check_of("probe", "--interval 10", "every 10 write --rate 0.1");
    check_of("probe", "--delay 250ms", "every 250ms write --rate 4");
    check_of("probe", "--interval 3", "write --rate 0.333");
    check_of("probe", "--interval 2m", "write --rate 0.008333");
    check_of("probe", "-c 50", "--rate RATE, and --connections 50 as");
    check("--wait 3", "write --delay 3");
    check(
        "--rate=4",
        "4 requests per second to a host write --delay 0.25",
    );
    check("--max-redirect=0", "-s REDIRECT_MAX_TIMES=0");
    check("--quota 10m", "--max-bytes 10m");
    check("--wait --tries", "write --delay D");
    check("--rate 2/s", "to send 2/s to a host write --delay 0.5");
    check("--rps 30/min", "to send 30/min to a host write --delay 2");
    check("-R jpg,pdf", "write --deny '[.](jpg|pdf)$'");
    check("--accept .pdf", "write --allow '(/|[.]html?|[.]pdf)$'");
    check("--accept /docs/", "write --allow REGEX");
    // No gap is shorter than what was asked for.
    check("--rate 3", "--delay 0.334");
    check("--rps 3000", "--delay 0.000334");
    check("--rate=700", "--delay 0.001429");
    check("--max-rate 25000", "-s BYTES_PER_SECOND_MAX=25000, ");
    check("--max-rate 25000", "--delay GAP");
    check("--max-kb-sec 500", "-s BYTES_PER_SECOND_MAX=500kB");
    check("--max-kb-sec 5MB", "-s BYTES_PER_SECOND_MAX=5MB");
    check("-delay 1", "write --delay, with two hyphens");
}

#[test]
fn no_flag_stands_twice_for_a_command() {
    for (number, row) in rows().enumerate() {
        for other in rows().skip(number + 1) {
            let shared: Vec<_> = (row.flags.iter())
                .filter(|flag| other.flags.contains(flag))
                .collect();
            let commands = row.commands.iter();
            let is_shared = commands.into_iter().any(|it| other.commands.contains(it));
            assert!(shared.is_empty() || !is_shared, "{shared:?}");
        }
    }
}

#[test]
fn a_guess_differs_by_a_typing_error_at_most() {
    let flags = [
        "--max-pages",
        "--deny",
        "--io",
        "--seeds",
        "--timeout",
        "--out",
    ];
    let check = |word: &str, expected: Option<&str>| {
        assert_eq!(nearest(word, flags.into_iter()), expected, "{word}");
    };
    check("--max-page", Some("--max-pages"));
    check("--max-pgaes", Some("--max-pages"));
    check("--maxpages", Some("--max-pages"));
    check("--timout", Some("--timeout"));
    check("--Seeds", Some("--seeds"));
    check("--delay", None);
    check("--ignore-robots", None);
    check("--foo", None);
    check("--ot", None);
    check(&format!("--{}", "x".repeat(5000)), None);
}

#[test]
fn flags_of_other_commands_are_named_with_these() {
    let error = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        parsed(&words).expect_err("it has no such flag")
    };
    let of_crawl = error(&["argiope", "fetch", "http://a.test/", "--max-pages", "3"]);
    assert_eq!(of_crawl, "no --max-pages; it is a flag of `argiope crawl`");
    let of_several = error(&["argiope", "audit", "out", "--preset", "polite"]);
    assert!(
        of_several.contains("it is a flag of the commands crawl, fetch"),
        "{of_several}"
    );
    // The letters of curl and of wget differ.
    for (command, flag, part) in [
        ("fetch", "-w", "as JSON"),
        ("crawl", "-w", "--delay"),
        ("fetch", "-r", "Range:"),
        ("fetch", "-e", "Referer:"),
        ("crawl", "-e", "--ignore-robots"),
        ("crawl", "-m", "in WARC files"),
        ("crawl", "-S", "the head of each reply"),
        ("crawl", "-b", "write & behind"),
        ("fetch", "-b", "--cookies FILE"),
        ("crawl", "-U", "--user-agent"),
        ("fetch", "-U", "--proxy http://NAME"),
    ] {
        let words = ["argiope", command, "http://a.test/", flag, "5"];
        let answer = error(&words);
        assert!(answer.contains(part), "{answer}");
    }
    let near = error(&["argiope", "crawl", "http://a.test/", "--max_pages=3"]);
    assert!(near.ends_with("; did you mean --max-pages?"), "{near}");
    let unknown = error(&["argiope", "crawl", "http://a.test/", "--frobnicate"]);
    assert!(
        unknown.ends_with("'--frobnicate' found; see `argiope crawl --help`"),
        "{unknown}"
    );
    let case = error(&["argiope", "crawl", "http://a.test/", "--Max_Size", "3"]);
    assert!(case.contains("--max-body"), "{case}");
}

#[test]
fn words_that_are_no_commands_are_answered_with_these() {
    // What stops, pauses or continues a crawl does so here.
    for (word, cure) in [
        ("stop", "argiope ctl DIR stop"),
        ("pause", "argiope ctl DIR pause"),
        ("status", "argiope ctl DIR status"),
        ("resume", "argiope crawl --resume --out DIR"),
        ("download", "argiope fetch URL"),
        ("mirror", "argiope crawl URL"),
        ("version", "argiope --version"),
    ] {
        let found = cure_of_command(word, std::iter::empty());
        assert_eq!(found, Some(format!("write `{cure}`")), "{word}");
    }
    let names: Vec<String> = (command_line().get_subcommands())
        .map(|command| command.get_name().to_owned())
        .collect();
    let mut count = 0;
    for (words, cure) in COMMANDS {
        let command = cure.split(' ').nth(1).expect("a command");
        assert!(
            command.starts_with("--") || names.iter().any(|name| name == command),
            "{cure}"
        );
        for word in *words {
            assert!(
                !names.iter().any(|name| name == word),
                "{word} is a command"
            );
            let line = cure.replace("DIR", "out").replace("URL", "http://a.test/");
            let line: Vec<String> = line.split(' ').map(str::to_owned).collect();
            match parse(line.iter().map(OsString::from)) {
                Ok(Parsed::Run { .. }) => {}
                Ok(Parsed::Show(_)) if command == "--version" => {}
                other => panic!("{cure}: {other:?}"),
            }
            let error = parsed(&["argiope".to_owned(), (*word).to_owned()]).expect_err(word);
            assert!(error.ends_with(&format!("; write `{cure}`")), "{error}");
            count += 1;
        }
    }
    assert!(count > 30);
    let url = parsed(&["argiope".to_owned(), "https://a.test/".to_owned()]);
    let url = url.expect_err("a URL is no command");
    assert!(url.contains("`argiope crawl https://a.test/`"), "{url}");
    let near = parsed(&["argiope".to_owned(), "crwl".to_owned()]).expect_err("misspelt");
    assert!(near.ends_with("did you mean crawl?"), "{near}");
}

#[test]
fn words_that_are_no_orders_have_orders_that_are_accepted() {
    let line = command_line();
    let ctl = line.find_subcommand("ctl").expect("it is one");
    let orders: Vec<String> = (ctl.get_subcommands())
        .map(|order| order.get_name().to_owned())
        .collect();
    let check = |order: &str| {
        let line = format!("argiope ctl out {order}");
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        parsed(&words).unwrap_or_else(|error| panic!("{order}: {error}"));
    };
    let mut known = BTreeSet::new();
    for (words, cure) in orders::SYNONYMS {
        check(cure);
        for word in *words {
            assert!(known.insert(*word), "{word} stands twice");
            assert!(!orders.iter().any(|order| order == word), "{word}");
            let order = orders::Order {
                folder: "out",
                word,
                rest: &[],
            };
            let expected = format!("{word:?} is no order; write argiope ctl out {cure}");
            assert_eq!(order.unknown(&orders), expected);
        }
    }
    for (order, example) in orders::EXAMPLES {
        assert!(example.starts_with(order), "{example}");
        check(example);
        let words = ["argiope", "ctl", "out", order].map(str::to_owned);
        // Only what lacks arguments needs an example.
        parsed(&words).expect_err(order);
    }
    for order in &orders {
        let words = ["argiope", "ctl", "out", order].map(str::to_owned);
        let has_example = orders::EXAMPLES.iter().any(|(name, _)| name == order);
        assert_eq!(parsed(&words).is_err(), has_example, "{order}");
    }
}

#[test]
fn endings_of_files_are_no_other_words() {
    let check = |text: &str, expected: Option<&str>| {
        let found = Endings::of(text).map(|endings| endings.denying());
        assert_eq!(found.as_deref(), expected, "{text}");
    };
    check("jpg,pdf", Some("--deny '[.](jpg|pdf)$'"));
    check("*.jpg", Some("--deny '[.]jpg$'"));
    check("pdf", Some("--deny '[.]pdf$'"));
    check("*.tar.gz,zip", Some("--deny '[.](tar[.]gz|zip)$'"));
    for other in [
        "",
        "docs",
        "/docs/",
        "mybot/1.0",
        "5",
        "1.5",
        "a b,c",
        "Mozilla",
        ",",
    ] {
        check(other, None);
    }
}
