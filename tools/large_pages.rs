//! Length of turns with large or hostile pages: processor time of the crawl's thread per turn, over
//! loopback.
//!
//! ```sh
//! cargo run --release --example large_pages -- [--warc] [--mib N] [--at-once N] [--neighbours N]
//!     [--set NAME=VALUE]… [KIND]…
//! ```
//!
//! Prints for each kind of page the number of turns, their sum, and the longest three. KIND selects
//! kinds; the default is all. `usual` is a crawl of pages of 60 kB with a hundred links each; its mean
//! matters. `--warc` writes WARC files and deletes them; `--at-once N` crawls the page on N hosts at the
//! same time; `--neighbours N` crawls a small page of N other hosts a hundred times each beside it, prints how late
//! these requests are, and leaves each host alone for 20 ms after a request; `--set WORKERS=2` crawls with helper threads.
//! The server's threads have the lowest priority, so that they take no processor from the crawl. The last line is a
//! loop that only reads the clock, for as long as all turns took: it shows the interruptions by the machine.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use argiope::sink::files::{FileSink, FileSinkOptions, WarcOptions};
use argiope::testkit::http::{Reply, Step};
use argiope::testkit::server::{Server, listener};
use argiope::{Config, Crawler, Request, Turn};
use rustix::process::setpriority_process;
use rustix::thread::gettid;

#[path = "../src/cli/allocator.rs"]
mod allocator;

/// Replies of a host, by path.
type Site = BTreeMap<&'static str, Vec<u8>>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    allocator::prepare();
    let mut plan = Plan {
        warc: false,
        at_once: 1,
        neighbours: 0,
        set: Vec::new(),
    };
    let (mut mib, mut names) = (10_u8, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let value = arguments.next();
            value.ok_or_else(|| format!("{argument} takes a value"))
        };
        match argument.as_str() {
            "--warc" => plan.warc = true,
            "--mib" => mib = value()?.parse()?,
            "--at-once" => plan.at_once = value()?.parse()?,
            "--neighbours" => plan.neighbours = value()?.parse()?,
            "--set" => {
                let value = value()?;
                let (name, value) = value.split_once('=').ok_or("--set takes NAME=VALUE")?;
                plan.set.push((name.to_owned(), value.to_owned()));
            }
            name => names.push(name.to_owned()),
        }
    }
    println!(
        "{:<14} {:>7} {:>11} {:>9}  {:<24} longest turns",
        "kind", "turns", "together", "memory", "ended by"
    );
    let mut together = Duration::ZERO;
    for (name, site) in kinds(usize::from(mib) << 20) {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            together += measure(name, site, &plan)?;
        }
    }
    let bare: Vec<String> = longest_of_nothing(together)
        .iter()
        .map(|took| format!("{took:.2?}"))
        .collect();
    println!(
        "{:<14} {together:>19.2?} {:>36} {}",
        "nothing",
        "",
        bare.join(", ")
    );
    Ok(())
}

/// How pages are crawled.
struct Plan {
    warc: bool,
    /// Hosts with the page.
    at_once: u8,
    /// Hosts beside them, with small pages.
    neighbours: u8,
    /// Settings.
    set: Vec<(String, String)>,
}

/// Requests to each neighbour.
const NEIGHBOURS_PAGES: u64 = 100;

/// How long a neighbour is left alone between two.
const NEIGHBOURS_DELAY: Duration = Duration::from_millis(20);

/// The three longest times between two readings of the clock, for a thread that does nothing else.
fn longest_of_nothing(span: Duration) -> Vec<Duration> {
    let mut longest = vec![Duration::ZERO; 3];
    let mut before = thread_time();
    let until = before + span;
    while before < until {
        let now = thread_time();
        let took = now - before;
        if took > longest[2] {
            longest[2] = took;
            longest.sort_by(|one, other| other.cmp(one));
        }
        before = now;
    }
    longest
}

/// Crawls pages of one kind; returns the sum of all turns.
fn measure(
    name: &str,
    mut site: Site,
    plan: &Plan,
) -> Result<Duration, Box<dyn std::error::Error>> {
    let seeds = if name == "usual" { 400 } else { 1 };
    site.insert("/small", page("text/plain", b"small"));
    let server = serve(site)?;
    let port = server.port();
    let folder = tempfile::tempdir()?;
    let neighbours = u64::from(plan.neighbours);
    let delay = if neighbours > 0 {
        NEIGHBOURS_DELAY
    } else {
        Duration::ZERO
    };
    let mut config = Config::default()
        .with("ALLOW_NET", "loopback")?
        .with("DOWNLOAD_DELAY", delay.as_secs_f64())?
        .with("DOWNLOAD_DELAY_PER_SLOT", 0)?
        .with("RETRY_TIMES", 0)?
        .with("FOLLOW_SITEMAPS", true)?
        .with("WARC", plan.warc)?
        .with(
            "CLOSESPIDER_PAGECOUNT",
            u64::from(plan.at_once) * seeds + neighbours * NEIGHBOURS_PAGES,
        )?;
    for (name, value) in &plan.set {
        config = config.with(name, value.as_str())?;
    }
    let mut options = FileSinkOptions::new(folder.path());
    options.warc = config.warc_size_max().map(|size_max| {
        let mut warc = WarcOptions::new("here", [7; 16]);
        warc.size_max = size_max;
        warc
    });
    let mut crawler = Crawler::builder(config)
        .sink(FileSink::new(options))
        .build()?;
    for host in 1..=plan.neighbours {
        for page in 0..NEIGHBOURS_PAGES {
            crawler.submit(Request::get(format!(
                "http://127.0.2.{host}:{port}/small?{page}"
            )))?;
        }
    }
    for host in 1..=plan.at_once {
        for page in 0..seeds {
            let page = if name == "usual" {
                format!("page?{page}")
            } else {
                String::new()
            };
            crawler.submit(Request::get(format!("http://127.0.1.{host}:{port}/{page}")))?;
        }
    }
    let stopper = crawler.stopper();
    let began = std::time::Instant::now();
    let (mut turns, mut together) = (0_u64, Duration::ZERO);
    // The three longest, and their numbers.
    let mut longest: Vec<(Duration, u64)> = Vec::new();
    let reason = loop {
        allocator::give_back_soon();
        let before = thread_time();
        let turn = crawler.turn(Some(Duration::from_secs(1)));
        let took = thread_time() - before;
        turns += 1;
        together += took;
        longest.push((took, turns));
        longest.sort_by(|one, other| other.cmp(one));
        longest.truncate(3);
        if let Turn::Over(reason) = turn {
            break reason;
        }
        if began.elapsed() > PATIENCE {
            stopper.stop_now();
        }
    };
    let longest: Vec<String> = longest
        .iter()
        .map(|(took, turn)| format!("{took:.2?} (turn {turn})"))
        .collect();
    println!(
        "{name:<14} {turns:>7} {together:>11.2?} {:>5} MiB  {reason:<24} {}",
        memory() >> 20,
        longest.join(", ")
    );
    let lateness = lateness_of_neighbours(folder.path())?;
    if !lateness.is_empty() {
        let at = |percent| lateness[(lateness.len() - 1) * percent / 100];
        println!(
            "{:<14} {} requests to neighbours: late by {:.2?} (median), {:.2?} (p99), {:.2?} (longest)",
            "",
            lateness.len(),
            at(50),
            at(99),
            at(100)
        );
    }
    Ok(together)
}

/// How late the requests to neighbours were, in order, by the result lines in a folder.
fn lateness_of_neighbours(folder: &Path) -> Result<Vec<Duration>, Box<dyn std::error::Error>> {
    let mut lateness = Vec::new();
    for line in std::fs::read_to_string(folder.join("results.jsonl"))?.lines() {
        let line: serde_json::Value = serde_json::from_str(line)?;
        let is_neighbour = line["url"]
            .as_str()
            .is_some_and(|url| url.contains("/small?"));
        if let Some(late) = line["lateness"].as_f64().filter(|_| is_neighbour) {
            lateness.push(Duration::from_secs_f64(late));
        }
    }
    lateness.sort_unstable();
    Ok(lateness)
}

/// A crawl that takes longer is stopped: most kinds of its turns have been measured.
const PATIENCE: Duration = Duration::from_secs(30);

/// Links whose queries have this many of these characters, and a number.
fn queries(character: &[u8], count: usize, size: usize) -> Vec<u8> {
    let mut html = Vec::with_capacity(size + 1000);
    while html.len() < size {
        html.extend_from_slice(format!("<a href='?{}", html.len()).as_bytes());
        html.extend_from_slice(&character.repeat(count));
        html.extend_from_slice(b"'>");
    }
    html
}

/// The kinds of pages, each with its robots.txt and sitemaps.
fn kinds(size: usize) -> Vec<(&'static str, Site)> {
    let fill = |text: &str| text.repeat(size / text.len());
    let numbered = |before: &str, after: &str, most: usize| {
        let mut html = String::with_capacity(size + 100);
        let mut number = 0;
        while html.len() < size && number < most {
            html += before;
            html += &number.to_string();
            html += after;
            number += 1;
        }
        html
    };
    let base = |folder: &str, links: String| {
        format!("<base href='/{}{folder}'>{links}", "b".repeat(60_000))
    };
    let html = |text: String| page("text/html; charset=utf-8", text.as_bytes());
    let latin = |text: &str| {
        text.bytes()
            .map(|b| if b == b'~' { 0xe9 } else { b })
            .collect::<Vec<u8>>()
    };
    let chunked = {
        let mut reply =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_vec();
        reply.extend(b"1\r\n<\r\n".repeat(size / 6));
        reply.extend(b"0\r\n\r\n");
        reply
    };
    let paragraphs = "<p>Some words of a text, and <a href=/link>a link</a> among them.</p>\n";
    let pages: Vec<(&str, Vec<u8>)> = vec![
        ("links", html(numbered("<a href=/", ">x</a>\n", usize::MAX))),
        ("text", html(fill("words and words, and no tag at all. "))),
        ("paragraphs", html(fill(paragraphs))),
        ("base", html(base("/", numbered("<a href=", ">", 10_000)))),
        (
            "base-dots",
            html(base("/", numbered("<a href=../", ">", usize::MAX))),
        ),
        ("tags", html(fill("<a>"))),
        ("attributes", html(fill("<a b=c d='e' f>"))),
        ("one-tag", html(format!("<a {}", fill("b c ")))),
        ("entities", html(fill("&a"))),
        ("no-entity", html(fill("&CounterClockwiseContourIntegra "))),
        ("blanks", html(format!("<a{}", fill(" ")))),
        ("nul", html(format!("<plaintext>{}", fill("\0")))),
        (
            "srcset",
            html(numbered(
                "<img srcset='a 1x, b 2x, c 3x, d 4x, ",
                " 5x'>",
                usize::MAX,
            )),
        ),
        ("metas", html(fill("<meta name=robots content=all>"))),
        (
            "undeclared",
            page("text/html", fill("ein schöner Text über Äpfel ").as_bytes()),
        ),
        (
            "latin1",
            page(
                "text/html; charset=latin1",
                &latin(&numbered("<a href=/~", ">", usize::MAX)),
            ),
        ),
        (
            "shift_jis",
            page(
                "text/html; charset=shift_jis",
                &[0x82, 0xa0].repeat(size / 2),
            ),
        ),
        // Queries are percent-encoded in the page's encoding; unmappable characters as references.
        (
            "big5-queries",
            page("text/html; charset=big5", &queries(&[0xff], 140, size)),
        ),
        (
            "gbk-queries",
            page("text/html; charset=gbk", &queries(&[0xf7, 0xfe], 300, size)),
        ),
        ("chunks", chunked),
        ("gzip", gzipped(&gzip(&fill(paragraphs)))),
        // Longer than what is decoded as a whole.
        ("gzip-dense", gzipped(&gzip(&dense(size)))),
        (
            "gzip-twice",
            coded(
                "gzip, gzip",
                &argiope::wire::coding::gzip(&gzip(&dense(size))),
            ),
        ),
        ("members", members(size)),
    ];
    let mut kinds: Vec<(&str, Site)> = pages
        .into_iter()
        .map(|(name, page)| (name, Site::from([("/", page)])))
        .collect();
    kinds.push(("usual", Site::from([("/page", html(usual()))])));
    let robots = |text: String| page("text/plain", text.as_bytes());
    let part = |text: &str| text.repeat(500_000 / text.len());
    let half = |text: &str| text.repeat(250_000 / text.len());
    for (name, text) in [
        (
            "robots-short",
            format!("User-agent: *\n{}", part("Allow:/\n")),
        ),
        (
            "robots-agents",
            half("User-agent: argiope\n") + &half("Crawl-delay: 0\n"),
        ),
        ("robots-groups", part("User-agent: *\nAllow:/a\n")),
        (
            "robots-stars",
            format!("User-agent: *\n{}", part("Disallow: /*a*b*c$\n")),
        ),
        ("robots-maps", numbered("Sitemap: /", "\n", 30_000)),
    ] {
        let many = numbered(
            "<a href=/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            ">",
            10_000,
        );
        kinds.push((
            name,
            Site::from([("/robots.txt", robots(text)), ("/", html(many))]),
        ));
    }
    let urls = format!(
        "<urlset>{}",
        numbered("<url><loc>/", "</loc></url>", usize::MAX)
    );
    for (name, map) in [
        ("sitemap", page("application/xml", urls.as_bytes())),
        (
            "sitemap-gz",
            page("application/gzip", &gzip(&urls.repeat(5))),
        ),
        (
            "sitemap-tags",
            page(
                "application/xml",
                format!("<a>{}", fill("<b c='d'/>")).as_bytes(),
            ),
        ),
        (
            "sitemap-quote",
            page(
                "application/xml",
                format!("<a b=\"{}", fill("'\"")).as_bytes(),
            ),
        ),
        (
            "sitemap-note",
            page("application/xml", format!("<!--{}", fill("-->")).as_bytes()),
        ),
        (
            "sitemap-lines",
            page("text/plain", fill("http://127.0.0.1/\nno URL\n").as_bytes()),
        ),
    ] {
        kinds.push((
            name,
            Site::from([
                ("/robots.txt", robots("Sitemap: /map\n".to_owned())),
                ("/map", map),
                ("/", html("home".to_owned())),
            ]),
        ));
    }
    kinds
}

/// 60 kB with 101 links.
fn usual() -> String {
    (0..101)
        .map(|number| {
            format!(
                "<p>{}<a href=\"/page?{number}\">a link</a></p>\n",
                "some words of text ".repeat(29)
            )
        })
        .collect()
}

fn page(content_type: &str, body: &[u8]) -> Vec<u8> {
    let reply = Reply::new(200).field("Content-Type", content_type);
    reply.body(body).to_bytes()
}

fn gzipped(body: &[u8]) -> Vec<u8> {
    coded("gzip", body)
}

fn coded(codings: &str, body: &[u8]) -> Vec<u8> {
    let reply = Reply::status(200).field("Content-Encoding", codings);
    reply.body(body).to_bytes()
}

/// Text that gzip makes little shorter.
fn dense(size: usize) -> String {
    let mut state = 1_u64;
    let mut text = String::with_capacity(size + 20);
    while text.len() < size {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        text += &format!("{state:x} ");
    }
    text
}

fn gzip(text: &str) -> Vec<u8> {
    argiope::wire::coding::gzip(text.as_bytes())
}

/// A body of empty gzip members.
fn members(size: usize) -> Vec<u8> {
    let member = gzip("");
    gzipped(&member.repeat(size / member.len()))
}

/// Serves a site on all addresses, by threads of the lowest priority.
fn serve(site: Site) -> std::io::Result<Server> {
    let listener = listener((Ipv4Addr::UNSPECIFIED, 0))?;
    let start = move || -> std::io::Result<Server> {
        // The server's threads inherit it.
        setpriority_process(Some(gettid()), NICEST)?;
        Ok(Server::on(listener, None, move |asked| {
            let reply = site.get(asked.path()).cloned();
            vec![Step::Send(
                reply.unwrap_or_else(|| Reply::new(404).to_bytes()),
            )]
        }))
    };
    let started = std::thread::spawn(start).join();
    started.expect("the server starts without a panic")
}

/// The lowest priority.
const NICEST: i32 = 19;

/// Processor time of this thread.
fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock exists, and the call writes only to `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Peak of resident memory, in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
