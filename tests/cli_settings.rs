//! Flags and settings of the command line, and its errors.
#![cfg(feature = "cli")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

const COMMANDS: &[&str] = &[
    "crawl",
    "fetch",
    "probe",
    "robots",
    "url",
    "links",
    "settings",
    "demo",
    "ctl",
    "state",
    "report",
    "export",
    "cdxj",
    "audit",
    "completions",
    "man",
];

const SHELLS: &[&str] = &["bash", "elvish", "fish", "powershell", "zsh"];

fn argiope(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_argiope"))
        .args(args)
        .output()
        .expect("the binary runs")
}

fn stdout(args: &[&str]) -> String {
    let output = argiope(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("stdout is UTF-8")
}

/// Checks that a command line is refused: exit code 2, nothing on stdout, one line on stderr with these
/// parts.
fn check_refused(args: &[&str], parts: &[&str]) {
    let output = argiope(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
    assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
    assert!(output.stdout.is_empty(), "{args:?} wrote to stdout");
    for part in parts {
        assert!(errors.contains(part), "{args:?}: {errors} lacks {part}");
    }
}

/// A setting as `settings --json` shows it after these arguments.
fn shown(args: &[&str], name: &str) -> (Value, String) {
    let mut all = vec!["settings", "--json"];
    all.extend(args);
    let rows: Vec<Value> = serde_json::from_str(&stdout(&all)).expect("JSON");
    let row = rows.iter().find(|row| row["name"] == name);
    let row = row.unwrap_or_else(|| panic!("{name} is not listed"));
    let source = row["source"].as_str().expect("a source");
    (row["value"].clone(), source.to_owned())
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        fs::write(&path, text).expect("a file");
        path.to_str().expect("a UTF-8 path").to_owned()
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in COMMANDS {
        let help = stdout(&[command, "--help"]);
        let example = format!("  argiope {command}");
        let (_, examples) = help.split_once("Examples:").expect(command);
        assert!(examples.contains(&example), "{help}");
        assert_eq!(stdout(&["help", command]), help);
    }
    assert!(stdout(&["--help"]).contains("Examples:"));
}

#[test]
fn examples_are_on_one_line_in_a_narrow_terminal_too() {
    for command in COMMANDS {
        let mut narrow = std::process::Command::new(env!("CARGO_BIN_EXE_argiope"));
        let narrow = narrow.args([command, "--help"]).env("COLUMNS", "40");
        let shown = narrow.output().expect("it runs").stdout;
        let shown = String::from_utf8(shown).expect("text");
        let examples = |help: &str| {
            let (_, examples) = help.split_once("Examples:").expect("examples");
            examples.to_owned()
        };
        assert_eq!(examples(&shown), examples(&stdout(&[command, "--help"])));
        let mut lines = examples(&shown)
            .trim()
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        lines.retain(|line| !line.trim().is_empty() && !line.starts_with("Exit:"));
        let is_whole = |line: &String| line.trim_start().split(' ').any(|word| word == "argiope");
        let others = ["man argiope-", "zcat "];
        let is_other = |line: &String| others.iter().any(|other| line.contains(other));
        assert!(
            lines.iter().all(|line| is_whole(line) || is_other(line)),
            "{lines:?}"
        );
    }
}

#[test]
fn every_command_is_in_the_list_of_this_test() {
    assert_eq!(listed_in(&["--help"]), COMMANDS);
}

/// The commands that a help lists.
fn listed_in(args: &[&str]) -> Vec<String> {
    let help = stdout(args);
    let (_, rest) = help.split_once("Commands:\n").expect("a list of commands");
    let lines = rest.lines().take_while(|line| !line.is_empty());
    // Descriptions go on in lines that are indented further.
    let lines = lines.filter_map(|line| line.strip_prefix("  "));
    let lines = lines.filter(|line| !line.starts_with(' '));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// The long flags in the help of a command, without the global ones.
fn flags_of(command: &str) -> Vec<String> {
    let help = stdout(&["help", command]);
    let (_, options) = help.split_once("Options:").expect("options");
    let begins = |line: &str| {
        let line = line.trim_start();
        let line = match line.split_once(", --") {
            Some((short, long)) if short.len() == 2 => format!("--{long}"),
            _ => line.to_owned(),
        };
        let name: String = line
            .strip_prefix("--")?
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || *c == '-')
            .collect();
        Some(format!("--{name}"))
    };
    let flags: Vec<String> = options.lines().filter_map(begins).collect();
    assert!(flags.contains(&"--help".to_owned()), "{command}: {flags:?}");
    flags
}

#[test]
fn completions_of_every_shell_know_every_command_and_flag() {
    for shell in SHELLS {
        let script = stdout(&["completions", shell]);
        for command in COMMANDS {
            assert!(script.contains(command), "{shell} does not know {command}");
            for flag in flags_of(command) {
                // fish completions name flags without hyphens.
                let name = match *shell {
                    "fish" => format!("-l {}", flag.trim_start_matches('-')),
                    _ => flag,
                };
                assert!(script.contains(&name), "{shell}: {command} lacks {name}");
            }
        }
    }
    check_refused(&["completions", "tcsh"], &["'tcsh'", "bash", "zsh"]);
    check_refused(&["completions"], &["<SHELL>"]);
}

#[test]
fn each_command_has_a_man_page_with_its_flags_and_examples() {
    let folder = tempfile::tempdir().expect("a folder");
    // The directory is created the first time, and exists the second time.
    let pages = folder.path().join("share/man1");
    let dir = pages.to_str().expect("a UTF-8 path");
    for _ in 0..2 {
        assert_eq!(stdout(&["man", dir]), "");
    }
    let mut found: Vec<String> = fs::read_dir(&pages)
        .expect("the directory is there")
        .map(|entry| {
            let name = entry.expect("an entry").file_name();
            name.into_string().expect("a UTF-8 name")
        })
        .collect();
    found.sort_unstable();
    let mut expected: Vec<String> = COMMANDS.iter().map(|c| format!("argiope-{c}.1")).collect();
    let of_ctl = listed_in(&["ctl", "--help"]);
    expected.extend(of_ctl.iter().map(|name| format!("argiope-ctl-{name}.1")));
    expected.push("argiope.1".to_owned());
    expected.sort_unstable();
    assert_eq!(found, expected);
    for command in COMMANDS {
        let page = fs::read_to_string(pages.join(format!("argiope-{command}.1")));
        let page = page.expect("a page").replace("\\-", "-");
        assert!(page.contains(&format!("  argiope {command}")), "{page}");
        for flag in flags_of(command) {
            assert!(page.contains(&flag), "the page of {command} lacks {flag}");
        }
    }

    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    let file = file.to_str().expect("a UTF-8 path");
    check_refused(&["man", file], &[file, "cannot create the directory"]);
    check_refused(&["man"], &["<DIR>"]);
}

#[test]
fn help_lists_no_unimplemented_flag() {
    let absent = ["--revisit", "uring", "simulate"];
    for command in COMMANDS.iter().chain(&[""]) {
        let mut args = vec!["--help"];
        args.extend((!command.is_empty()).then_some(command));
        let help = stdout(&args);
        for word in absent {
            let found = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            assert!(!found.into_iter().any(|w| w == word), "{word} in {help}");
        }
    }
}

#[test]
fn the_version_goes_to_stdout() {
    let version = format!("argiope {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(stdout(&["--version"]), version);
}

#[test]
fn a_usage_error_is_one_line() {
    check_refused(&[], &["argiope: no command given; see `argiope --help`"]);
    check_refused(&["crwl"], &["'crwl'", "did you mean crawl?"]);
    check_refused(&["fetch"], &["<URL>", "see `argiope fetch --help`"]);
    check_refused(&["crawl"], &["<URL>", "see `argiope crawl --help`"]);
    check_refused(
        &["settings", "--nope"],
        &["'--nope'", "argiope settings --help"],
    );
    check_refused(&["settings", "--timout", "3"], &["did you mean --timeout?"]);
    check_refused(&["crawl", "x", "--timeout"], &["--timeout <D>"]);
    check_refused(&["crawl", "--revisit", "x"], &["'--revisit'"]);
    check_refused(&["crawl", "--salvage", "x"], &["--resume"]);
    let missing = ["crawl", "--resume", "--out", "/no/such/folder"];
    check_refused(&missing, &["--resume: ", "/no/such/folder"]);
    check_refused(&["settings", "--json", "--toml"], &["--json", "--toml"]);
    check_refused(&["simulate", "x"], &["'simulate'"]);
}

#[test]
fn the_error_for_an_unknown_setting_names_its_place() {
    let known = ["-s DOWNLOAD_DEALY: unknown setting; did you mean DOWNLOAD_DELAY?"];
    check_refused(&["settings", "-s", "DOWNLOAD_DEALY=1"], &known);
    check_refused(
        &["crawl", "http://a.test", "-s", "DOWNLOAD_DEALY=1"],
        &known,
    );
    check_refused(
        &["settings", "-s", "X"],
        &["-s X: missing value; write -s NAME=VALUE"],
    );

    let folder = Folder::new();
    let file = folder.file("a.toml", "retry_times = 1\n\ndownload_dealy = 1\n");
    check_refused(
        &["settings", "--config", &file],
        &[&format!("{file}:3: download_dealy: unknown setting")],
    );
}

#[test]
fn the_error_for_a_wrong_value_names_its_place() {
    let check = |args: &[&str], parts: &[&str]| {
        let mut all = vec!["fetch", "http://a.test"];
        all.extend(args);
        check_refused(&all, parts);
    };
    check(
        &["--timeout", "abc"],
        &["--timeout: \"abc\" is not a duration"],
    );
    check(&["--timeout", "-1"], &["--timeout: \"-1\" is negative"]);
    check(&["--timeout=0"], &["--timeout: \"0\" is not above 0"]);
    check(
        &["--allow-net", "10.0.0.0/33"],
        &["--allow-net: ", "is not a network; give a CIDR"],
    );
    check(
        &["--resolve", "a.test:80"],
        &["--resolve: ", "write HOST:PORT:ADDR"],
    );
    check(&["--dns", "ns.test"], &["--dns: ", "is not a name server"]);
    check(&["--header", "nothing"], &["--header: ", "Name: value"]);
    check(&["--contact", "me"], &["--contact: ", "is not a contact"]);
    check(
        &["--io", "kqueue"],
        &["--io: \"kqueue\" ", "auto, epoll or uring"],
    );
    check(
        &["-s", "CONCURRENT_REQUESTS_PER_DOMAIN=0"],
        &["is too small"],
    );
    check(
        &["-s", "AUTOTHROTTLE_TARGET_CONCURRENCY=0"],
        &["is not above 0"],
    );
    check(
        &["-s", "RANDOMIZE_DOWNLOAD_DELAY=-2,1"],
        &["-1 ≤ low ≤ high"],
    );
    check(
        &["-s", "THROTTLING_SCOPES=x"],
        &["-s THROTTLING_SCOPES: ", "give a table, or JSON"],
    );
    check_refused(
        &["crawl", "http://a.test", "--max-body", "2GiB"],
        &["--max-body: ", "raise BUFFERED_BODIES_MAX"],
    );
    check_refused(
        &["crawl", "http://a.test", "--deny", "("],
        &["--deny: ", "unclosed group"],
    );
    check_refused(
        &["crawl", "http://a.test", "--follow", "hosts"],
        &["did you mean host?"],
    );
}

#[test]
fn errors_in_a_file_name_the_line() {
    let folder = Folder::new();
    let check = |text: &str, parts: &[&str]| {
        let file = folder.file("crawl.toml", text);
        check_refused(&["settings", "--config", &file], parts);
    };
    check(
        "download_delay = true\n",
        &["crawl.toml:1: download_delay: true is not a duration"],
    );
    check(
        "\n\ndownload_delay = nan\n",
        &["crawl.toml:3: ", "\"nan\" is not finite"],
    );
    check(
        "retry_times = 1_0.5\n",
        &["crawl.toml:1: retry_times: 10.5 is not a whole number"],
    );
    check("retry_times = 99999999999999999999\n", &["crawl.toml:1: "]);
    check("follow =\n", &["crawl.toml:1: ", "correct the TOML"]);
    check(
        "retry_times = 1\nRETRY_TIMES = 2\n",
        &[
            "crawl.toml:2: RETRY_TIMES: already set at ",
            "crawl.toml:1; remove one of them",
        ],
    );
    let scope = "[throttling_scopes.\"a.test\"]\ndelay = 1\nconcurency = 2\n";
    check(
        scope,
        &[
            "crawl.toml:3: throttling_scopes.\"a.test\".concurency: ",
            "did you mean concurrency?",
        ],
    );
    check_refused(
        &["settings", "--config", "/nowhere/crawl.toml"],
        &["/nowhere/crawl.toml: cannot be read"],
    );
}

#[test]
fn errors_deep_in_a_file_name_their_line_and_the_whole_path() {
    let folder = Folder::new();
    let check = |text: &str, parts: &[&str]| {
        let file = folder.file("crawl.toml", text);
        check_refused(&["settings", "--config", &file], parts);
    };
    check(
        "[throttling_scopes.\"example.com\"]\ndelay = 1\n\
         [throttling_scopes.\"example.com\".backoff]\nwindow = 9\njitter = [0.5, 0.1]\n",
        &[
            "crawl.toml:5: throttling_scopes.\"example.com\".backoff.jitter: [0.5,0.1] is out of range",
            "-1 ≤ low ≤ high",
        ],
    );
    check(
        "[throttling_scopes.a]\nbackoff = { max_delay = inf }\n",
        &["crawl.toml:2: throttling_scopes.a.backoff.max_delay: \"inf\" is not finite"],
    );
    check(
        "[throttling_scopes.a]\nquota = nan\n",
        &["crawl.toml:2: throttling_scopes.a.quota: \"nan\" is not above 0"],
    );
    check(
        "throttling_scopes = { a = 3 }\n",
        &["crawl.toml:1: throttling_scopes.a: 3 is not a map"],
    );
    check(
        "backoff_concurrency_factor = 0.5\nBACKOFF_CONCURRENCY_DECREASE_FACTOR = 0.8\n",
        &[
            "crawl.toml:2: BACKOFF_CONCURRENCY_DECREASE_FACTOR: already set at ",
            "crawl.toml:1; remove one of them",
        ],
    );
    check(
        "[throttling_scopes.a.backoff]\nmin_delay = 9\nmax_delay = 8\n",
        &["throttling_scopes.a.backoff.min_delay: ", "raise max_delay"],
    );
    let deep = format!(
        "throttling_scopes = {}1{}\n",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    check(&deep, &["crawl.toml:1: "]);
}

#[test]
fn a_file_overrides_a_preset() {
    let preset = |args: &[&str], name| {
        let mut all = vec!["--preset", "polite"];
        all.extend(args);
        let (value, source) = shown(&all, name);
        (value.as_f64().expect("a number"), source)
    };
    let name = "AUTOTHROTTLE_MAX_DELAY";
    assert_eq!(preset(&[], name), (10.0, "preset polite".to_owned()));
    let option = ["-s", "autothrottle_max_delay=7"];
    assert_eq!(preset(&option, name), (7.0, "-s".to_owned()));
    let folder = Folder::new();
    let file = folder.file("a.toml", "autothrottle_max_delay = 8\n");
    let in_file = ["--config", &file[..]];
    assert_eq!(preset(&in_file, name), (8.0, format!("{file}:1")));
    let start = preset(&in_file, "AUTOTHROTTLE_START_DELAY");
    assert_eq!(start, (2.0, "preset polite".to_owned()));
    check_refused(
        &["crawl", "http://a.test", "--preset", "brod"],
        &["--preset: unknown preset \"brod\"; did you mean broad?"],
    );
}

#[test]
fn help_explains_each_preset() {
    let help = stdout(&["crawl", "--help"]);
    let words: Vec<&str> = help.split_whitespace().collect();
    let help = words.join(" ");
    for preset in argiope::settings::presets() {
        assert!(help.contains(&format!("{} for ", preset.name)), "{help}");
    }
    assert!(help.contains("argiope crawl --preset "), "{help}");
}

#[test]
fn parser_commands_accept_settings_and_name_missing_arguments() {
    check_refused(
        &["url", "-s", "FOLOW=all", "http://a.test"],
        &["did you mean FOLLOW?"],
    );
    check_refused(
        &["robots", "/dev/null", "/x"],
        &["--agent: ", "give --agent NAME"],
    );
    assert_eq!(
        stdout(&["robots", "/dev/null", "--agent", "x", "/x"]),
        "allowed /x\n"
    );

    let folder = Folder::new();
    let page = folder.file("page.html", "<a href=/a rel=nofollow>a</a><img src=/b>");
    let links = |args: &[&str]| {
        let mut all = vec!["links", &page, "--base", "http://a.test"];
        all.extend(args);
        stdout(&all)
    };
    assert_eq!(links(&[]), "");
    assert_eq!(links(&["-s", "FOLLOW_NOFOLLOW=1"]), "http://a.test/a\n");
    assert_eq!(links(&["-s", "FOLLOW_RESOURCES=1"]), "http://a.test/b\n");
}

#[test]
fn settings_of_hosts_are_merged_and_their_secrets_are_printed_in_toml_only() {
    let folder = Folder::new();
    let text = "[hosts.\"a.test\"]\nheaders = {\"X-A\" = \"file\", \"X-B\" = \"file\"}\nuser = \"n:s3cret\"\n\
                [hosts.\"*.b.test\"]\npages_max = 7\n";
    let file = folder.file("crawl.toml", text);
    let flags = [
        "--config",
        &file,
        "--header-for",
        "A.test",
        "x-a: s3cret",
        "--user-for",
        "https://c.test",
        "m:s3cret",
        "--user",
        "o:s3cret",
    ];
    let (hosts, source) = shown(&flags, "HOSTS");
    let expected = serde_json::json!({
        "a.test": {"headers": ["X-B: ***", "x-a: ***"], "user": "n:***"},
        "*.b.test": {"pages_max": 7},
        "https://c.test": {"user": "m:***"},
    });
    assert_eq!((hosts, &*source), (expected, "--user-for"));
    assert_eq!(shown(&flags, "HTTP_USER").0, "o:***");
    let table = stdout(&[&["settings"][..], &flags].concat());
    assert!(!table.contains("s3cret"), "{table}");
    let toml = stdout(&[&["settings", "--toml"][..], &flags].concat());
    assert_eq!(toml.matches("s3cret").count(), 4, "{toml}");
    let file = folder.file("again.toml", &toml);
    assert_eq!(
        stdout(&["settings", "--toml", "--config", &file]),
        toml,
        "it is read as it was written"
    );
    // A header replaces a login, and a login a header.
    let authorization = ["--header-for", "a.test", "Authorization: x"];
    let (hosts, _) = shown(&[&flags[..2], &authorization].concat(), "HOSTS");
    assert_eq!(hosts["a.test"]["user"], Value::Null);
    let both = [&authorization[..], &["--user-for", "a.test", "n:p"]].concat();
    let (hosts, _) = shown(&both, "HOSTS");
    assert_eq!(hosts["a.test"], serde_json::json!({"user": "n:***"}));
    check_refused(
        &["settings", "--user-for", "a.test", "s3cret"],
        &["--user-for.\"a.test\".user: invalid login", "NAME:PASSWORD"],
    );
    check_refused(
        &["settings", "--header-for", "a.test", "nonsense"],
        &["--header-for", "\"a.test\".headers", "Name: value"],
    );
}

#[test]
fn url_says_which_setting_prevents_a_fetch_and_where_it_was_set() {
    let folder = Folder::new();
    let file = folder.file("crawl.toml", "depth_limit = 2\ndeny = [\"[.]pdf$\"]\n");
    let robots = folder.file("robots.txt", "User-agent: *\nDisallow: /private\n");
    let check = |args: &[&str], code: i32, expected: &str| {
        let output = argiope(&[&["url", "--fail"][..], args].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(expected), "{args:?}: {text}");
    };
    let pdf = "http://a.test/x.pdf";
    let denied = format!(
        "fetched    no: a pattern matches it: DENY=[.]pdf$ (filter denied, set by {file}:2)"
    );
    check(&["--config", &file, pdf], 1, &denied);
    let deep = [
        "--config",
        &file,
        "--from",
        "a.test",
        "--depth",
        "3",
        "http://a.test/",
    ];
    check(
        &deep,
        1,
        &format!("DEPTH_LIMIT=2 (filter depth, set by {file}:1)"),
    );
    check(&["--deny", "x", pdf], 1, "set by --deny");
    check(&["--from", "b.test", pdf], 1, "FOLLOW=host");
    check(
        &["--from", "b.test", "--follow", "all", pdf],
        0,
        "yes, as a link of a seed",
    );
    let private = ["--robots", &robots, "http://a.test/private/x"];
    check(&private, 1, "Disallow: /private (line 2)");
    check(
        &[&private[..], &["-s", "ROBOTSTXT_OBEY=0"]].concat(),
        0,
        "yes, as a seed",
    );
    check(&["http://127.0.0.1/"], 1, "--allow-net 127.0.0.1 allows it");
    check(
        &["--allow-net", "loopback", "http://127.0.0.1/"],
        0,
        "yes, as a seed",
    );
    check(&["ftp://a.test/"], 1, "fetched    no");
    check_refused(&["url", "--depth", "3", pdf], &["--from"]);
    check_refused(&["url", "--from", "a b", pdf], &["--from a b"]);
    check_refused(
        &["url", "--robots", "/nowhere", pdf],
        &["--robots /nowhere", "robots.txt"],
    );
}

#[test]
fn url_prints_the_scopes_of_the_current_map() {
    let check = |more: &[&str], expected: &[&str]| {
        let args = [&["url", "--json", "http://a.b.bbc.co.uk:81/x?y"], more].concat();
        let answer: Value = serde_json::from_str(&stdout(&args)).expect("JSON");
        assert_eq!(answer["scopes"], Value::from(expected), "{more:?}");
    };
    check(&[], &["a.b.bbc.co.uk:81"]);
    check(
        &["-s", "SCOPE_MAP=hierarchy"],
        &["bbc.co.uk", "b.bbc.co.uk", "a.b.bbc.co.uk"],
    );
    check(
        &["-s", "SCOPE_MAP=domain,endpoint,ip"],
        &["bbc.co.uk", "a.b.bbc.co.uk:81/x"],
    );
}

#[test]
fn f29_url_prints_the_address_scope_of_an_address() {
    let check = |url: &str, setting: &str, expected: &[&str]| {
        let answer = stdout(&["url", "--json", url, "-s", setting]);
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(answer["scopes"], Value::from(expected), "{url} {setting}");
    };
    check("http://10.0.0.1/z", "SCOPE_MAP=ip", &["ip/10.0.0.1"]);
    check("http://[2001:DB8::1]/", "SCOPE_MAP=ip", &["ip/2001:db8::1"]);
    let both = &["10.0.0.1:81", "ip/10.0.0.1"];
    check("http://10.0.0.1:81/z", "SCOPE_MAP=ip,host", both);
    check("http://10.0.0.1:81/", "CONCURRENT_REQUESTS_PER_IP=2", both);
    check("http://10.0.0.1/", "SCOPE_MAP=host", &["10.0.0.1"]);
    check("http://a.test/", "SCOPE_MAP=ip", &[]);
}

#[test]
fn the_error_names_the_invalid_line_of_an_exclusion_list() {
    let folder = Folder::new();
    let list = folder.file("list", "# ours\na.test\n\n*.b.test # too\nhttp://c.test\n");
    check_refused(
        &["crawl", "http://a.test", "--exclude", &list],
        &[&format!(
            "--exclude {list}:5: \"http://c.test\" is neither a host nor a network"
        )],
    );
    check_refused(
        &["crawl", "x", "--exclude", "/nowhere"],
        &["/nowhere: cannot be read"],
    );
}

#[test]
fn a_flag_overrides_s_and_s_overrides_the_file() {
    let folder = Folder::new();
    let file = folder.file(
        "crawl.toml",
        "# ours\ndownload_timeout = \"1m\"\nretry_times = 7\n",
    );
    let check = |args: &[&str], seconds: f64, source: &str| {
        let mut all = vec!["--config", &file];
        all.extend(args);
        let (value, from) = shown(&all, "DOWNLOAD_TIMEOUT");
        assert_eq!((value.as_f64(), from.as_str()), (Some(seconds), source));
    };
    check(&[], 60.0, &format!("{file}:2"));
    check(&["-s", "download_timeout=5"], 5.0, "-s");
    check(
        &["--timeout", "500ms", "-s", "download_timeout=5"],
        0.5,
        "--timeout",
    );
    check(
        &["-s", "download_timeout=5", "--timeout", "500ms"],
        0.5,
        "--timeout",
    );
    assert_eq!(shown(&[], "DOWNLOAD_TIMEOUT").1, "default");
}

#[test]
fn spin_is_off_by_default() {
    let check = |args: &[&str], seconds: f64, source: &str| {
        let (value, from) = shown(args, "SPIN");
        assert_eq!((value.as_f64(), from.as_str()), (Some(seconds), source));
    };
    check(&[], 0.0, "default");
    check(&["--spin"], 0.0002, "--spin");
    check(&["-s", "SPIN=1ms"], 0.001, "-s");
}

#[test]
fn the_table_shows_every_setting_in_a_line() {
    let rows: Vec<Value> = serde_json::from_str(&stdout(&["settings", "--json"])).expect("JSON");
    let table = stdout(&["settings", "-A", "spider/1"]);
    assert_eq!(table.lines().count(), rows.len() + 1);
    for (row, line) in rows.iter().zip(table.lines().skip(1)) {
        let name = row["name"].as_str().expect("a name");
        let meaning = row["meaning"].as_str().expect("a meaning");
        assert!(
            line.starts_with(&format!("{name} ")) && line.ends_with(meaning),
            "{line}"
        );
    }
    let agent = table
        .lines()
        .find(|line| line.starts_with("USER_AGENT"))
        .expect("a line");
    assert!(
        agent.contains("spider/1") && agent.contains("--user-agent"),
        "{agent}"
    );
}

#[test]
fn printed_toml_gives_the_same_config() {
    let folder = Folder::new();
    let check = |args: &[&str]| {
        let rows = |args: &[&str]| {
            let mut all = vec!["settings", "--json"];
            all.extend(args);
            let mut rows: Vec<Value> = serde_json::from_str(&stdout(&all)).expect("JSON");
            for row in &mut rows {
                // The source of a value is another one now; whether it is the default stays the same.
                row["source"] = (row["source"] == "default").into();
            }
            rows
        };
        let mut all = vec!["settings", "--toml"];
        all.extend(args);
        let file = folder.file("printed.toml", &stdout(&all));
        assert_eq!(rows(&["--config", &file]), rows(args));
        // Printing the settings of that file gives the same text.
        assert_eq!(
            stdout(&["settings", "--toml", "--config", &file]),
            stdout(&all)
        );
    };
    check(&[]);
    check(&[
        "-s",
        "AUTOTHROTTLE_ENABLED=1",
        "-k",
        "--dns",
        "[::1]:5353",
        "--dns",
        "192.0.2.1",
    ]);
    let scopes = r#"{"a.test": {"jitter": [-0.1, 0.3], "delay": "250ms"}, "it's \"mine\"": {}}"#;
    check(&["-s", &format!("THROTTLING_SCOPES={scopes}")]);
    check(&[
        "-s",
        "THROTTLING_SCOPES={}",
        "-s",
        "DOWNLOAD_SLOTS={\"a\": {\"delay\": 1}}",
    ]);
    let nested = r#"{"a.test": {"backoff": {"jitter": [0.01, 0.33], "max_delay": 9}, "rampup": true,
        "manager": {"name": "mine", "steps": [1, {"x": "y"}]}, "autothrottle_mode": "scrapy"},
        "default": {"quota": 7.5}, "*.b.test": {"backoff": false}}"#;
    check(&["-s", &format!("THROTTLING_SCOPES={nested}")]);
    check(&["--preset", "broad"]);
    check(&[
        "--preset",
        "cooperative",
        "-s",
        r#"THROTTLING_SCOPE_MANAGER={"name": "mine", "gap": 3}"#,
        "-s",
        "THROTTLING_MANAGER=ours",
        "-s",
        "BACKOFF_CONCURRENCY_DECREASE_FACTOR=0.8",
        "-s",
        "RAMPUP_BACKOFF_TARGET=1,3",
    ]);
    check(&[
        "-A",
        r#"a "b" \ 'c' é"#,
        "-s",
        r#"DENY=\.(png|jpe?g)$"#,
        "-s",
        "CONTACT=",
    ]);
    check(&[
        "-s",
        "CONCURRENT_REQUESTS=0",
        "-s",
        "TIMER_SLACK=3us",
        "-s",
        "ALLOW_NET=",
    ]);
}

#[test]
fn a_proxys_password_is_not_displayed_but_is_in_the_file() {
    let said = ["settings", "-s", "PROXY=socks5://me:s3cret@127.0.0.1:1080"];
    for format in [None, Some("--json")] {
        let args: Vec<&str> = said.into_iter().chain(format).collect();
        let text = stdout(&args);
        assert!(!text.contains("s3cret"), "{format:?}");
        assert!(text.contains("socks5://me:"), "{format:?}");
    }
    let file = stdout(&[said[0], said[1], said[2], "--toml"]);
    assert!(file.contains("socks5://me:s3cret@127.0.0.1:1080"));
}
