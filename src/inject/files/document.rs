//! The documents of a file, each with its object and its bytes.

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};

use super::FileError;
use super::split::{self, Piece};
use crate::inject::yaml;

/// A document of a file. The sources of all documents, one after the other, are the file.
#[derive(Debug)]
pub(super) struct Document<'a> {
    /// Its bytes, with what separates it from its neighbours.
    pub(super) source: &'a str,
    /// Where in `source` its own text is.
    text: std::ops::Range<usize>,
    /// Null where there is none.
    pub(super) object: Value,
    /// How it is written.
    pub(super) format: Format,
    /// Where its text begins, from 1.
    pub(super) line: usize,
    /// In characters, from 1.
    pub(super) column: usize,
}

/// How a document is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Yaml,
    /// With this indentation; none: in one line.
    Json(Option<String>),
}

/// Reads a file's documents: JSON values one after the other, or a YAML stream.
///
/// # Errors
///
/// The first place that is neither.
pub(super) fn read(text: &str) -> Result<Vec<Document<'_>>, FileError> {
    if !text
        .trim_start_matches('\u{feff}')
        .trim_start()
        .starts_with(['{', '['])
    {
        return read_yaml(text);
    }
    // A YAML stream may begin with a brace as well. What is neither is more likely meant as JSON.
    read_json(text).or_else(|error| read_yaml(text).map_err(|_| error))
}

fn read_yaml(text: &str) -> Result<Vec<Document<'_>>, FileError> {
    let mut documents = Vec::new();
    let mut start = 0;
    for piece in split::split(text) {
        let Piece { head, body, tail } = piece;
        let stop = start + head.len() + body.len() + tail.len();
        // The blank of `--- text`, too, is not the text's own.
        let indent = body.len() - body.trim_start_matches([' ', '\t']).len();
        let on_marker_line = !head.is_empty() && head.ends_with("---");
        let skipped = if on_marker_line { indent } else { 0 };
        let begin = start + head.len();
        let (line, column) = split::position(text, begin + split::first_content(body));
        let object = yaml::parse(&body[skipped..]).map_err(|error| {
            let (above, left) = split::position(text, begin + skipped);
            FileError::Syntax {
                line: above + error.line.saturating_sub(1),
                column: if error.line <= 1 {
                    left + error.column.saturating_sub(1)
                } else {
                    error.column
                },
                problem: error.problem,
            }
        })?;
        documents.push(Document {
            source: &text[start..stop],
            text: head.len()..head.len() + body.len(),
            object,
            format: Format::Yaml,
            line,
            column,
        });
        start = stop;
    }
    Ok(documents)
}

fn read_json(text: &str) -> Result<Vec<Document<'_>>, FileError> {
    let bom = text.len() - text.trim_start_matches('\u{feff}').len();
    let json = &text[bom..];
    let mut documents: Vec<Document<'_>> = Vec::new();
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
    let mut start = 0;
    while let Some(value) = values.next() {
        let object = value.map_err(|error| FileError::Syntax {
            line: error.line(),
            column: error.column(),
            problem: json_problem(&error),
        })?;
        let stop = bom + values.byte_offset();
        let source = &text[start..stop];
        let blank = source.trim_start_matches('\u{feff}').trim_start();
        let begin = source.len() - blank.len();
        let (line, column) = split::position(text, start + begin);
        documents.push(Document {
            source,
            text: begin..source.len(),
            object,
            format: Format::Json(indentation(blank)),
            line,
            column,
        });
        start = stop;
    }
    // What follows the last value is white space; it stays with it.
    if let Some(last) = documents.last_mut() {
        let begin = start - last.source.len();
        last.source = &text[begin..];
    }
    Ok(documents)
}

/// The error without the place, which is said in front of it.
fn json_problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((problem, _)) => problem.to_owned(),
        None => text,
    }
}

/// The indentation of the second line, where there is one.
fn indentation(text: &str) -> Option<String> {
    let second = text.lines().nth(1)?;
    let blank = second.len() - second.trim_start().len();
    Some(second[..blank].to_owned())
}

impl Document<'_> {
    /// Whether there is no object in it.
    pub(super) fn is_blank(&self) -> bool {
        self.object.is_null()
    }

    /// The document with another object in its place.
    ///
    /// # Errors
    ///
    /// Of the serializer, in its words.
    pub(super) fn with(&self, object: &Value) -> Result<String, String> {
        let (head, tail) = (
            &self.source[..self.text.start],
            &self.source[self.text.end..],
        );
        let text = match &self.format {
            Format::Json(None) => serde_json::to_string(object).map_err(|e| e.to_string())?,
            Format::Json(Some(indent)) => json(object, indent)?.trim_end().to_owned(),
            Format::Yaml => {
                let text = yaml::print(object)?;
                // `---` and the text it stands before would be one line.
                let gap = if head.ends_with("---") { "\n" } else { "" };
                format!("{gap}{text}")
            }
        };
        // Line ends as they were.
        let text = if self.source.contains("\r\n") {
            text.replace('\n', "\r\n")
        } else {
            text
        };
        Ok(format!("{head}{text}{tail}"))
    }
}

/// JSON over many lines, with a line end at its end.
///
/// # Errors
///
/// Of the serializer, in its words.
pub(super) fn json(value: &Value, indent: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let formatter = PrettyFormatter::with_indent(indent.as_bytes());
    value
        .serialize(&mut Serializer::with_formatter(&mut bytes, formatter))
        .map_err(|error| error.to_string())?;
    bytes.push(b'\n');
    String::from_utf8(bytes).map_err(|error| error.to_string())
}
