//! Accepted connections that have no token yet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::io::sockets::listening::Place;
use crate::io::sockets::socket::Socket;

/// An accepted connection that has no token yet.
///
/// [`Io::accept`](crate::io::Io::accept) of the back end that reported it assigns one. Dropping it closes
/// the connection.
#[derive(Debug)]
#[must_use = "an accepted connection is closed when this is dropped"]
pub struct Accepted(Box<Handle>);

impl Accepted {
    /// Boxed, for few connections are accepted and events are many.
    pub(in crate::io) fn new(handle: Handle) -> Self {
        Accepted(Box::new(handle))
    }

    /// The ticket of a connection that a simulation accepted.
    pub(in crate::io) fn into_ticket(self) -> Ticket {
        match *self.0 {
            Handle::Simulated(ticket) => ticket,
            Handle::Kernel(_) => {
                panic!("a connection is adopted by the back end that accepted it")
            }
        }
    }

    /// The socket of a connection that a kernel's back end accepted.
    pub(in crate::io) fn into_socket(self) -> Socket {
        match *self.0 {
            Handle::Kernel(socket) => socket,
            Handle::Simulated(_) => {
                panic!("a connection is adopted by the back end that accepted it")
            }
        }
    }
}

/// An accepted connection, by kind of back end.
#[derive(Debug)]
pub(in crate::io) enum Handle {
    Kernel(Socket),
    Simulated(Ticket),
}

/// A simulated connection that was accepted and has no token.
#[derive(Debug)]
pub(in crate::io) struct Ticket {
    id: u64,
    /// `None` once the connection has a token.
    place: Option<Place>,
    dropped: Dropped,
}

/// The connections of tickets that were dropped.
#[derive(Clone, Debug, Default)]
pub(in crate::io) struct Dropped(Arc<Mutex<Vec<u64>>>);

impl Ticket {
    pub(in crate::io) fn new(id: u64, place: Place, dropped: &Dropped) -> Self {
        Ticket {
            id,
            place: Some(place),
            dropped: dropped.clone(),
        }
    }

    /// The connection and its place.
    pub(in crate::io) fn redeem(mut self) -> (u64, Place) {
        let place = self.place.take().expect("only this takes it");
        (self.id, place)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.place.is_some() {
            self.dropped.lock().push(self.id);
        }
    }
}

impl Dropped {
    /// Those since the last call.
    pub(in crate::io) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
