//! Harvests an API into SQLite, with several keys.
//!
//! The table `job` has the requests; `answer` gets a row for every attempt. Each key is a scope with its own
//! limits; a job uses the key with the fewest requests in flight. Jobs differ in cost: a search costs more
//! of the quota than an item.
//!
//! It can be stopped at any time: a job is marked as done in the transaction with its answer, or a later
//! one, and the others are repeated in the next run. Slow commits slow the crawl down.

use std::collections::HashMap;
use std::error::Error;
use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use argiope::{
    Config, Crawler, EndedRequest, FinishReason, FunctionSink, Page, Request, RequestEnd,
    RequestSource, SourceError, SourcePoll, Stopper, Wake,
};
use rusqlite::{Connection, OptionalExtension, params};

/// Jobs in the crawl at once, for each key: it keeps busy, and the rest is shared out as late as can be.
pub const JOBS_PER_KEY: usize = 8;
/// Answers that may wait for their commit before the crawl reads no more.
pub const BEHIND_MAX: usize = 64;

const TABLES: &str = "
    PRAGMA journal_mode = wal; -- Readers do not wait for writers.
    CREATE TABLE IF NOT EXISTS job (
        id INTEGER PRIMARY KEY, url TEXT NOT NULL, cost REAL NOT NULL DEFAULT 1,
        state TEXT NOT NULL DEFAULT 'open' -- In the end 'done', or the code of what went wrong.
    );
    CREATE TABLE IF NOT EXISTS answer (
        job INTEGER NOT NULL REFERENCES job, url TEXT NOT NULL, key TEXT, cost REAL NOT NULL,
        status INTEGER, error TEXT, latency REAL, stamp TEXT, body BLOB NOT NULL
    );";

/// Opens a database of jobs, with its tables.
pub fn open(path: &Path) -> rusqlite::Result<Connection> {
    let database = Connection::open(path)?;
    database.busy_timeout(Duration::from_secs(60))?;
    database.execute_batch(TABLES)?;
    Ok(database)
}

/// A key of the API. Its limits are the entry `key/NAME` of THROTTLING_SCOPES.
pub struct Key {
    pub name: String,
    pub secret: String,
}

/// Messages of the crawl to the writer, for each job in this order.
enum Word {
    /// An attempt has ended.
    Answer(Box<Page>),
    /// The job is over, in this state.
    Over(u64, String),
}

/// Does the open jobs of a database; gives why the crawl ended. `started` is handed what stops it early.
pub fn harvest(
    path: &Path,
    keys: Vec<Key>,
    config: Config,
    started: impl FnOnce(Stopper),
) -> Result<FinishReason, Box<dyn Error>> {
    let config = config
        .with("FOLLOW", "none")?
        .with("ROBOTSTXT_OBEY", false)?; // We have a contract.
    let (words, said) = channel();
    let behind = Arc::new(AtomicUsize::new(0));
    let jobs = Jobs {
        database: open(path)?,
        last: 0,
        keys: keys.into_iter().map(|key| (key, 0.0)).collect(),
        out: HashMap::new(),
        words: words.clone(),
    };
    let (more, now) = (Arc::clone(&behind), Arc::clone(&behind));
    let answers = FunctionSink::new(move |page| {
        more.fetch_add(1, Ordering::Relaxed);
        let _ = words.send(Word::Answer(Box::new(page)));
    })
    .ready_when(move || now.load(Ordering::Relaxed) < BEHIND_MAX);
    let mut crawler = Crawler::builder(config)
        .source(jobs)
        .sink(answers)
        .build()?;
    let stopper = crawler.stopper();
    started(stopper.clone());

    let database = open(path)?;
    let crawl = thread::spawn(move || crawler.run());
    // The channel closes when the crawler is dropped, with its source and its sink.
    let written = write(database, &said, &behind);
    if written.is_err() {
        stopper.stop_now();
    }
    let reason = crawl.join().expect("a crawl does not panic");
    written?;
    Ok(reason)
}

/// Hands out the jobs, on the crawl's thread.
struct Jobs {
    database: Connection,
    /// The last job that was handed out.
    last: u64,
    /// Each key, and what all that is out under it costs.
    keys: Vec<(Key, f64)>,
    /// The key and the cost of each job that is out.
    out: HashMap<u64, (usize, f64)>,
    words: Sender<Word>,
}

impl RequestSource for Jobs {
    fn next(&mut self, _wake: &Wake) -> Result<SourcePoll, SourceError> {
        let next =
            "SELECT id, url, cost FROM job WHERE id > ?1 AND state = 'open' ORDER BY id LIMIT 1";
        let mut next = self.database.prepare_cached(next)?;
        let job = next.query_row([self.last], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        });
        let Some((id, url, cost)): Option<(u64, String, f64)> = job.optional()? else {
            return Ok(SourcePoll::Finished);
        };
        let idlest = self
            .keys
            .iter_mut()
            .enumerate()
            .min_by(|(_, a), (_, b)| a.1.total_cmp(&b.1));
        let (index, (key, out)) = idlest.ok_or("there is no key")?;
        *out += cost;
        self.last = id;
        self.out.insert(id, (index, cost));
        let request = Request::get(url)
            .bearer_auth(&key.secret)
            .scope_cost(format!("key/{}", key.name), cost)
            .dont_filter() // The table knows what was done before.
            .tag(id);
        Ok(SourcePoll::Request(request))
    }

    fn ended(&mut self, ended: &EndedRequest<'_>) {
        if let Some((index, cost)) = self.out.remove(&ended.tag) {
            self.keys[index].1 -= cost;
        }
        let state = match &ended.end {
            _ if ended.should_requeue() => return, // It stays open.
            RequestEnd::Final {
                failure: Some(failure),
                ..
            } => failure.code(),
            RequestEnd::Rejected(why) => why.code().into_owned(),
            _ => "done".to_owned(),
        };
        let _ = self.words.send(Word::Over(ended.tag, state));
    }

    fn at_once(&self) -> usize {
        JOBS_PER_KEY * self.keys.len()
    }
}

/// Writes messages of the crawl, all that are queued in one transaction.
fn write(
    mut database: Connection,
    said: &Receiver<Word>,
    behind: &AtomicUsize,
) -> rusqlite::Result<()> {
    while let Ok(first) = said.recv() {
        let mut answers = 0;
        let transaction = database.transaction()?;
        for word in iter::once(first).chain(said.try_iter()) {
            match word {
                Word::Answer(page) => {
                    write_answer(&transaction, &page)?;
                    answers += 1;
                }
                Word::Over(job, state) => {
                    transaction.execute(
                        "UPDATE job SET state = ?2 WHERE id = ?1",
                        params![job, state],
                    )?;
                }
            }
        }
        transaction.commit()?;
        behind.fetch_sub(answers, Ordering::Relaxed);
    }
    Ok(())
}

fn write_answer(database: &Connection, page: &Page) -> rusqlite::Result<()> {
    let insert = "INSERT INTO answer SELECT id, ?2, ?3, iif(?4, cost, 0), ?5, ?6, ?7, ?8, ?9
                  FROM job WHERE id = ?1";
    database.prepare_cached(insert)?.execute(params![
        page.tag,
        page.url,
        page.scopes
            .iter()
            .find_map(|scope| scope.strip_prefix("key/")),
        page.timings.sent.is_some(), // What never left cost nothing.
        page.status,
        page.failure.as_ref().map(|failure| failure.code()),
        page.timings
            .server_latency()
            .map(|latency| latency.as_secs_f64()),
        page.timings.accuracy().map(|label| label.as_str()),
        page.body,
    ])?;
    Ok(())
}
