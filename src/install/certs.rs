//! A certificate of one's own: a CA that signs once, and what it signed.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use thiserror::Error;

use super::SELF_SIGNED_DAYS;

/// Clocks in a cluster may differ by this much.
const SKEW: Duration = Duration::from_secs(60 * 60);

/// Why no certificate could be made.
#[derive(Debug, Error)]
#[error("cannot make a certificate: {0}; use --certs cert-manager or --certs openshift")]
pub struct CertsError(#[from] rcgen::Error);

/// A serving certificate and the CA that signed it, PEM. The CA's key is gone: nobody can sign with it
/// again, and another run makes another CA.
#[derive(Clone, Debug)]
pub struct SelfSigned {
    /// The CA, for `caBundle`.
    pub ca: String,
    /// The serving certificate.
    pub cert: String,
    /// Its key, PKCS #8.
    pub key: String,
}

impl SelfSigned {
    /// Makes a pair for the Service `name` in `namespace`, by its names inside the cluster.
    ///
    /// # Errors
    ///
    /// Without random numbers, or where a name is none of DNS's.
    pub fn generate(name: &str, namespace: &str) -> Result<SelfSigned, CertsError> {
        let service = format!("{name}.{namespace}");
        let mut ca = params(Vec::new(), &format!("{service} CA"))?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_key = KeyPair::generate()?;
        let ca_cert = ca.self_signed(&ca_key)?;

        let names = ["", ".svc", ".svc.cluster.local"].map(|suffix| service.clone() + suffix);
        let mut leaf = params(names.to_vec(), &format!("{service}.svc"))?;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let cert = leaf.signed_by(&key, &Issuer::from_params(&ca, &ca_key))?;
        Ok(SelfSigned {
            ca: ca_cert.pem(),
            cert: cert.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn params(names: Vec<String>, common_name: &str) -> Result<CertificateParams, CertsError> {
    let now = SystemTime::now();
    let mut params = CertificateParams::new(names)?;
    params.not_before = (now - SKEW).into();
    params.not_after = (now + Duration::from_secs(u64::from(SELF_SIGNED_DAYS) * 86_400)).into();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    Ok(params)
}
