//! Decides which requests carry the credentials among the header fields of every request (`-H`), and which header
//! fields single hosts get (`HOSTS`).
//!
//! Credentials of every request belong to the origins of the seeds: a page may link or redirect to any other, whose
//! owner would read them. Those of a host are chosen anew for each request, by its URL, so that no redirect takes them
//! elsewhere.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::base::keys::Keys;
use crate::base::secret::Secret;
use crate::crawl::config::EVERY_ORIGIN;
use crate::fetch::settings::FetchSettings;
use crate::frontier::host_settings::{HostSettings, HostTable};
use crate::frontier::job::Job;
use crate::wire::http::{RequestError, UsualFields};
use crate::wire::url::CrawlUrl;

/// The header fields of every request: all of them, and those without credentials.
#[derive(Debug)]
pub struct Credentials {
    all: UsualFields,
    /// `None` if none of them is a credential, or every origin gets all.
    limited: Option<Limited>,
    /// The origins that get all of them.
    origins: Origins,
    /// `CREDENTIAL_ORIGINS` names every origin.
    names_every_origin: bool,
    /// A Cookie field is among them.
    #[cfg(feature = "cookies")]
    holds_cookies: bool,
    /// The settings of hosts, and their fields by the position of the entry.
    hosts: Arc<HostTable>,
    of_hosts: Vec<OwnFields>,
}

/// The header fields of the requests to the hosts of an entry.
#[derive(Debug)]
struct OwnFields {
    /// Over all fields, for an origin that gets the credentials of every request.
    all: UsualFields,
    /// Over those without credentials.
    public: UsualFields,
    /// Whether each credential of every request is replaced by one of its own.
    replaces_credentials: bool,
    /// A Cookie field is among its own.
    #[cfg(feature = "cookies")]
    holds_cookies: bool,
}

impl OwnFields {
    fn new(settings: &FetchSettings, own: &HostSettings) -> Result<Self, RequestError> {
        let named = &settings.private_headers;
        let is_public = |(name, _): &&(String, String)| !is_private(name, named);
        let user = own.user.as_ref();
        let user = user.map(|login| (AUTHORIZATION.to_owned(), login.authorization()));
        let own_fields: Vec<(String, String)> = own.headers.iter().cloned().chain(user).collect();
        let over = |is_limited: bool| {
            let base = settings
                .headers
                .iter()
                .filter(|field| !own.replaces(&field.0) && (!is_limited || is_public(field)));
            let mut settings = FetchSettings {
                headers: base.chain(&own_fields).cloned().collect(),
                ..settings.clone()
            };
            if let Some(agent) = &own.user_agent {
                settings.user_agent.clone_from(agent);
            }
            settings.usual_fields()
        };
        Ok(OwnFields {
            all: over(false)?,
            public: over(true)?,
            replaces_credentials: (settings.headers.iter())
                .filter(|field| !is_public(field))
                .all(|(name, _)| own.replaces(name)),
            #[cfg(feature = "cookies")]
            holds_cookies: own_fields.iter().any(|(name, _)| is_cookie(name)),
        })
    }
}

#[cfg(feature = "cookies")]
fn is_cookie(name: &str) -> bool {
    name.eq_ignore_ascii_case("cookie")
}

const AUTHORIZATION: &str = "Authorization";

/// Header fields, of which some are sent to the origins of the seeds only.
#[derive(Debug)]
struct Limited {
    /// Fields for every origin.
    public: UsualFields,
    /// Names of the other fields, for the warning.
    names: String,
    has_warned: bool,
}

/// Origins, by a hash under a secret: eight bytes for each origin of a seed.
#[derive(Debug)]
struct Origins {
    hashes: HashTable<u64>,
    keys: Keys,
}

/// Origins of seeds that are known though no field is a credential: a run that resumes the crawl may be given one.
/// Crawls that log in have few seeds; of those with very many, no run pays for more.
const ORIGINS_WITHOUT_CREDENTIALS: usize = 10_000;

/// Fields that are sent to one origin only: credentials, and `Host`.
const PRIVATE: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "host"];

/// Whether a header field is sent to one origin only: a known credential, or named in `PRIVATE_HEADERS`
/// or in its request.
pub fn is_private(name: &str, named: &[String]) -> bool {
    let is_it = |other: &str| other.eq_ignore_ascii_case(name);
    PRIVATE.into_iter().any(is_it) || named.iter().any(|other| is_it(other))
}

impl Credentials {
    /// Their settings. `hosts`: those of single hosts.
    ///
    /// # Errors
    /// A field cannot be put on the wire.
    pub fn new(
        settings: &FetchSettings,
        hosts: &Arc<HostTable>,
        secret: &Secret,
    ) -> Result<Self, RequestError> {
        let mut settings = settings.clone();
        if let Some(login) = settings.user.take() {
            let field = (AUTHORIZATION.to_owned(), login.authorization());
            settings.headers.push(field);
        }
        let settings = &settings;
        let of_hosts = hosts
            .complete()
            .map(|entry| OwnFields::new(settings, &entry.settings));
        let of_hosts = of_hosts.collect::<Result<Vec<_>, _>>()?;
        let hosts = Arc::clone(hosts);
        let all = settings.usual_fields()?;
        let private = |(name, _): &&(String, String)| is_private(name, &settings.private_headers);
        let mut names: Vec<&str> = (settings.headers.iter().filter(private))
            .map(|(name, _)| name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        #[cfg(feature = "cookies")]
        let holds_cookies = names.iter().any(|name| is_cookie(name));
        let mut origins = Origins {
            hashes: HashTable::new(),
            keys: *secret.keys(),
        };
        let widened = &settings.credential_origins;
        let names_every_origin = widened.iter().any(|origin| origin == EVERY_ORIGIN);
        for origin in widened {
            origins.add(origin);
        }
        if names.is_empty() || names_every_origin {
            return Ok(Credentials {
                all,
                limited: None,
                origins,
                names_every_origin,
                #[cfg(feature = "cookies")]
                holds_cookies,
                hosts,
                of_hosts,
            });
        }
        let mut public = settings.clone();
        public.headers.retain(|field| !private(&field));
        let limited = Limited {
            public: public.usual_fields()?,
            names: names.join(", "),
            has_warned: false,
        };
        Ok(Credentials {
            all,
            limited: Some(limited),
            origins,
            names_every_origin,
            #[cfg(feature = "cookies")]
            holds_cookies,
            hosts,
            of_hosts,
        })
    }

    /// The user has named a URL of this origin: it gets all fields. Returns whether that is new, and to be known in
    /// later runs.
    pub fn add_origin(&mut self, origin: &str) -> bool {
        let is_kept =
            self.limited.is_some() || self.origins.hashes.len() < ORIGINS_WITHOUT_CREDENTIALS;
        is_kept && self.origins.add(origin)
    }

    /// Whether there are fields that only origins of the seeds get.
    pub fn are_limited(&self) -> bool {
        self.limited.is_some()
    }

    /// Whether the origin of a URL may have credentials, also those of a later run: it is that of a seed, or named in
    /// `CREDENTIAL_ORIGINS`.
    pub fn may_reach(&self, url: &CrawlUrl) -> bool {
        self.names_every_origin || self.origins.has(url.origin())
    }

    /// Whether a request to a URL may carry the credentials.
    pub fn are_for(&self, url: &CrawlUrl) -> bool {
        self.limited.is_none() || self.origins.has(url.origin())
    }

    /// Whether the fields from here for a job's request include a Cookie field.
    #[cfg(feature = "cookies")]
    pub fn bring_cookies(&self, job: &Job) -> bool {
        let of_host = self.of_host(job);
        of_host.is_some_and(|own| own.holds_cookies)
            || self.holds_cookies && (self.limited.is_none() || self.reach(job))
    }

    /// The fields of a job's request.
    pub fn fields(&self, job: &Job) -> &UsualFields {
        let gets_all = self.limited.is_none() || self.reach(job);
        match (self.of_host(job), &self.limited) {
            (Some(own), _) if gets_all => &own.all,
            (Some(own), _) => &own.public,
            (None, Some(limited)) if !gets_all => &limited.public,
            (None, _) => &self.all,
        }
    }

    /// The settings of the host of a URL.
    pub fn settings_of(&self, url: &CrawlUrl) -> Option<&HostSettings> {
        self.hosts.of(url).map(|entry| &entry.settings)
    }

    /// The fields for the host of a job's request, if it has its own.
    fn of_host(&self, job: &Job) -> Option<&OwnFields> {
        let entry = self.hosts.of(&job.url)?;
        self.of_hosts.get(entry.position)
    }

    fn reach(&self, job: &Job) -> bool {
        !job.is_without_credentials() && self.are_for(&job.url)
    }

    /// The warning for the first job sent without credentials.
    pub(in crate::crawl) fn warning(&mut self, job: &Job) -> Option<String> {
        let of_host = self.of_host(job);
        let has_own = of_host.is_some_and(|own| own.replaces_credentials);
        if job.is_without_credentials() || has_own || self.are_for(&job.url) {
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

impl Origins {
    /// Adds an origin; returns whether it is new.
    fn add(&mut self, origin: &str) -> bool {
        let hash = self.keys.origin(origin).0;
        match self.hashes.entry(hash, |other| *other == hash, |h| *h) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(hash);
                true
            }
        }
    }

    fn has(&self, origin: &str) -> bool {
        let hash = self.keys.origin(origin).0;
        self.hashes.find(hash, |other| *other == hash).is_some()
    }
}
