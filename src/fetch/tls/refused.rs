//! Certificate chains that were refused, kept for whoever wants to see why.

use std::sync::{Arc, Mutex, PoisonError};

use super::{
    CertificateDer, Certificates, DigitallySignedStruct, Error, HandshakeSignatureValid,
    ServerCertVerified, ServerCertVerifier, ServerName, SignatureScheme, UnixTime,
};

/// The chain that was refused last, until the session that it was shown to takes it: it does so in
/// the call that had it judged, and one thread carries all sessions of a crawl, so that there never
/// are two.
#[derive(Debug, Default)]
pub(super) struct Refused(Mutex<Option<Certificates>>);

impl Refused {
    fn put(&self, chain: Certificates) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(chain);
    }

    /// What was refused just now, if that was what went wrong.
    pub(super) fn take(&self) -> Option<Certificates> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Judges as another does, and keeps what that one refuses: the library drops it.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) judge: Arc<dyn ServerCertVerifier>,
    pub(super) refused: Arc<Refused>,
}

impl ServerCertVerifier for Keeping {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict = self.judge.verify_server_cert(
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
        self.judge.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.judge.supported_verify_schemes()
    }
}
