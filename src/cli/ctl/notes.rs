//! Notes on orders about scopes and hosts that a running crawl does not have: they are accepted, for those that come.

use serde_json::Value;

use super::{Client, Job, encoded};

/// A note for each name in an order that the running crawl does not have. None if it does not answer.
pub fn of_order(client: &Client<'_>, job: &Job) -> Vec<String> {
    const LATER: &str = "the order holds for those that come later";
    let of_scope = |name: &str, effect: &str| -> Vec<String> {
        note_of_scope(client, name, effect).into_iter().collect()
    };
    let of_host = |name: &str, effect: &str| note_of_host(client, name, effect);
    match job {
        Job::Set { name, settings } if !settings.is_empty() => of_scope(name, LATER),
        Job::Set { name, .. } => of_scope(name, NOTHING),
        Job::Hold { name, .. } => of_scope(name, LATER),
        Job::Release(name) | Job::Unset(name) => of_scope(name, NOTHING),
        Job::Forget(name) => of_scope(name, "nothing was learned of one"),
        Job::Cancel(name) => of_scope(name, "no request was cancelled"),
        Job::Decisions { name, .. } => of_scope(name, "it has no decisions"),
        Job::Priority { name, .. } => of_host(name, LATER).into_iter().collect(),
        Job::Exclude(names) => {
            let later = "what is excluded is not requested later";
            names
                .iter()
                .filter_map(|name| of_host(name, later))
                .collect()
        }
        _ => Vec::new(),
    }
}

const NOTHING: &str = "no pace has changed";

/// A note if no scope in use has this name, or matches this pattern. `effect`: what the order does nevertheless.
fn note_of_scope(client: &Client<'_>, name: &str, effect: &str) -> Option<String> {
    let name = name.to_lowercase();
    if name == "default" {
        return None;
    }
    if name.contains('*') {
        let known = scopes(client, &name)?;
        let note = format!("no scope in use matches {name:?} now; {effect}");
        return known.is_empty().then_some(note);
    }
    let (status, _) = client
        .exchange("GET", &format!("/v1/scopes/{}", encoded(&name)), b"")
        .ok()?;
    if status != 404 {
        return None;
    }
    let note = format!("no scope is named {name:?} now; {effect}");
    let near = match host_in(&name) {
        Some(host) => scopes(client, &format!("*{host}*"))?,
        None => Vec::new(),
    };
    Some(match near.is_empty() {
        true => note,
        false => format!("{note}; there is {}", near.join(", ")),
    })
}

/// A note if no host in use has this name. Networks and patterns have none.
fn note_of_host(client: &Client<'_>, name: &str, effect: &str) -> Option<String> {
    if name.contains(['*', '/']) || name.starts_with("re:") {
        return None;
    }
    let path = format!("/v1/hosts/{}", encoded(name));
    let (status, host) = client.exchange("GET", &path, b"").ok()?;
    let origins = host["origins"].as_array()?;
    let is_known = !origins.is_empty() || host["seed"] == Value::Bool(true);
    let note = || format!("no request to a host {name:?} is queued now; {effect}");
    (status == 200 && !is_known).then(note)
}

/// Some scopes in use that match a pattern.
fn scopes(client: &Client<'_>, pattern: &str) -> Option<Vec<String>> {
    let path = format!("/v1/scopes?limit={NAMED}&match={}", encoded(pattern));
    let (status, reply) = client.exchange("GET", &path, b"").ok()?;
    let scopes = reply["scopes"].as_array().filter(|_| status == 200)?;
    let names = scopes.iter().filter_map(|scope| scope["scope"].as_str());
    Some(names.map(str::to_owned).collect())
}

/// The host in a name that may be a URL or have a port, without its first label if that is `www`.
fn host_in(name: &str) -> Option<&str> {
    let rest = name.split_once("://").map_or(name, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#', ':']).next()?;
    let host = host.strip_prefix("www.").unwrap_or(host);
    (host.len() >= HOST_MIN).then_some(host)
}

/// Scopes that a note names.
const NAMED: usize = 3;

/// Shorter names are in too many others.
const HOST_MIN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_url_or_with_a_port_is_looked_for() {
        let check = |name: &str, expected: Option<&str>| assert_eq!(host_in(name), expected);
        check("https://www.example.com:81/x", Some("example.com"));
        check("example.com:8080", Some("example.com"));
        check("a", None);
        check("", None);
    }
}
