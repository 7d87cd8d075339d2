//! Random fields of random pages, whole and cut, against what the libraries find in the whole page without any bound.
//!
//! `ARGIOPE_SEEDS` is the number of pages; a failure prints its seed, and `ARGIOPE_SEED` runs that page alone.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::*;
use crate::base::rng::Rng;
use crate::wire::charset::{decode, encoded};
use crate::wire::html::fields::{BUILT_IN, Extraction, FieldSpec, Fields};

/// Pages that are tried. The library without bounds takes a second for some of them in a debug build.
const SEEDS: u64 = 60;

/// A page, and how it is sent.
struct Sent {
    body: Vec<u8>,
    content_type: Option<String>,
    /// No bound is reached in it.
    is_usual: bool,
}

fn pick<T: Clone>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize].clone()
}

const TAGS: [&str; 14] = [
    "div", "p", "b", "i", "span", "ul", "li", "h1", "h2", "a", "section", "em", "td", "img",
];

/// Names of elements that have no content.
const VOID: [&str; 1] = ["img"];

const WORDS: [&str; 12] = [
    "tea",
    "Kaffee",
    "x &amp; y",
    "é",
    "цена",
    "お茶",
    "12.50",
    "&lt;b&gt;",
    "a\n b",
    "&nbsp;",
    "💡",
    "  ",
];

/// Words of an encoding that has few.
const PLAIN_WORDS: [&str; 5] = ["tea", "x &amp; y", "12.50", "a\n b", "&eacute;"];

/// A page that is being written.
struct Writer<'a> {
    rng: &'a mut Rng,
    html: String,
    words: &'static [&'static str],
    /// Bytes to write.
    size: usize,
    is_usual: bool,
}

impl Writer<'_> {
    fn text(&mut self) {
        for _ in 0..self.rng.below(4) {
            let word = pick(self.rng, self.words);
            self.html += word;
            self.html += pick(self.rng, &[" ", "", "\n"]);
        }
    }

    /// A tag that opens an element.
    fn open(&mut self, name: &str) {
        self.html += "<";
        self.html += name;
        let attributes = [
            ("class", ["a", "b", "a b", "c"]),
            ("id", ["x", "y", "z", "x"]),
            ("href", ["/1", "/2?a=1&amp;b=2", "", "http://a.test/"]),
            ("data-n", ["1", "2", "x y", "é"]),
        ];
        for (attribute, values) in attributes {
            if self.rng.chance(0.2) {
                let value = pick(self.rng, &values);
                let value = if value.is_ascii() { value } else { "&eacute;" };
                let quote = pick(self.rng, &["\"", "'"]);
                self.html += &format!(" {attribute}={quote}{value}{quote}");
            }
        }
        self.html += ">";
    }

    /// Elements one in the other and one after the other, until there is enough.
    fn content(&mut self, depth: usize) {
        while self.html.len() < self.size {
            match self.rng.below(24) {
                0 if depth > 0 => return,
                1..=4 => self.text(),
                5 => {
                    self.html += pick(
                        self.rng,
                        &["<!-- <h1>no</h1> -->", "<br>", "<hr/>", "< b", "<?x?>"],
                    )
                }
                6 => self.html += "<script>if (a < b) '<h1>no</h1>'</script>",
                7 => self.html += "<noscript><b class=a>without scripts</b></noscript>",
                8 => {
                    self.html += "<table id=x><tr><td>1<td class=a>2</tr>";
                    if self.rng.chance(0.3) {
                        self.html += pick(self.rng, &["<b>stray</b>", "stray", "<p class=a>stray"]);
                    }
                    self.html += "<tr><td>3</table>";
                }
                9 if self.rng.chance(0.3) => {
                    let name = pick(
                        self.rng,
                        &[
                            "/b",
                            "/p",
                            "/div",
                            "/ul",
                            "/body",
                            "body lang=en",
                            "html lang=de",
                        ],
                    );
                    self.html += &format!("<{name}>");
                }
                10 if self.rng.chance(0.3) => self.html += "<title>late</title>",
                11 if self.rng.chance(0.05) => self.excess(),
                12 => {
                    for _ in 0..self.rng.below(40) {
                        self.open("li");
                        self.text();
                    }
                }
                _ => {
                    let name = pick(self.rng, &TAGS);
                    self.open(name);
                    if VOID.contains(&name) {
                        continue;
                    }
                    match depth < 30 && self.rng.chance(0.6) {
                        true => self.content(depth + 1),
                        false => self.text(),
                    }
                    if self.rng.chance(0.9) {
                        self.html += &format!("</{name}>");
                    }
                }
            }
        }
    }

    /// A part that reaches a bound, or nearly.
    fn excess(&mut self) {
        let count = pick(self.rng, &[40, 300, 600, 3000]);
        self.is_usual &= count < 300;
        let many = |part: &dyn Fn(usize) -> String| (0..count).map(part).collect::<String>();
        self.html += &match self.rng.below(5) {
            0 => many(&|_| "<div>".to_owned()),
            1 => format!("<p id=y data-n='{}'>", "v ".repeat(count * 10)),
            2 => format!("<p {}>", many(&|number| format!("a{number} "))),
            3 => many(&|_| "<b class=a></b>".to_owned()),
            _ => many(&|number| format!("<i id=n{number}></p><p>")),
        };
    }
}

/// No bound is reached in a page of such a length, unless it is made for that.
const USUAL_MAX: usize = 1500;

/// A random page.
fn page(rng: &mut Rng) -> Sent {
    let charset = pick(
        rng,
        &["utf-8", "utf-8", "windows-1252", "shift_jis", "utf-16le"],
    );
    let is_utf = charset.starts_with("utf");
    let size = pick(rng, &[0, 50, 500, 1200, 3000, 6000, 20_000, 60_000]);
    let mut writer = Writer {
        html: String::new(),
        words: if is_utf { &WORDS } else { &PLAIN_WORDS },
        size,
        is_usual: true,
        rng,
    };
    let rng = &mut *writer.rng;
    let is_stated = rng.chance(0.5) && charset != "utf-16le";
    if rng.chance(0.7) {
        let begin = [
            "<!DOCTYPE html><html lang=en><head>",
            "<html><head>",
            "<head>",
        ];
        writer.html += pick(rng, &begin);
    }
    if charset != "utf-8" && charset != "utf-16le" && !is_stated {
        writer.html += &format!("<meta charset={charset}>");
    }
    let parts = [
        "<title>Tea &amp; <b> coffee</title>",
        "<meta name=Description content=' about  tea '>",
        "<link rel='canonical x' href='/tea'>",
        "<style>h1 > b {}</style>",
        "</head>",
        "<body class=a>",
        "<h1>One <b>two</b></h1>",
    ];
    for part in parts {
        if rng.chance(0.6) {
            writer.html += part;
        }
    }
    writer.content(0);
    let Writer { html, is_usual, .. } = writer;
    let body = match charset {
        "utf-16le" => {
            let units = html.encode_utf16().flat_map(u16::to_le_bytes);
            [0xff, 0xfe].into_iter().chain(units).collect()
        }
        label => encoded(&html, label),
    };
    Sent {
        body,
        content_type: is_stated.then(|| format!("text/html; charset={charset}")),
        is_usual: is_usual && html.len() <= USUAL_MAX,
    }
}

/// A random field, of this name unless it is built in.
fn field(rng: &mut Rng, name: &str) -> String {
    if rng.chance(0.25) {
        let (name, _) = pick(rng, BUILT_IN);
        return name.to_owned();
    }
    let mut selector = compound(rng);
    for _ in 0..rng.below(3) {
        selector += pick(rng, &[" ", " > ", " + ", " ~ ", ", "]);
        selector += &compound(rng);
    }
    let end = pick(
        rng,
        &[
            "",
            "",
            "::text",
            "::attr(href)",
            "::attr(data-n)",
            "::attr(class)",
        ],
    );
    format!("{name}={selector}{end}")
}

/// Selectors that cost much in small pages, too.
const NESTED: [&str; 2] = [":not(ul li)", ":is(h1, h2, .b)"];

fn compound(rng: &mut Rng) -> String {
    let mut compound = match rng.chance(0.7) {
        true => pick(rng, &TAGS).to_owned(),
        false => "*".to_owned(),
    };
    let more = [
        ".a",
        ".b",
        "#x",
        "#y",
        "[href]",
        "[data-n='x y']",
        "[class~=b]",
        ":first-child",
        ":last-child",
        ":nth-child(2n+1)",
        ":nth-last-child(3)",
        ":nth-of-type(2)",
        ":only-child",
        ":empty",
        ":not(.a)",
        NESTED[0],
        NESTED[1],
    ];
    for _ in 0..rng.below(3) {
        compound += pick(rng, &more);
    }
    compound
}

/// What the libraries find in the part of a page that is read.
fn expected(fields: &[FieldSpec], sent: &Sent) -> Vec<Option<String>> {
    let read = &sent.body[..sent.body.len().min(READ_MAX)];
    let options = ParseOpts {
        tree_builder: TreeBuilderOpts {
            scripting_enabled: false,
            ..TreeBuilderOpts::default()
        },
        ..ParseOpts::default()
    };
    let sink = HtmlTreeSink::new(Html::new_document());
    let html = parse_document(sink, options).one(&*decode(read, sent.content_type.as_deref()));
    let value = |field: &FieldSpec| {
        let selector = UnboundedSelector::parse(&field.selector).expect("it was read before");
        let elements = html.tree.root().descendants().filter_map(ElementRef::wrap);
        let mut matching = elements.filter(|element| selector.matches(element));
        let text = match &field.attribute {
            None => matching.next()?.text().collect::<String>(),
            Some(name) => matching.find_map(|element| element.attr(name))?.to_owned(),
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let words = words.join(" ");
        let end = words.floor_char_boundary(VALUE_MAX);
        Some(words[..end].trim_end().to_owned())
    };
    fields.iter().map(value).collect()
}

/// Fields without a value.
#[derive(Default)]
struct Missing {
    /// Fields that are looked for in all of a page.
    unknown: usize,
    /// Fields of the head, which are not looked for far behind it.
    of_head: usize,
}

/// The values that are found are the expected ones, or missing.
fn check_values(
    found: &Fields,
    expected: &[Option<String>],
    specs: &[FieldSpec],
    length: usize,
    of: &str,
) -> Missing {
    let mut missing = Missing::default();
    for (((name, value), expected), spec) in found.iter().zip(expected).zip(specs) {
        assert!(
            value.is_none() || value == expected.as_deref(),
            "{of}: {}: {value:?}, not {expected:?}",
            spec.text
        );
        let is_of_head = OF_HEAD.contains(&name) && *spec.text == *name && length > BODY_READ_MAX;
        match value {
            Some(_) => {}
            None if is_of_head => missing.of_head += 1,
            None => {
                missing.unknown += 1;
                assert!(
                    expected.is_none() || found.is_partial(),
                    "{of}: {}: nothing, not {expected:?}",
                    spec.text
                );
            }
        }
    }
    assert!(
        !found.is_partial() || missing.unknown + missing.of_head > 0,
        "{of}: nothing is missing in {found:?}"
    );
    missing
}

fn check(seed: u64) {
    let mut rng = Rng::from_seed(seed);
    let sent = page(&mut rng);
    let mut fields: Vec<String> = Vec::new();
    for number in 0..1 + rng.below(5) {
        let field = field(&mut rng, &format!("f{number}"));
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    let specs: Vec<FieldSpec> = fields
        .iter()
        .map(|field| FieldSpec::parse(field).unwrap_or_else(|error| panic!("{field}: {error:?}")))
        .collect();
    let extraction = Extraction::new(specs.clone());
    let extraction = extraction.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
    let fields_of = |body: &[u8], is_cut_off| {
        let fields = extraction.fields_of(body, sent.content_type.as_deref(), is_cut_off);
        fields.expect("there are some")
    };
    let expected = expected(&specs, &sent);
    let length = sent.body.len();
    let whole = fields_of(&sent.body, false);
    check_values(
        &whole,
        &expected,
        &specs,
        length,
        &format!("seed {seed}, whole"),
    );
    let is_nested = fields
        .iter()
        .any(|field| NESTED.iter().any(|part| field.contains(part)));
    assert!(
        !whole.is_partial() || !sent.is_usual || is_nested,
        "seed {seed}: no bound is reached: {fields:?}"
    );
    let selectors = Selectors::new(&specs).expect("they are valid");
    // A character may take three bytes where it took one.
    let steps_max = steps_max(3 * length, fields.len());
    for found in selectors.search(&sent.body, sent.content_type.as_deref(), false) {
        assert!(
            found.steps <= steps_max || found.is_cut,
            "seed {seed}: {found:?} of {fields:?} has more than {steps_max} steps"
        );
    }
    for _ in 0..4 {
        let cut = rng.below(length as u64 + 1) as usize;
        let found = fields_of(&sent.body[..cut], true);
        let of = format!("seed {seed}, cut at {cut} of {length}");
        let missing = check_values(&found, &expected, &specs, length, &of);
        assert!(
            found.is_partial() || missing.unknown == 0,
            "{of}: {found:?} of {fields:?} is not all"
        );
    }
}

#[test]
fn random_fields_of_random_pages_are_those_of_the_whole_page() {
    let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
    let seeds = match number("ARGIOPE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("ARGIOPE_SEEDS").unwrap_or(SEEDS) + 1,
    };
    let fails = |seed: &u64| catch_unwind(AssertUnwindSafe(|| check(*seed))).is_err();
    let failed: Vec<u64> = seeds.filter(fails).collect();
    assert!(
        failed.is_empty(),
        "ARGIOPE_SEED=… runs one of these again: {failed:?}"
    );
}
