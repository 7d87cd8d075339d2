//! The requests of one lane, the greatest first.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::job::{Extra, Job, Rank};
use super::request::Kind;
use crate::wire::url::CrawlUrl;

/// A priority queue that is small when it is short: of a million lanes most hold one request.
#[derive(Debug, Default)]
pub(super) enum Queue {
    #[default]
    Empty,
    One(Queued),
    /// Boxed, since this is in every lane.
    Many(Box<Many>),
}

/// Requests in their order, as far as they came in it: most do, and then neither their coming nor
/// their going looks at more than one other.
#[derive(Debug, Default)]
pub(super) struct Many {
    /// Each goes before the one behind it.
    run: VecDeque<Queued>,
    /// Those that came when a lesser one was the last of the run.
    others: BinaryHeap<Queued>,
}

/// A request that is queued.
#[derive(Debug)]
pub(super) enum Queued {
    /// A seed that says no more than its URL. Where it leads its lane's origin knows, save for the
    /// target.
    Plain(Plain),
    /// Any other.
    Whole(Box<Job>),
}

/// A page that a seed asks for, without anything else that a [`Job`] could say.
///
/// A crawl may begin with millions of these, most of them the front page of a host of its own: then
/// they take no memory beyond their lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain {
    id: [u8; ID_BYTES],
    /// Of the target; and [`HEARD`].
    length: u8,
    target: [u8; TARGET_MAX],
}

/// Enough to count 280 million million attempts.
const ID_BYTES: usize = 6;
/// What is left of sixteen bytes.
const TARGET_MAX: usize = 8;
/// Beside a length: whoever submitted it waits to hear how it ends.
const HEARD: u8 = 0x80;

impl Queue {
    pub fn push(&mut self, queued: Queued) {
        match std::mem::take(self) {
            Queue::Empty => *self = Queue::One(queued),
            Queue::One(first) => {
                let mut many = Box::<Many>::default();
                many.push(first);
                many.push(queued);
                *self = Queue::Many(many);
            }
            Queue::Many(mut many) => {
                many.push(queued);
                *self = Queue::Many(many);
            }
        }
    }

    pub fn peek(&self) -> Option<&Queued> {
        match self {
            Queue::Empty => None,
            Queue::One(only) => Some(only),
            Queue::Many(many) => many.peek(),
        }
    }

    pub fn pop(&mut self) -> Option<Queued> {
        match std::mem::take(self) {
            Queue::Empty => None,
            Queue::One(only) => Some(only),
            Queue::Many(mut many) => {
                let first = many.pop();
                *self = match many.len() {
                    1 => many.pop().map_or(Queue::Empty, Queue::One),
                    _ => Queue::Many(many),
                };
                first
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Queue::Empty)
    }

    /// Takes out those that `wanted` wants, in no order that means anything.
    pub fn extract(&mut self, wanted: impl Fn(&Queued) -> bool) -> Vec<Queued> {
        // Of a million lanes few have any.
        let has_any = match self {
            Queue::Empty => false,
            Queue::One(only) => wanted(only),
            Queue::Many(many) => many.run.iter().chain(&many.others).any(&wanted),
        };
        if !has_any {
            return Vec::new();
        }
        let mut all = Vec::new();
        while let Some(queued) = self.pop() {
            all.push(queued);
        }
        let (taken, kept) = all.into_iter().partition(wanted);
        let kept: Vec<Queued> = kept;
        kept.into_iter().for_each(|queued| self.push(queued));
        taken
    }
}

impl Many {
    fn push(&mut self, queued: Queued) {
        if self.run.back().is_none_or(|last| queued < *last) {
            self.run.push_back(queued);
        } else {
            self.others.push(queued);
        }
    }

    fn peek(&self) -> Option<&Queued> {
        self.run.front().max(self.others.peek())
    }

    fn pop(&mut self) -> Option<Queued> {
        if self.run.front() > self.others.peek() {
            self.run.pop_front()
        } else {
            self.others.pop()
        }
    }

    fn len(&self) -> usize {
        self.run.len() + self.others.len()
    }
}

impl Queued {
    /// A request as it is queued.
    pub fn of(job: Job) -> Self {
        match Plain::of(&job) {
            Some(plain) => Queued::Plain(plain),
            None => Queued::Whole(Box::new(job)),
        }
    }

    /// The request, whose lane is of this origin: whether it is https, its host and its port.
    pub fn into_job(self, (is_https, host, port): (bool, &str, u16)) -> Job {
        match self {
            Queued::Plain(plain) => {
                let url = CrawlUrl::of_parts(is_https, host, port, plain.target());
                Job {
                    heard: plain.is_heard(),
                    ..Job::seed(plain.id(), url)
                }
            }
            Queued::Whole(job) => *job,
        }
    }

    pub fn id(&self) -> u64 {
        match self {
            Queued::Plain(plain) => plain.id(),
            Queued::Whole(job) => job.id,
        }
    }

    /// The attempt that it descends from; see [`Job::root`].
    pub fn root(&self) -> u64 {
        match self {
            Queued::Plain(plain) => plain.id(),
            Queued::Whole(job) => job.root(),
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Queued::Plain(_) => Kind::Page,
            Queued::Whole(job) => job.kind,
        }
    }

    pub fn depth(&self) -> u32 {
        match self {
            Queued::Plain(_) => 0,
            Queued::Whole(job) => job.depth,
        }
    }

    /// Path and query of its URL.
    pub fn target(&self) -> &str {
        match self {
            Queued::Plain(plain) => plain.target(),
            Queued::Whole(job) => job.url.request_target(),
        }
    }

    pub fn extra(&self) -> Option<&Extra> {
        match self {
            Queued::Plain(_) => None,
            Queued::Whole(job) => job.extra.as_deref(),
        }
    }

    fn rank(&self) -> Rank {
        match self {
            Queued::Plain(plain) => (0, 0, 0, std::cmp::Reverse(plain.id())),
            Queued::Whole(job) => job.rank(),
        }
    }
}

impl Plain {
    fn of(job: &Job) -> Option<Self> {
        let says_more = job.parent != 0
            || job.via.is_some()
            || job.kind != Kind::Page
            || !job.seed
            || job.fresh
            || job.redirects != 0
            || job.attempt != 1
            || job.depth != 0
            || job.priority != 0
            || job.share != 0.0
            || job.extra.is_some();
        let [low @ .., 0, 0] = job.id.to_le_bytes() else {
            return None;
        };
        let text = job.url.request_target().as_bytes();
        let mut target = [0; TARGET_MAX];
        target.get_mut(..text.len())?.copy_from_slice(text);
        (!says_more).then_some(Plain {
            id: low,
            length: text.len() as u8 | if job.heard { HEARD } else { 0 },
            target,
        })
    }

    fn id(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..ID_BYTES].copy_from_slice(&self.id);
        u64::from_le_bytes(bytes)
    }

    fn target(&self) -> &str {
        std::str::from_utf8(&self.target[..usize::from(self.length & !HEARD)])
            .expect("it was text when it came")
    }

    fn is_heard(&self) -> bool {
        self.length & HEARD != 0
    }
}

/// The greater of two goes first.
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Queued {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    fn job(id: u64, priority: i32) -> Job {
        let url = CrawlUrl::parse("http://a.test/").expect("a URL");
        Job {
            priority,
            ..Job::seed(id, url)
        }
    }

    #[test]
    fn it_is_no_larger_than_what_a_million_lanes_can_afford() {
        assert_eq!(size_of::<Queue>(), 16);
    }

    #[test]
    fn the_greatest_comes_first_however_they_went_in() {
        let mut rng = Rng::from_seed(1);
        let mut queue = Queue::default();
        let mut model = Vec::new();
        for id in 1..2000 {
            if rng.below(5) < 3 {
                // Those without a priority are queued without a job.
                let priority = rng.below(4) as i32;
                queue.push(Queued::of(job(id, priority)));
                model.push((priority, std::cmp::Reverse(id)));
                model.sort_unstable();
            } else {
                let popped = queue.pop().map(|queued| queued.id());
                assert_eq!(popped, model.pop().map(|(_, id)| id.0));
            }
            let first = queue.peek().map(Queued::id);
            assert_eq!(first, model.last().map(|(_, id)| id.0));
            assert_eq!(queue.is_empty(), model.is_empty());
        }
    }

    #[test]
    fn a_seed_that_says_no_more_than_its_url_needs_no_job_and_comes_back_as_it_was() {
        let check = |job: Job, is_plain: bool| {
            let url = job.url.clone();
            let told = format!("{job:?}");
            let queued = Queued::of(job);
            assert_eq!(matches!(queued, Queued::Plain(_)), is_plain, "{told}");
            assert_eq!(queued.target(), url.request_target());
            let again = queued.into_job((url.is_https(), url.host_str(), url.port()));
            assert_eq!(format!("{again:?}"), told);
        };
        let seed = |url: &str| Job::seed(7, CrawlUrl::parse(url).expect(url));
        check(seed("http://a.test/"), true);
        check(seed("https://[::1]:8080/?a=b"), true);
        check(seed("http://a.test/1234567"), true);
        check(seed("http://a.test/12345678"), false);
        let plain = || seed("http://a.test/");
        check(
            Job {
                heard: true,
                ..plain()
            },
            true,
        );
        check(
            Job {
                id: (1 << 48) - 1,
                ..plain()
            },
            true,
        );
        check(
            Job {
                id: 1 << 48,
                ..plain()
            },
            false,
        );
        check(
            Job {
                parent: 3,
                ..plain()
            },
            false,
        );
        check(
            Job {
                via: Some("http://b.test/".into()),
                ..plain()
            },
            false,
        );
        check(
            Job {
                kind: Kind::Sitemap,
                ..plain()
            },
            false,
        );
        check(
            Job {
                seed: false,
                ..plain()
            },
            false,
        );
        check(
            Job {
                fresh: true,
                ..plain()
            },
            false,
        );
        check(
            Job {
                redirects: 1,
                ..plain()
            },
            false,
        );
        check(
            Job {
                attempt: 2,
                ..plain()
            },
            false,
        );
        check(
            Job {
                depth: 1,
                ..plain()
            },
            false,
        );
        check(
            Job {
                priority: -1,
                ..plain()
            },
            false,
        );
        check(
            Job {
                share: 0.5,
                ..plain()
            },
            false,
        );
        check(
            Job {
                extra: Some(Box::default()),
                ..plain()
            },
            false,
        );
    }
}
