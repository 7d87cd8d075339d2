//! A web whose servers record violations of the configured pace.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::base::shared::Shared;
use argiope::base::time::Instant;
use argiope::io::Close;
use argiope::io::sim::{Answer, ConnId, Net, World};

pub use super::book::{Arrival, Book};
use super::policy::{Limit, Mood, Visit};
use super::proxies::{How, Proxy, SocksReply, Talk, Way};
pub use super::reply::{Reply, Step, rules};

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
    /// By number.
    pub proxies: Vec<Proxy>,
    /// When the crawler's own network does not work.
    pub outages: Vec<Outage>,
    /// Names that no site has are not absent: their name servers fail.
    pub unknown_names_fail: bool,
    /// The same, and they are silent.
    pub unknown_names_are_silent: bool,
    /// Names of sites whose name servers are gone: they fail, too.
    pub lost_names: BTreeSet<String>,
    /// Names that the name server has answered.
    pub cached_names: BTreeSet<String>,
    /// Requests in the order of their arrival.
    pub arrivals: Vec<Arrival>,
    /// Connections asked for, accepted or not.
    pub calls: Vec<(Instant, SocketAddr)>,
    /// Questions that the name server was asked.
    pub questions: usize,
    /// What each host and each address had to bear.
    pub hosts: BTreeMap<String, Book>,
    pub addresses: BTreeMap<SocketAddr, Book>,
    /// What all of them together had.
    pub all: Book,
    /// What was seen that should not have been.
    pub faults: Vec<String>,
    /// The titles of the pages that were sent for each URL.
    pub titles: BTreeMap<String, BTreeSet<String>>,
    lines: BTreeMap<ConnId, Caller>,
    alarms: Vec<Alarm>,
    listening: BTreeSet<SocketAddr>,
}

/// A span in which the crawler's own network does not work.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    pub from: Instant,
    pub to: Instant,
    /// How each connection fails. What is sent on those that stand is lost.
    pub connects: Option<Answer>,
    /// What comes of questions to the name server.
    pub names: Names,
}

/// A name server in an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    Answers,
    Silent,
    Fails,
    /// It fails for names that it has not answered before: those are in its cache.
    FailsForNew,
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
    /// It may be known from an earlier run.
    pub robots_known: bool,
    /// How long one robots.txt holds.
    pub robots_lifetime: Duration,
    /// What a host's `Retry-After` asks for is kept, up to this.
    pub hold_max: Duration,
    /// So many requests of a host, or less, in every span of this length.
    pub quota: Option<(usize, Duration)>,
    /// So long after the crawl's start no request arrives.
    pub held_for: Duration,
    /// The `X-Own` and `Authorization` fields of the requests to each host; those of other hosts have none.
    pub own: BTreeMap<String, OwnFields>,
    /// An `Authorization` field that only these hosts get, where they have none of their own.
    pub login: Option<(String, BTreeSet<String>)>,
    /// The ways of requests to each host; others are asked directly.
    pub ways: BTreeMap<String, BTreeSet<Way>>,
    /// The ways of requests for https URLs, by name and port of their hosts. There are none but tunnels.
    pub secure_ways: BTreeMap<String, Way>,
}

/// Fields that one host gets, and no other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnFields {
    pub mark: Option<String>,
    pub authorization: Option<String>,
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
            robots_known: false,
            robots_lifetime: Duration::from_secs(24 * 3600),
            hold_max: Duration::from_secs(300),
            quota: None,
            held_for: Duration::ZERO,
            own: BTreeMap::new(),
            login: None,
            ways: BTreeMap::new(),
            secure_ways: BTreeMap::new(),
        }
    }
}

impl Promise {
    /// Whether requests to a host may go this way.
    fn allows(&self, host: &str, way: Way) -> bool {
        if let Some(due) = self.secure_ways.get(host) {
            return way == *due;
        }
        match self.ways.get(host) {
            Some(ways) => ways.contains(&way),
            None => way.is_none(),
        }
    }

    /// Whether requests to any host go by this proxy.
    fn uses(&self, proxy: usize) -> bool {
        let mut ways = self.ways.values().flatten();
        ways.any(|way| *way == Some(proxy))
            || self.secure_ways.values().any(|it| *it == Some(proxy))
    }
}

/// One host.
#[derive(Clone)]
pub struct Site {
    pub address: SocketAddr,
    /// Another one, of IPv6: given by the name server only.
    pub address6: Option<SocketAddr>,
    /// How many requests it lets pass; robots.txt is free.
    pub limit: Option<Limit>,
    /// Its answer to those, for every path.
    pub mood: Option<Mood>,
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

struct Caller {
    to: SocketAddr,
    /// The proxy that it leads to.
    way: Way,
    /// What was agreed with a proxy that opens tunnels.
    talk: Option<Talk>,
    unread: Vec<u8>,
    /// Those of its requests that are being answered.
    open: Vec<usize>,
    requests: usize,
    answered: usize,
    ended: bool,
}

enum Alarm {
    Reply(usize, Step),
    Body(usize, Step),
    Idle(ConnId, usize),
}

/// The name server of this web, where it has one.
pub const NAME_SERVER: &str = "10.53.53.53:53";

/// Requests for a robots.txt that get no answer before the host is given up, and one for a connection
/// that died: with an hour's patience at 0, 5, 15, 35, 75, 155, 315, 635, 1275, 2175, 3075 and 3600 s.
const UNANSWERED_MAX: usize = 13;

/// How the place of a host with TLS ends.
const TLS: &str = ":443";

/// The first octet of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// As long as the last bytes of a reply may be on their way behind the first.
const SLACK: Duration = Duration::from_millis(50);

impl Site {
    /// A site at an address, without a robots.txt and without pages.
    pub fn new(name: &str, address: SocketAddr) -> Self {
        Site {
            address,
            address6: None,
            limit: None,
            mood: None,
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

    /// Answers everything by this.
    pub fn mood(&mut self, mood: Mood) -> &mut Self {
        self.mood = Some(mood);
        self
    }

    /// Lets so many pass.
    pub fn limit(&mut self, limit: Limit) -> &mut Self {
        self.limit = Some(limit);
        self
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

/// The address of a server by number, on port 80.
pub fn address(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    SocketAddr::from(([10, 0, high, low], 80))
}

impl PoliteWeb {
    pub fn site(&mut self, name: &str, address: SocketAddr) -> &mut Site {
        self.sites
            .entry(name.to_owned())
            .or_insert_with(|| Site::new(name, address))
    }

    /// A host with so many pages, each as slow as this; their URLs.
    pub fn pages(&mut self, name: &str, number: u16, pages: usize, think: Duration) -> Vec<String> {
        let site = self.site(name, address(number));
        (0..pages)
            .map(|page| {
                let path = format!("/{page}");
                site.path(&path, [Step::new(Reply::Page(Vec::new())).after(think)]);
                format!("http://{name}{path}")
            })
            .collect()
    }

    pub fn shared(mut self) -> Shared<PoliteWeb> {
        let sites = self.sites.values();
        let addresses = sites.flat_map(|site| [Some(site.address), site.address6]);
        self.listening = addresses.flatten().collect();
        Shared::new(self)
    }

    /// The one address of very many sites on the usual port.
    pub fn only_address(&self) -> Option<SocketAddr> {
        let first = *self.listening.first()?;
        let many = self.sites.len() > 100 && self.listening.len() == 1 && first.port() == 80;
        many.then_some(first)
    }

    /// Arrivals at one path of a host.
    pub fn asked(&self, host: &str, path: &str) -> usize {
        self.hosts.get(host).map_or(0, |book| book.of(path).len())
    }

    /// The moments at which a host was asked for something.
    pub fn moments(&self, host: &str) -> Vec<Instant> {
        let visits = self.visits(host);
        visits.map(|arrival| arrival.at).collect()
    }

    /// What arrived at a host.
    pub fn visits(&self, host: &str) -> impl Iterator<Item = &Arrival> {
        let numbers = self.hosts.get(host).map_or(&[][..], |book| &book.visits);
        numbers.iter().map(|number| &self.arrivals[*number])
    }

    fn outage(&self, now: Instant) -> Option<Outage> {
        let mut outages = self.outages.iter();
        outages.find(|o| o.from <= now && now < o.to).copied()
    }

    fn fault(&mut self, now: Instant, what: String) {
        if self.faults.len() < 20 {
            let at = now.as_nanos() as f64 / 1e9;
            self.faults.push(format!("at {at:.6} s: {what}"));
        }
    }

    fn arrive(&mut self, conn: ConnId, head: &str, net: &mut Net) {
        let now = net.now();
        let target = head.split(' ').nth(1).unwrap_or("");
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
        let (way, talk) = (caller.way, caller.talk.clone());
        let place = format!("http://{host}");
        let is_forwarded = way.is_some() && talk.is_none();
        let path = match is_forwarded {
            true => target.strip_prefix(&place),
            false => Some(target),
        };
        let path = path.filter(|path| path.starts_with('/'));
        let tunnel = talk.as_ref().and_then(Talk::host);
        if path.is_none() || tunnel.is_some_and(|tunnel| tunnel != host) {
            self.fault(now, format!("{target} of {host} came by {way:?} {talk:?}"));
        }
        let path = path.unwrap_or(target).to_owned();
        if !self.sites.contains_key(&host) {
            return self.fault(now, format!("{host}{path}: no site has this name"));
        }
        let site = &self.sites[&host];
        let to = match site.address6 == Some(to) {
            true => site.address,
            false => to,
        };
        if way.is_none() && site.address != to {
            self.fault(now, format!("{host} was asked at {to}"));
        }
        self.judge_way(now, &host, &path, head, way);
        self.judge(now, &host, &path, way);
        self.judge_fields(now, &host, head);
        let own = way.and_then(|proxy| self.own_answer(now, proxy, &host, &path));
        let (step, refused) = match &own {
            Some(how) => (how.step(), false),
            None => self.step(now, &host, &path, conn),
        };
        let is_silent = matches!(step.reply, Reply::Silence);
        let number = self.arrivals.len();
        self.arrivals.push(Arrival {
            at: now,
            host: host.clone(),
            path: path.clone(),
            conn,
            to,
            way,
            by_proxy: own.is_some(),
            too_late,
            over: None,
            retry: too_late || own == Some(How::Login) || step.invites_retry(),
            unanswered: matches!(step.reply, Reply::Reset | Reply::Silence),
            refused,
            died_kept: nth > 1 && (too_late || matches!(step.reply, Reply::Reset)),
        });
        self.hosts.entry(host).or_default().note(number, &path);
        self.addresses.entry(to).or_default().open += 1;
        self.all.open += 1;
        let caller = self.lines.get_mut(&conn).expect("it was just seen");
        caller.open.push(number);
        let closes = own == Some(How::Close) && !too_late;
        caller.ended |= closes;
        if closes {
            net.end(conn, Duration::ZERO);
        }
        if too_late || closes {
            self.over(number, now);
        }
        self.count(now, number, to);
        if !too_late && !is_silent {
            self.set(net, step.think, Alarm::Reply(number, step));
        }
    }

    /// A request comes the way that was promised, and has its proxy's login if that forwards it, and no other.
    fn judge_way(&mut self, now: Instant, host: &str, path: &str, head: &str, way: Way) {
        if !self.promise.allows(host, way) {
            let ways = self.promise.ways.get(host);
            self.fault(now, format!("{host}{path} came by {way:?}, not {ways:?}"));
        }
        let proxy = way.map(|number| &mut self.proxies[number]);
        let due = match proxy {
            Some(proxy) => {
                proxy.asked.insert(host.to_owned());
                let field = proxy.authorization().filter(|_| !proxy.is_socks);
                field.map(|value| format!("Proxy-Authorization: {value}"))
            }
            None => None,
        };
        let is_proxys = |line: &&str| line.to_ascii_lowercase().starts_with("proxy-");
        let sent: Vec<&str> = head.lines().filter(is_proxys).collect();
        if sent != due.iter().map(String::as_str).collect::<Vec<_>>() {
            self.fault(
                now,
                format!("{host}{path} came by {way:?} with {sent:?}, not {due:?}"),
            );
        }
    }

    /// How an HTTP proxy answers in place of a host.
    fn own_answer(&self, now: Instant, number: usize, host: &str, path: &str) -> Option<How> {
        let proxy = &self.proxies[number];
        if proxy.is_socks {
            return None;
        }
        let deaf = self.deaf.get(&self.sites[host].address);
        let of_host = deaf.map(|answer| match answer {
            Answer::Silence => How::Silence,
            _ => How::Gateway,
        });
        match proxy.failure(now).or(of_host)? {
            How::Connect(_) => None,
            // The host would seem to have no robots.txt.
            How::Rules if path.starts_with("/robots") => Some(How::Gateway),
            how => Some(how),
        }
    }

    /// An HTTP proxy is asked for a tunnel.
    fn open_tunnel(&mut self, conn: ConnId, head: &str, net: &mut Net) {
        let now = net.now();
        let place = head.split(' ').nth(1).unwrap_or("").to_owned();
        let caller = self.lines.get_mut(&conn).expect("it was just seen");
        let (way, is_first) = (caller.way, caller.requests == 0 && caller.talk.is_none());
        let Some(number) = way.filter(|_| is_first && head.contains(&format!("Host: {place}\r\n")))
        else {
            return self.fault(now, format!("by {way:?} came {head}"));
        };
        caller.requests += 1;
        caller.talk = Some(Talk::Open(place.clone()));
        self.judge_way(now, &place, "", head, way);
        for name in ["Authorization: ", "X-Own: ", "Cookie: "] {
            if head.lines().any(|line| line.starts_with(name)) {
                self.fault(now, format!("the proxy {number} got {name}of {place}"));
            }
        }
        let fails = self.proxies[number].failure(now);
        match fails.map(How::step) {
            None => net.reply(conn, Duration::ZERO, b"HTTP/1.1 200 So\r\n\r\n"),
            Some(step) => {
                let caller = self.lines.get_mut(&conn).expect("it was just seen");
                caller.ended = true;
                match step.reply {
                    Reply::Reset => net.reset(conn, Duration::ZERO),
                    Reply::Silence if fails == Some(How::Close) => net.end(conn, Duration::ZERO),
                    Reply::Silence => {}
                    _ => net.reply(conn, Duration::ZERO, &step.bytes().0),
                }
            }
        }
    }

    /// Resets a tunnel of TLS when something comes through it: no host here has TLS.
    fn fail_handshake(&mut self, conn: ConnId, net: &mut Net) {
        let caller = self.lines.get_mut(&conn).expect("it was just seen");
        let place = caller.talk.as_ref().and_then(Talk::host);
        let Some(place) = place.filter(|place| place.ends_with(TLS)) else {
            return;
        };
        if let Some(first) = caller.unread.first().copied()
            && !std::mem::replace(&mut caller.ended, true)
        {
            let what = format!("no handshake, but {first:#x} came to {place}");
            net.reset(conn, Duration::ZERO);
            if first != HANDSHAKE {
                self.fault(net.now(), what);
            }
        }
    }

    /// Answers what a SOCKS5 proxy is sent before its tunnel is open.
    fn talk(&mut self, conn: ConnId, net: &mut Net) {
        let now = net.now();
        while let Some(caller) = self.lines.get_mut(&conn)
            && let (Some(number), Some(talk)) = (caller.way, &mut caller.talk)
            && !caller.ended
            && let Some(message) = talk.take(&mut caller.unread)
        {
            let proxy = &self.proxies[number];
            let fails = proxy.failure(now);
            let (sites, deaf) = (&self.sites, &self.deaf);
            let mut host = None;
            let told = talk.answer(&message, proxy, fails, |name| {
                host = Some(name.to_owned());
                deaf.get(&sites.get(name)?.address).copied()
            });
            match &told {
                Ok(SocksReply::Sends(bytes)) => net.reply(conn, Duration::ZERO, bytes),
                Ok(SocksReply::Ends(bytes)) => {
                    caller.ended = true;
                    net.reply(conn, Duration::ZERO, bytes);
                    net.end(conn, Duration::ZERO);
                }
                Ok(SocksReply::Resets) => {
                    caller.ended = true;
                    net.reset(conn, Duration::ZERO);
                }
                Ok(SocksReply::Nothing) | Err(_) => {}
            }
            if let Err(what) = told {
                self.fault(now, format!("the proxy {number} got {what}"));
            }
            if let Some(host) = host {
                if !self.promise.allows(&host, Some(number)) {
                    self.fault(now, format!("the proxy {number} was asked for {host}"));
                }
                self.proxies[number].asked.insert(host);
            }
        }
    }

    /// Whether requests may be sent to this address.
    fn is_asked_at(&self, to: SocketAddr) -> bool {
        if let Some(proxy) = self.proxies.iter().position(|proxy| proxy.address == to) {
            return self.promise.uses(proxy);
        }
        let is_there = |site: &Site| site.address == to || site.address6 == Some(to);
        let mut there = self.sites.iter().filter(|(_, site)| is_there(site));
        self.promise.ways.is_empty() || there.any(|(host, _)| self.promise.allows(host, None))
    }

    /// A request has the fields of its host, and those of no other.
    fn judge_fields(&mut self, now: Instant, host: &str, head: &str) {
        let field = |name: &str| {
            let mut values = head.lines().filter_map(|line| line.strip_prefix(name));
            values.next().map(str::to_owned)
        };
        let sent = OwnFields {
            mark: field("X-Own: "),
            authorization: field("Authorization: "),
        };
        let mut due = self.promise.own.get(host).cloned().unwrap_or_default();
        if let Some((login, hosts)) = &self.promise.login
            && due.authorization.is_none()
            && sent.authorization.as_ref() == Some(login)
            && hosts.contains(host)
        {
            due.authorization.clone_from(&sent.authorization);
        }
        if sent != due {
            self.fault(now, format!("{host} got {sent:?}, not {due:?}"));
        }
    }

    /// The answer of a site, and whether it is due to its limit.
    fn step(&mut self, now: Instant, host: &str, path: &str, conn: ConnId) -> (Step, bool) {
        let book = self.hosts.get(host);
        let is_robots = path.starts_with("/robots");
        let site = self.sites.get_mut(host).expect("it was just seen");
        if !is_robots {
            if let Some(limit) = &mut site.limit
                && !limit.admits(now)
            {
                return (limit.refusal.clone(), true);
            }
            let before = book.map_or(0, |book| book.visits.len() - book.robots);
            let visit = Visit { path, before, conn };
            if let Some(step) = site.mood.as_ref().and_then(|mood| mood(&visit)) {
                return (step, false);
            }
        }
        let same = book.map_or(&[][..], |book| book.of(path));
        let is_answered = |arrival: &Arrival| !arrival.too_late && !arrival.by_proxy;
        let same = same.iter().filter(|n| is_answered(&self.arrivals[**n]));
        let before = same.count();
        let step = match site.paths.get(path) {
            Some(steps) => steps[before.min(steps.len() - 1)].clone(),
            None => Step::status(404),
        };
        (step, false)
    }

    /// Whether a request that arrives now keeps what was promised.
    fn judge(&mut self, now: Instant, host: &str, path: &str, way: Way) {
        let promise = self.promise.clone();
        let site = &self.sites[host];
        let decided = self.decided(site, Some(way));
        let is_robots = path.starts_with("/robots");
        let mut faults = Vec::new();
        if promise.obeys_robots && !is_robots {
            if decided.is_none() && !promise.robots_known {
                faults.push(format!("{host}{path} before its robots.txt was there"));
            }
            if !site.allows(path) {
                faults.push(format!("{host}{path} is forbidden by robots.txt"));
            }
        }
        let mut gap_min = promise.gap_min;
        if self.delay_is_known(now, path, site) {
            gap_min = gap_min.max(site.crawl_delay);
        }
        if now < Instant::START + promise.held_for {
            faults.push(format!(
                "{host}{path} came before the hold of its settings was over"
            ));
        }
        let Some(book) = self.hosts.get(host) else {
            faults.into_iter().for_each(|fault| self.fault(now, fault));
            return;
        };
        let last = &self.arrivals[*book.visits.last().expect("a book has a visit")];
        let gap = now.saturating_since(last.at);
        // Gaps are multiplied as 32-bit fractions.
        if gap + Duration::from_micros(2) < gap_min {
            let after = &last.path;
            faults.push(format!(
                "{host}{path} came {gap:?} after {after}, not {gap_min:?}"
            ));
        }
        if let Some((known, until)) = book.hold
            && now > known + SLACK
            && now < until
        {
            let early = until.saturating_since(now);
            faults.push(format!(
                "{host}{path} came {early:?} before a hold was over"
            ));
        }
        if let Some((units, window)) = promise.quota
            && let Some(nth) = book.visits.len().checked_sub(units)
        {
            let span = now.saturating_since(self.arrivals[book.visits[nth]].at);
            if span + Duration::from_micros(2) < window {
                faults.push(format!("{host} had more than {units} in {span:?}"));
            }
        }
        let same: Vec<&Arrival> = book
            .of(path)
            .iter()
            .map(|number| &self.arrivals[*number])
            .filter(|a| {
                // Each way has a robots.txt of its own.
                let is_valid = now.saturating_since(a.at) < promise.robots_lifetime;
                !is_robots || a.way == way && is_valid
            })
            .collect();
        // One try more for a connection that may have died before the request was read.
        let died = same.iter().filter(|arrival| arrival.died_kept).count();
        // A robots.txt that gets no answer is asked for until the host is given up, ever more seldom.
        let in_vain = |a: &&&Arrival| is_robots && a.unanswered && !a.died_kept;
        let unanswered = same.iter().filter(in_vain).count();
        if let Some(last) = same.last().filter(|last| is_robots && last.unanswered)
            && now.saturating_since(last.at) < Duration::from_secs(5)
            && !last.died_kept
        {
            faults.push(format!("{host}{path} was asked again too soon"));
        }
        if unanswered > UNANSWERED_MAX {
            faults.push(format!("{host}{path} was tried {unanswered} times in vain"));
        }
        let tried = same.len() - died.min(1) - unanswered;
        if same.last().is_some_and(|last| !last.retry) {
            faults.push(format!("{host}{path} was answered before"));
        } else if tried >= promise.attempts {
            faults.push(format!("{host}{path} was tried {tried} times before"));
        }
        faults.into_iter().for_each(|fault| self.fault(now, fault));
    }

    /// When the last byte of the reply that sets the limit was sent, for requests that go this way, or for any.
    fn decided(&self, site: &Site, way: Option<Way>) -> Option<Instant> {
        let (host, path, nth) = &site.decided_by;
        let visits = self.hosts.get(host)?.of(path).iter();
        let visits = visits.map(|number| &self.arrivals[*number]);
        let replies = visits.filter(|arrival| !arrival.too_late && !arrival.by_proxy);
        // Where another host decides, its own settings may lead there.
        let is_elsewhere = self
            .sites
            .get(host)
            .is_none_or(|it| !std::ptr::eq(it, site));
        let mut deciders = replies.skip(nth - 1);
        let decider = deciders.find(|it| is_elsewhere || way.is_none_or(|way| it.way == way))?;
        decider.over
    }

    /// Whether what arrives now left when a site's Crawl-delay had come. A page waits for it;
    /// a neighbour's robots.txt may be on its way while its last bytes are, or have its connection made.
    fn delay_is_known(&self, now: Instant, path: &str, site: &Site) -> bool {
        let slack = match path.starts_with("/robots") {
            // A tunnel takes up to three more.
            true if !self.proxies.is_empty() => 5 * self.round_trip + SLACK,
            true => 2 * self.round_trip + SLACK,
            false => Duration::ZERO,
        };
        let decided = self.decided(site, None);
        let decided = decided.filter(|_| self.promise.obeys_robots);
        site.crawl_delay > Duration::ZERO && decided.is_some_and(|at| now > at + slack)
    }

    fn count(&mut self, now: Instant, number: usize, to: SocketAddr) {
        let arrival = self.arrivals[number].clone();
        let book = self.hosts.get_mut(&arrival.host).expect("it has arrived");
        let here = book.peaks();
        let there = self.addresses.entry(to).or_default().peaks();
        let all = self.all.peaks();
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

    /// A request was answered, or never will be.
    fn over(&mut self, number: usize, now: Instant) {
        let arrival = &mut self.arrivals[number];
        if arrival.over.replace(now).is_some() {
            return;
        }
        let caller = self.lines.get_mut(&arrival.conn);
        let to = arrival.to;
        if let Some(caller) = caller {
            caller.open.retain(|open| *open != number);
        }
        let host = self.hosts.get_mut(&arrival.host).expect("it has arrived");
        let address = self.addresses.get_mut(&to);
        for book in [Some(host), address, Some(&mut self.all)] {
            book.into_iter().for_each(|book| book.open -= 1);
        }
    }

    fn answer(&mut self, number: usize, mut step: Step, net: &mut Net) {
        let now = net.now();
        let conn = self.arrivals[number].conn;
        if !self.lines.contains_key(&conn) || self.arrivals[number].over.is_some() {
            return;
        }
        let (head, body, _) = step.bytes();
        if let Some(title) = step.title() {
            let Arrival { host, path, .. } = &self.arrivals[number];
            let url = format!("http://{host}{path}");
            self.titles.entry(url).or_default().insert(title);
        }
        if let Some(wait) = step.retry_after() {
            // It is known half a round trip from now; what left by then is half of one away.
            let known = now + self.round_trip;
            let until = known + wait.min(self.promise.hold_max);
            let book = self.hosts.get_mut(&self.arrivals[number].host);
            let refuses = matches!(step.reply, Reply::Status(429 | 502..=504 | 520..=524));
            if let Some(book) = book.filter(|_| refuses) {
                book.hold(known, until);
            }
        }
        if step.body_after > Duration::ZERO {
            net.reply(conn, Duration::ZERO, &head);
            let wait = std::mem::take(&mut step.body_after);
            return self.set(net, wait, Alarm::Body(number, step));
        }
        net.reply(conn, Duration::ZERO, &[head, body].concat());
        self.end_reply(number, &step, net);
    }

    /// The last byte of a reply was sent.
    fn end_reply(&mut self, number: usize, step: &Step, net: &mut Net) {
        let conn = self.arrivals[number].conn;
        self.over(number, net.now());
        let (_, _, closes) = step.bytes();
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

impl World for PoliteWeb {
    /// The same for all, so that everything arrives in the order and at the gaps at which it left.
    fn distance(&mut self, _to: SocketAddr, _rng: &mut Rng) -> Duration {
        self.round_trip
    }

    fn connect(&mut self, conn: ConnId, to: SocketAddr, net: &mut Net) -> Answer {
        self.calls.push((net.now(), to));
        if !self.is_asked_at(to) {
            self.fault(net.now(), format!("no request goes to {to}"));
        }
        if let Some(answer) = self.outage(net.now()).and_then(|outage| outage.connects) {
            return answer;
        }
        if let Some(answer) = self.deaf.get(&to) {
            return *answer;
        }
        let way = self.proxies.iter().position(|proxy| proxy.address == to);
        let proxy = way.map(|number| &self.proxies[number]);
        if let Some(How::Connect(answer)) = proxy.and_then(|proxy| proxy.failure(net.now())) {
            return answer;
        }
        if proxy.is_none() && !self.listening.contains(&to) {
            self.fault(net.now(), format!("no page linked to {to}"));
            return Answer::Refuse;
        }
        let caller = Caller {
            to,
            way,
            talk: proxy.and_then(|proxy| proxy.is_socks.then_some(Talk::Greeting)),
            unread: Vec::new(),
            open: Vec::new(),
            requests: 0,
            answered: 0,
            ended: false,
        };
        self.lines.insert(conn, caller);
        Answer::Accept
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        if self
            .outage(net.now())
            .is_some_and(|outage| outage.connects.is_some())
        {
            return;
        }
        let Some(caller) = self.lines.get_mut(&conn) else {
            return;
        };
        caller.unread.extend_from_slice(bytes);
        self.talk(conn, net);
        self.fail_handshake(conn, net);
        let end = |unread: &[u8]| unread.windows(4).position(|w| w == b"\r\n\r\n");
        let is_open = |talk: &Option<Talk>| talk.as_ref().is_none_or(|it| it.host().is_some());
        while let Some(caller) = self.lines.get_mut(&conn)
            && is_open(&caller.talk)
            && let Some(at) = end(&caller.unread)
        {
            let head: Vec<u8> = caller.unread.drain(..at + 4).collect();
            let head = String::from_utf8_lossy(&head).into_owned();
            match head.starts_with("CONNECT ") {
                true => self.open_tunnel(conn, &head, net),
                false => self.arrive(conn, &head, net),
            }
        }
    }

    fn closed(&mut self, conn: ConnId, _how: Close, net: &mut Net) {
        let caller = self.lines.remove(&conn);
        for number in caller.map_or(Vec::new(), |caller| caller.open) {
            self.over(number, net.now());
        }
        // It was closed before its last reply could be read: that may be asked for again.
        let (now, round_trip) = (net.now(), self.round_trip);
        let last = self
            .arrivals
            .iter_mut()
            .rev()
            .find(|last| last.conn == conn);
        if let Some(last) = last
            && last.over.is_some_and(|over| now < over + round_trip)
        {
            last.retry = true;
        }
    }

    /// The name server: every site's name has its one or two addresses.
    fn datagram(&mut self, socket: ConnId, to: SocketAddr, bytes: &[u8], net: &mut Net) {
        if to != NAME_SERVER.parse().expect("an address") || bytes.len() < 17 {
            return net.reset(socket, Duration::ZERO);
        }
        self.questions += 1;
        let names = self.outage(net.now()).map(|outage| outage.names);
        if names == Some(Names::Silent) {
            return;
        }
        let mut labels = Vec::new();
        let mut at = 12;
        while bytes[at] != 0 {
            let length = usize::from(bytes[at]);
            let label = String::from_utf8_lossy(&bytes[at + 1..at + 1 + length]);
            labels.push(label.to_ascii_lowercase());
            at += 1 + length;
        }
        let kind = bytes[at + 2];
        let name = labels.join(".");
        if self.sites.contains_key(&name) && !self.promise.allows(&name, None) {
            self.fault(net.now(), format!("{name} is its proxy's to look up"));
        }
        let site = self.sites.get(&name);
        let proxy = self.proxies.iter().find(|proxy| proxy.name == Some(&*name));
        let addresses = site.map(|site| [Some(site.address), site.address6]);
        let of_proxy = proxy.map(|proxy| [Some(proxy.address), None]);
        let mut addresses = addresses.or(of_proxy).into_iter().flatten().flatten();
        let answer = addresses.find(|address| address.is_ipv4() == (kind == 1));
        // A site's own name servers answer for all below its name.
        let is_known = site.is_some() || proxy.is_some();
        let zone = match is_known {
            true => Some(name.clone()),
            false => Some(labels[1..].join(".")).filter(|zone| self.sites.contains_key(zone)),
        };
        // The root's name servers always answer.
        let is_unknown = zone.is_none() && name != "a.root-servers.net";
        if self.unknown_names_are_silent && is_unknown {
            return;
        }
        let fails = names == Some(Names::Fails)
            || names == Some(Names::FailsForNew) && !self.cached_names.contains(&name)
            || self.unknown_names_fail && is_unknown
            || zone.is_some_and(|zone| self.lost_names.contains(&zone));
        if !fails {
            self.cached_names.insert(name);
        }
        let answer = answer.filter(|_| !fails);
        let code = match is_known {
            _ if fails => 0x82,
            true => 0x80,
            false => 0x83,
        };
        let mut reply = vec![bytes[0], bytes[1], 0x81, code, 0, 1];
        reply.extend_from_slice(&[0, u8::from(answer.is_some()), 0, 0, 0, 0]);
        reply.extend_from_slice(&bytes[12..at + 5]);
        match answer {
            Some(SocketAddr::V4(address)) => {
                reply.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4]);
                reply.extend_from_slice(&address.ip().octets());
            }
            Some(SocketAddr::V6(address)) => {
                reply.extend_from_slice(&[0xc0, 12, 0, 28, 0, 1, 0, 0, 1, 44, 0, 16]);
                reply.extend_from_slice(&address.ip().octets());
            }
            None => {}
        }
        net.reply(socket, Duration::from_millis(3), &reply);
    }

    fn alarm(&mut self, what: u64, net: &mut Net) {
        let quiet = Alarm::Idle(ConnId(0), 0);
        match std::mem::replace(&mut self.alarms[what as usize], quiet) {
            Alarm::Reply(number, step) => self.answer(number, step, net),
            Alarm::Body(number, step) => {
                if self.arrivals[number].over.is_none() {
                    let (_, body, _) = step.bytes();
                    net.reply(self.arrivals[number].conn, Duration::ZERO, &body);
                    self.end_reply(number, &step, net);
                }
            }
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
