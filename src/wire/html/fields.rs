//! Fields of a page that a user asks for: `title`, or `price=.price::text`.

#[cfg(feature = "extract")]
mod extract;
mod not_css;

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "extract")]
use self::extract::Selectors;
use self::not_css::{NotCss, may_be_selector, name_for};

/// The values of the fields of a page (`EXTRACT`), in the order of the setting.
#[derive(Clone, PartialEq, Eq)]
pub struct Fields {
    names: Arc<[Box<str>]>,
    values: Box<[Option<Box<str>>]>,
    is_partial: bool,
}

/// The values of the fields of a page.
#[cfg(feature = "extract")]
struct Extracted {
    values: Box<[Option<Box<str>>]>,
    /// The page was not searched to its end: fields without a value may have one.
    is_cut: bool,
}

impl Fields {
    /// The value of the field of this name; `None` if nothing matched, or if there is no such field.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.iter().find(|(own, _)| *own == name)?;
        value
    }

    /// Each name, and its value if something matched.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let names = self.names.iter().map(|name| &**name);
        names.zip(self.values.iter().map(Option::as_deref))
    }

    /// Whether the search ended early, since the page is longer than a megabyte, was cut off, or would have taken
    /// excessive time, as would a selector in it: fields without a value may have one.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Bytes that the values take.
    pub(crate) fn memory(&self) -> usize {
        let values = self.values.iter().flatten();
        self.values.len() * size_of::<Option<Box<str>>>() + values.map(|v| v.len()).sum::<usize>()
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// A field as a user gives it: a name and what to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldSpec {
    /// As it was given.
    text: Box<str>,
    name: Box<str>,
    selector: Box<str>,
    /// The attribute whose value is wanted; otherwise the text of the element.
    attribute: Option<Box<str>>,
}

/// What is wrong with a field, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldProblem {
    pub what: String,
    pub mend: String,
}

impl FieldProblem {
    fn new(what: impl Into<String>, mend: impl Into<String>) -> Self {
        FieldProblem {
            what: what.into(),
            mend: mend.into(),
        }
    }
}

/// The fields that need no selector.
pub(crate) const BUILT_IN: &[(&str, &str)] = &[
    ("title", "title"),
    ("lang", "html::attr(lang)"),
    (
        "description",
        r#"meta[name="description" i]::attr(content)"#,
    ),
    ("canonical", r#"link[rel~="canonical" i]::attr(href)"#),
    ("h1", "h1"),
];

/// How a field is written.
const MEND: &str = "write NAME=SELECTOR, such as price=.price or image=img.hero::attr(src)";

/// Most fields: each is a search of its own.
const FIELDS_MAX: usize = 64;

/// Longest name of a field, in bytes.
const NAME_MAX: usize = 64;

/// Longest selector, in bytes.
const SELECTOR_MAX: usize = 1000;

impl FieldSpec {
    /// Reads `NAME`, a built-in field, or `NAME=SELECTOR`, where the selector may end in `::text` or
    /// `::attr(NAME)`.
    pub fn parse(text: &str) -> Result<Self, FieldProblem> {
        let text = text.trim();
        let built_in = |name: &str| BUILT_IN.iter().find(|(own, _)| *own == name);
        let (name, selector) = match text.split_once('=') {
            Some((name, selector)) if is_name(name.trim()) => (name.trim(), selector.trim()),
            Some((name, _)) => {
                let name = name.trim();
                let what =
                    format!("without a name before the =, of letters, digits, _ and - ({name:?})");
                let problem = FieldProblem::new(what, MEND);
                return Err(of_nameless(text).unwrap_or(problem));
            }
            None => match built_in(text) {
                Some((name, selector)) => (*name, *selector),
                None => {
                    let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
                    let what = format!("not one of the built-in fields {}", names.join(", "));
                    let problem = FieldProblem::new(what, MEND);
                    return Err(of_nameless(text).unwrap_or(problem));
                }
            },
        };
        if let Some(not_css) = NotCss::of(selector) {
            return Err(of_not_css(not_css, Some(name)));
        }
        if selector.len() > SELECTOR_MAX {
            let what = format!("longer than {SELECTOR_MAX} bytes");
            return Err(FieldProblem::new(what, "give a shorter selector"));
        }
        let (selector, attribute) = of_pseudo_element(selector)?;
        if selector.is_empty() {
            return Err(FieldProblem::new("without a selector", MEND));
        }
        Ok(FieldSpec {
            text: text.into(),
            name: name.into(),
            selector: selector.into(),
            attribute: attribute.map(|name| name.to_ascii_lowercase().into()),
        })
    }
}

/// What is wrong with a selector without a name; `None` if text is rather no selector.
fn of_nameless(text: &str) -> Option<FieldProblem> {
    if let Some(not_css) = NotCss::of(text) {
        return Some(of_not_css(not_css, None));
    }
    if !may_be_selector(text) {
        return None;
    }
    let name = name_for(text);
    Some(match check_field(&name, text) {
        Ok(()) => FieldProblem::new("without a name", format!("write {}", word_of(&name, text))),
        // With a name it would be refused, too.
        Err(FieldProblem { what, mend }) => {
            let mend = match mend == MEND {
                true => mend,
                false => format!("{mend}, and write NAME=SELECTOR"),
            };
            FieldProblem::new(format!("without a name, and {what}"), mend)
        }
    })
}

/// What is wrong with a selector of another language, of a field with this name or without one.
fn of_not_css(NotCss { what, css, mend }: NotCss, name: Option<&str>) -> FieldProblem {
    let cure = css.and_then(|css| {
        let name = name.map_or_else(|| name_for(&css), str::to_owned);
        check_field(&name, &css).ok().map(|()| word_of(&name, &css))
    });
    let mend = cure.map_or_else(|| mend.to_owned(), |cure| format!("write {cure}"));
    FieldProblem::new(what, mend)
}

/// Whether a field is accepted: a cure that is refused is none.
fn check_field(name: &str, css: &str) -> Result<(), FieldProblem> {
    let spec = FieldSpec::parse(&format!("{name}={css}"))?;
    #[cfg(feature = "extract")]
    Selectors::new(std::slice::from_ref(&spec)).map_err(|(_, problem)| problem)?;
    drop(spec);
    Ok(())
}

/// A field as a word of the shell.
fn word_of(name: &str, css: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    match css.chars().all(is_plain) {
        true => format!("{name}={css}"),
        false => format!("'{name}={css}'"),
    }
}

/// Whether a field may have this name.
fn is_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    name.bytes().all(is_inner) && !name.is_empty() && name.len() <= NAME_MAX
}

/// A selector without its pseudo-element, and the attribute that this names.
fn of_pseudo_element(selector: &str) -> Result<(&str, Option<&str>), FieldProblem> {
    let wrong = |what: String| {
        let mend = "end the selector in ::text or ::attr(NAME), or in neither";
        Err(FieldProblem::new(what, mend))
    };
    let mut colons = pseudo_elements(selector);
    let Some(at) = colons.next() else {
        return Ok((selector, None));
    };
    if colons.next().is_some() {
        return wrong("with two pseudo-elements".to_owned());
    }
    let (before, pseudo) = (&selector[..at], &selector[at + "::".len()..]);
    if pseudo == "text" {
        return Ok((before.trim_end(), None));
    }
    let attribute = pseudo.strip_prefix("attr(");
    let attribute = attribute.and_then(|rest| rest.strip_suffix(')'));
    let Some(attribute) = attribute.map(str::trim) else {
        return wrong(format!("with the unknown pseudo-element ::{pseudo}"));
    };
    let is_inner = |char: char| !char.is_whitespace() && !"\"'()[]<>/=,".contains(char);
    if attribute.is_empty() || !attribute.chars().all(is_inner) {
        return wrong(format!("without the name of an attribute in ::{pseudo}"));
    }
    Ok((before.trim_end(), Some(attribute)))
}

/// Where the pseudo-elements of a selector begin: at each `::` but in brackets, in quotes, and behind a backslash.
fn pseudo_elements(selector: &str) -> impl Iterator<Item = usize> {
    let (mut quote, mut is_in_brackets, mut is_escaped) = (None, false, false);
    let mut colon = None;
    let begins = move |(at, char): (usize, char)| {
        let is_second = colon == Some(at);
        colon = None;
        if std::mem::take(&mut is_escaped) {
            return None;
        }
        match (char, quote) {
            ('\\', _) => is_escaped = true,
            (_, Some(own)) if char == own => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => quote = Some(char),
            ('[', None) => is_in_brackets = true,
            (']', None) => is_in_brackets = false,
            (':', None) if is_second => return Some(at - 1),
            (':', None) if !is_in_brackets => colon = Some(at + 1),
            _ => {}
        }
        None
    };
    selector.char_indices().filter_map(begins)
}

/// What is extracted from each HTML page: nothing by default. Copies share it.
#[derive(Clone, Debug, Default)]
pub struct Extraction(Option<Arc<Compiled>>);

#[derive(Debug)]
struct Compiled {
    specs: Vec<FieldSpec>,
    #[cfg(feature = "extract")]
    names: Arc<[Box<str>]>,
    #[cfg(feature = "extract")]
    selectors: Selectors,
}

impl Extraction {
    /// Extracts these fields.
    ///
    /// # Errors
    /// A selector is invalid, a name is given twice, there are too many, or this build extracts none. With it
    /// comes the text of the field.
    pub(crate) fn new(specs: Vec<FieldSpec>) -> Result<Self, (String, FieldProblem)> {
        if specs.is_empty() {
            return Ok(Extraction::default());
        }
        for (at, spec) in specs.iter().enumerate() {
            let fail = |what: String, mend: &str| {
                Err((spec.text.to_string(), FieldProblem::new(what, mend)))
            };
            if at == FIELDS_MAX {
                return fail(format!("one more than {FIELDS_MAX} fields"), "give fewer");
            }
            if specs[..at].iter().any(|other| other.name == spec.name) {
                let what = format!("a second field named {}", spec.name);
                return fail(what, "give each another name");
            }
        }
        Extraction::compiled(specs)
    }

    #[cfg(feature = "extract")]
    fn compiled(specs: Vec<FieldSpec>) -> Result<Self, (String, FieldProblem)> {
        let names = specs.iter().map(|spec| spec.name.clone()).collect();
        let selectors = Selectors::new(&specs)?;
        Ok(Extraction(Some(Arc::new(Compiled {
            specs,
            names,
            selectors,
        }))))
    }

    #[cfg(not(feature = "extract"))]
    fn compiled(specs: Vec<FieldSpec>) -> Result<Self, (String, FieldProblem)> {
        let problem = FieldProblem::new(
            "a field, and this build extracts none",
            "build argiope with the feature `extract`",
        );
        Err((specs[0].text.to_string(), problem))
    }

    /// Whether nothing is extracted.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The fields as they were given.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let specs = self.0.iter().flat_map(|compiled| &compiled.specs);
        specs.map(|spec| &*spec.text)
    }

    /// The fields of an HTML page in any encoding; `None` if nothing is extracted. `is_cut_off`: the body is incomplete,
    /// and elements that it does not end have no text.
    ///
    /// It takes time in proportion to the first megabyte of the body, whatever that is: well under a second.
    #[cfg(feature = "extract")]
    pub fn fields_of(
        &self,
        body: &[u8],
        content_type: Option<&str>,
        is_cut_off: bool,
    ) -> Option<Fields> {
        let compiled = self.0.as_ref()?;
        let Extracted { values, is_cut } =
            compiled.selectors.values_in(body, content_type, is_cut_off);
        Some(Fields {
            names: Arc::clone(&compiled.names),
            values,
            is_partial: is_cut,
        })
    }

    /// The same in a build that extracts nothing.
    #[cfg(not(feature = "extract"))]
    pub fn fields_of(
        &self,
        _body: &[u8],
        _content_type: Option<&str>,
        _is_cut_off: bool,
    ) -> Option<Fields> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<(&str, &str, Option<&str>), &str>) {
        match (FieldSpec::parse(text), expected) {
            (Ok(spec), Ok(expected)) => {
                let attribute = spec.attribute.as_deref();
                assert_eq!(
                    (&*spec.name, &*spec.selector, attribute),
                    expected,
                    "{text}"
                );
            }
            (Err(problem), Err(part)) => {
                let words = format!("is {}; {}", problem.what, problem.mend);
                assert!(words.contains(part), "{text}: {words}");
            }
            (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn a_field_is_a_name_and_a_selector_or_a_built_in_name() {
        check("title", Ok(("title", "title", None)));
        check(" lang ", Ok(("lang", "html", Some("lang"))));
        check("price=.price", Ok(("price", ".price", None)));
        check("price = .price::text", Ok(("price", ".price", None)));
        check(
            "img=img.hero::attr(src)",
            Ok(("img", "img.hero", Some("src"))),
        );
        check(
            "x=a[href=y]::attr( HREF )",
            Ok(("x", "a[href=y]", Some("href"))),
        );
        check("title=h1, h2", Ok(("title", "h1, h2", None)));
        for own in [
            r#"[data-class="App::Model"]"#,
            "a[x='::y']",
            "a[x=']::y']",
            r#"[x="\"::]"]"#,
            r"a\:\:b",
        ] {
            let text = format!("x={own}");
            check(&text, Ok(("x", own, None)));
            check(&format!("{text}::text"), Ok(("x", own, None)));
            let with_attribute = format!("{text}::attr(href)");
            check(&with_attribute, Ok(("x", own, Some("href"))));
        }
    }

    #[test]
    fn a_field_that_cannot_be_meant_is_refused_with_the_cure() {
        check("titel", Err("title, lang, description, canonical, h1"));
        check("titel", Err("price=.price"));
        check("", Err("write NAME=SELECTOR"));
        check("=h1", Err("without a name"));
        check("a b=h1", Err("without a name"));
        check("img[src=x]", Err("without a name"));
        check("price=", Err("without a selector"));
        check("price=::text", Err("without a selector"));
        check("x=a::html", Err("::html"));
        check(
            "//h1",
            Err("is XPath, and a field has a CSS selector; write h1=h1"),
        );
        check("h=//a/@href", Err("write 'h=a::attr(href)'"));
        check("//div[@class='a']/p", Err("write 'p=div[class=a] > p'"));
        check("h=//a[.//b]", Err("'price=div.price > b'"));
        check("h=h1:first", Err("write h=h1"));
        check("h1::text", Err("without a name; write h1=h1::text"));
        check("a::attr(href)", Err("write 'a_href=a::attr(href)'"));
        check("img[src=x]", Err("write 'img=img[src=x]'"));
        check(":is(h1", Err("price=.price"));
        check("a:hover", Err("only a browser has; write a=a"));
        check("x=a:hover", Err("only a browser has; write x=a"));
        check("x=a:hover:focus", Err("leave the state out"));
        check("::text", Err("without a selector; write NAME=SELECTOR"));
        check(".url", Err("write url_text=.url"));
        check("x=:hover:first", Err("as in a style sheet"));
        check("//div[@class='a'][2]", Err("'price=div.price > b'"));
    }

    #[cfg(feature = "extract")]
    #[test]
    fn a_selector_that_is_refused_with_a_name_gets_none() {
        for nameless in ["a:checked", "a:not(:hover)", "a.b > > c", "div:has(b)"] {
            let problem = FieldSpec::parse(nameless).expect_err(nameless);
            let words = format!("{}; {}", problem.what, problem.mend);
            assert!(
                words.ends_with("write NAME=SELECTOR") || !words.contains("write "),
                "{words}"
            );
        }
        let problem = FieldSpec::parse("a:checked").expect_err("no name");
        let expected = "without a name, and with a selector that cannot be read";
        assert!(problem.what.starts_with(expected), "{}", problem.what);
        // What is before jQuery's own is refused, too.
        check("x=a:checked:first", Err("as in a style sheet"));
    }

    #[test]
    fn parts_of_a_field_that_are_missing_are_named() {
        check(r#"x=[a="b::c"]::html"#, Err("::html"));
        check("x=a::attr()", Err("name of an attribute"));
        check("x=a::attr(b c)", Err("name of an attribute"));
        check("x=a::text::text", Err("two pseudo-elements"));
        check(&format!("x={}", "a".repeat(1001)), Err("1000 bytes"));
        check(&format!("{}=a", "a".repeat(65)), Err("without a name"));
    }

    #[test]
    fn a_name_is_given_once_and_fields_are_few() {
        let fails = |texts: &[String]| {
            let specs = texts.iter().map(|text| FieldSpec::parse(text).expect(text));
            let (text, problem) = Extraction::new(specs.collect()).expect_err("too many");
            format!("{text}: {}", problem.what)
        };
        let twice = ["title".to_owned(), "title=h1".to_owned()];
        assert_eq!(fails(&twice), "title=h1: a second field named title");
        let many: Vec<String> = (0..65).map(|number| format!("f{number}=a")).collect();
        assert_eq!(fails(&many), "f64=a: one more than 64 fields");
    }
}
