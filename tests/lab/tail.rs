//! Reads a log that grows, line by line, and from files that are removed while they are read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A file that another process appends to.
#[derive(Debug)]
pub(crate) struct Tail {
    file: File,
    rest: Vec<u8>,
}

impl Tail {
    /// From its beginning. Held open, it can be read to its end after it has been removed.
    pub(crate) fn open(path: &Path) -> io::Result<Tail> {
        Ok(Tail {
            file: File::open(path)?,
            rest: Vec::new(),
        })
    }

    /// The whole lines that came since the last call.
    pub(crate) fn lines(&mut self) -> io::Result<Vec<String>> {
        self.file.read_to_end(&mut self.rest)?;
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        let text = String::from_utf8_lossy(&whole);
        Ok(text.lines().map(str::to_owned).collect())
    }
}
