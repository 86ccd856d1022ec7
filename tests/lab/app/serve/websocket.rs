//! The app's WebSocket echo.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tidegate::standin::Scope;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::Exchange;
use crate::feed::{Body, full};

/// The longest silence of a client.
const SILENCE_MAX: Duration = Duration::from_secs(600);

pub(super) fn upgrade(
    scope: &Scope,
    exchange: Exchange,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, String> {
    let key = request.headers().get(SEC_WEBSOCKET_KEY);
    let key = key.ok_or("not a WebSocket handshake: no sec-websocket-key")?;
    let accept = derive_accept_key(key.as_bytes());
    let upgraded = hyper::upgrade::on(&mut request);
    scope.spawn(async move {
        let Ok(stream) = upgraded.await else { return };
        let stream = TokioIo::new(stream);
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        // How it ended otherwise is the client's to see.
        if echo(socket).await.is_ok() {
            exchange.whole();
        }
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_ACCEPT, accept)
        .body(full(""))
        .map_err(|error| error.to_string())
}

/// Ends well with the closing handshake, which the socket itself answers.
async fn echo<S>(mut socket: WebSocketStream<S>) -> Result<(), Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    loop {
        match tokio::time::timeout(SILENCE_MAX, socket.next()).await {
            Ok(Some(Ok(message @ (Message::Text(_) | Message::Binary(_))))) => {
                socket.send(message).await?;
            }
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => return Err(error),
            Ok(None) => return Ok(()),
            Err(_) => return Err(Error::Io(std::io::ErrorKind::TimedOut.into())),
        }
    }
}
