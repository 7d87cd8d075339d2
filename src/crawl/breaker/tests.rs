//! The breaker alone: when it opens, and when it closes.

use std::collections::HashMap;

use super::*;

const V4: Egress = Egress::Global4;
const V6: Egress = Egress::Global6;

/// A breaker with a clock, and the scripted results of its probes.
struct Bench {
    breaker: Breaker,
    now: Instant,
    orders: Vec<Order>,
    /// Result of a probe of any address.
    connects: Probed,
    /// Result of a probe of an IPv6 address, if it differs.
    connects6: Option<Probed>,
    lookups: Probed,
    /// Every second lookup is answered, the others fail.
    lookups_by_turns: bool,
    /// Hosts to be picked from the queue, the last one first.
    picks: Vec<Picked>,
    /// Whether no host is picked in time.
    picks_nothing: bool,
}

impl Bench {
    fn new() -> Self {
        Bench {
            breaker: Breaker::default(),
            now: Instant::START + Duration::from_secs(1000),
            orders: Vec::new(),
            connects: Probed::Failed,
            connects6: None,
            lookups: Probed::Failed,
            lookups_by_turns: false,
            picks: Vec::new(),
            picks_nothing: false,
        }
    }

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([93, 184, number, 1], 80))
    }

    fn address_by(egress: Egress, number: u8) -> SocketAddr {
        match egress {
            V6 => SocketAddr::from(([0x2606, 0x4700, number.into(), 0, 0, 0, 0, 1], 80)),
            _ => Self::address(number),
        }
    }

    fn answer(&mut self, egress: Egress, number: u8) {
        self.pass(0.06);
        let target = match egress {
            Egress::Names => Target::Name(format!("known{number}.test").into()),
            _ => Target::Address(Self::address_by(egress, number)),
        };
        let network = 1000 + u64::from(number);
        self.breaker
            .handle_answer(egress, network, Some(target), self.now);
        self.settle();
    }

    /// After 10 ms, makes one host fail on each of `count` networks.
    fn fail(&mut self, egress: Egress, cause: Cause, count: u8) -> Vec<Judgement> {
        self.fail_of(egress, cause, 0, count)
    }

    /// As [`fail`](Self::fail), on the networks from number `first` on.
    fn fail_of(&mut self, egress: Egress, cause: Cause, first: u8, count: u8) -> Vec<Judgement> {
        self.pass(0.01);
        let fail = |number| {
            let target = match egress {
                Egress::Names => Target::Name(format!("host{number}.test").into()),
                _ => Target::Address(Self::address_by(egress, 100_u8.wrapping_add(number))),
            };
            let failed = Failed {
                egress,
                network: u64::from(number),
                cause,
                began: self.now,
                target,
            };
            let judgement = self.breaker.handle_failure(failed, 1000, self.now);
            self.settle();
            judgement
        };
        (first..first + count).map(fail).collect()
    }

    /// Carries out the orders. A target answers at once, or never.
    fn settle(&mut self) {
        while let Some(order) = self.breaker.poll() {
            if let Order::Pick { probe, .. } = &order
                && !self.picks_nothing
            {
                let picked = self.picks.pop().unwrap_or(Picked::Exhausted);
                self.breaker.handle_picked(*probe, picked);
            }
            let ended = match &order {
                Order::Connect { probe, to } => {
                    let ended = self.connects6.filter(|_| to.is_ipv6());
                    Some((*probe, ended.unwrap_or(self.connects)))
                }
                Order::Lookup { probe, .. } => match self.lookups_by_turns && probe % 2 == 0 {
                    true => Some((*probe, Probed::Answered)),
                    false => Some((*probe, self.lookups)),
                },
                _ => None,
            };
            self.orders.push(order);
            if let Some((probe, ended)) = ended {
                self.breaker.handle_probe(probe, ended, self.now);
            }
        }
    }

    fn pass(&mut self, seconds: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while let Some(at) = self.breaker.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.breaker.handle_timeout(self.now);
            self.settle();
        }
        self.now = end;
    }

    fn is_open(&self, egress: Egress) -> bool {
        self.breaker.blocked_until(egress).is_some()
    }

    /// Takes the orders so far, as one word each.
    fn words(&mut self) -> Vec<&'static str> {
        let word = |order: &Order| match order {
            Order::Connect { .. } => "connect",
            Order::Lookup { .. } => "lookup",
            Order::Pick { .. } => "pick",
            Order::Abandon { .. } => "abandon",
            Order::Charge(_) => "charge",
            Order::Open(..) => "open",
            Order::Close(..) => "close",
        };
        self.orders.drain(..).map(|order| word(&order)).collect()
    }
}

#[test]
fn eight_failed_networks_open_it_if_none_of_three_known_hosts_answers() {
    let mut bench = Bench::new();
    for number in 0..5 {
        bench.answer(V4, number);
        bench.pass(0.1);
    }
    let judged = bench.fail(V4, Cause::Unreachable, 9);
    assert_eq!(judged[..7], [Judgement::Suspend; 7]);
    assert_eq!(judged[8], Judgement::PutBack);
    assert!(bench.is_open(V4) && bench.breaker.stops_all());
    assert_eq!(bench.words(), ["connect", "connect", "connect", "open"]);
}

#[test]
fn one_known_host_that_answers_charges_the_failed_ones() {
    let mut bench = Bench::new();
    for number in 0..5 {
        bench.answer(V4, number);
        bench.pass(0.1);
    }
    bench.connects = Probed::Answered;
    let judged = bench.fail(V4, Cause::TimedOut, 8);
    assert_eq!(judged, [Judgement::Suspend; 8]);
    assert!(!bench.is_open(V4));
    assert!(bench.words().contains(&"charge"));
    // A refused connection counts as an answer.
    bench.connects = Probed::Refused;
    bench.pass(6.0);
    bench.fail(V4, Cause::TimedOut, 8);
    assert!(bench.words().contains(&"charge"));
}

#[test]
fn seven_networks_do_not_open_it_and_are_charged_within_five_seconds() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    let judged = bench.fail(V4, Cause::Unreachable, 7);
    assert_eq!(judged, [Judgement::Suspend; 7]);
    // Repeated failures on the same seven networks do not count.
    bench.fail(V4, Cause::Unreachable, 7);
    assert_eq!(bench.words(), [""; 0]);
    bench.pass(5.0);
    assert_eq!(bench.words(), ["charge"]);
    assert!(!bench.is_open(V4));
}

#[test]
fn answers_that_arrived_before_a_failure_charge_no_host() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    let judged = bench.fail(V4, Cause::NoRoute, 3);
    assert_eq!(judged, [Judgement::Suspend; 3]);
    let target = Target::Address(Bench::address(7));
    bench.breaker.handle_answer(V4, 7, Some(target), bench.now);
    bench.settle();
    assert_eq!(bench.words(), [""; 0]);
    let judged = bench.fail(V4, Cause::NoRoute, 9);
    assert_eq!(judged[8], Judgement::PutBack);
}

#[test]
fn failures_ten_seconds_apart_are_not_counted_together() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    for number in 0..20 {
        bench.pass(2.0);
        let failed = Failed {
            egress: V4,
            network: number,
            cause: Cause::TimedOut,
            began: bench.now,
            target: Target::Address(Bench::address(9)),
        };
        bench.breaker.handle_failure(failed, 1000, bench.now);
        bench.settle();
    }
    bench.pass(10.0);
    assert!(!bench.words().contains(&"connect"));
}

#[test]
fn an_answer_charges_suspended_failures_and_those_during_its_attempt() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    assert_eq!(bench.fail(V4, Cause::TimedOut, 1), [Judgement::Suspend]);
    bench.answer(V4, 1);
    assert_eq!(bench.words(), ["charge"]);
    let failed = Failed {
        egress: V4,
        network: 7,
        cause: Cause::TimedOut,
        began: bench.now - Duration::from_secs(10),
        target: Target::Address(Bench::address(9)),
    };
    let judged = bench
        .breaker
        .handle_failure(failed.clone(), 1000, bench.now);
    assert_eq!(judged, Judgement::Charge);
    // An answer in the first half of the attempt does not show that the network worked.
    bench.pass(6.0);
    let failed = Failed {
        began: bench.now - Duration::from_secs(10),
        ..failed
    };
    let judged = bench.breaker.handle_failure(failed, 1000, bench.now);
    assert_eq!(judged, Judgement::Suspend);
}

#[test]
fn down_hosts_do_not_open_it_before_the_first_answer() {
    for cause in [Cause::TimedOut, Cause::Unreachable] {
        let mut bench = Bench::new();
        assert_eq!(bench.fail(V4, cause, 50), [Judgement::Charge; 50]);
    }
    let mut bench = Bench::new();
    let judged = bench.fail(Egress::Names, Cause::NamesFailed, 50);
    assert_eq!(
        judged,
        [Judgement::Charge; 50],
        "one dead name server has many names"
    );
    assert_eq!(bench.words(), [""; 0]);
}

#[test]
fn a_missing_route_opens_it_before_the_first_answer_and_a_probe_with_a_route_closes_it() {
    let mut bench = Bench::new();
    bench.connects = Probed::NoRoute;
    bench.fail(V4, Cause::NoRoute, 8);
    assert_eq!(bench.words(), ["open"]);
    bench.pass(60.0);
    assert!(bench.is_open(V4));
    bench.connects = Probed::Failed;
    bench.pass(31.0);
    assert!(
        !bench.is_open(V4),
        "there is a route, though that host is dead"
    );
}

#[test]
fn silent_name_servers_open_it_before_the_first_answer_unless_they_answer_a_query() {
    let mut bench = Bench::new();
    bench.fail(Egress::Names, Cause::NamesSilent, 8);
    assert_eq!(bench.words(), ["lookup", "open"]);
    assert!(bench.breaker.stops_all());
    let mut bench = Bench::new();
    bench.lookups = Probed::Answered;
    bench.fail(Egress::Names, Cause::NamesSilent, 8);
    assert!(bench.words().contains(&"charge"), "some names are dead");
}

#[test]
fn failing_name_servers_open_it_if_known_hosts_are_silent_or_known_names_fail() {
    // The network is down, and the resolver answers from its cache.
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.answer(Egress::Names, 0);
    bench.lookups = Probed::Answered;
    bench.fail(Egress::Names, Cause::NamesFailed, 8);
    assert!(bench.is_open(Egress::Names));
    // The network works and the resolver does not.
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.answer(Egress::Names, 0);
    bench.connects = Probed::Answered;
    bench.fail(Egress::Names, Cause::NamesFailed, 8);
    assert!(bench.is_open(Egress::Names));
    assert!(
        !bench.breaker.stops_all(),
        "hosts that are known can be asked"
    );
    // Both work: the names themselves fail.
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.answer(Egress::Names, 0);
    (bench.connects, bench.lookups) = (Probed::Answered, Probed::Answered);
    bench.fail(Egress::Names, Cause::NamesFailed, 8);
    assert!(!bench.is_open(Egress::Names));
    assert!(bench.words().contains(&"charge"));
}

#[test]
fn single_probes_go_out_at_pauses_that_grow_to_thirty_seconds_until_one_is_answered() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.fail(V4, Cause::TimedOut, 8);
    bench.orders.clear();
    let mut asked = Vec::new();
    let began = bench.now;
    for _ in 0..1500 {
        bench.pass(0.1);
        let connects = bench.orders.drain(..);
        if connects
            .filter(|o| matches!(o, Order::Connect { .. }))
            .count()
            > 0
        {
            asked.push(bench.now.saturating_since(began).as_secs_f64().round());
        }
    }
    let pauses: Vec<f64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(asked[0], 1.0);
    assert_eq!(pauses, [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]);
    bench.connects = Probed::Answered;
    bench.pass(31.0);
    assert!(!bench.is_open(V4));
    assert_eq!(bench.words(), ["connect", "close"]);
    let (times, span) = bench.breaker.totals(bench.now);
    assert_eq!(times, 1);
    assert!((150.0..185.0).contains(&span.as_secs_f64()), "{span:?}");
}

#[test]
fn a_probe_without_an_answer_times_out() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.fail(V4, Cause::TimedOut, 8);
    bench.orders.clear();
    bench.pass(0.5);
    // From here on probes are neither answered nor refused.
    let mut abandoned = 0;
    for _ in 0..1200 {
        bench.now += Duration::from_millis(100);
        if bench
            .breaker
            .next_timeout()
            .is_some_and(|at| at <= bench.now)
        {
            bench.breaker.handle_timeout(bench.now);
        }
        while let Some(order) = bench.breaker.poll() {
            abandoned += usize::from(matches!(order, Order::Abandon { .. }));
        }
        assert!(bench.breaker.probes.len() <= 1, "one probe at a time");
    }
    assert!((4..=7).contains(&abandoned), "{abandoned}");
}

#[test]
fn failures_without_a_route_are_charged_if_the_other_family_works() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.connects = Probed::Answered;
    bench.fail(V6, Cause::NoRoute, 8);
    assert!(!bench.is_open(V6));
    assert!(bench.words().contains(&"charge"));
    // With few failures, the next answer decides.
    bench.pass(6.0);
    bench.fail(V6, Cause::NoRoute, 3);
    assert_eq!(bench.words(), [""; 0]);
    bench.answer(V4, 1);
    assert_eq!(bench.words(), ["charge"]);
}

#[test]
fn a_family_that_never_worked_stops_no_other() {
    let mut bench = Bench::new();
    bench.connects = Probed::NoRoute;
    // IPv4 was not tried yet.
    bench.fail(V6, Cause::NoRoute, 8);
    assert!(bench.is_open(V6));
    assert!(!bench.breaker.stops_all());
    bench.answer(V4, 0);
    assert!(
        !bench.is_open(V6),
        "what has only IPv6 is charged from now on"
    );
}

#[test]
fn names_are_looked_up_although_no_known_host_answers() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.answer(Egress::Names, 0);
    bench.fail(Egress::Names, Cause::NamesSilent, 8);
    assert!(bench.is_open(Egress::Names));
    bench.lookups = Probed::Answered;
    bench.pass(100.0);
    assert!(!bench.is_open(Egress::Names));
}

#[test]
fn where_no_family_works_both_open() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.answer(V6, 0);
    bench.fail(V6, Cause::NoRoute, 8);
    bench.fail(V4, Cause::NoRoute, 8);
    assert!(bench.is_open(V6) && bench.is_open(V4) && bench.breaker.stops_all());
}

#[test]
fn a_refusal_by_the_proxy_counts_as_a_failure_of_the_egress() {
    let proxy = Egress::Proxy(Bench::address(1));
    let mut bench = Bench::new();
    bench.answer(proxy, 1);
    bench.connects = Probed::Refused;
    bench.fail(proxy, Cause::Refused, 8);
    assert!(bench.is_open(proxy));
    bench.connects = Probed::Answered;
    bench.pass(2.0);
    assert!(!bench.is_open(proxy));
}

#[test]
fn failures_of_few_hosts_are_charged_at_once_if_there_is_a_route() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.pass(1.0);
    let failed = Failed {
        egress: V4,
        network: 7,
        cause: Cause::Unreachable,
        began: bench.now,
        target: Target::Address(Bench::address(9)),
    };
    let judged = bench
        .breaker
        .handle_failure(failed, NETWORKS_MIN - 1, bench.now);
    assert_eq!(judged, Judgement::Charge);
}

#[test]
fn name_servers_are_queried_for_uncached_names() {
    let mut bench = Bench::new();
    (0..5).for_each(|number| bench.answer(Egress::Names, number));
    bench.fail(Egress::Names, Cause::NamesFailed, 8);
    assert!(bench.is_open(Egress::Names));
    bench.pass(100.0);
    let asked = bench.orders.iter().filter_map(|order| match order {
        Order::Lookup { question, .. } => Some(question.clone()),
        _ => None,
    });
    let below = |number| Question::Below(format!("known{number}.test").into());
    let asked: Vec<_> = asked.collect();
    assert_eq!(asked[..3], [below(4), below(3), below(2)], "in the check");
    assert!(asked.len() > 5);
    let is_below = |question: &Question| matches!(question, Question::Below(_));
    assert!(asked.iter().all(is_below), "{asked:?}");
    // The check succeeds if one of its three lookups is answered.
    let mut bench = Bench::new();
    (0..5).for_each(|number| bench.answer(Egress::Names, number));
    bench.lookups_by_turns = true;
    bench.fail(Egress::Names, Cause::NamesFailed, 8);
    assert!(!bench.is_open(Egress::Names));
}

#[test]
fn a_nonexistent_name_is_an_answer_and_not_queried_again() {
    let mut bench = Bench::new();
    let (network, now) = (7, bench.now);
    let breaker = &mut bench.breaker;
    breaker.handle_answer(Egress::Names, network, None, now);
    bench.fail(Egress::Names, Cause::NamesSilent, 8);
    let question = bench.orders.iter().find_map(|order| match order {
        Order::Lookup { question, .. } => Some(question.clone()),
        _ => None,
    });
    assert_eq!(question, Some(Question::Any(NAME_FOR_ANY_ANSWER.into())));
}

#[test]
fn a_host_not_picked_in_time_does_not_judge_the_route() {
    let mut bench = Bench::new();
    bench.connects = Probed::NoRoute;
    bench.fail(V4, Cause::NoRoute, 8);
    assert!(bench.is_open(V4));
    bench.picks_nothing = true;
    bench.pass(300.0);
    assert!(bench.words().contains(&"pick"));
    assert!(bench.is_open(V4));
}

#[test]
fn charged_failures_do_not_affect_the_verdict_on_later_ones() {
    // An answer that may be older than the failures decides neither about the first failure nor about one
    // soon after it.
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.fail(V4, Cause::TimedOut, 1);
    bench.pass(3.1);
    assert!(bench.words().contains(&"charge"));
    bench.fail_of(V4, Cause::TimedOut, 10, 1);
    let target = Some(Target::Address(Bench::address(1)));
    bench.pass(0.01);
    bench.breaker.handle_answer(V4, 1001, target, bench.now);
    bench.settle();
    assert_eq!(bench.words(), [""; 0], "it may be older than the failure");
    // A missing route is suspended, though another host timed out just before.
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.fail(V4, Cause::TimedOut, 1);
    bench.pass(3.1);
    bench.fail_of(V4, Cause::NoRoute, 10, 3);
    bench.pass(3.1);
    assert!(bench.is_open(V4));
}

#[test]
fn while_the_crawl_is_paused_no_probe_begins() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.fail(V4, Cause::TimedOut, 8);
    bench.pass(10.0);
    bench.words();
    bench.breaker.set_paused(true);
    bench.pass(1000.0);
    assert_eq!(bench.words(), [""; 0]);
    bench.breaker.set_paused(false);
    bench.pass(0.0);
    assert!(!bench.words().is_empty());
}

#[test]
fn name_servers_that_failed_with_the_network_are_probed_once_it_recovers() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.answer(Egress::Names, 0);
    bench.fail(V4, Cause::TimedOut, 8);
    bench.fail(Egress::Names, Cause::NamesSilent, 8);
    assert!(bench.is_open(V4) && bench.is_open(Egress::Names));
    bench.pass(100.0);
    (bench.connects, bench.lookups) = (Probed::Answered, Probed::Answered);
    bench.pass(35.0);
    assert!(!bench.is_open(V4) && !bench.is_open(Egress::Names));
}

#[test]
fn memory_is_bounded_with_many_proxies_and_hosts() {
    let mut bench = Bench::new();
    for number in 0..2000_u32 {
        let proxy = SocketAddr::from((number.to_be_bytes(), 8080));
        let network = u64::from(number);
        let target = Target::Address(proxy);
        let egress = Egress::Proxy(proxy);
        bench
            .breaker
            .handle_answer(egress, network, Some(target), bench.now);
        bench.pass(0.1);
        bench.fail(V4, Cause::NoRoute, (number % 250) as u8);
    }
    assert!(bench.breaker.watches.len() <= WATCHES_MAX + 4);
    assert!(bench.breaker.probes.len() <= WATCHES_MAX);
}

#[test]
fn probes_alternate_between_queued_and_known_hosts() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.fail(V4, Cause::TimedOut, 8);
    bench.orders.clear();
    let fresh = |number: u8| Picked::Host {
        network: 500 + u64::from(number),
        target: Target::Address(Bench::address(number)),
    };
    bench.picks = vec![Picked::Failed, fresh(61), fresh(60)];
    bench.pass(100.0);
    let mut asked: Vec<Option<u8>> = Vec::new();
    for order in bench.orders.drain(..) {
        match order {
            Order::Pick { .. } => asked.push(None),
            Order::Connect { to, .. } => match to.ip() {
                IpAddr::V4(ip) => asked.push(Some(ip.octets()[2])),
                IpAddr::V6(_) => unreachable!("none is asked"),
            },
            other => panic!("{other:?}"),
        }
    }
    let expected = [
        Some(0),
        None,
        Some(60),
        Some(100),
        None,
        Some(61),
        Some(0),
        None,
        Some(101),
    ];
    assert_eq!(asked[..9], expected);
    assert!(bench.breaker.was_tried(V4, 560) && bench.breaker.was_tried(V4, 3));
    // No queued host is left, so all may be tried again.
    bench.pass(120.0);
    assert!(!bench.breaker.was_tried(V4, 560) && bench.is_open(V4));
}

#[test]
fn hosts_that_were_silent_in_an_outage_are_not_checked_in_the_next() {
    let mut bench = Bench::new();
    for number in 0..3 {
        bench.answer(V4, number);
    }
    bench.fail(V4, Cause::TimedOut, 8);
    bench.pass(200.0);
    bench.connects = Probed::Answered;
    bench.picks = vec![Picked::Host {
        network: 560,
        target: Target::Address(Bench::address(60)),
    }];
    bench.pass(61.0);
    assert!(!bench.is_open(V4));
    bench.orders.clear();
    bench.connects = Probed::Failed;
    bench.pass(1.0);
    bench.fail(V4, Cause::TimedOut, 8);
    let is_connect = |order: &&Order| matches!(order, Order::Connect { .. });
    let asked = bench.orders.iter().filter(is_connect).count();
    assert_eq!(asked, 1, "the one that answered since");
}

#[test]
fn known_hosts_are_connected_to_at_most_once_in_five_seconds() {
    for (egress, cause) in [
        (V4, Cause::TimedOut),
        (V6, Cause::NoRoute),
        (Egress::Names, Cause::NamesFailed),
    ] {
        let mut bench = Bench::new();
        for number in 0..3 {
            let to = Bench::address(number);
            let (network, target) = (Target::network(to.ip()), Target::Address(to));
            bench.pass(0.06);
            bench
                .breaker
                .handle_answer(V4, network, Some(target), bench.now);
        }
        bench.answer(Egress::Names, 0);
        (bench.connects, bench.lookups) = (Probed::Answered, Probed::Answered);
        bench.connects6 = Some(Probed::NoRoute);
        let mut asked: HashMap<SocketAddr, Instant> = HashMap::new();
        for round in 0..120 {
            bench.pass(0.25);
            let judged = bench.fail(egress, cause, 8);
            let is_charged = judged
                .iter()
                .all(|judgement| *judgement == Judgement::Charge);
            let words: Vec<Order> = bench.orders.drain(..).collect();
            for order in &words {
                if let Order::Connect { to, .. } = order {
                    let before = asked.insert(*to, bench.now);
                    let before = before.map(|at| bench.now.saturating_since(at));
                    let is_soon = before.is_some_and(|span| span < Duration::from_secs(5));
                    assert!(!is_soon, "{egress:?}: again after {before:?}");
                }
            }
            let is_verdict = words.contains(&Order::Charge(egress));
            assert!(is_charged || is_verdict, "{egress:?} in round {round}");
        }
        assert!(!asked.is_empty());
    }
}

#[test]
fn a_missing_route_is_not_charged_because_others_timed_out_while_the_network_worked() {
    let mut bench = Bench::new();
    bench.answer(V4, 0);
    bench.connects = Probed::Answered;
    bench.fail(V4, Cause::TimedOut, 8);
    assert!(bench.words().contains(&"charge"));
    bench.connects = Probed::NoRoute;
    let judged = bench.fail(V4, Cause::NoRoute, 9);
    assert!(!judged.contains(&Judgement::Charge), "{judged:?}");
    assert!(bench.is_open(V4));
}

#[test]
fn a_family_without_a_route_that_opened_in_an_outage_closes_once_the_other_family_works() {
    let mut bench = Bench::new();
    for number in 0..3 {
        bench.answer(V4, number);
    }
    bench.connects = Probed::NoRoute;
    bench.fail(V6, Cause::NoRoute, 9);
    assert!(bench.is_open(V6));
    bench.pass(20.0);
    assert!(bench.is_open(V6));
    // No request is sent by IPv4, so only probes can show that it works.
    bench.connects = Probed::Answered;
    bench.connects6 = Some(Probed::NoRoute);
    bench.pass(65.0);
    assert!(!bench.is_open(V6));
    bench.words();
    bench.fail(V6, Cause::NoRoute, 9);
    assert!(!bench.is_open(V6) && bench.words().contains(&"charge"));
}

#[test]
fn a_missing_route_opens_it_if_few_hosts_are_queued_and_no_known_host_answers() {
    for (known, is_open) in [(Probed::NoRoute, true), (Probed::Answered, false)] {
        let mut bench = Bench::new();
        bench.answer(V4, 0);
        bench.pass(1.0);
        bench.connects = known;
        let failed = Failed {
            egress: V4,
            network: 7,
            cause: Cause::NoRoute,
            began: bench.now,
            target: Target::Address(Bench::address(9)),
        };
        let judged = bench.breaker.handle_failure(failed, 1, bench.now);
        assert_eq!(judged, Judgement::Suspend);
        bench.pass(5.0);
        assert_eq!(bench.is_open(V4), is_open);
        assert_eq!(bench.words().contains(&"charge"), !is_open);
    }
}
