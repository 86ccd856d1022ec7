//! What the pump makes of an engine's word, and of the ends of both sides.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::script::Script;
use super::*;
use crate::gate::engine::Stage;

#[test]
fn a_connection_is_small() {
    // With its two sockets' registrations and its task: under 2 KiB. The rest is the kernel's.
    let size = size_of::<Pump>();
    assert!(size <= 512, "{size} bytes");
}

/// A connection through a script, with both its ends.
async fn scripted(shared: &Arc<Shared>) -> (tokio::task::JoinHandle<()>, TcpStream, TcpStream) {
    let (listener, upstream) = workload().await;
    let (pump, mut client) = driven(shared, upstream, Script::boxed(&shared.counter)).await;
    let task = tokio::spawn(pump);
    client.write_all(b"hello\n").await.expect("sent");
    let (mut workload, _) = within(listener.accept()).await.expect("connected");
    let mut first = [0; 6];
    within(workload.read_exact(&mut first)).await.expect("came");
    assert_eq!(&first, b"hello\n");
    (task, client, workload)
}

async fn reads(tcp: &mut TcpStream, wanted: &[u8]) {
    let mut got = vec![0; wanted.len()];
    within(tcp.read_exact(&mut got)).await.expect("came");
    assert_eq!(
        got.escape_ascii().to_string(),
        wanted.escape_ascii().to_string()
    );
}

async fn says(tcp: &mut TcpStream, bytes: &[u8]) {
    within(tcp.write_all(bytes)).await.expect("sent");
}

#[tokio::test]
async fn lines_pass_are_swallowed_and_marked_wherever_they_are_split() {
    let sent = b"one\nswallow\nmark\ntwo\nmark\nswallow\nthree\n";
    let wanted = b"one\n[m]mark\ntwo\n[m]mark\nthree\n";
    for split in 1..sent.len() {
        let shared = quiet();
        let (task, mut client, mut workload) = scripted(&shared).await;
        says(&mut client, &sent[..split]).await;
        // What is before the split is judged by itself: its whole lines are out, or it has none.
        let whole = sent[..split].split_inclusive(|b| *b == b'\n');
        let whole = whole.filter(|line| line.ends_with(b"\n")).count() as u64;
        until(|| shared.counter.total() == 1 + whole).await;
        says(&mut client, &sent[split..]).await;
        reads(&mut workload, wanted).await;
        says(&mut workload, b"mark\nanswer\n").await;
        reads(&mut client, b"[m]mark\nanswer\n").await;
        drop((client, workload));
        within(task).await.expect("no panic");
    }
}

#[tokio::test]
async fn what_waits_for_the_other_direction_waits() {
    let shared = quiet();
    let (_task, mut client, mut workload) = scripted(&shared).await;
    says(&mut workload, b"early\nwait\nlate\n").await;
    reads(&mut client, b"early\n").await;
    let more = timeout(Duration::from_millis(30), client.read(&mut [0; 1])).await;
    assert!(more.is_err(), "it waits");
    says(&mut client, b"go\n").await;
    reads(&mut client, b"wait\nlate\n").await;
    reads(&mut workload, b"go\n").await;
}

#[tokio::test]
async fn own_bytes_go_out_after_a_step_and_when_the_stage_changes() {
    let shared = quiet();
    let (_task, mut client, mut workload) = scripted(&shared).await;
    says(&mut client, b"ping\n").await;
    reads(&mut client, b"pong\n").await;
    reads(&mut workload, b"ping\n").await;
    shared.advance(Stage::Announcing);
    reads(&mut client, b"going\n").await;
    reads(&mut workload, b"going\n").await;
}

#[tokio::test]
async fn a_finished_connection_is_flushed_and_closed_after_the_client() {
    let shared = quiet();
    let (task, mut client, mut workload) = scripted(&shared).await;
    says(&mut workload, b"last\nquit\nnothing\n").await;
    assert_eq!(rest(&mut client).await, b"last\nquit\n");
    assert_eq!(shared.counter.in_flight(), 0, "all is written");
    assert!(!task.is_finished(), "the client may still be sending");
    says(&mut client, b"too late").await;
    drop(client);
    within(task).await.expect("no panic");
    assert_eq!(rest(&mut workload).await, b"");
}

#[tokio::test]
async fn a_client_hears_of_a_workload_that_goes() {
    for reset in [false, true] {
        let shared = quiet();
        let (task, mut client, workload) = scripted(&shared).await;
        if reset {
            workload.set_zero_linger().expect("a socket");
        }
        drop(workload);
        assert_eq!(rest(&mut client).await, b"lost\n", "reset: {reset}");
        drop(client);
        within(task).await.expect("no panic");
        assert_eq!((shared.counter.in_flight(), shared.counter.cut()), (0, 1));
    }
}

#[tokio::test]
async fn a_workload_that_cannot_be_reached_is_lost() {
    let shared = quiet();
    let engine = Script::boxed(&shared.counter);
    let (pump, mut client) = driven(&shared, nobody().await, engine).await;
    tokio::spawn(pump);
    says(&mut client, b"anybody\n").await;
    assert_eq!(rest(&mut client).await, b"lost\n");
    assert_eq!(shared.metrics.unreachable.get(), 1);
}

#[tokio::test]
async fn a_workload_hears_of_a_client_that_breaks_off() {
    let shared = quiet();
    let (task, client, mut workload) = scripted(&shared).await;
    client.set_zero_linger().expect("a socket");
    drop(client);
    let read = within(workload.read(&mut [0; 1])).await;
    let error = read.expect_err("a reset, as without the gate");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    within(task).await.expect("no panic");
    assert_eq!(shared.counter.cut(), 1);
}

#[tokio::test]
async fn an_answer_arrives_though_the_workload_does_not_listen_to_the_end() {
    let shared = quiet();
    let (_task, mut client, mut workload) = scripted(&shared).await;
    says(&mut client, b"unread\n").await;
    within(workload.readable()).await.expect("it has come");
    says(&mut workload, b"no\nquit\n").await;
    // With unread bytes: a reset follows the answer.
    drop(workload);
    assert_eq!(rest(&mut client).await, b"no\nquit\n");
}

#[tokio::test]
async fn a_tunnel_closes_one_half_after_the_other() {
    let shared = quiet();
    let (listener, upstream) = workload().await;
    let (pump, mut client) = connection(&shared, upstream, Mode::Tcp).await;
    let task = tokio::spawn(pump);
    let (mut workload, _) = within(listener.accept()).await.expect("at once");
    says(&mut workload, b"220 ready\r\n").await;
    reads(&mut client, b"220 ready\r\n").await;
    says(&mut client, b"QUIT").await;
    client.shutdown().await.expect("closed");
    assert_eq!(rest(&mut workload).await, b"QUIT");
    assert_eq!(tunnels(&shared.counter), 1, "one half is open");
    says(&mut workload, b"221 bye\r\n").await;
    drop(workload);
    assert_eq!(rest(&mut client).await, b"221 bye\r\n");
    within(task).await.expect("no panic");
    assert_eq!((shared.counter.in_flight(), shared.counter.cut()), (0, 0));
}

#[tokio::test]
async fn a_torn_tunnel_is_torn_for_the_client_too() {
    let shared = quiet();
    let (listener, upstream) = workload().await;
    let (pump, mut client) = connection(&shared, upstream, Mode::Tcp).await;
    tokio::spawn(pump);
    let (workload, _) = within(listener.accept()).await.expect("at once");
    workload.set_zero_linger().expect("a socket");
    drop(workload);
    let error = within(client.read(&mut [0; 1])).await.expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// Nobody reads: the client is held up, and the gate keeps no more than one read of it.
#[tokio::test]
async fn a_slow_reader_holds_the_sender_up_and_costs_one_buffer() {
    let shared = quiet();
    let (listener, upstream) = workload().await;
    let (mut pump, mut client) = connection(&shared, upstream, Mode::Tcp).await;
    let sender = tokio::spawn(async move {
        let block = vec![7; 64 * 1024];
        for _ in 0..1024 {
            client.write_all(&block).await.expect("sent");
        }
        client.shutdown().await.expect("closed");
        client
    });
    // Driven until it has not moved for a while.
    let mut most = 0;
    let mut drive = async |pump: &mut Pump| {
        let turns = poll_fn(|cx| {
            let turned = Pin::new(&mut *pump).poll(cx);
            most = most.max(pump.memory());
            turned
        });
        timeout(Duration::from_millis(200), turns).await
    };
    assert!(drive(&mut pump).await.is_err());
    let (mut workload, _) = within(listener.accept()).await.expect("at once");
    assert!(!sender.is_finished(), "64 MiB do not fit in the kernel");
    assert!(shared.counter.in_flight() >= 1);
    let reader = tokio::spawn(async move {
        let mut total = 0;
        let mut block = vec![0; 64 * 1024];
        loop {
            match workload.read(&mut block).await.expect("reads") {
                0 => return total,
                read => total += read,
            }
        }
    });
    within(poll_fn(|cx| {
        let turned = Pin::new(&mut pump).poll(cx);
        most = most.max(pump.memory());
        match turned {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(()),
        }
    }))
    .await;
    assert_eq!(within(reader).await.expect("no panic"), 64 << 20);
    assert!(most <= 128 * 1024, "{most} bytes");
    assert_eq!(pump.memory(), 0, "nothing is kept");
    drop(sender);
}
