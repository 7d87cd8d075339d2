//! Decides which requests carry the credentials among the header fields of every request (`-H`).
//!
//! They belong to the origins of the seeds: a page may link or redirect to any other, whose owner
//! would read them.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::base::keys::Keys;
use crate::base::secret::Secret;
use crate::crawl::config::EVERY_ORIGIN;
use crate::fetch::settings::FetchSettings;
use crate::frontier::job::Job;
use crate::wire::http::{RequestError, UsualFields};
use crate::wire::url::CrawlUrl;

/// The header fields of every request: all of them, and those without credentials.
#[derive(Debug)]
pub struct Credentials {
    all: UsualFields,
    /// `None` if none of them is a credential, or every origin gets all.
    limited: Option<Limited>,
    /// A Cookie field is among them.
    #[cfg(feature = "cookies")]
    holds_cookies: bool,
}

/// Header fields, of which some are sent to the origins of the seeds only.
#[derive(Debug)]
struct Limited {
    /// Fields for every origin.
    public: UsualFields,
    /// Names of the other fields, for the warning.
    names: String,
    /// Origins that get all of them, by a hash under a secret: eight bytes for each origin of a seed.
    origins: HashTable<u64>,
    keys: Keys,
    has_warned: bool,
}

/// Fields that are sent to one origin only: credentials, and `Host`.
const PRIVATE: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "host"];

/// Whether a header field is sent to one origin only: a known credential, or named in `PRIVATE_HEADERS`
/// or in its request.
pub fn is_private(name: &str, named: &[String]) -> bool {
    let is_it = |other: &str| other.eq_ignore_ascii_case(name);
    PRIVATE.into_iter().any(is_it) || named.iter().any(|other| is_it(other))
}

impl Credentials {
    /// Their settings.
    ///
    /// # Errors
    /// A field cannot be put on the wire.
    pub fn new(settings: &FetchSettings, secret: &Secret) -> Result<Self, RequestError> {
        let all = settings.usual_fields()?;
        let private = |(name, _): &&(String, String)| is_private(name, &settings.private_headers);
        let mut names: Vec<&str> = (settings.headers.iter().filter(private))
            .map(|(name, _)| name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        #[cfg(feature = "cookies")]
        let holds_cookies = names.iter().any(|name| name.eq_ignore_ascii_case("cookie"));
        let widened = &settings.credential_origins;
        if names.is_empty() || widened.iter().any(|origin| origin == EVERY_ORIGIN) {
            return Ok(Credentials {
                all,
                limited: None,
                #[cfg(feature = "cookies")]
                holds_cookies,
            });
        }
        let mut public = settings.clone();
        public.headers.retain(|field| !private(&field));
        let mut limited = Limited {
            public: public.usual_fields()?,
            names: names.join(", "),
            origins: HashTable::new(),
            keys: *secret.keys(),
            has_warned: false,
        };
        for origin in widened {
            limited.add(origin);
        }
        Ok(Credentials {
            all,
            limited: Some(limited),
            #[cfg(feature = "cookies")]
            holds_cookies,
        })
    }

    /// The user has named a URL of this origin: it gets all fields. Returns whether that is new.
    pub fn add_origin(&mut self, origin: &str) -> bool {
        self.limited
            .as_mut()
            .is_some_and(|limited| limited.add(origin))
    }

    /// Whether there are fields that only origins of the seeds get.
    pub fn are_limited(&self) -> bool {
        self.limited.is_some()
    }

    /// Whether a request to a URL may carry the credentials.
    pub fn are_for(&self, url: &CrawlUrl) -> bool {
        let limited = self.limited.as_ref();
        limited.is_none_or(|limited| limited.has(url.origin()))
    }

    /// Whether the fields from here for a job's request include a Cookie field.
    #[cfg(feature = "cookies")]
    pub fn bring_cookies(&self, job: &Job) -> bool {
        self.holds_cookies && (self.limited.is_none() || self.reach(job))
    }

    /// The fields of a job's request.
    pub fn fields(&self, job: &Job) -> &UsualFields {
        match &self.limited {
            Some(limited) if !self.reach(job) => &limited.public,
            _ => &self.all,
        }
    }

    fn reach(&self, job: &Job) -> bool {
        !job.is_without_credentials() && self.are_for(&job.url)
    }

    /// The warning for the first job sent without credentials.
    pub(in crate::crawl) fn warning(&mut self, job: &Job) -> Option<String> {
        if job.is_without_credentials() || self.are_for(&job.url) {
            return None;
        }
        let limited = self.limited.as_mut()?;
        if std::mem::replace(&mut limited.has_warned, true) {
            return None;
        }
        Some(format!(
            "{} is sent to the origins of the seeds only, not to {} and other origins; to send it \
             there, add -s CREDENTIAL_ORIGINS={}",
            limited.names,
            job.url.origin(),
            job.url.origin(),
        ))
    }
}

impl Limited {
    /// Adds an origin; returns whether it is new.
    fn add(&mut self, origin: &str) -> bool {
        let hash = self.keys.origin(origin).0;
        match self.origins.entry(hash, |other| *other == hash, |h| *h) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(hash);
                true
            }
        }
    }

    fn has(&self, origin: &str) -> bool {
        let hash = self.keys.origin(origin).0;
        self.origins.find(hash, |other| *other == hash).is_some()
    }
}
