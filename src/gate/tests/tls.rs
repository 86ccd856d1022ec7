//! TLS ended by the gate, passed by it, and what comes without it on the same port.

use std::path::Path;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;
use crate::certs::Files;
use crate::gate::listen::BindError;
use crate::gate::tls::Tls;

/// A Secret's files, and the certificate.
fn mount(dir: &Path) -> Vec<u8> {
    let params = CertificateParams::new(vec!["gate.test".to_owned()]).expect("a name");
    let key = KeyPair::generate().expect("a key");
    let cert = params.self_signed(&key).expect("a certificate").pem();
    std::fs::write(dir.join("tls.crt"), &cert).expect("written");
    std::fs::write(dir.join("tls.key"), key.serialize_pem()).expect("written");
    cert.into_bytes()
}

fn config(dir: &TempDir, upstream: SocketAddr) -> GateConfig {
    GateConfig {
        mode: Mode::Http,
        routes: vec![Route {
            listen: 0,
            upstream,
        }],
        tls: Some(Tls {
            files: Files {
                cert: dir.path().join("tls.crt"),
                key: dir.path().join("tls.key"),
            },
            look_every: Duration::from_millis(10),
        }),
        limits: Limits::default(),
        announce: Duration::ZERO,
    }
}

async fn connect(
    addr: SocketAddr,
    cert: &[u8],
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let cert = CertificateDer::from_pem_slice(cert).expect("PEM");
    roots.add(cert).expect("a certificate");
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let tcp = TcpStream::connect(addr).await.expect("connected");
    let name = ServerName::try_from("gate.test").expect("a name");
    within(TlsConnector::from(Arc::new(config)).connect(name, tcp)).await
}

#[tokio::test]
async fn tls_is_ended_and_the_workload_gets_what_was_said() {
    let dir = tempfile::tempdir().expect("a directory");
    let cert = mount(dir.path());
    let (gate, addr, _metrics) = serve(&config(&dir, echo().await));
    for protocol in ["h2", "http/1.1"] {
        let mut client = connect(addr, &cert, protocol).await.expect("a handshake");
        let agreed = client.get_ref().1.alpn_protocol();
        assert_eq!(agreed, Some(protocol.as_bytes()));
        // More than the buffers hold, of no protocol that the gate knows.
        let much: Vec<u8> = (0..4_000_000u32).map(|at| (at % 251) as u8).collect();
        let (mut read, mut write) = tokio::io::split(&mut client);
        let sender = async {
            write.write_all(&much).await.expect("sent");
            write.flush().await.expect("sent");
            write.shutdown().await.expect("closed");
        };
        let mut back = Vec::new();
        let receiver = async {
            read.read_to_end(&mut back).await.expect("closed in order");
        };
        within(async { tokio::join!(sender, receiver) }).await;
        assert!(back == much, "{} bytes", back.len());
    }
    let counter = gate.counter();
    within(counter.idle()).await;
    assert_eq!((counter.total(), counter.cut()), (2, 0));
}

#[tokio::test]
async fn without_tls_the_same_port_serves_as_well() {
    let dir = tempfile::tempdir().expect("a directory");
    mount(dir.path());
    let (_gate, addr, _metrics) = serve(&config(&dir, echo().await));
    let mut client = TcpStream::connect(addr).await.expect("connected");
    assert_eq!(ask(&mut client, b"\0plain").await, b"\0plain");
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_given_up_and_is_not_in_flight() {
    let dir = tempfile::tempdir().expect("a directory");
    mount(dir.path());
    let mut config = config(&dir, echo().await);
    config.limits.head = Duration::from_millis(100);
    let (gate, addr, metrics) = serve(&config);
    let mut client = TcpStream::connect(addr).await.expect("connected");
    client.write_all(b"\x16\x03\x01").await.expect("sent");
    assert_eq!(gate.counter().in_flight(), 0);
    let mut end = [0; 64];
    let read = within(client.read(&mut end)).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    drop(client);
    until(|| metric(&metrics, "tidegate_gate_connections_open 0")).await;
}

#[tokio::test]
async fn a_renewed_certificate_is_served_and_a_bad_one_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let old = mount(dir.path());
    let (_gate, addr, _metrics) = serve(&config(&dir, echo().await));
    connect(addr, &old, "h2").await.expect("the first");
    std::fs::write(dir.path().join("tls.crt"), "no certificate").expect("written");
    connect(addr, &old, "h2").await.expect("still the first");
    let new = mount(dir.path());
    within(async {
        while connect(addr, &new, "h2").await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(connect(addr, &old, "h2").await.is_err());
}

#[tokio::test]
async fn without_a_certificate_there_is_no_gate_that_ends_tls() {
    let dir = tempfile::tempdir().expect("a directory");
    let error = Bound::bind(&config(&dir, nobody().await))
        .err()
        .expect("none");
    assert!(matches!(error, BindError::Certificate(_)), "{error}");
    assert!(error.to_string().contains("tls.crt"), "{error}");
}

#[tokio::test]
async fn tls_passes_as_a_tunnel_where_the_gate_does_not_end_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let cert = mount(dir.path());
    let (_ending, behind, _) = serve(&config(&dir, echo().await));
    let (passing, addr, _) = gate(Mode::Http, behind, Limits::default());
    let mut client = connect(addr, &cert, "h2").await.expect("a handshake");
    client.write_all(b"\0sealed").await.expect("sent");
    let mut back = [0; 7];
    within(client.read_exact(&mut back)).await.expect("echoed");
    assert_eq!(&back, b"\0sealed");
    assert_eq!(tunnels(&passing.counter()), 1);
}
