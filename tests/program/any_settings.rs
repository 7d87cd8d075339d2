//! Every configuration value is accepted or rejected in bounded time, and crawls work with every
//! accepted value.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant as Clock};

use argiope::base::rng::Rng;
use argiope::fetch::resolver;
use argiope::io::sim::{Faults, Origins, Sim};
use argiope::serde_json::{Map, Value, json};
use argiope::settings::{Setting, SettingSource, all, presets};
use argiope::{Config, Crawler, Page, Request, Turn};

use crate::loopback::{Reply, Server};

/// Limit of each step. All are short, except on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Values that a user may write, valid or not.
const TEXTS: &[&str] = &[
    "",
    " ",
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "7",
    "0.5",
    "1e3",
    "1e308",
    "1e400",
    "-1e400",
    "nan",
    "inf",
    "-inf",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "0x10",
    "1_000",
    "10s",
    "500ms",
    "1h30m",
    "99999999999d",
    "1ns",
    "5µs",
    "-3s",
    "3 s",
    "s",
    "1.2.3s",
    "10MiB",
    "1k",
    "9e18GB",
    "8388608GiB",
    ".5G",
    "..",
    "true",
    "off",
    "null",
    "[",
    "]",
    "[]",
    "{}",
    "[1,2]",
    "[0.5, 2]",
    "-0.5,0.5",
    ",",
    ",,",
    "a,b",
    "[a,b",
    "a=b",
    "=",
    ":",
    "::",
    "[::1]",
    "::1/129",
    "::/0",
    "10.0.0.0/8",
    "10.0.0.0/33",
    "0.0.0.0/0",
    "1.2.3.4:80",
    "[::1]:53",
    "*",
    "*.",
    "*.*",
    "*.example.com",
    "example.com",
    "ip/*",
    "ip/10.0.0.1",
    "host/a.test",
    "default",
    "domain/*",
    "*:80:10.0.0.1",
    "a.test:80:10.0.0.1:8080",
    "a.test:99999:10.0.0.1",
    "(a+)+$",
    "a{1000}{1000}",
    "(?:a{200}){200}",
    "\\p{L}*",
    "(",
    "[[",
    "\\",
    ".*",
    "$^",
    "http://p.test:3128",
    "socks5h://u:p@[::1]:1080",
    "http://",
    "direct",
    "me@example.org",
    "https://example.org/bot",
    "a\r\nb",
    "a\0b",
    "ä",
    "💡",
    "\u{202e}",
    "bot/1.0 (+x)",
    "robust",
    "scrapy",
    "uring",
    "epoll",
    "fixed",
    "sliding",
    "alone",
    "refuse",
    "always",
    "backoff",
    "connect",
    "send",
    "timeout",
    "dns.servfail",
    "dns.",
    ".",
    "nothing.here",
    "Accept: x",
    "Host: x",
    "domain,ip",
    "/no/such/file",
];

const KEYS: &[&str] = &[
    "delay",
    "concurrency",
    "delay_per_slot",
    "jitter",
    "quota",
    "window",
    "window_kind",
    "backoff",
    "autothrottle",
    "rampup",
    "manager",
    "enabled",
    "min_delay",
    "max_delay",
    "delay_factor",
    "http_codes",
    "exceptions",
    "concurrency_factor",
    "backoff_target",
    "target_concurrency",
    "mode",
    "start_delay",
    "latency_from",
    "randomize_delay",
    "ignore_robots_txt",
    "name",
    "default",
    "*.test",
    "a.test",
    "ip/*",
    "",
    "X-Field",
];

fn pick<'a, T: ?Sized>(rng: &mut Rng, from: &[&'a T]) -> &'a T {
    from[rng.below(from.len() as u64) as usize]
}

fn text(rng: &mut Rng) -> String {
    match rng.below(10) {
        0 => pick(rng, TEXTS).repeat(rng.below(2000) as usize),
        1 => format!("{}{}", pick(rng, TEXTS), pick(rng, TEXTS)),
        2 => (0..rng.below(12))
            .map(|_| char::from_u32(rng.below(0x2_ffff) as u32).unwrap_or('\u{fffd}'))
            .collect(),
        _ => pick(rng, TEXTS).to_owned(),
    }
}

fn value(rng: &mut Rng, depth: u32) -> Value {
    match rng.below(if depth < 4 { 12 } else { 8 }) {
        0 => Value::Null,
        1 => rng.chance(0.5).into(),
        2 => rng.next_u64().into(),
        3 => (rng.next_u64() as i64 >> rng.below(64)).into(),
        4 => rng.below(20).into(),
        5 => json!(f64::from_bits(rng.next_u64())),
        6 => json!((rng.below(4000) as f64 - 1000.0) / 1000.0),
        7 => text(rng).into(),
        8 | 9 => (0..rng.below(5)).map(|_| value(rng, depth + 1)).collect(),
        _ => {
            let pairs = (0..rng.below(5)).map(|_| {
                let key = match rng.below(4) {
                    0 => text(rng),
                    _ => pick(rng, KEYS).to_owned(),
                };
                (key, value(rng, depth + 1))
            });
            pairs.collect::<Map<_, _>>().into()
        }
    }
}

/// The default of a setting, or a similar value.
fn like(rng: &mut Rng, own: Value) -> Value {
    match own {
        Value::Number(number) if rng.chance(0.7) => {
            let number = number.as_f64().unwrap_or(0.0);
            json!(number * [0.0, 0.5, 1.0, 1.5, 2.0, 1e3, 1e9, -1.0][rng.below(8) as usize])
        }
        Value::Array(mut items) => {
            if !items.is_empty() && rng.chance(0.5) {
                items.remove(rng.below(items.len() as u64) as usize);
            }
            items.push(value(rng, 3));
            items.into()
        }
        Value::Object(mut map) => {
            map.insert(pick(rng, KEYS).to_owned(), scope(rng));
            map.into()
        }
        Value::Bool(flag) => (!flag).into(),
        _ => value(rng, 0),
    }
}

/// Plausible entries of a scope.
fn scope(rng: &mut Rng) -> Value {
    let pairs = (0..rng.below(6)).map(|_| {
        let key = pick(rng, KEYS);
        let said = match rng.below(4) {
            0 => value(rng, 3),
            1 => json!({ (pick(rng, KEYS)): (rng.below(5)) }),
            2 => pick(rng, TEXTS).into(),
            _ => json!(rng.below(10)),
        };
        (key.to_owned(), said)
    });
    pairs.collect::<Map<_, _>>().into()
}

/// A random value of a random setting.
fn say(rng: &mut Rng) -> (String, Value) {
    let setting: &Setting = &all()[rng.below(all().len() as u64) as usize];
    let name = match rng.below(20) {
        0 => text(rng),
        1 => setting.name.to_ascii_lowercase(),
        _ => setting.name.to_owned(),
    };
    let value = match rng.below(3) {
        0 => value(rng, 0),
        1 => text(rng).into(),
        _ => like(rng, setting.default().into()),
    };
    (name, value)
}

#[test]
fn every_value_is_accepted_or_rejected_with_one_line() {
    let mut taken = 0;
    for seed in 0..7000 {
        let mut rng = Rng::from_seed(seed);
        let (name, value) = say(&mut rng);
        let began = Clock::now();
        let said = Config::default().with(&name, value.clone());
        let what = format!("{seed}: {name} = {value}");
        assert!(began.elapsed() < PATIENCE, "{what:.300}");
        match said {
            Err(error) => {
                let message = error.to_string();
                assert!(message.lines().count() <= 1, "{what:.300}: {message}");
            }
            Ok(config) => {
                taken += 1;
                // The value that it returns is accepted again.
                let own = config.get(&name).expect("it is a setting");
                let again = Config::default().with(&name, own.clone());
                let again = again.unwrap_or_else(|error| panic!("{what:.300}: {error}"));
                assert_eq!(again.get(&name), Some(own), "{what:.300}");
                let _ = config.source(&name);
            }
        }
    }
    assert!(taken > 1000, "{taken}");
}

fn web() -> Origins {
    let mut web = Origins::default();
    for host in 1..=3 {
        let at: SocketAddr = format!("10.0.0.{host}:80").parse().expect("an address");
        web.page(
            at,
            "/",
            "<a href=/1>1</a> <a href=//10.0.0.2/2>2</a> <a href=/gone>3</a>",
        );
        web.page(at, "/1", "<a href=/2>2</a>");
        let busy = b"HTTP/1.1 503 Busy\r\nretry-after: 3\r\ncontent-length: 0\r\n\r\n";
        web.reply(at, "/2", Duration::from_millis(300), busy);
        let robots =
            b"HTTP/1.1 200 OK\r\ncontent-length: 34\r\n\r\nUser-agent: *\nCrawl-delay: 2\nAllow:";
        web.reply(at, "/robots.txt", Duration::from_millis(1), robots);
        let moved = b"HTTP/1.1 302 Found\r\nlocation: /1\r\ncontent-length: 0\r\n\r\n";
        web.reply(at, "/gone", Duration::from_millis(1), moved);
    }
    web
}

/// Crawls briefly with this configuration. Returns whether the crawl was over by then.
fn crawl(config: Config, seed: u64) -> Option<bool> {
    let io = Sim::with(
        seed,
        config.io().clone(),
        Faults::default(),
        Box::new(web()),
    );
    let crawler = Crawler::builder(config)
        .sink(|_: Page| {})
        .build_on(io, resolver::ResolverSettings::default());
    let mut crawler = crawler.ok()?;
    for host in 1..=3 {
        for path in ["", "1", "2"] {
            let request = Request::get(format!("http://10.0.0.{host}/{path}"));
            let _ = crawler.submit(request);
        }
    }
    let _ = crawler.submit(Request::get("http://a.test/"));
    for _ in 0..300 {
        if let Turn::Over(_) = crawler.turn(Some(Duration::from_secs(3600))) {
            return Some(true);
        }
    }
    let _ = (
        crawler.pacing(),
        crawler
            .stats()
            .to_json(&crawler.progress(), &crawler.pacing()),
    );
    crawler.stopper().stop_now();
    while crawler.turn(Some(Duration::from_secs(3600))) == Turn::GoesOn {}
    Some(false)
}

#[test]
fn crawls_work_with_each_setting_at_its_bounds() {
    let century = 3_155_760_000_u64;
    for setting in all() {
        let mut tried = Vec::new();
        for extreme in [
            json!(0),
            json!(1e-9),
            json!(1),
            json!(u16::MAX),
            json!(u32::MAX),
            json!(century),
            json!(i64::MAX),
            json!(1e300),
        ] {
            let config = Config::default()
                .with("ALLOW_NET", "10.0.0.0/8")
                .expect("a network");
            let Ok(config) = config.with(setting.name, extreme.clone()) else {
                continue;
            };
            let said = config.get(setting.name);
            if said == Some(setting.default()) || tried.contains(&said) {
                continue;
            }
            let began = Clock::now();
            let crawled = std::panic::catch_unwind(|| crawl(config.finish().ok()?, 1));
            assert!(crawled.is_ok(), "{} = {extreme}", setting.name);
            assert!(began.elapsed() < PATIENCE, "{} = {extreme}", setting.name);
            tried.push(said);
        }
    }
}

#[test]
fn io_settings_work_at_their_bounds() {
    let server = Server::start(|_| Reply::page("a page"));
    for io in ["epoll", "uring"] {
        for name in [
            "SOCKETS_MAX",
            "READ_BUDGET",
            "TIMER_SLACK",
            "SPIN",
            "BUFFERED_BODIES_MAX",
        ] {
            for extreme in [
                json!(1e-9),
                json!(1),
                json!(3_155_760_000_u64),
                json!(i64::MAX),
            ] {
                let config = server.config().with("IO", io).expect("it is sound");
                let config = config.with("CONCURRENT_REQUESTS", 2).expect("it is sound");
                let Ok(config) = config.with(name, extreme.clone()) else {
                    continue;
                };
                let built = std::panic::catch_unwind(|| Crawler::builder(config).build());
                let built = built.unwrap_or_else(|_| panic!("{name} = {extreme}"));
                let Ok(mut crawler) = built else {
                    continue;
                };
                let page = Request::get("http://a.test/").timeout(Duration::from_secs(5));
                crawler.submit(page).expect("it is a URL");
                let began = Clock::now();
                while crawler.next_result().is_some() {}
                assert!(began.elapsed() < PATIENCE, "{io}: {name} = {extreme}");
            }
        }
    }
}

#[test]
fn crawls_work_with_every_accepted_value() {
    let (mut refused, mut cut, mut over) = (0, 0, 0);
    for seed in 0..150 {
        let mut rng = Rng::from_seed(seed);
        let mut config = Config::default()
            .with("ALLOW_NET", "10.0.0.0/8")
            .expect("a network");
        if rng.chance(0.2) {
            let preset = &presets()[rng.below(presets().len() as u64) as usize];
            config.preset(preset.name).expect("it is one");
        }
        let mut said = Vec::new();
        let wanted = 1 + rng.below(12);
        while said.len() < wanted as usize {
            let (name, value) = say(&mut rng);
            if config.set(&name, &value, SettingSource::Program).is_ok() {
                said.push((name, value));
            }
        }
        let said = format!("{seed}: {said:?}");
        let began = Clock::now();
        let crawled = std::panic::catch_unwind(|| {
            let config = config.finish().ok()?;
            crawl(config, seed)
        });
        match crawled {
            Ok(None) => refused += 1,
            Ok(Some(true)) => over += 1,
            Ok(Some(false)) => cut += 1,
            Err(_) => panic!("{said:.2000}"),
        }
        assert!(began.elapsed() < PATIENCE, "{said:.2000}");
    }
    assert!(over > 20 && over + cut > 60, "{refused} {cut} {over}");
}

/// A line of TOML, or something that looks like one.
fn toml(rng: &mut Rng) -> String {
    let (name, value) = say(rng);
    match rng.below(6) {
        0 => format!(
            "[throttling_scopes.{:?}]\n{} = {value}",
            pick(rng, TEXTS),
            pick(rng, KEYS)
        ),
        1 => format!("{} = {}", name, pick(rng, TEXTS)),
        2 => format!("{name} = 1979-05-27T07:32:00Z"),
        3 => format!("{name} = '''{}'''", text(rng)),
        _ => format!("{name} = {value}"),
    }
}

#[test]
fn every_file_and_flag_is_accepted_or_rejected_with_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("any.toml");
    let mut taken = 0;
    for seed in 0..150 {
        let mut rng = Rng::from_seed(seed);
        let mut text: Vec<u8> = (0..1 + rng.below(3))
            .flat_map(|_| format!("{}\n", toml(&mut rng)).into_bytes())
            .collect();
        if rng.chance(0.2) {
            let at = rng.below(text.len() as u64) as usize;
            text[at] = rng.below(256) as u8;
        }
        fs::write(&path, &text).expect("it can be written");
        let (name, value) = say(&mut rng);
        let mut command = Command::new(env!("CARGO_BIN_EXE_argiope"));
        command.args(["settings", "--json"]);
        match rng.chance(0.6) {
            true => command.arg("--config").arg(&path),
            false => {
                let plain = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                let saying = format!("{name}={plain}").replace('\0', "");
                command.arg("-s").arg(saying)
            }
        };
        let began = Clock::now();
        let ended = command.output().expect("it runs");
        let message = String::from_utf8_lossy(&ended.stderr);
        let what = format!("{seed}: {}: {message}", String::from_utf8_lossy(&text));
        assert!(matches!(ended.status.code(), Some(0 | 2)), "{what:.2000}");
        assert!(began.elapsed() < PATIENCE, "{what:.2000}");
        taken += u32::from(ended.status.success());
    }
    assert!(taken > 3, "{taken}");
}
