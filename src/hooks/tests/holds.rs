//! Holds: silence, release, hang-ups, crowds, and a driver that is slow or gone.

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;

/// The kubelet's preStop request, as Go's client writes it.
fn kubelet(container: &str) -> String {
    format!(
        "GET /wait-for-drain?container={container} HTTP/1.1\r\nHost: 10.244.1.7:18022\r\n\
         User-Agent: kube-lifecycle/1.36\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n"
    )
}

async fn hook(rig: &Rig, container: &str) -> TcpStream {
    let mut stream = TcpStream::connect(rig.addr).await.unwrap();
    stream
        .write_all(kubelet(container).as_bytes())
        .await
        .unwrap();
    stream
}

type Opened = (HookId, String, oneshot::Sender<()>);

async fn opened(rig: &mut Rig) -> Opened {
    match notice(rig).await {
        Notice::Opened {
            hook,
            container,
            answer,
        } => (hook, container, answer),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_kubelets_hook_is_silent_until_released() {
    let mut rig = rig();
    let mut stream = hook(&rig, "user-container").await;
    let (_, container, answer) = opened(&mut rig).await;
    assert_eq!(container, "user-container");
    // The server has done all it does before the release: an answer that came early would be here
    // by the time it has answered somebody else.
    ask(rig.addr, "GET /livez").await;
    let early = stream.try_read(&mut [0; 1]).unwrap_err();
    assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(metric(&rig, "tidegate_hooks_open "), 1.0);

    answer.send(()).unwrap();
    assert_eq!(status(&empty_answer(&mut stream).await), "HTTP/1.1 200 OK");
    assert_eq!(metric(&rig, "tidegate_hooks_open "), 0.0);
    assert_eq!(metric(&rig, "tidegate_hooks_answered_total "), 1.0);
    drop(stream);
    ask(rig.addr, "POST /drain").await;
    assert!(
        matches!(notice(&mut rig).await, Notice::Drain),
        "an answered hook is not closed as well"
    );
}

#[tokio::test]
async fn an_answer_dropped_is_an_answer() {
    let mut rig = rig();
    let mut stream = hook(&rig, "a").await;
    drop(opened(&mut rig).await);
    assert_eq!(status(&empty_answer(&mut stream).await), "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn hooks_have_numbers_of_their_own() {
    let mut rig = rig();
    let _a = hook(&rig, "a").await;
    let _b = hook(&rig, "b").await;
    let (a, b) = (opened(&mut rig).await, opened(&mut rig).await);
    assert_ne!(a.0, b.0);
}

#[tokio::test]
async fn a_waiter_that_hangs_up_is_forgotten_at_once() {
    let mut rig = rig();
    for reset in [false, true] {
        let stream = hook(&rig, "a").await;
        let (hook, _, answer) = opened(&mut rig).await;
        if reset {
            stream.set_zero_linger().unwrap();
        }
        drop(stream);
        let began = Instant::now();
        match notice(&mut rig).await {
            Notice::Closed { hook: closed } => assert_eq!(closed, hook),
            other => panic!("{other:?}"),
        }
        assert!(began.elapsed() < Duration::from_secs(1));
        assert!(answer.is_closed());
    }
    assert_eq!(metric(&rig, "tidegate_hooks_open "), 0.0);
    assert_eq!(metric(&rig, "tidegate_hooks_abandoned_total "), 2.0);
    assert_eq!(metric(&rig, "tidegate_hooks_answered_total "), 0.0);
}

#[tokio::test]
async fn a_hang_up_is_told_even_where_the_queue_is_full() {
    let mut rig = rig_with(Limits::default(), 1);
    let stream = hook(&rig, "a").await;
    let (hook, _, answer) = opened(&mut rig).await;
    ask(rig.addr, "POST /drain").await;
    drop(stream);
    // The answer's receiver goes with the guard, and whoever asks afterwards is answered after
    // both, so the queue was full when the guard went.
    let mut answer = answer;
    timeout(LONG, answer.closed()).await.unwrap();
    ask(rig.addr, "GET /livez").await;
    assert!(matches!(notice(&mut rig).await, Notice::Drain));
    match notice(&mut rig).await {
        Notice::Closed { hook: closed } => assert_eq!(closed, hook),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_busy_driver_turns_a_drain_away_in_time() {
    let mut rig = rig_with(
        Limits {
            queue: Duration::from_millis(50),
            ..Limits::default()
        },
        1,
    );
    assert!(ask(rig.addr, "POST /drain").await.contains(" 200 "));
    assert!(ask(rig.addr, "POST /drain").await.contains(" 503 "));
    // Neither readiness, nor istio-proxy's release, depends on the driver.
    assert!(ask(rig.addr, "GET /readyz").await.contains(" 200 "));
    rig.board.send_modify(|board| board.proxy_released = true);
    assert!(ask(rig.addr, "GET /released").await.contains(" 200 "));
    assert!(matches!(notice(&mut rig).await, Notice::Drain));
}

#[tokio::test]
async fn without_a_driver_every_hook_is_answered() {
    let mut rig = rig();
    let mut held = hook(&rig, "a").await;
    // The driver may keep the answer and be gone all the same.
    let (_, _, _answer) = opened(&mut rig).await;
    let mut queued = hook(&rig, "b").await;
    rig.notices.close();
    drop(std::mem::replace(&mut rig.notices, mpsc::channel(1).1));
    assert!(empty_answer(&mut held).await.contains(" 200 "));
    assert!(empty_answer(&mut queued).await.contains(" 200 "));
    let mut late = hook(&rig, "c").await;
    assert!(empty_answer(&mut late).await.contains(" 200 "));
    assert!(ask(rig.addr, "POST /drain").await.contains(" 503 "));
}

#[tokio::test]
async fn a_thousand_holds_are_answered_together() {
    const HOLDS: usize = 1000;
    raise_descriptors();
    let mut rig = rig_with(Limits::default(), 2 * HOLDS);
    let mut clients = JoinSet::new();
    for n in 0..HOLDS {
        let mut stream = hook(&rig, &format!("c{n}")).await;
        clients.spawn(async move {
            let answer = empty_answer(&mut stream).await;
            let now = Instant::now();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            now
        });
    }
    let mut answers = Vec::new();
    while answers.len() < HOLDS {
        answers.push(opened(&mut rig).await.2);
    }
    assert_eq!(metric(&rig, "tidegate_hooks_open "), HOLDS as f64);
    let released = Instant::now();
    for answer in answers {
        answer.send(()).unwrap();
    }
    let last = clients.join_all().await.into_iter().max().unwrap();
    let took = last - released;
    eprintln!("{HOLDS} holds answered within {took:?} of the release");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// Both ends of a thousand connections live in this process.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    setrlimit(Resource::Nofile, wanted).unwrap();
}
