//! `argiope ctl`: asks a running crawl, and gives it orders, by the socket in its directory.

mod notes;

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, bail};
use argiope::Wall;
use argiope::sink::directory::ControlFiles;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::Usage;
use super::foreign::orders::{from_standard_input, limit_named, limit_of_flag};
use super::shell::quoted;

/// Arguments of the command.
#[derive(Clone, Debug)]
pub struct CtlArgs {
    /// The output directory of the crawl.
    pub folder: PathBuf,
    /// What is asked or ordered.
    pub job: Job,
}

/// A question or an order.
#[derive(Clone, Debug)]
pub enum Job {
    /// Totals, rates, and waits.
    Status,
    /// A list of scopes.
    Scopes {
        /// The order of the list.
        sort: Option<String>,
        /// Their state, in place of an order.
        state: Option<String>,
        /// A pattern of names.
        pattern: Option<String>,
        /// Most scopes that are listed.
        limit: usize,
    },
    /// The longest queues.
    Queues {
        /// A pattern of hosts.
        pattern: Option<String>,
        /// Most queues that are listed.
        limit: usize,
    },
    /// One scope.
    Scope(String),
    /// The last decisions about a scope.
    Decisions {
        /// The scope.
        name: String,
        /// Most decisions that are listed.
        limit: usize,
    },
    /// One host.
    Host(String),
    /// One URL.
    Url(String),
    /// Replaces the settings of a scope: `key=value` each, or one JSON object.
    Set {
        /// The scope, a pattern, or `default`.
        name: String,
        /// The settings.
        settings: Vec<String>,
    },
    /// Holds a scope until a time.
    Hold {
        /// The scope, a pattern, or `default`.
        name: String,
        /// Its end.
        until: Until,
    },
    /// Sets the priority of a host.
    Priority {
        /// The host.
        name: String,
        /// Added to the priorities of its requests.
        priority: i32,
    },
    /// Ends such a hold.
    Release(String),
    /// Forgets what was learned of a scope.
    Forget(String),
    /// Cancels the requests of a scope.
    Cancel(String),
    /// Stops departures.
    Pause,
    /// Resumes departures.
    Resume,
    /// Ends the crawl, within this time.
    Stop(Option<Duration>),
    /// Closes the output files.
    Rotate,
    /// Adds the seeds in a file.
    Seeds(PathBuf),
    /// Excludes hosts and domains.
    Exclude(Vec<String>),
    /// Withdraws that.
    Include(Vec<String>),
    /// Changes limits, or shows them.
    Limits(Vec<String>),
    /// Withdraws the settings that a scope was given.
    Unset(String),
    /// Reads the configuration anew.
    Reload,
    /// Changes the log level, or shows it.
    Log(Option<String>),
}

/// The end of a hold.
#[derive(Clone, Debug)]
pub enum Until {
    /// After this time.
    After(Duration),
    /// At this time, as RFC 3339 has it.
    At(String),
}

impl Until {
    /// As text, by the clock of this machine.
    fn text(&self) -> String {
        match self {
            Until::At(text) => text.clone(),
            Until::After(span) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let at = now.unwrap_or_default().saturating_add(*span);
                Wall(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)).to_string()
            }
        }
    }
}

/// Runs the command; returns its exit code.
pub fn run(args: CtlArgs) -> anyhow::Result<i32> {
    let client = Client::new(&args.folder);
    if let Job::Seeds(path) = &args.job {
        check_seeds(&args.folder, path)?;
    }
    if let Job::Set { name, settings } = &args.job {
        check_scope(&args.folder, name, settings)?;
        settings
            .iter()
            .try_for_each(|setting| check_setting(&args.folder, setting))?;
    }
    // Asked before the order, which may make one.
    let notes = notes::of_order(&client, &args.job);
    let reply = match args.job {
        Job::Status => client.get("/v1/status")?,
        Job::Scopes {
            sort,
            state,
            pattern,
            limit,
        } => {
            let mut path = format!("/v1/scopes?limit={limit}");
            for (key, value) in [("sort", sort), ("state", state)] {
                if let Some(value) = value {
                    path += &format!("&{key}={}", encoded(&value));
                }
            }
            if let Some(pattern) = pattern {
                path += &format!("&match={}", encoded(&pattern));
            }
            client.get(&path)?
        }
        Job::Queues { pattern, limit } => {
            let mut path = format!("/v1/queues?limit={limit}");
            if let Some(pattern) = pattern {
                path += &format!("&match={}", encoded(&pattern));
            }
            client.get(&path)?
        }
        Job::Scope(name) => client.get(&format!("/v1/scopes/{}", encoded(&name)))?,
        Job::Decisions { name, limit } => {
            let path = format!("/v1/scopes/{}/decisions?limit={limit}", encoded(&name));
            client.get(&path)?
        }
        Job::Host(name) => client.get(&format!("/v1/hosts/{}", encoded(&name)))?,
        Job::Url(url) => client.get(&format!("/v1/urls/{}", encoded(&url)))?,
        Job::Set { name, settings } => {
            let body = patch(&settings)?;
            client.call("PUT", &format!("/v1/scopes/{}", encoded(&name)), &body)?
        }
        Job::Hold { name, until } => {
            let body = json!({"hold_until": until.text()}).to_string();
            let reply = client.call(
                "PATCH",
                &format!("/v1/scopes/{}", encoded(&name)),
                body.as_bytes(),
            )?;
            // Both have nanoseconds and are in UTC.
            let now = Until::After(Duration::ZERO).text();
            if let Some(until) = reply["settings"]["hold_until"].as_str()
                && until < now.as_str()
            {
                log::warn!("{name} is not held: {until} is over");
            }
            reply
        }
        Job::Release(name) => {
            // A key of the default can be replaced, not removed.
            let until = match name.as_str() {
                "default" => json!(Until::After(Duration::ZERO).text()),
                _ => Value::Null,
            };
            let body = json!({"hold_until": until}).to_string();
            client.call(
                "PATCH",
                &format!("/v1/scopes/{}", encoded(&name)),
                body.as_bytes(),
            )?
        }
        Job::Priority { name, priority } => {
            let body = json!({"priority": priority}).to_string();
            let path = format!("/v1/hosts/{}/priority", encoded(&name));
            client.call("PUT", &path, body.as_bytes())?
        }
        Job::Forget(name) => client.post(&format!("/v1/scopes/{}/forget", encoded(&name)))?,
        Job::Cancel(name) => client.post(&format!("/v1/scopes/{}/cancel", encoded(&name)))?,
        Job::Pause => client.post("/v1/pause")?,
        Job::Resume => client.post("/v1/resume")?,
        Job::Rotate => client.post("/v1/rotate")?,
        Job::Stop(None) => client.post("/v1/stop")?,
        Job::Stop(Some(grace)) => {
            let body = json!({"grace": grace.as_secs_f64()}).to_string();
            client.call("POST", "/v1/stop", body.as_bytes())?
        }
        Job::Seeds(path) => add_seeds(&client, &path)?,
        Job::Exclude(names) => change_exclusions(&client, "PUT", &names)?,
        Job::Include(names) => change_exclusions(&client, "DELETE", &names)?,
        Job::Limits(limits) if limits.is_empty() => client.get("/v1/limits")?,
        Job::Limits(limits) => {
            let limits = limits_of(&limits)?.to_string();
            client.call("PUT", "/v1/limits", limits.as_bytes())?
        }
        Job::Unset(name) => {
            client.call("DELETE", &format!("/v1/scopes/{}", encoded(&name)), b"")?
        }
        Job::Reload => client.post("/v1/reload")?,
        Job::Log(None) => client.get("/v1/log")?,
        Job::Log(Some(level)) => {
            let body = json!({"level": level}).to_string();
            client.call("PUT", "/v1/log", body.as_bytes())?
        }
    };
    for note in notes {
        log::warn!("{note}");
    }
    let text = serde_json::to_string_pretty(&reply)?;
    writeln!(io::stdout(), "{text}")?;
    Ok(0)
}

/// Refuses a URL where a file of seeds is expected.
fn check_seeds(folder: &Path, path: &Path) -> Result<(), Usage> {
    let text = path.to_string_lossy();
    match text.contains("://") && !path.exists() {
        true => Err(Usage(format!(
            "{text:?} is a URL, and seeds reads a file; write {}",
            from_standard_input(&folder.to_string_lossy(), &text)
        ))),
        false => Ok(()),
    }
}

/// Refuses a setting where the name of a scope is expected.
fn check_scope(folder: &Path, name: &str, settings: &[String]) -> Result<(), Usage> {
    let Some((setting, value)) = name.split_once('=').filter(|_| !name.contains("://")) else {
        return Ok(());
    };
    let is_of_key = |c: char| c.is_ascii_lowercase() || "_.".contains(c);
    let key = match setting.to_ascii_uppercase().as_str() {
        "DELAY" | "DOWNLOAD_DELAY" => Some("delay"),
        "CONCURRENCY" | "CONCURRENT_REQUESTS_PER_DOMAIN" => Some("concurrency"),
        // With settings behind it: a scope may have another name with a = in it.
        _ if !settings.is_empty() && !setting.chars().all(is_of_key) => return Ok(()),
        _ => None,
    };
    let line = |order: &str| format!("write argiope ctl {} {order}", quoted(folder));
    let all = |first: String| [&[first], settings].concat().join(" ");
    let cure = match (key, limit_of_flag(setting).or_else(|| limit_named(setting))) {
        (Some(key), _) => {
            line(&format!("set default {}", all(format!("{key}={value}"))))
                + ", or a scope in place of default"
        }
        (None, Some(limit)) => line(&format!("limits {}={value}", limit.to_ascii_lowercase())),
        (None, None) if setting.chars().all(|c| c.is_ascii_uppercase() || c == '_') => {
            format!("put it into the file of --config, and {}", line("reload"))
        }
        (None, None) => {
            line(&format!("set default {}", all(name.to_owned())))
                + ", or a scope in place of default"
        }
    };
    Err(Usage(format!(
        "{name:?} stands where set takes the name of a scope; {cure}"
    )))
}

/// Refuses a limit of the crawl among the settings of a scope.
fn check_setting(folder: &Path, setting: &str) -> Result<(), Usage> {
    let Some((name, value)) = setting.split_once('=') else {
        return Ok(());
    };
    let Some(limit) = limit_of_flag(name).or_else(|| limit_named(name)) else {
        return Ok(());
    };
    Err(Usage(format!(
        "{setting:?} is a limit of the crawl and no setting of a scope; write argiope ctl {} limits {}={value}",
        quoted(folder),
        limit.to_ascii_lowercase()
    )))
}

/// Excludes names, or withdraws that; gives all that are excluded by order.
fn change_exclusions(client: &Client<'_>, method: &str, names: &[String]) -> anyhow::Result<Value> {
    let mut excluded = client.get("/v1/exclusions")?;
    for name in names {
        let path = format!("/v1/exclusions/{}", encoded(name));
        let left = client.call(method, &path, b"")?;
        if method == "DELETE" && left == excluded {
            log::warn!(
                "{name} was not excluded by order; what --exclude lists is changed by `reload`"
            );
        }
        excluded = left;
    }
    Ok(excluded)
}

/// Adds the lines of a file, as many at once as an order may have. Waits while the crawl has no room.
fn add_seeds(client: &Client<'_>, path: &Path) -> anyhow::Result<Value> {
    let input: Box<dyn BufRead> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => {
            let file = File::open(path)
                .map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
            Box::new(BufReader::new(file))
        }
    };
    let (mut accepted, mut rejected, mut taken) = (0, Vec::new(), 0);
    let mut lines = input.lines();
    loop {
        let (mut body, mut count) = (String::new(), 0);
        while count < SEEDS_AT_ONCE && body.len() < BYTES_AT_ONCE {
            let Some(line) = lines.next() else {
                break;
            };
            body += &line?;
            body.push('\n');
            count += 1;
        }
        if count == 0 {
            return Ok(json!({"accepted": accepted, "rejected": rejected}));
        }
        let first = taken + 1;
        taken += count;
        let reply = loop {
            match client.exchange("POST", "/v1/seeds", body.as_bytes())? {
                (503, reply)
                    if reply["error"]
                        .as_str()
                        .is_some_and(|why| why.contains("room")) =>
                {
                    std::thread::sleep(Duration::from_secs(1));
                }
                (200 | 202, reply) => break reply,
                (_, reply) => {
                    bail!(
                        "lines {first} to {taken}: {}; {accepted} seeds were accepted before",
                        message_of(&reply)
                    );
                }
            }
        };
        accepted += reply["accepted"].as_u64().unwrap_or(0);
        if let Some(more) = reply["rejected"].as_array() {
            rejected.extend(more.iter().cloned());
        }
    }
}

/// Limits as a JSON object, from `name=value` each, by the names of settings or of flags; without a value, the order is
/// withdrawn.
fn limits_of(limits: &[String]) -> Result<Value, Usage> {
    let mut object = Map::new();
    for limit in limits {
        let Some((name, value)) = limit.split_once('=') else {
            return Err(Usage(format!(
                "{limit:?} is no limit: write NAME=VALUE, such as concurrent_requests=100, or NAME= to withdraw an order; \
                 without any, `limits` lists them"
            )));
        };
        let value = match value {
            "" => Value::Null,
            value => serde_json::from_str(value).unwrap_or_else(|_| json!(value)),
        };
        let setting = limit_of_flag(name).unwrap_or(name);
        if object.insert(setting.to_owned(), value).is_some() {
            return Err(Usage(format!("{name} is given twice: give it once")));
        }
    }
    Ok(object.into())
}

/// A patch of a scope's settings as JSON, from `key=value` each, or one object.
fn patch(settings: &[String]) -> Result<Vec<u8>, Usage> {
    if let [object] = settings
        && object.trim_start().starts_with('{')
    {
        return Ok(object.clone().into_bytes());
    }
    let mut patch = Map::new();
    for setting in settings {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(Usage(format!(
                "{setting:?} is no setting: write KEY=VALUE, such as delay=2, or one JSON object"
            )));
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        let mut table = &mut patch;
        let mut keys = key.split('.').peekable();
        while let Some(key) = keys.next() {
            if keys.peek().is_none() {
                table.insert(key.to_owned(), value);
                break;
            }
            let entry = table.entry(key).or_insert_with(|| json!({}));
            let Value::Object(inner) = entry else {
                return Err(Usage(format!("{setting:?}: {key} has a value already")));
            };
            table = inner;
        }
    }
    Ok(Value::Object(patch).to_string().into_bytes())
}

/// Sends requests to a crawl, each on a connection of its own.
struct Client<'a> {
    folder: &'a Path,
}

impl<'a> Client<'a> {
    fn new(folder: &'a Path) -> Self {
        Client { folder }
    }

    fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.call("GET", path, b"")
    }

    fn post(&self, path: &str) -> anyhow::Result<Value> {
        self.call("POST", path, b"")
    }

    fn call(&self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Value> {
        match self.exchange(method, path, body)? {
            (200 | 202, reply) => Ok(reply),
            (_, reply) => bail!("{}", message_of(&reply)),
        }
    }

    /// The status and the body of the reply.
    fn exchange(&self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<(u16, Value)> {
        let socket = ControlFiles::socket_in(self.folder);
        let mut stream = UnixStream::connect(&socket).map_err(|error| self.explain(&error))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        let mut reply = Vec::new();
        // One that is refused by its head is not read to its end.
        let written = stream.write_all(&[head.as_bytes(), body].concat());
        let read = stream.read_to_end(&mut reply);
        let failed = written.err().or(read.err());
        parse(&reply).ok_or_else(|| match failed {
            Some(error) => anyhow!(
                "no reply from the crawl in {}: {error}",
                self.folder.display()
            ),
            None => anyhow!(
                "the crawl in {} ended without a reply",
                self.folder.display()
            ),
        })
    }

    /// Why there is no crawl to be asked.
    fn explain(&self, error: &io::Error) -> anyhow::Error {
        let folder = self.folder.display();
        let words = match error.kind() {
            ErrorKind::NotFound if !self.folder.is_dir() => {
                format!(
                    "there is no directory {folder}: write argiope ctl DIR, with the --out directory of the crawl"
                )
            }
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                let word = quoted(self.folder);
                format!(
                    "no crawl is running in {folder}; `argiope state {word}` shows what one left"
                )
            }
            ErrorKind::PermissionDenied => {
                format!("the crawl in {folder} belongs to another user, who alone may ask it")
            }
            _ => format!("cannot reach the crawl in {folder}: {error}"),
        };
        Usage(words).into()
    }
}

/// The status and the body of a reply; `None` if it is not whole.
fn parse(reply: &[u8]) -> Option<(u16, Value)> {
    let end = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&reply[..end]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = serde_json::from_slice(&reply[end + 4..]).ok()?;
    Some((status, body))
}

fn message_of(reply: &Value) -> String {
    let message = reply["error"].as_str();
    message.map_or_else(|| reply.to_string(), str::to_owned)
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Time for a reply: the crawl answers within a turn, and an order once it is on the disk.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lines of one order, and bytes after which no more are added.
const SEEDS_AT_ONCE: usize = 100;
const BYTES_AT_ONCE: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_given_by_name_and_withdrawn_without_a_value() {
        let of = |limits: &[&str]| {
            let limits: Vec<String> = limits.iter().map(|&text| text.to_owned()).collect();
            limits_of(&limits)
        };
        let limits = of(&["max=3", "time=2h", "pages="]).expect("they are sound");
        assert_eq!(limits, json!({"max": 3, "time": "2h", "pages": null}));
        let limits = of(&["max-pages=", "max_bytes=1MB"]).expect("they are sound");
        let expected = json!({"CLOSESPIDER_PAGECOUNT": null, "CLOSESPIDER_BYTECOUNT": "1MB"});
        assert_eq!(limits, expected);
        assert!(of(&["max-pages=1", "max_pages=2"]).is_err());
        assert!(of(&["max"]).is_err());
        assert!(of(&["max=1", "max=2"]).is_err());
    }

    #[test]
    fn settings_of_a_scope_are_given_as_pairs_or_as_an_object() {
        let check = |settings: &[&str], expected: &str| {
            let settings: Vec<String> = settings.iter().map(|&text| text.to_owned()).collect();
            let body = patch(&settings).expect("they are sound");
            assert_eq!(String::from_utf8_lossy(&body), expected);
        };
        check(
            &["delay=2", "concurrency=1"],
            r#"{"concurrency":1,"delay":2}"#,
        );
        check(&["delay=500ms"], r#"{"delay":"500ms"}"#);
        check(
            &["backoff.max_delay=600", "backoff.factor=3"],
            r#"{"backoff":{"factor":3,"max_delay":600}}"#,
        );
        check(&[r#"{"delay": 1}"#], r#"{"delay": 1}"#);
        check(&[], "{}");
        for bad in [&["delay"][..], &["delay=1", "delay.x=2"]] {
            let bad: Vec<String> = bad.iter().map(|&text| text.to_owned()).collect();
            assert!(patch(&bad).is_err(), "{bad:?}");
        }
    }
}
