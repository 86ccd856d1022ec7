//! Precedence, defaults, error texts, and that all lists of settings are the same list.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::settings::{Fallback, SETTINGS, settings_table};
use super::*;

const BEGIN: &str = "<!-- settings:begin -->\n";
const END: &str = "<!-- settings:end -->";

fn lookup(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
    let pairs: Vec<(String, String)> = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    move |wanted| {
        let (_, value) = pairs.iter().find(|(name, _)| name == wanted)?;
        Some(value.clone())
    }
}

fn resolve(flags: &[(&str, &str)], env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::resolve(lookup(flags), lookup(env))
}

fn with_flag(name: &str, value: &str) -> Result<Config, ConfigError> {
    resolve(&[(name, value)], &[])
}

/// The one problem of a configuration with one bad flag.
fn problem(name: &str, value: &str) -> String {
    match with_flag(name, value) {
        Ok(_) => panic!("--{name} {value:?} was accepted"),
        Err(error) => {
            assert_eq!(error.problems.len(), 1, "{error}");
            error.to_string()
        }
    }
}

// ===== values =====

#[test]
fn the_defaults_are_the_documented_ones() {
    let seconds = Duration::from_secs;
    let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
    let wanted = Config {
        mode: Mode::Auto,
        timing: Timing {
            grace: seconds(30),
            margin: seconds(3),
            max_drain: None,
            upgrade_grace: None,
            announce_delay: seconds(3),
            min_drain: seconds(10),
            quiet: seconds(5),
            quiet_max: seconds(30),
            flush_max: seconds(5),
            confirm: seconds(2),
            restart_hold: seconds(5),
        },
        hook_port: 18022,
        workload_ports: vec![8012, 8013, 8022, 8112, 9090],
        envoy_admin: tcp("127.0.0.1:15000"),
        agent: tcp("127.0.0.1:15020"),
        queue_metrics: tcp("127.0.0.1:9090"),
        hold_queue_proxy: HoldQueueProxy::Auto,
        workload_protocol: Protocol::Http1,
        gate: Gate::Off,
        gate_ports: vec![],
        gate_tls: None,
        report_path: PathBuf::from("/dev/termination-log"),
        log_format: LogFormat::Json,
        log_level: "info".to_owned(),
    };
    assert_eq!(resolve(&[], &[]), Ok(wanted));
}

#[test]
fn every_setting_reaches_its_place() {
    let config = resolve(
        &[
            ("inject", "true"),
            ("mode", "no-mesh"),
            ("grace", "300s"),
            ("workload-ports", "8080,18013"),
            ("envoy-admin", "unix:/run/envoy.sock"),
            ("agent", "[::1]:1"),
            ("queue-metrics", "localhost:2"),
            ("announce-delay", "11s"),
            ("min-drain", "12s"),
            ("quiet", "13s"),
            ("quiet-max", "14s"),
            ("max-drain", "15s"),
            ("margin", "16s"),
            ("flush-max", "17s"),
            ("confirm", "18s"),
            ("restart-hold", "19s"),
            ("hold-queue-proxy", "always"),
            ("workload-protocol", "h2c"),
            ("wrap-queue-proxy", "off"),
            ("gate", "http"),
            ("gate-ports", "8013:18013"),
            ("gate-tls", "/tls"),
            ("upgrade-grace", "20s"),
            ("hook-port", "20022"),
            ("report-path", "/tmp/report"),
            ("log-format", "text"),
            ("log-level", "warn,tidegate=debug"),
        ],
        &[],
    );
    let seconds = Duration::from_secs;
    let wanted = Config {
        mode: Mode::NoMesh,
        timing: Timing {
            grace: seconds(300),
            margin: seconds(16),
            max_drain: Some(seconds(15)),
            upgrade_grace: Some(seconds(20)),
            announce_delay: seconds(11),
            min_drain: seconds(12),
            quiet: seconds(13),
            quiet_max: seconds(14),
            flush_max: seconds(17),
            confirm: seconds(18),
            restart_hold: seconds(19),
        },
        hook_port: 20022,
        workload_ports: vec![8080, 18013],
        envoy_admin: Address::Unix(PathBuf::from("/run/envoy.sock")),
        agent: Address::Tcp("[::1]:1".parse().unwrap()),
        queue_metrics: Address::Tcp("127.0.0.1:2".parse().unwrap()),
        hold_queue_proxy: HoldQueueProxy::Always,
        workload_protocol: Protocol::H2c,
        gate: Gate::Http,
        gate_ports: vec![GatePort {
            listen: 8013,
            upstream: 18013,
        }],
        gate_tls: Some(PathBuf::from("/tls")),
        report_path: PathBuf::from("/tmp/report"),
        log_format: LogFormat::Text,
        log_level: "warn,tidegate=debug".to_owned(),
    };
    assert_eq!(config, Ok(wanted));
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_default() {
    let min_drain = |flag: &str, env: &str| {
        let config = resolve(&[("min-drain", flag)], &[("TIDEGATE_MIN_DRAIN", env)]);
        config.map(|config| config.timing.min_drain.as_secs())
    };
    assert_eq!(min_drain("1s", "2s"), Ok(1));
    assert_eq!(min_drain("", "2s"), Ok(2), "an empty flag is unset");
    assert_eq!(min_drain("", ""), Ok(10), "so is an empty variable");
    assert_eq!(min_drain(" ", "\n"), Ok(10));
    assert_eq!(min_drain(" 1s\n", ""), Ok(1));
    assert_eq!(
        min_drain("1s", "soon"),
        Ok(1),
        "a bad value that is not used is no error"
    );
}

#[test]
fn every_setting_may_be_empty() {
    assert_eq!(
        Config::resolve(|_| Some(String::new()), |_| Some(String::new())),
        resolve(&[], &[])
    );
}

#[test]
fn every_word_of_a_choice_is_read_and_documented() {
    let table = settings_table();
    let row = |name: &str| {
        let annotation = format!("`tidegate.dev/{name}`");
        let row = table.lines().find(|line| line.contains(&annotation));
        row.unwrap_or_else(|| panic!("no row for {name}"))
            .to_owned()
    };
    for mode in Mode::ALL {
        let read = with_flag("mode", mode.name()).map(|config| config.mode);
        assert_eq!(read, Ok(mode));
        assert!(row("mode").contains(mode.name()));
    }
    for when in HoldQueueProxy::ALL {
        let read = with_flag("hold-queue-proxy", when.name()).map(|c| c.hold_queue_proxy);
        assert_eq!(read, Ok(when));
        assert!(row("hold-queue-proxy").contains(when.name()));
    }
    for gate in Gate::ALL {
        let flags = [("gate", gate.name()), ("gate-ports", "7012:7013")];
        assert_eq!(resolve(&flags, &[]).map(|config| config.gate), Ok(gate));
        assert!(row("gate").contains(gate.name()));
    }
    for protocol in Protocol::ALL {
        let read = with_flag("workload-protocol", protocol.name()).map(|c| c.workload_protocol);
        assert_eq!(read, Ok(protocol));
        assert!(row("workload-protocol").contains(protocol.name()));
    }
    for format in LogFormat::ALL {
        let read = with_flag("log-format", format.name()).map(|config| config.log_format);
        assert_eq!(read, Ok(format));
        assert!(row("log-format").contains(format.name()));
    }
}

#[test]
fn a_misspelt_log_level_is_not_taken_for_a_target() {
    let good = [
        "off",
        "error",
        "warn",
        "info",
        "debug",
        "trace",
        "INFO",
        "warn,tidegate=debug",
        "tidegate::drain=trace, info",
    ];
    for text in good {
        assert!(with_flag("log-level", text).is_ok(), "{text}");
    }
    for text in [
        "inof",
        "tidegate",
        "info,",
        "tidegate=",
        "=info",
        "tidegate=loud",
        ",",
    ] {
        assert!(problem("log-level", text).contains("off, error, warn"));
    }
}

// ===== errors =====

#[test]
fn an_error_names_the_setting_by_where_it_came_from() {
    let env = resolve(&[], &[("TIDEGATE_MIN_DRAIN", "10")]).map_err(|e| e.to_string());
    assert_eq!(
        env.unwrap_err(),
        "TIDEGATE_MIN_DRAIN=\"10\": a bare number has no unit; write 10s or 10m \
         (annotation tidegate.dev/min-drain)"
    );
    assert_eq!(
        problem("min-drain", "10"),
        "--min-drain \"10\": a bare number has no unit; write 10s or 10m"
    );
}

#[test]
fn all_bad_settings_are_told_at_once() {
    let error = resolve(
        &[("gate", "udp"), ("hook-port", "8022")],
        &[
            ("TIDEGATE_QUIET", "-5s"),
            ("TIDEGATE_MODE", "hodl"),
            ("TIDEGATE_AGENT", "unix:/run/agent.sock"),
            ("TIDEGATE_INJECT", "yes"),
        ],
    )
    .unwrap_err();
    let text = error.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{text}");
    for (line, (name, cure)) in lines.iter().zip([
        ("TIDEGATE_INJECT=\"yes\"", "true"),
        (
            "TIDEGATE_MODE=\"hodl\"",
            "auto, hold, annotate, native, no-mesh",
        ),
        ("TIDEGATE_AGENT=\"unix:/run/agent.sock\"", "host:port"),
        ("TIDEGATE_QUIET=\"-5s\"", "negative"),
        ("--gate \"udp\"", "off, http, tcp"),
        ("--hook-port \"8022\"", "queue-proxy's admin port"),
    ]) {
        assert!(line.starts_with(name) && line.contains(cure), "{line}");
    }
}

#[test]
fn a_bad_value_is_refused_in_every_setting_that_can_have_one() {
    for setting in SETTINGS {
        // Any text is a path.
        if !["report-path", "gate-tls"].contains(&setting.name) {
            let text = problem(setting.name, "\u{fffd}");
            assert!(text.starts_with(&setting.flag()), "{text}");
        }
    }
}

#[test]
fn a_feature_of_another_release_is_known_and_refused() {
    let text = problem("wrap-queue-proxy", "/ko-app/queue");
    assert!(text.contains("needs the wrapper"), "{text}");
}

#[test]
fn a_gate_has_ports_and_none_of_anothers() {
    let refused = |flags: &[(&str, &str)]| resolve(flags, &[]).unwrap_err().to_string();
    assert!(refused(&[("gate", "http")]).contains("like 8012:18012"));
    let text = refused(&[("gate", "tcp"), ("gate-ports", "8012:18012")]);
    assert!(text.starts_with("workload-ports"), "{text}");
    assert!(text.contains("write 18012 in its place"), "{text}");
    let text = refused(&[("gate", "tcp"), ("gate-ports", "18022:7012")]);
    assert!(text.contains("18022 is the hook-port"), "{text}");
    // Where there is none, they do not matter.
    assert!(with_flag("gate-ports", "8012:18012").is_ok());
}

#[test]
fn the_hook_port_is_no_workload_port() {
    let text = problem("workload-ports", "8012,18022");
    assert!(text.starts_with("--workload-ports"), "{text}");
    assert!(text.contains("18022 is Tidegate's own hook-port"), "{text}");

    // The same where only the other one was set, and where another setting is bad as well.
    let env = [
        ("TIDEGATE_HOOK_PORT", "9999"),
        ("TIDEGATE_WORKLOAD_PORTS", "9999"),
    ];
    let error = resolve(&[("quiet", "5")], &env).unwrap_err();
    assert_eq!(error.problems.len(), 2, "{error}");
}

#[test]
fn the_hook_port_alone_is_read_whatever_else_is_wrong() {
    let env = lookup(&[("TIDEGATE_HOOK_PORT", "9999"), ("TIDEGATE_QUIET", "soon")]);
    assert_eq!(hook_port(lookup(&[]), &env), Ok(9999));
    assert_eq!(hook_port(lookup(&[("hook-port", "7777")]), &env), Ok(7777));
    assert!(hook_port(lookup(&[("hook-port", "0")]), &env).is_err());
}

// ===== warnings =====

#[test]
fn contradictions_are_warned_of() {
    let told = |flags: &[(&str, &str)]| warnings(&resolve(flags, &[]).unwrap());
    assert_eq!(told(&[]), Vec::<String>::new());

    let table: &[(&[(&str, &str)], &str)] = &[
        (
            &[("min-drain", "40s")],
            "min-drain 40s lies beyond the deadline of 27s (grace 30s less margin 3s): every drain \
             ends at the deadline; raise terminationGracePeriodSeconds or lower min-drain",
        ),
        (
            &[("max-drain", "5s")],
            "min-drain 10s lies beyond the deadline of 5s (max-drain): every drain ends at the \
             deadline; raise max-drain or lower min-drain",
        ),
        (
            &[("announce-delay", "11s")],
            "announce-delay 11s is longer than min-drain 10s: the drain takes the longer of the two",
        ),
        (
            &[("quiet-max", "4s")],
            "quiet 5s is longer than quiet-max 4s: new requests stop counting before the pod can \
             have been quiet for so long",
        ),
        (
            &[("confirm", "6s")],
            "confirm 6s is longer than restart-hold 5s: a hook may be answered as a restart's \
             before the pod's deletion is known",
        ),
        (
            &[("grace", "29.5s")],
            "grace 29.5s is less than 30s: queue-proxy's quiet period alone takes 30s; raise \
             terminationGracePeriodSeconds",
        ),
    ];
    for (flags, wanted) in table {
        assert_eq!(told(flags), vec![(*wanted).to_owned()]);
    }
    let at_the_limits: &[(&str, &str)] = &[
        ("min-drain", "27s"),
        ("announce-delay", "27s"),
        ("quiet", "30s"),
        ("confirm", "5s"),
        ("max-drain", "1h"),
    ];
    assert_eq!(told(at_the_limits), Vec::<String>::new());
}

// ===== one list =====

/// What stands between the backticks of a table's column, header left out.
fn column(table: &str, index: usize) -> BTreeSet<String> {
    let cell = |line: &str| {
        Some(
            line.split('|')
                .nth(index)?
                .trim()
                .trim_matches('`')
                .to_owned(),
        )
    };
    table.lines().skip(2).filter_map(cell).collect()
}

#[test]
fn flags_environment_annotations_and_readme_are_the_same_list() {
    let names: BTreeSet<String> = SETTINGS.iter().map(|s| s.name.to_owned()).collect();
    assert_eq!(names.len(), SETTINGS.len(), "no name twice");
    for name in &names {
        assert!(
            name.chars().all(|c| c.is_ascii_lowercase() || c == '-'),
            "{name}"
        );
    }

    // What the reader asks for.
    let flags = RefCell::new(BTreeSet::new());
    let variables = RefCell::new(BTreeSet::new());
    let note = |set: &RefCell<BTreeSet<String>>, name: &str| {
        set.borrow_mut().insert(name.to_owned());
        None
    };
    Config::resolve(|name| note(&flags, name), |name| note(&variables, name)).unwrap();
    assert_eq!(flags.into_inner(), names);
    let by_name = |form: &dyn Fn(&str) -> String| -> BTreeSet<String> {
        names.iter().map(|name| form(name)).collect()
    };
    let environment = |name: &str| format!("TIDEGATE_{}", name.replace('-', "_").to_uppercase());
    assert_eq!(variables.into_inner(), by_name(&environment));

    // What clap accepts.
    let command = crate::cli::command();
    let run = command.find_subcommand("run").unwrap();
    let accepted = run.get_arguments().filter_map(clap::Arg::get_long);
    let accepted: BTreeSet<String> = accepted.map(str::to_owned).collect();
    assert_eq!(accepted, names);

    // What README says.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    let wanted = settings_table();
    let table = readme
        .split_once(BEGIN)
        .and_then(|(_, rest)| rest.split_once(END))
        .map(|(table, _)| table);
    assert!(
        table == Some(wanted.as_str()),
        "README.md is to hold this table:\n\n{BEGIN}{wanted}{END}\n"
    );
    assert_eq!(
        column(&wanted, 1),
        by_name(&|name| format!("tidegate.dev/{name}"))
    );
    assert_eq!(column(&wanted, 2), by_name(&environment));
    assert_eq!(column(&wanted, 3), by_name(&|name| format!("--{name}")));
}

#[test]
fn every_default_is_in_the_table() {
    let table = settings_table();
    for (setting, line) in SETTINGS.iter().zip(table.lines().skip(2)) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 7, "a cell holds a bar: {line}");
        match setting.default {
            Fallback::Text(text) => assert_eq!(cells[4], format!("`{text}`")),
            Fallback::Rule(words) => assert_eq!(cells[4], words),
        }
    }
}

// ===== what a drain may take =====

fn longest(grace: u64, margin: u64, cap: Option<u64>) -> Duration {
    let timing = Timing {
        grace: Duration::from_secs(grace),
        margin: Duration::from_secs(margin),
        max_drain: cap.map(Duration::from_secs),
        ..crate::drain::machine::tests::timing()
    };
    timing.longest_drain()
}

#[test]
fn a_drain_leaves_the_margin() {
    assert_eq!(longest(300, 3, None), Duration::from_secs(297));
}

#[test]
fn a_short_grace_period_is_not_all_margin() {
    assert_eq!(longest(4, 3, None), Duration::from_secs(2));
    assert_eq!(longest(0, 3, None), Duration::ZERO);
}

#[test]
fn a_cap_shortens_and_never_lengthens() {
    assert_eq!(longest(300, 3, Some(20)), Duration::from_secs(20));
    assert_eq!(longest(30, 3, Some(600)), Duration::from_secs(27));
}
