//! The pacing wheel against the standard library's heap: pop the earliest entry, arm it again.
//!
//! Once alone, and once with an access to each entry's scope record, in more memory than a cache holds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::base::time::Instant;
use argiope::base::wheel::PacingWheel;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_main};

/// Each entry is due again after 5 to 15 s, like a paced scope.
fn delay(rng: &mut Rng) -> Duration {
    Duration::from_nanos(5_000_000_000 + rng.below(10_000_000_000))
}

/// As large as a scope's state in the throttle, which is read and written when it is due.
#[derive(Clone)]
#[repr(align(64))]
struct Record {
    wake_at: Instant,
    last_sent: Instant,
    _others: [u64; 6],
}

/// A wheel with many waiting scopes.
struct Bench {
    wheel: PacingWheel,
    records: Vec<Record>,
    rng: Rng,
    due: Vec<(u32, Instant)>,
}

impl Bench {
    fn new(count: u32) -> Self {
        let mut rng = Rng::from_seed(1);
        let mut wheel = PacingWheel::new(Instant::START);
        let records = (0..count).map(|id| {
            let at = Instant::START + delay(&mut rng);
            wheel.insert(at, id);
            Record {
                wake_at: at,
                last_sent: Instant::START,
                _others: [0; 6],
            }
        });
        let records = records.collect();
        Bench {
            wheel,
            records,
            rng,
            due: Vec::new(),
        }
    }

    /// Takes what is due in one turn, up to a budget.
    fn expire(&mut self, budget: usize) {
        let now = self.wheel.next().expect("every entry is armed again");
        self.wheel.expire(now + TURN, budget, &mut self.due);
    }

    /// Arms the due entries again; returns their number.
    fn arm(&mut self) -> u64 {
        let count = self.due.len() as u64;
        for (id, at) in self.due.drain(..) {
            self.wheel.insert(at + delay(&mut self.rng), id);
        }
        count
    }

    /// Arms the due entries again and updates their records, as the throttle does.
    fn arm_with_records(&mut self) -> u64 {
        let (count, records) = (self.due.len() as u64, &mut self.records);
        // None of these loads waits for another, so the memory serves several at once.
        self.due
            .retain(|(id, at)| records[*id as usize].wake_at == *at);
        for (id, at) in self.due.drain(..) {
            let record = &mut records[id as usize];
            record.last_sent = at;
            record.wake_at = at + delay(&mut self.rng);
            self.wheel.insert(record.wake_at, id);
        }
        count
    }
}

fn pop_and_arm(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pop and arm again");
    group.sample_size(10);
    group.throughput(Throughput::Elements(1));
    for count in [1_000_000u32, 10_000_000] {
        let mut bench = Bench::new(count);
        // With the records first: the other variant does not update them.
        for (name, arm) in [
            (
                "wheel with its scope record",
                Bench::arm_with_records as fn(&mut Bench) -> u64,
            ),
            ("wheel", Bench::arm),
        ] {
            group.bench_function(BenchmarkId::new(name, count), |bencher| {
                bencher.iter_custom(|iterations| {
                    let began = std::time::Instant::now();
                    let mut done = 0;
                    while done < iterations {
                        bench.expire((iterations - done).min(256) as usize);
                        done += arm(&mut bench);
                    }
                    began.elapsed()
                });
            });
        }
        // Processor time, to exclude other threads.
        let mut worst = Duration::ZERO;
        for _ in 0..200_000 {
            let began = thread_time();
            bench.expire(256);
            worst = worst.max(thread_time() - began);
            bench.arm();
        }
        println!(
            "{count} entries: {:.2} bytes each, worst call {worst:?}",
            bench.wheel.memory() as f64 / bench.wheel.len() as f64
        );
        drop(bench);

        let mut rng = Rng::from_seed(1);
        let mut heap: BinaryHeap<Reverse<(Instant, u32)>> = (0..count)
            .map(|id| Reverse((Instant::START + delay(&mut rng), id)))
            .collect();
        group.bench_function(BenchmarkId::new("heap", count), |bencher| {
            bencher.iter(|| {
                let Reverse((at, id)) = heap.pop().expect("every entry is armed again");
                heap.push(Reverse((black_box(at) + delay(&mut rng), id)));
            });
        });
        println!(
            "{count} entries: {} bytes each in a heap",
            size_of::<(Instant, u32)>()
        );
    }
    group.finish();
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Length of a turn of the caller.
const TURN: Duration = Duration::from_micros(50);

mod group {
    criterion::criterion_group!(benches, super::pop_and_arm);
}
criterion_main!(group::benches);
