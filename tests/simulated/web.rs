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
        }
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
        if !self.sites.contains_key(&host) {
            return self.fault(now, format!("{host}{path}: no site has this name"));
        }
        let site = &self.sites[&host];
        let to = match site.address6 == Some(to) {
            true => site.address,
            false => to,
        };
        if site.address != to {
            self.fault(now, format!("{host} was asked at {to}"));
        }
        self.judge(now, &host, &path);
        self.judge_fields(now, &host, head);
        let (step, refused) = self.step(now, &host, &path, conn);
        let number = self.arrivals.len();
        self.arrivals.push(Arrival {
            at: now,
            host: host.clone(),
            path: path.clone(),
            conn,
            too_late,
            over: None,
            retry: too_late || step.invites_retry(),
            unanswered: matches!(step.reply, Reply::Reset | Reply::Silence),
            refused,
            died_kept: nth > 1 && (too_late || matches!(step.reply, Reply::Reset)),
        });
        self.hosts.entry(host).or_default().note(number, &path);
        self.addresses.entry(to).or_default().open += 1;
        self.all.open += 1;
        let caller = self.lines.get_mut(&conn).expect("it was just seen");
        caller.open.push(number);
        if too_late {
            self.over(number, now);
        }
        self.count(now, number, to);
        if !too_late && !matches!(step.reply, Reply::Silence) {
            self.set(net, step.think, Alarm::Reply(number, step));
        }
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
        let same = same.iter().filter(|n| !self.arrivals[**n].too_late);
        let before = same.count();
        let step = match site.paths.get(path) {
            Some(steps) => steps[before.min(steps.len() - 1)].clone(),
            None => Step::status(404),
        };
        (step, false)
    }

    /// Whether a request that arrives now keeps what was promised.
    fn judge(&mut self, now: Instant, host: &str, path: &str) {
        let promise = self.promise.clone();
        let site = &self.sites[host];
        let decided = self.decided(site);
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
            .filter(|a| !is_robots || now.saturating_since(a.at) < promise.robots_lifetime)
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

    /// When the last byte of the reply that sets the limit was sent.
    fn decided(&self, site: &Site) -> Option<Instant> {
        let (host, path, nth) = &site.decided_by;
        let visits = self.hosts.get(host)?.of(path).iter();
        let mut replies = visits.filter(|number| !self.arrivals[**number].too_late);
        let decider = replies.nth(nth - 1)?;
        self.arrivals[*decider].over
    }

    /// Whether what arrives now left when a site's Crawl-delay had come. A page waits for it;
    /// a neighbour's robots.txt may be on its way while its last bytes are, or have its connection made.
    fn delay_is_known(&self, now: Instant, path: &str, site: &Site) -> bool {
        let slack = match path.starts_with("/robots") {
            true => 2 * self.round_trip + SLACK,
            false => Duration::ZERO,
        };
        let decided = self.decided(site).filter(|_| self.promise.obeys_robots);
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
        let to = self.sites[&arrival.host].address;
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
        if let Some(answer) = self.outage(net.now()).and_then(|outage| outage.connects) {
            return answer;
        }
        if let Some(answer) = self.deaf.get(&to) {
            return *answer;
        }
        if !self.listening.contains(&to) {
            self.fault(net.now(), format!("no page linked to {to}"));
            return Answer::Refuse;
        }
        let caller = Caller {
            to,
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
        let site = self.sites.get(&name);
        let addresses = site.map(|site| [Some(site.address), site.address6]);
        let mut addresses = addresses.into_iter().flatten().flatten();
        let answer = addresses.find(|address| address.is_ipv4() == (kind == 1));
        // A site's own name servers answer for all below its name.
        let zone = match site {
            Some(_) => Some(name.clone()),
            None => Some(labels[1..].join(".")).filter(|zone| self.sites.contains_key(zone)),
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
        let code = match site {
            _ if fails => 0x82,
            Some(_) => 0x80,
            None => 0x83,
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
