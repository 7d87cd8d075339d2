//! One function for a crawl of the real web and of a simulated one: `main` runs it on the kernel, the test in
//! virtual time.
//!
//! ```sh
//! cargo run --example one_function -- https://quotes.toscrape.com/
//! ```

use std::{env, error::Error, iter};

use argiope::{AdmitError, Config, Crawler, Page, Platform, Request};

/// Fetches these URLs; returns those that are gone.
pub fn gone<P: Platform>(
    crawler: &mut Crawler<P>,
    urls: &[String],
) -> Result<Vec<String>, AdmitError> {
    for url in urls {
        crawler.submit(Request::get(url))?;
    }
    let is_gone = |page: &Page| matches!(page.status, Some(404 | 410));
    let pages = iter::from_fn(|| crawler.next_result());
    Ok(pages.filter(is_gone).map(|page| page.url).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let urls: Vec<String> = env::args().skip(1).collect();
    let mut crawler = Crawler::builder(Config::default()).build()?;
    for url in gone(&mut crawler, &urls)? {
        println!("{url}");
    }
    Ok(())
}

#[cfg(test)]
#[test]
fn pages_with_404_or_410_are_gone() {
    use argiope::sim::{Reply, Web};

    let web = Web::new(|asked| match &*asked.target {
        "/robots.txt" | "/old" => Reply::status(404),
        _ => Reply::page("a page"),
    });
    let urls = ["/old", "/new"].map(|path| format!("http://example.com{path}"));
    let builder = Crawler::builder(Config::default());
    let mut crawler = builder.build_in(&web, 1).expect("it can be set up");
    assert_eq!(gone(&mut crawler, &urls), Ok(vec![urls[0].clone()]));
}
