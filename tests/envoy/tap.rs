//! Stands at Envoy's admin port: notes every request, passes it on, and can do something when a
//! certain one comes.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate::standin::{Process, Scope};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// The longest request head; Tidegate's are a tenth of it.
const HEAD_MAX: usize = 8192;
/// How long a connection may take to say what it wants.
const HEAD_LIMIT: Duration = Duration::from_secs(10);

/// A request that passed.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) at: Instant,
    /// `POST /quitquitquit`: verb, path and query.
    pub(crate) what: String,
}

/// A running tap. Killed, its port refuses.
#[derive(Clone)]
pub(crate) struct Tap {
    pub(crate) process: Process,
    calls: watch::Sender<Vec<Call>>,
    rule: Arc<Mutex<Option<Rule>>>,
}

struct Rule {
    what: String,
    act: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tap").field(&self.calls()).finish()
    }
}

impl Tap {
    /// Starts one at `listen` before `target`.
    pub(crate) async fn start(listen: SocketAddr, target: SocketAddr) -> Tap {
        let listener = TcpListener::bind(listen).await.expect("a free port");
        let calls = watch::Sender::new(Vec::new());
        let rule = Arc::new(Mutex::new(None));
        let (seen, ruled) = (calls.clone(), Arc::clone(&rule));
        let process = Process::start("tap", move |scope| {
            accept(scope, listener, target, seen, ruled)
        });
        Tap {
            process,
            calls,
            rule,
        }
    }

    /// Does `act` when `what` ("POST /quitquitquit") is asked for the next time, before it is passed
    /// on.
    pub(crate) fn when(&self, what: &str, act: impl FnOnce() + Send + 'static) {
        let rule = Rule {
            what: what.to_owned(),
            act: Box::new(act),
        };
        *self.rule.lock().unwrap_or_else(PoisonError::into_inner) = Some(rule);
    }

    /// All requests so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.borrow().clone()
    }
}

async fn accept(
    scope: Scope,
    listener: TcpListener,
    target: SocketAddr,
    calls: watch::Sender<Vec<Call>>,
    rule: Arc<Mutex<Option<Rule>>>,
) -> u8 {
    while let Ok((stream, _)) = listener.accept().await {
        let (calls, rule) = (calls.clone(), Arc::clone(&rule));
        scope.spawn(async move {
            // How the connection ended is its peer's to see.
            let _ = pass(stream, target, &calls, &rule).await;
        });
    }
    1
}

async fn pass(
    mut client: TcpStream,
    target: SocketAddr,
    calls: &watch::Sender<Vec<Call>>,
    rule: &Mutex<Option<Rule>>,
) -> io::Result<()> {
    let head = timeout(HEAD_LIMIT, read_head(&mut client)).await??;
    let line = String::from_utf8_lossy(&head);
    let line = line.lines().next().unwrap_or_default();
    let what = line.rsplit_once(' ').map_or(line, |(what, _)| what);
    calls.send_modify(|calls| {
        calls.push(Call {
            at: Instant::now(),
            what: what.to_owned(),
        });
    });
    let due = rule
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take_if(|rule| rule.what == what);
    if let Some(rule) = due {
        (rule.act)();
    }
    let mut target = TcpStream::connect(target).await?;
    target.write_all(&head).await?;
    let (mut client_read, mut client_write) = client.split();
    let (mut target_read, mut target_write) = target.split();
    let up = async {
        tokio::io::copy(&mut client_read, &mut target_write).await?;
        target_write.shutdown().await
    };
    let down = async {
        tokio::io::copy(&mut target_read, &mut client_write).await?;
        client_write.shutdown().await
    };
    tokio::try_join!(up, down).map(|_| ())
}

/// A request's head. What follows it, if anything, is read with it.
async fn read_head(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let full = head.len() >= HEAD_MAX;
        if full || client.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(head)
}
