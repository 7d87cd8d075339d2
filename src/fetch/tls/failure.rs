//! Converts TLS errors, mostly about certificates, to failures with stable codes.

use std::borrow::Cow;

use super::{AlertDescription, CertificateError, Error, PeerMisbehaved};
use crate::fetch::failure::{Failure, FailureKind};

/// Converts an error to a failure whose code does not depend on the library's wording.
pub(super) fn failure(error: &Error) -> Failure {
    let code = match error {
        Error::InvalidCertificate(trouble) => return certificate_failure(trouble),
        Error::NoCertificatesPresented => "bad_certificate",
        Error::NoApplicationProtocol
        | Error::AlertReceived(AlertDescription::NoApplicationProtocol)
        | Error::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedApplicationProtocol) => "alpn",
        Error::PeerIncompatible(_)
        | Error::AlertReceived(
            AlertDescription::HandshakeFailure
            | AlertDescription::ProtocolVersion
            | AlertDescription::InsufficientSecurity,
        ) => "handshake",
        Error::AlertReceived(AlertDescription::UnrecognisedName) => "unrecognized_name",
        Error::AlertReceived(AlertDescription::CertificateRequired) => "client_certificate",
        Error::AlertReceived(_) => "alert",
        Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::InvalidMessage(_)
        | Error::DecryptError
        | Error::PeerSentOversizedRecord
        | Error::PeerMisbehaved(_) => "protocol",
        _ => "internal",
    };
    Failure::new(FailureKind::Tls, code, error.to_string())
}

fn certificate_failure(trouble: &CertificateError) -> Failure {
    use CertificateError as Trouble;
    let (code, detail): (&'static str, Cow<'static, str>) = match trouble {
        Trouble::NotValidForName | Trouble::NotValidForNameContext { .. } => {
            ("name_mismatch", trouble.to_string().into())
        }
        Trouble::Expired | Trouble::ExpiredContext { .. } => {
            ("expired", trouble.to_string().into())
        }
        Trouble::NotValidYet | Trouble::NotValidYetContext { .. } => {
            ("not_yet_valid", trouble.to_string().into())
        }
        Trouble::Revoked => ("revoked", "the certificate was revoked".into()),
        Trouble::UnknownIssuer => (
            "untrusted",
            "the certificate is self-signed or its issuer is not trusted (--ca-file adds one)"
                .into(),
        ),
        // The library has no variant for this one.
        Trouble::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => (
            "untrusted",
            "the server presents an authority's certificate, most likely self-signed, as its own"
                .into(),
        ),
        other => ("bad_certificate", other.to_string().into()),
    };
    Failure::new(FailureKind::Tls, code, detail)
}
