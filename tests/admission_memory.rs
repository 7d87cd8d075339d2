//! What a queued URL costs in memory when each is of a host of its own, as a broad crawl begins.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use argiope::crawl::config::Config;
use argiope::crawl::{Crawler, Parts};
use argiope::frontier::request::Request;
use argiope::sink::function::FunctionSink;
use argiope::sink::page::Page;

/// The system's allocator, which counts for each thread how many bytes it holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    HELD.with(|held| {
        held.set(held.get() + bytes);
        MOST.with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_queued_url_of_a_host_of_its_own_costs_no_more_than_so_much() {
    // Just before the tables of hashes grow, and just after.
    for (hosts, bytes_max) in [(28_500, 215), (29_500, 250)] {
        let sink = FunctionSink::new(|_: Page| {});
        let mut crawler = Crawler::new(Config::default(), Parts::new(sink)).expect("an epoll");
        // What is made once, or kept of the first ten thousand scopes, is not counted.
        admit(&mut crawler, 0..11_000);
        let before = HELD.with(Cell::get);
        MOST.with(|most| most.set(before));
        admit(&mut crawler, 11_000..hosts);
        let more = f64::from(hosts - 11_000);
        let each = (HELD.with(Cell::get) - before) as f64 / more;
        let most = (MOST.with(Cell::get) - before) as f64 / more;
        println!("{hosts}: {each:.0} bytes a URL, {most:.0} at the worst");
        assert!(each < f64::from(bytes_max), "{each:.0} bytes a URL");
        assert!(most < each + 20.0, "{most:.0} bytes a URL at the worst");
    }
}

fn admit(crawler: &mut Crawler, numbers: std::ops::Range<u32>) {
    for number in numbers {
        crawler
            .submit(Request::get(format!("http://domain-{number}.test/")))
            .expect("each is a new URL");
    }
}
