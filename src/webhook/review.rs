//! An AdmissionReview's bytes in, the answer's bytes out: no I/O, and no panic that leaves it.

use std::any::Any;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[cfg(test)]
mod tests;

const KIND: &str = "AdmissionReview";
/// Both have the same fields; v1beta1 comes from configurations that ask for it.
const VERSIONS: [&str; 2] = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];

/// What a mutation says about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The pod changes.
    Patch {
        /// An RFC 6902 document.
        patch: Vec<u8>,
        /// What its owner should know.
        warnings: Vec<String>,
    },
    /// The pod stays as it is.
    Unchanged {
        /// What its owner should know.
        warnings: Vec<String>,
    },
    /// The pod must not be made; why, and the cure.
    Refused(String),
}

/// Changes pods. Called with the pod as the API server sent it.
pub type Mutate = dyn Fn(&Value) -> Mutation + Send + Sync;

/// How a review ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Allowed, with a patch.
    Patched,
    /// Allowed as it is.
    Unchanged,
    /// Not allowed.
    Denied,
    /// Allowed as it is, since the mutation panicked.
    Failed,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Outcome; 4] = [
        Outcome::Patched,
        Outcome::Unchanged,
        Outcome::Denied,
        Outcome::Failed,
    ];

    /// As a label.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Patched => "patched",
            Outcome::Unchanged => "unchanged",
            Outcome::Denied => "denied",
            Outcome::Failed => "failed",
        }
    }
}

/// A review that has been answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The answer: an AdmissionReview as JSON.
    pub body: Vec<u8>,
    /// How it ended.
    pub outcome: Outcome,
    /// Whose review it was, for the log: `namespace/name`; a name that the API server has yet to
    /// make ends with `*`.
    pub subject: String,
    /// Why, where it was denied or failed.
    pub reason: Option<String>,
}

/// Why there is no review to answer: the client gets HTTP 400 with this text.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// Not JSON, or not with the fields of a review.
    #[error("not an AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    /// Another kind.
    #[error("kind {0:?} is not AdmissionReview; the webhook reviews pods and nothing else")]
    Kind(String),
    /// Another version.
    #[error("apiVersion {0:?} is not served; set admissionReviewVersions: [v1]")]
    Version(String),
    /// An answer, say.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// Nothing to name the answer by.
    #[error("the request has no uid")]
    NoUid,
    /// A creation of nothing.
    #[error("the request creates a pod but has no object")]
    NoObject,
}

// ===== the wire =====

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    request: Option<Request>,
}

/// What is needed of a request; dryRun is not: a review has no side effects that it could spare.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    kind: Kind,
    operation: String,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    namespace: String,
    object: Option<Value>,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    group: String,
    kind: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reply<'a> {
    api_version: &'a str,
    kind: &'a str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Status<'a> {
    status: &'static str,
    message: &'a str,
    reason: &'static str,
    code: u16,
}

// ===== the review =====

/// Answers a review.
///
/// A mutation that panics fails this review alone, and the pod is let through unchanged with a
/// warning: what is broken is the webhook, and `failurePolicy: Ignore`, under which it is installed,
/// says that a broken webhook must not stop pods. An HTTP error would say so only where nobody has set
/// another policy, and would hide the reason from the pod's owner.
///
/// # Errors
///
/// On what is no review that could be answered.
pub fn answer(body: &[u8], mutate: &Mutate) -> Result<Answered, Malformed> {
    let review: Review<'_> = serde_json::from_slice(body)?;
    if review.kind != KIND {
        return Err(Malformed::Kind(review.kind.into_owned()));
    }
    let Some(version) = VERSIONS.into_iter().find(|v| *v == review.api_version) else {
        return Err(Malformed::Version(review.api_version.into_owned()));
    };
    let request = review.request.ok_or(Malformed::NoRequest)?;
    if request.uid.is_empty() {
        return Err(Malformed::NoUid);
    }

    let is_pod = request.kind.group.is_empty() && request.kind.kind == "Pod";
    let is_creation = request.operation == "CREATE" && request.sub_resource.is_empty();
    let (mutation, panic) = if is_pod && is_creation {
        let pod = request.object.as_ref().ok_or(Malformed::NoObject)?;
        // The pod is thrown away with this review, so nothing half changed can be seen.
        match catch_unwind(AssertUnwindSafe(|| mutate(pod))) {
            Ok(mutation) => (mutation, None),
            Err(panic) => {
                let warning = "tidegate failed on this pod, which is created without it; see the \
                               webhook's log";
                let mutation = Mutation::Unchanged {
                    warnings: vec![warning.to_owned()],
                };
                (mutation, Some(message(&*panic)))
            }
        }
    } else {
        let warning = "tidegate changes pods when they are created and nothing else; mend the rules of \
                       its MutatingWebhookConfiguration";
        let mutation = Mutation::Unchanged {
            warnings: vec![warning.to_owned()],
        };
        (mutation, None)
    };
    Ok(reply(version, &request, mutation, panic))
}

fn reply(version: &str, request: &Request, mutation: Mutation, panic: Option<String>) -> Answered {
    let mut response = Response {
        uid: &request.uid,
        allowed: true,
        status: None,
        patch_type: None,
        patch: None,
        warnings: &[],
    };
    let outcome = match &mutation {
        Mutation::Patch { patch, warnings } => {
            response.patch_type = Some("JSONPatch");
            response.patch = Some(STANDARD.encode(patch));
            response.warnings = warnings;
            Outcome::Patched
        }
        Mutation::Unchanged { warnings } => {
            response.warnings = warnings;
            match panic {
                Some(_) => Outcome::Failed,
                None => Outcome::Unchanged,
            }
        }
        Mutation::Refused(message) => {
            response.allowed = false;
            response.status = Some(Status {
                status: "Failure",
                message,
                reason: "Forbidden",
                code: 403,
            });
            Outcome::Denied
        }
    };
    let reply = Reply {
        api_version: version,
        kind: KIND,
        response,
    };
    let body = serde_json::to_vec(&reply).expect("strings and booleans are always JSON");
    let reason = match mutation {
        Mutation::Refused(message) => Some(message),
        _ => panic,
    };
    Answered {
        body,
        outcome,
        subject: subject(request),
        reason,
    }
}

fn subject(request: &Request) -> String {
    let metadata = request.object.as_ref().map(|pod| &pod["metadata"]);
    let field = |name: &str| metadata.and_then(|m| m[name].as_str());
    let name = match (field("name"), field("generateName")) {
        (Some(name), _) => name.to_owned(),
        (None, Some(prefix)) => format!("{prefix}*"),
        (None, None) => "*".to_owned(),
    };
    format!("{}/{name}", request.namespace)
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a text".to_owned()
    }
}
