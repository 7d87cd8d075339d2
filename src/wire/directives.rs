//! Instructions of a page to crawlers: robots meta elements and `X-Robots-Tag`.
//!
//! Hand-written: the values are lists of words, of which three matter. The search for links finds
//! the elements.

/// The directives that matter to a crawl. Those of several sources are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// Its links must not be followed.
    pub nofollow: bool,
    /// It must not be indexed. The crawl only reports this.
    pub noindex: bool,
}

impl Directives {
    /// The directives of an `X-Robots-Tag` field for an agent, including those for all agents.
    ///
    /// A name before a colon (`otherbot: nofollow`) limits the rest of the field to that agent.
    pub fn from_header(value: &str, agent: &str) -> Self {
        let mut directives = Directives::default();
        let mut meant = true;
        for part in value.split(',') {
            let word = match part.split_once(':') {
                None => part,
                // A directive with a value, not the name of an agent.
                Some((name, _)) if has_value(name.trim()) => continue,
                Some((name, word)) => {
                    meant = name.trim() == "*" || name.trim().eq_ignore_ascii_case(agent);
                    word
                }
            };
            if meant {
                directives.add_word(word);
            }
        }
        directives
    }

    /// The directives of a meta element, if it is for all agents or this one.
    pub fn from_meta(name: &str, content: &str, agent: &str) -> Self {
        let mut directives = Directives::default();
        let name = name.trim();
        if name.eq_ignore_ascii_case("robots") || name.eq_ignore_ascii_case(agent) {
            content
                .split([',', ' ', ';'])
                .for_each(|word| directives.add_word(word));
        }
        directives
    }

    /// Combines both.
    pub fn and(self, other: Self) -> Self {
        Directives {
            nofollow: self.nofollow || other.nofollow,
            noindex: self.noindex || other.noindex,
        }
    }

    fn add_word(&mut self, word: &str) {
        let word = word.trim();
        let none = word.eq_ignore_ascii_case("none");
        self.nofollow |= none || word.eq_ignore_ascii_case("nofollow");
        self.noindex |= none || word.eq_ignore_ascii_case("noindex");
    }
}

/// Returns whether this is a directive that has a colon and a value.
fn has_value(name: &str) -> bool {
    [
        "unavailable_after",
        "max-snippet",
        "max-image-preview",
        "max-video-preview",
    ]
    .iter()
    .any(|directive| name.eq_ignore_ascii_case(directive))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Directives = Directives {
        nofollow: false,
        noindex: false,
    };
    const NOFOLLOW: Directives = Directives {
        nofollow: true,
        noindex: false,
    };
    const NONE: Directives = Directives {
        nofollow: true,
        noindex: true,
    };

    fn check(header: &str, expected: Directives) {
        assert_eq!(
            Directives::from_header(header, "argiope"),
            expected,
            "{header}"
        );
    }

    #[test]
    fn a_field_without_a_name_applies_to_all_agents() {
        check("", NOTHING);
        check("nofollow", NOFOLLOW);
        check("noarchive, NoFollow", NOFOLLOW);
        check("noindex,nofollow", NONE);
        check("none", NONE);
        check("index, follow", NOTHING);
    }

    #[test]
    fn a_field_with_a_name_applies_to_that_agent() {
        check("Argiope: nofollow", NOFOLLOW);
        check("otherbot: none", NOTHING);
        check("otherbot: noindex, nofollow", NOTHING);
        check("otherbot: noindex, argiope: nofollow", NOFOLLOW);
        check("nofollow, otherbot: noindex", NOFOLLOW);
    }

    #[test]
    fn a_directive_with_a_value_is_not_an_agent() {
        check(
            "unavailable_after: 25 Jun 2010 15:00:00 PST, nofollow",
            NOFOLLOW,
        );
        check("max-snippet:20, none", NONE);
    }

    #[test]
    fn a_meta_element_applies_to_all_agents_or_the_named_one() {
        let meta = |name: &str, content: &str| Directives::from_meta(name, content, "argiope");
        assert_eq!(meta("robots", "noindex, nofollow"), NONE);
        assert_eq!(meta("ROBOTS", "nofollow;max-snippet:3"), NOFOLLOW);
        assert_eq!(meta("argiope", "nofollow"), NOFOLLOW);
        assert_eq!(meta("googlebot", "nofollow"), NOTHING);
        assert_eq!(meta("description", "nofollow"), NOTHING);
    }
}
