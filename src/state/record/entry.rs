//! A request as bytes.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::codec::{Input, put_bytes, put_number, put_signed};
use super::{ADMITTED, RecordError};
use crate::base::records;
use crate::frontier::extra::{Extra, Flags};
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::wire::proxy::Route;
use crate::wire::url::{CrawlUrl, host_of_rest};

/// A request to be fetched.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The attempt. Its share of a quota is not stored, nor its costs by scope number.
    pub job: Job,
    /// The attempt that it replaces, as a retry or the target of a redirect; 0 for none.
    pub replaces: u64,
    /// Wall-clock time before which it is not sent, in nanoseconds since the Unix epoch: of a delayed
    /// redirect.
    pub not_before: Option<u64>,
}

/// Appends the bytes of a request for [`encode_spilled`].
pub fn encode_request(job: &Job, out: &mut Vec<u8>) {
    encode_entry(job, 0, None, out);
}

/// Appends the bytes of an entry for [`decode_request`].
pub fn encode_stored(entry: &Entry, out: &mut Vec<u8>) {
    encode_entry(&entry.job, entry.replaces, entry.not_before, out);
}

/// The host of the first of some requests, from the bytes that [`encode_request`] appended.
pub fn host_of_request(bytes: &[u8]) -> &str {
    let head = EntryHead::decode(&mut Input::new(bytes)).expect("bytes of a request");
    host_of_rest(head.rest)
}

/// Whether the bytes that [`encode_request`] or [`encode_stored`] appended are of a request for this URL.
pub fn is_request_for(bytes: &[u8], url: &CrawlUrl) -> bool {
    let head = EntryHead::decode(&mut Input::new(bytes)).expect("bytes of a request");
    let [scheme, rest] = head.url();
    url.as_str().strip_prefix(scheme) == Some(rest)
}

/// Reads what [`encode_request`] or [`encode_stored`] appended.
///
/// # Errors
/// As [`Record::decode`].
pub fn decode_request(bytes: &[u8]) -> Result<Entry, RecordError> {
    let mut input = Input::new(bytes);
    let entry = Entry::decode(&mut input)?;
    input.finish()?;
    Ok(entry)
}

pub(super) fn encode_entry(job: &Job, replaces: u64, not_before: Option<u64>, out: &mut Vec<u8>) {
    // Other attempts are mostly near in number.
    let distance = |number: u64| job.id.wrapping_sub(number) as i64;
    put_number(flags_of(job, replaces, not_before), out);
    put_number(job.id, out);
    if job.parent != 0 {
        put_signed(distance(job.parent), out);
    }
    if replaces != 0 {
        put_signed(distance(replaces), out);
    }
    if let Some(moment) = not_before {
        put_number(moment, out);
    }
    if job.depth != 0 {
        put_number(job.depth.into(), out);
    }
    if job.redirects != 0 {
        put_number(job.redirects.into(), out);
    }
    if job.attempt != 1 {
        put_number(job.attempt.into(), out);
    }
    if job.priority != 0 {
        put_signed(job.priority.into(), out);
    }
    let url = job.url.as_str();
    put_bytes(&url.as_bytes()[scheme_of(job.url.is_https()).len()..], out);
    if let Some(via) = &job.via {
        let shared = shared_bytes(url, via);
        put_number(shared as u64, out);
        put_bytes(&via.as_bytes()[shared..], out);
    }
    let Some(extra) = &job.extra else {
        return;
    };
    if let Some(meta) = &extra.meta {
        put_bytes(meta.get().as_bytes(), out);
    }
    if let Some(route) = &extra.route {
        put_bytes(route.to_text().as_bytes(), out);
    }
    let stored = extra.stored_records();
    let length: usize = stored.map(|(_, value)| records::encoded_bytes(value)).sum();
    put_number(length as u64, out);
    for (label, value) in extra.stored_records() {
        records::encode(label, value, out);
    }
}

/// The flags of an entry: which fields follow, and those of the job.
pub(super) fn flags_of(job: &Job, replaces: u64, not_before: Option<u64>) -> u64 {
    let extra = job.extra.as_ref();
    let flags = [
        (HTTPS, job.url.is_https()),
        (SEED, job.seed),
        (PARENT, job.parent != 0),
        (VIA, job.via.is_some()),
        (DEPTH, job.depth != 0),
        (PRIORITY, job.priority != 0),
        (REPLACES, replaces != 0),
        (REDIRECTS, job.redirects != 0),
        (ATTEMPT, job.attempt != 1),
        (FRESH, job.fresh),
        (AWAITED, job.awaited),
        (NOT_BEFORE, not_before.is_some()),
        (ROBOTS, job.kind == PageKind::Robots),
        (SITEMAP, job.kind == PageKind::Sitemap),
        (EXTRA, extra.is_some()),
        (META, extra.is_some_and(|extra| extra.meta.is_some())),
        (ROUTE, extra.is_some_and(|extra| extra.route.is_some())),
        (DONT_ADJUST_DELAY, job.flags.dont_adjust_delay),
        (IGNORE_ROBOTS, job.flags.ignore_robots),
        (DONT_FOLLOW, job.flags.dont_follow),
        (DONT_FILTER, job.flags.dont_filter),
        (DONT_MERGE_COOKIES, job.flags.dont_merge_cookies),
    ];
    let set = flags.into_iter().filter(|(_, is_set)| *is_set);
    set.fold(0, |all, (flag, _)| all | flag)
}

/// The first fields of an entry, up to its URL.
#[derive(Clone, Copy, Debug)]
pub struct EntryHead<'a> {
    flags: u64,
    /// The number of the attempt.
    pub id: u64,
    /// That of the attempt that led to it; 0 for none.
    pub parent: u64,
    /// That of the attempt whose place it takes; 0 for none.
    pub replaces: u64,
    moment: Option<u64>,
    depth: u32,
    /// Number of redirects that led to it.
    pub redirects: u8,
    attempt: u16,
    priority: i32,
    /// Its URL, without the scheme.
    rest: &'a str,
}

impl<'a> EntryHead<'a> {
    /// That of an admitted request whose record has these bytes, and the bytes of its entry, as
    /// [`encode_stored`] appends them. `None`: another record.
    pub fn of_admitted(bytes: &'a [u8]) -> Option<Result<(Self, &'a [u8]), RecordError>> {
        let (ADMITTED, entry) = bytes.split_first().map(|(kind, entry)| (*kind, entry))? else {
            return None;
        };
        let head = EntryHead::decode(&mut Input::new(entry));
        Some(head.map(|head| (head, entry)))
    }

    fn decode(input: &mut Input<'a>) -> Result<Self, RecordError> {
        let flags = input.number("flags")?;
        let has = |flag: u64| flags & flag != 0;
        let is_known = flags & !ALL_FLAGS == 0;
        let is_one_kind = !(has(ROBOTS) && has(SITEMAP));
        let has_extra = has(EXTRA) || !(has(META) || has(ROUTE));
        if !(is_known && is_one_kind && has_extra) {
            return Err(RecordError::Flags(flags));
        }
        let id = input.number("id")?;
        let mut number = |is_there: bool, what| match is_there {
            true => Ok(id.wrapping_sub(input.signed(what)? as u64)),
            false => Ok(0),
        };
        let parent = number(has(PARENT), "parent")?;
        let replaces = number(has(REPLACES), "replaces")?;
        let moment = has(NOT_BEFORE).then(|| input.number("not_before"));
        let depth = has(DEPTH).then(|| input.number_as("depth"));
        let redirects = has(REDIRECTS).then(|| input.number_as("redirects"));
        let attempt = has(ATTEMPT).then(|| input.number_as("attempt"));
        let priority = match has(PRIORITY) {
            true => i32::try_from(input.signed("priority")?)
                .map_err(|_| RecordError::Value("priority"))?,
            false => 0,
        };
        Ok(EntryHead {
            flags,
            id,
            parent,
            replaces,
            moment: moment.transpose()?,
            depth: depth.transpose()?.unwrap_or(0),
            redirects: redirects.transpose()?.unwrap_or(0),
            attempt: attempt.transpose()?.unwrap_or(1),
            priority,
            rest: input.text("url")?,
        })
    }

    fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Its purpose.
    pub fn kind(&self) -> PageKind {
        match () {
            () if self.has(ROBOTS) => PageKind::Robots,
            () if self.has(SITEMAP) => PageKind::Sitemap,
            () => PageKind::Page,
        }
    }

    /// Whether it is a seed.
    pub fn is_seed(&self) -> bool {
        self.has(SEED)
    }

    /// The scheme of its URL, with what follows it, and the rest.
    pub fn url(&self) -> [&'a str; 2] {
        [scheme_of(self.has(HTTPS)), self.rest]
    }
}

impl Entry {
    pub(super) fn decode(input: &mut Input<'_>) -> Result<Entry, RecordError> {
        let head = EntryHead::decode(input)?;
        let has = |flag: u64| head.has(flag);
        let url = CrawlUrl::from_canonical(&head.url().concat());
        let url = url.ok_or(RecordError::Value("url"))?;
        let via = match has(VIA) {
            true => {
                let shared: usize = input.number_as("via")?;
                let shared = url.as_str().get(..shared);
                let shared = shared.ok_or(RecordError::Value("via"))?;
                Some(Arc::from([shared, input.text("via")?].concat()))
            }
            false => None,
        };
        let extra = match has(EXTRA) {
            true => Some(Box::new(decode_extra(input, has(META), has(ROUTE))?)),
            false => None,
        };
        let job = Job {
            id: head.id,
            parent: head.parent,
            via,
            url,
            kind: head.kind(),
            seed: head.is_seed(),
            fresh: has(FRESH),
            awaited: has(AWAITED),
            redirects: head.redirects,
            attempt: head.attempt,
            depth: head.depth,
            priority: head.priority,
            share: 0.0,
            flags: Flags {
                dont_adjust_delay: has(DONT_ADJUST_DELAY),
                ignore_robots: has(IGNORE_ROBOTS),
                dont_follow: has(DONT_FOLLOW),
                dont_filter: has(DONT_FILTER),
                dont_merge_cookies: has(DONT_MERGE_COOKIES),
            },
            extra,
        };
        Ok(Entry {
            job,
            replaces: head.replaces,
            not_before: head.moment,
        })
    }
}

fn decode_extra(
    input: &mut Input<'_>,
    has_meta: bool,
    has_route: bool,
) -> Result<Extra, RecordError> {
    let mut meta = None;
    if has_meta {
        let text = input.text("meta")?.to_owned();
        meta = Some(RawValue::from_string(text).map_err(|_| RecordError::Value("meta"))?);
    }
    let mut route = None;
    if has_route {
        let text = input.text("route")?;
        let read: Route = text.parse().map_err(|_| RecordError::Value("route"))?;
        route = Some(Box::new(read));
    }
    let stored = input.bytes("extra")?;
    Extra::from_stored(stored, meta, route).ok_or(RecordError::Value("extra"))
}

fn scheme_of(is_https: bool) -> &'static str {
    match is_https {
        true => "https://",
        false => "http://",
    }
}

/// Number of bytes at the start that both texts have, up to the end of a character of both.
fn shared_bytes(url: &str, via: &str) -> usize {
    let pairs = url.bytes().zip(via.bytes());
    let shared = pairs.take_while(|(one, other)| one == other).count();
    // A URL is ASCII: a border of its characters is one of the other's, too.
    debug_assert!(url.is_char_boundary(shared) && via.is_char_boundary(shared));
    shared
}

// Flags of an entry. None is changed or used again. Those of a plain link are in the first byte.
pub(super) const HTTPS: u64 = 1 << 0;
pub(super) const SEED: u64 = 1 << 1;
pub(super) const PARENT: u64 = 1 << 2;
pub(super) const VIA: u64 = 1 << 3;
pub(super) const DEPTH: u64 = 1 << 4;
pub(super) const PRIORITY: u64 = 1 << 5;
pub(super) const REPLACES: u64 = 1 << 6;
pub(super) const REDIRECTS: u64 = 1 << 7;
pub(super) const ATTEMPT: u64 = 1 << 8;
pub(super) const FRESH: u64 = 1 << 9;
pub(super) const AWAITED: u64 = 1 << 10;
pub(super) const NOT_BEFORE: u64 = 1 << 11;
pub(super) const ROBOTS: u64 = 1 << 12;
pub(super) const SITEMAP: u64 = 1 << 13;
pub(super) const EXTRA: u64 = 1 << 14;
pub(super) const META: u64 = 1 << 15;
pub(super) const ROUTE: u64 = 1 << 16;
pub(super) const DONT_ADJUST_DELAY: u64 = 1 << 17;
pub(super) const IGNORE_ROBOTS: u64 = 1 << 18;
pub(super) const DONT_FOLLOW: u64 = 1 << 19;
pub(super) const DONT_FILTER: u64 = 1 << 20;
pub(super) const DONT_MERGE_COOKIES: u64 = 1 << 21;
pub(super) const ALL_FLAGS: u64 = (1 << 22) - 1;
