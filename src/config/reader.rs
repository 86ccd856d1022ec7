//! Finds each setting's text, flag over environment over default, and collects what is wrong.

use std::fmt::Display;

use super::settings::Setting;

/// All that is wrong with a configuration, one line a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.join("\n"))]
pub struct ConfigError {
    /// Each names its setting by where the value came from, and says the cure. Never empty.
    pub problems: Vec<String>,
}

/// Where a setting's text came from.
enum Source {
    Flag(String),
    Environment(String),
    Default(&'static str),
}

/// Reads settings from flags and environment.
pub(super) struct Reader<'a> {
    flags: &'a dyn Fn(&str) -> Option<String>,
    env: &'a dyn Fn(&str) -> Option<String>,
    problems: Vec<String>,
}

impl<'a> Reader<'a> {
    /// `flags` is asked for a setting's name, `env` for its environment variable.
    pub(super) fn new(
        flags: &'a dyn Fn(&str) -> Option<String>,
        env: &'a dyn Fn(&str) -> Option<String>,
    ) -> Self {
        Reader {
            flags,
            env,
            problems: Vec::new(),
        }
    }

    /// The setting's value; `None` where it is bad, and that is remembered.
    pub(super) fn read<T, E: Display>(
        &mut self,
        setting: &Setting,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let parsed = match self.source(setting) {
            Source::Flag(text) | Source::Environment(text) => parse(text.trim()),
            Source::Default(text) => parse(text),
        };
        parsed.map_err(|error| self.refuse(setting, &error)).ok()
    }

    /// Remembers that the setting's value will not do.
    pub(super) fn refuse(&mut self, setting: &Setting, reason: &dyn Display) {
        self.problems.push(match self.source(setting) {
            Source::Flag(text) => format!("{} {text:?}: {reason}", setting.flag()),
            Source::Environment(text) => format!(
                "{}={text:?}: {reason} (annotation {})",
                setting.environment(),
                setting.annotation()
            ),
            Source::Default(text) => format!(
                "{}: its default {text:?} will not do: {reason}",
                setting.name
            ),
        });
    }

    /// The value, if nothing was wrong.
    ///
    /// # Errors
    ///
    /// All problems, where there are any.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, ConfigError> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => Err(ConfigError {
                problems: self.problems,
            }),
        }
    }

    /// An empty text means unset: the downward API writes one where an annotation is missing.
    fn source(&self, setting: &Setting) -> Source {
        let given = |text: &String| !text.trim().is_empty();
        if let Some(text) = (self.flags)(setting.name).filter(given) {
            return Source::Flag(text);
        }
        match (self.env)(&setting.environment()).filter(given) {
            Some(text) => Source::Environment(text),
            None => Source::Default(setting.default.text()),
        }
    }
}
