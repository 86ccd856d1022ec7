use super::*;
use crate::envoy::http::tests::{LONG, Server, nobody, with_length};

#[tokio::test]
async fn drain() {
    let server = Server::start(with_length("200 OK", b"OK")).await;
    let agent = Agent::new(server.address.clone()).with_timeout(LONG);
    assert_eq!(agent.drain().await, Ok(()));
    assert!(server.head().starts_with("POST /drain HTTP/1.1\r\n"));
    assert_eq!(agent.listening().await, Ok(()));
}

#[tokio::test]
async fn an_agent_without_drain() {
    let server = Server::start(with_length("404 Not Found", b"404 page not found\n")).await;
    let agent = Agent::new(server.address.clone()).with_timeout(LONG);
    assert_eq!(agent.drain().await, Err(CallError::Status(404)));
}

#[tokio::test]
async fn an_agent_that_is_gone() {
    let agent = Agent::new(nobody().await).with_timeout(LONG);
    assert_eq!(agent.drain().await, Err(CallError::Refused));
    assert_eq!(agent.listening().await, Err(CallError::Refused));
}
