//! Submissions that find no room in the crawl: they are taken once there is some.

use std::time::Duration;

use crate::crawl::core::tests::trial::{calm, crawl, get, run_for};

#[test]
fn submissions_that_found_no_room_are_taken_once_the_queue_has_ended_unsent() {
    let (mut crawler, handle, record) = crawl(calm(Duration::ZERO), 1, |config, _| {
        config.frontier.queued_max = 1;
        config.frontier.pages_per_host_max = 1;
    });
    let minute = Duration::from_secs(60);
    handle.submit(get(1, 0)).expect("it goes on");
    run_for(&mut crawler, minute);
    let submit = |page| handle.submit(get(1, page)).expect("it goes on");
    let ids: Vec<u64> = (1..=5).map(submit).collect();
    let turns = run_for(&mut crawler, minute);
    let ends: Vec<_> = ids.iter().map(|id| record.end(*id)).collect();
    assert!(ends.iter().all(Option::is_some), "{ends:?}");
    assert!(turns < 50, "{turns} turns: it sleeps afterwards");
}
