//! Random webs with random values of all settings, with pauses, full sinks, full disks and outages, and with settings
//! that change while the crawl runs. Results go to a file or to standard output, or are pulled.
//!
//! Bugs appear in combinations, such as a bound reached during a pause.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::base::shared::Shared;
use argiope::crawl::Parts;
use argiope::sink::files::{FileSink, FileSinkOptions, Results, WarcOptions};
use argiope::{Classify, CrawlUrl, FinishReason, ReloadError, State};
use serde_json::{Value, json};

use super::crawl::{Output, Pulled, RUNS};
use super::full_sink::FullNowAndThen;
use super::many_seeds::each_seed;
use super::output_laws::{
    check_commit, check_filtered, check_indexes, check_links, check_retries, check_sizes,
    check_total, check_verdicts, lines_of, rotation_of,
};
use super::random::{askable, pick};
use super::routes::{check_hosts, check_routes, check_secrets};
use super::varied::{of_host, public_hosts, public_hosts_max, reloaded, reloads_of, varied};
use super::words::{ByWords, random_part};

/// How many there are; some seconds for all.
const SEEDS: u64 = 300;

fn check(seed: u64) {
    let (mut case, said) = varied(seed);
    let reloads = reloads_of(seed, &said);
    let values_of = |name: &str| -> Vec<u64> {
        let maps = std::iter::once(&said).chain(&reloads);
        let values = maps.filter_map(|map| map.get(name)?.as_u64());
        values.collect()
    };
    let most = values_of("CONCURRENT_REQUESTS").into_iter().max();
    let promised = &mut case.web.promise.in_all;
    *promised = (*promised).max(most.unwrap_or(0) as usize);
    let mut rng = Rng::from_seed(seed).fork("events");
    let seeds = std::mem::take(&mut case.plan.seeds);
    let askable = askable(&case.web, &seeds, case.follow);
    let has_full_disk = !case.plan.faults.disk_full.is_empty();
    let web = case.web.shared();
    let is_full = Shared::new(false);
    let is_on = |name: &str| said.get(name) == Some(&json!(true));
    let mut options = FileSinkOptions::new("out");
    options.decisions = is_on("AUTOTHROTTLE_DEBUG");
    options.robots = true;
    options.rotation = rotation_of(&said);
    options.links = is_on("LINKS_FILE");
    options.filtered = is_on("FILTERED_FILE");
    options.warc = is_on("WARC").then(|| {
        let mut warc = WarcOptions::new("a.test", [7; 16]);
        warc.cdxj = said.get("WARC_CDXJ") != Some(&json!(false));
        warc
    });
    let has_state = said.get("STATE") != Some(&json!(false));
    options.commits = has_state;
    // Of numbers of its own, so that the cases stay as they were.
    let mut own = Rng::from_seed(seed).fork("output");
    let output = match own.below(4) {
        0 => Output::Stdout(Vec::new()),
        1 => Output::Pulled(Pulled {
            is_full: Shared::clone(&is_full),
            most: 1 + own.below(8) as usize,
            is_slow: own.chance(0.5),
            ..Pulled::default()
        }),
        _ => Output::File,
    };
    if let Output::Stdout(_) = output {
        options.results = Results::Stdout;
    }
    let mut of_bodies = Rng::from_seed(seed).fork("judged bodies");
    let part = random_part(&mut of_bodies);
    let streamed = Shared::<BTreeSet<u64>>::default();
    let mut parts = match &output {
        Output::Pulled(_) => Parts::pulled(pick(&mut own, &[1, 3, 256])),
        Output::File | Output::Stdout(_) => Parts::new(FullNowAndThen {
            inner: FileSink::new(options),
            is_full: Shared::clone(&is_full),
            streamed: of_bodies.chance(0.5).then(|| Shared::clone(&streamed)),
        }),
    };
    parts.classify = part.map(|part| Box::new(ByWords(part)) as Box<dyn Classify>);
    let new_state = || State::new("out".as_ref(), String::new(), [seed as u8; 16]);
    parts.state = has_state.then(|| new_state().expect("it is short"));
    parts.stats_path = Some("out/stats.json".into());
    let mut run = case.plan.begin_with(&web, parts);
    if !matches!(output, Output::Pulled(_)) {
        // What it promised, for the audit of its files.
        run.crawler.log_runs(RUNS, 0);
    }
    run.output = output;
    let handle = run.crawler.handle();
    for url in &seeds {
        handle
            .submit(case.plan.request(url))
            .unwrap_or_else(|error| panic!("seed {seed}: {url}: {error}"));
    }
    // Pauses and full sinks, at random moments, for a while.
    let mut ended = None;
    let mut reloads_left = reloads.iter();
    let begun = run.crawler.config().clone();
    for _ in 0..rng.below(6) {
        if let Some(values) = reloads_left.next() {
            match handle.reload(reloaded(&begun, values)) {
                // A crawl that has ended takes no commands.
                Ok(()) | Err(ReloadError::Control(_)) => {}
                Err(error) => panic!("seed {seed}: {error} of {values:?} after {said:?}"),
            }
        }
        let at = run.crawler.elapsed() + Duration::from_millis(rng.below(6_000));
        ended = ended.or_else(|| run.until(at));
        if has_state && let Ok(state) = State::load_from("out".as_ref(), run.crawler.io().files()) {
            check_commit(&run, &state);
        }
        let pauses = rng.chance(0.5);
        if own.chance(0.5) {
            // A crawl that has ended takes no commands.
            let _ = handle.rotate();
        }
        match pauses {
            true => handle.pause(),
            false => is_full.set(true),
        }
        let at = run.crawler.elapsed() + Duration::from_millis(rng.below(12_000));
        ended = ended.or_else(|| run.until(at));
        match pauses {
            true => handle.resume(),
            false => is_full.set(false),
        }
        if ended.is_some() {
            break;
        }
    }
    drop(handle);
    let reason = ended.unwrap_or_else(|| run.finish());
    // Some may be left to be pulled.
    let mut lines = None;
    while lines != Some(run.bytes().len()) {
        lines = Some(run.bytes().len());
        run.pull(false);
    }
    let known = [
        FinishReason::Finished,
        FinishReason::PageCount,
        FinishReason::ErrorCount,
        FinishReason::ByteCount,
        FinishReason::Timeout,
    ];
    // A limit of time holds while the disk is full.
    let limits = std::iter::once(&said).chain(&reloads);
    let limits = limits.filter_map(|map| map.get("CLOSESPIDER_TIMEOUT")?.as_f64());
    let elapsed = run.crawler.elapsed().as_secs_f64();
    let mut reached = limits.filter(|limit| *limit > 0.0 && *limit <= elapsed);
    let is_out_of_time = reached.next().is_some() && has_full_disk;
    let is_full_at_limit = is_out_of_time && reason == FinishReason::SinkFailed;
    assert!(
        known.contains(&reason) || is_full_at_limit,
        "seed {seed}: {reason} under {said:?}"
    );
    if is_full_at_limit {
        let error = run.crawler.write_error().expect("a result is lost");
        assert_eq!(error.code(), "full", "seed {seed}: {error}");
    }
    run.check_manners();
    check_hosts(&run, &askable);
    check_routes(&run, &said, &case.plan.routes, &BTreeSet::new());
    check_secrets(&run);
    if reason == FinishReason::Finished {
        run.check_lines();
    }
    if reason == FinishReason::Finished {
        let are_made = said.get("WARC_CDXJ") != Some(&json!(false));
        check_indexes(&run, are_made, has_full_disk);
    }
    let lines = run.lines();
    if let Some(size_max) = said.get("RESULTS_SIZE_MAX").and_then(Value::as_u64) {
        check_sizes(&run, size_max as usize);
    }
    if is_on("LINKS_FILE") && !matches!(run.output, Output::Pulled(_)) {
        check_links(&run, values_of("URLLENGTH_LIMIT").contains(&40));
    }
    let has_titles = said
        .get("EXTRACT")
        .is_some_and(|fields| *fields != json!([]));
    run.check_titles(has_titles, reason);
    let is_whole = reason == FinishReason::Finished && !matches!(run.output, Output::Pulled(_));
    if is_on("FILTERED_FILE") && is_whole {
        check_filtered(&run);
    }
    let done: BTreeSet<&str> = lines
        .iter()
        .filter(|line| line.is_page() && line.is_final())
        .map(|line| line.url())
        .collect();
    check_total(&lines, reason, &said, &reloads);
    check_verdicts(&lines, part, &streamed.borrow());
    if reason == FinishReason::Finished {
        check_retries(&lines, &said, &reloads);
    }
    let web = web.borrow();
    if let Some(most) = public_hosts_max(&said) {
        let asked = public_hosts(web.hosts.keys().map(String::as_str));
        assert!(
            asked.len() <= most,
            "seed {seed}: {asked:?} got requests under {said:?}"
        );
    }
    for host in web.sites.keys() {
        let limit = of_host(&said, host, "pages_max").and_then(Value::as_u64);
        let Some(limit) = limit.filter(|limit| *limit > 0) else {
            continue;
        };
        let counted = lines.iter().filter(|line| {
            let url = CrawlUrl::parse(line.url()).expect("a URL");
            let is_fetched = !line.0["status"].is_null() && line.is_final();
            line.is_page() && is_fetched && url.host_str() == *host
        });
        let count = counted.count() as u64;
        assert!(
            count <= limit,
            "seed {seed}: {count} pages of {host} under {said:?}"
        );
    }
    let limits = values_of("PAGES_PER_DOMAIN_MAX");
    if let (Some(limit), false) = (limits.iter().max(), limits.contains(&0)) {
        let mut pages: BTreeMap<String, u64> = BTreeMap::new();
        let counted = lines
            .iter()
            .filter(|line| line.is_page() && line.is_final());
        for line in counted.filter(|line| !line.0["status"].is_null()) {
            let url = CrawlUrl::parse(line.url()).expect("a URL");
            *pages
                .entry(url.registrable_domain().to_owned())
                .or_default() += 1;
        }
        assert!(
            pages.values().all(|count| count <= limit),
            "seed {seed}: {pages:?} under {said:?}"
        );
    }
    let pending: BTreeSet<String> = run.crawler.take_pending().map(|p| p.request.url).collect();
    for url in &seeds {
        let is_there = done.contains(url.as_str()) || pending.contains(url);
        // A redirect to it or from it may have been the one to end.
        let is_redirected = lines
            .iter()
            .any(|line| line.url() == url && !line.is_final());
        assert!(
            is_there || is_redirected,
            "seed {seed}: {url} was lost ({reason}) under {said:?}"
        );
    }
    if reason == FinishReason::Finished {
        let left = run.crawler.progress();
        let busy = left.queued + left.in_flight + left.buffered + left.scopes_waiting;
        assert_eq!(busy, 0, "seed {seed}: {left:?} under {said:?}");
        assert_eq!(pending.len(), 0, "seed {seed}: {pending:?} under {said:?}");
    }
    if has_state {
        // What a resume would fetch is what is pending.
        let state = State::load_from("out".as_ref(), run.crawler.io().files());
        let state = state.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let uncommitted = check_commit(&run, &state);
        if let Output::Stdout(_) = run.output {
            let lines = run.lines().len() as u64;
            assert_eq!(lines_of(&state), lines, "seed {seed}: all are committed");
        }
        for url in state.queued_urls(run.crawler.io().files()) {
            assert!(
                pending.contains(&url) || uncommitted.contains(&url),
                "seed {seed}: {url} is not pending ({reason}) under {said:?}"
            );
        }
    }
}

#[test]
fn random_webs_under_every_setting_at_once_are_crawled_to_their_end() {
    each_seed(SEEDS, check);
}
