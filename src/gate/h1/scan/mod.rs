//! The framing of HTTP/1: where a head ends, whether a body follows and how long, where it ends.
//!
//! httparse takes more than is safe to believe (RFC 9112, section 11.2), so each rule that decides
//! a length is checked here again, strictly.

mod body;
mod chunked;
mod doubt;
mod head;

pub use body::{Body, Scanned};
pub use chunked::Chunked;
pub use doubt::Doubt;
pub(super) use head::options;
pub use head::{
    Framing, HeadEnd, Method, Protocol, Reply, RequestHead, may_be_reply, reply_head, request_head,
};
