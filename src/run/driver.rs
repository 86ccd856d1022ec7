//! The driver: the one loop between the state machine and the world.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::calls::Caller;
use super::{Ending, Gate, in_path, poll, settings};
use crate::config::{Config, DEFAULT_REPORT_PATH};
use crate::drain::ledger::Load;
use crate::drain::record::Recorder;
use crate::drain::{
    Action, Call, CallResult, Event, HookId, Machine, Now, Phase, Polling, Trigger,
};
use crate::envoy::http::CallError;
use crate::envoy::version::Version;
use crate::hooks::{Board, Notice};
use crate::metrics::Metrics;
use crate::signals::{Signal, Signals};

/// Inputs that may wait for the driver.
const INPUTS: usize = 64;

/// How long no source can be read before that is worth a line of the log.
const BLIND: Duration = Duration::from_secs(3);

/// What the tasks tell the driver.
pub(super) enum Input {
    Event(Event),
    Called {
        call: Call,
        result: CallResult,
    },
    CallFailed {
        call: Call,
        error: CallError,
    },
    Mesh {
        present: bool,
        version: Option<Version>,
    },
}

/// The state machine and all that it acts on.
pub(super) struct Driver {
    began: Instant,
    machine: Machine,
    /// When the machine was told something last.
    stepped: Now,
    recorder: Recorder,
    metrics: Arc<Metrics>,
    waiters: BTreeMap<HookId, oneshot::Sender<()>>,
    board: watch::Sender<Board>,
    phase: watch::Sender<Phase>,
    pace: watch::Sender<Polling>,
    gate: Option<Arc<dyn Gate>>,
    caller: Caller,
    last_error: BTreeMap<Call, CallError>,
    tasks: JoinSet<()>,
    inputs: mpsc::Receiver<Input>,
    report_path: Option<PathBuf>,
    triggered: Option<Now>,
    late: u64,
    blind_since: Option<Now>,
    warned_blind: bool,
}

impl Driver {
    pub(super) fn new(
        config: &Config,
        gate: Option<Arc<dyn Gate>>,
        metrics: Arc<Metrics>,
        board: watch::Sender<Board>,
        phase: watch::Sender<Phase>,
    ) -> Driver {
        let (inputs_to, inputs) = mpsc::channel(INPUTS);
        let (pace, pace_of) = watch::channel(Polling::default());
        let mut tasks = JoinSet::new();
        poll::spawn(config, &pace_of, &inputs_to, &mut tasks);
        if let Some(gate) = gate.clone() {
            in_path::watch_idle(gate, pace_of, inputs_to.clone(), &mut tasks);
        }
        let pod = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let mut driver = Driver {
            began: Instant::now(),
            machine: Machine::new(settings(config)),
            stepped: Now::ZERO,
            recorder: Recorder::new(&pod),
            metrics,
            waiters: BTreeMap::new(),
            board,
            phase,
            pace,
            gate,
            caller: Caller::new(config, inputs_to),
            last_error: BTreeMap::new(),
            tasks,
            inputs,
            report_path: report_path(config),
            triggered: None,
            late: 0,
            blind_since: None,
            warned_blind: false,
        };
        driver.metrics.set_phase(Phase::Serving);
        driver.publish(Now::ZERO);
        driver
    }

    /// Runs until the machine says that all is over, or until SIGINT.
    pub(super) async fn run(
        mut self,
        mut signals: Signals,
        mut notices: mpsc::Receiver<Notice>,
    ) -> Ending {
        tracing::info!(
            phase = Phase::Serving.name(),
            mode = self.machine.mode().name(),
            version = env!("CARGO_PKG_VERSION"),
            "serving"
        );
        let mut signals_open = true;
        loop {
            // As of the last step: a timer that has come due since then has not been acted on.
            let timer = self.machine.next_timer(self.stepped);
            let timer = timer.map(|at| self.began + at);
            tokio::select! {
                // What ends or begins a drain goes first. Looks and calls go before the hooks: they
                // come at a pace of our own, whereas anybody may open hooks without end.
                biased;
                signal = signals.next(), if signals_open => match signal {
                    Some(Signal::Terminate) => {
                        // The kubelet sends it behind our own preStop, which may wait here still.
                        for _ in 0..notices.len() {
                            if let Ok(notice) = notices.try_recv() {
                                self.notice(notice);
                            }
                        }
                        self.step(Event::Trigger(Trigger::Sigterm));
                    }
                    Some(Signal::Interrupt) => return self.end(true),
                    None => signals_open = false,
                },
                Some(input) = self.inputs.recv() => self.input(input),
                Some(notice) = notices.recv() => self.notice(notice),
                () = at(timer) => self.step(Event::Tick),
            }
            if self.machine.phase() == Phase::Done {
                return self.end(false);
            }
        }
    }

    fn now(&self) -> Now {
        self.began.elapsed()
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Opened {
                hook,
                container,
                answer,
            } => {
                self.waiters.insert(hook, answer);
                tracing::debug!(hook = hook.0, container, "hook opened");
                let queue_proxy = container == "queue-proxy";
                self.step(Event::HookOpened { hook, queue_proxy });
            }
            Notice::Closed { hook } => {
                self.waiters.remove(&hook);
                self.step(Event::HookClosed { hook });
            }
            Notice::Drain => self.step(Event::Trigger(Trigger::PreStop)),
            Notice::ReleasedPolled { released } => self.step(Event::ReleasedPolled { released }),
        }
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::Event(event) => self.step(event),
            Input::Called { call, result } => {
                self.metrics.admin_call(call, result);
                self.caller.ended(call);
                match (call, result) {
                    (Call::DrainAgent, CallResult::Done) => self.recorder.agent("drain"),
                    (Call::DrainAgent, CallResult::Unsupported) => self.recorder.agent("no-drain"),
                    (Call::DrainAgent, CallResult::Gone) => self.recorder.agent("gone"),
                    _ => {}
                }
                self.step(Event::Called { call, result });
            }
            Input::CallFailed { call, error } => {
                if self.last_error.insert(call, error) != Some(error) {
                    tracing::warn!(call = call.name(), %error, "call failed");
                }
                self.metrics.admin_call(call, CallResult::Failed);
            }
            Input::Mesh { present, version } => {
                if let Some(version) = version {
                    self.recorder.envoy_version(&version.to_string());
                }
                self.step(Event::Mesh { present });
            }
        }
    }

    fn step(&mut self, event: Event) {
        let now = self.now();
        self.stepped = now;
        self.recorder.saw(now, &event);
        if let Some((source, in_flight)) = event.look() {
            self.metrics.set_in_flight(source, in_flight);
        }
        if matches!(event, Event::Trigger(_)) && self.triggered.is_none() {
            self.triggered = Some(now);
            self.caller.find_mesh(&mut self.tasks);
        }
        let before = self.machine.phase();
        let held_before = self.machine.queue_proxy_held();
        for action in self.machine.step(now, event) {
            self.recorder.did(now, &action);
            self.act(now, action);
        }
        while self.tasks.try_join_next().is_some() {}
        self.publish(now);
        self.warn_if_blind(now);
        let held = self.machine.queue_proxy_held();
        if held != held_before {
            tracing::info!(
                held,
                "queue-proxy is held while streams are open that it would cut"
            );
        }
        if self.machine.phase() != before {
            self.write_report(now);
        }
    }

    /// A drain that nobody can see ends only at its deadline; its owner should know why.
    fn warn_if_blind(&mut self, now: Now) {
        let blind = self.machine.phase() == Phase::Draining && self.machine.load() == Load::Unknown;
        if !blind {
            self.blind_since = None;
            return;
        }
        let since = *self.blind_since.get_or_insert(now);
        if !self.warned_blind && now.saturating_sub(since) >= BLIND {
            self.warned_blind = true;
            tracing::warn!(
                "neither Envoy nor queue-proxy can be read and no workload port listens: holding \
                 until the deadline; check tidegate.dev/workload-ports, envoy-admin and queue-metrics"
            );
        }
    }

    fn act(&mut self, now: Now, action: Action) {
        match action {
            Action::Answer(hook) => {
                if let Some(answer) = self.waiters.remove(&hook) {
                    // A waiter that has just hung up needs no answer.
                    let _ = answer.send(());
                }
            }
            Action::Entered(phase) => self.entered(now, phase),
            Action::Begin(call) => self.caller.begin(call, &mut self.tasks),
            Action::Abandon(call) => {
                if self.caller.abandon(call) {
                    let error = self.last_error.get(&call);
                    let reason = error.map_or("no answer yet", |error| error.name());
                    self.recorder.failed(call, reason);
                }
            }
            Action::Gate(stage) => {
                if let Some(gate) = &self.gate {
                    gate.stage(stage);
                }
            }
            Action::CloseGate => {
                // Without one there is nothing to admit.
                let closed = self.gate.as_ref().is_none_or(|gate| gate.close_if_idle());
                self.step(Event::GateClosed { closed });
                if let Some(gate) = self.gate.as_ref().filter(|_| !closed) {
                    let look = gate.look();
                    self.step(Event::Gate(look));
                }
            }
            Action::WorkloadReleased { outcome, in_flight } => {
                self.metrics.requests_cut.inc_by(in_flight);
                tracing::info!(
                    outcome = outcome.name(),
                    cut = in_flight,
                    "workload released"
                );
            }
            Action::ReleaseProxy => {
                self.board.send_modify(|board| board.proxy_released = true);
                tracing::info!("istio-proxy released");
            }
            Action::HoldProxy => self.board.send_modify(|board| board.proxy_released = false),
            Action::Exit => {}
        }
    }

    fn entered(&mut self, now: Now, phase: Phase) {
        self.metrics.set_phase(phase);
        self.phase.send_replace(phase);
        tracing::info!(
            phase = phase.name(),
            mode = self.machine.mode().name(),
            seconds = self.since_trigger(now),
            late = self.machine.late(),
            "phase"
        );
    }

    fn since_trigger(&self, now: Now) -> f64 {
        self.triggered
            .map_or(0.0, |at| now.saturating_sub(at).as_secs_f64())
    }

    /// Shows the world where the drain stands.
    fn publish(&mut self, now: Now) {
        let pace = self.machine.polling(now);
        self.pace.send_if_modified(|before| {
            let changed = *before != pace;
            *before = pace;
            changed
        });
        let left = self
            .machine
            .deadline()
            .map(|at| at.saturating_sub(now).as_secs_f64());
        let late = self.machine.late();
        self.metrics.late_arrivals.inc_by(late - self.late);
        self.late = late;
        if let Some(left) = left {
            self.metrics.set_drain_clock(self.since_trigger(now), left);
        }
        let phase = self.machine.phase();
        let status = serde_json::json!({
            "phase": phase.name(),
            "hooks_held": self.machine.hooks_held(),
            "queue_proxy_held": self.machine.queue_proxy_held(),
            "deadline_in": left,
            "drain": self.recorder.report(now, &self.machine),
        });
        self.board.send_modify(|board| {
            board.phase = phase;
            board.ready = phase == Phase::Serving;
            board.status = Arc::new(status);
        });
    }

    fn write_report(&self, now: Now) {
        let (Some(path), Some(_)) = (&self.report_path, self.triggered) else {
            return;
        };
        let report = self.recorder.report(now, &self.machine);
        let written = serde_json::to_vec(&report)
            .map_err(std::io::Error::from)
            .and_then(|bytes| std::fs::write(path, bytes));
        if let Err(error) = written {
            tracing::warn!(
                path = %path.display(),
                %error,
                "cannot write the drain report; set tidegate.dev/report-path to a file that can be written"
            );
        }
    }

    fn end(mut self, interrupted: bool) -> Ending {
        // A drain that is over ended with its last step, as its written report says.
        let ended = if interrupted {
            self.now()
        } else {
            self.stepped
        };
        let mut report = self.recorder.report(ended, &self.machine);
        if interrupted {
            report.outcome = "interrupted".to_owned();
        }
        match serde_json::to_string(&report) {
            Ok(report) => tracing::info!(report, "drain report"),
            Err(error) => tracing::error!(%error, "the drain report cannot be written as JSON"),
        }
        self.waiters.clear();
        Ending {
            report,
            interrupted,
        }
    }
}

/// The kubelet makes the default file; where it is not there, nobody reads it.
fn report_path(config: &Config) -> Option<PathBuf> {
    let path = &config.report_path;
    let wanted = path.as_os_str() != DEFAULT_REPORT_PATH || path.exists();
    wanted.then(|| path.clone())
}

async fn at(timer: Option<Instant>) {
    match timer {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
