//! The chunked coding, counted: RFC 9112, section 7.1, without a tolerance that readers differ in.

use memchr::memchr2;

use super::{Doubt, Scanned};

/// The most digits of a chunk's size, leading zeros included. Go's limit.
const DIGITS_MAX: u8 = 16;

/// A chunked body that has not ended.
#[derive(Debug, Default)]
pub struct Chunked {
    part: Part,
    /// The chunk's size as far as it is read, then what is left of its data.
    left: u64,
    /// Digits of the size read.
    digits: u8,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Size,
    /// Space after the size.
    Space,
    Extension,
    SizeFeed,
    Data,
    DataReturn,
    DataFeed,
    /// The start of a trailer, or of the blank line that ends all.
    Line,
    Trailer,
    TrailerFeed,
    LastFeed,
}

impl Chunked {
    /// Takes the body's bytes off the front of `input`.
    pub fn scan(&mut self, input: &[u8]) -> Result<Scanned, Doubt> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            self.part = match (self.part, byte) {
                (Part::Data, _) => {
                    let here = input.len() - at;
                    let data = usize::try_from(self.left).map_or(here, |left| left.min(here));
                    self.moved(data as u64);
                    at += data;
                    continue;
                }
                (part @ (Part::Extension | Part::Trailer), _) => {
                    let Some(line) = memchr2(b'\r', b'\n', &input[at..]) else {
                        at = input.len();
                        break;
                    };
                    at += line;
                    match (input[at], part) {
                        (b'\r', Part::Extension) => Part::SizeFeed,
                        (b'\r', _) => Part::TrailerFeed,
                        _ => return Err(Doubt::Chunk),
                    }
                }
                (Part::Size, b';') if self.digits > 0 => Part::Extension,
                (Part::Size, b' ' | b'\t') if self.digits > 0 => Part::Space,
                (Part::Size, b'\r') if self.digits > 0 => Part::SizeFeed,
                (Part::Size, digit) => self.digit(digit)?,
                (Part::Space, b' ' | b'\t') => Part::Space,
                (Part::Space, b';') => Part::Extension,
                (Part::Space, b'\r') => Part::SizeFeed,
                (Part::SizeFeed, b'\n') if self.left == 0 => Part::Line,
                (Part::SizeFeed, b'\n') => Part::Data,
                (Part::DataReturn, b'\r') => Part::DataFeed,
                (Part::DataFeed, b'\n') => {
                    *self = Chunked::default();
                    Part::Size
                }
                (Part::Line, b'\r') => Part::LastFeed,
                (Part::Line, byte) if byte != b'\n' => Part::Trailer,
                (Part::TrailerFeed, b'\n') => Part::Line,
                (Part::LastFeed, b'\n') => {
                    return Ok(Scanned {
                        bytes: at + 1,
                        whole: true,
                    });
                }
                _ => return Err(Doubt::Chunk),
            };
            at += 1;
        }
        Ok(Scanned {
            bytes: at,
            whole: false,
        })
    }

    /// What is left of the data of the chunk; 0 between chunks.
    pub fn opaque(&self) -> u64 {
        if self.part == Part::Data {
            self.left
        } else {
            0
        }
    }

    /// So many bytes of the chunk's data went by.
    pub fn moved(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
        if self.left == 0 {
            self.part = Part::DataReturn;
        }
    }

    fn digit(&mut self, byte: u8) -> Result<Part, Doubt> {
        let digit = char::from(byte).to_digit(16).ok_or(Doubt::Chunk)?;
        // Sizes stay under 2^63: others count with a sign.
        if self.digits == DIGITS_MAX || self.left >= 1 << 59 {
            return Err(Doubt::Chunk);
        }
        self.digits += 1;
        self.left = self.left << 4 | u64::from(digit);
        Ok(Part::Size)
    }
}
