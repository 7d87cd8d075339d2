//! The control interface of `argiope crawl` and `probe`: `--admin`, and the socket in the output directory.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use argiope::sink::directory::{ControlFiles, DirectoryLock};
use argiope::{Admin, Crawler};

use super::Usage;

/// Has `serve` listen at the address of `--admin`, with the token in this file.
pub fn listen(
    at: SocketAddr,
    token_file: Option<&Path>,
    serve: impl FnOnce(Admin) -> io::Result<Option<SocketAddr>>,
) -> Result<(), Usage> {
    let mut admin = Admin::new().listen(at).set_log_level();
    match token_file {
        Some(path) => admin = admin.token(token_in(path)?),
        None if !at.ip().to_canonical().is_loopback() => {
            return Err(Usage(format!(
                "--admin {at}: other than loopback addresses need --admin-token-file FILE, with a secret of your own"
            )));
        }
        None => {}
    }
    let address = serve(admin).map_err(|error| {
        let mend = mend_of(&error, at);
        Usage(format!("--admin {at}: {error}{mend}"))
    })?;
    if let Some(address) = address {
        log::info!("the control interface is at http://{address}/");
    }
    Ok(())
}

/// How to mend that an address cannot be listened at, where it is known.
fn mend_of(error: &io::Error, at: SocketAddr) -> String {
    let write = |ip, port| format!("; write --admin {}", SocketAddr::new(ip, port));
    match error.kind() {
        io::ErrorKind::AddrInUse => write(at.ip(), at.port().checked_add(1).unwrap_or(PORT)),
        io::ErrorKind::AddrNotAvailable => write(Ipv4Addr::LOCALHOST.into(), at.port()),
        // Ports below 1024 are for root.
        io::ErrorKind::PermissionDenied => write(at.ip(), PORT),
        _ => String::new(),
    }
}

/// The port of examples.
const PORT: u16 = 9115;

/// Listens at the socket in a locked output directory. A crawl without it works as well.
pub fn serve_in(crawler: &mut Crawler, lock: &DirectoryLock) {
    let served = ControlFiles::prepare(lock).and_then(|files| {
        let admin = Admin::new().socket(files.socket).set_log_level();
        crawler.serve(admin.orders(files.orders, files.orders_length))
    });
    if let Err(error) = served {
        log::warn!("`argiope ctl` cannot reach this crawl: {error}");
        // Without the socket, no order could lift a pause that an earlier run left.
        crawler.handle().resume();
    }
}

/// The token in a file, without white space around it.
fn token_in(path: &Path) -> Result<Vec<u8>, Usage> {
    let path_of = path.display();
    let token = fs::read(path).map_err(|error| {
        Usage(format!(
            "--admin-token-file: cannot read {path_of}: {error}"
        ))
    })?;
    let token = token.trim_ascii();
    let is_sound = token.len() >= TOKEN_MIN && token.iter().all(u8::is_ascii_graphic);
    match is_sound {
        true => Ok(token.to_vec()),
        false => Err(Usage(format!(
            "--admin-token-file: {path_of} has to hold {TOKEN_MIN} or more printable characters without spaces, \
             such as those of `openssl rand -hex 16`"
        ))),
    }
}

/// Shorter ones can be guessed.
const TOKEN_MIN: usize = 16;
