//! Detects pages served in place of the requested one: challenges, captchas, denials.
//!
//! The search looks for the markup of such pages (containers, scripts, addresses) in its usual
//! position: inside a tag or a script. Pages *about* captchas contain the same words in their text.
//! A normal page may still contain a mark, for example in a form; the caller, which knows the site's
//! other pages, must decide.
//!
//! The list of marks is hand-written, and `regex` searches for them.

use std::sync::LazyLock;

use regex::bytes::Regex;

/// Returns the mark of a block page in a body of this media type: the text that was found.
///
/// Only HTML and bodies without a type are searched, and only their first 16 KiB, since block pages
/// are short. Takes about twenty microseconds.
pub fn block_mark(body: &[u8], content_type: Option<&str>) -> Option<&'static str> {
    if !content_type.is_none_or(is_page) {
        return None;
    }
    let start = &body[..body.len().min(SEARCHED_MAX)];
    markup(start).or_else(|| denial(start))
}

/// A mark in a tag where block pages have it, or in a script.
fn markup(body: &[u8]) -> Option<&'static str> {
    ANY_MARK.find_iter(body).find_map(|found| {
        let words = found.as_bytes();
        is_markup(&body[..found.start()]).then_some(())?;
        MARKS.iter().find(|mark| words == mark.as_bytes()).copied()
    })
}

/// Returns whether text after `before` is inside one of the tags in [`TAGS`], or in the code of a
/// script.
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
        // JSON in a script is text and not code.
        Some(close) => name.eq_ignore_ascii_case(b"script") && !contains(&tag[..close], "json"),
    }
}

/// The title of a page that only denies access.
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

/// Maximum number of bytes searched.
const SEARCHED_MAX: usize = 16 * 1024;
/// Pages that deny access have their title near the beginning.
const TITLE_WITHIN: usize = 2 * 1024;

/// Names of containers, scripts and addresses.
///
/// Not included are those that the same vendors put into normal pages: Cloudflare's
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

/// Tags that contain marks. Links, descriptions and images may merely mention one.
const TAGS: &[&str] = &[
    "script", "iframe", "div", "form", "body", "html", "span", "input", "button", "section",
    "textarea",
];

/// Beginnings of the titles of pages that deny access, and text that must also be present.
const DENIALS: &[(&str, &str)] = &[
    ("Access Denied", "Reference&#32;&#35;"),
    ("Access Denied", "Reference #"),
    ("Just a moment...", "challenge"),
    ("Attention Required! | Cloudflare", "cf-"),
    ("Pardon Our Interruption", "<noscript"),
    ("Robot Check", "captcha"),
    ("Request Rejected", "support ID"),
];

/// Names are matched case-sensitively, as in browsers, which also makes the search several times
/// faster.
static ANY_MARK: LazyLock<Regex> = LazyLock::new(|| {
    let marks: Vec<String> = MARKS.iter().map(|mark| regex::escape(mark)).collect();
    Regex::new(&marks.join("|")).expect("escaped names form a valid pattern")
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
    fn f96_challenges_and_denials_are_recognised_by_their_markup() {
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
    fn f96_vendor_scripts_in_normal_pages_are_no_marks() {
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
    fn f96_a_mark_is_found_after_the_same_text_outside_of_tags() {
        check(
            "<p>g-recaptcha: <div class=g-recaptcha>",
            Some("g-recaptcha"),
        );
    }

    #[test]
    fn f96_only_the_beginning_of_a_page_is_searched() {
        let mark = "<div class=g-recaptcha>";
        let late = format!("{}{mark}", " ".repeat(SEARCHED_MAX));
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
    fn f96_no_truncated_page_makes_the_search_panic() {
        let page = b"<\xff<script>\x00_cf_chl_opt<title>Access Denied</title>Reference #1<";
        for start in 0..page.len() {
            for end in start..=page.len() {
                block_mark(&page[start..end], None);
            }
        }
    }
}
