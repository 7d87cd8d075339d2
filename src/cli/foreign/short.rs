//! Short flags of wget and Scrapy for `crawl`, and those of curl with the same letters for `fetch`.

use super::Foreign;

const CRAWL: &[&str] = &["crawl"];
const FETCH: &[&str] = &["fetch"];

/// Each letter, for `crawl` and for `fetch`.
pub(super) const ROWS: &[Foreign] = &[
    Foreign {
        commands: CRAWL,
        flags: &["-w"],
        cure: "for a gap between the requests to a host write --delay D",
        tries: &["--delay 2"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-w", "--write-out"],
        cure: "leave it out: the line on stdout has status, times and sizes as JSON",
        tries: &[""],
    },
    Foreign {
        commands: CRAWL,
        flags: &["-j", "-n", "-Z"],
        cure: "to limit the requests in flight to a host write --concurrency N, in all -s CONCURRENT_REQUESTS=N",
        tries: &["--concurrency 4", "-s CONCURRENT_REQUESTS=16"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-j", "--junk-session-cookies"],
        cure: "leave it out: cookies are sent only of --cookies FILE, and kept only then or with -s COOKIES_ENABLED=true",
        tries: &["", "--cookies cookies.txt", "-s COOKIES_ENABLED=true"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-n"],
        cure: "to log in to a host write --user-for HOST NAME:PASSWORD",
        tries: &["--user-for a.test name:password"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-Z"],
        cure: "leave it out: hosts are asked at once; for several requests in flight to one write --concurrency N",
        tries: &["", "--concurrency 4"],
    },
    Foreign {
        commands: CRAWL,
        flags: &["-t"],
        cure: "write -s RETRY_TIMES=RETRIES, one less than the tries",
        tries: &["-s RETRY_TIMES=2"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-t", "--telnet-option"],
        cure: "only http and https are fetched; for the number of retries write -s RETRY_TIMES=N",
        tries: &["-s RETRY_TIMES=2"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-e"],
        cure: "write the header out: --header 'Referer: https://example.com/'",
        tries: &["--header Referer:https://example.com/"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-r", "--range"],
        cure: "to ask for a part write --header 'Range: bytes=0-99'",
        tries: &["--header Range:bytes=0-99"],
    },
    Foreign {
        commands: FETCH,
        flags: &["-F", "--form"],
        cure: "to send a form write -d 'a=b&c=d'; one with files is made by another program, and sent by --data-binary @FILE",
        tries: &["-d a=b&c=d", "--data-binary @form"],
    },
];
