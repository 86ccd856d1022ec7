//! The chart in the terminal: one line a bar.

use super::scene::{Kind, Row, Scene};
use crate::drain::Phase;

const LABEL: usize = 17;
const NOTE: usize = 26;
/// Columns where the terminal does not say.
const WIDTH: usize = 100;

/// How the chart looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) colour: bool,
    /// Columns of the terminal, where known.
    pub(super) width: Option<usize>,
}

/// Draws the runs on one time axis.
pub(super) fn draw(scenes: &[Scene], style: &Style) -> String {
    let columns = style.width.unwrap_or(WIDTH).clamp(70, 160) - LABEL - NOTE;
    let axis = Axis::of(scenes, columns);
    let mut text = String::new();
    for scene in scenes {
        let heading = format!("{} (seconds after the pod's deletion)", scene.title);
        push_line(&mut text, &style.paint(BOLD, &heading));
        push_line(&mut text, &format!("{:LABEL$}{}", "", axis.ruler()));
        for row in &scene.rows {
            push_line(&mut text, &line(row, &axis, style));
        }
        if !scene.phases.is_empty() {
            let marks = axis.marks(&scene.phases);
            push_line(
                &mut text,
                &format!("{:LABEL$}{}", "phases", style.paint(CYAN, &marks)),
            );
            for line in phase_lines(&scene.phases, columns + NOTE) {
                push_line(&mut text, &format!("{:LABEL$}{line}", ""));
            }
        }
        text.push('\n');
    }
    push_line(
        &mut text,
        "━ request  ╌ idle  █ runs  ▒ preStop hook held  ░ after SIGTERM  X cut",
    );
    text.push('\n');
    for scene in scenes {
        let colour = if scene.lost == 0 { GREEN } else { RED };
        push_line(&mut text, &style.paint(colour, &scene.summary()));
    }
    text
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

fn line(row: &Row, axis: &Axis, style: &Style) -> String {
    let mut cells = vec![(' ', ""); axis.columns];
    for span in &row.spans {
        let (glyph, colour) = match span.kind {
            Kind::Request => ('━', GREEN),
            Kind::Idle => ('╌', DIM),
            Kind::Runs => ('█', BLUE),
            Kind::Held => ('▒', CYAN),
            Kind::Stopping => ('░', YELLOW),
        };
        for cell in &mut cells[axis.cell(span.from)..=axis.last_cell(span.from, span.to)] {
            *cell = (glyph, colour);
        }
    }
    for cut in &row.cuts {
        cells[axis.cell(*cut)] = ('X', RED);
    }
    let mut bar = String::new();
    for run in cells.chunk_by(|one, other| one.1 == other.1) {
        let glyphs: String = run.iter().map(|(glyph, _)| glyph).collect();
        bar.push_str(&style.paint(run[0].1, &glyphs));
    }
    format!("{:LABEL$}{bar} {}", row.label, row.note)
}

/// The letter of each phase and when it began.
fn phase_lines(phases: &[(Phase, f64)], width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (phase, at) in phases {
        let item = format!("{} {} {at:.1}", letter(*phase), phase.name());
        let full = lines
            .last()
            .is_some_and(|line| line.len() + item.len() + 3 > width);
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push_str("   ");
            }
            line.push_str(&item);
        }
    }
    lines
}

/// One letter a phase; also the marks of the SVG.
pub(super) fn letter(phase: Phase) -> char {
    match phase {
        Phase::Serving => 's',
        Phase::Announcing => 'a',
        Phase::Draining => 'd',
        Phase::ClosingDoor => 'c',
        Phase::Flushing => 'f',
        Phase::ReleasingWorkload => 'w',
        Phase::ReleasingProxy => 'p',
        Phase::Done => '.',
    }
}

/// Seconds to columns.
struct Axis {
    from: f64,
    to: f64,
    columns: usize,
}

impl Axis {
    fn of(scenes: &[Scene], columns: usize) -> Axis {
        let from = scenes.iter().map(Scene::begins).fold(0.0, f64::min);
        let to = scenes.iter().map(|scene| scene.gone).fold(1.0, f64::max);
        Axis { from, to, columns }
    }

    fn cell(&self, at: f64) -> usize {
        let share = (at - self.from) / (self.to - self.from);
        // Within the axis the share is between 0 and 1; `as` saturates for what is outside.
        ((share * self.columns as f64) as usize).min(self.columns - 1)
    }

    /// The last cell of a bar, which has one at least.
    fn last_cell(&self, from: f64, to: f64) -> usize {
        self.cell(to).max(self.cell(from))
    }

    fn ruler(&self) -> String {
        let mut ruler = vec![' '; self.columns];
        let step = if self.to > 120.0 { 50 } else { 10 };
        let mut at = 0;
        while f64::from(at) <= self.to {
            let label = at.to_string();
            let cell = self.cell(f64::from(at));
            if cell + label.len() <= self.columns {
                ruler[cell..cell + label.len()].copy_from_slice(&label.chars().collect::<Vec<_>>());
            }
            at += step;
        }
        ruler.into_iter().collect()
    }

    /// A letter where each phase began; where several fall into one cell, side by side.
    fn marks(&self, phases: &[(Phase, f64)]) -> String {
        let mut marks: Vec<char> = Vec::new();
        for (phase, at) in phases {
            let cell = self.cell(*at).max(marks.len());
            marks.resize(cell, ' ');
            marks.push(letter(*phase));
        }
        marks.into_iter().collect()
    }
}

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "1;31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const BLUE: &str = "34";
const CYAN: &str = "36";

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour && !code.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
pub(in crate::demo) mod tests;
