//! Files of cookies: the lines that curl, wget and browsers write (Netscape's format), and the JSON of browsers'
//! extensions and of Playwright.

use std::fmt;

use serde::Deserialize;

/// A cookie of a file, as the reply that sets it.
#[derive(Clone, PartialEq, Eq)]
pub struct FileCookie {
    /// Where it stands: the line, or in JSON the number of the entry; from 1.
    pub place: usize,
    /// The URL of the reply.
    pub url: String,
    /// The value of the Set-Cookie field, without a lifetime. A secret.
    pub field: String,
    /// Unix time of its expiry, in seconds; `None`: it lasts for the crawl.
    pub expires: Option<u64>,
}

impl fmt::Debug for FileCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileCookie({}, {})", self.place, self.url)
    }
}

/// A line or an entry that is no cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoCookie {
    /// As [`FileCookie::place`].
    pub place: usize,
    /// What is wrong with it.
    pub why: &'static str,
}

/// The cookies of a file, each or why it is none.
pub fn parse(text: &str) -> Vec<Result<FileCookie, NoCookie>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match text.trim_start().starts_with(['[', '{']) {
        true => parse_json(text),
        false => {
            let lines = text.lines().enumerate();
            lines
                .filter_map(|(index, line)| parse_line(index + 1, line))
                .collect()
        }
    }
}

/// Before the domain of a cookie that scripts do not see; the line is no comment.
const HTTP_ONLY: &str = "#HttpOnly_";

fn parse_line(place: usize, line: &str) -> Option<Result<FileCookie, NoCookie>> {
    let line = line.trim_end_matches(['\r', '\n']);
    let line = match line.strip_prefix(HTTP_ONLY) {
        None if line.trim().is_empty() || line.starts_with('#') => return None,
        None => line,
        Some(rest) => rest,
    };
    let refuse = |why| Some(Err(NoCookie { place, why }));
    let fields: Vec<&str> = line.split('\t').collect();
    let [domain, below, path, secure, expires, name, rest @ ..] = &fields[..] else {
        return refuse("it has not the seven fields of a cookie, separated by tabs");
    };
    let is_true = |field: &str| field.eq_ignore_ascii_case("true");
    let Ok(expires) = expires.trim().parse::<f64>() else {
        return refuse("its fifth field is no time");
    };
    let cookie = JsonCookie {
        domain: (*domain).to_owned(),
        host_only: Some(!is_true(below)),
        path: (*path).to_owned(),
        secure: is_true(secure),
        expires: Some(expires),
        name: (*name).to_owned(),
        value: rest.join("\t"),
    };
    Some(cookie.into_cookie(place))
}

/// A cookie in JSON.
#[derive(Deserialize)]
struct JsonCookie {
    domain: String,
    #[serde(default, rename = "hostOnly")]
    host_only: Option<bool>,
    #[serde(default = "root")]
    path: String,
    #[serde(default)]
    secure: bool,
    #[serde(default, alias = "expirationDate")]
    expires: Option<f64>,
    name: String,
    value: String,
}

fn root() -> String {
    "/".to_owned()
}

/// A list, or the state that Playwright saves.
#[derive(Deserialize)]
#[serde(untagged)]
enum JsonFile {
    List(Vec<serde_json::Value>),
    State { cookies: Vec<serde_json::Value> },
}

fn parse_json(text: &str) -> Vec<Result<FileCookie, NoCookie>> {
    let list = match serde_json::from_str(text) {
        Ok(JsonFile::List(list) | JsonFile::State { cookies: list }) => list,
        Err(_) => {
            let why = "it is neither a list of cookies in JSON nor an object with one";
            return vec![Err(NoCookie { place: 1, why })];
        }
    };
    let entries = list.into_iter().enumerate();
    entries
        .map(|(index, entry)| {
            let place = index + 1;
            let why = "it has not domain, name and value";
            let cookie = serde_json::from_value::<JsonCookie>(entry);
            let cookie = cookie.map_err(|_| NoCookie { place, why })?;
            cookie.into_cookie(place)
        })
        .collect()
}

impl JsonCookie {
    fn into_cookie(self, place: usize) -> Result<FileCookie, NoCookie> {
        let refuse = |why| Err(NoCookie { place, why });
        let host = self.domain.strip_prefix('.').unwrap_or(&self.domain);
        let is_host = |next: char| next.is_alphanumeric() || "-._:[]".contains(next);
        if host.is_empty() || !host.chars().all(is_host) {
            return refuse("its domain is no host");
        }
        let is_text = |text: &str| !text.contains(';') && !text.chars().any(char::is_control);
        let parts = [&self.name, &self.value, &self.path];
        if self.name.is_empty() || self.name.contains('=') || !parts.iter().all(|p| is_text(p)) {
            return refuse("its name, value or path cannot be sent");
        }
        let path = if self.path.is_empty() {
            "/"
        } else {
            &self.path
        };
        let mut field = format!("{}={}; Path={path}", self.name, self.value);
        // Without the word it is for the host, unless the domain begins with a dot.
        let is_for_host = self.host_only.unwrap_or(!self.domain.starts_with('.'));
        if !is_for_host {
            field.push_str("; Domain=");
            field.push_str(host);
        }
        if self.secure {
            field.push_str("; Secure");
        }
        let scheme = if self.secure { "https" } else { "http" };
        Ok(FileCookie {
            place,
            url: format!("{scheme}://{host}/"),
            field,
            // Zero or less is for the session.
            expires: self
                .expires
                .filter(|time| *time > 0.0)
                .map(|time| time as u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Place, URL, field and expiry.
    type Parts<'a> = (usize, &'a str, &'a str, Option<u64>);

    fn check(text: &str, expected: &[Result<Parts<'_>, usize>]) {
        let parsed = parse(text);
        let found: Vec<_> = parsed
            .iter()
            .map(|cookie| match cookie {
                Ok(cookie) => Ok((cookie.place, &*cookie.url, &*cookie.field, cookie.expires)),
                Err(error) => Err(error.place),
            })
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn lines_of_curl_are_read() {
        check(
            "# Netscape HTTP Cookie File\n\n\
             .example.com\tTRUE\t/a\tTRUE\t1900000000\tsid\tx=y\r\n\
             #HttpOnly_www.example.com\tFALSE\t/\tFALSE\t0\tone\t\n\
             www.example.com FALSE / FALSE 0 two 2\n\
             a.test\tFALSE\t/\tFALSE\tsoon\tthree\t3\n\
             a.test\tFALSE\t/\tFALSE\t0\tfour\ta;b\n\
             a/b\tFALSE\t/\tFALSE\t0\tfive\t5",
            &[
                Ok((
                    3,
                    "https://example.com/",
                    "sid=x=y; Path=/a; Domain=example.com; Secure",
                    Some(1_900_000_000),
                )),
                Ok((4, "http://www.example.com/", "one=; Path=/", None)),
                Err(5),
                Err(6),
                Err(7),
                Err(8),
            ],
        );
    }

    #[test]
    fn json_of_extensions_and_of_playwright_is_read() {
        let one = r#"{"domain": ".example.com", "hostOnly": false, "path": "/", "secure": true,
                      "expirationDate": 1900000000.5, "name": "a", "value": "1", "sameSite": "lax"}"#;
        let cookie = Ok((
            1,
            "https://example.com/",
            "a=1; Path=/; Domain=example.com; Secure",
            Some(1_900_000_000),
        ));
        check(&format!("[{one}, 7]"), &[cookie, Err(2)]);
        let two = r#"{"domain": "example.com", "name": "b", "value": "2", "expires": -1}"#;
        let cookie = Ok((1, "http://example.com/", "b=2; Path=/", None));
        check(
            &format!(r#"{{"cookies": [{two}], "origins": []}}"#),
            &[cookie],
        );
        check("[1, 2", &[Err(1)]);
    }
}
