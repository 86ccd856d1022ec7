//! The command lines of `tidegate webhook` and `tidegate install`.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, value_parser};

use super::{Answer, Command, cluster, cluster_args, flag};
use crate::config::{LogFormat, duration};
use crate::inject::{Cluster, RunAs};
use crate::install::{self, Certs};
use crate::telemetry;
use crate::webhook::{self, Files, Limits};

/// Where the certificate is, once `tidegate install` has been applied.
const CERT: &str = "/etc/tidegate/tls/tls.crt";
const KEY: &str = "/etc/tidegate/tls/tls.key";

// ===== webhook =====

pub(super) fn webhook() -> clap::Command {
    let arg = |name: &'static str, hint: &'static str, default: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(hint)
            .default_value(default)
    };
    let port = |name, default| arg(name, "PORT", default).value_parser(value_parser!(u16));
    let file = |name, default| arg(name, "FILE", default).value_parser(value_parser!(PathBuf));
    let wait = |name, default| arg(name, "DURATION", default).value_parser(duration::parse);
    let formats = LogFormat::ALL.map(LogFormat::name);
    clap::Command::new("webhook")
        .about("The mutating admission webhook that injects the sidecar")
        .long_about(
            "The mutating admission webhook that injects the sidecar.\n\n\
             It is ready while it has a certificate that is valid, and looks at the files again and \
             again: a new pair is served from the next connection on, and a broken one never. \
             `tidegate install` prints what runs it in a cluster.\n\n\
             SIGTERM: it is not ready any more, serves everybody for --leave-delay, and ends what is \
             in flight within --leave-max.",
        )
        .arg(port("port", "8443").help("Where reviews are served, over TLS"))
        .arg(port("health-port", "8080").help("Where /readyz, /livez and /metrics are served"))
        .arg(file("cert", CERT).help("The certificate and its chain, PEM"))
        .arg(file("key", KEY).help("Its key, PEM"))
        .arg(
            wait("look-every", "10s")
                .value_parser(look_every)
                .help("How often the two are looked at"),
        )
        .arg(wait("leave-delay", "5s").help("From SIGTERM until it stops accepting"))
        .arg(wait("leave-max", "10s").help("How long what is in flight may take after that"))
        .arg(
            arg("log-format", "FORMAT", "json")
                .value_parser(PossibleValuesParser::new(formats))
                .help("One JSON object a line, or text, for people"),
        )
        .arg(
            arg("log-level", "LEVEL", "info")
                .value_parser(level)
                .help("off, error, warn, info, debug or trace; or levels by target"),
        )
        .args(cluster_args())
        .args(webhook_cluster_args())
}

fn look_every(text: &str) -> Result<Duration, String> {
    match duration::parse(text) {
        Ok(Duration::ZERO) => Err("the files cannot be looked at all the time; use 1s".to_owned()),
        Ok(every) => Ok(every),
        Err(error) => Err(error.to_string()),
    }
}

fn level(text: &str) -> Result<String, telemetry::FilterError> {
    telemetry::filter(text).map(|_| text.to_owned())
}

pub(super) fn webhook_command(matches: &ArgMatches) -> Result<Command, Answer> {
    Ok(Command::Webhook(Box::new(webhook::Command {
        options: webhook::Options {
            port: given(matches, "port"),
            health_port: given(matches, "health-port"),
            files: Files {
                cert: given(matches, "cert"),
                key: given(matches, "key"),
            },
            look_every: given(matches, "look-every"),
            leave_delay: given(matches, "leave-delay"),
            leave_max: given(matches, "leave-max"),
            limits: Limits::default(),
        },
        cluster: webhook_cluster(matches)?,
        log_format: match flag(matches, "log-format").as_deref() {
            Some("text") => LogFormat::Text,
            _ => LogFormat::Json,
        },
        log_level: given(matches, "log-level"),
    })))
}

/// The value of an argument that has a default.
fn given<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> T {
    matches
        .get_one::<T>(name)
        .cloned()
        .expect("every argument here has a default")
}

// ===== install =====

pub(super) fn install() -> clap::Command {
    clap::Command::new("install")
        .about("Prints the objects that run the webhook, for kubectl apply -f -")
        .long_about(
            "Prints the objects that run the webhook, for kubectl apply -f -.\n\n\
             A namespace with the label tidegate.dev/injection: disabled is left alone, and so is a \
             pod with tidegate.dev/inject: \"false\". Two runs with the same flags print the same, \
             apart from the certificate of --certs self-signed: each run makes a new one.",
        )
        .arg(
            Arg::new("namespace")
                .short('n')
                .long("namespace")
                .value_name("NAME")
                .default_value("tidegate")
                .value_parser(dns_label)
                .help("The webhook's namespace"),
        )
        .arg(
            Arg::new("replicas")
                .long("replicas")
                .value_name("N")
                .default_value("2")
                .value_parser(value_parser!(u32).range(1..=100))
                .help("How many webhooks run"),
        )
        .arg(
            Arg::new("certs")
                .long("certs")
                .value_name("WHO")
                .default_value(Certs::default().name())
                .value_parser(PossibleValuesParser::new(Certs::ALL.map(Certs::name)))
                .help("Who makes the webhook's certificate; openshift implies --run-as platform"),
        )
        .arg(
            Arg::new("network-policy")
                .long("network-policy")
                .action(ArgAction::SetTrue)
                .help("Add a NetworkPolicy for the webhook's pods"),
        )
        .args(cluster_args())
        .args(webhook_cluster_args())
}

/// RFC 1123.
fn dns_label(text: &str) -> Result<String, &'static str> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends = !text.starts_with('-') && !text.ends_with('-');
    if (1..=63).contains(&text.len()) && text.chars().all(inner) && ends {
        Ok(text.to_owned())
    } else {
        Err("not a namespace's name; use up to 63 of a-z, 0-9 and -, like tidegate")
    }
}

pub(super) fn install_command(matches: &ArgMatches) -> Result<Command, Answer> {
    let name: String = given(matches, "certs");
    let certs = Certs::ALL.into_iter().find(|certs| certs.name() == name);
    let certs = certs.unwrap_or_default();
    let mut cluster = webhook_cluster(matches)?;
    let told = matches.value_source("run-as") == Some(clap::parser::ValueSource::CommandLine);
    if certs == Certs::OpenShift && !told {
        cluster.run_as = RunAs::Platform;
    }
    Ok(Command::Install(Box::new(install::Options {
        namespace: given(matches, "namespace"),
        replicas: given(matches, "replicas"),
        certs,
        network_policy: matches.get_flag("network-policy"),
        cluster,
    })))
}

// ===== the cluster, as a webhook sees it =====

/// What only a webhook is told: a file of manifests carries its own settings.
fn webhook_cluster_args() -> [Arg; 2] {
    [
        Arg::new("kubernetes-minor")
            .long("kubernetes-minor")
            .value_name("N")
            .value_parser(value_parser!(u32))
            .help_heading("Cluster")
            .help("The oldest node runs Kubernetes 1.N: what --native-sidecars auto goes by"),
        Arg::new("default")
            .long("default")
            .value_name("SETTING=VALUE")
            .action(ArgAction::Append)
            .help_heading("Cluster")
            .help("A setting for pods without its annotation, like min-drain=15s; repeatable"),
    ]
}

fn webhook_cluster(matches: &ArgMatches) -> Result<Cluster, Answer> {
    let refused = |text: &str, why: &dyn Display| {
        Answer::Refused(format!("error: --default {text:?}: {why}\n"))
    };
    let mut cluster = cluster(matches)?;
    cluster.kubernetes_minor = matches.get_one("kubernetes-minor").copied();
    for text in matches.get_many::<String>("default").into_iter().flatten() {
        let Some((name, value)) = text.split_once('=') else {
            return Err(refused(text, &"write SETTING=VALUE, like min-drain=15s"));
        };
        if cluster
            .defaults
            .insert(name.to_owned(), value.to_owned())
            .is_some()
        {
            return Err(refused(text, &"given twice; take one out"));
        }
    }
    cluster
        .check()
        .map_err(|refusal| Answer::Refused(format!("error: --default: {refusal}\n")))?;
    Ok(cluster)
}
