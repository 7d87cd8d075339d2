//! Name servers that are asked over TCP.

use std::collections::BTreeSet;

use super::*;

fn by_tcp(asked: &[Asked]) -> impl Iterator<Item = &Asked> {
    asked.iter().filter(|one| one.transport == Transport::Tcp)
}

/// Number of TCP connections that carried a query.
fn streams(world: &World) -> usize {
    let sockets: BTreeSet<_> = by_tcp(&world.asked).map(|one| one.socket).collect();
    sockets.len()
}

/// Resolves ten new names at once; returns how long that took.
fn resolve_ten(world: &mut World) -> Duration {
    let (started, first) = (world.now, world.asked.len() as u64);
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
fn a_truncated_reply_is_had_over_tcp() {
    let world = plain(1, |asked| match asked.transport {
        Transport::Udp => asked.reply(Forge::truncated),
        Transport::Tcp => honest(asked),
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
    let mut world = plain(2, |asked| match asked.server {
        0 => asked.reply(Forge::truncated),
        _ => honest(asked),
    });
    world.tcp = false;
    check(world, Ok(&["192.0.2.80"]), 21);
}

#[test]
fn a_server_that_ends_its_connection_is_asked_again() {
    let world = plain(1, |asked| match (asked.transport, asked.at.as_nanos()) {
        (Transport::Udp, _) => asked.reply(Forge::truncated),
        (Transport::Tcp, 0..1_000_000_000) => vec![Say::End(Duration::from_millis(1))],
        (Transport::Tcp, _) => honest(asked),
    });
    // At once is once again, on connections of their own: then the round ends when the try over TCP would have.
    check(world, Ok(&["192.0.2.80"]), 4033);
}

#[test]
fn a_connection_that_ends_between_two_queries_costs_nothing() {
    let mut world = plain(1, |asked| match asked.transport {
        Transport::Udp => asked.reply(Forge::truncated),
        Transport::Tcp => honest(asked),
    });
    world.resolve("a.test", 1);
    world.run();
    let tcp = world.asked.last().expect("something was asked").socket;
    world.resolve("b.test", 1);
    world.pass_ms(12);
    assert_eq!(world.asked.last().unwrap().socket, tcp, "used again");
    world.end(tcp);
    let resolved = world.run();
    assert_eq!(resolved[0].result, texts(Ok(&["192.0.2.80"])));
    assert_eq!(resolved[0].at_ms, 21 + 12 + 11);
}

/// A server that answers by TCP alone, once per connection, and then ends it as `end` says.
fn once_per_connection(end: Option<Duration>) -> World {
    let mut served = BTreeSet::new();
    plain(1, move |asked| match asked.transport {
        Transport::Udp => asked.reply(Forge::truncated),
        Transport::Tcp if !served.insert(asked.socket) => Vec::new(),
        Transport::Tcp => {
            let end = end.map(Say::End).into_iter();
            honest(asked).into_iter().chain(end).collect()
        }
    })
}

#[test]
fn a_server_that_answers_once_per_connection_is_asked_on_several() {
    // Its connection ends with the answer.
    let mut world = once_per_connection(Some(Duration::from_millis(10)));
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(150), "{took:?}");
    assert!(streams(&world) >= 20, "{}", streams(&world));
    // From then on each question has its own, and eight are open at once.
    let (before, asked) = (streams(&world), world.asked.len());
    world.sockets_most = 0;
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert_eq!(
        by_tcp(&world.asked[asked..]).count(),
        20,
        "each is sent once"
    );
    assert!(streams(&world) - before <= 20);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.resolver.sockets(), 0);
}

#[test]
fn a_server_that_answers_once_and_keeps_the_connection_open_is_asked_on_several() {
    let mut world = once_per_connection(None);
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(700), "{took:?}");
    // From then on each question has its own.
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(100), "{took:?}");
    world.pass(Duration::from_secs(10));
    assert_eq!(world.resolver.sockets(), 0);
}

#[test]
fn a_connection_that_has_answered_twice_is_waited_for() {
    let mut times = 0;
    let mut world = plain(1, move |asked| {
        if asked.transport == Transport::Udp {
            return asked.reply(Forge::truncated);
        }
        times += 1;
        // The first name is known, and the second has to be looked up.
        let after = if times <= 2 { 20 } else { 1500 };
        asked.reply_after(after, |reply| reply.address(&asked.name, 300, "192.0.2.80"))
    });
    world.resolve("a.test", 1);
    assert_eq!(world.run().len(), 1);
    world.resolve("b.test", 2);
    assert_eq!(world.run().len(), 1);
    let sockets: Vec<_> = by_tcp(&world.asked).map(|asked| asked.socket).collect();
    assert_eq!(sockets.len(), 4, "each is sent once");
    assert!(sockets.iter().all(|socket| *socket == sockets[0]));
}

#[test]
fn a_server_that_ends_a_connection_of_several_without_an_answer_is_asked_one_by_one() {
    let mut asked_on = std::collections::BTreeMap::new();
    let mut world = plain(1, move |asked| {
        if asked.transport == Transport::Udp {
            return asked.reply(Forge::truncated);
        }
        let times = asked_on.entry(asked.socket).or_insert(0);
        *times += 1;
        match *times {
            1 => asked.reply_after(20, |reply| reply.address(&asked.name, 300, "192.0.2.80")),
            // What it did not read resets the connection, and its answer is lost.
            _ => vec![Say::End(Duration::from_millis(5))],
        }
    });
    world.resolve("a.test", 1);
    world.resolve("b.test", 2);
    let resolved = world.run();
    assert!(resolved.iter().all(|one| one.at_ms < 200), "{resolved:?}");
    assert_eq!(resolved.len(), 2);
}

/// A server that answers every query by TCP alone: after `late` those that come within `cold` of the
/// start, but for the first of all.
fn slow_by_tcp(late: Duration, cold: Duration) -> World {
    let mut times = 0;
    plain(1, move |asked| {
        if asked.transport == Transport::Udp {
            return asked.reply(Forge::truncated);
        }
        times += 1;
        let is_cold = times > 1 && asked.at < Instant::START + cold;
        let after = if is_cold { late.as_millis() as u64 } else { 20 };
        asked.reply_after(after, |reply| reply.address(&asked.name, 300, "192.0.2.80"))
    })
}

#[test]
fn a_query_that_waits_behind_another_is_neither_sent_nor_timed_out() {
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
    assert_eq!(world.asked.len() as u64, world.resolver.stats().queries);
}

#[test]
fn a_query_that_waits_behind_one_without_an_answer_is_sent_after_it() {
    let mut world = plain(1, |asked| match asked.transport {
        Transport::Udp => asked.reply(Forge::truncated),
        // The first is known at once, the others' servers are dead.
        Transport::Tcp if asked.name == "known.test" && asked.rtype == AAAA => {
            asked.reply_address("2001:db8::1")
        }
        Transport::Tcp => Vec::new(),
    });
    world.resolve("known.test", 0);
    for number in 1..20 {
        world.resolve(&format!("{number}.test"), number);
    }
    world.pass_ms(600);
    assert!(streams(&world) > 1, "it is asked on several");
    for number in 20..40 {
        world.resolve(&format!("{number}.test"), number);
    }
    let resolved = world.run();
    let failed = |one: &&Resolved| one.result == Err("timeout");
    assert_eq!(resolved.iter().filter(failed).count(), 39, "{resolved:?}");
    // All that failed were asked as often as is configured.
    for number in 1..40 {
        let name = format!("{number}.test");
        let times = by_tcp(&world.asked).filter(|one| one.name == name).count();
        assert!(times >= 4, "{name} was asked {times} times");
    }
}

#[test]
fn a_server_that_was_slow_once_is_asked_on_a_shared_connection_later() {
    let mut world = slow_by_tcp(Duration::from_millis(900), Duration::from_secs(5));
    resolve_ten(&mut world);
    assert!(streams(&world) >= 8, "it is asked on several");
    world.pass(Duration::from_secs(35));
    let (before, asked) = (streams(&world), world.asked.len());
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert_eq!(streams(&world) - before, 1);
    assert_eq!(by_tcp(&world.asked[asked..]).count(), 20);
}

#[test]
fn a_server_that_does_answer_once_per_connection_costs_one_wait_when_it_is_tried_again() {
    let mut world = once_per_connection(None);
    resolve_ten(&mut world);
    world.pass(Duration::from_secs(35));
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(700), "{took:?}");
    let took = resolve_ten(&mut world);
    assert!(took < Duration::from_millis(100), "{took:?}");
}
