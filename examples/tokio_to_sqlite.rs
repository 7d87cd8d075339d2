//! Requests from a tokio channel, each under a scope that it names and under its host, and their pages to SQLite. Every
//! part waits for the one behind it: the database for the disk, the crawl for the database, the producer for the crawl.
//!
//! Lines of standard input are `SCOPE URL`: `echo 'key/a https://example.com/' | cargo run --features tokio --example tokio_to_sqlite -- FILE`
use std::{env, error::Error, io, path::PathBuf, thread};

use argiope::serde_json::{self, json};
use argiope::{
    ByHost, ChannelSource, Config, Crawler, FinishReason, Page, Request, ScopeMap, ScopeQuery,
};
use rusqlite::{Connection, params};
use tokio::sync::mpsc::{Receiver, Sender, channel};

type Failure = Box<dyn Error + Send + Sync>;

/// The scope that the `meta` of a request names, and its host, which keeps its own pace. A refusal slows the host, as
/// the last is the most specific.
pub struct NamedAndHost;

impl ScopeMap for NamedAndHost {
    fn scopes(&self, query: &mut ScopeQuery<'_>) {
        if let Some(Ok(scope)) = query.meta().map(serde_json::from_str::<String>) {
            query.add(scope);
        }
        ByHost.scopes(query);
    }
}

/// Crawls what comes from the channel, until it is closed.
pub async fn harvest(
    config: Config,
    requests: Receiver<Request>,
    file: PathBuf,
) -> Result<Option<FinishReason>, Failure> {
    let source = ChannelSource::from(requests).at_once(1000);
    let builder = Crawler::builder(config).scope_map(NamedAndHost);
    let mut crawl = builder.source(source).build()?.spawn()?;
    let (rows, pages) = channel(100);
    let writer = tokio::task::spawn_blocking(move || write(pages, file));
    while let Some(page) = crawl.next().await {
        // The writer has failed if it takes no more; dropping the crawl stops it.
        if rows.send(page).await.is_err() {
            break;
        }
    }
    drop(rows);
    writer.await??;
    let crawler = crawl.finish().await;
    Ok(crawler.progress().finish_reason)
}

/// Writes pages, as many in one transaction as there are.
fn write(mut pages: Receiver<Page>, file: PathBuf) -> Result<(), Failure> {
    let mut database = Connection::open(file)?;
    database.execute_batch(
        "CREATE TABLE IF NOT EXISTS pages (url TEXT, scope TEXT, status INTEGER, failure TEXT, body BLOB)",
    )?;
    while let Some(first) = pages.blocking_recv() {
        let transaction = database.transaction()?;
        let mut next = Some(first);
        while let Some(page) = next {
            let failure = page.failure.as_ref().map(|failure| failure.code());
            let row = params![
                page.url,
                page.scopes.first(),
                page.status,
                failure,
                page.body
            ];
            transaction.execute("INSERT INTO pages VALUES (?1, ?2, ?3, ?4, ?5)", row)?;
            next = pages.try_recv().ok();
        }
        transaction.commit()?;
    }
    Ok(())
}

/// A setting for each scope that is to have another pace than the default. Hosts that refuse do not slow a key.
pub fn config() -> Result<Config, Failure> {
    Ok(Config::default().with("FOLLOW", "none")?.with(
        "THROTTLING_SCOPES",
        json!({
            "key/*": {"backoff": false},
            "key/a": {"delay": "2s"},
            "key/b": {"delay": "250ms", "concurrency": 4},
        }),
    )?)
}

/// Sends a request for each line; the receiver is gone once the crawl is over.
fn produce(requests: &Sender<Request>) -> Result<(), Failure> {
    for line in io::stdin().lines() {
        let line = line?;
        let (scope, url) = line.split_once(' ').ok_or("a line is SCOPE URL")?;
        if requests
            .blocking_send(Request::get(url).meta(scope))
            .is_err()
        {
            break;
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let file = env::args_os().nth(1).ok_or("which database?")?;
    let (sender, requests) = channel(100);
    let producer = thread::spawn(move || produce(&sender));
    let reason = harvest(config()?, requests, file.into()).await?;
    println!("{reason:?}");
    producer.join().expect("it does not panic")
}
