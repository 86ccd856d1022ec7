//! A body on its way: how much of what comes belongs to it.

use super::{Chunked, Doubt, Framing};

/// A body that has not ended.
#[derive(Debug)]
pub enum Body {
    /// So many bytes are still to come, at least one.
    Length(u64),
    /// Chunks.
    Chunked(Chunked),
    /// It ends with the connection.
    UntilClose,
}

/// How much of the bytes at hand was the body's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// So many bytes.
    pub bytes: usize,
    /// Whether the body ended with them.
    pub whole: bool,
}

impl Body {
    /// The body after a head; `None` if there is none.
    pub fn new(framing: Framing) -> Option<Body> {
        match framing {
            Framing::None => None,
            Framing::Length(length) => Some(Body::Length(length)),
            Framing::Chunked => Some(Body::Chunked(Chunked::default())),
            Framing::UntilClose => Some(Body::UntilClose),
        }
    }

    /// Takes the body's bytes off the front of `input`.
    pub fn scan(&mut self, input: &[u8]) -> Result<Scanned, Doubt> {
        match self {
            Body::Length(left) => {
                let bytes =
                    usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                *left -= bytes as u64;
                Ok(Scanned {
                    bytes,
                    whole: *left == 0,
                })
            }
            Body::Chunked(chunked) => chunked.scan(input),
            Body::UntilClose => Ok(Scanned {
                bytes: input.len(),
                whole: false,
            }),
        }
    }

    /// How many of the next bytes are the body's whatever they are; `u64::MAX`: all until the end.
    pub fn opaque(&self) -> u64 {
        match self {
            Body::Length(left) => *left,
            Body::Chunked(chunked) => chunked.opaque(),
            Body::UntilClose => u64::MAX,
        }
    }

    /// So many of the opaque bytes went by unseen. Whether the body ended with them.
    pub fn moved(&mut self, bytes: u64) -> bool {
        match self {
            Body::Length(left) => {
                *left = left.saturating_sub(bytes);
                *left == 0
            }
            Body::Chunked(chunked) => {
                chunked.moved(bytes);
                false
            }
            Body::UntilClose => false,
        }
    }
}
