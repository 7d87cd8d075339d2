//! A certificate authority for tests.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// An authority that is trusted only where it is configured.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "A test's authority");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("it signs itself");
        Authority { issuer }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// How a server shows a certificate for this name, made after the caller's wishes.
    pub fn server(
        &self,
        name: &str,
        wishes: impl FnOnce(&mut CertificateParams),
    ) -> Arc<ServerConfig> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let (certificate, key) = self.certificate(name, wishes);
        config(provider.into(), vec![certificate], key)
    }

    /// The same by another provider, with the authority's own certificate after it; also both.
    pub fn chain_server(
        &self,
        provider: Arc<CryptoProvider>,
        name: &str,
    ) -> (Arc<ServerConfig>, [CertificateDer<'static>; 2]) {
        let (certificate, key) = self.certificate(name, |_| {});
        let chain = [certificate, self.issuer.der().clone()];
        (config(provider, chain.to_vec(), key), chain)
    }

    fn certificate(
        &self,
        name: &str,
        wishes: impl FnOnce(&mut CertificateParams),
    ) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        wishes(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("it is signed");
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        (certificate.der().clone(), key.into())
    }
}

fn config(
    provider: Arc<CryptoProvider>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Arc<ServerConfig> {
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the versions are known")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("certificate and key fit");
    Arc::new(config)
}
