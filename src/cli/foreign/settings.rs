//! Settings of Scrapy's, and names that beginners try: what does the same here. A test parses each cure, with the values
//! of settings.

/// Names of settings, what to write instead, and command lines that do it.
type Row = (
    &'static [&'static str],
    &'static str,
    &'static [&'static str],
);

/// What to write in place of an unknown setting: a part of a sentence.
pub fn cure_of_setting(name: &str) -> Option<&'static str> {
    let is_named = |known: &&str| known.eq_ignore_ascii_case(name.trim());
    let mut rows = ROWS.iter();
    let row = rows.find(|(names, ..)| names.iter().any(is_named));
    row.map(|(_, cure, _)| *cure)
}

/// In the order of what they are about.
pub(super) const ROWS: &[Row] = &[
    (
        &["JOBDIR"],
        "the state is in the output directory; to continue write --resume --out DIR",
        &["--resume --out DIR"],
    ),
    (
        &["LOG_LEVEL", "LOG_ENABLED"],
        "to log more write -v or -vv, for errors only --quiet",
        &["-v", "-vv", "--quiet"],
    ),
    (
        &["LOG_FILE", "LOG_STDOUT", "LOG_FORMAT"],
        "the log is on standard error: write 2> FILE behind the command",
        &[],
    ),
    (
        &[
            "FEEDS",
            "FEED_URI",
            "FEED_FORMAT",
            "FEED_EXPORT_FIELDS",
            "ITEM_PIPELINES",
        ],
        "results are in DIR/results.jsonl of --out DIR; argiope export DIR --csv url status makes a table",
        &["--out DIR", "export DIR --csv url status"],
    ),
    (
        &["RETRY_ENABLED"],
        "RETRY_TIMES alone says it: leave it out, or to retry nothing write -s RETRY_TIMES=0",
        &["-s RETRY_TIMES=0"],
    ),
    (
        &["REDIRECT_ENABLED"],
        "REDIRECT_MAX_TIMES alone says it: leave it out, or to follow no redirect write -s REDIRECT_MAX_TIMES=0",
        &["-s REDIRECT_MAX_TIMES=0"],
    ),
    (
        &[
            "CLOSESPIDER_ITEMCOUNT",
            "MAX_PAGES",
            "PAGE_LIMIT",
            "MAXPAGES",
        ],
        "to limit the pages write --max-pages N, in a file CLOSESPIDER_PAGECOUNT",
        &["--max-pages 10"],
    ),
    (
        &["MAX_DEPTH", "DEPTH", "DEPTH_MAX", "MAXHOPS", "MAX_HOPS"],
        "write --max-depth N, in a file DEPTH_LIMIT",
        &["--max-depth 2"],
    ),
    (
        &["DELAY", "WAIT", "DOWNLOAD_INTERVAL", "CRAWL_DELAY"],
        "for a gap between the requests to a host write --delay D, in a file DOWNLOAD_DELAY",
        &["--delay 1"],
    ),
    (
        &["TIMEOUT", "DNS_TIMEOUT"],
        "for the whole fetch write --timeout D, in a file DOWNLOAD_TIMEOUT",
        &["--timeout 30s"],
    ),
    (
        &["CONCURRENT_REQUESTS_PER_HOST", "CONCURRENCY", "THREADS"],
        "to limit the requests in flight to a host write --concurrency N, in a file CONCURRENT_REQUESTS_PER_DOMAIN",
        &["--concurrency 2"],
    ),
    (
        &["DELAYFACTOR", "DELAY_FACTOR"],
        "for a delay that follows the latency, as Heritrix's, write -s AUTOTHROTTLE_ENABLED=true",
        &["-s AUTOTHROTTLE_ENABLED=true"],
    ),
    (
        &["MINDELAYMS", "MIN_DELAY_MS"],
        "for the least gap between the requests to a host write --delay 500ms, in a file DOWNLOAD_DELAY",
        &["--delay 500ms"],
    ),
    (
        &["MAXDELAYMS", "MAX_DELAY_MS"],
        "with AutoThrottle write -s AUTOTHROTTLE_MAX_DELAY=60",
        &["-s AUTOTHROTTLE_MAX_DELAY=60"],
    ),
    (
        &["MAXTOETHREADS", "TOETHREADS"],
        "for the requests in flight to all hosts write -s CONCURRENT_REQUESTS=100",
        &["-s CONCURRENT_REQUESTS=100"],
    ),
    (
        &["AUTO_THROTTLE", "AUTOTHROTTLE"],
        "write -s AUTOTHROTTLE_ENABLED=true",
        &["-s AUTOTHROTTLE_ENABLED=true"],
    ),
    (
        &["ALLOWED_DOMAINS", "OFFSITE_ENABLED"],
        "to stay on the hosts or the domains of the seeds write --follow host or --follow domain",
        &["--follow host", "--follow domain"],
    ),
    (
        &[
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "HTTPPROXY_ENABLED",
            "PROXIES",
            "PROXY_URL",
        ],
        "write --proxy URL, or --proxy env for the environment variables",
        &["--proxy http://127.0.0.1:3128", "--proxy env"],
    ),
    (
        &["DOWNLOAD_WARNSIZE"],
        "there is no warning; to cut longer bodies write --max-body BYTES",
        &["--max-body 1MiB"],
    ),
    (
        &["ROBOTS_OBEY", "ROBOTSTXT", "OBEY_ROBOTS", "RESPECT_ROBOTS"],
        "robots.txt is obeyed; for sites whose operators agree write --ignore-robots",
        &["--ignore-robots"],
    ),
    (
        &["HTTP_PASS", "HTTPAUTH", "HTTPAUTH_ENABLED"],
        "to log in to one host write --user-for HOST NAME:PASSWORD",
        &["--user-for a.test name:password"],
    ),
    (
        &[
            "SPIDER_MIDDLEWARES",
            "DOWNLOADER_MIDDLEWARES",
            "EXTENSIONS",
            "SPIDER_MODULES",
            "DUPEFILTER_CLASS",
            "SCHEDULER",
            "DOWNLOAD_HANDLERS",
            "TWISTED_REACTOR",
            "TELNETCONSOLE_ENABLED",
            "REQUEST_FINGERPRINTER_IMPLEMENTATION",
        ],
        "there is no such part here: leave it out; a program of your own can use the library",
        &[],
    ),
    (
        &[
            "HTTPCACHE_ENABLED",
            "HTTPCACHE_DIR",
            "HTTPCACHE_EXPIRATION_SECS",
        ],
        "there is no cache: leave it out; what was fetched is in the WARC files",
        &[],
    ),
    (
        &[
            "DEPTH_PRIORITY",
            "SCHEDULER_DISK_QUEUE",
            "SCHEDULER_MEMORY_QUEUE",
        ],
        "the order of a host's requests is by the priority of their seeds lines: leave it out",
        &[],
    ),
    (
        &["DOWNLOAD_FAIL_ON_DATALOSS"],
        "such a page has an error in its line: leave it out",
        &[],
    ),
];
