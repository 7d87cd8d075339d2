//! `Stream` and `Sink` of the crate `futures`: pages and requests of a crawl, for any runtime.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::stream::{FusedStream, Stream};
use futures_sink::Sink;

use crate::crawl::control::error::SubmitError;
use crate::crawl::control::submissions::RoomWait;
use crate::crawl::crawler::threaded::{AsyncCrawl, AsyncHandle};
use crate::frontier::request::Request;
use crate::io::Io;
use crate::sink::page::Page;

/// The results, as [`AsyncCrawl::next`] returns them: it ends as well if the thread of the crawl has panicked, which
/// [`AsyncCrawl::finish`] passes on.
impl<I: Io> Stream for AsyncCrawl<I> {
    type Item = Page;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Page>> {
        self.get_mut().poll_result(context)
    }
}

impl<I: Io> FusedStream for AsyncCrawl<I> {
    fn is_terminated(&self) -> bool {
        self.has_ended
    }
}

/// Takes requests for a crawl, as the `Sink` of the crate `futures`: ready while the crawl has room. Made by
/// [`AsyncHandle::into_sink`], with the feature `futures`.
///
/// A request that the crawl can never send is an error, after which the sink takes further ones; `forward` ends
/// with it. Closing the sink drops its handle.
pub struct RequestSink {
    /// `None` once the sink is closed.
    handle: Option<AsyncHandle>,
    /// A request that was accepted and is not submitted yet.
    accepted: Option<Request>,
    room: RoomWait,
}

impl AsyncHandle {
    /// A `Sink` of requests, with the feature `futures`.
    pub fn into_sink(self) -> RequestSink {
        RequestSink {
            room: self.as_handle().room_wait(),
            handle: Some(self),
            accepted: None,
        }
    }
}

impl RequestSink {
    /// Submits the accepted request.
    fn poll_submit(&mut self, context: &Context<'_>) -> Poll<Result<(), SubmitError>> {
        let Some(handle) = self.handle.as_ref().filter(|_| self.accepted.is_some()) else {
            return Poll::Ready(Ok(()));
        };
        let submitted =
            (handle.as_handle()).poll_submit(&mut self.accepted, &mut self.room, context);
        submitted.map_ok(drop)
    }
}

impl Sink<Request> for RequestSink {
    type Error = SubmitError;

    fn poll_ready(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SubmitError>> {
        self.get_mut().poll_submit(context)
    }

    /// # Panics
    /// Without a `poll_ready` that was ready.
    fn start_send(self: Pin<&mut Self>, request: Request) -> Result<(), SubmitError> {
        let sink = self.get_mut();
        if sink.handle.is_none() {
            return Err(SubmitError::Over(Box::new(request)));
        }
        let before = sink.accepted.replace(request);
        assert!(before.is_none(), "`start_send` comes after `poll_ready`");
        Ok(())
    }

    fn poll_flush(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SubmitError>> {
        self.get_mut().poll_submit(context)
    }

    fn poll_close(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SubmitError>> {
        let sink = self.get_mut();
        let flushed = sink.poll_submit(context);
        if flushed.is_ready() {
            sink.handle = None;
        }
        flushed
    }
}

impl fmt::Debug for RequestSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestSink").finish_non_exhaustive()
    }
}
