//! Many sockets at once: what one turn may bring, and that none keeps the others waiting.

use std::time::Duration;

use super::kernel::{Carried, Kernel, kernels};
use super::{Bench, Seen, Step, Watch, token};
use crate::io::{Event, Settings};

fn of_many_sockets_a_few_are_read_at_once_and_new_connections_come_first<I: Carried>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let say = Step::Say(b"!".to_vec());
    let peer = watch.bench.listen(vec![Step::Hear(1), say]);
    let many = 60;
    for slot in 0..many {
        watch.connect(token(slot), peer);
    }
    for slot in 0..many {
        watch.io().send(token(slot), b"?", false);
    }
    watch.io().submit();
    // Sixty have something to read before the last one is even asked for.
    watch.bench.until(peer, |seen| seen.said == many as usize);
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
            assert_eq!(first, Some(token(many)), "who is ready may be late");
            events.remove(0);
            assert!(watch.io().has_news());
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

fn what_is_read_in_one_turn_is_bounded_in_bytes_too<I: Carried>() {
    let settings = Settings {
        read_budget: 20_000,
        ..Settings::default()
    };
    let most = (settings.read_budget + settings.buffer_bytes) as u64;
    let mut watch = Watch::<Kernel<I>>::with(settings);
    let say = Step::Say(vec![7; 30_000]);
    let peer = watch.bench.listen(vec![Step::Hear(1), say]);
    for slot in 0..8 {
        watch.connect(token(slot), peer);
    }
    for slot in 0..8 {
        watch.io().send(token(slot), b"?", false);
    }
    watch.io().submit();
    watch.bench.until(peer, |seen| seen.said == 8 * 30_000);
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

fn a_peer_that_sends_without_end_keeps_no_other_waiting<I: Carried>() {
    // The flood could fill all buffers there are, many times over.
    let mut watch = Watch::<Kernel<I>>::with(Settings {
        read_budget: 20_000,
        buffer_bytes: 1000,
        buffers_max: 64,
        ..Settings::default()
    });
    let flood = watch.bench.listen(vec![Step::Say(vec![7; 200_000_000])]);
    let answer = [Step::Hear(1), Step::Say(b"!".to_vec())];
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
        watch.bench.until(other, |seen| seen.said > round);
        let mut turns = 0;
        let mut heard = false;
        while !heard {
            turns += 1;
            assert!(turns <= TURNS_MAX, "round {round}: still nothing");
            watch.turn(Duration::from_secs(1));
            for seen in watch.seen.drain(..) {
                match seen {
                    Seen::Received(whose, ..) => heard |= whose == token(1),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// Turns that an answer may take to be told beside a flood: those that the flood has filled the
/// buffers for already, and one of its own.
const TURNS_MAX: usize = 8;

kernels! {
    of_many_sockets_a_few_are_read_at_once_and_new_connections_come_first
    what_is_read_in_one_turn_is_bounded_in_bytes_too
    a_peer_that_sends_without_end_keeps_no_other_waiting
}
