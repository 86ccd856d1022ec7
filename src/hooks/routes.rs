//! What each endpoint answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::{Request, Response, StatusCode, header};
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::drain::HookId;
use crate::hooks::conn::Origin;
use crate::hooks::{Board, Limits, Notice};
use crate::metrics::{Format, Metrics, OpenGuard};
use crate::net::{self, Answer, text, typed};

/// A container's name is a DNS label (RFC 1123), so it needs no decoding.
const CONTAINER_MAX: usize = 63;
/// How long an answer of `/released` waits for the driver's queue.
const POLLED_MAX: Duration = Duration::from_millis(100);

/// What all connections share.
#[derive(Debug)]
pub(super) struct App {
    pub(super) limits: Limits,
    pub(super) notices: mpsc::Sender<Notice>,
    pub(super) board: watch::Receiver<Board>,
    pub(super) metrics: Arc<Metrics>,
    /// Set once the server finishes, to how long it may take.
    pub(super) finish: watch::Receiver<Option<Duration>>,
    /// The number of the next hook.
    pub(super) next_hook: AtomicU64,
}

impl App {
    /// Returns once the server finishes, by word or because its handle is gone.
    pub(super) async fn finishing(&self) {
        let _ = self.finish.clone().wait_for(Option::is_some).await;
    }

    fn is_finishing(&self) -> bool {
        self.finish.borrow().is_some() || self.finish.has_changed().is_err()
    }
}

#[derive(Clone, Copy)]
enum Endpoint {
    WaitForDrain,
    Released,
    Ready,
    Live,
    Metrics,
    Status,
    Drain,
}

impl Endpoint {
    fn find(path: &str) -> Option<Endpoint> {
        Some(match path {
            "/wait-for-drain" => Endpoint::WaitForDrain,
            "/released" => Endpoint::Released,
            "/readyz" => Endpoint::Ready,
            "/livez" => Endpoint::Live,
            "/metrics" => Endpoint::Metrics,
            "/status" => Endpoint::Status,
            "/drain" => Endpoint::Drain,
            _ => return None,
        })
    }

    fn verb(self) -> &'static str {
        match self {
            Endpoint::Drain => "POST",
            _ => "GET",
        }
    }
}

/// Answers one request; only `/wait-for-drain`, and for a moment `/released`, take their time.
pub(super) async fn answer(app: &App, origin: Origin, request: Request<Incoming>) -> Answer {
    let has_body = !request.body().is_end_stream();
    let mut answer = match Endpoint::find(request.uri().path()) {
        None => text(StatusCode::NOT_FOUND, "no such endpoint\n"),
        Some(endpoint) if request.method().as_str() != endpoint.verb() => {
            net::wrong_verb(endpoint.verb())
        }
        Some(_) if has_body => text(StatusCode::PAYLOAD_TOO_LARGE, "no endpoint takes a body\n"),
        Some(endpoint) => dispatch(app, origin, endpoint, &request).await,
    };
    if has_body || app.is_finishing() {
        // A body is never read, so the connection ends with the answer.
        net::close_after(&mut answer);
    }
    answer
}

async fn dispatch(
    app: &App,
    origin: Origin,
    endpoint: Endpoint,
    request: &Request<Incoming>,
) -> Answer {
    match endpoint {
        Endpoint::WaitForDrain => wait_for_drain(app, container(request.uri().query())).await,
        Endpoint::Released => released(app, origin).await,
        Endpoint::Ready => ready(app),
        Endpoint::Live => text(StatusCode::OK, "alive\n"),
        Endpoint::Metrics => {
            let accept = request.headers().get(header::ACCEPT);
            let format = Format::from_accept(accept.and_then(|a| a.to_str().ok()));
            typed(format.content_type(), app.metrics.encode(format))
        }
        Endpoint::Status => {
            let status = app.board.borrow().status.clone();
            typed("application/json", format!("{status}\n"))
        }
        Endpoint::Drain => drain(app, origin).await,
    }
}

fn ready(app: &App) -> Answer {
    let board = app.board.borrow();
    if board.ready {
        text(StatusCode::OK, "ready\n")
    } else {
        let phase = format!("{}\n", board.phase.name());
        text(StatusCode::SERVICE_UNAVAILABLE, phase)
    }
}

// ===== the endpoints that tell the driver =====

async fn wait_for_drain(app: &App, container: String) -> Answer {
    let opened = tokio::select! {
        opened = open(app, container) => opened,
        () = app.finishing() => None,
    };
    if let Some((mut hold, release)) = opened {
        tokio::select! {
            // Sent or dropped: either is an answer.
            _ = release => {}
            () = app.notices.closed() => {}
            () = app.finishing() => {}
        }
        hold.answered = true;
    }
    app.metrics.hooks_answered.inc();
    Response::new(Full::default())
}

/// Tells the driver of a hook; `None` where there is no driver any more.
async fn open(app: &App, container: String) -> Option<(Hold<'_>, oneshot::Receiver<()>)> {
    let place = app.notices.reserve().await.ok()?;
    // From here to the return nothing waits: a hook that the driver knows of has its guard.
    let open = Some(app.metrics.hook_opened());
    let hook = HookId(app.next_hook.fetch_add(1, Ordering::Relaxed));
    let (answer, release) = oneshot::channel();
    place.send(Notice::Opened {
        hook,
        container,
        answer,
    });
    let hold = Hold {
        app,
        hook,
        answered: false,
        open,
    };
    Some((hold, release))
}

/// A hook that the driver knows of. Dropped unanswered (hyper drops the future of a request whose
/// peer hung up), it tells the driver.
struct Hold<'a> {
    app: &'a App,
    hook: HookId,
    answered: bool,
    open: Option<OpenGuard>,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        // What the driver is told has been counted.
        self.open.take();
        if self.answered {
            return;
        }
        self.app.metrics.hooks_abandoned.inc();
        let closed = Notice::Closed { hook: self.hook };
        if let Err(TrySendError::Full(closed)) = self.app.notices.try_send(closed)
            && let Ok(runtime) = Handle::try_current()
        {
            // Each such task stands behind the notice that opened its hook in a queue that is
            // bounded and fair, so they cannot pile up faster than the driver takes hooks.
            let notices = self.app.notices.clone();
            runtime.spawn(async move {
                let _ = notices.send(closed).await;
            });
        }
    }
}

/// Holds a poll of the pod's own for a moment, so that the release is known as soon as it comes and not
/// by the next poll.
async fn released(app: &App, origin: Origin) -> Answer {
    let mut board = app.board.clone();
    let mut released = board.borrow_and_update().proxy_released;
    if origin == Origin::Pod {
        told_of_poll(app, released).await;
        if !released {
            tokio::select! {
                seen = board.wait_for(|board| board.proxy_released) => released = seen.is_ok(),
                () = sleep(app.limits.poll) => {}
                () = app.finishing() => {}
            }
            if released {
                told_of_poll(app, true).await;
            }
        }
    }
    if released {
        text(StatusCode::OK, "released\n")
    } else {
        text(StatusCode::SERVICE_UNAVAILABLE, "not released\n")
    }
}

async fn told_of_poll(app: &App, released: bool) {
    let notice = Notice::ReleasedPolled { released };
    let _ = timeout(POLLED_MAX, app.notices.send(notice)).await;
}

async fn drain(app: &App, origin: Origin) -> Answer {
    if origin == Origin::Network {
        return text(
            StatusCode::FORBIDDEN,
            "only a process of this pod may, by 127.0.0.1 or ::1\n",
        );
    }
    match timeout(app.limits.queue, app.notices.send(Notice::Drain)).await {
        Ok(Ok(())) => text(StatusCode::OK, "draining\n"),
        Ok(Err(_)) => text(StatusCode::SERVICE_UNAVAILABLE, "the drain is over\n"),
        Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "too busy; try again\n"),
    }
}

// ===== requests and answers =====

/// The query parameter `container`, empty where there is none or it cannot be a container's name.
pub(super) fn container(query: Option<&str>) -> String {
    query
        .unwrap_or_default()
        .split('&')
        .find_map(|pair| pair.strip_prefix("container="))
        .filter(|name| {
            name.len() <= CONTAINER_MAX
                && name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        })
        .unwrap_or_default()
        .to_owned()
}
