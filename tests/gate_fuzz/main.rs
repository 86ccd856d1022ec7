//! What `fuzz/` checks, without its fuzzer: the committed inputs, and a few changes to each.

// For `fuzz/` they are a library's.
#[allow(unreachable_pub)]
mod checks;

use std::path::Path;

use checks::Dice;

/// Changed inputs for each committed one.
const CHANGES: u64 = 24;

/// Plays all inputs of a target, as they are and changed.
fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut inputs: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    assert!(inputs.len() > 5, "{} inputs of {target}", inputs.len());
    for path in inputs {
        let input = std::fs::read(&path).unwrap();
        // Printed where one fails.
        println!("{}", path.display());
        check(&input);
        let mut dice = Dice::new(input.len() as u64);
        for _ in 0..CHANGES {
            let changed = change(&input, &mut dice);
            println!("{}", changed.escape_ascii());
            check(&changed);
        }
    }
}

/// A byte changed, a part left out, or a part twice.
fn change(input: &[u8], dice: &mut Dice) -> Vec<u8> {
    let from = dice.under(input.len() + 1);
    let to = (from + 1 + dice.under(24)).min(input.len());
    let mut changed = input.to_vec();
    match dice.under(3) {
        0 if from < input.len() => changed[from] = dice.under(256) as u8,
        1 => drop(changed.drain(from..to)),
        _ => {
            changed.splice(from..from, input[from..to].iter().copied());
        }
    }
    changed
}

#[test]
fn h1_sees_the_requests_that_hyper_sees() {
    replay("h1", checks::h1);
}

#[test]
fn h1_sees_the_replies_that_hyper_sees() {
    replay("h1_reply", checks::h1_reply);
}

#[test]
fn h2_sees_the_streams_that_the_h2_crate_sees() {
    replay("h2", checks::h2);
}

#[test]
fn a_drain_puts_nothing_where_it_does_not_belong() {
    replay("drain", checks::drain);
}
