//! Plans and their effects, in a directory of their own.

use std::collections::BTreeMap;

use super::*;
use crate::sink::commit::Epoch;

type Contents = BTreeMap<String, String>;

fn contents(files: &[(&str, &str)]) -> Contents {
    let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    files.iter().map(owned).collect()
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn read(folder: &Path) -> Contents {
    let mut found = Contents::new();
    for below in [folder.to_owned(), folder.join(WARCS)] {
        for path in entries(&below).unwrap() {
            if path.is_file() {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

fn commit(folder: &Path, files: &[(&str, u64)]) -> Commit {
    let length = |(name, length): &(&str, u64)| FileLength::new(folder.join(name), *length);
    Commit {
        epoch: Epoch(1),
        files: files.iter().map(length).collect(),
    }
}

fn resume(folder: &Path, last: Option<&Commit>) -> Result<(), DirectoryError> {
    plan(folder, last, Newer::Cut)?.iter().try_for_each(perform)
}

/// Resumes with these files and this commit, after each number of steps of a first try and again after
/// the whole.
fn check(files: &[(&str, &str)], listed: Option<&[(&str, u64)]>, expected: &[(&str, &str)]) {
    for done in 0.. {
        let folder = folder(files);
        let folder = folder.path();
        let last = listed.map(|files| commit(folder, files));
        let steps = plan(folder, last.as_ref(), Newer::Cut).unwrap();
        steps
            .iter()
            .take(done)
            .for_each(|step| perform(step).unwrap());
        for _ in 0..2 {
            resume(folder, last.as_ref()).unwrap();
            assert_eq!(read(folder), contents(expected), "after {done} steps");
        }
        if done == steps.len() {
            break;
        }
    }
}

const A: &str = "warc/argiope-20261121000001020-00000-a.warc.gz";
const B: &str = "warc/argiope-20261121000001021-00001-a.warc.gz";
const B_OPEN: &str = "warc/argiope-20261121000001021-00001-a.warc.gz.open";
const C_OPEN: &str = "warc/argiope-20261121000001022-00002-a.warc.gz.open";

#[test]
fn files_are_cut_to_the_commit_and_newer_ones_deleted() {
    let files = [
        ("results.jsonl", "one\ntwo\nto"),
        ("throttle.jsonl", "all\n"),
        (A, "complete"),
        (B_OPEN, "record\0\0\0"),
        (C_OPEN, "newer"),
    ];
    let listed = [("results.jsonl", 8), ("throttle.jsonl", 4), (B, 6)];
    let expected = [
        ("results.jsonl", "one\ntwo\n"),
        ("throttle.jsonl", "all\n"),
        (A, "complete"),
        (B, "record"),
    ];
    check(&files, Some(&listed), &expected);
}

#[test]
fn complete_files_keep_their_content_and_may_be_moved_away() {
    let lines = ("results.jsonl", "one\n");
    let listed = [("results.jsonl", 4), (A, 8), (B, 6)];
    check(
        &[lines, (A, "complete")],
        Some(&listed),
        &[lines, (A, "complete")],
    );
}

#[test]
fn an_empty_warc_file_is_deleted() {
    let lines = ("results.jsonl", "");
    let listed = [("results.jsonl", 0), (B, 0)];
    check(&[lines, (B_OPEN, "begun")], Some(&listed), &[lines]);
}

#[test]
fn files_begun_after_the_commit_are_deleted() {
    let files = [("results.jsonl", ""), ("throttle.jsonl", "new\n")];
    check(
        &files,
        Some(&[("results.jsonl", 0)]),
        &[("results.jsonl", "")],
    );
    let files = [("results.jsonl", "new\n"), (A, "complete"), (B_OPEN, "new")];
    check(&files, None, &[]);
}

#[test]
fn lines_of_another_compression_after_a_commit_without_lines_are_deleted() {
    let begun = [("results.jsonl", ""), ("results.jsonl.zst", "newer")];
    let listed = [("results.jsonl", 0)];
    check(&begun, Some(&listed), &begun[..1]);
    let folder = folder(&begun);
    let folder = folder.path();
    let last = commit(folder, &listed);
    let steps = plan(folder, Some(&last), Newer::SetAside).unwrap();
    steps.iter().try_for_each(perform).unwrap();
    let kept = folder.join(UNCOMMITTED).join("results.jsonl.zst");
    assert_eq!(fs::read_to_string(kept).unwrap(), "newer");
    // Committed lines that a user has compressed are an error.
    let last = commit(folder, &[("results.jsonl", 4)]);
    fs::write(folder.join("results.jsonl.zst"), "all").unwrap();
    fs::remove_file(folder.join("results.jsonl")).unwrap();
    let error = resume(folder, Some(&last)).expect_err("it is refused");
    assert_eq!(error.code(), "directory.changed");
}

#[test]
fn without_a_commit_results_are_kept_elsewhere() {
    let files = [
        ("results.jsonl", "one\n"),
        (A, "complete"),
        (B_OPEN, "record"),
    ];
    let folder = folder(&files);
    let folder = folder.path();
    let kept = |name: &str| fs::read_to_string(folder.join(UNCOMMITTED).join(name));
    resume(folder, None).unwrap();
    assert_eq!(read(folder), contents(&[]));
    fs::write(folder.join("results.jsonl"), "two\n").unwrap();
    resume(folder, None).unwrap();
    assert_eq!(kept("results.jsonl").unwrap(), "one\n");
    assert_eq!(kept("results.jsonl.2").unwrap(), "two\n");
    for (warc, content) in [(A, "complete"), (B_OPEN, "record")] {
        let name = Path::new(warc).file_name().unwrap().to_str().unwrap();
        assert_eq!(kept(name).unwrap(), content);
    }
    // An empty file has nothing to keep.
    fs::write(folder.join("results.jsonl"), "").unwrap();
    resume(folder, None).unwrap();
    assert!(kept("results.jsonl.3").is_err());
}

#[test]
fn links_without_a_commit_are_kept_elsewhere_and_newer_ones_deleted() {
    let files = [
        ("results.jsonl", "one\n"),
        ("links.jsonl", "of it\n"),
        ("filtered.jsonl", "of it\n"),
    ];
    check(&files, Some(&[("results.jsonl", 4)]), &files[..1]);
    let folder = folder(&files);
    resume(folder.path(), None).unwrap();
    let kept = folder.path().join(UNCOMMITTED).join("links.jsonl");
    assert_eq!(fs::read_to_string(kept).unwrap(), "of it\n");
}

#[test]
fn a_complete_file_after_those_of_the_commit_proves_a_newer_one() {
    let files = [
        ("results.jsonl", "one\ntwo\n"),
        (A, "complete"),
        (B, "complete"),
        (C_OPEN, "newer"),
    ];
    let folder = folder(&files);
    let folder = folder.path();
    let older = commit(folder, &[("results.jsonl", 4), (A, 8)]);
    let error = resume(folder, Some(&older)).expect_err("it is refused");
    assert_eq!(error.code(), "directory.older_state");
    assert!(error.to_string().contains(B), "{error}");
    assert_eq!(read(folder), contents(&files), "nothing is changed");
    let salvage = || {
        let steps = plan(folder, Some(&older), Newer::SetAside)?;
        steps.iter().try_for_each(perform)
    };
    for _ in 0..2 {
        salvage().expect("it can be continued");
        let expected = [("results.jsonl", "one\n"), (A, "complete")];
        assert_eq!(read(folder), contents(&expected));
    }
    let aside = folder.join(UNCOMMITTED);
    let kept = |name: &str| {
        let name = Path::new(name).file_name().unwrap();
        fs::read_to_string(aside.join(name)).unwrap()
    };
    assert_eq!(kept("results.jsonl"), "two\n");
    assert_eq!((&*kept(B), &*kept(C_OPEN)), ("complete", "newer"));
    assert_eq!(entries(&aside).unwrap().len(), 3, "once each");
    // One that was being written.
    fs::write(folder.join(B_OPEN), "record and more").unwrap();
    let older = commit(folder, &[("results.jsonl", 4), (B, 6)]);
    let steps = plan(folder, Some(&older), Newer::SetAside).unwrap();
    steps.iter().try_for_each(perform).unwrap();
    assert_eq!(fs::read_to_string(folder.join(B)).unwrap(), "record");
    let tail = format!("{}.2", Path::new(B).file_name().unwrap().display());
    assert_eq!(kept(&tail), " and more");
    // One that is longer than a commit says.
    let older = commit(folder, &[("results.jsonl", 4), (B, 3)]);
    let error = resume(folder, Some(&older)).expect_err("it is refused");
    assert_eq!(error.code(), "directory.older_state");
    let steps = plan(folder, Some(&older), Newer::SetAside).unwrap();
    steps.iter().try_for_each(perform).unwrap();
    assert_eq!(fs::read_to_string(folder.join(B)).unwrap(), "rec");
    let tail = format!("{}.3", Path::new(B).file_name().unwrap().display());
    assert_eq!(kept(&tail), "ord");
    // Without WARC files in the commit, those in the folder prove nothing.
    let without = commit(folder, &[("results.jsonl", 4)]);
    resume(folder, Some(&without)).expect("it can be continued");
}

#[test]
fn a_numbered_file_is_cut_and_gets_its_final_name_and_newer_ones_are_deleted() {
    let files = [
        ("results-000001.jsonl", "one\n"),
        ("results-000002.jsonl.open", "two\nthr"),
        ("results-000003.jsonl.open", "newer\n"),
        ("throttle-000001.jsonl.gz.open", "newer"),
    ];
    let expected = [
        ("results-000001.jsonl", "one\n"),
        ("results-000002.jsonl", "two\n"),
    ];
    check(&files, Some(&[("results-000002.jsonl", 4)]), &expected);
    // A complete file may be moved away.
    check(
        &files[1..],
        Some(&[("results-000001.jsonl", 4), ("results-000002.jsonl", 4)]),
        &expected[1..],
    );
    check(&files, Some(&[("results-000002.jsonl", 0)]), &expected[..1]);
}

#[test]
fn a_file_without_lines_is_begun_again() {
    let files = [
        ("results-000003.jsonl.open", "newer\n"),
        ("results.jsonl", ""),
    ];
    check(&files, Some(&[("results-000003.jsonl", 0)]), &[]);
    check(&[], Some(&[("results-000003.jsonl", 0)]), &[]);
}

#[test]
fn a_file_that_was_to_get_its_number_gets_it() {
    let listed = [("results-000001.jsonl.gz", 4)];
    let expected = [("results-000001.jsonl.gz", "one\n")];
    let newer = ("results-000002.jsonl.gz.open", "newer\n");
    for name in ["results.jsonl.gz", "results-000001.jsonl.gz"] {
        check(&[(name, "one\n"), newer], Some(&listed), &expected);
    }
    // A commit before that has it under its first name.
    let first = ("results.jsonl", "one\ntwo\n");
    check(
        &[first, newer],
        Some(&[("results.jsonl", 4)]),
        &[("results.jsonl", "one\n")],
    );
}

#[test]
fn a_complete_file_of_lines_after_those_of_the_commit_proves_a_newer_one() {
    let check = |files: &[(&str, &str)],
                 listed: &[(&str, u64)],
                 proof: &str,
                 left: &[(&str, &str)],
                 aside: &[(&str, &str)]| {
        let folder = folder(files);
        let folder = folder.path();
        let older = commit(folder, listed);
        let error = resume(folder, Some(&older)).expect_err("it is refused");
        assert_eq!(error.code(), "directory.older_state", "{error}");
        assert!(error.to_string().contains(proof), "{error}");
        assert_eq!(read(folder), contents(files), "nothing is changed");
        for _ in 0..2 {
            let steps = plan(folder, Some(&older), Newer::SetAside).expect("it can be continued");
            steps
                .iter()
                .for_each(|step| perform(step).expect("it is done"));
            assert_eq!(read(folder), contents(left));
        }
        for (name, text) in aside {
            let kept = fs::read_to_string(folder.join(UNCOMMITTED).join(name));
            assert_eq!(kept.expect("it is kept"), *text);
        }
    };
    check(
        &[
            ("results-000001.jsonl", "one\n"),
            ("results-000002.jsonl", "two\n"),
            ("results-000003.jsonl.open", "three\n"),
        ],
        &[("results-000001.jsonl", 4)],
        "results-000002.jsonl",
        &[("results-000001.jsonl", "one\n")],
        &[
            ("results-000002.jsonl", "two\n"),
            ("results-000003.jsonl.open", "three\n"),
        ],
    );
    check(
        &[("results-000001.jsonl", "one\ntwo\n")],
        &[("results.jsonl", 4)],
        "results-000001.jsonl",
        &[("results.jsonl", "one\n")],
        &[("results-000001.jsonl", "two\n")],
    );
    check(
        &[("results-000001.jsonl", "one\ntwo\n")],
        &[("results-000001.jsonl", 4)],
        "results-000001.jsonl",
        &[("results-000001.jsonl", "one\n")],
        &[("results-000001.jsonl", "two\n")],
    );
}

#[test]
fn lines_on_standard_output_are_no_file() {
    let listed = [("-", 3), (A, 8)];
    for name in ["-", "results.jsonl"] {
        let files = [(name, "of the user"), (A, "complete")];
        check(&files, Some(&listed), &files);
    }
}

#[test]
fn files_of_others_are_kept() {
    let others = [
        ("notes.txt", "ours"),
        ("results.jsonl.bak", "ours"),
        ("warc/mine.warc.gz.open", "ours"),
        ("warc/argiope-list.open", "ours"),
    ];
    check(&others, None, &others);
    check(&others, Some(&[]), &others);
    // A sink may still have its file under another name.
    check(&others, Some(&[("urls.txt", 3)]), &others);
    check(
        &[("urls.txt", "1234")],
        Some(&[("urls.txt", 3)]),
        &[("urls.txt", "123")],
    );
}

#[test]
fn a_file_that_lacks_committed_bytes_is_an_error_and_nothing_is_changed() {
    let check = |files: &[(&str, &str)], listed: &[(&str, u64)], named: &[&str]| {
        let folder = folder(files);
        let last = commit(folder.path(), listed);
        let error = resume(folder.path(), Some(&last)).expect_err("it is refused");
        let message = error.to_string();
        for name in named {
            assert!(message.contains(name), "{name} is not in {message}");
        }
        assert!(!message.contains('\n'), "{message}");
        assert_eq!(error.code(), "directory.changed");
        assert_eq!(read(folder.path()), contents(files));
    };
    let lines = ("results.jsonl", "one\ntwo\n");
    check(
        &[lines],
        &[("results.jsonl", 9)],
        &["results.jsonl", "8", "9", "--out"],
    );
    check(&[], &[("results.jsonl", 0)], &["results.jsonl", "missing"]);
    let listed = [("results.jsonl", 4), (B, 7)];
    check(&[lines, (B, "record")], &listed, &[B, "6", "7"]);
    check(&[lines, (B_OPEN, "record")], &listed, &[B_OPEN, "6", "7"]);
    check(
        &[lines, (B, "records"), (B_OPEN, "records")],
        &listed,
        &[B, "twice"],
    );
    check(
        &[lines, (C_OPEN, "newer")],
        &[],
        &["results.jsonl", "last commit"],
    );
}
