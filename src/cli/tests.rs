//! The command line, driven without a process.

use super::*;

fn parse_with(args: &[&str], env: &[(&str, &str)]) -> Result<Command, Answer> {
    let args = std::iter::once("tidegate").chain(args.iter().copied());
    parse(args.map(OsString::from), |wanted| {
        let (_, value) = env.iter().find(|(name, _)| *name == wanted)?;
        Some((*value).to_owned())
    })
}

fn accepted(args: &[&str]) -> Command {
    parse_with(args, &[]).unwrap_or_else(|answer| panic!("{args:?}: {answer:?}"))
}

/// The text of an answer with this exit code.
fn answered(args: &[&str], env: &[(&str, &str)], code: u8) -> String {
    match parse_with(args, env) {
        Ok(command) => panic!("{args:?} was accepted: {command:?}"),
        Err(answer) => {
            assert_eq!(answer.code(), code, "{args:?}: {answer:?}");
            match answer {
                Answer::Asked(text) | Answer::Refused(text) => text,
            }
        }
    }
}

/// A text with every run of white space made one blank, however clap has wrapped it.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn claps_own_checks_hold() {
    command().debug_assert();
}

#[test]
fn run_reads_flags_and_environment() {
    let env = [("TIDEGATE_QUIET", "7s"), ("TIDEGATE_MIN_DRAIN", "8s")];
    match parse_with(&["run", "--min-drain", "9s", "--mode=hold"], &env) {
        Ok(Command::Run(config)) => {
            assert_eq!(config.timing.quiet.as_secs(), 7);
            assert_eq!(config.timing.min_drain.as_secs(), 9);
            assert_eq!(config.mode, crate::config::Mode::Hold);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_empty_flag_is_unset() {
    let Command::Run(config) = accepted(&["run", "--min-drain", "", "--mode="]) else {
        panic!("not run");
    };
    assert_eq!(config.timing.min_drain.as_secs(), 10);
}

#[test]
fn a_bad_value_exits_64_and_names_it() {
    let text = answered(
        &["run", "--min-drain", "10"],
        &[("TIDEGATE_GATE", "http")],
        64,
    );
    assert_eq!(
        text,
        "error: --min-drain \"10\": a bare number has no unit; write 10s or 10m\n\
         error: TIDEGATE_GATE=\"http\": a gate has ports: set gate-ports, like 8012:18012, or use off \
         (annotation tidegate.dev/gate)\n"
    );
}

#[test]
fn a_usage_error_exits_64() {
    let table: &[(&[&str], &str)] = &[
        (&[], "Usage"),
        (&["fly"], "fly"),
        (&["run", "--min-drian", "10s"], "--min-drain"),
        (&["run", "--min-drain"], "--min-drain"),
        (&["run", "extra"], "extra"),
        (&["run", "--quiet", "1s", "--quiet", "2s"], "--quiet"),
        (&["drain", "--hook-port", "70000"], "--hook-port"),
        (&["drain", "--quiet", "5s"], "--quiet"),
        (&["probe", "well"], "ready, live"),
        (&["report", "--yaml"], "--yaml"),
    ];
    for (args, named) in table {
        let text = answered(args, &[], 64);
        assert!(text.contains(named), "{args:?}: {text}");
    }
}

#[test]
fn help_and_version_exit_0() {
    let commands = command();
    let names: Vec<&str> = commands
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    let help = answered(&["--help"], &[], 0);
    for name in names {
        assert!(help.contains(name), "{help}");
        assert!(answered(&[name, "--help"], &[], 0).contains("Usage"));
    }
    let version = answered(&["--version"], &[], 0);
    assert_eq!(version, format!("tidegate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_help_of_run_documents_every_setting() {
    let help = flat(&answered(&["run", "--help"], &[], 0));
    for setting in SETTINGS {
        let wanted = format!(
            "{} <{}> {} [default: {}] [environment: {}] [annotation: {}]",
            setting.flag(),
            setting.hint,
            setting.help,
            setting.default.shown(),
            setting.environment(),
            setting.annotation(),
        );
        assert!(help.contains(&flat(&wanted)), "{wanted}\nnot in\n{help}");
    }
}

#[test]
fn drain_and_probe_need_the_hook_port_alone() {
    let env = [("TIDEGATE_HOOK_PORT", "9999"), ("TIDEGATE_QUIET", "soon")];
    assert!(matches!(
        parse_with(&["drain"], &env),
        Ok(Command::Drain { port: 9999 })
    ));
    assert!(matches!(
        parse_with(&["probe", "--hook-port", "7777"], &env),
        Ok(Command::Probe {
            port: 7777,
            what: Probe::Ready
        })
    ));
    assert!(matches!(
        accepted(&["probe", "ready"]),
        Command::Probe {
            port: 18022,
            what: Probe::Ready
        }
    ));
    assert!(matches!(
        accepted(&["probe", "live"]),
        Command::Probe {
            what: Probe::Live,
            ..
        }
    ));
}

#[test]
fn report_takes_files_or_none() {
    let report = |args: &[&str]| match accepted(args) {
        Command::Report { files, json } => (files, json),
        other => panic!("{other:?}"),
    };
    assert_eq!(report(&["report"]), (Vec::new(), false));
    let files = vec![PathBuf::from("a.json"), PathBuf::from("-")];
    assert_eq!(report(&["report", "a.json", "-", "--json"]), (files, true));
}

#[cfg(feature = "stand-ins")]
#[test]
fn demo_takes_its_options() {
    let demo = |args: &[&str]| match accepted(args) {
        Command::Demo(demo::Options {
            json,
            svg,
            real_time,
            envoy,
            gate,
        }) => (json, svg, real_time, envoy, gate),
        other => panic!("{other:?}"),
    };
    assert_eq!(demo(&["demo"]), (false, None, false, None, false));
    assert_eq!(
        demo(&[
            "demo",
            "--json",
            "--svg",
            "a.svg",
            "--real-time",
            "--envoy=/bin/envoy",
            "--gate"
        ]),
        (
            true,
            Some(PathBuf::from("a.svg")),
            true,
            Some(PathBuf::from("/bin/envoy")),
            true
        )
    );
}

// ===== inject =====

#[test]
fn inject_knows_the_cluster_by_its_flags() {
    let args = [
        "inject",
        "-f",
        "pod.yaml",
        "--patch",
        "--image=registry.example.com/tidegate:1",
        "--native-sidecars=true",
        "--mesh-excluded-ports=9443, 15443",
        "--run-as=platform",
    ];
    let Command::Inject(options) = accepted(&args) else {
        panic!("not inject");
    };
    let wanted = files::Options {
        file: PathBuf::from("pod.yaml"),
        output: files::Output::Patch,
        cluster: Cluster {
            image: "registry.example.com/tidegate:1".to_owned(),
            native_sidecars: NativeSidecars::True,
            mesh_excluded_inbound_ports: vec![9443, 15443],
            run_as: RunAs::Platform,
            ..Cluster::default()
        },
    };
    assert_eq!(*options, wanted);
}

#[test]
fn inject_has_defaults() {
    let Command::Inject(options) = accepted(&["inject", "--file=-"]) else {
        panic!("not inject");
    };
    assert_eq!(options.cluster, Cluster::default());
    assert_eq!(options.output, files::Output::Documents);
}

#[test]
fn inject_runs_as_nobody_it_may_not_be() {
    for (id, why) in [("0", "root"), ("1337", "istio-proxy"), ("-1", "number")] {
        let text = answered(
            &["inject", "-f-", &format!("--run-as={id}")],
            &[],
            exit::USAGE,
        );
        assert!(text.contains("--run-as") && text.contains(why), "{text}");
    }
}
