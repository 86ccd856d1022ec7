//! What the demo promises, and its refusals.

use super::*;

#[test]
fn an_envoy_that_cannot_be_run_is_refused_at_once() {
    for path in ["/nonexistent/envoy", "/", "/etc/passwd"] {
        let options = Options {
            json: true,
            envoy: Some(path.into()),
            ..Options::default()
        };
        assert_eq!(main(options), exit::NO_INPUT, "{path}");
    }
}

#[test]
fn json_is_two_tallies() {
    let text = numbers(&chart::tests::scenes());
    let expected = concat!(
        r#"{"without":{"sent":9,"lost":2,"gone_s":30.0},"#,
        r#""with":{"sent":9,"lost":0,"gone_s":40.0,"hooks_ms":12.3}}"#,
        "\n"
    );
    assert_eq!(text, expected);
}

/// The claim itself, at the demo's own scale.
#[test]
fn without_tidegate_requests_are_lost_and_with_it_none() {
    let scenes = play(Scale::new(SCALE), None, false, true)
        .expect("plays")
        .expect("is not interrupted");
    let [without, with] = &scenes;
    assert!(without.lost > 0, "{without:#?}");
    assert_eq!(with.lost, 0, "{with:#?}");
    assert!(without.sent > without.lost && with.sent > 0);
    // queue-proxy's quiet period, and the longest request.
    assert!(
        without.gone >= 30.0 && with.gone >= 38.0,
        "{} {}",
        without.gone,
        with.gone
    );
    let phases: Vec<_> = with.phases.iter().map(|(phase, _)| *phase).collect();
    assert!(phases.is_sorted() && phases.contains(&crate::drain::Phase::ReleasingWorkload));
    assert!(without.phases.is_empty());
}

/// How soon depends on the machine; under 50 ms on an idle one.
#[test]
fn with_the_gate_the_hooks_are_answered_after_the_last_byte() {
    let scenes = play(Scale::new(SCALE), None, true, true)
        .expect("plays")
        .expect("is not interrupted");
    let [without, with] = &scenes;
    assert_eq!((with.title, with.lost), ("with the gate", 0), "{with:#?}");
    assert!(with.gone >= 38.0, "{}", with.gone);
    println!("hooks answered {:?} after the last byte", with.released);
    assert!(with.released.is_some() && without.released.is_none());
}
