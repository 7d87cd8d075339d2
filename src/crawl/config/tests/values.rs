//! Each kind of value: valid and invalid input.

use std::time::Duration;

use serde_json::{Value, json};

use super::{given, refused};
use crate::crawl::config::{BackEnd, Config, settings};
use crate::throttle::settings::Jitter;

#[test]
fn durations_are_seconds_or_text_with_units() {
    let check = |value: Value, nanos: u64| {
        let config = given(&[("DOWNLOAD_DELAY", value.clone())]);
        let delay = config.throttle.default.delay;
        assert_eq!(delay, Duration::from_nanos(nanos), "{value}");
    };
    check(json!(0), 0);
    check(json!(0.3), 300_000_000);
    check(json!("0.3"), 300_000_000);
    check(json!("500ms"), 500_000_000);
    check(json!(" 10s "), 10_000_000_000);
    check(json!("2h"), 7_200_000_000_000);
    check(json!("1h30m"), 5_400_000_000_000);
    check(json!("1.5m"), 90_000_000_000);
    check(json!("7us"), 7_000);
    check(json!("1ns"), 1);
}

#[test]
fn impossible_durations_are_refused() {
    let check = |value: Value, expected: &str| {
        let text = refused("DOWNLOAD_DELAY", value);
        assert!(text.starts_with("-s DOWNLOAD_DELAY: "), "{text}");
        assert!(text.contains(expected), "{text}");
    };
    check(json!(-1), "is negative");
    check(json!("-500ms"), "is negative");
    check(json!("nan"), "is not finite");
    check(json!("inf"), "is not finite");
    check(json!(1e12), "is too long");
    for word in ["", "s", "1x", "10s5", "1h 30", "ten", "1..2s", "٣s"] {
        check(json!(word), "is not a duration");
    }
    check(json!(true), "is not a duration");
    check(json!([1]), "is not a duration");
    assert!(refused("CONNECT_TIMEOUT", json!(0)).contains("is not above 0"));
}

#[test]
fn metrics_of_more_than_a_hundred_scopes_are_refused() {
    let most = given(&[("METRICS_SCOPES_MAX", json!(100))]);
    assert_eq!(most.metrics_scopes_max, 100);
    let text = refused("METRICS_SCOPES_MAX", json!(101));
    assert!(text.contains("give at most 100"), "{text}");
}

#[test]
fn sizes_are_bytes_or_text_with_units() {
    let check = |value: Value, bytes: u64| {
        assert_eq!(given(&[("DOWNLOAD_MAXSIZE", value)]).fetch.body_max, bytes);
    };
    check(json!(65536), 65536);
    check(json!("65536"), 65536);
    check(json!("10MiB"), 10 << 20);
    check(json!("10m"), 10 << 20);
    check(json!("1.5 KiB"), 1536);
    check(json!("1MB"), 1_000_000);
    for wrong in [
        json!(0),
        json!("0"),
        json!(-1),
        json!("10XB"),
        json!("1e999G"),
        json!(1.5),
    ] {
        let text = refused("DOWNLOAD_MAXSIZE", wrong);
        assert!(text.contains("give bytes"), "{text}");
    }
}

#[test]
fn counts_are_whole_and_within_bounds() {
    let check = |name, value, expected: &str| {
        let text = refused(name, value);
        assert!(text.contains(expected), "{text}");
    };
    let name = "CONCURRENT_REQUESTS_PER_DOMAIN";
    check(name, json!(0), "0 is too small; give a whole number of 1");
    check(name, json!(-3), "not a whole number");
    check(name, json!(1.5), "not a whole number");
    check(name, json!("two"), "not a whole number");
    check(name, json!(4_294_967_296_u64), "too large");
    check("RANDOM_SEED", json!(u64::MAX), "too large");
    check(
        "RETRY_HTTP_CODES",
        json!([500, 99]),
        "99 is not a status code",
    );
    check("RETRY_HTTP_CODES", json!("500,abc"), "not a status code");
}

#[test]
fn a_concurrency_above_the_number_of_ports_is_refused() {
    let most = ", up to 65535";
    for name in [
        "CONCURRENT_REQUESTS_PER_DOMAIN",
        "CONCURRENT_REQUESTS_PER_IP",
    ] {
        for absurd in [65_536_u32, u32::MAX] {
            let text = refused(name, json!(absurd));
            let expected = format!("{name}: {absurd} is too large; ");
            assert!(text.contains(&expected) && text.contains(most), "{text}");
        }
        given(&[(name, json!(65_535))]);
    }
    for (name, scope) in [
        ("THROTTLING_SCOPES", "a.test"),
        ("THROTTLING_SCOPES", "default"),
        ("DOWNLOAD_SLOTS", "a.test"),
    ] {
        let text = refused(name, json!({scope: {"concurrency": u32::MAX}}));
        assert!(text.contains(".concurrency: 4294967295 is too"), "{text}");
    }
    let text = refused("ADDRESS_SCOPE_DEFAULTS", json!({"concurrency": 65_536}));
    assert!(text.contains("concurrency: 65536 is too large"), "{text}");
    // Also if the field was written directly.
    let mut config = Config::default();
    config.throttle.default.concurrency = u32::MAX;
    assert!(config.finish().is_err());
}

#[test]
fn a_target_concurrency_must_be_above_zero() {
    for value in [json!(0), json!(-1), json!("nan"), json!("inf"), json!("x")] {
        let text = refused("AUTOTHROTTLE_TARGET_CONCURRENCY", value);
        assert!(text.contains("above 0"), "{text}");
    }
    let config = given(&[
        ("AUTOTHROTTLE_ENABLED", json!(true)),
        ("AUTOTHROTTLE_TARGET_CONCURRENCY", json!("0.5")),
    ]);
    let automatic = config.throttle.default.autothrottle.expect("it is on");
    assert_eq!(automatic.target_concurrency, 0.5);
}

#[test]
fn jitter_is_a_switch_a_share_or_a_pair() {
    let check = |value: Value, low, high| {
        let config = given(&[("RANDOMIZE_DOWNLOAD_DELAY", value)]);
        assert_eq!(config.throttle.default.jitter, Jitter { low, high });
    };
    check(json!(true), -0.5, 0.5);
    check(json!("True"), -0.5, 0.5);
    check(json!(false), 0.0, 0.0);
    check(json!("off"), 0.0, 0.0);
    check(json!(0.2), -0.2, 0.2);
    check(json!([-0.1, 0.3]), -0.1, 0.3);
    check(json!("-0.1,0.3"), -0.1, 0.3);
    check(json!("[0.01, 0.33]"), 0.01, 0.33);
    for wrong in [
        json!(-0.2),
        json!(1.5),
        json!([-1.1, 0.0]),
        json!([0.3, 0.1]),
        json!([0.1]),
        json!([0.1, 0.2, 0.3]),
        json!("nan"),
        json!("some"),
        json!(null),
    ] {
        refused("RANDOMIZE_DOWNLOAD_DELAY", wrong);
    }
}

#[test]
fn the_contact_joins_the_user_agent_once() {
    let check = |agent: &str, contact: &str, expected: &str| {
        let config = given(&[("CONTACT", json!(contact)), ("USER_AGENT", json!(agent))]);
        assert_eq!(config.fetch.user_agent, expected);
        assert!(config.names_a_contact());
    };
    check("spider/1", "me@a.test", "spider/1 (+me@a.test)");
    check(
        "spider/1 (+me@a.test)",
        "me@a.test",
        "spider/1 (+me@a.test)",
    );
    assert!(!Config::default().names_a_contact());
    for wrong in ["call me", "a b@c", "me@a.test\r\nX: y", "(me@a.test)"] {
        refused("CONTACT", json!(wrong));
    }
    refused("USER_AGENT", json!("a\r\nb"));
    refused("USER_AGENT", json!("  "));
}

#[test]
fn the_robots_agent_is_the_product_token_of_the_user_agent() {
    let check = |agent: &str, expected: &str| {
        let config = given(&[("USER_AGENT", json!(agent))]);
        assert_eq!(config.frontier.robots_agent, expected);
    };
    check("spider/1.0 (+https://a.test)", "spider");
    check(
        "Mozilla/5.0 (compatible; foo-bot/2.1; +https://a.test)",
        "foo-bot",
    );
    let config = given(&[
        ("USER_AGENT", json!("x/1")),
        ("ROBOTSTXT_USER_AGENT", json!("y")),
    ]);
    assert_eq!(config.frontier.robots_agent, "y");
    refused("ROBOTSTXT_USER_AGENT", json!("spider/1.0"));
}

#[test]
fn headers_keep_their_order_and_cannot_break_framing() {
    let config = given(&[(
        "DEFAULT_REQUEST_HEADERS",
        json!(["B: 1, 2", "A:x", "Empty:"]),
    )]);
    let pairs: Vec<_> = config
        .fetch
        .headers
        .iter()
        .map(|(n, v)| (&n[..], &v[..]))
        .collect();
    assert_eq!(pairs, [("B", "1, 2"), ("A", "x"), ("Empty", "")]);
    let config = given(&[("default_request_headers", json!({"Accept": "a, b"}))]);
    assert_eq!(config.fetch.headers, [("Accept".into(), "a, b".into())]);
    for wrong in [
        "no colon",
        ": x",
        "a b: x",
        "A: x\r\nB: y",
        "Content-Length: 3",
    ] {
        refused("DEFAULT_REQUEST_HEADERS", json!([wrong]));
    }
}

#[test]
fn networks_are_cidrs_or_words() {
    let config = given(&[(
        "ALLOW_NET",
        json!("loopback, 127.0.0.1/8,fd00::/8,192.0.2.7"),
    )]);
    assert_eq!(config.allow_net.len(), 4);
    for wrong in [
        "10.0.0.0/33",
        "10.0.0/8",
        "fd00::/129",
        "10.0.0.0/+8",
        "10.0.0.0/",
        "localhost",
        "intranet",
    ] {
        let text = refused("ALLOW_NET", json!([wrong]));
        assert!(text.contains("is not a network; give a CIDR"), "{text}");
    }
}

#[test]
fn exclusions_are_split_into_hosts_and_networks() {
    let config = given(&[(
        "EXCLUDE",
        json!(["A.test", "*.b.test", "192.0.2.0/24", "::1"]),
    )]);
    assert_eq!(config.frontier.exclude_hosts, ["a.test", "*.b.test"]);
    assert_eq!(config.exclude_nets, ["192.0.2.0/24", "::1"]);
    for wrong in ["http://a.test", "a.*.test", "192.0.2.0/40", "a.test/x"] {
        refused("EXCLUDE", json!([wrong]));
    }
}

#[test]
fn name_servers_are_addresses() {
    let config = given(&[(
        "DNS_SERVERS",
        json!("192.0.2.1,192.0.2.2:54,[::1]:55,::2,[::3]"),
    )]);
    let servers: Vec<_> = config.dns_servers.iter().map(ToString::to_string).collect();
    let expected = [
        "192.0.2.1:53",
        "192.0.2.2:54",
        "[::1]:55",
        "[::2]:53",
        "[::3]:53",
    ];
    assert_eq!(servers, expected);
    for wrong in ["dns.test", "192.0.2.1:0", "192.0.2.1:x", "[::1", "1.2.3"] {
        refused("DNS_SERVERS", json!([wrong]));
    }
}

#[test]
fn overrides_have_the_syntax_of_curl() {
    for right in [
        "a.test:80:127.0.0.1",
        "*:443:[::1]",
        "*:443:::1",
        "a.test:80:127.0.0.1:8080",
        "[::1]:80:[::2]:8080",
    ] {
        given(&[("RESOLVE", json!([right]))]);
    }
    for wrong in [
        "a.test",
        "a.test:80",
        "a.test:80:",
        "a.test:0:127.0.0.1",
        "a.test:x:127.0.0.1",
        ":80:127.0.0.1",
        "a.test:80:b.test",
        "a.test:80:127.0.0.1:x",
        "[::1:80:127.0.0.1",
        "http://a.test:80:127.0.0.1",
        "[é",
    ] {
        let text = refused("RESOLVE", json!([wrong]));
        assert!(text.contains("write HOST:PORT:ADDR"), "{text}");
    }
}

#[test]
fn empty_text_is_an_empty_list() {
    for setting in settings() {
        if setting.kind.starts_with("list") {
            let config = given(&[(setting.name, json!(""))]);
            assert_eq!(
                config.get(setting.name),
                Some(json!([]).into()),
                "{}",
                setting.name
            );
        }
    }
}

#[test]
fn patterns_keep_their_commas() {
    let config = given(&[("DENY", json!("/a{1,2}$"))]);
    assert_eq!(config.frontier.deny.len(), 1);
    assert!(config.frontier.deny[0].is_match("/aa"));
    let text = refused("ALLOW", json!(["(open"]));
    assert!(text.contains("unclosed group"), "{text}");
}

#[test]
fn an_invalid_choice_is_an_error_that_lists_the_choices() {
    assert_eq!(given(&[("IO", json!("uring"))]).back_end, BackEnd::Uring);
    let text = refused("IO", json!("kqueue"));
    assert!(text.contains("auto, epoll or uring"), "{text}");
    let text = refused("FOLLOW", json!("hosts"));
    assert!(text.contains("did you mean host?"), "{text}");
}

#[test]
fn cookies_are_refused_in_a_build_without_the_feature() {
    let asked = Config::default().with("COOKIES_ENABLED", true);
    match (cfg!(feature = "cookies"), asked) {
        (true, asked) => assert!(asked.expect("there is one").fetch.cookies),
        (false, asked) => {
            let message = asked.expect_err("there is none").to_string();
            assert!(message.contains("COOKIES_ENABLED"), "{message}");
            assert!(message.contains("the feature `cookies`"), "{message}");
        }
    }
    assert!(Config::default().with("COOKIES_ENABLED", false).is_ok());
}

#[test]
fn a_proxy_is_written_in_full_and_its_errors_omit_the_password() {
    let config = Config::default().with("PROXY", "socks5h://user:p%40ss@Proxy.test:1080");
    let config = config.expect("a proxy");
    let written = config.get("PROXY").expect("a setting");
    assert_eq!(written, "socks5://user:p%40ss@proxy.test:1080".into());
    assert_eq!(
        Config::default()
            .with("PROXY", written)
            .expect("the same")
            .frontier
            .proxies,
        config.frontier.proxies
    );
    assert!(
        Config::default()
            .with("PROXY", "")
            .expect("none")
            .frontier
            .proxies
            .are_none()
    );
    let error = Config::default().with("PROXY", "http://user:secret@proxy.test");
    let shown = error.expect_err("it has no port").to_string();
    assert!(
        shown.contains("the port is missing or not from 1 to 65535") && !shown.contains("secret"),
        "{shown}"
    );
}

#[test]
fn proxies_of_https_and_exceptions_are_written_as_they_are_read() {
    let check = |name: &str, value: &str, written: serde_json::Value| {
        let config = Config::default().with(name, value).expect(value);
        let read = config.get(name).expect("a setting");
        assert_eq!(serde_json::Value::from(read.clone()), written, "{name}");
        let again = Config::default().with(name, read).expect("its own");
        assert_eq!(again.frontier.proxies, config.frontier.proxies, "{name}");
    };
    let null = serde_json::Value::Null;
    check("PROXY_HTTPS", "http://P.test:1", "http://p.test:1".into());
    check("PROXY_HTTPS", "direct", "direct".into());
    check("PROXY_HTTPS", "", null);
    let list = json!(["a.test", "10.0.0.0/8", "*"]);
    check("NO_PROXY", ".A.test, 10.0.0.0/8,*", list);
    let error = Config::default().with("PROXY_HTTPS", "https://user:secret@p.test:1");
    let error = error.expect_err("it is no such proxy").to_string();
    assert!(
        error.contains("PROXY_HTTPS") && !error.contains("secret"),
        "{error}"
    );
    let error = Config::default().with("NO_PROXY", "http://a.test");
    let error = error.expect_err("it is a URL").to_string();
    assert!(
        error.contains("\"http://a.test\" is no host without a proxy"),
        "{error}"
    );
}

#[test]
fn values_as_people_write_them_are_refused_with_those_that_are_meant() {
    let check = |name: &str, value: &str, parts: &[&str]| {
        let error = Config::default().with(name, value).expect_err(value);
        let text = error.to_string();
        for part in parts {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    };
    for (value, gap) in [
        ("2/s", "500ms"),
        ("2rps", "500ms"),
        ("3 req/s", "334ms"),
        ("10/m", "6s"),
        ("1 per minute", "60s"),
        ("400/sec", "2500us"),
    ] {
        let mend = format!("the time between two requests: {gap}");
        check("DOWNLOAD_DELAY", value, &["is a rate", &mend]);
        assert!(
            Config::default().with("DOWNLOAD_DELAY", gap).is_ok(),
            "{gap}"
        );
    }
    check("DOWNLOAD_DELAY", "0/s", &["not a duration; give seconds"]);
    check("DOWNLOAD_DELAY", "2/x", &["not a duration; give seconds"]);
    check("DOWNLOAD_DELAY", "5 minutes", &["not a duration; write 5m"]);
    check("DOWNLOAD_DELAY", "1.5sec", &["not a duration; write 1.5s"]);
    let most = ["is too large; give at most 9223372036854775807"];
    check("CLOSESPIDER_PAGECOUNT", "99999999999999999999", &most);
    let most = ["is too large; give at most 4294967295"];
    check("DEPTH_LIMIT", "4294967296", &most);
    check("DEPTH_LIMIT", "1e9", &["write 1000000000"]);
    check("CLOSESPIDER_PAGECOUNT", "10,000", &["write 10000"]);
    check("CLOSESPIDER_PAGECOUNT", "1.5k", &["write 1500"]);
    check("CLOSESPIDER_PAGECOUNT", "1,5", &["0 or more"]);
    check("CLOSESPIDER_BYTECOUNT", "1e12", &["write 1000000000000"]);
    check(
        "CLOSESPIDER_BYTECOUNT",
        "99999999999999999999",
        &["is too large"],
    );
}
