//! Tests of the harness: it notices what a proxy must not do.

use crate::http1::{Case, play};
use crate::netns;
use crate::proxy::{BACKEND, LISTEN};
use crate::relay::{Manners, Relay};
use crate::script::Step::{Await, Finish, Reset, Tell, ToEnd, Until};
use crate::script::send;
use crate::verdicts::{Verdicts, differences};

/// The client closes its half and waits for the reply.
fn half_closed() -> Case {
    Case {
        name: "half-closed",
        client: vec![send("ask"), Finish, ToEnd],
        server: vec![ToEnd, send("answer"), Finish],
    }
}

/// The server breaks off.
fn broken() -> Case {
    Case {
        name: "broken",
        client: vec![send("ask"), Until("ans"), Tell, ToEnd],
        server: vec![Until("ask"), send("ans"), Await, Reset],
    }
}

#[test]
fn a_proxy_that_misbehaves_is_noticed() {
    netns::test("harness::a_proxy_that_misbehaves_is_noticed", || async {
        let cases = [half_closed(), broken()];
        let direct = play(&cases, BACKEND).await;
        for (manners, differing) in [
            (Manners::Transparent, &[][..]),
            (Manners::ClosesBothWays, &["half-closed"]),
            (Manners::HidesResets, &["broken"]),
        ] {
            let relay = Relay::start(LISTEN, BACKEND, manners).await;
            let through = play(&cases, LISTEN).await;
            relay.end().await;
            let names: Vec<&String> = direct
                .keys()
                .filter(|name| direct[*name] != through[*name])
                .collect();
            assert_eq!(names, differing, "{manners:?}: {direct:#?} {through:#?}");
        }
    });
}

#[test]
fn cases_that_differ_are_listed() {
    let verdicts = |list: &[(&str, &str)]| -> Verdicts {
        let owned = |(name, verdict): &(&str, &str)| ((*name).to_owned(), (*verdict).to_owned());
        list.iter().map(owned).collect()
    };
    let direct = verdicts(&[("a", "OK"), ("b", "OK"), ("c", "FAILED")]);
    let through = verdicts(&[("a", "OK"), ("b", "FAILED"), ("d", "OK")]);
    assert_eq!(differences(&direct, &direct), Vec::<String>::new());
    assert_eq!(
        differences(&direct, &through),
        [
            "  b\n    direct:  OK\n    through: FAILED",
            "  c\n    direct:  FAILED\n    through: did not run",
            "  d\n    direct:  did not run\n    through: OK",
        ]
    );
}
