//! What a crawl runs on, as a bound for programs that are generic over it.

use super::sim::Sim;
use super::{Io, Kernel};

/// What a crawl runs on: the kernel, or the [simulation](crate::sim).
///
/// A function that is generic over it is written once, and crawls the real web in a program and a
/// simulated one, in virtual time, in its tests. `Crawler` alone names a crawler on the kernel, and
/// [`Builder::build_in`](crate::Builder::build_in) makes one in the simulation. Both have the same methods, but
/// for the [descriptor](crate::Crawler::as_fd), which only the kernel has.
///
/// ```
/// use argiope::sim::{Reply, Web};
/// use argiope::{AdmitError, Config, Crawler, Platform, Request};
///
/// /// Counts the pages that answer with 200.
/// fn good_pages<P: Platform>(crawler: &mut Crawler<P>, urls: &[&str]) -> Result<usize, AdmitError> {
///     for url in urls {
///         crawler.submit(Request::get(*url))?;
///     }
///     let pages = std::iter::from_fn(|| crawler.next_result());
///     Ok(pages.filter(|page| page.status == Some(200)).count())
/// }
///
/// let mut real = Crawler::builder(Config::default()).build()?;
/// assert_eq!(good_pages(&mut real, &[])?, 0);
///
/// let web = Web::new(|_| Reply::page("a page"));
/// let mut simulated = Crawler::builder(Config::default()).build_in(&web, 1)?;
/// assert_eq!(good_pages(&mut simulated, &["http://example.com/"])?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It is sealed: no other type implements it.
pub trait Platform: Io + sealed::Sealed {}

impl Platform for Kernel {}
impl Platform for Sim {}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::Kernel {}
    impl Sealed for super::Sim {}
}
