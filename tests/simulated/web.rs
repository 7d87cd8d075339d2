//! A web whose servers remember what was promised to them, and complain when it is not kept.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::base::time::Instant;
use argiope::io::Close;
use argiope::io::sim::{Answer, ConnId, Net, World};

/// Every site there is, and all that its visitors did.
#[derive(Default)]
pub struct PoliteWeb {
    /// By name, as the Host field says it.
    pub sites: BTreeMap<String, Site>,
    /// What the crawler has promised to all of them.
    pub promise: Promise,
    /// How long a packet takes to any of them and back.
    pub round_trip: Duration,
    /// How addresses answer a connection, where they do not accept it.
    pub deaf: BTreeMap<SocketAddr, Answer>,
    /// Requests in the order of their arrival.
    pub arrivals: Vec<Arrival>,
    /// Connections asked for, accepted or not.
    pub calls: Vec<(Instant, SocketAddr)>,
    /// Questions that the name server was asked.
    pub questions: usize,
    /// The most requests that were being answered at once, by host.
    pub peaks: BTreeMap<String, usize>,
    /// The most requests that were being answered at once by all.
    pub peak: usize,
    /// The most requests that were being answered at once, by address.
    pub address_peaks: BTreeMap<SocketAddr, usize>,
    /// What was seen that should not have been.
    pub faults: Vec<String>,
    lines: BTreeMap<ConnId, Caller>,
    alarms: Vec<Alarm>,
}

/// What a crawler's settings promise to every site.
#[derive(Clone, Debug)]
pub struct Promise {
    /// From one request of a host to the next.
    pub gap_min: Duration,
    /// Requests in flight at one host.
    pub per_host: usize,
    /// Requests in flight at one address.
    pub per_address: usize,
    /// Requests in flight in all.
    pub in_all: usize,
    /// Attempts at one page.
    pub attempts: usize,
    /// robots.txt is asked for first, and obeyed.
    pub obeys_robots: bool,
    /// How long one robots.txt holds.
    pub robots_lifetime: Duration,
}

impl Default for Promise {
    fn default() -> Self {
        Promise {
            gap_min: Duration::ZERO,
            per_host: usize::MAX,
            per_address: usize::MAX,
            in_all: usize::MAX,
            attempts: 3,
            obeys_robots: true,
            robots_lifetime: Duration::from_secs(24 * 3600),
        }
    }
}

/// One host.
#[derive(Clone, Debug)]
pub struct Site {
    pub address: SocketAddr,
    /// What each path answers: the first request the first, and so on; the last over and over.
    pub paths: BTreeMap<String, Vec<Step>>,
    /// What its robots.txt allows, once it has been handed out.
    pub verdict: Verdict,
    /// The gap that its robots.txt asks for.
    pub crawl_delay: Duration,
    /// The document (host, path) whose reply decides, and which of its replies that is.
    pub decided_by: (String, String, usize),
    /// How long a connection may be idle before the server ends it.
    pub patience: Option<Duration>,
}

/// What a robots.txt comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All but what begins with `/private`.
    NotPrivate,
    Everything,
    Nothing,
}

/// One reply.
#[derive(Clone, Debug)]
pub struct Step {
    pub think: Duration,
    pub reply: Reply,
    /// The server ends the connection behind it.
    pub closes: bool,
}

/// What a server says, or does instead.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A page that links to these.
    Page(Vec<String>),
    /// The same, in chunks.
    Chunked(Vec<String>),
    /// The same, ended by the connection's end.
    UntilEnd(Vec<String>),
    Text(Vec<u8>),
    Status(u16),
    Redirect(u16, String),
    /// A page cut short.
    Truncated,
    /// No reply but RST.
    Reset,
    /// RST in the middle of the body.
    ResetInside,
    /// No reply at all.
    Silence,
}

/// A request, as its server saw it.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: Instant,
    pub host: String,
    pub path: String,
    pub conn: ConnId,
    /// The server had ended the connection: the request was never answered.
    pub too_late: bool,
    /// The reply has been said, or will never be.
    pub over: Option<Instant>,
    /// The reply invited another try.
    pub retry: bool,
    /// It came on a connection that had been kept, and that brought no reply to it.
    pub died_kept: bool,
}

struct Caller {
    to: SocketAddr,
    unread: Vec<u8>,
    requests: usize,
    answered: usize,
    ended: bool,
}

enum Alarm {
    Reply(usize, Step),
    Idle(ConnId, usize),
}

/// The name server of this web, where it has one.
pub const NAME_SERVER: &str = "10.53.53.53:53";

impl Step {
    pub fn new(reply: Reply) -> Self {
        Step {
            think: Duration::from_millis(20),
            reply,
            closes: false,
        }
    }

    pub fn after(mut self, think: Duration) -> Self {
        self.think = think;
        self
    }

    fn invites_retry(&self) -> bool {
        match &self.reply {
            Reply::Status(status) => [500, 502, 503, 504, 408, 429].contains(status),
            Reply::Truncated | Reply::Reset | Reply::ResetInside | Reply::Silence => true,
            _ => false,
        }
    }
}

impl Site {
    /// A site at an address, without a robots.txt and without pages.
    pub fn new(name: &str, address: SocketAddr) -> Self {
        Site {
            address,
            paths: BTreeMap::new(),
            verdict: Verdict::Everything,
            crawl_delay: Duration::ZERO,
            decided_by: (name.to_owned(), "/robots.txt".to_owned(), 1),
            patience: None,
        }
    }

    pub fn path(&mut self, path: &str, steps: impl Into<Vec<Step>>) -> &mut Self {
        self.paths.insert(path.to_owned(), steps.into());
        self
    }

    pub fn page(&mut self, path: &str, links: &[&str]) -> &mut Self {
        let links = links.iter().map(|link| (*link).to_owned()).collect();
        self.path(path, [Step::new(Reply::Page(links))])
    }

    /// A robots.txt that keeps us out of `/private` and asks for a gap.
    pub fn rules(&mut self, crawl_delay: Duration) -> &mut Self {
        self.verdict = Verdict::NotPrivate;
        self.crawl_delay = crawl_delay;
        self.path("/robots.txt", [rules(crawl_delay)])
    }

    fn allows(&self, path: &str) -> bool {
        match self.verdict {
            Verdict::NotPrivate => !path.starts_with("/private"),
            Verdict::Everything => true,
            Verdict::Nothing => false,
        }
    }
}

/// The reply that [`Verdict::NotPrivate`] stands for.
pub fn rules(crawl_delay: Duration) -> Step {
    let mut text = "User-agent: *\nDisallow: /private\n".to_owned();
    if crawl_delay > Duration::ZERO {
        text += &format!("Crawl-delay: {}\n", crawl_delay.as_secs_f64());
    }
    Step::new(Reply::Text(text.into_bytes()))
}

/// The address of a server by number, on port 80.
pub fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 80))
}

impl PoliteWeb {
    pub fn site(&mut self, name: &str, address: SocketAddr) -> &mut Site {
        self.sites
            .entry(name.to_owned())
            .or_insert_with(|| Site::new(name, address))
    }

    pub fn shared(self) -> Rc<RefCell<PoliteWeb>> {
        Rc::new(RefCell::new(self))
    }

    /// Arrivals at one path of a host.
    pub fn asked(&self, host: &str, path: &str) -> usize {
        self.arrivals
            .iter()
            .filter(|arrival| arrival.host == host && arrival.path == path)
            .count()
    }

    /// The moments at which a host was asked for something.
    pub fn moments(&self, host: &str) -> Vec<Instant> {
        let of_host = self.arrivals.iter().filter(|arrival| arrival.host == host);
        of_host.map(|arrival| arrival.at).collect()
    }

    fn fault(&mut self, now: Instant, what: String) {
        if self.faults.len() < 20 {
            let at = now.as_nanos() as f64 / 1e9;
            self.faults.push(format!("at {at:.6} s: {what}"));
        }
    }

    fn arrive(&mut self, conn: ConnId, head: &str, net: &mut Net) {
        let now = net.now();
        let path = head.split(' ').nth(1).unwrap_or("").to_owned();
        let host = head
            .lines()
            .find_map(|line| line.strip_prefix("Host: "))
            .unwrap_or("")
            .to_owned();
        let caller = self
            .lines
            .get_mut(&conn)
            .expect("who speaks is on the line");
        caller.requests += 1;
        let (nth, too_late, to) = (caller.requests, caller.ended, caller.to);
        let Some(site) = self.sites.get(&host).cloned() else {
            return self.fault(now, format!("{host}{path}: no site has this name"));
        };
        if site.address != to {
            self.fault(now, format!("{host} was asked at {to}"));
        }
        self.judge(now, &host, &path, &site);
        let answered =
            |arrival: &&Arrival| arrival.host == host && arrival.path == path && !arrival.too_late;
        let before = self.arrivals.iter().filter(answered).count();
        let step = match site.paths.get(&path) {
            Some(steps) => steps[before.min(steps.len() - 1)].clone(),
            None => Step::new(Reply::Status(404)),
        };
        let number = self.arrivals.len();
        self.arrivals.push(Arrival {
            at: now,
            host,
            path,
            conn,
            too_late,
            over: too_late.then_some(now),
            retry: too_late || step.invites_retry(),
            died_kept: nth > 1 && (too_late || matches!(step.reply, Reply::Reset)),
        });
        self.count(now, number, to);
        if !too_late && !matches!(step.reply, Reply::Silence) {
            self.set(net, step.think, Alarm::Reply(number, step));
        }
    }

    /// Whether a request that arrives now keeps what was promised.
    fn judge(&mut self, now: Instant, host: &str, path: &str, site: &Site) {
        let promise = self.promise.clone();
        let decided = self.decided(site);
        let is_robots = path.starts_with("/robots");
        if promise.obeys_robots && !is_robots {
            if decided.is_none() {
                self.fault(now, format!("{host}{path} before its robots.txt was there"));
            }
            if !site.allows(path) {
                self.fault(now, format!("{host}{path} is forbidden by robots.txt"));
            }
        }
        let mut gap_min = promise.gap_min;
        if self.delay_is_known(now, path, site) {
            gap_min = gap_min.max(site.crawl_delay);
        }
        let last = self.arrivals.iter().rev().find(|a| a.host == host);
        if let Some(last) = last {
            let gap = now.saturating_since(last.at);
            // Gaps are multiplied as 32-bit fractions.
            if gap + Duration::from_micros(2) < gap_min {
                let fault = format!(
                    "{host}{path} came {gap:?} after {}, not {gap_min:?}",
                    last.path
                );
                self.fault(now, fault);
            }
        }
        let same: Vec<&Arrival> = self
            .arrivals
            .iter()
            .filter(|a| a.host == host && a.path == path)
            .filter(|a| !is_robots || now.saturating_since(a.at) < promise.robots_lifetime)
            .collect();
        // One try more for a connection that may have died before the request was read.
        let died = same.iter().filter(|arrival| arrival.died_kept).count();
        let tried = same.len() - died.min(1);
        if same.last().is_some_and(|last| !last.retry) {
            self.fault(now, format!("{host}{path} was answered before"));
        } else if tried >= promise.attempts {
            self.fault(now, format!("{host}{path} was tried {tried} times before"));
        }
    }

    /// When the reply that decides what is allowed had been said.
    fn decided(&self, site: &Site) -> Option<Instant> {
        let (host, path, nth) = &site.decided_by;
        let replies = |a: &&Arrival| a.host == *host && a.path == *path && !a.too_late;
        let decider = self.arrivals.iter().filter(replies).nth(nth - 1)?;
        decider.over
    }

    /// Whether what arrives now left when a site's Crawl-delay had come. A page waits for it;
    /// a neighbour's robots.txt may be on its way while its last bytes are.
    fn delay_is_known(&self, now: Instant, path: &str, site: &Site) -> bool {
        let slack = match path.starts_with("/robots") {
            true => self.round_trip + Duration::from_millis(50),
            false => Duration::ZERO,
        };
        let decided = self.decided(site).filter(|_| self.promise.obeys_robots);
        site.crawl_delay > Duration::ZERO && decided.is_some_and(|at| now > at + slack)
    }

    fn count(&mut self, now: Instant, number: usize, to: SocketAddr) {
        let arrival = self.arrivals[number].clone();
        let open = |a: &&Arrival| a.over.is_none();
        let here = self.arrivals.iter().filter(open);
        let here = here.filter(|a| a.host == arrival.host).count();
        let there = self.arrivals.iter().filter(open);
        let there = there.filter(|a| self.sites[&a.host].address == to).count();
        let all = self.arrivals.iter().filter(open).count();
        let peak = self.peaks.entry(arrival.host.clone()).or_default();
        *peak = here.max(*peak);
        let peak = self.address_peaks.entry(to).or_default();
        *peak = there.max(*peak);
        self.peak = self.peak.max(all);
        let mut promise = self.promise.clone();
        let site = &self.sites[&arrival.host];
        if self.delay_is_known(now, &arrival.path, site) {
            promise.per_host = 1;
        }
        for (what, count, max) in [
            (arrival.host.clone(), here, promise.per_host),
            (to.to_string(), there, promise.per_address),
            ("the web".to_owned(), all, promise.in_all),
        ] {
            if count > max {
                self.fault(now, format!("{count} requests are in flight at {what}"));
            }
        }
    }

    fn answer(&mut self, number: usize, step: &Step, net: &mut Net) {
        let now = net.now();
        let conn = self.arrivals[number].conn;
        if !self.lines.contains_key(&conn) || self.arrivals[number].over.is_some() {
            return;
        }
        self.arrivals[number].over = Some(now);
        let (bytes, closes) = step.reply.bytes(step.closes);
        net.reply(conn, Duration::ZERO, &bytes);
        match &step.reply {
            Reply::Reset | Reply::ResetInside => net.reset(conn, Duration::ZERO),
            _ if closes => net.end(conn, Duration::ZERO),
            _ => {}
        }
        let patience = self.sites[&self.arrivals[number].host].patience;
        let caller = self.lines.get_mut(&conn).expect("it was just seen");
        caller.ended |= closes;
        caller.answered += 1;
        let answered = caller.answered;
        if let Some(patience) = patience {
            self.set(net, patience, Alarm::Idle(conn, answered));
        }
    }

    fn set(&mut self, net: &mut Net, after: Duration, alarm: Alarm) {
        self.alarms.push(alarm);
        net.alarm(after, (self.alarms.len() - 1) as u64);
    }
}

impl Reply {
    /// What goes over the wire, and whether the connection ends behind it.
    fn bytes(&self, closes: bool) -> (Vec<u8>, bool) {
        let close = if closes { "Connection: close\r\n" } else { "" };
        let html = "Content-Type: text/html\r\n";
        let text = match self {
            Reply::Page(links) => {
                let body = page(links);
                let length = body.len();
                format!("HTTP/1.1 200 OK\r\n{close}{html}Content-Length: {length}\r\n\r\n{body}")
            }
            Reply::Chunked(links) => {
                let body = page(links);
                let (a, b) = body.split_at(body.len() / 2);
                format!(
                    "HTTP/1.1 200 OK\r\n{close}{html}Transfer-Encoding: chunked\r\n\r\n\
                     {:x}\r\n{a}\r\n{:x}\r\n{b}\r\n0\r\n\r\n",
                    a.len(),
                    b.len()
                )
            }
            Reply::UntilEnd(links) => {
                let body = page(links);
                return (
                    format!("HTTP/1.1 200 OK\r\n{html}\r\n{body}").into_bytes(),
                    true,
                );
            }
            Reply::Text(body) => {
                let length = body.len();
                let mut bytes = format!(
                    "HTTP/1.1 200 OK\r\n{close}Content-Type: text/plain\r\n\
                     Content-Length: {length}\r\n\r\n"
                )
                .into_bytes();
                bytes.extend_from_slice(body);
                return (bytes, closes);
            }
            Reply::Status(status) => {
                format!("HTTP/1.1 {status} So\r\n{close}Content-Length: 0\r\n\r\n")
            }
            Reply::Redirect(status, to) => {
                format!(
                    "HTTP/1.1 {status} There\r\n{close}Location: {to}\r\nContent-Length: 0\r\n\r\n"
                )
            }
            Reply::Truncated => {
                let text = format!("HTTP/1.1 200 OK\r\n{html}Content-Length: 1000\r\n\r\n<p>And");
                return (text.into_bytes(), true);
            }
            Reply::ResetInside => {
                let text = format!("HTTP/1.1 200 OK\r\n{html}Content-Length: 1000\r\n\r\n<p>And");
                return (text.into_bytes(), true);
            }
            Reply::Reset | Reply::Silence => return (Vec::new(), true),
        };
        (text.into_bytes(), closes)
    }
}

fn page(links: &[String]) -> String {
    let links = links
        .iter()
        .map(|link| format!("<p><a href=\"{link}\">there</a>\n"));
    format!(
        "<!DOCTYPE html><title>A page</title>\n{}",
        links.collect::<String>()
    )
}

impl World for PoliteWeb {
    /// The same for all, so that everything arrives in the order and at the gaps at which it left.
    fn distance(&mut self, _to: SocketAddr, _rng: &mut Rng) -> Duration {
        self.round_trip
    }

    fn connect(&mut self, conn: ConnId, to: SocketAddr, net: &mut Net) -> Answer {
        self.calls.push((net.now(), to));
        if let Some(answer) = self.deaf.get(&to) {
            return *answer;
        }
        if !self.sites.values().any(|site| site.address == to) {
            self.fault(net.now(), format!("nobody told of {to}"));
            return Answer::Refuse;
        }
        let caller = Caller {
            to,
            unread: Vec::new(),
            requests: 0,
            answered: 0,
            ended: false,
        };
        self.lines.insert(conn, caller);
        Answer::Accept
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        let Some(caller) = self.lines.get_mut(&conn) else {
            return;
        };
        caller.unread.extend_from_slice(bytes);
        let end = |unread: &[u8]| unread.windows(4).position(|w| w == b"\r\n\r\n");
        while let Some(caller) = self.lines.get_mut(&conn)
            && let Some(at) = end(&caller.unread)
        {
            let head: Vec<u8> = caller.unread.drain(..at + 4).collect();
            let head = String::from_utf8_lossy(&head).into_owned();
            self.arrive(conn, &head, net);
        }
    }

    fn closed(&mut self, conn: ConnId, _how: Close, net: &mut Net) {
        self.lines.remove(&conn);
        for arrival in &mut self.arrivals {
            if arrival.conn == conn && arrival.over.is_none() {
                arrival.over = Some(net.now());
            }
        }
    }

    /// The name server: every site's name has the one address.
    fn datagram(&mut self, socket: ConnId, to: SocketAddr, bytes: &[u8], net: &mut Net) {
        if to != NAME_SERVER.parse().expect("an address") || bytes.len() < 17 {
            return net.reset(socket, Duration::ZERO);
        }
        self.questions += 1;
        let mut labels = Vec::new();
        let mut at = 12;
        while bytes[at] != 0 {
            let length = usize::from(bytes[at]);
            let label = String::from_utf8_lossy(&bytes[at + 1..at + 1 + length]);
            labels.push(label.to_ascii_lowercase());
            at += 1 + length;
        }
        let kind = bytes[at + 2];
        let site = self.sites.get(&labels.join("."));
        let answer = site.filter(|_| kind == 1).map(|site| site.address);
        let code = if site.is_some() { 0x80 } else { 0x83 };
        let mut reply = vec![bytes[0], bytes[1], 0x81, code, 0, 1];
        reply.extend_from_slice(&[0, u8::from(answer.is_some()), 0, 0, 0, 0]);
        reply.extend_from_slice(&bytes[12..at + 5]);
        if let Some(SocketAddr::V4(address)) = answer {
            reply.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4]);
            reply.extend_from_slice(&address.ip().octets());
        }
        net.reply(socket, Duration::from_millis(3), &reply);
    }

    fn alarm(&mut self, what: u64, net: &mut Net) {
        let quiet = Alarm::Idle(ConnId(0), 0);
        match std::mem::replace(&mut self.alarms[what as usize], quiet) {
            Alarm::Reply(number, step) => self.answer(number, &step, net),
            Alarm::Idle(conn, answered) => {
                if let Some(caller) = self.lines.get_mut(&conn)
                    && caller.requests == answered
                    && !caller.ended
                {
                    caller.ended = true;
                    net.end(conn, Duration::ZERO);
                }
            }
        }
    }
}
