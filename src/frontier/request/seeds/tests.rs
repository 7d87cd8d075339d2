//! Seeds lines: every form, mistakes, and round trips.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;
use crate::frontier::extra::{Extra, Flags};
use crate::frontier::job::Job;
use crate::frontier::queued::Queued;
use crate::wire::url::CrawlUrl;

fn parsed(line: &str) -> Request {
    parse_line(line)
        .unwrap_or_else(|error| panic!("{line}: {error}"))
        .unwrap_or_else(|| panic!("{line} was skipped"))
}

fn error(line: &str) -> String {
    match parse_line(line) {
        Err(error) => error.to_string(),
        Ok(request) => panic!("{line} was read as {request:?}"),
    }
}

#[test]
fn a_line_is_a_url_a_host_or_a_rank_and_a_host() {
    let check = |line: &str, url: &str| assert_eq!(parsed(line).url, url, "{line}");
    check("http://a.test/x?y#z", "http://a.test/x?y#z");
    check("  HTTPS://a.test  ", "HTTPS://a.test");
    check("http://user:pass@a.test/", "http://user:pass@a.test/");
    check("http://a.test/with a space", "http://a.test/with a space");
    check(
        "http://a.test/?u=ftp://b.test",
        "http://a.test/?u=ftp://b.test",
    );
    check("a.test", "http://a.test");
    check("a.test/x://y", "http://a.test/x://y");
    check("a.test:8080/x", "http://a.test:8080/x");
    check(
        "a.test?next=http://b.test/",
        "http://a.test?next=http://b.test/",
    );
    check("bücher.example", "http://bücher.example");
    check("127.0.0.1", "http://127.0.0.1");
    check("[::1]:80", "http://[::1]:80");
    check("localhost", "http://localhost");
    check("printer:631", "http://printer:631");
    check("http://printer/", "http://printer/");
    check("1,google.com", "http://google.com");
    check("1000000, a.test ", "http://a.test");
    check("7,https://a.test/", "https://a.test/");
    check("\u{feff}a.test\r\n", "http://a.test");
}

#[test]
fn fields_of_csv_may_have_quotation_marks() {
    let check = |line: &str, url: &str| assert_eq!(parsed(line).url, url, "{line}");
    check("1,\"example.com\"", "http://example.com");
    check("\"1\",\"example.com\"\r", "http://example.com");
    check("\"1\", https://a.test/x", "https://a.test/x");
    check("\"https://a.test/?a=1,2\"", "https://a.test/?a=1,2");
    check(
        "7,\"https://a.test/?q=\"\"x\"\"\"",
        "https://a.test/?q=\"x\"",
    );
    // Further columns.
    check("1,\"example.com\",\"more\"", "http://example.com");
    check("1,\"https://a.test/,x\",\"US\"", "https://a.test/,x");
    check("\"https://a.test/x\",200,\"T\"", "https://a.test/x");
    check("https://a.test/x,200,\"T, u\"", "https://a.test/x");
    check("\"US\",\"example.com\"", "http://example.com");
    check("1,example.com,US", "http://example.com");
    check("example.com,200", "http://example.com");
    check("example.com:8080,0.5", "http://example.com:8080");
    check("https://example.com,200", "https://example.com");
    // A comma in a URL is its own.
    check("https://a.test/x,200", "https://a.test/x,200");
    check("a.test/x,200", "http://a.test/x,200");
    check("1,a.test/x,200", "http://a.test/x,200");
    check("https://a.test?x=1,2", "https://a.test?x=1,2");
    check("http://me.x,y@a.test/", "http://me.x,y@a.test/");
    // What is no such line is read as it is.
    check("http://a.test/x\"y", "http://a.test/x\"y");
    check("5,http://a.test/x\"y", "http://a.test/x\"y");
    check("http://a.test/\"a,b\"", "http://a.test/\"a,b\"");
    for wrong in [
        "\"example.com",
        "1,\"example.com",
        "\"rank\",\"domain\"",
        "\"example.com\"x",
        "\"\"",
    ] {
        let message = error(wrong);
        let expected = "is neither a URL nor a host";
        assert!(message.contains(expected), "{wrong}: {message}");
    }
}

#[test]
fn tabs_separate_fields_as_the_commas_of_csv_do() {
    let check = |line: &str, url: &str| assert_eq!(parsed(line).url, url, "{line}");
    check("http://a.test/x\t200\tA title", "http://a.test/x");
    check("http://a.test/x,y\tA, b", "http://a.test/x,y");
    check("http://a.test/x\t", "http://a.test/x");
    check("17\texample.com\tUS", "http://example.com");
    check("A title\thttp://a.test/x", "http://a.test/x");
    check("\"http://a.test/x\"\t\"A \"\"b\"\"\"", "http://a.test/x");
    check("http://a.test/x\tA \"b", "http://a.test/x");
    check("http://a.test/\thttp://b.test/", "http://a.test/");
    check("example.com,200,some\ttext", "http://example.com");
    check("A, b\texample.com,200", "http://example.com");
    for wrong in ["title\tstatus", "1\t2\thttp://a.test/", "two words\tx"] {
        let message = error(wrong);
        assert!(message.contains("neither a URL nor a host"), "{message}");
    }
}

#[test]
fn several_urls_in_a_line_are_an_error_that_says_so() {
    for line in [
        "http://a.test/x http://b.test/",
        "http://a.test/x, https://b.test/",
        "http://a.test/x , HTTPS://b.test/",
        "http://a.test http://b.test",
        "http://a.test,http://b.test",
        "a.test http://b.test/x",
        "a.test b.test",
        "a.test, b.test, c.test",
        "a.test,b.test",
        "a.test; b.test",
        "7,a.test b.test",
        "a.test,b.test\tx",
    ] {
        let message = error(line);
        let expected =
            "has more than one URL or host; write each on a line of its own, or %20 for a space";
        assert!(message.contains(expected), "{line}: {message}");
    }
    let check = |line: &str, url: &str| assert_eq!(parsed(line).url, url, "{line}");
    check("http://a.test/my file.html", "http://a.test/my file.html");
    check("a.test/my file.html", "http://a.test/my file.html");
    check("\"http://a.test/x http://b\"", "http://a.test/x http://b");
    check("http://a.test/x%20http://b", "http://a.test/x%20http://b");
    let nested = "http://a.test/?a=1,http://b.test/";
    check(nested, nested);
}

#[test]
fn blank_lines_and_comments_are_skipped() {
    for line in ["", "   ", "\r\n", "# a.test", "  #", "\u{feff}"] {
        assert!(parse_line(line).unwrap().is_none(), "{line:?}");
    }
}

#[test]
fn an_invalid_line_is_an_error_with_its_remedy() {
    let check = |line: &str, expected: &str| {
        let message = error(line);
        assert!(message.contains(expected), "{line}: {message}");
    };
    check("mailto:someone@a.test", "neither a URL nor a host");
    check("two words", "neither a URL nor a host");
    check("http://", "neither a URL nor a host");
    check("http:///path", "neither a URL nor a host");
    check("http://a b/", "neither a URL nor a host");
    check("user@a.test", "neither a URL nor a host");
    check("a.test:http", "neither a URL nor a host");
    check("a.test:65536", "neither a URL nor a host");
    check("[zzz]", "neither a URL nor a host");
    check("...", "neither a URL nor a host");
    check("nonsense", "neither a URL nor a host");
    check("nonsense/x.html", "neither a URL nor a host");
    check("1,nonsense", "neither a URL nor a host");
    check(r#"{"url": "nonsense"}"#, "neither a URL nor a host");
    check("GlobalRank,TldRank,Domain", "neither a URL nor a host");
    check("ftp://a.test/", "begin it with http:// or https://");
    check("{", "invalid JSON object of a seed");
    check("{}", "missing field `url`");
    check(r#"{"url": "a.test"} x"#, "trailing characters at column 19");
    check(
        r#"{"url": "a.test", "url": "b.test"}"#,
        "duplicate field `url`",
    );
    check(r#"{"url": "a.test", "prio": 1}"#, "unknown field `prio`");
    check(r#"{"url": "a.test", "prio": 1}"#, "`priority`");
    check(r#"{"url": "a.test", "priority": "high"}"#, "expected i32");
    check(
        r#"{"url": "a.test", "priority": 3000000000}"#,
        "expected i32",
    );
    check(r#"{"url": "a.test", "depth": -1}"#, "expected u32");
    check(r#"{"url": "two words"}"#, "neither a URL nor a host");
    check(r#"{"url": "a.test", "method": "GE T"}"#, "`method`");
    check(r#"{"url": "a.test", "headers": {"a:": "b"}}"#, "`headers`");
    check(
        r#"{"url": "a.test", "headers": {"a": "b\r\nc: d"}}"#,
        "`headers`",
    );
    check(r#"{"url": "a.test", "headers": 1}"#, "`headers` as a map");
    check(
        r#"{"url": "a.test", "private_headers": ["a b"]}"#,
        "`private_headers`",
    );
    check(r#"{"url": "a.test", "body_b64": "!"}"#, "`body_b64`");
    check(r#"{"url": "a.test", "scopes": 1}"#, "`scopes` as a name");
    check(r#"{"url": "a.test", "scopes": [""]}"#, "`scopes`");
    check(
        r#"{"url": "a.test", "scopes": {"a": -1}}"#,
        "give a number of 0 or more",
    );
    check(r#"{"url": "a.test", "scopes": {"a": 1, "a": 2}}"#, "twice");
    check(r#"{"url": "a.test", "scopes": {"a": "1"}}"#, "expected f64");
    check(
        r#"{"url": "a.test", "scopes": {"a": null}}"#,
        "expected f64",
    );
    check(
        r#"{"url": "a.test", "scopes": {"a": NaN}}"#,
        "expected value",
    );
    check(
        r#"{"url": "a.test", "scopes": {"a": 1e999}}"#,
        "out of range",
    );
    check(r#"{"url": "a.test", "scopes": {"": 1}}"#, "name is empty");
    check(
        r#"{"url": "a.test", "scopes": ["a", 1]}"#,
        "expected a string",
    );
    let names = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
    let line = |count| format!(r#"{{"url": "a.test", "scopes": {:?}}}"#, names(count));
    check(&line(17), "17 scopes are too many; name at most 16");
    assert_eq!(parsed(&line(16)).scopes, Some(names(16)));
}

#[test]
fn an_error_quotes_a_bounded_part_of_the_line() {
    let message = error(&format!("{} x", "é".repeat(100_000)));
    assert!(message.len() < 400, "{message}");
    let message = error(&format!(r#"{{"{}": 1}}"#, "x".repeat(100_000)));
    assert!(message.len() < 400, "{message}");
}

#[test]
fn an_object_can_hold_every_field_of_a_request() {
    let request = parsed(
        r#"{"url": "a.test/x", "scopes": {"zeta": 2.5, "alpha": 1}, "priority": -3, "depth": 2,
            "method": "POST", "headers": {"X-B": "1", "X-A": "2"}, "body_b64": "aGVsbG8=",
            "dont_adjust_delay": true, "meta": {"n": 1.10}}"#,
    );
    assert_eq!(request.url, "http://a.test/x");
    assert_eq!(request.scopes.unwrap(), ["zeta", "alpha"]);
    assert_eq!(request.scope_costs, [2.5, 1.0]);
    assert_eq!((request.priority, request.depth), (-3, 2));
    assert_eq!(request.method, "POST");
    let headers = [("X-B", "1"), ("X-A", "2")].map(|(n, v)| (n.to_owned(), v.to_owned()));
    assert_eq!(request.headers, headers);
    assert_eq!(request.body, b"hello");
    assert!(request.dont_adjust_delay);
    assert_eq!(request.meta.unwrap().get(), r#"{"n": 1.10}"#);
}

#[test]
fn scopes_are_a_name_a_list_or_an_empty_list() {
    let check = |scopes: &str, expected: Option<&[&str]>| {
        let request = parsed(&format!(r#"{{"url": "a.test", "scopes": {scopes}}}"#));
        let names = request.scopes.as_ref();
        let names = names.map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(names.as_deref(), expected, "{scopes}");
        assert!(request.scope_costs.is_empty());
    };
    check(r#""api""#, Some(&["api"]));
    check(r#"["b", "a"]"#, Some(&["b", "a"]));
    check("[]", Some(&[]));
    check("null", None);
}

#[test]
fn f17_costs_set_in_code_round_trip_through_their_line() {
    let check = |request: Request, names: &[&str], costs: &[f64]| {
        let read = parsed(&to_line(&request));
        assert_eq!(read.scopes.expect("some were named"), names);
        assert_eq!(read.scope_costs, costs);
    };
    let request = || Request::get("http://a.test/");
    check(request().scope("a").scope("b"), &["a", "b"], &[]);
    check(request().scope_cost("a", 2.5), &["a"], &[2.5]);
    check(
        request().scope("b").scope_cost("a", 0.0).scope("c"),
        &["b", "a", "c"],
        &[1.0, 0.0, 1.0],
    );
    let without = request().scope_cost("a", 2.5).without_scopes();
    assert_eq!(without.check_scopes(), Ok(()));
    check(without, &[], &[]);
}

#[test]
fn a_proxy_round_trips_with_its_credentials() {
    for (proxy, line) in [
        ("direct", r#"{"url":"http://a.test/","proxy":"direct"}"#),
        (
            "socks5h://us%3aer:p%40ss@Proxy.test:1080",
            r#"{"url":"http://a.test/","proxy":"socks5://us%3Aer:p%40ss@proxy.test:1080"}"#,
        ),
    ] {
        let request = parsed(&format!(r#"{{"url":"http://a.test/","proxy":{proxy:?}}}"#));
        assert_eq!(request.route, Some(proxy.parse().expect("a route")));
        assert_eq!(to_line(&request), line);
        assert_eq!(parsed(line).route, request.route);
    }
    let message = error(r#"{"url":"http://a.test/","proxy":"http://secret@a.test"}"#);
    assert!(
        message.contains("`proxy`: the port is missing"),
        "{message}"
    );
    assert!(!message.contains("secret"), "{message}");
}

#[test]
fn durations_are_seconds_to_the_nanosecond() {
    let check = |text: &str, expected: Duration| {
        let line = format!(r#"{{"url":"http://a.test/","timeout":{text}}}"#);
        assert_eq!(parsed(&line).timeout, Some(expected), "{line}");
    };
    check("0", Duration::ZERO);
    check("2.5", Duration::from_millis(2500));
    check("2.5e-1", Duration::from_millis(250));
    check("100000000.000000001", Duration::new(100_000_000, 1));
    check("0.0000000019", Duration::from_nanos(1));
    let wrong = |text: &str| error(&format!(r#"{{"url":"http://a.test/","timeout":{text}}}"#));
    for text in ["-1", "1e30", r#""5s""#, "true"] {
        let message = wrong(text);
        assert!(
            message.contains("write seconds, 0 or more, such as 2.5"),
            "{message}"
        );
    }
    let request = Request::get("http://a.test/").timeout(Duration::from_millis(250));
    let line = r#"{"url":"http://a.test/","timeout":0.25}"#;
    assert_eq!(to_line(&request), line);
}

#[test]
fn fields_that_a_line_cannot_represent_exactly_keep_their_meaning() {
    let meta = RawValue::from_string("[1,\r\n2]".to_owned()).expect("JSON");
    let mut request = Request::get("http://a.test/");
    request.meta = Some(meta);
    let line = to_line(&request);
    assert!(!line.contains(['\r', '\n']), "{line}");
    assert_eq!(parsed(&line).meta.expect("it has some").get(), "[1,  2]");
    let twice = Request::get("http://a.test/").scope_cost("a", 2.0);
    let twice = parsed(&to_line(&twice.scope_cost("b", 4.0).scope_cost("a", 3.0)));
    assert_eq!(twice.scopes.expect("they were named"), ["a", "b"]);
    assert_eq!(twice.scope_costs, [3.0, 4.0]);
}

#[test]
fn a_request_with_a_url_only_is_written_as_a_url() {
    assert_eq!(to_line(&Request::get("http://a.test/x")), "http://a.test/x");
    let check = |url| {
        assert!(
            to_line(&Request::get(url)).starts_with("{\"url\":"),
            "{url}"
        )
    };
    check("http://a.test/a\nb");
    check("http:a.test");
    check("1,a.test");
    check("#");
    let mut request = Request::get("http://a.test/");
    request.depth = 1;
    assert_eq!(to_line(&request), r#"{"url":"http://a.test/","depth":1}"#);
}

/// Any valid request. Names every field, so that a new one does not compile without a strategy.
fn any_request() -> impl Strategy<Value = Request> {
    let name = "[A-Za-z0-9/._é-]{1,12}";
    let scopes = prop_oneof![
        Just((None, Vec::new())),
        prop::collection::vec(name, 0..4).prop_map(|names| (Some(names), Vec::new())),
        prop::collection::btree_map(name, 0u32..1000, 1..4).prop_map(|map| {
            let costs = map
                .values()
                .map(|&eighths| f64::from(eighths) / 8.0)
                .collect();
            (Some(map.into_keys().collect()), costs)
        }),
    ];
    let header = ("[A-Za-z][A-Za-z0-9-]{0,8}", "[^\r\n\0]{0,12}");
    let meta = prop::option::of(r#"[1-9][0-9]{0,30}|"[a-z ]{0,9}"|\[1,  true\]"#);
    let route = prop_oneof![
        Just(None),
        Just(Some("direct")),
        Just(Some("http://us%40er:p%40ss@p.test:8080")),
        Just(Some("socks5://[::1]:9050")),
    ];
    let timeout = prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::from_nanos(u64::MAX)),
        Just(Duration::from_secs(3_155_760_000)),
        any::<u64>().prop_map(Duration::from_nanos),
        (0u64..100_000).prop_map(Duration::from_millis),
    ];
    let url = "https?://[a-z0-9]{1,9}(:80)?[/?#]\\PC{0,20}";
    let method = prop_oneof![Just(""), Just("GET"), Just("M-SEARCH")];
    (
        (url, method, scopes, any::<i32>(), any::<u32>(), 0u32..4),
        (
            prop::collection::vec(header, 0..3),
            prop::collection::vec(any::<u8>(), 0..20),
            prop::collection::vec("[A-Za-z][A-Za-z0-9-]{0,8}", 0..3),
        ),
        any::<[bool; 7]>(),
        (route, prop::option::of(timeout)),
        (prop::option::of(any::<u64>()), meta, any::<u64>()),
    )
        .prop_map(
            |(
                (url, method, (scopes, scope_costs), priority, depth, sitemap),
                (headers, body, private_headers),
                flags,
                (route, timeout),
                (body_max, meta, tag),
            )| {
                let [adjust, robots, follow, filter, cookies, credentials, shared] = flags;
                Request {
                    url: url.trim().to_owned(),
                    method: method.to_owned(),
                    headers,
                    body,
                    priority,
                    depth,
                    sitemap,
                    scopes,
                    scope_costs,
                    dont_adjust_delay: adjust,
                    timeout,
                    body_max,
                    ignore_robots: robots,
                    dont_follow: follow,
                    dont_filter: filter,
                    route: route.map(|route| route.parse().expect("a route")),
                    private_headers,
                    headers_for_host: shared,
                    dont_send_credentials: credentials,
                    dont_merge_cookies: cookies,
                    meta: meta.map(|meta| RawValue::from_string(meta).unwrap()),
                    tag,
                }
            },
        )
}

/// The line of `pending.jsonl` for a queued request.
fn queued_and_written(request: &Request) -> (String, String) {
    let url = CrawlUrl::parse(&request.url).expect(&request.url);
    let place = (url.is_https(), url.host_str().to_owned(), url.port());
    let canonical = url.as_str().to_owned();
    let job = Job {
        kind: request.kind(),
        depth: request.depth,
        priority: request.priority,
        flags: Flags::of(request),
        extra: Extra::of(request),
        ..Job::seed(1, url)
    };
    let queued = Queued::of(job).into_job((place.0, &place.1, place.2));
    (canonical, to_line(&queued.to_request()))
}

proptest! {
    #[test]
    fn a_request_written_and_read_is_the_same_request(request in any_request()) {
        let line = to_line(&request);
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(format!("{:?}", parsed(&line)), format!("{request:?}"));
        let plain = Request::get(request.url);
        prop_assert_eq!(format!("{:?}", parsed(&to_line(&plain))), format!("{plain:?}"));
    }

    #[test]
    fn a_request_that_was_queued_and_written_is_the_same_request(request in any_request()) {
        if CrawlUrl::parse(&request.url).is_ok() {
            let (url, line) = queued_and_written(&request);
            let request = Request { url, ..request };
            prop_assert_eq!(format!("{:?}", parsed(&line)), format!("{request:?}"));
        }
    }

    #[test]
    fn no_line_is_too_strange(line in any::<String>()) {
        let _ = parse_line(&line);
        let _ = parse_line(&format!("{{{line}"));
    }
}

#[test]
fn the_builder_and_the_line_make_the_same_request() {
    let request = Request::get("http://a.test/")
        .method("POST")
        .header("X-A", "1")
        .private_header("X-B", "2")
        .priority(7)
        .scope_cost("key/a", 2.5)
        .dont_adjust_delay()
        .headers_for_host()
        .dont_send_credentials()
        .timeout(Duration::from_millis(1500))
        .body_max(9)
        .ignore_robots()
        .dont_follow()
        .dont_filter()
        .dont_merge_cookies()
        .meta(serde_json::json!({"n": 1}))
        .tag(3);
    let line = concat!(
        r#"{"url":"http://a.test/","scopes":{"key/a":2.5},"priority":7,"method":"POST","#,
        r#""headers":[["X-A","1"],["X-B","2"]],"dont_adjust_delay":true,"timeout":1.5,"body_max":9,"#,
        r#""ignore_robots":true,"dont_follow":true,"dont_filter":true,"private_headers":["X-B"],"#,
        r#""headers_for_host":true,"dont_send_credentials":true,"dont_merge_cookies":true,"meta":{"n":1},"tag":3}"#
    );
    assert_eq!(to_line(&request), line);
}
