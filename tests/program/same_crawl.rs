//! The same crawl of a scripted origin, on epoll, on io_uring and in the simulation: results are equal,
//! except for times, local ports and the order of requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use argiope::base::shared::Shared;
use argiope::io::sim::{Answer, ConnId, Faults, Net, Sim, World};
use argiope::io::{Epoll, Io, IoSettings, Uring};
use argiope::serde_json::{Value, from_slice};
use argiope::sink::results::write_line;
use argiope::testkit::http::{Reply, Request, Step};
use argiope::testkit::server::{Server, loopback};
use argiope::testkit::stamp::Stamping;
use argiope::{Config, Crawler, FinishReason, Page};

/// What an origin does with a request, by path. Other paths are answered with 404.
type Script = BTreeMap<&'static str, Vec<Step>>;

fn script() -> Script {
    let pause = || Step::Wait(Duration::from_millis(15));
    let say = |text: &str| Step::Send(text.as_bytes().to_vec());
    let page = |body: &str| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n";
        say(&format!(
            "{head}content-length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    let long = "<p>long</p>".repeat(150_000);
    BTreeMap::from([
        (
            "/robots.txt",
            vec![page("User-agent: *\nDisallow: /private\n")],
        ),
        (
            "/",
            vec![page(concat!(
                "<a href=/pieces>1</a> <a href=/long>2</a> <a href=/moved>3</a> <a href=/private>4</a>",
                "<a href=/chunked>5</a> <a href=/until-end>6</a> <a href=/cut>7</a> <a href=/reset>8</a>",
                "<a href=/empty>9</a> <a href=/gone>10</a> <a href=/early>11</a> <a href=/nonsense>12</a>",
                "<a href=http://refused.test/>13</a>",
            ))],
        ),
        (
            "/pieces",
            vec![
                say("HTTP/1.1 200 OK\r\ncontent-"),
                pause(),
                say("type: text/html\r\ncontent-length: 10\r\n\r\n01234"),
                pause(),
                say("56789"),
            ],
        ),
        ("/long", vec![page(&long)]),
        (
            "/moved",
            vec![say(
                "HTTP/1.1 301 Moved\r\nlocation: /there\r\ncontent-length: 0\r\n\r\n",
            )],
        ),
        ("/there", vec![page("here I am")]),
        (
            "/chunked",
            vec![
                say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n"),
                pause(),
                say("3\r\nefg\r\n0\r\n\r\n"),
            ],
        ),
        (
            "/until-end",
            vec![
                say("HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nto the"),
                pause(),
                say(" end"),
                Step::End,
            ],
        ),
        (
            "/cut",
            vec![
                say("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly so much"),
                Step::End,
            ],
        ),
        (
            "/reset",
            vec![
                say("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"),
                pause(),
                Step::Reset,
            ],
        ),
        ("/empty", vec![Step::End]),
        (
            "/early",
            vec![
                say("HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"),
                pause(),
                page("late"),
            ],
        ),
        ("/nonsense", vec![say("220 mail.test ESMTP\r\n"), Step::End]),
    ])
}

fn steps(script: &Script, request: &Request) -> Vec<Step> {
    script
        .get(request.path())
        .cloned()
        .unwrap_or_else(|| vec![Step::Send(Reply::new(404).to_bytes())])
}

/// The origin as threads on loopback.
fn serve(script: Script) -> Server {
    Server::start(move |asked| steps(&script, asked))
}

/// The same origin in virtual time.
struct Simulated {
    at: SocketAddr,
    script: Script,
    received: BTreeMap<ConnId, Vec<u8>>,
}

impl World for Simulated {
    fn connect(&mut self, _: ConnId, to: SocketAddr, _: &mut Net) -> Answer {
        match to == self.at {
            true => Answer::Accept,
            false => Answer::Refuse,
        }
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        let received = self.received.entry(conn).or_default();
        received.extend_from_slice(bytes);
        while let Ok(Some(request)) = Request::take(received) {
            let mut after = Duration::ZERO;
            for step in steps(&self.script, &request) {
                match step {
                    Step::Send(bytes) => net.reply(conn, after, &bytes),
                    Step::Wait(span) => after += span,
                    Step::End => net.end(conn, after),
                    Step::Reset => net.reset(conn, after),
                    other => unreachable!("the script has no {other:?}"),
                }
            }
        }
    }
}

/// The result lines of a crawl of the origin on this back end, in the order of their URLs.
fn lines<I: Io>(io: I, at: SocketAddr, refuses: SocketAddr) -> Vec<Value> {
    let config = [
        ("ALLOW_NET", "loopback".to_owned()),
        (
            "RESOLVE",
            format!("origin.test:80:{at},refused.test:80:{refuses}"),
        ),
        ("FOLLOW", "all".to_owned()),
        ("DOWNLOAD_DELAY", "0".to_owned()),
        ("RANDOMIZE_DOWNLOAD_DELAY", "false".to_owned()),
        ("BACKOFF_ENABLED", "false".to_owned()),
        ("RETRY_TIMES", "1".to_owned()),
        ("HOST_DOWN_AFTER", "0".to_owned()),
        ("RANDOM_SEED", "1".to_owned()),
    ]
    .into_iter()
    .try_fold(Config::default(), |config, (name, value)| {
        config.with(name, value)
    })
    .expect("these settings are sound");
    let lines = Shared::new(Vec::new());
    let sink_lines = Shared::clone(&lines);
    let mut crawler = Crawler::builder(config)
        .sink(move |page: Page| {
            let mut line = Vec::new();
            write_line(&page, None, &mut line);
            sink_lines
                .borrow_mut()
                .push(from_slice(&line).expect("a line is JSON"));
        })
        .build_on(io, Default::default())
        .expect("a crawl that can begin");
    crawler
        .submit(argiope::Request::get("http://origin.test/"))
        .expect("it is a URL");
    assert_eq!(crawler.run(), FinishReason::Finished);
    drop(crawler);
    alike(lines.take())
}

/// The lines in the order of their URLs and attempts, without the values that may differ.
fn alike(mut lines: Vec<Value>) -> Vec<Value> {
    // The number of lost stamps depends on the load of the machine; tools/latency_judge.py measures it.
    let by_kernel = lines
        .iter()
        .filter(|line| line["clock"] == "kernel")
        .count();
    assert!(by_kernel > 0, "no arrival has a stamp of the kernel");
    let urls: BTreeMap<u64, Value> = lines
        .iter()
        .map(|line| (line["id"].as_u64().expect("a number"), line["url"].clone()))
        .collect();
    for line in &mut lines {
        if let Some(parent) = line["parent"].as_u64() {
            line["parent"] = urls[&parent].clone();
        }
        let fields = line.as_object_mut().expect("a line is an object");
        fields.retain(|name, _| !DIFFERING.contains(&name.as_str()));
        for (_, value) in fields
            .iter_mut()
            .filter(|(name, value)| TIMES.contains(&name.as_str()) && !value.is_null())
        {
            *value = "told".into();
        }
    }
    lines.sort_by_key(|line| (line["url"].to_string(), line["attempt"].as_u64()));
    lines
}

/// Keys whose values differ by chance or on a busy machine.
const DIFFERING: [&str; 4] = ["id", "local", "bound", "delay"];

/// Keys of which only the presence is compared.
const TIMES: [&str; 14] = [
    "clock",
    "connect",
    "started",
    "due",
    "sent",
    "dns",
    "request",
    "first_byte",
    "headers",
    "body",
    "ended",
    "latency",
    "server_latency",
    "lateness",
];

#[test]
fn a_crawl_has_the_same_result_on_every_back_end() {
    let _stamping = Stamping::begin().expect("the kernel stamps what arrives");
    let server = serve(script());
    let at = server.address();
    let refuses = loopback()
        .local_addr()
        .expect("a port that nobody listens on any more");
    let world = Simulated {
        at,
        script: script(),
        received: BTreeMap::new(),
    };
    let sim = Sim::with(1, IoSettings::default(), Faults::default(), Box::new(world));
    let simulated = lines(sim, at, refuses);
    assert_eq!(simulated.len(), 21, "{simulated:#?}");
    let epoll = Epoll::new(IoSettings::default()).expect("a back end");
    assert_same(&lines(epoll, at, refuses), &simulated);
    match Uring::new(IoSettings::default()) {
        Ok(uring) => assert_same(&lines(uring, at, refuses), &simulated),
        Err(reason) => crate::loud::skip(reason),
    }
}

fn assert_same(these: &[Value], those: &[Value]) {
    for (this, that) in these.iter().zip(those) {
        assert_eq!(this, that);
    }
    assert_eq!(these.len(), those.len());
}
