//! The tests of every back end, except those of its disk. Each takes a bench; the macro at the end lists the
//! benches.

use std::time::Duration;

use super::{Bench, Seen, Step, Watch, token};
use crate::base::gzip::Gzip;
use crate::base::time::Instant;
use crate::io::{Close, Compute, Io, IoSettings, NetError, Token, WorkerJob};

fn a_connection_reports_when_it_began_and_when_it_was_established<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let peer = watch.bench.listen(vec![]);
    let before = watch.io().now();
    watch.io().connect(token(3), peer);
    let Seen::Connected {
        token: whose,
        started,
        stamp,
    } = watch.next()
    else {
        panic!("a listening peer accepts");
    };
    assert_eq!(whose, token(3));
    assert!(before <= started && started <= stamp.at && stamp.at <= watch.io().now());
    let ours = watch.io().local(token(3)).expect("it is established");
    assert!(ours.port() != 0 && ours.ip().is_loopback() == peer.ip().is_loopback());
    watch.close(token(3));
    assert_eq!(watch.io().local(token(3)), None);
}

fn a_refused_connection_fails_once<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let refusing = watch.bench.refuse();
    watch.io().connect(token(0), refusing);
    assert!(matches!(watch.next(), Seen::Failed(whose, NetError::Refused) if whose == token(0)));
    assert!(watch.during(SHORT).is_empty());
    watch.close(token(0));
}

fn nothing_leaves_before_submit<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let peer = watch.bench.listen(vec![Step::Expect(5)]);
    watch.connect(token(0), peer);
    watch.io().send(token(0), b"hello", true);
    // A wait does not submit.
    let until = watch.io().now() + SHORT;
    let mut events = Vec::new();
    while watch.io().now() < until {
        watch.io().wait(Some(until), &mut events);
    }
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(watch.bench.received(peer), b"");
    let before = watch.io().now();
    watch.io().submit();
    assert!(matches!(watch.next(), Seen::Sent(whose, at) if whose == token(0) && at >= before));
    watch.during(SHORT);
    assert_eq!(watch.bench.received(peer), b"hello");
}

fn bytes_sent_while_connecting_leave_when_connected<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let peer = watch.bench.listen(vec![Step::Expect(6), Step::End]);
    watch.io().connect(token(0), peer);
    watch.io().send(token(0), b"abc", true);
    watch.io().submit();
    watch.io().send(token(0), b"def", false);
    let Seen::Connected { stamp, .. } = watch.next() else {
        panic!("a listening peer accepts");
    };
    assert!(matches!(watch.next(), Seen::Sent(_, at) if at >= stamp.at));
    assert_eq!(watch.read_to_end(token(0)), (vec![], None));
    assert_eq!(watch.bench.received(peer), b"abcdef");
}

fn an_arrival_is_stamped_after_the_send_that_it_answers<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let script = vec![Step::Expect(1), Step::Send(b"!".to_vec())];
    let peer = watch.bench.listen(vec![script; 20].concat());
    watch.connect(token(0), peer);
    for _ in 0..20 {
        watch.io().send(token(0), b"?", true);
        let Seen::Sent(_, sent) = watch.next() else {
            panic!("a marked send is reported");
        };
        let Seen::Received(_, bytes, stamp) = watch.next() else {
            panic!("the peer answers");
        };
        assert_eq!(bytes, b"!");
        assert!(sent <= stamp.at && stamp.at <= watch.io().now());
    }
}

fn bytes_arrive_complete_and_in_order_whatever_their_number<B: Bench>() {
    let mut watch = Watch::<B>::new();
    for (slot, length) in [1, 2, 16_383, 16_384, 16_385, 300_000, 1_000_000]
        .into_iter()
        .enumerate()
    {
        let body = pattern(length);
        let peer = watch
            .bench
            .listen(vec![Step::Send(body.clone()), Step::End]);
        let token = token(slot as u32);
        watch.connect(token, peer);
        assert!(
            watch.read_to_end(token) == (body, None),
            "of {length} bytes"
        );
        watch.close(token);
    }
}

fn bytes_that_the_socket_does_not_take_at_once_follow<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let length = 12_000_000;
    let peer = watch.bench.listen(vec![
        Step::Pause(SHORT),
        Step::Expect(length + 3),
        Step::End,
    ]);
    watch.connect(token(0), peer);
    let body = pattern(length);
    watch.io().send(token(0), &body, true);
    watch.io().submit();
    watch.io().send(token(0), b"end", true);
    assert_eq!(watch.read_to_end(token(0)), (vec![], None));
    let received = watch.bench.received(peer);
    assert!(received[..length] == body && &received[length..] == b"end");
}

fn every_marked_send_is_reported_once_and_in_order<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let length = 4_000_000;
    let peer = watch.bench.listen(vec![
        Step::Pause(SHORT),
        Step::Expect(3 * length),
        Step::End,
    ]);
    watch.connect(token(0), peer);
    let body = pattern(length);
    for _ in 0..3 {
        watch.io().send(token(0), &body, true);
    }
    let mut sent: Vec<Instant> = Vec::new();
    loop {
        match watch.next() {
            Seen::Sent(_, at) => sent.push(at),
            Seen::Flushed(..) => {}
            Seen::Ended(..) => break,
            other => panic!("sent or ended expected, not {other:?}"),
        }
    }
    assert_eq!(sent.len(), 3);
    assert!(sent.is_sorted());
}

fn the_end_is_reported_once_and_after_the_bytes<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let peer = watch
        .bench
        .listen(vec![Step::Send(b"bye".to_vec()), Step::End]);
    watch.connect(token(0), peer);
    let mut arrived = Vec::new();
    let ended = loop {
        match watch.next() {
            Seen::Received(_, bytes, stamp) => arrived.push((bytes, stamp.at)),
            Seen::Ended(_, stamp) => break stamp.at,
            other => panic!("{other:?}"),
        }
    };
    assert!(arrived.iter().is_sorted_by_key(|(_, at)| *at));
    assert!(arrived.iter().all(|(_, at)| *at <= ended) && ended <= watch.io().now());
    let arrived: Vec<u8> = arrived.into_iter().flat_map(|(bytes, _)| bytes).collect();
    assert_eq!(arrived, b"bye");
    assert!(watch.during(SHORT).is_empty());
}

fn a_reset_is_a_failure<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let peer = watch.bench.listen(vec![Step::Expect(1), Step::Reset]);
    watch.connect(token(0), peer);
    watch.io().send(token(0), b"x", false);
    assert_eq!(watch.read_to_end(token(0)), (vec![], Some(NetError::Reset)));
    assert!(watch.during(SHORT).is_empty());
}

fn a_closed_token_is_forgotten_when_its_slot_is_reused<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let noisy = watch.bench.listen(vec![
        Step::Expect(1),
        Step::Send(pattern(100_000)),
        Step::End,
    ]);
    let quiet = watch.bench.listen(vec![Step::Send(b"new".to_vec())]);
    for (generation, how) in [(1, Close::Finish), (2, Close::Reset), (3, Close::Finish)] {
        let old = Token {
            slot: 0,
            generation: 2 * generation,
        };
        let new = Token {
            slot: 0,
            generation: 2 * generation + 1,
        };
        watch.connect(old, noisy);
        watch.io().send(old, b"x", true);
        watch.io().submit();
        watch.io().close(old, how);
        watch.io().connect(new, quiet);
        // Neither a send nor a close under the old token affects the new socket.
        watch.io().send(old, b"stale", true);
        watch.io().close(old, Close::Reset);
        let seen = watch.during(SHORT);
        let mut arrived = Vec::new();
        for (index, seen) in seen.into_iter().enumerate() {
            match seen {
                Seen::Connected { token, .. } if index == 0 && token == new => {}
                Seen::Received(whose, bytes, _) if whose == new => arrived.extend(bytes),
                other => panic!("{new:?} received {other:?}"),
            }
        }
        assert_eq!(arrived, b"new");
        watch.close(new);
    }
    assert_eq!(watch.bench.received(quiet), b"");
}

fn a_socket_beyond_the_limit_fails_as_exhausted<B: Bench>() {
    let mut watch = Watch::<B>::with(IoSettings {
        sockets_max: 2,
        ..IoSettings::default()
    });
    assert_eq!(watch.io().capacity(), 2);
    let peer = watch.bench.listen(vec![]);
    watch.connect(token(0), peer);
    watch.connect(token(1), peer);
    watch.io().connect(token(2), peer);
    assert!(matches!(watch.next(), Seen::Failed(whose, NetError::Exhausted) if whose == token(2)));
    watch.close(token(2));
    watch.close(token(0));
    watch.connect(token(2), peer);
}

fn a_connection_that_is_not_read_slows_its_peer<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let body = pattern(500_000);
    let peer = watch
        .bench
        .listen(vec![Step::Send(body.clone()), Step::End]);
    watch.connect(token(0), peer);
    watch.io().set_reading(token(0), false);
    // Bytes that came together with the connection may be reported already.
    let mut early = Vec::new();
    for seen in watch.during(SHORT) {
        match seen {
            Seen::Received(_, bytes, _) => early.extend(bytes),
            other => panic!("a connection that is not read reported {other:?}"),
        }
    }
    assert!(watch.during(SHORT).is_empty());
    watch.io().set_reading(token(0), true);
    let (rest, end) = watch.read_to_end(token(0));
    early.extend(rest);
    assert!(early == body && end.is_none());
}

fn an_empty_pool_stops_reading_until_chunks_are_released<B: Bench>() {
    let mut watch = Watch::<B>::with(IoSettings {
        buffer_bytes: 1000,
        buffers_max: 3,
        ..IoSettings::default()
    });
    let body = pattern(50_000);
    let script = vec![Step::Send(body.clone()), Step::End];
    let peer = watch.bench.listen(script);
    let io = watch.bench.io();
    io.connect(token(0), peer);
    io.connect(token(1), peer);
    let mut held = Vec::new();
    let mut got = [Vec::new(), Vec::new()];
    let mut ended = 0;
    let give_up_at = io.now() + super::TIMEOUT;
    while ended < 2 {
        assert!(io.now() < give_up_at, "the pool never recovered");
        let mut events = Vec::new();
        io.wait(Some(io.now() + SHORT), &mut events);
        for event in events {
            match event {
                crate::io::Event::Received { token, chunk, .. } => {
                    got[token.slot as usize].extend_from_slice(io.bytes(&chunk));
                    held.push(chunk);
                }
                crate::io::Event::Ended { .. } => ended += 1,
                crate::io::Event::Connected { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(held.len() <= 3);
        if held.len() == 3 {
            assert!(!io.has_pending(), "no buffer is free");
        }
        for chunk in held.drain(..) {
            io.release(chunk);
        }
    }
    assert!(got[0] == body && got[1] == body);
}

fn a_long_reply_does_not_delay_other_sockets<B: Bench>() {
    let mut watch = Watch::<B>::with(IoSettings {
        read_budget: 16 * 1024,
        ..IoSettings::default()
    });
    let long = watch
        .bench
        .listen(vec![Step::Send(pattern(1_000_000)), Step::End]);
    let short = watch.bench.listen(vec![Step::Send(b"!".to_vec())]);
    for (slot, peer) in [(0, long), (1, short)] {
        watch.io().connect(token(slot), peer);
        watch.io().set_reading(token(slot), false);
    }
    // Both have much or all of their input pending when reading begins.
    watch.during(SHORT);
    watch.io().set_reading(token(0), true);
    watch.io().set_reading(token(1), true);
    let mut before = 0;
    loop {
        match watch.next() {
            Seen::Received(whose, bytes, _) if whose == token(0) => before += bytes.len(),
            Seen::Received(_, bytes, _) => break assert_eq!(bytes, b"!"),
            other => panic!("{other:?}"),
        }
    }
    assert!(
        before <= 2 * 16 * 1024,
        "{before} bytes before the other's turn"
    );
    let (rest, end) = watch.read_to_end(token(0));
    assert_eq!((before + rest.len(), end), (1_000_000, None));
}

fn a_quiet_wait_lasts_until_its_deadline<B: Bench>() {
    let mut watch = Watch::<B>::new();
    for micros in [1, 300, 999, 1000, 1700, 20_000] {
        let io = watch.io();
        let until = io.now() + Duration::from_micros(micros);
        let mut events = Vec::new();
        io.wait(Some(until), &mut events);
        assert!(events.is_empty());
        assert!(io.now() >= until, "{micros} µs were cut short");
    }
    // A deadline that has passed does not cause a sleep.
    let io = watch.io();
    let before = io.now();
    io.wait(Some(Instant::START), &mut Vec::new());
    assert!(io.now() < before + Duration::from_secs(1));
}

fn a_waker_ends_a_wait_that_has_no_deadline<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let waker = watch.io().waker();
    for _ in 0..3 {
        waker.wake();
        let mut events = Vec::new();
        watch.io().wait(None, &mut events);
        assert!(matches!(events[..], [crate::io::Event::Woken]));
    }
}

fn a_datagram_comes_back_from_where_it_went<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let echo = watch.bench.echo();
    for slot in 0..10 {
        watch.io().open_datagram(token(slot), echo);
    }
    for slot in 0..10 {
        watch.io().send(token(slot), b"one", true);
        watch.io().send(token(slot), &[slot as u8; 900], false);
        let mut got = Vec::new();
        while got.len() < 2 {
            match watch.next() {
                Seen::Received(whose, bytes, _) if whose == token(slot) => got.push(bytes),
                Seen::Sent(whose, _) if whose == token(slot) => {}
                other => panic!("{other:?}"),
            }
        }
        got.sort_by_key(Vec::len);
        assert_eq!(got, [b"one".to_vec(), vec![slot as u8; 900]]);
    }
}

fn a_datagram_longer_than_a_buffer_is_truncated<B: Bench>() {
    let mut watch = Watch::<B>::with(IoSettings {
        buffer_bytes: 100,
        ..IoSettings::default()
    });
    let echo = watch.bench.echo();
    watch.io().open_datagram(token(0), echo);
    for length in [300, 7] {
        watch.io().send(token(0), &vec![b'x'; length], false);
        let Seen::Received(_, bytes, _) = watch.next() else {
            panic!("the echo answers");
        };
        assert_eq!(bytes.len(), length.min(100));
    }
    assert!(watch.during(SHORT).is_empty());
}

fn a_datagram_to_a_port_without_a_listener_fails<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let refusing = watch.bench.refuse();
    watch.io().open_datagram(token(0), refusing);
    watch.io().send(token(0), b"anyone?", false);
    assert!(matches!(watch.next(), Seen::Failed(whose, NetError::Refused) if whose == token(0)));
}

struct Double(u32);

impl Compute for Double {
    fn run(&mut self, _gzip: &mut Gzip) {
        self.0 = self.0.checked_mul(2).expect("it fits");
    }
}

/// The numbers of computations that come back, and the numbers that they computed or their panics.
fn computed<B: Bench>(workers: usize, numbers: &[u32]) -> Vec<(u64, Result<u32, String>)> {
    let settings = IoSettings {
        workers,
        ..IoSettings::default()
    };
    let mut watch = Watch::<B>::with(settings);
    for (number, value) in (0..).zip(numbers) {
        let compute = Box::new(Double(*value));
        watch.io().compute(WorkerJob { number, compute });
    }
    watch.io().submit();
    let mut results = Vec::new();
    while results.len() < numbers.len() {
        let Seen::Computed(mut done) = watch.next() else {
            panic!("nothing else is under way");
        };
        let (number, panic) = (done.number, done.panic.take());
        let value = done.into_computed::<Double>().0;
        results.push((number, panic.map_or(Ok(value), Err)));
    }
    assert!(watch.during(SHORT).is_empty());
    results.sort_by_key(|(number, _)| *number);
    results
}

fn computations_come_back_with_their_results_in_any_order<B: Bench>() {
    for workers in [0, 1, 3] {
        let expected = vec![(0, Ok(2)), (1, Ok(4)), (2, Ok(6))];
        assert_eq!(computed::<B>(workers, &[1, 2, 3]), expected, "{workers}");
    }
}

fn a_computation_that_panics_comes_back_with_its_message<B: Bench>() {
    for workers in [0, 1] {
        let expected = vec![(0, Err("it fits".to_owned())), (1, Ok(8))];
        assert_eq!(
            computed::<B>(workers, &[u32::MAX, 4]),
            expected,
            "{workers}"
        );
    }
}

pub(super) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

/// Enough for loopback to settle.
const SHORT: Duration = Duration::from_millis(60);

/// The tests of a file for each bench.
macro_rules! suite {
    ($($name:ident)*) => {
        mod kernel {
            use $crate::io::conformance::kernel::Kernel;

            $(#[test] fn $name() { super::$name::<Kernel>(); })*
        }

        mod uring {
            use $crate::io::conformance::kernel::{Kernel, has_uring};

            $(#[test] fn $name() {
                if has_uring() {
                    super::$name::<Kernel<$crate::io::Uring>>();
                }
            })*
        }

        mod simulated {
            use $crate::io::conformance::simulated::Simulated;

            $(#[test] fn $name() { super::$name::<Simulated>(); })*
        }
    };
}

pub(super) use suite;

suite! {
    a_connection_reports_when_it_began_and_when_it_was_established
    a_refused_connection_fails_once
    nothing_leaves_before_submit
    bytes_sent_while_connecting_leave_when_connected
    an_arrival_is_stamped_after_the_send_that_it_answers
    bytes_arrive_complete_and_in_order_whatever_their_number
    bytes_that_the_socket_does_not_take_at_once_follow
    every_marked_send_is_reported_once_and_in_order
    the_end_is_reported_once_and_after_the_bytes
    a_reset_is_a_failure
    a_closed_token_is_forgotten_when_its_slot_is_reused
    a_socket_beyond_the_limit_fails_as_exhausted
    a_connection_that_is_not_read_slows_its_peer
    an_empty_pool_stops_reading_until_chunks_are_released
    a_long_reply_does_not_delay_other_sockets
    a_quiet_wait_lasts_until_its_deadline
    a_waker_ends_a_wait_that_has_no_deadline
    a_datagram_comes_back_from_where_it_went
    a_datagram_longer_than_a_buffer_is_truncated
    a_datagram_to_a_port_without_a_listener_fails
    computations_come_back_with_their_results_in_any_order
    a_computation_that_panics_comes_back_with_its_message
}
