//! What is done with a head: cookies are kept, and the sink says what it wants of the body.

use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::flights::Flights;
use crate::fetch::body_mode::BodyMode;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::request::PageKind;
use crate::io::Io;
use crate::sink::Sink;
use crate::sink::reply::{Flow, Held, Reply};

impl<I: Io> Core<I> {
    /// Keeps the cookies of a reply whose head has just come.
    #[cfg(feature = "cookies")]
    pub fn keep_cookies(&mut self, key: Key, socket: Key) {
        let Some(flight) = self.flights.get(key) else {
            return;
        };
        let http = self.network.http_of(socket);
        let exchange = http.and_then(|http| http.connection.exchange());
        if let Some(head) = exchange.and_then(|exchange| exchange.head()) {
            let wall = self.network.io().wall_at_start().at(self.now);
            self.requests
                .handle_headers(&flight.job, &head.headers, wall, self.now);
        }
    }

    /// Asks the sink what it wants of the body whose head has just come.
    pub fn ask_for_body(&mut self, key: Key, socket: Key) {
        let Some(flight) = self.flights.get(key) else {
            return;
        };
        if flight.job.kind != PageKind::Page || !self.workload.streams_bodies() {
            return;
        }
        let job = &flight.job;
        let (id, tag) = (job.id, job.tag());
        let connection = &self.network.http(socket).connection;
        let exchange = connection.exchange().expect("a head has its exchange");
        let head = exchange.head().expect("the head just came");
        let body_mode = self.output.sink().on_head(&Reply {
            id,
            tag,
            url: job.url.as_str(),
            attempt: u32::from(job.attempt),
            status: head.status,
            headers: &head.headers,
            remote: connection.remote(),
            tls: connection.tls(),
            certificates: connection.certificates(),
            timings: exchange.timings(),
            held: Held {
                attempt: id,
                socket,
            },
            resumed: self.network.resume_fn(),
            root: job.root(),
            depth: job.depth,
            route: job.route(),
            leads: self.control.leads(),
        });
        self.network.set_body_mode(socket, body_mode);
        if body_mode == BodyMode::Cancel {
            let failure = Failure::new(
                FailureKind::Cancelled,
                "by_sink",
                "the sink wanted no more of it than its head",
            );
            if let Some(news) = self.network.abort(socket, failure, self.now) {
                self.on_news(socket, news);
            }
        }
    }
}

/// Gives the sink a piece of the body that an attempt brings.
pub fn give_to<'a>(
    sink: &'a mut dyn Sink,
    flights: &'a Flights,
) -> impl FnOnce(Key, &[u8]) -> Flow {
    move |key, piece| {
        let flight = flights.get(key).expect("a reply is somebody's");
        sink.on_body(flight.job.id, piece)
    }
}
