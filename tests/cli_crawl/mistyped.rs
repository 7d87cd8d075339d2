//! Wrong values of flags, and wrong orders, as people type them: each message has what mends it.

use std::net::TcpListener;
use std::path::Path;

use crate::mistakes::{Mistake, check, of, run};
use crate::run::{Going, check_refused};
use crate::server::{Server, page};

const MISTAKES: &[Mistake] = &[
    // Selectors that are no CSS.
    of(
        "crawl URL NET --extract //h1",
        &[
            "--extract: \"//h1\" is XPath",
            "a CSS selector; write h1=h1",
        ],
        "crawl URL NET --extract h1=h1",
    ),
    of(
        "crawl URL NET --extract h=//h1/text()",
        &["\"h=//h1/text()\" is XPath", "write h=h1"],
        "crawl URL NET --extract h=h1",
    ),
    of(
        "crawl URL NET --extract h=h1/text()",
        &["is XPath", "write h=h1"],
        "crawl URL NET --extract h=h1",
    ),
    of(
        "crawl URL NET --extract h=//a/@href",
        &["is XPath", "write 'h=a::attr(href)'"],
        "crawl URL NET --extract h=a::attr(href)",
    ),
    of(
        "crawl URL NET --extract //div[@class='a·b']/p[2]",
        &[
            "is XPath",
            "write 'p=div[class=\"a b\"] > p:nth-of-type(2)'",
        ],
        "crawl URL NET --extract p=div[class=\"a·b\"]·>·p:nth-of-type(2)",
    ),
    of(
        "crawl URL NET --extract //div[@class='a'][2]",
        &["is XPath", "write it as in a style sheet"],
        "crawl URL NET --extract price=div.price·>·b",
    ),
    of(
        "crawl URL NET --extract a:hover",
        &["\"a:hover\" is a selector with a state that only a browser has; write a=a\n"],
        "crawl URL NET --extract a=a",
    ),
    of(
        "crawl URL NET --extract a:checked",
        &[
            "is without a name, and with a selector that cannot be read",
            "such as div.price > b, and write NAME=SELECTOR",
        ],
        "crawl URL NET --extract price=div.price·>·b",
    ),
    of(
        "crawl URL NET --extract .status",
        &["is without a name; write status_text=.status"],
        "crawl URL NET --extract status_text=.status",
    ),
    of(
        "crawl URL NET --extract h=//a[.//b]",
        &["is XPath", "'price=div.price > b'"],
        "crawl URL NET --extract price=div.price·>·b",
    ),
    of(
        "crawl URL NET --extract h1::text",
        &["\"h1::text\" is without a name; write h1=h1::text"],
        "crawl URL NET --extract h1=h1::text",
    ),
    of(
        "crawl URL NET --extract a::attr(href)",
        &["is without a name; write 'a_href=a::attr(href)'"],
        "crawl URL NET --extract a_href=a::attr(href)",
    ),
    of(
        "crawl URL NET --extract .price",
        &["is without a name; write price=.price"],
        "crawl URL NET --extract price=.price",
    ),
    of(
        "crawl URL NET --extract h=h1:first",
        &["is a selector of jQuery", "write h=h1"],
        "crawl URL NET --extract h=h1",
    ),
    of(
        "crawl URL NET --extract h=a@href",
        &["is no CSS selector; write 'h=a::attr(href)'"],
        "crawl URL NET --extract h=a::attr(href)",
    ),
    of(
        "crawl URL NET --extract :is(h1,·h2)",
        &["\":is(h1, h2)\" is without a name; write 'h2=:is(h1, h2)'"],
        "crawl URL NET --extract h2=:is(h1,·h2)",
    ),
    // A name that result lines have.
    of(
        "crawl URL NET --extract url=h1",
        &[
            "--extract: \"url=h1\" is named as the key url",
            "'page_url=h1'",
        ],
        "crawl URL NET --out x --extract page_url=h1 && export x --csv url page_url",
    ),
    of(
        "crawl URL NET -s EXTRACT=status=h1",
        &["-s EXTRACT: ", "'page_status=h1'"],
        "crawl URL NET -s EXTRACT=page_status=h1",
    ),
    // Numbers.
    of(
        "crawl URL --delay -1",
        &["--delay: \"-1\" is negative; give a duration of 0 or more"],
        "crawl URL NET --delay 0",
    ),
    of(
        "crawl URL --delay 2/s",
        &["--delay: \"2/s\" is a rate", "between two requests: 500ms"],
        "crawl URL NET --delay 500ms",
    ),
    of(
        "crawl URL --delay 2rps",
        &["--delay: \"2rps\" is a rate", "between two requests: 500ms"],
        "crawl URL NET --delay 500ms",
    ),
    of(
        "crawl URL --rate 2/s",
        &["no --rate; to send 2/s to a host write --delay 0.5"],
        "crawl URL NET --delay 0.5",
    ),
    of(
        "crawl URL --concurrency -3",
        &["--concurrency: \"-3\" is not", "1 or more, up to 65535"],
        "crawl URL NET --concurrency 3",
    ),
    of(
        "crawl URL --max-pages -1",
        &["--max-pages: \"-1\" is not a whole number", "0 or more"],
        "crawl URL NET --max-pages 1",
    ),
    of(
        "crawl URL --max-pages 99999999999999999999",
        &[
            "--max-pages: ",
            "is too large; give at most 9223372036854775807",
        ],
        "crawl URL NET --max-pages 9223372036854775807",
    ),
    of(
        "crawl URL --max-pages 10,000",
        &["--max-pages: ", "write 10000"],
        "crawl URL NET --max-pages 10000",
    ),
    of(
        "crawl URL --max-depth 1e9",
        &["--max-depth: ", "write 1000000000"],
        "crawl URL NET --max-depth 1000000000",
    ),
    of(
        "crawl URL --max-time 10·minutes",
        &["--max-time: ", "write 10m"],
        "crawl URL NET --max-time 10m",
    ),
    of(
        "crawl URL --follow -1",
        &["\"-1\" is read as a flag; as the value of --follow write --follow=-1"],
        "crawl URL NET --follow none",
    ),
    of(
        "probe URL --requests -1",
        &["'-1' for '--requests <N>': negative", "from 1 to"],
        "probe URL --allow-net loopback --rate 50 --requests 1",
    ),
    of(
        "demo --domains 99999999999",
        &["'--domains <N>': too large", "from 1 to 4294967295"],
        "settings",
    ),
    // Flags that wget and curl use otherwise.
    of(
        "crawl URL NET -A jpg,pdf",
        &[
            "--user-agent: \"jpg,pdf\" lists endings",
            "write --allow '(/|[.]html?|[.](jpg|pdf))$'",
            "write --user-agent NAME/1.0",
        ],
        "crawl URL NET --allow (/|[.]html?|[.](jpg|pdf))$ && crawl URL NET --out x --user-agent NAME/1.0",
    ),
    of(
        "crawl URL NET -R jpg,*.pdf",
        &["no -R; ", "--deny '[.](jpg|pdf)$'"],
        "crawl URL NET --deny [.](jpg|pdf)$",
    ),
    of(
        "crawl URL NET -H http://b.test/",
        &["is a URL", "--follow all"],
        "crawl URL NET --follow all",
    ),
    of(
        "crawl -H URL",
        &["-H has taken http", "wget's -H, write --follow all"],
        "crawl --follow all URL NET",
    ),
    of(
        "fetch NET -s URL",
        &["-s has taken http", "curl's -s is not needed: leave it out"],
        "fetch NET URL",
    ),
    of(
        "fetch URL NET -s URL",
        &["a URL, and -s takes NAME=VALUE", "leave -s out"],
        "fetch URL NET",
    ),
    // Addresses to listen at.
    of(
        "crawl URL NET --admin host.test:9000",
        &["a name, where an address", "write --admin 127.0.0.1:9000"],
        "crawl URL NET --admin 127.0.0.1:0",
    ),
    of(
        "crawl URL NET --admin 127.0.0.1:99999",
        &[
            "a port is a number from 0 to 65535",
            "--admin 127.0.0.1:9115",
        ],
        "crawl URL NET --admin localhost:0",
    ),
    // Methods.
    of(
        "fetch URL NET -X=",
        &["-X: the method is empty", "such as -X HEAD"],
        "fetch URL NET -X HEAD",
    ),
    of(
        "fetch URL NET -X GET·IT",
        &["-X: \"GET IT\" is no method", "write -X GET"],
        "fetch URL NET -X GET",
    ),
    // The flag and not the setting.
    of(
        "crawl URL --cookies nowhere.txt",
        &["nowhere.txt (--cookies): "],
        "crawl URL NET",
    ),
    of(
        "crawl URL --user me:x -H Authorization:y",
        &["--user and the header Authorization exclude each other"],
        "crawl URL NET --user me:x",
    ),
];

#[test]
fn each_wrong_value_is_answered_with_the_one_that_is_meant() {
    check(MISTAKES);
}

#[test]
fn words_that_are_no_orders_are_answered_with_the_orders_that_are() {
    let folder = tempfile::tempdir().expect("a folder");
    for (wrong, part) in [
        ("halt", "\"halt\" is no order; write argiope ctl out stop"),
        ("quit", "write argiope ctl out stop"),
        ("kill", "write argiope ctl out stop --now"),
        ("abort", "write argiope ctl out stop --now"),
        ("unpause", "write argiope ctl out resume"),
        ("delay 2", "write argiope ctl out set default delay=2"),
        ("delay a.test 3", "write argiope ctl out set a.test delay=3"),
        (
            "delay 127.0.0.1:81",
            "write argiope ctl out set 127.0.0.1:81 delay=2",
        ),
        (
            "delay 127.0.0.1:81 3s",
            "write argiope ctl out set 127.0.0.1:81 delay=3s",
        ),
        (
            "delay 163.com 5",
            "write argiope ctl out set 163.com delay=5",
        ),
        ("delay 2/s", "write argiope ctl out set default delay=2/s\n"),
        ("block a.test", "write argiope ctl out exclude a.test"),
        ("block 163.com", "write argiope ctl out exclude 163.com"),
        ("block 10.0.0.1", "write argiope ctl out exclude 10.0.0.1"),
        ("block *.a.test", "write argiope ctl out exclude '*.a.test'"),
        (
            "add http://a.test/",
            "write echo 'http://a.test/' | argiope ctl out seeds -",
        ),
        (
            "http://a.test/",
            "to ask about it argiope ctl out url http://a.test/",
        ),
        (
            "http://a.test/?a=b&c",
            "write echo 'http://a.test/?a=b&c' | argiope ctl out seeds -, to ask about it argiope ctl out url \
             'http://a.test/?a=b&c'\n",
        ),
        ("stpo", "did you mean stop? write argiope ctl out stop"),
        (
            "inclued *.a.test",
            "did you mean include? write argiope ctl out include '*.a.test'",
        ),
        (
            "Stop --now",
            "did you mean stop? write argiope ctl out stop --now",
        ),
        ("frobnicate", "the orders are status, scopes, queues"),
        (
            "pause 10m",
            "pause does not take \"10m\"; a pause has no end of its own; write argiope ctl out pause, and later argiope ctl \
             out resume",
        ),
        (
            "pause a.test",
            "pause does not take \"a.test\"; for one scope write argiope ctl out hold a.test 1h",
        ),
        ("resume a.test", "write argiope ctl out release a.test"),
        ("stop 5", "write argiope ctl out stop --grace 5"),
        ("stop 1m30s", "write argiope ctl out stop --grace 1m30s"),
        (
            "stop 9minutes",
            "write argiope ctl out stop --grace 9minutes",
        ),
        (
            "stop 10.0.0.1",
            "for one scope write argiope ctl out cancel 10.0.0.1",
        ),
        ("stop 163.com", "write argiope ctl out cancel 163.com"),
        ("hold a.test", "as in `argiope ctl out hold a.test 1h`"),
        ("forget", "as in `argiope ctl out forget default`"),
        (
            "limits --max-pages 5",
            "write argiope ctl out limits closespider_pagecount=5",
        ),
        (
            "limits --max-pages=5",
            "write argiope ctl out limits closespider_pagecount=5",
        ),
        ("limits max-pages", "write NAME=VALUE"),
        (
            "set a.test --delay 2",
            "write argiope ctl out set a.test delay=2",
        ),
        ("log loud", "'loud'"),
        ("log loud", "give off, error, warn, info, debug, trace"),
        (
            "seeds http://a.test/",
            "echo 'http://a.test/' | argiope ctl out seeds -",
        ),
        ("scopes --limit -1", "negative; give a whole number from 1"),
        ("stop --grace -1", "is negative"),
        ("priority a.test high", "from -1000 to 1000"),
    ] {
        std::fs::create_dir_all(folder.path().join("out")).expect("a folder");
        let ended = run(&format!("ctl out {wrong}"), "", folder.path());
        check_refused(&ended, &[part]);
    }
    // What is right is sent to the crawl.
    for right in [
        "limits max-pages=5",
        "log debug",
        "log Warning",
        "stop --grace 5",
    ] {
        let ended = run(&format!("ctl out {right}"), "", folder.path());
        check_refused(&ended, &["no crawl is running in out"]);
    }
    for (wrong, cure) in [
        ("halt out", "argiope ctl out stop\n"),
        // Also an order of other programs, and there is no such directory.
        ("halt crawl", "argiope ctl crawl stop\n"),
        ("delay crawl 3", "argiope ctl crawl set default delay=3\n"),
        ("stop my·crawl", "argiope ctl 'my crawl' stop\n"),
    ] {
        let swapped = run(&format!("ctl {wrong}"), "", folder.path());
        let words = format!(" stands where the directory does; write {cure}");
        check_refused(&swapped, &[&words]);
    }
    // Directories with the names of such orders.
    for name in ["crawl", "continue", "kill"] {
        std::fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    for (wrong, cure) in [
        ("halt crawl", "argiope ctl crawl stop\n"),
        ("suspend continue", "argiope ctl continue pause\n"),
        ("kill crawl", "argiope ctl kill seeds urls.txt\n"),
        ("crawl kill", "argiope ctl crawl stop --now\n"),
        ("crawl add", "argiope ctl crawl seeds urls.txt\n"),
    ] {
        check_refused(&run(&format!("ctl {wrong}"), "", folder.path()), &[cure]);
    }
    let spaced = folder.path().join("my crawl");
    std::fs::create_dir(&spaced).expect("a folder");
    for (wrong, cure) in [
        ("my·crawl halt", "write argiope ctl 'my crawl' stop\n"),
        (
            "my·crawl add http://a.test/",
            "write echo 'http://a.test/' | argiope ctl 'my crawl' seeds -\n",
        ),
        ("my·crawl status", "`argiope state 'my crawl'` shows"),
    ] {
        check_refused(&run(&format!("ctl {wrong}"), "", folder.path()), &[cure]);
    }
    let elsewhere = run("ctl nowhere stop", "", folder.path());
    check_refused(
        &elsewhere,
        &["there is no directory nowhere", "argiope ctl DIR"],
    );
}

#[test]
fn a_port_that_is_in_use_is_answered_with_another() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("an address");
    let other = at.port().checked_add(1).unwrap_or(9115);
    let folder = tempfile::tempdir().expect("a folder");
    let args = ["crawl", "http://127.0.0.1:9/", "--admin", &at.to_string()];
    let ended = Going::start(&args, folder.path(), b"").wait();
    let mend = format!("; write --admin 127.0.0.1:{other}");
    check_refused(&ended, &[&at.to_string(), "in use", &mend]);
}

#[test]
fn doubtful_methods_are_sent_with_a_warning() {
    let server = Server::new(|_| page("a page"));
    let url = server.url("/");
    let fetch = |args: &[&str]| {
        let fixed = ["fetch", &url, "--allow-net", "loopback", "--delay", "0"];
        let ended = Going::start(&[&fixed[..], args].concat(), Path::new("/"), b"").wait();
        ended.expect(0).err
    };
    let err = fetch(&["-X", "get"]);
    assert!(err.contains("write -X GET"), "{err}");
    let err = fetch(&["-X", "GET", "-d", "a=b"]);
    assert!(err.contains("or leave -X out for a POST"), "{err}");
    for usual in [
        &["-X", "GET"][..],
        &["-d", "a=b"],
        &["-X", "PUT", "-d", "a=b"],
    ] {
        assert_eq!(fetch(usual), "", "{usual:?}");
    }
}
