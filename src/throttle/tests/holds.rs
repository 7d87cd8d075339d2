//! What keeps a scope back beyond its pace: holds and Crawl-delay.

use super::world::*;
use crate::base::time::Instant;
use crate::throttle::engine::Throttle;
use crate::throttle::settings::{Jitter, ScopePatch};

#[test]
fn f51_a_crawl_delay_is_never_undercut_and_counts_from_the_last_request() {
    let mut world = World::new(jittered(1.0, Jitter::default()));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 1, page(0.05));
    world.run(at(0.1));
    let delayed = world.throttle.crawl_delay_scope("a.test", secs(3.0));
    world.throttle.follow_lane(delayed, lane);
    world.throttle.add_scope(lane, delayed);
    world.queue(lane, 50, page(0.05));
    world.run(at(300.0));
    assert_eq!(world.sent(lane).len(), 51);
    assert!(
        world
            .gaps(lane)
            .iter()
            .all(|gap| (3.0..3.001).contains(gap))
    );
}

#[test]
fn a_scopes_own_delay_overrules_a_longer_crawl_delay_and_says_so_unless_silenced() {
    let mut settings = pace(1, 1.0, 0.0);
    for (name, delay, silent) in [("own.test", 0.1, None), ("quiet.test", 0.1, Some(true))] {
        let patch = ScopePatch {
            delay: Some(secs(delay)),
            ignore_robots_txt: silent,
            ..ScopePatch::default()
        };
        settings.scopes.insert(name.to_owned(), patch);
    }
    let throttle = Throttle::new(settings, 1, Instant::START);
    let told = |scope: &str, asked| throttle.overrules_crawl_delay(scope, secs(asked));
    assert_eq!(told("own.test", 1.0), Some(secs(0.1)));
    assert_eq!(told("own.test", 0.1), None, "nothing is taken away");
    assert_eq!(told("quiet.test", 1.0), None);
    assert_eq!(told("other.test", 1.0), None);
    assert!(!throttle.heeds_crawl_delay("own.test"));
    assert!(throttle.heeds_crawl_delay("other.test"));
}

#[test]
fn a_hold_lets_nothing_go_before_its_end() {
    let mut world = World::new(pace(4, 0.1, 0.0));
    let scope = world.throttle.scope("a.test");
    let lane = world.lane(&["a.test"]);
    world.throttle.hold(scope, at(20.0), world.now);
    world.throttle.hold(scope, at(10.0), world.now);
    world.queue(lane, 3, page(0.05));
    world.run(at(60.0));
    assert_eq!(world.sent(lane), [at(20.0), at(20.1), at(20.2)]);
}
