//! Memory of a queued request without its URL and options.
//! `cargo test --test queued_memory -- --nocapture` shows the figures.

#[expect(dead_code, reason = "others ask how often, and how much at the most")]
mod counting;

use std::sync::Arc;
use std::time::Duration;

use argiope::serde_json::json;
use argiope::{Config, Crawler, Page, Proxy, Request, Route};
use counting::{Counting, held};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes besides the caller's data.
const BESIDE_MAX: f64 = 200.0;

#[test]
fn memory_of_a_queued_request_is_200_bytes_and_its_url() {
    check("on one host", |number| request(1, number));
    check("on a hundred hosts", |number| request(100, number));
}

#[test]
fn memory_of_a_queued_request_with_options_is_bounded() {
    let proxy: Proxy = "http://127.0.0.1:9".parse().expect("a proxy");
    let proxy = Arc::new(proxy);
    check("of a priority", |number| {
        request(100, number).priority(number as i32 % 5)
    });
    check("with a number", |number| {
        request(100, number).tag(number.into())
    });
    check("with metadata", |number| {
        request(100, number).meta(json!({"of": format!("{number:0100}")}))
    });
    check("with a field", |number| {
        request(100, number).header("X-Job", "7")
    });
    check("for so long", |number| {
        request(100, number).timeout(Duration::from_millis(number.into()))
    });
    check("of which so much is kept", |number| {
        request(100, number).body_max(number.into())
    });
    check("that is not followed", |number| {
        request(100, number).dont_follow().ignore_robots()
    });
    check("under a scope of its own", |number| {
        request(100, number).scope("key-7")
    });
    check("that costs", |number| {
        request(100, number).scope_cost("key-7", f64::from(number))
    });
    check("through a proxy", |number| {
        let mut request = request(100, number);
        request.route = Some(Route::Proxy(Arc::clone(&proxy)));
        request
    });
    check("with a number, metadata and a field", |number| {
        let request = request(100, number).tag(u64::from(number) << 40);
        request.meta(number).header("X-Job", "7")
    });
    check("with all of these", |number| {
        let request = request(100, number).tag(number.into()).meta(number);
        let request = request.timeout(Duration::from_secs(9)).body_max(1 << 20);
        request.header("X-Job", "7").header("Accept", "*/*")
    });
    check("with a body", |number| {
        let mut request = request(100, number).method("POST");
        request.body = vec![b'x'; 100];
        request
    });
}

/// Queues many of these requests, and checks the bytes per request at each number of them.
fn check(kind: &str, make: impl Fn(u32) -> Request) {
    let config = Config::default();
    let mut crawler = Crawler::builder(config)
        .sink(|_: Page| {})
        .build()
        .expect("an epoll");
    // Not counted: what is allocated once.
    for number in 0..1000 {
        crawler.submit(make(number)).expect("it is new");
    }
    let before = held();
    let (mut said, mut worst) = (0, 0.0_f64);
    for number in 1000..100_000 {
        let request = make(number);
        said += size_of(&request);
        crawler.submit(request).expect("it is new");
        let queued = f64::from(number - 999);
        if queued >= 20_000.0 {
            let more = (held() - before) as f64;
            worst = worst.max((more - said as f64) / queued);
        }
    }
    let more = (held() - before) as f64;
    let last = (more - said as f64) / 99_000.0;
    println!("{kind}: {last:.0} bytes beside what was said, {worst:.0} at the worst");
    assert!(worst <= BESIDE_MAX, "{kind}: {worst:.0} bytes");
}

fn request(hosts: u32, number: u32) -> Request {
    let (host, page) = (number % hosts, number / hosts);
    Request::get(format!("http://host-{host}.test/section/page-{page}.html"))
}

/// Bytes of the caller's data.
fn size_of(request: &Request) -> usize {
    let fields = request.headers.iter();
    let fields: usize = fields.map(|(name, value)| name.len() + value.len()).sum();
    let meta = request.meta_json().map_or(0, str::len);
    let scopes = request.scopes.iter().flatten();
    let scopes: usize = scopes.map(String::len).sum();
    request.url.len() + fields + meta + scopes + request.body.len()
}
