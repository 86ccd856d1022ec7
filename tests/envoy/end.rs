//! What is known of a pod once it is gone: the kubelet's timeline, the sidecar's log and report, its
//! calls to Envoy.

use std::path::Path;
use std::time::Duration;

use tidegate::drain::Phase;
use tidegate::drain::record::{REPORT_MAX, Report};
use tidegate::standin::How;
use tidegate::standin::kubelet::{Event, What};
use tokio::time::Instant;

use crate::pod::{PROXY, QUEUE, TIDEGATE, USER};
use crate::sidecar::{Line, logged_report};
use crate::tap::Call;

/// The end of a pod.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) deleted: Instant,
    pub(crate) timeline: Vec<Event>,
    pub(crate) log: Vec<Line>,
    pub(crate) report: Report,
    /// The report as it was logged.
    pub(crate) report_text: String,
    /// The sidecar's requests to Envoy's admin.
    pub(crate) calls: Vec<Call>,
}

impl End {
    /// Gathers it, and checks what holds of every drain: every log line is JSON, the report is short,
    /// the same in the log and in its file, and its phases are in order.
    pub(crate) fn new(
        deleted: Instant,
        timeline: Vec<Event>,
        log: Vec<Line>,
        report_file: &Path,
        calls: Vec<Call>,
    ) -> End {
        let mut happened: Vec<(Instant, String)> = Vec::new();
        happened.extend(
            timeline
                .iter()
                .map(|it| (it.at, format!("{}: {:?}", it.container, it.what))),
        );
        let posts = calls.iter().filter(|call| call.what.starts_with("POST"));
        happened.extend(posts.map(|call| (call.at, format!("Envoy got {}", call.what))));
        happened.sort_by_key(|(at, _)| *at);
        for (at, what) in happened {
            let after = at.saturating_duration_since(deleted).as_secs_f64();
            println!("{after:8.3} s  {what}");
        }

        assert!(log.iter().all(|line| line.json.is_object()), "{log:?}");
        let (report_text, report) = logged_report(&log);
        assert!(report_text.len() <= REPORT_MAX, "{report_text}");
        let file = std::fs::read_to_string(report_file).expect("the report's file was written");
        assert_eq!(file, report_text, "the report in the file and in the log");
        let names: Vec<&str> = Phase::ALL.iter().map(|phase| phase.name()).collect();
        let places = report.phases.iter().map(|it| {
            let place = names.iter().position(|name| *name == it.phase);
            place.unwrap_or_else(|| panic!("no phase is called {}", it.phase))
        });
        assert!(places.is_sorted_by(|a, b| a < b), "{:?}", report.phases);
        assert!(
            report.phases.is_sorted_by(|a, b| a.at <= b.at),
            "{:?}",
            report.phases
        );
        End {
            deleted,
            timeline,
            log,
            report,
            report_text,
            calls,
        }
    }

    /// Checks that the drain ended because all was done, and that nobody was killed.
    pub(crate) fn assert_drained(&self) {
        assert_eq!(self.report.outcome, "drained", "{}", self.report_text);
        assert_eq!(self.report.cut, 0, "{}", self.report_text);
        self.assert_orderly();
    }

    /// Checks that every hook succeeded, that nobody was killed, and that the sidecar exited with 0.
    pub(crate) fn assert_orderly(&self) {
        for event in &self.timeline {
            let bad = matches!(
                event.what,
                What::HookFailed(_)
                    | What::HookAbandoned
                    | What::Killed
                    | What::Exited(How::Killed)
            );
            assert!(!bad, "{event:?}");
        }
        let exit = self.timeline.iter().find_map(|event| match event.what {
            What::Exited(how) if event.container == TIDEGATE => Some(how),
            _ => None,
        });
        assert_eq!(exit, Some(How::Exited(0)));
    }

    /// From the deletion until the last container had ended.
    pub(crate) fn lasted(&self) -> Duration {
        let ends = self.timeline.iter().map(|event| event.at);
        ends.max().expect("containers have ended") - self.deleted
    }

    /// When a container's hook was answered; panics where it was not.
    pub(crate) fn hook_ended(&self, container: &str) -> Instant {
        self.at(container, |what| *what == What::HookEnded)
    }

    /// When a container got SIGTERM; panics where it did not.
    pub(crate) fn sigterm(&self, container: &str) -> Instant {
        self.at(container, |what| *what == What::Sigterm)
    }

    /// When a container ended.
    pub(crate) fn exited(&self, container: &str) -> Instant {
        self.at(container, |what| matches!(what, What::Exited(_)))
    }

    /// When the workload was gone: queue-proxy and the user container.
    pub(crate) fn workload_gone(&self) -> Instant {
        self.exited(QUEUE).max(self.exited(USER))
    }

    fn at(&self, container: &str, is_it: impl Fn(&What) -> bool) -> Instant {
        let mut events = self.timeline.iter();
        let found = events.find(|event| event.container == container && is_it(&event.what));
        found
            .unwrap_or_else(|| panic!("nothing like it of {container}: {:?}", self.timeline))
            .at
    }

    /// The POSTs that the sidecar sent to Envoy, in order, each once.
    pub(crate) fn posts(&self) -> Vec<&str> {
        let mut posts: Vec<&str> = self
            .calls
            .iter()
            .filter_map(|call| call.what.strip_prefix("POST "))
            .collect();
        posts.dedup();
        posts
    }

    /// Checks that the user container was released, and istio-proxy ended, when they may be:
    /// everything that `last_byte` tells the end of was over, and the workload gone.
    pub(crate) fn assert_released_after(&self, last_byte: Instant) {
        assert!(
            self.hook_ended(USER) > last_byte,
            "released while a request was in flight"
        );
        assert!(
            self.exited(PROXY) > self.workload_gone(),
            "istio-proxy ended before the workload"
        );
    }

    /// Prints how long the release took, for whoever gathers such times.
    pub(crate) fn print_times(&self, last_byte: Instant) {
        let hook = self.hook_ended(USER).saturating_duration_since(last_byte);
        println!(
            "measured: last byte to hook answered: {} ms",
            hook.as_millis()
        );
        let waits = |it: &Event| it.container == PROXY && it.what == What::HookEnded;
        if self.timeline.iter().any(waits) {
            let gone = self.workload_gone();
            let released = self.hook_ended(PROXY).saturating_duration_since(gone);
            println!(
                "measured: workload gone to istio-proxy released: {} ms",
                released.as_millis()
            );
        }
    }
}
