//! `tidegate report`: reads drain reports out of kubectl's JSON, logs and files, and sums them up.

mod read;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::drain::Outcome;
use crate::drain::record::Report;
use crate::exit;
use read::{Found, Limits, Origin, Scan, Scanner, TooLarge, Warning};

/// How many warnings of one input are printed one by one.
const WARNINGS: usize = 20;

/// Reads the files (none or `-`: standard input), prints a table or JSON, and returns the exit code:
/// 0, [`exit::NO_INPUT`] where a file cannot be read, [`exit::DATA`] where one is cut short or too
/// large or where no input holds a report, [`exit::IO`] where the output cannot be written. What can be
/// read is printed all the same. A reader that hangs up (`| head`) is no error.
pub fn main(files: &[PathBuf], json: bool) -> u8 {
    let stdin = [PathBuf::from("-")];
    let files = if files.is_empty() { &stdin } else { files };
    run(files, json, &mut io::stdout().lock(), &mut io::stderr())
}

/// A report and its pod, as printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    /// Empty where unknown: a log does not say.
    namespace: String,
    /// With the pod's name from its metadata where that is known.
    #[serde(flatten)]
    report: Report,
}

#[derive(Debug, thiserror::Error)]
enum InputError {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("{0}")]
    TooLarge(#[from] TooLarge),
    #[error("ends in the middle of a JSON document; was kubectl interrupted?")]
    Unfinished,
}

impl InputError {
    fn exit_code(&self) -> u8 {
        match self {
            InputError::Read(_) => exit::NO_INPUT,
            InputError::TooLarge(_) | InputError::Unfinished => exit::DATA,
        }
    }
}

fn run(files: &[PathBuf], json: bool, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    // Standard error may be closed; there is nobody left to tell then.
    let mut say = |name: &dyn Display, text: &dyn Display| {
        let _ = writeln!(err, "tidegate report: {name}: {text}");
    };
    let mut reports = Reports::default();
    let mut code = 0;
    for path in files {
        let name = if is_stdin(path) {
            Path::new("standard input")
        } else {
            path
        }
        .display();
        if is_stdin(path) && io::stdin().is_terminal() {
            say(
                &name,
                &"reading; end with Ctrl-D (or pipe `kubectl get pods -o json` in)",
            );
        }
        match read(path) {
            Ok(scan) => {
                warn(&scan, |text| say(&name, &text));
                if scan.found.is_empty() {
                    say(&name, &nothing_found(&scan));
                }
                if scan.unfinished {
                    say(&name, &InputError::Unfinished);
                    code = code.max(InputError::Unfinished.exit_code());
                }
                scan.found.into_iter().for_each(|found| reports.add(found));
            }
            Err(error) => {
                say(&name, &error);
                // 66 over 65: a file that is missing hides more than one without reports.
                code = code.max(error.exit_code());
            }
        }
    }
    let rows = reports.into_rows();
    if rows.is_empty() {
        return code.max(exit::DATA);
    }
    let text = if json {
        match table::json(&rows) {
            Ok(text) => text,
            Err(error) => {
                say(&"output", &error);
                return exit::SOFTWARE;
            }
        }
    } else {
        table::text(&rows)
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            say(&"standard output", &error);
            exit::IO
        }
        _ => code,
    }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

fn read(path: &Path) -> Result<Scan, InputError> {
    if is_stdin(path) {
        scan(io::stdin().lock())
    } else {
        scan(File::open(path)?)
    }
}

fn scan(mut input: impl Read) -> Result<Scan, InputError> {
    let mut scanner = Scanner::new(Limits::default());
    let mut chunk = vec![0; 64 << 10];
    loop {
        match input.read(&mut chunk) {
            Ok(0) => return Ok(scanner.finish()),
            Ok(length) => scanner.push(&chunk[..length])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

// ---- Messages ----

fn warn(scan: &Scan, mut say: impl FnMut(String)) {
    for warning in scan.warnings.iter().take(WARNINGS) {
        say(match warning {
            Warning::Cut { origin, container } => format!(
                "the report in the termination message of container {container:?} of pod {:?} was cut by the kubelet; the whole one is in the container's log",
                pod_name(origin),
            ),
            Warning::Unreadable {
                origin,
                version,
                reason,
            } => format!(
                "a report of pod {:?} by tidegate {version:?} cannot be read: {reason}; use that version's `tidegate report`",
                pod_name(origin),
            ),
        });
    }
    if scan.warnings.len() > WARNINGS {
        say(format!(
            "{} more reports that cannot be read",
            scan.warnings.len() - WARNINGS
        ));
    }
    if scan.long_lines > 0 {
        say(format!(
            "lines longer than 1 MiB skipped: {}",
            scan.long_lines
        ));
    }
}

fn pod_name(origin: &Origin) -> String {
    match (origin.namespace.as_str(), origin.pod.as_str()) {
        (_, "") => "unknown".to_owned(),
        ("", pod) => pod.to_owned(),
        (namespace, pod) => format!("{namespace}/{pod}"),
    }
}

fn nothing_found(scan: &Scan) -> String {
    if scan.pods > 0 {
        format!(
            "no drain reports found in {} pods; a pod has one from the end of its tidegate container until the pod is deleted, so watch while pods end (`kubectl get pods -w -o json`) or read their logs",
            scan.pods
        )
    } else {
        format!(
            "no drain reports found in {} lines; expected `kubectl get pods -o json`, the log of a tidegate container whose pod has ended, or a termination message",
            scan.lines
        )
    }
}

// ---- Collection ----

/// Reports, each once however often it was read.
#[derive(Debug, Default)]
struct Reports {
    found: Vec<Found>,
    /// By content.
    index: HashMap<String, Vec<usize>>,
}

impl Reports {
    /// Adds a report. The same content again is the same report, unless both are known to be of
    /// different pods; whichever names the pod wins.
    fn add(&mut self, new: Found) {
        // A report is strings and numbers: it always serializes.
        let content = serde_json::to_string(&new.report).unwrap_or_default();
        let same = self.index.entry(content).or_default();
        let fits = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
        for &i in same.iter() {
            let old = &mut self.found[i].origin;
            if fits(&old.pod, &new.origin.pod) && fits(&old.namespace, &new.origin.namespace) {
                if old.pod.is_empty() {
                    old.pod = new.origin.pod;
                }
                if old.namespace.is_empty() {
                    old.namespace = new.origin.namespace;
                }
                return;
            }
        }
        same.push(self.found.len());
        self.found.push(new);
    }

    /// Worst outcome first, then the longest drain; the rest of the order only makes it certain.
    fn into_rows(self) -> Vec<Row> {
        let mut rows: Vec<Row> = self
            .found
            .into_iter()
            .map(|Found { origin, mut report }| {
                // The metadata's name is whole; a hostname is cut at 63 characters.
                if !origin.pod.is_empty() {
                    report.pod = origin.pod;
                }
                Row {
                    namespace: origin.namespace,
                    report,
                }
            })
            .collect();
        rows.sort_by(|a, b| {
            severity(&a.report.outcome)
                .cmp(&severity(&b.report.outcome))
                .then_with(|| b.report.seconds.total_cmp(&a.report.seconds))
                .then_with(|| a.namespace.cmp(&b.namespace))
                .then_with(|| a.report.pod.cmp(&b.report.pod))
                .then_with(|| format!("{:?}", a.report).cmp(&format!("{:?}", b.report)))
        });
        rows
    }
}

/// The lower, the worse. A drain that never reached an outcome was killed in the middle, and an outcome
/// that this version does not know had better be seen.
fn severity(outcome: &str) -> u8 {
    const RANKED: [(Outcome, u8); 3] = [
        (Outcome::GraceOver, 1),
        (Outcome::Deadline, 2),
        (Outcome::Drained, 3),
    ];
    RANKED
        .iter()
        .find(|(known, _)| known.name() == outcome)
        .map_or(0, |(_, rank)| *rank)
}
