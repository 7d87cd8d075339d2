//! Valid and invalid certificates.

use std::fs;

use rcgen::{CertificateParams, date_time_ymd};
use serde_json::Value;

use crate::authority::Authority;
use crate::run::{Crawl, Going, argiope, code, detail};
use crate::server::{Server, page};

/// A server that an authority vouches for, by a certificate made after the caller's wishes.
fn vouched(
    authority: &Authority,
    name: &str,
    wishes: impl FnOnce(&mut CertificateParams),
) -> Server {
    Server::tls(authority.server(name, wishes), |_| page("safe"))
}

/// The crawl of a name on a server, and the authority it trusts.
fn crawl(
    server: &Server,
    host: &str,
    trusts: Option<&Authority>,
    args: &[&str],
) -> (Value, String) {
    let url = format!("https://{host}:{}/", server.port());
    let crawl = Crawl::of(&[&url])
        .with(&["--resolve", &server.named(host)])
        .with(args)
        .aloud();
    let crawl = match trusts {
        None => crawl,
        Some(authority) => {
            crawl.file("ca.pem", authority.pem().as_bytes());
            crawl.with(&["--ca-file", "ca.pem"])
        }
    };
    let crawled = crawl.run();
    (crawled.only(), crawled.ended.err)
}

#[test]
fn a_certificate_of_a_trusted_authority_is_accepted() {
    let authority = Authority::new();
    let server = vouched(&authority, "a.test", |_| {});
    let (line, _) = crawl(&server, "a.test", None, &[]);
    assert_eq!(code(&line), "tls.untrusted", "{line}");
    assert!(
        server.asked().is_empty(),
        "no request is sent to an untrusted server"
    );

    let (line, said) = crawl(&server, "a.test", Some(&authority), &[]);
    assert_eq!(
        (line["status"].as_u64(), code(&line)),
        (Some(200), ""),
        "{line}"
    );
    assert_eq!(line["tls"]["version"], "TLSv1.3");
    assert_eq!(line["tls"]["verified"], true);
    assert_eq!(line["tls"]["resumed"], false);
    assert!(
        line["tls"]["cipher"]
            .as_str()
            .is_some_and(|name| name.starts_with("TLS"))
    );
    assert!(line["tls_handshake"].is_number(), "{line}");
    assert!(!said.contains("not verified"), "{said}");
    let host = server.only("/");
    let expected = format!("a.test:{}", server.port());
    assert_eq!(host.header("Host"), Some(expected.as_str()));
    // It sends close_notify, so that the server can detect truncation.
    server.wait_for_ends(1);
}

#[test]
fn a_trusted_authority_does_not_cover_another() {
    let server = vouched(&Authority::new(), "a.test", |_| {});
    let (line, _) = crawl(&server, "a.test", Some(&Authority::new()), &[]);
    assert!(
        ["tls.untrusted", "tls.bad_certificate"].contains(&code(&line)),
        "{line}"
    );
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::new();
    let server = vouched(&authority, "a.test", |_| {});
    let (line, _) = crawl(&server, "b.test", Some(&authority), &[]);
    assert_eq!(code(&line), "tls.name_mismatch", "{line}");
    assert!(detail(&line).contains("b.test"), "{line}");
}

#[test]
fn expired_and_future_certificates_are_refused() {
    let authority = Authority::new();
    let server = vouched(&authority, "a.test", |params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    let (line, _) = crawl(&server, "a.test", Some(&authority), &[]);
    assert_eq!(code(&line), "tls.expired", "{line}");
    let server = vouched(&authority, "a.test", |params| {
        params.not_before = date_time_ymd(2500, 1, 1);
        params.not_after = date_time_ymd(2501, 1, 1);
    });
    let (line, _) = crawl(&server, "a.test", Some(&authority), &[]);
    assert_eq!(code(&line), "tls.not_yet_valid", "{line}");
}

#[test]
fn insecure_is_logged_and_marked_in_each_line() {
    let authority = Authority::new();
    let server = vouched(&authority, "a.test", |params| {
        params.not_after = date_time_ymd(2002, 1, 1)
    });
    let (line, said) = crawl(&server, "b.test", None, &["-k"]);
    assert_eq!(
        (line["status"].as_u64(), code(&line)),
        (Some(200), ""),
        "{line}"
    );
    assert_eq!(line["tls"]["verified"], false);
    let warning = said.lines().find(|line| line.contains("warning"));
    assert!(
        warning.is_some_and(|line| line.contains("certificate")),
        "{said}"
    );
}

#[test]
fn a_server_without_tls_is_reported() {
    let server = Server::deaf(vec![crate::server::raw(
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    )]);
    let (line, _) = crawl(&server, "a.test", None, &[]);
    assert_eq!(code(&line), "tls.protocol", "{line}");
    assert!(line["status"].is_null());
}

#[test]
fn a_fetch_takes_the_same_options() {
    let authority = Authority::new();
    let server = vouched(&authority, "a.test", |_| {});
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("ca.pem"), authority.pem()).expect("a file");
    let url = format!("https://a.test:{}/", server.port());
    let named = server.named("a.test");
    let fetch = |args: &[&str]| {
        let mut all = vec![
            "fetch",
            &url,
            "--resolve",
            &named,
            "--allow-net",
            "loopback",
        ];
        all.extend(["-s", "RETRY_TIMES=0"]);
        all.extend(args);
        Going::start(&all, folder.path(), b"").wait()
    };
    fetch(&["--ca-file", "ca.pem"]).expect(0);
    fetch(&["-k"]).expect(0);
    let ended = fetch(&[]).expect(1);
    assert_eq!(code(&ended.lines()[0]), "tls.untrusted");
}

#[test]
fn a_probe_measures_each_handshake() {
    let authority = Authority::new();
    let server = vouched(&authority, "a.test", |_| {});
    let folder = tempfile::tempdir().expect("a folder");
    let ca_file = folder.path().join("ca.pem");
    fs::write(&ca_file, authority.pem()).expect("a file");
    let url = format!("https://a.test:{}/", server.port());
    let resolved = server.named("a.test");
    let args = [
        &[
            "probe",
            &url,
            "--resolve",
            &resolved,
            "--allow-net",
            "loopback",
        ][..],
        &["--ca-file", ca_file.to_str().expect("a path"), "--json"],
        &["--rate", "5", "--requests", "5", "--new-connections"],
    ];
    let ended = argiope(&args.concat()).expect(0);
    let report: Value = serde_json::from_str(&ended.out).expect("JSON");
    let tls = &report["latency"]["tls"];
    assert_eq!(tls["count"], 5, "{report}");
    let p50 = |measure: &Value| measure["p50"].as_f64().expect("it was measured");
    assert!(p50(tls) > 0.0);
    assert!(
        p50(&report["latency"]["due"]) > p50(tls),
        "it is part of it"
    );
}
