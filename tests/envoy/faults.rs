//! An admin interface that misbehaves, and an Envoy that dies, at each step of a drain: nothing is
//! released early, and nothing hangs.

use std::time::Duration;

use tidegate::config::Mode;
use tidegate::drain::Phase;
use tidegate::standin::front::Fault;

use crate::bootstrap::{INBOUND, QUEUE_PROXY};
use crate::client::{Client, ended, head_first, slow};
use crate::end::End;
use crate::netns;
use crate::pod::{Pod, Spec, USER};
use crate::wait::within;

const FOUR: Duration = Duration::from_secs(4);
/// From the deletion to SIGKILL. A drain that cannot see its end lasts until the deadline, 2 s before.
const GRACE: Duration = Duration::from_secs(12);

/// How a call to Envoy goes wrong.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Answers(Fault),
    /// The port refuses, though Envoy lives.
    Refuses,
    /// Envoy dies.
    Dies,
}

/// From when on.
#[derive(Clone, Copy, Debug)]
enum From {
    Start,
    Trigger,
    /// The sidecar's first call.
    Draining,
    /// The call that closes the door.
    Door,
    /// The workload's release.
    Release,
}

fn spec(mode: Mode) -> Spec {
    Spec {
        grace: Some(GRACE),
        ..Spec::new(mode)
    }
}

fn goes_wrong(pod: &Pod, wrong: Wrong) -> impl FnOnce() + Send + use<> {
    let mesh = pod.mesh();
    let (admin, port, envoy) = (
        mesh.admin.clone(),
        mesh.tap.process.clone(),
        mesh.envoy.clone(),
    );
    move || match wrong {
        Wrong::Answers(fault) => admin.set(fault),
        Wrong::Refuses => port.kill(),
        Wrong::Dies => envoy.kill(),
    }
}

/// Deletes the pod and lets it go wrong at its time.
async fn delete(pod: &mut Pod, wrong: Wrong, from: From) {
    let act = goes_wrong(pod, wrong);
    let tap = pod.mesh().tap.clone();
    match from {
        From::Start => {
            act();
            pod.delete();
        }
        From::Trigger => {
            pod.delete();
            act();
        }
        From::Draining => {
            tap.when("POST /drain_listeners?inboundonly&graceful&skip_exit", act);
            pod.delete();
        }
        From::Door => {
            tap.when("POST /drain_listeners?inboundonly", act);
            pod.delete();
        }
        From::Release => {
            pod.delete();
            pod.phase(Phase::ReleasingWorkload).await;
            act();
        }
    }
}

macro_rules! faults {
    ($($name:ident: $mode:ident, $wrong:expr, $from:ident;)*) => {$(
        #[test]
        fn $name() {
            let name = concat!("faults::", stringify!($name));
            netns::test(name, || nothing_is_lost(Mode::$mode, $wrong, From::$from));
        }
    )*};
}

faults! {
    hangs_from_the_start: Hold, Wrong::Answers(Fault::Hang), Start;
    hangs_from_the_trigger: Hold, Wrong::Answers(Fault::Hang), Trigger;
    hangs_from_the_drain: Hold, Wrong::Answers(Fault::Hang), Draining;
    hangs_from_the_door: Hold, Wrong::Answers(Fault::Hang), Door;
    hangs_from_the_release: Hold, Wrong::Answers(Fault::Hang), Release;
    resets_from_the_start: Hold, Wrong::Answers(Fault::Reset), Start;
    resets_from_the_trigger: Hold, Wrong::Answers(Fault::Reset), Trigger;
    resets_from_the_drain: Hold, Wrong::Answers(Fault::Reset), Draining;
    resets_from_the_door: Hold, Wrong::Answers(Fault::Reset), Door;
    resets_from_the_release: Hold, Wrong::Answers(Fault::Reset), Release;
    answers_500_from_the_start: Hold, Wrong::Answers(Fault::Status500), Start;
    answers_500_from_the_trigger: Hold, Wrong::Answers(Fault::Status500), Trigger;
    answers_500_from_the_drain: Hold, Wrong::Answers(Fault::Status500), Draining;
    answers_500_from_the_door: Hold, Wrong::Answers(Fault::Status500), Door;
    answers_500_from_the_release: Hold, Wrong::Answers(Fault::Status500), Release;
    answers_garbage_from_the_start: Hold, Wrong::Answers(Fault::Garbage), Start;
    answers_garbage_from_the_trigger: Hold, Wrong::Answers(Fault::Garbage), Trigger;
    answers_garbage_from_the_drain: Hold, Wrong::Answers(Fault::Garbage), Draining;
    answers_garbage_from_the_door: Hold, Wrong::Answers(Fault::Garbage), Door;
    answers_garbage_from_the_release: Hold, Wrong::Answers(Fault::Garbage), Release;
    closes_without_a_word_from_the_start: Hold, Wrong::Answers(Fault::Empty), Start;
    closes_without_a_word_from_the_trigger: Hold, Wrong::Answers(Fault::Empty), Trigger;
    closes_without_a_word_from_the_drain: Hold, Wrong::Answers(Fault::Empty), Draining;
    closes_without_a_word_from_the_door: Hold, Wrong::Answers(Fault::Empty), Door;
    closes_without_a_word_from_the_release: Hold, Wrong::Answers(Fault::Empty), Release;
    answers_half_from_the_start: Hold, Wrong::Answers(Fault::Truncated), Start;
    answers_half_from_the_trigger: Hold, Wrong::Answers(Fault::Truncated), Trigger;
    answers_half_from_the_door: Hold, Wrong::Answers(Fault::Truncated), Door;
    speaks_no_http_from_the_trigger: Hold, Wrong::Answers(Fault::NotHttp), Trigger;
    speaks_no_http_from_the_door: Hold, Wrong::Answers(Fault::NotHttp), Door;
    refuses_from_the_start: Hold, Wrong::Refuses, Start;
    refuses_from_the_trigger: Hold, Wrong::Refuses, Trigger;
    refuses_from_the_drain: Hold, Wrong::Refuses, Draining;
    refuses_from_the_door: Hold, Wrong::Refuses, Door;
    refuses_from_the_release: Hold, Wrong::Refuses, Release;
    hangs_from_the_start_with_a_native_sidecar: Native, Wrong::Answers(Fault::Hang), Start;
    hangs_from_the_drain_with_a_native_sidecar: Native, Wrong::Answers(Fault::Hang), Draining;
    resets_from_the_start_with_a_native_sidecar: Native, Wrong::Answers(Fault::Reset), Start;
    answers_500_from_the_trigger_with_a_native_sidecar: Native, Wrong::Answers(Fault::Status500), Trigger;
    refuses_from_the_door_with_a_native_sidecar: Native, Wrong::Refuses, Door;
    hangs_from_the_start_under_annotate: Annotate, Wrong::Answers(Fault::Hang), Start;
    resets_from_the_door_under_annotate: Annotate, Wrong::Answers(Fault::Reset), Door;
    answers_500_from_the_release_under_annotate: Annotate, Wrong::Answers(Fault::Status500), Release;
}

/// Requests in flight at the trigger end whole, before anything is released; the pod is gone in its
/// grace period.
async fn nothing_is_lost(mode: Mode, wrong: Wrong, from: From) {
    let mut pod = Pod::start(spec(mode)).await;
    let client = Client::h1(INBOUND).await.expect("the door is open");
    let requests = [head_first(client, FOUR).await, slow(FOUR)];
    pod.busy(2).await;
    let mut last_byte = tokio::time::Instant::now();
    delete(&mut pod, wrong, from).await;
    for request in requests {
        last_byte = last_byte.max(ended(request).await);
    }
    let end = pod.gone().await;
    end.assert_released_after(last_byte);
    ends_in_time(mode, &end);
}

fn ends_in_time(mode: Mode, end: &End) {
    println!(
        "measured: gone after {:?} ({})",
        end.lasted(),
        end.report.outcome
    );
    // Only Envoy's admin can end the agent there; without it, the agent's drain or SIGKILL does.
    if mode != Mode::Annotate {
        end.assert_orderly();
    }
    let limit = GRACE + Duration::from_secs(2);
    assert!(end.lasted() < limit, "{:?}", end.lasted());
}

macro_rules! deaths {
    ($($name:ident: $mode:ident, $from:ident;)*) => {$(
        #[test]
        fn $name() {
            let name = concat!("faults::", stringify!($name));
            netns::test(name, || envoy_dies(Mode::$mode, From::$from));
        }
    )*};
}

deaths! {
    envoy_dies_before_the_trigger: Hold, Start;
    envoy_dies_at_the_trigger: Hold, Trigger;
    envoy_dies_when_told_to_drain: Hold, Draining;
    envoy_dies_when_told_to_close_the_door: Hold, Door;
    envoy_dies_at_the_release: Hold, Release;
    envoy_dies_before_the_trigger_under_annotate: Annotate, Start;
    envoy_dies_when_told_to_drain_under_annotate: Annotate, Draining;
    envoy_dies_at_the_release_under_annotate: Annotate, Release;
    envoy_dies_before_the_trigger_beside_a_native_sidecar: Native, Start;
    envoy_dies_when_told_to_drain_beside_a_native_sidecar: Native, Draining;
    envoy_dies_at_the_release_beside_a_native_sidecar: Native, Release;
}

/// What came through Envoy dies with it. What came past it, from a client outside of the mesh, holds
/// the pod to its end.
async fn envoy_dies(mode: Mode, from: From) {
    let mut pod = Pod::start(spec(mode)).await;
    let direct = Client::h1(QUEUE_PROXY).await.expect("queue-proxy listens");
    let direct = head_first(direct, FOUR).await;
    let through = slow(Duration::from_secs(5));
    pod.busy(2).await;
    delete(&mut pod, Wrong::Dies, from).await;
    let last_byte = ended(direct).await;
    let through = within(GRACE, "the end of the other", through).await;
    let through = through.expect("the client does not panic");
    let served = matches!(from, From::Door | From::Release);
    assert_eq!(through.is_ok(), served, "{through:?}");
    let end = pod.gone().await;
    assert!(end.hook_ended(USER) > last_byte);
    ends_in_time(mode, &end);
    assert_eq!(end.report.outcome, "drained", "{}", end.report_text);
}

macro_rules! absences {
    ($($name:ident: $mode:ident;)*) => {$(
        #[test]
        fn $name() {
            let name = concat!("faults::", stringify!($name));
            netns::test(name, || envoy_is_absent(Mode::$mode));
        }
    )*};
}

absences! {
    envoy_is_absent_under_hold: Hold;
    envoy_is_absent_under_annotate: Annotate;
    envoy_is_absent_beside_a_native_sidecar: Native;
}

/// The pod was injected for a mesh that is not there.
async fn envoy_is_absent(mode: Mode) {
    let mut pod = Pod::start(Spec {
        mode: Mode::NoMesh,
        ..spec(mode)
    })
    .await;
    let request = Client::h1(QUEUE_PROXY).await.expect("queue-proxy listens");
    let request = head_first(request, FOUR).await;
    pod.busy(1).await;
    pod.delete();
    let last_byte = ended(request).await;
    let end = pod.gone().await;
    assert!(end.hook_ended(USER) > last_byte);
    end.assert_drained();
    ends_in_time(mode, &end);
    assert_eq!(end.report.mode, mode.name());
}
