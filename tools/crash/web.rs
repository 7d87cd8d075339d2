//! A web of many domains on one loopback address, which records each request with the kernel's stamp.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use argiope::testkit::engine::{Answer, End, Engine, Service};
use argiope::testkit::http::{Answer as _, Reply, Request, Step};
use argiope::testkit::server::listener;

/// The size of the web.
#[derive(Clone, Copy)]
pub struct Size {
    pub domains: u32,
    /// Of each domain.
    pub pages: u32,
    /// Longest time until a reply.
    pub latency: Duration,
}

/// A request as its server saw it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    pub domain: u32,
    /// On the steady clock.
    pub at: Duration,
    pub method: String,
    pub target: String,
}

/// A running web, which ends with the process.
pub struct Web {
    size: Size,
    port: u16,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    /// Keeps it running.
    _stop: UnixStream,
}

struct Domains {
    size: Size,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
}

impl Web {
    pub fn start(size: Size) -> io::Result<Web> {
        let (stop, stopped) = UnixStream::pair()?;
        let listener = listener(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let port = listener.local_addr()?.port();
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let domains = Domains {
            size,
            arrivals: Arc::clone(&arrivals),
        };
        let mut engine = Engine::new(domains, vec![listener], None, stopped.into())?;
        thread::spawn(move || engine.run(None).expect("the servers run"));
        Ok(Web {
            size,
            port,
            arrivals,
            _stop: stop,
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of an arrival.
    pub fn url(&self, arrival: &Arrival) -> String {
        self.url_of(arrival.domain, &arrival.target)
    }

    fn url_of(&self, domain: u32, target: &str) -> String {
        format!("http://d{domain}.test:{}{target}", self.port)
    }

    /// Lines of a seeds file: the first page of every second domain, whose pages link to the others;
    /// requests that must not be made twice; and all pages of each domain with a Crawl-delay, which have a
    /// higher priority, so that they wait for that alone.
    pub fn seeds(&self) -> String {
        let mut seeds = String::new();
        for domain in 0..self.size.domains {
            if has_crawl_delay(domain) {
                for page in 0..self.size.pages {
                    let url = self.url_of(domain, &format!("/{page}"));
                    seeds += &format!("{{\"url\": \"{url}\", \"priority\": 1}}\n");
                }
            } else if domain % 2 == 0 {
                seeds += &self.url_of(domain, "/0");
                seeds.push('\n');
            }
            if domain % 20 == 7 {
                let url = self.url_of(domain, ORDER);
                seeds += &format!(
                    "{{\"url\": \"{url}\", \"method\": \"POST\", \"body_b64\": \"MQ==\"}}\n"
                );
            }
        }
        seeds
    }

    /// About how many requests an uninterrupted crawl makes.
    pub fn requests(&self) -> u32 {
        self.size.domains * (self.size.pages + 1)
    }

    /// Takes the record of the requests so far.
    pub fn take_arrivals(&self) -> Vec<Arrival> {
        std::mem::take(&mut *lock(&self.arrivals))
    }
}

/// The target of a request that must not be made twice.
pub const ORDER: &str = "/order";

pub const ROBOTS: &str = "/robots.txt";

/// The least time between two requests to a domain whose robots.txt says so.
pub const CRAWL_DELAY: Duration = Duration::from_millis(500);

/// Whether the robots.txt of a domain has a Crawl-delay.
pub fn has_crawl_delay(domain: u32) -> bool {
    domain % 20 == 14
}

impl Service for Domains {
    type Exchange = ();

    fn answer(&mut self, _: usize, request: &Request, arrived: Duration) -> Answer<()> {
        let name = request.host_name().trim_start_matches('d');
        let domain = name.trim_end_matches(".test").parse().unwrap_or(u32::MAX);
        lock(&self.arrivals).push(Arrival {
            domain,
            at: arrived,
            method: request.method.clone(),
            target: request.target.clone(),
        });
        let hash = (domain.wrapping_mul(2_654_435_761) ^ request.target.len() as u32) >> 7;
        let latency = self.size.latency.mul_f64(f64::from(hash % 100) / 100.0);
        let reply = self.reply(domain, request).after(latency);
        Answer {
            exchange: (),
            from: arrived,
            steps: match request.is_last {
                true => [reply.into_steps(request), vec![Step::Close]].concat(),
                false => reply.into_steps(request),
            },
            is_last: request.is_last,
        }
    }

    fn ended(&mut self, (): (), _: End) {}
}

impl Domains {
    fn reply(&self, domain: u32, request: &Request) -> Reply {
        let Ok(page) = request.target.trim_start_matches('/').parse::<u32>() else {
            return match request.target.as_str() {
                ORDER => Reply::page("taken"),
                ROBOTS if has_crawl_delay(domain) => {
                    let seconds = CRAWL_DELAY.as_secs_f64();
                    let rules = format!("User-agent: *\nCrawl-delay: {seconds}\n");
                    Reply::new(200)
                        .field("Content-Type", "text/plain")
                        .body(rules)
                }
                _ => Reply::status(404),
            };
        };
        let pages = self.size.pages;
        // The first page leads to the others.
        let kind = if page == 0 { 0 } else { (page + domain) % 11 };
        match kind {
            3 => Reply::redirect(302, &format!("/{}", (page + 1) % pages)),
            5 => Reply::status(404),
            7 => Reply::status(503),
            _ => {
                let mut body = format!("page {page} of {domain}\n");
                let next = (domain + 1) % self.size.domains;
                let port = request.host.rsplit_once(':').map_or("80", |(_, port)| port);
                body += &format!("<a href=http://d{next}.test:{port}/0>next</a>\n");
                for step in 1..=8 {
                    body += &format!("<a href=/{}>x</a>\n", (page + step) % pages);
                }
                body += &"some text of a page. ".repeat((domain + page) as usize % 60);
                Reply::page(body)
            }
        }
    }
}

fn lock(arrivals: &Mutex<Vec<Arrival>>) -> MutexGuard<'_, Vec<Arrival>> {
    arrivals.lock().unwrap_or_else(PoisonError::into_inner)
}
