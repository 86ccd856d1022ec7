//! Cuts a YAML stream into its documents without reading them, so that each keeps its bytes.

/// A piece of the stream. The pieces, one after the other, are the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// The `---` before the document, with what else comes before its content on that line, and all
    /// before it that belongs to no document.
    pub(super) head: &'a str,
    /// The document.
    pub(super) body: &'a str,
    /// From its `...` on, where it has one.
    pub(super) tail: &'a str,
}

/// Cuts a stream. A line that begins with `---` or `...`, followed by white space or nothing, is a
/// marker wherever it stands, even in a block scalar: YAML 1.2.2, rule c-forbidden.
pub(super) fn split(stream: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut body = bom(stream);
    let mut end = None;
    let mut at = body;
    for line in stream[body..].split_inclusive('\n') {
        let next = at + line.len();
        if is_marker(line, "---") {
            let is_prefix = end.is_none() && is_prefix(&stream[body..at]);
            if !is_prefix {
                let end = end.take().unwrap_or(at);
                pieces.push(cut(stream, start, body, end, at));
                start = at;
            }
            body = at + "---".len();
        } else if is_marker(line, "...") && end.is_none() {
            end = Some(at);
        } else if end.is_some() && !is_comment(line) {
            // A document without a marker of its own, after one that has ended, or a directive.
            let end = end.take().unwrap_or(at);
            pieces.push(cut(stream, start, body, end, at));
            start = at;
            body = at;
        }
        at = next;
    }
    pieces.push(cut(
        stream,
        start,
        body,
        end.unwrap_or(stream.len()),
        stream.len(),
    ));
    pieces
}

fn cut(stream: &str, start: usize, body: usize, end: usize, stop: usize) -> Piece<'_> {
    Piece {
        head: &stream[start..body],
        body: &stream[body..end],
        tail: &stream[end..stop],
    }
}

fn bom(stream: &str) -> usize {
    if stream.starts_with('\u{feff}') {
        '\u{feff}'.len_utf8()
    } else {
        0
    }
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Whether text before a `---` belongs to the document after it: comments, blank lines and directives.
fn is_prefix(text: &str) -> bool {
    text.lines()
        .all(|line| is_comment(line) || line.starts_with('%'))
}

fn is_comment(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// Where a document's content begins, behind its comments; 0 where it has none.
pub(super) fn first_content(body: &str) -> usize {
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        if !is_comment(line) {
            return at + line.len() - line.trim_start().len();
        }
        at += line.len();
    }
    0
}

/// Line and column, from 1 and in characters, of a byte of the text.
pub(super) fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = &text[..byte];
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (line, before[start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bodies(stream: &str) -> Vec<&str> {
        split(stream).iter().map(|piece| piece.body).collect()
    }

    #[test]
    fn documents_end_at_markers_only() {
        assert_eq!(bodies("a: 1\n---\nb: 2\n"), ["a: 1\n", "\nb: 2\n"]);
        assert_eq!(bodies("---\na: 1\n--- b\n---"), ["\na: 1\n", " b\n", ""]);
        assert_eq!(
            bodies("a: |\n  ---\n  x\n----\n---x\n"),
            ["a: |\n  ---\n  x\n----\n---x\n"]
        );
        assert_eq!(bodies("a: |\n  x\n---\r\nb"), ["a: |\n  x\n", "\r\nb"]);
    }

    #[test]
    fn what_precedes_a_marker_belongs_to_its_document() {
        assert_eq!(bodies("# top\n%YAML 1.2\n---\na: 1\n"), ["\na: 1\n"]);
        assert_eq!(
            bodies("a: 1\n...\n# next\n---\nb: 2\n"),
            ["a: 1\n", "\nb: 2\n"]
        );
        assert_eq!(
            bodies("a: 1\n...\n%YAML 1.2\n---\nb: 2\n"),
            ["a: 1\n", "\nb: 2\n"]
        );
        assert_eq!(bodies("a: 1\n...\nb: 2\n"), ["a: 1\n", "b: 2\n"]);
    }

    #[test]
    fn content_begins_behind_comments() {
        assert_eq!(first_content("\n# x\n  a: 1"), 7);
        assert_eq!(first_content("# x\n"), 0);
        assert_eq!(position("a\nbü c", 6), (2, 4));
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(lines in prop::collection::vec("(---|\\.\\.\\.|# c|%YAML 1.2|a: 1|ü| )[ x]?", 0..12), end in "\n|\r\n") {
            let stream = lines.join(&end);
            let joined: String = split(&stream)
                .iter()
                .map(|piece| format!("{}{}{}", piece.head, piece.body, piece.tail))
                .collect();
            prop_assert_eq!(joined, stream);
        }
    }
}
