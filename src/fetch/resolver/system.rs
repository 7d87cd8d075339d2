//! Reads this machine's `/etc/resolv.conf` and `/etc/hosts`. The only file that uses `resolv-conf`.

use std::fs;
use std::net::{SocketAddr, SocketAddrV6};
use std::time::Duration;

use super::hosts::Hosts;
use super::settings::{DNS_PORT, ResolverSettings};

/// The settings in the two files of this machine.
///
/// An unreadable file counts as empty; the caller must report if no server is known.
pub fn read_settings() -> ResolverSettings {
    let read = |path| fs::read(path).unwrap_or_default();
    let mut settings = ResolverSettings::default();
    apply_resolv_conf(&read("/etc/resolv.conf"), &mut settings);
    settings.hosts = Hosts::parse(&String::from_utf8_lossy(&read("/etc/hosts")));
    settings
}

/// Applies a `resolv.conf(5)`: `nameserver`, `timeout`, `attempts` and `rotate`.
///
/// Search lists and `ndots` are ignored: every host in a URL is absolute. Invalid lines are
/// skipped, as in the C library. Values that equal the format's defaults (5 s, 2 attempts) count as
/// not set.
pub fn apply_resolv_conf(text: &[u8], settings: &mut ResolverSettings) {
    let (config, _unread) = resolv_conf::Config::parse_with_errors(text);
    settings.servers = config
        .nameservers
        .iter()
        .filter_map(server_address)
        .collect();
    let silent = resolv_conf::Config::new();
    if config.timeout != silent.timeout {
        let seconds = u64::from(config.timeout.clamp(1, SECONDS_MAX));
        settings.try_timeout = Duration::from_secs(seconds);
    }
    if config.attempts != silent.attempts {
        settings.attempts = config.attempts.clamp(1, ATTEMPTS_MAX);
    }
    settings.rotate = config.rotate;
}

/// A server with a zone that is not a number is skipped: only the kernel knows its index.
fn server_address(server: &resolv_conf::ScopedIp) -> Option<SocketAddr> {
    match server {
        resolv_conf::ScopedIp::V4(address) => Some((*address, DNS_PORT).into()),
        resolv_conf::ScopedIp::V6(address, None) => Some((*address, DNS_PORT).into()),
        resolv_conf::ScopedIp::V6(address, Some(zone)) => {
            let zone = zone.parse().ok()?;
            Some(SocketAddrV6::new(*address, DNS_PORT, 0, zone).into())
        }
    }
}

/// The limits of the C library (`RES_MAXRETRANS`, `RES_MAXRETRY`).
const SECONDS_MAX: u32 = 30;
const ATTEMPTS_MAX: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings_of(text: &str) -> ResolverSettings {
        let mut settings = ResolverSettings::default();
        apply_resolv_conf(text.as_bytes(), &mut settings);
        settings
    }

    #[test]
    fn resolv_conf_gives_servers_timeout_attempts_and_rotation() {
        let settings = settings_of(
            "# made by hand\nsearch example.com\nnameserver 192.0.2.1\nnameserver 2001:db8::1\n\
             nameserver fe80::1%3\noptions ndots:5 timeout:1 attempts:4 rotate\n",
        );
        let servers: Vec<String> = settings.servers.iter().map(|a| a.to_string()).collect();
        assert_eq!(
            servers,
            ["192.0.2.1:53", "[2001:db8::1]:53", "[fe80::1%3]:53"]
        );
        assert_eq!(settings.try_timeout, Duration::from_secs(1));
        assert_eq!(settings.attempts, 4);
        assert!(settings.rotate);
    }

    #[test]
    fn settings_missing_in_resolv_conf_are_unchanged() {
        let defaults = ResolverSettings::default();
        assert_eq!(settings_of(""), defaults);
        assert_eq!(settings_of("; nothing\n").attempts, defaults.attempts);
    }

    #[test]
    fn an_invalid_line_of_resolv_conf_is_skipped() {
        let text = "nameserver\nnameserver nonsense\noptions timeout:x\nnameserver 192.0.2.7\n";
        assert_eq!(settings_of(text).servers, ["192.0.2.7:53".parse().unwrap()]);
        let mut settings = ResolverSettings::default();
        apply_resolv_conf(b"nameserver 192.0.2.1\n\xff\xfe\n", &mut settings);
        assert_eq!(settings.servers.len(), 1);
    }
}
