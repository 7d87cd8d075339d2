//! Wrong command lines and files, as people write them: each message says what is wrong, where, and how to mend it,
//! and the mended command works.

use std::path::Path;

use crate::run::{Ended, Going};
use crate::server::{Server, page};

/// A mistake in a folder with these files, words of its message, and the command line that mends it as the message says;
/// `&&` separates several, of which the first may make the crawl that is continued.
///
/// Words are separated by spaces; `·` stands for a space within one. `URL` is that of a server on loopback, `NET` what
/// lets a crawl fetch from it at once.
pub struct Mistake {
    wrong: &'static str,
    files: &'static [(&'static str, &'static str)],
    says: &'static [&'static str],
    mended: &'static str,
}

pub const fn of(
    wrong: &'static str,
    says: &'static [&'static str],
    mended: &'static str,
) -> Mistake {
    Mistake {
        wrong,
        files: &[],
        says,
        mended,
    }
}

pub const fn with(
    files: &'static [(&'static str, &'static str)],
    wrong: &'static str,
    says: &'static [&'static str],
    mended: &'static str,
) -> Mistake {
    Mistake {
        wrong,
        files,
        says,
        mended,
    }
}

const MISTAKES: &[Mistake] = &[
    // No command, or another one.
    of("", &["no command given", "argiope --help"], "--help"),
    of(
        "URL",
        &["unrecognized subcommand", "`argiope crawl http://"],
        "crawl URL NET",
    ),
    // Words where URLs are expected.
    of(
        "crawl URL NET —max-pages 1",
        &["begins with a long dash", "--max-pages"],
        "crawl URL NET --max-pages 1",
    ),
    of(
        "crawl URL NET -s DEPTH_LIMIT=1 RETRY_TIMES=2",
        &["RETRY_TIMES=2", "each setting has its own -s"],
        "crawl URL NET -s DEPTH_LIMIT=1 -s RETRY_TIMES=2",
    ),
    of(
        "crawl URL NET max-pages=1",
        &["write --max-pages 1"],
        "crawl URL NET --max-pages 1",
    ),
    with(
        &[("urls.txt", "{url}\n")],
        "crawl NET urls.txt",
        &["urls.txt is a file here", "--seeds urls.txt"],
        "crawl NET --seeds urls.txt",
    ),
    of(
        "crawl URL NET -max-pages 1",
        &["no -max-pages; write --max-pages"],
        "crawl URL NET --max-pages 1",
    ),
    of(
        "crawl --user-for a.test URL NET",
        &["--user-for has taken http", "the URL behind that"],
        "crawl --user-for a.test name:password URL NET",
    ),
    // Values that are empty, or of something else.
    of(
        "crawl URL NET --proxy=",
        &["--proxy", "the value is empty"],
        "crawl URL NET",
    ),
    of(
        "crawl URL NET -H X-A: 1",
        &["--header", "quote the whole"],
        "crawl URL NET -H X-A:·1",
    ),
    of(
        "crawl URL NET --out items.json",
        &["--out items.json", "--results - > items.json"],
        "crawl URL NET --results -",
    ),
    of(
        "crawl URL NET --results - --warc",
        &["--warc", "give --out"],
        "crawl URL NET --results - --warc --out out",
    ),
    of(
        "crawl URL NET --results out.jsonl",
        &["--results - > FILE"],
        "crawl URL NET --results -",
    ),
    of(
        "crawl URL NET --admin 9115",
        &["without an address; write --admin 127.0.0.1:9115"],
        "crawl URL NET --admin 127.0.0.1:0",
    ),
    of(
        "crawl URL NET -s JOBDIR=x",
        &["-s JOBDIR: unknown setting", "--resume --out DIR"],
        "crawl URL NET --out x && crawl --resume --out x",
    ),
    with(
        &[
            ("c.toml", "[HOSTS.login.test]\nuser = \"a:b\"\n"),
            ("d.toml", "[HOSTS.\"login.test\"]\nuser = \"a:b\"\n"),
        ],
        "crawl URL NET --config c.toml",
        &["c.toml:1", "put the name of the host in quotes"],
        "crawl URL NET --config d.toml",
    ),
    with(
        &[
            ("c.toml", "[HOSTS.\"login.test\"]\nDOWNLOAD_DELAY = 1\n"),
            ("d.toml", "DOWNLOAD_DELAY = 1\n[HOSTS.\"login.test\"]\n"),
        ],
        "crawl URL NET --config c.toml",
        &[
            "DOWNLOAD_DELAY",
            "THROTTLING_SCOPES.\"login.test\".delay",
            "above the first [table]",
        ],
        "crawl URL NET --config d.toml",
    ),
    with(
        &[
            ("c.toml", "[host.\"login.test\"]\nuser = \"a:b\"\n"),
            ("d.toml", "[HOSTS.\"login.test\"]\nuser = \"a:b\"\n"),
        ],
        "crawl URL NET --config c.toml",
        &["did you mean HOSTS?"],
        "crawl URL NET --config d.toml",
    ),
    with(
        &[
            ("c.toml", "[scopes.\"login.test\"]\ndelay = 2\n"),
            ("d.toml", "[THROTTLING_SCOPES.\"login.test\"]\ndelay = 2\n"),
        ],
        "crawl URL NET --config c.toml",
        &["did you mean THROTTLING_SCOPES?"],
        "crawl URL NET --config d.toml",
    ),
    with(
        &[
            ("c.toml", "[throttling_scope.\"login.test\"]\ndelay = 2\n"),
            ("d.toml", "[THROTTLING_SCOPES.\"login.test\"]\ndelay = 2\n"),
        ],
        "crawl URL NET --config c.toml",
        &["did you mean THROTTLING_SCOPES?"],
        "crawl URL NET --config d.toml",
    ),
    with(
        &[
            ("c.toml", "[crawl]\nDOWNLOAD_DELAY = 1\n"),
            ("d.toml", "DOWNLOAD_DELAY = 1\n"),
        ],
        "crawl URL NET --config c.toml",
        &["leave out [crawl]"],
        "crawl URL NET --config d.toml",
    ),
    of(
        "crawl URL NET --deny *.jpg",
        &["--deny", "write [.]jpg$"],
        "crawl URL NET --deny [.]jpg$",
    ),
    of(
        "crawl URL NET --deny *.tar.gz",
        &["--deny", "write [.]tar[.]gz$"],
        "crawl URL NET --deny [.]tar[.]gz$",
    ),
    of(
        "crawl URL NET --exclude shop.test",
        &["--exclude shop.test", "-s EXCLUDE=shop.test"],
        "crawl URL NET -s EXCLUDE=shop.test",
    ),
    of(
        "fetch URL NET -o none/x",
        &["-o none/x", "its folder does not exist"],
        "fetch URL NET -o x",
    ),
    of(
        "links URL",
        &["is no file", "`argiope fetch http"],
        "fetch URL NET -o page.html",
    ),
    of(
        "crwl URL",
        &["'crwl'", "did you mean crawl?"],
        "crawl URL NET",
    ),
    of(
        "mirror URL",
        &["'mirror'", "write `argiope crawl URL`"],
        "crawl URL NET",
    ),
    of(
        "download URL",
        &["'download'", "write `argiope fetch URL`"],
        "fetch URL NET",
    ),
    of(
        "crawl",
        &["<URL>", "as in `argiope crawl https://example.com"],
        "crawl URL NET",
    ),
    of(
        "fetch",
        &["<URL>", "as in `argiope fetch https://example.com`"],
        "fetch URL NET",
    ),
    // Flags of other programs, and misspelt ones.
    of(
        "crawl URL --max-size 1000",
        &["no --max-size; to limit a body write --max-body, to limit the crawl --max-bytes"],
        "crawl URL NET --max-body 1000 --max-bytes 100kB",
    ),
    of(
        "crawl URL --wait 1",
        &["no --wait; ", "--delay 1"],
        "crawl URL NET --delay 0",
    ),
    of(
        "crawl URL --level=2",
        &["no --level; ", "--max-depth 2"],
        "crawl URL NET --max-depth 2",
    ),
    of(
        "crawl URL -np",
        &[
            "no -np; ",
            "https://example.com/docs/ --allow '^https://example\\.com/docs/'",
        ],
        "crawl URLdocs/ NET --allow ^http://.*/docs/",
    ),
    of(
        "crawl URL -o out.json",
        &["no -o; ", "--out DIR"],
        "crawl URL NET --out out",
    ),
    of(
        "crawl URL --no-robots",
        &["no --no-robots; ", "--ignore-robots"],
        "crawl URL NET --ignore-robots",
    ),
    of(
        "fetch URL --max-pages 3",
        &["no --max-pages; it is a flag of `argiope crawl`"],
        "crawl URL NET --max-pages 3",
    ),
    of(
        "fetch URL -I",
        &["no -I; ", "-X HEAD"],
        "fetch URL NET -X HEAD",
    ),
    of(
        "crawl URL --timout 5",
        &["'--timout'", "did you mean --timeout?"],
        "crawl URL NET --timeout 5",
    ),
    of(
        "crawl URL --frobnicate",
        &["'--frobnicate'", "argiope crawl --help"],
        "crawl --help",
    ),
    of(
        "crawl URL --timeout",
        &["--timeout <D>", "write --timeout <D>"],
        "crawl URL NET --timeout 5s",
    ),
    // Values.
    of(
        "crawl URL --timeout abc",
        &["--timeout: \"abc\" is not a duration"],
        "crawl URL NET --timeout 5s",
    ),
    of(
        "crawl URL --delay=-1",
        &["--delay: \"-1\" is negative"],
        "crawl URL NET --delay 0",
    ),
    of(
        "crawl URL --concurrency 0",
        &["--concurrency: ", "too small"],
        "crawl URL NET --concurrency 1",
    ),
    of(
        "crawl URL --max-pages many",
        &["--max-pages: \"many\" is not a whole number"],
        "crawl URL NET --max-pages 5",
    ),
    of(
        "crawl URL --max-bytes 5XB",
        &["--max-bytes: \"5XB\" is not a size"],
        "crawl URL NET --max-bytes 5MB",
    ),
    of(
        "crawl URL --max-body 2GiB",
        &[
            "--max-body: ",
            "lower --max-body or raise BUFFERED_BODIES_MAX",
        ],
        "crawl URL NET --max-body 2GiB -s BUFFERED_BODIES_MAX=4GiB",
    ),
    of(
        "crawl URL --follow hosts",
        &["--follow: \"hosts\" ", "did you mean host?"],
        "crawl URL NET --follow host",
    ),
    of(
        "crawl URL --deny (",
        &["--deny: ", "unclosed group"],
        "crawl URL NET --deny \\(",
    ),
    of(
        "crawl URL --allow-net 10.0.0.0/99",
        &["--allow-net: ", "give a CIDR"],
        "crawl URL NET --allow-net 10.0.0.0/8",
    ),
    of(
        "crawl URL --resolve a.test:80",
        &["--resolve: ", "write HOST:PORT:ADDR"],
        "crawl URL NET --resolve a.test:80:127.0.0.1",
    ),
    of(
        "crawl URL --dns ns.test",
        &["--dns: ", "is not a name server; give an address"],
        "crawl URL NET --dns 192.0.2.1",
    ),
    of(
        "crawl URL NET -s",
        &["write -s NAME=VALUE", "as curl's -s, write --quiet"],
        "crawl URL NET --quiet",
    ),
    of(
        "fetch URL NET -s",
        &["write -s NAME=VALUE", "as curl's -s, leave it out"],
        "fetch URL NET",
    ),
    of(
        "crawl URL -H nothing",
        &[
            "--header: a header has no colon",
            "write it as \"Name: value\"",
        ],
        "crawl URL NET -H Name:value",
    ),
    of(
        "crawl URL --contact me",
        &["--contact: \"me\" is not a contact", "mail address"],
        "crawl URL NET --contact me@example.org",
    ),
    of(
        "crawl URL --proxy p.test:3128",
        &["--proxy: invalid proxy", "write http://p.test:3128"],
        "settings --proxy http://p.test:3128 PROXY",
    ),
    of(
        "crawl URL --preset brod",
        &["--preset: unknown preset \"brod\"; did you mean broad?"],
        "crawl URL NET --preset broad",
    ),
    of(
        "crawl URL --io kqueue",
        &["--io: \"kqueue\" ", "auto, epoll or uring"],
        "crawl URL NET --io epoll",
    ),
    // Settings.
    of(
        "crawl URL -s X",
        &["-s X: missing value; write -s NAME=VALUE"],
        "crawl URL NET -s RETRY_TIMES=1",
    ),
    of(
        "crawl URL -s DOWNLOAD_DEALY=1",
        &["-s DOWNLOAD_DEALY: unknown setting; did you mean DOWNLOAD_DELAY?"],
        "crawl URL NET -s DOWNLOAD_DELAY=0",
    ),
    of(
        "crawl URL -s RETRY_TIMES=-1",
        &["-s RETRY_TIMES: ", "0 or more"],
        "crawl URL NET -s RETRY_TIMES=0",
    ),
    of(
        "settings RETRY_TIME",
        &["RETRY_TIME: unknown setting; did you mean RETRY_TIMES?"],
        "settings RETRY_TIMES",
    ),
    // Files of settings.
    with(
        &[("c.toml", "DOWNLOAD_DELAY = 1\n")],
        "crawl URL --config nowhere.toml",
        &["nowhere.toml: cannot be read", "give a readable text file"],
        "crawl URL NET --config c.toml",
    ),
    with(
        &[
            ("a.toml", "retry_times = 1\nfollow =\n"),
            ("b.toml", "retry_times = 1\nfollow = \"host\"\n"),
        ],
        "crawl URL --config a.toml",
        &["a.toml:2: ", "correct the TOML"],
        "crawl URL NET --config b.toml",
    ),
    with(
        &[
            ("a.toml", "\ndownload_dealy = 1\n"),
            ("b.toml", "\ndownload_delay = 0\n"),
        ],
        "crawl URL --config a.toml",
        &["a.toml:2: download_dealy: unknown setting; did you mean DOWNLOAD_DELAY?"],
        "crawl URL NET --config b.toml",
    ),
    with(
        &[
            ("a.toml", "retry_times = 1\nRETRY_TIMES = 2\n"),
            ("b.toml", "retry_times = 1\n"),
        ],
        "crawl URL --config a.toml",
        &[
            "a.toml:2: RETRY_TIMES: already set at ",
            "remove one of them",
        ],
        "crawl URL NET --config b.toml",
    ),
    with(
        &[
            ("a.toml", "[throttling_scopes.\"a.test\"]\nconcurency = 2\n"),
            (
                "b.toml",
                "[throttling_scopes.\"a.test\"]\nconcurrency = 2\n",
            ),
        ],
        "crawl URL --config a.toml",
        &[
            "a.toml:2: throttling_scopes.\"a.test\".concurency: ",
            "did you mean concurrency?",
        ],
        "crawl URL NET --config b.toml",
    ),
    with(
        &[("a", "# ours\nhttp://c.test\n"), ("b", "# ours\nc.test\n")],
        "crawl URL --exclude a",
        &[
            "--exclude a:2: \"http://c.test\" is neither a host nor a network",
            "give example.com",
        ],
        "crawl URL NET --exclude b",
    ),
    of(
        "crawl URL --exclude nowhere",
        &["nowhere: cannot be read", "give a readable text file"],
        "crawl URL NET --exclude /dev/null",
    ),
    of(
        "crawl URL --ca-file nowhere.pem",
        &["(--ca-file)", "nowhere.pem"],
        "crawl URL NET",
    ),
    // Seeds.
    with(
        &[("here.txt", "{url}\n")],
        "crawl --seeds nowhere.txt",
        &["--seeds: ", "nowhere.txt", "No such file"],
        "crawl NET --seeds here.txt",
    ),
    with(
        &[("a", "# none\n")],
        "crawl --seeds a",
        &["the seeds contain no URL", "give one per line"],
        "crawl --seeds a URL NET",
    ),
    with(
        &[("urls.json", "[\"{url}\"]\n"), ("urls.txt", "{url}\n")],
        "crawl --seeds urls.json",
        &[
            "--seeds: urls.json is a JSON array",
            "jq -r '.[]' urls.json | argiope crawl --seeds -\n",
        ],
        "crawl --seeds urls.txt NET",
    ),
    with(
        &[("urls.json", "[\"{url}\"]\n"), ("urls.txt", "{url}\n")],
        "probe --targets urls.json --every 1s",
        &["jq -r '.[]' urls.json | argiope probe --every 15s --targets -\n"],
        "probe --targets urls.txt --every 1s --duration 1s --allow-net loopback",
    ),
    of(
        "fetch URLa·URLb NET",
        &["has more than one URL or host", "%20 for a space"],
        "fetch URLa%20URLb NET",
    ),
    with(
        &[("map.xml", "<?xml version='1.0'?>\n<urlset></urlset>\n")],
        "crawl URL --seeds map.xml",
        &[
            "map.xml is a sitemap",
            "argiope crawl '{\"url\": \"https://example.com/sitemap.xml\", \"sitemap\": 1}'\n",
        ],
        "crawl {\"url\":·\"URLsitemap.xml\",·\"sitemap\":·1} NET",
    ),
    with(
        &[("a", "{url}x, {url}y\n"), ("b", "{url}x\n{url}y\n")],
        "crawl --results - --quiet --seeds a",
        &["the seeds contain no URL (1 line is invalid)"],
        "crawl --seeds b NET",
    ),
    of(
        "crawl --seeds /dev/zero",
        &["--seeds: /dev/zero is no text", "a URL in each line"],
        "crawl URL NET",
    ),
    of(
        "crawl --seeds .",
        &["--seeds: ", "directory"],
        "crawl URL NET",
    ),
    // Flags that need others.
    of(
        "crawl URL --ignore-robots-everywhere",
        &["--ignore-robots"],
        "crawl URL NET --ignore-robots --ignore-robots-everywhere",
    ),
    of(
        "crawl URL --salvage",
        &["write --resume --salvage --out DIR"],
        "crawl URL NET --out x && crawl --resume --salvage --out x",
    ),
    of(
        "crawl --resume --out nowhere",
        &[
            "--resume: nowhere does not exist",
            "name the directory of a crawl with --out",
        ],
        "crawl URL NET --out here && crawl --resume --out here",
    ),
    of(
        "crawl URL --ignore-robots -s ROBOTSTXT_IGNORED_HOSTS_MAX=many",
        &["-s ROBOTSTXT_IGNORED_HOSTS_MAX: "],
        "crawl URL NET --ignore-robots -s ROBOTSTXT_IGNORED_HOSTS_MAX=0",
    ),
    // A flag with a value of its own has not taken the URL.
    of(
        "probe --keep-connections URL",
        &["--every"],
        "probe --keep-connections URL --every 1s --duration 1s --allow-net loopback",
    ),
    of(
        "crawl --contact https://me.test/bot",
        &["<URL>", "as in `argiope crawl"],
        "crawl --contact https://me.test/bot URL NET",
    ),
    of(
        "crawl --out URL",
        &["--out has taken http", "the URL behind that"],
        "crawl --out out URL NET",
    ),
    // Rates and gaps.
    of(
        "probe URL --interval 0.05",
        &["no --interval", "for a request every 0.05 write --rate 20"],
        "probe URL --rate 20 --requests 2 --allow-net loopback",
    ),
    of(
        "crawl URL --rps 3000",
        &["no --rps", "write --delay 0.000334"],
        "crawl URL NET --delay 0.000334",
    ),
    of(
        "crawl URL --max-kb-sec 500",
        &["write -s BYTES_PER_SECOND_MAX=500kB"],
        "crawl URL NET -s BYTES_PER_SECOND_MAX=500kB",
    ),
    of(
        "crawl URL NET -s RETRY_ENABLED=true",
        &["leave it out", "to retry nothing"],
        "crawl URL NET",
    ),
    // Files of URLs for commands without --seeds.
    with(
        &[("urls.txt", "{url}\n")],
        "fetch urls.txt",
        &["`argiope crawl --seeds urls.txt --follow none`"],
        "crawl --seeds urls.txt --follow none NET",
    ),
    with(
        &[("urls.txt", "{url}\n")],
        "probe urls.txt",
        &["write --targets urls.txt --every 15s"],
        "probe --targets urls.txt --every 1s --duration 1s --allow-net loopback",
    ),
    of(
        "fetch URL max-pages=1",
        &["\"max-pages=1\" is no URL; no --max-pages; it is a flag of `argiope crawl`"],
        "crawl URL NET --max-pages 1",
    ),
    // The output directory.
    with(
        &[("crawl/results.jsonl", "")],
        "crawl URL",
        &[
            "crawl already holds a crawl",
            "continue it with --resume",
            "another directory with --out",
            "delete that crawl's files with --overwrite",
        ],
        "crawl URL NET --overwrite",
    ),
    with(
        &[("file", "")],
        "crawl URL --out file",
        &["file is not a directory", "--out"],
        "crawl URL NET --out folder",
    ),
    // Tables of results.
    of(
        "export --csv url status .",
        &[
            "--csv has taken .",
            "write argiope export . --csv url status",
        ],
        "crawl URL NET --out . && export . --csv url status",
    ),
    of(
        "export --all --csv url status . -o the·pages.csv --replied",
        &["write argiope export . --all --csv url status -o 'the pages.csv' --replied\n"],
        "crawl URL NET --out . && export . --all --csv url status -o the·pages.csv --replied",
    ),
    of(
        "export . --csv url -o .",
        &["-o .: it is a directory: name a file"],
        "crawl URL NET --out . && export . --csv url -o a.csv",
    ),
    of(
        "export . --csv url -o none/a.csv",
        &["-o none/a.csv: its folder does not exist"],
        "crawl URL NET --out . && export . --csv url -o a.csv",
    ),
    of(
        "export . --csv url -o /dev/null",
        &[
            "-o /dev/null: it is not a new file",
            "write -o - > /dev/null",
        ],
        "crawl URL NET --out . && export . --csv url -o -",
    ),
    of(
        "export . --csv url -o /dev/stdout",
        &["-o /dev/stdout: it is not a new file", "write -o -\n"],
        "crawl URL NET --out . && export . --csv url -o -",
    ),
    // Other commands.
    of(
        "fetch URL URL -o body",
        &["-o/--body-out saves the body of one URL", "give only one"],
        "fetch URL NET -o body",
    ),
    of(
        "fetch ftp://a.test/",
        &[
            "\"ftp://a.test/\" is not an HTTP URL",
            "begin it with http://",
        ],
        "fetch URL NET",
    ),
    with(
        &[("robots.txt", "")],
        "robots robots.txt /x",
        &["--agent: missing; give --agent NAME"],
        "robots robots.txt --agent me /x",
    ),
    with(
        &[("page.html", "")],
        "links page.html",
        &["--base is missing; give the page's URL: --base URL"],
        "links page.html --base URL",
    ),
    of(
        "probe URL --rate 0",
        &["--rate: 0 is not a rate", "above 0"],
        "probe URL --allow-net loopback --rate 50 --requests 5",
    ),
    of("completions tcsh", &["'tcsh'", "bash"], "completions bash"),
];

/// Runs a command line in a folder.
pub fn run(line: &str, url: &str, folder: &Path) -> Ended {
    let net = "--allow-net loopback -s DOWNLOAD_DELAY=0";
    let line = line.replace("NET", net).replace("URL", url);
    let words: Vec<String> = (line.split_whitespace())
        .map(|word| word.replace('·', " "))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Going::start(&words, folder, b"").wait()
}

#[test]
fn each_mistake_is_answered_with_what_where_and_how_to_mend_it() {
    check(MISTAKES);
    assert!(MISTAKES.len() >= 40, "{}", MISTAKES.len());
}

/// Runs each mistake, and what mends it.
pub fn check(mistakes: &[Mistake]) {
    let server = Server::new(|_| page("a page"));
    let url = server.url("/");
    for mistake in mistakes {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in mistake.files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
            std::fs::write(path, text.replace("{url}", &url)).expect("a file");
        }
        let (wrong, mended) = (mistake.wrong, mistake.mended);
        let ended = run(wrong, &url, folder.path());
        assert_eq!(ended.code, Some(2), "{wrong}: {}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{wrong}: {}", ended.err);
        assert_eq!(ended.out, "", "{wrong}");
        for part in mistake.says {
            assert!(
                ended.err.contains(part),
                "{wrong}: {part:?} is not in: {}",
                ended.err
            );
        }
        for line in mended.split(" && ") {
            let ended = run(line, &url, folder.path());
            assert_eq!(ended.code, Some(0), "{line}: {}", ended.err);
        }
    }
}

#[test]
fn an_order_whose_words_changed_places_is_given_as_the_message_says() {
    let server = Server::new(|_| page("<a href=/a>a</a><a href=/b>b</a>"));
    let folder = tempfile::tempdir().expect("a folder");
    let url = server.url("/");
    let fixed = [
        "crawl",
        "--quiet",
        "--out",
        "out",
        "--allow-net",
        "loopback",
    ];
    let args = [&fixed[..], &["--delay", "1h", &url]].concat();
    let going = Going::start(&args, folder.path(), b"");
    server.wait_for_requests(1);
    let wrong = run("ctl stop out", &url, folder.path()).expect(2);
    let words = "write argiope ctl out stop";
    assert!(wrong.err.contains(words), "{}", wrong.err);
    run("ctl out stop", &url, folder.path()).expect(0);
    going.wait().expect(3);
}
