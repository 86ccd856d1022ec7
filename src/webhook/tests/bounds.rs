//! What is not a review gets a proper answer, and nothing gets more than its share.

use super::*;

/// Whole requests and what they are answered.
#[tokio::test]
async fn what_is_no_review_is_told_so() {
    let rig = rig();
    let head = |line: &str, fields: &str| format!("{line} HTTP/1.1\r\nhost: x\r\n{fields}\r\n");
    let json = "content-type: application/json\r\n";
    let table = [
        (head("GET /", ""), 404, "/mutate"),
        (head("POST /mutat", "content-length: 0\r\n"), 404, "/mutate"),
        (head("GET /mutate", ""), 405, "use POST"),
        (
            head("PUT /mutate", "content-length: 0\r\n"),
            405,
            "use POST",
        ),
        (
            head("POST /mutate", "content-length: 2\r\n") + "{}",
            415,
            "application/json",
        ),
        (
            head(
                "POST /mutate",
                "content-type: text/plain\r\ncontent-length: 2\r\n",
            ) + "{}",
            415,
            "application/json",
        ),
        (
            head(
                "POST /mutate",
                &format!("{json}content-length: 3145729\r\n"),
            ),
            413,
            "3145728",
        ),
        (
            head(
                "POST /mutate",
                &format!("{json}content-length: 99999999999999\r\n"),
            ),
            413,
            "3145728",
        ),
        (
            post("{", "connection: close\r\n"),
            400,
            "not an AdmissionReview",
        ),
        (
            post("", "connection: close\r\n"),
            400,
            "not an AdmissionReview",
        ),
        (
            post(
                "{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}",
                "connection: close\r\n",
            ),
            400,
            "\"Pod\"",
        ),
    ];
    for (request, status, named) in table {
        let mut stream = rig.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        // 404 leaves the connection open where there was no body.
        let answered = next_answer(&mut stream).await;
        assert_eq!(answered.status, status, "{request:?}: {answered:?}");
        assert!(answered.body.contains(named), "{request:?}: {answered:?}");
    }
    assert_eq!(
        rig.metric("tidegate_webhook_requests_rejected_total{why=\"verb\"}")
            .await,
        "2"
    );
    assert_eq!(
        rig.metric("tidegate_webhook_requests_rejected_total{why=\"malformed\"}")
            .await,
        "3"
    );
}

#[tokio::test]
async fn a_content_type_may_have_parameters() {
    let rig = rig();
    let body = review_of("a");
    let request = format!(
        "POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-type: Application/JSON; charset=utf-8\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = rig.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_patched(&answer_of(stream).await, "a");
}

/// Chunked, so that no length gives it away.
#[tokio::test]
async fn a_body_that_grows_too_large_is_cut_off_with_413() {
    let rig = rig_with(|o| o.limits.body_bytes = 10_000, Box::new(marked), true);
    let mut stream = rig.connect().await;
    let head = "POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 4_000, " ".repeat(4_000));
    for _ in 0..3 {
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    let answered = answer_of(stream).await;
    assert_eq!(answered.status, 413, "{answered:?}");
}

#[tokio::test]
async fn slow_peers_are_told_or_cut_off() {
    let change = |options: &mut Options| {
        options.limits.handshake = Duration::from_millis(200);
        options.limits.head = Duration::from_millis(200);
        options.limits.request = Duration::from_millis(200);
    };
    let rig = rig_with(change, Box::new(marked), true);

    // No handshake.
    let tcp = TcpStream::connect(rig.addr).await.unwrap();
    let cut = answer_of(tcp).await;
    assert_eq!(cut.status, 0);
    assert_eq!(
        rig.metric("tidegate_webhook_handshakes_failed_total").await,
        "1"
    );

    // Half a head.
    let mut stream = rig.connect().await;
    stream.write_all(b"POST /mutate HTT").await.unwrap();
    stream.flush().await.unwrap();
    let mut rest = Vec::new();
    let cut = timeout(LIMIT, stream.read_to_end(&mut rest))
        .await
        .expect("held");
    assert!(cut.is_err() || rest.is_empty(), "{rest:?}");

    // Half a body.
    let mut stream = rig.connect().await;
    let request = post(&review_of("a"), "");
    stream
        .write_all(&request.as_bytes()[..request.len() - 1])
        .await
        .unwrap();
    let answered = answer_of(stream).await;
    assert_eq!(answered.status, 408, "{answered:?}");
    assert!(answered.body.contains("0.2 s"), "{answered:?}");
}

#[tokio::test]
async fn an_idle_connection_is_kept_for_longer_than_a_head_may_take() {
    let change = |options: &mut Options| {
        options.limits.head = Duration::from_millis(50);
        options.limits.idle = Duration::from_millis(500);
    };
    let rig = rig_with(change, Box::new(marked), true);
    let mut stream = rig.connect().await;
    for name in ["a", "b"] {
        stream
            .write_all(post(&review_of(name), "").as_bytes())
            .await
            .unwrap();
        assert_patched(&next_answer(&mut stream).await, name);
        // Several heads' time, in which nothing comes and nothing ends.
        let mut byte = [0];
        let quiet = timeout(Duration::from_millis(200), stream.read(&mut byte)).await;
        assert!(quiet.is_err(), "{quiet:?}");
    }
    let mut rest = Vec::new();
    let _ = timeout(LIMIT, stream.read_to_end(&mut rest))
        .await
        .expect("kept for ever");
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_body_that_never_ends_gives_its_room_back() {
    let change = |options: &mut Options| {
        options.limits.body_bytes = 64 << 10;
        options.limits.bodies_bytes = 64 << 10;
        options.limits.request = Duration::from_millis(300);
    };
    let rig = rig_with(change, Box::new(marked), true);
    // Takes all the room, for as long as a request may take.
    let mut greedy = rig.connect().await;
    let head = "POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                content-length: 65536\r\n\r\n";
    greedy.write_all(head.as_bytes()).await.unwrap();
    greedy.flush().await.unwrap();
    assert_eq!(answer_of(greedy).await.status, 408);
    // Given back: the next one is served.
    let mut stream = rig.connect().await;
    stream
        .write_all(post(&review_of("a"), "connection: close\r\n").as_bytes())
        .await
        .unwrap();
    assert_patched(&answer_of(stream).await, "a");
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_counted() {
    let rig = rig_with(|o| o.limits.connections = 2, Box::new(marked), true);
    let first = rig.connect().await;
    let mut second = rig.connect().await;
    let third = TcpStream::connect(rig.addr).await.unwrap();
    assert_eq!(answer_of(third).await.status, 0);
    assert_eq!(
        rig.metric("tidegate_webhook_connections_refused_total")
            .await,
        "1"
    );
    second
        .write_all(post(&review_of("b"), "").as_bytes())
        .await
        .unwrap();
    assert_patched(&next_answer(&mut second).await, "b");
    drop(first);
    // Its place is free once the server has seen the end.
    let free = async {
        loop {
            let tcp = TcpStream::connect(rig.addr).await.unwrap();
            let name = ServerName::try_from(SERVER).unwrap();
            if rig.client().connect(name, tcp).await.is_ok() {
                break;
            }
        }
    };
    timeout(LIMIT, free).await.expect("never free");
}
