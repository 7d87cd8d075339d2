//! A reply after its head and before its body: a sink decides how it gets the body.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::slab::Key;
pub use crate::fetch::body::BodyMode;
use crate::fetch::timings::Timings;
use crate::fetch::tls::{Certificates, TlsInfo};
use crate::sink::later::{Leads, LinksLater, OpenPage};
use crate::wire::http::Headers;
use crate::wire::proxy::Route;

/// The head of a page's reply, passed to [`Sink::on_head`](super::Sink::on_head).
#[derive(Clone)]
#[non_exhaustive]
pub struct Reply<'a> {
    /// Number of the attempt: the `id` of its page.
    pub id: u64,
    /// The caller's number.
    pub tag: u64,
    /// The URL, canonical, without fragment.
    pub url: &'a str,
    /// 1 for the first attempt at this URL. An attempt with a status in `RETRY_HTTP_CODES` is
    /// retried.
    pub attempt: u32,
    /// The status code, 200 to 999.
    pub status: u16,
    /// The header fields, in order, as sent.
    pub headers: &'a Headers,
    /// Address of the peer.
    pub remote: SocketAddr,
    /// The TLS parameters, if TLS is used.
    pub tls: Option<TlsInfo>,
    /// The certificate chain sent by the server; empty without TLS.
    pub certificates: Certificates,
    /// When each phase so far ended.
    pub timings: &'a Timings,
    pub(crate) held: Held,
    pub(crate) resumed: &'a ResumeFn,
    pub(crate) root: u64,
    pub(crate) depth: u32,
    pub(crate) route: Option<&'a Route>,
    pub(crate) leads: &'a Arc<dyn Leads>,
}

/// Callback that resumes reading a body.
pub(crate) type ResumeFn = Arc<dyn Fn(Held) + Send + Sync>;

impl Reply<'_> {
    /// A handle that resumes reading the body after [`Flow::Full`], from any thread.
    pub fn resume(&self) -> Resume {
        Resume {
            held: self.held,
            resumed: Arc::clone(self.resumed),
        }
    }

    /// Keeps the page open until its links are known. Each attempt is a page of its own: drop the
    /// handle if the page turns out not to be [final](super::page::Page::is_final).
    pub fn links_later(&self) -> LinksLater {
        let page = OpenPage {
            id: self.id,
            root: self.root,
            url: self.url.into(),
            depth: self.depth,
            route: self.route.cloned(),
        };
        LinksLater::new(page, Arc::clone(self.leads))
    }
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("id", &self.id)
            .field("url", &self.url)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl<'a> Reply<'a> {
    /// The head of this page; resuming has no effect.
    pub(crate) fn of(page: &'a super::page::Page) -> Self {
        static NO_RESUME: std::sync::LazyLock<ResumeFn> =
            std::sync::LazyLock::new(|| Arc::new(|_| ()));
        static NOWHERE: std::sync::LazyLock<Arc<dyn Leads>> =
            std::sync::LazyLock::new(|| Arc::new(super::later::NoLeads));
        Reply {
            id: page.id,
            tag: page.tag,
            url: &page.url,
            attempt: page.attempt,
            status: page.status.expect("a head has a status"),
            headers: &page.headers,
            remote: page.remote.expect("it came from somewhere"),
            tls: page.tls,
            certificates: page.certificates.clone(),
            timings: &page.timings,
            held: Held {
                attempt: page.id,
                socket: Key {
                    slot: 0,
                    generation: 0,
                },
            },
            resumed: &NO_RESUME,
            root: page.root,
            depth: page.depth,
            route: page.route.as_ref(),
            leads: &NOWHERE,
        }
    }
}

/// Whether a sink accepts more of a body now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    Ready,
    /// It does not. No more of this body is delivered or read until [`Resume::resume`] is called.
    /// Besides what the sink has received, a paused body uses memory for what was read before (at
    /// most 256 KiB in coded form), the state of its content codings (some tens of KiB; up to 8 MiB
    /// for zstd and 16 MiB for br with their largest windows), and the kernel's buffers. Other
    /// bodies continue.
    Full,
}

/// Resumes reading the body of one reply. No effect if that has ended. A call before the sink
/// returns [`Flow::Full`] may cancel that: the sink then receives one more piece.
#[derive(Clone)]
pub struct Resume {
    pub(crate) held: Held,
    pub(crate) resumed: ResumeFn,
}

/// A body paused by a sink: its attempt and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Held {
    pub attempt: u64,
    pub socket: Key,
}

impl Resume {
    /// Resumes reading.
    pub fn resume(&self) {
        (self.resumed)(self.held);
    }
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resume").field(&self.held).finish()
    }
}

/// Bodies to resume, until the crawl handles them.
pub(crate) struct Resumed {
    bodies: Arc<Mutex<BTreeSet<Held>>>,
    resume_fn: ResumeFn,
}

impl Resumed {
    /// `wake` is called when the set becomes non-empty.
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        let bodies: Arc<Mutex<BTreeSet<Held>>> = Arc::default();
        let added = Arc::clone(&bodies);
        let resume_fn = Arc::new(move |body| {
            let mut bodies = lock(&added);
            let first = bodies.is_empty();
            bodies.insert(body);
            drop(bodies);
            if first {
                wake();
            }
        });
        Resumed { bodies, resume_fn }
    }

    /// The callback that adds a body.
    pub(crate) fn resume_fn(&self) -> &ResumeFn {
        &self.resume_fn
    }

    /// Takes one body to resume.
    pub(crate) fn take(&self) -> Option<Held> {
        lock(&self.bodies).pop_first()
    }
}

/// A panic while the lock was held leaves the set consistent.
fn lock(bodies: &Mutex<BTreeSet<Held>>) -> MutexGuard<'_, BTreeSet<Held>> {
    bodies.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resumed")
    }
}
