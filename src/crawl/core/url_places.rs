//! Where a URL is that is in no queue and has not ended: in flight, or its reply or its result waits.

use serde_json::{Value, json};

use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::flights::{Flight, Stage};
use crate::crawl::pages::ReplyWait;
use crate::crawl::work::unsent::Unsent;
use crate::fetch::failure::Failure;
use crate::frontier::job::Job;
use crate::io::Io;
use crate::wire::url::CrawlUrl;

impl<I: Io> Core<I> {
    /// The state of a URL that is in no queue and has not ended, but for one that has ended unsent.
    pub fn place_json(&self, url: &CrawlUrl) -> Option<Value> {
        if let Some((key, flight)) = self.flights.find(|flight| flight.job.url == *url) {
            return Some(self.in_flight_json(key, flight));
        }
        if let Some((job, failure)) = self.outage.find(url) {
            return Some(awaiting_verdict(job, failure));
        }
        if let Some((job, wait)) = self.pages.find(url) {
            return Some(self.reply_json(job, wait));
        }
        if let Some((job, until)) = self.work.find(url) {
            let why = match until {
                Some(_) => "a redirect to it asked for a delay (Retry-After)",
                None => "its scopes are not known yet: the scope map has not answered",
            };
            let until = until.map(|until| self.wall_text(until));
            return Some(of_job(
                job,
                json!({"state": "delayed", "why": why, "until": until}),
            ));
        }
        self.work.find_cancelled(url).map(pending)
    }

    fn in_flight_json(&self, key: Key, flight: &Flight) -> Value {
        let span = self.now.saturating_since(flight.released).as_secs_f64();
        if let Some(failure) = self.outage.failure_of(key) {
            let mut state = awaiting_verdict(&flight.job, failure);
            state["for"] = json!(span);
            return state;
        }
        let (stage, why) = match flight.stage {
            Stage::Connecting { .. } => ("connecting", "it waits for its connection"),
            Stage::Ready { .. } => (
                "ready",
                "it has a connection and leaves when its scopes permit",
            ),
            Stage::Exchanging { .. } | Stage::Moving => ("exchanging", "it waits for the reply"),
        };
        let state = json!({"state": "in_flight", "why": why, "stage": stage, "for": span});
        of_job(&flight.job, state)
    }

    /// A URL whose reply is there, and whose result is not.
    fn reply_json(&self, job: &Job, wait: ReplyWait) -> Value {
        let is_ready = self.output.is_ready();
        let why = match wait {
            ReplyWait::NextRun => return pending(job),
            ReplyWait::Target => {
                "it redirects, and whether the target was seen before is being looked up on the disk"
            }
            ReplyWait::Worker => "a helper thread works on its reply",
            ReplyWait::Turn | ReplyWait::Verdict if !is_ready => {
                let why = format!("its reply is there, but {}", self.sink_words());
                return of_job(job, json!({"state": "awaiting_sink", "why": why}));
            }
            ReplyWait::Verdict => {
                "its body is to be decoded: only then is it known what the reply means"
            }
            ReplyWait::Turn if self.work.is_full_of_offers() => {
                "links of other replies are being looked up on the disk: its own wait for that"
            }
            ReplyWait::Turn => "its reply is being worked on, or waits for those before it",
        };
        of_job(job, json!({"state": "working", "why": why}))
    }

    /// A URL that has ended unsent, and whose result waits.
    pub fn unsent_json(&self, unsent: &Unsent) -> Value {
        let error = unsent.failure.code();
        let why = match self.output.is_ready() {
            true => format!("it has ended unsent ({error}), and its result is written next"),
            false => format!("it has ended unsent ({error}), but {}", self.sink_words()),
        };
        let state = json!({"state": "awaiting_sink", "why": why, "error": error});
        of_job(&unsent.job, state)
    }

    /// Why the sink takes no results.
    fn sink_words(&self) -> &'static str {
        match self.output.has_disk_room() {
            true => "the sink takes no more results now",
            false => "the disk is full",
        }
    }
}

/// A request whose failure may be our network's.
fn awaiting_verdict(job: &Job, failure: &Failure) -> Value {
    let error = failure.code();
    let why = format!(
        "it failed ({error}), and so did others: whether that is the fault of this machine's network is being found out"
    );
    let state = json!({"state": "awaiting_verdict", "why": why, "error": error});
    of_job(job, state)
}

/// A request that a crawl which ends leaves.
fn pending(job: &Job) -> Value {
    let why = "the crawl ends before it is fetched: pending.jsonl has it, or the run that continues the crawl";
    of_job(job, json!({"state": "pending", "why": why}))
}

/// A state, with what is known of the request.
fn of_job(job: &Job, mut state: Value) -> Value {
    state["id"] = json!(job.id);
    state["kind"] = json!(job.kind.as_str());
    state["depth"] = json!(job.depth);
    state["priority"] = json!(job.priority);
    state["attempt"] = json!(job.attempt);
    state
}
