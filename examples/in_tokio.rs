//! A crawl inside a tokio program, on a thread of its own: one task submits, another takes the pages.
use argiope::{AsyncCrawl, Config, Crawler, Request, SubmitError};
use std::{env, error::Error};

/// Begins to crawl these URLs. Untaken pages pause the crawl, and the crawl pauses the task that submits.
pub fn crawl(config: Config, urls: Vec<String>) -> Result<AsyncCrawl, Box<dyn Error>> {
    let crawl = Crawler::builder(config).ahead(1000).build()?.spawn()?;
    let handle = crawl.handle();
    tokio::spawn(async move {
        for url in urls {
            match handle.submit(Request::get(url)).await {
                Ok(_) => {}
                Err(SubmitError::Over(_)) => return,
                Err(error) => eprintln!("{error}"),
            }
        }
    });
    Ok(crawl)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut crawl = crawl(Config::default(), env::args().skip(1).collect())?;
    while let Some(page) = crawl.next().await {
        println!("{:?} {}", page.status, page.url);
    }
    let crawler = crawl.finish().await;
    println!("{:?}", crawler.progress().finish_reason);
    Ok(())
}
