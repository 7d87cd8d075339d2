//! A crawl of a day in virtual time, of a web defined by one function, reproducible from a seed. The
//! origin refuses requests less than nine seconds apart; a sink keeps the pages.
use std::{error::Error, sync::mpsc, time::Duration};

use argiope::sim::{Reply, Web};
use argiope::{Config, Crawler, FinishReason, Instant, Page, Request};

/// Fetches a page about every ten seconds for a day; returns the web with its record, and the pages.
pub fn day(seed: u64) -> Result<(Web, Vec<Page>), Box<dyn Error>> {
    let mut last = None;
    let web = Web::new(move |asked| {
        let before: Option<Instant> = last.replace(asked.at);
        match before.map(|before| asked.at.saturating_since(before)) {
            Some(gap) if gap < Duration::from_secs(9) => Reply::status(429),
            _ => Reply::page("a page").after(Duration::from_millis(300)),
        }
    });
    let config = Config::default()
        .with("DOWNLOAD_DELAY", "10s")?
        .with("RANDOMIZE_DOWNLOAD_DELAY", false)?
        .with("ROBOTSTXT_OBEY", false)?;
    let (sender, receiver) = mpsc::channel();
    let mut crawler = Crawler::builder(config)
        .sink(move |page: Page| sender.send(page).expect("it is received"))
        .build_in(&web, seed)?;
    for number in 0..8640 {
        crawler.submit(Request::get(format!("http://example.com/{number}")))?;
    }
    assert_eq!(crawler.run(), FinishReason::Finished);
    Ok((web, receiver.try_iter().collect()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (web, pages) = day(1)?;
    println!("{} pages, {} requests", pages.len(), web.asked().len());
    Ok(())
}
