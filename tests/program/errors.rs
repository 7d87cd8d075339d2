//! Errors of the API: each has a stable code, a source, `is_retryable`, and prints as a sentence.

use std::error::Error;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use argiope::parts::CodingError;
use argiope::parts::{HttpError, RequestError};
use argiope::throttle::map::UnknownMap;
use argiope::{
    AdmitError, Config, ControlError, Crawler, Failure, FailureKind, ProxyError, Request,
    ScopesError, SeedError, SetUpError, SubmitError, UrlError, WriteError,
};

fn is_an_error(error: impl Error + Send + Sync + 'static) -> Box<dyn Error> {
    Box::new(error)
}

#[test]
fn each_error_has_a_code_a_source_and_is_retryable() {
    macro_rules! check {
        ($error:expr, $code:expr, $again:expr, $has_cause:expr) => {{
            let error = $error;
            assert_eq!((&*error.code(), error.is_retryable()), ($code, $again));
            let said = error.to_string();
            assert!(!said.is_empty() && !said.contains('\n'), "{said:?}");
            // What `main` prints of it.
            let printed = format!("{error:?}");
            assert!(
                printed.starts_with(&said) && !printed.contains('\n'),
                "{printed}"
            );
            assert_eq!(is_an_error(error).source().is_some(), $has_cause, "{said}");
        }};
    }
    let request = || Box::new(Request::get("http://a.test/"));
    let failure = |kind, code| Failure::new(kind, code, "what was seen");
    check!(
        failure(FailureKind::Dns, "nxdomain"),
        "dns.nxdomain",
        false,
        false
    );
    check!(
        failure(FailureKind::Dns, "servfail"),
        "dns.servfail",
        true,
        false
    );
    check!(
        failure(FailureKind::Connect, "refused"),
        "connect.refused",
        true,
        false
    );
    check!(
        failure(FailureKind::Timeout, "first_byte"),
        "timeout.first_byte",
        true,
        false
    );
    check!(
        failure(FailureKind::Robots, "disallowed"),
        "robots.disallowed",
        false,
        false
    );
    check!(
        failure(FailureKind::Robots, "unreachable"),
        "robots.unreachable",
        true,
        false
    );
    check!(
        failure(FailureKind::Cancelled, "asked"),
        "cancelled.asked",
        false,
        false
    );
    check!(
        failure(FailureKind::Cancelled, "stopped"),
        "cancelled.stopped",
        true,
        false
    );

    check!(
        AdmitError::Url(UrlError::Relative),
        "url.relative",
        false,
        true
    );
    check!(
        AdmitError::Scopes(ScopesError::Unnamed),
        "scopes.unnamed",
        false,
        false
    );
    let method = RequestError::Method("a b".to_owned());
    check!(AdmitError::Request(method), "request.method", false, false);
    check!(AdmitError::Over, "over", false, false);
    check!(SubmitError::Full(request()), "full", true, false);
    check!(SubmitError::Over(request()), "over", false, false);
    let why = AdmitError::Url(UrlError::NoHost);
    let refused = SubmitError::Rejected {
        request: request(),
        why,
    };
    check!(refused, "url.no_host", false, true);
    check!(ControlError::Busy, "busy", true, false);
    check!(ControlError::Over, "over", false, false);

    check!(ScopesError::TooMany(99), "scopes.too_many", false, false);
    check!(
        Request::from_line("{").expect_err("no JSON"),
        "seed.json",
        false,
        false
    );
    check!(SeedError::NotAUrl("?".to_owned()), "seed.url", false, false);
    check!(
        SeedError::Several("a.test b.test".to_owned()),
        "seed.several",
        false,
        false
    );
    check!(
        UnknownMap("none".to_owned()),
        "scope_map.unknown",
        false,
        false
    );
    check!(ProxyError::Port, "port", false, false);
    check!(UrlError::Host, "host", false, false);
    check!(HttpError::TruncatedChunks, "chunks", true, false);
    check!(HttpError::Status, "status", false, false);
    check!(CodingError::Bomb, "bomb", false, false);

    let unknown = Config::default()
        .with("NO_SUCH_SETTING", 1)
        .expect_err("there is none");
    check!(unknown.clone(), "config", false, false);
    check!(SetUpError::from(unknown), "config", false, false);
    let config = Config::default()
        .with("CA_FILE", "/no/such/file.pem")
        .expect("a path");
    let unreadable = Crawler::builder(config)
        .build()
        .map(drop)
        .expect_err("there is none");
    check!(unreadable, "file.not_found", false, true);
    check!(
        SetUpError::from(io::Error::from_raw_os_error(24)),
        "io.open_files",
        true,
        true
    );
    let write = |kind: ErrorKind| WriteError::new("results.jsonl", &kind.into());
    check!(write(ErrorKind::StorageFull), "full", false, true);
    check!(write(ErrorKind::Interrupted), "other", true, true);
}

#[test]
fn a_cause_that_the_sentence_lacks_is_printed_behind_it() {
    let config = Config::default().with("DOWNLOAD_DELAY", "soon");
    let error: Box<dyn Error> = config.expect_err("no duration").into();
    let printed = format!("{error:?}");
    assert_eq!(printed, error.to_string());
    assert!(
        printed.starts_with("DOWNLOAD_DELAY: \"soon\" is not a duration"),
        "{printed}"
    );
    let refused = AdmitError::Url(UrlError::NoHost);
    assert_eq!(format!("{refused:?}"), "invalid URL: the URL has no host");
}

#[test]
fn every_error_is_non_exhaustive_with_code_and_is_retryable() {
    let mut found = 0;
    let mut wrong = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder is readable") {
            let path = entry.expect("an entry").path();
            // Errors of `io` are converted on the floors above it, and `cli` is not part of the library.
            let is_inside = path.ends_with("src/io") || path.ends_with("src/cli");
            if path.is_dir() && !is_inside {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let code = fs::read_to_string(&path).expect("a source file is text");
                for (name, may_grow) in errors(&code) {
                    found += 1;
                    let begins = format!("\nimpl {name} {{");
                    let own = code.split(&begins).skip(1);
                    let own: String = own.filter_map(|rest| rest.split("\n}").next()).collect();
                    let is_sentence = code.contains(&format!("debug_as_sentence!({name});"));
                    let has_code = own.contains("fn code(") && own.contains("fn is_retryable(");
                    if !may_grow || !has_code || !is_sentence {
                        wrong.push(format!("{name} in {}", path.display()));
                    }
                }
            }
        }
    }
    assert!(found >= 18, "{found}");
    assert!(
        wrong.is_empty(),
        "an enum is #[non_exhaustive], and every error has code(), is_retryable() and \
         debug_as_sentence!: {wrong:?}"
    );
}

/// The names of the public error types in a file, and whether each is non-exhaustive.
fn errors(code: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    for derive in code.split("#[derive(").skip(1) {
        let Some((derived, rest)) = derive.split_once(")]") else {
            continue;
        };
        let is_error = derived.split(", ").any(|name| name.ends_with("Error"));
        let attributes = rest.split("\npub ").next().unwrap_or("");
        let item = rest[attributes.len()..].trim_start().strip_prefix("pub ");
        if let Some(item) = item.filter(|_| is_error && !attributes.contains("\n\n")) {
            let mut words = item.split([' ', '(', ';']);
            let (kind, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let may_grow = kind == "struct" || attributes.contains("#[non_exhaustive]");
            found.push((name, may_grow));
        }
    }
    found
}
