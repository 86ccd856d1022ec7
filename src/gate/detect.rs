//! Which protocol a connection speaks, by its first bytes. None of them is consumed.

use bytes::Bytes;

use super::engine::{Direction, Engine, Stage, State, Step};

/// What every HTTP/2 connection with prior knowledge begins with (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Longer than any method in use; what is longer is no method.
const METHOD_MAX: usize = 32;

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.x.
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
    /// TLS, or anything else.
    Other,
}

/// The protocol of a connection that begins with `bytes`; `None` while they do not say.
pub fn detect(bytes: &[u8]) -> Option<Protocol> {
    if PREFACE.starts_with(bytes) {
        return (bytes.len() == PREFACE.len()).then_some(Protocol::Http2);
    }
    if bytes.starts_with(PREFACE) {
        return Some(Protocol::Http2);
    }
    let method = bytes.iter().take(METHOD_MAX).take_while(|b| is_token(**b));
    match method.count() {
        METHOD_MAX => Some(Protocol::Other),
        length => match bytes.get(length) {
            Some(b' ') if length > 0 => Some(Protocol::Http1),
            Some(_) => Some(Protocol::Other),
            None => None,
        },
    }
}

/// What a method is made of (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Stands in for the engine of a connection until its client has said what it speaks.
pub(super) struct Detector<F> {
    /// Makes that engine; none is made where nothing is admitted any more.
    make: F,
    found: Option<Protocol>,
    /// Bytes have come.
    begun: bool,
    finished: bool,
}

impl<F> Detector<F> {
    pub(super) fn new(make: F) -> Detector<F> {
        Detector {
            make,
            found: None,
            begun: false,
            finished: false,
        }
    }
}

impl<F> Engine for Detector<F>
where
    F: Fn(Protocol) -> Option<Box<dyn Engine>> + Send,
{
    fn step(&mut self, direction: Direction, input: &[u8]) -> Step {
        self.found = self.found.or(match direction {
            Direction::Up => detect(input),
            // A workload that speaks first is not HTTP's.
            Direction::Down => Some(Protocol::Other),
        });
        self.begun = true;
        Step::More
    }

    fn opaque(&self, _direction: Direction) -> u64 {
        0
    }

    fn moved(&mut self, _direction: Direction, _bytes: u64) {}

    fn inject(&mut self, _direction: Direction) -> Option<Bytes> {
        None
    }

    fn stage(&mut self, _stage: Stage) {}

    fn end(&mut self, _direction: Direction, cut: bool) {
        if cut || !self.begun {
            self.finished = true;
        } else {
            // Whatever it was to become: the workload may make sense of it.
            self.found = self.found.or(Some(Protocol::Other));
        }
    }

    fn upstream_lost(&mut self) -> Option<Bytes> {
        self.finished = true;
        None
    }

    fn state(&self) -> State {
        match (self.finished, self.found) {
            (true, _) => State::Finished,
            (false, Some(_)) => State::Replaced,
            (false, None) if self.begun => State::Head,
            (false, None) => State::Idle,
        }
    }

    fn successor(&mut self) -> Option<Box<dyn Engine>> {
        (self.make)(self.found?)
    }
}
