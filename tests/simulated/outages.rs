//! Failures of our own network or name servers: the crawl pauses, nothing is lost, nothing is counted.

use std::collections::BTreeSet;
use std::time::Duration;

use argiope::FinishReason;
use argiope::base::time::Instant;
use argiope::frontier::request::Request;
use argiope::io::sim::{Answer, FullDisk};

use super::crawl::{Line, Plan, Run};
use super::web::{Names, Outage, PoliteWeb, Step};

fn secs(seconds: u64) -> Instant {
    Instant::START + Duration::from_secs(seconds)
}

/// From one second of the crawl to another, what becomes of connections and of questions for names.
fn outage(from: u64, to: u64, connects: Option<Answer>, names: Names) -> Outage {
    Outage {
        from: secs(from),
        to: secs(to),
        connects,
        names,
    }
}

/// One-page sites, each on a network and under a domain of its own.
fn many(count: u32) -> (PoliteWeb, Plan) {
    let mut web = PoliteWeb::default();
    web.round_trip = Duration::from_millis(40);
    let mut plan = Plan::new(&[])
        .set("CONCURRENT_REQUESTS", 16)
        .set("DOWNLOAD_TIMEOUT", 20);
    for number in 0..count {
        let name = format!("host{number}.test");
        let [_, b, c, d] = (number << 8 | 1).to_be_bytes();
        let site = web.site(&name, std::net::SocketAddr::from(([10, b, c, d], 80)));
        site.page("/", &[]);
        plan.seeds.push(format!("http://{name}/"));
    }
    (web, plan)
}

/// Crawls to the end. Every page must have come, and failures of the network must not count.
fn crawl(web: PoliteWeb, plan: Plan) -> (Run, usize) {
    let sites = plan.seeds.len();
    let web = web.shared();
    let mut run = plan.begin(&web);
    assert_eq!(run.finish(), FinishReason::Finished);
    run.check_lines();
    let lines = run.lines();
    let ended = lines
        .iter()
        .filter(|line| line.is_page() && line.is_final());
    let lost: Vec<_> = ended
        .clone()
        .filter(|line| line.end() != "200")
        .map(|l| &l.0)
        .collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert_eq!(ended.count(), sites);
    let calls = web.borrow().calls.len();
    (run, calls)
}

/// Lines with a failed connection.
fn failures(run: &Run) -> usize {
    let lines = run.lines();
    let kinds = ["connect.", "dns.", "timeout.connect"];
    let failed = lines
        .iter()
        .filter(|line| kinds.iter().any(|kind| line.end().starts_with(kind)));
    failed.count()
}

#[test]
fn a_minute_without_a_route_loses_nothing_and_sends_few_probes() {
    for from in [0, 4] {
        let (mut web, plan) = many(1500);
        web.outages.push(outage(
            from,
            from + 60,
            Some(Answer::NoRoute),
            Names::Answers,
        ));
        let (run, calls) = crawl(web, plan);
        assert_eq!(failures(&run), 0, "no line says so");
        // A connection for each page, for each robots.txt, what was on its way, and single probes.
        assert!(calls < 2 * 1500 + 200, "{calls} calls from {from} s on");
        let progress = run.crawler.progress();
        assert_eq!(progress.outages, 1);
        let span = progress.outage_time.as_secs();
        assert!((57..95).contains(&span), "{span} s");
    }
}

#[test]
fn two_minutes_of_a_dead_link_lose_nothing() {
    let (mut web, plan) = many(800);
    web.outages
        .push(outage(3, 123, Some(Answer::Silence), Names::Answers));
    let (run, _) = crawl(web, plan);
    assert!(run.crawler.progress().outages > 0);
    // What had begun before the link died may count once.
    assert!(failures(&run) <= 16, "{}", failures(&run));
}

#[test]
fn a_dead_link_loses_nothing_if_the_total_timeout_is_below_the_connect_timeout() {
    let (mut web, plan) = many(800);
    web.outages
        .push(outage(3, 63, Some(Answer::Silence), Names::Answers));
    let (run, _) = crawl(web, plan.set("DOWNLOAD_TIMEOUT", 5));
    assert!(run.crawler.progress().outages > 0);
    assert!(failures(&run) <= 16, "{}", failures(&run));
}

#[test]
fn five_minutes_without_a_route_lose_nothing_with_few_hosts() {
    for sites in [1, 2, 5] {
        let (mut web, mut plan) = many(sites);
        for (name, site) in &mut web.sites {
            for page in 0..30 {
                // Whatever is asked has to connect anew.
                let mut step = Step::page();
                step.closes = true;
                let path = format!("/{page}");
                plan.seeds.push(format!("http://{name}{path}"));
                site.path(&path, [step]);
            }
        }
        web.outages
            .push(outage(4, 304, Some(Answer::NoRoute), Names::Answers));
        let (run, _) = crawl(web, plan);
        assert_eq!(run.crawler.progress().outages, 1);
        assert_eq!(failures(&run), 0, "no line says so");
    }
}

#[test]
fn a_resolver_that_fails_while_the_network_is_down_loses_nothing() {
    for names in [Names::Fails, Names::Silent, Names::FailsForNew] {
        let (mut web, mut plan) = many(1500);
        plan.asks_names = true;
        web.outages
            .push(outage(4, 64, Some(Answer::Silence), names));
        let (run, _) = crawl(web, plan);
        assert!(run.crawler.progress().outages > 0, "{names:?}");
        assert!(failures(&run) <= 16, "{names:?}: {}", failures(&run));
    }
}

#[test]
fn a_resolver_that_fails_while_the_network_works_loses_nothing() {
    for (names, from) in [
        (Names::Fails, 1),
        (Names::Silent, 1),
        (Names::Silent, 0),
        (Names::FailsForNew, 1),
    ] {
        let (mut web, mut plan) = many(600);
        plan.asks_names = true;
        // Longer than any host is waited for.
        web.outages.push(outage(from, from + 300, None, names));
        let (run, _) = crawl(web, plan);
        let progress = run.crawler.progress();
        assert!(progress.outages > 0, "{names:?}: {progress:?}");
        assert!(progress.outages < 5, "{names:?}: {progress:?}");
    }
}

#[test]
fn an_intermittent_link_loses_nothing() {
    let (mut web, plan) = many(1500);
    for flap in 0..12 {
        web.outages.push(outage(
            3 + flap * 9,
            7 + flap * 9,
            Some(Answer::NoRoute),
            Names::Answers,
        ));
    }
    crawl(web, plan);
}

#[test]
fn a_crawl_stopped_in_an_outage_has_every_url_pending() {
    let (mut web, plan) = many(500);
    web.outages
        .push(outage(4, 1_000_000, Some(Answer::NoRoute), Names::Answers));
    let web = web.shared();
    let mut run = plan.begin(&web);
    run.until(Duration::from_secs(6));
    let fetched = run.lines().iter().filter(|line| line.is_page()).count();
    run.crawler.stopper().stop();
    assert_eq!(run.finish(), FinishReason::Shutdown);
    let pending = run.crawler.take_pending().count();
    let ended = run
        .lines()
        .iter()
        .filter(|line| line.is_page() && line.is_final())
        .count();
    assert!(
        fetched > 0 && ended + pending >= 500,
        "{ended} and {pending}"
    );
}

/// How many pages ended, and how many of these were fetched, in a crawl without an outage.
fn ends_without_outage(run: &Run) -> (usize, usize) {
    assert_eq!(run.crawler.progress().outages, 0);
    let lines = run.lines();
    let ended = lines
        .iter()
        .filter(|line| line.is_page() && line.is_final());
    let fetched = ended.clone().filter(|line| line.end() == "200");
    (ended.clone().count(), fetched.count())
}

#[test]
fn a_host_with_addresses_of_both_families_is_reached_by_the_one_that_works() {
    let (mut web, mut plan) = many(600);
    plan.asks_names = true;
    let six = |number: u16| {
        let ip = std::net::Ipv6Addr::new(0x2606, 0x4700, number, 0, 0, 0, 0, 1);
        std::net::SocketAddr::from((ip, 80))
    };
    for (number, site) in (0_u16..).zip(web.sites.values_mut()) {
        match number % 5 {
            0 => site.address = six(number),
            _ => site.address6 = Some(six(number)),
        }
    }
    let web = web.shared();
    let plan = plan.set("CONTACT", "mailto:me@example.com");
    let mut run = plan.begin(&web);
    let fetched = |run: &Run| {
        let lines = run.lines();
        let fetched = lines.iter().filter(|l| l.is_page() && l.end() == "200");
        fetched.count()
    };
    run.until(Duration::from_secs(3));
    let is_six = |(_, to): &&(Instant, std::net::SocketAddr)| to.is_ipv6();
    let by_six = web.borrow().calls.iter().filter(is_six).count();
    assert!(by_six > 20, "it is the first choice: {by_six}");
    for number in 0..600 {
        web.borrow_mut().deaf.insert(six(number), Answer::Silence);
    }
    run.until(Duration::from_secs(300));
    assert!(run.crawler.progress().outage_open.is_some());
    assert!(fetched(&run) >= 480, "{}", fetched(&run));
    web.borrow_mut().deaf.clear();
    assert_eq!(run.finish(), FinishReason::Finished);
    assert_eq!(fetched(&run), 600);
}

#[test]
fn an_outage_of_one_family_loses_no_host_whose_other_family_never_worked() {
    for six_is in [Answer::NoRoute, Answer::Silence] {
        let mut web = PoliteWeb::default();
        web.round_trip = Duration::from_millis(40);
        let mut plan = Plan::new(&[]).set("CONCURRENT_REQUESTS", 16);
        plan.asks_names = true;
        // Another egress that works all the time.
        let local = std::net::SocketAddr::from(([10, 0, 0, 1], 80));
        let site = web.site("local.test", local);
        for page in 0..200 {
            site.page(&format!("/{page}"), &[]);
            plan.seeds.push(format!("http://local.test/{page}"));
        }
        let mut four = Vec::new();
        for number in 0..400_u16 {
            let [b, c] = number.to_be_bytes();
            four.push(std::net::SocketAddr::from(([93, 184 + b, c, 1], 80)));
            let ip = std::net::Ipv6Addr::new(0x2606, 0x4700, number, 0, 0, 0, 0, 1);
            let six = std::net::SocketAddr::from((ip, 80));
            web.deaf.insert(six, six_is);
            let name = format!("host{number}.test");
            let site = web.site(&name, four[usize::from(number)]);
            site.page("/", &[]);
            site.address6 = Some(six);
            plan.seeds.push(format!("http://{name}/"));
        }
        let web = web.shared();
        let mut run = plan.set("CONTACT", "mailto:me@example.com").begin(&web);
        run.until(Duration::from_secs(2));
        for address in &four {
            web.borrow_mut().deaf.insert(*address, Answer::Silence);
        }
        run.until(Duration::from_secs(302));
        assert!(run.crawler.progress().outage_open.is_some(), "{six_is:?}");
        for address in &four {
            web.borrow_mut().deaf.remove(address);
        }
        assert_eq!(run.finish(), FinishReason::Finished);
        let lines = run.lines();
        let fetched = lines.iter().filter(|l| l.is_page() && l.end() == "200");
        assert_eq!(fetched.count(), 600, "{six_is:?}");
    }
}

#[test]
fn a_missing_route_by_ipv6_keeps_no_host_that_has_ipv4_too() {
    let mut web = PoliteWeb::default();
    web.round_trip = Duration::from_millis(40);
    let mut plan = Plan::new(&[]).set("CONCURRENT_REQUESTS", 16);
    plan.asks_names = true;
    for number in 0..60_u16 {
        let ip = std::net::Ipv6Addr::new(0x2606, 0x4700, number, 0, 0, 0, 0, 1);
        let six = std::net::SocketAddr::from((ip, 80));
        web.deaf.insert(six, Answer::NoRoute);
        // The first of them have no other address.
        let four = std::net::SocketAddr::from(([93, 184, number as u8, 1], 80));
        let address = if number < 20 { six } else { four };
        let name = format!("host{number}.test");
        let site = web.site(&name, address);
        site.page("/", &[]);
        site.address6 = Some(six);
        plan.seeds.push(format!("http://{name}/"));
    }
    let web = web.shared();
    let mut run = plan.set("CONTACT", "mailto:me@example.com").begin(&web);
    assert_eq!(
        run.until(Duration::from_secs(300)),
        Some(FinishReason::Finished)
    );
    let lines = run.lines();
    let ends = |end: &str| {
        let ended = lines.iter().filter(|l| l.is_page() && l.end() == end);
        ended.count()
    };
    assert_eq!((ends("200"), ends("connect.unreachable")), (40, 20));
}

#[test]
fn a_paused_crawl_sends_no_probes() {
    let (mut web, plan) = many(500);
    web.outages
        .push(outage(4, 2000, Some(Answer::NoRoute), Names::Answers));
    let web = web.shared();
    let mut run = plan.begin(&web);
    run.until(Duration::from_secs(20));
    let handle = run.crawler.handle();
    let calls = || web.borrow().calls.len();
    let before = calls();
    run.until(Duration::from_secs(120));
    assert!(calls() > before);
    handle.pause();
    run.until(Duration::from_secs(121));
    let before = calls();
    run.until(Duration::from_secs(1000));
    assert_eq!(calls(), before);
    handle.resume();
    run.until(Duration::from_secs(1100));
    assert!(calls() > before);
    drop(handle);
    assert_eq!(run.finish(), FinishReason::Finished);
    let lines = run.lines();
    let fetched = lines.iter().filter(|l| l.is_page() && l.end() == "200");
    assert_eq!(fetched.count(), 500);
}

#[test]
fn a_list_of_dead_hosts_pauses_no_crawl() {
    for how in [Answer::Silence, Answer::Unreachable, Answer::Refuse] {
        for live in [0, 5] {
            let (mut web, plan) = many(200);
            web.promise.obeys_robots = false;
            for number in live..200_u32 {
                let [_, b, c, d] = (number << 8 | 1).to_be_bytes();
                web.deaf
                    .insert(std::net::SocketAddr::from(([10, b, c, d], 80)), how);
            }
            let plan = plan.set("HOST_DOWN_AFTER", 20).set("ROBOTSTXT_OBEY", false);
            let web = web.shared();
            let ended = ends_without_outage(&plan.run(&web));
            assert_eq!(ended, (200, live as usize), "{how:?}");
        }
    }
}

#[test]
fn names_on_one_dead_name_server_pause_no_crawl() {
    for (live, is_silent) in [(0, false), (5, false), (0, true), (5, true)] {
        let (mut web, mut plan) = many(live);
        web.promise.obeys_robots = false;
        web.unknown_names_fail = !is_silent;
        web.unknown_names_are_silent = is_silent;
        plan.asks_names = true;
        for number in 0..1000 {
            plan.seeds.push(format!("http://nowhere{number}.test/"));
        }
        // More questions than are sent at once.
        let plan = plan.set("CONCURRENT_REQUESTS", 1000);
        let plan = plan.set("HOST_DOWN_AFTER", 20).set("ROBOTSTXT_OBEY", false);
        let web = web.shared();
        let ended = ends_without_outage(&plan.run(&web));
        assert_eq!(ended, (1000 + live as usize, live as usize), "{is_silent}");
    }
}

/// Crawls 1,500 hosts through an outage from the 4th to the 94th second, in which every host that had
/// been called is lost for ever; gives the second at which the first request arrived after it.
fn seconds_until_others_are_asked(connects: Option<Answer>, names: Names) -> f64 {
    let (mut web, mut plan) = many(1500);
    plan.asks_names = true;
    web.outages.push(outage(4, 94, connects, names));
    let web = web.shared();
    let mut run = plan.begin(&web);
    run.until(Duration::from_secs(20));
    {
        let web = &mut *web.borrow_mut();
        for (_, address) in &web.calls {
            web.deaf.insert(*address, Answer::Silence);
        }
        let lost = |address| web.deaf.contains_key(address);
        let sites = web.sites.iter();
        let lost = sites.filter(|(_, site)| lost(&site.address));
        web.lost_names = lost.map(|(name, _)| name.clone()).collect();
        assert!((50..1000).contains(&web.lost_names.len()));
    }
    run.until(Duration::from_secs(94 + 70));
    let first = {
        let web = web.borrow();
        let mut later = web.arrivals.iter().filter(|a| a.at > secs(94));
        let first = later.next();
        let first = first.unwrap_or_else(|| panic!("{connects:?} {names:?}: none is asked"));
        first.at.saturating_since(secs(94)).as_secs_f64()
    };
    assert_eq!(run.finish(), FinishReason::Finished);
    let lost = web.borrow().lost_names.clone();
    for line in run.lines() {
        let host = line.url().split('/').nth(2).unwrap_or("");
        if line.is_page() && line.is_final() && !lost.contains(host) {
            assert_eq!(line.end(), "200", "{}", line.0);
        }
    }
    first
}

#[test]
fn untried_hosts_can_end_an_outage() {
    for (connects, names) in [
        (Some(Answer::Silence), Names::Answers),
        (Some(Answer::NoRoute), Names::Fails),
        (Some(Answer::Silence), Names::Silent),
        (None, Names::Fails),
        (None, Names::Silent),
    ] {
        let first = seconds_until_others_are_asked(connects, names);
        assert!(first < 65.0, "{connects:?} {names:?}: after {first} s");
    }
}

#[test]
fn unresolved_hosts_are_retried_when_name_servers_answer_again() {
    for end in 20..36 {
        let (mut web, mut plan) = many(400);
        plan.asks_names = true;
        web.outages.push(outage(1, end, None, Names::Silent));
        let web = web.shared();
        let mut run = plan.begin(&web);
        run.until(Duration::from_secs(end));
        while run.crawler.progress().outage_open.is_some() {
            assert_eq!(run.turn(), None);
        }
        let before = web.borrow().arrivals.len();
        run.until(run.crawler.elapsed() + Duration::from_millis(500));
        let asked = web.borrow().arrivals.len() - before;
        assert!(asked >= 16, "{asked} after an outage until {end} s");
    }
}

#[test]
fn cancelling_a_request_keeps_other_suspects() {
    let (mut web, mut plan) = many(14);
    web.promise.obeys_robots = false;
    let deaf: Vec<_> = (0..5)
        .map(|number| web.sites[&format!("host{number}.test")].address)
        .collect();
    for address in &deaf {
        web.deaf.insert(*address, Answer::Silence);
    }
    let seeds = std::mem::take(&mut plan.seeds);
    // These hosts have more to fetch, so that enough hosts are left for an outage.
    let more: Vec<_> = (5..14)
        .map(|n| format!("http://host{n}.test/more"))
        .collect();
    let plan = plan
        .set("ROBOTSTXT_OBEY", false)
        .set("CONNECT_TIMEOUT", 5)
        .set("DOWNLOAD_DELAY", 60);
    let web = web.shared();
    let mut run = plan.begin(&web);
    let handle = run.crawler.handle();
    let submit = |url: &String| handle.submit(Request::get(url.as_str())).expect("room");
    let ids: Vec<u64> = seeds.iter().chain(&more).map(submit).collect();
    run.until(Duration::from_millis(5500));
    let calls = |web: &PoliteWeb| {
        let calls = web.calls.iter().filter(|(_, to)| deaf.contains(to));
        calls.count()
    };
    assert_eq!(calls(&web.borrow()), 5);
    handle.cancel(ids[0]).expect("the crawl is running");
    run.until(Duration::from_millis(7500));
    assert_eq!(calls(&web.borrow()), 5, "none is called again");
    let ends: Vec<_> = deaf
        .iter()
        .enumerate()
        .map(|(number, _)| run.ends(&seeds[number]))
        .collect();
    assert_eq!(ends[0], ["cancelled.asked"]);
    assert!(ends[1..].iter().all(Vec::is_empty), "{ends:?}");
    run.until(Duration::from_secs(12));
    assert_eq!(run.ends(&seeds[1]), ["timeout.connect"]);
    drop(handle);
    assert_eq!(run.finish(), FinishReason::Finished);
    run.check_lines();
}

/// No room on the disk in this span, in seconds.
fn full(from: u64, until: u64) -> FullDisk {
    FullDisk {
        below: "out".into(),
        from: Duration::from_secs(from),
        until: Duration::from_secs(until),
        free: 0,
    }
}

/// The seeds that have their final page.
fn fetched(run: &Run) -> BTreeSet<String> {
    let lines = run.lines();
    let pages = lines.iter().filter(|l| l.is_page() && l.is_final());
    let pages = pages.filter(|line| line.end() != "cancelled.stopped");
    let check = |line: &Line| assert_eq!(line.end(), "200", "{}", line.0);
    pages
        .inspect(|line| check(line))
        .map(|line| line.url().to_owned())
        .collect()
}

#[test]
fn an_outage_on_a_full_disk_loses_nothing() {
    let spans = [(3, 40), (10, 20), (10, 90), (63, 80)];
    for (connects, names) in [
        (Some(Answer::NoRoute), Names::Answers),
        (Some(Answer::Silence), Names::Fails),
        (None, Names::Silent),
    ] {
        for (from, until) in spans {
            let (mut web, mut plan) = many(1200);
            plan.asks_names = true;
            plan.faults.disk_full.push(full(from, until));
            web.outages.push(outage(4, 64, connects, names));
            let (run, _) = crawl(web, plan);
            let progress = run.crawler.progress();
            // While nothing is fetched, nothing is written.
            let is_noticed = from < 4 || until > 64;
            assert!(
                progress.disk_pauses > 0 || !is_noticed,
                "{connects:?} {names:?} {from}"
            );
            // While the disk is full nothing is released that could fail.
            assert!(progress.outages > 0 || from < 63, "{connects:?} {names:?}");
        }
    }
}

#[test]
fn a_crawl_stopped_in_an_outage_on_a_full_disk_has_every_url_pending() {
    for (seconds, until) in [(6, 10), (6, 20), (20, 25), (70, 75)] {
        let (mut web, mut plan) = many(500);
        plan.faults.disk_full.push(full(5, until));
        web.outages
            .push(outage(4, 64, Some(Answer::NoRoute), Names::Answers));
        let seeds = plan.seeds.clone();
        let web = web.shared();
        let mut run = plan.begin(&web);
        if run.until(Duration::from_secs(seconds)).is_none() {
            run.crawler.stopper().stop();
            assert_eq!(run.finish(), FinishReason::Shutdown);
        }
        let done = fetched(&run);
        let pending = run.crawler.take_pending().map(|p| p.request.url);
        let pending: BTreeSet<String> = pending.collect();
        for seed in &seeds {
            let times = u8::from(done.contains(seed)) + u8::from(pending.contains(seed));
            assert_eq!(times, 1, "{seed} after a stop at {seconds} s");
        }
    }
}

#[test]
fn results_of_a_crawl_killed_in_an_outage_are_correct_and_the_rest_can_be_crawled_again() {
    for milliseconds in (3000..70_000).step_by(4777) {
        let (mut web, mut plan) = many(400);
        plan.faults.disk_full.push(full(20, 30));
        web.outages
            .push(outage(4, 64, Some(Answer::NoRoute), Names::Answers));
        let seeds = plan.seeds.clone();
        let web = web.shared();
        let mut run = plan.begin(&web);
        run.until(Duration::from_millis(milliseconds));
        // Lines are whole, and none says that a host failed.
        let done = fetched(&run);
        drop(run);
        let (web, mut plan) = many(400);
        plan.seeds.retain(|seed| !done.contains(seed));
        let web = web.shared();
        let mut run = plan.begin(&web);
        assert_eq!(run.finish(), FinishReason::Finished);
        let both = done.union(&fetched(&run)).count();
        assert_eq!(both, seeds.len(), "killed at {milliseconds} ms");
    }
}

/// An address is valid for 300 s. The lookup for the second page begins at 310 s; at 315 s the first page
/// ends and its lane is released again.
#[test]
fn a_lane_released_again_during_a_lookup_keeps_its_first_wait() {
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    let mut first = Step::page().after(Duration::from_secs(315));
    first.closes = true;
    let site = web.site("one.test", super::web::address(1));
    site.path("/first", [first]).page("/second", &[]);
    web.outages.push(outage(305, 320, None, Names::Silent));
    let seeds = ["http://one.test/first", "http://one.test/second"];
    let mut plan = Plan::new(&seeds)
        .set("DOWNLOAD_DELAY", 310)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false)
        .set("DOWNLOAD_TIMEOUT", 600)
        .set("FIRST_BYTE_TIMEOUT", 600)
        .set("CONCURRENT_REQUESTS_PER_DOMAIN", 2)
        .set("ROBOTSTXT_OBEY", false);
    plan.asks_names = true;
    let run = plan.run(&web.shared());
    let lines = run.lines();
    let second = lines.iter().find(|line| line.url() == seeds[1]);
    let second = second.expect("it has a line");
    // Six seconds of silence, of which five are before the second release.
    assert_eq!(second.end(), "dns.timeout");
    assert_eq!(second.0["dns"], 6);
    assert_eq!(lines.last().expect("a line").end(), "200");
}
