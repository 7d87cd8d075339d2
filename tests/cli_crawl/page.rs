//! The page for browsers at the address of `--admin`: its policy, and what Chromium shows of a running crawl.
//!
//! Prints `SKIPPED` if Chromium (Debian's package `chromium`) is not installed.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE64;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::again::wait_for_file;
use crate::browser::Browser;
use crate::control::{free_address, get, reply_of, requests_in, start};
use crate::run::{Crawl, Going};
use crate::server::{Asked, Server, page, reply};

const TOKEN: &str = "0123456789abcdef";

/// Names of scopes that would become elements, attributes or scripts if they were not text.
const HOSTILE: [&str; 6] = [
    "<img src=x onerror=\"document.title='broken'\">",
    "<script>document.title='broken'</script>",
    "</td></tr></table><h1 id=broken>broken</h1>",
    "\" autofocus onfocus=\"document.title='broken'",
    "javascript:document.title='broken'",
    "&lt;b&gt;\u{202e}tset.elpmaxe\u{0}",
];

/// A crawl with the hostile scopes, 100 ms between two requests of each, and its address.
fn hostile(server: &Server) -> (Crawl, String) {
    let at = free_address();
    let mut list = String::new();
    for number in 0..3000 {
        let scope = HOSTILE[number % HOSTILE.len()];
        let path = if number % HOSTILE.len() == 1 {
            "full"
        } else {
            "page"
        };
        let seed = json!({"url": server.url(&format!("/{path}/{number}")), "scopes": scope});
        list.push_str(&format!("{seed}\n"));
    }
    let crawl = Crawl::of(&["--seeds", "list"]).with(&["-s", "DOWNLOAD_DELAY=100ms"]);
    let crawl = crawl.with(&["--admin", &at, "--admin-token-file", "token"]);
    crawl.file("list", list.as_bytes());
    crawl.file("token", TOKEN.as_bytes());
    (crawl, at)
}

/// A server whose reason phrases are hostile, too, and that refuses what is under `/full`.
fn server() -> Server {
    Server::new(|asked: &Asked| match asked.target.starts_with("/full") {
        true => reply("503 <img src=x onerror=alert(1)>", &[], b"full"),
        false => page("a page"),
    })
}

#[test]
fn the_policy_has_the_digests_of_the_style_and_the_script() {
    let server = server();
    let (crawl, at) = hostile(&server);
    let going = start(&crawl, &server);
    let served = get(&at, "/", &format!("Host: {at}\r\n"));
    let (head, body) = served.split_once("\r\n\r\n").expect("it is whole");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert_eq!(body, include_str!("../../src/admin/page.html"));
    for element in ["style", "script"] {
        let content = body.split(&format!("<{element}>")).nth(1);
        let content = content.and_then(|rest| rest.split(&format!("</{element}>")).next());
        let content = content.expect("there is one");
        let digest = BASE64.encode(digest(&SHA256, content.as_bytes()).as_ref());
        let source = format!("{element}-src 'sha256-{digest}';");
        assert!(
            head.contains(&source),
            "the policy in src/admin/page.rs must have {source}"
        );
    }
    reply_of(crawl.folder(), &["stop", "--now"]);
    going.wait().expect(3);
}

#[test]
fn events_arrive_each_second_and_the_last_one_when_the_crawl_is_over() {
    let server = server();
    let (crawl, at) = hostile(&server);
    let going = start(&crawl, &server);
    let mut stream = TcpStream::connect(&at).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a timeout");
    let request = format!("GET /v1/events HTTP/1.1\r\nHost: {at}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is taken");
    let began = Instant::now();
    let mut events = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line.expect("it is text");
        if let Some(data) = line.strip_prefix("data: ") {
            let event: Value = serde_json::from_str(data).expect("it is JSON");
            events.push(event);
            if events.len() == 4 {
                assert!(began.elapsed() >= Duration::from_millis(2900));
                reply_of(crawl.folder(), &["stop", "--now"]);
            }
        }
    }
    going.wait().expect(3);
    assert!((5..=6).contains(&events.len()), "{}", events.len());
    assert_eq!(events[0]["phase"], json!("running"));
    assert_eq!(events[events.len() - 1]["phase"], json!("over"));
}

/// The figures of the page are those of the servers, and no name becomes an element.
#[test]
fn chromium_shows_what_the_server_saw_and_gives_orders() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let server = server();
    let (crawl, at) = hostile(&server);
    let going = start(&crawl, &server);
    server.wait_for_requests(60);
    browser.open(&format!("http://{at}/"));
    browser.wait("document.getElementById('pages').textContent !== '–'");
    assert_eq!(browser.text("state"), "Running");
    check_orders(&mut browser, &server);
    // Nothing departs now.
    check_figures(&mut browser, &server);
    check_history(&mut browser);
    check_hostile_names(&mut browser, crawl.folder());
    check_questions(&mut browser, &server);
    check_other_orders(&mut browser, &server, crawl.folder());
    check_accessibility(&mut browser);
    take_pictures(&mut browser);
    assert_eq!(browser.take_complaints(), [] as [Value; 0]);
    browser.value("document.getElementById('really').checked = true");
    browser.value("document.getElementById('end').requestSubmit()");
    going.wait().expect(3);
    browser.wait("document.getElementById('state').textContent.startsWith('The crawl is over')");
    assert_eq!(browser.text("lost"), "");
}

/// Orders are disabled without a token, and a wrong token is reported; the crawl is paused at the end.
fn check_orders(browser: &mut Browser, server: &Server) {
    let enter = |token: &str| {
        format!(
            "(() => {{ const field = document.getElementById('token'); field.value = '{token}';
            field.dispatchEvent(new Event('input')); }})()"
        )
    };
    let enabled = "[...document.querySelectorAll('#orders button, #pace button, #pace input')]\
        .filter((one) => !one.matches(':disabled')).length";
    assert_eq!(browser.value(enabled), json!(0));
    browser.value(&enter("wrong"));
    assert_eq!(browser.value(enabled), json!(9));
    browser.value("document.getElementById('pause').click()");
    browser
        .wait("document.getElementById('ordered').textContent.includes('the token is not that')");
    assert!(requests_in(server, Duration::from_millis(500)) > 0);
    // A refused call is reported by the browser, too.
    let complaints = browser.take_complaints();
    assert!(
        complaints
            .iter()
            .all(|one| one["entry"]["source"] == json!("network")),
        "{complaints:?}"
    );
    browser.value(&enter(""));
    assert_eq!(browser.value(enabled), json!(0));
    browser.value(&enter(TOKEN));
    browser.value("document.getElementById('pause').click()");
    browser.wait("document.getElementById('ordered').textContent === 'Paused'");
    thread::sleep(Duration::from_millis(300));
    assert_eq!(requests_in(server, Duration::from_millis(500)), 0);
    browser.wait("document.getElementById('state').textContent === 'Running; paused by an order'");
    browser.value("document.getElementById('resume').click()");
    browser.wait("document.getElementById('ordered').textContent === 'Resumed'");
    assert!(requests_in(server, Duration::from_millis(1000)) > 0);
    browser.value("document.getElementById('pause').click()");
    browser.wait("document.getElementById('ordered').textContent === 'Paused'");
    thread::sleep(Duration::from_millis(300));
    let stored = "localStorage.length + sessionStorage.length + document.cookie.length";
    assert_eq!(browser.value(stored), json!(0));
}

/// The numbers of pages, attempts, and attempts by status are those that the server counts.
fn check_figures(browser: &mut Browser, server: &Server) {
    let asked = server.asked();
    let refused = asked.iter().filter(|one| one.target.starts_with("/full"));
    let (all, refused) = (asked.len(), refused.count());
    assert!(refused > 0 && all > 60, "{refused} of {all}");
    browser.wait(&format!(
        "document.getElementById('pages').textContent === '{all}'"
    ));
    assert_eq!(browser.text("attempts"), all.to_string());
    let statuses = browser.value(
        "Object.fromEntries([...document.getElementById('statuses').rows]\
        .map((row) => [row.cells[0].textContent, row.cells[1].textContent]))",
    );
    let expected = json!({"200": (all - refused).to_string(), "503": refused.to_string()});
    assert_eq!(statuses, expected);
    let shown = browser.value(
        "[...document.getElementById('refused').rows].map((row) => \
        [row.cells[0].textContent, row.cells[1].textContent])[0]",
    );
    assert_eq!(shown, json!([HOSTILE[1], refused.to_string()]));
    browser.wait("document.querySelectorAll('figure svg polyline[points]').length === 4");
}

/// Charts begin when the crawl did, not when the page was opened; what a page without a connection has missed is
/// filled in; nothing is counted twice or left out.
fn check_history(browser: &mut Browser) {
    // The page was opened after sixty requests.
    browser.wait("samples.length > 2 && samples[0].pages === 0 && samples.at(-1).elapsed > 8");
    let is_filled = "samples.every((one, at) => !at || one.elapsed - samples[at - 1].elapsed < 7)";
    browser.wait(is_filled);
    browser.value("samples = [samples[0]]; Object.values(charts).forEach(draw)");
    // With the next event there is a gap, until the connection is there again.
    browser.wait("samples.length >= 2");
    assert_eq!(browser.value(is_filled), json!(false));
    browser.value("events.onopen()");
    browser.wait(&format!("samples.length > 2 && {is_filled}"));
    let shown = "Math.round(charts['chart-pages'].points.reduce((sum, point) => \
        sum + point.value * (point.at - point.from), 0)) === last.pages";
    browser.wait(shown);
}

/// Names are found and shown as text; the delay of a scope with such a name is set.
fn check_hostile_names(browser: &mut Browser, folder: &Path) {
    browser.value(
        "document.getElementById('match').value = '*'; document.getElementById('search').requestSubmit()",
    );
    let rows = HOSTILE.len();
    browser.wait(&format!(
        "document.getElementById('scopes').rows.length === {rows}"
    ));
    for name in HOSTILE {
        let shown = name
            .replace('\u{202e}', "\\u{202e}")
            .replace('\u{0}', "\\u{0}");
        let text = json!(shown);
        let find = format!(
            "(() => {{ const rows = [...document.getElementById('scopes').rows];
            const row = rows.find((row) => row.cells[0].textContent === {text});
            row.querySelector('button').click(); }})()"
        );
        browser.value(&find);
        browser.wait(&format!(
            "document.getElementById('scope-name').textContent === {text}"
        ));
    }
    browser.value(
        "document.getElementById('match').value = 'img src'; document.getElementById('search').requestSubmit()",
    );
    browser.wait("document.getElementById('scopes').rows.length === 1");
    browser.value("document.querySelector('#scopes button').click()");
    let filled = format!(
        "document.getElementById('pace-scope').value === {}",
        json!(HOSTILE[0])
    );
    browser.wait(&filled);
    browser.value(
        "document.getElementById('pace-delay').value = '7.5'; document.getElementById('pace').requestSubmit()",
    );
    browser.wait("document.getElementById('ordered').textContent.startsWith('The delay of <img')");
    let scope = reply_of(folder, &["scope", HOSTILE[0]]);
    assert_eq!(scope["settings"], json!({"delay": 7.5}));
    assert_eq!(browser.value("document.title"), json!("Argiope"));
    let made = "document.querySelectorAll('img, #broken, h1 + h1, [onfocus], [onerror]').length";
    assert_eq!(browser.value(made), json!(0));
    assert_eq!(
        browser.value("document.querySelectorAll('script').length"),
        json!(1)
    );
}

/// A URL and a host are asked for; what the crawl answers is shown.
fn check_questions(browser: &mut Browser, server: &Server) {
    let ask = |browser: &mut Browser, subject: &str| {
        let subject = json!(subject);
        browser.value(&format!(
            "document.getElementById('subject').value = {subject}; document.getElementById('ask').requestSubmit()"
        ));
    };
    ask(browser, &server.url("/page/2996"));
    browser.wait(
        "document.getElementById('subject-facts').textContent.includes('the crawl is paused')",
    );
    let first = browser.value("document.querySelector('#subject-waits li').textContent");
    assert_eq!(first, json!("the crawl is paused"));
    let state = "document.querySelector('#subject-facts dd').textContent";
    assert_eq!(browser.value(state), json!("queued"));
    let asked = &server.asked()[0].target;
    ask(browser, &server.url(asked));
    browser.wait(&format!("{state} === 'ended'"));
    ask(browser, &format!("127.0.0.1:{}", server.port()));
    browser
        .wait("document.getElementById('subject-facts').textContent.includes('Idle connections')");
    ask(browser, "<b>://");
    browser.wait("document.getElementById('answer').textContent.startsWith('Error: ')");
    browser.take_complaints();
}

/// A scope is held and released, what was learned of it is forgotten, a pattern is excluded, a seed is added. The
/// crawl is paused all the time.
fn check_other_orders(browser: &mut Browser, server: &Server, folder: &Path) {
    let ordered = |browser: &mut Browser, words: &str| {
        let words = json!(words);
        browser.wait(&format!(
            "document.getElementById('ordered').textContent.includes({words})"
        ));
    };
    let click = |id: &str| format!("document.getElementById('{id}').click()");
    let submit = |id: &str| format!("document.getElementById('{id}').requestSubmit()");
    browser.value(&click("hold"));
    ordered(browser, "is held until");
    let scope = reply_of(folder, &["scope", HOSTILE[0]]);
    assert_eq!(scope["settings"]["delay"], json!(7.5), "{scope}");
    assert!(scope["settings"]["hold_until"].is_string(), "{scope}");
    browser.value(&click("release"));
    ordered(browser, "is over");
    let scope = reply_of(folder, &["scope", HOSTILE[0]]);
    assert_eq!(scope["settings"], json!({"delay": 7.5}));
    browser.value(&click("forget"));
    ordered(browser, "is forgotten");
    browser.value("document.getElementById('excluded-name').value = 're:<img src=x>'");
    browser.value(&submit("exclusion"));
    ordered(browser, "is excluded");
    let excluded = browser.text("excluded");
    assert_eq!(excluded, "Excluded by order: re:<img src=x>");
    browser.value(&click("include"));
    ordered(browser, "is not excluded");
    assert_eq!(browser.text("excluded"), "");
    let seeds = json!(format!("{}\n", server.url("/page/more")));
    browser.value(&format!("document.getElementById('seeds').value = {seeds}"));
    browser.value(&submit("more"));
    ordered(browser, "1 seeds are added");
    let url = reply_of(folder, &["url", &server.url("/page/more")]);
    assert_eq!(url["state"], json!("queued"));
    // It ends only if that is confirmed.
    browser.value(&submit("end"));
    assert_eq!(reply_of(folder, &[])["phase"], json!("running"));
}

/// Controls, images and tables have names, and every control is reached by the Tab key.
fn check_accessibility(browser: &mut Browser) {
    let tree = browser.call("Accessibility.getFullAXTree", json!({}));
    let nodes = tree["nodes"].as_array().expect("there are nodes");
    let mut seen = Vec::new();
    for node in nodes.iter().filter(|node| node["ignored"] == json!(false)) {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        let named = [
            "button",
            "textbox",
            "searchbox",
            "combobox",
            "spinbutton",
            "image",
            "img",
            "table",
            "region",
        ];
        if named.contains(&role) {
            let name = node["name"]["value"].as_str().unwrap_or_default();
            assert!(!name.is_empty(), "it has no name: {node}");
        }
        seen.push(role.to_owned());
    }
    for role in ["main", "banner", "search", "status", "table", "region"] {
        assert!(seen.iter().any(|one| one == role), "{role}: {seen:?}");
    }
    browser.value("document.activeElement.blur(); window.scrollTo(0, 0)");
    let mut reached = Vec::new();
    for _ in 0..60 {
        browser.press_tab();
        reached
            .push(browser.value("document.activeElement.id || document.activeElement.textContent"));
    }
    for id in [
        "match",
        "sort",
        "token",
        "pause",
        "resume",
        "pace-scope",
        "pace-delay",
        "subject",
        "hold",
        "excluded-name",
        "seeds",
        "really",
    ] {
        assert!(reached.contains(&json!(id)), "{id}: {reached:?}");
    }
    browser.value("document.getElementById('resume').focus()");
    browser.press_tab();
    let outline = browser.value("getComputedStyle(document.activeElement).outlineStyle");
    assert_eq!(outline, json!("solid"));
}

/// The page in light and in dark, in the target directory.
fn take_pictures(browser: &mut Browser) {
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        browser.call("Emulation.setEmulatedMedia", json!({"features": features}));
        grounds.push(browser.value("getComputedStyle(document.body).backgroundColor"));
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{scheme}.png"));
        browser.screenshot(&to);
    }
    assert_ne!(grounds[0], grounds[1]);
}

/// What the page shows of a crawl of the demo's web is what its servers have logged.
#[test]
fn chromium_shows_of_a_running_demo_what_its_servers_saw() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let demo = ["demo", "--serve", "web", "--domains", "20", "--pages", "50"];
    let web = Going::start(&demo, folder, b"");
    // The last of its files.
    wait_for_file(&folder.join("web/demo.toml"));
    let at = free_address();
    let crawl = "crawl --quiet --config web/demo.toml --seeds web/seeds.txt --out out --contact me@example.org --admin";
    let crawl: Vec<&str> = crawl.split(' ').chain([at.as_str()]).collect();
    let crawl = Going::start(&crawl, folder, b"");
    wait_for_file(&folder.join("out/control.sock"));
    browser.open(&format!("http://{at}/"));
    browser.wait("Number(document.getElementById('attempts').textContent) > 100");
    // Nothing departs while it is paused, and what was in flight has arrived.
    reply_of(folder, &["pause"]);
    browser.wait("document.getElementById('state').textContent === 'Running; paused by an order'");
    browser.wait("last.in_flight === 0");
    let log = fs::read_to_string(folder.join("web/requests.jsonl")).expect("the servers' log");
    let requests = log.lines().map(serde_json::from_str::<Value>);
    let requests: Vec<Value> = requests.map(|line| line.expect("JSON")).collect();
    let attempts = requests.len().to_string();
    browser.wait(&format!(
        "document.getElementById('attempts').textContent.replace(/\\D/g, '') === '{attempts}'"
    ));
    let scope = browser.value("document.getElementById('slowest').rows[0].cells[0].textContent");
    let host = scope.as_str().and_then(|scope| scope.split(':').next());
    assert!(
        requests.iter().any(|one| one["host"].as_str() == host),
        "{scope}"
    );
    assert_eq!(browser.take_complaints(), [] as [Value; 0]);
    reply_of(folder, &["stop", "--now"]);
    crawl.wait().expect(3);
    web.signal(Signal::INT);
    web.wait().expect(0);
}

#[test]
fn chromium_reports_that_the_connection_is_lost() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let server = server();
    let (crawl, at) = hostile(&server);
    let going = start(&crawl, &server);
    browser.open(&format!("http://{at}/"));
    browser.wait("document.getElementById('state').textContent === 'Running'");
    going.signal(Signal::KILL);
    going.wait();
    browser.wait("document.getElementById('state').textContent === 'Connection lost'");
    let lost = browser.text("lost");
    assert!(
        lost.starts_with("There is no connection to the crawl. The figures are those of "),
        "{lost}"
    );
}
