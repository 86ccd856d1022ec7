//! The engine of a WebSocket: counts it as one in flight, and ends it with a close frame that a
//! client understands.
//!
//! Only what the workload sends is looked at, and of that only the frame headers (RFC 6455, section
//! 5.2), to know where the gate's own frame may go: between two frames, be they fragments of one
//! message or not. Extensions leave the framing as it is.

use bytes::Bytes;

use super::counter::Guard;
use super::engine::{Direction, Stage, State, Step};

#[cfg(test)]
mod tests;

const OPCODE_CLOSE: u8 = 8;

/// The longest payload of a control frame, and the longest length that needs no bytes of its own.
const SHORT_MAX: u8 = 125;

/// "An endpoint is going away", RFC 6455, section 7.4.1.
const GOING_AWAY: u16 = 1001;

/// "A condition that prevented it from fulfilling the request".
const INTERNAL_ERROR: u16 = 1011;

/// One WebSocket, from after the head of its 101.
///
/// In flight until both sides have closed, or the connection broke. From [`Stage::EndingUpgrades`]
/// the client gets a close frame as soon as the workload's frame at hand has ended, and nothing after
/// it; what the client sends still reaches the workload, its answer to the close frame above all, so
/// that both can leave in order. What the gate ended counts as cut.
#[derive(Debug)]
pub struct Engine {
    guard: Option<Guard>,
    /// What is to come of the payload of the workload's frame, in bytes.
    left: u64,
    /// The head of the workload's next frame has come in part, and is kept.
    kept: bool,
    down: Down,
    up_ended: bool,
    down_ended: bool,
    stage: Stage,
}

/// What the workload's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Down {
    Frames,
    /// Its own close frame has come; nothing is to be added.
    Closed,
    /// They cannot be frames.
    Doubted,
    /// They come after the gate's close frame, and go nowhere.
    Ended,
}

/// A frame header that a server may send.
struct Header {
    bytes: usize,
    opcode: u8,
    payload: u64,
}

impl Engine {
    /// A WebSocket that `guard` counts.
    pub fn new(guard: Guard) -> Engine {
        Engine {
            guard: Some(guard),
            left: 0,
            kept: false,
            down: Down::Frames,
            up_ended: false,
            down_ended: false,
            stage: Stage::Serving,
        }
    }

    /// The gate's close frame is due, and may go out now.
    fn ends_here(&self) -> bool {
        self.down == Down::Frames
            && self.left == 0
            && self.stage >= Stage::EndingUpgrades
            && !self.down_ended
    }

    /// Judges frames up to the end of `input`, or to where the close frame goes.
    fn frames(&mut self, input: &[u8]) -> Step {
        let mut passed = 0;
        while passed < input.len() {
            let rest = &input[passed..];
            if self.left > 0 {
                let bytes = self.left.min(rest.len() as u64);
                self.left -= bytes;
                passed += bytes as usize;
                continue;
            }
            if self.ends_here() {
                if passed > 0 {
                    break;
                }
                return Step::Insert(self.close(GOING_AWAY, "tidegate: draining"));
            }
            match Header::parse(rest) {
                Ok(Some(header)) => {
                    self.left = header.payload;
                    passed += header.bytes;
                    if header.opcode == OPCODE_CLOSE {
                        self.down = Down::Closed;
                        return Step::Pass(input.len());
                    }
                }
                Ok(None) if passed == 0 => return Step::More,
                Ok(None) => break,
                Err(NotAFrame) => {
                    self.down = Down::Doubted;
                    return Step::Pass(input.len());
                }
            }
        }
        Step::Pass(passed)
    }

    /// The gate's close frame, after which the workload is not heard.
    fn close(&mut self, code: u16, reason: &str) -> Bytes {
        self.down = Down::Ended;
        let mut frame = vec![0x80 | OPCODE_CLOSE, reason.len() as u8 + 2];
        frame.extend(code.to_be_bytes());
        frame.extend(reason.as_bytes());
        frame.into()
    }

    fn cut(&mut self) {
        self.guard.take().into_iter().for_each(Guard::cut);
    }
}

impl super::engine::Engine for Engine {
    fn step(&mut self, direction: Direction, input: &[u8]) -> Step {
        match (direction, self.down) {
            (Direction::Down, Down::Frames) => {
                let step = self.frames(input);
                self.kept = step == Step::More;
                step
            }
            (Direction::Down, Down::Ended) => Step::Swallow(input.len()),
            (Direction::Up, _) | (_, Down::Closed | Down::Doubted) => Step::Pass(input.len()),
        }
    }

    fn opaque(&self, direction: Direction) -> u64 {
        match (direction, self.down) {
            (Direction::Down, Down::Frames) => self.left,
            (Direction::Down, Down::Ended) => 0,
            (Direction::Up, _) | (_, Down::Closed | Down::Doubted) => u64::MAX,
        }
    }

    fn moved(&mut self, direction: Direction, bytes: u64) {
        if direction == Direction::Down {
            self.left = self.left.saturating_sub(bytes);
        }
    }

    fn inject(&mut self, direction: Direction) -> Option<Bytes> {
        (direction == Direction::Down && self.ends_here())
            .then(|| self.close(GOING_AWAY, "tidegate: draining"))
    }

    fn stage(&mut self, stage: Stage) {
        self.stage = stage;
    }

    fn end(&mut self, direction: Direction, cut: bool) {
        match direction {
            Direction::Up => self.up_ended = true,
            Direction::Down => self.down_ended = true,
        }
        if cut || self.down == Down::Ended {
            self.cut();
        } else if self.up_ended && self.down_ended {
            self.guard = None;
        }
    }

    /// A close frame with code 1011, unless the workload was in the middle of a frame, or has sent
    /// its own.
    fn upstream_lost(&mut self) -> Option<Bytes> {
        let torn = self.left > 0 || self.down_ended && self.kept;
        let told = (self.down == Down::Frames && !torn)
            .then(|| self.close(INTERNAL_ERROR, "tidegate: the workload is gone"));
        self.cut();
        told
    }

    fn doubt(&self) -> Option<&'static str> {
        (self.down == Down::Doubted).then_some("websocket-frame")
    }

    fn state(&self) -> State {
        let ended_unframed = self.down == Down::Doubted && self.stage >= Stage::EndingUpgrades;
        if self.guard.is_none() || ended_unframed {
            State::Finished
        } else {
            State::Busy
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Bytes that no server sends as the header of a frame.
struct NotAFrame;

impl Header {
    /// The header that `bytes` begin with; `None` until it is whole.
    fn parse(bytes: &[u8]) -> Result<Option<Header>, NotAFrame> {
        let &[first, second, ref rest @ ..] = bytes else {
            return Ok(None);
        };
        let (opcode, control) = (first & 0x0f, first & 0x08 != 0);
        let (masked, length) = (second & 0x80 != 0, second & 0x7f);
        let fragmented = first & 0x80 == 0;
        if masked || control && (fragmented || length > SHORT_MAX) {
            return Err(NotAFrame);
        }
        let (bytes, payload) = match length {
            126 => (4, rest.first_chunk().map(|n| u16::from_be_bytes(*n).into())),
            127 => (10, rest.first_chunk().map(|n| u64::from_be_bytes(*n))),
            short => (2, Some(short.into())),
        };
        match payload {
            Some(payload) if payload > i64::MAX as u64 => Err(NotAFrame),
            Some(payload) => Ok(Some(Header {
                bytes,
                opcode,
                payload,
            })),
            None => Ok(None),
        }
    }
}
