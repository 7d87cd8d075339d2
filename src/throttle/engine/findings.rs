//! Diagnosis from the accounts: settings without effect, and paces other than the wanted one.

use std::borrow::Cow;
use std::time::Duration;

use super::super::cause::WaitCause;
use super::super::decision::{Decision, DecisionEvent, DecisionSource};
use super::super::diagnosis::{
    Configured, Diagnosis, Facts, Ineffective, Setting, Waits, diagnose, ineffective,
};
use super::Throttle;
use super::accounts::Account;
use crate::base::time::Instant;

impl Throttle {
    /// Diagnoses a scope's settings and pace from its account until `now`.
    pub(crate) fn findings(
        &self,
        account: &Account,
        now: Instant,
    ) -> (Option<Ineffective>, Option<Diagnosis>) {
        let facts = self.facts(account, now);
        (ineffective(&facts), diagnose(&facts))
    }

    /// The rate in requests per second that refusals have shown to be the scope's limit, while that
    /// is known.
    pub fn learned_rate(&self, scope: &str) -> Option<f64> {
        let id = self.scope_table.find(scope)?;
        let state = self.scope_table.get(id)?;
        let gap = state.learned()?.gap()?;
        (!gap.is_zero()).then(|| 1.0 / gap.as_secs_f64())
    }

    /// Called at the end of a crawl: records for each scope whether its settings had an effect.
    pub(crate) fn conclude(&mut self, now: Instant) {
        if !self.tracing {
            return;
        }
        let mut found = Vec::new();
        for account in self.accounts() {
            if let Some(ineffective) = ineffective(&self.facts(account, now)) {
                let (scope, pace) = (account.scope.clone(), account.pace);
                found.push((scope, pace, ineffective.message));
            }
        }
        for (scope, pace, message) in found {
            self.decide(Decision {
                at: now,
                scope,
                id: None,
                event: DecisionEvent::Ineffective,
                status: None,
                latency: None,
                target_delay: None,
                delay: [pace.delay; 2],
                concurrency: [pace.concurrency; 2],
                in_flight: 0,
                size: None,
                reason: Cow::Owned(message),
                source: DecisionSource::User,
            });
        }
    }

    fn facts(&self, account: &Account, now: Instant) -> Facts {
        let span = account.first.zip(account.last);
        let span = span.map_or(Duration::ZERO, |(first, last)| last.saturating_since(first));
        let mut waits = Waits::default();
        for cause in WaitCause::ALL {
            waits.add(cause, account.waited(cause, now));
        }
        // Time without waiting is time without anything to send.
        let idle = span.saturating_sub(account.waited_total(now));
        waits.add(WaitCause::Queue, idle);
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
            at_max: account.at_max_delay(),
            suspected: account.suspected.is_some(),
            configured: self.configured(account),
        }
    }

    fn configured(&self, account: &Account) -> Configured {
        let settings = &account.profile.settings;
        let auto = settings.autothrottle.as_ref();
        let patch = self.settings.patch_of(&account.scope);
        let chosen = [
            (patch.concurrency.is_some(), Setting::Concurrency),
            (patch.delay.is_some(), Setting::Delay),
            (patch.quota.is_some(), Setting::Quota),
        ];
        Configured {
            concurrency: settings.concurrency,
            delay: settings.delay,
            quota: settings.quota.map(|quota| quota.units),
            target_concurrency: auto.map(|auto| auto.target_concurrency),
            max_delay: settings.delay_max(),
            concurrent_requests: self.settings.concurrent_requests,
            chosen: chosen
                .into_iter()
                .filter_map(|(chosen, setting)| chosen.then_some(setting))
                .collect(),
        }
    }
}
