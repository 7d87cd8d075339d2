//! What the accounts say: settings without effect, and paces that are not the wanted ones.

use std::borrow::Cow;
use std::time::Duration;

use super::super::cause::Cause;
use super::super::decision::{Decision, Event, Source};
use super::super::diagnosis::{
    Diagnosis, Facts, Ineffective, Setting, Told, Waits, diagnose, ineffective,
};
use super::Throttle;
use super::accounts::Account;
use crate::base::time::Instant;

impl Throttle {
    /// What a scope's account says by `now` of its settings and of its pace.
    pub fn findings(
        &self,
        account: &Account,
        now: Instant,
    ) -> (Option<Ineffective>, Option<Diagnosis>) {
        let facts = self.facts(account, now);
        (ineffective(&facts), diagnose(&facts))
    }

    /// The requests per second that refusals have shown to be the most that a scope takes, while
    /// that is known.
    pub fn learned_rate(&self, scope: &str) -> Option<f64> {
        let id = self.roll.find(scope)?;
        let state = self.roll.get(id)?;
        let gap = state.learned()?.gap()?;
        (!gap.is_zero()).then(|| 1.0 / gap.as_secs_f64())
    }

    /// The crawl is about to end: decides of each scope whether its settings had an effect.
    pub fn conclude(&mut self, now: Instant) {
        if !self.tracing {
            return;
        }
        let mut found = Vec::new();
        for account in self.accounts() {
            if let Some(ineffective) = ineffective(&self.facts(account, now)) {
                let (scope, pace) = (account.scope.clone(), account.pace);
                found.push((scope, pace, ineffective.words));
            }
        }
        for (scope, pace, words) in found {
            self.decide(Decision {
                at: now,
                scope,
                id: None,
                event: Event::Ineffective,
                status: None,
                latency: None,
                target_delay: None,
                delay: [pace.delay; 2],
                concurrency: [pace.concurrency; 2],
                in_flight: 0,
                size: None,
                reason: Cow::Owned(words),
                source: Source::User,
            });
        }
    }

    fn facts(&self, account: &Account, now: Instant) -> Facts {
        let span = account.first.zip(account.last);
        let span = span.map_or(Duration::ZERO, |(first, last)| last.saturating_since(first));
        let mut waits = Waits::default();
        for cause in Cause::ALL {
            waits.add(cause, account.waited(cause, now));
        }
        // While nothing kept it there was nothing to keep.
        let idle = span.saturating_sub(account.waited_in_all(now));
        waits.add(Cause::Queue, idle);
        Facts {
            sends: account.sent,
            span,
            in_flight_mean: account.concurrency(now).unwrap_or(0.0),
            in_flight_peak: account.peak,
            waits,
            replies: account.replies,
            refused: account.refused,
            latency: account.latency(),
            delay: account.delay().unwrap_or_default(),
            at_max: account.at_longest(),
            suspected: account.suspected.is_some(),
            told: self.told(account),
        }
    }

    fn told(&self, account: &Account) -> Told {
        let settings = &account.profile.settings;
        let auto = settings.autothrottle.as_ref();
        let said = self.settings.patch_of(&account.scope);
        let chosen = [
            (said.concurrency.is_some(), Setting::Concurrency),
            (said.delay.is_some(), Setting::Delay),
            (said.quota.is_some(), Setting::Quota),
        ];
        Told {
            concurrency: settings.concurrency,
            delay: settings.delay,
            quota: settings.quota.map(|quota| quota.units),
            target_concurrency: auto.map(|auto| auto.target_concurrency),
            max_delay: settings.delay_max(),
            concurrent_requests: self.settings.concurrent_requests,
            chosen: chosen
                .into_iter()
                .filter_map(|(said, setting)| said.then_some(setting))
                .collect(),
        }
    }
}
