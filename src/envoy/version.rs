//! What Envoy is (`GET /server_info`), and how a drain is asked of that version.

use std::fmt;

use serde::Deserialize;

/// Refuses new inbound connections at once; every version knows it.
pub const DOOR_PATH: &str = "/drain_listeners?inboundonly";

/// Ends Envoy at once, whatever is in flight.
pub const QUIT_PATH: &str = "/quitquitquit";

/// Asks inbound clients to leave, and refuses nobody for as long as Envoy lives.
const DRAIN_INBOUND_PATH: &str = "/drain_listeners?inboundonly&graceful&skip_exit";

/// Answers `connection: close` in every direction, refuses nobody, and turns `/ready` 503.
const FAIL_PATH: &str = "/healthcheck/fail";

/// Before this Envoy ignores `skip_exit`, and closes the listeners when its drain time is over
/// (envoy#30003).
const SKIP_EXIT_SINCE: Version = Version::new(1, 29, 0);

/// Before this a graceful drain marks outbound responses too (envoy#35020, mended by envoy#38430).
const INBOUND_ALONE_SINCE: Version = Version::new(1, 34, 0);

/// A version of Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// 1, so far.
    pub major: u32,
    /// Four new ones a year.
    pub minor: u32,
    /// Fixes.
    pub patch: u32,
}

impl Version {
    /// A version from its numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Version {
        Version {
            major,
            minor,
            patch,
        }
    }

    /// Parses `1.40.0`, `1.30.2-dev`, `1.29`.
    fn parse(text: &str) -> Option<Version> {
        let numbers = text.split(['-', '+']).next()?;
        let mut parts = numbers.split('.').map(|part| part.parse().ok());
        let major = parts.next()??;
        let minor = parts.next()??;
        let patch = parts.next().unwrap_or(Some(0))?;
        Some(Version::new(major, minor, patch))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What `/server_info` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The version.
    pub version: Version,
    /// Where Envoy is in its life.
    pub state: State,
}

/// Where Envoy is in its life. `drain_listeners` does not change it; `healthcheck/fail` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// Serving. Also where it is left out, as protobuf's JSON does with a first value.
    #[default]
    Live,
    /// Its health check has been failed.
    Draining,
    /// Waiting for its clusters' first configuration.
    PreInitializing,
    /// Warming up.
    Initializing,
    /// A state of a newer Envoy.
    #[serde(other)]
    Other,
}

/// Parses the answer to `/server_info`; `None` where it is not Envoy's.
pub fn parse_server_info(answer: &[u8]) -> Option<ServerInfo> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        /// `COMMIT/1.40.0/Clean/RELEASE/BoringSSL`
        #[serde(borrow)]
        version: std::borrow::Cow<'a, str>,
        #[serde(default)]
        state: State,
    }
    let answer: Answer<'_> = serde_json::from_slice(answer).ok()?;
    let version = Version::parse(answer.version.split('/').nth(1)?)?;
    Some(ServerInfo {
        version,
        state: answer.state,
    })
}

/// How an Envoy is asked to drain inbound politely. An unknown version is taken for an old one,
/// since what every version knows cannot close a listener by surprise.
pub fn drain_path(version: Option<Version>) -> &'static str {
    match version {
        Some(version) if version >= SKIP_EXIT_SINCE => DRAIN_INBOUND_PATH,
        _ => FAIL_PATH,
    }
}

/// Whether [`drain_path`] makes this Envoy send `connection: close` on outbound traffic too: the
/// workload's own clients then reconnect for every request, but lose none.
pub fn outbound_notified(version: Option<Version>) -> bool {
    version.is_none_or(|version| version < INBOUND_ALONE_SINCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn info(version: &str, rest: &str) -> Option<ServerInfo> {
        parse_server_info(format!(r#"{{"version":"{version}"{rest}}}"#).as_bytes())
    }

    #[test]
    fn versions_as_envoys_and_istios_builds_write_them() {
        let real = "9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL";
        for (text, expected) in [
            (real, Some((1, 40, 0))),
            ("sha/1.30.2-dev/Clean/RELEASE/BoringSSL", Some((1, 30, 2))),
            ("sha/1.26.8+ossm.3/Modified/DEBUG/OpenSSL", Some((1, 26, 8))),
            ("sha/1.29/Clean", Some((1, 29, 0))),
            ("1.29.0", None),
            ("sha/x.29.0/Clean", None),
            ("sha/1./Clean", None),
            ("sha//Clean", None),
            ("", None),
        ] {
            let found = info(text, "").map(|info| info.version);
            let expected = expected.map(|(major, minor, patch)| Version::new(major, minor, patch));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn states() {
        for (rest, expected) in [
            ("", State::Live),
            (r#","state":"LIVE""#, State::Live),
            (
                r#","state":"DRAINING","uptime_all_epochs":"4s""#,
                State::Draining,
            ),
            (r#","state":"PRE_INITIALIZING""#, State::PreInitializing),
            (r#","state":"INITIALIZING""#, State::Initializing),
            (r#","state":"RESTING""#, State::Other),
        ] {
            assert_eq!(
                info("s/1.40.0/", rest).map(|info| info.state),
                Some(expected),
                "{rest}"
            );
        }
    }

    #[test]
    fn answers_that_are_not_envoys() {
        for answer in [
            "",
            "{}",
            "[]",
            "OK\n",
            "null",
            r#"{"version":1}"#,
            r#"{"version":"a/1.40.0/""#,
        ] {
            assert_eq!(parse_server_info(answer.as_bytes()), None, "{answer}");
        }
    }

    #[test]
    fn paths_by_version() {
        let graceful = "/drain_listeners?inboundonly&graceful&skip_exit";
        for (version, path, outbound) in [
            (None, "/healthcheck/fail", true),
            (Some((1, 9, 9)), "/healthcheck/fail", true),
            (Some((1, 28, 7)), "/healthcheck/fail", true),
            (Some((1, 29, 0)), graceful, true),
            (Some((1, 33, 9)), graceful, true),
            (Some((1, 34, 0)), graceful, false),
            (Some((1, 40, 0)), graceful, false),
            (Some((2, 0, 0)), graceful, false),
        ] {
            let version = version.map(|(major, minor, patch)| Version::new(major, minor, patch));
            assert_eq!(drain_path(version), path, "{version:?}");
            assert_eq!(outbound_notified(version), outbound, "{version:?}");
        }
    }

    proptest! {
        #[test]
        fn every_version_is_read_back(major: u32, minor: u32, patch: u32) {
            let version = Version::new(major, minor, patch);
            let found = info(&format!("sha/{version}/Clean/RELEASE/BoringSSL"), "");
            prop_assert_eq!(found.map(|info| info.version), Some(version));
        }

        #[test]
        fn garbage_never_panics(answer: Vec<u8>, text in ".{0,40}") {
            let _ = parse_server_info(&answer);
            let _ = info(&text, "");
        }
    }
}
