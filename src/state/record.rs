//! The records of the journal, and their bytes.
//!
//! ```text
//! record = kind (1 byte), fields
//! entry  = flags, id, [parent], [replaces], [not before], [depth], [redirects], [attempt], [priority],
//!          URL without its scheme, [via], [meta], [route], [records of optional fields]
//! ```
//!
//! Numbers are in LEB128, texts follow their length. Fields in brackets are there if a flag says so. An
//! unknown kind, an unknown flag and bytes after the last field are errors: a record is never read in part.

mod block;
pub(super) mod codec;
mod entry;

use codec::{Input, put_bytes, put_number};
use thiserror::Error;

pub use self::block::{
    BlockAdmission, BlockOrigin, SpilledBlock, WrittenBlock, encode_admitted_to_block,
    encode_spill, encode_spilled,
};
use self::block::{decode_admitted_to_block, decode_spill};
use self::entry::encode_entry;
pub use self::entry::{
    Entry, EntryHead, decode_request, encode_request, encode_stored, host_of_request,
    is_request_for,
};
use crate::base::named::NamedValue;
use crate::base::sentence::debug_as_sentence;
use crate::frontier::job::Job;

/// What the journal records, in order.
#[derive(Clone, Debug)]
pub enum Record {
    /// The beginning of a crawl, or of a compacted journal.
    Begin {
        /// The keys of the crawl: [`Keys::to_bytes`](crate::base::keys::Keys::to_bytes).
        keys: [u8; 16],
        /// Its settings, as JSON.
        settings: String,
    },
    /// A request was admitted: it is to be fetched until [`Record::Ended`].
    Admitted(Entry),
    /// A request was offered. Its answer comes later: [`Record::Admitted`] with the same number, or
    /// [`Record::Dropped`].
    Offered(Entry),
    /// The offer of this number was not admitted.
    Dropped(u64),
    /// The attempt of this number ended: its result was passed to the sink.
    Ended(u64),
    /// Keys of URLs admitted earlier, whose entries are no longer in the journal (after compaction).
    Seen(Vec<u64>),
    /// Keys of the host and of the registrable domain of each seed that was admitted (after compaction).
    SeedHosts(Vec<(u64, u64)>),
    /// The Crawl-delay of a host's robots.txt, in ns: its name, with the port if that is not the usual one. It is
    /// valid from now on, also without a commit.
    CrawlDelay {
        /// The host.
        host: String,
        /// Nanoseconds.
        delay: u64,
    },
    /// The attempt of this number departed. It may be recorded and not committed: then the URL is requested
    /// again, and this shows that.
    Departed(u64),
    /// The attempt of this number, which must not be made twice, may depart once this is committed.
    Started(u64),
    /// The attempt of this number was started and not sent: the next run makes it.
    StartUndone(u64),
    /// Keys of URLs that earlier runs requested without a committed result.
    Requested(Vec<u64>),
    /// Number of lines of the list of seeds that were taken, from its start.
    SeedsTaken(u64),
    /// The keys of all URLs admitted so far, but for those of earlier runs, are being written to the run with
    /// this number.
    SeenFrozen(u64),
    /// From now on the seen set has these runs on disk, and no others. All keys of a run that was frozen are
    /// in them.
    SeenRuns(Vec<RunRecord>),
    /// Keys of URLs whose admission is undone: until they are admitted again, they do not count as seen, also if
    /// runs have them. It is written at the beginning of a segment, and of a run that salvages the crawl.
    SeenUndone(Vec<u64>),
    /// The records so far belong to this epoch or to earlier ones.
    EpochEnd(u64),
    /// The epoch is committed.
    Commit(CommitRecord),
    /// In a file of spilled requests: requests of one origin, to be fetched.
    Spilled {
        /// The key of the origin.
        origin: u64,
        /// The requests, all admitted. None replaces another, and none waits for a moment.
        entries: Vec<Entry>,
    },
    /// Admitted requests were written to a block of a file: it has them from now on, until
    /// [`Record::Unspilled`].
    Spill {
        /// Where they are.
        block: SpilledBlock,
        /// Their numbers; none after a compaction, when the journal has no entries of them.
        numbers: Vec<u64>,
    },
    /// Requests were admitted and written to a block of a file, which alone has them.
    AdmittedToBlock {
        /// Where they are.
        block: SpilledBlock,
        /// The requests.
        admission: BlockAdmission,
    },
    /// So many admissions follow of requests that were admitted before, in a segment that was rewritten.
    AdmittedBefore(u64),
    /// The requests of a block were read: each is admitted again after this record.
    Unspilled {
        /// The number of the file.
        file: u64,
        /// The offset of the block.
        offset: u64,
    },
    /// What was learned: valid from now on, also without a commit, but for counts.
    Fact(Fact),
    /// Nothing was sent since the records before, and nothing more will be.
    Quiet,
    /// A later run continues the crawl in this segment. Records after the end of the epoch of this commit, the
    /// last one, count for nothing, but for facts and for what was requested.
    Resumed(Resumption),
}

/// How a run continues a crawl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// Its settings, as JSON.
    pub settings: String,
    /// How far earlier runs took its list of seeds.
    pub seeds_taken: u64,
    /// The commit at which it continues.
    pub commit: CommitRecord,
}

/// What the crawl has learned of something. The newest about it counts, in all segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The kind of what it is about.
    pub about: About,
    /// Its name.
    pub name: String,
    /// Wall-clock time in nanoseconds since the Unix epoch.
    pub at: u64,
    /// In a form of its own; empty: nothing is known any more.
    pub value: Vec<u8>,
}

/// What a [`Fact`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum About {
    /// The settings that a scope was given while the crawl ran. They apply before what it has learned.
    ScopeSettings,
    /// The politeness of a scope.
    Scope,
    /// The robots.txt of an origin.
    Robots,
    /// The health of a host.
    Host,
    /// The cookies of a registrable domain.
    Cookies,
    /// The origin of a seed, which gets the credentials of the crawl.
    SeedOrigin,
    /// A scope in which earlier sends still counted when nothing more was sent.
    OpenGap,
    /// Counts of limits, of a host, a domain or the crawl.
    Counts,
    /// A request that was cancelled while it waits in a file, by its number.
    Cancelled,
    /// A scope whose requests up to a number are cancelled.
    CancelledScope,
    /// An operator has paused the crawl.
    Paused,
    /// An operator has excluded a host or a domain.
    Excluded,
    /// The priority that an operator gave to a host.
    HostPriority,
    /// A setting was changed while the crawl ran, by its name. It applies before all else.
    Setting,
    /// The level of the log that was ordered.
    LogLevel,
    /// What was learned until then of the scopes that a pattern matches, or of all, was to be forgotten.
    Forgotten,
    /// A public host, which counts among those of a crawl without a contact or without robots.txt.
    PublicHost,
}

/// A commit of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitRecord {
    /// The epoch.
    pub epoch: u64,
    /// The durable length of each output file.
    pub files: Vec<(String, u64)>,
    /// The next number of an attempt.
    pub next_number: u64,
    /// Wall-clock time in nanoseconds since the Unix epoch.
    pub at: u64,
}

/// A run of keys of the seen set: a file that is complete and durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// Its number. None is used twice.
    pub number: u64,
    /// Number of keys.
    pub keys: u64,
    /// Number of bytes of the file.
    pub length: u64,
}

/// Why bytes are not a record.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The bytes end before or within this field.
    #[error("the record ends before or within its field {0:?}")]
    Truncated(&'static str),
    /// The kind is unknown.
    #[error("record kind {0} is unknown")]
    Kind(u8),
    /// Flags are unknown.
    #[error("record flags {0:#x} are unknown")]
    Flags(u64),
    /// A field has an invalid value.
    #[error("the record's field {0:?} has an invalid value")]
    Value(&'static str),
    /// Bytes follow the last field.
    #[error("{0} bytes follow the record's last field")]
    Trailing(usize),
}

debug_as_sentence!(RecordError);

impl RecordError {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            RecordError::Truncated(_) => "record.truncated",
            RecordError::Kind(_) => "record.kind",
            RecordError::Flags(_) => "record.flags",
            RecordError::Value(_) => "record.value",
            RecordError::Trailing(_) => "record.trailing",
        }
    }

    /// Whether a retry could succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

impl Record {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Begin { keys, settings } => {
                out.push(BEGIN);
                out.extend_from_slice(keys);
                put_bytes(settings.as_bytes(), out);
            }
            Record::Admitted(entry) => {
                encode_admitted(&entry.job, entry.replaces, entry.not_before, out);
            }
            Record::Offered(entry) => {
                encode_offered(&entry.job, entry.replaces, entry.not_before, out);
            }
            Record::Dropped(number) => put_counter(DROPPED, *number, out),
            Record::Ended(number) => put_counter(ENDED, *number, out),
            Record::Seen(keys) => {
                out.push(SEEN);
                out.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
            }
            Record::SeenUndone(keys) => {
                put_counter(SEEN_UNDONE, 8 * keys.len() as u64, out);
                out.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
            }
            Record::SeedHosts(hosts) => {
                out.push(SEED_HOSTS);
                let keys = hosts.iter().flat_map(|(host, domain)| [host, domain]);
                out.extend(keys.flat_map(|key| key.to_le_bytes()));
            }
            Record::CrawlDelay { host, delay } => {
                put_counter(CRAWL_DELAY, *delay, out);
                put_bytes(host.as_bytes(), out);
            }
            Record::Departed(number) => put_counter(DEPARTED, *number, out),
            Record::Started(number) => put_counter(STARTED, *number, out),
            Record::StartUndone(number) => put_counter(START_UNDONE, *number, out),
            Record::Requested(keys) => {
                out.push(REQUESTED);
                out.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
            }
            Record::SeedsTaken(lines) => put_counter(SEEDS_TAKEN, *lines, out),
            Record::SeenFrozen(run) => put_counter(SEEN_FROZEN, *run, out),
            Record::SeenRuns(runs) => {
                put_counter(SEEN_RUNS, runs.len() as u64, out);
                let numbers = runs
                    .iter()
                    .flat_map(|run| [run.number, run.keys, run.length]);
                numbers.for_each(|number| put_number(number, out));
            }
            Record::EpochEnd(epoch) => put_counter(EPOCH_END, *epoch, out),
            Record::Commit(commit) => commit.encode(out),
            Record::Spilled { origin, entries } => {
                let mut bytes = Vec::new();
                for Entry {
                    job,
                    replaces,
                    not_before,
                } in entries
                {
                    encode_entry(job, *replaces, *not_before, &mut bytes);
                }
                encode_spilled(*origin, entries.len() as u64, &bytes, out);
            }
            Record::AdmittedBefore(count) => put_counter(ADMITTED_BEFORE, *count, out),
            Record::Spill { block, numbers } => encode_spill(block, numbers, out),
            Record::AdmittedToBlock { block, admission } => {
                encode_admitted_to_block(block, admission, out);
            }
            Record::Unspilled { file, offset } => {
                put_counter(UNSPILLED, *file, out);
                put_number(*offset, out);
            }
            Record::Fact(fact) => encode_fact(fact.about, &fact.name, fact.at, &fact.value, out),
            Record::Quiet => out.push(QUIET),
            Record::Resumed(resumption) => {
                put_counter(RESUMED, resumption.seeds_taken, out);
                put_bytes(resumption.settings.as_bytes(), out);
                resumption.commit.encode_fields(out);
            }
        }
    }

    /// Reads a record, which is all of these bytes.
    ///
    /// # Errors
    /// [`RecordError`], which names the field that was wrong.
    pub fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
        let mut input = Input::new(bytes);
        let record = match input.byte("kind")? {
            BEGIN => Record::Begin {
                keys: input.array("keys")?,
                settings: input.text("settings")?.to_owned(),
            },
            ADMITTED => Record::Admitted(Entry::decode(&mut input)?),
            OFFERED => Record::Offered(Entry::decode(&mut input)?),
            DROPPED => Record::Dropped(input.number("number")?),
            ENDED => Record::Ended(input.number("number")?),
            SEEN => Record::Seen(input.keys()?),
            SEEN_UNDONE => {
                let mut keys = Input::new(input.bytes("keys")?);
                Record::SeenUndone(keys.keys()?)
            }
            SEED_HOSTS => {
                let keys = input.keys()?;
                let (pairs, rest) = keys.as_chunks::<2>();
                if !rest.is_empty() {
                    return Err(RecordError::Truncated("keys"));
                }
                Record::SeedHosts(
                    pairs
                        .iter()
                        .map(|[host, domain]| (*host, *domain))
                        .collect(),
                )
            }
            CRAWL_DELAY => {
                let NamedValue { name, at, .. } = decode_crawl_delay(&mut input)?;
                Record::CrawlDelay {
                    host: name.to_owned(),
                    delay: at,
                }
            }
            DEPARTED => Record::Departed(input.number("number")?),
            STARTED => Record::Started(input.number("number")?),
            START_UNDONE => Record::StartUndone(input.number("number")?),
            REQUESTED => Record::Requested(input.keys()?),
            SEEDS_TAKEN => Record::SeedsTaken(input.number("lines")?),
            SEEN_FROZEN => Record::SeenFrozen(input.number("run")?),
            SEEN_RUNS => {
                let count: u64 = input.number("runs")?;
                let runs = (0..count).map(|_| RunRecord::decode(&mut input));
                Record::SeenRuns(runs.collect::<Result<_, _>>()?)
            }
            EPOCH_END => Record::EpochEnd(input.number("epoch")?),
            COMMIT => Record::Commit(CommitRecord::decode(&mut input)?),
            SPILLED => {
                let origin = u64::from_le_bytes(input.array("origin")?);
                let count: u64 = input.number("count")?;
                let entries = (0..count).map(|_| Entry::decode(&mut input));
                Record::Spilled {
                    origin,
                    entries: entries.collect::<Result<_, _>>()?,
                }
            }
            ADMITTED_BEFORE => Record::AdmittedBefore(input.number("count")?),
            SPILL => decode_spill(0, &mut input)?,
            SPILL_IN_ORDER => decode_spill(input.number("first")?, &mut input)?,
            ADMITTED_TO_BLOCK => decode_admitted_to_block(&mut input)?,
            UNSPILLED => Record::Unspilled {
                file: input.number("file")?,
                offset: input.number("offset")?,
            },
            FACT => Record::Fact(Fact::decode(&mut input)?),
            QUIET => Record::Quiet,
            RESUMED => Record::Resumed(Resumption {
                seeds_taken: input.number("lines")?,
                settings: input.text("settings")?.to_owned(),
                commit: CommitRecord::decode(&mut input)?,
            }),
            kind => return Err(RecordError::Kind(kind)),
        };
        input.finish()?;
        Ok(record)
    }

    /// As [`Record::decode`], of a record that ends or commits an epoch, or resumes the crawl; `None` of others.
    pub fn decode_mark(bytes: &[u8]) -> Option<Result<Record, RecordError>> {
        let is_mark = matches!(bytes.first(), Some(&(EPOCH_END | COMMIT | RESUMED)));
        is_mark.then(|| Record::decode(bytes))
    }
}

/// Appends the bytes of [`Record::Admitted`], without a copy of the job.
pub fn encode_admitted(job: &Job, replaces: u64, not_before: Option<u64>, out: &mut Vec<u8>) {
    out.push(ADMITTED);
    encode_entry(job, replaces, not_before, out);
}

/// The same, from the bytes that [`encode_request`] appended.
pub fn encode_admitted_request(request: &[u8], out: &mut Vec<u8>) {
    out.push(ADMITTED);
    out.extend_from_slice(request);
}

/// Appends the bytes of [`Record::Offered`], without a copy of the job.
pub fn encode_offered(job: &Job, replaces: u64, not_before: Option<u64>, out: &mut Vec<u8>) {
    out.push(OFFERED);
    encode_entry(job, replaces, not_before, out);
}

/// Appends the bytes of [`Record::Fact`].
pub fn encode_fact(about: About, name: &str, at: u64, value: &[u8], out: &mut Vec<u8>) {
    out.push(FACT);
    out.push(about.code());
    put_number(at, out);
    put_bytes(name.as_bytes(), out);
    put_bytes(value, out);
}

fn put_counter(kind: u8, value: u64, out: &mut Vec<u8>) {
    out.push(kind);
    put_number(value, out);
}

impl Fact {
    fn decode(input: &mut Input<'_>) -> Result<Fact, RecordError> {
        let (about, NamedValue { name, at, value }) = decode_fact(input)?;
        Ok(Fact {
            about,
            at,
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }
}

/// What was learned and needs no commit, where its record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned<'a> {
    /// A fact.
    Fact(About, NamedValue<'a>),
    /// The Crawl-delay of a host, in ns, in place of a time; it has no value.
    CrawlDelay(NamedValue<'a>),
}

impl<'a> Learned<'a> {
    /// Whether a record with these bytes is one of these.
    pub fn is(bytes: &[u8]) -> bool {
        match bytes {
            [FACT, code, ..] => About::of_code(*code).is_some_and(|about| !about.is_of_epoch()),
            [CRAWL_DELAY, ..] => true,
            _ => false,
        }
    }

    /// Of the bytes of such a record.
    ///
    /// # Errors
    /// They are not those of a record.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let mut input = Input::new(bytes);
        let learned = match input.byte("kind")? {
            FACT => {
                let (about, named) = decode_fact(&mut input)?;
                Learned::Fact(about, named)
            }
            _ => Learned::CrawlDelay(decode_crawl_delay(&mut input)?),
        };
        input.finish()?;
        Ok(learned)
    }

    /// Of a record; `None`: it is none of these.
    pub fn of(record: &'a Record) -> Option<Self> {
        match record {
            Record::Fact(fact) => {
                let needs_none = !fact.about.is_of_epoch();
                needs_none.then(|| Learned::Fact(fact.about, fact.into()))
            }
            Record::CrawlDelay { host, delay } => Some(Learned::CrawlDelay(NamedValue {
                name: host,
                at: *delay,
                value: &[],
            })),
            _ => None,
        }
    }
}

fn decode_crawl_delay<'a>(input: &mut Input<'a>) -> Result<NamedValue<'a>, RecordError> {
    let at = input.number("delay")?;
    Ok(NamedValue {
        name: input.text("host")?,
        at,
        value: &[],
    })
}

impl<'a> From<&'a Fact> for NamedValue<'a> {
    fn from(fact: &'a Fact) -> Self {
        NamedValue {
            name: &fact.name,
            at: fact.at,
            value: &fact.value,
        }
    }
}

fn decode_fact<'a>(input: &mut Input<'a>) -> Result<(About, NamedValue<'a>), RecordError> {
    let code = input.byte("about")?;
    let about = About::of_code(code);
    let about = about.ok_or(RecordError::Value("about"))?;
    let at = input.number("at")?;
    let (name, value) = (input.text("name")?, input.bytes("value")?);
    Ok((about, NamedValue { name, at, value }))
}

impl About {
    /// All of them, in order of their codes.
    pub const ALL: [About; 17] = [
        About::Scope,
        About::Robots,
        About::Host,
        About::Counts,
        About::Cookies,
        About::SeedOrigin,
        About::OpenGap,
        About::ScopeSettings,
        About::Cancelled,
        About::CancelledScope,
        About::Paused,
        About::Excluded,
        About::HostPriority,
        About::Setting,
        About::LogLevel,
        About::Forgotten,
        About::PublicHost,
    ];

    /// Its code in records. None is changed or used again.
    const fn code(self) -> u8 {
        match self {
            About::Scope => 1,
            About::Robots => 2,
            About::Host => 3,
            About::Counts => 4,
            About::Cookies => 5,
            About::SeedOrigin => 6,
            About::OpenGap => 7,
            About::ScopeSettings => 8,
            About::Cancelled => 9,
            About::CancelledScope => 10,
            About::Paused => 11,
            About::Excluded => 12,
            About::HostPriority => 13,
            About::Setting => 14,
            About::LogLevel => 15,
            About::Forgotten => 16,
            About::PublicHost => 17,
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        About::ALL.into_iter().find(|about| about.code() == code)
    }

    /// Whether it counts only once its epoch is committed: numbers of requests are used again otherwise.
    pub const fn is_of_epoch(self) -> bool {
        matches!(
            self,
            About::Counts | About::Cancelled | About::CancelledScope
        )
    }
}

impl CommitRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(COMMIT);
        self.encode_fields(out);
    }

    fn encode_fields(&self, out: &mut Vec<u8>) {
        for number in [self.epoch, self.next_number, self.at] {
            put_number(number, out);
        }
        put_number(self.files.len() as u64, out);
        for (name, length) in &self.files {
            put_bytes(name.as_bytes(), out);
            put_number(*length, out);
        }
    }

    fn decode(input: &mut Input<'_>) -> Result<CommitRecord, RecordError> {
        let epoch = input.number("epoch")?;
        let next_number = input.number("next_number")?;
        let at = input.number("at")?;
        let count: u64 = input.number("files")?;
        let files = (0..count).map(|_| {
            let name = input.text("file name")?.to_owned();
            Ok((name, input.number("file length")?))
        });
        Ok(CommitRecord {
            epoch,
            files: files.collect::<Result<_, _>>()?,
            next_number,
            at,
        })
    }
}

impl RunRecord {
    fn decode(input: &mut Input<'_>) -> Result<RunRecord, RecordError> {
        Ok(RunRecord {
            number: input.number("run")?,
            keys: input.number("keys of a run")?,
            length: input.number("length of a run")?,
        })
    }
}

// Kinds of records. None is changed or used again.
const BEGIN: u8 = 1;
const ADMITTED: u8 = 2;
const OFFERED: u8 = 3;
const DROPPED: u8 = 4;
const ENDED: u8 = 5;
const SEEN: u8 = 6;
const SEEDS_TAKEN: u8 = 7;
const EPOCH_END: u8 = 8;
const COMMIT: u8 = 9;
const SEED_HOSTS: u8 = 10;
const CRAWL_DELAY: u8 = 11;
const SPILLED: u8 = 12;
const SPILL: u8 = 13;
const SPILL_IN_ORDER: u8 = 16;
const ADMITTED_TO_BLOCK: u8 = 18;
const UNSPILLED: u8 = 31;
const ADMITTED_BEFORE: u8 = 34;
const DEPARTED: u8 = 30;
const REQUESTED: u8 = 32;
const STARTED: u8 = 33;
const START_UNDONE: u8 = 35;
const FACT: u8 = 14;
const QUIET: u8 = 15;
const RESUMED: u8 = 17;
const SEEN_FROZEN: u8 = 20;
const SEEN_RUNS: u8 = 21;
const SEEN_UNDONE: u8 = 22;
// 23: a record that no release wrote.

#[cfg(test)]
mod tests;
