//! A crawl in a plain thread. A handle feeds it from here, and waits while it has no room; its pages
//! come back through a channel. It sleeps until the last handle is gone, and then ends.
//!
//! ```sh
//! cargo run --example in_a_thread -- http://example.com/ http://example.org/
//! ```

use std::{env, error::Error, sync::mpsc, thread};

use argiope::{Config, Crawler, FinishReason, Page, Request};

/// Asks for these one after the other, each when the one before it has been answered.
pub fn crawl(config: Config, urls: Vec<String>) -> Result<Vec<Page>, Box<dyn Error>> {
    let (tell, pages) = mpsc::channel();
    let mut crawler = Crawler::builder(config)
        .sink(move |page: Page| drop(tell.send(page)))
        .build()?;
    let handle = crawler.handle();
    let crawl = thread::spawn(move || crawler.run());
    let mut answered = Vec::new();
    for url in urls {
        let id = handle.submit(Request::get(url))?;
        // A retry or a redirect goes on; the page that is final has the number, too.
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
