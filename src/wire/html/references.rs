//! The references of a page, noted while it is read.

use std::collections::BTreeSet;
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use crate::base::chunked::ChunkedVec;

/// References as they stand in the document, each text once. A page of 10 MiB has megabytes of them: at most
/// [`PART_BYTES`] are moved at once.
#[derive(Debug, Default)]
pub(super) struct References {
    list: ChunkedVec<Reference>,
    /// Their texts, one after the other in parts of about [`PART_BYTES`].
    texts: Vec<String>,
    /// Bytes that these have room for.
    text_bytes: usize,
    /// The prints of these texts. Whoever makes two texts with one print loses a link of his own.
    seen: BTreeSet<u64>,
    /// There were more than are resolved.
    is_cut: bool,
}

/// One reference, and where it stands.
#[derive(Debug)]
pub(super) struct Reference {
    part: usize,
    text: Range<usize>,
    pub element: &'static str,
    pub attribute: &'static str,
    pub nofollow: bool,
}

impl References {
    /// Notes a reference, unless there are `most` already.
    pub fn push(
        &mut self,
        text: String,
        element: &'static str,
        attribute: &'static str,
        nofollow: bool,
        most: usize,
    ) {
        if self.is_cut || !self.seen.insert(xxh3_64(text.as_bytes())) {
            return;
        }
        if self.list.len() == most {
            self.is_cut = true;
            return;
        }
        let (part, text) = self.keep(text);
        self.list.push(Reference {
            part,
            text,
            element,
            attribute,
            nofollow,
        });
    }

    /// Keeps a text; in which part it is, and where there.
    fn keep(&mut self, text: String) -> (usize, Range<usize>) {
        let length = text.len();
        let fits = |part: &String| part.len() + length <= PART_BYTES;
        let start = match self.texts.last_mut().filter(|part| fits(part)) {
            Some(part) => {
                let before = part.capacity();
                let start = part.len();
                if before < start + length {
                    let room = (2 * before).clamp(start + length, PART_BYTES);
                    part.reserve_exact(room - start);
                }
                part.push_str(&text);
                self.text_bytes += part.capacity() - before;
                start
            }
            None => {
                self.text_bytes += text.capacity();
                self.texts.push(text);
                0
            }
        };
        (self.texts.len() - 1, start..start + length)
    }

    /// The reference of a number from 0, and its text.
    pub fn get(&self, number: usize) -> Option<(&Reference, &str)> {
        let reference = self.list.get(number)?;
        Some((
            reference,
            &self.texts[reference.part][reference.text.clone()],
        ))
    }

    /// No more will be noted: forgets which texts there are.
    pub fn complete(&mut self) {
        self.seen = BTreeSet::new();
    }

    /// Whether there were more than may be noted.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Bytes that they take.
    pub fn memory(&self) -> usize {
        self.text_bytes + self.list.len() * size_of::<Reference>() + self.seen.len() * SEEN_BYTES
    }
}

/// The most that a part holds, unless one text alone is longer.
const PART_BYTES: usize = 64 << 10;

/// About what an entry of a set takes.
pub(super) const SEEN_BYTES: usize = 16;
