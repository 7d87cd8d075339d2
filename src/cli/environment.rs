//! `--proxy env`: the proxies that environment variables name.

use argiope::Config;
use argiope::settings::SettingSource;
use serde_json::Value;

/// A setting: the text that names its source, its name, its value.
pub type Found = (&'static str, &'static str, Value);

/// The settings of the proxies that these variables name. As in curl, the name in small letters comes first, and
/// `HTTP_PROXY` is not read: a web server that runs this program sets it from a header of its client.
pub fn proxies(variable: impl Fn(&str) -> Option<String>) -> Vec<Found> {
    let text_of = |name: &str| {
        let text = variable(name)?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    let first = |flags: &[&'static str]| {
        let mut flags = flags.iter();
        flags.find_map(|flag| Some((*flag, text_of(name_in(flag))?)))
    };
    let http = first(&[HTTP, ALL, ALL_UPPER]);
    let https = first(&[HTTPS, HTTPS_UPPER, ALL, ALL_UPPER]);
    if http.is_none() && text_of("HTTP_PROXY").is_some() {
        log::warn!(
            "--proxy env: HTTP_PROXY is not read, as a web server may set it from a header: set http_proxy"
        );
    } else if http.is_none() && https.is_none() {
        log::warn!(
            "--proxy env: none of http_proxy, https_proxy and all_proxy is set: requests go directly"
        );
    }
    let mut given: Vec<Found> = Vec::new();
    if let Some((flag, proxy)) = &http {
        given.push((*flag, "PROXY", with_scheme(proxy).into()));
    }
    match (&http, &https) {
        (Some((_, http)), Some((_, https))) if http == https => {}
        (_, Some((flag, proxy))) => {
            given.push((*flag, "PROXY_HTTPS", with_scheme(proxy).into()));
        }
        (Some((flag, _)), None) => given.push((*flag, "PROXY_HTTPS", "direct".into())),
        (None, None) => {}
    }
    if let (Some((flag, list)), false) = (first(&[NONE, NONE_UPPER]), given.is_empty()) {
        // Systems set it for all programs, which read different forms.
        let entries = list.split([',', ' ']).map(str::trim);
        let (known, unknown): (Vec<&str>, Vec<&str>) =
            (entries.filter(|entry| !entry.is_empty())).partition(|entry| is_known(entry));
        for entry in unknown {
            let name = name_in(flag);
            log::warn!(
                "--proxy env: {name}: {entry:?} is left out, as it is no host, address or CIDR"
            );
        }
        given.push((flag, "NO_PROXY", Value::from(known)));
    }
    given
}

/// A hint that variables name a proxy which is not used, since no setting names one.
pub fn unused(config: &Config, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_set = |name: &&&str| variable(name).is_some_and(|text| !text.trim().is_empty());
    let is_default = |name: &str| *config.source(name) == SettingSource::Default;
    let has_choice = !["PROXY", "PROXY_HTTPS", "NO_PROXY"]
        .into_iter()
        .all(is_default);
    let is_excepted = ["no_proxy", "NO_PROXY"]
        .iter()
        .any(|name| variable(name).is_some_and(|list| list.trim() == "*"));
    let names = [HTTP, HTTPS, HTTPS_UPPER, ALL, ALL_UPPER].map(name_in);
    let name = names
        .iter()
        .find(is_set)
        .filter(|_| !has_choice && !is_excepted)?;
    Some(format!(
        "the variable {name} is not used, and requests go directly; to use it write --proxy env, to \
         hide this hint -s 'NO_PROXY=*'"
    ))
}

/// Whether `NO_PROXY` accepts an entry.
fn is_known(entry: &str) -> bool {
    let list = Value::from([entry].as_slice());
    Config::default().with("NO_PROXY", list).is_ok()
}

/// A proxy as URL: in variables it may be a bare host, which is an HTTP proxy.
fn with_scheme(proxy: &str) -> String {
    match proxy.contains("://") {
        true => proxy.to_owned(),
        false => format!("http://{proxy}"),
    }
}

/// The variable in the text that names the source of a value.
fn name_in(flag: &str) -> &str {
    flag.rsplit(' ').next().unwrap_or_default()
}

const HTTP: &str = "--proxy env: http_proxy";
const HTTPS: &str = "--proxy env: https_proxy";
const HTTPS_UPPER: &str = "--proxy env: HTTPS_PROXY";
const ALL: &str = "--proxy env: all_proxy";
const ALL_UPPER: &str = "--proxy env: ALL_PROXY";
const NONE: &str = "--proxy env: no_proxy";
const NONE_UPPER: &str = "--proxy env: NO_PROXY";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The proxies of http and https and the exceptions that these variables give.
    fn check(variables: &[(&str, &str)], expected: (Value, Value, Value)) {
        let of = |name: &str| {
            let mut variables = variables.iter();
            let found = variables.find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let mut config = Config::default();
        for (flag, name, value) in proxies(of) {
            let source = SettingSource::Flag(flag.to_owned());
            config.set(name, value, source).expect("it is valid");
        }
        let get = |name: &str| config.get(name).map_or(Value::Null, Value::from);
        let found = (get("PROXY"), get("PROXY_HTTPS"), get("NO_PROXY"));
        assert_eq!(found, expected, "{variables:?}");
    }

    #[test]
    fn a_variable_that_is_not_used_is_pointed_out() {
        let check = |settings: &[(&str, &str)], set: &[&str], expected: Option<&str>| {
            let mut config = Config::default();
            for (name, value) in settings {
                config = config.with(name, *value).expect("valid");
            }
            let value_of = |name: &str| set.contains(&name).then(|| "http://p.test:1".to_owned());
            let hint = unused(&config, value_of);
            assert_eq!(hint.is_some(), expected.is_some(), "{hint:?}");
            assert!(hint.unwrap_or_default().contains(expected.unwrap_or("")));
        };
        check(&[], &[], None);
        check(&[], &["http_proxy"], Some("http_proxy is not used"));
        check(&[], &["ALL_PROXY"], Some("ALL_PROXY is not used"));
        // It is not read with `--proxy env` either.
        check(&[], &["HTTP_PROXY"], None);
        check(&[("PROXY", "http://q.test:1")], &["http_proxy"], None);
        check(&[("NO_PROXY", "*")], &["http_proxy"], None);
    }

    #[test]
    fn variables_give_proxies_by_scheme_and_exceptions() {
        let (none, empty) = (Value::Null, json!([]));
        check(&[], (none.clone(), none.clone(), empty.clone()));
        check(
            &[("http_proxy", "p.test:3128")],
            (json!("http://p.test:3128"), json!("direct"), empty.clone()),
        );
        check(
            &[
                ("http_proxy", "http://p.test:1"),
                ("https_proxy", "http://p.test:1"),
            ],
            (json!("http://p.test:1"), none.clone(), empty.clone()),
        );
        check(
            &[
                ("HTTP_PROXY", "http://evil.test:1"),
                ("HTTPS_PROXY", "http://q.test:2"),
                ("NO_PROXY", "localhost, .a.test 10.0.0.0/8,<local>"),
            ],
            (
                none.clone(),
                json!("http://q.test:2"),
                json!(["localhost", "a.test", "10.0.0.0/8"]),
            ),
        );
        check(
            &[
                ("ALL_PROXY", "socks5h://s.test:9"),
                ("https_proxy", "http://q.test:2"),
                ("HTTPS_PROXY", "http://other.test:2"),
                ("no_proxy", "*"),
            ],
            (
                json!("socks5://s.test:9"),
                json!("http://q.test:2"),
                json!(["*"]),
            ),
        );
        check(
            &[("http_proxy", " "), ("no_proxy", "a.test")],
            (none.clone(), none, empty),
        );
    }
}
