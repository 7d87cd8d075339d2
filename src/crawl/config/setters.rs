//! Typed setters for the settings that programs change most often. Each is named as its setting is, and passes
//! the value to the table, which checks it.

use std::time::Duration;

use super::choices::OneOf;
use super::form::Form;
use super::{Config, SettingSource, SettingValue};
use crate::frontier::settings::Follow;

/// # Typed setters
/// One for each setting that programs change most often, with the name of the setting in lower case; all others
/// are set by [`Config::with`]. A value that the setting does not accept is an error of [`Config::finish`],
/// and so of [`Builder::build`](crate::Builder::build).
///
/// ```
/// use argiope::settings::Follow;
/// use argiope::{Config, Crawler};
/// use std::time::Duration;
///
/// let config = Config::default()
///     .user_agent("mybot/1.0 (+https://example.com/bot)")
///     .download_delay(Duration::from_millis(500))
///     .follow(Follow::None);
/// let crawler = Crawler::builder(config).build()?;
///
/// let error = Config::default().concurrent_requests_per_domain(0).finish().unwrap_err();
/// assert_eq!(error.name, "CONCURRENT_REQUESTS_PER_DOMAIN");
/// # Ok::<(), argiope::SetUpError>(())
/// ```
impl Config {
    /// `DOWNLOAD_DELAY`: minimum gap between two requests of a scope, a host by default.
    pub fn download_delay(self, delay: Duration) -> Self {
        self.typed("DOWNLOAD_DELAY", delay)
    }

    /// `RANDOMIZE_DOWNLOAD_DELAY`: each gap is the delay times a random factor from 0.5 to 1.5. `false`: the
    /// delay is exact.
    pub fn randomize_download_delay(self, is_random: bool) -> Self {
        self.typed("RANDOMIZE_DOWNLOAD_DELAY", is_random)
    }

    /// `CONCURRENT_REQUESTS`: maximum requests in flight; 0: as many as the open-file limit allows.
    pub fn concurrent_requests(self, requests: usize) -> Self {
        self.typed("CONCURRENT_REQUESTS", requests)
    }

    /// `CONCURRENT_REQUESTS_PER_DOMAIN`: maximum requests in flight per scope, a host by default; at least 1.
    pub fn concurrent_requests_per_domain(self, requests: u32) -> Self {
        self.typed("CONCURRENT_REQUESTS_PER_DOMAIN", requests)
    }

    /// `AUTOTHROTTLE_ENABLED`: the delay follows the latency.
    pub fn autothrottle_enabled(self, is_on: bool) -> Self {
        self.typed("AUTOTHROTTLE_ENABLED", is_on)
    }

    /// `USER_AGENT`: the User-Agent field; `CONTACT` is appended.
    pub fn user_agent(self, name: impl Into<String>) -> Self {
        self.typed("USER_AGENT", name.into())
    }

    /// `CONTACT`: URL or mail address for the owners of sites.
    pub fn contact(self, contact: impl Into<String>) -> Self {
        self.typed("CONTACT", contact.into())
    }

    /// `DEFAULT_REQUEST_HEADERS`: fields of every request, each as `Name: value`. Credentials go to the origins
    /// of the seeds only.
    pub fn default_request_headers(
        self,
        fields: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let fields: Vec<String> = fields.into_iter().map(Into::into).collect();
        self.typed("DEFAULT_REQUEST_HEADERS", fields)
    }

    /// `ROBOTSTXT_OBEY`: robots.txt is obeyed.
    pub fn robotstxt_obey(self, obeys: bool) -> Self {
        self.typed("ROBOTSTXT_OBEY", obeys)
    }

    /// `FOLLOW`: the links that are followed.
    pub fn follow(self, follow: Follow) -> Self {
        self.typed("FOLLOW", OneOf::write(&follow))
    }

    /// `DEPTH_LIMIT`: maximum number of links from a seed; 0: no limit.
    pub fn depth_limit(self, links: u32) -> Self {
        self.typed("DEPTH_LIMIT", links)
    }

    /// `CLOSESPIDER_PAGECOUNT`: pages after which the crawl ends; 0: no limit.
    pub fn closespider_pagecount(self, pages: u64) -> Self {
        self.typed("CLOSESPIDER_PAGECOUNT", pages)
    }

    /// `CLOSESPIDER_TIMEOUT`: time after which the crawl ends; 0: no limit.
    pub fn closespider_timeout(self, time: Duration) -> Self {
        self.typed("CLOSESPIDER_TIMEOUT", time)
    }

    /// `RETRY_TIMES`: maximum retries of a page.
    pub fn retry_times(self, retries: u32) -> Self {
        self.typed("RETRY_TIMES", retries)
    }

    /// `REDIRECT_MAX_TIMES`: maximum redirects followed from one URL.
    pub fn redirect_max_times(self, redirects: u32) -> Self {
        self.typed("REDIRECT_MAX_TIMES", redirects)
    }

    /// `DOWNLOAD_TIMEOUT`: maximum time of a whole fetch; above 0.
    pub fn download_timeout(self, time: Duration) -> Self {
        self.typed("DOWNLOAD_TIMEOUT", time)
    }

    /// `DOWNLOAD_MAXSIZE`: maximum bytes of a body, before and after its content codings; a longer one is cut
    /// there. At least 1.
    pub fn download_maxsize(self, bytes: u64) -> Self {
        self.typed("DOWNLOAD_MAXSIZE", bytes)
    }

    /// `HOST_DOWN_AFTER`: an unresponsive host is held, and its requests fail this long after its last success;
    /// 0: neither.
    pub fn host_down_after(self, time: Duration) -> Self {
        self.typed("HOST_DOWN_AFTER", time)
    }

    /// `ALLOW_NET`: networks allowed in addition to globally routable addresses: CIDRs, `loopback`, `private`.
    pub fn allow_net(self, nets: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let nets: Vec<String> = nets.into_iter().map(Into::into).collect();
        self.typed("ALLOW_NET", nets)
    }

    /// `PROXY`: URL of the proxy of requests that do not name one.
    pub fn proxy(self, url: impl Into<String>) -> Self {
        self.typed("PROXY", url.into())
    }

    /// `RANDOM_SEED`: the random seed, for tests; up to 2⁶³ - 1. The system's, if not set.
    pub fn random_seed(self, seed: u64) -> Self {
        self.typed("RANDOM_SEED", seed)
    }

    /// Sets a setting of the table; the first error is kept for [`Config::finish`].
    fn typed(mut self, name: &'static str, value: impl Into<SettingValue>) -> Self {
        if let Err(error) = self.set(name, value, SettingSource::Program) {
            self.refused.get_or_insert(Box::new(error));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crawl::config::settings;

    /// A configuration by each setter.
    fn by_setters() -> Config {
        let second = Duration::from_millis(1500);
        Config::default()
            .download_delay(second)
            .randomize_download_delay(false)
            .concurrent_requests(77)
            .concurrent_requests_per_domain(3)
            .autothrottle_enabled(true)
            .user_agent("bot/2.0")
            .contact("https://example.com/bot")
            .default_request_headers(["Accept-Language: en", "X-Own: a, b"])
            .robotstxt_obey(false)
            .follow(Follow::All)
            .depth_limit(4)
            .closespider_pagecount(5)
            .closespider_timeout(second)
            .retry_times(6)
            .redirect_max_times(7)
            .download_timeout(second)
            .download_maxsize(8000)
            .host_down_after(second)
            .allow_net(["loopback", "10.0.0.0/8"])
            .proxy("http://127.0.0.1:9")
            .random_seed(10)
    }

    #[test]
    fn each_setter_sets_the_setting_of_its_name() {
        let code = include_str!("setters.rs");
        let (code, _) = code.split_once("#[cfg(test)]").expect("tests follow");
        let setters = code.lines().filter_map(|line| {
            let name = line.trim().strip_prefix("pub fn ")?;
            name.split_once('(').map(|(name, _)| name)
        });
        let config = by_setters();
        let mut count = 0;
        for setter in setters {
            let name = setter.to_ascii_uppercase();
            let setting = settings().iter().find(|setting| setting.name == name);
            let setting = setting.unwrap_or_else(|| panic!("{name} is no setting"));
            assert_eq!(config.source(&name), &SettingSource::Program, "{name}");
            assert_ne!(config.get(&name), Some(setting.default()), "{name}");
            let of_setter = format!("self.typed(\"{name}\", ");
            assert_eq!(code.matches(&of_setter).count(), 1, "{setter} sets {name}");
            count += 1;
        }
        assert_eq!(config.sources.len(), count);
        assert!(count >= 20, "{count}");
        config.finish().expect("the values are valid");
    }

    #[test]
    fn a_setter_takes_the_value_that_its_setting_shows() {
        let config = by_setters();
        let check = |name: &str, shown: &str| {
            let value = config.get(name).expect("a setting");
            assert_eq!(value.to_string(), shown, "{name}");
        };
        check("DOWNLOAD_DELAY", "1.5");
        check("RANDOMIZE_DOWNLOAD_DELAY", "false");
        check("FOLLOW", "\"all\"");
        check("ALLOW_NET", "[\"loopback\",\"10.0.0.0/8\"]");
        check("CLOSESPIDER_TIMEOUT", "1.5");
    }

    #[test]
    fn the_first_value_that_is_refused_is_the_error_of_the_configuration() {
        let config = Config::default()
            .concurrent_requests_per_domain(0)
            .user_agent("a\nb")
            .download_delay(Duration::from_secs(2));
        assert_eq!(config.throttle().usual().delay, Duration::from_secs(2));
        let error = config.clone().finish().expect_err("0 is no concurrency");
        assert_eq!(error.name, "CONCURRENT_REQUESTS_PER_DOMAIN");
        assert_eq!(error.source_of, SettingSource::Program);
        assert!(error.to_string().contains("1 or more"), "{error}");
        // A later value does not hide it.
        let config = config.concurrent_requests_per_domain(1);
        assert!(config.finish().is_err());
    }
}
