//! Links that are found outside of the crawl's thread, as the crawler takes them.

use std::sync::Arc;

use crate::crawl::crawler::Crawler;
use crate::io::Io;
use crate::sink::later::{LinksLater, OpenPage};
use crate::sink::page::Page;

impl<I: Io> Crawler<I> {
    /// Holds a page open that was pulled, until its links are known: see [`LinksLater`]. The links go
    /// [as the page did](Page::route) unless they name another way.
    pub fn links_later(&self, page: &Page) -> LinksLater {
        let page = OpenPage {
            id: page.id,
            root: page.root,
            url: page.url.as_str().into(),
            depth: page.depth,
            route: page.route.clone(),
        };
        let found = Arc::clone(self.core.found());
        LinksLater::new(page, found)
    }
}
