//! The whole life of a connection, plain and with TLS.

use super::*;
use crate::base::stamp::{Clock, Stamp};
use crate::fetch::exchange::Description;
use crate::fetch::failure::Truncation;
use crate::fetch::timings::{Accuracy, Timings};
use crate::fetch::tls::testing::{Authority, Server, TLS12};
use crate::fetch::tls::{TlsConfig, TlsSettings};
use crate::wire::http::Limits;
use crate::wire::proxy::Proxy;
use crate::wire::url::CrawlUrl;

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

fn at(millis: u64) -> Instant {
    Instant::START + Duration::from_millis(millis)
}

fn arrival(millis: u64) -> Stamp {
    Stamp::exact(at(millis))
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn exchange() -> Box<Exchange> {
    let settings = FetchSettings::default();
    let usual = settings.usual_fields().expect("good fields");
    let description = Description {
        method: "GET",
        target: "/a",
        host: "a.test",
        usual: &usual,
        headers: &[],
        body: None,
        keep_wire: true,
        defers_decoding: false,
        body_max: None,
        timeout: None,
        proxy: None,
    };
    let exchange = Exchange::new(
        &description,
        &settings,
        Limits::default(),
        Timings::default(),
    );
    Box::new(exchange.expect("a request that can be written"))
}

/// A plain connection: requested at 0 ms, attempt departed at 2 ms, established at 10 ms.
fn ready() -> Connection {
    let mut connection = Connection::open(address(80), None, at(0), at(0));
    assert_eq!(
        connection.handle_connected(Some(address(4000)), at(2), arrival(10)),
        Some(ConnectionEvent::Ready)
    );
    connection
}

/// Starts an exchange whose request departs at `millis`.
fn start_request(connection: &mut Connection, millis: u64) {
    connection.start(exchange());
    let mut out = Vec::new();
    assert!(
        connection.take_output(&mut out),
        "the send of a request is marked"
    );
    assert!(out.starts_with(b"GET /a HTTP/1.1\r\n"));
    connection.handle_sent(at(millis), Duration::ZERO);
}

/// All events from some bytes, in order; exchanges that ended are taken.
fn events_of(connection: &mut Connection, mut bytes: &[u8], millis: u64) -> Vec<ConnectionEvent> {
    let mut all = Vec::new();
    while let Some(event) = connection.handle_bytes(&mut bytes, arrival(millis)) {
        if event == ConnectionEvent::Head {
            assert!(connection.exchange().expect("under way").head().is_some());
        }
        all.push(event);
    }
    assert!(bytes.is_empty(), "all bytes are consumed");
    all
}

fn ended(reusable: bool) -> ConnectionEvent {
    ConnectionEvent::Ended {
        failure: None,
        reusable,
    }
}

/// Kind and code of the failure in an event.
fn failure(event: Option<ConnectionEvent>) -> String {
    let failure = match event {
        Some(ConnectionEvent::Failed(failure)) => Some(failure),
        Some(ConnectionEvent::Ended { failure, .. }) => failure,
        _ => None,
    };
    let failure = failure.expect("a failure");
    format!("{}.{}", failure.kind.as_str(), failure.name)
}

#[test]
fn a_kept_connection_carries_one_exchange_after_another() {
    let mut connection = ready();
    assert_eq!(connection.remote(), address(80));
    assert_eq!(connection.local(), Some(address(4000)));
    start_request(&mut connection, 20);
    assert_eq!(
        events_of(&mut connection, REPLY, 30),
        [ConnectionEvent::Head, ended(true)]
    );
    let first = connection.take_exchange().expect("it ended").into_outcome();
    assert_eq!(first.body, b"hi");
    assert_eq!(first.timings.connect, Some(Stamp::exact(at(10))));
    let took = Duration::from_millis(8);
    assert_eq!(first.timings.connect_took, Some(took), "since it left");
    assert_eq!(first.timings.ready, Some(at(10)));
    assert_eq!(first.timings.sent, Some(at(20)));
    assert_eq!(first.timings.headers, Some(Stamp::exact(at(30))));
    assert_eq!(connection.used(), 1);

    start_request(&mut connection, 40);
    assert_eq!(connection.used(), 2);
    assert_eq!(
        events_of(&mut connection, &REPLY[..5], 50),
        [],
        "no output yet"
    );
    assert_eq!(
        events_of(&mut connection, &REPLY[5..], 60),
        [ConnectionEvent::Head, ended(true)]
    );
    let second = connection.take_exchange().expect("it ended").into_outcome();
    assert_eq!(second.timings.connect, None, "not made for this exchange");
    assert_eq!(second.timings.ready, Some(at(30)));
    assert_eq!(second.timings.first_byte, Some(Stamp::exact(at(50))));
    assert!(connection.is_ready());
}

#[test]
fn bytes_after_a_reply_end_the_connection_with_it() {
    let mut connection = ready();
    start_request(&mut connection, 20);
    let more = [REPLY, b"HTTP/1.1 408 Request Timeout\r\n\r\n"].concat();
    assert_eq!(
        events_of(&mut connection, &more, 30),
        [ConnectionEvent::Head, ended(false)]
    );
    assert!(connection.take_exchange().is_some());
    assert!(connection.is_closed());
}

#[test]
fn unsolicited_bytes_or_an_end_close_an_idle_connection() {
    let idle = || {
        let mut connection = ready();
        start_request(&mut connection, 20);
        events_of(&mut connection, REPLY, 30);
        connection.take_exchange();
        connection
    };
    let late = b"HTTP/1.1 408 Request Timeout\r\n\r\n";
    let mut connection = idle();
    assert_eq!(
        events_of(&mut connection, late, 40),
        [ConnectionEvent::Closed]
    );
    assert!(connection.is_closed());
    assert_eq!(idle().handle_end(at(40)), Some(ConnectionEvent::Closed));
    let reset = idle().handle_failed("reset", "reset by peer", at(40));
    assert_eq!(reset, Some(ConnectionEvent::Closed));
}

#[test]
fn a_reused_connection_that_fails_before_the_reply_returns_its_exchange_for_a_retry() {
    let again = || {
        let mut connection = ready();
        start_request(&mut connection, 20);
        events_of(&mut connection, REPLY, 30);
        connection.take_exchange();
        start_request(&mut connection, 50);
        connection
    };
    let mut failed = again();
    assert_eq!(failed.handle_end(at(60)), Some(ConnectionEvent::DiedIdle));
    let exchange = failed.take_exchange().expect("the exchange is returned");
    assert!(failed.is_closed());
    assert_eq!(
        exchange.timings().sent,
        Some(at(50)),
        "the request departed"
    );
    assert!(exchange.head().is_none());

    assert_eq!(
        again().handle_failed("reset", "reset by peer", at(60)),
        Some(ConnectionEvent::DiedIdle)
    );
    // A 408 that was on its way when the request departed answers no request.
    let late = b"HTTP/1.1 408 Request Timeout\r\n\r\n";
    assert_eq!(
        events_of(&mut again(), late, 49),
        [ConnectionEvent::DiedIdle]
    );
    assert_eq!(
        events_of(&mut again(), late, 51)[0],
        ConnectionEvent::Head,
        "this one may be an answer"
    );
    let mut begun = again();
    events_of(&mut begun, b"H", 55);
    assert_eq!(failure(begun.handle_end(at(60))), "truncated.head");
}

#[test]
fn a_new_connection_that_ends_without_a_reply_is_a_failure() {
    let mut connection = ready();
    start_request(&mut connection, 20);
    assert_eq!(failure(connection.handle_end(at(30))), "truncated.no_reply");
    let mut connection = ready();
    start_request(&mut connection, 20);
    events_of(&mut connection, &REPLY[..REPLY.len() - 1], 30);
    let reset = connection.handle_failed("reset", "reset by peer", at(40));
    assert_eq!(failure(reset), "reset.reset");
    let outcome = connection.take_exchange().expect("it ended").into_outcome();
    assert_eq!(outcome.truncated, Some(Truncation::Disconnect));
    assert_eq!(outcome.body, b"h");
    assert!(connection.is_closed());
    let mut refused = Connection::open(address(80), None, at(0), at(0));
    assert_eq!(
        failure(refused.handle_failed("refused", "connection refused", at(5))),
        "connect.refused"
    );
}

#[test]
fn a_server_that_sends_before_the_request_is_not_http() {
    let mut connection = ready();
    let events = events_of(&mut connection, b"SSH-2.0-OpenSSH\r\n", 20);
    assert_eq!(failure(events.into_iter().next()), "protocol.unsolicited");
    assert!(connection.is_closed());
}

#[test]
fn each_phase_has_its_timeout() {
    let settings = FetchSettings::default();
    let check = |connection: &mut Connection, millis, code: &str| {
        let deadline = connection.deadline(&settings).expect("a deadline");
        assert_eq!((deadline.at, deadline.phase.code()), (at(millis), code));
        let early = at(millis) - Duration::from_nanos(1);
        assert_eq!(connection.handle_timeout(&settings, early), None);
        let event = connection.handle_timeout(&settings, at(millis));
        assert_eq!(failure(event), format!("timeout.{code}"));
        connection.take_exchange()
    };
    let mut connecting = Connection::open(address(80), None, at(0), at(1000));
    check(&mut connecting, 11_000, "connect");
    let mut late = Connection::open(address(80), None, at(0), at(115_000));
    check(&mut late, 120_000, "connect");
    for (own, code) in [(999, "total"), (1000, "connect"), (5000, "connect")] {
        let own_timeout = Some(Duration::from_millis(own));
        let mut connecting =
            Connection::open(address(80), None, at(0), at(0)).with_timeout(own_timeout);
        check(&mut connecting, own, code);
        // A further address has the rest of the time; the first one had all.
        let further = Connection::open(address(80), None, at(0), at(own - 10));
        check(&mut further.with_timeout(own_timeout), own, code);
    }
    let quick = FetchSettings {
        connect_timeout: Duration::from_millis(300),
        ..FetchSettings::default()
    };
    for (own, code) in [(299, "total"), (300, "connect"), (500, "connect")] {
        let connecting = Connection::open(address(80), None, at(0), at(0));
        let connecting = connecting.with_timeout(Some(Duration::from_millis(own)));
        let deadline = connecting.deadline(&quick).expect("a deadline");
        assert_eq!(
            (deadline.at, deadline.phase.code()),
            (at(own.min(300)), code)
        );
    }
    let mut handshaking = Connection::open(address(443), Some(session(&trust())), at(0), at(0));
    handshaking.handle_connected(Some(address(4000)), at(2), arrival(2000));
    check(&mut handshaking, 12_000, "tls");

    let mut idle = ready();
    assert_eq!(idle.deadline(&settings), None);
    assert_eq!(idle.handle_timeout(&settings, at(1_000_000)), None);
    let mut silent = ready();
    start_request(&mut silent, 20);
    check(&mut silent, 30_020, "first_byte");
    let mut stalled = ready();
    start_request(&mut stalled, 20);
    events_of(&mut stalled, &REPLY[..REPLY.len() - 1], 30);
    let outcome = check(&mut stalled, 20_030, "idle").expect("it ended");
    let outcome = outcome.into_outcome();
    assert_eq!(outcome.truncated, Some(Truncation::Time));
    assert_eq!(outcome.body, b"h");
}

#[test]
fn an_aborted_exchange_keeps_what_was_received() {
    let cancelled = || Failure::new(FailureKind::Cancelled, "stopped", "the crawl was stopped");
    let mut connection = ready();
    start_request(&mut connection, 20);
    events_of(&mut connection, &REPLY[..REPLY.len() - 1], 30);
    assert_eq!(
        failure(connection.abort(cancelled(), at(40))),
        "cancelled.stopped"
    );
    let outcome = connection.take_exchange().expect("it ended").into_outcome();
    assert_eq!(outcome.body, b"h");
    assert_eq!(
        ready().abort(cancelled(), at(40)),
        Some(ConnectionEvent::Closed)
    );
}

fn trust() -> (Authority, TlsConfig) {
    let authority = Authority::new();
    let config = TlsConfig::new(&authority.settings()).expect("a configuration");
    (authority, config)
}

fn session((_, config): &(Authority, TlsConfig)) -> TlsSession {
    TlsSession::new(config, "a.test").expect("a name")
}

/// A connection with TLS and its server: requested at 0 ms, established at 10 ms, ClientHello
/// departed at 15 ms, handshake complete at 40 ms. Bytes arrive in pieces of `step`.
fn secured(trust: &(Authority, TlsConfig), step: usize) -> (Connection, Server) {
    let mut server = Server::new(&trust.0.good_server("a.test"));
    let mut connection = Connection::open(address(443), Some(session(trust)), at(0), at(0));
    let mut out = Vec::new();
    assert!(
        !connection.take_output(&mut out),
        "TCP is not established yet"
    );
    assert_eq!(
        connection.handle_connected(Some(address(4000)), at(2), arrival(10)),
        None
    );
    assert!(
        connection.take_output(&mut out),
        "the send of the ClientHello is marked"
    );
    connection.handle_sent(at(15), Duration::ZERO);
    let (answer, _) = server.exchange(&out);
    let mut events = Vec::new();
    for part in answer.chunks(step) {
        events.extend(events_of(&mut connection, part, 40));
    }
    assert_eq!(events, [ConnectionEvent::Ready]);
    out.clear();
    assert!(
        !connection.take_output(&mut out),
        "the last flight is not marked"
    );
    let (tickets, _) = server.exchange(&out);
    for part in tickets.chunks(step) {
        assert_eq!(
            events_of(&mut connection, part, 50),
            [],
            "session tickets cause no event"
        );
    }
    assert!(connection.is_ready());
    (connection, server)
}

#[test]
fn only_the_client_hello_starts_the_handshake_time() {
    let trust = trust();
    let server = trust.0.server("a.test", (2020, 2040), &[&TLS12]);
    let mut server = Server::new(&server);
    let mut connection = Connection::open(address(443), Some(session(&trust)), at(0), at(0));
    connection.handle_connected(Some(address(4000)), at(2), arrival(10));
    let mut out = Vec::new();
    assert!(connection.take_output(&mut out));
    connection.handle_sent(at(15), Duration::ZERO);
    let (hello, _) = server.exchange(&out);
    assert_eq!(events_of(&mut connection, &hello, 40), []);
    out.clear();
    assert!(
        !connection.take_output(&mut out),
        "a flight of its own, unmarked"
    );
    let (finish, _) = server.exchange(&out);
    assert_eq!(
        events_of(&mut connection, &finish, 70),
        [ConnectionEvent::Ready]
    );
    connection.start(exchange());
    let timings = connection.exchange().expect("under way").timings();
    assert_eq!(timings.tls_took, Some(Duration::from_millis(55)));
}

fn start_secured_request(connection: &mut Connection, server: &mut Server, millis: u64) {
    connection.start(exchange());
    let mut out = Vec::new();
    assert!(connection.take_output(&mut out));
    connection.handle_sent(at(millis), Duration::ZERO);
    let (_, received) = server.exchange(&out);
    assert!(received.starts_with(b"GET /a HTTP/1.1\r\n"));
}

#[test]
fn a_secured_exchange_survives_every_cut() {
    let trust = trust();
    for step in [1, 2, 3, 11, 50, 1000, 20_000] {
        let (mut connection, mut server) = secured(&trust, step);
        for round in 1..3 {
            start_secured_request(&mut connection, &mut server, 60);
            let wire = server.respond(REPLY);
            let mut events = Vec::new();
            for part in wire.chunks(step) {
                events.extend(events_of(&mut connection, part, 70));
            }
            assert_eq!(events, [ConnectionEvent::Head, ended(true)]);
            let outcome = connection.take_exchange().expect("it ended").into_outcome();
            assert_eq!(outcome.body, b"hi");
            assert_eq!(outcome.response_bytes, REPLY);
            let timings = outcome.timings;
            if round == 1 {
                assert_eq!(timings.connect, Some(Stamp::exact(at(10))));
                assert_eq!(timings.tls_handshake(), Some(Stamp::exact(at(40))));
                assert_eq!(timings.tls_took, Some(Duration::from_millis(25)));
                assert_eq!(timings.latency(), Some(Duration::from_millis(35)));
            } else {
                assert_eq!(timings.tls_took, None, "not made for this exchange");
                assert_eq!(timings.latency(), Some(Duration::from_millis(10)));
            }
        }
        assert!(connection.tls().expect("secured").verified);
        connection.close();
        let mut out = Vec::new();
        assert!(!connection.take_output(&mut out));
        assert!(!out.is_empty(), "close_notify is sent");
    }
}

/// Handles bytes that arrived at `millis`, or up to `slack` ms earlier.
fn handle_within(connection: &mut Connection, mut bytes: &[u8], millis: u64, slack: u64) {
    let arrival = Stamp {
        slack: Duration::from_millis(slack),
        ..arrival(millis)
    };
    while connection.handle_bytes(&mut bytes, arrival).is_some() {}
}

#[test]
fn a_secured_head_ends_with_the_record_that_completes_it() {
    let trust = trust();
    let (head, body) = REPLY.split_at(REPLY.len() - 2);
    let (start, rest) = head.split_at(20);
    let (mut connection, mut server) = secured(&trust, 20_000);
    start_secured_request(&mut connection, &mut server, 60);
    let records = [start, rest, body].map(|part| server.respond(part));
    assert_eq!(events_of(&mut connection, &records[0], 70), []);
    let (most, last) = records[1].split_at(records[1].len() - 1);
    assert_eq!(events_of(&mut connection, most, 80), []);
    assert_eq!(
        events_of(&mut connection, last, 90),
        [ConnectionEvent::Head]
    );
    assert_eq!(events_of(&mut connection, &records[2], 100), [ended(true)]);
    let timings = *connection.exchange().expect("it ended").timings();
    assert_eq!(timings.first_byte, Some(Stamp::exact(at(70))));
    assert_eq!(timings.headers, Some(Stamp::exact(at(90))));
    assert_eq!(timings.body, Some(Stamp::exact(at(100))));
    assert_eq!(timings.accuracy(), Some(Accuracy::Exact));
}

#[test]
fn a_latency_is_as_accurate_as_its_least_accurate_end() {
    let trust = trust();
    let millis = Duration::from_millis;
    let authority = trust.0.good_server("a.test");
    // The slack of the ClientHello, of the handshake's end, of the request and of the head.
    let check = |slacks: [u64; 4], kernel: bool, label: Accuracy| {
        let mut server = Server::new(&authority);
        let mut connection = Connection::open(address(443), Some(session(&trust)), at(0), at(0));
        connection.handle_connected(Some(address(4000)), at(2), arrival(10));
        let mut out = Vec::new();
        assert!(connection.take_output(&mut out));
        connection.handle_sent(at(10), millis(slacks[0]));
        let (flight, _) = server.exchange(&out);
        if kernel {
            handle_within(&mut connection, &flight, 40, slacks[1]);
        } else {
            let mut bytes = &flight[..];
            let by_user = Stamp {
                clock: Clock::User,
                ..arrival(40)
            };
            while connection.handle_bytes(&mut bytes, by_user).is_some() {}
        }
        connection.start(exchange());
        out.clear();
        assert!(connection.take_output(&mut out));
        connection.handle_sent(at(50), millis(slacks[2]));
        let (tickets, _) = server.exchange(&out);
        assert_eq!(events_of(&mut connection, &tickets, 60), []);
        handle_within(&mut connection, &server.respond(REPLY), 100, slacks[3]);
        let timings = *connection.exchange().expect("it ended").timings();
        assert_eq!(timings.accuracy(), Some(label), "{slacks:?}");
        assert_eq!(
            timings.server_latency_slack(),
            millis(slacks[2] + slacks[3])
        );
        assert_eq!(timings.latency_slack(), millis(slacks.iter().sum()));
        assert_eq!(timings.latency(), Some(millis(80)));
    };
    check([0, 0, 0, 0], true, Accuracy::Exact);
    for bound in [[3, 0, 0, 0], [0, 20, 0, 0], [0, 0, 2, 0], [0, 0, 0, 40]] {
        check(bound, true, Accuracy::Bound);
    }
    check([3, 20, 2, 40], true, Accuracy::Bound);
    check([0, 0, 0, 0], false, Accuracy::User);
}

#[test]
fn a_secured_body_without_a_length_must_end_with_close_notify() {
    let trust = trust();
    let reply = b"HTTP/1.0 200 OK\r\n\r\nto the end";
    let (mut connection, mut server) = secured(&trust, usize::MAX);
    start_secured_request(&mut connection, &mut server, 60);
    let mut wire = server.respond(reply);
    wire.extend(server.close());
    assert_eq!(
        events_of(&mut connection, &wire, 70),
        [ConnectionEvent::Head, ended(false)]
    );

    let (mut connection, mut server) = secured(&trust, usize::MAX);
    start_secured_request(&mut connection, &mut server, 60);
    assert_eq!(
        events_of(&mut connection, &server.respond(reply), 70),
        [ConnectionEvent::Head]
    );
    assert_eq!(
        events_of(&mut connection, &server.close(), 90),
        [ended(false)]
    );
    let outcome = connection.take_exchange().expect("it ended").into_outcome();
    assert_eq!(
        outcome.timings.body,
        Some(Stamp::exact(at(70))),
        "its last byte's moment"
    );

    let (mut connection, mut server) = secured(&trust, usize::MAX);
    start_secured_request(&mut connection, &mut server, 60);
    assert_eq!(
        events_of(&mut connection, &server.respond(reply), 70),
        [ConnectionEvent::Head]
    );
    assert_eq!(
        failure(connection.handle_end(at(80))),
        "truncated.close_notify"
    );
    let outcome = connection.take_exchange().expect("it ended").into_outcome();
    assert_eq!(outcome.body, b"to the end");
    assert_eq!(outcome.truncated, Some(Truncation::Disconnect));
}

#[test]
fn a_complete_reply_needs_no_close_notify() {
    let trust = trust();
    let (mut connection, mut server) = secured(&trust, usize::MAX);
    start_secured_request(&mut connection, &mut server, 60);
    assert_eq!(
        events_of(&mut connection, &server.respond(REPLY), 70),
        [ConnectionEvent::Head, ended(true)]
    );
    connection.take_exchange();
    assert_eq!(connection.handle_end(at(80)), Some(ConnectionEvent::Closed));
}

#[test]
fn close_notify_with_the_reply_means_no_more_exchanges() {
    let trust = trust();
    let (mut connection, mut server) = secured(&trust, usize::MAX);
    start_secured_request(&mut connection, &mut server, 60);
    let mut wire = server.respond(REPLY);
    wire.extend(server.close());
    assert_eq!(
        events_of(&mut connection, &wire, 70),
        [ConnectionEvent::Head, ended(false)]
    );
}

#[test]
fn a_broken_record_after_the_reply_closes_the_connection_and_keeps_the_reply() {
    let trust = trust();
    let (mut connection, mut server) = secured(&trust, usize::MAX);
    start_secured_request(&mut connection, &mut server, 60);
    let mut wire = server.respond(REPLY);
    let broken = wire.len() + 7;
    wire.extend(server.respond(b"more"));
    wire[broken] ^= 1;
    assert_eq!(
        events_of(&mut connection, &wire, 70),
        [ConnectionEvent::Head, ended(false)]
    );
}

#[test]
fn a_reused_tls_connection_may_fail_before_the_reply_too() {
    let trust = trust();
    let again = || {
        let (mut connection, mut server) = secured(&trust, usize::MAX);
        start_secured_request(&mut connection, &mut server, 60);
        events_of(&mut connection, &server.respond(REPLY), 70);
        connection.take_exchange();
        (connection, server)
    };
    let (mut connection, mut server) = again();
    assert_eq!(
        events_of(&mut connection, &server.close(), 80),
        [ConnectionEvent::Closed]
    );
    let (mut connection, mut server) = again();
    start_secured_request(&mut connection, &mut server, 80);
    assert_eq!(
        events_of(&mut connection, &server.close(), 81),
        [ConnectionEvent::DiedIdle]
    );
    let (mut connection, mut server) = again();
    start_secured_request(&mut connection, &mut server, 80);
    let mut wire = server.respond(b"x");
    wire[7] ^= 1;
    assert_eq!(
        events_of(&mut connection, &wire, 81),
        [ConnectionEvent::DiedIdle]
    );

    // Not if the reply has begun, nor on the first exchange of the connection.
    let (mut connection, mut server) = again();
    start_secured_request(&mut connection, &mut server, 80);
    events_of(&mut connection, &server.respond(&REPLY[..9]), 81);
    let mut wire = server.respond(b"x");
    wire[7] ^= 1;
    let event = events_of(&mut connection, &wire, 82).pop();
    assert_eq!(failure(event), "tls.protocol");
    let (mut connection, mut server) = secured(&trust, usize::MAX);
    start_secured_request(&mut connection, &mut server, 60);
    let mut wire = server.respond(b"x");
    wire[7] ^= 1;
    let event = events_of(&mut connection, &wire, 70).pop();
    assert_eq!(failure(event), "tls.protocol");
}

#[test]
fn part_of_a_tls_record_ends_a_silence() {
    let trust = trust();
    let (mut connection, mut server) = secured(&trust, usize::MAX);
    start_secured_request(&mut connection, &mut server, 60);
    let wire = server.respond(&REPLY[..9]);
    events_of(&mut connection, &wire, 1000);
    let wire = server.respond(&REPLY[9..]);
    events_of(&mut connection, &wire[..5], 9000);
    let deadline = connection.deadline(&FetchSettings::default());
    assert_eq!(deadline, Some(Deadline::new(at(29_000), Phase::Idle)));
}

#[test]
fn an_end_that_arrives_with_the_reply_is_handled_before_the_exchange_is_taken() {
    for reset in [false, true] {
        let mut connection = ready();
        start_request(&mut connection, 20);
        assert_eq!(
            events_of(&mut connection, REPLY, 30),
            [ConnectionEvent::Head, ended(true)]
        );
        let event = match reset {
            false => connection.handle_end(at(30)),
            true => connection.handle_failed("reset", "reset by peer", at(30)),
        };
        assert_eq!(event, None);
        assert!(connection.take_exchange().is_some());
        assert!(connection.is_closed());
    }
}

#[test]
fn phases_from_before_the_attempt_are_not_part_of_it() {
    let trust = trust();
    let (mut connection, _) = secured(&trust, usize::MAX);
    let mut late = exchange();
    late.timings_mut().started = at(20);
    connection.start(late);
    let timings = connection.exchange().expect("under way").timings();
    assert_eq!(timings.connect, None);
    assert_eq!(timings.tls_handshake(), Some(Stamp::exact(at(40))));
    assert_eq!(timings.tls_took, Some(Duration::from_millis(25)));
}

#[test]
fn a_handshake_that_fails_is_a_failure_of_the_connection() {
    let (authority, _) = trust();
    let stranger = TlsConfig::new(&TlsSettings::new(crate::fetch::tls::testing::WALL))
        .expect("a configuration");
    let session = || TlsSession::new(&stranger, "a.test").expect("a name");
    let mut server = Server::new(&authority.good_server("a.test"));
    let mut connection = Connection::open(address(443), Some(session()), at(0), at(0));
    connection.handle_connected(Some(address(4000)), at(2), arrival(10));
    let mut out = Vec::new();
    assert!(connection.take_output(&mut out));
    let (answer, _) = server.exchange(&out);
    let events = events_of(&mut connection, &answer, 20);
    assert_eq!(failure(events.into_iter().next()), "tls.untrusted");
    assert!(connection.is_closed());
    assert_eq!(
        connection.certificates().len(),
        1,
        "the rejected certificate"
    );
    out.clear();
    assert!(!connection.take_output(&mut out));
    assert!(!out.is_empty(), "an alert is sent");

    let mut connection = Connection::open(address(443), Some(session()), at(0), at(0));
    connection.handle_connected(Some(address(4000)), at(2), arrival(10));
    assert_eq!(failure(connection.handle_end(at(20))), "tls.closed");
}

#[test]
fn a_broken_record_ends_the_exchange_after_what_came_before_it() {
    let trust = trust();
    let (mut connection, mut server) = secured(&trust, usize::MAX);
    start_secured_request(&mut connection, &mut server, 60);
    let mut wire = server.respond(&REPLY[..REPLY.len() - 1]);
    let broken = wire.len() + 7;
    wire.extend(server.respond(b"i"));
    wire[broken] ^= 1;
    let events = events_of(&mut connection, &wire, 70);
    assert_eq!(events[0], ConnectionEvent::Head);
    assert_eq!(failure(events.into_iter().nth(1)), "tls.protocol");
    let outcome = connection.take_exchange().expect("it ended").into_outcome();
    assert_eq!(outcome.body, b"h");
}

#[test]
fn memory_is_counted_and_freed() {
    let trust = trust();
    let (mut connection, mut server) = secured(&trust, usize::MAX);
    assert_eq!(connection.memory(), 0);
    start_secured_request(&mut connection, &mut server, 60);
    let reply = format!("HTTP/1.0 200 OK\r\n\r\n{}", "x".repeat(9000));
    events_of(&mut connection, &server.respond(reply.as_bytes()), 70);
    assert!(connection.memory() >= 18_000, "the wire and the body");
    connection.handle_end(at(80));
    connection.take_exchange();
    assert_eq!(connection.memory(), 0);
}

/// A connection through a proxy, established at 10 ms, whose greeting was sent.
fn tunnelling(proxy: &str, url: &str, tls: Option<TlsSession>) -> Connection {
    let proxy: Proxy = proxy.parse().expect("a proxy");
    let url = CrawlUrl::parse(url).expect("a URL");
    let tunnel = Tunnel::new(&proxy, &url).expect("a host that fits the protocol");
    let connection = Connection::open(address(3128), tls, at(0), at(0));
    let mut connection = connection.through(tunnel);
    let mut out = Vec::new();
    assert!(!connection.take_output(&mut out) && out.is_empty());
    assert_eq!(
        connection.handle_connected(Some(address(4000)), at(2), arrival(10)),
        None
    );
    assert!(
        !connection.take_output(&mut out),
        "sends to a proxy are not marked"
    );
    assert!(!out.is_empty());
    connection
}

#[test]
fn tls_starts_when_the_tunnel_is_open() {
    let trust = trust();
    let tunnel = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
    for step in [1, 7, tunnel.len()] {
        let mut connection = tunnelling("http://p:1", "https://a.test/", Some(session(&trust)));
        let mut out = Vec::new();
        for part in tunnel.chunks(step) {
            assert!(!connection.take_output(&mut out) && out.is_empty());
            assert_eq!(events_of(&mut connection, part, 100), []);
        }
        assert!(
            connection.take_output(&mut out),
            "the send of the ClientHello is marked"
        );
        connection.handle_sent(at(115), Duration::ZERO);
        let mut server = Server::new(&trust.0.good_server("a.test"));
        let (answer, _) = server.exchange(&out);
        assert_eq!(
            events_of(&mut connection, &answer, 140),
            [ConnectionEvent::Ready]
        );
        connection.start(exchange());
        let timings = connection.exchange().expect("under way").timings();
        assert_eq!(timings.connect, Some(Stamp::exact(at(10))), "to the proxy");
        assert_eq!(timings.tls_handshake(), Some(Stamp::exact(at(140))));
        assert_eq!(timings.tls_took, Some(Duration::from_millis(25)));
    }
}

#[test]
fn unsolicited_bytes_through_a_plain_tunnel_are_no_reply() {
    let granted = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let asked = || {
        let mut connection = tunnelling("socks5://p:1", "http://a.test/", None);
        assert_eq!(events_of(&mut connection, &[5, 0], 20), []);
        let mut out = Vec::new();
        assert!(!connection.take_output(&mut out) && out.ends_with(b"a.test\0\x50"));
        connection
    };
    let mut connection = asked();
    assert_eq!(
        events_of(&mut connection, &granted, 20),
        [ConnectionEvent::Ready]
    );
    assert!(connection.is_ready());
    start_request(&mut connection, 30);
    assert_eq!(
        events_of(&mut connection, REPLY, 40),
        [ConnectionEvent::Head, ended(true)]
    );

    let mut connection = asked();
    let mut events = events_of(&mut connection, &[&granted, REPLY].concat(), 20);
    assert_eq!(failure(events.pop()), "protocol.unsolicited");
    assert_eq!(events, [ConnectionEvent::Ready]);
}

#[test]
fn a_failed_tunnel_has_its_own_error_codes() {
    let begun = || tunnelling("http://p:1", "https://a.test/", Some(session(&trust())));
    let mut connection = begun();
    let event = events_of(&mut connection, b"HTTP/1.1 407 Who\r\n\r\n", 20).pop();
    assert_eq!(failure(event), "connect.proxy_auth");
    assert!(connection.is_closed());
    assert_eq!(failure(begun().handle_end(at(20))), "connect.proxy_closed");
    let event = begun().handle_failed("reset", "gone", at(20));
    assert_eq!(failure(event), "connect.proxy_closed");

    let settings = FetchSettings {
        connect_timeout: Duration::from_millis(500),
        ..FetchSettings::default()
    };
    let mut connection = begun();
    let deadline = connection
        .deadline(&settings)
        .expect("a phase with a deadline");
    assert_eq!(deadline.at, at(500), "the time for TCP is included");
    assert_eq!(connection.handle_timeout(&settings, at(499)), None);
    let event = connection.handle_timeout(&settings, at(500));
    assert_eq!(failure(event), "timeout.proxy");
}

#[test]
fn any_timeout_before_tcp_is_established_is_a_connect_timeout() {
    for (connect, whole, millis) in [(500, 300, 300), (300, 500, 300), (300, 300, 300)] {
        let settings = FetchSettings {
            connect_timeout: Duration::from_millis(connect),
            download_timeout: Duration::from_millis(whole),
            ..FetchSettings::default()
        };
        for own in [None, Some(settings.download_timeout)] {
            let mut connection =
                Connection::open(address(80), None, at(0), at(0)).with_timeout(own);
            assert_eq!(connection.handle_timeout(&settings, at(millis - 1)), None);
            let event = connection.handle_timeout(&settings, at(millis));
            assert_eq!(failure(event), "timeout.connect");
        }
    }
}
