//! The certificates of a server.

use std::fmt;
use std::sync::Arc;

use super::CertificateDer;

/// The certificates sent by a server, its own first, in the order received: DER of X.509 (RFC
/// 5280). For a resumed session they are those of the first one. Clones share them; without TLS
/// there are none.
///
/// [`TlsInfo::verified`] is set if they were verified. If it is missing because the handshake
/// failed (`tls.expired`, `tls.untrusted`), these are the rejected certificates, and anyone on the
/// network path may have sent them: use them to find the fault, not to identify the server. They
/// are not sorted, and the root is included only if the server sent it.
///
/// [`TlsInfo::verified`]: super::TlsInfo::verified
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Certificates(Option<Arc<[Box<[u8]>]>>);

impl Certificates {
    pub(super) fn of<'a>(chain: impl IntoIterator<Item = &'a CertificateDer<'a>>) -> Self {
        let chain = chain.into_iter().map(|der| der.as_ref().into());
        Certificates(Some(chain.collect()))
    }

    /// The certificates in DER, in the order of the handshake.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0
            .as_deref()
            .unwrap_or_default()
            .iter()
            .map(|der| &**der)
    }

    /// The server's own certificate, in DER.
    pub fn end_entity(&self) -> Option<&[u8]> {
        self.iter().next()
    }

    /// Number of certificates: 0 without TLS, or if the handshake failed before the server sent
    /// any.
    pub fn len(&self) -> usize {
        self.iter().len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = self.iter().map(<[u8]>::len);
        f.debug_list()
            .entries(lengths.map(|length| format!("{length} octets")))
            .finish()
    }
}
