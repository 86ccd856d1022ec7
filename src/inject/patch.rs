//! RFC 6902: what leads from one JSON value to another, in few and small operations.

use serde::Serialize;
use serde_json::Value;

/// One operation of a JSON Patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Op {
    /// Into an object, or before an item of a list.
    Add {
        /// A JSON pointer (RFC 6901).
        path: String,
        /// What is added.
        value: Value,
    },
    /// Out of an object or a list.
    Remove {
        /// A JSON pointer (RFC 6901).
        path: String,
    },
    /// In place.
    Replace {
        /// A JSON pointer (RFC 6901).
        path: String,
        /// What is there afterwards.
        value: Value,
    },
}

/// Lists are compared item by item up to this many pairs; what is larger is replaced whole. Only what
/// differs counts, without the equal items at either end.
const PAIRS: usize = 1 << 18;

/// The operations that lead from `before` to `after`; none where they are equal.
pub fn diff(before: &Value, after: &Value) -> Vec<Op> {
    let mut ops = Vec::new();
    compare(&mut String::new(), before, after, &mut ops);
    ops
}

fn compare(path: &mut String, before: &Value, after: &Value, ops: &mut Vec<Op>) {
    match (before, after) {
        _ if before == after => {}
        (Value::Object(before), Value::Object(after)) => {
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                below(path, &escape(key), |path| {
                    ops.push(Op::Remove { path: path.clone() });
                });
            }
            for (key, value) in after {
                below(path, &escape(key), |path| match before.get(key) {
                    Some(old) => compare(path, old, value, ops),
                    None => ops.push(Op::Add {
                        path: path.clone(),
                        value: value.clone(),
                    }),
                });
            }
        }
        (Value::Array(before), Value::Array(after)) => list(path, before, after, ops),
        _ => ops.push(Op::Replace {
            path: path.clone(),
            value: after.clone(),
        }),
    }
}

fn below(path: &mut String, step: &str, then: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(step);
    then(path);
    path.truncate(length);
}

/// One step of a JSON pointer: RFC 6901, section 3.
pub(super) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

// ===== lists =====

/// Items that stand for each other, by their places before and after.
type Pairs = Vec<(usize, usize)>;

fn list(path: &mut String, before: &[Value], after: &[Value], ops: &mut Vec<Op>) {
    let Some(pairs) = pair_up(before, after) else {
        ops.push(Op::Replace {
            path: path.clone(),
            value: Value::Array(after.to_vec()),
        });
        return;
    };
    // From the end, so that the places of those still to go stay what they were.
    for index in (0..before.len()).rev() {
        if !pairs.iter().any(|(old, _)| *old == index) {
            below(path, &index.to_string(), |path| {
                ops.push(Op::Remove { path: path.clone() });
            });
        }
    }
    // From the start, so that each lands in its last place.
    for (index, value) in after.iter().enumerate() {
        below(path, &index.to_string(), |path| {
            match pairs.iter().find(|(_, new)| *new == index) {
                Some((old, _)) => compare(path, &before[*old], value, ops),
                None => ops.push(Op::Add {
                    path: path.clone(),
                    value: value.clone(),
                }),
            }
        });
    }
}

/// Pairs the longest run, in order, of items that are the same thing, and then what lies between two
/// pairs on both sides, unless it has a name of its own.
fn pair_up(before: &[Value], after: &[Value]) -> Option<Pairs> {
    let same = |(old, new): &(&Value, &Value)| is_same(old, new);
    let head = before.iter().zip(after).take_while(same).count();
    let tail = before[head..]
        .iter()
        .rev()
        .zip(after[head..].iter().rev())
        .take_while(same)
        .count();
    let inner = (
        &before[head..before.len() - tail],
        &after[head..after.len() - tail],
    );
    let mut pairs: Pairs = (0..head).map(|index| (index, index)).collect();
    let common = common(inner.0, inner.1)?;
    pairs.extend(common.iter().map(|(old, new)| (old + head, new + head)));
    pairs.extend(
        (0..tail)
            .rev()
            .map(|back| (before.len() - 1 - back, after.len() - 1 - back)),
    );
    Some(fill(before, after, &pairs))
}

fn fill(before: &[Value], after: &[Value], pairs: &Pairs) -> Pairs {
    let mut filled = Vec::new();
    let mut last = (0, 0);
    for &(old, new) in pairs.iter().chain([&(before.len(), after.len())]) {
        let gap = (last.0..old).zip(last.1..new);
        filled.extend(gap.filter(|(old, new)| {
            identity(&before[*old]).is_none() && identity(&after[*new]).is_none()
        }));
        if old < before.len() {
            filled.push((old, new));
        }
        last = (old + 1, new + 1);
    }
    filled
}

/// The longest common subsequence; `None` where it would take too long.
fn common(before: &[Value], after: &[Value]) -> Option<Pairs> {
    if before.len().saturating_mul(after.len()) > PAIRS {
        return None;
    }
    let width = after.len() + 1;
    // The length of the longest from (i, j) to the end.
    let mut lengths = vec![0_usize; (before.len() + 1) * width];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            lengths[i * width + j] = if is_same(&before[i], &after[j]) {
                lengths[(i + 1) * width + j + 1] + 1
            } else {
                lengths[(i + 1) * width + j].max(lengths[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::new();
    while i < before.len() && j < after.len() {
        if is_same(&before[i], &after[j]) {
            pairs.push((i, j));
            i += 1;
            j += 1;
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    Some(pairs)
}

/// Named things (containers, variables, ports) are the same by their name, all others by their value.
fn is_same(old: &Value, new: &Value) -> bool {
    match (identity(old), identity(new)) {
        (Some(old), Some(new)) => old == new,
        (None, None) => old == new,
        _ => false,
    }
}

fn identity(item: &Value) -> Option<&str> {
    item.as_object()?.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patch(before: &Value, after: &Value) -> Value {
        serde_json::to_value(diff(before, after)).unwrap()
    }

    #[test]
    fn an_inserted_container_is_one_operation() {
        let before = json!({"c": [{"name": "a"}, {"name": "b", "x": 1}]});
        let after = json!({"c": [{"name": "a"}, {"name": "t"}, {"name": "b", "x": 2}]});
        let wanted = json!([
            {"op": "add", "path": "/c/1", "value": {"name": "t"}},
            {"op": "replace", "path": "/c/2/x", "value": 2},
        ]);
        assert_eq!(patch(&before, &after), wanted);
    }

    #[test]
    fn a_changed_argument_is_one_operation() {
        let before = json!(["-d", "1,2", "-x"]);
        let wanted = json!([{"op": "replace", "path": "/1", "value": "1,2,3"}]);
        assert_eq!(patch(&before, &json!(["-d", "1,2,3", "-x"])), wanted);
    }

    #[test]
    fn a_moved_container_leaves_and_comes() {
        let before = json!([{"name": "t"}, {"name": "a"}, {"name": "b"}]);
        let after = json!([{"name": "a"}, {"name": "b"}, {"name": "t"}]);
        let wanted = json!([
            {"op": "remove", "path": "/0"},
            {"op": "add", "path": "/2", "value": {"name": "t"}},
        ]);
        assert_eq!(patch(&before, &after), wanted);
    }

    #[test]
    fn steps_of_a_path_are_escaped() {
        let wanted = json!([{"op": "add", "path": "/a~1b~0c", "value": 1}]);
        assert_eq!(patch(&json!({}), &json!({"a/b~c": 1})), wanted);
    }

    #[test]
    fn long_lists_are_replaced_whole() {
        let list = |from: u32| Value::from((from..from + 600).collect::<Vec<_>>());
        assert_eq!(diff(&list(0), &list(1_000)).len(), 1);
    }
}
