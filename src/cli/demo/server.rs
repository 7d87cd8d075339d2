//! All servers of the demo web as one service: answers requests and records them.

use std::sync::Arc;
use std::time::Duration;

use argiope::testkit::dns;
use argiope::testkit::engine::{self, End, Service};
use argiope::testkit::http::{Answer as _, Reply, Request, Step};

use super::ledger::{Ledger, VisitId};
use super::requests::RequestLog;
use super::site::World;
use super::site::answer::{Answer, Content};

/// The web and its record.
pub struct Server {
    world: Arc<World>,
    ledger: Ledger,
    log: Option<RequestLog>,
}

/// A reply under way.
pub struct Exchange {
    /// `None` for a request to an unknown host.
    visit: Option<VisitId>,
    status: u16,
    content: Content,
}

impl Server {
    /// The servers of a web, without recorded requests. Each request is written to `log` when it arrives.
    pub fn new(world: Arc<World>, log: Option<RequestLog>) -> Server {
        let ledger = Ledger::new(world.sites().len());
        Server { world, ledger, log }
    }

    /// The ledger.
    pub fn into_ledger(self) -> Ledger {
        self.ledger
    }
}

impl Service for Server {
    type Exchange = Exchange;

    fn connected(&mut self) {
        self.ledger.connections += 1;
    }

    fn answer(
        &mut self,
        _listener: usize,
        request: &Request,
        arrived: Duration,
    ) -> engine::Answer<Exchange> {
        let host = request.host_name().to_ascii_lowercase();
        if let Some(log) = &mut self.log {
            log.add(&host, &request.method, request.path());
        }
        if !["GET", "HEAD"].contains(&request.method.as_str()) {
            self.ledger.strange += 1;
            return strange(400, arrived);
        }
        let Some(site) = self.world.find(&host) else {
            self.ledger.strange += 1;
            return strange(404, arrived);
        };
        let (visit, before) = self.ledger.arrive(site, request.path(), arrived);
        let Answer {
            after,
            reply,
            content,
        } = site.answer(&self.world, request, before);
        engine::Answer {
            exchange: Exchange {
                visit: Some(visit),
                status: reply.as_ref().map_or(0, Reply::code),
                content,
            },
            from: arrived,
            steps: match reply {
                Some(reply) if request.is_last => {
                    let reply = reply.field("Connection", "close");
                    reply.after(after).into_steps(request)
                }
                Some(reply) => reply.after(after).into_steps(request),
                None => vec![Step::Wait(after), Step::Reset],
            },
            is_last: request.is_last,
        }
    }

    fn answer_malformed(&mut self, arrived: Duration) -> Option<engine::Answer<Exchange>> {
        self.ledger.strange += 1;
        Some(strange(400, arrived))
    }

    fn ended(&mut self, exchange: Exchange, end: End) {
        let Some(visit) = exchange.visit else {
            return;
        };
        match end {
            End::Gone { at } => self.ledger.leave(visit, at),
            End::Done { bytes, left } => {
                let (content, status) = (exchange.content, exchange.status);
                self.ledger.reply(visit, content, status, bytes, left);
            }
        }
    }

    fn answer_datagram(&mut self, query: &[u8]) -> Option<Vec<u8>> {
        let find = |name: &str| match self.world.find(name) {
            Some(site) => dns::Answer::Address(site.address()),
            None => dns::Answer::Nonexistent,
        };
        let reply = dns::reply(query, find)?;
        self.ledger.queries += 1;
        Some(reply)
    }
}

/// The answer to a request for an unknown host, and to a malformed request.
fn strange(status: u16, arrived: Duration) -> engine::Answer<Exchange> {
    engine::Answer {
        exchange: Exchange {
            visit: None,
            status,
            content: Content::Other,
        },
        from: arrived,
        steps: vec![Step::Send(
            Reply::new(status).field("Connection", "close").to_bytes(),
        )],
        is_last: true,
    }
}
