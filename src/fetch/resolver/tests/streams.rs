//! Queries to name servers over TCP.

use std::collections::BTreeSet;

use super::*;

fn by_tcp(received: &[ReceivedQuery]) -> impl Iterator<Item = &ReceivedQuery> {
    received
        .iter()
        .filter(|one| one.transport == Transport::Tcp)
}

/// Number of TCP connections that carried a query.
fn streams(world: &World) -> usize {
    let sockets: BTreeSet<_> = by_tcp(&world.received).map(|one| one.socket).collect();
    sockets.len()
}

/// Resolves ten new names at once; returns the time it took.
fn resolve_ten(world: &mut World) -> Duration {
    let (started, first) = (world.now, world.received.len() as u64);
    for number in first..first + 10 {
        world.resolve(&format!("{number}.test"), number);
    }
    let resolved = world.run();
    assert_eq!(resolved.len(), 10);
    assert!(
        resolved.iter().all(|one| one.result.is_ok()),
        "{resolved:?}"
    );
    world.now.saturating_since(started)
}

#[test]
fn a_truncated_reply_is_retried_over_tcp() {
    let world = plain(1, |received| match received.transport {
        Transport::Udp => received.reply(Forge::truncated),
        Transport::Tcp => honest(received),
    });
    let mut world = check(world, Ok(&["192.0.2.80"]), 21);
    assert_eq!(world.resolver.stats().tcp_fallbacks, 2);
    assert_eq!(streams(&world), 1, "both questions share a connection");
    world.resolve("b.test", 1);
    world.run();
    assert_eq!(streams(&world), 1, "and later ones use it too");
    world.pass(Duration::from_secs(10));
    assert_eq!(world.resolver.sockets(), 0, "until it was idle for long");
}

#[test]
fn without_tcp_a_truncated_reply_leads_to_the_next_server() {
    let mut world = plain(2, |received| match received.server {
        0 => received.reply(Forge::truncated),
        _ => honest(received),
    });
    world.tcp = false;
    check(world, Ok(&["192.0.2.80"]), 21);
}

#[test]
fn a_server_that_ends_its_connection_is_asked_again() {
    let world = plain(1, |received| {
        match (received.transport, received.at.as_nanos()) {
            (Transport::Udp, _) => received.reply(Forge::truncated),
            (Transport::Tcp, 0..1_000_000_000) => vec![Response::End(Duration::from_millis(1))],
            (Transport::Tcp, _) => honest(received),
        }
    });
    // The immediate retry happens once, on separate connections: then the round ends when the try
    // over TCP would have.
    check(world, Ok(&["192.0.2.80"]), 4033);
}

#[test]
fn a_connection_that_ends_between_two_queries_costs_nothing() {
    let mut world = plain(1, |received| match received.transport {
        Transport::Udp => received.reply(Forge::truncated),
        Transport::Tcp => honest(received),
    });
    world.resolve("a.test", 1);
    world.run();
    let tcp = world.received.last().expect("something was asked").socket;
    world.resolve("b.test", 1);
    world.pass_ms(12);
    assert_eq!(world.received.last().unwrap().socket, tcp, "used again");
    world.end(tcp);
    let resolved = world.run();
    assert_eq!(resolved[0].result, texts(Ok(&["192.0.2.80"])));
    assert_eq!(resolved[0].at_ms, 21 + 12 + 11);
}

/// A server that answers only over TCP, once per connection, and ends the connection after `end`.
fn once_per_connection(end: Option<Duration>) -> World {
    let mut served = BTreeSet::new();
    plain(1, move |received| match received.transport {
        Transport::Udp => received.reply(Forge::truncated),
        Transport::Tcp if !served.insert(received.socket) => Vec::new(),
        Transport::Tcp => {
            let end = end.map(Response::End).into_iter();
            honest(received).into_iter().chain(end).collect()
        }
    })
}

#[test]
fn a_server_that_answers_once_per_connection_gets_several_connections() {
    // Its connection ends with the answer.
    let mut world = once_per_connection(Some(Duration::from_millis(10)));
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(150), "{took:?}");
    assert!(streams(&world) >= 20, "{}", streams(&world));
    // From then on each query has its own, and eight are open at once.
    let (before, received) = (streams(&world), world.received.len());
    world.sockets_most = 0;
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert_eq!(
        by_tcp(&world.received[received..]).count(),
        20,
        "each is sent once"
    );
    assert!(streams(&world) - before <= 20);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.resolver.sockets(), 0);
}

#[test]
fn a_server_that_answers_once_and_stays_connected_gets_several_connections() {
    let mut world = once_per_connection(None);
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(700), "{took:?}");
    // From then on each query has its own.
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(100), "{took:?}");
    world.pass(Duration::from_secs(10));
    assert_eq!(world.resolver.sockets(), 0);
}

#[test]
fn a_connection_that_has_answered_twice_is_kept() {
    let mut times = 0;
    let mut world = plain(1, move |received| {
        if received.transport == Transport::Udp {
            return received.reply(Forge::truncated);
        }
        times += 1;
        // The first name is cached at the server, and the second has to be looked up.
        let after = if times <= 2 { 20 } else { 1500 };
        received.reply_after(after, |reply| {
            reply.address(&received.name, 300, "192.0.2.80")
        })
    });
    world.resolve("a.test", 1);
    assert_eq!(world.run().len(), 1);
    world.resolve("b.test", 2);
    assert_eq!(world.run().len(), 1);
    let sockets: Vec<_> = by_tcp(&world.received)
        .map(|received| received.socket)
        .collect();
    assert_eq!(sockets.len(), 4, "each is sent once");
    assert!(sockets.iter().all(|socket| *socket == sockets[0]));
}

#[test]
fn a_server_that_ends_a_shared_connection_without_an_answer_gets_single_queries() {
    let mut asked_on = std::collections::BTreeMap::new();
    let mut world = plain(1, move |received| {
        if received.transport == Transport::Udp {
            return received.reply(Forge::truncated);
        }
        let times = asked_on.entry(received.socket).or_insert(0);
        *times += 1;
        match *times {
            1 => received.reply_after(20, |reply| reply.address(&received.name, 300, "192.0.2.80")),
            // Unread bytes reset the connection, and its answer is lost.
            _ => vec![Response::End(Duration::from_millis(5))],
        }
    });
    world.resolve("a.test", 1);
    world.resolve("b.test", 2);
    let resolved = world.run();
    assert!(resolved.iter().all(|one| one.at_ms < 200), "{resolved:?}");
    assert_eq!(resolved.len(), 2);
}

/// A server that answers every query only over TCP; after `lag` if the query arrives within `cold`
/// of the start, except for the very first.
fn slow_by_tcp(lag: Duration, cold: Duration) -> World {
    let mut times = 0;
    plain(1, move |received| {
        if received.transport == Transport::Udp {
            return received.reply(Forge::truncated);
        }
        times += 1;
        let is_cold = times > 1 && received.at < Instant::START + cold;
        let after = if is_cold { lag.as_millis() as u64 } else { 20 };
        received.reply_after(after, |reply| {
            reply.address(&received.name, 300, "192.0.2.80")
        })
    })
}

#[test]
fn a_query_held_behind_another_is_neither_sent_nor_timed_out() {
    // Eight at a time: the last is sent after 20 s.
    let mut world = slow_by_tcp(Duration::from_millis(1900), Duration::from_secs(60));
    for number in 0..50 {
        world.resolve(&format!("{number}.test"), number);
    }
    let resolved = world.run();
    assert_eq!(resolved.len(), 50);
    assert!(
        resolved.iter().all(|one| one.result.is_ok()),
        "{resolved:?}"
    );
    assert_eq!(world.resolver.stats().timeouts, 0);
    assert_eq!(world.received.len() as u64, world.resolver.stats().queries);
}

#[test]
fn a_query_held_behind_an_unanswered_one_is_sent_after_it() {
    let mut world = plain(1, |received| match received.transport {
        Transport::Udp => received.reply(Forge::truncated),
        // The first is answered at once; the servers of the others are dead.
        Transport::Tcp if received.name == "known.test" && received.rtype == AAAA => {
            received.reply_address("2001:db8::1")
        }
        Transport::Tcp => Vec::new(),
    });
    world.resolve("known.test", 0);
    for number in 1..20 {
        world.resolve(&format!("{number}.test"), number);
    }
    world.pass_ms(600);
    assert!(streams(&world) > 1, "it gets several connections");
    for number in 20..40 {
        world.resolve(&format!("{number}.test"), number);
    }
    let resolved = world.run();
    let failed = |one: &&Resolved| one.result == Err("timeout");
    assert_eq!(resolved.iter().filter(failed).count(), 39, "{resolved:?}");
    // Each name that failed was asked as often as configured.
    for number in 1..40 {
        let name = format!("{number}.test");
        let times = by_tcp(&world.received)
            .filter(|one| one.name == name)
            .count();
        assert!(times >= 4, "{name} was asked {times} times");
    }
}

#[test]
fn a_server_that_was_slow_once_gets_a_shared_connection_later() {
    let mut world = slow_by_tcp(Duration::from_millis(900), Duration::from_secs(5));
    resolve_ten(&mut world);
    assert!(streams(&world) >= 8, "it gets several connections");
    world.pass(Duration::from_secs(35));
    let (before, received) = (streams(&world), world.received.len());
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert_eq!(streams(&world) - before, 1);
    assert_eq!(by_tcp(&world.received[received..]).count(), 20);
}

#[test]
fn retrying_a_shared_connection_costs_one_wait() {
    let mut world = once_per_connection(None);
    resolve_ten(&mut world);
    world.pass(Duration::from_secs(35));
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(700), "{took:?}");
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(100), "{took:?}");
}
