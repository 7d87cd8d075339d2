//! `argiope probe --targets`: many targets, each at its own phase, and what scrapers see of them.

use std::fs;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rcgen::date_time_ymd;
use rustix::process::Signal;
use serde_json::Value;

use crate::authority::Authority;
use crate::control::{free_address, get};
use crate::run::{Going, check_refused};
use crate::server::{Server, Step, not_found, page};

/// A web with a page that is there, one that is not, and one that never comes.
fn server() -> Server {
    Server::new(|asked| match asked.target.as_str() {
        "/gone" => not_found(),
        "/hangs" => vec![Step::Wait(Duration::from_secs(60))],
        _ => page("here"),
    })
}

/// The status of a reply and its body; `None` while the connection is refused.
fn answer(at: &str, path: &str) -> Option<(u16, String)> {
    TcpStream::connect(at).ok()?;
    let reply = get(at, path, &format!("Host: {at}\r\n"));
    let status = reply.get(9..12)?.parse().ok()?;
    let (_, body) = reply.split_once("\r\n\r\n")?;
    Some((status, body.to_owned()))
}

#[test]
fn targets_are_requested_over_and_over_and_scrapers_see_the_last_result_of_each() {
    let server = server();
    let folder = tempfile::tempdir().expect("a folder");
    let (here, gone, hangs) = (server.url("/"), server.url("/gone"), server.url("/hangs"));
    let file = format!("# Ours\n{here}\n\n{gone}\n{hangs}\n");
    fs::write(folder.path().join("targets.txt"), file).expect("a file");
    let at = free_address();
    let args = [
        "probe",
        "--targets",
        "targets.txt",
        "--every",
        "200ms",
        "--json",
    ];
    let more = ["--allow-net", "loopback", "--admin", &at];
    let going = Going::start(&[&args[..], &more].concat(), folder.path(), b"");
    let result_of = |target: &str| loop {
        match answer(&at, &format!("/probe?target={target}")) {
            Some((200, text)) => return text,
            None | Some((503, _)) => thread::sleep(Duration::from_millis(10)),
            other => panic!("{target}: {other:?}"),
        }
    };
    let check = |target: &str, lines: &[&str]| {
        let text = result_of(target);
        for line in lines {
            assert!(text.lines().any(|own| own == *line), "{line} in {text}");
        }
    };
    check(
        &here,
        &[
            "probe_success 1",
            "probe_http_status_code 200",
            "probe_http_content_length 4",
        ],
    );
    check(&gone, &["probe_success 0", "probe_http_status_code 404"]);
    let timeout = "argiope_probe_failure_info{kind=\"timeout\",code=\"total\"} 1";
    check(
        &hangs,
        &["probe_success 0", "probe_http_status_code 0", timeout],
    );
    let (status, text) = answer(&at, "/metrics").expect("it listens");
    assert_eq!(status, 200);
    assert!(
        text.contains("argiope_probe_targets{state=\"up\"} 1\n"),
        "{text}"
    );
    assert!(
        !text.contains("/gone"),
        "a target has no series there: {text}"
    );
    let (status, text) = answer(&at, "/probe?target=http://other.test/").expect("it listens");
    assert!(
        status == 404 && text.contains("none of the targets"),
        "{text}"
    );
    let (status, text) = answer(&at, "/probe").expect("it listens");
    assert!(status == 400 && text.contains("?target="), "{text}");
    let named = format!("/probe?target={here}&hostname=a.test");
    let (status, text) = answer(&at, &named).expect("it listens");
    assert!(status == 400 && text.contains("Host"), "{text}");
    going.signal(Signal::INT);
    let ended = going.wait().expect(3);
    let report: Value = serde_json::from_str(&ended.out).expect("a report");
    assert!(report["replies"].as_u64() >= Some(2), "{report}");
    assert_eq!(report["skipped"], 0, "each ends before the next: {report}");
}

#[test]
fn the_end_of_a_certificate_is_known_also_where_a_session_is_resumed() {
    let authority = Authority::new();
    let certificate = authority.server("a.test", |wishes| {
        wishes.not_after = date_time_ymd(2060, 1, 2);
    });
    let server = Server::tls(certificate, |_| page("safe"));
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("ca.pem"), authority.pem()).expect("a file");
    let url = format!("https://a.test:{}/", server.port());
    let (at, named) = (free_address(), server.named("a.test"));
    let args = [
        "probe",
        "--targets",
        "-",
        "--every",
        "200ms",
        "--admin",
        &at,
    ];
    let more = [
        "--allow-net",
        "loopback",
        "--ca-file",
        "ca.pem",
        "--resolve",
        &named,
    ];
    let going = Going::start(&[&args[..], &more].concat(), folder.path(), url.as_bytes());
    while server.targets().len() < 3 {
        thread::sleep(Duration::from_millis(10));
    }
    let (status, text) = answer(&at, &format!("/probe?target={url}")).expect("it listens");
    assert_eq!(status, 200, "{text}");
    for line in [
        "probe_success 1",
        "probe_http_ssl 1",
        "probe_tls_version_info{version=\"TLS 1.3\"} 1",
        "probe_ssl_earliest_cert_expiry 2840227200",
    ] {
        assert!(text.lines().any(|own| own == line), "{line} in {text}");
    }
    going.signal(Signal::INT);
    going.wait().expect(3);
}

#[test]
fn a_probe_of_targets_ends_after_its_duration() {
    let server = server();
    let args = [
        "probe",
        "--targets",
        "-",
        "--every",
        "100ms",
        "--duration",
        "1s",
        "--json",
    ];
    let urls = format!("{}\n{}\n", server.url("/a"), server.url("/b"));
    let folder = tempfile::tempdir().expect("a folder");
    let more = ["--allow-net", "loopback"];
    let going = Going::start(&[&args[..], &more].concat(), folder.path(), urls.as_bytes());
    let ended = going.wait().expect(0);
    let report: Value = serde_json::from_str(&ended.out).expect("a report");
    assert_eq!(
        report["due"]
            .as_u64()
            .map(|due| due + report["skipped"].as_u64().unwrap_or(0)),
        Some(20),
        "{report}"
    );
    assert_eq!(report["connections"], report["sent"], "each opens one");
}

#[test]
fn a_figure_above_its_bound_fails_a_probe_that_is_stopped() {
    let server = server();
    let folder = tempfile::tempdir().expect("a folder");
    let code_with = |bound: &str, code: i32| {
        let args = ["probe", "--targets", "-", "--every", "50ms"];
        let more = ["--allow-net", "loopback", "--fail-above", bound];
        let url = server.url("/");
        let all = [&args[..], &more].concat();
        let going = Going::start(&all, folder.path(), url.as_bytes());
        let before = server.targets().len();
        server.wait_for_requests(before + 3);
        going.signal(Signal::INT);
        going.wait().expect(code)
    };
    assert_eq!(code_with("p50=20s", 3).err, "");
    let ended = code_with("p50=1us", 1);
    assert!(ended.err.contains("--fail-above p50=1us"), "{}", ended.err);
}

#[test]
fn a_login_in_the_url_of_a_target_is_not_sent_and_a_warning_says_so() {
    let server = server();
    let folder = tempfile::tempdir().expect("a folder");
    let args = ["probe", "--targets", "-", "--every", "100ms"];
    let more = ["--duration", "200ms", "--allow-net", "loopback"];
    let url = server.url("/").replace("//", "//me:secret@");
    let going = Going::start(&[&args[..], &more].concat(), folder.path(), url.as_bytes());
    let ended = going.wait().expect(0);
    let said = "is not sent: write --user-for 127.0.0.1";
    assert!(ended.err.contains(said), "{}", ended.err);
    assert!(!ended.err.contains("secret"), "{}", ended.err);
}

#[test]
fn a_file_of_targets_that_cannot_be_used_is_refused_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let given = |file: &[u8], args: &[&str]| {
        let all = [&["probe", "--targets", "-"], args].concat();
        Going::start(&all, folder.path(), file).wait()
    };
    let refused = |file: &str, args: &[&str], parts: &[&str]| {
        check_refused(&given(file.as_bytes(), args), parts);
    };
    let every = ["--every", "15s"];
    refused("http://a.test/\nhttp://\n", &every, &["line 2"]);
    let not_text = b"http://a.test/\n\nhttp://\xff/\n";
    check_refused(&given(not_text, &every), &["line 3", "not UTF-8"]);
    check_refused(&given(GZIP, &every), &["line 2"]);
    let ignored =
        b"http://b.test/\n{\"url\": \"http://a.test/\", \"priority\": 3}\nhttp://a.test/\n";
    let ended = given(ignored, &every);
    let warns = "priority, depth and sitemap have no effect on a probe (line 2 is the first";
    assert!(ended.err.contains(warns), "{}", ended.err);
    let sitemap = b"{\"url\": \"http://a.test/\", \"sitemap\": 1}\nhttp://a.test/\n";
    let ended = given(sitemap, &every);
    assert!(ended.err.contains("(line 1 is the first"), "{}", ended.err);
    refused("# none\n", &every, &["no target", "one a line"]);
    refused(
        "http://a.test/\n\nhttp://a.test\n",
        &every,
        &["--targets -, lines 1 and 3: http://a.test/: ", "twice"],
    );
    refused(
        "http://a.test/\nhttp://b.test:65536/\n",
        &every,
        &["--targets -, line 2: http://b.test:65536/: "],
    );
    let excluded = [&every[..], &["-s", "EXCLUDE=b.test"]].concat();
    refused(
        "http://a.test/\nhttp://b.test/\n",
        &excluded,
        &["--targets -, line 2: http://b.test/: ", "EXCLUDE"],
    );
    let both = [&every[..], &["http://a.test/"]].concat();
    let part = "--targets -, line 2: http://a.test/: given twice";
    refused("http://b.test/\nhttp://a.test/\n", &both, &[part]);
    refused(
        "http://a.test/\n",
        &["--every", "0"],
        &["--every", "at least 1ms"],
    );
    refused("http://a.test/\n", &[], &["--every"]);
    refused(
        "http://a.test/\n",
        &["--every", "1s", "--rate", "5"],
        &["--rate"],
    );
    let public = ["--every", "1s", "--admin", "0.0.0.0:0"];
    refused("http://a.test/\n", &public, &["--admin-token-file"]);
    let all = ["probe", "--targets", "missing", "--every", "1s"];
    let ended = Going::start(&all, folder.path(), b"").wait();
    check_refused(&ended, &["--targets missing", "cannot be read"]);
}

/// A target and a line that is none, compressed.
const GZIP: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xcb\x28\x29\x29\xb0\xd2\xd7\x4f\xd4\x2b\x49\x2d\x2e\xd1\xe7\xca\x80\x70\xb9\x00\xc9\x93\x5d\x34\x17\x00\x00\x00";
