//! A process as the kubelet sees one: it runs, gets SIGTERM, exits or is killed.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A running stand-in (or a real child process). Clones are the same process; when the last is
/// dropped, the process is killed.
#[derive(Clone, Debug)]
pub struct Process {
    name: Arc<str>,
    control: Arc<Control>,
    exit: watch::Receiver<Option<Exit>>,
}

#[derive(Debug)]
struct Control {
    kill: watch::Sender<bool>,
    sigterms: watch::Sender<u32>,
}

/// When and how a process ended.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// When its last socket was closed.
    pub at: Instant,
    /// How.
    pub how: How,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By itself, with this code.
    Exited(u8),
    /// By SIGKILL.
    Killed,
}

/// What a process is made of: its tasks, all cut when it ends, and its signals.
#[derive(Clone, Debug)]
pub struct Scope {
    tasks: Arc<Mutex<Option<JoinSet<()>>>>,
    sigterms: watch::Receiver<u32>,
}

impl Process {
    /// Starts a process whose main function is `main`; what `main` returns is the exit code.
    ///
    /// Every task spawned in the [`Scope`] is cut when `main` returns or the process is killed.
    pub fn start<M, F>(name: &str, main: M) -> Process
    where
        M: FnOnce(Scope) -> F,
        F: Future<Output = u8> + Send + 'static,
    {
        let (kill, mut killed) = watch::channel(false);
        let (sigterms, sigterms_seen) = watch::channel(0);
        let (exit_now, exit) = watch::channel(None);
        let tasks = Arc::new(Mutex::new(Some(JoinSet::new())));
        let main = main(Scope {
            tasks: Arc::clone(&tasks),
            sigterms: sigterms_seen,
        });
        tokio::spawn(async move {
            let how = tokio::select! {
                biased;
                // An error is the last handle dropped: killed as well.
                _ = killed.wait_for(|killed| *killed) => How::Killed,
                code = main => How::Exited(code),
            };
            let set = tasks.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(mut set) = set {
                set.shutdown().await;
            }
            exit_now.send_replace(Some(Exit {
                at: Instant::now(),
                how,
            }));
        });
        Process {
            name: name.into(),
            control: Arc::new(Control { kill, sigterms }),
            exit,
        }
    }

    /// Takes over a real child process: SIGTERM and SIGKILL reach it.
    pub fn adopt(name: &str, mut child: tokio::process::Child) -> Process {
        Process::start(name, move |mut scope| async move {
            // Killed means this future is dropped, and the child with it.
            let pid = child
                .id()
                .and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
            loop {
                tokio::select! {
                    status = child.wait() => {
                        let code = status.ok().and_then(|status| status.code());
                        return code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
                    }
                    () = scope.next_sigterm() => {
                        if let Some(pid) = pid {
                            // A child that has just exited cannot be signalled, and need not be.
                            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                        }
                    }
                }
            }
        })
    }

    /// The name it was started under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends SIGTERM.
    pub fn sigterm(&self) {
        self.control
            .sigterms
            .send_modify(|count| *count = count.saturating_add(1));
    }

    /// Sends SIGKILL: every socket closes at once, with a reset where bytes were unread.
    pub fn kill(&self) {
        self.control.kill.send_replace(true);
    }

    /// Whether it has not ended yet.
    pub fn is_running(&self) -> bool {
        self.exit.borrow().is_none()
    }

    /// How many SIGTERMs it got.
    pub fn sigterms(&self) -> u32 {
        *self.control.sigterms.borrow()
    }

    /// Waits for its end.
    pub async fn exited(&self) -> Exit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await.map(|exit| *exit) {
            Ok(Some(exit)) => exit,
            // The task behind it panicked, or its runtime has gone.
            Ok(None) | Err(_) => Exit {
                at: Instant::now(),
                how: How::Killed,
            },
        }
    }
}

impl Scope {
    /// Spawns a task that ends with the process at the latest.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(set) = tasks.as_mut() {
            while set.try_join_next().is_some() {}
            set.spawn(task);
        }
    }

    /// Waits for the first SIGTERM; ready at once where it has come.
    pub async fn sigterm(&mut self) {
        self.sigterms_reach(1).await;
    }

    /// Waits until `count` SIGTERMs have come.
    pub async fn sigterms_reach(&mut self, count: u32) {
        if self.sigterms.wait_for(|seen| *seen >= count).await.is_err() {
            // No handle is left: the process is about to be killed.
            std::future::pending::<()>().await;
        }
    }

    /// Waits for a SIGTERM later than the last one that this returned for.
    async fn next_sigterm(&mut self) {
        if self.sigterms.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl<F> hyper::rt::Executor<F> for Scope
where
    F: Future + Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn(async move {
            task.await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn main_ends_and_its_tasks_with_it() {
        let (dropped, gone) = tokio::sync::oneshot::channel::<()>();
        let process = Process::start("p", |scope| async move {
            scope.spawn(async move {
                let _held = dropped;
                std::future::pending::<()>().await;
            });
            tokio::task::yield_now().await;
            7
        });
        assert_eq!(process.exited().await.how, How::Exited(7));
        gone.await
            .expect_err("the task was cut, so its sender was dropped");
        assert!(!process.is_running());
    }

    #[tokio::test]
    async fn sigterm_reaches_main_and_kill_does_not_ask() {
        let polite = Process::start("polite", |mut scope| async move {
            scope.sigterm().await;
            0
        });
        let stubborn = Process::start("stubborn", |_scope| std::future::pending());
        polite.sigterm();
        stubborn.sigterm();
        assert_eq!(polite.exited().await.how, How::Exited(0));
        assert!(stubborn.is_running());
        stubborn.kill();
        assert_eq!(stubborn.exited().await.how, How::Killed);
    }

    #[tokio::test]
    async fn a_real_child_gets_its_signals() {
        let child = |script: &str| {
            tokio::process::Command::new("sh")
                .args(["-c", script])
                .kill_on_drop(true)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("sh starts")
        };
        let mut polite = child("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done");
        let mut out = polite.stdout.take().expect("piped");
        let mut ready = [0; 6];
        tokio::io::AsyncReadExt::read_exact(&mut out, &mut ready)
            .await
            .expect("ready");
        let polite = Process::adopt("polite", polite);
        polite.sigterm();
        assert_eq!(polite.exited().await.how, How::Exited(3));

        let stubborn = Process::adopt("stubborn", child("exec sleep 600"));
        stubborn.kill();
        assert_eq!(stubborn.exited().await.how, How::Killed);
    }
}
