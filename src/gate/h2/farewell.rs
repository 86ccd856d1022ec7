//! How a client is told that its connection ends: what the gate has said, and what it says next.
//!
//! RFC 9113, section 6.8: first a GOAWAY that refuses nothing; once a PING behind it is answered, no
//! stream is on its way that the client began without knowing, and the second GOAWAY names the last
//! one. A client that does not answer gets the second one when the drain comes to its next stage.

use std::hash::{BuildHasher, RandomState};

use bytes::BytesMut;

use super::super::engine::Stage;
use super::frame::{self, Code, MAX_ID};

const DEBUG: &str = "tidegate: draining";

/// One connection's farewell.
#[derive(Debug)]
pub(super) struct Farewell {
    progress: Progress,
    stage: Stage,
    /// The last id of the latest GOAWAY that the client got, be it the workload's; a later one must not
    /// name a higher one.
    told: u32,
    /// The last id of the latest GOAWAY of the gate's own; `u32::MAX` before the first.
    said: u32,
    /// The payload of the gate's PING, until it is answered.
    ping: Option<[u8; 8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The pod serves.
    Unsaid,
    /// The first GOAWAY and the PING are due.
    First,
    /// They were sent in this stage.
    Asked(Stage),
    /// The second GOAWAY is due.
    Last,
    Said,
}

impl Farewell {
    pub(super) fn new() -> Farewell {
        Farewell {
            progress: Progress::Unsaid,
            stage: Stage::Serving,
            told: u32::MAX,
            said: u32::MAX,
            ping: None,
        }
    }

    /// The last id of the latest GOAWAY that the client got; `u32::MAX` before the first.
    pub(super) fn told(&self) -> u32 {
        self.told
    }

    /// What the last id of a GOAWAY of the workload's has to be lowered to, if it would raise the
    /// gate's.
    pub(super) fn lowers(&self, last: u32) -> Option<u32> {
        (last > self.said).then_some(self.told)
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// The payload of the gate's PING, until it is answered.
    pub(super) fn ping(&self) -> Option<[u8; 8]> {
        self.ping
    }

    /// Something is to be written at the next opportunity.
    pub(super) fn is_due(&self) -> bool {
        matches!(self.progress, Progress::First | Progress::Last)
    }

    /// The client knows the last stream that is served.
    pub(super) fn is_said(&self) -> bool {
        self.progress == Progress::Said
    }

    /// The drain has come to `stage`.
    pub(super) fn advance(&mut self, stage: Stage) {
        self.stage = stage;
        self.progress = match self.progress {
            Progress::Said => Progress::Said,
            _ if stage >= Stage::Closed => Progress::Last,
            Progress::Unsaid if stage >= Stage::Announcing => Progress::First,
            Progress::Asked(asked) if stage > asked => Progress::Last,
            progress => progress,
        };
    }

    /// The workload's GOAWAY passes.
    pub(super) fn overheard(&mut self, last: u32) {
        self.told = self.told.min(last);
    }

    /// The gate's PING was answered.
    pub(super) fn answered(&mut self) {
        self.ping = None;
        self.hurry();
    }

    /// No stream can be on its way, or none is waited for.
    pub(super) fn hurry(&mut self) {
        if let Progress::Asked(_) = self.progress {
            self.progress = Progress::Last;
        }
    }

    /// The next stream is refused, whatever has been said.
    pub(super) fn refuse(&mut self) {
        if self.progress != Progress::Said {
            self.progress = Progress::Last;
        }
    }

    /// Writes what is due. `highest`: the last stream that was forwarded.
    pub(super) fn write(&mut self, out: &mut BytesMut, highest: u32) {
        if !self.is_due() {
            return;
        }
        if self.told <= highest {
            // The workload has said goodbye itself.
            self.progress = Progress::Said;
        } else if self.progress == Progress::First {
            self.told = self.told.min(MAX_ID);
            self.said = self.told;
            frame::go_away(out, self.told, Code::NoError, DEBUG);
            // Unlike any that the workload sends: it is random.
            let payload = RandomState::new().hash_one(highest).to_be_bytes();
            frame::ping(out, payload);
            self.ping = Some(payload);
            self.progress = Progress::Asked(self.stage);
        } else {
            self.told = highest;
            self.said = highest;
            frame::go_away(out, self.told, Code::NoError, DEBUG);
            self.progress = Progress::Said;
        }
    }
}
