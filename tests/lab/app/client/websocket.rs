//! A WebSocket client: one message, one echo, and a clean close at the end.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use hyper::Uri;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::exchange::connect;
use crate::plan::Target;
use crate::record::{Failure, Seen};

/// Sends `count` messages, one every `every`, and then closes.
pub(super) async fn echo(
    target: &Target,
    count: u64,
    every: Duration,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let stream = connect(target, None).await?;
    let uri: Uri = format!("ws://{}/ws", target.authority)
        .parse()
        .map_err(|error| Failure::broken(&error))?;
    let mut socket = match client_async(uri, stream).await {
        Ok((socket, response)) => {
            seen.head(response.status().as_u16());
            socket
        }
        Err(error) => {
            if let Error::Http(response) = &error {
                seen.head(response.status().as_u16());
            }
            return Err(Failure::broken(&error));
        }
    };
    let mut due = Instant::now();
    for number in 1..=count {
        let text = format!("message {number} of {count}");
        socket
            .send(Message::text(text.clone()))
            .await
            .map_err(|error| Failure::broken(&error))?;
        match next(&mut socket).await? {
            Message::Text(echo) if echo.as_str() == text => seen.more(text.len()),
            other => return Err(unexpected(&other)),
        }
        due += every;
        tokio::select! {
            () = sleep_until(due) => {}
            early = next(&mut socket) => return Err(unexpected(&early?)),
        }
    }
    close(&mut socket, seen).await
}

/// The closing handshake: ours, the app's, and then the end of the connection.
async fn close(socket: &mut WebSocketStream<TcpStream>, seen: &mut Seen) -> Result<(), Failure> {
    let normal = CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    };
    socket
        .close(Some(normal))
        .await
        .map_err(|error| Failure::broken(&error))?;
    match next(socket).await? {
        Message::Close(Some(frame)) if frame.code == CloseCode::Normal => seen.more(0),
        other => return Err(unexpected(&other)),
    }
    match socket.next().await {
        None => Ok(()),
        Some(Ok(message)) => Err(unexpected(&message)),
        Some(Err(error)) => Err(Failure::broken(&error)),
    }
}

/// The next message but pings and pongs, which the socket answers itself.
async fn next(socket: &mut WebSocketStream<TcpStream>) -> Result<Message, Failure> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(message)) => return Ok(message),
            Some(Err(error)) => return Err(Failure::broken(&error)),
            None => return Err(Failure::Broken("the connection ended".to_owned())),
        }
    }
}

fn unexpected(message: &Message) -> Failure {
    Failure::Broken(match message {
        Message::Close(Some(frame)) => format!("closed early with code {}", frame.code),
        Message::Close(None) => "closed early without a code".to_owned(),
        other => format!("a message that nobody asked for: {other:?}"),
    })
}
