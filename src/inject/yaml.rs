//! YAML to JSON values and back, as Kubernetes reads it: `yes` is true, `0644` is octal, `<<` merges.

use std::fmt::{self, Display};

use serde_json::Value;

/// Why a text is not YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    /// Where, from 1; 0 where unknown.
    pub line: usize,
    /// In characters, from 1; 0 where unknown.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
}

impl Display for YamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let YamlError {
            line,
            column,
            problem,
        } = self;
        write!(f, "line {line}, column {column}: {problem}")
    }
}

impl std::error::Error for YamlError {}

/// Reads one document; an empty one is null.
///
/// # Errors
///
/// On what is not YAML, or has two values for one key.
pub fn parse(text: &str) -> Result<Value, YamlError> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let location = error.location();
        let at =
            |count: Option<u64>| usize::try_from(count.unwrap_or_default()).unwrap_or_default();
        YamlError {
            line: at(location.map(|location| location.line())),
            column: at(location.map(|location| location.column())),
            problem: first_line(&error),
        }
    })
}

/// The error without the excerpt that follows it, and without the place, which is said apart.
fn first_line(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    match line.rsplit_once(" at line ") {
        Some((problem, _)) => problem.to_owned(),
        None => line.to_owned(),
    }
}

/// Writes one document. Strings that older YAML would read as something else get quotes (`yes`, `0644`).
///
/// # Errors
///
/// Of the serializer, in its words; plain data gives it no cause.
pub fn print(value: &Value) -> Result<String, String> {
    // Folding long lines would make the annotations that hold JSON hard to read.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn it_reads_as_kubernetes_does() {
        let text =
            "on: yes\nmode: 0644\nbig: 0o644\nnone: ~\nbase: &b {x: 1}\nmore: {<<: *b, y: 2}\n";
        let wanted = json!({
            "on": true, "mode": 420, "big": 420, "none": null, "base": {"x": 1}, "more": {"x": 1, "y": 2},
        });
        assert_eq!(parse(text), Ok(wanted));
        assert_eq!(parse("# nothing\n"), Ok(Value::Null));
    }

    #[test]
    fn two_values_for_one_key_are_refused() {
        let error = parse("a: 1\nb:\n  c: 1\n  c: 2\n").unwrap_err();
        assert_eq!((error.line, error.column), (4, 3), "{error}");
    }

    /// Strings that some reader of YAML takes for something else.
    const TRAPS: [&str; 24] = [
        "yes",
        "no",
        "on",
        "off",
        "y",
        "N",
        "true",
        "null",
        "~",
        "",
        "0644",
        "0x1F",
        "0o7",
        "1_000",
        "1e3",
        ".inf",
        "12:30:45",
        "2001-12-14",
        "<<",
        "=",
        "- a",
        "a: b",
        "# c",
        "8012,8022",
    ];

    #[test]
    fn strings_stay_strings() {
        for text in TRAPS {
            let printed = print(&json!({"key": text, text: "value"})).unwrap();
            let wanted = json!({"key": text, text: "value"});
            assert_eq!(parse(&printed), Ok(wanted), "{printed}");
        }
        for text in &TRAPS[..8] {
            let printed = print(&json!([text])).unwrap();
            assert!(printed.contains(['"', '\'']), "{printed}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_the_same(text in "[ -~\\n\\t\u{e4}]{0,120}", number in any::<i64>(), float in any::<f64>()) {
            let float = serde_json::Number::from_f64(float).map_or(Value::Null, Value::from);
            let value = json!({"s": text, "list": [text, [], {}, number, float], "n": number});
            let printed = print(&value).unwrap();
            prop_assert_eq!(parse(&printed), Ok(value), "{}", printed);
        }
    }
}
