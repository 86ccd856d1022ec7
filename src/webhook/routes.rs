//! What a request for a review is answered.

use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::{Method, Request, StatusCode, header};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::limits::Limits;
use super::metrics::{Metrics, Rejected};
use super::review::{self, Mutate, Outcome};
use crate::net::{self, Answer, text, typed};

/// Where the API server posts reviews.
pub const PATH: &str = "/mutate";

/// What all reviews share.
pub(super) struct Reviewer {
    mutate: Box<Mutate>,
    /// KiB that bodies may yet take.
    room: Semaphore,
    limits: Limits,
}

impl Reviewer {
    pub(super) fn new(mutate: Box<Mutate>, limits: Limits) -> Reviewer {
        // One body at least must fit, or it would wait for ever.
        let room = kib(limits.bodies_bytes.max(limits.body_bytes));
        Reviewer {
            mutate,
            room: Semaphore::new(room as usize),
            limits,
        }
    }

    /// Answers one request, at latest after `limits.request`.
    pub(super) async fn answer(&self, metrics: &Metrics, request: Request<Incoming>) -> Answer {
        let began = Instant::now();
        match self.review(request, began + self.limits.request).await {
            Ok(answered) => {
                metrics.reviewed(answered.outcome, began.elapsed());
                log(&answered, began.elapsed());
                typed("application/json", answered.body)
            }
            Err(rejection) => {
                metrics.rejected(rejection.why);
                tracing::warn!(
                    status = rejection.answer.status().as_u16(),
                    "{}",
                    rejection.reason
                );
                rejection.answer
            }
        }
    }

    async fn review(
        &self,
        request: Request<Incoming>,
        deadline: Instant,
    ) -> Result<review::Answered, Rejection> {
        let limit = self.limits.body_bytes;
        let too_large = || {
            let reason = format!("a review of more than {limit} bytes is not read");
            reject(Rejected::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, reason)
        };
        if request.uri().path() != PATH {
            let reason = format!("reviews are posted to {PATH}");
            return Err(reject(Rejected::Path, StatusCode::NOT_FOUND, reason));
        }
        if request.method() != Method::POST {
            return Err(Rejection {
                why: Rejected::Verb,
                reason: "a review is posted".to_owned(),
                answer: net::wrong_verb("POST"),
            }
            .closed());
        }
        if !is_json(&request) {
            let reason = "a review's content-type is application/json".to_owned();
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(reject(Rejected::ContentType, status, reason));
        }
        // Without a length, or with one that lies, it may take all that one may.
        let size = match request.body().size_hint().upper() {
            Some(length) if length > limit as u64 => return Err(too_large()),
            Some(length) => usize::try_from(length).unwrap_or(limit),
            None => limit,
        };
        let room = timeout_at(deadline, self.room.acquire_many(kib(size)));
        let Ok(Ok(_room)) = room.await else {
            let reason = "too many reviews at once; try again".to_owned();
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Err(reject(Rejected::Busy, status, reason));
        };
        let body = match timeout_at(deadline, Limited::new(request, limit).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
            Ok(Err(error)) => {
                let reason = format!("the review's body broke off: {error}");
                let status = StatusCode::BAD_REQUEST;
                return Err(reject(Rejected::Malformed, status, reason));
            }
            Err(_) => {
                let seconds = self.limits.request.as_secs_f64();
                let reason = format!("the review's body took more than {seconds} s");
                let status = StatusCode::REQUEST_TIMEOUT;
                return Err(reject(Rejected::Slow, status, reason));
            }
        };
        review::answer(&body, &*self.mutate).map_err(|malformed| Rejection {
            why: Rejected::Malformed,
            reason: malformed.to_string(),
            answer: text(StatusCode::BAD_REQUEST, format!("{malformed}\n")),
        })
    }
}

/// A request that gets no review.
struct Rejection {
    why: Rejected,
    reason: String,
    answer: Answer,
}

impl Rejection {
    /// Ends the connection, since the request's body has not been read.
    fn closed(mut self) -> Rejection {
        net::close_after(&mut self.answer);
        self
    }
}

fn reject(why: Rejected, status: StatusCode, reason: String) -> Rejection {
    let answer = text(status, Bytes::from(format!("{reason}\n")));
    Rejection {
        why,
        reason,
        answer,
    }
    .closed()
}

fn is_json(request: &Request<Incoming>) -> bool {
    let value = request.headers().get(header::CONTENT_TYPE);
    let value = value.and_then(|value| value.to_str().ok());
    let media = value.and_then(|value| value.split(';').next());
    media.is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

/// Rounded up, so that many small bodies count.
fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

fn log(answered: &review::Answered, took: Duration) {
    let pod = &answered.subject;
    let reason = answered.reason.as_deref().unwrap_or_default();
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    match answered.outcome {
        Outcome::Failed => tracing::error!(pod, "the review panicked: {reason}"),
        Outcome::Denied => tracing::info!(pod, "denied: {reason}"),
        outcome => tracing::debug!(pod, micros, "{}", outcome.name()),
    }
}
