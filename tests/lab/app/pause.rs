//! The sandbox's first process: reaps children until SIGTERM or SIGINT.

use std::future::poll_fn;
use std::pin::Pin;

use anyhow::Context;
use futures_core::Stream;
use rustix::process::{WaitOptions, wait};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};

use crate::wire;

pub(crate) fn main() -> anyhow::Result<u8> {
    wire::runtime()?.block_on(async {
        let mut signals = signal_hook_tokio::Signals::new([SIGCHLD, SIGINT, SIGTERM])
            .context("cannot catch signals")?;
        loop {
            // One signal may stand for several children, and the first may have gone before. The
            // error is that there are none.
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            match poll_fn(|cx| Pin::new(&mut signals).poll_next(cx)).await {
                Some(SIGCHLD) => {}
                _ => return Ok(0),
            }
        }
    })
}
