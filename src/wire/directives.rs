//! What a page says about itself to crawlers: robots meta elements and `X-Robots-Tag`.

/// The directives that matter to a crawl. What several sources say adds up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// Its links are not to be followed.
    pub nofollow: bool,
    /// It is not to be shown in an index. The crawl only reports it.
    pub noindex: bool,
}

impl Directives {
    /// What an `X-Robots-Tag` field says to an agent, or to all.
    ///
    /// A name before a colon (`otherbot: nofollow`) makes the rest of the field that agent's own.
    pub fn from_header(value: &str, agent: &str) -> Self {
        let mut directives = Directives::default();
        let mut meant = true;
        for part in value.split(',') {
            let word = match part.split_once(':') {
                None => part,
                // A directive with a value, not an agent's name.
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

    /// What a meta element says, if it is meant for all or for this agent.
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

    /// Both together.
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

/// Directives that are written with a colon and a value.
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
    fn a_field_speaks_to_all() {
        check("", NOTHING);
        check("nofollow", NOFOLLOW);
        check("noarchive, NoFollow", NOFOLLOW);
        check("noindex,nofollow", NONE);
        check("none", NONE);
        check("index, follow", NOTHING);
    }

    #[test]
    fn a_field_with_a_name_speaks_to_that_agent() {
        check("Argiope: nofollow", NOFOLLOW);
        check("otherbot: none", NOTHING);
        check("otherbot: noindex, nofollow", NOTHING);
        check("otherbot: noindex, argiope: nofollow", NOFOLLOW);
        check("nofollow, otherbot: noindex", NOFOLLOW);
    }

    #[test]
    fn a_directive_with_a_value_is_no_agent() {
        check(
            "unavailable_after: 25 Jun 2010 15:00:00 PST, nofollow",
            NOFOLLOW,
        );
        check("max-snippet:20, none", NONE);
    }

    #[test]
    fn a_meta_element_speaks_to_all_or_to_the_agent_it_names() {
        let meta = |name: &str, content: &str| Directives::from_meta(name, content, "argiope");
        assert_eq!(meta("robots", "noindex, nofollow"), NONE);
        assert_eq!(meta("ROBOTS", "nofollow;max-snippet:3"), NOFOLLOW);
        assert_eq!(meta("argiope", "nofollow"), NOFOLLOW);
        assert_eq!(meta("googlebot", "nofollow"), NOTHING);
        assert_eq!(meta("description", "nofollow"), NOTHING);
    }
}
