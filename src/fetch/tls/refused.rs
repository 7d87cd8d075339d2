//! Keeps rejected certificate chains, so that users can see why they were rejected.

use std::sync::{Arc, Mutex, PoisonError};

use super::{
    CertificateDer, Certificates, DigitallySignedStruct, Error, HandshakeSignatureValid,
    ServerCertVerified, ServerCertVerifier, ServerName, SignatureScheme, UnixTime,
};

/// The last rejected chain, until its session takes it. The session does so in the same call that
/// verified it, and one thread runs all sessions of a crawl, so there is at most one at a time.
#[derive(Debug, Default)]
pub(super) struct RejectedChain(Mutex<Option<Certificates>>);

impl RejectedChain {
    fn put(&self, chain: Certificates) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(chain);
    }

    /// Takes the chain that was just rejected, if that is why the handshake failed.
    pub(super) fn take(&self) -> Option<Certificates> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A verifier that delegates to another one and keeps the chains it rejects, which rustls drops.
#[derive(Debug)]
pub(super) struct KeepRejected {
    pub(super) inner: Arc<dyn ServerCertVerifier>,
    pub(super) refused: Arc<RejectedChain>,
}

impl ServerCertVerifier for KeepRejected {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        if verdict.is_err() {
            let chain = std::iter::once(end_entity).chain(intermediates);
            self.refused.put(Certificates::of(chain));
        }
        verdict
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
