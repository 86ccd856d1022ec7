//! Envoy's gauge of upgraded connections that came in: what queue-proxy would cut on an HTTP/1
//! revision.
//!
//! A default istio-proxy hides it, so that injection asks for it by an annotation (`STAT`).

use crate::inflight::{Cause, EnvoyUpgrades, Reading};

/// The gauge's name, behind the prefix of its listener.
const STAT: &str = ".downstream_cx_upgrades_active";

/// What the inbound listeners' names begin with: Istio's `StatPrefix` of
/// pilot/pkg/networking/core/listener_inbound.go, the second for ports that no Service names.
const INBOUND: [&str; 2] = ["http.inbound_", "http.InboundPassthroughCluster"];

/// Matches the names of exactly these gauges, for Istio's annotation
/// `sidecar.istio.io/statsInclusionRegexps`: no comma, which would part it in two, and no backslash.
pub const STAT_REGEXP: &str =
    "http[.](inbound_|InboundPassthroughCluster).*[.]downstream_cx_upgrades_active";

/// Parses Envoy's list of stats, a line each, `NAME: VALUE`. Lines about other stats are skipped;
/// where none is about an inbound listener's upgrades, they are hidden.
pub fn parse(reply: &[u8]) -> Reading<EnvoyUpgrades> {
    let mut sum: Option<u64> = None;
    for line in reply.split(|byte| *byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else {
            return Reading::Unknown(Cause::Malformed);
        };
        // The name may hold colons, of an IPv6 address, but no blank.
        let Some((name, value)) = line.rsplit_once(": ") else {
            continue;
        };
        if !name.ends_with(STAT) || !INBOUND.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let total = value
            .trim_end()
            .parse()
            .ok()
            .and_then(|value| sum.unwrap_or(0).checked_add(value));
        if total.is_none() {
            return Reading::Unknown(Cause::Malformed);
        }
        sum = total;
    }
    match sum {
        Some(active) => Reading::Known(EnvoyUpgrades { active }),
        None => Reading::Unknown(Cause::Hidden),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(active: u64) -> Reading<EnvoyUpgrades> {
        Reading::Known(EnvoyUpgrades { active })
    }

    #[test]
    fn inbound_listeners_are_summed_and_no_others() {
        let reply = b"http.InboundPassthroughCluster;.downstream_cx_upgrades_active: 1\n\
            http.inbound_0.0.0.0_8012;.downstream_cx_upgrades_active: 2\n\
            http.inbound_[::]_8112;.downstream_cx_upgrades_active: 4\n\
            http.inbound_0.0.0.0_8012;.downstream_cx_upgrades_total: 8\n\
            http.outbound_0.0.0.0_80;.downstream_cx_upgrades_active: 16\n\
            http.admin.downstream_cx_upgrades_active: 32\n";
        assert_eq!(parse(reply), known(7));
        assert_eq!(
            parse(b"http.inbound_0.0.0.0_8012;.downstream_cx_upgrades_active: 0\n"),
            known(0)
        );
    }

    #[test]
    fn what_is_not_there_is_hidden_and_never_zero() {
        let outbound = b"http.outbound_0.0.0.0_80;.downstream_cx_upgrades_active: 0\n";
        for reply in [&b""[..], b"\n", outbound] {
            assert_eq!(parse(reply), Reading::Unknown(Cause::Hidden));
        }
    }

    #[test]
    fn what_is_no_count_is_not_believed() {
        for value in ["", "-1", "x", "18446744073709551616", "1 2"] {
            let line =
                format!("http.inbound_0.0.0.0_8012;.downstream_cx_upgrades_active: {value}\n");
            assert_eq!(
                parse(line.as_bytes()),
                Reading::Unknown(Cause::Malformed),
                "{value}"
            );
        }
        assert_eq!(parse(b"\xff: 1\n"), Reading::Unknown(Cause::Malformed));
    }

    #[test]
    fn istio_can_be_told_the_regular_expression() {
        assert!(!STAT_REGEXP.contains([',', '\\', '"', '{']));
    }
}
