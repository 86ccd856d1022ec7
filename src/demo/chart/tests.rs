//! The chart's text.

use super::super::scene::Span;
use super::*;

pub(in crate::demo) fn scenes() -> [Scene; 2] {
    let span = |from, to, kind| Span { from, to, kind };
    let row = |label: &str, spans: Vec<Span>, cuts: Vec<f64>, note: &str| Row {
        label: label.to_owned(),
        spans,
        cuts,
        note: note.to_owned(),
    };
    let without = Scene {
        title: "without Tidegate",
        sent: 9,
        lost: 2,
        gone: 30.0,
        released: None,
        rows: vec![
            row(
                "steady load",
                vec![span(-4.0, 2.0, Kind::Request)],
                vec![1.0],
                "1 of 8 lost",
            ),
            row(
                "40 s request",
                vec![span(-2.0, 5.0, Kind::Request)],
                vec![5.0],
                "cut at 5.0: 503",
            ),
            row(
                "queue-proxy",
                vec![span(-4.0, 0.0, Kind::Runs), span(0.0, 30.0, Kind::Stopping)],
                vec![],
                "gone at 30.0",
            ),
        ],
        phases: vec![],
        why: String::new(),
    };
    let with = Scene {
        title: "with Tidegate",
        sent: 9,
        lost: 0,
        gone: 40.0,
        released: Some(std::time::Duration::from_micros(12_340)),
        rows: vec![
            row(
                "idle keep-alive",
                vec![span(-4.0, 39.5, Kind::Idle)],
                vec![],
                "closed at 39.5",
            ),
            row(
                "user-container",
                vec![
                    span(-4.0, 0.0, Kind::Runs),
                    span(0.0, 38.5, Kind::Held),
                    span(38.5, 40.0, Kind::Stopping),
                ],
                vec![],
                "gone at 40.0",
            ),
        ],
        phases: vec![
            (Phase::Announcing, 0.0),
            (Phase::Draining, 3.0),
            (Phase::Done, 39.9),
        ],
        why: String::new(),
    };
    [without, with]
}

#[test]
fn plain_text_is_plain_and_says_it_all() {
    let text = draw(
        &scenes(),
        &Style {
            colour: false,
            width: Some(100),
        },
    );
    insta::assert_snapshot!(text);
}

#[test]
fn colours_only_add_escapes() {
    let plain = draw(
        &scenes(),
        &Style {
            colour: false,
            width: None,
        },
    );
    let coloured = draw(
        &scenes(),
        &Style {
            colour: true,
            width: None,
        },
    );
    assert!(coloured.contains("\u{1b}["));
    let mut stripped = String::new();
    for (index, part) in coloured.split("\u{1b}[").enumerate() {
        stripped.push_str(if index == 0 {
            part
        } else {
            part.split_once('m').expect("an end").1
        });
    }
    let trimmed = |text: &str| {
        text.lines()
            .map(str::trim_end)
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(trimmed(&stripped), trimmed(&plain));
}

#[test]
fn narrow_and_empty_do_not_break_it() {
    draw(
        &[],
        &Style {
            colour: false,
            width: Some(1),
        },
    );
    let mut scenes = scenes();
    scenes[1].rows[0].cuts = vec![f64::NAN, -1e9, 1e9];
    let text = draw(
        &scenes,
        &Style {
            colour: false,
            width: Some(1),
        },
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 120),
        "{text}"
    );
}
