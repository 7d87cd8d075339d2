//! Scopes by URL.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use argiope::serde_json::json;
use argiope::{Builder, ByHost, Crawler, ScopeMap, ScopeQuery, add_scope};

use crate::endpoints::{self, ApiByEndpoint};
use crate::loopback::{Asked, Reply, Server, peak};
use crate::registrable_domain::{ByOwner, by_setting};
use crate::{
    assert_apart, assert_gaps, crawl, crawl_under, get, hierarchy, millis, scopes_of, set,
};

#[test]
fn f22_hosts_of_a_registrable_domain_share_a_pace_by_code_and_by_setting() {
    let check = |builder: &dyn Fn(&Server) -> Builder| {
        let server = Server::start(|_| Reply::page("a page"));
        let hosts = ["x.co.uk", "a.b.x.co.uk", "y.co.uk", "localhost", "co.uk"];
        let urls = hosts
            .into_iter()
            .flat_map(|host| (0..2).map(move |number| format!("http://{host}/{number}")));
        let pages = crawl(builder(&server), urls.map(get));
        let of_x = server.asked_of(|asked| asked.host.ends_with("x.co.uk"));
        assert_eq!(of_x.len(), 4);
        assert_gaps(&of_x, millis(150));
        for other in ["y.co.uk", "localhost", "co.uk"] {
            let other = server.asked_of(|asked| asked.host == other);
            assert_gaps(&other, millis(150));
            assert!(other[1].at < of_x[3].at, "they wait for no other scope");
        }
        let scopes: BTreeSet<_> = pages.iter().flat_map(scopes_of).collect();
        let expected = ["co.uk", "localhost", "x.co.uk", "y.co.uk"];
        assert_eq!(scopes, BTreeSet::from(expected));
    };
    let config = |server: &Server| set(server.config(), "DOWNLOAD_DELAY", "150ms");
    check(&|server| Crawler::builder(by_setting(config(server)).expect("a setting")));
    check(&|server| Crawler::builder(config(server)).scope_map(ByOwner));
}

#[test]
fn f22_an_address_is_its_own_scope_by_code_and_by_setting() {
    let check = |builder: &dyn Fn(&Server) -> Builder| {
        let server = Server::start(|_| Reply::page("a page"));
        let (_, port) = server
            .here()
            .rsplit_once(':')
            .map(|(_, p)| ((), p.to_owned()))
            .expect("a port");
        let pages = crawl(builder(&server), [get(format!("http://127.0.0.1:{port}/"))]);
        assert_eq!(scopes_of(&pages[0]), [format!("127.0.0.1:{port}")]);
    };
    check(&|server| Crawler::builder(by_setting(server.config()).expect("a setting")));
    check(&|server| Crawler::builder(server.config()).scope_map(ByOwner));
}

#[test]
fn f23_two_hosts_reach_their_own_caps_alone_and_that_of_their_domain_together() {
    let check = |hosts: &[&str], expected: usize| {
        let server = Server::start(|_| Reply::page("slow").after(millis(250)));
        let config = hierarchy::by_level(server.config()).expect("settings");
        let urls = (0..48).flat_map(|number| {
            let url = move |host: &&str| get(format!("http://{host}.toscrape.com/{number}"));
            hosts.iter().map(url)
        });
        crawl_under(config, urls);
        let of = |name: &'static str| server.asked_of(|asked| asked.host.starts_with(name));
        let (books, quotes) = (peak(&of("books")), peak(&of("quotes")));
        assert!(books <= 24, "{books} to books at a time");
        assert!(quotes <= 16, "{quotes} to quotes at a time");
        assert_eq!(peak(&server.asked()), expected);
    };
    check(&["books", "quotes"], 32);
    check(&["books"], 24);
    check(&["quotes"], 16);
}

#[test]
fn f24_each_endpoint_has_its_own_pace_regardless_of_the_query() {
    let server = Server::start(|_| Reply::page("a page").after(millis(300)));
    let config = endpoints::paces(server.config()).expect("settings");
    let urls = (0..40).map(|number| format!("fast-endpoint?page={number}"));
    let urls = urls.chain((0..2).map(|number| format!("slow-endpoint?page={number}")));
    let pages = crawl(
        Crawler::builder(config).scope_map(ApiByEndpoint),
        urls.map(|path| get(format!("http://api.toscrape.com/{path}"))),
    );
    let of = |start: &'static str| server.asked_of(move |asked| asked.target.starts_with(start));
    let (fast, slow) = (of("/fast"), of("/slow"));
    assert_gaps(&fast, millis(80));
    assert_gaps(&slow, millis(5000));
    assert!(peak(&fast) > 1, "more than one may be in flight");
    let between = |asked: &&Asked| slow[0].at < asked.at && asked.at < slow[1].at;
    let between = fast.iter().filter(between).count();
    // All but the first few: 40 take 3.2 s.
    assert!(between > 30, "{between} went on while the other one waited");
    let scopes: BTreeSet<_> = pages.iter().flat_map(scopes_of).collect();
    let expected = [
        "api.toscrape.com/fast-endpoint",
        "api.toscrape.com/slow-endpoint",
    ];
    assert_eq!(scopes, BTreeSet::from(expected));
}

#[test]
fn f19_a_redirect_counts_for_its_target_and_custom_scopes_stay() {
    let answer = |asked: &Asked| match asked.host.as_str() {
        "a.test" => Reply::redirect("302 Found", &format!("http://b.test{}", asked.target)),
        _ => Reply::page("the end"),
    };
    let scopes = json!({
        "a.test": {"delay": 0.05},
        "b.test": {"delay": 0.3},
        "mine": {"delay": 0.2},
    });

    let server = Server::start(answer);
    let config = set(server.config(), "THROTTLING_SCOPES", scopes.clone());
    let pages = crawl_under(config, (0..3).map(|n| get(format!("http://a.test/{n}"))));
    let of = |host: &'static str| server.asked_of(move |asked| asked.host == host);
    let (a, b) = (of("a.test"), of("b.test"));
    assert_gaps(&b, millis(300));
    assert!(
        a[2].at < b[1].at,
        "those to the first host do not wait for the second"
    );
    for page in pages {
        assert_eq!(
            scopes_of(&page),
            [page.url[7..].split('/').next().expect("a host")]
        );
    }

    let server = Server::start(answer);
    let config = set(server.config(), "THROTTLING_SCOPES", scopes);
    let urls = (0..2).map(|n| get(format!("http://a.test/{n}")).scope("mine"));
    let pages = crawl_under(config, urls);
    assert_eq!(server.asked().len(), 4);
    assert_gaps(&server.asked(), millis(200));
    assert!(pages.iter().all(|page| scopes_of(page) == ["mine"]));
}

#[test]
fn f67_a_map_on_another_thread_is_called_once_per_request() {
    struct Slow(Arc<AtomicUsize>);
    impl ScopeMap for Slow {
        fn scopes(&self, query: &mut ScopeQuery<'_>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            if query.url().host_str() != "slow.test" {
                return ByHost.scopes(query);
            }
            let later = query.later();
            thread::spawn(move || {
                thread::sleep(millis(50));
                later.answer("looked-up");
            });
        }
    }
    let server = Server::start(|_| Reply::page("a page"));
    let config = set(server.config(), "DOWNLOAD_DELAY", "40ms");
    let calls = Arc::new(AtomicUsize::new(0));
    let urls = (0..4).flat_map(|number| {
        ["slow", "fast"].map(|host| get(format!("http://{host}.test/{number}")))
    });
    let builder = Crawler::builder(config).scope_map(Slow(Arc::clone(&calls)));
    let pages = crawl(builder, urls);
    assert_eq!(calls.load(Ordering::SeqCst), 8);
    let slow = server.asked_of(|asked| asked.host == "slow.test");
    let fast = server.asked_of(|asked| asked.host == "fast.test");
    assert_eq!((slow.len(), fast.len()), (4, 4));
    assert!(fast[0].at < slow[0].at, "no other scope waits");
    assert_gaps(&slow, millis(40));
    for page in pages.iter().filter(|page| page.url.contains("slow")) {
        assert_eq!(scopes_of(page), ["looked-up"]);
    }
}

#[test]
fn f69_a_map_can_add_a_scope_to_those_of_another() {
    struct Tenants;
    impl ScopeMap for Tenants {
        fn scopes(&self, query: &mut ScopeQuery<'_>) {
            let host = query.url().host_str().to_owned();
            let given = ["all", "tenants"];
            let scopes = add_scope(given, ("credits", 2.0));
            let scopes = add_scope(scopes, Some(host.as_str()));
            // What is there already stays where it is.
            query.add_all(add_scope(&scopes, vec!["tenants"]));
            assert!(
                scopes
                    .names()
                    .eq(["all", "tenants", "credits", host.as_str()])
            );
        }
    }
    let server = Server::start(|_| Reply::page("a page"));
    let scopes = json!({"all": {"delay": 0.1}, "credits": {"quota": 4.0, "window": 1.0}});
    let config = set(server.config(), "THROTTLING_SCOPES", scopes);
    let urls = (0..3).map(|number| get(format!("http://h{number}.test/")));
    let pages = crawl(Crawler::builder(config).scope_map(Tenants), urls);
    let asked = server.asked();
    assert_gaps(&asked, millis(100));
    assert_apart(&asked[0], &asked[2], millis(1000));
    for page in &pages {
        let host = page.url[7..].trim_end_matches('/');
        assert_eq!(scopes_of(page), ["all", "credits", host, "tenants"]);
    }
}
