//! Replies from other projects' test suites, parsed with every split.
//!
//! The vectors are in the folder `ARGIOPE_VECTORS` (default `../shared/vectors`), outside of this package.
//! Without them the tests print `SKIPPED` and pass.

mod vectors;

use argiope::wire::coding::{Budget, Decoder};
use argiope::wire::http::{Framing, Item, Limits, ResponseReader};
use data_encoding::BASE64;
use serde_json::Value;

/// Cases in which nearly all clients agree and we differ, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "llhttp-030",
        "a bare CR is a space (RFC 9112 section 2.2), so what follows it in a status line is \
         reason phrase and no header field",
    ),
    (
        "llhttp-033",
        "a head that was never ended was cut off, and what it lacks may be its framing",
    ),
];

/// Cases in which clients disagree: whether we accept the reply, and why.
const CONTESTED: &[(&str, bool, &str)] = &[
    ("curl-1116", true, "chunk lines may end with LF alone"),
    ("curl-1417", true, "trailers may end with LF alone"),
    (
        "curl-1473",
        true,
        "a line that begins with white space before any field is passed over (RFC 9112 section 2.2)",
    ),
    (
        "curl-747",
        false,
        "5 000 header lines are beyond every limit of use",
    ),
    (
        "llhttp-034",
        true,
        "two spaces before the status are accepted",
    ),
    (
        "llhttp-041",
        false,
        "no reply of HTTP/5.6 can be understood",
    ),
    (
        "llhttp-072",
        false,
        "a transfer coding \"chunked abc\" is neither chunked nor a known coding",
    ),
];

#[test]
fn replies_accepted_by_every_client_are_accepted() {
    let cases = tier("hard_ok");
    let framed = cases.iter().filter(|case| check_read(case)).count();
    assert!(cases.is_empty() || framed > 0);
}

#[test]
fn replies_rejected_by_every_client_are_rejected() {
    for case in tier("hard_err") {
        check_refused(&case);
    }
}

#[test]
fn replies_accepted_by_most_clients_are_accepted() {
    for case in tier("soft_ok").iter().chain(&tier("web_ok")) {
        if let Some((id, reason)) = EXCEPTIONS.iter().find(|(id, _)| *id == case.id) {
            println!("{id}: not as most, since {reason}");
            assert!(differs(case), "{id} is no exception any more");
        } else {
            check_read(case);
        }
    }
}

#[test]
fn replies_rejected_by_most_clients_are_rejected() {
    for case in tier("soft_err") {
        // RFC 9110 section 2.5: a higher minor version is read as the highest one that is known.
        if case.id == "curl-129" {
            assert!(case.readings().iter().all(|read| read.error.is_none()));
        } else {
            check_refused(&case);
        }
    }
}

#[test]
fn contested_replies_have_a_fixed_result() {
    for case in tier("contested") {
        let Some((_, taken, reason)) = CONTESTED.iter().find(|(id, ..)| *id == case.id) else {
            panic!("{}: no choice has been made", case.id);
        };
        let word = if *taken { "read" } else { "refused" };
        println!("{}: {word}, since {reason}", case.id);
        if *taken {
            for read in case.readings() {
                assert!(read.error.is_none(), "{}: {:?}", case.id, read.error);
            }
        } else {
            check_refused(&case);
        }
    }
}

/// Checks that all readings give the result that all clients agree on. Returns whether the reply is
/// framed.
fn check_read(case: &Case) -> bool {
    let readings = case.readings();
    for read in &readings {
        assert_eq!(read.error, None, "{}: {}", case.id, case.place);
        assert_eq!(Some(read.status), case.status, "{}", case.id);
        if let Some(body) = &case.body {
            let read = String::from_utf8_lossy(&read.body);
            assert_eq!(read, String::from_utf8_lossy(body), "{}", case.id);
        }
        if let Some(headers) = &case.headers {
            assert_eq!(&read.headers, headers, "{}", case.id);
        }
        assert_eq!(read.interim, case.interim, "{}", case.id);
    }
    readings[0].framed
}

fn check_refused(case: &Case) {
    for read in case.readings() {
        assert!(
            read.error.is_some(),
            "{}: {}: read as {read:?}",
            case.id,
            case.place
        );
    }
}

fn differs(case: &Case) -> bool {
    case.readings().iter().any(|read| {
        read.error.is_some()
            || Some(read.status) != case.status
            || case.body.as_ref().is_some_and(|body| *body != read.body)
            || case
                .headers
                .as_ref()
                .is_some_and(|all| *all != read.headers)
    })
}

/// A vector.
struct Case {
    id: String,
    place: String,
    raw: Vec<u8>,
    decode: bool,
    status: Option<u16>,
    headers: Option<Vec<(String, String)>>,
    body: Option<Vec<u8>>,
    interim: Vec<u16>,
}

/// The result of reading a reply.
#[derive(Debug, Default)]
struct Reading {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    interim: Vec<u16>,
    framed: bool,
    error: Option<String>,
}

impl Case {
    /// Readings of the reply in pieces of several sizes; of a framed reply also on a connection that
    /// stays open.
    fn readings(&self) -> Vec<Reading> {
        let mut readings = Vec::new();
        for bytes in [self.raw.len().max(1), 1, 7] {
            let closed = read(self.raw.chunks(bytes), self.decode, true);
            if closed.framed && closed.error.is_none() {
                // The end of a framed reply is detected without the end of the connection.
                readings.push(read(self.raw.chunks(bytes), self.decode, false));
            }
            readings.push(closed);
        }
        readings
    }
}

/// Reads a reply. If `close`, the connection ends after it; otherwise it stays open.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>, decode: bool, close: bool) -> Reading {
    let mut reader = ResponseReader::new(false, Limits::default());
    let mut reading = Reading::default();
    let mut coded = Vec::new();
    let mut codings = Vec::new();
    let mut ended = false;
    for mut input in pieces {
        while !ended && reading.error.is_none() {
            match reader.next(&mut input) {
                Ok(None) => break,
                Ok(Some(Item::Interim(head))) => reading.interim.push(head.status),
                Ok(Some(Item::Head(head))) => {
                    reading.status = head.status;
                    for (name, value) in head.headers.iter() {
                        let value = String::from_utf8_lossy(value).into_owned();
                        reading.headers.push((name.to_owned(), value));
                    }
                    for value in head.headers.get_all("content-encoding") {
                        codings.push(value.to_vec());
                    }
                }
                Ok(Some(Item::Body(piece))) => coded.extend_from_slice(piece),
                Ok(Some(Item::Trailers(_))) => {}
                Ok(Some(Item::End { .. })) => ended = true,
                Err(error) => reading.error = Some(error.to_string()),
            }
        }
    }
    if !ended && reading.error.is_none() {
        reading.error = if close {
            reader.finish().err().map(|error| error.to_string())
        } else {
            Some("no end was seen".to_owned())
        };
    }
    reading.framed = reader
        .framing()
        .is_some_and(|framing| framing != Framing::Close);
    if decode && reading.error.is_none() {
        let codings = codings.iter().map(Vec::as_slice);
        let decoded = Decoder::new(codings, Budget::default()).and_then(|mut decoder| {
            for piece in coded.chunks(7) {
                decoder.write(piece, &mut reading.body)?;
            }
            decoder.finish()
        });
        reading.error = decoded.err().map(|error| error.to_string());
    } else {
        reading.body = coded;
    }
    reading
}

/// The vectors of a tier; prints `SKIPPED` if the folder does not exist.
fn tier(name: &str) -> Vec<Case> {
    let Some(json) = vectors::read::<Value>("http1.json") else {
        return Vec::new();
    };
    let cases = json["cases"].as_array().expect("a list of cases");
    let cases = cases.iter().filter(|case| case["tier"] == name);
    let cases: Vec<_> = cases.map(case).collect();
    assert!(!cases.is_empty(), "no case of tier {name}");
    cases
}

fn case(json: &Value) -> Case {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let bytes = |value: &Value| {
        let text = value.as_str()?;
        Some(BASE64.decode(text.as_bytes()).expect("base64"))
    };
    let number = |value: &Value| value.as_u64().map(|number| number as u16);
    let expect = &json["expect"];
    // The results of web clients have priority over those of the case's own suite.
    let read = json.get("web").unwrap_or(expect);
    let headers = read["headers"].as_array().map(|list| {
        list.iter()
            .map(|field| (text(&field[0]), text(&field[1])))
            .collect()
    });
    Case {
        id: text(&json["id"]),
        place: text(&json["where"]),
        raw: bytes(&json["raw_b64"]).expect("every case has its bytes"),
        decode: json["decode"] == true,
        status: number(&read["status"]),
        headers,
        body: bytes(&read["body_b64"]),
        interim: expect["interim"]
            .as_array()
            .map(|list| list.iter().filter_map(number).collect())
            .unwrap_or_default(),
    }
}
