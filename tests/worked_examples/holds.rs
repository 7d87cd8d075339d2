use argiope::serde_json::json;
use crate::loopback::{Reply, Server, gaps};
use crate::{crawl_under, get, set};
#[test]
fn probe() {
    let server = Server::start(|asked| match asked.target.contains("0") {
        true => Reply::status("429 Too Many Requests"),
        false => Reply::page("a page"),
    });
    for (c, j) in [(1, "x"), (1, "j"), (8, "x")] {
    let config = set(server.config(), "DOWNLOAD_DELAY", "50ms");
    let config = set(config, "BACKOFF_MIN_DELAY", "1200ms");
    let config = if j == "j" {set(config, "BACKOFF_JITTER", false)} else {config};
    let config = set(config, "CONCURRENT_REQUESTS_PER_DOMAIN", c);
    let n = server.asked().len();
    crawl_under(config, (0..4).map(|n| get(format!("http://a.test/{n}"))));
    let asked = server.asked();
    for a in &asked[n..] { println!("{} {:?} {:?}", a.target, a.at, a.done); }
    println!("{c} {j} {:?}", gaps(&asked[n..]));
    }
}
