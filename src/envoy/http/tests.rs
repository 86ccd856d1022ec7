//! The client against servers that misbehave in every way, over real loopback sockets.

use std::path::Path;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;

use super::*;

/// For calls that must be cut by it.
pub(crate) const SHORT: Duration = Duration::from_millis(100);

/// For calls that must not.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// What a server does with each connection.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// Reads the request, writes this and closes.
    Answer(Vec<u8>),
    /// The same, and then stays silent.
    AnswerAndHang(Vec<u8>),
    /// Reads the request and resets the connection.
    Reset,
    /// Closes without reading.
    Close,
}

/// A server on loopback, for as long as the value lives.
pub(crate) struct Server {
    pub(crate) address: Address,
    heads: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(behaviour: Behaviour) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let heads = Arc::default();
        let seen = Arc::clone(&heads);
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                if matches!(behaviour, Behaviour::Reset) {
                    stream.set_zero_linger().unwrap();
                }
                let hung = serve(&mut stream, &behaviour, &seen).await;
                if hung {
                    std::future::pending::<()>().await;
                }
            }
        });
        Server {
            address,
            heads,
            task,
        }
    }

    pub(crate) async fn start_unix(path: &Path, behaviour: Behaviour) -> Server {
        let listener = UnixListener::bind(path).unwrap();
        let heads = Arc::default();
        let seen = Arc::clone(&heads);
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                serve(&mut stream, &behaviour, &seen).await;
            }
        });
        Server {
            address: Address::Unix(path.to_owned()),
            heads,
            task,
        }
    }

    /// The one request's head.
    pub(crate) fn head(&self) -> String {
        let heads = self.heads.lock().unwrap();
        assert_eq!(heads.len(), 1, "{heads:?}");
        heads[0].clone()
    }
}

async fn serve(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    behaviour: &Behaviour,
    heads: &Mutex<Vec<String>>,
) -> bool {
    if matches!(behaviour, Behaviour::Close) {
        return false;
    }
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else {
            return false;
        };
        head.push(byte);
    }
    heads.lock().unwrap().push(String::from_utf8(head).unwrap());
    if let Behaviour::Answer(answer) | Behaviour::AnswerAndHang(answer) = behaviour {
        // A client that has hung up is what some tests are about.
        let _ = stream.write_all(answer).await;
    }
    matches!(behaviour, Behaviour::AnswerAndHang(_))
}

/// A whole answer as Envoy's admin sends it, in two chunks.
pub(crate) fn chunked(status: &str, body: &str) -> Behaviour {
    let (first, second) = body.split_at(body.len() / 2);
    let mut answer =
        format!("HTTP/1.1 {status}\r\nserver: envoy\r\ntransfer-encoding: chunked\r\n\r\n");
    for part in [first, second].into_iter().filter(|part| !part.is_empty()) {
        answer += &format!("{:x}\r\n{part}\r\n", part.len());
    }
    answer += "0\r\n\r\n";
    Behaviour::Answer(answer.into_bytes())
}

/// A whole answer as Go's net/http sends it.
pub(crate) fn with_length(status: &str, body: &[u8]) -> Behaviour {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Behaviour::Answer([head.as_bytes(), body].concat())
}

pub(crate) fn raw(answer: &str) -> Behaviour {
    Behaviour::Answer(answer.as_bytes().to_vec())
}

/// An address where nobody listens.
pub(crate) async fn nobody() -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    Address::Tcp(listener.local_addr().unwrap())
}

async fn get(address: &Address, timeout: Duration, limit: u64) -> Result<String, CallError> {
    let client = Client::new(address.clone()).with_timeout(timeout);
    let mut body = Vec::new();
    let sink = |piece: &[u8]| body.extend_from_slice(piece);
    client.get("/path?query", None, limit, sink).await?;
    Ok(String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn whole_answers() {
    for behaviour in [
        chunked("200 OK", "0123456789"),
        with_length("200 Fine", b"0123456789"),
        // Whole, whatever becomes of the connection then.
        Behaviour::AnswerAndHang(
            b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789".to_vec(),
        ),
        raw("HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"),
        raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789"),
    ] {
        let server = Server::start(behaviour).await;
        assert_eq!(
            get(&server.address, LONG, 10).await.as_deref(),
            Ok("0123456789")
        );
        assert_eq!(
            server.head(),
            "GET /path?query HTTP/1.1\r\nhost: localhost\r\n\r\n"
        );
    }
    let server = Server::start(with_length("200 OK", b"")).await;
    assert_eq!(get(&server.address, LONG, 0).await.as_deref(), Ok(""));
}

#[tokio::test]
async fn over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin");
    let server = Server::start_unix(&path, chunked("200 OK", "over unix")).await;
    assert_eq!(
        get(&server.address, LONG, 100).await.as_deref(),
        Ok("over unix")
    );
    drop(server);
    std::fs::remove_file(&path).unwrap();
    let absent = Address::Unix(path.clone());
    assert_eq!(get(&absent, LONG, 100).await, Err(CallError::Refused));
    // A socket file whose process has died.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert_eq!(get(&absent, LONG, 100).await, Err(CallError::Refused));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(path.with_extension("file"), "").unwrap();
    let beneath = Address::Unix(path.with_extension("file").join("admin"));
    assert_eq!(get(&beneath, LONG, 100).await, Err(CallError::Broken));
}

#[tokio::test]
async fn bad_answers() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let cases = [
        ("nothing", raw(""), CallError::Broken),
        ("closed unread", Behaviour::Close, CallError::Broken),
        ("reset", Behaviour::Reset, CallError::Broken),
        (
            "half a head",
            raw("HTTP/1.1 200 OK\r\ncontent-le"),
            CallError::Broken,
        ),
        (
            "half a body",
            raw("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123"),
            CallError::Broken,
        ),
        (
            "half a chunk",
            raw(&format!("{head}a\r\n0123")),
            CallError::Broken,
        ),
        (
            "no last chunk",
            raw(&format!("{head}4\r\n0123\r\n")),
            CallError::Broken,
        ),
        (
            "a bad chunk",
            raw(&format!("{head}4\r\n0123\r\nzz\r\n")),
            CallError::Malformed,
        ),
        (
            "no end but the connection's",
            raw("HTTP/1.1 200 OK\r\n\r\n0123"),
            CallError::Malformed,
        ),
        (
            "garbage",
            raw("\x00\x01 what is this\r\n\r\n"),
            CallError::Malformed,
        ),
        (
            "another protocol",
            raw("SSH-2.0-OpenSSH_9.9\r\n\r\n"),
            CallError::Malformed,
        ),
        (
            "two lengths",
            raw("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n01"),
            CallError::Malformed,
        ),
        (
            "500",
            chunked("500 Internal Server Error", "no"),
            CallError::Status(500),
        ),
        (
            "404",
            with_length("404 Not Found", b"no"),
            CallError::Status(404),
        ),
        (
            "204",
            raw("HTTP/1.1 204 No Content\r\n\r\n"),
            CallError::Status(204),
        ),
        (
            "302",
            raw("HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n"),
            CallError::Status(302),
        ),
        (
            "426",
            raw("HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n"),
            CallError::Status(426),
        ),
        (
            "chunks over the limit",
            chunked("200 OK", &"x".repeat(101)),
            CallError::TooLarge,
        ),
        (
            "a length over the limit",
            with_length("200 OK", &[b'x'; 101]),
            CallError::TooLarge,
        ),
    ];
    for (name, behaviour, expected) in cases {
        let server = Server::start(behaviour).await;
        assert_eq!(
            get(&server.address, LONG, 100).await,
            Err(expected),
            "{name}"
        );
    }
    assert_eq!(
        get(&nobody().await, LONG, 100).await,
        Err(CallError::Refused)
    );
}

#[tokio::test]
async fn an_endless_head_is_not_read_for_ever() {
    let endless = format!(
        "HTTP/1.1 200 OK\r\n{}",
        "x-more: and more\r\n".repeat(100_000)
    );
    let server = Server::start(raw(&endless)).await;
    let result = get(&server.address, LONG, 100).await;
    assert_eq!(result, Err(CallError::Malformed));
}

#[tokio::test]
async fn the_whole_call_has_one_timeout() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for answer in [
        "",
        "HTTP/1.1 200 OK\r\n",
        head,
        &format!("{head}4\r\n0123\r\n"),
    ] {
        let server = Server::start(Behaviour::AnswerAndHang(answer.as_bytes().to_vec())).await;
        assert_eq!(
            get(&server.address, SHORT, 100).await,
            Err(CallError::Timeout),
            "{answer}"
        );
    }
    // Each byte comes in time, the last one never.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let trickle = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _first = stream.read_u8().await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut pace = tokio::time::interval(Duration::from_millis(10));
        while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
            pace.tick().await;
        }
    });
    assert_eq!(
        get(&address, SHORT, u64::MAX).await,
        Err(CallError::Timeout)
    );
    // It ends since the client has hung up.
    tokio::time::timeout(LONG, trickle).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_head_decides_a_post() {
    let server = Server::start(Behaviour::AnswerAndHang(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
    ))
    .await;
    let client = Client::new(server.address.clone()).with_timeout(LONG);
    assert_eq!(client.post("/drain").await, Ok(()));
    let head = server.head();
    assert!(head.starts_with("POST /drain HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("host: localhost\r\n"), "{head}");
}

#[tokio::test]
async fn a_last_post_may_break_once_it_was_sent() {
    let cases = [
        (chunked("200 OK", "OK\n"), Ok(()), Ok(())),
        (raw(""), Err(CallError::Broken), Ok(())),
        (Behaviour::Reset, Err(CallError::Broken), Ok(())),
        (raw("HTTP/1.1 200"), Err(CallError::Broken), Ok(())),
        (
            chunked("405 Method Not Allowed", "no"),
            Err(CallError::Status(405)),
            Err(CallError::Status(405)),
        ),
        (
            raw("garbage\r\n\r\n"),
            Err(CallError::Malformed),
            Err(CallError::Malformed),
        ),
    ];
    for (behaviour, plain, last) in cases {
        let server = Server::start(behaviour).await;
        let client = Client::new(server.address.clone()).with_timeout(LONG);
        assert_eq!(client.post("/quit").await, plain);
        assert_eq!(client.post_last("/quit").await, last);
    }
    let server = Server::start(Behaviour::AnswerAndHang(Vec::new())).await;
    let hung = Client::new(server.address.clone()).with_timeout(SHORT);
    assert_eq!(hung.post_last("/quit").await, Err(CallError::Timeout));
    let gone = Client::new(nobody().await).with_timeout(LONG);
    assert_eq!(gone.post_last("/quit").await, Err(CallError::Refused));
}

#[tokio::test]
async fn connecting() {
    let server = Server::start(Behaviour::Close).await;
    let client = Client::new(server.address.clone()).with_timeout(LONG);
    assert_eq!(client.connect().await, Ok(()));
    assert_eq!(
        Client::new(nobody().await).connect().await,
        Err(CallError::Refused)
    );
}

#[test]
fn causes() {
    for (error, cause) in [
        (CallError::Refused, Cause::Refused),
        (CallError::Timeout, Cause::Timeout),
        (CallError::Broken, Cause::Broken),
        (CallError::Status(503), Cause::Status),
        (CallError::Malformed, Cause::Malformed),
        (CallError::TooLarge, Cause::Malformed),
    ] {
        assert_eq!(Cause::from(error), cause);
    }
}

#[test]
fn calls_may_be_spawned() {
    fn is_send(_: impl Send) {}
    let client = Client::new(Address::Unix("admin".into()));
    is_send(client.get("/", None, 0, |_| {}));
    is_send(client.post_last("/"));
    is_send(client.connect());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A whole answer that is cut anywhere is never taken for whole.
    #[test]
    fn a_cut_answer_is_never_whole(body in "[a-z]{1,50}", chunks: bool, cut: prop::sample::Index) {
        let whole = if chunks { chunked("200 OK", &body) } else { with_length("200 OK", body.as_bytes()) };
        let Behaviour::Answer(whole) = whole else { unreachable!() };
        let cut = whole[..cut.index(whole.len())].to_vec();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Server::start(Behaviour::Answer(whole)).await;
            prop_assert_eq!(get(&server.address, LONG, 100).await, Ok(body));
            let server = Server::start(Behaviour::Answer(cut)).await;
            prop_assert_eq!(get(&server.address, LONG, 100).await, Err(CallError::Broken));
            Ok(())
        })?;
    }

    #[test]
    fn garbage_is_an_error(bytes: Vec<u8>, tail: Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let after_head = [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n0123\r\n", &tail[..]].concat();
            for answer in [bytes, after_head] {
                let server = Server::start(Behaviour::Answer(answer)).await;
                prop_assert!(get(&server.address, LONG, 1000).await.is_err());
            }
            Ok(())
        })?;
    }
}
