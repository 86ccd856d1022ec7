//! The certificate by which the gate ends TLS: mounted files, looked at again as they change.

use std::time::{Duration, SystemTime};

use tokio_rustls::TlsAcceptor;

use super::listen::BindError;
use crate::certs::{self, Files, Look, Store};

/// How the gate ends TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate and its key, as in queue-proxy's Secret: `tls.crt` and `tls.key`.
    pub files: Files,
    /// How often they are looked at.
    pub look_every: Duration,
}

/// Reads the certificate for the first time.
pub(super) fn open(tls: &Tls) -> Result<(TlsAcceptor, Store), BindError> {
    let mut store = Store::new(tls.files.clone());
    if let Look::Failed(error) = store.look(SystemTime::now()) {
        return Err(BindError::Certificate(error));
    }
    let acceptor = certs::acceptor(store.serving(), &["h2", "http/1.1"])?;
    Ok((acceptor, store))
}

/// Looks at the files for ever.
pub(super) async fn watch(mut store: Store, every: Duration) {
    let mut complaint = None;
    loop {
        tokio::time::sleep(every).await;
        // Files can take their time.
        let looked = tokio::task::spawn_blocking(move || {
            let look = store.look(SystemTime::now());
            (store, look)
        });
        let Ok((same, look)) = looked.await else {
            return;
        };
        store = same;
        match look {
            Look::Same => {}
            Look::Loaded => {
                complaint = None;
                tracing::info!("the gate's certificate was renewed");
            }
            Look::Failed(error) => {
                let error = Some(error.to_string());
                if complaint != error {
                    tracing::warn!(error = error.as_deref(), "keeping the gate's certificate");
                    complaint = error;
                }
            }
        }
    }
}
