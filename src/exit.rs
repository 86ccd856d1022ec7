//! Exit codes, as in sysexits.h.

/// A bad flag, environment variable or annotation.
pub const USAGE: u8 = 64;
/// Input that cannot be parsed.
pub const DATA: u8 = 65;
/// A file that cannot be read.
pub const NO_INPUT: u8 = 66;
/// A service or port that cannot be had.
pub const UNAVAILABLE: u8 = 69;
/// A fault of Tidegate itself.
pub const SOFTWARE: u8 = 70;
/// A file that cannot be written.
pub const IO: u8 = 74;
/// Ended by SIGINT: 128 + 2, as shells say.
pub const INTERRUPTED: u8 = 130;
