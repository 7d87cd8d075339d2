//! Flags that beginners try, after the words of the help or of their task. A test parses each cure.

use super::Foreign;

const CRAWL: &[&str] = &["crawl"];
const BOTH: &[&str] = &["crawl", "fetch"];

/// In the order of what they are about.
pub(super) const ROWS: &[Foreign] = &[
    Foreign {
        commands: CRAWL,
        flags: &["--dry-run"],
        cure: "argiope url URL says whether a crawl would fetch it; to try a crawl write --max-pages 1",
        tries: &["--max-pages 1"],
    },
    Foreign {
        commands: CRAWL,
        flags: &["--domain", "--same-domain"],
        cure: "to stay on the domains of the seeds write --follow domain",
        tries: &["--follow domain"],
    },
    Foreign {
        commands: CRAWL,
        flags: &["--same-host", "--no-external"],
        cure: "links to the hosts of the seeds alone are followed; to say so write --follow host",
        tries: &["--follow host"],
    },
    Foreign {
        commands: CRAWL,
        flags: &["--external", "--follow-external"],
        cure: "to follow links to other hosts write --follow all",
        tries: &["--follow all"],
    },
    Foreign {
        commands: CRAWL,
        flags: &["--ignore-robots-txt", "--disobey-robots"],
        cure: "write --ignore-robots, for sites whose operators agree",
        tries: &["--ignore-robots"],
    },
    Foreign {
        commands: CRAWL,
        flags: &["--respect-robots"],
        cure: "robots.txt is obeyed: leave it out",
        tries: &[],
    },
    Foreign {
        commands: BOTH,
        flags: &["--no-cookies"],
        cure: "cookies of replies are not kept unless --cookies FILE is given: leave it out",
        tries: &["--cookies cookies.txt"],
    },
    Foreign {
        commands: BOTH,
        flags: &["--cookies-file", "--cookie-file"],
        cure: "write --cookies FILE",
        tries: &["--cookies cookies.txt"],
    },
    Foreign {
        commands: BOTH,
        flags: &["--basic-auth", "--netrc", "--auth-basic"],
        cure: "to log in to one host write --user-for HOST NAME:PASSWORD",
        tries: &["--user-for a.test name:password"],
    },
    Foreign {
        commands: BOTH,
        flags: &["--bearer", "--token", "--oauth2-bearer"],
        cure: "write --header-for HOST 'Authorization: Bearer TOKEN'",
        tries: &["--header-for a.test Authorization:x"],
    },
    Foreign {
        commands: BOTH,
        flags: &["--ua"],
        cure: "for the User-Agent write -A TEXT",
        tries: &["-A own/1.0"],
    },
    Foreign {
        commands: CRAWL,
        flags: &["--seeds-file"],
        cure: "to read URLs from a file write --seeds FILE",
        tries: &["--seeds urls.txt"],
    },
    Foreign {
        commands: CRAWL,
        flags: &["--exclude-pattern"],
        cure: "to leave out URLs that match an expression write --deny REGEX",
        tries: &["--deny [.]pdf$"],
    },
    Foreign {
        commands: BOTH,
        flags: &["--log"],
        cure: "the log is on standard error: write 2> FILE behind the command",
        tries: &[],
    },
    Foreign {
        commands: BOTH,
        flags: &["--allow-loopback", "--allow-network"],
        cure: "write --allow-net loopback, or --allow-net private",
        tries: &["--allow-net loopback", "--allow-net private"],
    },
    Foreign {
        commands: CRAWL,
        flags: &["--max", "--limit-pages"],
        cure: "to limit the pages write --max-pages N",
        tries: &["--max-pages 10"],
    },
    Foreign {
        commands: CRAWL,
        flags: &[
            "--max-pages-per-domain",
            "--pages-per-domain",
            "--domain-limit",
        ],
        cure: "to limit the pages of a domain write -s PAGES_PER_DOMAIN_MAX=N",
        tries: &["-s PAGES_PER_DOMAIN_MAX=1"],
    },
    Foreign {
        commands: CRAWL,
        flags: &["--spider"],
        cure: "pages are fetched whole, and their links with them; to store no bodies write --no-warc",
        tries: &["--no-warc"],
    },
    Foreign {
        commands: CRAWL,
        flags: &["--contact-email", "--operator-email"],
        cure: "write --contact MAIL-OR-URL",
        tries: &["--contact me@a.test"],
    },
    Foreign {
        commands: BOTH,
        flags: &["--javascript", "--js", "--render", "--headless"],
        cure: "scripts are not run: leave it out",
        tries: &[],
    },
    Foreign {
        commands: CRAWL,
        flags: &["--port", "--metrics", "--metrics-port", "--listen"],
        cure: "for the live page and /metrics write --admin 127.0.0.1:9115",
        tries: &["--admin 127.0.0.1:9115"],
    },
    Foreign {
        commands: CRAWL,
        flags: &["--background", "--daemon", "--detach", "-b"],
        cure: "write & behind the command, or run it as a service",
        tries: &[],
    },
];
