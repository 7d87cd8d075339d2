//! Hints before and after a crawl: settings that are valid and rarely meant, and results that are easily missed.

use std::time::Duration;

use argiope::settings::SettingSource;
use argiope::{Config, Request, Stats};
use serde_json::Value;

use super::progress::clock;

/// Hosts that a hint names.
const HOSTS_NAMED: usize = 3;

/// A longer time of a fetch may be meant in milliseconds: two hours are enough for a body of some gigabytes.
const TIMEOUT_USUAL: f64 = 7200.0;

/// A longer delay may be meant in milliseconds.
const DELAY_USUAL: f64 = 120.0;

/// Before these URLs are fetched, and with `has_lists` those of seeds files. `has_warc`: whether WARC files are written.
pub fn before(config: &Config, urls: &[String], has_lists: bool, has_warc: bool) -> Vec<String> {
    let mut hints = of_urls(urls, has_lists, is_set(config, "HTTP_USER"));
    if has_warc && sends_secrets(config) {
        hints.push(
            "WARC files have requests as they are sent, with logins and cookies: --no-warc writes none".to_owned(),
        );
    }
    let delay = config.get("DOWNLOAD_DELAY").map(Value::from);
    let delay = delay.and_then(|delay| delay.as_f64()).unwrap_or(0.0);
    if delay >= DELAY_USUAL {
        let shown = clock(Duration::try_from_secs_f64(delay).unwrap_or(Duration::MAX));
        let place = match config.source("DOWNLOAD_DELAY") {
            SettingSource::Flag(flag) => flag.clone(),
            other => format!("DOWNLOAD_DELAY ({other})"),
        };
        hints.push(format!(
            "{place}: {shown} between the requests to a host; for milliseconds write {delay}ms",
        ));
    }
    hints.extend(of_timeout(config));
    hints
}

/// A limit of a fetch that may be meant in milliseconds.
fn of_timeout(config: &Config) -> Option<String> {
    let seconds = Value::from(config.get("DOWNLOAD_TIMEOUT")?).as_f64()?;
    if seconds < TIMEOUT_USUAL {
        return None;
    }
    let place = match config.source("DOWNLOAD_TIMEOUT") {
        SettingSource::Flag(flag) => flag.clone(),
        other => format!("DOWNLOAD_TIMEOUT ({other})"),
    };
    let shown = clock(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    Some(format!(
        "{place}: {shown} for a whole fetch; for milliseconds write {seconds}ms"
    ))
}

fn is_set(config: &Config, name: &str) -> bool {
    let value = config.get(name).map(Value::from);
    value.is_some_and(|value| !value.is_null() && value != "")
}

/// Whether a login, a cookie or a header of a single host is given.
fn sends_secrets(config: &Config) -> bool {
    let headers = config.get("DEFAULT_REQUEST_HEADERS").map(Value::from);
    let headers = headers.unwrap_or_default().to_string().to_ascii_lowercase();
    sends_login(config)
        || is_set(config, "COOKIES_FILE")
        || has_own(config, "headers")
        || headers.contains("\"authorization:")
        || headers.contains("\"cookie:")
}

/// Whether a login is given, for all seeds or for a host.
fn sends_login(config: &Config) -> bool {
    is_set(config, "HTTP_USER") || has_own(config, "user")
}

/// Whether a single host has this setting of its own.
fn has_own(config: &Config, key: &str) -> bool {
    let hosts = config.get("HOSTS").map(Value::from).unwrap_or_default();
    let mut entries = hosts.as_object().into_iter().flatten();
    entries.any(|(_, own)| own.get(key).is_some())
}

/// Before a crawl: logins that are not sent, or to more hosts than one may think. `has_lists`: whether there are seeds
/// files, too; `logs_in`: whether `HTTP_USER` is given.
fn of_urls(urls: &[String], has_lists: bool, logs_in: bool) -> Vec<String> {
    let mut hints = Vec::new();
    let seeds = urls
        .iter()
        .map(|url| match Request::from_line(url) {
            Ok(Some(request)) => request.url,
            _ => url.clone(),
        })
        .collect::<Vec<_>>();
    let mut hosts: Vec<&str> = Vec::new();
    for url in &seeds {
        let (login, host) = parts(url);
        if login {
            hints.push(of_login(host));
        }
        if !host.is_empty() && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    if logs_in && (hosts.len() > 1 || has_lists) {
        let mut named = hosts[..hosts.len().min(HOSTS_NAMED)].join(", ");
        let more = match (hosts.len() > HOSTS_NAMED, has_lists) {
            (true, _) => ", …",
            (false, true) if named.is_empty() => "each of those of --seeds",
            (false, true) => ", and those of --seeds",
            (false, false) => "",
        };
        named.push_str(more);
        hints.push(format!(
            "--user: the login is sent to the hosts of all seeds ({named}); for one of them write --user-for \
             HOST NAME:PASSWORD"
        ));
    }
    hints
}

/// Before a probe: the first URL with a login, which is not sent.
pub fn of_targets<'a>(urls: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut hosts = urls.map(parts).filter(|(login, _)| *login);
    let (_, host) = hosts.next()?;
    let more = match hosts.count() {
        0 => String::new(),
        more => format!(" ({more} more targets have one)"),
    };
    Some(of_login(host) + &more)
}

fn of_login(host: &str) -> String {
    format!("the login in the URL of {host} is not sent: write --user-for {host} NAME:PASSWORD")
}

/// Whether a URL has a login, and its host with the port.
fn parts(url: &str) -> (bool, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    match authority.rsplit_once('@') {
        Some((_, host)) => (true, host),
        None => (false, authority),
    }
}

/// After a crawl: replies that ask for a login or refuse it, and bodies that were cut. `flag`: what sets the greatest
/// length of a body.
pub fn of_results(stats: &Stats, config: &Config, flag: &str) -> Vec<String> {
    let mut hints = Vec::new();
    let asked = stats.by_status.get(&401).copied().unwrap_or(0);
    if asked > 0 && sends_login(config) {
        hints.push(format!(
            "{} the login, or had none (status 401): check name and password, and whose host they are for",
            replies(asked, "refuses", "refuse")
        ));
    } else if asked > 0 {
        hints.push(format!(
            "{} a login (status 401): --user-for HOST NAME:PASSWORD sends one",
            replies(asked, "asks for", "ask for")
        ));
    }
    if stats.bodies_cut > 0 {
        hints.push(format!(
            "{} longer than DOWNLOAD_MAXSIZE and cut there, with what is behind it: {flag}",
            replies(stats.bodies_cut, "was", "were")
        ));
    }
    hints
}

fn replies(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 reply {one}"),
        _ => format!("{count} replies {many}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_configuration_may_lead_to_is_pointed_out() {
        let check = |settings: &[(&str, &str)], expected: &[&str]| {
            let mut config = Config::default();
            for (name, value) in settings {
                config = config.with(name, *value).expect("valid");
            }
            let urls = ["http://a.test/", "http://b.test/"].map(str::to_owned);
            let hints = before(&config, &urls, false, config.warc_size_max().is_some());
            assert_eq!(hints.len(), expected.len(), "{settings:?}: {hints:?}");
            for (hint, part) in hints.iter().zip(expected) {
                assert!(hint.contains(part), "{hint}");
            }
        };
        check(&[], &[]);
        check(&[("DOWNLOAD_DELAY", "500")], &["8:20 between"]);
        check(&[("DOWNLOAD_DELAY", "60")], &[]);
        let timeout = ["8:20:00 for a whole fetch; for milliseconds write 30000ms"];
        check(&[("DOWNLOAD_TIMEOUT", "30000")], &timeout);
        check(&[("DOWNLOAD_TIMEOUT", "600")], &[]);
        let login = ("HTTP_USER", "me:secret");
        check(&[login], &["all seeds", "WARC files have"]);
        check(&[login, ("WARC", "false")], &["all seeds"]);
        check(
            &[("DEFAULT_REQUEST_HEADERS", "Cookie: x")],
            &["WARC files have"],
        );
        check(&[("DEFAULT_REQUEST_HEADERS", "X-Own: x")], &[]);
        check(
            &[("HOSTS", r#"{"a.test": {"user": "me:secret"}}"#)],
            &["WARC files have"],
        );
        check(&[("HOSTS", r#"{"a.test": {"pages_max": 3}}"#)], &[]);
    }

    #[test]
    fn logins_in_urls_and_of_several_hosts_are_pointed_out() {
        let check = |urls: &[&str], logs_in: bool, expected: &[&str]| {
            let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
            let hints = of_urls(&urls, false, logs_in);
            assert_eq!(hints.len(), expected.len(), "{hints:?}");
            for (hint, part) in hints.iter().zip(expected) {
                assert!(hint.contains(part) && !hint.contains("secret"), "{hint}");
            }
        };
        check(&["http://a.test/x@y", "a.test?q=b@c"], false, &[]);
        let login = "http://me:secret@a.test:81/x";
        check(&[login], false, &["--user-for a.test:81 NAME:PASSWORD"]);
        check(&["http://a.test/1", "http://a.test/2"], true, &[]);
        let both = ["http://a.test/", "https://b.test/"];
        check(&both, false, &[]);
        check(&both, true, &["all seeds (a.test, b.test);"]);
        let of_json = r#"{"url": "http://a.test/", "headers": {"From": "me@x.test"}}"#;
        check(&[of_json], false, &[]);
        let of_json = r#"{"url": "http://me:secret@a.test/"}"#;
        check(&[of_json], false, &["--user-for a.test NAME:PASSWORD"]);
        // What hosts a seeds file has is not known yet.
        let with_lists = |urls: &[&str], logs_in| {
            let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
            of_urls(&urls, true, logs_in).join("")
        };
        assert_eq!(with_lists(&["http://a.test/"], false), "");
        let hint = with_lists(&["http://a.test/"], true);
        assert!(
            hint.contains("all seeds (a.test, and those of --seeds);"),
            "{hint}"
        );
        let hint = with_lists(&[], true);
        assert!(
            hint.contains("all seeds (each of those of --seeds);"),
            "{hint}"
        );
    }

    #[test]
    fn replies_that_ask_for_a_login_and_cut_bodies_are_pointed_out() {
        let mut stats = Stats::new();
        let config = Config::default();
        let of_results =
            |stats: &Stats, config: &Config| super::of_results(stats, config, "--max-body");
        assert!(of_results(&stats, &config).is_empty());
        stats.by_status.insert(401, 1);
        stats.bodies_cut = 2;
        let hints = of_results(&stats, &config);
        assert!(
            hints[0].starts_with("1 reply asks for a login"),
            "{hints:?}"
        );
        assert!(hints[1].starts_with("2 replies were longer"), "{hints:?}");
        let own = r#"{"a.test": {"user": "me:secret"}}"#;
        for (name, value) in [("HTTP_USER", "me:secret"), ("HOSTS", own)] {
            let config = Config::default().with(name, value).expect("valid");
            let hints = of_results(&stats, &config);
            assert!(
                hints[0].starts_with("1 reply refuses the login"),
                "{hints:?}"
            );
        }
    }
}
