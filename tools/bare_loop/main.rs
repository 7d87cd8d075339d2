//! Upper bound for crawl speed: one thread, one epoll, no parsing.
//!
//! Sends GETs over loopback to a server that listens on `--port` of `--addresses` addresses from 127.0.1.1
//! on. Parses only the Content-Length of the first reply, which every reply must have. With `--tls
//! CA_FILE` connections use rustls, with its default verification and resumption. Prints requests per
//! second and processor time per request.

mod exchange;
mod socket;
mod tls;

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use exchange::{Exchange, Outcome};

/// Options, from `--name value` pairs.
struct Plan {
    port: u16,
    addresses: u32,
    requests: u64,
    in_flight: usize,
    keep_alive: bool,
    path: String,
    tls: Option<PathBuf>,
}

fn main() -> io::Result<()> {
    let mut bare = Loop::new(plan())?;
    let (began, before) = (Instant::now(), Cpu::now());
    bare.run()?;
    let (wall, now) = (began.elapsed().as_secs_f64(), Cpu::now());
    let done = bare.done as f64;
    print!(
        "{} requests in {wall:.3} s: {:.0}/s, {:.2} us of user and {:.2} us of system time each",
        bare.done,
        done / wall,
        (now.user - before.user) / done * 1e6,
        (now.system - before.system) / done * 1e6
    );
    match bare.tls {
        Some(_) => println!(", {:.1} % resumed", bare.resumed as f64 / done * 100.0),
        None => println!(),
    }
    Ok(())
}

fn plan() -> Plan {
    let mut plan = Plan {
        port: 8080,
        addresses: 10_000,
        requests: 50_000,
        in_flight: 256,
        keep_alive: false,
        path: "/".to_owned(),
        tls: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| usage(&name));
        let number = |text: String| text.parse::<u64>().unwrap_or_else(|_| usage(&text));
        match name.as_str() {
            "--port" => plan.port = number(value()) as u16,
            "--addresses" => plan.addresses = number(value()) as u32,
            "--requests" => plan.requests = number(value()),
            "--in-flight" => plan.in_flight = number(value()) as usize,
            "--path" => plan.path = value(),
            "--keep-alive" => plan.keep_alive = true,
            "--tls" => plan.tls = Some(value().into()),
            other => usage(other),
        }
    }
    plan
}

fn usage(wrong: &str) -> ! {
    eprintln!(
        "{wrong}: bare_loop [--port N] [--addresses N] [--requests N] [--in-flight N] [--path P] \
         [--keep-alive] [--tls CA_FILE]"
    );
    std::process::exit(2);
}

struct Loop {
    plan: Plan,
    epoll: OwnedFd,
    exchanges: Vec<Option<Exchange>>,
    tls: Option<tls::Config>,
    request: Vec<u8>,
    /// Length of a complete reply, once one has been received.
    reply: Option<usize>,
    begun: u64,
    done: u64,
    resumed: u64,
}

impl Loop {
    fn new(plan: Plan) -> io::Result<Self> {
        // SAFETY: makes a descriptor and touches no memory.
        let epoll = socket::owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: bare.test\r\nUser-Agent: bare\r\nAccept: */*\r\n\r\n",
            plan.path
        );
        Ok(Loop {
            epoll,
            exchanges: Vec::new(),
            tls: plan.tls.as_deref().map(tls::config).transpose()?,
            request: request.into_bytes(),
            reply: None,
            begun: 0,
            done: 0,
            resumed: 0,
            plan,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        for slot in 0..self.plan.in_flight {
            self.exchanges.push(None);
            self.connect(slot)?;
        }
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 1024];
        let mut buffer = vec![0; 64 * 1024];
        while self.done < self.plan.requests {
            // SAFETY: the kernel writes at most as many events as there is room for.
            let count =
                unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), 1024, -1) };
            for event in &events[..socket::checked(count)? as usize] {
                let slot = event.u64 as usize;
                let Some(exchange) = &mut self.exchanges[slot] else {
                    continue;
                };
                if event.events & libc::EPOLLOUT as u32 != 0 {
                    exchange.begin(&self.request)?;
                }
                if event.events & libc::EPOLLIN as u32 != 0 {
                    self.receive(slot, &mut buffer)?;
                }
            }
        }
        Ok(())
    }

    /// Opens a new connection for the next request of a slot.
    fn connect(&mut self, slot: usize) -> io::Result<()> {
        if self.begun == self.plan.requests {
            return Ok(());
        }
        let address = (self.begun % u64::from(self.plan.addresses)) as u32;
        self.begun += 1;
        let exchange = Exchange::new(address, self.plan.port, self.tls.as_ref())?;
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32,
            u64: slot as u64,
        };
        // SAFETY: both descriptors are open and the event outlives the call.
        socket::checked(unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                exchange.fd(),
                &raw mut event,
            )
        })?;
        self.exchanges[slot] = Some(exchange);
        Ok(())
    }

    fn receive(&mut self, slot: usize, buffer: &mut [u8]) -> io::Result<()> {
        while let Some(exchange) = &mut self.exchanges[slot] {
            match exchange.receive(buffer, &mut self.reply)? {
                Outcome::Empty => return Ok(()),
                Outcome::More => {}
                Outcome::Complete => {
                    self.done += 1;
                    self.resumed += u64::from(exchange.resumed());
                    self.next_request(slot)?;
                    // More bytes after a complete reply cause another edge.
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Sends the next request after a complete reply, on this connection or a new one.
    fn next_request(&mut self, slot: usize) -> io::Result<()> {
        if self.plan.keep_alive
            && self.begun < self.plan.requests
            && let Some(exchange) = &mut self.exchanges[slot]
        {
            self.begun += 1;
            return exchange.again(&self.request);
        }
        if let Some(mut exchange) = self.exchanges[slot].take() {
            exchange.close()?;
        }
        self.connect(slot)
    }
}

/// Processor time of the process, in seconds.
struct Cpu {
    user: f64,
    system: f64,
}

impl Cpu {
    fn now() -> Self {
        // SAFETY: all zeroes is a valid value, which the call overwrites.
        let usage = unsafe {
            let mut usage: libc::rusage = mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
            usage
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Cpu {
            user: seconds(usage.ru_utime),
            system: seconds(usage.ru_stime),
        }
    }
}
