//! The tests of every back end. Each takes a bench; the macro at the end lists the benches.

use std::path::PathBuf;
use std::time::Duration;

use super::{Bench, Seen, Step, Watch, token};
use crate::base::disk::{DiskJob, FileId};
use crate::base::gzip::{Gzip, gunzip};
use crate::base::time::Instant;
use crate::io::{Close, Compute, Io, IoSettings, NetError, Token, WorkerJob};

fn a_connection_reports_when_it_began_and_when_it_was_established<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let peer = watch.bench.listen(vec![]);
    let before = watch.io().now();
    watch.io().connect(token(3), peer);
    let Seen::Connected {
        token: whose,
        started,
        stamp,
    } = watch.next()
    else {
        panic!("a listening peer accepts");
    };
    assert_eq!(whose, token(3));
    assert!(before <= started && started <= stamp.at && stamp.at <= watch.io().now());
    let ours = watch.io().local(token(3)).expect("it is established");
    assert!(ours.port() != 0 && ours.ip().is_loopback() == peer.ip().is_loopback());
    watch.close(token(3));
    assert_eq!(watch.io().local(token(3)), None);
}

fn a_refused_connection_fails_once<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let refusing = watch.bench.refuse();
    watch.io().connect(token(0), refusing);
    assert!(matches!(watch.next(), Seen::Failed(whose, NetError::Refused) if whose == token(0)));
    assert!(watch.during(SHORT).is_empty());
    watch.close(token(0));
}

fn nothing_leaves_before_submit<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let peer = watch.bench.listen(vec![Step::Expect(5)]);
    watch.connect(token(0), peer);
    watch.io().send(token(0), b"hello", true);
    // A wait does not submit.
    let until = watch.io().now() + SHORT;
    let mut events = Vec::new();
    while watch.io().now() < until {
        watch.io().wait(Some(until), &mut events);
    }
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(watch.bench.received(peer), b"");
    let before = watch.io().now();
    watch.io().submit();
    assert!(matches!(watch.next(), Seen::Sent(whose, at) if whose == token(0) && at >= before));
    watch.during(SHORT);
    assert_eq!(watch.bench.received(peer), b"hello");
}

fn bytes_sent_while_connecting_leave_when_connected<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let peer = watch.bench.listen(vec![Step::Expect(6), Step::End]);
    watch.io().connect(token(0), peer);
    watch.io().send(token(0), b"abc", true);
    watch.io().submit();
    watch.io().send(token(0), b"def", false);
    let Seen::Connected { stamp, .. } = watch.next() else {
        panic!("a listening peer accepts");
    };
    assert!(matches!(watch.next(), Seen::Sent(_, at) if at >= stamp.at));
    assert_eq!(watch.read_to_end(token(0)), (vec![], None));
    assert_eq!(watch.bench.received(peer), b"abcdef");
}

fn an_arrival_is_stamped_after_the_send_that_it_answers<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let script = vec![Step::Expect(1), Step::Send(b"!".to_vec())];
    let peer = watch.bench.listen(vec![script; 20].concat());
    watch.connect(token(0), peer);
    for _ in 0..20 {
        watch.io().send(token(0), b"?", true);
        let Seen::Sent(_, sent) = watch.next() else {
            panic!("a marked send is reported");
        };
        let Seen::Received(_, bytes, stamp) = watch.next() else {
            panic!("the peer answers");
        };
        assert_eq!(bytes, b"!");
        assert!(sent <= stamp.at && stamp.at <= watch.io().now());
    }
}

fn bytes_arrive_complete_and_in_order_whatever_their_number<B: Bench>() {
    let mut watch = Watch::<B>::new();
    for (slot, length) in [1, 2, 16_383, 16_384, 16_385, 300_000, 1_000_000]
        .into_iter()
        .enumerate()
    {
        let body = pattern(length);
        let peer = watch
            .bench
            .listen(vec![Step::Send(body.clone()), Step::End]);
        let token = token(slot as u32);
        watch.connect(token, peer);
        assert!(
            watch.read_to_end(token) == (body, None),
            "of {length} bytes"
        );
        watch.close(token);
    }
}

fn bytes_that_the_socket_does_not_take_at_once_follow<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let length = 12_000_000;
    let peer = watch.bench.listen(vec![
        Step::Pause(SHORT),
        Step::Expect(length + 3),
        Step::End,
    ]);
    watch.connect(token(0), peer);
    let body = pattern(length);
    watch.io().send(token(0), &body, true);
    watch.io().submit();
    watch.io().send(token(0), b"end", true);
    assert_eq!(watch.read_to_end(token(0)), (vec![], None));
    let received = watch.bench.received(peer);
    assert!(received[..length] == body && &received[length..] == b"end");
}

fn every_marked_send_is_reported_once_and_in_order<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let length = 4_000_000;
    let peer = watch.bench.listen(vec![
        Step::Pause(SHORT),
        Step::Expect(3 * length),
        Step::End,
    ]);
    watch.connect(token(0), peer);
    let body = pattern(length);
    for _ in 0..3 {
        watch.io().send(token(0), &body, true);
    }
    let mut sent: Vec<Instant> = Vec::new();
    loop {
        match watch.next() {
            Seen::Sent(_, at) => sent.push(at),
            Seen::Flushed(..) => {}
            Seen::Ended(..) => break,
            other => panic!("sent or ended expected, not {other:?}"),
        }
    }
    assert_eq!(sent.len(), 3);
    assert!(sent.is_sorted());
}

fn the_end_is_reported_once_and_after_the_bytes<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let peer = watch
        .bench
        .listen(vec![Step::Send(b"bye".to_vec()), Step::End]);
    watch.connect(token(0), peer);
    let mut arrived = Vec::new();
    let ended = loop {
        match watch.next() {
            Seen::Received(_, bytes, stamp) => arrived.push((bytes, stamp.at)),
            Seen::Ended(_, stamp) => break stamp.at,
            other => panic!("{other:?}"),
        }
    };
    assert!(arrived.iter().is_sorted_by_key(|(_, at)| *at));
    assert!(arrived.iter().all(|(_, at)| *at <= ended) && ended <= watch.io().now());
    let arrived: Vec<u8> = arrived.into_iter().flat_map(|(bytes, _)| bytes).collect();
    assert_eq!(arrived, b"bye");
    assert!(watch.during(SHORT).is_empty());
}

fn a_reset_is_a_failure<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let peer = watch.bench.listen(vec![Step::Expect(1), Step::Reset]);
    watch.connect(token(0), peer);
    watch.io().send(token(0), b"x", false);
    assert_eq!(watch.read_to_end(token(0)), (vec![], Some(NetError::Reset)));
    assert!(watch.during(SHORT).is_empty());
}

fn a_closed_token_is_forgotten_when_its_slot_is_reused<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let noisy = watch.bench.listen(vec![
        Step::Expect(1),
        Step::Send(pattern(100_000)),
        Step::End,
    ]);
    let quiet = watch.bench.listen(vec![Step::Send(b"new".to_vec())]);
    for (generation, how) in [(1, Close::Finish), (2, Close::Reset), (3, Close::Finish)] {
        let old = Token {
            slot: 0,
            generation: 2 * generation,
        };
        let new = Token {
            slot: 0,
            generation: 2 * generation + 1,
        };
        watch.connect(old, noisy);
        watch.io().send(old, b"x", true);
        watch.io().submit();
        watch.io().close(old, how);
        watch.io().connect(new, quiet);
        // Neither a send nor a close under the old token affects the new socket.
        watch.io().send(old, b"stale", true);
        watch.io().close(old, Close::Reset);
        let seen = watch.during(SHORT);
        let mut arrived = Vec::new();
        for (index, seen) in seen.into_iter().enumerate() {
            match seen {
                Seen::Connected { token, .. } if index == 0 && token == new => {}
                Seen::Received(whose, bytes, _) if whose == new => arrived.extend(bytes),
                other => panic!("{new:?} received {other:?}"),
            }
        }
        assert_eq!(arrived, b"new");
        watch.close(new);
    }
    assert_eq!(watch.bench.received(quiet), b"");
}

fn a_socket_beyond_the_limit_fails_as_exhausted<B: Bench>() {
    let mut watch = Watch::<B>::with(IoSettings {
        sockets_max: 2,
        ..IoSettings::default()
    });
    assert_eq!(watch.io().capacity(), 2);
    let peer = watch.bench.listen(vec![]);
    watch.connect(token(0), peer);
    watch.connect(token(1), peer);
    watch.io().connect(token(2), peer);
    assert!(matches!(watch.next(), Seen::Failed(whose, NetError::Exhausted) if whose == token(2)));
    watch.close(token(2));
    watch.close(token(0));
    watch.connect(token(2), peer);
}

fn a_connection_that_is_not_read_slows_its_peer<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let body = pattern(500_000);
    let peer = watch
        .bench
        .listen(vec![Step::Send(body.clone()), Step::End]);
    watch.connect(token(0), peer);
    watch.io().set_reading(token(0), false);
    // Bytes that came together with the connection may be reported already.
    let mut early = Vec::new();
    for seen in watch.during(SHORT) {
        match seen {
            Seen::Received(_, bytes, _) => early.extend(bytes),
            other => panic!("a connection that is not read reported {other:?}"),
        }
    }
    assert!(watch.during(SHORT).is_empty());
    watch.io().set_reading(token(0), true);
    let (rest, end) = watch.read_to_end(token(0));
    early.extend(rest);
    assert!(early == body && end.is_none());
}

fn an_empty_pool_stops_reading_until_chunks_are_released<B: Bench>() {
    let mut watch = Watch::<B>::with(IoSettings {
        buffer_bytes: 1000,
        buffers_max: 3,
        ..IoSettings::default()
    });
    let body = pattern(50_000);
    let script = vec![Step::Send(body.clone()), Step::End];
    let peer = watch.bench.listen(script);
    let io = watch.bench.io();
    io.connect(token(0), peer);
    io.connect(token(1), peer);
    let mut held = Vec::new();
    let mut got = [Vec::new(), Vec::new()];
    let mut ended = 0;
    let give_up_at = io.now() + super::TIMEOUT;
    while ended < 2 {
        assert!(io.now() < give_up_at, "the pool never recovered");
        let mut events = Vec::new();
        io.wait(Some(io.now() + SHORT), &mut events);
        for event in events {
            match event {
                crate::io::Event::Received { token, chunk, .. } => {
                    got[token.slot as usize].extend_from_slice(io.bytes(&chunk));
                    held.push(chunk);
                }
                crate::io::Event::Ended { .. } => ended += 1,
                crate::io::Event::Connected { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(held.len() <= 3);
        if held.len() == 3 {
            assert!(!io.has_pending(), "no buffer is free");
        }
        for chunk in held.drain(..) {
            io.release(chunk);
        }
    }
    assert!(got[0] == body && got[1] == body);
}

fn a_long_reply_does_not_delay_other_sockets<B: Bench>() {
    let mut watch = Watch::<B>::with(IoSettings {
        read_budget: 16 * 1024,
        ..IoSettings::default()
    });
    let long = watch
        .bench
        .listen(vec![Step::Send(pattern(1_000_000)), Step::End]);
    let short = watch.bench.listen(vec![Step::Send(b"!".to_vec())]);
    for (slot, peer) in [(0, long), (1, short)] {
        watch.io().connect(token(slot), peer);
        watch.io().set_reading(token(slot), false);
    }
    // Both have much or all of their input pending when reading begins.
    watch.during(SHORT);
    watch.io().set_reading(token(0), true);
    watch.io().set_reading(token(1), true);
    let mut before = 0;
    loop {
        match watch.next() {
            Seen::Received(whose, bytes, _) if whose == token(0) => before += bytes.len(),
            Seen::Received(_, bytes, _) => break assert_eq!(bytes, b"!"),
            other => panic!("{other:?}"),
        }
    }
    assert!(
        before <= 2 * 16 * 1024,
        "{before} bytes before the other's turn"
    );
    let (rest, end) = watch.read_to_end(token(0));
    assert_eq!((before + rest.len(), end), (1_000_000, None));
}

fn a_quiet_wait_lasts_until_its_deadline<B: Bench>() {
    let mut watch = Watch::<B>::new();
    for micros in [1, 300, 999, 1000, 1700, 20_000] {
        let io = watch.io();
        let until = io.now() + Duration::from_micros(micros);
        let mut events = Vec::new();
        io.wait(Some(until), &mut events);
        assert!(events.is_empty());
        assert!(io.now() >= until, "{micros} µs were cut short");
    }
    // A deadline that has passed does not cause a sleep.
    let io = watch.io();
    let before = io.now();
    io.wait(Some(Instant::START), &mut Vec::new());
    assert!(io.now() < before + Duration::from_secs(1));
}

fn a_waker_ends_a_wait_that_has_no_deadline<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let waker = watch.io().waker();
    for _ in 0..3 {
        waker.wake();
        let mut events = Vec::new();
        watch.io().wait(None, &mut events);
        assert!(matches!(events[..], [crate::io::Event::Woken]));
    }
}

fn a_datagram_comes_back_from_where_it_went<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let echo = watch.bench.echo();
    for slot in 0..10 {
        watch.io().open_datagram(token(slot), echo);
    }
    for slot in 0..10 {
        watch.io().send(token(slot), b"one", true);
        watch.io().send(token(slot), &[slot as u8; 900], false);
        let mut got = Vec::new();
        while got.len() < 2 {
            match watch.next() {
                Seen::Received(whose, bytes, _) if whose == token(slot) => got.push(bytes),
                Seen::Sent(whose, _) if whose == token(slot) => {}
                other => panic!("{other:?}"),
            }
        }
        got.sort_by_key(Vec::len);
        assert_eq!(got, [b"one".to_vec(), vec![slot as u8; 900]]);
    }
}

fn a_datagram_longer_than_a_buffer_is_truncated<B: Bench>() {
    let mut watch = Watch::<B>::with(IoSettings {
        buffer_bytes: 100,
        ..IoSettings::default()
    });
    let echo = watch.bench.echo();
    watch.io().open_datagram(token(0), echo);
    for length in [300, 7] {
        watch.io().send(token(0), &vec![b'x'; length], false);
        let Seen::Received(_, bytes, _) = watch.next() else {
            panic!("the echo answers");
        };
        assert_eq!(bytes.len(), length.min(100));
    }
    assert!(watch.during(SHORT).is_empty());
}

fn a_datagram_to_a_port_without_a_listener_fails<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let refusing = watch.bench.refuse();
    watch.io().open_datagram(token(0), refusing);
    watch.io().send(token(0), b"anyone?", false);
    assert!(matches!(watch.next(), Seen::Failed(whose, NetError::Refused) if whose == token(0)));
}

fn the_disk_does_its_jobs_in_order<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let (first, last) = (
        watch.bench.folder().join("deep/down/results.open"),
        watch.bench.folder().join("deep/down/results"),
    );
    let file = FileId(7);
    watch.io().disk(DiskJob::Create {
        file,
        path: first.clone(),
    });
    let mut whole = Vec::new();
    for tag in 0..50 {
        let bytes = format!("line {tag}\n").into_bytes();
        let (offset, length) = (whole.len() as u64, bytes.len());
        whole.extend_from_slice(&bytes);
        let done = watch.disk(DiskJob::Append {
            file,
            bytes,
            gzip: false,
            tag,
        });
        let written = done.result.expect("there is room");
        assert_eq!((done.tag, done.file, done.held), (tag, Some(file), length));
        assert_eq!((written.offset, written.length), (offset, length as u64));
    }
    watch
        .disk(DiskJob::Sync { file, tag: 99 })
        .result
        .expect("synced");
    assert_eq!(watch.bench.content(&first), Some(whole.clone()));
    let done = watch.disk(DiskJob::Finish {
        file,
        rename: Some(last.clone()),
    });
    assert!(done.file == Some(file) && done.result.is_ok());
    let other = watch.bench.folder().join("stats");
    for content in [b"old and long".to_vec(), b"new".to_vec()] {
        let done = watch.disk(DiskJob::Replace {
            path: other.clone(),
            bytes: content.clone(),
            tag: 100,
        });
        assert!(done.tag == 100 && done.result.is_ok());
        assert_eq!(watch.bench.content(&other), Some(content));
    }
    assert_eq!(watch.bench.content(&first), None);
    assert_eq!(watch.bench.content(&last), Some(whole));
}

fn a_reserve_of_free_space_is_used_only_when_stalled_writes_are_to_fail<B: Bench>() {
    let mut watch = Watch::<B>::with(IoSettings {
        disk_free_min: Some(u64::MAX),
        ..IoSettings::default()
    });
    let (file, path) = (FileId(1), watch.bench.folder().join("results"));
    watch.io().disk(DiskJob::Create {
        file,
        path: path.clone(),
    });
    watch.io().disk(DiskJob::Append {
        file,
        bytes: b"bytes".to_vec(),
        gzip: false,
        tag: 1,
    });
    let Seen::DiskFull(error) = watch.next() else {
        panic!("all space is reserved");
    };
    assert!(error.contains("results"), "{error}");
    assert!(
        error.contains("bytes are free") && error.contains("DISK_FREE_MIN keeps"),
        "{error}"
    );
    assert_ne!(watch.bench.content(&path), Some(b"bytes".to_vec()));
    watch.io().fail_stalled_writes();
    assert!(matches!(watch.next(), Seen::DiskRoom));
    assert!(matches!(watch.next(), Seen::Disk(done) if done.result.is_ok()));
    assert_eq!(watch.bench.content(&path), Some(b"bytes".to_vec()));
}

/// Appends of gzip members to two files and of lines to a third, all in one submit.
fn members_at_once<B: Bench>(watch: &mut Watch<B>) -> Vec<(PathBuf, Vec<Vec<u8>>)> {
    let paths = ["one.gz", "other.gz", "lines"].map(|name| watch.bench.folder().join(name));
    let mut contents = vec![Vec::new(); paths.len()];
    for (number, path) in (0..).zip(&paths) {
        watch.io().disk(DiskJob::Create {
            file: FileId(number),
            path: path.clone(),
        });
    }
    for tag in 0..60_u64 {
        let file = [0, 0, 0, 1, 1, 0, 2, 1, 0, 0][(tag % 10) as usize];
        // One is larger than what is written at once.
        let length = [500, 30_000, 300_000][usize::from(tag % 7 == 3) + usize::from(tag == 31)];
        let bytes = [&tag.to_le_bytes()[..], &noise(length)].concat();
        contents[file].push(bytes.clone());
        watch.io().disk(DiskJob::Append {
            file: FileId(file as u32),
            bytes,
            gzip: file < 2,
            tag: tag + 1,
        });
    }
    watch.io().submit();
    paths.into_iter().zip(contents).collect()
}

/// Each append is done, in order, and its bytes are where the result says.
fn check_members<B: Bench>(watch: &mut Watch<B>, files: &[(PathBuf, Vec<Vec<u8>>)]) {
    let mut places = vec![Vec::new(); files.len()];
    for tag in 0..60 {
        let Seen::Disk(done) = watch.next() else {
            panic!("an append is done");
        };
        let written = done.result.expect("there is room");
        assert_eq!(done.tag, tag + 1);
        places[done.file.expect("it is a file's").0 as usize].push(written);
    }
    for ((path, contents), places) in files.iter().zip(places) {
        let bytes = watch.bench.content(path).expect("it is written");
        let mut end = 0;
        for (content, written) in contents.iter().zip(&places) {
            assert_eq!(written.offset, end, "{}", path.display());
            end += written.length;
            let member = &bytes[written.offset as usize..end as usize];
            match path.extension() {
                Some(_) => assert!(gunzip(member) == *content, "{}", path.display()),
                None => assert!(member == content),
            }
        }
        assert_eq!((end, places.len()), (bytes.len() as u64, contents.len()));
    }
}

fn members_that_are_appended_at_once_are_where_their_results_say<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let files = members_at_once(&mut watch);
    check_members(&mut watch, &files);
}

fn members_without_space_are_all_written_in_order_once_there_is_some<B: Bench>() {
    let mut watch = Watch::<B>::with(IoSettings {
        disk_free_min: Some(u64::MAX),
        ..IoSettings::default()
    });
    let files = members_at_once(&mut watch);
    assert!(matches!(watch.next(), Seen::DiskFull(_)));
    watch.io().fail_stalled_writes();
    assert!(matches!(watch.next(), Seen::DiskRoom));
    check_members(&mut watch, &files);
}

fn a_file_is_continued_at_its_length<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let path = watch.bench.folder().join("results");
    let append = |file, bytes: &[u8]| DiskJob::Append {
        file,
        bytes: bytes.to_vec(),
        gzip: false,
        tag: 1,
    };
    let open = |file, length| DiskJob::Open {
        file: FileId(file),
        path: path.clone(),
        length,
    };
    let error = watch.disk(open(1, 0)).result.expect_err("it is missing");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let file = FileId(2);
    let create = DiskJob::Create {
        file,
        path: path.clone(),
    };
    watch.io().disk(create);
    watch.disk(append(file, b"one")).result.expect("it is open");
    for length in [2, 4] {
        let error = watch.disk(open(3, length)).result.expect_err("it has 3");
        assert!(error.to_string().contains(&path.display().to_string()));
        assert!(watch.disk(append(FileId(3), b"lost")).result.is_err());
    }
    watch.io().disk(open(3, 3));
    let written = watch.disk(append(FileId(3), b"two")).result;
    assert_eq!(written.expect("it is open").offset, 3);
    let done = watch.disk(DiskJob::Sync {
        file: FileId(3),
        tag: 2,
    });
    assert_eq!(done.result.expect("it is synced").offset, 6);
    assert_eq!(watch.bench.content(&path), Some(b"onetwo".to_vec()));
}

fn what_was_appended_is_read_and_a_removed_file_is_gone<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let path = watch.bench.folder().join("queue");
    let create = DiskJob::Create {
        file: FileId(1),
        path: path.clone(),
    };
    watch.io().disk(create);
    let append = DiskJob::Append {
        file: FileId(1),
        bytes: b"0123456789".to_vec(),
        gzip: false,
        tag: 1,
    };
    watch.disk(append).result.expect("there is room");
    let read = |offset, length| DiskJob::Read {
        file: FileId(9),
        path: path.clone(),
        offset,
        bytes: vec![0; length],
        tag: 2,
    };
    let done = watch.disk(read(3, 4));
    assert_eq!((done.file, done.tag, done.held), (Some(FileId(9)), 2, 4));
    assert!(done.result.is_ok() && done.read == b"3456");
    for (offset, length) in [(8, 3), (11, 1), (u64::MAX, 1)] {
        let done = watch.disk(read(offset, length));
        let error = done.result.expect_err("it has ten bytes");
        assert!(error.to_string().contains(&path.display().to_string()));
        assert!(done.read.is_empty());
    }
    let remove = || DiskJob::Remove {
        file: FileId(9),
        path: path.clone(),
        tag: 3,
    };
    for _ in 0..2 {
        let done = watch.disk(remove());
        assert_eq!((done.file, done.tag), (Some(FileId(9)), 3));
        done.result.expect("a missing file is as good as removed");
    }
    assert_eq!(watch.bench.content(&path), None);
    let error = watch.disk(read(0, 1)).result.expect_err("it is gone");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

fn a_read_passes_jobs_that_do_not_concern_its_bytes<B: Bench>() {
    let mut watch = Watch::<B>::with(IoSettings {
        disk_free_min: Some(u64::MAX),
        ..IoSettings::default()
    });
    let path = watch.bench.folder().join("queue");
    let read = |path: &std::path::Path, tag| DiskJob::Read {
        file: FileId(9),
        path: path.to_owned(),
        offset: 1,
        bytes: vec![0; 2],
        tag,
    };
    watch.io().disk(DiskJob::Create {
        file: FileId(1),
        path: path.clone(),
    });
    watch.io().disk(DiskJob::Append {
        file: FileId(1),
        bytes: b"0123".to_vec(),
        gzip: false,
        tag: 1,
    });
    assert!(matches!(watch.next(), Seen::DiskFull(_)));
    watch.io().disk(read(&path, 2));
    watch.io().disk(DiskJob::Remove {
        file: FileId(9),
        path: path.clone(),
        tag: 3,
    });
    let done = watch.disk(read(&path.with_file_name("other"), 4));
    let error = done.result.expect_err("there is no such file");
    assert_eq!((done.tag, error.kind()), (4, std::io::ErrorKind::NotFound));
    watch.io().fail_stalled_writes();
    assert!(matches!(watch.next(), Seen::DiskRoom));
    for tag in [1, 2, 3] {
        let Seen::Disk(done) = watch.next() else {
            panic!("a job is done");
        };
        assert!(done.result.is_ok() && done.tag == tag, "{tag}: {done:?}");
        assert!(tag != 2 || done.read == b"12");
    }
}

fn what_is_allocated_is_no_part_of_the_file<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let path = watch.bench.folder().join("journal");
    let file = FileId(1);
    let blocks = |path: &std::path::Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some(std::os::unix::fs::MetadataExt::blocks(&metadata) * 512)
    };
    watch.io().disk(DiskJob::Create {
        file,
        path: path.clone(),
    });
    let bytes = 1 << 20;
    watch.io().disk(DiskJob::Allocate { file, bytes });
    let append = DiskJob::Append {
        file,
        bytes: b"0123".to_vec(),
        gzip: false,
        tag: 1,
    };
    let written = watch.disk(append).result.expect("there is room");
    assert_eq!((written.offset, written.length), (0, 4));
    assert_eq!(watch.bench.content(&path), Some(b"0123".to_vec()));
    // The file systems that tests run on can allocate.
    assert!(blocks(&path).is_none_or(|allocated| allocated >= bytes));
    let renamed = path.with_file_name("next");
    let done = watch.disk(DiskJob::Finish {
        file,
        rename: Some(renamed.clone()),
    });
    done.result.expect("it is renamed");
    assert_eq!(watch.bench.content(&renamed), Some(b"0123".to_vec()));
    assert!(blocks(&renamed).is_none_or(|allocated| allocated < bytes));
}

fn each_gzip_append_is_a_member_of_its_own<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let path = watch.bench.folder().join("pages.gz");
    let file = FileId(0);
    watch.io().disk(DiskJob::Create {
        file,
        path: path.clone(),
    });
    let parts = [
        b"".to_vec(),
        b"one".to_vec(),
        pattern(3_000_000),
        noise(200_000),
    ];
    let mut ranges = Vec::new();
    for bytes in &parts {
        let done = watch.disk(DiskJob::Append {
            file,
            bytes: bytes.clone(),
            gzip: true,
            tag: 0,
        });
        assert_eq!(done.held, bytes.len());
        ranges.push(done.result.expect("there is room"));
    }
    let content = watch.bench.content(&path).expect("the file exists");
    let mut end = 0;
    for (written, bytes) in ranges.iter().zip(&parts) {
        assert_eq!(written.offset, end);
        end += written.length;
        let member = &content[written.offset as usize..end as usize];
        assert!(gunzip(member) == *bytes);
    }
    assert_eq!(end, content.len() as u64);
    assert!(ranges[2].length < 100_000, "it does compress");
}

fn gzip_members_have_the_level_of_the_settings<B: Bench>() {
    let bytes: Vec<u8> = noise(100_000).iter().map(|byte| byte & 7).collect();
    let length = |gzip_level| {
        let mut watch = Watch::<B>::with(IoSettings {
            gzip_level,
            ..IoSettings::default()
        });
        let path = watch.bench.folder().join("pages.gz");
        let file = FileId(0);
        watch.io().disk(DiskJob::Create {
            file,
            path: path.clone(),
        });
        let done = watch.disk(DiskJob::Append {
            file,
            bytes: bytes.clone(),
            gzip: true,
            tag: 0,
        });
        let content = watch.bench.content(&path).expect("the file exists");
        assert!(gunzip(&content) == bytes);
        done.result.expect("there is room").length as usize
    };
    assert!(length(0) > bytes.len());
    assert!(length(1) < bytes.len() && length(1) != length(9));
}

struct Double(u32);

impl Compute for Double {
    fn run(&mut self, _gzip: &mut Gzip) {
        self.0 = self.0.checked_mul(2).expect("it fits");
    }
}

/// The numbers of computations that come back, and the numbers that they computed or their panics.
fn computed<B: Bench>(workers: usize, numbers: &[u32]) -> Vec<(u64, Result<u32, String>)> {
    let settings = IoSettings {
        workers,
        ..IoSettings::default()
    };
    let mut watch = Watch::<B>::with(settings);
    for (number, value) in (0..).zip(numbers) {
        let compute = Box::new(Double(*value));
        watch.io().compute(WorkerJob { number, compute });
    }
    watch.io().submit();
    let mut results = Vec::new();
    while results.len() < numbers.len() {
        let Seen::Computed(mut done) = watch.next() else {
            panic!("nothing else is under way");
        };
        let (number, panic) = (done.number, done.panic.take());
        let value = done.into_computed::<Double>().0;
        results.push((number, panic.map_or(Ok(value), Err)));
    }
    assert!(watch.during(SHORT).is_empty());
    results.sort_by_key(|(number, _)| *number);
    results
}

fn computations_come_back_with_their_results_in_any_order<B: Bench>() {
    for workers in [0, 1, 3] {
        let expected = vec![(0, Ok(2)), (1, Ok(4)), (2, Ok(6))];
        assert_eq!(computed::<B>(workers, &[1, 2, 3]), expected, "{workers}");
    }
}

fn a_computation_that_panics_comes_back_with_its_message<B: Bench>() {
    for workers in [0, 1] {
        let expected = vec![(0, Err("it fits".to_owned())), (1, Ok(8))];
        assert_eq!(
            computed::<B>(workers, &[u32::MAX, 4]),
            expected,
            "{workers}"
        );
    }
}

fn a_disk_error_names_the_operation_and_the_path<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let path = watch.bench.folder().join("twice");
    let create = |file| DiskJob::Create {
        file: FileId(file),
        path: path.clone(),
    };
    watch.io().disk(create(1));
    let done = watch.disk(create(2));
    assert_eq!((done.file, done.held), (Some(FileId(2)), 0));
    let error = done.result.expect_err("a file is created once");
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert!(error.to_string().contains(&path.display().to_string()));
    let done = watch.disk(DiskJob::Append {
        file: FileId(2),
        bytes: b"lost".to_vec(),
        gzip: false,
        tag: 5,
    });
    assert_eq!((done.tag, done.held), (5, 4));
    assert!(done.result.is_err());
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

fn noise(length: usize) -> Vec<u8> {
    let mut rng = crate::base::rng::Rng::from_seed(1);
    (0..length).map(|_| rng.next_u64() as u8).collect()
}

/// Enough for loopback to settle.
const SHORT: Duration = Duration::from_millis(60);

/// The tests of a file for each bench.
macro_rules! suite {
    ($($name:ident)*) => {
        mod kernel {
            use $crate::io::conformance::kernel::Kernel;

            $(#[test] fn $name() { super::$name::<Kernel>(); })*
        }

        mod uring {
            use $crate::io::conformance::kernel::{Kernel, has_uring};

            $(#[test] fn $name() {
                if has_uring() {
                    super::$name::<Kernel<$crate::io::Uring>>();
                }
            })*
        }

        mod simulated {
            use $crate::io::conformance::simulated::Simulated;

            $(#[test] fn $name() { super::$name::<Simulated>(); })*
        }
    };
}

pub(super) use suite;

suite! {
    a_connection_reports_when_it_began_and_when_it_was_established
    a_refused_connection_fails_once
    nothing_leaves_before_submit
    bytes_sent_while_connecting_leave_when_connected
    an_arrival_is_stamped_after_the_send_that_it_answers
    bytes_arrive_complete_and_in_order_whatever_their_number
    bytes_that_the_socket_does_not_take_at_once_follow
    every_marked_send_is_reported_once_and_in_order
    the_end_is_reported_once_and_after_the_bytes
    a_reset_is_a_failure
    a_closed_token_is_forgotten_when_its_slot_is_reused
    a_socket_beyond_the_limit_fails_as_exhausted
    a_connection_that_is_not_read_slows_its_peer
    an_empty_pool_stops_reading_until_chunks_are_released
    a_long_reply_does_not_delay_other_sockets
    a_quiet_wait_lasts_until_its_deadline
    a_waker_ends_a_wait_that_has_no_deadline
    a_datagram_comes_back_from_where_it_went
    a_datagram_longer_than_a_buffer_is_truncated
    a_datagram_to_a_port_without_a_listener_fails
    the_disk_does_its_jobs_in_order
    a_reserve_of_free_space_is_used_only_when_stalled_writes_are_to_fail
    a_file_is_continued_at_its_length
    members_that_are_appended_at_once_are_where_their_results_say
    members_without_space_are_all_written_in_order_once_there_is_some
    what_was_appended_is_read_and_a_removed_file_is_gone
    a_read_passes_jobs_that_do_not_concern_its_bytes
    what_is_allocated_is_no_part_of_the_file
    each_gzip_append_is_a_member_of_its_own
    gzip_members_have_the_level_of_the_settings
    computations_come_back_with_their_results_in_any_order
    a_computation_that_panics_comes_back_with_its_message
    a_disk_error_names_the_operation_and_the_path
}
