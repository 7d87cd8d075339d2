//! A crawl in a thread. The main thread submits by a handle, which blocks while the queue is full, and
//! receives pages from a channel. The crawl ends when the last handle is dropped.
//!
//! ```sh
//! cargo run --example in_a_thread -- http://example.com/ http://example.org/
//! ```

use std::{env, error::Error, sync::mpsc, thread};

use argiope::{Config, Crawler, FinishReason, Page, Request};

/// Fetches these URLs in sequence, each after the answer to the one before.
pub fn crawl(config: Config, urls: Vec<String>) -> Result<Vec<Page>, Box<dyn Error>> {
    let (sender, pages) = mpsc::channel();
    let mut crawler = Crawler::builder(config)
        .sink(move |page: Page| drop(sender.send(page)))
        .build()?;
    let handle = crawler.handle();
    let crawl = thread::spawn(move || crawler.run());
    let mut answered = Vec::new();
    for url in urls {
        let id = handle.submit(Request::get(url))?;
        // Retries and redirects have the same `root`; the last page is final.
        let is_last = |page: &Page| page.root == id && page.is_final;
        answered.extend(pages.iter().find(is_last));
    }
    drop(handle);
    let reason = crawl.join().expect("no sink panics");
    assert_eq!(reason, FinishReason::Finished);
    Ok(answered)
}

fn main() -> Result<(), Box<dyn Error>> {
    for page in crawl(Config::default(), env::args().skip(1).collect())? {
        println!("{:?} {}", page.status, page.url);
    }
    Ok(())
}
