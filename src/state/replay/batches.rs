//! Keys, in records of some thousand each.

use crate::state::record::Record;

/// Records of some thousand keys each, made when they are needed.
pub fn in_batches<K: Send + 'static>(
    mut keys: impl Iterator<Item = K> + Send + 'static,
    record: fn(Vec<K>) -> Record,
) -> impl Iterator<Item = Record> {
    std::iter::from_fn(move || {
        let batch: Vec<K> = keys.by_ref().take(KEYS_PER_RECORD).collect();
        (!batch.is_empty()).then(|| record(batch))
    })
}

/// Keys, in records of some thousand.
pub fn in_records<K: Clone + Send + 'static>(
    keys: Vec<K>,
    record: fn(Vec<K>) -> Record,
) -> impl Iterator<Item = Record> {
    let starts = (0..keys.len()).step_by(KEYS_PER_RECORD);
    starts.map(move |start| {
        let end = keys.len().min(start + KEYS_PER_RECORD);
        record(keys[start..end].to_vec())
    })
}

/// Keys in one record.
const KEYS_PER_RECORD: usize = 4096;
