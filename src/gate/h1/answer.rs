//! The only words of the gate's own in HTTP/1: `connection: close` in a reply, and a refusal.

use bytes::Bytes;

use super::scan::options;

/// The pod is going away and takes no more requests.
pub(super) const GOING_AWAY: &str =
    "tidegate: this pod is going away; send the request again, another pod will answer\n";

/// The workload is not there, or broke off before its reply.
pub(super) const WORKLOAD_LOST: &str =
    "tidegate: the workload of this pod cannot be reached, or broke off before its reply\n";

/// The whole 503, which says who speaks and why; without its body to `HEAD`.
pub(super) fn refusal(why: &str, to_head: bool) -> Bytes {
    let length = why.len();
    let body = if to_head { "" } else { why };
    Bytes::from(format!(
        "HTTP/1.1 503 Service Unavailable\r\n\
         content-type: text/plain; charset=utf-8\r\n\
         content-length: {length}\r\n\
         connection: close\r\n\
         \r\n\
         {body}"
    ))
}

/// A whole and valid head of a reply with `connection: close`; `None` if it says so already.
///
/// `keep-alive` gives its place to `close`, the `Keep-Alive` field goes, all else stays as it is.
pub(super) fn close(head: &[u8]) -> Option<Bytes> {
    let mut closed = Vec::with_capacity(head.len() + 32);
    let mut said = false;
    for line in head.split_inclusive(|&byte| byte == b'\n') {
        if line == b"\r\n" && !said {
            closed.extend_from_slice(b"connection: close\r\n");
        }
        match line.iter().position(|&byte| byte == b':') {
            Some(colon) if line[..colon].eq_ignore_ascii_case(b"connection") => {
                let (name, value) = line.split_at(colon + 1);
                if options(value).any(|option| option.eq_ignore_ascii_case(b"close")) {
                    return None;
                }
                closed.extend_from_slice(name);
                said |= replace(value, &mut closed);
            }
            Some(colon) if line[..colon].eq_ignore_ascii_case(b"keep-alive") => {}
            _ => closed.extend_from_slice(line),
        }
    }
    Some(Bytes::from(closed))
}

/// Writes the value of a `Connection` field with `close` for each `keep-alive`. Whether there was
/// one.
fn replace(value: &[u8], to: &mut Vec<u8>) -> bool {
    let mut found = false;
    for (index, item) in value.split(|&byte| byte == b',').enumerate() {
        if index > 0 {
            to.push(b',');
        }
        let option = item.trim_ascii();
        if option.eq_ignore_ascii_case(b"keep-alive") {
            found = true;
            let before = item.len() - item.trim_ascii_start().len();
            to.extend_from_slice(&item[..before]);
            to.extend_from_slice(b"close");
            to.extend_from_slice(&item[before + option.len()..]);
        } else {
            to.extend_from_slice(item);
        }
    }
    found
}
