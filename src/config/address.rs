//! Where a local service answers: `host:port`, or `unix:PATH`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The longest path of a unix socket: `sun_path` of unix(7), less its final zero byte.
const UNIX_PATH_MAX: usize = 107;

/// Where a local service answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IP address and port.
    Tcp(SocketAddr),
    /// A unix domain socket (`unix:PATH`).
    Unix(PathBuf),
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// `15000`, `127.0.0.1`.
    #[error("no port; write it like 127.0.0.1:15000")]
    NoPort,
    /// `127.0.0.1:0`, `127.0.0.1:http`.
    #[error("{0:?} is not a port; use 1 to 65535")]
    Port(String),
    /// `envoy:15000`.
    #[error("{0:?} is neither an IP address nor localhost; names are not looked up")]
    Name(String),
    /// `::1:15000`.
    #[error("an IPv6 address needs brackets; write it like [::1]:15000")]
    Brackets,
    /// `unix:envoy.sock`.
    #[error("a unix socket needs an absolute path of at most 107 bytes, like unix:/run/envoy.sock")]
    Path,
    /// `unix:...` for a service that never has one.
    #[error("only Envoy's admin can be a unix socket; this one listens on TCP, use host:port")]
    OnlyTcp,
}

/// Reads `host:port`, where the host is an IP address (IPv6 in brackets) or `localhost`, which is
/// 127.0.0.1, or `unix:PATH`.
///
/// # Errors
///
/// On anything else; names are never looked up.
pub fn parse(text: &str) -> Result<Address, AddressError> {
    match text.strip_prefix("unix:") {
        Some(path) if path.starts_with('/') && path.len() <= UNIX_PATH_MAX => {
            Ok(Address::Unix(PathBuf::from(path)))
        }
        Some(_) => Err(AddressError::Path),
        None => parse_host_port(text).map(Address::Tcp),
    }
}

/// Reads `host:port` for a service that never listens on a unix socket.
///
/// # Errors
///
/// As [`parse`], and on `unix:PATH`.
pub fn parse_tcp(text: &str) -> Result<Address, AddressError> {
    if text.starts_with("unix:") {
        return Err(AddressError::OnlyTcp);
    }
    parse_host_port(text).map(Address::Tcp)
}

fn parse_host_port(text: &str) -> Result<SocketAddr, AddressError> {
    let (host, port) = text.rsplit_once(':').ok_or(AddressError::NoPort)?;
    if host.ends_with(']') || !host.contains(':') {
        let ip = parse_host(host)?;
        // Digits alone: `u16::from_str` would also take `+80`.
        return match port.parse::<u16>() {
            Ok(number) if number > 0 && !port.starts_with('+') => Ok(SocketAddr::new(ip, number)),
            _ => Err(AddressError::Port(port.to_owned())),
        };
    }
    Err(if text.starts_with('[') {
        AddressError::NoPort
    } else {
        AddressError::Brackets
    })
}

fn parse_host(host: &str) -> Result<IpAddr, AddressError> {
    if host == "localhost" {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let ip = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(inner) => inner.parse().map(IpAddr::V6),
        None => host.parse().map(IpAddr::V4),
    };
    ip.map_err(|_| AddressError::Name(host.to_owned()))
}

impl fmt::Display for Address {
    /// As [`parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_addresses() {
        let table = [
            ("127.0.0.1:15000", "127.0.0.1:15000"),
            ("localhost:9090", "127.0.0.1:9090"),
            ("[::1]:15020", "[::1]:15020"),
            ("10.1.2.3:65535", "10.1.2.3:65535"),
        ];
        for (text, wanted) in table {
            let wanted = Address::Tcp(wanted.parse().unwrap());
            assert_eq!(parse(text), Ok(wanted.clone()), "{text}");
            assert_eq!(parse_tcp(text), Ok(wanted), "{text}");
        }
        assert_eq!(
            parse("unix:/run/envoy.sock"),
            Ok(Address::Unix(PathBuf::from("/run/envoy.sock")))
        );
    }

    #[test]
    fn refuses_the_rest_and_says_why() {
        use AddressError::*;
        let port = |text: &str| Port(text.to_owned());
        let name = |text: &str| Name(text.to_owned());
        let table = [
            ("", NoPort),
            ("15000", NoPort),
            ("127.0.0.1", NoPort),
            ("[::1]", NoPort),
            ("127.0.0.1:", port("")),
            ("127.0.0.1:0", port("0")),
            ("127.0.0.1:+80", port("+80")),
            ("127.0.0.1:65536", port("65536")),
            ("127.0.0.1:http", port("http")),
            (":15000", name("")),
            ("envoy:15000", name("envoy")),
            ("127.0.0:15000", name("127.0.0")),
            ("[127.0.0.1]:15000", name("[127.0.0.1]")),
            ("::1:15000", Brackets),
            ("http://127.0.0.1:15000", Brackets),
            ("unix:", Path),
            ("unix:envoy.sock", Path),
        ];
        for (text, error) in table {
            assert_eq!(parse(text), Err(error), "{text}");
        }
        let long = format!("unix:/{}", "x".repeat(UNIX_PATH_MAX));
        assert_eq!(parse(&long), Err(Path));
        assert_eq!(parse_tcp("unix:/run/agent.sock"), Err(OnlyTcp));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(ip: IpAddr, port in 1..=u16::MAX) {
            let address = Address::Tcp(SocketAddr::new(ip, port));
            prop_assert_eq!(parse(&address.to_string()), Ok(address));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,24}|[\\[\\]:.0-9a-f]{0,24}") {
            let _ = parse(&text);
        }
    }
}
