//! TLS over bytes: trust, names, sessions to resume, and certificate trouble in words that stay the same.
//!
//! The door to rustls. Nothing here touches a socket or a clock: wire bytes go in, plain bytes
//! come out, and the time is whatever the crawl last said with [`TlsConfig::set_now`].

mod refused;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{
    AlertDescription, CertificateError, CipherSuite, ClientConfig, ClientConnection,
    DigitallySignedStruct, Error, HandshakeKind, PeerMisbehaved, ProtocolVersion, RootCertStore,
    SignatureScheme,
};

use self::refused::{Keeping, Refused};
use super::failure::{Failure, FailureKind};
use crate::base::time::{Instant, Wall};

/// Whom to trust, and what time it is when the crawl begins.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// `--ca-file`: roots trusted beside the built-in ones.
    pub ca_file: Option<CaFile>,
    /// `--insecure`: nothing is verified.
    pub insecure: bool,
    /// Wall time at [`Instant::START`]; certificates are judged by it.
    pub wall_at_start: Wall,
    /// Hosts whose sessions are remembered, so that their next handshake costs half (about 8 kB each).
    pub session_hosts_max: usize,
}

impl TlsSettings {
    /// The built-in roots, everything verified.
    pub fn new(wall_at_start: Wall) -> Self {
        TlsSettings {
            ca_file: None,
            insecure: false,
            wall_at_start,
            session_hosts_max: 2048,
        }
    }
}

/// A PEM file with certificates to trust, read by the caller.
#[derive(Clone, Debug)]
pub struct CaFile {
    /// How to name it when something is wrong with it.
    pub name: String,
    /// What it holds.
    pub pem: Vec<u8>,
}

/// Why TLS cannot be set up at all: our own machine's trouble, not the web's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// Not a PEM file, or a broken one.
    #[error("CA file {name}: {reason}")]
    CaFileUnreadable {
        /// The file.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A PEM file without a certificate.
    #[error("CA file {name} holds no certificate (expected -----BEGIN CERTIFICATE-----)")]
    CaFileEmpty {
        /// The file.
        name: String,
    },
    /// A certificate that cannot be a root of trust.
    #[error("CA file {name}, certificate {number}: {reason}")]
    CaFileCertificate {
        /// The file.
        name: String,
        /// Which certificate of the file, from 1.
        number: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The cryptography refused its own defaults.
    #[error("TLS cannot be set up: {0}")]
    Provider(String),
}

impl TlsConfigError {
    /// The stable name.
    pub const fn code(&self) -> &'static str {
        match self {
            TlsConfigError::CaFileUnreadable { .. } => "ca_file.unreadable",
            TlsConfigError::CaFileEmpty { .. } => "ca_file.empty",
            TlsConfigError::CaFileCertificate { .. } => "ca_file.certificate",
            TlsConfigError::Provider(_) => "tls.provider",
        }
    }

    /// Whether another try may end otherwise: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// What TLS agreed on; `tls` of a result line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// The cipher suite by its IANA name.
    pub cipher: &'static str,
    /// The session was resumed.
    pub resumed: bool,
    /// The certificate was verified (false under `--insecure`).
    pub verified: bool,
}

/// The certificates that a server showed, its own first, as they came: DER of X.509 (RFC 5280). Of a
/// resumed session they are those of the first. A clone shares them; without TLS there is nothing.
///
/// Whether they are to be believed [`TlsInfo::verified`] says. Where there is none since the handshake
/// failed (`tls.expired`, `tls.untrusted`), they are what was refused, and anyone on the way may have
/// sent them: they tell what to mend, not who answered. They are not sorted, and the root is among
/// them only where the server sent it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Certificates(Option<Arc<[Box<[u8]>]>>);

impl Certificates {
    fn of<'a>(chain: impl IntoIterator<Item = &'a CertificateDer<'a>>) -> Self {
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

/// What all sessions of a crawl share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    client: Arc<ClientConfig>,
    refused: Arc<Refused>,
    time: Arc<CrawlTime>,
    wall_at_start: Wall,
    verified: bool,
}

impl TlsConfig {
    /// Reads the roots and fixes what every handshake offers.
    pub fn new(settings: &TlsSettings) -> Result<Self, TlsConfigError> {
        let time = Arc::new(CrawlTime(AtomicU64::new(settings.wall_at_start.0)));
        let provider = Arc::new(provider());
        let builder = ClientConfig::builder_with_details(provider.clone(), time.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsConfigError::Provider(error.to_string()))?;
        let mut roots = RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        if let Some(file) = &settings.ca_file {
            add_roots(&mut roots, file)?;
        }
        let judge: Arc<dyn ServerCertVerifier> = if settings.insecure {
            Arc::new(NoVerification(provider))
        } else {
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| TlsConfigError::Provider(error.to_string()))?
        };
        let refused = Arc::new(Refused::default());
        let verifier = Keeping {
            judge,
            refused: refused.clone(),
        };
        let mut client = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        // Some servers end the handshake over any other offer.
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        client.resumption = Resumption::in_memory_sessions(
            settings.session_hosts_max.saturating_mul(TICKETS_PER_HOST),
        );
        Ok(TlsConfig {
            client: Arc::new(client),
            refused,
            time,
            wall_at_start: settings.wall_at_start,
            verified: !settings.insecure,
        })
    }

    /// Tells every session what time it is. Call it once a turn.
    pub fn set_now(&self, now: Instant) {
        let wall = self.wall_at_start.at(now);
        self.time.0.store(wall.0, Ordering::Relaxed);
    }
}

/// One connection's TLS: a handshake, then bytes both ways.
pub struct TlsSession {
    connection: ClientConnection,
    refused: Arc<Refused>,
    verified: bool,
    peer_closed: bool,
    /// Copied once, for all exchanges of the connection.
    certificates: OnceCell<Certificates>,
}

impl TlsSession {
    /// Begins a handshake with `host`, a name or an address (IPv6 with or without brackets).
    ///
    /// A name goes into SNI, an address does not; the certificate must be valid for either.
    pub fn new(config: &TlsConfig, host: &str) -> Result<Self, Failure> {
        let name = server_name(host).ok_or_else(|| {
            let detail = format!("{host:?} is no name that a certificate could be valid for");
            Failure::new(FailureKind::Tls, "name", detail)
        })?;
        let mut connection =
            ClientConnection::new(config.client.clone(), name).map_err(|error| failure(&error))?;
        // What waits to leave is bounded by the requests, which the caller builds.
        connection.set_buffer_limit(None);
        Ok(TlsSession {
            connection,
            refused: config.refused.clone(),
            verified: config.verified,
            peer_closed: false,
            certificates: OnceCell::new(),
        })
    }

    /// Takes bytes from the wire, all of them, and appends what they carried to `plain`.
    ///
    /// After a failure `plain` still holds what came in good order before it, and
    /// [`TlsSession::take_output`] the alert that tells the peer. Either way there may be output.
    pub fn read(&mut self, mut wire: &[u8], plain: &mut Vec<u8>) -> Result<(), Failure> {
        while !wire.is_empty() {
            match self.connection.read_tls(&mut wire) {
                // Nothing counts after close_notify.
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => {
                    let detail = error.to_string();
                    return Err(Failure::new(FailureKind::Tls, "protocol", detail));
                }
            }
            let outcome = self.connection.process_new_packets();
            self.take_plain(plain);
            match outcome {
                Ok(state) => self.peer_closed = state.peer_has_closed(),
                Err(error) => {
                    if let Some(chain) = self.refused.take() {
                        self.certificates = OnceCell::from(chain);
                    }
                    return Err(failure(&error));
                }
            }
        }
        Ok(())
    }

    /// Queues bytes to be sent; before the end of the handshake they wait for it.
    pub fn write(&mut self, plain: &[u8]) {
        self.connection
            .writer()
            .write_all(plain)
            .expect("a TLS buffer without limit takes every byte");
    }

    /// Queues close_notify, which tells the peer that nothing was cut off.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Appends what is to go out on the wire to `out`.
    pub fn take_output(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            self.connection
                .write_tls(out)
                .expect("writing to a Vec does not fail");
        }
    }

    /// Whether the handshake is still under way.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the peer said close_notify: its bytes ended where it meant them to.
    pub fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// What was agreed on; `None` before the end of the handshake.
    pub fn info(&self) -> Option<TlsInfo> {
        if self.is_handshaking() {
            return None;
        }
        let version = match self.connection.protocol_version()? {
            ProtocolVersion::TLSv1_3 => "TLSv1.3",
            ProtocolVersion::TLSv1_2 => "TLSv1.2",
            _ => return None,
        };
        Some(TlsInfo {
            version,
            cipher: iana_name(self.connection.negotiated_cipher_suite()?.suite()),
            resumed: self.connection.handshake_kind() == Some(HandshakeKind::Resumed),
            verified: self.verified,
        })
    }

    /// What the server showed; nothing before the end of the handshake, or before it was refused for
    /// them.
    pub fn certificates(&self) -> Certificates {
        if self.is_handshaking() {
            return self.certificates.get().cloned().unwrap_or_default();
        }
        let copied = self.certificates.get_or_init(|| {
            let chain = self.connection.peer_certificates();
            chain.map(Certificates::of).unwrap_or_default()
        });
        copied.clone()
    }

    fn take_plain(&mut self, plain: &mut Vec<u8>) {
        let mut reader = self.connection.reader();
        // Ends with an empty chunk at close_notify and with WouldBlock everywhere else: neither is
        // news here.
        while let Ok(chunk) = reader.fill_buf()
            && !chunk.is_empty()
        {
            let taken = chunk.len();
            plain.extend_from_slice(chunk);
            reader.consume(taken);
        }
    }
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession")
            .field("handshaking", &self.is_handshaking())
            .field("info", &self.info())
            .finish_non_exhaustive()
    }
}

/// aws-lc-rs, with the one key share that nearly every server takes at once.
///
/// AES-128 with SHA-256 is preferred, as browsers prefer it: processors have instructions for that
/// hash and mostly none for SHA-384, and a resumed handshake is hashing for a good part.
fn provider() -> CryptoProvider {
    use aws_lc_rs::kx_group::{SECP256R1, SECP384R1, X25519, X25519MLKEM768};
    let mut provider = CryptoProvider {
        kx_groups: vec![X25519, SECP256R1, SECP384R1, X25519MLKEM768],
        ..aws_lc_rs::default_provider()
    };
    provider
        .cipher_suites
        .sort_by_key(|offered| !is_aes_128(offered.suite()));
    provider
}

fn is_aes_128(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

fn add_roots(roots: &mut RootCertStore, file: &CaFile) -> Result<(), TlsConfigError> {
    let name = || file.name.clone();
    let mut found = 0;
    for certificate in CertificateDer::pem_slice_iter(&file.pem) {
        let certificate = certificate.map_err(|error| TlsConfigError::CaFileUnreadable {
            name: name(),
            reason: error.to_string(),
        })?;
        found += 1;
        roots
            .add(certificate)
            .map_err(|error| TlsConfigError::CaFileCertificate {
                name: name(),
                number: found,
                reason: error.to_string(),
            })?;
    }
    match found {
        0 => Err(TlsConfigError::CaFileEmpty { name: name() }),
        _ => Ok(()),
    }
}

/// A host as certificates know it: without the brackets of IPv6.
fn server_name(host: &str) -> Option<ServerName<'static>> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    ServerName::try_from(bare.to_owned()).ok()
}

/// The name that IANA gives a suite; rustls marks the suites of TLS 1.3 in its own way.
fn iana_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("unknown"),
    }
}

/// What went wrong, under a code that outlives the wording of the library.
fn failure(error: &Error) -> Failure {
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
        // The library has no name of its own for this one.
        Trouble::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => (
            "untrusted",
            "the server presents an authority's certificate, most likely self-signed, as its own"
                .into(),
        ),
        other => ("bad_certificate", other.to_string().into()),
    };
    Failure::new(FailureKind::Tls, code, detail)
}

/// The crawl's wall time in nanoseconds, for whoever judges a certificate.
#[derive(Debug)]
struct CrawlTime(AtomicU64);

impl TimeProvider for CrawlTime {
    fn current_time(&self) -> Option<UnixTime> {
        let wall = Duration::from_nanos(self.0.load(Ordering::Relaxed));
        Some(UnixTime::since_unix_epoch(wall))
    }
}

/// `--insecure`: takes any certificate, and any proof that the server owns it.
#[derive(Debug)]
struct NoVerification(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// How rustls counts its session store: in tickets, of which a host may leave this many.
const TICKETS_PER_HOST: usize = 8;

#[cfg(test)]
pub(crate) mod testing {
    //! A server in memory, for the tests of this floor.

    use std::io::Read;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::ServerConnection;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    pub(crate) use rustls::version::{TLS12, TLS13};
    pub(crate) use rustls::{ServerConfig, SupportedProtocolVersion};

    use super::*;

    /// 2026-11-21, when these tests think they run.
    pub(crate) const WALL: Wall = Wall(1_795_219_200_000_000_000);

    /// An authority whose certificate goes into a `--ca-file`.
    pub(crate) struct Authority {
        issuer: CertifiedIssuer<'static, KeyPair>,
    }

    impl Authority {
        pub(crate) fn new() -> Self {
            let mut params = CertificateParams::new(Vec::new()).expect("no names");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            let issuer = CertifiedIssuer::self_signed(params, key).expect("an issuer");
            Authority { issuer }
        }

        pub(crate) fn ca_file(&self) -> CaFile {
            CaFile {
                name: "roots.pem".to_owned(),
                pem: self.issuer.pem().into_bytes(),
            }
        }

        /// Settings that trust it.
        pub(crate) fn settings(&self) -> TlsSettings {
            TlsSettings {
                ca_file: Some(self.ca_file()),
                ..TlsSettings::new(WALL)
            }
        }

        /// A server for `name`, valid in the given years, which are half open.
        pub(crate) fn server(
            &self,
            name: &str,
            years: (i32, i32),
            versions: &[&'static SupportedProtocolVersion],
        ) -> Arc<ServerConfig> {
            let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
            params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
            params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
            let key = KeyPair::generate().expect("a key");
            let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
            server_config(certificate.der().clone(), &key, versions)
        }

        /// A server that no test has reason to distrust.
        pub(crate) fn good_server(&self, name: &str) -> Arc<ServerConfig> {
            self.server(name, (2020, 2040), &[&TLS13])
        }
    }

    pub(crate) fn server_config(
        certificate: CertificateDer<'static>,
        key: &KeyPair,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(versions)
            .expect("versions of the provider's")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a certificate with its key");
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// The peer of a [`TlsSession`].
    pub(crate) struct Server(ServerConnection);

    impl Server {
        pub(crate) fn new(config: &Arc<ServerConfig>) -> Self {
            Server(ServerConnection::new(config.clone()).expect("a server"))
        }

        /// Takes bytes from the client, answers with bytes for it and with what the client said.
        pub(crate) fn exchange(&mut self, mut wire: &[u8]) -> (Vec<u8>, Vec<u8>) {
            let mut heard = Vec::new();
            while !wire.is_empty() && self.0.read_tls(&mut wire).expect("room") > 0 {
                let outcome = self.0.process_new_packets();
                let _ = self.0.reader().read_to_end(&mut heard);
                if outcome.is_err() {
                    break;
                }
            }
            (self.output(), heard)
        }

        /// Bytes for the client that carry `plain`.
        pub(crate) fn say(&mut self, plain: &[u8]) -> Vec<u8> {
            self.0.writer().write_all(plain).expect("room");
            self.output()
        }

        /// Bytes for the client that say close_notify.
        pub(crate) fn close(&mut self) -> Vec<u8> {
            self.0.send_close_notify();
            self.output()
        }

        pub(crate) fn sni(&self) -> Option<&str> {
            self.0.server_name()
        }

        pub(crate) fn alpn(&self) -> Option<&[u8]> {
            self.0.alpn_protocol()
        }

        fn output(&mut self) -> Vec<u8> {
            let mut out = Vec::new();
            while self.0.wants_write() {
                self.0.write_tls(&mut out).expect("writing to a Vec");
            }
            out
        }
    }
}

#[cfg(test)]
mod tests;
