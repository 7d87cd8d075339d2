//! Memory per queued URL when each URL has its own host, as at the start of a broad crawl.

#[expect(dead_code, reason = "how often memory was asked for is others' affair")]
mod counting;

use argiope::crawl::config::Config;
use argiope::crawl::{Crawler, Parts};
use argiope::frontier::request::Request;
use argiope::sink::function::FunctionSink;
use argiope::sink::page::Page;
use counting::{Counting, held, held_most};

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn memory_of_a_queued_url_on_its_own_host_is_bounded() {
    // Just before the hash tables grow, and just after. A host's name is stored twice, by the frontier as
    // a host and by the throttle as a scope: 27 bytes, because neither depends on the other.
    for (hosts, bytes_max) in [(28_500, 240), (29_500, 250)] {
        let sink = FunctionSink::new(|_: Page| {});
        let mut crawler = Crawler::new(Config::default(), Parts::new(sink)).expect("an epoll");
        // Not counted: what is allocated once, or for the first ten thousand scopes.
        admit(&mut crawler, 0..11_000);
        let before = held();
        counting::forget_most();
        admit(&mut crawler, 11_000..hosts);
        let more = f64::from(hosts - 11_000);
        let each = (held() - before) as f64 / more;
        let most = (held_most() - before) as f64 / more;
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
