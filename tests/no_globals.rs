//! Crawls inside a program that has its own mind about what is global to a process.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use argiope::base::shared::Shared;
use argiope::io::open_files;
use argiope::{Config, Crawler, Page, Request};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Counts what is logged.
struct Counting(AtomicUsize);

impl log::Log for Counting {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn flush(&self) {}
}

static LOGGER: Counting = Counting(AtomicUsize::new(0));

/// The one test of this file: what it looks at is the whole process's.
#[test]
fn two_crawls_beside_a_program_with_a_provider_logger_and_signals_of_its_own_change_none_of_them() {
    rustls::crypto::ring::default_provider()
        .install_default()
        .expect("nobody was quicker");
    log::set_logger(&LOGGER).expect("nobody was quicker");
    log::set_max_level(log::LevelFilter::Warn);
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: it only writes to the limit, which is ours.
    assert_eq!(
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) },
        0
    );
    let lower = libc::rlimit {
        rlim_cur: 500.min(limit.rlim_max),
        ..limit
    };
    // SAFETY: it only reads the limit, which is ours.
    assert_eq!(
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const lower) },
        0
    );
    // SAFETY: to ignore a signal runs no code.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    let before = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE].map(action);

    let stdout = tempfile::tempfile().expect("a file");
    // SAFETY: descriptors of our own, and nobody else prints meanwhile.
    let aside = unsafe { libc::dup(1) };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::dup2(stdout.as_raw_fd(), 1) }, 1);

    let crawls: Vec<_> = ["epoll", "uring"]
        .map(|io| {
            thread::spawn(move || {
                let port = serve();
                let pages = Shared::new(Vec::new());
                let kept = pages.clone();
                let settings = [
                    ("ALLOW_NET", "loopback".to_owned()),
                    ("RESOLVE", format!("*:443:127.0.0.1:{port}")),
                    ("INSECURE", "true".to_owned()),
                    ("DOWNLOAD_DELAY", "0".to_owned()),
                    ("ROBOTSTXT_OBEY", "false".to_owned()),
                    ("IO", io.to_owned()),
                ];
                let config = settings
                    .into_iter()
                    .try_fold(Config::default(), |config, (name, value)| {
                        config.with(name, value)
                    })
                    .expect("these settings are sound");
                let mut crawler = Crawler::builder(config)
                    .sink(move |page: Page| kept.borrow_mut().push(page))
                    .build()
                    .expect("it can be set up");
                for number in 0..5 {
                    let request = Request::get(format!("https://a.test/{number}"));
                    crawler.submit(request).expect("it is a URL");
                }
                assert_eq!(crawler.run(), "finished");
                for page in pages.borrow().iter() {
                    assert_eq!(page.status, Some(200), "{:?}", page.failure);
                }
                pages.borrow().len()
            })
        })
        .into_iter()
        .map(thread::JoinHandle::join)
        .collect();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::dup2(aside, 1) }, 1);
    for crawl in crawls {
        assert_eq!(crawl.expect("it ends well"), 5);
    }
    let printed = stdout.metadata().expect("it is there").len();
    assert_eq!(printed, 0, "standard output is not ours");
    let installed = CryptoProvider::get_default().expect("it was installed");
    let names = |provider: &CryptoProvider| format!("{:?}", provider.secure_random);
    assert_eq!(
        names(installed),
        names(&rustls::crypto::ring::default_provider())
    );
    assert_eq!(log::max_level(), log::LevelFilter::Warn);
    log::warn!("the logger is still ours");
    assert!(LOGGER.0.load(Ordering::SeqCst) >= 1);
    assert_eq!(open_files(), lower.rlim_cur);
    let after = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE].map(action);
    assert_eq!(after, before);
}

/// What the process does about a signal.
fn action(signal: libc::c_int) -> libc::sighandler_t {
    // SAFETY: a null action only reads the present one into `present`, which is ours.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        let read = libc::sigaction(signal, std::ptr::null(), &raw mut present);
        assert_eq!(read, 0);
        present.sa_sigaction
    }
}

/// A TLS server that answers everything with a page; gives its port.
fn serve() -> u16 {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["a.test".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    // What ring does not have: with the program's provider there would be no handshake.
    provider.kx_groups = vec![rustls::crypto::aws_lc_rs::kx_group::X25519MLKEM768];
    let provider = Arc::new(provider);
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the versions are known")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("certificate and key fit");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            let mut stream = StreamOwned::new(session, stream);
            thread::spawn(move || {
                let mut asked = Vec::new();
                let mut buffer = [0; 1024];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    asked.extend_from_slice(&buffer[..length]);
                    if asked.ends_with(b"\r\n\r\n") {
                        asked.clear();
                        let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                        if stream.write_all(reply).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    port
}
