//! The pacing wheel against the standard library's heap: pop the earliest entry, arm it again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::base::time::Instant;
use argiope::base::wheel::PacingWheel;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_main};

/// Each entry comes round in ten seconds, give or take a half, as a paced scope does.
fn delay(rng: &mut Rng) -> Duration {
    Duration::from_nanos(5_000_000_000 + rng.below(10_000_000_000))
}

fn pop_and_arm(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pop and arm again");
    group.sample_size(10);
    group.throughput(Throughput::Elements(1));
    for count in [1_000_000u32, 10_000_000] {
        let mut rng = Rng::from_seed(1);
        let mut wheel = PacingWheel::new(Instant::START);
        for id in 0..count {
            wheel.insert(Instant::START + delay(&mut rng), id);
        }
        let mut due = Vec::new();
        group.bench_function(BenchmarkId::new("wheel", count), |bencher| {
            bencher.iter_custom(|iterations| {
                let began = std::time::Instant::now();
                let mut left = iterations;
                while left > 0 {
                    let budget = left.min(256) as usize;
                    let now = wheel.next().expect("every entry is armed again");
                    wheel.expire(now + TURN, budget, &mut due);
                    left -= due.len() as u64;
                    for (id, at) in due.drain(..) {
                        wheel.insert(at + delay(&mut rng), id);
                    }
                }
                began.elapsed()
            });
        });
        // The processor's time: what other threads take is not the wheel's.
        let mut worst = Duration::ZERO;
        for _ in 0..200_000 {
            let now = wheel.next().expect("every entry is armed again");
            let began = thread_time();
            wheel.expire(now + TURN, 256, &mut due);
            worst = worst.max(thread_time() - began);
            for (id, at) in due.drain(..) {
                wheel.insert(at + delay(&mut rng), id);
            }
        }
        println!(
            "{count} entries: {:.2} bytes each, worst call {worst:?}",
            wheel.memory() as f64 / wheel.len() as f64
        );
        drop(wheel);

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

/// How long a turn of the caller takes before it comes back.
const TURN: Duration = Duration::from_micros(50);

mod group {
    criterion::criterion_group!(benches, super::pop_and_arm);
}
criterion_main!(group::benches);
