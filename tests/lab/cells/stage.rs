//! Plays many cells beside each other: as many as two cores carry, the longest first.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;

use super::kinds::Turn;
use super::matrix::Cell;
use super::play::{Played, Ready};
use crate::cluster::Lab;

/// Cells whose pods are starting; a start keeps a core busy for a second or two.
const STARTING: usize = 3;
/// Cells whose pods live.
const LIVING: usize = 80;
/// Cells under 200 requests a second.
const LOADED: usize = 2;
/// The longest cell, from when its pods are ready.
const CELL_LIMIT: Duration = Duration::from_secs(330);
/// Istiod's own grace period is 30 s.
const ISTIOD_LIMIT: &str = "--timeout=60s";

/// Lets cells in.
pub(crate) struct Stage {
    starting: Semaphore,
    living: Semaphore,
    loaded: Semaphore,
    long_started: Countdown,
    short_started: Countdown,
    last_started: Countdown,
    ended: Countdown,
    istiod: Countdown,
}

/// How a cell ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Whatever became of it.
    Played(Played),
    /// Its pods did not start, or something else of the lab's failed: says nothing about a drain.
    NotPlayed(String),
}

/// What a cell holds until its pods are ready, and until it has ended. Made before any cell begins, so
/// that nobody misses the others.
pub(crate) struct Tokens<'a> {
    started: Option<Token<'a>>,
    _ended: Option<Token<'a>>,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        Stage {
            starting: Semaphore::new(STARTING),
            living: Semaphore::new(LIVING),
            loaded: Semaphore::new(LOADED),
            long_started: Countdown::default(),
            short_started: Countdown::default(),
            last_started: Countdown::default(),
            ended: Countdown::default(),
            istiod: Countdown::default(),
        }
    }

    /// Announces a cell of this turn.
    pub(crate) fn announce(&self, turn: Turn) -> Tokens<'_> {
        let (started, ended) = match turn {
            Turn::Long => (Some(&self.long_started), Some(&self.ended)),
            Turn::Load => (None, Some(&self.ended)),
            Turn::Short => (Some(&self.short_started), Some(&self.ended)),
            Turn::Last => (Some(&self.last_started), None),
        };
        Tokens {
            started: started.map(Countdown::token),
            _ended: ended.map(Countdown::token),
        }
    }

    /// Waits for its turn, and plays it.
    pub(crate) async fn run(&self, lab: &Lab, cell: Cell, mut tokens: Tokens<'_>) -> Ended {
        self.turn(cell.kind.turn).await;
        let _place = self.place(cell.kind.turn).await;
        let ready = {
            let _starting = self.starting(cell.kind.turn).await;
            Ready::make(lab, cell).await
        };
        tokens.started = None;
        let playing = async {
            let ready = ready.context("its pods did not start")?;
            if cell.kind.turn == Turn::Last {
                self.istiod.over().await;
            }
            timeout(CELL_LIMIT, ready.play())
                .await
                .with_context(|| format!("not over within {CELL_LIMIT:?}"))?
        };
        match playing.await {
            Ok(played) => Ended::Played(played),
            Err(error) => Ended::NotPlayed(format!("{error:#}")),
        }
    }

    /// Waits until cells of this turn may begin.
    pub(crate) async fn turn(&self, turn: Turn) {
        match turn {
            Turn::Long => {}
            Turn::Load | Turn::Short => self.long_started.over().await,
            Turn::Last => self.short_started.over().await,
        }
    }

    /// A place among those that start.
    pub(crate) async fn start(&self) -> Option<SemaphorePermit<'_>> {
        self.starting.acquire().await.ok()
    }

    /// A place among those that live: cells under load have few of their own, and are not to wait
    /// behind all others.
    async fn place(&self, turn: Turn) -> Option<SemaphorePermit<'_>> {
        let places = match turn {
            Turn::Load => &self.loaded,
            Turn::Long | Turn::Short | Turn::Last => &self.living,
        };
        places.acquire().await.ok()
    }

    async fn starting(&self, turn: Turn) -> Option<SemaphorePermit<'_>> {
        match turn {
            Turn::Load => None,
            Turn::Long | Turn::Short | Turn::Last => self.start().await,
        }
    }

    /// Holds back what is to run without istiod; see [`Stage::end_istiod`].
    pub(crate) fn hold_istiod(&self) -> Token<'_> {
        self.istiod.token()
    }

    /// Ends istiod once all that needs it is over, and lets in what does not.
    pub(crate) async fn end_istiod(&self, lab: &Lab, held: Token<'_>) -> Result<()> {
        self.ended.over().await;
        self.last_started.over().await;
        let scale = ["scale", "deployment/istiod", "--replicas=0"];
        let wait = [
            "wait",
            "pod",
            "-l",
            "app=istiod",
            "--for=delete",
            ISTIOD_LIMIT,
        ];
        for arguments in [&scale[..], &wait[..]] {
            let namespace = ["--namespace", crate::mesh::NAMESPACE];
            lab.kubectl(&[&namespace[..], arguments].concat()).await?;
        }
        drop(held);
        Ok(())
    }
}

/// Waits for all that was announced.
#[derive(Default)]
struct Countdown(watch::Sender<usize>);

impl Countdown {
    fn token(&self) -> Token<'_> {
        self.0.send_modify(|left| *left += 1);
        Token(self)
    }

    async fn over(&self) {
        let mut left = self.0.subscribe();
        // The sender outlives this.
        let _ = left.wait_for(|left| *left == 0).await;
    }
}

/// Counts down when it goes.
pub(crate) struct Token<'a>(&'a Countdown);

impl Drop for Token<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|left| *left -= 1);
    }
}
