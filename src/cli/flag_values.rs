//! Values of flags that are empty, or meant for a flag of another program: refused with what was meant. And the names of
//! flags in place of those of the settings that they set.

use argiope::Config;
use argiope::settings::{SettingSource, all as settings};
use serde_json::Value;

use super::Usage;
use super::export::is_key;
use super::foreign::Endings;

/// Refuses an empty value of a flag, as a variable of the shell that is not set leaves it; curl's -A '' sends none.
pub fn check(flag: &str, value: &Value) -> Result<(), Usage> {
    let lines = value.as_array().map_or(&[][..], Vec::as_slice);
    let all = || lines.iter().chain([value]).filter_map(Value::as_str);
    if flag != "--user-agent" && all().any(|text| text.trim().is_empty()) {
        return Err(Usage(format!(
            "{flag}: the value is empty; leave {flag} out, or give one"
        )));
    }
    match flag {
        "--header" => all().try_for_each(check_header),
        "--user-agent" => all().try_for_each(check_agent),
        "--user-for" => check_login_of_host(value),
        _ => Ok(()),
    }
}

/// Refuses a header that is a part of one, or a URL.
fn check_header(line: &str) -> Result<(), Usage> {
    let line = line.trim();
    if line.ends_with(':') && !line.trim_end_matches(':').contains(':') {
        return Err(Usage(
            "--header: a field without a value; quote the whole: -H 'X-Name: value'".to_owned(),
        ));
    }
    if line.starts_with("http://") || line.starts_with("https://") {
        return Err(Usage(format!(
            "--header: {line:?} is a URL; write -H 'Name: value', or to follow links to all hosts, as wget's -H, \
             --follow all"
        )));
    }
    Ok(())
}

/// Refuses a User-Agent that is a list of endings, as wget's -A has them.
fn check_agent(agent: &str) -> Result<(), Usage> {
    match Endings::of(agent) {
        None => Ok(()),
        Some(endings) => Err(Usage(format!(
            "--user-agent: {agent:?} lists endings, and -A is the User-Agent, as in curl; to crawl only URLs that end so, \
             and pages, as wget's -A, write {}; for the header write --user-agent NAME/1.0",
            endings.allowing()
        ))),
    }
}

/// Checks an assignment of `-s` that is none.
pub fn check_assignment(assignment: &str) -> Result<(&str, &str), Usage> {
    match assignment.split_once('=') {
        Some((name, value)) if !name.contains("://") => Ok((name, value)),
        _ if assignment.contains("://") => Err(Usage(format!(
            "-s {assignment}: a URL, and -s takes NAME=VALUE, a setting; leave -s out: write {assignment}"
        ))),
        _ => Err(Usage(format!(
            "-s {assignment}: missing value; write -s NAME=VALUE"
        ))),
    }
}

/// Refuses an extracted field with the name of a key that result lines have: `export` means that. A crawl that was begun
/// with one `is_continued`, with a warning.
pub fn check_extracted(config: &Config, is_continued: bool) -> Result<(), Usage> {
    let source = config.source("EXTRACT");
    let texts = match config.get("EXTRACT").map(Value::from) {
        Some(Value::Array(texts)) if !matches!(source, SettingSource::Preset(_)) => texts,
        _ => return Ok(()),
    };
    for text in texts.iter().filter_map(Value::as_str) {
        let Some((name, selector)) = text.split_once('=') else {
            continue;
        };
        let (name, selector) = (name.trim(), selector.trim());
        if is_key(name) {
            let place = match source {
                SettingSource::Flag(flag) => flag.clone(),
                SettingSource::Option => "-s EXTRACT".to_owned(),
                other => format!("{other}: extract"),
            };
            let what = format!("{place}: {text:?} is named as the key {name} of every result line");
            if is_continued {
                log::warn!("{what}: `argiope export` has the field as fields.{name}");
                continue;
            }
            return Err(Usage(format!(
                "{what}; give it another name: 'page_{name}={selector}'"
            )));
        }
    }
    Ok(())
}

/// The flags that set the settings of a command.
pub struct FlagNames(Vec<(&'static str, String)>);

impl FlagNames {
    /// Those of a configuration.
    pub fn of(config: &Config) -> FlagNames {
        let flags = settings()
            .iter()
            .filter_map(|setting| match config.source(setting.name) {
                SettingSource::Flag(flag) => Some((setting.name, flag.clone())),
                _ => None,
            });
        FlagNames(flags.collect())
    }

    /// A message that names flags in place of the settings that these set.
    pub fn put_into(&self, message: &str) -> String {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut text = String::new();
        let mut rest = message;
        while let Some(start) = rest.find(is_part) {
            let end = rest[start..].find(|c| !is_part(c));
            let end = end.map_or(rest.len(), |end| start + end);
            let word = &rest[start..end];
            let flag = self.0.iter().find(|(name, _)| *name == word);
            text.push_str(&rest[..start]);
            text.push_str(flag.map_or(word, |(_, flag)| flag.as_str()));
            rest = &rest[end..];
        }
        text + rest
    }
}

/// Refuses a login in the place of its host. The password is not shown.
fn check_login_of_host(hosts: &Value) -> Result<(), Usage> {
    let mut entries = hosts.as_object().into_iter().flatten();
    let swapped = entries.find_map(|(host, own)| {
        let (_, port) = (host.rsplit_once(':')).filter(|_| !host.contains(['/', '[']))?;
        let user = own.get("user")?.as_str()?;
        let is_login = port.parse::<u16>().is_err() || !user.contains(':');
        is_login.then_some(user)
    });
    let Some(user) = swapped else {
        return Ok(());
    };
    // What stands in the other place is shown only if it is no login.
    let is_host = !user.contains([':', '@']) && user.contains('.');
    let host = if is_host { user } else { "HOST" };
    Err(Usage(format!(
        "--user-for: its first word is a login, and no host; write --user-for {host} NAME:PASSWORD"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_for_flags_of_wget_are_refused_with_what_does_the_same() {
        let check = |flag: &str, value: &str, expected: Option<&str>| match (
            check(flag, &value.into()),
            expected,
        ) {
            (Ok(()), None) => {}
            (Err(Usage(what)), Some(part)) if what.contains(part) => {}
            (found, _) => panic!("{flag} {value}: {found:?}"),
        };
        let both = Some(
            "--allow '(/|[.]html?|[.](jpg|pdf))$'; for the header write --user-agent NAME/1.0",
        );
        for list in ["jpg,pdf", "*.jpg,*.pdf", ".jpg, .pdf"] {
            check("--user-agent", list, both);
        }
        check("--user-agent", "pdf", Some("|[.]pdf)$'"));
        check("--user-agent", "*.tar.gz", Some("|[.]tar[.]gz)$'"));
        for agent in ["", "mybot", "mybot/1.0", "Mozilla/5.0 (X11, Linux)", "a b"] {
            check("--user-agent", agent, None);
        }
        check("--header", "http://a.test/", Some("--follow all"));
        check("--header", "X-A:", Some("quote the whole"));
        check("--header", "Referer: http://a.test/", None);
        check("--delay", " ", Some("the value is empty"));
    }

    #[test]
    fn a_url_is_no_setting() {
        assert_eq!(check_assignment("A=b=c").ok(), Some(("A", "b=c")));
        let proxy = "PROXY=http://a.test:1";
        assert_eq!(
            check_assignment(proxy).ok(),
            Some(("PROXY", "http://a.test:1"))
        );
        for (wrong, part) in [
            ("A", "write -s NAME=VALUE"),
            ("http://a.test/", "leave -s out"),
            ("http://a.test/?a=b", "leave -s out"),
        ] {
            let Usage(what) = check_assignment(wrong).expect_err(wrong);
            assert!(what.contains(part), "{what}");
        }
    }

    #[test]
    fn an_extracted_field_has_no_name_of_a_key() {
        let check = |fields: &[&str], source: SettingSource, expected: Option<&str>| {
            let mut config = Config::default();
            config
                .set("EXTRACT", fields.to_vec(), source)
                .expect("sound fields");
            check_extracted(&config, true).expect("only a new crawl is refused");
            match (check_extracted(&config, false), expected) {
                (Ok(()), None) => {}
                (Err(Usage(what)), Some(part)) if what.contains(part) => {}
                (found, _) => panic!("{fields:?}: {found:?}"),
            }
        };
        let flag = || SettingSource::Flag("--extract".to_owned());
        check(&["title", "h1", "price=.a"], flag(), None);
        check(&["title", "url=h1"], flag(), Some("'page_url=h1'"));
        check(&["meta = a b"], SettingSource::Option, Some("-s EXTRACT: "));
        let before = SettingSource::Preset("the resumed crawl".to_owned());
        check(&["url=h1"], before, None);
    }

    #[test]
    fn messages_name_flags_in_place_of_settings() {
        let mut config = Config::default();
        let flag = SettingSource::Flag("--ca-file".to_owned());
        config.set("CA_FILE", "a.pem", flag).expect("a path");
        let names = FlagNames::of(&config);
        let check = |text: &str, expected: &str| assert_eq!(names.put_into(text), expected);
        check(
            "cannot read a.pem (CA_FILE): x",
            "cannot read a.pem (--ca-file): x",
        );
        check("CA_FILE", "--ca-file");
        check("MY_CA_FILE CA_FILES", "MY_CA_FILE CA_FILES");
        check("COOKIES_FILE: x", "COOKIES_FILE: x");
        check("", "");
    }

    #[test]
    fn a_login_before_its_host_is_refused_without_the_password() {
        let check = |host: &str, user: &str, expected: Option<&str>| {
            let mut hosts = serde_json::Map::new();
            hosts.insert(host.to_owned(), serde_json::json!({"user": user}));
            match (check_login_of_host(&hosts.into()), expected) {
                (Ok(()), None) => {}
                (Err(Usage(text)), Some(host)) => {
                    assert!(text.ends_with(&format!("{host} NAME:PASSWORD")), "{text}");
                    assert!(!text.contains("secret"), "{text}");
                }
                (found, _) => panic!("{host} {user}: {found:?}"),
            }
        };
        check("ann:secret", "login.test", Some("login.test"));
        check("ann:1234", "login.test", Some("login.test"));
        check("ann:secret", "bob:secret", Some("HOST"));
        check("a.test:81", "ann:secret", None);
        check("https://a.test:8443", "ann:secret", None);
        check("a.test", "ann:secret", None);
        check("a.test", "ann", None);
    }
}
