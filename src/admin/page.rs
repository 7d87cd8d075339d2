//! The page for browsers: one file, whose script reads the events and calls of this interface.

use crate::admin::response::Response;

/// The reply with the page.
pub fn page() -> Response {
    let page = include_bytes!("page.html").to_vec();
    Response::of(200, "text/html; charset=utf-8", page)
        .with("Content-Security-Policy", POLICY)
        .with("Referrer-Policy", "no-referrer")
}

/// Only the style and the script of the file, by their digests, which a test compares; requests to the crawl only.
/// The script cannot turn text into elements, even by mistake.
const POLICY: &str = "default-src 'none'; \
    style-src 'sha256-Bi9WNHLNCjiUmEv9UG0wNbGjmjRwmib4Q+uYMqGzDKU='; \
    script-src 'sha256-LYGs3fVmMXE0BXdIrQe7S3ichUVzBnhUSF6fXWxDPPs='; \
    connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

#[cfg(test)]
mod tests {
    #[test]
    fn the_script_makes_no_elements_from_text_and_stores_nothing() {
        let page = include_str!("page.html");
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "createContextualFragment",
            "DOMParser",
            "srcdoc",
            "document.write",
            "eval",
            "Function(",
            "localStorage",
            "sessionStorage",
            "indexedDB",
            "cookie",
        ] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn the_page_refers_to_no_other_file() {
        let page = include_str!("page.html");
        for forbidden in [
            " src=", "<link", "@import", "url(", "import(", "<img", "<iframe",
        ] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        let mut rest = page.replace("http://www.w3.org/2000/svg", "");
        rest.retain(|character| character != ' ');
        assert!(!rest.contains("http://") && !rest.contains("https://"));
    }
}
