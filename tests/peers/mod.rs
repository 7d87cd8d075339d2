//! Peers that tests start on loopback, without privileges: a web of many sites served by nginx, names
//! served by unbound or dnsmasq. If one is not installed, its tests print `SKIPPED`.

pub mod web;
pub mod nginx;
pub mod names;
pub mod crawl;
pub mod warc;

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A server of ours, ended when dropped.
pub struct Daemon {
    child: Child,
}

impl Daemon {
    /// Starts a server and waits until it listens; prints `SKIPPED` and returns `None` if not installed.
    pub fn start(program: &str, arguments: &[&str], folder: &Path, at: SocketAddr) -> Option<Self> {
        let log_path = folder.join(format!("{program}.log"));
        let log = fs::File::create(&log_path).expect("the folder is writable");
        let said = || fs::read_to_string(&log_path).unwrap_or_default();
        let spawned = Command::new(program)
            .args(arguments)
            .env("PATH", path_with_sbin())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                skip(&format!("{program} is not installed"));
                return None;
            }
            Err(error) => panic!("{program} cannot be started: {error}"),
        };
        let mut daemon = Daemon { child };
        let patience = Instant::now() + Duration::from_secs(10);
        while Instant::now() < patience {
            if let Some(status) = daemon.child.try_wait().expect("a child of ours") {
                panic!("{program} ended at once: {status}\n{}", said());
            }
            if TcpStream::connect(at).is_ok() {
                return Some(daemon);
            }
            sleep(Duration::from_millis(10));
        }
        panic!("{program} does not listen on {at}\n{}", said());
    }

    /// Asks it to end, which lets it write its log to the end, and waits until it has.
    pub fn end(mut self) {
        signal(&self.child, libc::SIGTERM);
        let patience = Instant::now() + Duration::from_secs(5);
        while Instant::now() < patience {
            if self.child.try_wait().expect("a child of ours").is_some() {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        // What does not want to go is made to by `drop`.
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a child that has not been waited for.
pub fn signal(child: &Child, signal: i32) {
    let id = i32::try_from(child.id()).expect("process ids are small");
    // SAFETY: no memory is involved, and the id is that of a child which cannot have been reused.
    unsafe { libc::kill(id, signal) };
}

/// Says what is not checked.
pub fn skip(why: &str) {
    tell(&format!(
        "SKIPPED: {why}, so nothing was checked against it"
    ));
}

/// Says something past the test harness, which keeps what passing tests print.
pub fn tell(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// An empty folder that is kept, to inspect it after a failure.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("it is ours");
    }
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// A port that is free on every address, for TCP and UDP both.
pub fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
        let address = listener
            .local_addr()
            .expect("a bound socket has its address");
        if UdpSocket::bind(address).is_ok() {
            return address.port();
        }
    }
}

/// Servers are often where only the administrator's shell looks.
fn path_with_sbin() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin:/sbin")
}
