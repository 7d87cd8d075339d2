//! The resolver against servers that answer, lose, refuse, truncate and forge.

use std::time::Duration;

use proptest::prelude::*;

use self::world::{ReceivedQuery, Resolved, Response, World};
use super::*;
use crate::base::rng::Rng;
use crate::wire::dns::forge::Forge;

mod streams;
mod world;

const A: u16 = 1;
const AAAA: u16 = 28;

fn plain(servers: usize, server: impl FnMut(&ReceivedQuery) -> Vec<Response> + 'static) -> World {
    World::new(servers, |_| {}, server)
}

/// A server that has one IPv4 address for every name.
fn honest(received: &ReceivedQuery) -> Vec<Response> {
    received.reply_address("192.0.2.80")
}

/// Resolves `a.test` and checks the result and its time.
fn check(mut world: World, expected: Result<&[&str], &'static str>, at_ms: u64) -> World {
    assert_eq!(world.resolve("a.test", 1), None);
    assert_eq!(
        world.run(),
        [Resolved {
            host: "a.test".into(),
            waiters: vec![1],
            result: texts(expected),
            at_ms,
            took_ms: at_ms,
        }]
    );
    world
}

fn texts(expected: Result<&[&str], &'static str>) -> Result<Vec<String>, &'static str> {
    expected.map(|list| list.iter().map(|text| (*text).to_owned()).collect())
}

fn ready(expected: Result<&[&str], &'static str>) -> Option<Result<Vec<String>, &'static str>> {
    Some(texts(expected))
}

#[test]
fn both_families_are_queried_and_ipv6_comes_first() {
    let world = plain(1, |received| match received.rtype {
        A => received.reply(|reply| {
            reply
                .address(&received.name, 60, "192.0.2.1")
                .address(&received.name, 60, "192.0.2.2")
        }),
        _ => received.reply(|reply| reply.address(&received.name, 60, "2001:db8::1")),
    });
    let expected = Ok(&["2001:db8::1", "192.0.2.1", "192.0.2.2"][..]);
    let world = check(world, expected, 10);
    assert_eq!(world.received.len(), 2);
}

#[test]
fn a_name_with_one_family_has_only_its_addresses() {
    check(plain(1, honest), Ok(&["192.0.2.80"]), 10);
    let v6 = plain(1, |received| received.reply_address("2001:db8::80"));
    check(v6, Ok(&["2001:db8::80"]), 10);
}

#[test]
fn an_unwanted_family_is_not_queried() {
    let world = World::new(1, |settings| settings.families = Families::V4, honest);
    let world = check(world, Ok(&["192.0.2.80"]), 10);
    assert_eq!(world.received.len(), 1);
    assert_eq!(world.received[0].rtype, A);
}

#[test]
fn a_second_caller_joins_a_lookup_in_progress() {
    let mut world = plain(1, honest);
    assert_eq!(world.resolve("a.test", 1), None);
    assert_eq!(world.resolve("A.TEST.", 2), None);
    assert_eq!(world.resolve("a.test", 1), None);
    let resolved = world.run();
    assert_eq!(resolved.len(), 1);
    assert_eq!(resolved[0].waiters, [1, 2, 1]);
    assert_eq!(world.received.len(), 2);
    assert_eq!(world.resolver.stats().joined, 2);
}

#[test]
fn an_answer_is_cached_for_its_ttl() {
    let mut world = check(plain(1, honest), Ok(&["192.0.2.80"]), 10);
    world.pass(Duration::from_millis(299_999));
    assert_eq!(world.resolve("a.test", 2), ready(Ok(&["192.0.2.80"])));
    assert_eq!(world.received.len(), 2);
    assert_eq!(world.resolver.stats().hits, 1);
    world.pass_ms(1);
    assert_eq!(world.resolve("a.test", 2), None);
    world.run();
    assert_eq!(world.received.len(), 4);
}

#[test]
fn a_forced_lookup_that_fails_keeps_the_valid_answer() {
    for fails in [false, true] {
        let mut asked_before = 0;
        let world = plain(1, move |received| {
            asked_before += 1;
            match asked_before {
                1 | 2 => honest(received),
                _ if fails => Vec::new(),
                _ => received.reply_address("192.0.2.81"),
            }
        });
        let mut world = check(world, Ok(&["192.0.2.80"]), 10);
        let now = world.now;
        let lookup = world.resolver.resolve_anew("a.test", 80, 2, now);
        assert_eq!(lookup, Lookup::Pending);
        let (anew, kept) = match fails {
            false => (Ok(&["192.0.2.81"][..]), "192.0.2.81"),
            true => (Err("timeout"), "192.0.2.80"),
        };
        assert_eq!(world.run()[0].result, texts(anew));
        assert_eq!(world.resolve("a.test", 3), ready(Ok(&[kept])));
        assert!(world.now.saturating_since(now) < Duration::from_secs(60));
    }
}

#[test]
fn a_ttl_is_clamped_to_its_bounds() {
    let lives = |ttl: u32, expected: u64| {
        let mut world = World::new(
            1,
            |settings| settings.families = Families::V4,
            move |received| received.reply(|reply| reply.address("a.test", ttl, "192.0.2.1")),
        );
        assert_eq!(world.resolve("a.test", 1), None);
        world.run();
        world.pass(Duration::from_secs(expected) - Duration::from_millis(1));
        assert!(world.resolve("a.test", 1).is_some());
        world.pass_ms(1);
        assert!(world.resolve("a.test", 1).is_none());
    };
    lives(0, 30);
    lives(100_000_000, 24 * 3600);
}

#[test]
fn the_absence_of_a_name_is_cached_for_the_time_set_by_its_zone() {
    let world = plain(1, |received| {
        received.reply(|reply| reply.rcode(3).soa("test", 900, 120))
    });
    let mut world = check(world, Err("nxdomain"), 10);
    world.pass(Duration::from_millis(119_999));
    assert_eq!(world.resolve("a.test", 2), ready(Err("nxdomain")));
    world.pass_ms(1);
    assert_eq!(world.resolve("a.test", 2), None);
}

#[test]
fn a_name_without_addresses_is_nodata_and_not_nxdomain() {
    let world = plain(1, |received| {
        received.reply(|reply| reply.soa("test", 900, 120))
    });
    check(world, Err("nodata"), 10);
    // RFC 4074 §4.2: denying the name when asked for AAAA.
    let world = plain(1, |received| match received.rtype {
        A => received.reply(|reply| reply.soa("test", 900, 120)),
        _ => received.reply(|reply| reply.rcode(3)),
    });
    check(world, Err("nodata"), 10);
    let world = plain(1, |received| match received.rtype {
        A => received.reply(|reply| reply.address("a.test", 60, "192.0.2.1")),
        _ => received.reply(|reply| reply.rcode(3)),
    });
    check(world, Ok(&["192.0.2.1"]), 10);
}

#[test]
fn the_second_family_is_waited_for_50_ms() {
    let late_by = |family: u16, ms: u64| {
        plain(1, move |received| {
            let address = if received.rtype == A {
                "192.0.2.1"
            } else {
                "2001:db8::1"
            };
            let after = if received.rtype == family { ms } else { 10 };
            received.reply_after(after, |reply| reply.address(&received.name, 60, address))
        })
    };
    check(late_by(A, 59), Ok(&["2001:db8::1", "192.0.2.1"]), 59);
    check(late_by(AAAA, 59), Ok(&["2001:db8::1", "192.0.2.1"]), 59);
    let mut world = late_by(A, 100);
    assert_eq!(world.resolve("a.test", 1), None);
    world.pass_ms(60);
    assert_eq!(world.resolved[0].result, texts(Ok(&["2001:db8::1"])));
    assert_eq!(world.resolved[0].at_ms, 60);
    assert_eq!(world.resolve("a.test", 2), ready(Ok(&["2001:db8::1"])));
    world.pass_ms(50);
    let both = ready(Ok(&["2001:db8::1", "192.0.2.1"]));
    assert_eq!(world.resolve("a.test", 3), both, "the late family is kept");
    assert_eq!(world.resolved.len(), 1, "each caller gets one result");
    assert!(world.resolver.is_empty());
}

#[test]
fn a_family_that_never_answers_costs_50_ms() {
    let mut world = plain(1, |received| match received.rtype {
        A => honest(received),
        _ => Vec::new(),
    });
    assert_eq!(world.resolve("a.test", 1), None);
    let resolved = world.run();
    assert_eq!(resolved[0].result, texts(Ok(&["192.0.2.80"])));
    assert_eq!(resolved[0].at_ms, 60);
    assert_eq!(world.resolve("a.test", 2), ready(Ok(&["192.0.2.80"])));
}

#[test]
fn a_lookups_duration_excludes_our_own_delays() {
    let check = |server: fn(&ReceivedQuery) -> Vec<Response>, at_ms, took_ms| {
        let mut world = plain(1, server);
        world.lag = Duration::from_millis(20);
        assert_eq!(world.resolve("a.test", 1), None);
        // It joins the lookup, whose first query counts.
        world.pass_ms(25);
        assert_eq!(world.resolve("a.test", 2), None);
        let resolved = world.run();
        assert_eq!(resolved[0].waiters, [1, 2]);
        assert_eq!((resolved[0].at_ms, resolved[0].took_ms), (at_ms, took_ms));
    };
    // 20 ms until the queries departed, 10 ms for the answers, 20 ms until the resolver was called.
    check(honest, 50, 10);
    check(|received| received.reply(|reply| reply.rcode(3)), 50, 10);
    // The wait for the other family starts at the arrival of the answer, not when the resolver was
    // called.
    let one_family = |received: &ReceivedQuery| match received.rtype {
        A => honest(received),
        _ => Vec::new(),
    };
    check(one_family, 100, 60);
}

#[test]
fn a_lost_query_goes_to_the_next_server() {
    let world = plain(2, |received| match received.server {
        0 => Vec::new(),
        _ => honest(received),
    });
    let world = check(world, Ok(&["192.0.2.80"]), 2010);
    assert_eq!(world.resolver.stats().timeouts, 2);
}

#[test]
fn all_servers_have_their_attempts_and_then_it_is_a_timeout() {
    let world = check(plain(2, |_| Vec::new()), Err("timeout"), 12_000);
    let servers: Vec<usize> = (world.received.iter())
        .filter(|received| received.rtype == A)
        .map(|received| received.server)
        .collect();
    assert_eq!(servers, [0, 1, 0, 1, 0, 1]);
}

#[test]
fn a_late_reply_is_dropped() {
    let world = plain(1, |received| match received.at.as_nanos() {
        0 => received.reply_after(2005, |reply| {
            reply.address(&received.name, 60, "198.51.100.1")
        }),
        _ => honest(received),
    });
    let world = check(world, Ok(&["192.0.2.80"]), 2010);
    assert_eq!(world.resolver.stats().strays, 2);
}

#[test]
fn a_server_that_fails_is_passed_over() {
    for (code, expected) in [(2, "servfail"), (5, "refused"), (9, "servfail")] {
        let world = plain(2, move |received| match received.server {
            0 => received.reply(|reply| reply.rcode(code)),
            _ => honest(received),
        });
        check(world, Ok(&["192.0.2.80"]), 20);
        let world = plain(2, move |received| received.reply(|reply| reply.rcode(code)));
        let world = check(world, Err(expected), 20);
        assert_eq!(world.received.len(), 4, "one refusal per server and family");
    }
    let broken = plain(1, |received| {
        received.reply(|reply| reply.record(6, "a.test", received.rtype, 60, &[1]))
    });
    check(broken, Err("malformed"), 10);
    let referral = plain(1, |received| {
        received.reply(|reply| reply.no_recursion().ns("test", "ns.test"))
    });
    check(referral, Err("refused"), 10);
}

#[test]
fn a_failing_name_is_not_retried_at_once() {
    let mut world = check(plain(1, |_| Vec::new()), Err("timeout"), 6000);
    let received = world.received.len();
    world.pass(Duration::from_millis(29_999));
    assert_eq!(world.resolve("a.test", 1), ready(Err("timeout")));
    assert_eq!(world.received.len(), received);
    world.pass_ms(1);
    assert_eq!(world.resolve("a.test", 1), None);
    world.run();
    world.pass(Duration::from_millis(59_999));
    assert_eq!(world.resolve("a.test", 1), ready(Err("timeout")));
    world.pass_ms(1);
    assert_eq!(world.resolve("a.test", 1), None);
}

#[test]
fn a_server_without_edns_is_queried_without_it() {
    let world = plain(1, |received| match received.message[11] {
        0 => honest(received),
        _ => received.reply(|reply| reply.rcode(1)),
    });
    check(world, Ok(&["192.0.2.80"]), 20);
    let world = plain(1, |received| received.reply(|reply| reply.rcode(1)));
    check(world, Err("servfail"), 20);
}

#[test]
fn unreachable_servers_are_tried_once_per_round() {
    let world = plain(2, |_| vec![Response::End(Duration::from_millis(1))]);
    let world = check(world, Err("timeout"), 4004);
    assert!(world.received.len() <= 12);
}

#[test]
fn a_forged_reply_neither_counts_nor_ends_the_query() {
    let lie = |reply: Forge| reply.address("a.test", 60, "203.0.113.66");
    let world = plain(1, move |received| {
        let mut responses = Vec::new();
        let honest_id = u16::from_be_bytes([received.message[0], received.message[1]]);
        responses.extend(received.reply_after(1, |reply| lie(reply.id(honest_id ^ 1))));
        let mut other_question = received.message.clone();
        other_question[13] = b'z';
        let forged = lie(Forge::reply_to(&other_question)).bytes();
        responses.push(Response::Reply(Duration::from_millis(2), forged));
        responses.push(Response::Reply(
            Duration::from_millis(3),
            b"nonsense".to_vec(),
        ));
        responses.push(Response::Reply(Duration::from_millis(4), Vec::new()));
        responses.extend(honest(received));
        responses
    });
    let world = check(world, Ok(&["192.0.2.80"]), 10);
    assert_eq!(world.resolver.stats().strays, 6);
}

#[test]
fn a_right_reply_on_the_wrong_socket_does_not_count() {
    let mut world = plain(1, |_| Vec::new());
    for number in 0..20 {
        world.resolve(&format!("{number}.test"), 1);
    }
    let asked_for_a = world.received.iter().find(|received| received.rtype == A);
    let received = asked_for_a.expect("both families are asked for").clone();
    let reply = Forge::reply_to(&received.message).address(&received.name, 60, "203.0.113.66");
    let reply = reply.bytes();
    let sockets = world.open_sockets();
    assert!(sockets.len() > 1);
    for socket in sockets {
        if socket != received.socket {
            world.inject(socket, &reply);
        }
    }
    world.pass_ms(60);
    assert!(world.resolved.is_empty());
    world.inject(received.socket, &reply);
    world.pass_ms(60);
    assert_eq!(world.resolved.len(), 1);
}

#[test]
fn a_reply_in_the_wrong_case_is_checked_over_tcp() {
    let world = plain(1, |received| match received.transport {
        Transport::Udp => {
            received.reply(|reply| reply.folded().address("a.test", 60, "203.0.113.66"))
        }
        Transport::Tcp => received.reply(|reply| match received.rtype {
            A => reply.folded().address("a.test", 60, "192.0.2.80"),
            _ => reply.folded(),
        }),
    });
    let world = check(world, Ok(&["192.0.2.80"]), 21);
    assert_eq!(world.resolver.stats().tcp_fallbacks, 2);
}

#[test]
fn a_server_that_folds_cases_and_has_no_tcp_is_asked_in_lower_case() {
    let mut world = plain(1, |received| {
        received.reply(|reply| match received.rtype {
            A => reply.folded().address("a.test", 60, "192.0.2.80"),
            _ => reply.folded(),
        })
    });
    world.tcp = false;
    let world = check(world, Ok(&["192.0.2.80"]), 4020);
    assert_eq!(world.resolver.stats().strays, 2);
}

#[test]
fn an_alias_is_followed_across_replies() {
    let world = plain(1, |received| {
        match (received.name.as_str(), received.rtype) {
            ("a.test", _) => received.reply(|reply| reply.cname("a.test", 40, "b.test")),
            ("b.test", _) => received.reply(|reply| {
                reply
                    .cname("b.test", 90, "c.test")
                    .cname("c.test", 50, "d.test")
            }),
            ("d.test", A) => received.reply(|reply| reply.address("d.test", 60, "192.0.2.4")),
            _ => received.reply(|reply| reply),
        }
    });
    let mut world = check(world, Ok(&["192.0.2.4"]), 30);
    world.pass(Duration::from_millis(39_999));
    assert!(world.resolve("a.test", 1).is_some());
    world.pass_ms(1);
    assert!(
        world.resolve("a.test", 1).is_none(),
        "the shortest TTL applies"
    );
}

#[test]
fn a_loop_of_aliases_across_replies_is_an_error() {
    let world = plain(1, |received| {
        let target = if received.name == "a.test" {
            "b.test"
        } else {
            "a.test"
        };
        received.reply(|reply| reply.cname(&received.name, 60, target))
    });
    let world = check(world, Err("cname_loop"), 20);
    assert_eq!(world.received.len(), 4);
}

#[test]
fn an_endless_chain_of_aliases_is_an_error() {
    let world = plain(1, |received| {
        received.reply(|reply| reply.cname(&received.name, 60, &format!("x.{}", received.name)))
    });
    let world = check(world, Err("cname_loop"), 170);
    assert_eq!(world.received.len(), 2 * 17);
}

#[test]
fn a_name_that_cannot_be_queried_fails_at_once() {
    let mut world = plain(1, |_| panic!("no query is sent"));
    assert_eq!(world.resolve("a..test", 1), ready(Err("name_invalid")));
    assert_eq!(world.resolve("", 1), ready(Err("name_invalid")));
    assert_eq!(world.resolve("x.onion", 1), ready(Err("nxdomain")));
    assert_eq!(world.resolver.stats().lookups, 3);
    let mut world = plain(0, |_| panic!("there is no server"));
    assert_eq!(world.resolve("a.test", 1), ready(Err("no_servers")));
    assert_eq!(world.resolve("192.0.2.1", 1), ready(Ok(&["192.0.2.1"])));
    assert_eq!(world.resolver.stats().lookups, 2);
}

#[test]
fn an_override_takes_precedence_for_its_port() {
    let mut world = World::new(
        1,
        |settings| settings.overrides = vec!["a.test:80:10.0.0.1:8080".parse().unwrap()],
        honest,
    );
    let Lookup::Ready(Ok(answer)) = world.resolver.resolve("a.test", 80, 1, world.now) else {
        panic!("an override is ready");
    };
    assert_eq!(answer.port, Some(8080));
    assert_eq!(answer.source, Source::Override);
    let other_port = world.resolver.resolve("a.test", 443, 1, world.now);
    assert_eq!(other_port, Lookup::Pending);
}

#[test]
fn queries_beyond_the_limit_wait_in_line() {
    let mut world = World::new(1, |settings| settings.queries_max = 10, honest);
    for number in 0..100 {
        assert_eq!(world.resolve(&format!("{number}.test"), number), None);
    }
    assert_eq!(world.received.len(), 10);
    let resolved = world.run();
    assert_eq!(resolved.len(), 100);
    assert!(resolved.is_sorted_by_key(|one| one.waiters[0]));
    assert_eq!(resolved[99].at_ms, 200, "ten at a time, 10 ms each");
}

#[test]
fn names_and_callers_beyond_the_limit_get_busy() {
    let mut world = World::new(1, |settings| settings.pending_max = 3, honest);
    for number in 0..3 {
        assert_eq!(world.resolve(&format!("{number}.test"), 1), None);
    }
    assert_eq!(world.resolve("3.test", 1), ready(Err("busy")));
    assert_eq!(world.resolve("0.test", 2), ready(Err("busy")));
    world.run();
    assert_eq!(world.resolve("0.test", 2), ready(Ok(&["192.0.2.80"])));
    assert_eq!(world.resolve("3.test", 1), None);
}

#[test]
fn the_cache_is_bounded() {
    let mut world = World::new(1, |settings| settings.cache_max = 5, honest);
    for number in 0..50 {
        world.resolve(&format!("{number}.test"), 1);
        world.run();
    }
    assert_eq!(world.resolver.cached(), 5);
    assert!(world.resolve("49.test", 1).is_some());
    assert!(world.resolve("0.test", 1).is_none());
}

#[test]
fn ports_are_spread_and_renewed_and_closed_when_idle() {
    let mut world = plain(1, honest);
    for number in 0..2000 {
        world.resolve(&format!("{number}.test"), 1);
        world.run();
    }
    let mut per_socket = std::collections::BTreeMap::new();
    for received in &world.received {
        *per_socket.entry(received.socket).or_insert(0) += 1;
    }
    assert!(per_socket.len() >= 4000 / 8, "{}", per_socket.len());
    assert!(per_socket.values().all(|queries| *queries <= 8));
    assert!(
        (230..=256 + 2).contains(&world.sockets_most),
        "{}",
        world.sockets_most
    );
    world.pass(Duration::from_secs(10));
    assert_eq!(world.resolver.sockets(), 0);
    assert_eq!(world.resolver.next_timeout(), None);
}

#[test]
fn the_number_of_open_ports_is_bounded() {
    let mut world = World::new(2, |settings| settings.ports_max = 20, honest);
    for number in 0..500 {
        world.resolve(&format!("{number}.test"), 1);
    }
    assert_eq!(world.run().len(), 500);
    assert!(world.sockets_most <= 20, "{}", world.sockets_most);
    let mut world = World::new(3, |settings| settings.ports_max = 1, |_| Vec::new());
    world.resolve("a.test", 1);
    assert_eq!(world.run()[0].result, texts(Err("timeout")));
    assert!(world.sockets_most <= 3, "one for each server at the least");
}

#[test]
fn ids_and_cases_differ_from_query_to_query() {
    let mut world = plain(1, honest);
    let mut ids = std::collections::BTreeSet::new();
    let mut spellings = std::collections::BTreeSet::new();
    for number in 0..200 {
        world.resolve(&format!("quite-a-long-name-{number:03}.test"), 1);
        world.run();
    }
    for received in &world.received {
        ids.insert(received.message[..2].to_vec());
        spellings.insert(received.message[13..31].to_vec());
    }
    assert!(ids.len() > 390, "{}", ids.len());
    assert!(spellings.len() > 390, "{}", spellings.len());
}

#[test]
fn the_same_seed_sends_the_same_queries() {
    let trace = || {
        let mut world = plain(2, honest);
        for number in 0..50 {
            world.resolve(&format!("{number}.test"), number);
        }
        world.run();
        let trace: Vec<_> = (world.received.iter())
            .map(|received| (received.at, received.socket, received.message.clone()))
            .collect();
        trace
    };
    assert_eq!(trace(), trace());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the servers do, every caller gets one result, and no state is left.
    #[test]
    fn every_lookup_ends_and_leaves_no_state(
        seed: u64,
        hosts in 1_usize..40,
        tcp: bool,
    ) {
        let mut rng = Rng::from_seed(seed);
        let change = |settings: &mut ResolverSettings| {
            settings.queries_max = 8;
            settings.ports_max = 20;
        };
        let mut world = World::new(3, change, move |received| {
            let after = rng.below(2500);
            match rng.below(12) {
                0 | 1 => Vec::new(),
                2 => vec![Response::End(Duration::from_millis(after))],
                3 => received.reply_after(after, Forge::truncated),
                4 => received.reply_after(after, Forge::folded),
                5 => received.reply_after(after, |reply| reply.id(7)),
                6 => received.reply_after(after, |reply| reply.rcode((after % 11) as u8)),
                7 => received.reply_after(after, |reply| {
                    reply.cname(&received.name, 5, &format!("x{}", received.name))
                }),
                8 => {
                    let bytes = (0..after % 90).map(|_| rng.next_u64() as u8).collect();
                    vec![Response::Reply(Duration::from_millis(after), bytes)]
                }
                9 => received.reply_after(after, |reply| reply.record(6, "x", 1, 1, &[1])),
                _ => received.reply_address("192.0.2.80"),
            }
        });
        world.tcp = tcp;
        for number in 0..hosts {
            for who in [number, number + 1000] {
                let ready = world.resolve(&format!("{number}.test"), who as u64);
                prop_assert_eq!(ready, None);
            }
            if number % 5 == 0 {
                let open = world.open_sockets();
                world.end(open[number % open.len()]);
            }
            world.pass_ms(3);
        }
        let mut notified: Vec<Waiter> = (world.run().iter())
            .flat_map(|resolved| resolved.waiters.clone())
            .collect();
        notified.sort_unstable();
        let mut expected: Vec<Waiter> = (0..hosts as u64).chain(1000..1000 + hosts as u64).collect();
        expected.sort_unstable();
        prop_assert_eq!(notified, expected);
        prop_assert!(world.sockets_most <= 20 + 3 * 8, "{}", world.sockets_most);
        world.pass(Duration::from_secs(20));
        prop_assert_eq!(world.resolver.sockets(), 0);
        prop_assert_eq!(world.resolver.next_timeout(), None);
        prop_assert_eq!(world.resolver.in_flight, 0);
        prop_assert_eq!(world.resolver.waiting, 0);
        prop_assert!(world.resolver.by_host.is_empty());
        prop_assert!(world.resolver.line.is_empty());
    }
}
