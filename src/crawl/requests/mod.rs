//! Heads of requests on the wire, and the hosts that are allowed without a contact or without robots.txt.

pub mod credentials;

use std::net::IpAddr;
use std::sync::Arc;
#[cfg(feature = "cookies")]
use std::time::Duration;

use crate::base::secret::Secret;
use crate::base::time::Instant;
#[cfg(feature = "cookies")]
use crate::base::time::Wall;
use crate::crawl::config::{Config, HostsBound, PublicHosts};
use crate::crawl::requests::credentials::Credentials;
#[cfg(feature = "cookies")]
use crate::fetch::cookies::{Jar, LoadedFile};
use crate::fetch::exchange::{Description, Exchange};
use crate::fetch::failure::{Failure, FailureKind};
use crate::fetch::settings::FetchSettings;
use crate::fetch::timings::Timings;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
#[cfg(feature = "cookies")]
use crate::wire::http::Headers;
use crate::wire::http::{Limits, RequestError, UsualFields};
use crate::wire::proxy::Proxy;
use crate::wire::robots;
use crate::wire::url::CrawlUrl;

/// Header fields of all requests, cookies, and the public hosts allowed without a contact or without robots.txt.
pub struct Requests {
    config: Arc<Config>,
    credentials: Credentials,
    /// The cookie jar, if enabled.
    #[cfg(feature = "cookies")]
    jar: Option<Jar>,
    public_hosts: PublicHosts,
}

impl Requests {
    /// No request yet. `settings`: those of the configuration, completed.
    ///
    /// # Errors
    /// A header field of every request cannot be put on the wire.
    pub fn new(
        config: &Arc<Config>,
        settings: &FetchSettings,
        secret: &Secret,
    ) -> Result<Self, RequestError> {
        Ok(Requests {
            credentials: Credentials::new(settings, &config.frontier.own_hosts, secret)?,
            #[cfg(feature = "cookies")]
            jar: config.has_cookies().then(|| Jar::new(secret)),
            public_hosts: PublicHosts::new(config),
            config: Arc::clone(config),
        })
    }

    /// Bounds of replies are those of this configuration from now on.
    pub fn set_config(&mut self, config: Arc<Config>) {
        self.config = config;
    }

    /// Which requests carry credentials.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Whether there are header fields that only origins of the seeds get.
    pub fn are_limited(&self) -> bool {
        self.credentials.are_limited()
    }

    /// The user named a URL of this origin: it gets all header fields, credentials included. Returns whether
    /// that is new, and to be known in later runs.
    pub fn add_origin(&mut self, origin: &str) -> bool {
        self.credentials.add_origin(origin)
    }

    /// Writes a job's request into an exchange. Warns the first time that one goes without the user's
    /// credentials.
    ///
    /// # Errors
    /// It cannot be put on the wire.
    #[cfg_attr(
        not(feature = "cookies"),
        expect(unused_variables, reason = "cookies alone expire")
    )]
    pub fn write(
        &mut self,
        exchange: &mut Exchange,
        job: &Job,
        proxy: Option<&Proxy>,
        timings: Timings,
        now: Instant,
    ) -> Result<(), RequestError> {
        if let Some(warning) = self.credentials.warning(job) {
            log::warn!("{warning}");
        }
        #[cfg_attr(not(feature = "cookies"), expect(unused_mut, reason = "they are all"))]
        let mut fields = job.fields();
        #[cfg(feature = "cookies")]
        if let Some(cookies) = self.cookies_for(job, &fields, now) {
            fields.push(("Cookie".to_owned(), cookies));
        }
        let usual = self.credentials.fields(job);
        let described = describe(job, &fields, proxy, usual);
        let own = self.credentials.settings_of(&job.url);
        let description = Description {
            defers_decoding: self.config.io.workers > 0,
            body_max: described.body_max.or(own.and_then(|own| own.body_max)),
            ..described
        };
        exchange.renew(&description, &self.config.fetch, Limits::default(), timings)
    }

    /// The cookies that a job's request carries beside its own fields, as the value of their field.
    #[cfg(feature = "cookies")]
    fn cookies_for(&self, job: &Job, own: &[(String, String)], now: Instant) -> Option<String> {
        let jar = self.jar.as_ref()?;
        let is_cookie = |(name, _): &(String, String)| name.eq_ignore_ascii_case("cookie");
        let has_cookies = own.iter().any(is_cookie) || self.credentials.bring_cookies(job);
        if job.flags.dont_merge_cookies || has_cookies {
            return None;
        }
        jar.header(&job.url, now)
    }

    /// Stores the cookies of a reply to a job's request.
    #[cfg(feature = "cookies")]
    pub fn handle_headers(&mut self, job: &Job, headers: &Headers, wall: Wall, now: Instant) {
        if let Some(jar) = &mut self.jar
            && !job.flags.dont_merge_cookies
        {
            jar.take(&job.url, headers.get_all("set-cookie"), wall, now);
        }
    }

    /// Adds the cookies of a file. Returns what it has; `None` if there is no jar.
    #[cfg(feature = "cookies")]
    pub fn load_cookies(&mut self, file: &str, wall: Wall, now: Instant) -> Option<LoadedFile> {
        let jar = self.jar.as_mut()?;
        Some(jar.load(file, wall, now))
    }

    /// Saves cookies from now on.
    #[cfg(feature = "cookies")]
    pub fn start_saving(&mut self) {
        self.jar.iter_mut().for_each(Jar::start_saving);
    }

    /// The next registrable domain whose cookies changed, and these as bytes.
    #[cfg(feature = "cookies")]
    pub fn poll_cookies(&mut self, now: Instant) -> Option<(Box<str>, Vec<u8>)> {
        self.jar.as_mut()?.poll_unsaved(now)
    }

    /// Adds cookies that an earlier run saved `elapsed` ago. Returns whether there are any.
    #[cfg(feature = "cookies")]
    pub fn restore_cookies(
        &mut self,
        saved: &[u8],
        elapsed: Duration,
        wall: Wall,
        now: Instant,
    ) -> bool {
        let jar = self.jar.as_mut();
        jar.is_some_and(|jar| jar.restore(saved, elapsed, wall, now))
    }

    /// Checks whether a URL's host is allowed: it is not public, hosts are not bounded, or it is among the first public
    /// hosts. The error is the failure of the request.
    pub fn check_public(&mut self, url: &CrawlUrl) -> Result<(), Failure> {
        let is_admitted = self.public_hosts.admits(url);
        match self.public_hosts.bound().filter(|_| !is_admitted) {
            None => Ok(()),
            Some(bound) => Err(self.beyond(bound, url.host_str())),
        }
    }

    /// The same of a host that has this address.
    pub fn check_public_at(&mut self, host: &str, address: IpAddr) -> Result<(), Failure> {
        let is_admitted = self.public_hosts.admits_at(host, address);
        match self.public_hosts.bound().filter(|_| !is_admitted) {
            None => Ok(()),
            Some(bound) => Err(self.beyond(bound, host)),
        }
    }

    /// The next public host that was admitted since the last call.
    pub fn poll_public_host(&mut self) -> Option<Box<str>> {
        self.public_hosts.poll_admitted()
    }

    /// A public host was admitted in an earlier run.
    pub fn restore_public_host(&mut self, host: &str) {
        self.public_hosts.restore(host);
    }

    /// Whether [`Requests::check_public_at`] counts this address.
    pub fn counts_at(&self, address: IpAddr) -> bool {
        self.public_hosts.counts_at(address)
    }

    /// The failure of a request to a host beyond the bound. Logs the first such host.
    fn beyond(&mut self, bound: HostsBound, host: &str) -> Failure {
        let (code, most) = (bound.code(), bound.most);
        let (lacks, remedy) = (bound.lacks(), bound.remedy());
        if self.public_hosts.is_first_refusal() {
            log::warn!(
                "the crawl has more than {most} public hosts and {lacks}: {host} and further ones are filtered \
                 (filtered.{code}); to fetch them, {remedy}"
            );
        }
        let detail = format!("{host} is beyond the first {most} public hosts; {remedy}");
        Failure::new(FailureKind::Filtered, code, detail)
    }
}

/// Checks that a job's request can be encoded. The header fields of every request were checked before
/// the crawl started.
pub fn check_request(job: &Job) -> Result<(), RequestError> {
    describe(job, &job.fields(), None, &UsualFields::default()).check()
}

/// Head of a job's request with these fields, in the form for a proxy if one forwards it.
fn describe<'a>(
    job: &'a Job,
    fields: &'a [(String, String)],
    proxy: Option<&'a Proxy>,
    usual: &'a UsualFields,
) -> Description<'a> {
    let proxy = proxy.filter(|proxy| proxy.forwards(&job.url));
    Description {
        method: job.method(),
        target: match proxy {
            None => job.url.request_target(),
            Some(_) => job.url.as_str(),
        },
        host: job.url.authority(),
        usual,
        headers: fields,
        body: Some(job.body()).filter(|body| !body.is_empty()),
        keep_wire: true,
        defers_decoding: false,
        body_max: match job.kind {
            PageKind::Robots => Some(robots::LENGTH_MAX as u64),
            PageKind::Page | PageKind::Sitemap => job.body_max(),
        },
        timeout: job.timeout(),
        proxy,
    }
}
