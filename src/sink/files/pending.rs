//! The requests of lines that are not written yet, if they contain more than their lines.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::frontier::request::Request;

/// These requests, and those whose lines could not be written.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    /// By line number, ascending.
    waiting: VecDeque<(u64, PendingRequest)>,
    /// Requests whose lines could not be written, by attempt number.
    lost: BTreeMap<u64, Box<Request>>,
    /// Bytes in `waiting`.
    size: usize,
}

/// The request of an attempt.
#[derive(Debug)]
struct PendingRequest {
    id: u64,
    request: Box<Request>,
}

impl PendingRequests {
    /// Adds the request of the attempt `id`, whose line has this number.
    pub fn add(&mut self, number: u64, id: u64, request: Box<Request>) {
        let pending = PendingRequest { id, request };
        self.size += pending.size();
        self.waiting.push_back((number, pending));
    }

    /// Bytes of the requests that wait.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The line with this number cannot be written.
    pub fn mark_lost(&mut self, number: u64) {
        if let Ok(at) = self
            .waiting
            .binary_search_by_key(&number, |(line, _)| *line)
            && let Some((_, pending)) = self.waiting.remove(at)
        {
            self.size -= pending.size();
            self.lost.insert(pending.id, pending.request);
        }
    }

    /// The lines with these numbers were written, or cannot be.
    pub fn end(&mut self, numbers: Range<u64>, is_written: bool) {
        let below = |end| self.waiting.partition_point(|(line, _)| *line < end);
        let places = below(numbers.start)..below(numbers.end);
        for (_, pending) in self.waiting.drain(places) {
            self.size -= pending.size();
            if !is_written {
                self.lost.insert(pending.id, pending.request);
            }
        }
    }

    /// The requests whose lines could not be written, by attempt number, each once.
    pub fn take_lost(&mut self) -> BTreeMap<u64, Box<Request>> {
        std::mem::take(&mut self.lost)
    }
}

impl PendingRequest {
    /// Approximate memory in bytes.
    fn size(&self) -> usize {
        let request = &*self.request;
        let fields = request.headers.iter();
        let fields = fields.map(|(name, value)| name.len() + value.len());
        let meta = request.meta.as_ref().map_or(0, |meta| meta.get().len());
        let scopes = request.scopes.iter().flatten().map(String::len);
        size_of::<(u64, PendingRequest)>()
            + size_of::<Request>()
            + request.url.len()
            + request.body.len()
            + meta
            + fields.sum::<usize>()
            + scopes.sum::<usize>()
    }
}
