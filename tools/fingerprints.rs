//! Measures how many keys of URLs a second the seen set checks, with its runs on disk.
//!
//! `cargo run --release --example fingerprints [-- --offers N --before N --known PERCENT --memory MIB
//! --waiting N --folder DIR]`
//!
//! First `--before` new keys are added. Then so many `--offers` are timed, of which `--known` percent are
//! drawn at random from all keys so far, and the others are new. `--memory` is `SEEN_MEMORY`; at most
//! `--waiting` offers wait for their answers. Each answer is checked. The runs are written to a new folder
//! in `--folder` and removed at the end.

use std::path::PathBuf;
use std::process::exit;
use std::time::{Duration, Instant};

use argiope::crawl::fingerprints::Fingerprints;

#[path = "../src/cli/allocator.rs"]
mod allocator;

struct Plan {
    offers: u64,
    before: u64,
    known: u64,
    memory: u64,
    waiting: u64,
    folder: PathBuf,
}

fn main() {
    allocator::prepare();
    let plan = plan();
    let folder = tempfile::tempdir_in(&plan.folder).expect("a folder");
    let set = Fingerprints::new(folder.path().to_owned(), plan.memory << 20);
    let mut trial = Trial {
        set: set.expect("a seen set"),
        is_seen: Bits::default(),
        answered_until: 0,
        new_offers: 0,
        undecided: 0,
        answers: 0,
        random: 1,
        waiting_max: plan.waiting,
    };
    println!("      offers   offers/s       URLs  resident      peak  runs   on disk");
    if plan.before > 0 {
        trial.offer(plan.before, 0);
    }
    let took = trial.offer(plan.offers, plan.known);
    assert_eq!(trial.is_seen.count, trial.new_offers, "each new key is new");
    let urls = trial.new_offers as f64;
    let (runs, keys, bytes) = trial.set.on_disk();
    let (longest, of_keys) = trial.set.longest_batch();
    println!(
        "{} offers, {} % known, in {:.1} s: {:.0} a second; all answers are right",
        plan.offers,
        plan.known,
        took.as_secs_f64(),
        plan.offers as f64 / took.as_secs_f64(),
    );
    println!(
        "{} URLs, {keys} of them in {runs} runs; peak memory {} MB, {:.1} bytes a URL (2 bits of it are this \
         tool's); {:.2} bytes on disk for each URL there",
        trial.new_offers,
        field("VmHWM") / 1_000_000,
        field("VmHWM") as f64 / urls,
        bytes as f64 / keys.max(1) as f64,
    );
    println!(
        "the longest batch took {:.2} s, with {of_keys} keys",
        longest.as_secs_f64()
    );
}

struct Trial {
    set: Fingerprints,
    /// By the number of a key.
    is_seen: Bits,
    /// All keys with lower numbers were answered.
    answered_until: u64,
    new_offers: u64,
    undecided: u64,
    answers: u64,
    random: u64,
    waiting_max: u64,
}

impl Trial {
    /// Offers so many keys, and waits for all answers.
    fn offer(&mut self, offers: u64, known: u64) -> Duration {
        let began = Instant::now();
        let (mut offered, mut idle_turns, mut last) = (0, 0, (0, began));
        let line_every = (offers / LINES).max(1);
        while offered < offers || self.undecided > 0 {
            let room = self.waiting_max - self.undecided;
            let count = (offers - offered).min(room).min(PER_TURN);
            for _ in 0..count {
                self.offer_one(known);
            }
            offered += count;
            let is_busy = self.set.turn(count == 0).expect("the disk works");
            while let Some((key, is_new)) = self.set.poll_answer() {
                self.undecided -= 1;
                self.handle_answer(number_of(key), is_new);
            }
            // What has just arrived may take some turns.
            idle_turns = if is_busy || count > 0 {
                0
            } else {
                idle_turns + 1
            };
            assert!(idle_turns < 100, "{} answers are missing", self.undecided);
            allocator::give_back_soon();
            if offered - last.0 >= line_every {
                self.print(
                    offered,
                    (offered - last.0) as f64 / last.1.elapsed().as_secs_f64(),
                );
                last = (offered, Instant::now());
            }
        }
        began.elapsed()
    }

    fn offer_one(&mut self, known: u64) {
        let number = match self.draw() % 100 < known && self.answered_until > 0 {
            true => self.draw() % self.answered_until,
            false => {
                self.new_offers += 1;
                self.new_offers - 1
            }
        };
        match self.set.offer(key_of(number)) {
            Some(is_new) => self.handle_answer(number, is_new),
            None => self.undecided += 1,
        }
    }

    fn handle_answer(&mut self, number: u64, is_new: bool) {
        self.answers += 1;
        assert!(number < self.new_offers, "it was offered");
        assert_ne!(
            self.is_seen.has(number),
            is_new,
            "the answer about key {number}"
        );
        self.is_seen.set(number);
        while self.is_seen.has(self.answered_until) {
            self.answered_until += 1;
        }
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        key_of(self.random)
    }

    fn print(&self, offered: u64, per_second: f64) {
        let (runs, _, bytes) = self.set.on_disk();
        println!(
            "{offered:>12} {per_second:>10.0} {:>10} {:>6} MB {:>6} MB {runs:>5} {:>6} MB",
            self.new_offers,
            field("VmRSS") / 1_000_000,
            field("VmHWM") / 1_000_000,
            bytes / 1_000_000,
        );
    }
}

#[derive(Default)]
struct Bits {
    words: Vec<u64>,
    count: u64,
}

impl Bits {
    fn has(&self, number: u64) -> bool {
        let word = self.words.get(number as usize / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn set(&mut self, number: u64) {
        let index = number as usize / 64;
        if self.words.len() <= index {
            self.words.resize(index + 1, 0);
        }
        self.count += u64::from(!self.has(number));
        self.words[index] |= 1 << (number % 64);
    }
}

/// The key with a number, as evenly distributed as keyed hashes: SplitMix64's, which can be undone.
fn key_of(number: u64) -> u64 {
    let key = number.wrapping_add(1);
    let key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

fn number_of(key: u64) -> u64 {
    let key = (key ^ key >> 31 ^ key >> 62).wrapping_mul(0x3196_42b2_d24d_8ec3);
    let key = (key ^ key >> 27 ^ key >> 54).wrapping_mul(0x96de_1b17_3f11_9089);
    (key ^ key >> 30 ^ key >> 60).wrapping_sub(1)
}

fn plan() -> Plan {
    let mut plan = Plan {
        offers: 20_000_000,
        before: 0,
        known: 80,
        memory: 8,
        waiting: 4_000_000,
        folder: std::env::temp_dir(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        let number = || value.parse().unwrap_or_else(|_| refuse(&word));
        match word.as_str() {
            "--offers" => plan.offers = number(),
            "--before" => plan.before = number(),
            "--known" => plan.known = number(),
            "--memory" => plan.memory = number(),
            "--waiting" => plan.waiting = number(),
            "--folder" => plan.folder = value.clone().into(),
            _ => refuse(&word),
        }
    }
    if plan.offers == 0 || plan.waiting == 0 || plan.known > 100 {
        refuse("0 offers, 0 waiting, or more than 100 % known");
    }
    plan
}

fn refuse(word: &str) -> ! {
    eprintln!(
        "{word}: fingerprints [--offers N] [--before N] [--known PERCENT] [--memory MIB] [--waiting N] \
         [--folder DIR]"
    );
    exit(2);
}

/// A field of /proc/self/status, in bytes.
fn field(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has procfs");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("a size in KiB")
        * 1024
}

/// Offers between two turns.
const PER_TURN: u64 = 1024;

/// Lines of output of each part.
const LINES: u64 = 10;
