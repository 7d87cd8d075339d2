//! A crawl inside a tokio program: a task takes a turn when the descriptor is readable or a deadline
//! has passed. Another task submits; the caller receives pages from a channel.
use argiope::{Config, Crawler, Page, Request, Turn, sink::function::FunctionSink};
use std::{env, error::Error, io, time::Duration};
use tokio::{io::unix::AsyncFd, sync::mpsc, task};

/// Drives a crawl to its end.
async fn drive(crawler: Crawler) -> io::Result<()> {
    // SAFETY: the descriptor belongs to the crawler and never changes.
    let mut crawler = unsafe { AsyncFd::register(crawler)? };
    while crawler.get_mut().turn(Some(Duration::ZERO)) == Turn::GoesOn {
        crawler.readable_mut().await?.clear_ready();
    }
    Ok(())
}

/// Crawls these URLs. Untaken pages pause the crawl.
pub fn crawl(config: Config, urls: Vec<String>) -> Result<mpsc::Receiver<Page>, Box<dyn Error>> {
    let (sender, pages) = mpsc::channel(10_000);
    let room = sender.clone();
    // When it returns false, pages in flight are still put: at most 4096.
    let sink = FunctionSink::new(move |page| sender.try_send(page).expect("there is room"));
    let sink = sink.ready_when(move || room.capacity() > 5_000);
    let crawler = Crawler::builder(config).sink(sink).build()?;
    let handle = crawler.handle();
    // `submit` blocks while the queue is full, so it has a thread.
    let submit = move |url| handle.submit(Request::get(url)).map(drop);
    task::spawn_blocking(move || urls.into_iter().try_for_each(submit));
    task::spawn(drive(crawler));
    Ok(pages)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut pages = crawl(Config::default(), env::args().skip(1).collect())?;
    while let Some(page) = pages.recv().await {
        println!("{:?} {}", page.status, page.url);
    }
    Ok(())
}
