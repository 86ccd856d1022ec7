//! The webhook leaves by the rules that it preaches.

use super::*;

async fn until_unready(rig: &Rig) {
    let unready = async { while rig.health("/readyz").await.status == 200 {} };
    timeout(LIMIT, unready).await.expect("always ready");
    let answered = rig.health("/readyz").await;
    assert_eq!(
        (answered.status, answered.body.as_str()),
        (503, "leaving\n")
    );
}

#[tokio::test]
async fn sigterm_first_says_so_then_serves_then_ends() {
    let rig = rig_with(|o| o.leave_delay = LIMIT, Box::new(marked), true);
    let mut kept = rig.connect().await;
    kept.write_all(post(&review_of("before"), "").as_bytes())
        .await
        .unwrap();
    let answered = next_answer(&mut kept).await;
    assert_patched(&answered, "before");
    assert!(!answered.head.contains("connection: close"), "{answered:?}");

    rig.signals.send(Signal::Terminate).await.unwrap();
    until_unready(&rig).await;
    // A kept connection is served and asked to go; a new one too.
    kept.write_all(post(&review_of("kept"), "").as_bytes())
        .await
        .unwrap();
    let answered = answer_of(kept).await;
    assert_patched(&answered, "kept");
    assert!(answered.head.contains("connection: close"), "{answered:?}");
    let mut fresh = rig.connect().await;
    fresh
        .write_all(post(&review_of("fresh"), "").as_bytes())
        .await
        .unwrap();
    assert_patched(&answer_of(fresh).await, "fresh");

    // A second one changes nothing; SIGINT does not wait for the rest of the delay.
    rig.signals.send(Signal::Terminate).await.unwrap();
    assert_eq!(rig.health("/readyz").await.status, 503);
    rig.signals.send(Signal::Interrupt).await.unwrap();
    let ending = rig.ended().await;
    assert!(ending.interrupted);
}

#[tokio::test]
async fn a_review_in_flight_is_finished_and_an_idle_connection_is_closed() {
    let rig = rig();
    let idle = rig.connect().await;
    let mut slow = rig.connect().await;
    let request = post(&review_of("slow"), "");
    let (first, rest) = request.as_bytes().split_at(request.len() - 10);
    slow.write_all(first).await.unwrap();
    slow.flush().await.unwrap();
    rig.signals.send(Signal::Terminate).await.unwrap();
    // The idle one ends when the port has been closed.
    let ended = answer_of(idle).await;
    assert_eq!(ended.status, 0);
    assert!(TcpStream::connect(rig.addr).await.is_err());
    assert_eq!(rig.health("/readyz").await.body, "leaving\n");
    slow.write_all(rest).await.unwrap();
    assert_patched(&answer_of(slow).await, "slow");
    let ending = rig.ended().await;
    assert_eq!(
        ending,
        Ending {
            interrupted: false,
            finished: true
        }
    );
}

#[tokio::test]
async fn whoever_never_finishes_is_left_behind() {
    let change = |options: &mut Options| {
        options.leave_delay = Duration::ZERO;
        options.leave_max = Duration::from_millis(50);
    };
    let rig = rig_with(change, Box::new(marked), true);
    let mut stuck = rig.connect().await;
    let request = post(&review_of("stuck"), "");
    stuck
        .write_all(&request.as_bytes()[..request.len() - 1])
        .await
        .unwrap();
    stuck.flush().await.unwrap();
    // The webhook has the head once it answers somebody who came later.
    let mut other = rig.connect().await;
    other
        .write_all(post(&review_of("other"), "").as_bytes())
        .await
        .unwrap();
    assert_patched(&next_answer(&mut other).await, "other");
    rig.signals.send(Signal::Terminate).await.unwrap();
    let ending = rig.ended().await;
    assert_eq!(
        ending,
        Ending {
            interrupted: false,
            finished: false
        }
    );
}
