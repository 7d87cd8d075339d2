//! Serves the control interface: calls of operators are answered in each turn, a few at a time.

use std::io;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::admin::access::Via;
use crate::admin::format::MetricsFormat;
use crate::admin::page;
use crate::admin::response::Response;
use crate::admin::routes::{Call, Resource};
use crate::base::disk::DiskDone;
use crate::crawl::core::Core;
use crate::crawl::core::logging::log_level;
use crate::crawl::set_up::Admin;
use crate::crawl::steering::{Asked, SocketStep, Subject};
use crate::io::{Endpoint, Io};
use crate::sink::commit::Epoch;

/// Calls that are answered in one turn, up to a tenth of a millisecond each but for those that visit all scopes.
const CALLS_PER_TURN: usize = 4;

impl<I: Io> Core<I> {
    /// Listens for operators; returns the address of the TCP listener.
    ///
    /// # Errors
    /// The system's, with the endpoint.
    pub fn serve(&mut self, admin: Admin) -> io::Result<Option<SocketAddr>> {
        let mut address = None;
        if let Some(at) = admin.listen {
            address = self.network.listen(&Endpoint::Tcp(at))?;
        }
        if let Some(path) = admin.socket {
            self.network.listen(&Endpoint::Unix { path, mode: 0o600 })?;
        }
        self.steering.configure(admin.access, admin.orders);
        if admin.sets_log_level {
            self.resume_log_level();
        }
        self.throttle.keep_history();
        self.steering.history_mut().open();
        self.take_sample(false);
        self.wake_host();
        Ok(address)
    }

    /// Answers calls, and takes what came for that.
    pub fn serve_operators(&mut self) {
        while let Some((key, event)) = self.network.poll_operator_event() {
            self.steering.handle_event(key, event, self.now);
        }
        let advances = self.advance_searches();
        if self.steering.is_empty() {
            return;
        }
        self.wakeups.turn_again_if(advances);
        // Both may visit all scopes, and one turn does that once.
        match self.send_events() {
            true => self.wakeups.turn_again(),
            false => self.answer_calls(),
        }
    }

    /// Answers the next few calls.
    fn answer_calls(&mut self) {
        let wall = self.network.wall_at(self.now);
        let mut has_visited_all = false;
        for _ in 0..CALLS_PER_TURN {
            let network = &self.network;
            let unsent = |key| network.unsent_to_operator(key);
            let Some(asked) = self.steering.poll_call(unsent, self.now, wall) else {
                return;
            };
            has_visited_all |= visits_all(asked.call.resource);
            self.answer(asked);
            if has_visited_all {
                break;
            }
        }
        // There may be more.
        self.wakeups.turn_again();
    }

    /// Answers a call.
    fn answer(&mut self, asked: Asked) {
        let call = &asked.call;
        let wall = self.network.wall_at(self.now);
        let response = match call.resource {
            Resource::Page => page::page(),
            Resource::Events => {
                self.steering.respond_with_stream(asked.key, self.now, wall);
                // For its first event.
                return self.wakeups.turn_again();
            }
            Resource::Alive => Response::text(200, "ok\n"),
            Resource::Ready => self.readiness(),
            Resource::Description => Response::of(
                200,
                "application/json",
                include_bytes!("../../admin/openapi.json").to_vec(),
            ),
            Resource::Scopes if call.parameter("state").is_some() => {
                let state = call.parameter("state").unwrap_or_default().to_owned();
                return self.begin_scopes(&asked, &state);
            }
            Resource::Scopes => return self.begin_list(&asked),
            Resource::Metrics => self.recent_metrics(call.format),
            Resource::Status | Resource::History | Resource::Decisions => {
                self.answer_from_all(call)
            }
            Resource::Probe => self.target_metrics(call),
            Resource::Scope => self.scope(&call.name),
            Resource::Host => self.host(&call.name),
            Resource::Url => return self.begin_url(&asked),
            Resource::Queues => return self.begin_queues(&asked),
            Resource::Exclusions => self.exclusions(),
            Resource::Limits => self.limits(),
            Resource::Log => log_level(),
            Resource::Pause
            | Resource::Resume
            | Resource::Stop
            | Resource::ChangeScope
            | Resource::MergeScope
            | Resource::ForgetScope
            | Resource::HostPriority
            | Resource::CancelScope
            | Resource::Rotate
            | Resource::AddSeeds
            | Resource::Exclude
            | Resource::Include
            | Resource::ChangeLimits
            | Resource::Reload
            | Resource::WithdrawScope
            | Resource::ChangeLog => return self.take_order(asked),
        };
        self.steering.respond(asked.key, &response, self.now, wall);
    }

    /// Sends the status on the streams that are due: the same to all, made at most once per second. Returns whether
    /// there were any.
    fn send_events(&mut self) -> bool {
        let network = &self.network;
        let due = self
            .steering
            .due_streams(|key| network.unsent_to_operator(key), self.now);
        if due.is_empty() {
            return false;
        }
        let event = event_of(&self.visit_all(&Call::status()));
        for key in due {
            self.steering.send_event(key, &event, self.now);
        }
        true
    }

    /// The metrics, made at most once per second in each format.
    fn recent_metrics(&mut self, format: MetricsFormat) -> Response {
        if let Some(recent) = self.steering.recent_metrics(format, self.now) {
            return recent.clone();
        }
        let metrics = self.metrics(format).into_bytes();
        let response = Response::of(200, format.content_type(), metrics);
        (self.steering).keep_metrics(format, response.clone(), self.now);
        response
    }

    /// The answer to a call that visits all scopes, which is the same for a while. Some different ones are made in
    /// each second.
    fn answer_from_all(&mut self, call: &Call) -> Response {
        if let Some(recent) = self.steering.recent(call, self.now) {
            return recent.clone();
        }
        if !self.steering.may_visit_all(self.now) {
            return too_many_visits();
        }
        let response = self.visit_all(call);
        if response.status >= 400 {
            self.steering.return_visit();
        }
        response
    }

    /// Begins to answer with a list of scopes under which something was sent.
    fn begin_list(&mut self, asked: &Asked) {
        let recent = self.steering.recent(&asked.call, self.now).cloned();
        let response = match recent {
            Some(recent) => recent,
            None if !self.steering.may_visit_all(self.now) => too_many_visits(),
            None => match self.scopes_by(&asked.call) {
                Ok(list) => return self.begin_search(asked, Subject::Found(list)),
                Err(refusal) => {
                    self.steering.return_visit();
                    refusal
                }
            },
        };
        self.refuse(asked, &response);
    }

    /// The same, without that bound.
    fn visit_all(&mut self, call: &Call) -> Response {
        if let Some(recent) = self.steering.recent(call, self.now) {
            return recent.clone();
        }
        let response = match call.resource {
            Resource::Status => self.status(),
            Resource::History => self.history(),
            _ => self.decisions(call),
        };
        if response.status < 400 {
            self.steering.keep(call.clone(), response.clone(), self.now);
        }
        response
    }

    /// Answers an order once it and its effects are durable: what it was, and what it has changed.
    pub fn acknowledge_order(&mut self, asked: &Asked, order: &str, facts: Value, reply: Value) {
        let wall = self.network.wall_at(self.now);
        let line = self.order_line(Some(asked.via), order, facts);
        let response = Response::json(200, &reply);
        let epoch = self.epoch_of_order();
        self.steering
            .respond_once_recorded(asked.key, line, epoch, response, self.now, wall);
    }

    /// The line of an order.
    fn order_line(&self, via: Option<Via>, order: &str, mut facts: Value) -> Value {
        let wall = self.network.wall_at(self.now);
        let (uid, from) = match via {
            Some(Via::Unix { uid }) => (Some(uid), None),
            Some(Via::Tcp { from }) => (None, Some(from.to_string())),
            None => (None, None),
        };
        let mut line = json!({"at": wall.to_string(), "uid": uid, "from": from, "order": order});
        if let (Value::Object(line), Value::Object(facts)) = (&mut line, &mut facts) {
            line.append(facts);
        }
        line
    }

    /// Records an order that no connection waits for; `via`: by which it came.
    pub fn record_order_of(&mut self, via: Option<Via>, order: &str, facts: Value) {
        let line = self.order_line(via, order, facts);
        let epoch = self.epoch_of_order();
        self.steering.record(line, epoch);
    }

    /// The epoch that has the effects of an order that was given just now: it is committed at once.
    fn epoch_of_order(&mut self) -> Option<Epoch> {
        // Later there are only orders without effects.
        let commits = self.control.phase().is_fetching();
        // A process that is killed before the commit has recorded them, too.
        self.journal.flush();
        commits.then(|| self.journal.hasten_commit()).flatten()
    }

    /// Refuses a call.
    pub fn refuse(&mut self, asked: &Asked, response: &Response) {
        let wall = self.network.wall_at(self.now);
        self.steering.respond(asked.key, response, self.now, wall);
    }

    /// Called with a finished job of the disk; returns whether it was one of the orders'.
    pub fn on_order_disk(&mut self, done: &DiskDone) -> bool {
        let wall = self.network.wall_at(self.now);
        self.steering.handle_disk(done, self.now, wall)
    }

    /// An epoch is committed: the orders that it has get their lines.
    pub fn on_orders_committed(&mut self, epoch: Epoch) {
        let wall = self.network.wall_at(self.now);
        self.steering.handle_committed(epoch, self.now, wall);
    }

    /// Whether an order is not durable yet.
    pub fn is_recording_orders(&self) -> bool {
        self.steering.is_recording()
    }

    /// Hands replies to the sockets, and closes those that are over.
    pub fn send_to_operators(&mut self) {
        for job in self.steering.poll_jobs() {
            self.network.disk(job);
        }
        if self.steering.is_empty() {
            return;
        }
        let wall = self.network.wall_at(self.now);
        for (key, step) in self.steering.poll_sockets(self.now, wall) {
            match step {
                SocketStep::Send(bytes) => self.network.send_to_operator(key, &bytes),
                SocketStep::Read(on) => self.network.read_operator(key, on),
                SocketStep::Close => self.network.close_operator(key),
            }
        }
    }

    /// Closes the control interface at the end of the crawl. The last event of a stream has the phase `over`.
    pub fn close_operators(&mut self) {
        let network = &self.network;
        let streams = self
            .steering
            .streams_without(|key| network.unsent_to_operator(key));
        if !streams.is_empty() {
            let event = event_of(&self.status());
            for key in streams {
                self.network.send_to_operator(key, &event);
            }
            self.network.submit();
        }
        let connections = self.steering.drain();
        self.network.close_operators(connections.into_iter());
    }
}

/// A reply in JSON, which has no line feed but its last, as an event of a stream.
fn event_of(response: &Response) -> Vec<u8> {
    [b"data: ", response.body.as_slice(), b"\n"].concat()
}

fn too_many_visits() -> Response {
    let response = Response::error(503, "too many different questions in one second");
    response.with("Retry-After", "1")
}

/// Whether a call visits all scopes, all requests in flight or all samples, so that it is the last one of its turn.
fn visits_all(resource: Resource) -> bool {
    matches!(
        resource,
        Resource::Status
            | Resource::History
            | Resource::Metrics
            | Resource::Scopes
            | Resource::Url
            | Resource::Decisions
            | Resource::ChangeScope
            | Resource::MergeScope
            | Resource::ForgetScope
            | Resource::CancelScope
            | Resource::WithdrawScope
            | Resource::Reload
            | Resource::Exclude
            | Resource::Include
    )
}
