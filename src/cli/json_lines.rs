//! Request-response protocol over JSON lines for other programs: each line of input is answered with one
//! line of output.

use std::io::{self, BufRead, Read, Write};

use anyhow::{Context, Result};
use argiope::parts::printable;
use data_encoding::BASE64;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Answers each line of `input`, and flushes after each, so that a program can wait for the answer.
///
/// An invalid line, and a question whose answer fails, get `{"error": …}`, and the next line is
/// read. Returns at the end of the input, or when the reader of the answers is gone.
pub fn answer_each<Q, A>(
    mut input: impl BufRead,
    mut out: impl Write,
    mut answer: impl FnMut(Q) -> Result<A>,
) -> Result<()>
where
    Q: DeserializeOwned,
    A: Serialize,
{
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut input)
            .take(LINE_MAX)
            .read_until(b'\n', &mut line)
            .context("reading questions")?;
        if read == 0 {
            return Ok(());
        }
        let answered = if line.len() as u64 == LINE_MAX && !line.ends_with(b"\n") {
            skip_line(&mut input)?;
            Err(anyhow::anyhow!("the line is longer than {LINE_MAX} bytes"))
        } else {
            serde_json::from_slice(&line)
                .context("the line is not a valid question")
                .and_then(&mut answer)
        };
        let answered = match &answered {
            Ok(answer) => serde_json::to_string(answer)?,
            Err(error) => serde_json::to_string(&Refusal {
                error: super::full_message(error),
            })?,
        };
        if !put_line(&mut out, &answered)? {
            return Ok(());
        }
    }
}

/// Writes one line and flushes; returns false when the reader is gone.
pub fn put_line(out: &mut impl Write, line: &str) -> Result<bool> {
    // In JSON, an escape sequence is equivalent to the character.
    let written = writeln!(out, "{}", printable(line)).and_then(|()| out.flush());
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("writing answers"),
    }
}

/// The octets of a text that is given as text or in base64.
pub fn octets(name: &str, text: Option<String>, coded: Option<String>) -> Result<Vec<u8>> {
    match (text, coded) {
        (_, Some(coded)) => BASE64
            .decode(coded.as_bytes())
            .with_context(|| format!("{name}_b64 is not valid base64")),
        (Some(text), None) => Ok(text.into_bytes()),
        (None, None) => Err(anyhow::anyhow!(
            "both {name} and {name}_b64 are missing; give one"
        )),
    }
}

/// Maximum length of a line; a page of 10 MiB in base64 fits.
const LINE_MAX: u64 = 64 * 1024 * 1024;

#[derive(Serialize)]
struct Refusal {
    error: String,
}

fn skip_line(input: &mut impl BufRead) -> Result<()> {
    loop {
        let buffer = input.fill_buf().context("reading questions")?;
        let end = buffer.iter().position(|octet| *octet == b'\n');
        let length = end.map_or(buffer.len(), |at| at + 1);
        input.consume(length);
        if end.is_some() || length == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Question {
        number: i64,
    }

    fn answers(input: &[u8]) -> Vec<String> {
        let mut out = Vec::new();
        answer_each(input, &mut out, |question: Question| {
            anyhow::ensure!(question.number >= 0, "below zero");
            Ok([question.number + 1])
        })
        .unwrap();
        String::from_utf8(out)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn each_line_has_its_answer_in_turn() {
        let found = answers(b"{\"number\": 1, \"unknown\": []}\n{\"number\": 2}");
        assert_eq!(found, ["[2]", "[3]"]);
    }

    #[test]
    fn an_invalid_line_gets_an_error_and_the_next_line_is_read() {
        let found = answers(b"nonsense\n\n{}\n\xFF\n{\"number\": -1}\n{\"number\": 1}\n");
        assert_eq!(found.len(), 6);
        for answer in &found[..5] {
            assert!(answer.starts_with("{\"error\":\""), "{answer}");
        }
        assert!(found[2].contains("number"), "{}", found[2]);
        assert!(found[4].contains("below zero"), "{}", found[4]);
        assert_eq!(found[5], "[2]");
    }

    #[test]
    fn a_line_over_the_limit_gets_an_error_and_is_skipped() {
        let mut input = vec![b'x'; LINE_MAX as usize + 10];
        input.extend(b"\n{\"number\": 1}\n");
        let found = answers(&input);
        assert!(found[0].contains("longer"), "{}", found[0]);
        assert_eq!(found[1], "[2]");
    }

    #[test]
    fn each_answer_is_flushed_before_the_next_question_is_read() {
        struct Counting {
            written: usize,
            flushed: usize,
        }
        impl Write for Counting {
            fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
                self.written += octets.iter().filter(|octet| **octet == b'\n').count();
                Ok(octets.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                self.flushed = self.written;
                Ok(())
            }
        }
        let mut out = Counting {
            written: 0,
            flushed: 0,
        };
        answer_each(&b"1\n2\n3\n"[..], &mut out, |number: i64| Ok(number)).unwrap();
        assert_eq!((out.written, out.flushed), (3, 3));
    }

    #[test]
    fn a_closed_output_pipe_is_not_an_error() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        answer_each(&b"1\n2\n"[..], Gone, |number: i64| Ok(number)).unwrap();
    }

    #[test]
    fn a_text_may_come_in_base64() {
        let octets = |text: Option<&str>, coded: Option<&str>| {
            octets("html", text.map(str::to_owned), coded.map(str::to_owned))
        };
        assert_eq!(octets(Some("ü"), None).unwrap(), "ü".as_bytes());
        assert_eq!(octets(None, Some("/w==")).unwrap(), [0xFF]);
        assert!(
            octets(None, Some("?"))
                .unwrap_err()
                .to_string()
                .contains("html_b64")
        );
        assert!(octets(None, None).is_err());
    }
}
