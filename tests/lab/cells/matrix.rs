//! All cells: each configuration with each kind, without and with Tidegate.

use std::fmt;

use super::configurations::{self, Configuration};
use super::kinds::{self, Kind, Needs};
use crate::pods::Pod;

/// One cell: one pod, or a few of one kind, and their end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) configuration: &'static Configuration,
    pub(crate) kind: &'static Kind,
    pub(crate) tidegate: Tidegate,
}

/// Whether a pod has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tidegate {
    Without,
    With,
}

impl Tidegate {
    fn name(self) -> &'static str {
        match self {
            Tidegate::Without => "without",
            Tidegate::With => "with",
        }
    }
}

/// Those that can exist, kind by kind.
pub(crate) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for kind in &kinds::ALL {
        for configuration in &configurations::ALL {
            for tidegate in [Tidegate::Without, Tidegate::With] {
                let cell = Cell {
                    configuration,
                    kind,
                    tidegate,
                };
                if cell.can_exist() {
                    cells.push(cell);
                }
            }
        }
    }
    cells
}

impl Cell {
    fn can_exist(&self) -> bool {
        let with = self.tidegate == Tidegate::With;
        let needed = match self.kind.needs {
            Needs::Nothing => true,
            Needs::Mesh => self.configuration.is_mesh(),
            Needs::Tidegate => with && !self.configuration.is_gated(),
            Needs::Gate => with && self.configuration.is_gated(),
        };
        needed && (with || self.configuration.same_without.is_none())
    }

    /// Its Service and, where it has but one, its pod; a DNS label.
    pub(crate) fn service(&self) -> String {
        format!(
            "{}-{}-{}",
            self.configuration.name,
            self.kind.name,
            self.tidegate.name()
        )
    }

    /// Its pod of this name.
    pub(crate) fn pod(&self, name: &str) -> Pod {
        let Kind {
            app,
            timeout,
            protocol,
            annotation,
            ..
        } = self.kind;
        let pod = self
            .configuration
            .pod(name)
            .behind(&self.service())
            .app(app)
            .timeout_seconds(*timeout)
            .protocol(*protocol);
        let pod = match annotation {
            Some((configuration, name, value)) if *configuration == self.configuration.name => {
                pod.annotation(name, value)
            }
            _ => pod,
        };
        match self.tidegate {
            Tidegate::With => pod,
            Tidegate::Without => pod.without_tidegate(),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}/{}",
            self.configuration.name,
            self.kind.name,
            self.tidegate.name()
        )
    }
}
