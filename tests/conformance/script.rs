//! Both ends of one connection, each playing a script: what they receive, byte by byte, and how it
//! ends.

use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use Step::{Await, Finish, Read, Reset, Send, Tell, ToEnd, Until};

/// How long a whole script may take; one that passes takes milliseconds.
const LIMIT: Duration = Duration::from_secs(10);
/// Of longer bytes, their hash and their last few are shown.
const SHOWN_MAX: usize = 600;

/// What an end does next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Writes.
    Send(Vec<u8>),
    /// Reads until these bytes have come, and not beyond.
    Until(&'static str),
    /// Reads so many bytes.
    Read(usize),
    /// Closes its own direction.
    Finish,
    /// Reads until the other direction ends, one way or another.
    ToEnd,
    /// Breaks the connection.
    Reset,
    /// Lets the other end go on from its [`Step::Await`], outside of the connection.
    Tell,
    /// Waits for the other end's [`Step::Tell`].
    Await,
}

/// Writes a text.
pub(crate) fn send(text: impl Into<String>) -> Step {
    Send(text.into().into_bytes())
}

/// How what an end received stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The script ended first.
    Script,
    /// The other direction was closed.
    Closed,
    /// The connection broke.
    Broken,
}

/// What one end saw.
pub(crate) struct Seen {
    pub(crate) bytes: Vec<u8>,
    pub(crate) stop: Stop,
    /// The step that was not done in time, if any.
    pub(crate) stuck_at: Option<usize>,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = self.bytes.len().saturating_sub(SHOWN_MAX);
        if skipped > 0 {
            let mut hasher = DefaultHasher::new();
            self.bytes.hash(&mut hasher);
            let (length, hash) = (self.bytes.len(), hasher.finish());
            write!(f, "[{length} bytes of hash {hash:016x}, that end so:]")?;
        }
        write!(
            f,
            "\"{}\" {:?}",
            self.bytes[skipped..].escape_ascii(),
            self.stop
        )?;
        match self.stuck_at {
            Some(step) => write!(f, ", stuck at step {step}"),
            None => Ok(()),
        }
    }
}

/// What the two ends tell each other outside of their connection.
pub(crate) struct Signals {
    to_client: Semaphore,
    to_server: Semaphore,
}

impl Signals {
    pub(crate) fn new() -> Signals {
        Signals {
            to_client: Semaphore::new(0),
            to_server: Semaphore::new(0),
        }
    }
}

/// The two ends.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Client,
    Server,
}

/// The listener of a backend.
pub(crate) async fn listen(port: u16) -> TcpListener {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    listener.expect("a port of the namespace")
}

/// Plays the client, over a new connection to a port of this namespace.
pub(crate) async fn client(port: u16, script: &[Step], signals: &Signals) -> Seen {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
    let stream = stream.expect("something listens");
    End::new(stream, Side::Client, signals).play(script).await
}

/// Plays the server, over the next connection.
pub(crate) async fn server(listener: &TcpListener, script: &[Step], signals: &Signals) -> Seen {
    match timeout(LIMIT, listener.accept()).await {
        Ok(accepted) => {
            let (stream, _) = accepted.expect("a connection");
            End::new(stream, Side::Server, signals).play(script).await
        }
        Err(_) => Seen {
            bytes: Vec::new(),
            stop: Stop::Script,
            stuck_at: Some(0),
        },
    }
}

struct End<'a> {
    stream: TcpStream,
    awaited: &'a Semaphore,
    told: &'a Semaphore,
    /// Received, and wanted by no step yet.
    ahead: Vec<u8>,
    seen: Vec<u8>,
    stop: Stop,
}

impl<'a> End<'a> {
    fn new(stream: TcpStream, side: Side, signals: &'a Signals) -> End<'a> {
        // Each step's bytes are a segment of their own.
        let _ = stream.set_nodelay(true);
        let (awaited, told) = match side {
            Side::Client => (&signals.to_client, &signals.to_server),
            Side::Server => (&signals.to_server, &signals.to_client),
        };
        End {
            stream,
            awaited,
            told,
            ahead: Vec::new(),
            seen: Vec::new(),
            stop: Stop::Script,
        }
    }

    async fn play(mut self, script: &[Step]) -> Seen {
        let mut stuck_at = None;
        for (at, step) in script.iter().enumerate() {
            match timeout(LIMIT, self.step(step)).await {
                Ok(Ok(())) => {}
                // It ended while more was to come.
                Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.stop = Stop::Closed;
                    stuck_at = Some(at);
                    break;
                }
                Ok(Err(_)) => {
                    self.stop = Stop::Broken;
                    break;
                }
                Err(_) => {
                    stuck_at = Some(at);
                    break;
                }
            }
        }
        self.seen.append(&mut self.ahead);
        Seen {
            bytes: self.seen,
            stop: self.stop,
            stuck_at,
        }
    }

    async fn step(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Send(bytes) => self.stream.write_all(bytes).await,
            Until(mark) => loop {
                if let Some(at) = memmem::find(&self.ahead, mark.as_bytes()) {
                    self.take(at + mark.len());
                    return Ok(());
                }
                self.receive().await?;
            },
            Read(length) => {
                while self.ahead.len() < *length {
                    self.receive().await?;
                }
                self.take(*length);
                Ok(())
            }
            Finish => self.stream.shutdown().await,
            ToEnd => match self.receive_all().await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.stop = Stop::Closed;
                    Ok(())
                }
                ended => ended,
            },
            Reset => self.stream.set_zero_linger(),
            Tell => {
                self.told.add_permits(1);
                Ok(())
            }
            Await => {
                let permit = self.awaited.acquire().await;
                permit.expect("it is never closed").forget();
                Ok(())
            }
        }
    }

    /// Receives something; an unexpected end of file where nothing more comes.
    async fn receive(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.ahead).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Receives until that fails.
    async fn receive_all(&mut self) -> io::Result<()> {
        loop {
            self.receive().await?;
        }
    }

    fn take(&mut self, length: usize) {
        self.seen.extend(self.ahead.drain(..length));
    }
}

/// A verdict: all that both ends saw, in words.
pub(crate) fn verdict(client: &dyn fmt::Debug, server: &Seen) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "client {client:?}\nserver {server:?}");
    text
}
