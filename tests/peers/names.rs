//! Name servers for the names of a [`Web`].

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use super::web::Web;
use super::{Daemon, free_port};

/// unbound on a free port, and its address; `None` where it is not installed.
///
/// `alias.test` is another name for `plain.test`'s address.
pub fn unbound(folder: &Path, web: &Web) -> Option<(Daemon, SocketAddr)> {
    let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let mut config = format!(
        "server:\n  do-daemonize: no\n  use-syslog: no\n  chroot: \"\"\n  username: \"\"\n  \
         pidfile: \"\"\n  directory: \"{}\"\n  interface: 127.0.0.1\n  port: {}\n  \
         module-config: \"iterator\"\n  local-zone: \"test.\" static\n  \
         local-data: \"test. 300 SOA ns.test. root.test. 1 2 3 4 77\"\n",
        folder.display(),
        address.port(),
    );
    for (name, last) in addresses(web) {
        let data = match name {
            "alias.test" => "alias.test. 300 CNAME plain.test.".to_owned(),
            name => format!("{name}. 300 A 127.0.0.{last}"),
        };
        writeln!(config, "  local-data: \"{data}\"").expect("a string takes all");
    }
    config.push_str("remote-control:\n  control-enable: no\n");
    let path = folder.join("unbound.conf");
    fs::write(&path, config).expect("writable");
    let path = path.to_str().expect("its path is text");
    let daemon = Daemon::start("unbound", &["-d", "-c", path], folder, address)?;
    Some((daemon, address))
}

/// dnsmasq on a free port, and its address; `None` where it is not installed.
pub fn dnsmasq(folder: &Path, web: &Web) -> Option<(Daemon, SocketAddr)> {
    let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let mut hosts = String::new();
    for (name, last) in addresses(web).filter(|(name, _)| *name != "alias.test") {
        writeln!(hosts, "127.0.0.{last} {name}").expect("a string takes all");
    }
    let hosts_path = folder.join("hosts");
    fs::write(&hosts_path, hosts).expect("writable");
    let config = format!(
        "keep-in-foreground\nno-resolv\nno-hosts\npid-file=\nbind-interfaces\n\
         listen-address=127.0.0.1\nport={}\nlocal=/test/\nlocal-ttl=300\naddn-hosts={}\n\
         cname=alias.test,plain.test\nlog-facility=-\n{}",
        address.port(),
        hosts_path.display(),
        // Otherwise it becomes somebody who may not read our folder.
        if is_root() { "user=root\n" } else { "" },
    );
    let path = folder.join("dnsmasq.conf");
    fs::write(&path, config).expect("writable");
    let path = path.to_str().expect("its path is text");
    let daemon = Daemon::start("dnsmasq", &["-C", path], folder, address)?;
    Some((daemon, address))
}

/// Each name once, with the last byte of its address.
fn addresses(web: &Web) -> impl Iterator<Item = (&'static str, u8)> {
    let mut all: Vec<_> = web
        .sites
        .iter()
        .map(|site| (site.name, site.address))
        .collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter()
}

fn is_root() -> bool {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}
