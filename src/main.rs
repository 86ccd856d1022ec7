//! The binary: reads the command line, runs the command, leaves with its exit code.

use std::process::ExitCode;

use tidegate::cli::{self, Answer, Command};
#[cfg(feature = "stand-ins")]
use tidegate::demo;
use tidegate::{control, inject, install, report, run, webhook};

fn main() -> ExitCode {
    let code = match cli::parse(std::env::args_os(), environment) {
        Ok(command) => dispatch(command),
        Err(answer) => print(&answer),
    };
    ExitCode::from(code)
}

fn dispatch(command: Command) -> u8 {
    match command {
        Command::Run(config) => run::main(*config),
        Command::Drain { port } => control::drain(port),
        Command::Probe { port, what } => control::probe(port, what),
        Command::Report { files, json } => report::main(&files, json),
        Command::Webhook(command) => webhook::main(*command),
        Command::Install(options) => install::main(&options),
        Command::Inject(options) => inject::files::main(&options),
        #[cfg(feature = "stand-ins")]
        Command::Demo(options) => demo::main(options),
    }
}

/// A variable that is not UTF-8 is not taken for unset: its value is then refused.
fn environment(variable: &str) -> Option<String> {
    std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned())
}

fn print(answer: &Answer) -> u8 {
    use std::io::Write;
    // Whoever closed the pipe does not want the text; the exit code still says what it said.
    let _ = match answer {
        Answer::Asked(text) => std::io::stdout().write_all(text.as_bytes()),
        Answer::Refused(text) => std::io::stderr().write_all(text.as_bytes()),
    };
    answer.code()
}
