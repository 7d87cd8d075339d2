//! Settings of single hosts: `HOSTS`, and the login `HTTP_USER`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::error::{Problem, UNKNOWN_KEY, nearest};
use super::form::Form;
use super::net::{Agent, Headers, RouteForm};
use super::quantity::{Bytes, Whole};
use super::scopes::{is_key_of_scopes, object};
use crate::frontier::host_settings::{HostSettings, HostTable};
use crate::wire::login::{Login, LoginInvalid};
use crate::wire::proxy::Route;
use crate::wire::url::CrawlUrl;

/// A user name and a password.
pub(super) struct LoginForm;

impl Form for LoginForm {
    type Of = Login;
    const KIND: &'static str = "NAME:PASSWORD";

    fn read(value: &Value) -> Result<Login, Problem> {
        // The invalid value may be a password: the message omits it.
        let text = value.as_str().ok_or_else(not_text)?;
        text.parse().map_err(|error: LoginInvalid| {
            Problem::new(format!("invalid login: {error}"), "write NAME:PASSWORD")
        })
    }

    fn write(of: &Login) -> Value {
        of.as_secret().into()
    }
}

fn not_text() -> Problem {
    Problem::new("the value is not text", "put it in quotes")
}

/// `HOSTS`.
pub(super) struct Hosts;

impl Form for Hosts {
    type Of = Arc<HostTable>;
    const KIND: &'static str = "map of hosts";

    fn read(value: &Value) -> Result<Arc<HostTable>, Problem> {
        let map = table(value)?;
        if map.len() > HOSTS_MAX {
            let what = format!("{} hosts are more than {HOSTS_MAX}", map.len());
            return Err(Problem::new(what, "use patterns: \"*.example.com\""));
        }
        let mut entries = BTreeMap::new();
        for (name, entry) in &map {
            let read = || Ok((host_name(name)?, read_entry(name, &table(entry)?)?));
            let (known, own) = read().map_err(|problem: Problem| problem.within(name))?;
            if own.pages_max.is_some() && (known.contains("://") || has_port(&known)) {
                let what = "pages are counted of a host, whatever the port";
                let mend = "set pages_max in the entry of the host alone";
                return Err(Problem::new(what, mend).within("pages_max").within(name));
            }
            if entries.insert(known, own).is_some() {
                let twice = Problem::new("the host has two entries", "remove one of them");
                return Err(twice.within(name));
            }
        }
        Ok(Arc::new(HostTable::new(entries)))
    }

    fn write(of: &Arc<HostTable>) -> Value {
        let entries = of.entries().iter();
        entries
            .map(|(name, own)| (name.clone(), write_entry(own)))
            .collect::<Map<_, _>>()
            .into()
    }
}

/// Most entries: each has its header fields in memory, encoded three times.
const HOSTS_MAX: usize = 10_000;

const MAP: &str = r#"give a table, or JSON: {"example.com": {"user": "name:password"}}"#;

/// The value as a table. The message about another value omits it: it may have a password.
fn table(value: &Value) -> Result<Map<String, Value>, Problem> {
    object(value, MAP).map_err(|_| Problem::new("the value is not a map", MAP))
}

const KEYS: [&str; 7] = [
    "headers",
    "user",
    "user_agent",
    "proxy",
    "pages_max",
    "body_max",
    "depth_limit",
];

fn read_entry(host: &str, table: &Map<String, Value>) -> Result<HostSettings, Problem> {
    let mut own = HostSettings::default();
    for (key, value) in table {
        let mut read = || -> Result<(), Problem> {
            match &*key.to_ascii_lowercase() {
                "headers" => own.headers = Headers::read(value)?,
                "user" => own.user = Some(LoginForm::read(value)?),
                "user_agent" => own.user_agent = Some(Agent::read(value)?),
                "proxy" => own.route = Some(read_route(value)?),
                "pages_max" => own.pages_max = Some(Whole::<u32, 0>::read(value)?),
                "body_max" => own.body_max = Some(Bytes::<u64>::read(value)?),
                "depth_limit" => own.depth_limit = Some(Whole::<u32, 0>::read(value)?),
                _ => return Err(unknown_key(host, key, value)),
            }
            Ok(())
        };
        read().map_err(|problem| problem.within(key))?;
    }
    let is_authorization =
        |(name, _): &(String, String)| name.eq_ignore_ascii_case("authorization");
    if own.user.is_some() && own.headers.iter().any(is_authorization) {
        let what = "user and the header Authorization exclude each other";
        return Err(Problem::new(what, "remove one of them").within("user"));
    }
    Ok(own)
}

/// Where the pace of a host is set, by a key of scopes.
pub(super) fn pace_of(host: &str, key: &str) -> String {
    // A scope has no scheme.
    let host = host_name(host).unwrap_or_else(|_| "example.com".to_owned());
    let host = host.split_once("://").map_or(&*host, |(_, rest)| rest);
    format!("the pace of a host is set by THROTTLING_SCOPES.{host:?}.{key}")
}

fn unknown_key(host: &str, key: &str, value: &Value) -> Problem {
    let mend = match nearest(key, KEYS.into_iter()) {
        Some(name) => format!("did you mean {name}?"),
        None if value.is_object() => {
            "put the name of the host in quotes: HOSTS.\"example.com\"".to_owned()
        }
        None if is_key_of_scopes(key) => pace_of(host, key),
        None => format!("give {}", KEYS.join(", ")),
    };
    Problem::new(UNKNOWN_KEY, mend)
}

fn write_entry(own: &HostSettings) -> Value {
    let mut table = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        table.extend(value.map(|value| (key.to_owned(), value)));
    };
    let headers = Some(&own.headers).filter(|headers| !headers.is_empty());
    put("headers", headers.map(Headers::write));
    put("user", own.user.as_ref().map(LoginForm::write));
    put("user_agent", own.user_agent.as_ref().map(Agent::write));
    put(
        "proxy",
        own.route.as_ref().map(|route| route.to_text().into()),
    );
    put("pages_max", own.pages_max.map(Value::from));
    put("body_max", own.body_max.map(Value::from));
    put("depth_limit", own.depth_limit.map(Value::from));
    table.into()
}

fn read_route(value: &Value) -> Result<Route, Problem> {
    if !value.is_string() {
        return Err(not_text());
    }
    RouteForm::read(value)
}

/// Normalises the name of an entry: a host, with its port unless that is the default, an origin, or `*.HOST`.
fn host_name(name: &str) -> Result<String, Problem> {
    let wrong = |what| {
        let mend = "give example.com, example.com:8080, *.example.com or https://example.com";
        Problem::new(what, mend)
    };
    let (scheme, rest) = match name.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest.strip_suffix('/').unwrap_or(rest)),
        None => (None, name),
    };
    let (stars, host) = match rest.strip_prefix("*.") {
        Some(host) if scheme.is_none() => ("*.", host),
        _ => ("", rest),
    };
    if host.is_empty() || host.contains(['/', '*', '@', '?', '#', ' ']) {
        return Err(wrong("not a host"));
    }
    // The default port of one scheme alone is an origin of that.
    let scheme = match host.rsplit_once(':') {
        Some((_, "80")) if scheme.is_none() && stars.is_empty() => Some("http"),
        Some((_, "443")) if scheme.is_none() && stars.is_empty() => Some("https"),
        _ => scheme,
    };
    let url = CrawlUrl::parse(&format!("{}://{host}/", scheme.unwrap_or("http")));
    let url = url.map_err(|_| wrong("not a host"))?;
    match scheme {
        Some(_) => Ok(url.origin().to_owned()),
        None if !stars.is_empty() && has_port(url.scope_key()) => {
            Err(wrong("a pattern is for all ports"))
        }
        None => Ok(format!("{stars}{}", url.scope_key())),
    }
}

/// Whether a normalised name of a host has a port.
fn has_port(name: &str) -> bool {
    let end = name.rfind(']').unwrap_or(0);
    name[end..].contains(':')
}

/// An entry for display: without credentials and values of header fields.
pub(super) fn shown(hosts: &HostTable) -> Value {
    let mut shown = Hosts::write(&Arc::new(hosts.clone()));
    for (name, own) in hosts.entries() {
        let entry = &mut shown[name.as_str()];
        if !own.headers.is_empty() {
            let names = own
                .headers
                .iter()
                .map(|(name, _)| format!("{name}: {HIDDEN}"));
            entry["headers"] = names.collect::<Vec<_>>().into();
        }
        if let Some(login) = &own.user {
            entry["user"] = shown_login(login);
        }
        if let Some(Route::Proxy(proxy)) = &own.route {
            entry["proxy"] = proxy.to_shown_url().into();
        }
    }
    shown
}

/// A login for display.
pub(super) fn shown_login(login: &Login) -> Value {
    json!(format!("{}:{HIDDEN}", login.name()))
}

/// In place of a secret.
const HIDDEN: &str = "***";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crawl::config::Config;

    fn with(value: Value) -> Config {
        let config = Config::default().with("HOSTS", value);
        config.unwrap_or_else(|error| panic!("{error}"))
    }

    fn refused(value: Value) -> String {
        let error = Config::default()
            .with("HOSTS", value)
            .expect_err("a refusal");
        error.to_string()
    }

    #[test]
    fn names_of_hosts_are_normalised() {
        let check = |name: &str, expected: &str| {
            let config = with(json!({name: {}}));
            let names: Vec<_> = config
                .frontier
                .own_hosts
                .entries()
                .keys()
                .cloned()
                .collect();
            assert_eq!(names, [expected], "{name}");
        };
        check("Example.COM", "example.com");
        check("localhost", "localhost");
        check("*.Bücher.example", "*.xn--bcher-kva.example");
        check("example.com:8080", "example.com:8080");
        check("example.com:443", "https://example.com");
        check("example.com:80", "http://example.com");
        check("HTTPS://Example.com:443/", "https://example.com");
        check("[::1]:81", "[::1]:81");
        for wrong in [
            "",
            "*",
            "a.*.test",
            "*.a.test:81",
            "a.test/x",
            "me@a.test",
            "ftp://a.test",
            "https://*.a.test",
            "a b",
        ] {
            let message = refused(json!({wrong: {}}));
            assert!(message.contains("give example.com"), "{wrong}: {message}");
        }
        let twice = refused(json!({"a.test": {}, "A.test": {}}));
        assert!(twice.contains("has two entries"), "{twice}");
    }

    #[test]
    fn each_key_is_read_written_and_read_again() {
        let entry = json!({
            "headers": ["X-Key: k3y"],
            "user": "name:password",
            "user_agent": "own/1.0",
            "proxy": "socks5://me:secret@127.0.0.1:1080",
            "pages_max": 3,
            "body_max": 1024,
            "depth_limit": 0,
        });
        let config = with(json!({"a.test": entry}));
        let own = config.get("HOSTS").expect("a setting");
        assert_eq!(Value::from(own.clone()), json!({"a.test": entry}));
        assert_eq!(
            with(own.into()).frontier.own_hosts,
            config.frontier.own_hosts
        );
        for key in KEYS {
            assert!(entry.get(key).is_some(), "{key}");
        }
        let given = with(json!({"a.test": {"headers": {"X-Key": "k3y"}, "body_max": "1KiB"}}));
        let own = given
            .frontier
            .own_hosts
            .complete()
            .next()
            .expect("an entry");
        assert_eq!(own.settings.headers.len(), 1);
        assert_eq!(own.settings.body_max, Some(1024));
    }

    #[test]
    fn wrong_entries_are_named_and_secrets_are_not_shown() {
        let check = |entry: Value, parts: &[&str]| {
            let message = refused(json!({"a.test": entry}));
            for part in parts.iter().chain(&["\"a.test\""]) {
                assert!(message.contains(part), "{message}");
            }
            assert!(!message.contains("secret"), "{message}");
        };
        check(json!({"usr": "a:b"}), &["usr", "did you mean user?"]);
        check(json!({"user": "secret"}), &["user", "write NAME:PASSWORD"]);
        check(json!({"user": ["secret"]}), &["put it in quotes"]);
        check(
            json!({"proxy": "http://me:secret@a"}),
            &["proxy", "socks5://"],
        );
        for headers in [
            json!(["Authorization Bearer secret"]),
            json!("Authorization Bearer secret"),
            json!({"Authorization Bearer": "secret"}),
            json!({"Authorization": ["secret"]}),
            json!({"Authorization": "secret\u{1}"}),
            json!([["Authorization: secret"]]),
            json!(["Content-Length: secret"]),
        ] {
            check(json!({"headers": headers}), &["headers"]);
        }
        let pace = "the pace of a host is set by THROTTLING_SCOPES.\"a.test\".delay";
        check(json!({"delay": 2}), &["delay", pace]);
        check(json!({"download_delay": 2}), &["download_delay", pace]);
        let by_origin = refused(json!({"https://b.test:81": {"delay": 2}}));
        assert!(
            by_origin.contains("THROTTLING_SCOPES.\"b.test:81\".delay"),
            "{by_origin}"
        );
        check(json!("secret"), &["not a map"]);
        check(json!({"pages_max": -1}), &["pages_max"]);
        let both = json!({"user": "a:secret", "headers": ["Authorization: secret"]});
        check(both, &["exclude each other"]);
        let port = refused(json!({"a.test:81": {"pages_max": 1}}));
        assert!(port.contains("whatever the port"), "{port}");
        let shown = with(json!({"a.test": {
            "user": "name:secret",
            "headers": ["X-Key: secret"],
            "proxy": "http://me:secret@p.test:1",
        }}));
        let shown = Value::from(shown.shown("HOSTS").expect("a setting"));
        let expected = json!({"a.test": {
            "user": "name:***",
            "headers": ["X-Key: ***"],
            "proxy": "http://me:%2A%2A%2A@p.test:1",
        }});
        assert_eq!(shown, expected);
        let login = Config::default().with("HTTP_USER", "name:secret");
        let login = login.expect("a login");
        assert_eq!(login.shown("HTTP_USER"), Some("name:***".into()));
        assert!(!format!("{login:?}").contains("secret"));
    }

    #[test]
    fn a_login_and_an_authorization_exclude_each_other() {
        let config = Config::default()
            .with("HTTP_USER", "name:password")
            .and_then(|config| config.with("DEFAULT_REQUEST_HEADERS", "Authorization: x"));
        let error = config
            .expect("each is valid")
            .finish()
            .expect_err("not both");
        assert!(error.to_string().contains("HTTP_USER"), "{error}");
        let config = with(json!({"a.test": {"body_max": 2000}}));
        let config = config.with("BUFFERED_BODIES_MAX", 1000).expect("valid");
        let config = config.with("DOWNLOAD_MAXSIZE", 1000).expect("valid");
        let error = config.finish().expect_err("it is larger");
        let error = error.to_string();
        for part in [
            "\"a.test\".body_max",
            "2000 is larger",
            "BUFFERED_BODIES_MAX, 1000",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
