//! A crawl in your own epoll loop, with another descriptor from which URLs are read as lines. The crawl's
//! descriptor becomes readable at its deadlines, so the wait needs no timeout.
use std::{error::Error, io::Read, os::fd::AsFd, time::Duration};

use argiope::{Config, Crawler, Page, Request, Turn};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// Crawls URLs until the end of the input; returns why the crawl ended.
pub fn crawl(mut crawler: Crawler, mut lines: impl Read + AsFd) -> Result<String, Box<dyn Error>> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &crawler, EventData::new_u64(0), EventFlags::IN)?;
    epoll::add(&epoll, &lines, EventData::new_u64(1), EventFlags::IN)?;
    // While a handle exists the crawl does not end.
    let mut handle = Some(crawler.handle());
    let (mut events, mut unread, mut buffer) = (Vec::with_capacity(2), Vec::new(), [0; 4096]);
    loop {
        if let Turn::Over(reason) = crawler.turn(Some(Duration::ZERO)) {
            return Ok(reason.to_string());
        }
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        if events.drain(..).any(|event| event.data.u64() == 1) {
            let length = lines.read(&mut buffer)?;
            unread.extend(&buffer[..length]);
            if length == 0 && handle.take().is_some() {
                epoll::delete(&epoll, &lines)?;
            }
            while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = unread.drain(..=end).collect();
                crawler.submit(Request::get(str::from_utf8(&line)?.trim()))?;
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let sink = |page: Page| println!("{:?} {}", page.status, page.url);
    let crawler = Crawler::builder(Config::default()).sink(sink).build()?;
    println!("{}", crawl(crawler, std::io::stdin())?);
    Ok(())
}
