//! The certificates that a server showed.

use std::fmt;
use std::sync::Arc;

use super::CertificateDer;

/// The certificates that a server showed, its own first, as they came: DER of X.509 (RFC 5280). Of a
/// resumed session they are those of the first. A clone shares them; without TLS there is nothing.
///
/// Whether they are to be believed [`TlsInfo::verified`] says. Where there is none since the handshake
/// failed (`tls.expired`, `tls.untrusted`), they are what was refused, and anyone on the way may have
/// sent them: they tell what to mend, not who answered. They are not sorted, and the root is among
/// them only where the server sent it.
///
/// [`TlsInfo::verified`]: super::TlsInfo::verified
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Certificates(Option<Arc<[Box<[u8]>]>>);

impl Certificates {
    pub(super) fn of<'a>(chain: impl IntoIterator<Item = &'a CertificateDer<'a>>) -> Self {
        let chain = chain.into_iter().map(|der| der.as_ref().into());
        Certificates(Some(chain.collect()))
    }

    /// Each of them, in DER, in the order of the handshake.
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

    /// How many there are: 0 where there was no TLS, or none that came as far as to show any.
    pub fn len(&self) -> usize {
        self.iter().len()
    }

    /// Whether there are none.
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
