//! One HTTP/1 connection: its requests, their replies, and what the drain says to its client.

mod replies;
mod requests;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::answer;
use super::scan::{Body, Doubt, HeadEnd, Method};
use crate::gate::counter::{Counter, Guard, Kind};
use crate::gate::engine::{self, Direction, Stage, State, Step};

/// The most requests of one connection that wait for their replies; a client that sends more of them
/// is not read until a reply is whole.
pub const OUTSTANDING_MAX: usize = 128;

/// Where HTTP/1 connections lead to.
pub trait Links: Send + Sync {
    /// The WebSocket that begins after its 101.
    fn websocket(&self, guard: Guard) -> Box<dyn engine::Engine>;

    /// The HTTP/2 connection that begins after its 101: the guard is of stream 1, whose request has
    /// been passed whole.
    fn h2c(&self, guard: Guard) -> Box<dyn engine::Engine>;

    /// The tunnel that begins after a good reply to `CONNECT`, or after the 101 of any other protocol.
    fn tunnel(&self, guard: Guard) -> Box<dyn engine::Engine>;
}

/// Watches one HTTP/1 connection. What is in flight when it is dropped counts as cut.
pub struct Engine {
    counter: Counter,
    links: Arc<dyn Links>,
    stage: Stage,
    phase: Phase,
    doubt: Option<Doubt>,
    up: Up,
    down: Down,
    request_end: HeadEnd,
    reply_end: HeadEnd,
    /// Requests whose heads were passed and whose replies are not whole, oldest first.
    requests: VecDeque<Request>,
    /// The request whose head is not whole.
    begun: Option<Guard>,
    /// The request whose reply was whole before its body.
    upload: Option<Guard>,
    /// The client has more to say, but was told to wait.
    waiting: bool,
    /// The client sends nothing more to the workload: it has been told so, or will be.
    shut: Option<Shut>,
    /// One side has ended early, in a head or after a reply that came before its request was whole.
    /// Nothing is in flight, and the other side may have something to say still.
    lingers: bool,
    /// The length of a head that went out in other words.
    replaced: usize,
    client_ended: bool,
    workload_ended: bool,
}

/// What becomes of the bytes.
enum Phase {
    Http,
    /// There was a doubt.
    Doubted(Option<Guard>),
    Successor(Option<Box<dyn engine::Engine>>),
    Finished,
}

/// What the next byte of the client belongs to.
enum Up {
    Head,
    Body(Body),
    /// The reply says which protocol it belongs to.
    Undecided,
}

/// What the next byte of the workload belongs to.
enum Down {
    Head,
    Body {
        body: Body,
        /// Whether it answers the oldest request: a workload may speak unasked.
        answers: bool,
        /// Whether the connection ends with it.
        closes: bool,
    },
}

/// Why nothing more is taken from the client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shut {
    /// A reply has said `connection: close`, or an end that needs no words has come.
    Told,
    /// A request was not admitted: 503 follows the replies.
    Refused { head: bool },
}

struct Request {
    guard: Guard,
    method: Method,
    persistent: bool,
    /// Whether its reply may end HTTP/1, and has not begun.
    undecided: bool,
    /// Whether its client waits for `100 Continue`, and has sent nothing of the body.
    expects: bool,
}

impl Engine {
    /// An engine for a connection on which nothing has been passed.
    pub fn new(counter: Counter, links: Arc<dyn Links>) -> Engine {
        Engine {
            counter,
            links,
            stage: Stage::Serving,
            phase: Phase::Http,
            doubt: None,
            up: Up::Head,
            down: Down::Head,
            request_end: HeadEnd::default(),
            reply_end: HeadEnd::default(),
            requests: VecDeque::new(),
            begun: None,
            upload: None,
            waiting: false,
            shut: None,
            lingers: false,
            replaced: 0,
            client_ended: false,
            workload_ended: false,
        }
    }

    /// Ends the connection: what is in flight is cut.
    fn cut(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Finished);
        let guard = match phase {
            Phase::Doubted(guard) => guard,
            Phase::Successor(Some(mut next)) => {
                next.end(Direction::Down, true);
                None
            }
            Phase::Http | Phase::Successor(None) | Phase::Finished => None,
        };
        let requests = self.requests.drain(..).map(|request| request.guard);
        let single = [guard, self.begun.take(), self.upload.take()];
        requests
            .chain(single.into_iter().flatten())
            .for_each(Guard::cut);
    }

    /// The oldest request goes on as something else, and takes the others with it.
    fn regroup(&mut self, kind: Kind) -> Option<Guard> {
        // Nobody will read what kind of request it is.
        self.begun.iter().for_each(Guard::arrives);
        let mut held = self
            .requests
            .drain(..)
            .map(|request| request.guard)
            .chain(self.upload.take())
            .chain(self.begun.take());
        let mut guard = held.next()?;
        guard.becomes(kind);
        Some(guard)
    }

    fn become_tunnel(&mut self, doubt: Doubt) {
        let guard = self
            .regroup(Kind::Tunnel)
            .or_else(|| self.counter.admit(Kind::Tunnel));
        self.doubt = Some(doubt);
        self.phase = Phase::Doubted(guard);
    }

    /// What becomes of bytes that are not HTTP/1 any more.
    fn pass_by(&self, bytes: usize) -> Step {
        match self.phase {
            Phase::Successor(_) => Step::Wait,
            Phase::Finished if self.shut.is_some() => Step::Swallow(bytes),
            _ => Step::Pass(bytes),
        }
    }
}

impl engine::Engine for Engine {
    fn step(&mut self, direction: Direction, input: &[u8]) -> Step {
        match direction {
            Direction::Up => self.waiting = false,
            Direction::Down if self.replaced > 0 => {
                return Step::Swallow(std::mem::take(&mut self.replaced));
            }
            Direction::Down => {}
        }
        let mut at = 0;
        while at < input.len() {
            let rest = &input[at..];
            let judged = match (&self.phase, direction) {
                (Phase::Http, Direction::Up) => self.judge_up(rest),
                (Phase::Http, Direction::Down) => self.judge_down(rest, at == 0),
                _ => Ok(self.pass_by(rest.len())),
            };
            match judged {
                Ok(Step::Pass(bytes)) => at += bytes,
                Ok(step) if at == 0 => return step,
                // The bytes before it go first; then it is said again.
                Ok(_) => break,
                Err(doubt) => self.become_tunnel(doubt),
            }
        }
        Step::Pass(at)
    }

    fn opaque(&self, direction: Direction) -> u64 {
        match (&self.phase, direction) {
            (Phase::Doubted(_), _) => u64::MAX,
            (Phase::Http, Direction::Up) => match &self.up {
                Up::Body(body) => body.opaque(),
                Up::Head | Up::Undecided => 0,
            },
            (Phase::Http, Direction::Down) => match &self.down {
                Down::Body { body, .. } if self.replaced == 0 => body.opaque(),
                _ => 0,
            },
            (Phase::Successor(_) | Phase::Finished, _) => 0,
        }
    }

    fn moved(&mut self, direction: Direction, bytes: u64) {
        if !matches!(self.phase, Phase::Http) {
            return;
        }
        match direction {
            Direction::Up => {
                if let Up::Body(body) = &mut self.up {
                    let whole = body.moved(bytes);
                    self.body_passed(whole);
                }
            }
            Direction::Down => {
                if let Down::Body { body, .. } = &mut self.down
                    && body.moved(bytes)
                {
                    self.reply_whole();
                }
            }
        }
    }

    fn inject(&mut self, direction: Direction) -> Option<Bytes> {
        let Some(Shut::Refused { head }) = self.shut else {
            return None;
        };
        let clear = direction == Direction::Down
            && matches!(self.phase, Phase::Http)
            && matches!(self.down, Down::Head)
            && self.requests.is_empty();
        clear.then(|| {
            self.cut();
            answer::refusal(answer::GOING_AWAY, head)
        })
    }

    fn stage(&mut self, stage: Stage) {
        self.stage = self.stage.max(stage);
    }

    fn end(&mut self, direction: Direction, cut: bool) {
        match direction {
            Direction::Up => self.client_ended = true,
            Direction::Down => self.workload_ended = true,
        }
        match (&self.phase, direction) {
            (Phase::Finished, _) => {}
            _ if cut => self.cut(),
            (Phase::Doubted(_), _) => {
                if self.client_ended && self.workload_ended {
                    // Whole, as far as anybody can tell.
                    self.phase = Phase::Finished;
                }
            }
            (Phase::Successor(_), _) => {}
            (Phase::Http, Direction::Up) => {
                // A body that is short may still be answered, and so may a head.
                self.lingers = self.begun.is_some() && !self.workload_ended;
                let short = [self.begun.take(), self.upload.take()];
                short.into_iter().flatten().for_each(Guard::cut);
                self.settle();
            }
            (Phase::Http, Direction::Down) => {
                if let Down::Body {
                    body: Body::UntilClose,
                    ..
                } = self.down
                {
                    self.reply_whole();
                }
                match self.upload.take() {
                    Some(answered) if self.shut.is_none() && !self.client_ended => {
                        drop(answered);
                        self.lingers = true;
                    }
                    upload => {
                        self.upload = upload;
                        self.cut();
                    }
                }
            }
        }
    }

    /// Whether the client is owed a reply of which nothing has gone out.
    fn owes(&self) -> bool {
        let refused = matches!(self.shut, Some(Shut::Refused { .. }));
        matches!(self.phase, Phase::Http)
            && matches!(self.down, Down::Head)
            && (!self.requests.is_empty() || self.begun.is_some() || refused)
    }

    fn doubt(&self) -> Option<&'static str> {
        self.doubt.map(Doubt::name)
    }

    fn upstream_lost(&mut self) -> Option<Bytes> {
        let owes = self.owes();
        let head = match (self.requests.front(), self.shut) {
            (Some(request), _) => request.method == Method::Head,
            (None, Some(Shut::Refused { head })) => head,
            (None, _) => false,
        };
        self.shut = Some(Shut::Told);
        self.cut();
        owes.then(|| answer::refusal(answer::WORKLOAD_LOST, head))
    }

    fn state(&self) -> State {
        match &self.phase {
            Phase::Doubted(_) => State::Busy,
            Phase::Successor(_) => State::Replaced,
            Phase::Finished => State::Finished,
            Phase::Http => {
                let quiet = self.requests.is_empty()
                    && self.upload.is_none()
                    && matches!(self.down, Down::Head)
                    && !matches!(self.shut, Some(Shut::Refused { .. }));
                // A head of the workload's that nobody asked for is to be whole soon, too.
                if !quiet {
                    State::Busy
                } else if self.begun.is_some() || self.lingers || self.reply_end.begun() {
                    State::Head
                } else {
                    State::Idle
                }
            }
        }
    }

    fn successor(&mut self) -> Option<Box<dyn engine::Engine>> {
        let Phase::Successor(next) = &mut self.phase else {
            return None;
        };
        next.take()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.cut();
    }
}
