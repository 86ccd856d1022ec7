//! The signals that end Tidegate, as a sequence to await.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use futures_core::Stream;
use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::sync::mpsc;

/// A signal that asks to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// SIGTERM: the kubelet ends the container.
    Terminate,
    /// SIGINT: a person at a terminal.
    Interrupt,
}

/// Where signals come from. Each is yielded, a second SIGTERM too; signals of one kind that arrive
/// faster than they are read may be yielded once, as the kernel's own are.
pub struct Signals {
    source: Source,
}

enum Source {
    Process(signal_hook_tokio::Signals),
    Channel(mpsc::Receiver<Signal>),
}

/// Catches SIGTERM and SIGINT from now on and for the life of the process: they no longer end it, even
/// when the result has been dropped. Needs a tokio runtime with I/O; an error is the kernel's (no file
/// descriptors left).
pub fn install() -> io::Result<Signals> {
    let signals = signal_hook_tokio::Signals::new([SIGTERM, SIGINT])?;
    Ok(Signals {
        source: Source::Process(signals),
    })
}

impl Signals {
    /// Signals that the caller sends itself: the demo and tests run several coordinators in a process.
    pub fn from_channel(receiver: mpsc::Receiver<Signal>) -> Self {
        Signals {
            source: Source::Channel(receiver),
        }
    }

    /// The next signal; `None`: there will be no more. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Signal> {
        match &mut self.source {
            Source::Channel(receiver) => receiver.recv().await,
            Source::Process(signals) => loop {
                match poll_fn(|cx| Pin::new(&mut *signals).poll_next(cx)).await? {
                    SIGTERM => return Some(Signal::Terminate),
                    SIGINT => return Some(Signal::Interrupt),
                    // Only the two above were asked for.
                    _ => {}
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{Signal as Raise, getpid, kill_process};
    use tokio::process::Command;
    use tokio::time::timeout;

    use super::*;

    const CHILD: &str = "TIDEGATE_TEST_SIGNALS_CHILD";
    const LIMIT: Duration = Duration::from_secs(30);

    /// Catching is for the life of the process, so it happens in a child: this same test, told so.
    #[tokio::test]
    async fn raised_signals_are_yielded_each_time() {
        if std::env::var_os(CHILD).is_some() {
            let mut signals = install().unwrap();
            for (raise, expected) in [
                (Raise::TERM, Signal::Terminate),
                (Raise::TERM, Signal::Terminate),
                (Raise::INT, Signal::Interrupt),
            ] {
                kill_process(getpid(), raise).unwrap();
                assert_eq!(timeout(LIMIT, signals.next()).await, Ok(Some(expected)));
            }
            println!("three signals caught");
            return;
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "signals::tests::raised_signals_are_yielded_each_time",
            ])
            .arg("--nocapture")
            .env(CHILD, "1")
            .kill_on_drop(true)
            .output();
        let output = timeout(LIMIT, child).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("three signals caught"), "{text}");
    }

    #[tokio::test]
    async fn a_channel_feeds_signals_until_it_is_closed() {
        let (sender, receiver) = mpsc::channel(4);
        let mut signals = Signals::from_channel(receiver);
        for signal in [Signal::Terminate, Signal::Terminate, Signal::Interrupt] {
            sender.send(signal).await.unwrap();
        }
        drop(sender);
        assert_eq!(signals.next().await, Some(Signal::Terminate));
        assert_eq!(signals.next().await, Some(Signal::Terminate));
        assert_eq!(signals.next().await, Some(Signal::Interrupt));
        assert_eq!(signals.next().await, None);
    }
}
