//! A reply whose head is there and whose body is still to come: what a sink wants of it.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::slab::Key;
pub use crate::fetch::body_mode::BodyMode;
use crate::fetch::timings::Timings;
use crate::fetch::tls::{Certificates, TlsInfo};
use crate::sink::later::{Leads, LinksLater, OpenPage};
use crate::wire::http::Headers;
use crate::wire::proxy::Route;

/// The head of a page's reply, as [`Sink::on_head`](super::Sink::on_head) sees it.
#[derive(Clone)]
pub struct Reply<'a> {
    /// Number of the attempt: the `id` of its page.
    pub id: u64,
    /// The caller's own number.
    pub tag: u64,
    /// The URL, canonical, without fragment.
    pub url: &'a str,
    /// 1 for the first attempt at this URL. An attempt with a status of `RETRY_HTTP_CODES` is made
    /// again.
    pub attempt: u32,
    /// The status code, 200 to 999.
    pub status: u16,
    /// The header fields, in order, as sent.
    pub headers: &'a Headers,
    /// The peer.
    pub remote: SocketAddr,
    /// TLS, where there is any.
    pub tls: Option<TlsInfo>,
    /// The certificate chain that the server showed; none without TLS.
    pub certificates: Certificates,
    /// When each phase until now ended.
    pub timings: &'a Timings,
    pub(crate) held: Held,
    pub(crate) resumed: &'a Tell,
    pub(crate) root: u64,
    pub(crate) depth: u32,
    pub(crate) route: Option<&'a Route>,
    pub(crate) leads: &'a Arc<dyn Leads>,
}

/// Whom to tell that a body may be read on.
pub(crate) type Tell = Arc<dyn Fn(Held) + Send + Sync>;

impl Reply<'_> {
    /// What lets the body be read on after [`Flow::Full`], from any thread.
    pub fn resume(&self) -> Resume {
        Resume {
            held: self.held,
            resumed: Arc::clone(self.resumed),
        }
    }

    /// Holds the page open until its links are known, on whatever thread they are looked for. Each
    /// attempt is a page of its own: drop it where the page turns out not to be
    /// [final](super::page::Page::is_final).
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
    /// The head of this page, which nobody resumes.
    pub(crate) fn of(page: &'a super::page::Page) -> Self {
        static NOBODY: std::sync::LazyLock<Tell> = std::sync::LazyLock::new(|| Arc::new(|_| ()));
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
            resumed: &NOBODY,
            root: page.root,
            depth: page.depth,
            route: page.route.as_ref(),
            leads: &NOWHERE,
        }
    }
}

/// Whether a sink takes more of a body now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    Ready,
    /// It does not. Nothing more of this body comes until [`Resume::resume`] is called, and no more is read
    /// of its connection: beside what the sink was given, one body that is held costs what had been read
    /// by then, in its coded form (256 KiB at most), what its codings need to go on (some tens of KiB; 8 MiB
    /// for zstd, 16 MiB for br at their largest windows), and the buffers of the kernel. Others go on.
    Full,
}

/// Lets the body of one reply be read on. Of no effect where that is over. One that is told before the
/// sink says [`Flow::Full`] may undo that: the sink then gets one more piece.
#[derive(Clone)]
pub struct Resume {
    pub(crate) held: Held,
    pub(crate) resumed: Tell,
}

/// A body that a sink holds: of which attempt, and on which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Held {
    pub attempt: u64,
    pub socket: Key,
}

impl Resume {
    /// There is room again.
    pub fn resume(&self) {
        (self.resumed)(self.held);
    }
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resume").field(&self.held).finish()
    }
}

/// Bodies that may be read on, until the crawl looks for them.
pub(crate) struct Resumed {
    bodies: Arc<Mutex<BTreeSet<Held>>>,
    tell: Tell,
}

impl Resumed {
    /// `wake` is called when there is one after there was none.
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        let bodies: Arc<Mutex<BTreeSet<Held>>> = Arc::default();
        let told = Arc::clone(&bodies);
        let tell = Arc::new(move |body| {
            let mut bodies = lock(&told);
            let first = bodies.is_empty();
            bodies.insert(body);
            drop(bodies);
            if first {
                wake();
            }
        });
        Resumed { bodies, tell }
    }

    /// Whom to tell of one.
    pub(crate) fn tell(&self) -> &Tell {
        &self.tell
    }

    /// Takes one that was told and not taken yet.
    pub(crate) fn take(&self) -> Option<Held> {
        lock(&self.bodies).pop_first()
    }
}

/// Whoever panicked while holding it left a list that is whole.
fn lock(bodies: &Mutex<BTreeSet<Held>>) -> MutexGuard<'_, BTreeSet<Held>> {
    bodies.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resumed")
    }
}
