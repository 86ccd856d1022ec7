//! `tidegate inject`: the webhook's work on files, for people, CI and render pipelines.

mod document;
mod kinds;
mod split;

use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use super::patch::Op;
use super::{Cluster, Refusal};
use crate::exit;
use document::{Document, Format};

/// The most that is read, in bytes: a cluster's worth of manifests.
const LIMIT: u64 = 64 << 20;

/// What `tidegate inject` was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The file, `-` for standard input.
    pub file: PathBuf,
    /// What to print.
    pub output: Output,
    /// What the file does not say about the cluster.
    pub cluster: Cluster,
}

/// What to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The file as it should be; documents without a change byte for byte.
    Documents,
    /// What would change, as a unified diff. Both sides are printed alike, so that it shows changes of
    /// meaning only.
    Diff,
    /// RFC 6902, a line each document.
    Patch,
}

/// Why the file is not injected.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// It is larger than [`LIMIT`].
    #[error("larger than {} MiB; split it", LIMIT >> 20)]
    TooLarge,
    /// It is not YAML, JSON or UTF-8.
    #[error("{line}:{column}: {problem}")]
    Syntax {
        /// From 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
        /// What is wrong.
        problem: String,
    },
    /// An object in it cannot be injected.
    #[error("{line}:{column}: {object}: {refusal}")]
    Refused {
        /// Where its document begins, from 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
        /// Its kind and name.
        object: String,
        /// Why.
        refusal: Refusal,
    },
}

impl FileError {
    fn exit_code(&self) -> u8 {
        match self {
            FileError::Read(_) => exit::NO_INPUT,
            FileError::TooLarge | FileError::Syntax { .. } | FileError::Refused { .. } => {
                exit::DATA
            }
        }
    }
}

/// Reads the file, injects what is to be injected, prints what was asked for, and returns the exit code:
/// 0, [`exit::NO_INPUT`] where it cannot be read, [`exit::DATA`] where it is malformed or an object in it
/// is refused (nothing is printed then), [`exit::IO`] where the output cannot be written. Warnings go to
/// standard error.
pub fn main(options: &Options) -> u8 {
    run(options, &mut io::stdout().lock(), &mut io::stderr())
}

fn run(options: &Options, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let name = if is_stdin(&options.file) {
        Path::new("standard input")
    } else {
        &options.file
    }
    .display();
    // Standard error may be closed; there is nobody left to tell then.
    let mut say = |text: &dyn Display| {
        let _ = writeln!(err, "{text}");
    };
    if is_stdin(&options.file) && io::stdin().is_terminal() {
        say(&"tidegate inject: reading standard input; end with Ctrl-D");
    }
    let text = match read(&options.file) {
        Ok(text) => text,
        Err(error) => {
            say(&format_args!("{name}:{}{error}", gap(&error)));
            return error.exit_code();
        }
    };
    let result = match inject_text(&text, &options.cluster) {
        Ok(result) => result,
        Err(errors) => {
            for error in &errors {
                say(&format_args!("{name}:{error}"));
            }
            return errors
                .iter()
                .map(FileError::exit_code)
                .max()
                .unwrap_or(exit::DATA);
        }
    };
    for warning in result.iter().flat_map(|document| &document.warnings) {
        say(&format_args!("{name}:{warning}"));
    }
    let text = match options.output {
        Output::Documents => documents(&result),
        Output::Diff => diff(&result),
        Output::Patch => patches(&result),
    };
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            say(&format_args!("{name}: {error}"));
            return exit::SOFTWARE;
        }
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever closed the pipe does not want the rest.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            say(&format_args!("standard output: {error}"));
            exit::IO
        }
        _ => 0,
    }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// An error with a position follows the file's name without a blank, as compilers write it.
fn gap(error: &FileError) -> &'static str {
    match error {
        FileError::Syntax { .. } | FileError::Refused { .. } => "",
        FileError::Read(_) | FileError::TooLarge => " ",
    }
}

fn read(path: &Path) -> Result<String, FileError> {
    let mut bytes = Vec::new();
    let source: &mut dyn Read = if is_stdin(path) {
        &mut io::stdin().lock()
    } else {
        &mut File::open(path)?
    };
    source.take(LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LIMIT {
        return Err(FileError::TooLarge);
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
        let (line, column) = split::position(&before, before.len());
        FileError::Syntax {
            line,
            column,
            problem: "not UTF-8; convert it".into(),
        }
    })
}

// ===== injecting =====

/// A document and what became of it.
struct Outcome<'a> {
    document: Document<'a>,
    /// The object afterwards, where it changed.
    after: Option<serde_json::Value>,
    patch: Vec<Op>,
    /// With their place in the file.
    warnings: Vec<String>,
}

fn inject_text<'a>(text: &'a str, cluster: &Cluster) -> Result<Vec<Outcome<'a>>, Vec<FileError>> {
    let documents = document::read(text).map_err(|error| vec![error])?;
    let mut outcomes = Vec::new();
    let mut errors = Vec::new();
    for document in documents {
        let (line, column) = (document.line, document.column);
        match kinds::inject(&document.object, cluster) {
            Ok(injected) => outcomes.push(Outcome {
                document,
                after: injected.after,
                patch: injected.patch,
                warnings: injected
                    .warnings
                    .iter()
                    .map(|warning| format!("{line}:{column}: {warning}"))
                    .collect(),
            }),
            Err(refused) => {
                errors.extend(
                    refused
                        .into_iter()
                        .map(|(object, refusal)| FileError::Refused {
                            line,
                            column,
                            object,
                            refusal,
                        }),
                )
            }
        }
    }
    if errors.is_empty() {
        Ok(outcomes)
    } else {
        Err(errors)
    }
}

// ===== printing =====

fn documents(outcomes: &[Outcome<'_>]) -> Result<String, String> {
    let mut text = String::new();
    for outcome in outcomes {
        let document = &outcome.document;
        match &outcome.after {
            None => text.push_str(document.source),
            Some(after) => text.push_str(&document.with(after)?),
        }
    }
    Ok(text)
}

fn diff(outcomes: &[Outcome<'_>]) -> Result<String, String> {
    let mut text = String::new();
    for outcome in outcomes {
        let Some(after) = &outcome.after else {
            continue;
        };
        let object = &outcome.document.object;
        let (old, new) = match outcome.document.format {
            Format::Yaml => (super::yaml::print(object)?, super::yaml::print(after)?),
            Format::Json(_) => (document::json(object, "  ")?, document::json(after, "  ")?),
        };
        let name = kinds::name(object);
        let name = name.replace('\n', " ");
        text += &similar::TextDiff::from_lines(&old, &new)
            .unified_diff()
            .context_radius(3)
            .header(&format!("a/{name}"), &format!("b/{name}"))
            .to_string();
    }
    Ok(text)
}

fn patches(outcomes: &[Outcome<'_>]) -> Result<String, String> {
    let mut text = String::new();
    for outcome in outcomes
        .iter()
        .filter(|outcome| !outcome.document.is_blank())
    {
        text += &serde_json::to_string(&outcome.patch).map_err(|error| error.to_string())?;
        text.push('\n');
    }
    Ok(text)
}
