//! `lab-app`: what runs in the lab's pods, static and alone in its image: the user container, the
//! client, the client's control server and the sandbox.
//!
//! | command | is |
//! |---|---|
//! | `lab-app serve` | the user container: see [`serve`] |
//! | `lab-app client` | sends what a plan says and prints a JSON line for each request: see [`plan`], [`record`] |
//! | `lab-app control` | the same by `POST /run`, for a runner outside: see [`control`] |
//! | `lab-app pause` | the sandbox's first process: reaps children until SIGTERM or SIGINT |

mod client;
mod commands;
mod control;
mod feed;
mod grpc;
mod listen;
mod pause;
mod plan;
mod record;
mod serve;
#[cfg(test)]
mod tests;
mod wire;

use std::io::Write;
use std::process::ExitCode;

use commands::Command;
use tidegate::exit;

fn main() -> ExitCode {
    let command = match commands::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(error) => {
            let asked = !error.use_stderr();
            // Whoever closed the pipe does not want the text.
            let _ = error.print();
            return ExitCode::from(if asked { 0 } else { exit::USAGE });
        }
    };
    let ended = match command {
        Command::Serve(config) => serve::main(config),
        Command::Client { target, plan } => client::main(target, &plan),
        Command::Control { listen } => control::main(listen),
        Command::Pause => pause::main(),
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "lab-app: {error:#}");
            ExitCode::from(exit::UNAVAILABLE)
        }
    }
}
