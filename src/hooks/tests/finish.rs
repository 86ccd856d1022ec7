//! The end of the server: nobody who has asked goes without an answer.

use tokio::time::Instant;

use super::*;

const HOLD: &[u8] = b"GET /wait-for-drain HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn open_holds_are_answered_and_idle_connections_closed() {
    let mut rig = rig();
    let mut idle = TcpStream::connect(rig.addr).await.unwrap();
    idle.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    let mut fresh = TcpStream::connect(rig.addr).await.unwrap();
    let mut held = TcpStream::connect(rig.addr).await.unwrap();
    held.write_all(HOLD).await.unwrap();
    let opened = notice(&mut rig).await;
    assert!(matches!(opened, Notice::Opened { .. }));

    let clients = tokio::spawn(async move {
        let mut answers = [String::new(), String::new(), String::new()];
        for (stream, answer) in [&mut held, &mut idle, &mut fresh]
            .into_iter()
            .zip(&mut answers)
        {
            stream.read_to_string(answer).await.unwrap();
            // Ends our side too, as clients do.
            stream.shutdown().await.unwrap();
        }
        answers
    });
    let began = Instant::now();
    assert!(rig.server.finish(LONG).await, "everything leaves");
    assert!(began.elapsed() < Duration::from_secs(5), "not by timeout");
    let [held, idle, fresh] = clients.await.unwrap();
    assert!(held.starts_with("HTTP/1.1 200 OK\r\n"), "{held}");
    assert!(held.contains("\r\nconnection: close\r\n"), "{held}");
    assert!(idle.ends_with("alive\n"), "{idle}");
    assert_eq!(fresh, "");
    let refused = TcpStream::connect(rig.addr).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_request_that_sits_in_the_socket_is_answered() {
    let rig = rig();
    let mut streams = Vec::new();
    for _ in 0..100 {
        // Idle, and known to the server as such.
        let mut stream = TcpStream::connect(rig.addr).await.unwrap();
        stream
            .write_all(b"GET /livez HTTP/1.1\r\n\r\n")
            .await
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"alive\n") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
        }
        streams.push(stream);
    }
    for stream in &mut streams {
        stream.write_all(HOLD).await.unwrap();
    }
    let finished = tokio::spawn(rig.server.finish(LONG));
    for mut stream in streams {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer:?}");
    }
    assert!(finished.await.unwrap());
}

#[tokio::test]
async fn the_kernels_queue_is_answered() {
    let bound = Bound::bind(0).unwrap();
    let addr = localhost(bound.addr().port());
    let mut streams = Vec::new();
    for _ in 0..400 {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(HOLD).await.unwrap();
        streams.push(stream);
    }
    // Told to finish as soon as it runs, long before it has accepted all of them.
    let rig = serve(bound, 8);
    let clients = async {
        for mut stream in streams {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer:?}");
        }
    };
    let (all_left, ()) = tokio::join!(rig.server.finish(LONG), clients);
    assert!(all_left);
}

#[tokio::test]
async fn a_peer_that_never_ends_costs_no_more_than_was_given() {
    let rig = rig();
    // Half a head: neither idle nor a request.
    let mut half = TcpStream::connect(rig.addr).await.unwrap();
    half.write_all(b"GET /livez HT").await.unwrap();
    assert!(ask(rig.addr, "GET /livez").await.contains(" 200 "));
    let began = Instant::now();
    assert!(!rig.server.finish(Duration::from_millis(100)).await);
    assert!(began.elapsed() < Duration::from_secs(2));
    let mut rest = Vec::new();
    let _ = timeout(LONG, half.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_server_that_is_dropped_answers_too() {
    let mut rig = rig();
    let mut held = TcpStream::connect(rig.addr).await.unwrap();
    held.write_all(HOLD).await.unwrap();
    let _opened = notice(&mut rig).await;
    drop(rig.server);
    assert!(empty_answer(&mut held).await.contains(" 200 "));
}
