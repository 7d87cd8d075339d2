//! What a queued request costs in memory: at most 200 bytes beside its own URL and what was said with
//! it. `cargo test --test queued_memory -- --nocapture` shows the figures.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use argiope::{Config, Crawler, Page, Request};

/// The system's allocator, which counts for each thread how many bytes it holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.with(|held| held.set(held.get() + layout.size() as isize));
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.with(|held| held.set(held.get() - layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes beside what was said.
const BYTES_MAX: f64 = 200.0;

#[test]
fn a_queued_request_costs_200_bytes_and_what_was_said_with_it() {
    check("on one host", |number| request(1, number));
    check("on a hundred hosts", |number| request(100, number));
    check("with a number", |number| {
        request(100, number).tag(number.into())
    });
    check("with metadata", |number| {
        let meta = format!("{{\"of\": \"{number:0100}\"}}");
        Request {
            meta: Some(raw(meta)),
            ..request(100, number)
        }
    });
    check("with a field", |number| {
        request(100, number).header("X-Job", "7")
    });
    check("with a body", |number| Request {
        method: "POST".to_owned(),
        body: vec![b'x'; 100],
        ..request(100, number)
    });
    check("of a priority", |number| {
        request(100, number).priority(number as i32 % 5)
    });
}

/// Queues many of these; at no number of them does one cost more than it may.
fn check(kind: &str, make: impl Fn(u32) -> Request) {
    let config = Config::default();
    let mut crawler = Crawler::builder(config)
        .sink(|_: Page| {})
        .build()
        .expect("an epoll");
    // What is made once is not counted.
    for number in 0..1000 {
        crawler.submit(make(number)).expect("it is new");
    }
    let before = HELD.with(Cell::get);
    let (mut said, mut worst) = (0, 0.0_f64);
    for number in 1000..100_000 {
        let request = make(number);
        said += size_of(&request);
        crawler.submit(request).expect("it is new");
        let queued = f64::from(number - 999);
        if queued >= 20_000.0 {
            let held = (HELD.with(Cell::get) - before) as f64;
            worst = worst.max((held - said as f64) / queued);
        }
    }
    let held = (HELD.with(Cell::get) - before) as f64;
    let last = (held - said as f64) / 99_000.0;
    println!("{kind}: {last:.0} bytes beside what was said, {worst:.0} at the worst");
    assert!(worst <= BYTES_MAX, "{kind}: {worst:.0} bytes");
}

fn request(hosts: u32, number: u32) -> Request {
    let (host, page) = (number % hosts, number / hosts);
    Request::get(format!("http://host-{host}.test/section/page-{page}.html"))
}

/// Bytes of what the caller said.
fn size_of(request: &Request) -> usize {
    let fields = request.headers.iter();
    let fields: usize = fields.map(|(name, value)| name.len() + value.len()).sum();
    let meta = request.meta.as_ref().map_or(0, |meta| meta.get().len());
    request.url.len() + fields + meta + request.body.len()
}

fn raw(json: String) -> Box<argiope::serde_json::value::RawValue> {
    argiope::serde_json::value::RawValue::from_string(json).expect("JSON")
}
