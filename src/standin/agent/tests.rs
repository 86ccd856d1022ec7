//! The agent's end by version, as measured with the real one.

use std::time::Duration;

use super::*;
use crate::standin::{How, app, envoy};
use tokio::net::TcpStream;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(20);

struct Pod {
    _app: app::Handle,
    envoy: envoy::Handle,
    agent: Handle,
}

/// 5 s are 100 ms.
async fn pod(manners: Manners) -> Pod {
    let scale = Scale::new(0.02);
    let app = app::start(app::Config::default()).await.expect("app");
    let config = envoy::Config {
        connection_stats: true,
        scale,
        ..envoy::Config::new(app.addr)
    };
    let envoy = envoy::start(config).await.expect("envoy");
    let hook = Hook {
        addr: app.addr,
        path: "/?sleep=300000".to_owned(),
    };
    let config = Config {
        manners,
        hooks: BTreeMap::from([("user-container".to_owned(), hook)]),
        scale,
        ..Config::new(envoy.process.clone(), envoy.admin)
    };
    Pod {
        _app: app,
        envoy,
        agent: start(config).await.expect("agent"),
    }
}

async fn post(addr: SocketAddr, path: &str) -> StatusCode {
    client::request(Method::POST, addr, path, LIMIT)
        .await
        .expect(path)
        .0
}

fn posts(pod: &Pod) -> Vec<String> {
    pod.envoy
        .posts()
        .into_iter()
        .map(|post| post.path)
        .collect()
}

#[tokio::test]
async fn sigterm_drains_sleeps_and_kills_envoy() {
    let pod = pod(Manners::default()).await;
    let start = Instant::now();
    pod.agent.process.sigterm();
    assert_eq!(pod.agent.process.exited().await.how, How::Exited(0));
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert_eq!(pod.envoy.process.exited().await.how, How::Killed);
    assert_eq!(posts(&pod), ["/drain_listeners?inboundonly&graceful"]);
}

#[tokio::test]
async fn its_own_drain_makes_sigterm_immediate() {
    let long = Manners {
        termination_drain: Duration::from_secs(36_000),
        ..Manners::default()
    };
    let pod = pod(long).await;
    let (status, _) = client::request(Method::GET, pod.agent.addr, "/drain", LIMIT)
        .await
        .expect("answer");
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(post(pod.agent.addr, "/drain").await, StatusCode::OK);
    assert!(pod.agent.process.is_running() && pod.envoy.process.is_running());
    pod.agent.process.sigterm();
    assert_eq!(pod.agent.process.exited().await.how, How::Exited(0));
    pod.envoy.process.exited().await;
    assert_eq!(
        posts(&pod),
        ["/drain_listeners?inboundonly&graceful&skip_exit"]
    );
}

#[tokio::test]
async fn early_exit_follows_envoy_and_old_agents_sleep_on() {
    for early_exit in [true, false] {
        let termination_drain = Duration::from_secs(if early_exit { 36_000 } else { 10 });
        let manners = Manners {
            early_exit,
            drain_endpoint: false,
            termination_drain,
            ..Manners::default()
        };
        let pod = pod(manners).await;
        assert_eq!(post(pod.agent.addr, "/drain").await, StatusCode::NOT_FOUND);
        let start = Instant::now();
        pod.agent.process.sigterm();
        let mut seen = pod.envoy.watch_posts();
        seen.wait_for(|posts| !posts.is_empty())
            .await
            .expect("the drain");
        post(pod.envoy.admin, "/quitquitquit").await;
        pod.agent.process.exited().await;
        assert!(early_exit || start.elapsed() >= Duration::from_millis(200));
    }
}

#[tokio::test]
async fn exit_on_zero_waits_for_connections() {
    let manners = Manners {
        exit_on_zero: true,
        ..Manners::default()
    };
    let pod = pod(manners).await;
    let open = TcpStream::connect(pod.envoy.inbound)
        .await
        .expect("connects");
    pod.agent.process.sigterm();
    // Six times the minimum and one more: the connection still holds it.
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert!(pod.agent.process.is_running());
    drop(open);
    pod.agent.process.exited().await;
}

#[tokio::test]
async fn the_listener_closes_on_sigterm_while_an_open_hook_goes_on() {
    let manners = Manners {
        termination_drain: Duration::from_secs(100),
        ..Manners::default()
    };
    let pod = pod(manners).await;
    let path = "/app-lifecycle/user-container/prestopz";
    let hook = client::request(Method::GET, pod.agent.addr, path, LIMIT);
    let sigterm = async {
        while pod._app.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        pod.agent.process.sigterm();
        while TcpStream::connect(pod.agent.addr).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(pod.agent.process.is_running());
        assert_eq!(pod._app.in_flight(), 1, "the hook is still held");
    };
    let (answer, ()) = tokio::join!(hook, sigterm);
    assert!(
        matches!(answer, Err(client::Error::Broken(_))),
        "cut with the agent: {answer:?}"
    );
}

#[tokio::test]
async fn quit_means_what_the_version_says() {
    let now = pod(Manners {
        termination_drain: Duration::from_secs(36_000),
        ..Manners::default()
    });
    let now = now.await;
    assert_eq!(post(now.agent.addr, "/quitquitquit").await, StatusCode::OK);
    now.agent.process.exited().await;
    assert!(posts(&now).is_empty());

    let drains = pod(Manners {
        quit_disables_drain: false,
        ..Manners::default()
    })
    .await;
    assert_eq!(
        post(drains.agent.addr, "/quitquitquit").await,
        StatusCode::OK
    );
    drains.agent.process.exited().await;
    assert_eq!(posts(&drains), ["/drain_listeners?inboundonly&graceful"]);
}

#[tokio::test]
async fn wait_polls_until_200() {
    let app = app::start(app::Config::default()).await.expect("app");
    let (period, short) = (Duration::from_millis(5), Duration::from_millis(50));
    wait(app.addr, "/", LIMIT, period, LIMIT)
        .await
        .expect("200 at once");
    let error = wait(app.addr, "/?bytes=no", short, period, LIMIT)
        .await
        .expect_err("400 for ever");
    assert!(error.contains("timeout"), "{error}");
}
