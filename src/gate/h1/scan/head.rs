//! Heads: where one ends, and what it says of the bytes after it.

use std::mem::MaybeUninit;

use httparse::{Error, Header, ParserConfig};
use memchr::memchr_iter;

use super::Doubt;
use crate::gate::engine::HOLD_MAX;

/// What every reply begins with.
const VERSION: &[u8] = b"HTTP/1.";

/// The most header fields that are looked at. Envoy takes 100 unless told otherwise.
const FIELDS_MAX: usize = 128;

/// How the kubelet's HTTP probes begin to say who they are; its lifecycle hooks say `kube-lifecycle/`.
const KUBELET_PROBE: &[u8] = b"kube-probe/";

/// Finds the end of a head that comes in pieces, and looks at no byte twice.
#[derive(Debug, Default)]
pub struct HeadEnd {
    /// Bytes looked at.
    seen: usize,
    /// Where the line begins whose end has not been seen.
    line: usize,
}

impl HeadEnd {
    /// Where the head ends, its blank line included; `None` until it is whole. `input` begins where
    /// the head does, each time.
    ///
    /// Once it has answered, it is ready for the next head.
    pub fn find(&mut self, input: &[u8]) -> Result<Option<usize>, Doubt> {
        let from = self.seen;
        for found in memchr_iter(b'\n', &input[from..]) {
            let feed = from + found;
            if feed == 0 || input[feed - 1] != b'\r' {
                return Err(Doubt::BareLf);
            }
            if feed == self.line + 1 {
                *self = HeadEnd::default();
                return if feed < HOLD_MAX {
                    Ok(Some(feed + 1))
                } else {
                    Err(Doubt::HeadSize)
                };
            }
            self.line = feed + 1;
        }
        self.seen = input.len();
        if self.seen < HOLD_MAX {
            Ok(None)
        } else {
            Err(Doubt::HeadSize)
        }
    }

    /// Whether a part of a head has been seen.
    pub fn begun(&self) -> bool {
        self.seen > 0
    }
}

/// The methods that change how a reply is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The reply has no body.
    Head,
    /// A good reply makes the connection a tunnel.
    Connect,
    /// Any other.
    Other,
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// So many bytes, at least one.
    Length(u64),
    /// Chunks, then trailers.
    Chunked,
    /// It ends with the connection.
    UntilClose,
}

/// What a request's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The body; never [`Framing::UntilClose`].
    pub framing: Framing,
    /// Whether the client lets the connection go on after the reply.
    pub persistent: bool,
    /// Whether another protocol is asked for.
    pub upgrade: bool,
    /// Whether the client waits for `100 Continue`.
    pub expects: bool,
    /// Whether it is a probe of the kubelet or of Knative: those come as long as the pod is there,
    /// and queue-proxy's own wait for quiet does not count them either.
    pub probe: bool,
}

/// A protocol that HTTP/1 is upgraded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RFC 6455.
    WebSocket,
    /// HTTP/2 in the clear, RFC 7540, section 3.2.
    H2c,
    /// Any other.
    Other,
}

/// What a reply's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// 1xx other than 101: the reply is still to come.
    Interim {
        /// Whether it is the `100 Continue` that a client may wait for.
        proceed: bool,
    },
    /// 101.
    Switching(Protocol),
    /// 2xx to `CONNECT`.
    Tunnel,
    /// Any other.
    Final {
        /// The body.
        framing: Framing,
        /// Whether the connection ends with this reply.
        closes: bool,
    },
}

/// Reads the whole head of a request.
pub fn request_head(head: &[u8]) -> Result<RequestHead, Doubt> {
    let mut room = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    whole(parsed.parse_with_uninit_headers(head, &mut room), head)?;
    let version = parsed.version.unwrap_or_default();
    let fields = Fields::read(parsed.headers);
    let method = match parsed.method {
        Some("HEAD") => Method::Head,
        Some("CONNECT") => Method::Connect,
        _ => Method::Other,
    };
    let framing = fields.framing(version)?.unwrap_or(Framing::None);
    if method == Method::Connect && framing != Framing::None {
        return Err(Doubt::ConnectBody);
    }
    Ok(RequestHead {
        method,
        framing,
        persistent: fields.persistent(version),
        upgrade: version == 1 && fields.upgrade && fields.protocol.is_some(),
        expects: fields.expects,
        probe: fields.probe,
    })
}

/// Whether a reply may begin so: what does not need not be kept until a head is whole.
pub fn may_be_reply(input: &[u8]) -> bool {
    input.iter().zip(VERSION).all(|(byte, other)| byte == other)
}

/// Reads the whole head of a reply to a request with this method.
pub fn reply_head(head: &[u8], method: Method) -> Result<Reply, Doubt> {
    let mut room = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let config = ParserConfig::default();
    whole(
        config.parse_response_with_uninit_headers(&mut parsed, head, &mut room),
        head,
    )?;
    let version = parsed.version.unwrap_or_default();
    let fields = Fields::read(parsed.headers);
    let framing = match (parsed.code.unwrap_or_default(), method) {
        (0..100, _) => return Err(Doubt::Syntax),
        (101, _) => return Ok(Reply::Switching(fields.protocol.unwrap_or(Protocol::Other))),
        (code @ 100..200, _) => {
            return Ok(Reply::Interim {
                proceed: code == 100,
            });
        }
        (200..300, Method::Connect) => return Ok(Reply::Tunnel),
        (204 | 304, _) | (_, Method::Head) => Framing::None,
        _ => fields.framing(version)?.unwrap_or(Framing::UntilClose),
    };
    Ok(Reply::Final {
        framing,
        closes: framing == Framing::UntilClose || !fields.persistent(version),
    })
}

fn whole(parsed: httparse::Result<usize>, head: &[u8]) -> Result<(), Doubt> {
    match parsed {
        Ok(httparse::Status::Complete(length)) if length == head.len() => Ok(()),
        Err(Error::TooManyHeaders) => Err(Doubt::FieldCount),
        _ => Err(Doubt::Syntax),
    }
}

// ===== fields =====

/// The header fields that matter here.
#[derive(Debug, Default)]
struct Fields {
    length: Option<u64>,
    chunked: bool,
    /// Why length and encoding are not to be believed, if a body is framed by them.
    doubt: Option<Doubt>,
    close: bool,
    keep_alive: bool,
    upgrade: bool,
    protocol: Option<Protocol>,
    expects: bool,
    probe: bool,
}

impl Fields {
    fn read(headers: &[Header<'_>]) -> Fields {
        let mut fields = Fields::default();
        for &Header { name, value } in headers {
            let is = |other| name.eq_ignore_ascii_case(other);
            match name.len() {
                6 if is("expect") => {
                    fields.expects |= value.trim_ascii().eq_ignore_ascii_case(b"100-continue");
                }
                7 if is("upgrade") => fields.protocol = Some(protocol(value)),
                10 if is("connection") => fields.connection(value),
                10 if is("user-agent") => fields.probe |= value.starts_with(KUBELET_PROBE),
                14 if is("content-length") => fields.content_length(value),
                // Knative's: of its activator and autoscaler, and of the kubelet in its name.
                15 if is("k-network-probe") => fields.probe = true,
                17 if is("transfer-encoding") => fields.transfer_encoding(value),
                _ => {}
            }
        }
        fields
    }

    fn connection(&mut self, value: &[u8]) {
        for option in options(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    fn content_length(&mut self, value: &[u8]) {
        for item in options(value) {
            match number(item) {
                Some(length) if self.length.is_none_or(|other| other == length) => {
                    self.length = Some(length);
                }
                _ => self.doubt = Some(Doubt::Length),
            }
        }
    }

    fn transfer_encoding(&mut self, value: &[u8]) {
        if self.chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
            self.doubt = Some(Doubt::Encoding);
        }
        self.chunked = true;
    }

    /// The framing that the fields declare, if they do.
    fn framing(&self, version: u8) -> Result<Option<Framing>, Doubt> {
        if let Some(doubt) = self.doubt {
            return Err(doubt);
        }
        match (self.length, self.chunked) {
            (Some(_), true) => Err(Doubt::LengthAndEncoding),
            (None, true) if version == 0 => Err(Doubt::OldEncoding),
            (None, true) => Ok(Some(Framing::Chunked)),
            (Some(0), false) => Ok(Some(Framing::None)),
            (Some(length), false) => Ok(Some(Framing::Length(length))),
            (None, false) => Ok(None),
        }
    }

    fn persistent(&self, version: u8) -> bool {
        !self.close && (version == 1 || self.keep_alive)
    }
}

/// The items of a list.
pub(in crate::gate::h1) fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

fn protocol(value: &[u8]) -> Protocol {
    let value = value.trim_ascii();
    if value.eq_ignore_ascii_case(b"websocket") {
        Protocol::WebSocket
    } else if value.eq_ignore_ascii_case(b"h2c") {
        Protocol::H2c
    } else {
        Protocol::Other
    }
}

/// A decimal number under 2^63: others count with a sign.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
    }
    (number < 1 << 63).then_some(number)
}
