//! Buffers of finished attempts, reused by new ones: a usual page allocates nothing.

use std::mem;

use crate::fetch::exchange::{Buffers, Exchange};
use crate::sink::page::Page;

/// Buffers of finished attempts.
#[derive(Debug, Default)]
pub struct Spare {
    #[expect(
        clippy::vec_box,
        reason = "an exchange stays where it lies, here and in its connection"
    )]
    exchanges: Vec<Box<Exchange>>,
    buffers: Vec<Buffers>,
    page: Option<Box<Page>>,
    /// A text to be overwritten with a page's Content-Type.
    content_type: String,
}

/// Most exchanges kept: as many as end and begin in one turn. More would only hold memory that a burst
/// once needed.
const EXCHANGES_MAX: usize = 256;

/// Most buffers kept without an exchange: as many pages as helper threads usually work on.
const BUFFERS_MAX: usize = 32;

impl Spare {
    /// An exchange to be reused.
    pub fn take_exchange(&mut self) -> Box<Exchange> {
        self.exchanges.pop().unwrap_or_default()
    }

    /// Keeps a finished exchange and the buffers of its outcome. Without them, its page is not concluded yet,
    /// and it gets those of an earlier one.
    pub fn put_exchange(&mut self, mut exchange: Box<Exchange>, buffers: Option<Buffers>) {
        if self.exchanges.len() < EXCHANGES_MAX {
            let buffers = buffers.or_else(|| self.buffers.pop());
            exchange.refill(buffers.unwrap_or_default());
            self.exchanges.push(exchange);
        }
    }

    /// Keeps the buffers of a page whose exchange was kept without them.
    pub fn put_buffers(&mut self, buffers: Buffers) {
        if self.buffers.len() < BUFFERS_MAX {
            self.buffers.push(buffers);
        }
    }

    /// A text to be overwritten with a page's Content-Type.
    pub fn take_content_type(&mut self) -> String {
        mem::take(&mut self.content_type)
    }

    /// A page to be overwritten.
    pub fn take_page(&mut self) -> Box<Page> {
        self.page.take().unwrap_or_default()
    }

    /// Keeps a page that the sink has seen; returns the buffers of its bytes from the wire.
    pub fn put_page(&mut self, mut page: Box<Page>) -> Buffers {
        if let Some(text) = page.content_type.take() {
            self.content_type = text;
        }
        let buffers = Buffers::of(
            mem::take(&mut page.request_bytes),
            mem::take(&mut page.response_bytes),
            mem::take(&mut page.body),
            mem::take(&mut page.headers),
        );
        self.page = Some(page);
        buffers
    }
}
