//! Values that name things on the network: agents, headers, addresses, networks, hosts.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::error::Problem;
use super::form::{Form, items, text, wrong};
use crate::base::address::Network;
use crate::frontier::proxies::{Direct, NotDirect};
use crate::wire::proxy::{Proxy, ProxyError, Route};
use crate::wire::url::CrawlUrl;

/// Text that is sent unchanged as the value of a header.
pub(super) struct Agent;

impl Form for Agent {
    type Of = String;
    const KIND: &'static str = "text";

    fn read(value: &Value) -> Result<String, Problem> {
        match text(value)?.trim() {
            "" => Err(wrong(
                value,
                "empty",
                "give the product name of your crawler",
            )),
            agent if !is_field_text(agent) => Err(wrong(
                value,
                "not a valid header value",
                "leave out control characters",
            )),
            agent => Ok(agent.to_owned()),
        }
    }

    fn write(of: &String) -> Value {
        of.as_str().into()
    }
}

/// Contact of the crawl's operator: URL or email address.
pub(super) struct Contact;

impl Form for Contact {
    type Of = String;
    const KIND: &'static str = "URL or mail address";

    fn read(value: &Value) -> Result<String, Problem> {
        let contact = text(value)?.trim();
        let names = contact.contains('@')
            || contact.starts_with("http://")
            || contact.starts_with("https://");
        let plain = is_field_text(contact) && !contact.contains([' ', '(', ')']);
        match names && plain {
            true => Ok(contact.to_owned()),
            false => Err(wrong(
                value,
                "not a contact",
                "give a URL (https://example.org/bot) or a mail address",
            )),
        }
    }

    fn write(of: &String) -> Value {
        of.as_str().into()
    }
}

/// Product token matched in robots.txt.
pub(super) struct Token;

impl Form for Token {
    type Of = String;
    const KIND: &'static str = "product token";

    fn read(value: &Value) -> Result<String, Problem> {
        let token = text(value)?.trim();
        match !token.is_empty() && token.bytes().all(is_token_byte) {
            true => Ok(token.to_owned()),
            false => Err(wrong(
                value,
                "not a product token",
                "give letters, digits, - and _ only, without a version",
            )),
        }
    }

    fn write(of: &String) -> Value {
        of.as_str().into()
    }
}

/// The product token of a user agent: its first word, or the name after `compatible;`.
pub(super) fn product_token(agent: &str) -> String {
    let after = agent
        .split_once("compatible;")
        .map_or(agent, |(_, rest)| rest.trim_start());
    let token = after
        .split(|next: char| !next.is_ascii() || !is_token_byte(next as u8))
        .find(|word| !word.is_empty());
    token.unwrap_or("argiope").to_owned()
}

/// RFC 9309, section 2.2.1, plus digits, which are common in practice.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// Headers in order: a list of `Name: value`, or a map.
pub(super) struct Headers;

impl Form for Headers {
    type Of = Vec<(String, String)>;
    const KIND: &'static str = "list of \"Name: value\"";

    fn read(value: &Value) -> Result<Self::Of, Problem> {
        let parsed = value
            .as_str()
            .and_then(|text| serde_json::from_str(text).ok());
        match parsed.as_ref().unwrap_or(value) {
            Value::Array(lines) => lines.iter().map(header).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(name, value)| {
                    // The line made of it would be split at the first colon.
                    if name.contains(':') {
                        let name = Value::from(name.as_str());
                        return Err(wrong(&name, "not a header name", "write it as X-Api-Key"));
                    }
                    let no_text = || Problem::new("the value is not text", "put it in quotes");
                    let value = value.as_str().ok_or_else(|| no_text().within(name))?;
                    let line = format!("{name}: {value}");
                    header(&line.into()).map_err(|problem| problem.within(name))
                })
                .collect(),
            Value::String(text) if text.is_empty() => Ok(Vec::new()),
            // A header value may contain commas, so text is one header.
            line @ Value::String(_) => Ok(vec![header(line)?]),
            other => Err(wrong(other, "not a list", "give a list of \"Name: value\"")),
        }
    }

    fn write(of: &Self::Of) -> Value {
        let line = |(name, value): &(String, String)| format!("{name}: {value}");
        of.iter().map(line).collect::<Vec<_>>().into()
    }
}

/// Names of header fields.
pub(super) struct FieldNames;

impl Form for FieldNames {
    type Of = Vec<String>;
    const KIND: &'static str = "list of header names";

    fn read(value: &Value) -> Result<Vec<String>, Problem> {
        let names = Words::read(value)?;
        match names.iter().find(|name| !name.bytes().all(is_name_byte)) {
            None => Ok(names),
            Some(name) => Err(wrong(
                &name.as_str().into(),
                "not a header name",
                "write it as X-Api-Key",
            )),
        }
    }

    fn write(of: &Vec<String>) -> Value {
        Words::write(of)
    }
}

/// Origins: scheme, host and port, or `*` for all.
pub(super) struct Origins;

impl Form for Origins {
    type Of = Vec<String>;
    const KIND: &'static str = "list of origins, or *";

    fn read(value: &Value) -> Result<Vec<String>, Problem> {
        let origins = Words::read(value)?.into_iter();
        origins
            .map(|origin| match CrawlUrl::parse(&origin) {
                _ if origin == EVERY_ORIGIN => Ok(origin),
                Ok(url) if url.request_target() == "/" && !origin.contains(['@', '#']) => {
                    Ok(url.origin().to_owned())
                }
                _ => Err(wrong(
                    &origin.into(),
                    "not an origin",
                    "give scheme, host and port, as https://api.example.com:8443, or * for all",
                )),
            })
            .collect()
    }

    fn write(of: &Vec<String>) -> Value {
        Words::write(of)
    }
}

fn header(line: &Value) -> Result<(String, String), Problem> {
    // A line that is no header may have a password: the message omits it.
    let no_header = |what: &str| Problem::new(what, "write it as \"Name: value\"");
    let Some(line) = line.as_str() else {
        return Err(no_header("a header is not text"));
    };
    let Some((name, value)) = line.split_once(':') else {
        return Err(no_header("a header has no colon"));
    };
    let (name, value) = (name.trim_end(), value.trim());
    if name.is_empty() {
        return Err(no_header("a header has no name before its colon"));
    }
    if !name.bytes().all(is_name_byte) {
        return Err(no_header(
            "the name of a header has a space or another character that is not allowed",
        ));
    }
    if !is_field_text(value) {
        return Err(no_header("the value of a header has control characters"));
    }
    if RESERVED_HEADERS
        .iter()
        .any(|ours| ours.eq_ignore_ascii_case(name))
    {
        return Err(wrong(
            &name.into(),
            "set by the crawler, for message framing",
            "leave it out",
        ));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// RFC 9110, section 5.6.2.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether this is a valid field value: RFC 9110, section 5.5.
fn is_field_text(text: &str) -> bool {
    text.chars().all(|next| next == '\t' || !next.is_control())
}

/// The path of a file.
pub(super) struct File;

impl Form for File {
    type Of = PathBuf;
    const KIND: &'static str = "path";

    fn read(value: &Value) -> Result<PathBuf, Problem> {
        Ok(PathBuf::from(text(value)?))
    }

    fn write(of: &PathBuf) -> Value {
        of.to_string_lossy().into_owned().into()
    }
}

/// The problem of a text that is no proxy. It may contain a password: only a bare host with its port is shown, with the
/// scheme of an HTTP proxy.
fn invalid_proxy(text: &str, error: ProxyError, forms: &str) -> Problem {
    let with_scheme = format!("http://{text}");
    let is_bare = !text.contains(['@', '/']) && with_scheme.parse::<Proxy>().is_ok();
    let mend = match is_bare {
        true => with_scheme.as_str(),
        false => forms,
    };
    Problem::new(format!("invalid proxy: {error}"), format!("write {mend}"))
}

/// A proxy.
pub(super) struct ProxyForm;

impl Form for ProxyForm {
    type Of = Arc<Proxy>;
    const KIND: &'static str = "http:// or socks5:// [USER:PASSWORD@]HOST:PORT";

    fn read(value: &Value) -> Result<Arc<Proxy>, Problem> {
        let text = text(value)?;
        let proxy = text.parse().map(Arc::new);
        proxy.map_err(|error| {
            let forms = "http://host:port or socks5://user:password@host:port";
            invalid_proxy(text, error, forms)
        })
    }

    fn write(of: &Arc<Proxy>) -> Value {
        of.to_url().into()
    }
}

/// A proxy, or none.
pub(super) struct RouteForm;

impl Form for RouteForm {
    type Of = Route;
    const KIND: &'static str = "as PROXY, or direct";

    fn read(value: &Value) -> Result<Route, Problem> {
        let text = text(value)?;
        text.parse().map_err(|error| {
            let forms = "http://host:port, socks5://user:password@host:port or direct";
            invalid_proxy(text, error, forms)
        })
    }

    fn write(of: &Route) -> Value {
        of.to_text().into()
    }
}

/// Hosts that are asked without a proxy.
pub(super) struct DirectHosts;

impl Form for DirectHosts {
    type Of = Vec<Direct>;
    const KIND: &'static str = "list of hosts, addresses, CIDRs, *";

    fn read(value: &Value) -> Result<Vec<Direct>, Problem> {
        let entries = Words::read(value)?.into_iter();
        entries
            .map(|entry| {
                entry.parse().map_err(|NotDirect| {
                    wrong(
                        &entry.as_str().into(),
                        "no host without a proxy",
                        "give example.com, 192.0.2.1, 10.0.0.0/8 or *, without scheme and port",
                    )
                })
            })
            .collect()
    }

    fn write(of: &Vec<Direct>) -> Value {
        of.iter().map(ToString::to_string).collect()
    }
}

/// Words, without further checks.
pub(super) struct Words;

impl Form for Words {
    type Of = Vec<String>;
    const KIND: &'static str = "list";

    fn read(value: &Value) -> Result<Vec<String>, Problem> {
        items(value)?
            .iter()
            .map(|word| match text(word)?.trim() {
                "" => Err(wrong(word, "empty", "leave it out")),
                word => Ok(word.to_owned()),
            })
            .collect()
    }

    fn write(of: &Vec<String>) -> Value {
        of.clone().into()
    }
}

/// Networks: CIDRs, `loopback`, `private`.
pub(super) struct Nets;

impl Form for Nets {
    type Of = Vec<String>;
    const KIND: &'static str = "list of CIDRs, loopback, private";

    fn read(value: &Value) -> Result<Vec<String>, Problem> {
        let nets = Words::read(value)?;
        let sound = |net: &&String| matches!(net.as_str(), "loopback" | "private") || is_net(net);
        match nets.iter().find(|net| !sound(net)) {
            None => Ok(nets),
            Some(net) => Err(wrong(
                &net.as_str().into(),
                "not a network",
                "give a CIDR (10.0.0.0/8, fd00::/8), loopback or private",
            )),
        }
    }

    fn write(of: &Vec<String>) -> Value {
        Words::write(of)
    }
}

/// Whether `text` is an address or a CIDR.
pub(super) fn is_net(text: &str) -> bool {
    text.parse::<Network>().is_ok()
}

/// Excluded targets: hosts, `*.domain`, CIDRs.
pub(super) struct Exclusions;

impl Form for Exclusions {
    type Of = Vec<String>;
    const KIND: &'static str = "list of hosts, *.domains, CIDRs";

    fn read(value: &Value) -> Result<Vec<String>, Problem> {
        Words::read(value)?
            .into_iter()
            .map(|entry| {
                let name = entry.strip_prefix("*.").unwrap_or(&entry);
                let is_name = !name.contains(['/', ':', '*', '@', ' ']) && !name.starts_with('.');
                match is_net(&entry) || is_name {
                    true if entry.is_ascii() => Ok(entry.to_ascii_lowercase()),
                    true => excluded(&entry),
                    false => Err(wrong(
                        &entry.into(),
                        "neither a host nor a network",
                        "give example.com, *.example.com or 192.0.2.0/24",
                    )),
                }
            })
            .collect()
    }

    fn write(of: &Vec<String>) -> Value {
        Words::write(of)
    }
}

/// A host or domain with non-ASCII letters, in the ASCII form that URLs have: matching compares that.
fn excluded(entry: &str) -> Result<String, Problem> {
    let name = entry.strip_prefix("*.").unwrap_or(entry);
    let stars = &entry[..entry.len() - name.len()];
    match CrawlUrl::parse(&format!("http://{name}/")) {
        Ok(url) => Ok(format!("{stars}{}", url.host_str())),
        Err(_) => Err(wrong(
            &entry.into(),
            "not a host",
            "write it as example.com",
        )),
    }
}

/// Name servers: `ADDR` or `ADDR:PORT`.
pub(super) struct Servers;

impl Form for Servers {
    type Of = Vec<SocketAddr>;
    const KIND: &'static str = "list of ADDR[:PORT]";

    fn read(value: &Value) -> Result<Vec<SocketAddr>, Problem> {
        Words::read(value)?
            .iter()
            .map(|server| {
                address_with_port(server, DNS_PORT)
                    .filter(|address| address.port() != 0)
                    .ok_or_else(|| {
                        wrong(
                            &server.as_str().into(),
                            "not a name server",
                            "give an address: 192.0.2.1, 192.0.2.1:5353 or [2001:db8::1]:5353",
                        )
                    })
            })
            .collect()
    }

    fn write(of: &Vec<SocketAddr>) -> Value {
        of.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .into()
    }
}

/// Address overrides: `HOST:PORT:ADDR`, curl's syntax.
pub(super) struct Overrides;

impl Form for Overrides {
    type Of = Vec<String>;
    const KIND: &'static str = "list of HOST:PORT:ADDR";

    fn read(value: &Value) -> Result<Vec<String>, Problem> {
        let overrides = Words::read(value)?;
        match overrides.iter().find(|text| !is_override(text)) {
            None => Ok(overrides),
            Some(text) => Err(wrong(
                &text.as_str().into(),
                "not an address override",
                "write HOST:PORT:ADDR, as example.com:443:127.0.0.1 or *:80:[::1]:8080",
            )),
        }
    }

    fn write(of: &Vec<String>) -> Value {
        Words::write(of)
    }
}

fn is_override(text: &str) -> bool {
    // The colons inside brackets belong to the host.
    let host_end = match text.strip_prefix('[') {
        Some(inner) => match inner.find(']') {
            Some(end) if inner[..end].parse::<Ipv6Addr>().is_ok() => end + 2,
            _ => return false,
        },
        None => text.find(':').unwrap_or(text.len()),
    };
    let Some((port, address)) = text[host_end..]
        .strip_prefix(':')
        .and_then(|rest| rest.split_once(':'))
    else {
        return false;
    };
    let host = &text[..host_end];
    let has_host = !host.is_empty() && !host.contains(['/', ' ', '@']);
    let has_port = port.parse::<u16>().is_ok_and(|port| port != 0);
    has_host && has_port && address_with_port(address, 0).is_some()
}

/// `ADDR`, `[v6]`, `ADDR:PORT` or `[v6]:PORT`.
fn address_with_port(text: &str, port: u16) -> Option<SocketAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'));
    match bare {
        Some(v6) => Some(SocketAddr::new(v6.parse::<Ipv6Addr>().ok()?.into(), port)),
        None => text
            .parse()
            .ok()
            .or_else(|| Some(SocketAddr::new(text.parse().ok()?, port))),
    }
}

/// Headers that the crawler sets itself: they define the framing of a message, or apply to one hop.
const RESERVED_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "transfer-encoding",
    "upgrade",
    "te",
    "trailer",
    "proxy-authorization",
];
/// Value of `CREDENTIAL_ORIGINS` for all origins.
pub const EVERY_ORIGIN: &str = "*";
const DNS_PORT: u16 = 53;
