//! Counts what the attributes of tags cost: the tokenizer compares the name of each with all of its tag, and those of
//! later tags of the root and of the body are put between those that these have.
//!
//! It follows the text between tags and comments, whose ends the tokenizer reports:
//!
//! ```text
//!  Data ─ <a ─► Tag(Name) ─► BeforeName ⇄ Attribute ⇄ BeforeValue ⇄ Quoted, Unquoted ─ > ─► Data
//!    └─ <! ───► Comment ─ its end is reported ─► Data
//!  Raw (of a script or the like) ─ </a ─► EndInRaw ─ > ─► Raw
//! ```

/// Follows a page, and counts the comparisons of the names of attributes.
#[derive(Debug)]
pub(super) struct Attributes {
    state: State,
    /// Attributes of the present tag.
    count: u64,
    /// Attributes of all tags of the root and of the body.
    added: u64,
    compared: u64,
}

/// Where in the page the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Data,
    /// After `<`.
    Open,
    /// After `</`.
    OpenEnd,
    /// After `<!`.
    Declaration,
    /// In a comment or a declaration.
    Comment,
    /// In `<![CDATA[`, with so many `]` right before.
    Cdata(u8),
    /// In the name of a tag.
    Tag,
    BeforeName,
    Attribute,
    AfterName,
    BeforeValue,
    Unquoted,
    Quoted(u8),
    /// In a script or the like: there only an end tag ends it.
    Raw,
    RawOpen,
    RawOpenEnd,
    /// In what may be the end tag of that. Quotes have no meaning there if it is none.
    EndInRaw {
        is_between: bool,
    },
}

/// What follows a tag or a comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    Data,
    Raw,
}

/// Most comparisons of the names of attributes in a page.
const COMPARED_MAX: u64 = 1 << 26;

impl Default for Attributes {
    fn default() -> Self {
        Attributes {
            state: State::Data,
            count: 0,
            added: 0,
            compared: 0,
        }
    }
}

impl Attributes {
    /// Follows a part of the page that has a `>` at its end only, if at all. `mark`: a tag or a comment ended there.
    pub fn read(&mut self, part: &[u8], mark: Option<Follows>) {
        for byte in part {
            self.step(*byte);
        }
        if let Some(follows) = mark {
            self.state = match follows {
                Follows::Data => State::Data,
                Follows::Raw => State::Raw,
            };
        }
    }

    /// A tag has so many attributes for the root or the body.
    pub fn add(&mut self, count: u64) {
        self.compared += self.added * count;
        self.added += count;
    }

    /// Whether there were more comparisons than a page warrants.
    pub fn is_excessive(&self) -> bool {
        self.compared > COMPARED_MAX
    }

    fn step(&mut self, byte: u8) {
        let is_space = byte.is_ascii_whitespace();
        self.state = match self.state {
            State::Data => match byte {
                b'<' => State::Open,
                _ => State::Data,
            },
            State::Open => match byte {
                b'/' => State::OpenEnd,
                b'!' => State::Declaration,
                b'?' => State::Comment,
                b'<' => State::Open,
                _ if byte.is_ascii_alphabetic() => self.begin(State::Tag),
                _ => State::Data,
            },
            State::OpenEnd => match byte {
                b'>' => State::Data,
                _ if byte.is_ascii_alphabetic() => self.begin(State::Tag),
                _ => State::Comment,
            },
            State::Declaration => match byte {
                b'[' => State::Cdata(0),
                _ => State::Comment,
            },
            // Its end is reported.
            State::Comment => State::Comment,
            State::Cdata(brackets) => match byte {
                b']' => State::Cdata(brackets.saturating_add(1)),
                b'>' if brackets >= 2 => State::Data,
                _ => State::Cdata(0),
            },
            State::Tag | State::Unquoted if byte == b'>' => State::Data,
            State::Tag if is_space || byte == b'/' => State::BeforeName,
            State::Unquoted if is_space => State::BeforeName,
            same @ (State::Tag | State::Unquoted) => same,
            State::BeforeName => match byte {
                b'>' => State::Data,
                b'/' => State::BeforeName,
                _ if is_space => State::BeforeName,
                _ => self.count(State::Attribute),
            },
            State::Attribute | State::AfterName => match (byte, self.state) {
                (b'>', _) => State::Data,
                (b'/', _) => State::BeforeName,
                (b'=', _) => State::BeforeValue,
                _ if is_space => State::AfterName,
                (_, State::Attribute) => State::Attribute,
                _ => self.count(State::Attribute),
            },
            State::BeforeValue => match byte {
                b'>' => State::Data,
                b'"' | b'\'' => State::Quoted(byte),
                _ if is_space => State::BeforeValue,
                _ => State::Unquoted,
            },
            State::Quoted(quote) if byte == quote => State::BeforeName,
            quoted @ State::Quoted(_) => quoted,
            State::Raw => match byte {
                b'<' => State::RawOpen,
                _ => State::Raw,
            },
            State::RawOpen => match byte {
                b'/' => State::RawOpenEnd,
                b'<' => State::RawOpen,
                _ => State::Raw,
            },
            State::RawOpenEnd => match byte.is_ascii_alphabetic() {
                true => self.begin(State::EndInRaw { is_between: false }),
                false => State::Raw,
            },
            State::EndInRaw { is_between } => match byte {
                b'>' => State::Raw,
                b'/' | b'"' | b'\'' => State::EndInRaw { is_between: true },
                _ if is_space => State::EndInRaw { is_between: true },
                _ if is_between => self.count(State::EndInRaw { is_between: false }),
                _ => State::EndInRaw { is_between },
            },
        };
    }

    /// A tag begins.
    fn begin(&mut self, state: State) -> State {
        self.count = 0;
        state
    }

    /// An attribute begins.
    fn count(&mut self, state: State) -> State {
        self.compared += self.count;
        self.count += 1;
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attributes of the last tag.
    fn check(page: &str, expected: u64) {
        let mut attributes = Attributes::default();
        for byte in page.bytes() {
            attributes.step(byte);
        }
        assert_eq!(attributes.count, expected, "{page}");
    }

    #[test]
    fn attributes_are_those_of_the_last_tag() {
        check("<a>", 0);
        check("<a b c=d e = f g='h i' j=\"k l\" m>", 6);
        check("<a b/c/d=e/f>", 3);
        check("<a b='c'd='e'f>", 3);
        check("<a b='<c d e>' f>", 2);
        check("<a b=c><d e>", 1);
        check("<a b c <d e", 4);
        check("a < b c d = e", 0);
        check("</a b c", 2);
        check("<a =b =c", 1);
    }

    #[test]
    fn comments_have_no_attributes() {
        check("<!-- <a b c> -->", 0);
        check("<!doctype a b c", 0);
        check("<?a b c", 0);
        check("<![CDATA[ <a b c ]]><d e", 1);
    }

    #[test]
    fn a_script_has_no_tags_but_one_that_may_end_it() {
        let mut attributes = Attributes::default();
        attributes.read(b"<script a>", Some(Follows::Raw));
        attributes.read(b"a<b c d e", None);
        assert_eq!(attributes.count, 1);
        attributes.read(b"</b c='</d e f g", None);
        assert_eq!(attributes.count, 6, "c, < and so on");
        attributes.read(b"</script>", Some(Follows::Data));
        attributes.read(b"<a b c d e f", None);
        assert_eq!(attributes.count, 5);
    }
}
