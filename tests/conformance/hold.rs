//! A relay in front of an h2c server that holds replies back in the middle of their streams, until it
//! is told to let them go.

use std::io;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;

/// A running one, ended when dropped with all its connections.
pub(crate) struct Hold {
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

struct State {
    /// Connections that have come to be held.
    held: watch::Sender<usize>,
    released: watch::Sender<bool>,
}

impl Hold {
    /// Listens on one port of this namespace and passes what comes to another.
    pub(crate) async fn start(listen: u16, upstream: u16) -> Hold {
        let listener = TcpListener::bind(("127.0.0.1", listen)).await;
        let listener = listener.expect("a port of the namespace");
        let state = Arc::new(State {
            held: watch::Sender::new(0),
            released: watch::Sender::new(false),
        });
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                // How it ended is its two ends' to see.
                let state = Arc::clone(&shared);
                connections.spawn(async move { drop(pass(client, upstream, &state).await) });
                while connections.try_join_next().is_some() {}
            }
        });
        Hold {
            state,
            _tasks: tasks,
        }
    }

    /// Waits until so many connections are held.
    pub(crate) async fn holds(&self, connections: usize) {
        let mut held = self.state.held.subscribe();
        let reached = held.wait_for(|held| *held >= connections).await;
        reached.expect("the sender lives in here");
    }

    /// Lets go, now and of all that comes.
    pub(crate) fn release(&self) {
        self.state.released.send_replace(true);
    }
}

async fn pass(mut client: TcpStream, upstream: u16, state: &State) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", upstream)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let up = async {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let length = from_client.read(&mut buffer).await?;
            if length == 0 {
                return to_server.shutdown().await;
            }
            to_server.write_all(&buffer[..length]).await?;
        }
    };
    let down = async {
        let mut buffer = BytesMut::new();
        let mut held = false;
        loop {
            let length = from_server.read_buf(&mut buffer).await?;
            while !held && let Some(frame) = first_frame(&buffer) {
                if frame.is_to_be_held {
                    held = true;
                    state.held.send_modify(|held| *held += 1);
                    // The sender lives as long as `state`.
                    let _ = state
                        .released
                        .subscribe()
                        .wait_for(|released| *released)
                        .await;
                } else {
                    to_client.write_all(&buffer[..frame.length]).await?;
                    buffer.advance(frame.length);
                }
            }
            if held || length == 0 {
                to_client.write_all(&buffer).await?;
                buffer.clear();
            }
            if length == 0 {
                return to_client.shutdown().await;
            }
        }
    };
    tokio::try_join!(up, down).map(drop)
}

struct Frame {
    length: usize,
    /// It carries a message, or the end of the stream.
    is_to_be_held: bool,
}

/// The first frame, once it is whole.
fn first_frame(bytes: &[u8]) -> Option<Frame> {
    let head: [u8; HEAD] = bytes.get(..HEAD)?.try_into().ok()?;
    let [high, middle, low, kind, flags, ..] = head;
    let length = HEAD + u32::from_be_bytes([0, high, middle, low]) as usize;
    (bytes.len() >= length).then_some(Frame {
        length,
        is_to_be_held: kind == DATA || kind == HEADERS && flags & END_STREAM != 0,
    })
}
