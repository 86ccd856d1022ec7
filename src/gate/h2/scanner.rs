//! Where one direction of an HTTP/2 connection stands between frames, and whether its framing can be
//! believed.

use super::frame::{Frame, Kind};

/// Why a connection's streams are no longer told apart. It counts as one tunnel from there, and is
/// forwarded as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The client's preface is another.
    Preface,
    /// A side's first frame is not SETTINGS.
    Start,
    /// A frame on a stream, or on none, where its kind cannot be.
    Stream,
    /// A header block that is broken into, or continued without having begun.
    Block,
    /// A length that a frame of its kind cannot have.
    Length,
    /// More streams at once than [`STREAMS_MAX`](super::STREAMS_MAX). Its framing is still believed,
    /// so the client is told of a drain.
    Streams,
}

impl Doubt {
    /// All doubts.
    pub const ALL: [Doubt; 6] = [
        Doubt::Preface,
        Doubt::Start,
        Doubt::Stream,
        Doubt::Block,
        Doubt::Length,
        Doubt::Streams,
    ];

    /// The doubt's name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Doubt::Preface => "h2-preface",
            Doubt::Start => "h2-start",
            Doubt::Stream => "h2-stream",
            Doubt::Block => "h2-block",
            Doubt::Length => "h2-length",
            Doubt::Streams => "h2-streams",
        }
    }
}

/// What the end of a frame ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The sender's half of a stream.
    Half(u32),
    /// The stream.
    Stream(u32),
}

/// A header block that goes on in the next frame.
#[derive(Clone, Copy, Debug)]
struct Block {
    stream: u32,
    ends_stream: bool,
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    /// The frame at hand, until the next begins.
    frame: Option<Frame>,
    /// What is to come of its payload, in bytes.
    left: u32,
    block: Option<Block>,
}

impl Scanner {
    /// What is to come of the payload of the frame at hand, in bytes.
    pub(super) fn left(&self) -> u32 {
        self.left
    }

    /// Any frame has begun.
    pub(super) fn started(&self) -> bool {
        self.frame.is_some()
    }

    /// A frame may be put here: not before the sender's SETTINGS, not inside a frame, not inside a
    /// header block.
    pub(super) fn is_open(&self) -> bool {
        self.started() && self.left == 0 && self.block.is_none()
    }

    /// Whether a frame that begins like this can be the next.
    ///
    /// Lengths are judged where a wrong one ends the connection anyway; what a receiver forgives, or
    /// limits by its settings, is its own business.
    pub(super) fn check(&self, frame: &Frame) -> Result<(), Doubt> {
        if !self.started() && (frame.kind != Kind::Settings || frame.is_ack()) {
            return Err(Doubt::Start);
        }
        let continues = match self.block {
            Some(block) if frame.kind == Kind::Continuation => frame.stream == block.stream,
            Some(_) => false,
            None => frame.kind != Kind::Continuation,
        };
        if !continues {
            return Err(Doubt::Block);
        }
        let at_home = match frame.kind {
            Kind::Settings | Kind::Ping | Kind::GoAway => frame.stream == 0,
            Kind::WindowUpdate | Kind::Other => true,
            _ => frame.stream != 0,
        };
        if !at_home {
            return Err(Doubt::Stream);
        }
        let whole = match frame.kind {
            Kind::Reset | Kind::WindowUpdate => frame.length == 4,
            Kind::Ping => frame.length == 8,
            Kind::Settings => frame.length.is_multiple_of(6),
            Kind::GoAway => frame.length >= 8,
            _ => true,
        };
        if whole { Ok(()) } else { Err(Doubt::Length) }
    }

    /// The header of a frame that was checked has gone by. Where the payload is empty, the frame ends.
    pub(super) fn begin(&mut self, frame: Frame) -> Option<Ended> {
        self.frame = Some(frame);
        self.left = frame.length;
        if self.left == 0 {
            self.finish(frame)
        } else {
            None
        }
    }

    /// `bytes` of payload have gone by, no more than are left.
    pub(super) fn payload(&mut self, bytes: u32) -> Option<Ended> {
        self.left = self.left.saturating_sub(bytes);
        match self.frame {
            Some(frame) if self.left == 0 => self.finish(frame),
            _ => None,
        }
    }

    fn finish(&mut self, frame: Frame) -> Option<Ended> {
        if frame.kind == Kind::Reset {
            return Some(Ended::Stream(frame.stream));
        }
        let ends_stream = match self.block.take() {
            Some(block) => block.ends_stream,
            None => frame.ends_stream(),
        };
        if frame.is_block() && !frame.ends_block() {
            self.block = Some(Block {
                stream: frame.stream,
                ends_stream,
            });
            return None;
        }
        ends_stream.then_some(Ended::Half(frame.stream))
    }
}
