//! Replies of a simulated server, byte for byte.

use std::time::Duration;

use super::words::Words;

/// One reply.
#[derive(Clone, Debug)]
pub struct Step {
    pub think: Duration,
    pub reply: Reply,
    /// Header lines beyond those that the reply needs.
    pub headers: Vec<String>,
    /// From the head to the body, where that is not at once.
    pub body_after: Duration,
    /// The server ends the connection behind it.
    pub closes: bool,
}

/// A reply of a server, or a fault.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A page that links to these.
    Page(Vec<String>),
    /// The same, in chunks.
    Chunked(Vec<String>),
    /// The same, ended by the connection's end.
    UntilEnd(Vec<String>),
    Text(Vec<u8>),
    /// A page of just this.
    Html(String),
    /// A page that is judged by its words.
    Words(Words),
    Status(u16),
    Redirect(u16, String),
    /// A page cut short.
    Truncated,
    /// A page in chunks, cut short within one.
    BrokenChunk,
    /// No reply but RST.
    Reset,
    /// RST in the middle of the body.
    ResetInside,
    /// No reply at all.
    Silence,
}

impl Step {
    pub fn new(reply: Reply) -> Self {
        Step {
            think: Duration::from_millis(20),
            reply,
            headers: Vec::new(),
            body_after: Duration::ZERO,
            closes: false,
        }
    }

    /// A page without links.
    pub fn page() -> Self {
        Step::new(Reply::Page(Vec::new()))
    }

    pub fn status(status: u16) -> Self {
        Step::new(Reply::Status(status))
    }

    pub fn after(mut self, think: Duration) -> Self {
        self.think = think;
        self
    }

    pub fn after_ms(self, think: u64) -> Self {
        self.after(Duration::from_millis(think))
    }

    /// With this header line.
    pub fn with(mut self, header: impl Into<String>) -> Self {
        self.headers.push(header.into());
        self
    }

    pub fn body_after(mut self, wait: Duration) -> Self {
        self.body_after = wait;
        self
    }

    /// Changes the names of the hosts that it leads to.
    pub fn rename(&mut self, renamed: impl Fn(&str) -> String) {
        match &mut self.reply {
            Reply::Page(links) | Reply::Chunked(links) | Reply::UntilEnd(links) => {
                links.iter_mut().for_each(|link| *link = renamed(link));
            }
            Reply::Redirect(_, to) => *to = renamed(to),
            _ => {}
        }
    }

    /// Whether the usual retry policy tries again behind it.
    pub fn invites_retry(&self) -> bool {
        match &self.reply {
            _ if self.body_after >= HANGS => true,
            Reply::Status(status) => [500, 502, 503, 504, 522, 524, 408, 429].contains(status),
            Reply::Words(words) => words.asks.is_some() || words.broken_off.is_some(),
            Reply::Truncated
            | Reply::BrokenChunk
            | Reply::Reset
            | Reply::ResetInside
            | Reply::Silence => true,
            _ => false,
        }
    }

    /// The title of its page, if it is a whole one with links.
    pub fn title(&self) -> Option<String> {
        let (Reply::Page(links) | Reply::Chunked(links) | Reply::UntilEnd(links)) = &self.reply
        else {
            return None;
        };
        let body = String::from_utf8(page(links)).expect("a page is text");
        let (_, rest) = body.split_once("<title>")?;
        Some(rest.split_once("</title>")?.0.to_owned())
    }

    /// How long its `Retry-After` asks to be left alone, in seconds.
    pub fn retry_after(&self) -> Option<Duration> {
        let mut values = self.headers.iter();
        let value = values.find_map(|line| line.strip_prefix("Retry-After: "))?;
        value.parse().ok().map(Duration::from_secs)
    }

    /// The head, the body, and whether the connection ends behind them.
    pub fn bytes(&self) -> (Vec<u8>, Vec<u8>, bool) {
        let mut extra: String = self.headers.iter().map(|l| format!("{l}\r\n")).collect();
        if self.closes {
            extra += "Connection: close\r\n";
        }
        let html = "Content-Type: text/html\r\n";
        let plain = "Content-Type: text/plain\r\n";
        let (status, fields, body, ends) = match &self.reply {
            Reply::Page(links) => {
                let body = page(links);
                (200, format!("{html}{}", length(&body)), body, false)
            }
            Reply::Html(body) => (
                200,
                format!("{html}{}", length(body)),
                body.clone().into(),
                false,
            ),
            Reply::Chunked(links) => {
                let body = page(links);
                let (a, b) = body.split_at(body.len() / 2);
                let chunk = |part: &[u8]| {
                    [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat()
                };
                let body = [chunk(a), chunk(b), b"0\r\n\r\n".to_vec()].concat();
                (
                    200,
                    format!("{html}Transfer-Encoding: chunked\r\n"),
                    body,
                    false,
                )
            }
            Reply::BrokenChunk => {
                let body = b"ff\r\n<p>A".to_vec();
                (
                    200,
                    format!("{html}Transfer-Encoding: chunked\r\n"),
                    body,
                    true,
                )
            }
            Reply::UntilEnd(links) => (200, html.to_owned(), page(links), true),
            Reply::Text(body) => (200, format!("{plain}{}", length(body)), body.clone(), false),
            Reply::Words(words) => {
                let (fields, body, ends) = words.bytes();
                (words.status, fields, body, ends)
            }
            Reply::Status(status) => (*status, length(b""), Vec::new(), false),
            Reply::Redirect(status, to) => (
                *status,
                format!("Location: {to}\r\n{}", length(b"")),
                Vec::new(),
                false,
            ),
            Reply::Truncated | Reply::ResetInside => (
                200,
                format!("{html}Content-Length: 1000\r\n"),
                b"<p>And".to_vec(),
                true,
            ),
            Reply::Reset | Reply::Silence => return (Vec::new(), Vec::new(), true),
        };
        let head = format!("HTTP/1.1 {status} So\r\n{extra}{fields}\r\n");
        (head.into_bytes(), body, ends || self.closes)
    }
}

/// Longer than any wait for a body.
const HANGS: Duration = Duration::from_secs(60);

/// The reply to a robots.txt that keeps us out of `/private` and asks for a gap.
pub fn rules(crawl_delay: Duration) -> Step {
    let mut text = "User-agent: *\nDisallow: /private\n".to_owned();
    if crawl_delay > Duration::ZERO {
        text += &format!("Crawl-delay: {}\n", crawl_delay.as_secs_f64());
    }
    Step::new(Reply::Text(text.into_bytes()))
}

fn length(body: impl AsRef<[u8]>) -> String {
    format!("Content-Length: {}\r\n", body.as_ref().len())
}

/// More octets than the crawl's thread searches itself where it has helpers (`WORKERS`).
const LONG: usize = 2100;

/// More octets than those of a reply that is read at once.
const READ_LAST: usize = 20_000;

fn page(links: &[String]) -> Vec<u8> {
    let links = links
        .iter()
        .map(|link| format!("<p><a href=\"{link}\">there</a>\n"));
    let links: Vec<String> = links.collect();
    let filler = match links.len() % 6 {
        // Helper threads search long pages alone.
        2 => format!("<!-- {} -->", "-x".repeat(LONG / 2)),
        // It is read behind the short replies of other servers.
        5 => format!("<!-- {} -->", "-x".repeat(READ_LAST / 2)),
        _ => String::new(),
    };
    let links = links.concat();
    let title = title_of(&links);
    format!("<!DOCTYPE html><title>{title}</title>\n{filler}{links}").into_bytes()
}

/// A title that differs with the links of a page; its length does not.
fn title_of(links: &str) -> String {
    let hash = links.bytes().fold(0x811c_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("A {:04x}", hash >> 16)
}
