//! A serving certificate and its key: read as one generation, looked at again by content, the last
//! good pair kept.
//!
//! A mounted Secret changes by the swap of one symbolic link under both files, so a reader may see the
//! certificate of one generation and the key of the next. Such a pair does not match, or the
//! certificate has changed once the key is read: it is not taken, and the next look finds it whole.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use yasna::models::TaggedDerValue;
use yasna::tags::{TAG_GENERALIZEDTIME, TAG_UTCTIME};
use yasna::{ASN1Error, ASN1ErrorKind, BERReader, BERReaderSeq, Tag};

use crate::telemetry::Rfc3339;

#[cfg(test)]
pub(crate) mod mount;
#[cfg(test)]
mod tests;

/// The longest file that is read, in bytes: a Secret's limit.
const FILE_MAX: u64 = 1 << 20;

/// Why a pair cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}; mount the Secret with tls.crt and tls.key", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file is no Secret's.
    #[error("{} is longer than {FILE_MAX} bytes; give a PEM file", .0.display())]
    TooLong(PathBuf),
    /// Only one of the two is from this generation.
    #[error("the certificate changed while its key was read")]
    Changed,
    /// No PEM, or broken.
    #[error("the certificate is not PEM: {0}")]
    Certificate(pem::Error),
    /// PEM without a certificate.
    #[error("the certificate's file has no CERTIFICATE section")]
    NoCertificate,
    /// No PEM, or no key in it.
    #[error("the key is not PEM: {0}")]
    Key(pem::Error),
    /// Of a kind that is not supported, or not the certificate's.
    #[error("the key cannot serve the certificate: {0}")]
    Pair(#[from] rustls::Error),
    /// No X.509.
    #[error("no validity in the certificate: {0}")]
    Validity(#[from] ASN1Error),
    /// Too late.
    #[error("the certificate expired at {}; renew it", Rfc3339(*.0))]
    Expired(SystemTime),
    /// Too early.
    #[error("the certificate is not valid before {}; see whether the clocks agree", Rfc3339(*.0))]
    NotYet(SystemTime),
}

/// A certificate with its chain, and the key.
#[derive(Debug)]
pub struct Pair {
    key: Arc<CertifiedKey>,
    /// The latest beginning in the chain.
    not_before: SystemTime,
    /// The earliest end in the chain.
    not_after: SystemTime,
}

impl Pair {
    /// Reads PEM: the certificate first, its chain after it; the key as PKCS #8, SEC1 or PKCS #1.
    ///
    /// # Errors
    ///
    /// On what is no pair. Validity is read, not judged.
    pub fn parse(cert: &[u8], key: &[u8]) -> Result<Pair, CertError> {
        let chain = CertificateDer::pem_slice_iter(cert)
            .collect::<Result<Vec<_>, _>>()
            .map_err(CertError::Certificate)?;
        let mut validity: Option<(SystemTime, SystemTime)> = None;
        for der in &chain {
            let (begins, ends) = self::validity(der)?;
            validity = Some(match validity {
                None => (begins, ends),
                Some((latest, earliest)) => (latest.max(begins), earliest.min(ends)),
            });
        }
        let (not_before, not_after) = validity.ok_or(CertError::NoCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(CertError::Key)?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        Ok(Pair {
            key: Arc::new(key),
            not_before,
            not_after,
        })
    }

    /// When it expires.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Whether clients take it now.
    ///
    /// # Errors
    ///
    /// Too early, or too late.
    pub fn check(&self, now: SystemTime) -> Result<(), CertError> {
        if now < self.not_before {
            Err(CertError::NotYet(self.not_before))
        } else if now >= self.not_after {
            Err(CertError::Expired(self.not_after))
        } else {
            Ok(())
        }
    }
}

// ===== files =====

/// Where a pair lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate and its chain, PEM.
    pub cert: PathBuf,
    /// The key, PEM.
    pub key: PathBuf,
}

#[derive(PartialEq, Eq)]
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    fn read(&self) -> Result<Contents, CertError> {
        let cert = read(&self.cert)?;
        let key = read(&self.key)?;
        if read(&self.cert)? != cert {
            return Err(CertError::Changed);
        }
        Ok(Contents { cert, key })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CertError> {
    let failed = |source| CertError::Read {
        path: path.to_owned(),
        source,
    };
    let mut contents = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_MAX + 1)
        .read_to_end(&mut contents)
        .map_err(failed)?;
    if contents.len() as u64 > FILE_MAX {
        return Err(CertError::TooLong(path.to_owned()));
    }
    Ok(contents)
}

/// The pair that is served, or why there is none.
pub(crate) type Serving = Result<Arc<Pair>, String>;

/// What a look at the files found.
#[derive(Debug)]
pub(crate) enum Look {
    /// What is served already.
    Same,
    /// A new pair, served from now on.
    Loaded,
    /// Nothing that could be served; what was served before still is.
    Failed(CertError),
}

/// Looks at the files, and keeps the last pair that was good.
pub(crate) struct Store {
    files: Files,
    /// What the pair that is served was read from.
    contents: Option<Contents>,
    serving: watch::Sender<Serving>,
}

impl Store {
    /// Has not looked yet.
    pub(crate) fn new(files: Files) -> Store {
        let (serving, _) = watch::channel(Err("the certificate has not been read".to_owned()));
        Store {
            files,
            contents: None,
            serving,
        }
    }

    /// The pair that is served, as it changes.
    pub(crate) fn serving(&self) -> watch::Receiver<Serving> {
        self.serving.subscribe()
    }

    /// Looks at the files; blocks for as long as reading them takes.
    pub(crate) fn look(&mut self, now: SystemTime) -> Look {
        match self.try_look(now) {
            Ok(look) => look,
            Err(error) => {
                if self.contents.is_none() {
                    let _ = self.serving.send_replace(Err(error.to_string()));
                }
                Look::Failed(error)
            }
        }
    }

    fn try_look(&mut self, now: SystemTime) -> Result<Look, CertError> {
        let contents = self.files.read()?;
        if self.contents.as_ref() == Some(&contents) {
            return Ok(Look::Same);
        }
        let pair = Pair::parse(&contents.cert, &contents.key)?;
        pair.check(now)?;
        let _before = self.serving.send_replace(Ok(Arc::new(pair)));
        self.contents = Some(contents);
        Ok(Look::Loaded)
    }
}

/// Gives each handshake the pair that is served at its time; none, and the handshake fails.
#[derive(Debug)]
struct Resolver(watch::Receiver<Serving>);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let serving = self.0.borrow();
        serving.as_ref().ok().map(|pair| pair.key.clone())
    }
}

/// TLS 1.2 and 1.3, by ring; each handshake gets the certificate that is served at its time.
pub(crate) fn acceptor(
    serving: watch::Receiver<Serving>,
    protocols: &[&str],
) -> Result<TlsAcceptor, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Resolver(serving)));
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

// ===== X.509 =====

/// When a certificate begins and ends to be valid (RFC 5280, 4.1).
fn validity(der: &[u8]) -> Result<(SystemTime, SystemTime), ASN1Error> {
    yasna::parse_der(der, |certificate| {
        certificate.read_sequence(|certificate| {
            let validity = certificate.next().read_sequence(|fields| {
                let _version = fields.read_optional(|version| {
                    version.read_tagged(Tag::context(0), |version| version.read_u8())
                })?;
                let _serial = any(fields)?;
                let _algorithm = any(fields)?;
                let _issuer = any(fields)?;
                let validity = fields.next().read_sequence(|validity| {
                    Ok((time(validity.next())?, time(validity.next())?))
                })?;
                rest(fields)?;
                Ok(validity)
            })?;
            rest(certificate)?;
            Ok(validity)
        })
    })
}

fn any(fields: &mut BERReaderSeq<'_, '_>) -> Result<TaggedDerValue, ASN1Error> {
    fields.next().read_tagged_der()
}

fn rest(fields: &mut BERReaderSeq<'_, '_>) -> Result<(), ASN1Error> {
    while fields
        .read_optional(|field| field.read_tagged_der())?
        .is_some()
    {}
    Ok(())
}

fn time(reader: BERReader<'_, '_>) -> Result<SystemTime, ASN1Error> {
    let time = match reader.lookahead_tag()? {
        TAG_UTCTIME => *reader.read_utctime()?.datetime(),
        TAG_GENERALIZEDTIME => *reader.read_generalized_time()?.datetime(),
        _ => return Err(ASN1Error::new(ASN1ErrorKind::Invalid)),
    };
    Ok(SystemTime::from(time))
}
