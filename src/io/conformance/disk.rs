//! The tests of the disk of every back end.

use std::io::{self, SeekFrom};
use std::path::PathBuf;

use super::suite::{pattern, suite};
use super::{Bench, Seen, Watch};
use crate::base::derive::{Derive, DeriveFiles};
use crate::base::disk::{DiskJob, FileId};
use crate::base::gzip::gunzip;
use crate::io::{Io, IoSettings};

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

/// Turns bytes round, by way of the scratch file; fails for none.
#[derive(Debug)]
struct Reverse;

impl Derive for Reverse {
    fn derive(&mut self, files: DeriveFiles<'_>) -> io::Result<()> {
        let DeriveFiles { from, to, scratch } = files;
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes)?;
        to.write_all(b"a part")?;
        if bytes.is_empty() {
            return Err(io::Error::other("nothing to turn round"));
        }
        scratch.write_all(&bytes)?;
        for at in (0..bytes.len() as u64).rev() {
            let mut byte = [0];
            scratch.seek(SeekFrom::Start(at))?;
            scratch.read_exact(&mut byte)?;
            to.write_all(&byte)?;
        }
        Ok(())
    }
}

fn a_file_is_made_from_another_wholly_or_not_at_all<B: Bench>() {
    let mut watch = Watch::<B>::new();
    let [from, to, empty] = ["one", "other", "empty"].map(|name| watch.bench.folder().join(name));
    for (path, bytes) in [(&from, &b"bytes"[..]), (&empty, b"")] {
        let replaced = watch.disk(DiskJob::Replace {
            path: path.clone(),
            bytes: bytes.to_vec(),
            tag: 0,
        });
        replaced.result.expect("there is room");
    }
    let derive = |from: &PathBuf| DiskJob::Derive {
        file: FileId(3),
        from: from.clone(),
        to: to.clone(),
        derive: Box::new(Reverse),
        tag: 5,
    };
    let missing = watch.bench.folder().join("missing");
    for nothing in [&empty, &missing] {
        let done = watch.disk(derive(nothing));
        assert!(done.result.is_err());
        assert_eq!((done.tag, done.file, done.held), (5, Some(FileId(3)), 0));
        assert_eq!(watch.bench.content(&to), None);
    }
    for _ in 0..2 {
        let written = watch.disk(derive(&from)).result.expect("there is room");
        assert_eq!(written.length, 11);
        assert_eq!(watch.bench.content(&to), Some(b"a partsetyb".to_vec()));
    }
    assert!(watch.disk(derive(&empty)).result.is_err());
    assert_eq!(watch.bench.content(&to), Some(b"a partsetyb".to_vec()));
    watch.io().fail_stalled_writes();
    assert!(
        watch.disk(derive(&from)).result.is_err(),
        "it is broken off"
    );
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

fn noise(length: usize) -> Vec<u8> {
    let mut rng = crate::base::rng::Rng::from_seed(1);
    (0..length).map(|_| rng.next_u64() as u8).collect()
}

suite! {
    the_disk_does_its_jobs_in_order
    a_reserve_of_free_space_is_used_only_when_stalled_writes_are_to_fail
    members_that_are_appended_at_once_are_where_their_results_say
    members_without_space_are_all_written_in_order_once_there_is_some
    a_file_is_continued_at_its_length
    what_was_appended_is_read_and_a_removed_file_is_gone
    a_read_passes_jobs_that_do_not_concern_its_bytes
    what_is_allocated_is_no_part_of_the_file
    each_gzip_append_is_a_member_of_its_own
    gzip_members_have_the_level_of_the_settings
    a_file_is_made_from_another_wholly_or_not_at_all
    a_disk_error_names_the_operation_and_the_path
}
