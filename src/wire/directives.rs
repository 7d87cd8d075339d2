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
        for_header_words(value, agent, |word| directives.add_word(word));
        directives
    }

    /// The directives of a meta element, if it is for all agents or this one.
    pub fn from_meta(name: &str, content: &str, agent: &str) -> Self {
        let mut directives = Directives::default();
        for_meta_words(name, content, agent, |word| directives.add_word(word));
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

/// The directives of a page for an agent, those for all agents among them, as the page has them: in lower case, in
/// order, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectiveWords {
    /// Those of meta elements; empty also if the page was not searched for links.
    pub meta: Vec<String>,
    /// Those of `X-Robots-Tag` fields.
    pub header: Vec<String>,
}

impl DirectiveWords {
    /// Adds those of an `X-Robots-Tag` field.
    pub fn add_header(&mut self, value: &str, agent: &str) {
        for_header_words(value, agent, |word| add(&mut self.header, word));
    }

    /// Adds those of a meta element.
    pub fn add_meta(&mut self, name: &str, content: &str, agent: &str) {
        for_meta_words(name, content, agent, |word| add(&mut self.meta, word));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.meta.is_empty() && self.header.is_empty()
    }
}

/// Adds a word, up to [`WORDS_MAX`] of them.
fn add(words: &mut Vec<String>, word: &str) {
    let word = word.trim();
    let is_new = |word: &String| !words.contains(word);
    if words.len() < WORDS_MAX && (1..=WORD_MAX).contains(&word.len()) {
        let lower = word.to_ascii_lowercase();
        if is_new(&lower) {
            words.push(lower);
        }
    }
}

/// Calls `each` with the words of an `X-Robots-Tag` field that are for this agent. Those after the name of another
/// are not.
fn for_header_words<'a>(value: &'a str, agent: &str, mut each: impl FnMut(&'a str)) {
    let mut meant = true;
    for part in value.split(',') {
        let word = match part.split_once(':') {
            // A directive with a value, or a time, not the name of an agent.
            Some((name, word)) if is_agent(name.trim()) => {
                meant = name.trim() == "*" || name.trim().eq_ignore_ascii_case(agent);
                word
            }
            _ => part,
        };
        if meant {
            each(word);
        }
    }
}

/// Calls `each` with the words of a meta element, if it is for all agents or this one.
fn for_meta_words<'a>(name: &str, content: &'a str, agent: &str, mut each: impl FnMut(&'a str)) {
    let name = name.trim();
    if name.eq_ignore_ascii_case("robots") || name.eq_ignore_ascii_case(agent) {
        for part in content.split([',', ';']) {
            match part.split_once(':') {
                // Its value has spaces.
                Some((name, _)) if name.trim().eq_ignore_ascii_case("unavailable_after") => {
                    each(part);
                }
                _ => part.split(' ').for_each(&mut each),
            }
        }
    }
}

/// Whether what stands before a colon is the name of an agent.
fn is_agent(name: &str) -> bool {
    !has_value(name) && !name.contains(' ')
}

/// Most words of a page that are reported, and the longest.
const WORDS_MAX: usize = 32;
const WORD_MAX: usize = 100;

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
    fn a_date_with_a_comma_is_not_an_agent() {
        check(
            "unavailable_after: Wednesday, 25-Jun-10 15:00:00 PST, nofollow",
            NOFOLLOW,
        );
    }

    #[test]
    fn words_are_reported_as_the_page_has_them_for_this_agent() {
        let mut words = DirectiveWords::default();
        words.add_header("NoIndex, otherbot: nofollow", "argiope");
        words.add_header("argiope: max-snippet:20, noindex", "argiope");
        words.add_header("unavailable_after: 25 Jun 2010 15:00:00 PST", "argiope");
        let expected = [
            "noindex",
            "max-snippet:20",
            "unavailable_after: 25 jun 2010 15:00:00 pst",
        ];
        assert_eq!(words.header, expected);
        words.add_meta(
            "robots",
            "noarchive nofollow; unavailable_after: 1 Jan 2030",
            "argiope",
        );
        words.add_meta("otherbot", "none", "argiope");
        words.add_meta("ARGIOPE", ",none,,nofollow", "argiope");
        let expected = [
            "noarchive",
            "nofollow",
            "unavailable_after: 1 jan 2030",
            "none",
        ];
        assert_eq!(words.meta, expected);
    }

    #[test]
    fn few_of_many_words_are_reported() {
        let mut words = DirectiveWords::default();
        let many: Vec<String> = (0..1000).map(|n| format!("word{n}")).collect();
        words.add_meta("robots", &many.join(","), "argiope");
        words.add_header(&"x".repeat(1000), "argiope");
        assert_eq!((words.meta.len(), words.header.len()), (WORDS_MAX, 0));
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
