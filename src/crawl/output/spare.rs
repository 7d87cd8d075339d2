//! Memory of attempts that are over, for those to come: a page in the usual run allocates nothing.

use std::mem;

use crate::fetch::exchange::{Buffers, Exchange};
use crate::sink::page::Page;

/// What attempts left behind.
#[derive(Debug, Default)]
pub struct Spare {
    #[expect(
        clippy::vec_box,
        reason = "an exchange stays where it lies, here and in its connection"
    )]
    exchanges: Vec<Box<Exchange>>,
    page: Option<Box<Page>>,
    /// A text to be written over by a page's Content-Type.
    content_type: String,
}

/// Exchanges whose memory is kept: as many as end and begin anew in one turn, and no reason to hold
/// what a crowd of them once needed.
const EXCHANGES_MAX: usize = 256;

impl Spare {
    /// An exchange to be renewed.
    pub fn take_exchange(&mut self) -> Box<Exchange> {
        self.exchanges.pop().unwrap_or_default()
    }

    /// Keeps an exchange that is over, and what its outcome was made of.
    pub fn put_exchange(&mut self, mut exchange: Box<Exchange>, buffers: Buffers) {
        if self.exchanges.len() < EXCHANGES_MAX {
            exchange.refill(buffers);
            self.exchanges.push(exchange);
        }
    }

    /// A text to be written over by a page's Content-Type.
    pub fn take_content_type(&mut self) -> String {
        mem::take(&mut self.content_type)
    }

    /// A page to be written over.
    pub fn take_page(&mut self) -> Box<Page> {
        self.page.take().unwrap_or_default()
    }

    /// Keeps a page that the sink has seen; gives the memory of what came over the wire.
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
