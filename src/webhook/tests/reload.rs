//! The certificate is replaced while reviews come in.

use super::*;

/// The certificate that a new connection is shown.
async fn shown(rig: &Rig) -> Vec<u8> {
    let stream = rig.connect().await;
    let (_, tls) = stream.get_ref();
    tls.peer_certificates().unwrap()[0].to_vec()
}

/// Waits until new connections are shown another certificate than `before`.
async fn until_replaced(rig: &Rig, before: &[u8]) -> Vec<u8> {
    let replaced = async {
        loop {
            let now = shown(rig).await;
            if now != before {
                return now;
            }
        }
    };
    timeout(LIMIT, replaced).await.expect("never replaced")
}

#[tokio::test]
async fn two_hundred_reviews_in_parallel_while_the_certificate_is_replaced_twice() {
    const CLIENTS: usize = 200;
    let mut rig = rig();
    let generations = [installed(), installed()];
    // As an administrator does it: first all CAs in caBundle, then the Secret.
    rig.bundles
        .extend(generations.iter().map(|g| g.bundle.clone()));
    let (over, is_over) = watch::channel(false);

    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (client, addr, is_over) = (rig.client(), rig.addr, is_over.clone());
        clients.spawn(async move {
            let mut reviews = 0;
            loop {
                // Read first, so that at least one review begins after the last replacement.
                let last = *is_over.borrow();
                let name = format!("{number}-{reviews}");
                let mut stream = connect(&client, addr).await;
                // Two on a connection: the second may come after its certificate was replaced.
                for _ in 0..2 {
                    stream
                        .write_all(post(&review_of(&name), "").as_bytes())
                        .await
                        .unwrap();
                    assert_patched(&next_answer(&mut stream).await, &name);
                    reviews += 1;
                }
                if last {
                    return reviews;
                }
            }
        });
    }
    let mut current = shown(&rig).await;
    for generation in &generations {
        publish(&mut rig.mount, &generation.secret);
        current = until_replaced(&rig, &current).await;
    }
    over.send_replace(true);
    let mut reviews = 0;
    while let Some(client) = timeout(LIMIT, clients.join_next()).await.unwrap() {
        reviews += client.unwrap();
    }
    assert!(reviews >= 2 * CLIENTS, "{reviews}");
    let counted = rig
        .metric("tidegate_webhook_reviews_total{result=\"patched\"}")
        .await;
    assert_eq!(counted, reviews.to_string());
    let failed = rig.metric("tidegate_webhook_handshakes_failed_total").await;
    assert_eq!(failed, "0");
    let reloads = rig
        .metric("tidegate_webhook_certificate_reloads_total{result=\"ok\"}")
        .await;
    assert_eq!(reloads, "3");
}

#[tokio::test]
async fn without_a_certificate_it_is_not_ready_and_goes_on_looking() {
    let mut rig = rig_with(|_| {}, Box::new(marked), false);
    let answered = rig.health("/readyz").await;
    assert_eq!(answered.status, 503);
    assert!(answered.body.contains("mount the Secret"), "{answered:?}");
    assert_eq!(rig.health("/livez").await.status, 200);
    let tcp = TcpStream::connect(rig.addr).await.unwrap();
    let name = ServerName::try_from(SERVER).unwrap();
    assert!(rig.client().connect(name, tcp).await.is_err());

    let first = installed();
    publish(&mut rig.mount, &first.secret);
    rig.bundles = vec![first.bundle];
    let ready = async { while rig.health("/readyz").await.status != 200 {} };
    timeout(LIMIT, ready).await.expect("never ready");
    let mut stream = rig.connect().await;
    stream
        .write_all(post(&review_of("a"), "").as_bytes())
        .await
        .unwrap();
    assert_patched(&next_answer(&mut stream).await, "a");
}

#[tokio::test]
async fn a_broken_generation_changes_nothing_but_a_metric() {
    let mut rig = rig();
    let before = shown(&rig).await;
    let mut mixed = installed().secret;
    mixed["data"]["tls.key"] = installed().secret["data"]["tls.key"].clone();
    publish(&mut rig.mount, &mixed);
    let noticed = async {
        while rig
            .metric("tidegate_webhook_certificate_reloads_total{result=\"error\"}")
            .await
            == "0"
        {}
    };
    timeout(LIMIT, noticed).await.expect("never noticed");
    assert_eq!(shown(&rig).await, before);
    assert_eq!(rig.health("/readyz").await.status, 200);
}
