//! The command: its flags, exit codes and JSON lines, and the output of a crawl.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use argiope::serde_json::{self, Value, json};

use crate::loopback::{Reply, Server};
use crate::markdown::{blocks, named_in_row, names, quoted, rows, tables};
use crate::tree::{keys, pages, read, sources};

fn argiope(args: &[&str]) -> (Option<i32>, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_argiope"))
        .args(args)
        .output()
        .expect("the binary runs");
    let out = String::from_utf8(ran.stdout).expect("stdout is UTF-8");
    (ran.status.code(), out)
}

#[test]
fn every_command_is_documented() {
    let (_, help) = argiope(&["--help"]);
    let (_, list) = help.split_once("Commands:\n").expect("a list of commands");
    let commands = list.lines().take_while(|line| !line.is_empty());
    let commands = commands.filter_map(|line| line.split_whitespace().next());
    let commands: BTreeSet<String> = commands
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect();
    let page = read("docs/reference/commands.md");
    assert_eq!(names(tables(&page)[0]), commands);
}

#[test]
fn every_documented_flag_exists() {
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut checked = 0;
    for page in pages() {
        let text = read(&page);
        let blocks = blocks(&text).filter(|(language, _)| *language == "sh");
        let lines = blocks.flat_map(|(_, block)| block.lines());
        // What follows a pipe or a redirection is not an argument.
        for line in lines.filter_map(|line| line.strip_prefix("argiope ")) {
            let line = line.split(['|', '>', '<', '#']).next().unwrap_or_default();
            let mut words = line.split(' ').filter(|word| !word.is_empty());
            let command = words.next().unwrap_or_default();
            // A call to a running crawl has flags of its own.
            let call = words
                .nth(1)
                .filter(|_| command == "ctl")
                .unwrap_or_default();
            let help = helps.entry(format!("{command} {call}")).or_insert_with(|| {
                let own = argiope(&["help", command]).1;
                match call {
                    "" => own,
                    call => own + &argiope(&["help", command, call]).1,
                }
            });
            assert!(!help.is_empty(), "{page}: there is no command {command}");
            let flags = line
                .split(' ')
                .filter(|word| word.starts_with('-') && *word != "-");
            for flag in flags {
                let known = [" ", ",", "\n"]
                    .iter()
                    .any(|end| help.contains(&format!("{flag}{end}")));
                assert!(known, "{page}: {line}: there is no {flag}");
            }
            checked += 1;
        }
    }
    assert!(checked >= 15, "{checked}");
}

#[test]
fn every_example_of_a_settings_file_is_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("crawl.toml");
    let mut checked = 0;
    for page in pages() {
        let text = read(&page);
        let blocks = blocks(&text).filter(|(language, _)| *language == "toml");
        for (_, block) in blocks.filter(|(_, block)| !block.contains("[dependencies]")) {
            fs::write(&file, block).expect("it is written");
            let file = file.to_str().expect("a UTF-8 path");
            let (code, _) = argiope(&["settings", "--config", file]);
            assert_eq!(code, Some(0), "{page}: {block}");
            checked += 1;
        }
    }
    assert!(checked >= 4, "{checked}");
}

#[test]
fn every_exit_code_is_documented() {
    let page = read("docs/reference/commands.md");
    let documented: BTreeSet<String> = rows(tables(&page)[1])
        .map(|row| row[0].trim().to_owned())
        .collect();
    let mut known = BTreeSet::new();
    for code in sources("src/cli") {
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        for begin in ["Ok(", "const FAILED: u8 = ", "const MISUSED: u8 = "] {
            let codes = code
                .split(begin)
                .skip(1)
                .filter_map(|rest| rest.split([')', ';']).next());
            known.extend(
                codes
                    .filter(|code| code.parse::<u8>().is_ok())
                    .map(str::to_owned),
            );
        }
    }
    assert_eq!(documented, known);
    assert_eq!(argiope(&["settings"]).0, Some(0));
    assert_eq!(
        argiope(&["fetch", "--fail", "http://127.0.0.1:9/"]).0,
        Some(1)
    );
    assert_eq!(argiope(&["settings", "-s", "NO_SUCH_SETTING=1"]).0, Some(2));
}

#[test]
fn questions_and_answers_as_json_lines_have_the_documented_keys() {
    let page = read("docs/reference/commands.md");
    let tables = tables(&page);
    let table = tables
        .iter()
        .find(|table| table.starts_with("| command | input"));
    let robots = json!({"robots": "", "agent": "a", "url": "http://a.test/"});
    let url = json!({"input": "/x", "base": "http://a.test/"});
    // A URL of a scheme that a crawl does not fetch.
    let failed = json!({"input": "ftp://a.test/", "base": "http://a.test/"});
    let links = json!({"html": "<a href=/>", "base": "http://a.test/", "content_type": ""});
    for row in rows(table.expect("the table")) {
        let command = quoted(row[0]).next().expect("a command");
        let questions = match command {
            "robots" => vec![&robots],
            "url" => vec![&url, &failed],
            "links" => vec![&links],
            other => panic!("no question for {other}"),
        };
        let objects = |cell: &str| -> Vec<BTreeSet<String>> {
            let objects = quoted(cell).filter(|object| object.starts_with('{'));
            let names = |object: &str| {
                object
                    .split('"')
                    .skip(1)
                    .step_by(2)
                    .map(str::to_owned)
                    .collect()
            };
            objects.map(names).collect()
        };
        let asked = &objects(row[1])[0];
        // The alternatives in base64 are documented below the table.
        let mut fields = fields_of(&format!("src/cli/{command}.rs"), "struct Question {");
        for field in fields
            .clone()
            .iter()
            .filter(|field| field.ends_with("_b64"))
        {
            assert!(page.contains(&format!("`{field}`")), "{field}");
            fields.remove(field);
        }
        assert_eq!(asked, &fields, "{command}");
        for (question, documented) in questions.iter().zip(objects(row[2])) {
            assert_eq!(asked, &keys(question), "{command}");
            let answer = answer_to(command, question);
            assert_eq!(documented, keys(&answer), "{command}: {answer}");
        }
    }
}

/// The names of the fields of a struct in a source file.
fn fields_of(file: &str, block: &str) -> BTreeSet<String> {
    let code = read(file);
    let (_, fields) = code.split_once(block).expect("the struct");
    let fields = fields.split("\n}").next().unwrap_or_default();
    let names = fields
        .lines()
        .filter_map(|line| line.trim().split_once(':'));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// The answer of a command to one question on its standard input.
fn answer_to(command: &str, question: &Value) -> Value {
    let mut child = Command::new(env!("CARGO_BIN_EXE_argiope"))
        .args([command, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut input = child.stdin.take().expect("a pipe");
    writeln!(input, "{question}").expect("it reads");
    drop(input);
    let ran = child.wait_with_output().expect("it ends");
    let answer = String::from_utf8(ran.stdout).expect("stdout is UTF-8");
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{command}: {error}: {answer}"))
}

#[test]
fn output_of_a_crawl_has_the_documented_keys() {
    let server = Server::start(|_| Reply::page("a page").after(Duration::from_millis(1)));
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("crawl");
    let here = server.here();
    let args = [
        "-s",
        "AUTOTHROTTLE_DEBUG=true",
        "-s",
        "AUTOTHROTTLE_ENABLED=true",
        "--resolve",
        &here,
    ];
    let url = "http://a.test/";
    let mut all = vec!["crawl", url, "--allow-net", "loopback", "--quiet", "--out"];
    all.push(out.to_str().expect("a UTF-8 path"));
    all.extend(args);
    assert_eq!(argiope(&all).0, Some(0));

    let check = |file: &str, page: &str, may_lack: &[&str]| {
        let text = fs::read_to_string(out.join(file)).expect("the file is there");
        let page = read(page);
        let documented = names(tables(&page)[0]);
        assert!(text.lines().count() > 0, "{file} is empty");
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).expect("a line is JSON");
            let mut keys = keys(&line);
            keys.extend(may_lack.iter().map(|key| (*key).to_owned()));
            assert_eq!(documented, keys, "{file}");
        }
    };
    check("throttle.jsonl", "docs/reference/throttle.md", &[]);
    check(
        "results.jsonl",
        "docs/reference/results.md",
        &[
            "bound",
            "fields",
            "judged",
            "proxied",
            "refetched",
            "robots_ignored",
            "seq",
        ],
    );

    let text = fs::read_to_string(out.join("stats.json")).expect("the file is there");
    let stats: Value = serde_json::from_str(&text).expect("it is JSON");
    let page = read("docs/reference/stats.md");
    let tables = tables(&page);
    assert_eq!(names(tables[1]), keys(&stats["server_latency"]));
    assert_eq!(names(tables[3]), keys(&stats["pacing"][0]));
    let slowest = named_in_row(&page, "slowest_scopes");
    assert_eq!(slowest, keys(&stats["slowest_scopes"][0]));

    let page = read("docs/reference/output.md");
    let documented: BTreeSet<String> = rows(crate::markdown::tables(&page)[0])
        .filter_map(|row| quoted(row[0]).next().map(str::to_owned))
        .collect();
    for entry in fs::read_dir(&out).expect("the directory is there") {
        let name = entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned();
        let is_documented = documented.contains(&name)
            || documented
                .iter()
                .any(|file| file.starts_with(&format!("{name}/")));
        assert!(is_documented, "{name} is not documented: {documented:?}");
    }
}

/// A line of a request that was sent and has every value that a report shows.
fn result_line(second: u32) -> String {
    format!(
        "{{\"url\": \"http://a.test/{second}\", \"kind\": \"page\", \"final\": true, \"scopes\": [\"a.test\"], \
         \"status\": 200, \"error\": {{\"kind\": \"truncated\", \"code\": \"truncated.body\", \"detail\": \"x\"}}, \
         \"truncated\": \"length\", \"content_type\": \"text/html\", \"digest\": \"sha1:A\", \"tls\": {{\"version\": \
         \"TLSv1.3\", \"cipher\": \"x\", \"resumed\": false, \"verified\": true}}, \"sent\": \
         \"2026-11-21T00:00:{second:02}.000000000Z\", \"dns\": 0.1, \"connect\": 0.2, \"tls_handshake\": 0.3, \
         \"request\": 0.4, \"first_byte\": 0.5, \"headers\": 0.6, \"body\": 0.7, \"latency\": 0.3, \
         \"server_latency\": 0.2, \"lateness\": 0.1, \"delay\": 0.5}}\n"
    )
}

#[test]
fn every_key_of_a_report_is_documented() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines: String = (0..30).map(result_line).collect();
    let damaged = format!("{lines}nonsense\n");
    fs::write(folder.path().join("results.jsonl"), damaged).expect("a file");
    fs::write(folder.path().join("stats.json"), "{}").expect("a file");
    let path = folder.path().to_str().expect("a UTF-8 path");
    let (code, out) = argiope(&["report", path, "--json"]);
    assert_eq!(code, Some(0));
    let report: Value = serde_json::from_str(&out).expect("JSON");

    let page = read("docs/reference/report.md");
    let tables = tables(&page);
    assert_eq!(names(tables[0]), keys(&report));
    assert_eq!(names(tables[1]), keys(&report["gaps"]));
    let of_stats = crate::markdown::tables(&read("docs/reference/stats.md"))[1].to_owned();
    assert_eq!(names(&of_stats), keys(&report["gaps"]["delay"]));

    // Keys of spreads are documented elsewhere; those of these maps are names and numbers of the crawl.
    let spread = names(&of_stats);
    let of_crawl = ["status", "depth", "truncated"];
    let mut open = vec![&report];
    let mut checked = 0;
    while let Some(value) = open.pop() {
        match value {
            Value::Array(values) => open.extend(values.first()),
            Value::Object(fields) => {
                for (key, value) in fields {
                    let is_named = quoted(&page).any(|name| name == key);
                    assert!(is_named || spread.contains(key), "{key} is not documented");
                    open.extend((!of_crawl.contains(&key.as_str())).then_some(value));
                    checked += 1;
                }
            }
            _ => {}
        }
    }
    assert!(checked > 150, "{checked}");
    let subjects = crate::markdown::tables(&page)[2].to_owned();
    let advice = read("src/cli/report/advice.rs");
    let own = advice
        .split("about: \"")
        .chain(advice.split("add(\""))
        .skip(1);
    let own = own.filter_map(|rest| rest.split('"').next());
    let own: BTreeSet<String> = own
        .filter(|word| {
            word.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        })
        .map(str::to_owned)
        .collect();
    assert_eq!(names(&subjects), own);
}
