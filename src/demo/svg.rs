//! The chart as a standalone SVG.

use std::fmt::Write;

use super::chart::letter;
use super::scene::{Kind, Row, Scene};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 190.0;
const ROW: f64 = 26.0;
const BAR: f64 = 14.0;
/// Above the bars of a run: its title, then the ruler.
const HEAD: f64 = 62.0;
/// Below them.
const GAP: f64 = 26.0;
const MARGIN: f64 = 24.0;
const LEGEND: f64 = 30.0;
/// Least distance of two letters, and of two crosses.
const LETTER: f64 = 11.0;
const CROSS: f64 = 8.0;

/// Draws the runs on one time axis.
pub fn draw(scenes: &[Scene]) -> String {
    let from = scenes.iter().map(Scene::begins).fold(0.0, f64::min);
    let to = scenes.iter().map(|scene| scene.gone).fold(1.0, f64::max);
    let x = move |at: f64| LEFT + (at - from) / (to - from) * (WIDTH - LEFT - RIGHT);
    let height = 2.0 * MARGIN + LEGEND + scenes.iter().map(height).sum::<f64>();
    let mut svg = Svg(String::new());
    svg.line(format_args!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif" font-size="13" fill="{INK}">"#
    ));
    svg.line(format_args!(
        "<title>A pod's end, without and with Tidegate</title>"
    ));
    let summaries: Vec<_> = scenes.iter().map(Scene::summary).collect();
    svg.line(format_args!(
        "<desc>{}</desc>",
        escape(&summaries.join("; "))
    ));
    svg.line(format_args!(
        r#"<rect width="{WIDTH}" height="{height}" rx="8" fill="{PAPER}"/>"#
    ));
    let mut top = MARGIN;
    for scene in scenes {
        svg.scene(scene, top, to, &x);
        top += self::height(scene);
    }
    svg.legend(top + 8.0);
    svg.line(format_args!("</svg>"));
    svg.0
}

fn height(scene: &Scene) -> f64 {
    let phases = if scene.phases.is_empty() {
        0.0
    } else {
        2.0 * ROW
    };
    HEAD + scene.rows.len() as f64 * ROW + phases + GAP
}

const PAPER: &str = "#fbfcfd";
const INK: &str = "#1f2933";
const FAINT: &str = "#7b8794";
const GRID: &str = "#e4e9ee";
const CUT: &str = "#c81e1e";
const WHOLE: &str = "#0b7a4b";

fn fill(kind: Kind) -> &'static str {
    match kind {
        Kind::Request => "#3aa76d",
        Kind::Idle => "#c3ccd6",
        Kind::Runs => "#2f6fb0",
        Kind::Held => "#8fb8de",
        Kind::Stopping => "#f0b95b",
    }
}

struct Svg(String);

impl Svg {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.0.write_fmt(line);
        self.0.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, attributes: &str, text: &str) {
        let text = escape(text);
        self.line(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}"{attributes}>{text}</text>"#
        ));
    }

    fn scene(&mut self, scene: &Scene, top: f64, to: f64, x: &impl Fn(f64) -> f64) {
        let Scene {
            title,
            sent,
            lost,
            gone,
            released: _,
            rows,
            phases,
            why: _,
        } = scene;
        let colour = if *lost == 0 { WHOLE } else { CUT };
        self.text(
            MARGIN,
            top + 18.0,
            r#" font-size="17" font-weight="600""#,
            title,
        );
        let right = format!(r#" text-anchor="end" font-weight="600" fill="{colour}""#);
        let mut summary = format!("{sent} sent, {lost} lost, pod gone after {gone:.1} s");
        if let Some(released) = scene.released_ms() {
            summary.push_str(&format!(", hooks {released:.0} ms after the last byte"));
        }
        self.text(WIDTH - MARGIN, top + 18.0, &right, &summary);

        let bars = top + HEAD;
        let bottom = bars + rows.len() as f64 * ROW;
        let step = if to > 120.0 { 50 } else { 10 };
        let mut at = 0;
        while f64::from(at) <= to {
            let grid = x(f64::from(at));
            self.line(format_args!(
                r#"<line x1="{grid:.1}" y1="{:.1}" x2="{grid:.1}" y2="{bottom:.1}" stroke="{}"/>"#,
                bars - 6.0,
                if at == 0 { FAINT } else { GRID },
            ));
            let middle = format!(r#" text-anchor="middle" font-size="11" fill="{FAINT}""#);
            let label = if at == 0 {
                "deleted".to_owned()
            } else {
                format!("{at} s")
            };
            self.text(grid, bars - 12.0, &middle, &label);
            at += step;
        }
        for (index, row) in rows.iter().enumerate() {
            self.row(row, bars + index as f64 * ROW, x);
        }
        if !phases.is_empty() {
            let label = format!(r#" text-anchor="end" fill="{FAINT}""#);
            self.text(LEFT - 12.0, bottom + 16.0, &label, "phases");
            let mut free = f64::MIN;
            let mut names = Vec::new();
            for (phase, at) in phases {
                let place = x(*at).max(free);
                free = place + LETTER;
                let bold = format!(
                    r#" text-anchor="middle" font-size="11" font-weight="600" fill="{}""#,
                    fill(Kind::Runs)
                );
                self.text(place, bottom + 16.0, &bold, &letter(*phase).to_string());
                names.push(format!("{} {} {at:.1}", letter(*phase), phase.name()));
            }
            let small = format!(r#" font-size="11" fill="{FAINT}""#);
            self.text(
                LEFT,
                bottom + 16.0 + ROW - 6.0,
                &small,
                &names.join(" \u{b7} "),
            );
        }
    }

    fn row(&mut self, row: &Row, top: f64, x: &impl Fn(f64) -> f64) {
        let Row {
            label,
            spans,
            cuts,
            note,
        } = row;
        let baseline = top + BAR / 2.0 + 4.5;
        self.text(LEFT - 12.0, baseline, r#" text-anchor="end""#, label);
        for span in spans {
            let thin = span.kind == Kind::Idle;
            let (y, height) = if thin {
                (top + BAR / 2.0 - 1.5, 3.0)
            } else {
                (top, BAR)
            };
            self.line(format_args!(
                r#"<rect x="{:.1}" y="{y:.1}" width="{:.1}" height="{height}" rx="2" fill="{}"/>"#,
                x(span.from),
                (x(span.to) - x(span.from)).max(1.5),
                fill(span.kind),
            ));
        }
        let mut last = f64::MIN;
        for cut in cuts {
            // Crosses on top of each other would say no more than one.
            if x(*cut) - last >= CROSS {
                last = x(*cut);
                self.cross(last, top + BAR / 2.0);
            }
        }
        let colour = if cuts.is_empty() { FAINT } else { CUT };
        let end = WIDTH - RIGHT + 14.0;
        self.text(
            end,
            baseline,
            &format!(r#" font-size="12" fill="{colour}""#),
            note,
        );
    }

    fn cross(&mut self, x: f64, y: f64) {
        const ARM: f64 = 5.0;
        let (left, right, top, bottom) = (x - ARM, x + ARM, y - ARM, y + ARM);
        for (stroke, width) in [(PAPER, 5.0), (CUT, 2.4)] {
            self.line(format_args!(
                r#"<path d="M{left:.1} {top:.1}L{right:.1} {bottom:.1}M{left:.1} {bottom:.1}L{right:.1} {top:.1}" stroke="{stroke}" stroke-width="{width}" stroke-linecap="round"/>"#
            ));
        }
    }

    fn legend(&mut self, top: f64) {
        let items = [
            (Kind::Request, "request"),
            (Kind::Idle, "idle connection"),
            (Kind::Runs, "container runs"),
            (Kind::Held, "preStop hook held"),
            (Kind::Stopping, "after SIGTERM"),
        ];
        let mut left = LEFT;
        for (kind, label) in items {
            self.line(format_args!(
                r#"<rect x="{left:.1}" y="{top:.1}" width="14" height="10" rx="2" fill="{}"/>"#,
                fill(kind),
            ));
            self.text(left + 20.0, top + 9.5, r#" font-size="12""#, label);
            left += 40.0 + label.len() as f64 * 6.6;
        }
        self.cross(left + 5.0, top + 5.0);
        self.text(left + 20.0, top + 9.5, r#" font-size="12""#, "request cut");
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_in_it_and_markup_is_escaped() {
        let mut scenes = super::super::chart::tests::scenes();
        scenes[0].rows[0].note = "a < b & c".to_owned();
        let svg = draw(&scenes);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a &lt; b &amp; c"));
        assert!(svg.contains("9 sent, 2 lost, pod gone after 30.0 s</text>"));
        assert!(svg.contains("pod gone after 40.0 s, hooks 12 ms after the last byte</text>"));
        assert!(svg.contains("d draining 3.0"));
        let crosses = svg.matches(CUT).count();
        assert!(crosses >= 3, "two cuts and the legend: {crosses}");
        assert_eq!(
            svg.matches("<text ").count(),
            svg.matches("</text>").count()
        );
    }
}
