//! The references of a page, recorded while it is read.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::ops::Range;

use crate::base::chunked::ChunkedVec;
use crate::base::secret;
use crate::wire::url::LENGTH_MAX;

/// References as written in the document, up to their fragments, each text once. A page of 10 MiB can
/// have megabytes of them: growing moves at most [`PART_BYTES`] at a time.
#[derive(Debug, Default)]
pub(super) struct References {
    list: ChunkedVec<Reference>,
    /// Their texts, concatenated in parts of about [`PART_BYTES`].
    texts: Vec<String>,
    /// Capacity of these texts in bytes.
    text_bytes: usize,
    /// Hashes of these texts, under the secret of the process.
    seen: BTreeSet<u64>,
    /// There were more than the maximum.
    is_cut: bool,
}

/// One reference, and where it was found.
#[derive(Debug)]
pub(super) struct Reference {
    part: usize,
    text: Range<usize>,
    pub element: &'static str,
    pub attribute: &'static str,
    pub nofollow: bool,
}

/// The hash of a reference or of a URL, among those of one page: a fast one, under a secret that
/// authors do not know.
pub(super) fn hash(text: &str) -> u64 {
    secret::of_process().hash_one(text)
}

impl References {
    /// Records a reference without its fragment, which a URL to fetch lacks, unless there are `most` already.
    pub fn push(
        &mut self,
        text: &str,
        element: &'static str,
        attribute: &'static str,
        nofollow: bool,
        most: usize,
    ) {
        let text = match text.split_once('#') {
            // One that is too long stays so; spaces before the fragment are not at the end.
            Some((rest, _)) if text.len() <= LENGTH_MAX && !rest.ends_with(|c| c <= ' ') => rest,
            _ => text,
        };
        if self.is_cut || !self.seen.insert(hash(text)) {
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

    /// Stores a text; returns its part and its range there.
    fn keep(&mut self, text: &str) -> (usize, Range<usize>) {
        let length = text.len();
        let fits = |part: &String| part.len() + length <= PART_BYTES;
        if !self.texts.last().is_some_and(fits) {
            self.texts.push(String::new());
        }
        let number = self.texts.len() - 1;
        let part = &mut self.texts[number];
        let (before, start) = (part.capacity(), part.len());
        let end = start + length;
        if before < end {
            let room = (2 * before).clamp(PART_BYTES_MIN, PART_BYTES).max(end);
            part.reserve_exact(room - start);
        }
        part.push_str(text);
        self.text_bytes += part.capacity() - before;
        (number, start..end)
    }

    /// The reference with this index, and its text.
    pub fn get(&self, number: usize) -> Option<(&Reference, &str)> {
        let reference = self.list.get(number)?;
        Some((
            reference,
            &self.texts[reference.part][reference.text.clone()],
        ))
    }

    /// Frees the set of hashes, because no more references will be recorded.
    pub fn complete(&mut self) {
        self.seen = BTreeSet::new();
    }

    /// Returns whether there were more references than the maximum.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Bytes of memory used.
    pub fn memory(&self) -> usize {
        self.text_bytes + self.list.len() * size_of::<Reference>() + self.seen.len() * SEEN_BYTES
    }
}

/// The least size of a part: most pages have as many bytes of references.
const PART_BYTES_MIN: usize = 512;

/// Maximum size of a part, unless a single text is longer.
const PART_BYTES: usize = 64 << 10;

/// Approximate memory per entry of a set.
pub(super) const SEEN_BYTES: usize = 16;
