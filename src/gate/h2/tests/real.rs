//! A real client and a real server, which judge every frame that they get, with the engine between
//! them.

use std::time::Duration;

use bytes::Bytes;
use h2::{RecvStream, SendStream, client, server};
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::*;

/// Longer than any test takes: time is paused, so this is over once everybody waits.
const LIMIT: Duration = Duration::from_secs(60);

/// What a pair of sockets holds, in bytes: never full, since the pump writes before it reads on.
const ROOM: usize = 8 << 20;

/// A client's connection through the gate.
struct Through {
    client: client::SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
    stage: watch::Sender<Stage>,
    pump: JoinHandle<Rig<Engine>>,
    counter: Counter,
    /// Tells the server to begin its own graceful shutdown.
    shut: Option<oneshot::Sender<()>>,
}

impl Through {
    /// `size`: how much the pump reads at once.
    async fn connect(size: usize) -> Through {
        let (client, gate_client) = duplex(ROOM);
        let (gate_server, server) = duplex(ROOM);
        let (stage, stages) = watch::channel(Stage::Serving);
        let counter = Counter::default();
        let engine = Engine::new(counter.clone());
        let pump = tokio::spawn(pump(
            Rig::new(engine),
            gate_client,
            gate_server,
            stages,
            size,
        ));
        let (shut, shutting) = oneshot::channel();
        tokio::spawn(serve(server, shutting));
        let (client, connection) = client::handshake(client).await.unwrap();
        let mut through = Through {
            client,
            connection: tokio::spawn(connection),
            stage,
            pump,
            counter,
            shut: Some(shut),
        };
        // Both sides have said hello once a request is answered.
        let reply = through.post(HeaderMap::new(), &b"hello"[..]).await;
        assert_eq!(reply.unwrap(), b"hello");
        through
    }

    /// A request whose body comes back, with trailers.
    async fn post(
        &mut self,
        headers: HeaderMap,
        body: impl Into<Bytes>,
    ) -> Result<Vec<u8>, h2::Error> {
        let (reply, body_out) = self.begin(headers).await?;
        let sending = tokio::spawn(send(body_out, body.into(), true));
        let mut body = reply.await?.into_body();
        let mut whole = Vec::new();
        while let Some(piece) = receive(&mut body).await? {
            whole.extend_from_slice(&piece);
        }
        let trailers = body.trailers().await?.unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        sending.await.unwrap()?;
        Ok(whole)
    }

    /// The head of a request.
    async fn begin(
        &mut self,
        headers: HeaderMap,
    ) -> Result<(client::ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut client = self.client.clone().ready().await?;
        let mut request = Request::post("http://workload/").body(()).unwrap();
        *request.headers_mut() = headers;
        client.send_request(request, false)
    }

    /// What the client says of a new request once it was told to go elsewhere.
    async fn told(&self) -> h2::Error {
        for _ in 0..10_000 {
            if let Err(error) = self.client.clone().ready().await {
                return error;
            }
            tokio::task::yield_now().await;
        }
        panic!("the client takes new requests");
    }

    /// The client's connection has ended without an error, and so has the gate's.
    async fn ends_well(self) -> Rig<Engine> {
        timeout(LIMIT, self.connection)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        let rig = timeout(LIMIT, self.pump).await.unwrap().unwrap();
        assert_eq!(self.counter.active(Counted::Stream), 0);
        assert_eq!(self.counter.active(Counted::Tunnel), 0);
        assert_eq!(rig.engine.doubt, None);
        rig
    }
}

/// Moves bytes between two sockets and an engine until either ends or the engine is finished.
async fn pump(
    mut rig: Rig<Engine>,
    client: DuplexStream,
    server: DuplexStream,
    mut stages: watch::Receiver<Stage>,
    size: usize,
) -> Rig<Engine> {
    let (mut client_read, mut client_write) = split(client);
    let (mut server_read, mut server_write) = split(server);
    let (mut up, mut down) = (vec![0; size], vec![0; size]);
    loop {
        let ended = tokio::select! {
            read = client_read.read(&mut up) => take(&mut rig, Direction::Up, &up[..read.unwrap()]),
            read = server_read.read(&mut down) => {
                take(&mut rig, Direction::Down, &down[..read.unwrap()])
            }
            Ok(()) = stages.changed() => {
                rig.engine.stage(*stages.borrow_and_update());
                rig.inject();
                false
            }
        };
        // What goes up goes first: the server's last byte may follow on it.
        let _ = server_write
            .write_all(&std::mem::take(&mut rig.up.out))
            .await;
        let _ = client_write
            .write_all(&std::mem::take(&mut rig.down.out))
            .await;
        if ended || rig.engine.state() == State::Finished {
            let _ = server_write.shutdown().await;
            let _ = client_write.shutdown().await;
            return rig;
        }
    }
}

fn take(rig: &mut Rig<Engine>, direction: Direction, bytes: &[u8]) -> bool {
    match bytes {
        [] => rig.end(direction, false),
        bytes => rig.feed(direction, bytes),
    }
    bytes.is_empty()
}

/// Sends each request's body back as it comes, then trailers.
async fn serve(io: DuplexStream, mut shut: oneshot::Receiver<()>) {
    let mut connection = server::handshake(io).await.unwrap();
    let mut shutting = false;
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            Ok(()) = &mut shut, if !shutting => {
                shutting = true;
                connection.graceful_shutdown();
                continue;
            }
        };
        let Some(Ok((request, reply))) = accepted else {
            return;
        };
        tokio::spawn(echo(request, reply));
    }
}

async fn echo(
    request: Request<RecvStream>,
    mut reply: server::SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let mut response = Response::new(());
    *response.headers_mut() = request.headers().clone();
    let mut out = reply.send_response(response, false)?;
    let mut body = request.into_body();
    while let Some(piece) = receive(&mut body).await? {
        out = send(out, piece, false).await?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    out.send_trailers(trailers)
}

async fn receive(body: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
    let piece = body.data().await.transpose()?;
    if let Some(piece) = &piece {
        body.flow_control().release_capacity(piece.len())?;
    }
    Ok(piece)
}

/// Sends as the other side's window allows.
async fn send(
    mut out: SendStream<Bytes>,
    mut body: Bytes,
    ends: bool,
) -> Result<SendStream<Bytes>, h2::Error> {
    while !body.is_empty() {
        out.reserve_capacity(body.len());
        let room = std::future::poll_fn(|cx| out.poll_capacity(cx)).await;
        let room = room.unwrap_or(Ok(0))?;
        out.send_data(body.split_to(room.min(body.len())), false)?;
    }
    if ends {
        out.send_data(Bytes::new(), true)?;
    }
    Ok(out)
}

/// A header block that takes several CONTINUATION frames.
fn big() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for at in 0..10 {
        let name = http::HeaderName::try_from(format!("x-big-{at}")).unwrap();
        let value = format!("{at}").repeat(8000);
        headers.insert(name, value.parse().unwrap());
    }
    headers
}

#[tokio::test(start_paused = true)]
async fn requests_in_the_middle_of_a_drain_are_answered() {
    for size in [1 << 16, 100, 7] {
        let through = Through::connect(size).await;
        let mut requests = JoinSet::new();
        let long = Bytes::from(vec![b'x'; if size > 1000 { 300_000 } else { 20_000 }]);
        let mut begun = Vec::new();
        let mut through = through;
        for at in 0..20 {
            let headers = if at % 3 == 0 { big() } else { HeaderMap::new() };
            begun.push(through.begin(headers).await.unwrap());
        }
        // One is given up by the client.
        let (reply, mut out) = begun.pop().unwrap();
        out.send_reset(h2::Reason::CANCEL);
        assert!(reply.await.is_err());

        for (at, (reply, out)) in begun.into_iter().enumerate() {
            let long = long.clone();
            requests.spawn(async move {
                let sending = tokio::spawn(send(out, long.clone(), true));
                let reply = reply.await.unwrap();
                assert_eq!(reply.status(), StatusCode::OK);
                assert_eq!(reply.headers().len(), if at % 3 == 0 { 10 } else { 0 });
                let mut body = reply.into_body();
                let mut whole = Vec::new();
                while let Some(piece) = receive(&mut body).await.unwrap() {
                    whole.extend_from_slice(&piece);
                }
                assert!(whole == long);
                assert!(body.trailers().await.unwrap().is_some());
                sending.await.unwrap().unwrap();
            });
        }
        timeout(LIMIT, requests.join_next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        through.stage.send(Stage::Announcing).unwrap();
        while let Some(done) = timeout(LIMIT, requests.join_next()).await.unwrap() {
            done.unwrap();
        }
        let rig = through.ends_well().await;
        assert_eq!(
            rig.up.swallowed.len(),
            PING,
            "the client answered the gate's PING"
        );
        assert_eq!(rig.engine.state(), State::Finished);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_on_through_a_drain() {
    let mut through = Through::connect(1 << 16).await;
    let (reply, mut out) = through.begin(HeaderMap::new()).await.unwrap();
    let mut body = reply.await.unwrap().into_body();
    assert_eq!(through.counter.active(Counted::Stream), 1);
    for stage in [
        Stage::Serving,
        Stage::Announcing,
        Stage::Draining,
        Stage::EndingUpgrades,
        Stage::Closed,
    ] {
        through.stage.send(stage).unwrap();
        for message in ["one", "two", "three"] {
            out = send(out, message.into(), false).await.unwrap();
            let answer = timeout(LIMIT, receive(&mut body)).await.unwrap();
            assert_eq!(answer.unwrap().unwrap(), message);
        }
        if stage == Stage::Announcing {
            let error = through.told().await;
            assert!(error.is_go_away() && error.is_remote(), "{error:?}");
            // The workload begins its own farewell, with a higher last id than the client was told.
            let _ = through.shut.take().unwrap().send(());
        }
        assert_eq!(through.counter.active(Counted::Stream), 1);
    }
    send(out, Bytes::new(), true).await.unwrap();
    assert!(receive(&mut body).await.unwrap().is_none());
    assert!(body.trailers().await.unwrap().is_some());
    through.ends_well().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_leaves_when_it_is_told() {
    let through = Through::connect(1 << 16).await;
    through.stage.send(Stage::Announcing).unwrap();
    let rig = through.ends_well().await;
    assert_eq!(rig.engine.state(), State::Finished);
}

#[tokio::test(start_paused = true)]
async fn without_a_drain_the_client_ends_it() {
    let mut through = Through::connect(1 << 16).await;
    assert_eq!(through.post(big(), &b"again"[..]).await.unwrap(), b"again");
    let Through {
        client,
        connection,
        stage,
        pump,
        counter,
        shut,
    } = through;
    drop(client);
    timeout(LIMIT, connection).await.unwrap().unwrap().unwrap();
    let rig = timeout(LIMIT, pump).await.unwrap().unwrap();
    assert!(rig.down.own.is_empty() && rig.up.own.is_empty());
    assert_eq!(counter.active(Counted::Stream), 0);
    drop((stage, shut));
}

/// Gives a client what an engine says of a workload that is gone, then closes.
async fn lost(
    mut rig: Rig<Engine>,
    mut io: impl AsyncRead + tokio::io::AsyncWrite + Unpin,
    head: usize,
) {
    let mut bytes = vec![0; 4096];
    let mut read = 0;
    while read < head {
        let more = io.read(&mut bytes).await.unwrap();
        rig.client(&bytes[..more]);
        read = rig
            .up
            .out
            .windows(9)
            .filter(|header| header[3..9] == [1, 5, 0, 0, 0, 1])
            .count();
    }
    io.write_all(&rig.engine.upstream_lost().unwrap())
        .await
        .unwrap();
    io.shutdown().await.unwrap();
    // What the client says to it is read, or it would take the end for a failure.
    while io.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
}

#[tokio::test(start_paused = true)]
async fn a_client_understands_that_its_workload_is_gone() {
    for reached in [true, false] {
        let (io, gate) = duplex(ROOM);
        let rig = Rig::new(Engine::new(Counter::default()));
        let gate = tokio::spawn(lost(rig, gate, usize::from(reached)));
        let (client, connection) = client::handshake(io).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::get("http://workload/").body(()).unwrap();
        let (reply, _) = client
            .ready()
            .await
            .unwrap()
            .send_request(request, true)
            .unwrap();
        let err = timeout(LIMIT, reply).await.unwrap().unwrap_err();
        if reached {
            assert_eq!(err.reason(), Some(h2::Reason::INTERNAL_ERROR));
            assert!(err.is_reset() && err.is_remote());
        } else {
            assert_eq!(
                err.reason(),
                Some(h2::Reason::NO_ERROR),
                "it may be tried again"
            );
            assert!(err.is_go_away() && err.is_remote());
        }
        let ended = timeout(LIMIT, connection).await.unwrap().unwrap();
        assert_eq!(ended.is_ok(), !reached);
        timeout(LIMIT, gate).await.unwrap().unwrap();
    }
}
