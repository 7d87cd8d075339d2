//! Listeners and accepted connections.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use super::suite::suite;
use super::{Bench, Seen, Step, Watch, token};
use crate::base::disk::DiskJob;
use crate::io::sockets::listening::{ACCEPTED_MAX, ACCEPTS_A_TURN};
use crate::io::{Accepted, Close, Endpoint, Event, Io, IoSettings, NetError, Peer, Token};

/// The token of the listener.
const LISTENER: u32 = 40;

/// Both kinds of endpoint. The first has a port of the kernel's choice.
fn endpoints<B: Bench>(watch: &Watch<B>) -> [Endpoint; 2] {
    [
        Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
        Endpoint::Unix {
            path: watch.bench.folder().join("control.sock"),
            mode: 0o600,
        },
    ]
}

/// Listens; returns the endpoint to connect to.
fn listen<B: Bench>(watch: &mut Watch<B>, token: Token, at: &Endpoint) -> Endpoint {
    watch.io().listen(token, at).expect("the endpoint is free");
    match at {
        Endpoint::Tcp(_) => {
            let address = watch.io().local(token).expect("it is a TCP listener");
            assert_ne!(address.port(), 0);
            Endpoint::Tcp(address)
        }
        Endpoint::Unix { .. } => {
            assert_eq!(watch.io().local(token), None);
            at.clone()
        }
    }
}

/// The next accepted connection.
fn accepted<B: Bench>(watch: &mut Watch<B>) -> (Accepted, Peer) {
    match watch.next() {
        Seen::Accepted(listener, accepted, peer) if listener == token(LISTENER) => (accepted, peer),
        other => panic!("a connection expected, not {other:?}"),
    }
}

/// Waits until a client's connection is over.
fn wait_until_over<B: Bench>(watch: &mut Watch<B>, client: SocketAddr) {
    let give_up_at = watch.io().now() + super::TIMEOUT;
    while !watch.bench.is_over(client) {
        assert!(watch.io().now() < give_up_at, "its connection goes on");
        let seen = watch.during(Duration::from_millis(1));
        assert!(seen.is_empty(), "{seen:?}");
    }
}

fn an_accepted_connection_sends_receives_and_ends_like_any_other<B: Bench>() {
    let mut watch = Watch::<B>::new();
    for at in endpoints(&watch) {
        let at = listen(&mut watch, token(LISTENER), &at);
        let script = vec![
            Step::Send(b"request".to_vec()),
            Step::Expect(6),
            Step::Send(b"more".to_vec()),
            Step::End,
        ];
        let client = watch.bench.call(&at, script);
        let (connection, peer) = accepted(&mut watch);
        match (&at, peer) {
            (Endpoint::Tcp(_), Peer::Tcp(address)) => assert_ne!(address.port(), 0),
            (Endpoint::Unix { .. }, Peer::Unix(credentials)) => {
                assert_eq!(credentials, watch.bench.credentials());
            }
            other => panic!("{other:?}"),
        }
        let before = watch.io().now();
        watch.io().accept(token(0), connection);
        let local = match &at {
            Endpoint::Tcp(address) => Some(*address),
            Endpoint::Unix { .. } => None,
        };
        assert_eq!(watch.io().local(token(0)), local);
        let Seen::Received(whose, bytes, stamp) = watch.next() else {
            panic!("the client sends a request");
        };
        assert_eq!((whose, &bytes[..]), (token(0), &b"request"[..]));
        assert!(stamp.at <= watch.io().now());
        watch.io().send(token(0), b"ans", true);
        watch.io().submit();
        watch.io().send(token(0), b"wer", false);
        assert!(matches!(watch.next(), Seen::Sent(whose, at) if whose == token(0) && at >= before));
        assert_eq!(watch.read_to_end(token(0)), (b"more".to_vec(), None));
        assert_eq!(watch.bench.received(client), b"answer");
        watch.close(token(0));
        wait_until_over(&mut watch, client);
        watch.close(token(LISTENER));
        assert_eq!(watch.io().local(token(LISTENER)), None);
    }
}

fn a_large_body_leaves_through_an_accepted_connection_whole<B: Bench>() {
    let mut watch = Watch::<B>::new();
    for at in endpoints(&watch) {
        let at = listen(&mut watch, token(LISTENER), &at);
        let length = 5_000_000;
        let script = vec![
            Step::Pause(Duration::from_millis(20)),
            Step::Expect(length),
            Step::End,
        ];
        let client = watch.bench.call(&at, script);
        let (connection, _) = accepted(&mut watch);
        watch.io().accept(token(0), connection);
        let body: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        watch.io().send(token(0), &body, true);
        assert_eq!(watch.read_to_end(token(0)), (vec![], None));
        assert!(watch.bench.received(client) == body);
        watch.close(token(0));
        watch.close(token(LISTENER));
    }
}

fn a_reset_of_an_accepted_tcp_connection_is_a_failure<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let at = endpoints(&watch)[0].clone();
    let at = listen(&mut watch, token(LISTENER), &at);
    watch.bench.call(&at, vec![Step::Expect(1), Step::Reset]);
    let (connection, _) = accepted(&mut watch);
    watch.io().accept(token(0), connection);
    watch.io().send(token(0), b"x", false);
    assert_eq!(watch.read_to_end(token(0)), (vec![], Some(NetError::Reset)));
    watch.close(token(0));
}

fn a_dropped_connection_is_closed<B: Bench>() {
    let mut watch = Watch::<B>::new();
    for at in endpoints(&watch) {
        let at = listen(&mut watch, token(LISTENER), &at);
        let client = watch.bench.call(&at, vec![]);
        let (connection, _) = accepted(&mut watch);
        assert!(watch.during(SHORT).is_empty());
        assert!(!watch.bench.is_over(client));
        drop(connection);
        wait_until_over(&mut watch, client);
        watch.close(token(LISTENER));
    }
}

fn a_closed_listener_refuses_and_its_token_is_free_again<B: Bench>() {
    let mut watch = Watch::<B>::new();
    for at in endpoints(&watch) {
        let at = listen(&mut watch, token(LISTENER), &at);
        let early = watch.bench.call(&at, vec![]);
        let (connection, _) = accepted(&mut watch);
        watch.io().accept(token(0), connection);
        watch.close(token(LISTENER));
        // Before the next submit.
        let late = watch.bench.call(&at, vec![]);
        wait_until_over(&mut watch, late);
        assert!(!watch.bench.is_over(early), "what was accepted stays");
        watch.io().send(token(0), b"still here", false);
        for _ in 0..super::TIMEOUT.div_duration_f64(SHORT) as usize {
            assert!(watch.during(SHORT).is_empty());
            if !watch.bench.received(early).is_empty() {
                break;
            }
        }
        assert_eq!(watch.bench.received(early), b"still here");
        watch.close(token(0));
        let at = listen(&mut watch, token(LISTENER), &at);
        watch.bench.call(&at, vec![]);
        let (connection, _) = accepted(&mut watch);
        drop(connection);
        watch.close(token(LISTENER));
    }
}

fn a_turn_accepts_a_bounded_number_and_the_next_turn_the_rest<B: Bench>() {
    let many = 2 * ACCEPTS_A_TURN + 3;
    let mut watch = Watch::<B>::new();
    for at in endpoints(&watch) {
        let at = listen(&mut watch, token(LISTENER), &at);
        for _ in 0..many {
            watch.bench.call(&at, vec![]);
        }
        // All of them wait in the kernel by then.
        watch.bench.settle();
        let mut counts = Vec::new();
        while counts.iter().sum::<usize>() < many {
            let mut events = Vec::new();
            let io = watch.io();
            if !counts.is_empty() {
                assert!(io.has_pending(), "more can be accepted at once");
            }
            let until = io.now() + super::TIMEOUT;
            io.wait(Some(until), &mut events);
            let is_accepted = |event: &Event| matches!(event, Event::Accepted { .. });
            assert!(!events.is_empty(), "timed out: {counts:?}");
            assert!(events.iter().all(is_accepted), "{events:?}");
            counts.push(events.len());
        }
        assert_eq!(counts, [ACCEPTS_A_TURN, ACCEPTS_A_TURN, 3]);
        watch.close(token(LISTENER));
    }
}

fn a_listener_with_all_places_taken_accepts_when_one_is_free<B: Bench>() {
    let mut watch = Watch::<B>::with(IoSettings {
        sockets_max: 1,
        ..IoSettings::default()
    });
    let peer = watch.bench.listen(vec![]);
    for at in endpoints(&watch) {
        let at = listen(&mut watch, token(LISTENER), &at);
        for _ in 0..ACCEPTED_MAX + 2 {
            watch.bench.call(&at, vec![]);
        }
        let (adopted, _) = accepted(&mut watch);
        watch.io().accept(token(0), adopted);
        let mut waiting: Vec<_> = (1..ACCEPTED_MAX).map(|_| accepted(&mut watch).0).collect();
        assert!(watch.during(SHORT).is_empty(), "all places are taken");
        assert!(!watch.io().has_pending());
        waiting.pop();
        waiting.push(accepted(&mut watch).0);
        assert!(watch.during(SHORT).is_empty(), "all places are taken");
        watch.io().close(token(0), Close::Reset);
        waiting.push(accepted(&mut watch).0);
        drop(waiting);
        // None of them counts towards the capacity.
        watch.connect(token(1), peer);
        watch.close(token(1));
        watch.close(token(LISTENER));
    }
}

fn an_endpoint_in_use_is_an_error_that_names_it<B: Bench>() {
    let mut watch = Watch::<B>::new();
    for at in endpoints(&watch) {
        let at = listen(&mut watch, token(LISTENER), &at);
        let error = watch.io().listen(token(1), &at);
        let error = error.expect_err("the endpoint is in use");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let text = format!("cannot listen on {at}: ");
        assert!(error.to_string().starts_with(&text), "{error}");
        // The listener that has it goes on.
        watch.bench.call(&at, vec![]);
        drop(accepted(&mut watch));
        watch.close(token(LISTENER));
        watch.io().listen(token(1), &at).expect("it is free again");
        watch.close(token(1));
    }
}

fn an_existing_file_at_a_unix_path_is_an_error_and_stays<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let path = watch.bench.folder().join("control.sock");
    let write = DiskJob::Replace {
        path: path.clone(),
        bytes: b"precious".to_vec(),
        tag: 0,
    };
    watch.disk(write).result.expect("there is room");
    let at = endpoints(&watch)[1].clone();
    let error = watch.io().listen(token(LISTENER), &at);
    let error = error.expect_err("there is a file");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let text = error.to_string();
    assert!(text.contains("control.sock: the file exists"), "{text}");
    assert_eq!(watch.bench.content(&path), Some(b"precious".to_vec()));
}

fn one_listener_too_many_is_an_error<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let at = endpoints(&watch)[0].clone();
    for slot in 0..4 {
        listen(&mut watch, token(slot), &at);
    }
    let error = watch.io().listen(token(4), &at).expect_err("one too many");
    assert!(error.to_string().contains("4 listeners"), "{error}");
    watch.close(token(2));
    listen(&mut watch, token(4), &at);
}

/// Enough for loopback to settle.
const SHORT: Duration = Duration::from_millis(40);

suite! {
    an_accepted_connection_sends_receives_and_ends_like_any_other
    a_large_body_leaves_through_an_accepted_connection_whole
    a_reset_of_an_accepted_tcp_connection_is_a_failure
    a_dropped_connection_is_closed
    a_closed_listener_refuses_and_its_token_is_free_again
    a_turn_accepts_a_bounded_number_and_the_next_turn_the_rest
    a_listener_with_all_places_taken_accepts_when_one_is_free
    an_endpoint_in_use_is_an_error_that_names_it
    an_existing_file_at_a_unix_path_is_an_error_and_stays
    one_listener_too_many_is_an_error
}
