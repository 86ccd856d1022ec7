//! HTTP/2 frames: the nine bytes that each begins with, and the few that the gate writes itself.
//!
//! RFC 9113, sections 4.1 and 6.

use bytes::{BufMut, BytesMut};

/// What a client sends first.
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a frame's header is, in bytes.
pub(super) const HEADER: usize = 9;

/// The highest stream id. A GOAWAY with it says that the connection will end and refuses nothing yet.
pub(super) const MAX_ID: u32 = u32::MAX >> 1;

const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    Priority,
    Reset,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// An extension; it may be anywhere but inside a header block.
    Other,
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    flags: u8,
    /// 0: the connection itself.
    pub(super) stream: u32,
    /// Bytes of payload, padding included.
    pub(super) length: u32,
}

/// Why a stream or a connection ends; the codes that the gate uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Code {
    NoError = 0x0,
    InternalError = 0x2,
    Cancel = 0x8,
}

impl Frame {
    pub(super) fn parse(header: &[u8; HEADER]) -> Frame {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *header;
        Frame {
            kind: match kind {
                0x0 => Kind::Data,
                0x1 => Kind::Headers,
                0x2 => Kind::Priority,
                0x3 => Kind::Reset,
                0x4 => Kind::Settings,
                0x5 => Kind::PushPromise,
                0x6 => Kind::Ping,
                0x7 => Kind::GoAway,
                0x8 => Kind::WindowUpdate,
                0x9 => Kind::Continuation,
                _ => Kind::Other,
            },
            flags,
            stream: id(&[s0, s1, s2, s3]),
            length: u32::from_be_bytes([0, l0, l1, l2]),
        }
    }

    /// The sender's last on this stream, once its header block is whole.
    pub(super) fn ends_stream(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::Headers) && self.flags & END_STREAM != 0
    }

    /// Part of a header block.
    pub(super) fn is_block(&self) -> bool {
        matches!(
            self.kind,
            Kind::Headers | Kind::PushPromise | Kind::Continuation
        )
    }

    /// The last part of a header block.
    pub(super) fn ends_block(&self) -> bool {
        self.is_block() && self.flags & END_HEADERS != 0
    }

    /// The answer to a SETTINGS or a PING.
    pub(super) fn is_ack(&self) -> bool {
        matches!(self.kind, Kind::Settings | Kind::Ping) && self.flags & ACK != 0
    }
}

/// A stream id, less the reserved bit.
pub(super) fn id(bytes: &[u8; 4]) -> u32 {
    u32::from_be_bytes(*bytes) & MAX_ID
}

/// Nothing is said of the settings, so the defaults hold.
pub(super) fn settings(out: &mut BytesMut) {
    header(out, 0x4, 0, 0);
}

pub(super) fn ping(out: &mut BytesMut, payload: [u8; 8]) {
    header(out, 0x6, 0, 8);
    out.put_slice(&payload);
}

/// `debug`: who says so and why, for whoever reads the client's log.
pub(super) fn go_away(out: &mut BytesMut, last: u32, code: Code, debug: &str) {
    header(out, 0x7, 0, 8 + debug.len() as u32);
    out.put_u32(last);
    out.put_u32(code as u32);
    out.put_slice(debug.as_bytes());
}

pub(super) fn reset(out: &mut BytesMut, stream: u32, code: Code) {
    header(out, 0x3, stream, 4);
    out.put_u32(code as u32);
}

/// `bytes`, at least one, may be sent again on the whole connection.
pub(super) fn window_update(out: &mut BytesMut, bytes: u32) {
    header(out, 0x8, 0, 4);
    out.put_u32(bytes);
}

fn header(out: &mut BytesMut, kind: u8, stream: u32, length: u32) {
    out.put_uint(length.into(), 3);
    out.put_u8(kind);
    out.put_u8(0);
    out.put_u32(stream);
}
