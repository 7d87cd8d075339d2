//! Interpretation of robots.txt: cases of Google's library, Protego, crawler-commons and RFC 9309.
//!
//! The cases are in the folder `ARGIOPE_VECTORS`, outside of the package.

mod vectors;

use std::collections::BTreeSet;

use argiope::wire::robots::Robots;
use argiope::wire::url::request_target_of;
use serde::Deserialize;

/// Cases in which we differ from most implementations, and the reasons.
const MAJORITY_EXCEPTIONS: &[(&str, &[&str])] = &[
    (
        "the agent asked for is reduced to its product token as the file's are",
        &["google-040", "cc-284"],
    ),
    (
        "one product token is asked for at a time, not a list of names",
        &["cc-154", "cc-158", "cc-162", "cc-164"],
    ),
    (
        "octets outside US-ASCII compare as if percent-encoded (RFC 9309, 2.2.2)",
        &["google-063"],
    ),
    (
        "a long line is read whole: the file's limit is the only one",
        &["google-141"],
    ),
    (
        "unknown lines do not end a group (RFC 9309, 2.2.4)",
        &["protego-258"],
    ),
    (
        "a product token has no wildcards, and compares as a whole (RFC 9309, 2.2.1)",
        &[
            "protego-271",
            "protego-341",
            "protego-342",
            "protego-344",
            "protego-345",
        ],
    ),
    (
        "a dollar at the end is the end of the path, not a dollar (RFC 9309, 2.2.3)",
        &["protego-315"],
    ),
    (
        "a rule holds a path, and a URL in its place matches none (RFC 9309, 2.2.2)",
        &["protego-317"],
    ),
];

#[test]
fn uncontested_cases_match() {
    let Some(cases) = cases() else { return };
    let wrong = wrong(&cases, "hard");
    assert!(wrong.is_empty(), "answered otherwise: {wrong:?}");
}

#[test]
fn majority_cases_that_follow_the_rfc_match() {
    let Some(cases) = cases() else { return };
    let wrong = wrong(&cases, "majority");
    let excepted: BTreeSet<&str> = MAJORITY_EXCEPTIONS
        .iter()
        .flat_map(|(_, ids)| ids.iter().copied())
        .collect();
    let unexpected: Vec<_> = wrong.difference(&excepted).collect();
    assert!(unexpected.is_empty(), "answered otherwise: {unexpected:?}");
    let stale: Vec<_> = excepted.difference(&wrong).collect();
    assert!(stale.is_empty(), "no exceptions any more: {stale:?}");
}

/// Implementations disagree on these cases; our results are fixed.
#[test]
fn contested_cases_have_a_fixed_result() {
    let Some(cases) = cases() else { return };
    let disallowed: BTreeSet<&str> = cases
        .iter()
        .filter(|case| case.tier == "contested" && !case.answer())
        .map(|case| case.id.as_str())
        .collect();
    assert_eq!(
        disallowed.into_iter().collect::<Vec<_>>(),
        CONTESTED_DISALLOWED
    );
}

/// The contested cases that we answer with *disallowed*; the others are *allowed*.
///
/// The choices behind them: names on one line are split at commas (cc-368, 369) and not at blanks
/// (cc-226 to 248, 307); a Crawl-delay ends no group (cc-321), and one of an hour is no Disallow
/// (cc-318); UTF-16 is read where a byte order mark says so (cc-332, 333); `useg-agent` is no
/// known misspelling (cc-339).
const CONTESTED_DISALLOWED: &[&str] = &[
    "cc-226", "cc-229", "cc-248", "cc-321", "cc-332", "cc-333", "cc-368", "cc-369",
];

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    tier: String,
    robots: Option<String>,
    robots_b64: Option<String>,
    user_agent: String,
    url: String,
    allowed: bool,
}

impl Case {
    fn answer(&self) -> bool {
        let robots = match (&self.robots, &self.robots_b64) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(coded)) => data_encoding::BASE64
                .decode(coded.as_bytes())
                .expect("base64"),
            (None, None) => panic!("{}: no robots.txt", self.id),
        };
        let target =
            request_target_of(&self.url).unwrap_or_else(|error| panic!("{}: {error}", self.id));
        Robots::parse(&robots)
            .agent(&self.user_agent)
            .allowed(&target)
            .allowed
    }
}

fn wrong<'a>(cases: &'a [Case], tier: &str) -> BTreeSet<&'a str> {
    let of_tier: Vec<&Case> = cases.iter().filter(|case| case.tier == tier).collect();
    assert!(!of_tier.is_empty(), "no case of tier {tier}");
    let wrong: BTreeSet<&str> = of_tier
        .iter()
        .filter(|case| case.answer() != case.allowed)
        .map(|case| case.id.as_str())
        .collect();
    println!(
        "{tier}: {} of {}",
        of_tier.len() - wrong.len(),
        of_tier.len()
    );
    wrong
}

fn cases() -> Option<Vec<Case>> {
    Some(vectors::read::<Vectors>("robots.json")?.cases)
}
