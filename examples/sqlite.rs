//! Pages in SQLite, each final one once, whatever ends the crawl: a sink that takes part in commits. Run it
//! again with the same folder, after Ctrl-C or `kill -9`, and it goes on.
//!
//! ```sh
//! cargo run --example sqlite -- FOLDER https://example.com/
//! sqlite3 FOLDER/pages.sqlite 'SELECT id, status, url FROM page'
//! ```

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::{env, thread};

use argiope::sink::directory;
use argiope::{
    Config, Crawler, Epoch, FinishReason, Page, Request, Sink, State, StateError, WriteError,
};
use rusqlite::{Connection, params};

/// A page belongs to an epoch. Those of an epoch that the crawl has not recorded are fetched again.
const TABLES: &str = "
    PRAGMA journal_mode = wal;
    PRAGMA synchronous = full; -- What is prepared survives a power cut.
    CREATE TABLE IF NOT EXISTS page (
        epoch INTEGER NOT NULL, id INTEGER PRIMARY KEY, url TEXT NOT NULL, final INTEGER NOT NULL,
        status INTEGER, error TEXT, body BLOB NOT NULL
    );
    CREATE INDEX IF NOT EXISTS epochs ON page (epoch);";

/// Pages that may wait for the database before the crawl reads no more.
const BEHIND_MAX: usize = 256;

/// Crawls from these URLs, or continues the crawl of this folder.
pub fn crawl(
    folder: &Path,
    config: Config,
    urls: Vec<String>,
) -> Result<FinishReason, Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    let _lock = directory::lock(folder)?;
    let state = match State::load(folder) {
        Err(StateError::None(_)) => State::new(folder, String::new(), secret()?)?,
        state => state?,
    };
    state.beginning().write()?;
    // The first commit has the requests that were submitted before the crawl ran.
    let is_begun = state.commit().is_some();
    let sink = Pages::open(&folder.join("pages.sqlite"))?;
    let mut crawler = Crawler::builder(config).sink(sink).state(state).build()?;
    for url in urls.into_iter().filter(|_| !is_begun) {
        crawler.submit(Request::get(url))?;
    }
    Ok(crawler.run())
}

/// Hands pages to a thread that writes them, since a sink must not block.
struct Pages {
    path: PathBuf,
    writer: Sender<Message>,
    /// The epoch of the pages that come now.
    epoch: u64,
    written: Arc<Written>,
}

/// What the thread has done.
#[derive(Default)]
struct Written {
    /// Pages that are not in the database yet.
    behind: AtomicUsize,
    /// The last epoch that is durable.
    prepared: AtomicU64,
    failure: OnceLock<WriteError>,
}

/// For the thread, in this order.
enum Message {
    /// Delete what came after this epoch.
    Resume(u64),
    /// A page of this epoch.
    Page(u64, Box<Page>),
    /// Make everything so far durable.
    Prepare(u64),
}

impl Pages {
    fn open(path: &Path) -> rusqlite::Result<Self> {
        let database = Connection::open(path)?;
        database.execute_batch(TABLES)?;
        let (writer, messages) = mpsc::channel();
        let written = Arc::new(Written::default());
        let pages = Pages {
            path: path.to_owned(),
            writer,
            epoch: 1,
            written: Arc::clone(&written),
        };
        let path = path.to_owned();
        thread::spawn(move || {
            if let Err(error) = write(&database, &messages, &written) {
                let failure = WriteError::new(path, &io::Error::other(error));
                let _ = written.failure.set(failure);
            }
        });
        Ok(pages)
    }

    fn send(&self, message: Message) {
        if self.writer.send(message).is_err() {
            let gone = io::Error::other("its thread has ended");
            let _ = self.written.failure.set(WriteError::new(&self.path, &gone));
        }
    }
}

impl Sink for Pages {
    fn put(&mut self, page: &mut Page) {
        self.written.behind.fetch_add(1, Ordering::Relaxed);
        self.send(Message::Page(self.epoch, Box::new(std::mem::take(page))));
    }

    fn is_ready(&self) -> bool {
        self.written.behind.load(Ordering::Relaxed) < BEHIND_MAX
    }

    fn failure(&self) -> Option<&WriteError> {
        self.written.failure.get()
    }

    /// Later pages belong to the next epoch.
    fn prepare(&mut self, epoch: Epoch) {
        self.send(Message::Prepare(epoch.0));
        self.epoch = epoch.0 + 1;
    }

    fn is_prepared(&self, epoch: Epoch) -> bool {
        self.written.prepared.load(Ordering::Acquire) >= epoch.0
    }

    /// The rows of newer epochs were prepared, and never recorded by the crawl.
    fn resumed(&mut self, last: Option<Epoch>) {
        let last = last.map_or(0, |epoch| epoch.0);
        self.send(Message::Resume(last));
        self.epoch = last + 1;
    }
}

/// Writes pages, an epoch in a transaction.
fn write(
    database: &Connection,
    messages: &Receiver<Message>,
    written: &Written,
) -> rusqlite::Result<()> {
    for message in messages {
        match message {
            Message::Resume(last) => {
                database.execute("DELETE FROM page WHERE epoch > ?1", [last])?;
            }
            Message::Page(epoch, page) => {
                if database.is_autocommit() {
                    database.execute_batch("BEGIN")?;
                }
                insert(database, epoch, &page)?;
                written.behind.fetch_sub(1, Ordering::Relaxed);
            }
            Message::Prepare(epoch) => {
                if !database.is_autocommit() {
                    database.execute_batch("COMMIT")?;
                }
                written.prepared.store(epoch, Ordering::Release);
            }
        }
    }
    Ok(())
}

fn insert(database: &Connection, epoch: u64, page: &Page) -> rusqlite::Result<()> {
    let insert = "INSERT INTO page VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    database.prepare_cached(insert)?.execute(params![
        epoch,
        page.id,
        page.url,
        page.is_final,
        page.status,
        page.failure.as_ref().map(|failure| failure.code()),
        page.body,
    ])?;
    Ok(())
}

/// Unpredictable bytes: servers must not be able to choose URLs with equal keys.
fn secret() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let folder = args.next().ok_or("usage: sqlite FOLDER URL...")?;
    let reason = crawl(folder.as_ref(), Config::default(), args.collect())?;
    println!("{reason}");
    Ok(())
}
