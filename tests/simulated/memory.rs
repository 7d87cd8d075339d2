//! Memory of a crawl: reading stops at a bound, and queued requests are small.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use argiope::PageKind;
use argiope::Sink;
use argiope::base::shared::Shared;
use argiope::frontier::request::Request;
use argiope::sink::page::Page;

use super::crawl::{Plan, Run};
use super::web::{PoliteWeb, Reply, Step, address};

/// The system's allocator, which counts for each thread how many bytes it has.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends may free what it had when its counter is gone already.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const BODY: usize = 300_000;
const BOUND: usize = 1_000_000;
/// What may be held beside the bound: one body, as it came and decoded, in memory that grows by
/// doubling, and what each of forty connections had read when it was stopped.
const BESIDE: usize = 4 * BODY + 40 * 16 * 1024;

/// Takes everything, and is busy between two of its flushes, a second apart.
#[derive(Clone, Default)]
struct Busy(Shared<SinkRecord>);

#[derive(Default)]
struct SinkRecord {
    flushes: usize,
    busy: std::ops::Range<usize>,
    pages: usize,
    pages_while_busy: usize,
}

impl Sink for Busy {
    fn put(&mut self, page: &mut Page) {
        let is_busy = !self.is_ready();
        let mut record = self.0.borrow_mut();
        record.pages += usize::from(page.kind == PageKind::Page && page.is_final);
        record.pages_while_busy += usize::from(is_busy);
    }

    fn is_ready(&self) -> bool {
        let record = self.0.borrow();
        !record.busy.contains(&record.flushes)
    }

    fn flush(&mut self) {
        self.0.borrow_mut().flushes += 1;
    }
}

/// Forty hosts with three large pages each.
fn plan(web: &mut PoliteWeb) -> Plan {
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 0.1)
        .set("READ_BUDGET", 64 * 1024)
        .set("DOWNLOAD_MAXSIZE", BOUND)
        .set("BUFFERED_BODIES_MAX", BOUND);
    plan.faults.piece_gap_max = Duration::from_millis(5);
    web.round_trip = Duration::from_millis(40);
    for number in 1..=40 {
        let name = format!("host{number}.test");
        let site = web.site(&name, address(number));
        for page in 0..3 {
            let path = format!("/{page}");
            site.path(&path, [Step::new(Reply::Text(vec![b'x'; BODY]))]);
            plan.seeds.push(format!("http://{name}{path}"));
        }
    }
    plan
}

/// Runs to the end; the most bytes of bodies that there were after a turn.
fn run(run: &mut Run) -> usize {
    let mut most = 0;
    while run.turn().is_none() {
        most = most.max(run.crawler.progress().buffered);
    }
    run.check_manners();
    most
}

#[test]
fn total_body_memory_is_bounded_and_the_crawl_ends() {
    let mut web = PoliteWeb::default();
    let plan = plan(&mut web);
    let web = web.shared();
    let sink = Busy::default();
    let mut crawl = plan.begin_into(&web, sink.clone());
    let most = run(&mut crawl);
    assert_eq!(sink.0.borrow().pages, 120);
    assert!(most > BOUND / 2, "the bound was never near: {most} bytes");
    assert!(most <= BOUND + BESIDE, "{most} bytes were held");
}

#[test]
fn a_busy_sink_stops_reading_and_sending_until_it_is_ready_again() {
    let mut web = PoliteWeb::default();
    let plan = plan(&mut web);
    let web = web.shared();
    let sink = Busy::default();
    sink.0.borrow_mut().busy = 1..30;
    let mut crawl = plan.begin_into(&web, sink.clone());
    let most = run(&mut crawl);
    let record = sink.0.borrow();
    assert_eq!(record.pages, 120);
    assert!(most <= BOUND + BESIDE, "{most} bytes were held");
    assert!(
        record.pages_while_busy <= 40,
        "{} pages",
        record.pages_while_busy
    );
    let web = web.borrow();
    let second = |at: argiope::base::time::Instant| at.as_nanos() / 1_000_000_000;
    let sent = web.arrivals.iter();
    let sent = sent.filter(|a| (2..29).contains(&second(a.at))).count();
    assert_eq!(
        sent, 0,
        "requests were sent to have their replies lie about"
    );
}

#[test]
fn f75_a_million_requests_wait_for_one_scope_in_bounded_memory_and_without_timers() {
    const REQUESTS: usize = 1_000_000;
    /// The job with its URL of some thirty bytes, its place in the queue, and its fingerprint
    /// among those seen, in tables that grow by doubling.
    const BYTES_PER_REQUEST: isize = 256;

    let mut web = PoliteWeb::default();
    web.site("one.test", address(1));
    let plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 60)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false);
    let mut crawl = plan.begin_into(&web.shared(), Busy::default());
    // As long as there is a handle more may come: the crawl does not end.
    let _handle = crawl.crawler.handle();
    let before = HELD.with(Cell::get);
    for number in 0..REQUESTS {
        let request = Request::get(format!("http://one.test/some/page/{number}"));
        crawl.crawler.submit(request).expect("a sound URL");
    }
    let each = (HELD.with(Cell::get) - before) / REQUESTS as isize;
    assert!(each <= BYTES_PER_REQUEST, "{each} bytes for each request");

    // robots.txt and the first have been fetched; the rest waits, behind one scope.
    crawl.until(Duration::from_secs(150));
    let progress = crawl.crawler.progress();
    assert!(progress.queued > REQUESTS - 5, "{progress:?}");
    assert_eq!((progress.scopes, progress.scopes_waiting), (1, 1));
    let held = (HELD.with(Cell::get) - before) / REQUESTS as isize;
    assert!(held <= each + 16, "{held} bytes for each, {each} before");

    // Whatever their number, it wakes for its tick and for what is sent.
    let turns = crawl.turns;
    crawl.until(Duration::from_secs(150 + 600));
    let turns = crawl.turns - turns;
    assert!(turns <= 600 + 10 * 20, "{turns} turns in ten minutes");
}
