//! One connection of an engine: what it has received, and the steps of the reply under way.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use socket2::SockRef;

use crate::testkit::http::Step;
use crate::testkit::stamp::{Clock, receive};
use crate::testkit::stream::ServerConnection;

pub(super) struct Connection<E> {
    pub stream: TcpStream,
    /// Its session, if the client speaks TLS.
    tls: Option<Box<ServerConnection>>,
    pub listener: usize,
    /// Bytes received and not yet parsed as a request.
    pub input: Vec<u8>,
    /// When the last of it arrived.
    pub arrived: Duration,
    /// Bytes for the wire.
    output: Vec<u8>,
    written: usize,
    /// Whether the client has to read before more can be written.
    pub is_blocked: bool,
    pub underway: Option<Underway<E>>,
    /// It ends with the reply under way.
    pub is_last: bool,
}

/// A reply that has steps to take, or bytes to write.
pub(super) struct Underway<E> {
    pub exchange: E,
    pub steps: VecDeque<Step>,
    /// When the next step is due.
    pub due: Duration,
    /// When the engine looks at it again.
    pub wakes: Option<Duration>,
    /// How many bytes of it are with the kernel, those of TLS included.
    pub bytes: usize,
    /// When the write began that took the last of them.
    pub left: Duration,
}

/// Whether a connection stays open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    On,
    Over,
}

/// How far a connection's reply has come.
pub(super) enum Progress {
    /// The next step is not due yet.
    Waits,
    /// The client has to read, or to go.
    Blocked,
    Done,
    /// A step closed the connection.
    Closed,
    /// The client has closed it.
    Gone,
}

impl<E> Connection<E> {
    /// A connection that was accepted, with the session of a client that speaks TLS.
    pub fn new(stream: TcpStream, tls: Option<ServerConnection>, listener: usize) -> Self {
        Connection {
            stream,
            tls: tls.map(Box::new),
            listener,
            input: Vec::new(),
            arrived: Duration::ZERO,
            output: Vec::new(),
            written: 0,
            is_blocked: false,
            underway: None,
            is_last: false,
        }
    }

    /// Whether bytes for the wire wait until the client reads.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Reads what has come.
    pub fn receive(&mut self, clock: &Clock) -> Life {
        let mut buffer = [0; 16 * 1024];
        match receive(&self.stream, &mut buffer, clock) {
            Ok((0, _)) => Life::Over,
            Ok((count, arrived)) => {
                self.arrived = arrived;
                let life = self.take_bytes(&buffer[..count]);
                match self.input.len() > INPUT_MAX {
                    true => Life::Over,
                    false => life,
                }
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Life::On,
                _ => Life::Over,
            },
        }
    }

    /// Takes bytes of the wire, and answers those of a handshake.
    fn take_bytes(&mut self, mut wire: &[u8]) -> Life {
        let Some(session) = &mut self.tls else {
            self.input.extend_from_slice(wire);
            return Life::On;
        };
        let mut life = Life::On;
        while !wire.is_empty() && life == Life::On {
            let read = session.read_tls(&mut wire);
            let state = session.process_new_packets();
            let is_over = match (read, state) {
                (Ok(0), _) | (Err(_), _) | (_, Err(_)) => true,
                (Ok(_), Ok(state)) => state.peer_has_closed(),
            };
            // Until no more plaintext is there.
            let _ = session.reader().read_to_end(&mut self.input);
            life = if is_over { Life::Over } else { Life::On };
        }
        // An alert is sent, too.
        match self.flush() {
            Life::On => life,
            Life::Over => Life::Over,
        }
    }

    /// Writes what no reply has written: bytes of a handshake, and of the end.
    pub fn flush(&mut self) -> Life {
        take_output(self.tls.as_deref_mut(), &mut self.output);
        write(&self.stream, &mut self.output, &mut self.written, |_, _| {})
    }

    /// Ends the session of a client that speaks TLS.
    pub fn end_session(&mut self) {
        if let Some(session) = &mut self.tls {
            session.send_close_notify();
            let _ = self.flush();
        }
    }

    /// Takes the steps that are due.
    pub fn take_steps(&mut self) -> Progress {
        let Some(underway) = &mut self.underway else {
            return Progress::Blocked;
        };
        // Whatever the next step waits for, the client may have made room.
        if underway.write(&self.stream, &mut self.output, &mut self.written) == Life::Over {
            return Progress::Gone;
        }
        let mut is_repeating = false;
        while let Some(step) = underway.steps.front_mut() {
            if let Step::Wait(span) = step {
                underway.due += *span;
                underway.steps.pop_front();
                continue;
            }
            if *step == Step::Hang {
                return Progress::Blocked;
            }
            let now = Clock::read().now;
            if underway.due > now {
                return Progress::Waits;
            }
            match step {
                Step::Reset => {
                    underway.left = now;
                    let socket = SockRef::from(&self.stream);
                    let _ = socket.set_linger(Some(Duration::ZERO));
                    return Progress::Closed;
                }
                // What is not written by now stays unwritten.
                Step::Close => {
                    underway.left = now;
                    return Progress::Closed;
                }
                Step::End if !self.output.is_empty() => return Progress::Blocked,
                Step::End => {
                    if let Some(session) = &mut self.tls {
                        session.send_close_notify();
                        take_output(Some(session), &mut self.output);
                        let _ = underway.write(&self.stream, &mut self.output, &mut self.written);
                    }
                    let _ = self.stream.shutdown(std::net::Shutdown::Write);
                    underway.steps.pop_front();
                }
                Step::Send(bytes) => {
                    match self.tls.as_deref_mut() {
                        None => self.output.append(bytes),
                        session => encrypt(session, bytes, &mut self.output),
                    }
                    underway.steps.pop_front();
                }
                // No more than one of them waits for the client.
                Step::Repeat(..) if !self.output.is_empty() => return Progress::Blocked,
                Step::Repeat(bytes, pause) => {
                    encrypt(self.tls.as_deref_mut(), bytes, &mut self.output);
                    underway.due = now + *pause;
                    is_repeating = true;
                }
                Step::Wait(_) | Step::Hang => unreachable!("they were taken above"),
            }
            if underway.write(&self.stream, &mut self.output, &mut self.written) == Life::Over {
                return Progress::Gone;
            }
            if is_repeating {
                // However short the pause is, other connections have their turns in between.
                return Progress::Waits;
            }
        }
        match self.output.is_empty() {
            true => Progress::Done,
            false => Progress::Blocked,
        }
    }
}

impl<E> Underway<E> {
    /// Writes as much of the output as fits.
    fn write(&mut self, stream: &TcpStream, output: &mut Vec<u8>, written: &mut usize) -> Life {
        write(stream, output, written, |began, count| {
            self.left = began;
            self.bytes += count;
        })
    }
}

/// Writes as much of the output as fits; reports for each write when it began, and how many bytes it took.
fn write(
    mut stream: &TcpStream,
    output: &mut Vec<u8>,
    written: &mut usize,
    mut report: impl FnMut(Duration, usize),
) -> Life {
    while *written < output.len() {
        // A client may act on the last byte before this thread runs on: it left before that.
        let began = Clock::read().now;
        match stream.write(&output[*written..]) {
            Ok(0) => return Life::Over,
            Ok(count) => {
                *written += count;
                report(began, count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Life::On,
            Err(_) => return Life::Over,
        }
    }
    output.clear();
    *written = 0;
    Life::On
}

/// Appends bytes as the wire is to have them.
fn encrypt(session: Option<&mut ServerConnection>, bytes: &[u8], output: &mut Vec<u8>) {
    let Some(session) = session else {
        return output.extend_from_slice(bytes);
    };
    let written = session.writer().write_all(bytes);
    written.expect("the buffer of a session has no limit");
    take_output(Some(session), output);
}

/// Appends what a session has for the wire.
fn take_output(session: Option<&mut ServerConnection>, output: &mut Vec<u8>) {
    let Some(session) = session else {
        return;
    };
    while session.wants_write() {
        let written = session.write_tls(output);
        written.expect("memory takes all of it");
    }
}

/// A client that sends more than this ahead is not a crawler, and is disconnected.
const INPUT_MAX: usize = 128 * 1024;
