//! What is left out of what the client sends once a stream was refused, and what it is owed for that.

use bytes::BytesMut;

use super::frame::{self, Code, Frame, Kind, MAX_ID};

/// One connection's refusals.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    /// A stream was refused: no header block goes up any more.
    begun: bool,
    /// Window to give back to the client, in bytes.
    window: u32,
    /// Streams whose end the client is to be told.
    resets: Vec<u32>,
}

impl Refusal {
    pub(super) fn begin(&mut self) {
        self.begun = true;
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether a frame of the client's is not to go up. `highest`: the last stream that was forwarded.
    pub(super) fn covers(&self, frame: &Frame, highest: u32) -> bool {
        let refused = frame.stream % 2 == 1 && frame.stream > highest;
        self.begun && (frame.is_block() || refused)
    }

    /// A frame is left out.
    pub(super) fn drops(&mut self, frame: &Frame) {
        if frame.kind == Kind::Data {
            self.window = self.window.saturating_add(frame.length).min(MAX_ID);
        }
    }

    /// A stream cannot go on without what was left out.
    pub(super) fn resets(&mut self, stream: u32) {
        self.resets.push(stream);
    }

    /// The client is owed a word.
    pub(super) fn is_due(&self) -> bool {
        self.window > 0 || !self.resets.is_empty()
    }

    /// Writes what the client is owed.
    pub(super) fn write(&mut self, out: &mut BytesMut) {
        for stream in self.resets.drain(..) {
            frame::reset(out, stream, Code::InternalError);
        }
        if self.window > 0 {
            frame::window_update(out, std::mem::take(&mut self.window));
        }
    }
}
