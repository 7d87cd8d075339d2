//! Queued requests, in compact representations.

use std::cmp::Ordering;

use super::extra::{Extra, Flags};
use super::job::{Job, Rank};
use super::request::PageKind;
use crate::wire::url::CrawlUrl;

/// A queued request, in the smallest representation that can hold its fields.
#[derive(Debug)]
pub(super) enum Queued {
    /// A seed with a URL and no other field. Only the request target is stored; the lane has the
    /// origin.
    Plain(Plain),
    /// A page linked from a page of the same origin, without other fields. One allocation, where a
    /// [`Job`] has three: most queued requests are links, and by the time they are fetched they are no
    /// longer in the CPU cache.
    Link(Box<Link<LINK_USUAL>>),
    /// A [`Queued::Link`] with longer request targets.
    LongLink(Box<Link<LINK_LONG>>),
    /// Any other.
    Whole(Box<Job>),
}

/// A seed whose [`Job`] has only default values except for number, URL and `awaited`.
///
/// A crawl may start with millions of these, most of them the front page of a different host. They are
/// stored inline in their lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain {
    id: [u8; ID_BYTES],
    /// Length of the target, and the flag [`AWAITED`].
    length: u8,
    target: [u8; TARGET_MAX],
}

/// See [`Queued::Link`].
#[derive(Clone, Debug)]
pub(super) struct Link<const TEXT_MAX: usize> {
    id: [u8; ID_BYTES],
    parent: [u8; ID_BYTES],
    depth: u16,
    /// Lengths of the target and of the parent's target.
    lengths: [u8; 2],
    /// The target, then the parent's target.
    text: [u8; TEXT_MAX],
}

/// Such that a [`Link`] takes 64 bytes, or 128.
const LINK_USUAL: usize = 48;
const LINK_LONG: usize = 112;

/// Enough for 2⁴⁸ attempts, 280 million million.
const ID_BYTES: usize = 6;
/// Such that a [`Plain`] takes 15 bytes, and a [`Queued`] 16.
const TARGET_MAX: usize = 8;
/// Flag in a length: the submitter waits for the result.
const AWAITED: u8 = 0x80;

impl Queued {
    /// The smallest representation of a request.
    pub fn of(job: Job) -> Self {
        if job.seed {
            if let Some(plain) = Plain::of(&job) {
                return Queued::Plain(plain);
            }
        } else if let Some(link) = Link::of(&job) {
            return Queued::Link(Box::new(link));
        } else if let Some(link) = Link::of(&job) {
            return Queued::LongLink(Box::new(link));
        }
        Queued::Whole(Box::new(job))
    }

    /// Memory that it takes in a queue, in bytes: an estimate for a whole job.
    pub fn bytes(&self) -> usize {
        size_of::<Queued>() + self.bytes_behind()
    }

    fn bytes_behind(&self) -> usize {
        match self {
            Queued::Plain(_) => 0,
            Queued::Link(link) => size_of_val(&**link),
            Queued::LongLink(link) => size_of_val(&**link),
            Queued::Whole(job) => {
                let extra = job.extra.as_ref();
                let extra = extra.map_or(0, |extra| size_of::<Extra>() + extra.stored_bytes());
                size_of::<Job>() + 2 * job.url.as_str().len() + extra
            }
        }
    }

    /// The request, given the origin of its lane: whether it is https, its host and its port.
    pub fn into_job(self, (is_https, host, port): (bool, &str, u16)) -> Job {
        match self {
            Queued::Plain(plain) => {
                let url = CrawlUrl::from_parts(is_https, host, port, plain.target());
                Job {
                    awaited: plain.is_awaited(),
                    ..Job::seed(number(plain.id), url)
                }
            }
            Queued::Link(link) => link.job(is_https, host, port),
            Queued::LongLink(link) => link.job(is_https, host, port),
            Queued::Whole(job) => *job,
        }
    }

    pub fn id(&self) -> u64 {
        match self {
            Queued::Plain(plain) => number(plain.id),
            Queued::Link(link) => number(link.id),
            Queued::LongLink(link) => number(link.id),
            Queued::Whole(job) => job.id,
        }
    }

    /// The first attempt of its chain of retries and redirects; see [`Job::root`].
    pub fn root(&self) -> u64 {
        match self {
            Queued::Whole(job) => job.root(),
            first => first.id(),
        }
    }

    pub fn kind(&self) -> PageKind {
        match self {
            Queued::Whole(job) => job.kind,
            _ => PageKind::Page,
        }
    }

    pub fn priority(&self) -> i32 {
        match self {
            Queued::Whole(job) => job.priority,
            _ => 0,
        }
    }

    pub fn depth(&self) -> u32 {
        match self {
            Queued::Plain(_) => 0,
            Queued::Link(link) => link.depth.into(),
            Queued::LongLink(link) => link.depth.into(),
            Queued::Whole(job) => job.depth,
        }
    }

    /// Path and query of its URL.
    pub fn target(&self) -> &str {
        match self {
            Queued::Plain(plain) => plain.target(),
            Queued::Link(link) => link.targets().0,
            Queued::LongLink(link) => link.targets().0,
            Queued::Whole(job) => job.url.request_target(),
        }
    }

    pub fn flags(&self) -> Flags {
        match self {
            Queued::Whole(job) => job.flags,
            _ => Flags::default(),
        }
    }

    pub fn extra(&self) -> Option<&Extra> {
        match self {
            Queued::Whole(job) => job.extra.as_deref(),
            _ => None,
        }
    }

    pub fn attempt(&self) -> u16 {
        match self {
            Queued::Whole(job) => job.attempt,
            _ => 1,
        }
    }

    pub fn rank(&self) -> Rank {
        match self {
            Queued::Whole(job) => job.rank(),
            plain => (0, 0, 0, std::cmp::Reverse(plain.id())),
        }
    }
}

impl Plain {
    fn of(job: &Job) -> Option<Self> {
        let has_other_fields = job.parent != 0
            || job.via.is_some()
            || job.kind != PageKind::Page
            || !job.seed
            || job.fresh
            || job.redirects != 0
            || job.attempt != 1
            || job.depth != 0
            || job.priority != 0
            || job.share != 0.0
            || job.flags != Flags::default()
            || job.extra.is_some();
        let text = job.url.request_target().as_bytes();
        let mut target = [0; TARGET_MAX];
        target.get_mut(..text.len())?.copy_from_slice(text);
        (!has_other_fields).then_some(Plain {
            id: short(job.id)?,
            length: text.len() as u8 | if job.awaited { AWAITED } else { 0 },
            target,
        })
    }

    fn target(&self) -> &str {
        std::str::from_utf8(&self.target[..usize::from(self.length & !AWAITED)])
            .expect("bytes written from a str")
    }

    fn is_awaited(&self) -> bool {
        self.length & AWAITED != 0
    }
}

impl<const TEXT_MAX: usize> Link<TEXT_MAX> {
    fn of(job: &Job) -> Option<Self> {
        let has_other_fields = job.kind != PageKind::Page
            || job.seed
            || job.fresh
            || job.awaited
            || job.redirects != 0
            || job.attempt != 1
            || job.priority != 0
            || job.share != 0.0
            || job.flags != Flags::default()
            || job.extra.is_some();
        let from = job.via.as_deref()?.strip_prefix(job.url.origin())?;
        let target = job.url.request_target();
        // Without a slash next, it is another origin whose text starts with this one's.
        if has_other_fields || !from.starts_with('/') {
            return None;
        }
        let mut text = [0; TEXT_MAX];
        let (start, rest) = text.split_at_mut_checked(target.len())?;
        start.copy_from_slice(target.as_bytes());
        rest.get_mut(..from.len())?.copy_from_slice(from.as_bytes());
        Some(Link {
            id: short(job.id)?,
            parent: short(job.parent)?,
            depth: u16::try_from(job.depth).ok()?,
            lengths: [target.len() as u8, from.len() as u8],
            text,
        })
    }

    fn job(&self, is_https: bool, host: &str, port: u16) -> Job {
        let (target, from) = self.targets();
        let url = CrawlUrl::from_parts(is_https, host, port, target);
        let via = [url.origin(), from].concat();
        Job {
            parent: number(self.parent),
            via: Some(via.into()),
            seed: false,
            depth: self.depth.into(),
            ..Job::seed(number(self.id), url)
        }
    }

    /// The target, and the parent's target.
    fn targets(&self) -> (&str, &str) {
        let [target, from] = self.lengths.map(usize::from);
        let text = str::from_utf8(&self.text[..target + from]);
        text.expect("bytes written from a str").split_at(target)
    }
}

/// A number in [`ID_BYTES`] bytes; `None` if it is too large.
fn short(number: u64) -> Option<[u8; ID_BYTES]> {
    match number.to_le_bytes() {
        [low @ .., 0, 0] => Some(low),
        _ => None,
    }
}

fn number(short: [u8; ID_BYTES]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..ID_BYTES].copy_from_slice(&short);
    u64::from_le_bytes(bytes)
}

/// The greater of two is fetched first.
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

    #[test]
    fn links_fill_whole_cache_lines() {
        assert_eq!(size_of::<Link<LINK_USUAL>>(), 64);
        assert_eq!(size_of::<Link<LINK_LONG>>(), 128);
    }

    #[test]
    fn a_link_within_an_origin_needs_no_job_and_round_trips() {
        let check = |job: Job, size: usize| {
            let url = job.url.clone();
            let (before, rank, depth) = (format!("{job:?}"), job.rank(), job.depth);
            let queued = Queued::of(job);
            let of = match &queued {
                Queued::Link(_) => 64,
                Queued::LongLink(_) => 128,
                _ => 0,
            };
            assert_eq!(of, size, "{before}");
            assert_eq!(queued.target(), url.request_target());
            assert_eq!((queued.rank(), queued.depth()), (rank, depth));
            let again = queued.into_job((url.is_https(), url.host_str(), url.port()));
            assert_eq!(format!("{again:?}"), before);
        };
        let link = |url: &str, via: &str| Job {
            parent: 5,
            via: Some(via.into()),
            seed: false,
            depth: 3,
            ..Job::seed(7, CrawlUrl::parse(url).expect(url))
        };
        let plain = || link("http://a.test/x?y", "http://a.test/");
        check(plain(), 64);
        check(link("https://[::1]:8080/b", "https://[::1]:8080/a"), 64);
        let at = |length: usize| format!("http://a.test/{}", "x".repeat(length - 1));
        check(link(&at(30), &at(18)), 64);
        check(link(&at(30), &at(19)), 128);
        check(link(&at(60), &at(52)), 128);
        check(link(&at(60), &at(53)), 0);
        check(link(&at(300), &at(1)), 0);
        check(link("http://a.test/", "http://a.test:81/"), 0);
        check(link("http://a.test/", "https://a.test/"), 0);
        check(link("http://a.test/", "http://b.test/"), 0);
        let via = None;
        check(Job { via, ..plain() }, 0);
        let has_other_fields: [fn(&mut Job); 13] = [
            |job| job.kind = PageKind::Sitemap,
            |job| job.seed = true,
            |job| job.fresh = true,
            |job| job.awaited = true,
            |job| job.redirects = 1,
            |job| job.attempt = 2,
            |job| job.priority = 1,
            |job| job.share = 0.5,
            |job| job.flags.dont_follow = true,
            |job| job.extra = Some(Box::default()),
            |job| job.id = 1 << 48,
            |job| job.parent = 1 << 48,
            |job| job.depth = 1 << 16,
        ];
        for change in has_other_fields {
            let mut job = plain();
            change(&mut job);
            check(job, 0);
        }
    }

    #[test]
    fn a_seed_with_a_url_only_needs_no_job_and_round_trips() {
        let check = |job: Job, is_plain: bool| {
            let url = job.url.clone();
            let before = format!("{job:?}");
            let queued = Queued::of(job);
            assert_eq!(matches!(queued, Queued::Plain(_)), is_plain, "{before}");
            assert_eq!(queued.target(), url.request_target());
            let again = queued.into_job((url.is_https(), url.host_str(), url.port()));
            assert_eq!(format!("{again:?}"), before);
        };
        let seed = |url: &str| Job::seed(7, CrawlUrl::parse(url).expect(url));
        check(seed("http://a.test/"), true);
        check(seed("https://[::1]:8080/?a=b"), true);
        check(seed("http://a.test/1234567"), true);
        check(seed("http://a.test/12345678"), false);
        let plain = || seed("http://a.test/");
        check(
            Job {
                awaited: true,
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
                kind: PageKind::Sitemap,
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
        let flags = Flags {
            dont_filter: true,
            ..Flags::default()
        };
        check(Job { flags, ..plain() }, false);
        check(
            Job {
                extra: Some(Box::default()),
                ..plain()
            },
            false,
        );
    }
}
