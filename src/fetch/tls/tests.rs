//! Handshakes with an in-memory server: which certificates are trusted, and the codes of failures.

use rcgen::{CertificateParams, IsCa, KeyPair};

use super::testing::*;
use super::*;
use crate::fetch::failure::{Failure, FailureKind};
use crate::wire::certificate;

/// Exchanges bytes between the two, `step` at a time towards the client, until neither has output.
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

/// A handshake with `host` in whole flights: returns the negotiated parameters, or the code of the
/// failure.
fn check(
    settings: &TlsSettings,
    server: &Arc<ServerConfig>,
    host: &str,
) -> Result<TlsInfo, &'static str> {
    let mut session = TlsSession::new(&config(settings), host).map_err(|f| f.name)?;
    let mut server = Server::new(server);
    shake(&mut session, &mut server, usize::MAX).map_err(|failure| {
        assert_eq!(failure.kind, FailureKind::Tls);
        assert!(!failure.detail.is_empty());
        failure.name
    })?;
    Ok(session.info().expect("the handshake is over"))
}

#[test]
fn a_trusted_name_is_verified_under_both_versions_of_tls() {
    let authority = Authority::new();
    let agreed = |versions: &[&'static SupportedProtocolVersion]| {
        let server = authority.server("a.test", (2020, 2040), versions);
        check(&authority.settings(), &server, "a.test").expect("trusted")
    };
    let both = agreed(&[&TLS12, &TLS13]);
    assert_eq!(both.version, TlsVersion::Tls13);
    assert!(both.cipher.starts_with("TLS_AES_"), "{}", both.cipher);
    assert!(both.verified && !both.resumed);
    let old = agreed(&[&TLS12]);
    assert_eq!(old.version, TlsVersion::Tls12);
    assert!(old.cipher.starts_with("TLS_ECDHE_"), "{}", old.cipher);
}

#[test]
fn the_cheapest_common_cipher_suite_is_chosen() {
    let authority = Authority::new();
    for (version, name) in [
        (&TLS13, "TLS_AES_128_GCM_SHA256"),
        (&TLS12, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ] {
        // Servers that use rustls choose the first suite of ours that they support.
        let server = authority.server("a.test", (2020, 2040), &[version]);
        let agreed = check(&authority.settings(), &server, "a.test").expect("trusted");
        assert_eq!(agreed.cipher, name);
    }
}

#[test]
fn certificate_failures_have_stable_codes() {
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
fn a_rejected_chain_is_reported_as_received() {
    let authority = Authority::new();
    let (trusting, strange) = (authority.settings(), TlsSettings::new(WALL));
    for versions in [&[&TLS12][..], &[&TLS13]] {
        let server = |until| authority.server("a.test", (2020, until), versions);
        let refuse = |settings: &TlsSettings, server: &Arc<ServerConfig>, host: &str| {
            let config = config(settings);
            let mut session = TlsSession::new(&config, host).expect("a name");
            let mut other = TlsSession::new(&config, host).expect("a name");
            assert!(session.certificates().is_empty());
            let mut server = Server::new(server);
            let failed = shake(&mut session, &mut server, usize::MAX).expect_err("refused");
            assert_eq!(session.info(), None, "the handshake failed");
            // The rejected chain belongs to that session only.
            assert!(other.read(b"no TLS", &mut Vec::new()).is_err());
            assert!(other.certificates().is_empty());
            (failed.name, session.certificates())
        };
        let good = server(2040);
        for (settings, server, host, code) in [
            (&trusting, &server(2021), "a.test", "expired"),
            (&trusting, &good, "b.test", "name_mismatch"),
            (&strange, &good, "a.test", "untrusted"),
        ] {
            let (actual, shown) = refuse(settings, server, host);
            assert_eq!(actual, code);
            let mut insecure = TlsSettings::new(WALL);
            insecure.insecure = true;
            let mut session = TlsSession::new(&config(&insecure), host).expect("a name");
            shake(&mut session, &mut Server::new(server), usize::MAX).expect("not verified");
            assert_eq!(shown.len(), 1, "{code}");
            assert_eq!(shown, session.certificates(), "{code}");
        }
    }
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
fn certificates_are_verified_at_the_crawls_time() {
    let authority = Authority::new();
    let server = authority.server("a.test", (2020, 2027), &[&TLS13]);
    let mut settings = authority.settings();
    settings.sessions_memory = 0;
    let config = config(&settings);
    let attempt = || {
        let mut session = TlsSession::new(&config, "a.test").expect("a name");
        let mut server = Server::new(&server);
        shake(&mut session, &mut server, usize::MAX).map_err(|failure| failure.name)
    };
    assert_eq!(attempt(), Ok(()));
    // A crawl that continued into 2027.
    config.set_now(Instant::START + Duration::from_secs(60 * 86_400));
    assert_eq!(attempt(), Err("expired"));
}

#[test]
fn insecure_accepts_every_certificate_and_reports_it() {
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
fn names_are_sent_as_sni_and_addresses_are_not() {
    let authority = Authority::new();
    let check = |certified: &str, host: &str, sni: Option<&str>| {
        let server = authority.good_server(certified);
        let mut session = TlsSession::new(&config(&authority.settings()), host).expect("a name");
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

/// The same server with another certificate, which still knows its sessions.
fn with_certificate_of(server: &Arc<ServerConfig>, other: &Arc<ServerConfig>) -> Arc<ServerConfig> {
    let mut config = ServerConfig::clone(server);
    config.cert_resolver = other.cert_resolver.clone();
    Arc::new(config)
}

#[test]
fn a_replaced_certificate_is_seen_once_the_last_chain_is_old() {
    for version in [&TLS12, &TLS13] {
        let authority = Authority::new();
        let mut settings = authority.settings();
        settings.chain_age_max = Some(Duration::from_secs(300));
        let config = config(&settings);
        let server = authority.server("a.test", (2020, 2040), &[version]);
        let replaced = authority.server("a.test", (2020, 2035), &[version]);
        let replaced = with_certificate_of(&server, &replaced);
        let chain_at = |seconds: u64, server: &Arc<ServerConfig>| {
            config.set_now(Instant::START + Duration::from_secs(seconds));
            let mut session = TlsSession::new(&config, "a.test").expect("a name");
            shake(&mut session, &mut Server::new(server), usize::MAX).expect("trusted");
            let resumed = session.info().expect("the handshake is over").resumed;
            let chain = session.certificates();
            let expires = chain.iter().filter_map(certificate::expires).min();
            (resumed, expires.expect("it has a certificate"))
        };
        let first = chain_at(0, &server);
        let rounds = (1..=22).map(|round| chain_at(round * 15, &replaced));
        let rounds: Vec<_> = rounds.collect();
        let old = rounds.iter().take_while(|(_, expires)| *expires == first.1);
        let old = old.count();
        assert!(
            (9..20).contains(&old),
            "{old} rounds show the old one, which may be 150 to 300 s old"
        );
        assert!(rounds[..old].iter().all(|(resumed, _)| *resumed));
        assert!(!rounds[old].0, "a full handshake shows the new one");
        assert!(rounds[old + 1].0, "then its sessions are resumed");
    }
}

#[test]
fn no_session_is_resumed_once_its_certificates_have_expired() {
    const TO_2027: u64 = 41 * 86_400;
    for version in [&TLS12, &TLS13] {
        let authority = Authority::new();
        let mut settings = authority.settings();
        settings.chain_age_max = Some(Duration::from_secs(3600));
        let config = config(&settings);
        let server = authority.server("a.test", (2020, 2027), &[version]);
        let attempt_at = |seconds: u64| {
            config.set_now(Instant::START + Duration::from_secs(seconds));
            let mut session = TlsSession::new(&config, "a.test").expect("a name");
            shake(&mut session, &mut Server::new(&server), usize::MAX)
                .map(|()| session.info().expect("the handshake is over").resumed)
                .map_err(|failure| failure.name)
        };
        assert_eq!(attempt_at(TO_2027 - 20), Ok(false));
        assert_eq!(attempt_at(TO_2027 - 10), Ok(true));
        assert_eq!(attempt_at(TO_2027 + 10), Err("expired"));
    }
}

#[test]
fn sessions_are_kept_within_their_memory_and_released_ones_go_first() {
    let authority = Authority::new();
    let mut settings = authority.settings();
    // Two hosts with up to two tickets each.
    settings.sessions_memory = 18 << 10;
    let config = config(&settings);
    let servers = ["a.test", "b.test", "c.test"].map(|host| (host, authority.good_server(host)));
    let resumed = |index: usize| {
        let (host, server) = &servers[index];
        let mut session = TlsSession::new(&config, host).expect("a name");
        shake(&mut session, &mut Server::new(server), usize::MAX).expect("trusted");
        session.info().expect("the handshake is over").resumed
    };
    assert_eq!([0, 1, 0, 1].map(resumed), [false, false, true, true]);
    assert_eq!([2, 0, 2].map(resumed), [false, true, false]);
    let (host, server) = &servers[0];
    let mut session = TlsSession::new(&config, host).expect("a name");
    shake(&mut session, &mut Server::new(server), usize::MAX).expect("trusted");
    session.release_sessions();
    assert_eq!([2, 0, 2].map(resumed), [false, false, true]);
}

#[test]
fn a_handshake_and_a_reply_survive_every_cut() {
    let authority = Authority::new();
    for version in [&TLS12, &TLS13] {
        let server = authority.server("a.test", (2020, 2040), &[version]);
        let mut settings = authority.settings();
        settings.sessions_memory = 0;
        let config = config(&settings);
        let sent = vec![b'x'; 40_000];
        for step in [1, 2, 3, 5, 7, 100, 1000, 4096, 16_384] {
            let mut session = TlsSession::new(&config, "a.test").expect("a name");
            let mut server = Server::new(&server);
            session.write(b"asked early");
            let mut out = Vec::new();
            let mut received = Vec::new();
            let mut plain = Vec::new();
            while received.is_empty() {
                session.take_output(&mut out);
                let (answer, more) = server.exchange(&std::mem::take(&mut out));
                received.extend(more);
                for part in answer.chunks(step) {
                    session.read(part, &mut plain).expect("good order");
                }
            }
            assert_eq!(received, b"asked early");
            let mut wire = server.respond(&sent);
            wire.extend(server.close());
            for part in wire.chunks(step) {
                assert!(!session.peer_closed(), "close_notify is the last of it");
                session.read(part, &mut plain).expect("good order");
            }
            assert!(session.peer_closed());
            assert_eq!(plain, sent, "{step} bytes at a time");
        }
    }
}

#[test]
fn data_before_a_broken_record_is_kept() {
    let authority = Authority::new();
    let mut session = TlsSession::new(&config(&authority.settings()), "a.test").expect("a name");
    let mut server = Server::new(&authority.good_server("a.test"));
    shake(&mut session, &mut server, usize::MAX).expect("trusted");
    let mut wire = server.respond(b"good");
    let cut = wire.len();
    wire.extend(server.respond(b"broken"));
    wire[cut + 7] ^= 1;
    let mut plain = Vec::new();
    let failure = session
        .read(&wire, &mut plain)
        .expect_err("a broken record");
    assert_eq!(failure.name, "protocol");
    assert_eq!(plain, b"good");
    let mut alert = Vec::new();
    session.take_output(&mut alert);
    assert!(!alert.is_empty(), "an alert is sent");
}

#[test]
fn a_server_that_does_not_speak_tls_is_a_protocol_failure() {
    let authority = Authority::new();
    let mut session = TlsSession::new(&config(&authority.settings()), "a.test").expect("a name");
    let reply = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    let failure = session.read(reply, &mut Vec::new()).expect_err("no TLS");
    assert_eq!((failure.kind, failure.name), (FailureKind::Tls, "protocol"));
}

#[test]
fn a_bad_ca_file_is_named_in_the_error() {
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
