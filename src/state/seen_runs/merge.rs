//! Merges runs of the seen set: which ones, and their keys in order.
//!
//! Runs of about the same size are merged four at a time, so that a key is written once for each factor of
//! four, and there are at most three runs of each size.

/// Keys of several runs, ascending, each once. A run is given in pieces.
#[derive(Debug)]
pub struct Merge {
    inputs: Vec<Input>,
}

#[derive(Debug, Default)]
struct Input {
    keys: Vec<u64>,
    /// Number of keys that were taken.
    taken: usize,
    is_over: bool,
}

impl Merge {
    /// Of so many runs.
    pub fn new(runs: usize) -> Self {
        Merge {
            inputs: (0..runs).map(|_| Input::default()).collect(),
        }
    }

    /// Adds the next keys of a run, all of whose keys so far were taken.
    pub fn push(&mut self, run: usize, keys: Vec<u64>) {
        let input = &mut self.inputs[run];
        debug_assert!(input.is_empty() && !input.is_over);
        (input.keys, input.taken) = (keys, 0);
    }

    /// A run has no more keys.
    pub fn end(&mut self, run: usize) {
        self.inputs[run].is_over = true;
    }

    /// The runs whose next keys are needed.
    pub fn wanted(&self) -> impl Iterator<Item = usize> {
        let inputs = self.inputs.iter().enumerate();
        inputs
            .filter(|(_, input)| input.is_empty() && !input.is_over)
            .map(|(run, _)| run)
    }

    /// Whether all keys were taken.
    pub fn is_over(&self) -> bool {
        self.inputs
            .iter()
            .all(|input| input.is_empty() && input.is_over)
    }

    /// Takes keys: at most `max`, until keys of a run are needed.
    pub fn take(&mut self, max: usize) -> Vec<u64> {
        let mut out = Vec::new();
        if self.wanted().next().is_some() {
            return out;
        }
        while out.len() < max {
            let least = self.inputs.iter().filter_map(Input::first).min();
            let Some(least) = least else {
                break;
            };
            out.push(least);
            let mut is_needed = false;
            for input in &mut self.inputs {
                if input.first() == Some(least) {
                    input.taken += 1;
                    is_needed |= input.is_empty() && !input.is_over;
                }
            }
            if is_needed {
                break;
            }
        }
        out
    }
}

impl Input {
    fn first(&self) -> Option<u64> {
        self.keys.get(self.taken).copied()
    }

    fn is_empty(&self) -> bool {
        self.taken == self.keys.len()
    }
}

/// The runs to be merged next, by the numbers of keys of all runs: those of the smallest size of which there
/// are enough.
pub fn to_merge(keys: &[u64]) -> Option<Vec<usize>> {
    let size = |keys: u64| keys.max(1).ilog(FAN_IN as u64);
    let mut sizes: Vec<u32> = keys.iter().map(|keys| size(*keys)).collect();
    sizes.sort_unstable();
    let enough = sizes
        .windows(FAN_IN)
        .find(|sizes| sizes[0] == sizes[FAN_IN - 1])?;
    let of_size = |(_, keys): &(usize, &u64)| size(**keys) == enough[0];
    let runs = keys.iter().enumerate().filter(of_size);
    Some(runs.map(|(run, _)| run).take(FAN_IN_MAX).collect())
}

/// So many runs of one size are merged.
const FAN_IN: usize = 4;

/// At most so many are merged at once.
const FAN_IN_MAX: usize = 8;

/// While there are so many runs no further one is begun: a merge is due, and under way.
pub const RUNS_MAX: usize = 96;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::rng::Rng;

    #[test]
    fn keys_of_all_runs_come_in_order_and_each_once() {
        for seed in 0..200 {
            let mut rng = Rng::from_seed(seed);
            let runs: Vec<Vec<u64>> = (0..1 + rng.below(5))
                .map(|_| {
                    let keys = (0..rng.below(50)).map(|_| 1 + rng.below(100));
                    keys.collect::<BTreeSet<u64>>().into_iter().collect()
                })
                .collect();
            let mut merge = Merge::new(runs.len());
            let mut given = vec![0; runs.len()];
            let mut merged = Vec::new();
            while !merge.is_over() {
                let wanted: Vec<usize> = merge.wanted().collect();
                for run in wanted {
                    let rest = &runs[run][given[run]..];
                    let count = rest.len().min(1 + rng.below(9) as usize);
                    match count {
                        0 => merge.end(run),
                        _ => merge.push(run, rest[..count].to_vec()),
                    }
                    given[run] += count;
                }
                merged.extend(merge.take(1 + rng.below(20) as usize));
            }
            let expected: BTreeSet<u64> = runs.into_iter().flatten().collect();
            assert!(merged.into_iter().eq(expected), "{seed}");
        }
    }

    #[test]
    fn the_number_of_runs_grows_with_the_logarithm_of_the_keys() {
        let mut rng = Rng::from_seed(1);
        let (mut runs, mut written, mut all) = (Vec::new(), 0, 0);
        for _ in 0..20_000 {
            let keys = 90 + rng.below(20);
            all += keys;
            runs.push(keys);
            while let Some(chosen) = to_merge(&runs) {
                let merged: u64 = chosen.iter().map(|run| runs[*run]).sum();
                for run in chosen.into_iter().rev() {
                    runs.remove(run);
                }
                runs.push(merged);
                written += merged;
            }
            assert!(runs.len() <= 3 * 12, "{}", runs.len());
        }
        assert_eq!(runs.iter().sum::<u64>(), all);
        assert!(written < 9 * all, "{}", written / all);
    }
}
