//! gRPC's framing and the messages of `/lab.Lab/Stream`.
//!
//! ```proto
//! service Lab { rpc Stream(Ask) returns (stream Tick); }
//! message Ask { uint32 count = 1; uint64 every_ms = 2; }
//! message Tick { uint32 number = 1; uint64 at = 2; }
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

/// The method's path.
pub(crate) const PATH: &str = "/lab.Lab/Stream";
/// The content type of both directions.
pub(crate) const CONTENT_TYPE: &str = "application/grpc";
/// The header or trailer with the status.
pub(crate) const STATUS: &str = "grpc-status";

/// The longest message that is read, in bytes. Those here are under 20.
const MESSAGE_MAX: usize = 64 * 1024;
/// Of a message's head: one byte says whether it is compressed, four are its length.
const HEAD: usize = 5;

/// The request.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Ask {
    /// How many ticks.
    #[prost(uint32, tag = "1")]
    pub(crate) count: u32,
    /// Milliseconds before each.
    #[prost(uint64, tag = "2")]
    pub(crate) every_ms: u64,
}

/// One message of the answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Tick {
    /// From 1 on.
    #[prost(uint32, tag = "1")]
    pub(crate) number: u32,
    /// When it was sent, in Unix milliseconds.
    #[prost(uint64, tag = "2")]
    pub(crate) at: u64,
}

/// Why what was read is not gRPC.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("a compressed gRPC message, which nobody asked for")]
    Compressed,
    #[error("a gRPC message of {0} bytes, longer than {MESSAGE_MAX}")]
    TooLong(usize),
    #[error("not the protobuf message that was expected: {0}")]
    Message(#[from] prost::DecodeError),
}

/// A message with its head.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(HEAD + length);
    bytes.put_u8(0);
    // The messages here are a few bytes long.
    bytes.put_u32(length as u32);
    bytes.put_slice(&message.encode_to_vec());
    bytes.freeze()
}

/// Takes a byte stream apart into messages.
#[derive(Debug, Default)]
pub(crate) struct Messages(BytesMut);

impl Messages {
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(piece);
    }

    /// The next message, once it is there as a whole.
    pub(crate) fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Error> {
        let Some((head, _)) = self.0.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let [compressed, length @ ..] = *head;
        let length = u32::from_be_bytes(length) as usize;
        if compressed != 0 {
            return Err(Error::Compressed);
        }
        if length > MESSAGE_MAX {
            return Err(Error::TooLong(length));
        }
        if self.0.len() < HEAD + length {
            return Ok(None);
        }
        self.0.advance(HEAD);
        Ok(Some(M::decode(self.0.split_to(length))?))
    }

    /// Whether part of a message is left over.
    pub(crate) fn in_the_middle(&self) -> bool {
        !self.0.is_empty()
    }
}
