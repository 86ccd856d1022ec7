//! The command line: what was asked for, or the text and exit code that answer it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, value_parser};

use crate::config::settings::{HOOK_PORT, SETTINGS, Setting, UsedBy};
use crate::config::{self, Config, ConfigError};
use crate::control::Probe;
#[cfg(feature = "stand-ins")]
use crate::demo;
use crate::exit;
use crate::inject::files;
use crate::inject::{Cluster, DEFAULT_IMAGE, NativeSidecars, RunAs};

mod webhook;

/// What was asked for.
#[derive(Debug)]
pub enum Command {
    /// `tidegate run`.
    Run(Box<Config>),
    /// `tidegate drain`.
    Drain {
        /// Where `run` listens.
        port: u16,
    },
    /// `tidegate probe`.
    Probe {
        /// Where `run` listens.
        port: u16,
        /// What to ask it.
        what: Probe,
    },
    /// `tidegate webhook`.
    Webhook(Box<crate::webhook::Command>),
    /// `tidegate install`.
    Install(Box<crate::install::Options>),
    /// `tidegate report`.
    Report {
        /// Files to read; none means stdin, as does `-`.
        files: Vec<PathBuf>,
        /// Print JSON in the table's place.
        json: bool,
    },
    /// `tidegate inject`.
    Inject(Box<files::Options>),
    /// `tidegate demo`.
    #[cfg(feature = "stand-ins")]
    Demo(demo::Options),
}

/// What to print before leaving, when there is no command to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Help or the version, asked for: stdout, exit 0.
    Asked(String),
    /// A usage error or a bad value: stderr, exit 64.
    Refused(String),
}

impl Answer {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Answer::Asked(_) => 0,
            Answer::Refused(_) => exit::USAGE,
        }
    }
}

/// Reads the command line, program name first, and the environment, asked for by variable.
///
/// # Errors
///
/// The text to print and, with it, the exit code: help and version among them.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Command, Answer> {
    let matches = command().try_get_matches_from(args)?;
    match matches.subcommand() {
        Some(("run", run)) => {
            let config = Config::resolve(|name| flag(run, name), env)?;
            Ok(Command::Run(Box::new(config)))
        }
        Some(("drain", drain)) => Ok(Command::Drain {
            port: config::hook_port(|name| flag(drain, name), env)?,
        }),
        Some(("probe", probe)) => Ok(Command::Probe {
            port: config::hook_port(|name| flag(probe, name), env)?,
            what: match flag(probe, "WHAT").as_deref() {
                Some("live") => Probe::Live,
                _ => Probe::Ready,
            },
        }),
        Some(("report", report)) => Ok(Command::Report {
            files: report
                .get_many("FILES")
                .map(|files| files.cloned().collect())
                .unwrap_or_default(),
            json: report.get_flag("json"),
        }),
        Some(("webhook", matches)) => webhook::webhook_command(matches),
        Some(("install", matches)) => webhook::install_command(matches),
        Some(("inject", inject)) => Ok(Command::Inject(Box::new(injection(inject)?))),
        #[cfg(feature = "stand-ins")]
        Some(("demo", demo)) => Ok(Command::Demo(demo::Options {
            json: demo.get_flag("json"),
            svg: demo.get_one("svg").cloned(),
            real_time: demo.get_flag("real-time"),
            envoy: demo.get_one("envoy").cloned(),
            gate: demo.get_flag("gate"),
        })),
        // clap lets nothing else through: a command is required, and these are all.
        _ => Err(Answer::Refused(command().render_help().to_string())),
    }
}

fn flag(matches: &ArgMatches, name: &str) -> Option<String> {
    matches.get_one::<String>(name).cloned()
}

impl From<clap::Error> for Answer {
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        if error.use_stderr() {
            Answer::Refused(text)
        } else {
            Answer::Asked(text)
        }
    }
}

impl From<ConfigError> for Answer {
    fn from(error: ConfigError) -> Self {
        let lines = error.problems.iter().map(|line| format!("error: {line}\n"));
        Answer::Refused(lines.collect())
    }
}

// ===== the commands =====

/// The whole command line, as clap knows it.
pub fn command() -> clap::Command {
    let command = clap::Command::new("tidegate")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Drains Knative pods in an Istio mesh without losing a request")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(run())
        .subcommand(drain())
        .subcommand(probe())
        .subcommand(report())
        .subcommand(inject())
        .subcommand(webhook::webhook())
        .subcommand(webhook::install());
    #[cfg(feature = "stand-ins")]
    let command = command.subcommand(demonstration());
    command
}

fn run() -> clap::Command {
    clap::Command::new("run")
        .about("The sidecar: holds the pod together until it is drained, then lets it go")
        .long_about(
            "The sidecar: holds the pod together until it is drained, then lets it go.\n\n\
             A setting comes from its flag, else from its environment variable, else from its \
             default; an empty value means unset. In a pod, the environment is filled from the \
             annotations. Durations are written with a unit: 10s, 1m30s, 500ms.\n\n\
             A bad value stops tidegate before it listens, with exit code 64.",
        )
        .next_line_help(true)
        .args(settings_of(UsedBy::Run))
        .args(settings_of(UsedBy::Injection))
}

fn settings_of(user: UsedBy) -> impl Iterator<Item = Arg> {
    let settings = SETTINGS.iter().filter(move |row| row.used_by == user);
    settings.map(setting)
}

fn drain() -> clap::Command {
    clap::Command::new("drain")
        .about("Tells `tidegate run` that the pod is going: the sidecar's own preStop")
        .arg(setting(&HOOK_PORT))
}

fn probe() -> clap::Command {
    clap::Command::new("probe")
        .about("Asks `tidegate run` how it is: exit code 0 means well")
        .arg(
            Arg::new("WHAT")
                .value_parser(PossibleValuesParser::new(["ready", "live"]))
                .default_value("ready")
                .help("What to ask for"),
        )
        .arg(setting(&HOOK_PORT))
}

fn report() -> clap::Command {
    clap::Command::new("report")
        .about("Prints a table of the drain reports found in pods, logs or files")
        .arg(
            Arg::new("FILES")
                .num_args(0..)
                .value_parser(value_parser!(PathBuf))
                .help(
                    "What `kubectl get pods -o json` printed, logs, or reports; - or none: stdin",
                ),
        )
        .arg(json())
}

fn inject() -> clap::Command {
    clap::Command::new("inject")
        .about("Adds the sidecar to the pods in a file of manifests, as the webhook would")
        .long_about(
            "Adds the sidecar to the pods in a file of manifests, as the webhook would.\n\n\
             Reads YAML or JSON, of any number of documents, and prints the same; documents that need \
             no change keep every byte. Injected are Pods, Deployments, StatefulSets, DaemonSets, \
             ReplicaSets, Jobs, CronJobs and Lists of them whose pods have the label \
             serving.knative.dev/revisionUID, or tidegate.dev/inject: \"true\" as label or annotation. \
             Of a Knative Service only the template's annotations are prepared: its pods are the \
             webhook's.\n\n\
             Exit code 65: the file is malformed, or a pod in it cannot have the sidecar; 66: it \
             cannot be read.",
        )
        .arg(
            Arg::new("file")
                .short('f')
                .long("file")
                .value_name("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The manifests; - for standard input"),
        )
        .arg(
            Arg::new("diff")
                .long("diff")
                .action(ArgAction::SetTrue)
                .conflicts_with("patch")
                .help("Print what would change, as a unified diff"),
        )
        .arg(
            Arg::new("patch")
                .long("patch")
                .action(ArgAction::SetTrue)
                .help("Print a JSON Patch (RFC 6902) for each document, one a line"),
        )
        .args(cluster_args())
}

/// What a file or a pod does not say about its cluster.
fn cluster_args() -> [Arg; 4] {
    let arg = |name: &'static str, hint: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(hint)
            .help_heading("Cluster")
    };
    [
        arg("image", "IMAGE")
            .default_value(DEFAULT_IMAGE)
            .help("Tidegate's image, for pods whose tidegate container names none"),
        arg("native-sidecars", "WHEN")
            .value_parser(PossibleValuesParser::new(["auto", "true", "false"]))
            .default_value("auto")
            .help(
                "Whether sidecars are native, in pods without an istio-proxy; auto: as the annotation \
                 sidecar.istio.io/nativeSidecar says, else not",
            ),
        arg("mesh-excluded-ports", "PORTS").help(
            "The mesh's own values.global.proxy.excludeInboundPorts, with commas between: a pod's \
             annotation replaces it",
        ),
        arg("run-as", "ID")
            .default_value("65532")
            .help("User and group of the sidecar; platform: what the cluster gives it (OpenShift)"),
    ]
}

fn injection(matches: &ArgMatches) -> Result<files::Options, Answer> {
    let output = if matches.get_flag("diff") {
        files::Output::Diff
    } else if matches.get_flag("patch") {
        files::Output::Patch
    } else {
        files::Output::Documents
    };
    Ok(files::Options {
        file: matches.get_one("file").cloned().unwrap_or_default(),
        output,
        cluster: cluster(matches)?,
    })
}

fn cluster(matches: &ArgMatches) -> Result<Cluster, Answer> {
    let refused = |name: &str, text: &str, why: &dyn std::fmt::Display| {
        Answer::Refused(format!("error: --{name} {text:?}: {why}\n"))
    };
    let mut cluster = Cluster::default();
    if let Some(image) = flag(matches, "image").filter(|image| !image.is_empty()) {
        cluster.image = image;
    }
    cluster.native_sidecars = match flag(matches, "native-sidecars").as_deref() {
        Some("true") => NativeSidecars::True,
        Some("false") => NativeSidecars::False,
        _ => NativeSidecars::Auto,
    };
    if let Some(ports) = flag(matches, "mesh-excluded-ports").filter(|ports| !ports.is_empty()) {
        cluster.mesh_excluded_inbound_ports = config::ports::list(&ports)
            .map_err(|error| refused("mesh-excluded-ports", &ports, &error))?;
    }
    match flag(matches, "run-as").as_deref() {
        None => {}
        Some("platform") => cluster.run_as = RunAs::Platform,
        Some(text) => {
            cluster.run_as = match text.parse() {
                Ok(0) => Err("root, which the sidecar never is; use another id, or platform"),
                Ok(1337) => Err("istio-proxy's own id; use another, or platform"),
                Ok(id) => Ok(RunAs::Id(id)),
                Err(_) => Err("not a user id; use a number, or platform"),
            }
            .map_err(|why| refused("run-as", text, &why))?;
        }
    }
    Ok(cluster)
}

#[cfg(feature = "stand-ins")]
fn demonstration() -> clap::Command {
    let file = |name: &'static str, hint: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(hint)
            .value_parser(value_parser!(PathBuf))
    };
    clap::Command::new("demo")
        .about("A pod on loopback goes down, without Tidegate and with it, and what was lost")
        .arg(json())
        .arg(file("svg", "FILE").help("Write the chart to this file as well"))
        .arg(
            Arg::new("real-time")
                .long("real-time")
                .action(ArgAction::SetTrue)
                .help("Take as long as a real pod takes, instead of scaling time down"),
        )
        .arg(file("envoy", "PATH").help("Use this Envoy in the place of the stand-in"))
        .arg(
            Arg::new("gate")
                .long("gate")
                .action(ArgAction::SetTrue)
                .help("Put Tidegate's gate between Envoy and queue-proxy"),
        )
}

fn json() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON")
}

/// A setting's flag. Its text is read by [`Config::resolve`], not by clap, so that flags and
/// environment are judged alike.
fn setting(setting: &'static Setting) -> Arg {
    let group = match setting.used_by {
        UsedBy::Run => "Settings",
        UsedBy::Injection => "Settings of the injector, only checked here",
    };
    Arg::new(setting.name)
        .long(setting.name)
        .value_name(setting.hint)
        .help_heading(group)
        .help(format!(
            "{}\n[default: {}] [environment: {}]\n[annotation: {}]",
            setting.help,
            setting.default.shown(),
            setting.environment(),
            setting.annotation(),
        ))
}

#[cfg(test)]
mod tests;
