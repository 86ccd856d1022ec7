//! Why the framing of a connection is not believed.

/// What was found that two readers could read in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// Not a head: a folded line, a space before a colon, a NUL, another version, other garbage.
    Syntax,
    /// A line that ends without a carriage return.
    BareLf,
    /// A head over [`HOLD_MAX`](crate::gate::engine::HOLD_MAX) bytes.
    HeadSize,
    /// More header fields than are looked at.
    FieldCount,
    /// A `Content-Length` that is no number, or several that differ.
    Length,
    /// `Content-Length` next to `Transfer-Encoding`.
    LengthAndEncoding,
    /// A `Transfer-Encoding` other than `chunked`.
    Encoding,
    /// `Transfer-Encoding` in HTTP/1.0.
    OldEncoding,
    /// The framing of a chunk.
    Chunk,
    /// `CONNECT` with a body.
    ConnectBody,
    /// 101 to a request that did not ask for it, or whose body is not whole.
    Switch,
}

impl Doubt {
    /// All of them.
    pub const ALL: [Doubt; 11] = [
        Doubt::Syntax,
        Doubt::BareLf,
        Doubt::HeadSize,
        Doubt::FieldCount,
        Doubt::Length,
        Doubt::LengthAndEncoding,
        Doubt::Encoding,
        Doubt::OldEncoding,
        Doubt::Chunk,
        Doubt::ConnectBody,
        Doubt::Switch,
    ];

    /// The doubt's name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Doubt::Syntax => "syntax",
            Doubt::BareLf => "bare-lf",
            Doubt::HeadSize => "head-size",
            Doubt::FieldCount => "field-count",
            Doubt::Length => "length",
            Doubt::LengthAndEncoding => "length-and-encoding",
            Doubt::Encoding => "encoding",
            Doubt::OldEncoding => "old-encoding",
            Doubt::Chunk => "chunk",
            Doubt::ConnectBody => "connect-body",
            Doubt::Switch => "switch",
        }
    }
}
