//! Effects of answers: which scopes of a request an answer concerns, and what each changes.

use std::borrow::Cow;
use std::time::Duration;

use smallvec::SmallVec;

use super::super::decision::{Decision, DecisionEvent, DecisionSource};
use super::super::scope::{Change, Hold, NO_INDEX, Queued};
use super::super::settings::RateLimitHeaders;
use super::super::signal::{Blame, BodySignal, ExchangeEnd, Feedback, Signal};
use super::super::strategy::Observation;
use super::history::Recorded;
use super::tickets::Held;
use super::{Throttle, TicketId};
use crate::base::ids::ScopeId;
use crate::base::time::Instant;
use crate::fetch::failure::FailureKind;

type ScopeIds = SmallVec<[ScopeId; 4]>;

/// The scopes that an answer concerns.
struct Concerned {
    scopes: ScopeIds,
    /// Parent scopes that are blamed as well if several of their children are refused, nearest
    /// first.
    parents: ScopeIds,
}

/// What is known of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All of it, or what came after the head.
    All,
    /// Its head; its body may be a refusal.
    Head,
}

impl Throttle {
    /// Handles the answer to a request, when its final head arrived or none will arrive. Each of
    /// its scopes may change its pace. `id` is the number of the attempt.
    pub fn answer(&mut self, ticket: TicketId, id: u64, signal: &Signal, now: Instant) {
        self.answer_part(ticket, id, signal, Part::All, now);
    }

    /// The same of a head whose body may be a refusal: unless the head is one, what follows from being accepted
    /// waits for [`Throttle::answer_body`].
    pub(crate) fn answer_head(&mut self, ticket: TicketId, id: u64, signal: &Signal, now: Instant) {
        self.answer_part(ticket, id, signal, Part::Head, now);
    }

    fn answer_part(
        &mut self,
        ticket: TicketId,
        id: u64,
        signal: &Signal,
        part: Part,
        now: Instant,
    ) {
        self.refresh_ticket(ticket, now);
        for index in 0..self.ticket(ticket).held.len() {
            self.account_answered(self.ticket(ticket).held[index].id, signal);
        }
        self.observe(ticket, id, signal, part, now);
    }

    /// Applies an answer, or what its body adds to it.
    fn observe(&mut self, ticket: TicketId, id: u64, signal: &Signal, part: Part, now: Instant) {
        let refused = self.refused(ticket, signal, now);
        let state = self.ticket(ticket);
        let (held, sent) = (SmallVec::<[Held; 2]>::from_slice(&state.held), state.sent);
        for (index, held) in held.iter().enumerate() {
            let Held {
                id: scope, slot, ..
            } = held;
            let observation = Observation {
                signal,
                refused: refused.contains(scope),
                sent,
            };
            if observation.refused && !held.refused {
                self.ticket_mut(ticket).held[index].refused = true;
                self.account_refused(*scope);
            }
            let mut changes = std::mem::take(&mut self.changes);
            let state = self.scope_mut(*scope);
            let was_calm = state.is_calm() && !observation.refused;
            let is_open = part == Part::Head && !observation.refused;
            match is_open {
                true => state.answer_open(&observation, now, &mut changes),
                false => state.answer(&observation, *slot, now, &mut changes),
            }
            let is_calm = was_calm && state.is_calm();
            self.ticket_mut(ticket).held[index].is_open = is_open;
            if !changes.is_empty() {
                self.note(*scope, Some(id), signal.status, &mut changes, now);
            }
            self.changes = changes;
            let asked = self.asked_hold(ticket, *scope, signal, observation.refused);
            if let Some((wait, source)) = asked {
                let held = self.hold_for(*scope, wait, source, id, signal, now);
                self.note_asked(ticket, *scope, (wait, held), source, now);
            }
            // An unchanged scope is on the wheel already or will be checked again before anything
            // else happens. If it is due and in no queue it may wait for the global cap, which
            // depends on other scopes.
            let state = self.scope_ref(*scope);
            let waits = match state.queued {
                Queued::No => state.wake_at > now,
                Queued::Departing => true,
                Queued::Ready => state.departing == NO_INDEX,
            };
            if !is_calm {
                self.mark_changed(*scope);
            }
            if asked.is_some() || !is_calm || !waits {
                self.schedule_check(*scope, now);
            }
        }
        if !signal.feedback.is_empty() {
            self.apply_feedback_of(ticket, id, &signal.feedback, now);
        }
    }

    /// Applies feedback about the scopes of a request.
    fn apply_feedback_of(
        &mut self,
        ticket: TicketId,
        id: u64,
        feedback: &[Feedback],
        now: Instant,
    ) {
        for feedback in feedback {
            let held = self.ticket(ticket).held.iter();
            let mut known = held.map(|held| held.id);
            let Some(scope) = known.find(|scope| self.scope_table.name(*scope) == feedback.scope)
            else {
                continue;
            };
            let settled = self.settle_charge(ticket, scope, id, feedback, now);
            let remaining = feedback.remaining.filter(|_| !settled);
            let rest = Feedback {
                remaining,
                ..feedback.clone()
            };
            self.apply_feedback(scope, &rest, now);
        }
    }

    /// Handles the body of an answer whose head was handled before with this signal: it may have broken
    /// off, and contain what the head did not.
    pub(crate) fn answer_body(
        &mut self,
        ticket: TicketId,
        id: u64,
        signal: &Signal,
        failure: Option<FailureKind>,
        body: &BodySignal,
        now: Instant,
    ) {
        self.refresh_ticket(ticket, now);
        if failure.is_some() || body.status.is_some() {
            // It may be a refusal as well; the latency was recorded with the head.
            let blame = match body.status {
                Some(_) => body.blame.clone(),
                None => signal.blame.clone(),
            };
            let late = Signal {
                status: body.status.or(signal.status),
                failure,
                blame,
                server_latency: None,
                latency: None,
                feedback: Vec::new(),
                ..signal.clone()
            };
            self.observe(ticket, id, &late, Part::All, now);
        } else {
            self.accept(ticket, id, signal, now);
        }
        if !body.feedback.is_empty() {
            self.apply_feedback_of(ticket, id, &body.feedback, now);
        }
    }

    /// The body of an answer with this head is no refusal: what follows from being accepted.
    fn accept(&mut self, ticket: TicketId, id: u64, signal: &Signal, now: Instant) {
        let state = self.ticket(ticket);
        let (held, sent) = (SmallVec::<[Held; 2]>::from_slice(&state.held), state.sent);
        for (index, held) in held.iter().enumerate().filter(|(_, held)| held.is_open) {
            self.ticket_mut(ticket).held[index].is_open = false;
            let observation = Observation {
                signal,
                refused: false,
                sent,
            };
            let mut changes = std::mem::take(&mut self.changes);
            let state = self.scope_mut(held.id);
            let was_calm = state.is_calm();
            state.accept(&observation, held.slot, now, &mut changes);
            let is_calm = was_calm && state.is_calm();
            self.note(held.id, Some(id), signal.status, &mut changes, now);
            self.changes = changes;
            if !is_calm {
                self.mark_changed(held.id);
                self.schedule_check(held.id, now);
            }
        }
    }

    /// Handles the end of an exchange, for the scopes that learn from it.
    pub fn ended(
        &mut self,
        ticket: TicketId,
        id: u64,
        signal: &Signal,
        ending: &ExchangeEnd,
        now: Instant,
    ) {
        self.refresh_ticket(ticket, now);
        for held in self.ticket(ticket).held.clone() {
            let Held {
                id: scope, refused, ..
            } = held;
            let sent = self.ticket(ticket).sent;
            let ending = ExchangeEnd {
                sent,
                refused,
                ..*ending
            };
            let mut changes = std::mem::take(&mut self.changes);
            self.scope_mut(scope)
                .ended(signal, &ending, now, &mut changes);
            self.note(scope, Some(id), ending.status, &mut changes, now);
            self.changes = changes;
            self.mark_changed(scope);
            self.schedule_check(scope, now);
        }
    }

    /// Returns whether one of the request's scopes learns from how a reply ends.
    pub(crate) fn listens(&self, ticket: TicketId) -> bool {
        let mut held = self.ticket(ticket).held.iter();
        held.any(|held| self.scope_ref(held.id).listens())
    }

    /// Applies what the embedding program knows of a scope, independent of any request. Creates the
    /// scope if it is new.
    pub fn feedback(&mut self, feedback: &Feedback, now: Instant) {
        let scope = self.scope(&feedback.scope);
        self.report_on(scope, feedback, now);
        self.evict_or_schedule(scope, now);
    }

    /// Applies knowledge of a scope that does not come from an answer. "Exhausted" counts as a
    /// refusal of a request that departs now.
    pub(super) fn report_on(&mut self, scope: ScopeId, feedback: &Feedback, now: Instant) {
        if feedback.exhausted {
            let observation = Observation {
                signal: &Signal::default(),
                refused: true,
                sent: now,
            };
            let mut changes = std::mem::take(&mut self.changes);
            self.scope_mut(scope)
                .answer(&observation, 0, now, &mut changes);
            self.scope_mut(scope).follow(now);
            self.note(scope, None, None, &mut changes, now);
            self.changes = changes;
            self.mark_changed(scope);
        }
        self.apply_feedback(scope, feedback, now);
    }

    /// The scopes that an answer is a refusal of.
    fn refused(&mut self, ticket: TicketId, signal: &Signal, now: Instant) -> ScopeIds {
        let mut refused = ScopeIds::new();
        if !signal.feedback.is_empty() {
            let held = self.ticket_scopes(ticket);
            refused.extend(held.filter(|id| self.is_exhausted(*id, signal)));
        }
        let refuses = |id: ScopeId| self.scope_ref(id).refuses(signal);
        if !self.ticket_scopes(ticket).any(refuses) {
            return refused;
        }
        let concerned = self.concerned(ticket, signal);
        let mut blamed = concerned.scopes;
        blamed.retain(|id| self.scope_ref(*id).refuses(signal));
        if let Some(child) = blamed.first().copied() {
            self.escalate(child, &concerned.parents, &mut blamed, now);
        }
        for id in blamed {
            if self.scope_ref(id).refuses(signal) && !refused.contains(&id) {
                refused.push(id);
            }
        }
        refused
    }

    /// Returns the scopes that an answer concerns.
    ///
    /// Scopes that only have a quota are excluded, as are scopes that were added automatically and
    /// have no pace. Of a map's scopes the last is the most specific. An address scope counts as a
    /// parent of them, since other hosts share it.
    fn concerned(&self, ticket: TicketId, signal: &Signal) -> Concerned {
        let state = self.ticket(ticket);
        let held = state.ids();
        let paces = |id: &ScopeId| {
            let profile = &self.scope_ref(*id).profile;
            !profile.only_quota && !profile.is_implicit
        };
        let (named, joined) = held.split_at(usize::from(state.named));
        let named: ScopeIds = named.iter().copied().filter(paces).collect();
        let joined = joined.iter().copied().filter(paces);
        let mut parents = ScopeIds::new();
        let scopes = match (&signal.blame, named.split_last()) {
            (Blame::NoScope, _) => ScopeIds::new(),
            (Blame::All, _) => named.into_iter().chain(joined).collect(),
            (Blame::Only(names), _) => held
                .iter()
                .copied()
                .filter(|id| names.iter().any(|name| name == self.scope_table.name(*id)))
                .collect(),
            (Blame::Specific, None) => joined.collect(),
            (Blame::Specific, Some((last, general))) if state.ordered => {
                parents.extend(general.iter().rev().copied().chain(joined));
                ScopeIds::from_slice(&[*last])
            }
            (Blame::Specific, Some(_)) => {
                parents.extend(joined);
                named
            }
        };
        Concerned { scopes, parents }
    }

    /// Returns whether the signal reports this scope as exhausted, whatever the status.
    fn is_exhausted(&self, id: ScopeId, signal: &Signal) -> bool {
        let mut feedback = signal.feedback.iter();
        feedback
            .any(|concerned| concerned.exhausted && concerned.scope == self.scope_table.name(id))
    }

    /// Adds parent scopes of which another child was refused within the window, from one level to
    /// the next until a level has none.
    fn escalate(
        &mut self,
        child: ScopeId,
        parents: &[ScopeId],
        blamed: &mut ScopeIds,
        now: Instant,
    ) {
        let mut below = child;
        for parent in parents {
            if !self.scope_mut(*parent).child_was_refused(below.0, now) {
                return;
            }
            blamed.push(*parent);
            below = *parent;
        }
    }

    /// How long an answer asks this scope to wait, and by which field.
    fn asked_hold(
        &self,
        ticket: TicketId,
        scope: ScopeId,
        signal: &Signal,
        refused: bool,
    ) -> Option<(Duration, DecisionSource)> {
        let fields = self.settings.rate_limit_headers;
        if refused {
            let reset = signal.rate_limit_reset;
            let reset = reset.filter(|_| fields != RateLimitHeaders::Off);
            return signal
                .retry_after
                .map(|wait| (wait, DecisionSource::RetryAfter))
                .or(reset.map(|wait| (wait, DecisionSource::RateLimit)));
        }
        let applies = fields == RateLimitHeaders::Always && signal.rate_limit_exhausted;
        let wait = signal.rate_limit_reset.filter(|_| applies)?;
        let concerned = self.concerned(ticket, signal).scopes;
        concerned
            .contains(&scope)
            .then_some((wait, DecisionSource::RateLimit))
    }

    /// Holds a scope for the time that an answer asks for, within the bounds of the settings; returns that time.
    fn hold_for(
        &mut self,
        scope: ScopeId,
        wait: Duration,
        source: DecisionSource,
        id: u64,
        signal: &Signal,
        now: Instant,
    ) -> Duration {
        if wait.is_zero() {
            return wait;
        }
        let cap = self.scope_ref(scope).profile.settings.backoff.max_delay;
        let capped = if self.settings.obey_fully {
            wait
        } else {
            wait.min(cap)
        };
        let hold = Hold {
            until: now + capped,
            source,
            probes: true,
        };
        let is_new = self.scope_mut(scope).hold(hold);
        self.mark_held(scope);
        if !is_new {
            return capped;
        }
        let words = match source {
            DecisionSource::RetryAfter => "Retry-After",
            _ => "the server's rate-limit fields",
        };
        let name = self.scope_table.name(scope);
        let reason = if capped < wait {
            log::warn!(
                "{name}: {words} asks for {wait:.0?}, which BACKOFF_MAX_DELAY caps at {capped:.0?}; \
                 then one request probes (RETRY_AFTER_OBEY = true obeys it in full)"
            );
            format!("{words} asks for {wait:?}, capped at {capped:?}; then one request probes")
        } else {
            format!("{words} asks for {wait:?}")
        };
        self.account_decided(scope, DecisionEvent::Hold);
        let pace = self.pace(scope);
        self.decide(Decision {
            at: now,
            scope: self.scope_table.name(scope).to_owned(),
            id: Some(id),
            event: DecisionEvent::Hold,
            status: signal.status,
            latency: signal.server_latency,
            target_delay: Some(capped),
            delay: [pace.delay; 2],
            concurrency: [pace.concurrency; 2],
            in_flight: self.scope_ref(scope).on_the_wire(),
            size: None,
            reason: Cow::Owned(reason),
            source,
        });
        capped
    }

    /// Corrects the charge by the actual cost or the remaining quota that an answer reports.
    /// Returns whether one was corrected.
    fn settle_charge(
        &mut self,
        ticket: TicketId,
        scope: ScopeId,
        id: u64,
        feedback: &Feedback,
        now: Instant,
    ) -> bool {
        let charges = &mut self.ticket_mut(ticket).charges;
        let Some(at) = charges.iter().position(|(charged, _)| *charged == scope) else {
            return false;
        };
        if feedback.actual.is_none() && feedback.remaining.is_none() {
            return false;
        }
        let (_, charge) = charges.remove(at);
        let (actual, remaining) = (feedback.actual, feedback.remaining);
        let more = self.scope_mut(scope).settle(charge, actual, remaining, now);
        if more != 0.0 || remaining.is_some() {
            let rest = match remaining {
                Some(units) => format!("; {units} units remain"),
                None => String::new(),
            };
            let reason = format!("{more:+} units beyond the estimate{rest}");
            self.decide_beside(
                scope,
                Some(id),
                DecisionEvent::Quota,
                DecisionSource::Quota,
                reason,
                now,
            );
        }
        true
    }

    /// Records that a lane starts to wait for quota.
    pub(super) fn note_quota(&mut self, scope: ScopeId, cost: f64, now: Instant) {
        if !self.records_decisions() {
            self.account_decided(scope, DecisionEvent::Quota);
        } else {
            let at = self.scope_ref(scope).fits_at(cost, now);
            let wait = at.saturating_since(now);
            let reason = format!("the quota is used up: {cost} units fit in {wait:?}");
            self.decide_beside(
                scope,
                None,
                DecisionEvent::Quota,
                DecisionSource::Quota,
                reason,
                now,
            );
        }
    }

    /// Records that robots.txt asks for a delay.
    pub(crate) fn note_crawl_delay(&mut self, scope: ScopeId, asked: Duration, now: Instant) {
        if !self.records_decisions() {
            self.account_decided(scope, DecisionEvent::Robots);
        } else {
            let applied = asked.min(self.settings.robotstxt_max_delay);
            let capped = if applied < asked {
                format!(", capped at {applied:?} (THROTTLING_ROBOTSTXT_MAX_DELAY)")
            } else {
                String::new()
            };
            let reason = format!("robots.txt asks for {asked:?} between requests{capped}");
            self.decide_beside(
                scope,
                None,
                DecisionEvent::Robots,
                DecisionSource::Robots,
                reason,
                now,
            );
        }
    }

    /// Records a decision that changes no pace.
    pub(super) fn decide_beside(
        &mut self,
        scope: ScopeId,
        id: Option<u64>,
        event: DecisionEvent,
        source: DecisionSource,
        reason: String,
        now: Instant,
    ) {
        self.account_decided(scope, event);
        let pace = self.pace(scope);
        self.decide(Decision {
            at: now,
            scope: self.scope_table.name(scope).to_owned(),
            id,
            event,
            status: None,
            latency: None,
            target_delay: None,
            delay: [pace.delay; 2],
            concurrency: [pace.concurrency; 2],
            in_flight: self.scope_ref(scope).on_the_wire(),
            size: None,
            reason: Cow::Owned(reason),
            source,
        });
    }

    /// Applies feedback about one scope beyond status and latency.
    pub(super) fn apply_feedback(&mut self, scope: ScopeId, feedback: &Feedback, now: Instant) {
        self.scope_mut(scope).feedback(feedback, now);
        self.mark_changed(scope);
        if let Some(delay) = feedback.delay {
            let until = now + delay;
            let probes = false;
            let hold = Hold {
                until,
                source: DecisionSource::User,
                probes,
            };
            let holds = self.scope_mut(scope).hold(hold);
            self.mark_held(scope);
            if holds && !self.records_decisions() {
                self.account_decided(scope, DecisionEvent::Hold);
            } else if holds {
                let reason = format!("held for {delay:?} by feedback");
                self.decide_beside(
                    scope,
                    None,
                    DecisionEvent::Hold,
                    DecisionSource::User,
                    reason,
                    now,
                );
            }
        }
        self.schedule_check(scope, now);
    }

    /// Turns changes into decisions, if decisions are recorded.
    fn note(
        &mut self,
        scope: ScopeId,
        id: Option<u64>,
        status: Option<u16>,
        changes: &mut Vec<Change>,
        now: Instant,
    ) {
        for change in changes.drain(..) {
            self.account_decided(scope, change.event);
            if change.alert {
                self.account_suspected(scope, &change.reason);
                log::warn!("{}: {}", self.scope_table.name(scope), change.reason);
            }
            if !self.records_decisions() {
                continue;
            }
            let in_flight = self.scope_ref(scope).on_the_wire();
            if !self.tracing {
                // The usual case, which needs no copy of the name.
                self.history.push(Recorded {
                    scope: self.history_key(self.scope_table.name(scope)),
                    at: now,
                    id,
                    reason: change.reason,
                    delay: [change.before.delay, change.after.delay],
                    latency: change.latency,
                    target: change.target,
                    concurrency: [change.before.concurrency, change.after.concurrency],
                    in_flight,
                    status,
                    event: change.event,
                    source: change.source,
                });
                continue;
            }
            self.decide(Decision {
                at: now,
                scope: self.scope_table.name(scope).to_owned(),
                id,
                event: change.event,
                status,
                latency: change.latency,
                target_delay: change.target,
                delay: [change.before.delay, change.after.delay],
                concurrency: [change.before.concurrency, change.after.concurrency],
                in_flight,
                size: None,
                reason: change.reason,
                source: change.source,
            });
        }
    }

    pub(super) fn decide(&mut self, decision: Decision) {
        if self.history.is_on() {
            let key = self.history_key(&decision.scope);
            self.history.push(Recorded::of(&decision, key));
        }
        if self.tracing {
            self.decisions.push(decision);
        }
    }
}
