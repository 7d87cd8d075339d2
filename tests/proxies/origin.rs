//! Origins, plain and with TLS, that keep what they were asked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::authority::Authority;

/// A server on the loopback device.
pub struct Origin {
    pub at: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    /// Answers a target with a status line's rest, fields, and a body.
    pub fn start(answer: fn(&str) -> Reply) -> Self {
        Origin::with(None, answer)
    }

    /// The same with TLS, under a name that an authority vouches for.
    pub fn tls(authority: &Authority, name: &str, answer: fn(&str) -> Reply) -> Self {
        Origin::with(Some(authority.server(name, |_| {})), answer)
    }

    fn with(tls: Option<Arc<ServerConfig>>, answer: fn(&str) -> Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let at = listener.local_addr().expect("it is bound");
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (told, tls) = (Arc::clone(&told), tls.clone());
                thread::spawn(move || match tls {
                    None => serve(stream, &told, answer),
                    Some(config) => {
                        let session = ServerConnection::new(config).expect("a session");
                        serve(StreamOwned::new(session, stream), &told, answer);
                    }
                });
            }
        });
        Origin { at, asked }
    }

    /// The heads of all requests so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no server panics").clone()
    }
}

/// What an origin answers.
pub struct Reply {
    status: &'static str,
    fields: String,
    body: &'static str,
}

pub fn page(body: &'static str) -> Reply {
    Reply {
        status: "200 OK",
        fields: "Content-Type: text/html\r\n".to_owned(),
        body,
    }
}

pub fn redirect(to: &str) -> Reply {
    Reply {
        status: "302 Found",
        fields: format!("Location: {to}\r\n"),
        body: "",
    }
}

fn serve(mut stream: impl Read + Write, told: &Mutex<Vec<String>>, answer: fn(&str) -> Reply) {
    while let Some(head) = read_head(&mut stream) {
        let target = head.split(' ').nth(1).unwrap_or_default();
        let Reply {
            status,
            fields,
            body,
        } = answer(target);
        told.lock().expect("no server panics").push(head);
        let length = body.len();
        let whole = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n{body}");
        let sent = stream.write_all(whole.as_bytes());
        if sent.and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}

/// A head, blank line included, read byte by byte: what follows it stays where it is.
pub fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}
