//! A certificate authority of the test's own, and what it signs.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// Signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub(crate) struct Identity {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, key());
        Authority(issuer.expect("a certificate of an authority"))
    }

    /// Its own certificate, as PEM.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// For a server that is called by these names or addresses.
    pub(crate) fn server(&self, names: &[&str]) -> Identity {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names and addresses");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// For a client that Kubernetes knows as `user`, a member of `group`.
    pub(crate) fn client(&self, user: &str, group: &str) -> Identity {
        let mut params = CertificateParams::default();
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, user);
        name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = key();
        let cert = params.signed_by(&key, &self.0).expect("a certificate");
        Identity {
            cert: cert.pem(),
            key: key.serialize_pem(),
        }
    }
}

/// A new P-256 key.
pub(crate) fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}
