//! The marks of pages that stand in another page's place: challenges, captchas, denials.
//!
//! What is looked for is markup that such pages are made of (containers, scripts, addresses), in
//! its place: inside a tag or a script. Pages *about* captchas have the same words in their text.
//! An ordinary page may still carry a mark, in a form for example; what to make of it is for the
//! caller to judge, who knows the site's other pages.

use std::sync::LazyLock;

use regex::bytes::Regex;

/// The mark of a block in a body of this media type, by the words that were found.
///
/// Only HTML, and what has no type, is looked at, and of it the first 16 KiB: such a page has
/// little else to say. That takes some twenty microseconds.
pub fn block_mark(body: &[u8], content_type: Option<&str>) -> Option<&'static str> {
    if !content_type.is_none_or(is_page) {
        return None;
    }
    let start = &body[..body.len().min(LOOKED_AT)];
    markup(start).or_else(|| denial(start))
}

/// A mark in a tag that such pages have it in, or in a script.
fn markup(body: &[u8]) -> Option<&'static str> {
    ANY_MARK.find_iter(body).find_map(|found| {
        let words = found.as_bytes();
        is_markup(&body[..found.start()]).then_some(())?;
        MARKS.iter().find(|mark| words == mark.as_bytes()).copied()
    })
}

/// Whether what follows `before` stands inside a tag of those in [`TAGS`], or in a script's code.
fn is_markup(before: &[u8]) -> bool {
    let Some(open) = before.iter().rposition(|byte| *byte == b'<') else {
        return false;
    };
    let tag = &before[open + 1..];
    let name = tag
        .iter()
        .position(|byte| !byte.is_ascii_alphabetic())
        .map_or(tag, |end| &tag[..end]);
    match tag.iter().position(|byte| *byte == b'>') {
        None => TAGS
            .iter()
            .any(|tag| name.eq_ignore_ascii_case(tag.as_bytes())),
        // An article in JSON is text, wherever it stands.
        Some(close) => name.eq_ignore_ascii_case(b"script") && !contains(&tag[..close], "json"),
    }
}

/// The title of a page that says no more than that access was denied.
fn denial(body: &[u8]) -> Option<&'static str> {
    let head = &body[..body.len().min(TITLE_WITHIN)];
    let title = TITLE.captures(head)?.get(1)?.as_bytes();
    DENIALS
        .iter()
        .find(|(words, beside)| starts_with(title, words) && contains(body, beside))
        .map(|(words, _)| *words)
}

fn is_page(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or("").trim();
    ["", "text/html", "application/xhtml+xml"]
        .iter()
        .any(|page| essence.eq_ignore_ascii_case(page))
}

fn starts_with(text: &[u8], words: &str) -> bool {
    text.trim_ascii_start()
        .get(..words.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(words.as_bytes()))
}

fn contains(text: &[u8], words: &str) -> bool {
    text.windows(words.len())
        .any(|window| window.eq_ignore_ascii_case(words.as_bytes()))
}

/// How much of a body is looked at.
const LOOKED_AT: usize = 16 * 1024;
/// Pages that deny come to the point at once.
const TITLE_WITHIN: usize = 2 * 1024;

/// Names of containers, scripts and addresses.
///
/// Left out is what the same vendors put into ordinary pages as well: Cloudflare's
/// `challenge-platform/scripts`, Imperva's `_Incapsula_Resource?SWJIYLWA`.
const MARKS: &[&str] = &[
    // reCAPTCHA, hCaptcha, Turnstile.
    "g-recaptcha",
    "recaptcha/api.js",
    "recaptcha/enterprise.js",
    "h-captcha",
    "hcaptcha.com/1/api.js",
    "cf-turnstile",
    "challenges.cloudflare.com/turnstile",
    // Cloudflare's interstitial and its error page.
    "orchestrate/chl_page/",
    "orchestrate/jsch/",
    "orchestrate/managed/",
    "orchestrate/captcha/",
    "_cf_chl_opt",
    "cf-challenge",
    "cf-error-details",
    // Imperva.
    "_Incapsula_Resource?CWUDNSAI",
    "_Incapsula_Resource?SWUDNSAI",
    // HUMAN, DataDome, Akamai, AWS, F5, GeeTest, Arkose, Sucuri.
    "px-captcha",
    "captcha.px-cdn.net",
    "captcha-delivery.com",
    "sec-if-cpt-container",
    "awsWafCookieDomainList",
    "bobcmn",
    "geetest.com/",
    "funcaptcha.com/",
    "sucuri_cloudproxy_js",
];

/// Tags that carry marks. Links, descriptions and images may speak of one.
const TAGS: &[&str] = &[
    "script", "iframe", "div", "form", "body", "html", "span", "input", "button", "section",
    "textarea",
];

/// How the titles of pages that deny begin, and what stands beside them.
const DENIALS: &[(&str, &str)] = &[
    ("Access Denied", "Reference&#32;&#35;"),
    ("Access Denied", "Reference #"),
    ("Just a moment...", "challenge"),
    ("Attention Required! | Cloudflare", "cf-"),
    ("Pardon Our Interruption", "<noscript"),
    ("Robot Check", "captcha"),
    ("Request Rejected", "support ID"),
];

/// Names are matched to the letter, as browsers do: that also makes the search several times quicker.
static ANY_MARK: LazyLock<Regex> = LazyLock::new(|| {
    let marks: Vec<String> = MARKS.iter().map(|mark| regex::escape(mark)).collect();
    Regex::new(&marks.join("|")).expect("names that were escaped are a pattern")
});

static TITLE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i-u)<title[^>]*>([^<]{1,100})").expect("a pattern"));

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: Option<&str>) {
        assert_eq!(block_mark(body.as_bytes(), Some("text/html")), expected);
    }

    #[test]
    fn f96_challenges_and_denials_are_known_by_their_markup() {
        check(
            r#"<form><div class="g-recaptcha" data-sitekey="x"></div></form>"#,
            Some("g-recaptcha"),
        );
        check(
            r#"<SCRIPT SRC='https://www.google.com/recaptcha/api.js' async></SCRIPT>"#,
            Some("recaptcha/api.js"),
        );
        check("<div id=px-captcha></div>", Some("px-captcha"));
        check(
            "<script>(function(){window._cf_chl_opt={cvId:'3'",
            Some("_cf_chl_opt"),
        );
        check(
            r#"<script>var a=document.createElement('script');a.src='/cdn-cgi/challenge-platform/h/g/orchestrate/chl_page/v1?ray=1'"#,
            Some("orchestrate/chl_page/"),
        );
        check(
            r#"<iframe id="main-iframe" src="/_Incapsula_Resource?SWUDNSAI=31&xinfo=1"></iframe>"#,
            Some("_Incapsula_Resource?SWUDNSAI"),
        );
        check(
            r#"<script data-cfasync="false" src="https://ct.captcha-delivery.com/c.js"></script>"#,
            Some("captcha-delivery.com"),
        );
        check(
            "<HTML><HEAD><TITLE>Access Denied</TITLE></HEAD>Reference&#32;&#35;18&#46;1",
            Some("Access Denied"),
        );
        check(
            "<html><title> Just a moment...</title><p id='challenge-error-text'>",
            Some("Just a moment..."),
        );
    }

    #[test]
    fn f96_pages_that_talk_about_captchas_have_no_mark() {
        check(
            "<p>Solve the captcha! Our CAPTCHA uses g-recaptcha.</p>",
            None,
        );
        check(
            "<pre>&lt;div class=&quot;g-recaptcha&quot;&gt; window._cf_chl_opt</pre>",
            None,
        );
        check(
            r#"<a href="/docs/g-recaptcha">how to add a g-recaptcha</a>"#,
            None,
        );
        check(
            r#"<meta name="description" content="px-captcha and captcha-delivery.com explained">"#,
            None,
        );
        check(
            r#"<script type="application/ld+json">{"text":"use captcha-delivery.com"}</script>"#,
            None,
        );
        check("<title>Access Denied: a novel</title><p>Chapter one", None);
        check("<title>Just a moment...</title><p>A song", None);
        check("captcha", None);
        check("", None);
    }

    #[test]
    fn f96_what_vendors_put_into_ordinary_pages_is_no_mark() {
        check(
            r#"<script src="/cdn-cgi/challenge-platform/scripts/jsd/main.js"></script>"#,
            None,
        );
        check(
            r#"<script src="/_Incapsula_Resource?SWJIYLWA=719d34d31c8e3a6e6fffd425f7e032f3"></script>"#,
            None,
        );
    }

    #[test]
    fn f96_a_mark_is_found_behind_the_same_words_in_the_text() {
        check(
            "<p>g-recaptcha: <div class=g-recaptcha>",
            Some("g-recaptcha"),
        );
    }

    #[test]
    fn f96_only_the_beginning_of_pages_is_looked_at() {
        let mark = "<div class=g-recaptcha>";
        let late = format!("{}{mark}", " ".repeat(LOOKED_AT));
        check(&late, None);
        check(&late[mark.len()..], Some("g-recaptcha"));
        let of_type = |content_type| block_mark(mark.as_bytes(), content_type);
        assert_eq!(
            of_type(Some("text/HTML; charset=utf-8")),
            Some("g-recaptcha")
        );
        assert_eq!(of_type(None), Some("g-recaptcha"));
        assert_eq!(of_type(Some("application/json")), None);
        assert_eq!(of_type(Some("image/png")), None);
    }

    #[test]
    fn f96_no_cut_of_a_page_is_too_odd() {
        let page = b"<\xff<script>\x00_cf_chl_opt<title>Access Denied</title>Reference #1<";
        for start in 0..page.len() {
            for end in start..=page.len() {
                block_mark(&page[start..end], None);
            }
        }
    }
}
