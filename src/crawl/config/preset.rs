//! Presets: a few settings that belong together, under the name of what they are for.

use super::error::{Problem, nearest};

/// Values that go together. Any other source may overrule each of them.
#[derive(Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// When to use it, in a line.
    pub meaning: &'static str,
    /// Settings and their values, as text.
    pub values: &'static [(&'static str, &'static str)],
}

/// Every preset, the gentlest first.
pub fn presets() -> &'static [Preset] {
    PRESETS
}

/// The preset of this name, in any case.
pub(super) fn find(name: &str) -> Result<&'static Preset, Problem> {
    let known = PRESETS
        .iter()
        .find(|preset| preset.name.eq_ignore_ascii_case(name.trim()));
    let names = || PRESETS.iter().map(|preset| preset.name);
    known.ok_or_else(|| {
        Problem::new(
            format!("{name:?} is no preset"),
            match nearest(name, names()) {
                Some(name) => format!("did you mean {name}?"),
                None => format!("there is {}", names().collect::<Vec<_>>().join(", ")),
            },
        )
    })
}

static PRESETS: &[Preset] = &[
    Preset {
        name: "polite",
        meaning: "one site that did not invite you: one request at a time, as slow as it answers",
        values: &[
            ("AUTOTHROTTLE_ENABLED", "true"),
            ("AUTOTHROTTLE_TARGET_CONCURRENCY", "1.0"),
            ("AUTOTHROTTLE_MAX_DELAY", "10"),
            ("AUTOTHROTTLE_START_DELAY", "2.0"),
        ],
    },
    Preset {
        name: "cooperative",
        meaning: "a server whose owner knows of the crawl: four at a time, if it keeps up",
        values: &[
            ("AUTOTHROTTLE_ENABLED", "true"),
            ("AUTOTHROTTLE_TARGET_CONCURRENCY", "4.0"),
            ("AUTOTHROTTLE_MAX_DELAY", "30"),
            ("AUTOTHROTTLE_START_DELAY", "1.0"),
        ],
    },
    Preset {
        name: "many-domains",
        meaning: "many sites side by side, each by its own latency",
        values: &[
            ("AUTOTHROTTLE_ENABLED", "true"),
            ("AUTOTHROTTLE_TARGET_CONCURRENCY", "2.0"),
            ("AUTOTHROTTLE_MAX_DELAY", "60"),
            ("AUTOTHROTTLE_START_DELAY", "1.0"),
        ],
    },
    Preset {
        name: "broad",
        meaning: "a little from each of very many: hosts as ever, and bounds on each domain and address",
        values: &[
            ("SCOPE_MAP", "host,domain,ip"),
            // A farm of subdomains is one site to its operator, and gets the concurrency of four hosts.
            (
                "DOMAIN_SCOPE_DEFAULTS",
                r#"{"concurrency": 4, "delay": 0.25}"#,
            ),
            // Behind one address of shared hosting there are many sites, and one machine.
            (
                "ADDRESS_SCOPE_DEFAULTS",
                r#"{"concurrency": 16, "delay": 0.05}"#,
            ),
            // There is enough else to fetch until a server is mended.
            ("HOST_DOWN_AFTER", "1h"),
        ],
    },
];
