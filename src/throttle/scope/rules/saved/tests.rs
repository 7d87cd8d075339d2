//! States that are saved and restored.

use super::*;
use crate::base::rng::Rng;
use crate::throttle::settings::{
    AutoThrottle, AutoThrottleMode, Oversize, Quota, ScopeSettings, WindowKind,
};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(seconds: u64) -> Instant {
    Instant::START + secs(seconds)
}

/// Settings with all rules, of either kind.
fn profile(mode: AutoThrottleMode, kind: WindowKind, per_slot: bool) -> Profile {
    let mut settings = ScopeSettings {
        concurrency: 4,
        delay: Duration::from_millis(100),
        delay_per_slot: secs(1),
        autothrottle: Some(AutoThrottle {
            mode,
            ..AutoThrottle::default()
        }),
        quota: Some(Quota {
            units: 50.0,
            window: secs(600),
            kind,
            oversize: Oversize::Alone,
        }),
        requests_per_minute: Some(30.0),
        ..ScopeSettings::default()
    };
    settings.backoff.per_slot = per_slot;
    Profile::of(settings)
}

fn any_profile(rng: &mut Rng) -> Profile {
    let mode = match rng.chance(0.5) {
        true => AutoThrottleMode::Robust,
        false => AutoThrottleMode::Scrapy,
    };
    let kind = match rng.chance(0.5) {
        true => WindowKind::Fixed,
        false => WindowKind::Sliding,
    };
    profile(mode, kind, rng.chance(0.5))
}

fn limits(rng: &mut Rng) -> Learned {
    Learned {
        gap: 1 + rng.below(9_000_000_000),
        refused: rng.below(1000),
        known: rng.chance(0.5),
        cuts: rng.below(3) as u8,
        lanes: rng.below(9) as u32,
    }
}

/// Rules in any state at this time.
fn rules(profile: &Profile, rng: &mut Rng, now: Instant) -> Rules {
    let mut rules = Rules::of(profile, None).expect("it has rules");
    if rng.chance(0.5) {
        rules.hold(Hold {
            until: now + secs(rng.below(100)),
            source: source_of(rng.below(3) as u8),
            probes: rng.chance(0.5),
        });
    }
    if rng.chance(0.5) {
        let learned = limits(rng);
        let backoff = Backoff::from_learned(learned, now);
        // A gap without a refusal has none that is refused.
        rules.backoff = backoff.compact().map(|_| Box::new(backoff));
    }
    if let Some(slots) = &mut rules.slots {
        slots.restore_learned(rng.below(4) as u16, limits(rng), profile, now);
        slots.restore_cuts(rng.below(2) as u8, now);
    }
    match &mut rules.adapts {
        Adapts::Scrapy(delay) => *delay = Duration::from_millis(100 + rng.below(9000)),
        Adapts::Robust(robust) if rng.chance(0.7) => {
            let saved = SavedRobust {
                delay: 200_000_000 + rng.below(1_000_000_000),
                heads: Some(0.3),
                bodies: Some(1.5).filter(|_| rng.chance(0.5)),
            };
            let auto = profile.settings.autothrottle.as_ref().expect("it is on");
            **robust = Robust::restored(saved, auto, profile.settings.delay);
        }
        _ => {}
    }
    if rng.chance(0.5) {
        let saved = SavedSuspicion {
            kind: KINDS[rng.below(4) as usize],
            digest: Some(rng.next_u64()).filter(|_| rng.chance(0.5)),
            seen: rng.below(100) as u32,
            delay: 60_000,
        };
        rules.suspect = Some(Box::new(Suspect::restored(saved, now)));
    }
    for _ in 0..rng.below(30) {
        let charges = rules.charge(1.5);
        let sent = now - secs(rng.below(700));
        if rng.chance(0.9) {
            rules.charged(charges, sent);
        }
    }
    rules.recompute(profile);
    rules
}

fn save(rules: &Rules, profile: &Profile, now: Instant) -> Vec<u8> {
    let mut bytes = Vec::new();
    rules.save(profile, now, &mut bytes);
    bytes
}

/// A new scope's rules after this state.
fn restored(profile: &Profile, bytes: &[u8], elapsed: Duration, now: Instant) -> Rules {
    let mut rules = Rules::of(profile, None).expect("it has rules");
    if let Some(saved) = SavedRules::decode(bytes) {
        let restoring = Restoring {
            elapsed,
            is_complete: true,
            now,
        };
        rules.restore(profile, &saved, restoring);
    }
    rules
}

#[test]
fn a_new_scope_has_nothing_to_save() {
    for mode in [AutoThrottleMode::Robust, AutoThrottleMode::Scrapy] {
        let profile = profile(mode, WindowKind::Fixed, true);
        let rules = Rules::of(&profile, None).expect("it has rules");
        assert_eq!(save(&rules, &profile, at(5)).escape_ascii().to_string(), "");
    }
}

#[test]
fn a_state_restored_at_once_is_the_state_that_was_saved() {
    let mut rng = Rng::from_seed(17);
    for _ in 0..2_000 {
        let profile = any_profile(&mut rng);
        let now = at(1_000 + rng.below(1_000));
        let rules = rules(&profile, &mut rng, now);
        let bytes = save(&rules, &profile, now);
        let again = restored(&profile, &bytes, Duration::ZERO, now);
        assert_eq!(rules.held_until().max(now), again.held_until().max(now));
        assert_eq!(rules.probing_from.is_some(), again.probing_from.is_some());
        assert_eq!(rules.pace(), again.pace());
        for cost in [1.0, 20.0, 49.0] {
            assert!(again.fits_at(cost, now) >= rules.fits_at(cost, now));
        }
        let later = restored(&profile, &bytes, secs(601), Instant::START);
        assert_eq!(later.fits_at(50.0, Instant::START), Instant::START);
        let ledgers = |rules: &Rules| {
            let ledgers = [&rules.quota, &rules.minute].into_iter().flatten();
            ledgers
                .map(|ledger| ledger.consumed_units(now))
                .sum::<f64>()
        };
        // Slices are saved several at a time, which expire with the last of them.
        assert!(ledgers(&again) >= ledgers(&rules));
    }
}

#[test]
fn a_cut_or_changed_state_is_read_in_part_or_not_at_all() {
    let mut rng = Rng::from_seed(18);
    for _ in 0..200 {
        let profile = any_profile(&mut rng);
        let now = at(1_000);
        let rules = rules(&profile, &mut rng, now);
        let bytes = save(&rules, &profile, now);
        for cut in 0..bytes.len() {
            let again = restored(&profile, &bytes[..cut], Duration::ZERO, now);
            assert!(again.held_until() <= rules.held_until().max(now));
            let mut changed = bytes.clone();
            changed[cut] ^= 1 << rng.below(8);
            let again = restored(&profile, &changed, secs(rng.below(100_000)), now);
            save(&again, &profile, now);
        }
        let mut newer = bytes;
        if let Some(version) = newer.first_mut() {
            *version += 1;
            assert!(SavedRules::decode(&newer).is_none());
        }
    }
}

#[test]
fn a_hold_is_never_longer_than_what_is_left_of_it() {
    let profile = profile(AutoThrottleMode::Robust, WindowKind::Fixed, false);
    let check = |left: u64, elapsed: u64, expected: u64| {
        let mut rules = Rules::of(&profile, None).expect("it has rules");
        rules.hold(Hold {
            until: at(1_000 + left),
            source: DecisionSource::RetryAfter,
            probes: true,
        });
        let bytes = save(&rules, &profile, at(1_000));
        let saved = SavedRules::decode(&bytes).expect("a state");
        assert_eq!(saved.is_over(secs(elapsed)), elapsed >= SLOW_KEPT.as_secs());
        let again = restored(&profile, &bytes, secs(elapsed), at(7));
        let held = again.held_until().saturating_since(at(7));
        assert_eq!(held, secs(expected), "{left} s, {elapsed} s ago");
        assert_eq!(again.concurrency() == 1, elapsed < SLOW_KEPT.as_secs());
    };
    check(30, 0, 30);
    check(30, 12, 18);
    check(30, 30, 0);
    check(30, 4_000, 0);
    check(3_000, 5, 2_995);
}

#[test]
fn what_was_learned_expires_with_the_time_since() {
    let mut rng = Rng::from_seed(19);
    let profile = profile(AutoThrottleMode::Scrapy, WindowKind::Fixed, false);
    let mut rules = Rules::of(&profile, None).expect("it has rules");
    rules.backoff = Some(Box::new(Backoff::from_learned(limits(&mut rng), at(0))));
    rules.adapts = Adapts::Scrapy(secs(11));
    let bytes = save(&rules, &profile, at(0));
    let pace = |elapsed| {
        restored(&profile, &bytes, elapsed, at(0))
            .learned()
            .is_some()
    };
    assert!(pace(LEARNED_KEPT_FOR - secs(1)));
    assert!(!pace(LEARNED_KEPT_FOR));
    let delay = |elapsed| match restored(&profile, &bytes, elapsed, at(0)).adapts {
        Adapts::Scrapy(delay) => delay,
        _ => Duration::ZERO,
    };
    assert_eq!(delay(SLOW_KEPT - secs(1)), secs(11));
    assert_eq!(delay(SLOW_KEPT), secs(5), "that of a new scope");
    let saved = SavedRules::decode(&bytes).expect("a state");
    assert!(!saved.is_over(LEARNED_KEPT_FOR - secs(1)));
    assert!(saved.is_over(LEARNED_KEPT_FOR));
}

#[test]
fn a_cost_counts_in_the_next_run_as_long_as_it_would_have() {
    for kind in [WindowKind::Fixed, WindowKind::Sliding] {
        let profile = profile(AutoThrottleMode::Robust, kind, false);
        let mut rules = Rules::of(&profile, None).expect("it has rules");
        rules.minute = None;
        for sent in [100, 300] {
            let charges = rules.charge(30.0);
            rules.charged(charges, at(sent));
        }
        let bytes = save(&rules, &profile, at(400));
        let fits = |elapsed, cost| {
            let mut again = restored(&profile, &bytes, secs(elapsed), at(0));
            let charges = again.charge(5.0);
            again.charged(charges, at(0));
            again.fits_at(cost, at(0)).saturating_since(at(0))
        };
        // Sent at 100 and 300 s, saved at 400 s, and each counts for 600 s; both, if the window is fixed.
        let last = if kind == WindowKind::Fixed { 300 } else { 500 };
        assert_eq!(fits(0, 15.0), secs(300), "{kind:?}");
        assert_eq!(fits(0, 45.0), secs(last), "{kind:?}");
        assert_eq!(fits(50, 45.0), secs(last - 50), "{kind:?}");
        assert_eq!(fits(0, 46.0), secs(600), "{kind:?}: and that of this run");
        assert_eq!(fits(600, 45.0), secs(0), "{kind:?}");
    }
}

#[test]
fn costs_that_are_not_known_are_a_whole_window() {
    for kind in [WindowKind::Fixed, WindowKind::Sliding] {
        let profile = profile(AutoThrottleMode::Robust, kind, false);
        let mut rules = Rules::of(&profile, None).expect("it has rules");
        rules.begin_after(&profile, at(1_000), false);
        assert_eq!(rules.fits_at(1.0, at(1_000)), at(1_600));
        assert_eq!(rules.fits_at(1.0, at(1_700)), Instant::START);
        let mut known = Rules::of(&profile, None).expect("it has rules");
        known.begin_after(&profile, at(1_000), true);
        assert_eq!(known.fits_at(1.0, at(1_000)), Instant::START);
        // Each slot, too, waits for its delay.
        let slots = known.slots.as_ref().expect("it has slots");
        assert_eq!(slots.free_at(), Some(at(1_001)));
    }
}
