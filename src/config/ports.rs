//! Ports: which one the hooks may have, and lists of them.

/// Why a port, or a list of ports, cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// `http`, `0`, `65536`.
    #[error("{0:?} is not a port; use 1 to 65535")]
    NotAPort(String),
    /// Another party of the pod listens there.
    #[error("port {port} is {owner}; use another, the default is 18022")]
    Taken {
        /// The port.
        port: u16,
        /// Whose it is.
        owner: &'static str,
    },
    /// `,`.
    #[error("an empty list; write ports with commas between, like 8012,8022,8080")]
    Empty,
    /// `8012`, `8012:8012`.
    #[error("{0:?} is not a port and where it leads; write two different ones, like 8012:18012")]
    NotAPair(String),
    /// `8012:1,8012:2`, `8012:8013,8013:1`.
    #[error(
        "port {0} listens twice; give the gate each port once, and lead none to the gate itself"
    )]
    Twice(u16),
}

/// A port of the gate, and where it leads: another of the pod's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GatePort {
    /// Where the gate listens.
    pub listen: u16,
    /// Where queue-proxy, or whoever serves, listens.
    pub upstream: u16,
}

/// Reads the port of the hooks.
///
/// # Errors
///
/// On what is no port, and on the ports of Istio and of Knative's queue-proxy.
pub fn hook_port(text: &str) -> Result<u16, PortError> {
    let port = port(text)?;
    match owner(port) {
        Some(owner) => Err(PortError::Taken { port, owner }),
        None => Ok(port),
    }
}

/// Reads a list of ports, with commas between; each comes out once, in the order written.
///
/// # Errors
///
/// On what is no port, and on a list without any.
pub fn list(text: &str) -> Result<Vec<u16>, PortError> {
    let mut ports = Vec::new();
    for item in text
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
    {
        let port = port(item)?;
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    if ports.is_empty() {
        return Err(PortError::Empty);
    }
    Ok(ports)
}

/// Reads the gate's ports, `LISTEN:UPSTREAM` with commas between; none of an empty text.
///
/// # Errors
///
/// On what is no pair of ports, and where two servers would have the same port.
pub fn gate(text: &str) -> Result<Vec<GatePort>, PortError> {
    let items = text.split(',').map(str::trim);
    let mut ports: Vec<GatePort> = Vec::new();
    for item in items.filter(|item| !item.is_empty()) {
        let not_a_pair = || PortError::NotAPair(item.to_owned());
        let (listen, upstream) = item.split_once(':').ok_or_else(not_a_pair)?;
        let (listen, upstream) = (port(listen.trim())?, port(upstream.trim())?);
        if listen == upstream {
            return Err(not_a_pair());
        }
        let clash = |other: &GatePort| other.listen == listen || other.upstream == listen;
        if ports.iter().any(clash) {
            return Err(PortError::Twice(listen));
        }
        if ports.iter().any(|other| other.listen == upstream) {
            return Err(PortError::Twice(upstream));
        }
        ports.push(GatePort { listen, upstream });
    }
    Ok(ports)
}

fn port(text: &str) -> Result<u16, PortError> {
    match text.parse::<u16>() {
        // Digits alone: `u16::from_str` would also take `+80`.
        Ok(number) if number > 0 && !text.starts_with('+') => Ok(number),
        _ => Err(PortError::NotAPort(text.to_owned())),
    }
}

/// Whose a port is. Knative: pkg/networking/constants.go and the revision validation's reserved
/// ports; Istio keeps 150xx to itself.
fn owner(port: u16) -> Option<&'static str> {
    match port {
        15000..=15099 => Some("Istio's (150xx)"),
        8008 => Some("queue-proxy's profiling port"),
        8012 => Some("queue-proxy's HTTP port"),
        8013 => Some("queue-proxy's h2c port"),
        8022 => Some("queue-proxy's admin port"),
        8112 => Some("queue-proxy's TLS port"),
        9090 => Some("queue-proxy's autoscaling metrics port"),
        9091 => Some("queue-proxy's user metrics port"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hooks_may_not_have_anothers_port() {
        assert_eq!(hook_port("18022"), Ok(18022));
        assert_eq!(hook_port("14999"), Ok(14999));
        assert_eq!(hook_port("15100"), Ok(15100));
        let istio = ["15000", "15020", "15099"];
        let knative = ["8008", "8012", "8013", "8022", "8112", "9090", "9091"];
        for (ports, owner) in [(&istio[..], "Istio"), (&knative[..], "queue-proxy")] {
            for text in ports {
                let error = hook_port(text).map_err(|error| error.to_string());
                let error = error.expect_err(text);
                assert!(error.contains(text) && error.contains(owner), "{error}");
            }
        }
    }

    #[test]
    fn what_is_no_port_is_refused() {
        for text in ["", "0", "-1", "+80", "65536", "http", "80 80", "1e3"] {
            let wanted = Err(PortError::NotAPort(text.to_owned()));
            assert_eq!(hook_port(text), wanted);
        }
        assert_eq!(list("80,http"), Err(PortError::NotAPort("http".to_owned())));
        assert_eq!(list("80,0"), Err(PortError::NotAPort("0".to_owned())));
        assert_eq!(list(""), Err(PortError::Empty));
        assert_eq!(list(" , "), Err(PortError::Empty));
    }

    #[test]
    fn a_gate_leads_each_of_its_ports_elsewhere() {
        let pair = |listen, upstream| GatePort { listen, upstream };
        assert_eq!(gate(""), Ok(vec![]));
        let two = Ok(vec![pair(8012, 18012), pair(8112, 18012)]);
        assert_eq!(gate(" 8012:18012, 8112 : 18012,"), two);
        for text in ["8012", "8012:8012", "8012:"] {
            assert!(gate(text).is_err(), "{text}");
        }
        assert_eq!(gate("8012:0"), Err(PortError::NotAPort("0".to_owned())));
        for text in ["8012:1,8012:2", "8013:1,8012:8013", "8012:8013,8013:1"] {
            assert!(matches!(gate(text), Err(PortError::Twice(_))), "{text}");
        }
    }

    #[test]
    fn a_list_keeps_its_order_and_loses_its_doubles() {
        assert_eq!(list("9090, 8012,9090,,8022"), Ok(vec![9090, 8012, 8022]));
        assert_eq!(list("8080"), Ok(vec![8080]));
    }
}
