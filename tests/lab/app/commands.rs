//! The command line.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, value_parser};

use crate::serve::{self, OnSigterm};

/// What was asked for.
#[derive(Debug)]
pub(crate) enum Command {
    Serve(serve::Config),
    Client {
        /// For requests of the plan that name none.
        target: Option<String>,
        /// The plan's JSON, or `@FILE`.
        plan: String,
    },
    Control {
        listen: SocketAddr,
    },
    Pause,
}

/// Reads the command line, program name first. The error is help, too.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    let matches = command().try_get_matches_from(args)?;
    Ok(match matches.subcommand() {
        Some(("serve", serve)) => Command::Serve(serve::Config {
            listen: listen(serve),
            on_sigterm: match serve.get_one::<String>("on-sigterm").map(String::as_str) {
                Some("exit") => OnSigterm::Exit,
                Some("ignore") => OnSigterm::Ignore,
                _ => OnSigterm::Finish,
            },
        }),
        Some(("client", client)) => Command::Client {
            target: client.get_one("target").cloned(),
            plan: client.get_one("plan").cloned().unwrap_or_default(),
        },
        Some(("control", control)) => Command::Control {
            listen: listen(control),
        },
        _ => Command::Pause,
    })
}

/// On all interfaces, as a container does.
fn listen(matches: &ArgMatches) -> SocketAddr {
    let port = matches.get_one("port").copied().unwrap_or_default();
    SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))
}

fn command() -> clap::Command {
    let port = |default: &'static str| {
        Arg::new("port")
            .long("port")
            .value_name("PORT")
            .default_value(default)
            .value_parser(value_parser!(u16))
            .help("Where it listens; 0 lets the kernel choose")
    };
    clap::Command::new("lab-app")
        .about("What runs in the lab's pods")
        .subcommand_required(true)
        .subcommand(
            clap::Command::new("serve")
                .about("The user container: HTTP/1.1, h2c, WebSocket and gRPC on one port")
                .arg(port("8080"))
                .arg(
                    Arg::new("on-sigterm")
                        .long("on-sigterm")
                        .value_name("MANNER")
                        .default_value("finish")
                        .value_parser(PossibleValuesParser::new(["finish", "exit", "ignore"]))
                        .help("End after what is in flight, end at once, or take no notice"),
                ),
        )
        .subcommand(
            clap::Command::new("client")
                .about("Sends what a plan says; prints a JSON line for each request as it ends")
                .after_help(
                    "Exits 0 when every request was ok, 1 when one was not, 65 on a bad plan.",
                )
                .arg(
                    Arg::new("target")
                        .long("target")
                        .value_name("URL")
                        .help("http://HOST[:PORT], for what the plan gives no target"),
                )
                .arg(
                    Arg::new("plan")
                        .long("plan")
                        .value_name("JSON|@FILE")
                        .required(true)
                        .help("What to send"),
                ),
        )
        .subcommand(
            clap::Command::new("control")
                .about("POST /run takes a plan and streams the client's lines")
                .arg(port("9999")),
        )
        .subcommand(
            clap::Command::new("pause").about("Reaps children until SIGTERM or SIGINT, as pid 1"),
        )
}
