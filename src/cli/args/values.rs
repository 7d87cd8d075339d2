//! Values of flags that set no setting: numbers and addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A whole number of at least `MIN`.
pub fn count<T, const MIN: u64>(text: &str) -> Result<T, String>
where
    T: TryFrom<u64>,
{
    let text = text.trim();
    let is_held = |most: &u64| T::try_from(*most).is_ok();
    let most = [u64::MAX, u32::MAX.into()].into_iter().find(is_held);
    let most = most.unwrap_or(u16::MAX.into());
    let what = match text.parse::<u64>() {
        Ok(number) if number >= MIN => match T::try_from(number) {
            Ok(number) => return Ok(number),
            Err(_) => "too large",
        },
        Ok(_) => "too small",
        Err(_) if text.bytes().all(|byte| byte.is_ascii_digit()) => "too large",
        Err(_) if text.parse::<f64>().is_ok_and(|number| number < 0.0) => "negative",
        Err(_) => "not a whole number",
    };
    Err(format!("{what}; give a whole number from {MIN} to {most}"))
}

/// An address with a port to listen at. `localhost` is the address that every machine has.
pub fn listening(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = match text.rsplit_once(':') {
        // An IPv6 address without brackets has no port.
        _ if text.parse::<Ipv6Addr>().is_ok() => (text, ""),
        Some((host, port)) => (host, port),
        None if is_number(text) => ("", text),
        None => (text, ""),
    };
    let is_local = host.eq_ignore_ascii_case("localhost");
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = match bare.parse::<IpAddr>() {
        Ok(address) => address,
        Err(_) => Ipv4Addr::LOCALHOST.into(),
    };
    let number = match port {
        "" => Ok(PORT),
        port => port.parse::<u16>(),
    };
    if let (true, Ok(port), false) = (is_local, &number, port.is_empty()) {
        return Ok((address, *port).into());
    }
    let what = match (&number, port) {
        (Err(_), port) if is_number(port) => "a port is a number from 0 to 65535",
        (Err(_), _) => "not an address with a port",
        (Ok(_), _) if !is_local && !host.is_empty() && bare.parse::<IpAddr>().is_err() => {
            "a name, where an address of this machine is expected"
        }
        (Ok(_), "") => "without a port",
        (Ok(_), _) => "without an address",
    };
    let port = number.unwrap_or(PORT);
    Err(format!(
        "{what}; write --admin {}",
        SocketAddr::from((address, port))
    ))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The port of examples.
const PORT: u16 = 9115;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_refused_with_its_range() {
        let check = |text: &str, expected: &str| {
            let error = count::<u32, 1>(text).expect_err(text);
            assert_eq!(
                error,
                format!("{expected}; give a whole number from 1 to 4294967295")
            );
        };
        assert_eq!(count::<u32, 1>("7"), Ok(7));
        assert_eq!(count::<u64, 0>("18446744073709551615"), Ok(u64::MAX));
        check("0", "too small");
        check("-1", "negative");
        check("4294967296", "too large");
        check("99999999999999999999", "too large");
        check("1e9", "not a whole number");
        check("1.5", "not a whole number");
        check("x", "not a whole number");
    }

    #[test]
    fn an_address_to_listen_at_has_a_number_and_a_port() {
        let check = |text: &str, what: &str, instead: &str| {
            let error = listening(text).expect_err(text);
            assert_eq!(error, format!("{what}; write --admin {instead}"), "{text}");
            assert!(listening(instead).is_ok(), "{instead}");
        };
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 9000));
        assert_eq!(listening("127.0.0.1:9000"), Ok(local));
        assert_eq!(listening("localhost:9000"), Ok(local));
        assert_eq!(listening("LocalHost:9000"), Ok(local));
        assert!(listening("[::1]:9000").is_ok());
        check("9000", "without an address", "127.0.0.1:9000");
        check(":9000", "without an address", "127.0.0.1:9000");
        check("localhost", "without a port", "127.0.0.1:9115");
        check("10.0.0.1", "without a port", "10.0.0.1:9115");
        check("::1", "without a port", "[::1]:9115");
        let name = "a name, where an address of this machine is expected";
        check("host.test:9000", name, "127.0.0.1:9000");
        check("host.test", name, "127.0.0.1:9115");
        let range = "a port is a number from 0 to 65535";
        check("127.0.0.1:99999", range, "127.0.0.1:9115");
        check("localhost:99999", range, "127.0.0.1:9115");
        check(
            "127.0.0.1:http",
            "not an address with a port",
            "127.0.0.1:9115",
        );
        check("http://127.0.0.1:9000", name, "127.0.0.1:9000");
    }
}
