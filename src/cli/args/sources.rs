//! Sources of settings on the command line: flags, a file, a preset and `-s`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde_json::{Map, Value, json};

use crate::cli::environment;

/// Sources of settings besides flags.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
pub struct Configured {
    /// Read settings from a TOML file (`argiope settings --toml` prints one)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Apply a preset, which --config and -s override: polite for one site, cooperative for a server
    /// whose operator knows of the crawl, many-domains for many sites, each paced by its latency, broad
    /// for a few pages each of very many sites
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Set a setting, as in -s DOWNLOAD_DELAY=0.5 (`argiope settings` lists them)
    #[arg(short = 's', long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
}

/// Options of every command that opens a socket.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub struct Sockets {
    /// User-Agent header; --contact is appended to it
    #[arg(short = 'A', long, value_name = "AGENT")]
    user_agent: Option<String>,
    /// Your URL or mail address for site operators; added to the User-Agent, required above 10 public hosts
    #[arg(long, value_name = "URL|MAIL")]
    contact: Option<String>,
    /// Send this header with every request; Authorization, Cookie and Host go to the seeds' origins only
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Send this header to this host only (example.com, *.example.com, https://example.com:8443)
    #[arg(long, num_args = 2, value_names = ["HOST", "NAME: VALUE"])]
    header_for: Vec<String>,
    /// Log in to the seeds' origins by HTTP Basic
    #[arg(short = 'u', long, value_name = "NAME:PASSWORD")]
    user: Option<String>,
    /// Log in to this host only
    #[arg(long, num_args = 2, value_names = ["HOST", "NAME:PASSWORD"])]
    user_for: Vec<String>,
    /// Send the cookies in this file to their hosts, as curl and wget write it or in JSON; keep those of replies
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    cookies: Option<String>,
    /// Maximum time of a whole fetch [default: 2m]
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    timeout: Option<String>,
    /// Also allow connections to these addresses that are not globally routable
    #[arg(long, value_name = "CIDR|loopback|private")]
    allow_net: Vec<String>,
    /// Use this address for a host and port; *: any host
    #[arg(long, value_name = "HOST:PORT:ADDR")]
    resolve: Vec<String>,
    /// Use this name server instead of the system's
    #[arg(long, value_name = "ADDR[:PORT]")]
    dns: Vec<String>,
    /// Trust these certificates in addition to the built-in ones
    #[arg(long, value_name = "PEM", value_hint = ValueHint::FilePath)]
    ca_file: Option<String>,
    /// Do not verify certificates
    #[arg(short = 'k', long)]
    insecure: bool,
    /// Kernel interface
    #[arg(long, value_name = "auto|epoll|uring")]
    io: Option<String>,
    /// Busy-wait before each deadline, for more accurate sends; uses a whole core (SPIN sets the duration)
    #[arg(long)]
    spin: bool,

    #[command(flatten)]
    pub configured: Configured,
}

/// The proxy of commands that fetch pages.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub struct Proxied {
    /// Use this proxy, http:// or socks5://, for all requests; env: those of http_proxy, https_proxy, all_proxy and
    /// no_proxy in the environment, which are not read otherwise
    #[arg(long, value_name = "URL|env")]
    proxy: Option<String>,
}

impl Proxied {
    /// The settings that its flag sets: all that choose a proxy, those of single hosts included, so that no request goes
    /// another way because of a file or of the crawl that is resumed.
    pub fn given(&self) -> Vec<Given> {
        let Some(proxy) = self.proxy.as_deref() else {
            return Vec::new();
        };
        let none = [
            ("PROXY", Value::Null),
            ("PROXY_HTTPS", Value::Null),
            ("NO_PROXY", json!([])),
            (HOSTS, Value::Null),
        ];
        let mut given: Vec<Given> = none
            .into_iter()
            .map(|(name, value)| Given {
                strength: Strength::Files,
                ..Given::new("--proxy", name, value)
            })
            .collect();
        match proxy {
            "env" => {
                let found = environment::proxies(|name| std::env::var(name).ok()).into_iter();
                given.extend(found.map(|(flag, name, value)| Given::new(flag, name, value)));
            }
            url => given.push(Given::new("--proxy", "PROXY", url.into())),
        }
        given
    }
}

/// The pace of commands that fetch pages.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pace")]
pub struct Pace {
    /// Minimum gap between requests to a host: 0.5 is at most two requests per second. For random gaps, from half of it
    /// to half more, add -s RANDOMIZE_DOWNLOAD_DELAY=true [default: 1s, with random gaps]
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    delay: Option<String>,
    /// Maximum requests in flight to a host [default: 1; with AutoThrottle 8]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    concurrency: Option<String>,
}

impl Pace {
    /// The settings that its flags set.
    pub fn given(&self) -> Vec<Given> {
        let delay = one("--delay", "DOWNLOAD_DELAY", &self.delay);
        let exact = self.delay.is_some().then(|| Given {
            strength: Strength::Files,
            ..Given::new("--delay", "RANDOMIZE_DOWNLOAD_DELAY", false.into())
        });
        let name = "CONCURRENT_REQUESTS_PER_DOMAIN";
        let concurrency = one("--concurrency", name, &self.concurrency);
        delay.into_iter().chain(exact).chain(concurrency).collect()
    }
}

impl Sockets {
    /// The settings that its flags set.
    pub fn given(&self) -> Vec<Given> {
        let mut given = Vec::new();
        given.extend(one("--user-agent", "USER_AGENT", &self.user_agent));
        given.extend(one("--contact", "CONTACT", &self.contact));
        given.extend(many("--header", "DEFAULT_REQUEST_HEADERS", &self.header));
        given.extend(one("--user", "HTTP_USER", &self.user));
        given.extend(self.of_hosts());
        given.extend(one("--cookies", "COOKIES_FILE", &self.cookies));
        given.extend(one("--timeout", "DOWNLOAD_TIMEOUT", &self.timeout));
        given.extend(many("--allow-net", "ALLOW_NET", &self.allow_net));
        given.extend(many("--resolve", "RESOLVE", &self.resolve));
        given.extend(many("--dns", "DNS_SERVERS", &self.dns));
        given.extend(one("--ca-file", "CA_FILE", &self.ca_file));
        if self.insecure {
            given.push(Given::new("--insecure", "INSECURE", true.into()));
        }
        given.extend(one("--io", "IO", &self.io));
        if self.spin {
            given.push(Given::new("--spin", "SPIN", SPIN.into()));
        }
        given
    }
}

impl Sockets {
    /// What its flags set of single hosts. It is added to what the other sources set.
    fn of_hosts(&self) -> Vec<Given> {
        let of = |flag: &'static str, pairs: &[String], entry: fn(&str) -> Value| {
            let pairs = pairs.chunks_exact(2);
            let given = pairs.map(move |pair| {
                let hosts = Map::from_iter([(pair[0].clone(), entry(&pair[1]))]);
                Given::new(flag, HOSTS, hosts.into())
            });
            given.collect::<Vec<_>>()
        };
        let mut given = of(
            "--header-for",
            &self.header_for,
            |line| json!({"headers": [line]}),
        );
        given.extend(of(
            "--user-for",
            &self.user_for,
            |user| json!({"user": user}),
        ));
        given
    }
}

/// A setting that a flag sets. The table of settings validates the value.
#[derive(Debug)]
pub struct Given {
    /// The flag, as the user writes it.
    pub flag: &'static str,
    /// The setting's name.
    pub name: &'static str,
    /// Its value.
    pub value: Value,
    /// What it overrides.
    pub strength: Strength,
}

/// The sources that a setting of a flag overrides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// All of them: the flag is about the setting.
    All,
    /// A preset, a file and the crawl that is resumed, but not `-s`.
    Files,
    /// None: what the user set holds.
    Defaults,
}

/// The setting of single hosts. What flags set is added to the entries that there are; null removes their proxies.
pub const HOSTS: &str = "HOSTS";

impl Given {
    /// The setting `name` as `flag` sets it.
    pub fn new(flag: &'static str, name: &'static str, value: Value) -> Self {
        Given {
            flag,
            name,
            value,
            strength: Strength::All,
        }
    }
}

/// The setting of a flag with one value, if the flag is given.
pub fn one(flag: &'static str, name: &'static str, value: &Option<String>) -> Option<Given> {
    let value = value.as_ref()?;
    Some(Given::new(flag, name, value.as_str().into()))
}

/// The setting of a repeatable flag, if the flag is given.
pub fn many(flag: &'static str, name: &'static str, values: &[String]) -> Option<Given> {
    (!values.is_empty()).then(|| Given::new(flag, name, values.into()))
}

/// Arguments of `settings`.
#[derive(Debug, Args)]
pub struct Settings {
    /// Show these settings only, in full: with their kind and meaning
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Show those only that are not at their defaults
    #[arg(long)]
    pub changed: bool,
    /// Print a JSON array with an object for each setting
    #[arg(long, conflicts_with = "toml")]
    pub json: bool,
    /// Print a commented TOML file for --config
    #[arg(long)]
    pub toml: bool,

    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    proxied: Proxied,
    #[command(flatten)]
    sockets: Sockets,
}

impl Settings {
    /// The sources of its settings besides flags.
    pub fn configured(&self) -> &Configured {
        &self.sockets.configured
    }

    /// The settings that its flags set.
    pub fn given(&self) -> Vec<Given> {
        let mut given = self.sockets.given();
        given.extend(self.pace.given());
        given.extend(self.proxied.given());
        given
    }
}

/// The value of `--spin`: about 99 % of sleeps are late by less.
const SPIN: &str = "200us";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::settings::load_resumed;

    #[test]
    fn a_proxy_given_now_holds_for_all_requests_whatever_was_set_before() {
        let stored = json!({
            "PROXY": "http://old.test:1",
            "PROXY_HTTPS": "direct",
            "NO_PROXY": ["a.test"],
            "HOSTS": {"a.test": {"proxy": "direct"}, "b.test": {"proxy": "direct", "pages_max": 3}},
        });
        let check = |set: &[&str], expected: [Value; 4]| {
            let proxied = Proxied {
                proxy: Some("socks5://127.0.0.1:9".to_owned()),
            };
            let configured = Configured {
                set: set.iter().map(|set| (*set).to_owned()).collect(),
                ..Configured::default()
            };
            let config = load_resumed(stored.as_object(), &configured, &proxied.given());
            let config = config.expect("sound settings");
            let of = |name| config.get(name).map_or(Value::Null, Value::from);
            let found = ["PROXY", "PROXY_HTTPS", "NO_PROXY", "HOSTS"].map(of);
            assert_eq!(found, expected, "{set:?}");
        };
        let proxy = || json!("socks5://127.0.0.1:9");
        let hosts = || json!({"b.test": {"pages_max": 3}});
        check(&[], [proxy(), Value::Null, json!([]), hosts()]);
        let set = ["NO_PROXY=b.test", "PROXY_HTTPS=direct"];
        check(&set, [proxy(), json!("direct"), json!(["b.test"]), hosts()]);
        let own = json!({"a.test": {"proxy": "direct"}});
        let set = format!("HOSTS={own}");
        check(&[&set], [proxy(), Value::Null, json!([]), own]);
    }
}
