//! Selectors that are no CSS: what they are, and the CSS that does the same, where that is simple.

/// A selector of another language.
#[derive(Debug, PartialEq, Eq)]
pub struct NotCss {
    /// What it is: words behind "is".
    pub what: &'static str,
    /// The same in CSS, with a pseudo-element for an attribute.
    pub css: Option<String>,
    /// What to do where there is no such CSS.
    pub mend: &'static str,
}

/// What to do about a selector that is none.
const LIKE_A_STYLE_SHEET: &str =
    "write it as in a style sheet, such as 'price=div.price > b' or 'image=img.hero::attr(src)'";
const WITHOUT_STATE: &str = "leave the state out, as in 'price=div.price > b'";

const XPATH: &str = "XPath, and a field has a CSS selector";
const JQUERY: &str = "a selector of jQuery, and a field has one of CSS";
const STATE: &str = "a selector with a state that only a browser has";
const NEITHER: &str = "no CSS selector";

impl NotCss {
    /// What a selector is, if it is rather one of another language than CSS.
    pub fn of(selector: &str) -> Option<NotCss> {
        let selector = selector.trim();
        let begins = |start: &&str| selector.starts_with(start);
        let has = |wanted: char| outside(selector).any(|(_, char)| char == wanted);
        if ["./", "(/", "string(", "normalize-space("]
            .iter()
            .any(begins)
            || has('/')
            || selector.contains("[@")
        {
            return Some(NotCss {
                what: XPATH,
                css: of_xpath(selector),
                mend: LIKE_A_STYLE_SHEET,
            });
        }
        let (element, pseudo) = match selector.split_once("::") {
            Some((element, _)) => selector.split_at(element.len()),
            None => (selector, ""),
        };
        if let Some((before, attribute)) = element.split_once('@').filter(|_| has('@')) {
            let is_sound = is_of_element(before) && is_name(attribute) && pseudo.is_empty();
            return Some(NotCss {
                what: NEITHER,
                css: is_sound.then(|| format!("{before}::attr({attribute})")),
                mend: LIKE_A_STYLE_SHEET,
            });
        }
        let (before, name, arguments) = pseudo_class(element, &["text", "attr"])
            .or_else(|| pseudo_class(element, OF_JQUERY))
            .or_else(|| pseudo_class(element, STATES))?;
        let (what, mend) = match name {
            "text" | "attr" => (NEITHER, LIKE_A_STYLE_SHEET),
            name if OF_JQUERY.contains(&name) => (JQUERY, LIKE_A_STYLE_SHEET),
            _ => (STATE, WITHOUT_STATE),
        };
        let css = match (name, arguments) {
            _ if !is_of_element(before) => None,
            // jQuery has it for fields of forms.
            ("text", _) if before.ends_with("input") => None,
            // The first element that matches is taken anyway.
            ("first", "" | "()") | ("eq", "(0)") => Some(format!("{before}{pseudo}")),
            ("text", "" | "()") if pseudo.is_empty() => Some(before.to_owned()),
            ("attr", arguments) if pseudo.is_empty() => {
                let name = arguments
                    .strip_prefix('(')
                    .and_then(|it| it.strip_suffix(')'));
                let name = name.filter(|name| is_name(name));
                name.map(|name| format!("{before}::attr({name})"))
            }
            (name, rest) if STATES.contains(&name) && !rest.contains([':', '(']) => {
                Some(format!("{before}{rest}{pseudo}"))
            }
            _ => None,
        };
        Some(NotCss { what, css, mend })
    }
}

/// What only jQuery has.
const OF_JQUERY: &[&str] = &[
    "first", "last", "eq", "gt", "lt", "even", "odd", "contains", "visible", "hidden",
];

/// States that elements have while a user is about. Those of links and forms are no part of this: what is without them
/// selects other elements.
const STATES: &[&str] = &[
    "hover",
    "active",
    "focus",
    "focus-within",
    "focus-visible",
    "visited",
];

/// Whether a selector ends with an element or a condition on it, so that what is behind belongs to that.
fn is_of_element(selector: &str) -> bool {
    !selector.is_empty() && !selector.ends_with(|c: char| c.is_whitespace() || ">+~,".contains(c))
}

/// The first pseudo-class of one of these names: what is before it, its name, and what is behind that.
fn pseudo_class<'a>(
    selector: &'a str,
    names: &[&'static str],
) -> Option<(&'a str, &'static str, &'a str)> {
    outside(selector).find_map(|(at, char)| {
        if char != ':' {
            return None;
        }
        let rest = &selector[at + 1..];
        let end = rest.find(|c: char| !is_inner(c)).unwrap_or(rest.len());
        let name = names.iter().find(|name| **name == &rest[..end])?;
        Some((&selector[..at], *name, &rest[end..]))
    })
}

/// The CSS of a path: steps with a name, an attribute or a number each, and at the end a text or an attribute. A path that
/// begins at the root of the page begins with `html`.
fn of_xpath(path: &str) -> Option<String> {
    let within = |begin: &str, end: &str| path.strip_prefix(begin)?.strip_suffix(end);
    let path = within("normalize-space(", ")")
        .or_else(|| within("string(", ")"))
        .or_else(|| within("(", ")[1]"))
        .unwrap_or(path);
    let relative = path.strip_prefix('.').filter(|rest| rest.starts_with('/'));
    let mut rest = relative.unwrap_or(path);
    let is_absolute = path.starts_with('/') && !path.starts_with("//");
    let mut css = String::new();
    while !rest.is_empty() {
        let (joint, after) = match (rest.strip_prefix("//"), rest.strip_prefix('/')) {
            (Some(after), _) => (" ", after),
            (None, Some(after)) => (" > ", after),
            (None, None) if css.is_empty() => ("", rest),
            (None, None) => return None,
        };
        let end = outside(after).find(|(_, char)| *char == '/');
        let (step, after) = after.split_at(end.map_or(after.len(), |(at, _)| at));
        rest = after;
        match step {
            "text()" | "string()" | "normalize-space()" if rest.is_empty() && !css.is_empty() => {}
            step => match step.strip_prefix('@') {
                Some(name) if !is_name(name) || !rest.is_empty() => return None,
                Some(name) if css.is_empty() && joint == " " => css = format!("*::attr({name})"),
                Some(_) if css.is_empty() || joint == " " => return None,
                Some(name) => css += &format!("::attr({name})"),
                None if css.is_empty() && is_absolute && step != "html" => return None,
                None => {
                    let joint = if css.is_empty() { "" } else { joint };
                    css += &format!("{joint}{}", of_step(step)?);
                }
            },
        }
    }
    (!css.is_empty()).then_some(css)
}

/// The CSS of a step with its conditions: `li[2][@class="a"]`. A number counts what the conditions before it leave, and
/// CSS all siblings of that name: it is the first condition, or there is no CSS.
fn of_step(step: &str) -> Option<String> {
    let (tag, mut conditions) = match step.find('[') {
        Some(at) => step.split_at(at),
        None => (step, ""),
    };
    if tag != "*" && !is_name(tag) {
        return None;
    }
    let is_any = tag == "*";
    let mut css = String::new();
    while let Some(rest) = conditions.strip_prefix('[') {
        let end = end_of_condition(rest)?;
        let (condition, rest) = (rest[..end].trim(), &rest[end + 1..]);
        conditions = rest;
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        css += &match condition {
            "" | "0" => return None,
            counts if !css.is_empty() && (counts == "last()" || is_number(counts)) => return None,
            "last()" if is_any => ":last-child".to_owned(),
            "last()" => ":last-of-type".to_owned(),
            number if is_number(number) && is_any => format!(":nth-child({number})"),
            number if is_number(number) => format!(":nth-of-type({number})"),
            other => of_attribute(other)?,
        };
    }
    match (conditions, is_any && !css.is_empty()) {
        ("", true) => Some(css),
        ("", false) => Some(format!("{tag}{css}")),
        _ => None,
    }
}

/// Where the bracket of a condition ends.
fn end_of_condition(text: &str) -> Option<usize> {
    let mut quote = None;
    text.char_indices()
        .find(|(_, char)| match (char, quote) {
            (']', None) => true,
            ('"' | '\'', None) => {
                quote = Some(*char);
                false
            }
            (char, Some(own)) if *char == own => {
                quote = None;
                false
            }
            _ => false,
        })
        .map(|(at, _)| at)
}

/// The CSS of a condition on an attribute: `@href`, `@class="a"`, `contains(@class, "a")`.
fn of_attribute(condition: &str) -> Option<String> {
    let function = |name: &str| {
        let inner = condition.strip_prefix(name)?.strip_prefix('(')?;
        inner.strip_suffix(')')?.split_once(',')
    };
    let (attribute, operator, value) = if let Some((attribute, value)) = function("contains") {
        (attribute, "*=", value)
    } else if let Some((attribute, value)) = function("starts-with") {
        (attribute, "^=", value)
    } else if let Some((attribute, value)) = condition.split_once('=') {
        (attribute, "=", value)
    } else {
        let name = condition.strip_prefix('@').filter(|name| is_name(name))?;
        return Some(format!("[{name}]"));
    };
    let name = attribute.trim().strip_prefix('@');
    let name = name.filter(|name| is_name(name))?;
    let value = value.trim();
    let within = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    let value = within('"').or_else(|| within('\''))?;
    let is_plain = |c: char| !"\"'\\".contains(c) && !c.is_control();
    if value.is_empty() || !value.chars().all(is_plain) {
        return None;
    }
    Some(match is_name(value) {
        true => format!("[{name}{operator}{value}]"),
        false => format!("[{name}{operator}\"{value}\"]"),
    })
}

/// A name for the value of a selector: its attribute, a class, an id, or the element.
pub fn name_for(css: &str) -> String {
    let run = |text: &str| -> String {
        let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        text.chars().take_while(|c| is_inner(*c)).collect()
    };
    let (element, attribute) = match css.split_once("::attr(") {
        Some((element, attribute)) => (element, run(attribute)),
        None => (css, String::new()),
    };
    let element = element.split("::").next().unwrap_or(element).trim_end();
    let last = element
        .rsplit([' ', '>', '+', '~', ','])
        .next()
        .unwrap_or(element);
    let of_class = last
        .find(['.', '#'])
        .filter(|at| last.find('[').is_none_or(|it| *at < it));
    let of_element = run(&last[of_class.unwrap_or(0)..]);
    let name = match (&*of_element, &*attribute) {
        ("", "") => "field".to_owned(),
        (_, "") => of_element,
        ("", _) => format!("any_{attribute}"),
        (..) => format!("{of_element}_{attribute}"),
    };
    match KEYS.contains(&&*name) {
        true => name + "_text",
        false => name,
    }
}

/// Keys of result lines, which `argiope crawl` refuses as names. Its test checks that these are all.
const KEYS: &[&str] = &[
    "attempt",
    "body",
    "bound",
    "bytes_body",
    "bytes_wire",
    "clock",
    "connect",
    "content_type",
    "delay",
    "depth",
    "digest",
    "dns",
    "due",
    "ended",
    "error",
    "fields",
    "final",
    "first_byte",
    "headers",
    "hold",
    "id",
    "judged",
    "kind",
    "latency",
    "lateness",
    "links",
    "local",
    "meta",
    "method",
    "parent",
    "proxied",
    "redirect",
    "refetched",
    "remote",
    "request",
    "reused",
    "robots",
    "robots_ignored",
    "scopes",
    "seed",
    "sent",
    "server_latency",
    "started",
    "status",
    "tls",
    "tls_handshake",
    "truncated",
    "url",
    "version",
    "warc",
];

/// Whether text may be a selector without a name: it has parts of one, and its brackets are closed.
pub fn may_be_selector(text: &str) -> bool {
    let count = |wanted: char| text.matches(wanted).count();
    text.contains(['.', '#', ':', '[', '/', '>', '@'])
        && !outside(text).any(|(_, char)| char == '=')
        && count('(') == count(')')
        && count('[') == count(']')
}

/// Characters that are in no brackets, in no quotes, and behind no backslash. Of two colons there is none.
fn outside(text: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut quote, mut depth, mut is_escaped) = (None, 0_usize, false);
    let is_plain = move |(at, char): &(usize, char)| {
        if std::mem::take(&mut is_escaped) {
            return false;
        }
        match (*char, quote) {
            ('\\', _) => is_escaped = true,
            (char, Some(own)) if char == own => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => quote = Some(*char),
            ('[' | '(', None) => depth += 1,
            (']' | ')', None) => depth = depth.saturating_sub(1),
            (':', None) => {
                let is_double = text[..*at].ends_with(':') || text[at + 1..].starts_with(':');
                return depth == 0 && !is_double;
            }
            _ => return depth == 0,
        }
        false
    };
    text.char_indices().filter(is_plain)
}

/// Whether text is the name of an element or an attribute.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_inner)
}

fn is_inner(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '-' || char == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selector: &str, what: &str, css: Option<&str>) {
        let found = NotCss::of(selector).unwrap_or_else(|| panic!("{selector} is none"));
        assert_eq!(
            (found.what, found.css.as_deref()),
            (what, css),
            "{selector}"
        );
    }

    #[test]
    fn xpath_has_its_css() {
        check("//h1", XPATH, Some("h1"));
        check("//h1/text()", XPATH, Some("h1"));
        check("h1/text()", XPATH, Some("h1"));
        check("//a/@href", XPATH, Some("a::attr(href)"));
        check("//@href", XPATH, Some("*::attr(href)"));
        check("/html/body/h1", XPATH, Some("html > body > h1"));
        check("(//h1)[1]", XPATH, Some("h1"));
        check("normalize-space(//h1)", XPATH, Some("h1"));
        check(".//ul/li[2]//a", XPATH, Some("ul > li:nth-of-type(2) a"));
        check(
            "//div[@class='a b']/p",
            XPATH,
            Some("div[class=\"a b\"] > p"),
        );
        check("//*[@id=\"x\"]", XPATH, Some("[id=x]"));
        check(
            "//a[contains(@href, '/x]')]",
            XPATH,
            Some("a[href*=\"/x]\"]"),
        );
        check(
            "//a[starts-with(@href,'x')]/@href",
            XPATH,
            Some("a[href^=x]::attr(href)"),
        );
        check("a[@href]", XPATH, Some("a[href]"));
        check("//li[last()]", XPATH, Some("li:last-of-type"));
        check("//h1[1]", XPATH, Some("h1:nth-of-type(1)"));
        check("//ul/*[2]", XPATH, Some("ul > :nth-child(2)"));
        check("./h1", XPATH, Some("h1"));
        // A number counts all of that name only where it is the first condition.
        check("//li[2][@x='a']", XPATH, Some("li:nth-of-type(2)[x=a]"));
        check("//li[last()][@x]", XPATH, Some("li:last-of-type[x]"));
    }

    #[test]
    fn what_css_would_select_otherwise_has_no_css() {
        for path in [
            // The second of those with the class.
            "//div[@class='a'][2]",
            "//div[@class='a'][last()]",
            "//*[@class][1]",
            "//li[2][1]",
            "//li[2][last()]",
            // Nothing: the root of a page is html.
            "/h1",
            "/*/h1",
            "/@href",
            "./@href",
            "/text()",
            // No step of XPath: a class.
            ".price/text()",
            "//a[@x='a\u{1}']",
        ] {
            check(path, XPATH, None);
        }
        // Elements in these, and not they themselves.
        check("ul :first", JQUERY, None);
        check("ul > :eq(0)", JQUERY, None);
        check("div :text", NEITHER, None);
        check("div @href", NEITHER, None);
        // Fields of forms.
        check("form input:text", NEITHER, None);
    }

    #[test]
    fn states_of_a_browser_are_left_out() {
        check("a:hover", STATE, Some("a"));
        check(
            "li a:focus-within::attr(href)",
            STATE,
            Some("li a::attr(href)"),
        );
        check("a:hover > b", STATE, Some("a > b"));
        check("a:hover:focus", STATE, None);
        check(":hover", STATE, None);
    }

    #[test]
    fn what_has_no_simple_css_has_none() {
        for path in [
            "//h1[contains(text(), 'x')]",
            "//a/following-sibling::b",
            "//a | //b",
            "//a[@x and @y]",
            "//a//@href",
            "/",
            "//",
            "//a[",
            "//a[0]",
            "//a[@x='y\\']",
        ] {
            check(path, XPATH, None);
        }
        check("li:eq(2)", JQUERY, None);
        check("h1:contains('x')", JQUERY, None);
        check(":first", JQUERY, None);
    }

    #[test]
    fn jquery_and_short_forms_have_their_css() {
        check("h1:first", JQUERY, Some("h1"));
        check("ul li:first::text", JQUERY, Some("ul li::text"));
        check("h1:eq(0)", JQUERY, Some("h1"));
        check("a@href", NEITHER, Some("a::attr(href)"));
        check("a:attr(href)", NEITHER, Some("a::attr(href)"));
        check("h1:text", NEITHER, Some("h1"));
    }

    #[test]
    fn css_is_no_other_language() {
        for css in [
            "h1",
            "div.price > b",
            "li:first-child",
            "li:first-of-type",
            "a[href*=\"/x\"]",
            "a[href='//b:first']",
            "a[x=\"@y\"]",
            r"a\:first",
            r"a\/b",
            ":is(h1, h2)",
            "h1::text",
            "a::attr(href)",
            "li:nth-child(2n + 1)",
            "p:not(.x)",
            "a:link",
            "input:checked",
        ] {
            assert_eq!(NotCss::of(css), None, "{css}");
        }
    }

    #[test]
    fn a_name_is_that_of_what_is_selected() {
        let check = |css: &str, expected: &str| assert_eq!(name_for(css), expected, "{css}");
        check("h1", "h1");
        check("h1::text", "h1");
        check(".price", "price");
        check("div > p.price", "price");
        check("a::attr(href)", "a_href");
        check("*::attr(href)", "any_href");
        check("img.hero::attr(src)", "hero_src");
        check("[id=x.y]", "id_text");
        check("[href=x.y]", "href");
        check("body", "body_text");
        check("p.status", "status_text");
        check("a.content::attr(type)", "content_type_text");
        check("*", "field");
    }
}
