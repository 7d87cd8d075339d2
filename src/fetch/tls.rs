//! TLS over bytes: trust, names, sessions to resume, and certificate trouble in words that stay the same.
//!
//! The door to rustls. Nothing here touches a socket or a clock: wire bytes go in, plain bytes
//! come out, and the time is whatever the crawl last said with [`TlsConfig::set_now`].

use std::borrow::Cow;
use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{
    AlertDescription, CertificateError, CipherSuite, ClientConfig, ClientConnection,
    DigitallySignedStruct, Error, HandshakeKind, PeerMisbehaved, ProtocolVersion, RootCertStore,
    SignatureScheme,
};

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

/// What all sessions of a crawl share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    client: Arc<ClientConfig>,
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
        let mut client = if settings.insecure {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(NoVerification(provider)))
                .with_no_client_auth()
        } else {
            builder.with_root_certificates(roots).with_no_client_auth()
        };
        // Some servers end the handshake over any other offer.
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        client.resumption = Resumption::in_memory_sessions(
            settings.session_hosts_max.saturating_mul(TICKETS_PER_HOST),
        );
        Ok(TlsConfig {
            client: Arc::new(client),
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
    verified: bool,
    peer_closed: bool,
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
            verified: config.verified,
            peer_closed: false,
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
            self.peer_closed = outcome.map_err(|error| failure(&error))?.peer_has_closed();
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

    fn take_plain(&mut self, plain: &mut Vec<u8>) {
        // Ends with Ok at close_notify and with WouldBlock everywhere else: neither is news here.
        let _ = self.connection.reader().read_to_end(plain);
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
fn provider() -> CryptoProvider {
    use aws_lc_rs::kx_group::{SECP256R1, SECP384R1, X25519, X25519MLKEM768};
    CryptoProvider {
        kx_groups: vec![X25519, SECP256R1, SECP384R1, X25519MLKEM768],
        ..aws_lc_rs::default_provider()
    }
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

/// A host as certificates know it: without the root's dot, without the brackets of IPv6.
fn server_name(host: &str) -> Option<ServerName<'static>> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    let bare = bare.strip_suffix('.').unwrap_or(bare);
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

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::{ServerConfig, ServerConnection, version};

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
            versions: &[&'static rustls::SupportedProtocolVersion],
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
            self.server(name, (2020, 2040), &[&version::TLS13])
        }
    }

    pub(crate) fn server_config(
        certificate: CertificateDer<'static>,
        key: &KeyPair,
        versions: &[&'static rustls::SupportedProtocolVersion],
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
mod tests {
    use rcgen::{CertificateParams, IsCa, KeyPair};
    use rustls::version::{TLS12, TLS13};

    use super::testing::*;
    use super::*;

    /// Carries bytes between the two, `step` at a time towards the client, until both are silent.
    fn shake(session: &mut TlsSession, server: &mut Server, step: usize) -> Result<(), Failure> {
        let mut plain = Vec::new();
        loop {
            let mut out = Vec::new();
            session.take_output(&mut out);
            let (answer, _) = server.exchange(&out);
            for part in answer.chunks(step) {
                session.read(part, &mut plain)?;
            }
            if out.is_empty() && answer.is_empty() {
                assert!(plain.is_empty(), "a handshake carries no application data");
                return Ok(());
            }
        }
    }

    fn config(settings: &TlsSettings) -> TlsConfig {
        TlsConfig::new(settings).expect("a configuration")
    }

    /// A handshake with `host`, in whole flights: what was agreed, or the code of what went wrong.
    fn check(
        settings: &TlsSettings,
        server: &Arc<rustls::ServerConfig>,
        host: &str,
    ) -> Result<TlsInfo, &'static str> {
        let mut session = TlsSession::new(&config(settings), host).map_err(|f| f.code)?;
        let mut server = Server::new(server);
        shake(&mut session, &mut server, usize::MAX).map_err(|failure| {
            assert_eq!(failure.kind, FailureKind::Tls);
            assert!(!failure.detail.is_empty());
            failure.code
        })?;
        Ok(session.info().expect("the handshake is over"))
    }

    #[test]
    fn a_trusted_name_is_verified_under_both_versions_of_tls() {
        let authority = Authority::new();
        let agreed = |versions: &[&'static rustls::SupportedProtocolVersion]| {
            let server = authority.server("a.test", (2020, 2040), versions);
            check(&authority.settings(), &server, "a.test").expect("trusted")
        };
        let both = agreed(&[&TLS12, &TLS13]);
        assert_eq!(both.version, "TLSv1.3");
        assert!(both.cipher.starts_with("TLS_AES_"), "{}", both.cipher);
        assert!(both.verified && !both.resumed);
        let old = agreed(&[&TLS12]);
        assert_eq!(old.version, "TLSv1.2");
        assert!(old.cipher.starts_with("TLS_ECDHE_"), "{}", old.cipher);
    }

    #[test]
    fn certificate_trouble_has_stable_codes() {
        let authority = Authority::new();
        let trusting = authority.settings();
        let good = authority.good_server("a.test");
        let years = |from, to| authority.server("a.test", (from, to), &[&TLS13]);
        assert_eq!(check(&trusting, &good, "b.test"), Err("name_mismatch"));
        assert_eq!(check(&trusting, &good, "10.1.2.3"), Err("name_mismatch"));
        assert_eq!(
            check(&trusting, &years(2020, 2021), "a.test"),
            Err("expired")
        );
        assert_eq!(
            check(&trusting, &years(2030, 2031), "a.test"),
            Err("not_yet_valid")
        );
        assert_eq!(
            check(&TlsSettings::new(WALL), &good, "a.test"),
            Err("untrusted")
        );
        assert_eq!(check(&trusting, &good, "a test"), Err("name"));
    }

    #[test]
    fn a_self_signed_certificate_is_untrusted_unless_it_is_in_the_ca_file() {
        let key = KeyPair::generate().expect("a key");
        let self_signed = |is_ca| {
            let mut params = CertificateParams::new(vec!["a.test".to_owned()]).expect("a name");
            params.is_ca = is_ca;
            params.self_signed(&key).expect("a certificate")
        };
        let plain = self_signed(IsCa::NoCa);
        let server = server_config(plain.der().clone(), &key, &[&TLS13]);
        let mut settings = TlsSettings::new(WALL);
        assert_eq!(check(&settings, &server, "a.test"), Err("untrusted"));
        settings.ca_file = Some(CaFile {
            name: "own.pem".to_owned(),
            pem: plain.pem().into_bytes(),
        });
        assert!(
            check(&settings, &server, "a.test")
                .expect("trusted")
                .verified
        );

        let authority = self_signed(IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
        let server = server_config(authority.der().clone(), &key, &[&TLS13]);
        assert_eq!(
            check(&TlsSettings::new(WALL), &server, "a.test"),
            Err("untrusted")
        );
    }

    #[test]
    fn time_is_what_the_crawl_says_it_is() {
        let authority = Authority::new();
        let server = authority.server("a.test", (2020, 2027), &[&TLS13]);
        let mut settings = authority.settings();
        settings.session_hosts_max = 0;
        let config = config(&settings);
        let attempt = || {
            let mut session = TlsSession::new(&config, "a.test").expect("a name");
            let mut server = Server::new(&server);
            shake(&mut session, &mut server, usize::MAX).map_err(|failure| failure.code)
        };
        assert_eq!(attempt(), Ok(()));
        // A crawl that ran on into 2027.
        config.set_now(Instant::START + Duration::from_secs(60 * 86_400));
        assert_eq!(attempt(), Err("expired"));
    }

    #[test]
    fn insecure_takes_everything_and_says_so() {
        let authority = Authority::new();
        let settings = TlsSettings {
            insecure: true,
            ..TlsSettings::new(WALL)
        };
        for versions in [&[&TLS12][..], &[&TLS13]] {
            let server = authority.server("a.test", (2020, 2021), versions);
            let info = check(&settings, &server, "b.test").expect("nothing is verified");
            assert!(!info.verified);
        }
    }

    #[test]
    fn names_go_into_sni_and_addresses_do_not() {
        let authority = Authority::new();
        let check = |certified: &str, host: &str, sni: Option<&str>| {
            let server = authority.good_server(certified);
            let mut session =
                TlsSession::new(&config(&authority.settings()), host).expect("a name");
            let mut server = Server::new(&server);
            shake(&mut session, &mut server, usize::MAX).expect("trusted");
            assert_eq!(server.sni(), sni, "{host}");
            assert_eq!(server.alpn(), Some(&b"http/1.1"[..]));
        };
        check("a.test", "a.test", Some("a.test"));
        check("a.test", "a.test.", Some("a.test"));
        check("10.1.2.3", "10.1.2.3", None);
        check("::1", "[::1]", None);
    }

    #[test]
    fn the_second_connection_resumes_the_session() {
        for version in [&TLS12, &TLS13] {
            let authority = Authority::new();
            let server = authority.server("a.test", (2020, 2040), &[version]);
            let config = config(&authority.settings());
            let resumed: Vec<bool> = (0..3)
                .map(|_| {
                    let mut session = TlsSession::new(&config, "a.test").expect("a name");
                    shake(&mut session, &mut Server::new(&server), usize::MAX).expect("trusted");
                    let info = session.info().expect("the handshake is over");
                    assert!(info.verified);
                    info.resumed
                })
                .collect();
            assert_eq!(resumed, [false, true, true]);
        }
    }

    #[test]
    fn a_handshake_and_a_reply_survive_every_cut() {
        let authority = Authority::new();
        for version in [&TLS12, &TLS13] {
            let server = authority.server("a.test", (2020, 2040), &[version]);
            let mut settings = authority.settings();
            settings.session_hosts_max = 0;
            let config = config(&settings);
            let said = vec![b'x'; 40_000];
            for step in [1, 2, 3, 5, 7, 100, 1000, 4096, 16_384] {
                let mut session = TlsSession::new(&config, "a.test").expect("a name");
                let mut server = Server::new(&server);
                session.write(b"asked early");
                let mut out = Vec::new();
                let mut heard = Vec::new();
                let mut plain = Vec::new();
                while heard.is_empty() {
                    session.take_output(&mut out);
                    let (answer, more) = server.exchange(&std::mem::take(&mut out));
                    heard.extend(more);
                    for part in answer.chunks(step) {
                        session.read(part, &mut plain).expect("good order");
                    }
                }
                assert_eq!(heard, b"asked early");
                let mut wire = server.say(&said);
                wire.extend(server.close());
                for part in wire.chunks(step) {
                    assert!(!session.peer_closed(), "close_notify is the last of it");
                    session.read(part, &mut plain).expect("good order");
                }
                assert!(session.peer_closed());
                assert_eq!(plain, said, "{step} bytes at a time");
            }
        }
    }

    #[test]
    fn what_came_before_a_broken_record_is_kept() {
        let authority = Authority::new();
        let mut session =
            TlsSession::new(&config(&authority.settings()), "a.test").expect("a name");
        let mut server = Server::new(&authority.good_server("a.test"));
        shake(&mut session, &mut server, usize::MAX).expect("trusted");
        let mut wire = server.say(b"good");
        let cut = wire.len();
        wire.extend(server.say(b"broken"));
        wire[cut + 7] ^= 1;
        let mut plain = Vec::new();
        let failure = session
            .read(&wire, &mut plain)
            .expect_err("a broken record");
        assert_eq!(failure.code, "protocol");
        assert_eq!(plain, b"good");
        let mut alert = Vec::new();
        session.take_output(&mut alert);
        assert!(!alert.is_empty(), "the peer is told");
    }

    #[test]
    fn a_server_that_speaks_something_else_is_a_protocol_failure() {
        let authority = Authority::new();
        let mut session =
            TlsSession::new(&config(&authority.settings()), "a.test").expect("a name");
        let reply = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        let failure = session.read(reply, &mut Vec::new()).expect_err("no TLS");
        assert_eq!((failure.kind, failure.code), (FailureKind::Tls, "protocol"));
    }

    #[test]
    fn a_bad_ca_file_is_named() {
        let check = |pem: &[u8], expected: &str| {
            let mut settings = TlsSettings::new(WALL);
            settings.ca_file = Some(CaFile {
                name: "my.pem".to_owned(),
                pem: pem.to_vec(),
            });
            let error = TlsConfig::new(&settings).expect_err("a bad file");
            assert!(error.to_string().contains("my.pem"), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        };
        check(b"", "no certificate");
        check(b"hello", "no certificate");
        check(b"-----BEGIN CERTIFICATE-----\nAAAA\n", "section end");
        check(
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "certificate 1",
        );
    }
}
