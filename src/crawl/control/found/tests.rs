//! Links that come later, in virtual time.

use std::time::Duration;

use crate::crawl::config::Config;
use crate::crawl::control::found::*;
use crate::crawl::core::tests::trial::{calm, crawl, finish, get, run_for};
use crate::crawl::finish::FinishReason;
use crate::crawl::{Crawler, Parts, Turn};
use crate::fetch::resolver;
use crate::frontier::filter::Filtered;
use crate::frontier::settings::Follow;
use crate::io::Io;
use crate::io::sim::{Faults, Origins, Sim};
use crate::sink::later::LinksLater;
use crate::wire::proxy::Route;

/// Takes the holders of all pages that arrived so far.
fn held(open: &mut Option<Vec<(String, LinksLater)>>) -> Vec<LinksLater> {
    let all = open.as_mut().expect("pages are held open").drain(..);
    all.map(|(_, later)| later).collect()
}

#[test]
fn a_page_is_held_open_until_its_links_arrive_and_they_inherit_from_it() {
    let (mut crawler, handle, record) = crawl(calm(Duration::ZERO), 1, |_, _| {});
    *record.open.borrow_mut() = Some(Vec::new());
    let root = handle
        .submit(get(1, 1).without_proxy())
        .expect("there is room");
    drop(handle);
    let turns = run_for(&mut crawler, Duration::from_secs(3600));
    assert!(turns < 40, "it sleeps meanwhile: {turns}");
    let mut first = held(&mut record.open.borrow_mut());
    assert_eq!((first.len(), record.pages.borrow().len()), (1, 1));
    let links = [
        "/2",
        "3",
        "http://10.0.0.1/1",
        "http://10.0.0.2/offsite",
        "http://[/",
    ];
    let came = crawler.io().now();
    let taken = first
        .remove(0)
        .links(links.map(|url| Request::get(url).tag(9)));
    assert_eq!(taken, 4, "one is no URL");
    // One of the next pages has no links: its holder is dropped.
    while record.pages.borrow().len() < 3 {
        assert_eq!(crawler.turn(None), Turn::GoesOn);
    }
    drop(held(&mut record.open.borrow_mut()));
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let pages = record.pages.borrow();
    assert_eq!(pages.len(), 3);
    assert!(pages[1].timings.started.saturating_since(came) < Duration::from_millis(1));
    for (page, url) in pages[1..]
        .iter()
        .zip(["http://10.0.0.1/2", "http://10.0.0.1/3"])
    {
        assert_eq!((page.url.as_str(), page.status), (url, Some(200)));
        assert_eq!((page.parent, page.depth, page.seed), (Some(root), 1, false));
        assert_eq!(page.via.as_deref(), Some("http://10.0.0.1/1"));
        assert_eq!((page.tag, page.root), (9, page.id));
    }
    let filtered = crawler.progress().filtered;
    assert_eq!(filtered[&Filtered::Duplicate], 1);
    assert_eq!(filtered[&Filtered::Offsite], 1);
    assert_eq!(crawler.stats().pages, 3);
}

#[test]
fn a_link_inherits_the_proxy_of_its_page() {
    let (crawler, _, _) = crawl(calm(Duration::ZERO), 1, |_, _| {});
    let found = crawler.core.found();
    let page = OpenPage {
        id: 1,
        root: 1,
        url: "http://a.test/".into(),
        depth: 4,
        route: Some(Route::Direct),
    };
    let later = LinksLater::new(page, Arc::<Found>::clone(found));
    let proxy: Route = "http://127.0.0.1:1".parse().expect("a proxy");
    let own = Request {
        route: Some(proxy.clone()),
        ..Request::get("/own")
    };
    assert_eq!(later.links([Request::get("/"), own]), 2);
    let routes: Vec<_> = found
        .drain()
        .into_iter()
        .map(|job| job.route().cloned())
        .collect();
    assert_eq!(routes, [Some(Route::Direct), Some(proxy)]);
}

#[test]
fn a_link_does_not_inherit_the_proxy_of_its_pages_host() {
    let (mut crawler, handle, record) = crawl(calm(Duration::ZERO), 1, |config, _| {
        let hosts = serde_json::json!({"10.0.0.1": {"proxy": "direct"}});
        let with = std::mem::take(config).with("HOSTS", hosts);
        *config = with.expect("it is valid");
    });
    *record.open.borrow_mut() = Some(Vec::new());
    handle.submit(get(1, 1)).expect("there is room");
    drop(handle);
    run_for(&mut crawler, Duration::from_secs(1));
    let page = record.pages.borrow()[0].clone();
    assert_eq!(page.route, Some(Route::Direct));
    let later = crawler.links_later(&page);
    assert_eq!(later.links([Request::get("http://other.test/")]), 1);
    let links = crawler.core.found().drain();
    assert_eq!(links[0].route(), None, "its own host decides");
}

#[test]
fn the_links_of_a_page_with_many_holders_are_bounded_as_for_any_page() {
    let (mut crawler, handle, record) = crawl(calm(Duration::ZERO), 1, |config, _| {
        config.frontier.links_per_page_max = 3;
    });
    *record.open.borrow_mut() = Some(Vec::new());
    handle.submit(get(1, 1)).expect("there is room");
    drop(handle);
    run_for(&mut crawler, Duration::from_secs(1));
    let first = held(&mut record.open.borrow_mut()).remove(0);
    *record.open.borrow_mut() = None;
    let second = crawler.links_later(&record.pages.borrow()[0]);
    assert_eq!(first.links((2..10).map(|page| get(1, page))), 3);
    run_for(&mut crawler, Duration::from_secs(1));
    assert_eq!(second.links((20..22).map(|page| get(1, page))), 2);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(record.pages.borrow().len(), 6);
    assert_eq!(crawler.progress().filtered[&Filtered::LinksPerPage], 5);
}

#[test]
fn a_stopped_crawl_does_not_wait_for_open_pages_and_returns_the_links_left() {
    let (mut crawler, handle, record) = crawl(calm(Duration::from_secs(5)), 1, |_, _| {});
    *record.open.borrow_mut() = Some(Vec::new());
    for page in 1..=2 {
        handle.submit(get(1, page)).expect("there is room");
    }
    run_for(&mut crawler, Duration::from_secs(6));
    let mut open = held(&mut record.open.borrow_mut());
    assert_eq!(open.len(), 1, "one is on its way");
    let pages = record.pages.borrow().clone();
    open.push(crawler.links_later(&pages[0]));
    open.push(crawler.links_later(&pages[0]));
    handle.shutdown(Duration::from_secs(60));
    assert_eq!(crawler.turn(Some(Duration::from_millis(1))), Turn::GoesOn);
    assert_eq!(open.remove(0).links([get(1, 3), get(1, 1)]), 2);
    assert_eq!(crawler.turn(Some(Duration::from_millis(1))), Turn::GoesOn);
    assert_eq!(finish(&mut crawler), FinishReason::Shutdown);
    assert!(crawler.elapsed() < Duration::from_secs(11));
    assert_eq!(open.remove(0).links([get(1, 4)]), 0, "it is over");
    let pending: Vec<_> = crawler.take_pending().map(|left| left.request).collect();
    let urls: Vec<_> = pending
        .iter()
        .map(|left| (left.url.as_str(), left.depth))
        .collect();
    assert_eq!(urls, [("http://10.0.0.1/3", 1)]);
    drop(crawler);
    assert_eq!(open.remove(0).links([get(1, 5)]), 0);
}

/// A crawl of forty pages whose results are pulled.
fn pulled() -> Crawler<Sim> {
    let mut world = Origins::default();
    let at = "10.0.0.1:80".parse().expect("an address");
    for page in 0..40 {
        world.page(at, &format!("/{page}"), "");
    }
    let mut config = Config::default();
    config.frontier.robots_obey = false;
    config.frontier.follow = Follow::Host;
    config.allow_net = vec!["10.0.0.0/8".to_owned()];
    let results = crate::sink::pull::Results::new(2);
    let parts = Parts {
        results: Some(results.clone()),
        ..Parts::new(results)
    };
    let io = Sim::with(
        1,
        crate::io::IoSettings::default(),
        Faults::default(),
        Box::new(world),
    );
    Crawler::on(io, config, resolver::ResolverSettings::default(), parts).expect("a crawler")
}

#[test]
fn links_of_a_pulled_page_inherit_its_proxy_unless_they_set_one() {
    let mut crawler = pulled();
    let request = get(1, 0).without_proxy();
    crawler.submit(request).expect("it is a URL");
    crawler.submit(get(1, 1)).expect("it is a URL");
    let mut routes = Vec::new();
    while let Some(page) = crawler.next_result() {
        let later = crawler.links_later(&page);
        if page.depth == 0 {
            let number = if page.route.is_some() { 2 } else { 3 };
            later.links([get(1, number)]);
        }
        routes.push((page.url.rsplit('/').next().map(str::to_owned), page.route));
    }
    routes.sort_by(|one, other| one.0.cmp(&other.0));
    let direct = Some(Route::Direct);
    let routes: Vec<_> = routes.into_iter().map(|(_, route)| route).collect();
    assert_eq!(routes, [direct.clone(), None, direct, None]);
}

#[test]
fn pulled_results_may_be_held_open_for_their_links() {
    let mut crawler = pulled();
    crawler.submit(get(1, 0)).expect("it is a URL");
    let mut depths = Vec::new();
    while let Some(page) = crawler.next_result() {
        depths.push(page.depth);
        let later = crawler.links_later(&page);
        let number: u32 = page
            .url
            .rsplit('/')
            .next()
            .and_then(|n| n.parse().ok())
            .expect("a number");
        if number < 39 {
            later.links([Request::get(format!("{}", number + 1))]);
        }
    }
    assert_eq!(depths, (0..40).collect::<Vec<_>>());
}
