//! A headless Chromium, driven by the DevTools protocol over a pipe.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::loud;

/// A browser with one page, ended when dropped.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    /// The number of the last command.
    number: u64,
    session: Option<String>,
    /// Exceptions, and what the browser has to report about the page.
    complaints: Vec<Value>,
    _profile: TempDir,
}

/// Maximum time for a reply of the browser, or for a condition to hold: its start takes seconds on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

impl Browser {
    /// Starts a browser; prints `SKIPPED` and returns `None` if Chromium is not installed.
    pub fn start() -> Option<Self> {
        let version = Command::new("chromium").arg("--version").output();
        match version {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                loud::skip("chromium is not installed");
                return None;
            }
            version => version.expect("chromium can be started"),
        };
        let profile = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("sh");
        // The browser reads commands from descriptor 3 and writes replies to 4.
        let script = "exec chromium \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null";
        command.args(["-c", script, "sh"]).args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--no-proxy-server",
            "--remote-debugging-pipe",
        ]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        let mut child = command
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let output = child.stdout.take().expect("it is piped");
        let (sender, messages) = channel();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut message = Vec::new();
            while output
                .read_until(0, &mut message)
                .is_ok_and(|read| read > 0)
            {
                message.pop();
                let parsed = serde_json::from_slice(&message).expect("it is JSON");
                if sender.send(parsed).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Browser {
            input: child.stdin.take().expect("it is piped"),
            child,
            messages,
            number: 0,
            session: None,
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.call(
            "Target.attachToTarget",
            json!({"targetId": target["targetId"], "flatten": true}),
        );
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Runs a command of the protocol.
    #[track_caller]
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut command = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).expect("the browser reads");
        loop {
            let message = self.messages.recv_timeout(LONGEST);
            let message = message.unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == json!(self.number) {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            let method = message["method"].as_str().unwrap_or_default();
            if ["Runtime.exceptionThrown", "Log.entryAdded"].contains(&method) {
                self.complaints.push(message["params"].clone());
            }
        }
    }

    /// Opens an address.
    #[track_caller]
    pub fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({"url": url}));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        self.wait("document.readyState === 'complete'");
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let evaluated = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(
            evaluated["exceptionDetails"].is_null(),
            "{expression}: {evaluated}"
        );
        evaluated["result"]["value"].clone()
    }

    /// The text of an element.
    #[track_caller]
    pub fn text(&mut self, id: &str) -> String {
        let text = self.value(&format!("document.getElementById('{id}').textContent"));
        text.as_str().expect("there is such an element").to_owned()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait(&mut self, expression: &str) {
        let began = Instant::now();
        while self.value(expression) != json!(true) {
            let waited = began.elapsed();
            assert!(
                waited < LONGEST,
                "not in {LONGEST:?}: {expression}\n{:?}",
                self.complaints
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses the Tab key, which moves the focus.
    pub fn press_tab(&mut self) {
        for kind in ["rawKeyDown", "keyUp"] {
            let key =
                json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
            self.call("Input.dispatchKeyEvent", key);
        }
    }

    /// Exceptions in the page and errors that the browser has reported since the last call.
    pub fn take_complaints(&mut self) -> Vec<Value> {
        // What came until now is read with the next reply.
        self.value("0");
        std::mem::take(&mut self.complaints)
    }

    /// Writes an image of the page.
    pub fn screenshot(&mut self, to: &Path) {
        let image = self.call(
            "Page.captureScreenshot",
            json!({"captureBeyondViewport": true}),
        );
        let image = image["data"].as_str().expect("it has data").as_bytes();
        let image = BASE64.decode(image).expect("it is base64");
        std::fs::write(to, image).expect("the folder is writable");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its processes end with it when it is asked to.
        let _ = self
            .input
            .write_all(b"{\"id\": 0, \"method\": \"Browser.close\"}\0");
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
