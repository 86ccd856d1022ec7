//! Finds drain reports in bytes: kubectl's JSON, log streams and bare reports, told apart by content.
//!
//! No I/O here: a [`Scanner`] is fed chunks and holds one line at a time. Only a JSON document that
//! spans lines, or a Kubernetes object on one long line, is held whole, up to [`Limits::document`].

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeSet;

use memchr::{memchr, memmem};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::drain::record::Report;

/// How many opening braces of a line are tried: a prefix may hold some (`{app="x"} {...}`).
const TRIES: usize = 8;
/// How deep a report may sit: list, pod or event, `fields`, `report`.
const DEPTH: usize = 5;
/// How far into a line a Kubernetes object is looked for.
const HEAD: usize = 256;

/// How much is held in memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Of one log line, at least 256; longer ones are skipped and counted.
    pub line: usize,
    /// Of one JSON document; a longer one is an error.
    pub document: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            line: 1 << 20,
            document: 512 << 20,
        }
    }
}

/// A drain report, and whose it is as far as its surroundings say.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    /// Where it was found.
    pub origin: Origin,
    /// The report itself.
    pub report: Report,
}

/// The pod that the surroundings of a report name: a pod's metadata, or the prefix of a log line.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    /// Its namespace, empty where unknown.
    pub namespace: String,
    /// Its name, empty where unknown.
    pub pod: String,
}

/// A report that is there and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Warning {
    /// A termination message that the kubelet has cut. It keeps the last 4,096 bytes of the file,
    /// and of those the first 12,288 divided by the number of the pod's containers
    /// (`MaxPodTerminationMessageLogLength` in pkg/kubelet/container).
    Cut {
        /// The pod.
        origin: Origin,
        /// Its container.
        container: String,
    },
    /// A report whose fields are not those of this version.
    Unreadable {
        /// The pod.
        origin: Origin,
        /// The version that wrote it.
        version: String,
        /// What is wrong.
        reason: String,
    },
}

/// What a whole input held.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Scan {
    /// The reports, in order.
    pub found: Vec<Found>,
    /// What could not be used.
    pub warnings: BTreeSet<Warning>,
    /// Pods seen, with a report or without.
    pub pods: u64,
    /// Lines seen outside documents.
    pub lines: u64,
    /// Lines skipped because they were longer than [`Limits::line`].
    pub long_lines: u64,
    /// Whether the input ended in the middle of a JSON document.
    pub unfinished: bool,
}

/// A JSON document is longer than [`Limits::document`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("holds a JSON document of more than {limit} bytes; ask kubectl for fewer pods (-n, -l)")]
pub(super) struct TooLarge {
    /// The limit, in bytes.
    pub limit: usize,
}

/// Reads an input chunk by chunk. How it is divided into chunks makes no difference.
#[derive(Debug)]
pub(super) struct Scanner {
    limits: Limits,
    /// The line so far, without its end.
    line: Vec<u8>,
    /// The rest of this line is dropped.
    skipping: bool,
    /// The lines of a document so far, each with its end.
    document: Option<Vec<u8>>,
    scan: Scan,
}

impl Scanner {
    /// A scanner at the beginning of an input.
    pub(super) fn new(limits: Limits) -> Self {
        Scanner {
            limits,
            line: Vec::new(),
            skipping: false,
            document: None,
            scan: Scan::default(),
        }
    }

    /// Takes the next bytes of the input.
    pub(super) fn push(&mut self, mut chunk: &[u8]) -> Result<(), TooLarge> {
        while let Some(end) = memchr(b'\n', chunk) {
            self.extend(&chunk[..end])?;
            self.end_line();
            chunk = &chunk[end + 1..];
        }
        self.extend(chunk)
    }

    /// Ends the input.
    pub(super) fn finish(mut self) -> Scan {
        if self.skipping || !self.line.is_empty() {
            self.end_line();
        }
        if let Some(held) = self.document.take() {
            self.scan.unfinished = true;
            self.rescan(&held);
        }
        self.scan
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        if self.skipping {
            return Ok(());
        }
        let length = self.line.len().saturating_add(bytes.len());
        let held = match (&self.document, self.line.first().or(bytes.first())) {
            (Some(held), Some(b' ' | b'\t' | b'\r' | b'}' | b']')) => Some(held.len()),
            _ => None,
        };
        let mut rest = bytes;
        if held.is_none() && length > self.limits.line {
            // Look at the beginning only: the same verdict for every division into chunks.
            let head = HEAD.saturating_sub(self.line.len()).min(bytes.len());
            self.line.extend_from_slice(&bytes[..head]);
            rest = &bytes[head..];
            if !is_kubernetes(&self.line) {
                self.line = Vec::new();
                self.skipping = true;
                return Ok(());
            }
        }
        if length.saturating_add(held.unwrap_or(0)) > self.limits.document {
            return Err(TooLarge {
                limit: self.limits.document,
            });
        }
        self.line.extend_from_slice(rest);
        Ok(())
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.skipping) {
            // A line so long is skipped only where it cannot belong to a document.
            if let Some(held) = self.document.take() {
                self.rescan(&held);
            }
            self.scan.lines += 1;
            self.scan.long_lines += 1;
            return;
        }
        let mut line = std::mem::take(&mut self.line);
        if let Some(mut held) = self.document.take() {
            // Indented JSON, as kubectl and jq write it: inner lines begin with a blank, and a
            // bracket in the first column ends the document. Anything else was a log after all.
            match line.first() {
                Some(b'}' | b']') => {
                    held.append(&mut line);
                    self.end_document(&held);
                    return;
                }
                None | Some(b' ' | b'\t' | b'\r') => {
                    held.append(&mut line);
                    held.push(b'\n');
                    self.document = Some(held);
                    return;
                }
                Some(_) => self.rescan(&held),
            }
        }
        let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
        if matches!(text.trim_ascii_end(), b"{" | b"[") {
            self.document = Some([text, b"\n"].concat());
        } else {
            self.scan.log_line(text);
            // Keep the allocation for the next line, but not that of a huge one.
            if line.capacity() <= self.limits.line {
                line.clear();
                self.line = line;
            }
        }
    }

    fn end_document(&mut self, held: &[u8]) {
        let text = String::from_utf8_lossy(held);
        match serde_json::from_str::<&RawValue>(&text) {
            Ok(raw) => {
                self.scan.value(raw.get(), &Origin::default(), 0);
            }
            Err(_) => self.rescan(held),
        }
    }

    /// Reads as log lines what looked like a document and is none.
    fn rescan(&mut self, held: &[u8]) {
        for line in held.split(|byte| *byte == b'\n') {
            if line.len() > self.limits.line {
                self.scan.lines += 1;
                self.scan.long_lines += 1;
            } else if !line.is_empty() {
                self.scan.log_line(line);
            }
        }
    }
}

/// Whether a line begins like a Kubernetes object (`kubectl get --raw`, `jq -c`).
fn is_kubernetes(line: &[u8]) -> bool {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    // Three bytes less, for the byte order mark.
    let head = &line[..line.len().min(HEAD - 3)];
    head.trim_ascii_start().starts_with(b"{") && memmem::find(head, b"\"apiVersion\"").is_some()
}

/// The pod of a line that `kubectl logs --prefix` wrote: `[pod/NAME/CONTAINER] ...`.
fn prefix_pod(line: &str) -> Origin {
    let pod = line
        .strip_prefix("[pod/")
        .and_then(|rest| rest.split_once('/'))
        .map_or("", |(pod, _)| pod);
    Origin {
        namespace: String::new(),
        pod: pod.to_owned(),
    }
}

// ---- JSON ----

/// The members that matter, each unparsed, so that a type nobody expected spoils nothing.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow)]
    tidegate: Option<&'a RawValue>,
    #[serde(borrow)]
    outcome: Option<&'a RawValue>,
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    items: Option<&'a RawValue>,
    /// Of a watch event.
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    report: Option<&'a RawValue>,
    #[serde(borrow)]
    fields: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus<'a> {
    #[serde(borrow)]
    init_container_statuses: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    container_statuses: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    name: Option<String>,
    state: Option<State>,
    last_state: Option<State>,
}

#[derive(Deserialize)]
struct State {
    terminated: Option<Terminated>,
}

#[derive(Deserialize)]
struct Terminated {
    message: Option<String>,
}

fn string(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

impl Scan {
    fn log_line(&mut self, line: &[u8]) {
        self.lines += 1;
        // Parsing is a hundred times dearer than this, and most lines of most logs are not ours.
        if memmem::find(line, b"tidegate").is_some() || is_kubernetes(line) {
            let text: Cow<'_, str> = String::from_utf8_lossy(line);
            let origin = prefix_pod(&text);
            self.text_line(&text, &origin);
        }
    }

    /// Looks for a report in one line of text; `true`: there is one, usable or not.
    fn text_line(&mut self, line: &str, origin: &Origin) -> bool {
        let mut rest = line;
        for _ in 0..TRIES {
            let Some(start) = rest.find('{') else {
                return false;
            };
            rest = &rest[start..];
            let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
            rest = match stream.next() {
                Some(Ok(raw)) => {
                    if self.value(raw.get(), origin, 0) {
                        return true;
                    }
                    &rest[stream.byte_offset()..]
                }
                _ => &rest[1..],
            };
        }
        false
    }

    /// Looks for reports in one JSON value; `true`: there is one, usable or not.
    fn value(&mut self, raw: &str, origin: &Origin, depth: usize) -> bool {
        if depth > DEPTH {
            return false;
        }
        if raw.starts_with('[') {
            let values: Vec<&RawValue> = serde_json::from_str(raw).unwrap_or_default();
            // Not `any`: every value is to be read.
            let mut any = false;
            for value in values {
                any |= self.value(value.get(), origin, depth + 1);
            }
            return any;
        }
        let Ok(members) = serde_json::from_str::<Members<'_>>(raw) else {
            return false;
        };
        if let (Some(version), Some(_)) = (string(members.tidegate), string(members.outcome)) {
            self.report(raw, version, origin);
            return true;
        }
        let kind = string(members.kind).unwrap_or_default();
        if let (true, Some(items)) = (kind.ends_with("List"), members.items) {
            return self.value(items.get(), origin, depth + 1);
        }
        // The items of a PodList, as `kubectl get --raw` prints it, have no kind.
        let is_pod = kind == "Pod" || kind.is_empty() && members.metadata.is_some();
        if let (true, Some(status)) = (is_pod, members.status) {
            return self.pod(members.metadata, status);
        }
        if let Some(object) = members.object {
            return self.value(object.get(), origin, depth + 1);
        }
        if let Some(text) = string(members.report)
            && self.value(&text, origin, depth + 1)
        {
            return true;
        }
        [members.report, members.fields]
            .into_iter()
            .flatten()
            .any(|inner| inner.get().starts_with('{') && self.value(inner.get(), origin, depth + 1))
    }

    fn report(&mut self, raw: &str, version: String, origin: &Origin) {
        match serde_json::from_str::<Report>(raw) {
            Ok(report) => self.found.push(Found {
                origin: origin.clone(),
                report,
            }),
            Err(error) => {
                self.warnings.insert(Warning::Unreadable {
                    origin: origin.clone(),
                    version,
                    reason: error.to_string(),
                });
            }
        }
    }

    fn pod(&mut self, metadata: Option<&RawValue>, status: &RawValue) -> bool {
        self.pods += 1;
        let metadata: Metadata = metadata
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let origin = Origin {
            namespace: metadata.namespace.unwrap_or_default(),
            pod: metadata.name.unwrap_or_default(),
        };
        let status: PodStatus<'_> = serde_json::from_str(status.get()).unwrap_or_default();
        let mut any = false;
        for raw in [status.init_container_statuses, status.container_statuses]
            .into_iter()
            .flatten()
            .flatten()
        {
            let Ok(container) = serde_json::from_str::<ContainerStatus>(raw.get()) else {
                continue;
            };
            let name = container.name.unwrap_or_default();
            for message in [container.last_state, container.state]
                .into_iter()
                .filter_map(|state| state?.terminated?.message)
            {
                any |= self.message(&message, &origin, &name);
            }
        }
        any
    }

    /// A termination message. With `FallbackToLogsOnError` it is the end of a log, hence the lines.
    fn message(&mut self, message: &str, origin: &Origin, container: &str) -> bool {
        let mut found = false;
        for line in message.lines() {
            found |= self.text_line(line, origin);
        }
        // Either end may be missing.
        let is_report = message.contains("\"tidegate\":")
            || message.contains("\"in_flight\":") && message.contains("\"phases\":");
        if !found && is_report {
            self.warnings.insert(Warning::Cut {
                origin: origin.clone(),
                container: container.to_owned(),
            });
        }
        found || is_report
    }
}
