//! Presets: named groups of settings, each for one purpose.

use super::error::{Problem, nearest};

/// A named group of settings. Every other source except the defaults has higher precedence.
#[derive(Debug)]
#[non_exhaustive]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// When to use it, in one line.
    pub meaning: &'static str,
    /// Settings and their values, as text.
    pub values: &'static [(&'static str, &'static str)],
}

/// Every preset, the slowest first.
pub fn presets() -> &'static [Preset] {
    PRESETS
}

/// The preset of this name, case-insensitive.
pub(super) fn find(name: &str) -> Result<&'static Preset, Problem> {
    let known = PRESETS
        .iter()
        .find(|preset| preset.name.eq_ignore_ascii_case(name.trim()));
    let names = || PRESETS.iter().map(|preset| preset.name);
    known.ok_or_else(|| {
        Problem::new(
            format!("unknown preset {name:?}"),
            match nearest(name, names()) {
                Some(name) => format!("did you mean {name}?"),
                None => format!("give {}", names().collect::<Vec<_>>().join(", ")),
            },
        )
    })
}

static PRESETS: &[Preset] = &[
    Preset {
        name: "polite",
        meaning: "one site whose operator does not know of the crawl: one request at a time, a second apart on average, or \
                  more by its latency",
        values: &[
            ("DOWNLOAD_DELAY", "1"),
            ("CONCURRENT_REQUESTS_PER_DOMAIN", "1"),
            ("AUTOTHROTTLE_ENABLED", "true"),
            ("AUTOTHROTTLE_TARGET_CONCURRENCY", "1.0"),
            ("AUTOTHROTTLE_MAX_DELAY", "10"),
            ("AUTOTHROTTLE_START_DELAY", "2.0"),
        ],
    },
    Preset {
        name: "cooperative",
        meaning: "a server whose operator knows of the crawl: four requests in parallel, fewer when its latency rises",
        values: &[
            ("AUTOTHROTTLE_ENABLED", "true"),
            ("AUTOTHROTTLE_TARGET_CONCURRENCY", "4.0"),
            ("AUTOTHROTTLE_MAX_DELAY", "30"),
            ("AUTOTHROTTLE_START_DELAY", "1.0"),
        ],
    },
    Preset {
        name: "many-domains",
        meaning: "many sites in parallel, each paced by its own latency",
        values: &[
            ("AUTOTHROTTLE_ENABLED", "true"),
            ("AUTOTHROTTLE_TARGET_CONCURRENCY", "2.0"),
            ("AUTOTHROTTLE_MAX_DELAY", "60"),
            ("AUTOTHROTTLE_START_DELAY", "1.0"),
        ],
    },
    Preset {
        name: "broad",
        meaning: "very many sites, a few pages of each: default pace per host, plus limits per domain and per address",
        values: &[
            ("SCOPE_MAP", "host,domain,ip"),
            // Many subdomains often are one site of one operator: together they get the concurrency of four hosts.
            (
                "DOMAIN_SCOPE_DEFAULTS",
                r#"{"concurrency": 4, "delay": 0.25}"#,
            ),
            // With shared hosting, one address serves many sites from one machine.
            (
                "ADDRESS_SCOPE_DEFAULTS",
                r#"{"concurrency": 16, "delay": 0.05}"#,
            ),
            // A broad crawl has other hosts to fetch from, so that it can wait long for a failing one.
            ("HOST_DOWN_AFTER", "1h"),
        ],
    },
];
