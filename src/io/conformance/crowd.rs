//! Many sockets at once: bounds of a turn, and fairness.

use std::time::Duration;

use super::kernel::{Kernel, KernelBackEnd, kernels};
use super::{Bench, Seen, Step, Watch, token};
use crate::io::{Event, IoSettings};

fn a_turn_reads_a_few_sockets_and_reports_new_connections_first<I: KernelBackEnd>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let send = Step::Send(b"!".to_vec());
    let peer = watch.bench.listen(vec![Step::Expect(1), send]);
    let many = 60;
    for slot in 0..many {
        watch.connect(token(slot), peer);
    }
    for slot in 0..many {
        watch.io().send(token(slot), b"?", false);
    }
    watch.io().submit();
    // Sixty have something to read before the last one begins to connect.
    watch
        .bench
        .until(peer, |seen| seen.sent_bytes == many as usize);
    watch.io().connect(token(many), peer);
    watch
        .bench
        .until(peer, |seen| seen.accepted > many as usize);
    let mut events = Vec::new();
    let mut turns = Vec::new();
    while turns.iter().sum::<usize>() < many as usize {
        watch.io().wait(None, &mut events);
        if turns.is_empty() {
            let first = events.first().and_then(Event::token);
            assert_eq!(
                first,
                Some(token(many)),
                "a connection is reported before bytes"
            );
            events.remove(0);
            assert!(watch.io().has_pending());
        }
        turns.push(events.len());
        for event in events.drain(..) {
            match event {
                Event::Received { chunk, .. } => watch.io().release(chunk),
                other => panic!("a reply expected, not {other:?}"),
            }
        }
    }
    let most = turns.iter().max();
    assert!(most.is_some_and(|most| *most <= 20), "{turns:?}");
}

fn what_is_ready_leaves_before_connections_begin<I: KernelBackEnd>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let peer = watch.bench.listen(vec![Step::Expect(1)]);
    watch.connect(token(0), peer);
    watch.io().send(token(0), b"?", true);
    for slot in 1..4 {
        watch.io().connect(token(slot), peer);
    }
    watch.io().submit();
    let (mut left, mut begun) = (None, Vec::new());
    while left.is_none() || begun.len() < 3 {
        match watch.next() {
            Seen::Sent(_, at) => left = Some(at),
            Seen::Connected { started, .. } => begun.push(started),
            other => panic!("{other:?}"),
        }
    }
    assert!(
        begun.iter().all(|begun| Some(*begun) >= left),
        "{left:?}, {begun:?}"
    );
}

fn a_turn_reads_half_as_many_datagrams_as_streams<I: KernelBackEnd>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let (echo, many) = (watch.bench.echo(), 60);
    for slot in 0..many {
        watch.io().open_datagram(token(slot), echo);
        watch.io().send(token(slot), b"?", false);
    }
    watch.io().submit();
    let mut events = Vec::new();
    let mut turns = Vec::new();
    while turns.iter().sum::<usize>() < many as usize {
        watch.io().wait(None, &mut events);
        turns.push(events.len());
        for event in events.drain(..) {
            match event {
                Event::Received { chunk, .. } => watch.io().release(chunk),
                other => panic!("an answer expected, not {other:?}"),
            }
        }
    }
    let most = turns.iter().max();
    assert!(most.is_some_and(|most| *most <= 8), "{turns:?}");
}

fn the_bytes_read_in_one_turn_are_bounded<I: KernelBackEnd>() {
    let settings = IoSettings {
        read_budget: 20_000,
        ..IoSettings::default()
    };
    let most = (settings.read_budget + settings.buffer_bytes) as u64;
    let mut watch = Watch::<Kernel<I>>::with(settings);
    let send = Step::Send(vec![7; 30_000]);
    let peer = watch.bench.listen(vec![Step::Expect(1), send]);
    for slot in 0..8 {
        watch.connect(token(slot), peer);
    }
    for slot in 0..8 {
        watch.io().send(token(slot), b"?", false);
    }
    watch.io().submit();
    watch
        .bench
        .until(peer, |seen| seen.sent_bytes == 8 * 30_000);
    let (mut events, mut left) = (Vec::new(), 8 * 30_000);
    while left > 0 {
        watch.io().wait(None, &mut events);
        let mut read = 0;
        for event in events.drain(..) {
            match event {
                Event::Received { chunk, .. } => {
                    read += u64::from(chunk.length);
                    watch.io().release(chunk);
                }
                other => panic!("a reply expected, not {other:?}"),
            }
        }
        assert!(read <= most, "{read} bytes in one turn");
        left -= read;
    }
}

fn a_peer_that_sends_without_end_does_not_delay_others<I: KernelBackEnd>() {
    // The flood could fill all buffers many times over.
    let mut watch = Watch::<Kernel<I>>::with(IoSettings {
        read_budget: 20_000,
        buffer_bytes: 1000,
        buffers_max: 64,
        ..IoSettings::default()
    });
    let flood = watch.bench.listen(vec![Step::Send(vec![7; 200_000_000])]);
    let answer = [Step::Expect(1), Step::Send(b"!".to_vec())];
    let other = watch.bench.listen(vec![answer; 10].concat());
    for (slot, peer) in [(0, flood), (1, other)] {
        watch.io().connect(token(slot), peer);
    }
    let mut connected = 0;
    while connected < 2 {
        connected += usize::from(matches!(watch.next(), Seen::Connected { .. }));
    }
    for round in 0..10 {
        watch.io().send(token(1), b"?", false);
        watch.io().submit();
        watch.bench.until(other, |seen| seen.sent_bytes > round);
        let mut turns = 0;
        let mut received = false;
        while !received {
            turns += 1;
            assert!(turns <= TURNS_MAX, "round {round}: no reply");
            watch.turn(Duration::from_secs(1));
            for seen in watch.seen.drain(..) {
                match seen {
                    Seen::Received(whose, ..) => received |= whose == token(1),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

fn a_short_reply_does_not_wait_for_many_long_ones<I: KernelBackEnd>() {
    const LONG: u32 = 40;
    let mut watch = Watch::<Kernel<I>>::with(IoSettings {
        read_budget: 20_000,
        buffer_bytes: 1000,
        ..IoSettings::default()
    });
    let flood = vec![Step::Expect(1), Step::Send(vec![7; 20_000_000])];
    let flood = watch.bench.listen(flood);
    let answer = vec![Step::Expect(1), Step::Send(b"!".to_vec())];
    let other = watch.bench.listen(answer);
    for slot in 0..=LONG {
        let peer = if slot == LONG { other } else { flood };
        watch.io().connect(token(slot), peer);
    }
    let mut connected = 0;
    while connected <= LONG {
        connected += u32::from(matches!(watch.next(), Seen::Connected { .. }));
    }
    for slot in 0..LONG {
        watch.io().send(token(slot), b"?", false);
    }
    let mut received = vec![0; LONG as usize];
    while received.iter().any(|bytes| *bytes < 40_000) {
        if let Seen::Received(whose, bytes, _) = watch.next() {
            received[whose.slot as usize] += bytes.len();
        }
    }
    watch.io().send(token(LONG), b"?", false);
    watch.io().submit();
    watch.bench.until(other, |seen| seen.sent_bytes == 1);
    watch.seen.clear();
    let mut turns = 0;
    let is_it = |seen: &Seen| matches!(seen, Seen::Received(whose, ..) if *whose == token(LONG));
    while !watch.seen.iter().any(is_it) {
        turns += 1;
        assert!(turns <= TURNS_MAX, "no reply");
        watch.turn(Duration::from_secs(1));
    }
}

/// Turns until a reply beside a flood is reported: those whose buffers the flood has filled already, and
/// one of its own.
const TURNS_MAX: usize = 8;

kernels! {
    a_turn_reads_a_few_sockets_and_reports_new_connections_first
    what_is_ready_leaves_before_connections_begin
    a_turn_reads_half_as_many_datagrams_as_streams
    the_bytes_read_in_one_turn_are_bounded
    a_peer_that_sends_without_end_does_not_delay_others
    a_short_reply_does_not_wait_for_many_long_ones
}
