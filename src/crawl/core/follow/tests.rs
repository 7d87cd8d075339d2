//! What replies lead to, on simulated origins.

use std::net::SocketAddr;
use std::time::Duration;

use crate::base::shared::Shared;
use crate::crawl::config::Config;
use crate::crawl::{Crawler, Parts};
use crate::fetch::resolver;
use crate::frontier::request::Request;
use crate::io::sim::{Origins, Sim};
use crate::sink::function::FunctionSink;
use crate::sink::page::Page;
use crate::wire::coding::gzip;

const HOST: &str = "10.0.0.1:80";

/// Crawls from the home page of `HOST`; returns `kind path status` of each attempt.
fn crawled(set: impl FnOnce(&mut Config), origins: Origins) -> Vec<String> {
    let sink_results = |page: Page| {
        let status = page.status.unwrap_or(0);
        let path = page.url.trim_start_matches("http://10.0.0.1");
        format!("{} {path} {status}", page.kind)
    };
    pages(set, origins).into_iter().map(sink_results).collect()
}

fn pages(set: impl FnOnce(&mut Config), origins: Origins) -> Vec<Page> {
    let mut config = Config::default();
    config.throttle.default.delay = Duration::ZERO;
    config.throttle.default.delay_per_slot = Duration::ZERO;
    config.allow_net = vec!["10.0.0.0/8".to_owned()];
    set(&mut config);
    let results: Shared<Vec<Page>> = Shared::default();
    let sink_results = Shared::clone(&results);
    let sink = FunctionSink::new(move |page: Page| sink_results.borrow_mut().push(page));
    let io = Sim::new(1, Box::new(origins));
    let config = config.finish().expect("a sound config");
    let names = resolver::ResolverSettings::default();
    let mut crawler = Crawler::on(io, config, names, Parts::new(sink)).expect("a crawler");
    crawler
        .submit(Request::get("http://10.0.0.1/"))
        .expect("a seed");
    crawler.run();
    drop(crawler);
    results.take()
}

fn origins(replies: &[(&str, &str, Vec<u8>)]) -> Origins {
    let at: SocketAddr = HOST.parse().expect("an address");
    let mut origins = Origins::default();
    for (path, content_type, body) in replies {
        let mut reply = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        reply.extend_from_slice(body);
        origins.reply(at, path, Duration::ZERO, reply);
    }
    origins
}

fn web_of_sitemaps() -> Origins {
    let index =
        "<sitemapindex><sitemap><loc>http://10.0.0.1/s.xml.gz</loc></sitemap></sitemapindex>";
    let pages = "<urlset><url><loc>http://10.0.0.1/listed</loc></url></urlset>";
    let robots = "Sitemap: http://10.0.0.1/index.xml\n";
    origins(&[
        ("/robots.txt", "text/plain", robots.into()),
        ("/index.xml", "application/xml", index.into()),
        ("/s.xml.gz", "application/gzip", gzip(pages.as_bytes())),
        ("/listed", "text/html", "a page without links to it".into()),
        ("/", "text/html", "home".into()),
    ])
}

#[test]
fn sitemaps_are_read_by_setting_and_gzip_files_among_them_too() {
    let with = crawled(|config| config.frontier.sitemaps = true, web_of_sitemaps());
    for line in [
        "robots /robots.txt 200",
        "sitemap /index.xml 200",
        "sitemap /s.xml.gz 200",
        "page /listed 200",
    ] {
        assert!(
            with.iter().any(|results| results == line),
            "{line} in {with:?}"
        );
    }
    let without = crawled(|_| {}, web_of_sitemaps());
    assert_eq!(without, ["robots /robots.txt 200", "page / 200"]);
}

#[test]
fn a_nofollow_page_is_not_followed_unless_a_setting_allows_it() {
    let web = || {
        origins(&[
            ("/robots.txt", "text/plain", Vec::new()),
            (
                "/",
                "text/html",
                "<meta name=robots content=nofollow><a href=/x>x</a>".into(),
            ),
            ("/x", "text/html", "x".into()),
        ])
    };
    let obeyed = crawled(|_| {}, web());
    assert_eq!(obeyed, ["robots /robots.txt 200", "page / 200"]);
    let followed = crawled(|config| config.frontier.nofollow = false, web());
    assert_eq!(followed.last().map(String::as_str), Some("page /x 200"));
}

#[test]
fn a_page_has_the_directives_of_its_meta_elements_and_fields() {
    let html = "text/html\r\nX-Robots-Tag: noarchive, otherbot: none\r\nX-Robots-Tag: nosnippet";
    let body = "<meta name=robots content='NoIndex, max-snippet:9'><a href=/x>x</a>";
    let web = origins(&[
        ("/", html, body.into()),
        ("/x", "application/pdf\r\nX-Robots-Tag: noindex", "x".into()),
    ]);
    let found = pages(|_| {}, web);
    let directives = |path: &str| {
        let page = found.iter().find(|page| page.url.ends_with(path));
        page.expect(path).directives.clone()
    };
    let first = directives("10.0.0.1/").expect("it has some");
    assert_eq!(first.meta, ["noindex", "max-snippet:9"]);
    assert_eq!(first.header, ["noarchive", "nosnippet"]);
    let second = directives("/x").expect("it has one");
    assert_eq!(
        (second.meta.len(), &*second.header),
        (0, &["noindex".to_owned()][..])
    );
    assert_eq!(directives("/robots.txt"), None);
}

#[test]
fn a_page_has_the_url_by_which_it_was_found() {
    let web = origins(&[
        ("/", "text/html", "<a href=/x>x</a>".into()),
        ("/x", "text/html", "x".into()),
    ]);
    let found = pages(|_| {}, web);
    let via = |path: &str| {
        let page = found.iter().find(|page| page.url.ends_with(path));
        page.expect(path).via.clone()
    };
    assert_eq!(via("/x").as_deref(), Some("http://10.0.0.1/"));
    assert_eq!(via("0.0.1/"), None);
}
