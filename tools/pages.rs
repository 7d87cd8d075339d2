//! Cost of a page on the crawl's thread: processor time and allocations, over loopback, with a minimal
//! server on another thread.
//!
//! ```sh
//! cargo run --release --example pages -- [--pages N] [--hosts N] [--in-flight N] [--lines] [--robots]
//!     [--new] [--uring]
//! ```
//!
//! Connections are kept; `--new` opens one for each page. `--lines` writes result lines, otherwise results
//! are dropped; `--robots` fetches and obeys robots.txt. The first tenth of a crawl is not measured.
//!
//! On a shared machine, instruction counts vary less:
//!
//! ```sh
//! cargo build --release --example pages --features rustix/use-libc-auxv
//! valgrind --tool=callgrind --toggle-collect='*Core*::turn' target/release/examples/pages
//! ```
//!
//! counts the instructions of the turns alone; the difference between runs with N and 2 N pages is the
//! cost of N pages. (The feature is needed because valgrind maps the vDSO at another address than the
//! kernel announces.) valgrind lacks SHA instructions, so the digest in `--lines` is overestimated.
//!
//! System calls of the crawl's thread, without the slowdown of `strace`, under which the loop would count
//! as busy:
//!
//! ```sh
//! perf stat -i -e 'syscalls:sys_enter_*' target/release/examples/pages --hosts 20000
//! ```

#[path = "../benches/hosts/server.rs"]
mod server;

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::mem;
use std::net::Ipv4Addr;
use std::time::Instant;

use argiope::PageKind;
use argiope::base::shared::Shared;
use argiope::sink::files::{FileSink, FileSinkOptions};
use argiope::{Config, Crawler, DiskDone, DiskJob, DiskSink, Page, Request};

/// The allocator of the command, with a count of allocations per thread.
struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all calls go to the allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + 1));
        // SAFETY: the caller's promises are those that the allocator asks for.
        unsafe { mimalloc::MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { mimalloc::MiMalloc.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + 1));
        // SAFETY: as above.
        unsafe { mimalloc::MiMalloc.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Plan {
    pages: u64,
    hosts: u64,
    in_flight: u64,
    lines: bool,
    robots: bool,
    new: bool,
    uring: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = plan();
    let port = server::start(Ipv4Addr::UNSPECIFIED, reply())?;
    let folder = tempfile::tempdir()?;
    let lines = FileSink::new(FileSinkOptions::new(folder.path()));
    let warm = plan.pages / 10;
    let marks = Shared::new([None; 2]);
    let sink = Marking {
        lines: plan.lines.then_some(lines),
        put: 0,
        warm,
        last: plan.pages,
        marks: Shared::clone(&marks),
    };
    let mut crawler = Crawler::builder(config(&plan)?).sink(sink).build()?;
    for number in 0..plan.pages {
        let host = number % plan.hosts;
        let (high, low) = (1 + host / 250, 1 + host % 250);
        let url = format!("http://127.0.{high}.{low}:{port}/{}", number / plan.hosts);
        crawler.submit(Request::get(url))?;
    }
    crawler.run();
    let [Some(from), Some(to)] = marks.get() else {
        return Err("some pages were not fetched".into());
    };
    let pages = (plan.pages - warm) as f64;
    let each = |a: f64, b: f64| (b - a) / pages * 1e6;
    println!(
        "{} pages on {} hosts: {:.2} us each; {:.2} us of user and {:.2} us of system time; \
         {:.2} allocations",
        plan.pages,
        plan.hosts,
        to.at.duration_since(from.at).as_secs_f64() / pages * 1e6,
        each(from.user, to.user),
        each(from.system, to.system),
        (to.allocations - from.allocations) as f64 / pages,
    );
    Ok(())
}

fn plan() -> Plan {
    let mut plan = Plan {
        pages: 20_000,
        hosts: 4,
        in_flight: 256,
        lines: false,
        robots: false,
        new: false,
        uring: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut number = || {
            let text = arguments.next().unwrap_or_default();
            text.parse().unwrap_or_else(|_| usage(&name))
        };
        match name.as_str() {
            "--pages" => plan.pages = number(),
            "--hosts" => plan.hosts = number(),
            "--in-flight" => plan.in_flight = number(),
            "--lines" => plan.lines = true,
            "--robots" => plan.robots = true,
            "--new" => plan.new = true,
            "--uring" => plan.uring = true,
            _ => usage(&name),
        }
    }
    plan
}

fn usage(wrong: &str) -> ! {
    eprintln!(
        "{wrong}: pages [--pages N] [--hosts N] [--in-flight N] [--lines] [--robots] [--new] \
         [--uring]"
    );
    std::process::exit(2);
}

fn config(plan: &Plan) -> Result<Config, argiope::ConfigError> {
    let each = plan.in_flight.div_ceil(plan.hosts);
    let config = match plan.new {
        true => Config::default().with("KEEPALIVE_MAX", 0)?,
        false => Config::default(),
    };
    config
        .with("ALLOW_NET", "loopback")?
        .with("DOWNLOAD_DELAY", 0)?
        .with("DOWNLOAD_DELAY_PER_SLOT", 0)?
        .with("CONCURRENT_REQUESTS", plan.in_flight)?
        .with("CONCURRENT_REQUESTS_PER_DOMAIN", each)?
        .with("ROBOTSTXT_OBEY", plan.robots)?
        .with("FOLLOW", "none")?
        .with("IO", if plan.uring { "uring" } else { "epoll" })
}

/// Resource usage at one moment.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    user: f64,
    system: f64,
    allocations: u64,
}

impl Mark {
    fn now() -> Self {
        // SAFETY: all zeroes is a valid value, which the call overwrites.
        let usage = unsafe {
            let mut usage: libc::rusage = mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
            usage
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Mark {
            at: Instant::now(),
            user: seconds(usage.ru_utime),
            system: seconds(usage.ru_stime),
            allocations: ASKED.with(Cell::get),
        }
    }
}

/// Writes lines or drops pages, and records usage at two moments.
struct Marking {
    lines: Option<FileSink>,
    put: u64,
    warm: u64,
    last: u64,
    marks: Shared<[Option<Mark>; 2]>,
}

impl DiskSink for Marking {
    fn reads_local(&self) -> bool {
        self.lines.is_some()
    }

    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>) {
        if page.kind == PageKind::Page {
            assert_eq!(page.status, Some(200), "{:?}", page.failure);
            self.put += 1;
        }
        if let Some(lines) = &mut self.lines {
            lines.put(page, disk);
        }
        let [from, to] = self.marks.get();
        if self.put == self.warm && from.is_none() {
            self.marks.set([Some(Mark::now()), to]);
        }
        if self.put == self.last && to.is_none() {
            self.marks.set([from, Some(Mark::now())]);
        }
    }

    fn disk_done(&mut self, done: &DiskDone, disk: &mut Vec<DiskJob>) {
        if let Some(lines) = &mut self.lines {
            lines.disk_done(done, disk);
        }
    }

    fn is_ready(&self) -> bool {
        self.lines.as_ref().is_none_or(DiskSink::is_ready)
    }

    fn flush(&mut self, disk: &mut Vec<DiskJob>) {
        if let Some(lines) = &mut self.lines {
            lines.flush(disk);
        }
    }

    fn finish(&mut self, disk: &mut Vec<DiskJob>) {
        if let Some(lines) = &mut self.lines {
            lines.finish(disk);
        }
    }

    fn is_done(&self) -> bool {
        self.lines.as_ref().is_none_or(DiskSink::is_done)
    }
}

/// A page of about a kilobyte without links, as nginx sends it. It also serves as a robots.txt without
/// rules.
fn reply() -> Vec<u8> {
    let body = format!("<html><body><p>{}</p></body></html>\n", "x".repeat(700));
    format!(
        "HTTP/1.1 200 OK\r\nServer: nginx/1.26.3\r\nDate: Sat, 21 Nov 2026 08:00:00 GMT\r\n\
         Content-Type: text/html\r\nContent-Length: {}\r\n\
         Last-Modified: Sat, 21 Nov 2026 07:00:00 GMT\r\nConnection: keep-alive\r\n\
         ETag: \"68a1b2c3-2e3\"\r\nAccept-Ranges: bytes\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
