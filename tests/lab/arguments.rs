//! The runner's command line.

use clap::{Arg, ArgAction, ArgGroup, Command};

use crate::node::Keep;

/// What is asked of the lab.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    pub(crate) task: Task,
    pub(crate) keep: Keep,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// All cells, or those whose name holds this.
    Cells(Option<String>),
    /// One classic and one native drain.
    Smoke,
    /// What the webhooks make of pods.
    Admission,
    /// End the node that was kept, and remove what any run has left.
    Down,
}

impl Arguments {
    /// Reads them; help and errors end the process.
    pub(crate) fn parse() -> Arguments {
        let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        let matches = Command::new("lab")
            .bin_name("./test lab")
            .about("Deletes pods of a real cluster under traffic, without and with Tidegate")
            .arg(
                Arg::new("cells")
                    .long("cells")
                    .value_name("PATTERN")
                    .help("Only the cells whose name contains this"),
            )
            .arg(flag("smoke").help("Only one classic and one native drain"))
            .arg(flag("admission").help("Only what the webhooks make of pods"))
            .arg(flag("down").help("End a node that was kept, and remove what a run has left"))
            .arg(
                flag("keep")
                    .help("Leave the node up, and say how to use it")
                    .conflicts_with("down"),
            )
            .group(ArgGroup::new("task").args(["cells", "smoke", "admission", "down"]))
            .get_matches();
        let task = if matches.get_flag("down") {
            Task::Down
        } else if matches.get_flag("smoke") {
            Task::Smoke
        } else if matches.get_flag("admission") {
            Task::Admission
        } else {
            Task::Cells(matches.get_one("cells").cloned())
        };
        let keep = if matches.get_flag("keep") {
            Keep::UntilDown
        } else {
            Keep::WithRunner
        };
        Arguments { task, keep }
    }
}
