//! Crawls the sites of a file of seeds with spider: `spider_peer SEEDS OUT [WARC]`.
//!
//! 256 sites at a time; robots.txt is obeyed, a line is written for each page, and with WARC a file for each site
//! in that directory.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::sync::{Arc, Mutex};

use spider::configuration::Configuration;
use spider::utils::warc::WarcConfig;
use spider::website::Website;
use tokio::sync::Semaphore;

const SITES: usize = 256;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let seeds = fs::read_to_string(&arguments[1]).expect("a file of seeds");
    let out = BufWriter::new(File::create(&arguments[2]).expect("a file for lines"));
    let out = Arc::new(Mutex::new(out));
    let warc = arguments.get(3).cloned();
    if let Some(folder) = &warc {
        fs::create_dir_all(folder).expect("a folder for WARC files");
    }
    let slots = Arc::new(Semaphore::new(SITES));
    let mut sites = Vec::new();
    for (number, seed) in seeds.lines().map(str::to_owned).enumerate() {
        let slot = Arc::clone(&slots).acquire_owned().await.expect("it is open");
        let (out, warc) = (Arc::clone(&out), warc.clone());
        sites.push(tokio::spawn(async move {
            crawl(&seed, number, &out, warc.as_deref()).await;
            drop(slot);
        }));
    }
    for site in sites {
        site.await.expect("a site is crawled");
    }
    out.lock().expect("no one panicked").flush().expect("the disk has space");
}

async fn crawl(seed: &str, number: usize, out: &Arc<Mutex<BufWriter<File>>>, warc: Option<&str>) {
    let mut configuration = Configuration::new();
    configuration
        .with_respect_robots_txt(true)
        .with_danger_accept_invalid_certs(true)
        .with_delay(0);
    if let Some(folder) = warc {
        let path = format!("{folder}/{number}.warc");
        configuration.with_warc(WarcConfig { path, ..WarcConfig::default() });
    }
    let mut site = Website::new(seed);
    site.with_config(configuration);
    let mut pages = site.subscribe(64);
    let out = Arc::clone(out);
    let writer = tokio::spawn(async move {
        while let Ok(page) = pages.recv().await {
            let line = format!(
                "{{\"url\":\"{}\",\"status\":{}}}\n",
                page.get_url(),
                page.status_code.as_u16()
            );
            out.lock().expect("no one panicked").write_all(line.as_bytes()).expect("the disk has space");
        }
    });
    site.crawl().await;
    site.unsubscribe();
    drop(site);
    writer.await.expect("lines are written");
}
