//! `tidegate demo`: a whole pod on loopback goes down, without Tidegate and with it, and what was
//! lost on the way.
//!
//! The pod is made of [stand-ins](crate::standin); Tidegate is the real one, in this process, over
//! real sockets. Time is scaled down by eight unless `--real-time` is given, and everything is
//! printed in modelled time: what a real pod would have taken. What Tidegate waits by the clock of
//! the machine (200 ms of zero, its polls) is not scaled, so a scaled run shows it eight times longer.

mod chart;
mod scenario;
pub mod scene;
mod sidecar;
pub mod svg;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::standin::Scale;
use crate::{exit, signals};
use scenario::{Error, Stage};
use scene::Scene;

/// How much faster than a real pod the demo lives.
const SCALE: f64 = 1.0 / 8.0;

/// What `tidegate demo` was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Print the numbers as one JSON object instead of the chart.
    pub json: bool,
    /// Write the chart to this file as well.
    pub svg: Option<PathBuf>,
    /// Take as long as a real pod takes.
    pub real_time: bool,
    /// A real Envoy in the stand-in's place.
    pub envoy: Option<PathBuf>,
    /// Tidegate's gate between Envoy and queue-proxy.
    pub gate: bool,
}

/// Both runs, as `--json` prints them.
#[derive(Debug, Serialize)]
struct Numbers {
    without: Tally,
    with: Tally,
}

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
struct Tally {
    /// Requests sent to the pod.
    sent: u64,
    /// Those that got no whole answer, or one that was not 2xx.
    lost: u64,
    /// From the deletion until the last container had gone, in modelled seconds: `--real-time` and
    /// a scaled run print the same.
    gone_s: f64,
    /// From the last byte of the last request until the app's hook was answered, in milliseconds that
    /// are not modelled; absent without Tidegate.
    #[serde(skip_serializing_if = "Option::is_none")]
    hooks_ms: Option<f64>,
}

impl Tally {
    fn of(scene: &Scene) -> Tally {
        let rounded = |value: f64| (value * 10.0).round() / 10.0;
        Tally {
            sent: scene.sent,
            lost: scene.lost,
            gone_s: rounded(scene.gone),
            hooks_ms: scene.released_ms().map(rounded),
        }
    }
}

/// Runs the demo; returns the process's exit code: 1 where a request was lost in spite of Tidegate,
/// 66 where Envoy cannot be run, 69 where a port or a thread cannot be had, 74 where the chart cannot
/// be written, 130 after SIGINT.
pub fn main(options: Options) -> u8 {
    let Options {
        json,
        svg,
        real_time,
        envoy,
        gate,
    } = options;
    if let Some(program) = &envoy
        && let Err(error) = executable(program)
    {
        eprintln!("tidegate: {error}");
        return exit::NO_INPUT;
    }
    let scale = if real_time {
        Scale::REAL
    } else {
        Scale::new(SCALE)
    };
    let scenes = match play(scale, envoy, gate, json) {
        Ok(Some(scenes)) => scenes,
        Ok(None) => return exit::INTERRUPTED,
        Err(error) => {
            eprintln!("tidegate: {error}");
            return error.exit_code();
        }
    };
    if let Some(path) = &svg
        && let Err(error) = std::fs::write(path, svg::draw(&scenes))
    {
        eprintln!("tidegate: cannot write {}: {error}", path.display());
        return exit::IO;
    }
    let text = if json {
        numbers(&scenes)
    } else {
        chart::draw(&scenes, &style())
    };
    // Whoever closed the pipe does not want the text; the exit code still says what happened.
    let _ = std::io::stdout().write_all(text.as_bytes());
    match scenes[1].lost {
        0 => 0,
        lost => {
            eprintln!(
                "tidegate: {lost} requests were lost with Tidegate, where none may be: {}",
                scenes[1].why
            );
            1
        }
    }
}

/// Plays both runs; `None` after SIGINT. What the runs started ends with the runtime.
fn play(
    scale: Scale,
    envoy: Option<PathBuf>,
    gate: bool,
    quiet: bool,
) -> Result<Option<[Scene; 2]>, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut signals = signals::install()?;
        let stage = Stage::new(scale, envoy, gate)?;
        let both = async {
            progress(quiet, "a pod goes down without Tidegate ...");
            let without = stage.without().await?;
            progress(quiet, "and now with it ...");
            let with = stage.with().await?;
            Ok([without, with])
        };
        tokio::select! {
            scenes = both => scenes.map(Some),
            _ = signals.next() => Ok(None),
        }
    })
}

fn progress(quiet: bool, line: &str) {
    if !quiet && std::io::stderr().is_terminal() {
        eprintln!("{line}");
    }
}

fn numbers(scenes: &[Scene; 2]) -> String {
    let numbers = Numbers {
        without: Tally::of(&scenes[0]),
        with: Tally::of(&scenes[1]),
    };
    let mut text = serde_json::json!(numbers).to_string();
    text.push('\n');
    text
}

/// Colours only for people at a terminal who have not said no (<https://no-color.org>).
fn style() -> chart::Style {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let width = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    chart::Style {
        colour: std::io::stdout().is_terminal() && !refused,
        width,
    }
}

/// Whether `program` is a file that may be run.
fn executable(program: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let advice = "give the path of an envoy executable";
    let metadata = std::fs::metadata(program)
        .map_err(|error| format!("cannot run {}: {error}; {advice}", program.display()))?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(format!(
            "cannot run {}: not an executable file; {advice}",
            program.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
