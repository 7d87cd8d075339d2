//! Addresses that are not globally routable are requested only if allowed.

use std::net::Ipv6Addr;

use serde_json::Value;

use crate::run::{Crawl, code, detail};
use crate::server::{Asked, Server, not_found, page, redirect};

/// `crawl` with only this allowed.
fn crawl(url: &str, args: &[&str]) -> Value {
    let args = [&["--dns", "127.0.0.1:9"], args].concat();
    let allowed = args.contains(&"--allow-net");
    // An address of documentation is as good as none, and says which networks are meant.
    let none: &[&str] = if allowed {
        &[]
    } else {
        &["--allow-net", "192.0.2.0/24"]
    };
    Crawl::of(&[url]).with(&args).with(none).run().only()
}

#[track_caller]
fn check_blocked(line: &Value) {
    assert_eq!(code(line), "blocked_address.not_global", "{line}");
    assert_eq!(line["error"]["kind"], "blocked_address");
    assert!(detail(line).contains("--allow-net"), "{line}");
    assert!(
        line["sent"].is_null() && line["connect"].is_null(),
        "{line}"
    );
}

#[test]
fn a_literal_address_of_this_machine_is_refused() {
    let server = Server::new(|_| page("private"));
    let port = server.port();
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00::1]",
    ] {
        check_blocked(&crawl(&format!("http://{host}:{port}/"), &[]));
    }
    assert!(server.asked().is_empty());
}

#[test]
fn a_name_with_a_loopback_address_is_refused() {
    let server = Server::new(|_| page("private"));
    let url = format!("http://public.example.com:{}/", server.port());
    let named = server.named("public.example.com");
    check_blocked(&crawl(&url, &["--resolve", &named]));
    check_blocked(&crawl(&format!("http://localhost:{}/", server.port()), &[]));
    assert!(server.asked().is_empty());
    let line = crawl(&url, &["--resolve", &named, "--allow-net", "127.0.0.0/8"]);
    assert_eq!(line["status"], 200, "{line}");
    assert_eq!(line["remote"], format!("127.0.0.1:{}", server.port()));
}

#[test]
fn a_redirect_to_a_private_address_is_refused() {
    let private = Server::new(|_| page("private"));
    let to = private.url("/secret").replace("127.0.0.1", "127.0.0.2");
    let script = {
        let to = to.clone();
        move |_: &Asked| redirect("302 Found", &to)
    };
    let server = Server::new(script);
    let crawled = Crawl::of(&[&server.url("/")])
        .with(&["--allow-net", "127.0.0.1"])
        .run();
    check_blocked(&crawled.line(&to));
    assert!(private.asked().is_empty());
    let lines = crawled.lines();
    assert_eq!(lines[0]["redirect"], to);
    assert_eq!(lines[0]["final"], false);
    assert_eq!(lines[1]["parent"], lines[0]["id"]);
}

#[test]
fn an_excluded_address_is_not_requested_even_if_allowed() {
    let server = Server::new(|_| page("mine"));
    let url = server.url("/");
    let named = format!("http://b.test:{}/", server.port());
    let crawl = Crawl::of(&[&url, &named]).with(&["--resolve", &server.named("b.test")]);
    crawl.file("list", b"127.0.0.0/8\n");
    let crawled = crawl.with(&["--exclude", "list"]).run();
    assert!(server.asked().is_empty());
    for line in crawled.lines() {
        assert_eq!(line["error"]["kind"], "filtered", "{line}");
        assert!(line["sent"].is_null());
    }
}

#[test]
fn an_excluded_host_is_not_requested() {
    let server = Server::new(|asked| match asked.target.as_str() {
        "/" => page(""),
        _ => not_found(),
    });
    let port = server.port();
    let hosts = ["a.test", "b.test", "x.c.test"].map(|host| format!("http://{host}:{port}/"));
    let urls: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let crawl = Crawl::of(&urls).with(&["--resolve", &format!("*:{port}:127.0.0.1")]);
    crawl.file("list", b"# mine\nb.test\n*.c.test\n");
    let crawled = crawl.with(&["--exclude", "list"]).run();
    assert_eq!(crawled.urls(), [format!("http://a.test:{port}/")]);
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn an_ipv6_literal_is_requested_with_brackets() {
    let Some(server) = Server::on(Ipv6Addr::LOCALHOST.into(), |_| page("six")) else {
        crate::loud::skip("this machine has no ::1");
        return;
    };
    let crawled = Crawl::of(&[&server.url("/")]).run();
    let line = crawled.only();
    let host = format!("[::1]:{}", server.port());
    assert_eq!(line["url"], format!("http://{host}/"));
    assert_eq!(line["remote"], host);
    assert_eq!(line["scopes"][0], host);
    assert_eq!(server.only("/").header("Host"), Some(host.as_str()));
}
