//! The API server over a Unix socket: calls, and watches that go on for ever.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long a call may take; a node that has just begun may be slow.
const LIMIT: Duration = Duration::from_secs(30);

/// The API server, by the socket that `kubectl proxy` listens on.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    socket: PathBuf,
}

/// What the API server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The object, or a `Status` that says why not.
    pub(crate) object: Value,
}

impl Answer {
    /// The object; fails with the server's own words.
    pub(crate) fn object(self) -> Result<Value> {
        if self.status.is_success() {
            return Ok(self.object);
        }
        let message = self.object["message"].as_str();
        bail!("{}: {}", self.status, message.unwrap_or("no message"))
    }
}

impl Api {
    pub(crate) fn new(socket: PathBuf) -> Api {
        Api { socket }
    }

    /// Asks for an object or a list.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer> {
        self.call(Method::GET, path, None).await
    }

    /// Creates an object.
    pub(crate) async fn post(&self, path: &str, object: &Value) -> Result<Answer> {
        self.call(Method::POST, path, Some(object)).await
    }

    /// Deletes an object, with options of the API's kind `DeleteOptions`.
    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Result<Answer> {
        self.call(Method::DELETE, path, Some(options)).await
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        let what = format!("{method} {path}");
        let whole = async {
            let response = self.send(method, path, body).await?;
            let status = response.status();
            let bytes = response.into_body().collect().await?.to_bytes();
            // A proxy that cannot reach the server answers in plain text.
            let object = serde_json::from_slice(&bytes).unwrap_or_else(
                |_| serde_json::json!({"message": String::from_utf8_lossy(&bytes)}),
            );
            Ok(Answer { status, object })
        };
        let answer: Result<Answer> = timeout(LIMIT, whole)
            .await
            .unwrap_or_else(|_| bail!("not within {LIMIT:?}"));
        answer.context(what)
    }

    /// Begins to watch a list: first all that is there, as `ADDED`.
    pub(crate) async fn watch(&self, path: &str) -> Result<Watch> {
        let lines = self
            .lines(Method::GET, &format!("{path}?watch=true"), None)
            .await?;
        Ok(Watch(lines))
    }

    /// Makes a call whose answer comes line by line, for as long as it takes.
    pub(crate) async fn lines(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Lines> {
        let response = timeout(LIMIT, self.send(method, path, body)).await;
        let response = response.with_context(|| format!("{path}: not within {LIMIT:?}"))??;
        if !response.status().is_success() {
            let status = response.status();
            let why = timeout(LIMIT, response.into_body().collect())
                .await??
                .to_bytes();
            bail!("{path}: {status}: {}", String::from_utf8_lossy(&why));
        }
        Ok(Lines {
            body: response.into_body(),
            read: Vec::new(),
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .context("the API server's socket")?;
        let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the answer's body.
        tokio::spawn(connection);
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        Ok(client.send_request(request).await?)
    }
}

/// An answer of one JSON object a line.
pub(crate) struct Lines {
    body: Incoming,
    read: Vec<u8>,
}

impl Lines {
    /// The next object; absent at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.read) {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
                None => return Ok(None),
            }
        }
    }
}

/// A list's changes.
pub(crate) struct Watch(Lines);

impl Watch {
    /// The next change: its type (`ADDED`, `MODIFIED`, `DELETED`) and the object; absent at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<(String, Value)>> {
        let Some(mut change) = self.0.next().await? else {
            return Ok(None);
        };
        let kind = change["type"].as_str().unwrap_or_default().to_owned();
        if kind == "ERROR" {
            bail!("the watch has failed: {}", change["object"]["message"]);
        }
        Ok(Some((kind, change["object"].take())))
    }
}
