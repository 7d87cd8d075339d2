//! Behaviour of the kernel's back ends when resources of the machine run out.
//!
//! Limits and standard output are process-wide, so each test runs in its own process: this test binary,
//! started again with the name of one test.

#[path = "../src/base/loud.rs"]
mod loud;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use argiope::base::disk::{DiskDone, DiskJob, FileId};
use argiope::io::{
    BackEnd, Endpoint, Epoll, Event, Io, IoKind, IoSettings, Kernel, NetError, Token, Unavailable,
    Uring, raise_open_files,
};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

const INSIDE: &str = "ARGIOPE_TEST_INSIDE";

#[test]
fn standard_output_works_like_a_file() {
    if inside() {
        let mut io = back_end();
        io.disk(DiskJob::Stdout { file: FileId(1) });
        let first = append(&mut io, b"one\n").result.expect("a pipe takes it");
        assert_eq!((first.offset, first.length), (0, 4));
        let second = append(&mut io, b"two\n").result.expect("a pipe takes it");
        assert_eq!((second.offset, second.length), (4, 4));
        let tag = 0;
        io.disk(DiskJob::Sync {
            file: FileId(1),
            tag,
        });
        done(&mut io).result.expect("nothing to sync is synced");
        return;
    }
    let mut child = again("standard_output_works_like_a_file");
    let mut said = String::new();
    let mut stdout = child.stdout.take().expect("it was piped");
    stdout.read_to_string(&mut said).expect("it is text");
    assert!(child.wait().expect("it ends").success());
    assert!(said.contains("one\ntwo\n"), "{said}");
}

#[test]
fn a_stuck_reader_can_be_dropped() {
    if inside() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(writer.as_raw_fd(), 1) };
        let folder = tempfile::tempdir().expect("a folder");
        let mut io = back_end();
        // If an assertion fails, this is dropped before `io`, whose drop waits for the reader.
        let reader = reader;
        io.disk(DiskJob::Stdout { file: FileId(1) });
        let line = [b'!'; 1000];
        append(&mut io, &line).result.expect("a pipe takes it");
        let more = |io: &mut Epoll| {
            io.disk(DiskJob::Append {
                file: FileId(1),
                bytes: line.repeat(1000),
                gzip: false,
                tag: 1,
            });
        };
        more(&mut io);
        let path = folder.path().join("after");
        io.disk(DiskJob::Replace {
            path: path.clone(),
            bytes: line.to_vec(),
            tag: 2,
        });
        let mut events = Vec::new();
        io.submit();
        io.wait(Some(io.now() + Duration::from_millis(100)), &mut events);
        assert!(events.is_empty(), "no pipe takes a megabyte: {events:?}");
        io.fail_stalled_writes();
        more(&mut io);
        io.submit();
        let patient_until = io.now() + Duration::from_secs(20);
        while events.len() < 3 && io.now() < patient_until {
            io.wait(Some(patient_until), &mut events);
        }
        let arrivals = events.iter().map(|event| match event {
            Event::Disk(done) => (done.tag, done.result.as_ref().err().map(|e| e.kind())),
            other => panic!("{other:?}"),
        });
        let late = Some(ErrorKind::TimedOut);
        assert_eq!(
            arrivals.collect::<Vec<_>>(),
            [(1, late), (2, None), (1, late)]
        );
        assert_eq!(fs::read(path).expect("it was written"), line);
        // Dropping the back end does not block.
        drop(io);
        drop(reader);
        std::process::exit(7);
    }
    let mut child = again("a_stuck_reader_can_be_dropped");
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
}

#[test]
fn a_closed_pipe_is_an_error_and_not_a_signal() {
    if inside() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        // Restores the default of SIGPIPE, which a Rust program ignores.
        // SAFETY: both descriptors are open, and the default disposition has no handler.
        unsafe {
            libc::dup2(writer.as_raw_fd(), 1);
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
        let mut io = back_end();
        io.disk(DiskJob::Stdout { file: FileId(1) });
        let error = append(&mut io, b"?").result.expect_err("no reader");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        assert!(error.to_string().contains("standard output"));
        std::process::exit(7);
    }
    let mut child = again("a_closed_pipe_is_an_error_and_not_a_signal");
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
}

#[test]
fn sending_to_a_closed_peer_is_an_error_and_not_a_signal() {
    if inside() {
        // Restores the default of SIGPIPE, which a Rust program ignores.
        // SAFETY: the default disposition has no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut io = back_end();
        let token = Token {
            slot: 0,
            generation: 0,
        };
        io.connect(token, listener.local_addr().expect("an address"));
        drop(listener.accept().expect("we connected"));
        let mut events = Vec::new();
        while !events
            .iter()
            .any(|event| matches!(event, Event::Failed { .. }))
        {
            io.send(token, b"?", false);
            io.submit();
            io.wait(Some(io.now() + Duration::from_millis(5)), &mut events);
        }
        std::process::exit(7);
    }
    let mut child = again("sending_to_a_closed_peer_is_an_error_and_not_a_signal");
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
}

#[test]
fn a_failed_append_leaves_the_file_unchanged() {
    if inside() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results");
        limit(Resource::Fsize, 10);
        let mut io = back_end();
        io.disk(DiskJob::Create {
            file: FileId(1),
            path: path.clone(),
        });
        assert!(append(&mut io, b"1234567\n").result.is_ok());
        let failed = append(&mut io, b"too long for the limit");
        assert_eq!(failed.held, 22);
        let error = failed.result.expect_err("the limit is at ten bytes");
        assert!(error.to_string().contains(&path.display().to_string()));
        assert_eq!(fs::read(&path).expect("the file is there"), b"1234567\n");
        let after = append(&mut io, b"9\n").result.expect("there is room");
        assert_eq!(after.offset, 8);
        assert_eq!(fs::read(&path).expect("the file is there"), b"1234567\n9\n");
        std::process::exit(7);
    }
    let mut child = again("a_failed_append_leaves_the_file_unchanged");
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
}

#[test]
fn without_descriptors_connect_fails() {
    if inside() {
        limit(Resource::Nofile, 100);
        let mut io = back_end();
        assert_eq!(io.capacity(), 36, "some are kept back for files");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        // Another part of the process uses the reserved descriptors.
        let mut taken = Vec::new();
        while let Ok(file) = fs::File::open("/dev/null") {
            taken.push(file);
        }
        let to = listener.local_addr().expect("an address");
        let token = Token {
            slot: 0,
            generation: 0,
        };
        io.connect(token, to);
        let mut events = Vec::new();
        io.wait(None, &mut events);
        assert!(matches!(
            events[..],
            [Event::Failed {
                error: NetError::Exhausted,
                ..
            }]
        ));
        drop(taken);
        assert_eq!(raise_open_files(), 100);
        limit(Resource::Nofile, 60);
        let error = Epoll::new(IoSettings::default()).expect_err("none are left");
        assert!(error.to_string().contains("60 open files"), "{error}");
        std::process::exit(7);
    }
    let mut child = again("without_descriptors_connect_fails");
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
}

#[test]
fn epoll_makes_the_table_of_descriptors_before_the_first_socket() {
    let name = "epoll_makes_the_table_of_descriptors_before_the_first_socket";
    check_descriptors(name, || Some(back_end()));
}

#[test]
fn io_uring_makes_the_table_of_descriptors_before_the_first_socket() {
    let name = "io_uring_makes_the_table_of_descriptors_before_the_first_socket";
    check_descriptors(name, uring);
}

fn check_descriptors<I: Io>(test: &str, make: impl FnOnce() -> Option<I>) {
    if !inside() {
        let code = again(test).wait().expect("it ends").code();
        return assert_eq!(code, Some(7));
    }
    let files = 5000;
    limit(Resource::Nofile, files);
    let made = || {
        let status = fs::read_to_string("/proc/self/status").expect("it is mounted");
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        let size = size.and_then(|size| size.trim().parse::<u64>().ok());
        size.expect("its size is there")
    };
    assert!(made() < files, "a process begins with a small table");
    if let Some(io) = make() {
        assert!(made() >= files, "{}", made());
        drop(io);
    }
    std::process::exit(7);
}

#[test]
fn dropping_the_back_end_waits_for_the_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("results");
    let mut io = back_end();
    io.disk(DiskJob::Create {
        file: FileId(1),
        path: path.clone(),
    });
    for tag in 0..200 {
        io.disk(DiskJob::Append {
            file: FileId(1),
            bytes: vec![b'x'; 10_000],
            gzip: false,
            tag,
        });
    }
    drop(io);
    assert_eq!(fs::read(&path).expect("the file is there").len(), 2_000_000);
}

#[test]
fn stale_bytes_are_not_delivered_to_a_reused_slot() {
    let Some(mut io) = uring() else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address");
    let mut events = Vec::new();
    let mut peers = Vec::new();
    for generation in 0..200 {
        let token = Token {
            slot: 0,
            generation,
        };
        io.connect(token, to);
        io.submit();
        let (mut peer, _) = listener.accept().expect("we connected");
        peer.set_read_timeout(Some(Duration::from_secs(9)))
            .expect("it is some time");
        peer.write_all(&[generation as u8; 100]).expect("we listen");
        peers.push(peer);
        let mut received = 0;
        let until = io.now() + Duration::from_secs(9);
        // Some connections are closed before the bytes are received, some in the middle, some afterwards.
        while received < generation % 3 * 50 {
            assert!(io.now() < until, "{received} bytes were received in 9 s");
            io.wait(Some(until), &mut events);
            io.submit();
            for event in events.drain(..) {
                assert_eq!(event.token(), Some(token));
                match event {
                    Event::Connected { .. } => {}
                    Event::Received { chunk, .. } => {
                        let bytes = io.bytes(&chunk);
                        assert!(bytes.iter().all(|&byte| byte == generation as u8));
                        received += bytes.len() as u32;
                        io.release(chunk);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        io.close(token, argiope::io::Close::Reset);
    }
    // All peers see that the kernel has closed the connections.
    io.submit();
    for mut peer in peers {
        assert_eq!(
            peer.read(&mut [0]).map_err(|error| error.kind()),
            Err(ErrorKind::ConnectionReset)
        );
    }
}

#[test]
fn connections_without_a_descriptor_are_accepted_later_without_busy_waiting() {
    if inside() {
        limit(Resource::Nofile, 100);
        check_late_accept(back_end());
        if let Some(io) = uring() {
            check_late_accept(io);
        }
        std::process::exit(7);
    }
    let mut child =
        again("connections_without_a_descriptor_are_accepted_later_without_busy_waiting");
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
}

fn check_late_accept(mut io: impl Io) {
    let listener = Token {
        slot: 0,
        generation: 0,
    };
    let at = Endpoint::Tcp(([127, 0, 0, 1], 0).into());
    io.listen(listener, &at).expect("a port");
    let to = io.local(listener).expect("it listens");
    let _client = TcpStream::connect(to).expect("it listens");
    let mut taken = Vec::new();
    while let Ok(file) = fs::File::open("/dev/null") {
        taken.push(file);
    }
    let (mut events, mut turns) = (Vec::new(), 0);
    let until = io.now() + Duration::from_secs(1);
    while io.now() < until {
        io.wait(Some(until), &mut events);
        turns += 1;
    }
    assert!(events.is_empty(), "{events:?}");
    assert!(turns < 20, "{turns} turns in a second");
    drop(taken);
    // Only the listener's own retry ends this wait.
    while events.is_empty() {
        io.wait(None, &mut events);
    }
    assert!(matches!(events[..], [Event::Accepted { .. }]), "{events:?}");
}

#[test]
fn a_unix_socket_has_its_mode_under_any_umask() {
    if inside() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control.sock");
        let token = Token {
            slot: 0,
            generation: 0,
        };
        for mask in [0, 0o022, 0o077, 0o177, 0o277, 0o777] {
            for mode in [0o600, 0o660, 0o666, 0o777] {
                umask(Mode::from_raw_mode(mask));
                let mut io = back_end();
                let at = Endpoint::Unix {
                    path: path.clone(),
                    mode,
                };
                io.listen(token, &at).expect("the address is free");
                let found = fs::metadata(&path).expect("it is there").mode() & 0o777;
                assert_eq!(found, mode & !mask, "{mode:o} under {mask:o}");
                let kept = umask(Mode::empty());
                assert_eq!(kept.as_raw_mode(), mask, "the umask is the process's");
                drop(io);
                assert!(!path.exists(), "a back end that is dropped leaves no file");
            }
        }
        std::process::exit(7);
    }
    let mut child = again("a_unix_socket_has_its_mode_under_any_umask");
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
}

#[test]
fn epoll_is_used_if_io_uring_is_forbidden() {
    if inside() {
        forbid_io_uring();
        let reason = Uring::new(IoSettings::default()).expect_err("it is forbidden");
        assert!(matches!(reason, Unavailable::Forbidden(_)), "{reason}");
        assert!(reason.to_string().contains("forbidden"), "{reason}");
        let io = Kernel::open(BackEnd::Uring, IoSettings::default()).expect("there is epoll");
        assert_eq!(io.kind(), IoKind::Epoll);
        std::process::exit(7);
    }
    let mut child = again("epoll_is_used_if_io_uring_is_forbidden");
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
}

/// Makes io_uring_setup fail with EPERM, as in a container's sandbox.
fn forbid_io_uring() {
    let statement = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut program = [
        // The number of the system call is the first word.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::SYS_io_uring_setup as u32,
            0,
            1,
        ),
        statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
            0,
            0,
        ),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program and its length outlive the call, which copies it.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}

/// The back end on io_uring, if it is available.
fn uring() -> Option<Uring> {
    Uring::new(IoSettings::default())
        .inspect_err(|reason| loud::skip(reason))
        .ok()
}

fn inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Starts this program again, for one test only.
fn again(test: &str) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "--nocapture", test])
        .env(INSIDE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts")
}

fn limit(what: Resource, current: u64) {
    let maximum = match what {
        Resource::Nofile => Some(current),
        _ => getrlimit(what).maximum,
    };
    let current = Some(current);
    setrlimit(what, Rlimit { current, maximum }).expect("a limit can be lowered");
}

fn back_end() -> Epoll {
    Epoll::new(IoSettings::default()).expect("a back end")
}

fn append(io: &mut Epoll, bytes: &[u8]) -> DiskDone {
    io.disk(DiskJob::Append {
        file: FileId(1),
        bytes: bytes.to_vec(),
        gzip: false,
        tag: 0,
    });
    done(io)
}

fn done(io: &mut Epoll) -> DiskDone {
    let mut events = Vec::new();
    let patient_until = io.now() + Duration::from_secs(20);
    while io.now() < patient_until {
        io.submit();
        io.wait(Some(patient_until), &mut events);
        if let Some(Event::Disk(done)) = events.pop() {
            return done;
        }
    }
    panic!("the disk never answered");
}
