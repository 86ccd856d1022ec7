//! What every port of Tidegate has in common: how it is taken, how connections are accepted, bounded
//! and ended without cutting anybody.

mod accept;
mod http;
mod listen;
mod stream;

#[cfg(test)]
pub(crate) use accept::is_the_peers;
pub(crate) use accept::{accept, drain_backlog, raise_open_files};
pub(crate) use http::{Answer, close_after, linger, serve, text, typed, wrong_verb};
pub(crate) use listen::listen_everywhere;
pub(crate) use stream::{Reading, Stream};
