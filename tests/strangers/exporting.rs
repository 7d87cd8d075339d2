//! Tests of the exporter: its metrics for servers that work, that hang, and with invalid certificates.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener as Listener};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use argiope::Config;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

use crate::PATIENCE;
use crate::exporter::{Prober, serve};
use crate::loopback::{Reply, Server, gaps, peak};

/// What a stamp of the kernel's may be early, and how long a crawl may be without the processor between
/// the stamp of a departure and its system call.
const TOLERANCE: Duration = Duration::from_millis(11);

/// Does this beside an exporter of this configuration, which listens there.
fn beside_exporter<T>(config: Config, work: impl AsyncFnOnce(SocketAddr) -> T) -> T {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let prober = Arc::new(Prober::start(config).expect("it starts"));
        tokio::spawn(serve(listener, prober));
        timeout(PATIENCE, work(address)).await.expect("it ends")
    })
}

/// Its answer to a scraper with a timeout of so many seconds.
async fn scrape(exporter: SocketAddr, query: String, seconds: f64) -> String {
    let mut stream = TcpStream::connect(exporter).await.expect("it listens");
    let request = format!(
        "GET /{query} HTTP/1.1\r\nHost: exporter\r\nConnection: close\r\n\
         X-Prometheus-Scrape-Timeout-Seconds: {seconds}\r\n\r\n"
    );
    let sent = stream.write_all(request.as_bytes()).await;
    sent.expect("it reads");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer).await;
    read.expect("it answers");
    answer
}

/// What an exporter of this configuration answers where all of these are scraped at once, each with so
/// many seconds for it; in their order.
fn scraped(config: Config, scrapes: &[(&str, f64)]) -> Vec<String> {
    beside_exporter(config, async |exporter| {
        let scrapes = scrapes
            .iter()
            .map(|(query, seconds)| tokio::spawn(scrape(exporter, query.to_string(), *seconds)));
        let mut answers = Vec::new();
        for scrape in scrapes.collect::<Vec<_>>() {
            answers.push(scrape.await.expect("it does not panic"));
        }
        answers
    })
}

/// The values of a response, by name and labels.
fn metrics(answer: &str) -> HashMap<String, f64> {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head ends");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let lines = body
        .lines()
        .map(|line| line.rsplit_once(' ').expect("a name and a value"));
    lines
        .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
        .collect()
}

fn phase(metrics: &HashMap<String, f64>, name: &str) -> f64 {
    metrics[&format!("probe_http_duration_seconds{{phase=\"{name}\"}}")]
}

/// The codes of what went wrong.
fn failures(metrics: &HashMap<String, f64>) -> Vec<&str> {
    let codes = metrics.keys().filter_map(|name| {
        name.strip_prefix("probe_failure_info{code=\"")?
            .strip_suffix("\"}")
    });
    codes.collect()
}

#[test]
fn probe_results_match_the_target() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/moved" => Reply::redirect("302 Found", "/").after(Duration::from_millis(30)),
        _ => Reply::page("a page").after(Duration::from_millis(50)),
    });
    let answers = scraped(
        server.config(),
        &[
            ("probe?target=http://a.test/", 30.0),
            ("probe?target=http%3A%2F%2Fb.test%2Fmoved", 30.0),
        ],
    );
    for (answer, redirects, host) in [(&answers[0], 0.0, "a.test"), (&answers[1], 1.0, "b.test")] {
        let values = metrics(answer);
        assert_eq!(
            (values["probe_success"], values["probe_http_status_code"]),
            (1.0, 200.0)
        );
        assert_eq!(values["probe_http_redirects"], redirects);
        let asked = server.asked_of(|asked| asked.host == host);
        let at_least: Duration = asked.iter().map(|asked| asked.done - asked.at).sum();
        let phases = ["resolve", "connect", "tls", "processing", "transfer"]
            .map(|name| phase(&values, name));
        assert!(phases[3] >= at_least.as_secs_f64() - 0.001, "{answer}");
        assert!(phases[1] > 0.0 && phases[2] == 0.0, "{answer}");
        assert!(
            phases.iter().sum::<f64>() <= values["probe_duration_seconds"],
            "{answer}"
        );
        let stamps = ["exact", "bound", "user"]
            .map(|name| values[&format!("probe_http_stamp{{label=\"{name}\"}}")]);
        assert_eq!(stamps.iter().sum::<f64>(), 1.0);
        assert!(!values.contains_key("probe_ssl_earliest_cert_expiry"));
    }
}

#[test]
fn many_targets_are_probed_at_once_and_a_hanging_one_times_out() {
    const TARGETS: usize = 30;
    // None is answered before all have asked.
    let all = Barrier::new(TARGETS);
    let server = Server::start(move |asked| match asked.host.as_str() {
        "hangs.test" => Reply::page("").after(Duration::from_secs(600)),
        "fails.test" => Reply::status("503 Service Unavailable"),
        _ => {
            all.wait();
            Reply::page("a page")
        }
    });
    let targets: Vec<_> = (0..TARGETS)
        .map(|n| format!("probe?target=http://h{n}.test/"))
        .collect();
    let mut scrapes: Vec<_> = targets
        .iter()
        .map(|target| (target.as_str(), 50.0))
        .collect();
    scrapes.push(("probe?target=http://hangs.test/", 2.0));
    scrapes.push(("probe?target=http://fails.test/", 30.0));
    let answers: Vec<_> = scraped(server.config(), &scrapes)
        .iter()
        .map(|answer| metrics(answer))
        .collect();
    assert!(
        answers[..TARGETS]
            .iter()
            .all(|values| values["probe_success"] == 1.0)
    );
    let hangs = &answers[TARGETS];
    assert_eq!(
        (hangs["probe_success"], hangs["probe_http_status_code"]),
        (0.0, 0.0)
    );
    // Whoever waits for it may be quicker, where the crawl has not had the processor.
    let failure = failures(hangs);
    assert!(
        failure == ["timeout.total"] || failure == ["cancelled.asked"],
        "{failure:?}"
    );
    assert!(hangs["probe_duration_seconds"] >= 1.5);
    let fails = &answers[TARGETS + 1];
    assert_eq!(
        (fails["probe_success"], fails["probe_http_status_code"]),
        (0.0, 503.0)
    );
}

#[test]
fn scrapes_do_not_exceed_the_pace_of_a_target() {
    let server =
        Server::start(|_| Reply::status("503 Service Unavailable").field("Retry-After", 3600));
    let config = server
        .config()
        .with("DOWNLOAD_DELAY", "100ms")
        .expect("it is sound");
    let answers = scraped(config, &[("probe?target=http://a.test/", 30.0); 8]);
    for values in answers.iter().map(|answer| metrics(answer)) {
        assert_eq!(values["probe_http_status_code"], 503.0);
        assert!(
            phase(&values, "connect") > 0.0,
            "each has a connection of its own"
        );
    }
    let asked = server.asked();
    assert_eq!((asked.len(), peak(&asked)), (8, 1));
    let gaps = gaps(&asked);
    assert!(
        gaps.iter()
            .all(|gap| *gap >= Duration::from_millis(100) - TOLERANCE),
        "{gaps:?}"
    );
}

#[test]
fn a_probe_not_released_before_its_deadline_is_never_sent() {
    let (sender, mut receiver) = unbounded_channel();
    let server = Server::start(move |_| {
        let _ = sender.send(());
        Reply::page("").after(Duration::from_secs(600))
    });
    let answer = beside_exporter(server.config(), async |exporter| {
        let target = "probe?target=http://a.test/".to_owned();
        tokio::spawn(scrape(exporter, target.clone(), 3600.0));
        receiver.recv().await.expect("it is asked");
        scrape(exporter, target, 1.0).await
    });
    assert_eq!(failures(&metrics(&answer)), ["cancelled.asked"]);
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn a_target_that_is_down_is_probed_each_time() {
    // Nobody listens there any more.
    let port = Listener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("it is bound")
        .port();
    let config = Config::default()
        .with("ALLOW_NET", "loopback")
        .and_then(|config| config.with("DOWNLOAD_DELAY", 0))
        .expect("it is sound");
    let target = format!("probe?target=http://127.0.0.1:{port}/");
    for answer in scraped(config, &[(target.as_str(), 20.0); 12]) {
        assert_eq!(failures(&metrics(&answer)), ["connect.refused"]);
    }
}

#[test]
fn an_invalid_target_is_refused() {
    let refused = [
        "probe",
        "probe?target=",
        "probe?target=ftp://a.test/",
        "probe?target=a",
        "metrics",
    ];
    let answers = scraped(Config::default(), &refused.map(|query| (query, 5.0)));
    let status: Vec<_> = answers.iter().map(|answer| &answer[9..12]).collect();
    assert_eq!(status, ["404", "400", "400", "400", "404"]);
}

#[test]
fn the_earliest_certificate_expiry_is_reported_even_if_expired() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = folder.path().join("authority.pem");
    let metrics_of = |port: u16, host: &str, trusts: bool| {
        let config = Config::default()
            .with("ALLOW_NET", "loopback")
            .and_then(|config| config.with("RESOLVE", format!("*:443:127.0.0.1:{port}")));
        let mut config = config.expect("it is sound");
        if trusts {
            let trusting = config.with("CA_FILE", authority.to_str().expect("a path"));
            config = trusting.expect("it is sound");
        }
        let target = format!("probe?target=https://{host}/");
        metrics(&scraped(config, &[(target.as_str(), 30.0)])[0])
    };
    let expiry = |values: &HashMap<String, f64>| values["probe_ssl_earliest_cert_expiry"];

    let port = serve_tls(&authority, 2100);
    let trusted = metrics_of(port, "a.test", true);
    assert_eq!(trusted["probe_success"], 1.0, "{trusted:?}");
    assert_eq!(expiry(&trusted), 4_102_444_800.0); // 2100-01-01
    assert!(phase(&trusted, "tls") > 0.0);
    for (host, trusts, code) in [
        ("a.test", false, "tls.untrusted"),
        ("b.test", true, "tls.name_mismatch"),
    ] {
        let refused = metrics_of(port, host, trusts);
        assert_eq!(refused["probe_success"], 0.0);
        assert_eq!(failures(&refused), [code]);
        assert_eq!(expiry(&refused), 4_102_444_800.0);
    }

    let expired = metrics_of(serve_tls(&authority, 2020), "a.test", true);
    assert_eq!(failures(&expired), ["tls.expired"]);
    assert_eq!(expiry(&expired), 1_577_836_800.0); // 2020-01-01
}

/// Serves a page under a certificate to this year, of an authority to 2200 that it writes to a file.
fn serve_tls(authority: &Path, until: i32) -> u16 {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = date_time_ymd(2200, 1, 1);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
    let issuer = issuer.expect("it signs itself");
    std::fs::write(authority, issuer.pem()).expect("it is written");
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec!["a.test".to_owned()]).expect("a name");
    params.not_after = date_time_ymd(until, 1, 1);
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the versions are known")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone(), issuer.der().clone()],
            PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .expect("certificate and key fit");
    let config = Arc::new(config);
    let listener = Listener::bind("127.0.0.1:0").expect("loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            let mut stream = StreamOwned::new(session, stream);
            let mut head = [0; 4096];
            if stream.read(&mut head).is_ok() {
                let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                let _ = stream.write_all(reply).and_then(|()| stream.flush());
            }
        }
    });
    port
}
