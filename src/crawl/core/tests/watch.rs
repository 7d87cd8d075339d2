//! A watch over the timers of a crawl: what wakes the loop and what then fires agree.

use std::time::Duration;

use crate::base::time::Instant;
use crate::crawl::timer::Timer;
use crate::crawl::{Crawler, Turn};
use crate::io::Io;
use crate::io::sim::Sim;

/// Runs turns, and checks the timers before and after each.
#[derive(Default)]
pub struct Watch {
    /// Timers that were set and then fired.
    pub fired: Vec<Timer>,
    /// Consecutive turns that took no time and changed no timer.
    idle: usize,
}

/// This many consecutive turns without progress are an error: a timer stays due.
const IDLE_MAX: usize = 1000;

impl Watch {
    /// Runs one turn. Checks that it does not wait beyond a timer, that each timer that was due has fired
    /// or moved unless a further turn follows at once, and that turns make progress.
    pub fn turn(&mut self, crawler: &mut Crawler<Sim>, patience: Option<Duration>) -> Turn {
        let before = deadlines(crawler);
        let earliest = before.iter().filter_map(|(_, at)| *at).min();
        assert_eq!(crawler.core.next_deadline(), earliest);
        let began = crawler.core.io().now();
        let turn = crawler.turn(patience);
        self.check(crawler, &before, began);
        turn
    }

    fn check(
        &mut self,
        crawler: &Crawler<Sim>,
        before: &[(Timer, Option<Instant>)],
        began: Instant,
    ) {
        let core = &crawler.core;
        let after = deadlines(crawler);
        for ((timer, was), (_, is)) in before.iter().zip(&after) {
            let Some(at) = *was else {
                continue;
            };
            if !core.io().turns_take_time() {
                assert!(core.now <= began.max(at), "{timer:?} was overslept");
            }
            if at > core.now {
                continue;
            }
            let has_fired = is != was;
            // These timers are due again at once while there is more to do.
            let repeats = matches!(timer, Timer::Again | Timer::Source);
            // A further turn continues work that did not fit into this one.
            let goes_on = core.wakeups.is_unfinished() || core.control.phase().is_over();
            assert!(
                has_fired || goes_on || repeats,
                "{timer:?} was due and did not fire"
            );
            if has_fired && !self.fired.contains(timer) {
                self.fired.push(*timer);
            }
        }
        let has_progress = core.now > began || after != before;
        self.idle = if has_progress { 0 } else { self.idle + 1 };
        assert!(self.idle < IDLE_MAX, "it spins: {after:?}");
    }

    /// Runs turns to the end of the crawl.
    pub fn run(&mut self, crawler: &mut Crawler<Sim>) {
        while self.turn(crawler, None) == Turn::GoesOn {
            assert!(crawler.elapsed() < Duration::from_secs(24 * 3600));
        }
    }
}

/// When each timer is due.
fn deadlines(crawler: &Crawler<Sim>) -> Vec<(Timer, Option<Instant>)> {
    let due = |timer: Timer| (timer, crawler.core.deadline_of(timer));
    Timer::ALL.map(due).to_vec()
}
