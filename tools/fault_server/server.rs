//! All origins on one thread, on the test kit's engine.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use argiope::testkit::engine::{Answer, End, Engine, Service};
use argiope::testkit::http::{Reply, Request, Step};
use argiope::testkit::server::listener;
use argiope::testkit::stamp::Clock;
use rustix::time::{ClockId, clock_gettime};

use super::origin::{Entry, Now, World};

/// All origins, and the origin of each listener.
pub struct Origins {
    world: World,
    /// The origin of each listener; `None` for the common one, where the Host header selects it.
    owners: Vec<Option<usize>>,
    started: Duration,
}

/// Listens for all origins on `common`, and for each origin with a port on that, until `stop` is
/// readable.
///
/// # Errors
/// The system refuses a socket.
pub fn engine(world: World, common: SocketAddr, stop: UnixStream) -> io::Result<Engine<Origins>> {
    let ports = world.origins().iter().enumerate();
    let own = ports.filter_map(|(index, origin)| {
        let port = origin.spec.port?;
        Some((SocketAddr::new(common.ip(), port), Some(index)))
    });
    let (mut listeners, mut owners) = (Vec::new(), Vec::new());
    for (address, owner) in [(common, None)].into_iter().chain(own) {
        listeners.push(listener(address)?);
        owners.push(owner);
    }
    let origins = Origins {
        world,
        owners,
        started: Clock::read().now,
    };
    let engine = Engine::new(origins, listeners, None, stop.into())?;
    Ok(engine.with_connections_max(CONNECTIONS_MAX))
}

impl Origins {
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The origin of each listener, by its number.
    pub fn owners(&self) -> &[Option<usize>] {
        &self.owners
    }

    pub fn started(&self) -> Duration {
        self.started
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        Clock::read().now - self.started
    }
}

impl Service for Origins {
    /// `None` for an unknown host.
    type Exchange = Option<Entry>;

    fn answer(&mut self, listener: usize, request: &Request, _: Duration) -> Answer<Option<Entry>> {
        let wall = clock_gettime(ClockId::Realtime);
        let now = Now {
            at: self.now(),
            wall: wall.try_into().unwrap_or_default(),
        };
        let origin = self.owners[listener].or_else(|| self.world.named(request.host_name()));
        let (exchange, steps) = match origin {
            Some(origin) => {
                let (entry, steps) = self.world.answer(origin, request, now);
                (Some(entry), steps)
            }
            None => (None, vec![Step::Send(Reply::new(421).to_bytes())]),
        };
        Answer {
            exchange,
            from: self.started + now.at,
            steps,
            is_last: request.is_last,
        }
    }

    fn ended(&mut self, exchange: Option<Entry>, _: End) {
        if let Some(entry) = exchange {
            let now = self.now();
            self.world.end(entry, now);
        }
    }
}

/// Connections beyond this are closed at once, to stay below the open-file limit.
const CONNECTIONS_MAX: usize = 8192;
