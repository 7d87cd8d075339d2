//! Two crawlers in two threads of a program that has configured its own process state.
//!
//! Process-wide state is compared before and after, in a separate process: this test binary, started
//! again.

#[expect(dead_code, reason = "other tests ask it for more")]
mod authority;
mod crawling;

use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use argiope::testkit::http::{Reply, Step};
use argiope::testkit::server::Server;
use argiope::{Config, Page, Request};
use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, ring};

use authority::Authority;

const INSIDE: &str = "ARGIOPE_TEST_INSIDE";
const PAGES: usize = 5;

#[test]
fn two_crawlers_work_in_a_program_whose_default_provider_is_ring() {
    if std::env::var_os(INSIDE).is_some() {
        return crawl_twice();
    }
    let name = "two_crawlers_work_in_a_program_whose_default_provider_is_ring";
    let ran = Command::new(std::env::current_exe().expect("this binary has a path"))
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("it runs again");
    let [out, err] =
        [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(ran.status.success(), "{out}{err}");
    for said in [&out, &err] {
        let (_, after) = said.split_once("[begin]").expect("it began");
        assert_eq!(after.split("[end]").next(), Some(""), "nothing is printed");
    }
}

fn crawl_twice() {
    // The program's choice of ciphers, which differs from the crawler's.
    let chacha = |suite: &rustls::SupportedCipherSuite| {
        suite.suite() == CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
    };
    let full = ring::default_provider();
    let mut own = full.clone();
    own.cipher_suites.retain(chacha);
    own.install_default()
        .expect("no provider was installed before");

    let (server, certificate) = serve(Arc::new(full));
    let port = server.port();
    let folder = tempfile::tempdir().expect("a folder");
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, certificate).expect("it is written");
    lower_open_files();
    let before = state();
    print!("[begin]");
    eprint!("[begin]");
    std::io::stdout().flush().expect("it is written");
    let crawls = ["epoll", "uring"].map(|io| {
        let config = config(io, port, ca_file.to_str().expect("a path in UTF-8"));
        thread::spawn(move || crawl(config, port))
    });
    let ciphers: Vec<String> = crawls
        .into_iter()
        .flat_map(|crawl| crawl.join().expect("it ends"))
        .collect();
    print!("[end]");
    eprint!("[end]");
    std::io::stdout().flush().expect("it is written");
    assert_eq!(state(), before);
    assert_eq!(ciphers.len(), 2 * PAGES);
    assert!(
        ciphers.iter().all(|cipher| cipher.contains("AES")),
        "the crawlers have a provider of their own: {ciphers:?}"
    );
    let now = CryptoProvider::get_default().expect("the program's");
    assert!(now.cipher_suites.iter().all(chacha), "it is still there");
}

/// State of the process: signal handlers, open-file limits, log level, current directory and umask.
fn state() -> String {
    let actions: Vec<_> = (1..32)
        .filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal))
        .map(|signal| {
            // SAFETY: a null action only reads the present one into `present`, which is ours.
            unsafe {
                let mut present: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &raw mut present);
                (signal, present.sa_sigaction, present.sa_flags)
            }
        })
        .collect();
    let mut files = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: it writes the present limits into `files`, which is ours.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut files) };
    let status = std::fs::read_to_string("/proc/self/status").expect("a process has a status");
    let umask = status.lines().find(|line| line.starts_with("Umask"));
    format!(
        "{actions:?} {} {} {:?} {:?} {umask:?}",
        files.rlim_cur,
        files.rlim_max,
        log::max_level(),
        std::env::current_dir()
    )
}

/// Lowers the soft limit of open files, so that there is room to raise it.
fn lower_open_files() {
    // SAFETY: both calls only touch the limit, which is ours.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = 500.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

fn config(io: &str, port: u16, ca_file: &str) -> Config {
    let server = format!("a.test:{port}:127.0.0.1");
    crawling::config(&[
        ("IO", io),
        ("ALLOW_NET", "loopback"),
        ("RESOLVE", &server),
        ("CA_FILE", ca_file),
    ])
}

/// Crawls some pages; returns the cipher of each.
fn crawl(config: Config, port: u16) -> Vec<String> {
    let request = |number| Request::get(format!("https://a.test:{port}/{number}"));
    let pages = crawling::crawl(config, (0..PAGES).map(request).collect());
    let cipher = |page: Page| {
        assert_eq!(page.failure.map(|failure| failure.detail), None);
        assert_eq!(page.body, b"safe");
        page.tls.expect("it came by TLS").cipher.to_string()
    };
    pages.into_iter().map(cipher).collect()
}

/// A server that answers each request with a page, and the PEM text of its authority.
fn serve(provider: Arc<CryptoProvider>) -> (Server, String) {
    let authority = Authority::new();
    let (config, _) = authority.chain_server(provider, "a.test");
    let server = Server::tls(config, |_| {
        let reply = Reply::page("safe").field("Connection", "close");
        vec![Step::Send(reply.to_bytes()), Step::End, Step::Close]
    });
    (server, authority.pem())
}
