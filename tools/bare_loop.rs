//! The ceiling that crawl speeds are told as a share of: one thread, one epoll, and nothing else.
//!
//! Each request is a GET over loopback, answered by whoever listens on `--port` of `--addresses`
//! addresses from 127.0.1.1 on. Nothing is parsed beyond the declared length of the first reply,
//! which must be every reply's. Prints requests per second and the thread's processor time each.

use std::io::{self, Error};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

/// What to do, from `--name value` pairs.
struct Plan {
    port: u16,
    addresses: u32,
    requests: u64,
    in_flight: usize,
    keep_alive: bool,
    path: String,
}

/// One connection in flight.
struct Connection {
    fd: OwnedFd,
    address: u32,
    /// Bytes of the present reply that have come.
    received: usize,
    sent: bool,
}

fn main() -> io::Result<()> {
    let plan = plan();
    let began = Instant::now();
    let cpu = cpu_seconds();
    let mut bare = Loop::new(plan)?;
    bare.run()?;
    let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let done = bare.done as f64;
    println!(
        "{} requests in {wall:.3} s: {:.0}/s, {:.2} us of processor time each",
        bare.done,
        done / wall,
        cpu / done * 1e6
    );
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
            other => usage(other),
        }
    }
    plan
}

fn usage(wrong: &str) -> ! {
    eprintln!(
        "{wrong}: bare_loop [--port N] [--addresses N] [--requests N] [--in-flight N] [--path P] \
         [--keep-alive]"
    );
    std::process::exit(2);
}

struct Loop {
    plan: Plan,
    epoll: OwnedFd,
    connections: Vec<Option<Connection>>,
    request: Vec<u8>,
    /// Length of a whole reply, once one has come.
    reply: Option<usize>,
    begun: u64,
    done: u64,
}

impl Loop {
    fn new(plan: Plan) -> io::Result<Self> {
        // SAFETY: makes a descriptor and touches no memory.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: bare.test\r\nUser-Agent: bare\r\nAccept: */*\r\n\r\n",
            plan.path
        );
        Ok(Loop {
            epoll,
            connections: Vec::new(),
            request: request.into_bytes(),
            reply: None,
            begun: 0,
            done: 0,
            plan,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        for slot in 0..self.plan.in_flight {
            self.connections.push(None);
            self.next(slot)?;
        }
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 1024];
        let mut buffer = vec![0; 64 * 1024];
        while self.done < self.plan.requests {
            // SAFETY: the kernel writes at most as many events as there is room for.
            let count =
                unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), 1024, -1) };
            for event in &events[..checked(count)? as usize] {
                let slot = event.u64 as usize;
                if event.events & libc::EPOLLOUT as u32 != 0 {
                    self.send(slot)?;
                }
                if event.events & libc::EPOLLIN as u32 != 0 {
                    self.receive(slot, &mut buffer)?;
                }
            }
        }
        Ok(())
    }

    /// Begins the next request on a slot, on a new connection.
    fn next(&mut self, slot: usize) -> io::Result<()> {
        if self.begun == self.plan.requests {
            return Ok(());
        }
        let address = (self.begun % u64::from(self.plan.addresses)) as u32;
        self.begun += 1;
        let fd = connect(address, self.plan.port)?;
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32,
            u64: slot as u64,
        };
        // SAFETY: both descriptors are open and the event outlives the call.
        checked(unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_raw_fd(),
                &raw mut event,
            )
        })?;
        self.connections[slot] = Some(Connection {
            fd,
            address,
            received: 0,
            sent: false,
        });
        Ok(())
    }

    fn send(&mut self, slot: usize) -> io::Result<()> {
        let Some(connection) = &mut self.connections[slot] else {
            return Ok(());
        };
        if connection.sent {
            return Ok(());
        }
        connection.sent = true;
        let request = &self.request;
        // SAFETY: reads as many bytes as the slice has.
        let sent = unsafe {
            libc::send(
                connection.fd.as_raw_fd(),
                request.as_ptr().cast(),
                request.len(),
                libc::MSG_NOSIGNAL,
            )
        };
        if sent != request.len() as isize {
            return Err(Error::other(format!(
                "127.x of number {} took {sent} bytes of a request: {}",
                connection.address,
                Error::last_os_error()
            )));
        }
        Ok(())
    }

    fn receive(&mut self, slot: usize, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            let Some(connection) = &mut self.connections[slot] else {
                return Ok(());
            };
            // SAFETY: writes at most as many bytes as the slice has.
            let received = unsafe {
                libc::recv(
                    connection.fd.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    0,
                )
            };
            if received < 0 {
                let error = Error::last_os_error();
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(()),
                    _ => Err(error),
                };
            }
            if received == 0 {
                return Err(Error::other("a connection ended before its reply did"));
            }
            let received = received as usize;
            connection.received += received;
            let reply = *self
                .reply
                .get_or_insert_with(|| reply_length(&buffer[..received]));
            if connection.received >= reply {
                self.done += 1;
                self.go_on(slot)?;
            }
            // An edge follows whatever comes after a read that did not fill the buffer.
            if received < buffer.len() {
                return Ok(());
            }
        }
    }

    /// A reply is whole: the next request, on this connection or a new one.
    fn go_on(&mut self, slot: usize) -> io::Result<()> {
        if self.plan.keep_alive && self.begun < self.plan.requests {
            self.begun += 1;
            if let Some(connection) = &mut self.connections[slot] {
                connection.received = 0;
                connection.sent = false;
            }
            return self.send(slot);
        }
        self.connections[slot] = None;
        self.next(slot)
    }
}

/// A connection under way, on cubic, that leaves nothing behind when it is closed.
fn connect(address: u32, port: u16) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: makes a descriptor and touches no memory.
    let fd = owned(unsafe { libc::socket(libc::AF_INET, kind, 0) })?;
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    set(&fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger)?;
    set(&fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"cubic")?;
    // 127.0.1.1 and on, 250 addresses in each block of 256.
    let number = 0x7f00_0101 + address / 250 * 256 + address % 250;
    // SAFETY: all zeroes is a valid address, whose fields are then filled.
    let mut to: libc::sockaddr_in = unsafe { mem::zeroed() };
    to.sin_family = libc::AF_INET as libc::sa_family_t;
    to.sin_port = port.to_be();
    to.sin_addr.s_addr = number.to_be();
    // SAFETY: the address outlives the call and its length is given.
    let result = unsafe {
        libc::connect(
            fd.as_raw_fd(),
            (&raw const to).cast(),
            mem::size_of_val(&to) as libc::socklen_t,
        )
    };
    if result < 0 && Error::last_os_error().raw_os_error() != Some(libc::EINPROGRESS) {
        return Err(Error::last_os_error());
    }
    Ok(fd)
}

fn set<T>(fd: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the value outlives the call and its length is given.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const *value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    checked(result).map(drop)
}

/// Head and declared body of the first reply.
fn reply_length(first: &[u8]) -> usize {
    let text = String::from_utf8_lossy(first);
    let head = text.find("\r\n\r\n").expect("a small head comes at once") + 4;
    let body = text[..head]
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .expect("the reply declares its length");
    head + body.trim().parse::<usize>().expect("a length is a number")
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    let fd = checked(fd)?;
    // SAFETY: the kernel just made it and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn cpu_seconds() -> f64 {
    // SAFETY: all zeroes is a valid value, which the call overwrites.
    let usage = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
