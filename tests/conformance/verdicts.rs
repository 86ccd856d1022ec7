//! How the cases of a suite ended, and the judgement: the same way direct and through the gate.

use std::collections::BTreeMap;

/// A case's name, and how it ended in the suite's own words.
pub(crate) type Verdicts = BTreeMap<String, String>;

/// Panics, naming each case that ended otherwise through the gate; says how many there were.
/// `good` tells which endings the suite calls a pass: that is for people, and not judged.
pub(crate) fn judge(suite: &str, direct: &Verdicts, through: &Verdicts, good: fn(&str) -> bool) {
    assert!(!direct.is_empty(), "{suite}: no case ran");
    let passed = direct.values().filter(|verdict| good(verdict)).count();
    println!("{suite}: {} cases, {passed} pass direct", direct.len());
    let differing = differences(direct, through);
    assert!(
        differing.is_empty(),
        "{suite}: {} of {} cases end otherwise through the gate:\n{}",
        differing.len(),
        direct.len(),
        differing.join("\n")
    );
}

/// One text for each case that ended otherwise, or ran on one side only.
pub(crate) fn differences(direct: &Verdicts, through: &Verdicts) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = direct.keys().chain(through.keys()).collect();
    names
        .into_iter()
        .filter(|name| direct.get(*name) != through.get(*name))
        .map(|name| {
            let of = |verdicts: &Verdicts| {
                let verdict = verdicts.get(name).map_or("did not run", String::as_str);
                verdict.replace('\n', "\n             ")
            };
            format!(
                "  {name}\n    direct:  {}\n    through: {}",
                of(direct),
                of(through)
            )
        })
        .collect()
}
