//! Bounds: heads, bodies, connections, time.

use rustix::io::Errno;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::*;
use crate::net::{Stream, is_the_peers};

#[tokio::test]
async fn slow_heads_and_idle_connections_are_closed() {
    let rig = rig_with(
        Limits {
            header_read: Duration::from_millis(100),
            ..Limits::default()
        },
        8,
    );
    for slow in ["", "GET /livez HTTP/1.1\r\nHost:"] {
        let stream = TcpStream::connect(rig.addr).await.unwrap();
        let began = Instant::now();
        assert_eq!(
            until_closed(stream, slow).await,
            "",
            "no answer to half a question"
        );
        assert!(began.elapsed() >= Duration::from_millis(90));
    }
    let idle = TcpStream::connect(rig.addr).await.unwrap();
    let answer = until_closed(idle, "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(answer.ends_with("alive\n"), "{answer}");
}

#[tokio::test]
async fn oversize_heads_are_431() {
    let rig = rig();
    let long = format!("X-Long: {}\r\n", "x".repeat(100_000));
    let many: String = (0..65).map(|n| format!("X-{n}: 1\r\n")).collect();
    for fields in [long, many] {
        let stream = TcpStream::connect(rig.addr).await.unwrap();
        let answer = until_closed(stream, &format!("GET /livez HTTP/1.1\r\n{fields}\r\n")).await;
        let expected = "HTTP/1.1 431 Request Header Fields Too Large";
        assert_eq!(status(&answer), expected);
    }
    let near: String = (0..60)
        .map(|n| format!("X-{n}: {}\r\n", "x".repeat(100)))
        .collect();
    let stream = TcpStream::connect(rig.addr).await.unwrap();
    let request = format!("GET /livez HTTP/1.1\r\nConnection: close\r\n{near}\r\n");
    assert!(until_closed(stream, &request).await.contains(" 200 "));
}

#[tokio::test]
async fn garbage_is_400_or_nothing() {
    let rig = rig();
    for garbage in [
        "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        "GET\r\n\r\n",
        "GET /livez HTTP/9\r\n\r\n",
    ] {
        let stream = TcpStream::connect(rig.addr).await.unwrap();
        let answer = until_closed(stream, garbage).await;
        assert!(answer.is_empty() || answer.contains(" 400 "), "{answer}");
    }
    assert!(ask(rig.addr, "GET /livez").await.contains(" 200 "));
}

#[tokio::test]
async fn no_body_is_read_and_its_sender_gets_an_answer() {
    let mut rig = rig();
    let body = "x".repeat(100_000);
    for (line, expected) in [
        ("POST /drain", "HTTP/1.1 413 Payload Too Large"),
        ("GET /wait-for-drain", "HTTP/1.1 413 Payload Too Large"),
        ("POST /nowhere", "HTTP/1.1 404 Not Found"),
    ] {
        let stream = TcpStream::connect(rig.addr).await.unwrap();
        let request =
            format!("{line} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n{body}");
        let answer = until_closed(stream, &request).await;
        assert_eq!(status(&answer), expected);
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
    assert!(rig.notices.try_recv().is_err());
}

#[tokio::test]
async fn http_1_0_is_served() {
    let rig = rig();
    let stream = TcpStream::connect(rig.addr).await.unwrap();
    let answer = until_closed(stream, "GET /livez HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
}

#[tokio::test]
async fn a_full_house_says_503_and_keeps_places_for_the_pod() {
    let mut rig = rig_with(
        Limits {
            connections: 1,
            reserve: 1,
            ..Limits::default()
        },
        8,
    );
    let mut first = connect_as_envoy(rig.addr).await;
    let hold = b"GET /wait-for-drain HTTP/1.1\r\nHost: a\r\n\r\n";
    first.write_all(hold).await.unwrap();
    let Notice::Opened { answer, .. } = notice(&mut rig).await else {
        panic!("a hook opens");
    };
    let second = connect_as_envoy(rig.addr).await;
    let refused = until_closed(second, "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(status(&refused), "HTTP/1.1 503 Service Unavailable");
    assert_eq!(metric(&rig, "tidegate_connections_refused_total "), 1.0);
    assert!(ask(rig.addr, "POST /drain").await.contains(" 200 "));

    answer.send(()).unwrap();
    assert!(empty_answer(&mut first).await.contains(" 200 "));
    drop(first);
    // Its place is free again as soon as the server has seen the end of it.
    timeout(LONG, async {
        loop {
            let next = connect_as_envoy(rig.addr).await;
            let request = "GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            if until_closed(next, request).await.contains(" 200 ") {
                break;
            }
        }
    })
    .await
    .expect("a place is given back");
}

#[tokio::test]
async fn a_peer_that_never_reads_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (tcp, _) = listener.accept().await.unwrap();
    let mut stream = Stream::new(tcp, Duration::from_millis(100));
    // More than the kernel's buffers hold.
    let answer = vec![b'x'; 64 << 20];
    let error = timeout(LONG, stream.write_all(&answer))
        .await
        .expect("not for ever")
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    drop(peer);
}

#[test]
fn only_a_lack_of_something_backs_off() {
    let peers = [
        Errno::CONNABORTED,
        Errno::INTR,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
    ];
    for errno in peers {
        assert!(is_the_peers(&errno.into()), "{errno}");
    }
    for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
        assert!(!is_the_peers(&errno.into()), "{errno}");
    }
}
