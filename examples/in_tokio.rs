//! A crawl inside a tokio program: a task takes its turns when its descriptor is readable, which is
//! when anything is due. Another submits; the caller takes the pages from a channel.
use argiope::{Config, Crawler, Page, Request, Turn, sink::function::FunctionSink};
use std::{env, error::Error, io, time::Duration};
use tokio::{io::unix::AsyncFd, sync::mpsc, task};

/// Drives a crawl to its end.
async fn drive(crawler: Crawler) -> io::Result<()> {
    // SAFETY: the descriptor is the crawler's own, and the same as long as that lives.
    let mut crawler = unsafe { AsyncFd::register(crawler)? };
    while crawler.get_mut().turn(Some(Duration::ZERO)) == Turn::GoesOn {
        crawler.readable_mut().await?.clear_ready();
    }
    Ok(())
}

/// Crawls these. Whoever does not take the pages holds the crawl back.
pub fn crawl(config: Config, urls: Vec<String>) -> Result<mpsc::Receiver<Page>, Box<dyn Error>> {
    let (tell, pages) = mpsc::channel(10_000);
    let room = tell.clone();
    // What is on its way when it says no is still put: as many as are in flight, 4096 at most.
    let sink = FunctionSink::new(move |page| tell.try_send(page).expect("there is room"));
    let sink = sink.ready_when(move || room.capacity() > 5_000);
    let crawler = Crawler::builder(config).sink(sink).build()?;
    let handle = crawler.handle();
    // `submit` waits while the crawl has no room, so it has a thread.
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
