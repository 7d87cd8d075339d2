//! Files of lines that are closed for others.

use super::*;

/// Result lines in files that are closed and compressed like this.
fn rotated(commits: bool, rotation: Rotation) -> FileSinkOptions {
    FileSinkOptions {
        rotation,
        commits,
        ..FileSinkOptions::new("out")
    }
}

#[test]
fn a_file_of_lines_is_closed_before_the_line_that_would_exceed_its_size() {
    let line = line_length();
    let rotation = Rotation {
        size_max: Some(2 * line + 5),
        ..Rotation::default()
    };
    let (mut sink, mut disk) = (FileSink::new(rotated(false, rotation)), Disk::default());
    for id in 1..=5 {
        disk.put(&mut sink, samples::page(id));
        while disk.turn(&mut sink) {}
    }
    let open = "out/results-000003.jsonl.open";
    assert!(!disk.files.contains_key(open), "it waits for a flush");
    disk.flush(&mut sink);
    while disk.turn(&mut sink) {}
    assert_eq!(disk.ids("out/results-000001.jsonl"), [1, 2]);
    assert_eq!(disk.ids("out/results-000002.jsonl"), [3, 4]);
    assert_eq!(disk.ids(open), [5]);
    disk.finish(&mut sink);
    assert!(sink.is_done());
    assert_eq!(disk.ids("out/results-000003.jsonl"), [5]);
    assert_eq!(disk.files.len(), 3);
}

#[test]
fn lines_on_standard_output_are_neither_split_nor_compressed() {
    let rotation = Rotation {
        size_max: Some(1),
        compression: Some(Compression::Gzip),
        ..Rotation::default()
    };
    let (mut sink, mut disk) = (
        FileSink::new(FileSinkOptions {
            results: Results::Stdout,
            ..rotated(false, rotation)
        }),
        Disk::default(),
    );
    (1..=3).for_each(|id| disk.put(&mut sink, samples::page(id)));
    disk.finish(&mut sink);
    assert_eq!(disk.ids_on_stdout(), [1, 2, 3]);
}

#[test]
fn a_file_of_lines_may_have_exactly_its_size() {
    let line = line_length();
    for (size_max, first) in [(2 * line, &[1, 2][..]), (2 * line - 1, &[1])] {
        let rotation = Rotation {
            size_max: Some(size_max),
            ..Rotation::default()
        };
        let (mut sink, mut disk) = (FileSink::new(rotated(false, rotation)), Disk::default());
        (1..=3).for_each(|id| disk.put(&mut sink, samples::page(id)));
        disk.finish(&mut sink);
        assert_eq!(disk.ids("out/results-000001.jsonl"), first, "{size_max}");
    }
}

#[test]
fn a_line_longer_than_a_file_may_be_has_one_of_its_own() {
    let rotation = Rotation {
        size_max: Some(1),
        ..Rotation::default()
    };
    let (mut sink, mut disk) = (FileSink::new(rotated(false, rotation)), Disk::default());
    (1..=3).for_each(|id| disk.put(&mut sink, samples::page(id)));
    disk.finish(&mut sink);
    for id in 1..=3 {
        assert_eq!(disk.ids(&format!("out/results-00000{id}.jsonl")), [id]);
    }
}

#[test]
fn a_file_of_lines_gets_its_final_name_after_the_commit_that_has_it() {
    let rotation = Rotation {
        size_max: Some(1),
        ..Rotation::default()
    };
    let (mut sink, mut disk) = (FileSink::new(rotated(true, rotation)), Disk::default());
    (1..=2).for_each(|id| disk.put(&mut sink, samples::page(id)));
    let listed = committed(&mut sink, &mut disk, 1);
    let length = line_length();
    let expected = [
        ("out/results-000001.jsonl", length),
        ("out/results-000002.jsonl", length),
    ];
    assert_eq!(
        listed,
        expected.map(|(name, length)| (name.to_owned(), length))
    );
    assert_eq!(disk.ids("out/results-000001.jsonl"), [1]);
    assert_eq!(disk.ids("out/results-000002.jsonl.open"), [2]);
    // The last one is listed for its number, others that have their final names are not.
    disk.put(&mut sink, samples::page(3));
    let listed = committed(&mut sink, &mut disk, 2);
    let names: Vec<&str> = listed.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        names,
        ["out/results-000002.jsonl", "out/results-000003.jsonl"]
    );
    let listed = committed(&mut sink, &mut disk, 3);
    let names: Vec<&str> = listed.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["out/results-000003.jsonl"]);
    disk.finish(&mut sink);
    assert!(disk.files.contains_key("out/results-000003.jsonl.open"));
    committed(&mut sink, &mut disk, 4);
    assert!(sink.is_done());
    assert_eq!(disk.ids("out/results-000003.jsonl"), [3]);
}

#[test]
fn a_crawl_that_is_resumed_begins_the_next_file() {
    let rotation = Rotation {
        size_max: Some(1 << 20),
        ..Rotation::default()
    };
    let check = |rotation: Rotation, listed: &[(&str, u64)], files: &[&str]| {
        let mut sink = FileSink::new(rotated(true, rotation));
        let mut disk = Disk::default();
        let there = || listed.iter().filter(|(_, length)| *length > 0);
        for (name, length) in there() {
            disk.files
                .insert((*name).to_owned(), vec![b' '; *length as usize]);
        }
        let last = Commit {
            epoch: Epoch(1),
            files: (listed.iter().copied())
                .map(|(name, length)| FileLength::new(name, length))
                .collect(),
        };
        sink.resumed(Some(&last), &mut Vec::new());
        // Before the first line the last file is listed again.
        let names: Vec<String> = listed.iter().map(|(name, _)| (*name).to_owned()).collect();
        let again = committed(&mut sink, &mut disk, 2);
        if files.len() == 1 && listed[0].0 != "out/results.jsonl" {
            let again: Vec<String> = again.into_iter().map(|(name, _)| name).collect();
            assert_eq!(again, names);
        }
        disk.put(&mut sink, samples::page(9));
        disk.finish(&mut sink);
        committed(&mut sink, &mut disk, 3);
        assert!(sink.is_done());
        let is_new = |name: &&String| there().all(|(other, _)| name != other);
        let found: Vec<&String> = disk.files.keys().filter(is_new).collect();
        assert_eq!(found, files);
    };
    let last = [("out/results-000007.jsonl", 10)];
    check(rotation, &last, &["out/results-000008.jsonl"]);
    // Also if it has no limit any more.
    check(Rotation::default(), &last, &["out/results-000008.jsonl"]);
    let first = [("out/results.jsonl", 10)];
    check(Rotation::default(), &first, &[]);
    check(rotation, &first, &[]);
    // A file without lines is begun again.
    check(
        Rotation::default(),
        &[("out/results-000007.jsonl", 0)],
        &["out/results-000007.jsonl"],
    );
    // Lines that are compressed now do not follow others.
    let compressed = Rotation {
        compression: Some(Compression::Gzip),
        ..Rotation::default()
    };
    let files = ["out/results-000001.jsonl", "out/results-000002.jsonl.gz"];
    check(compressed, &first, &files);
}

#[test]
fn a_file_is_closed_when_its_first_line_is_old_enough() {
    let rotation = Rotation {
        time_max: Some(std::time::Duration::from_secs(10)),
        ..Rotation::default()
    };
    let (mut sink, mut disk) = (FileSink::new(rotated(false, rotation)), Disk::default());
    let at = |id: u64, seconds: u64| {
        let mut page = samples::page(id);
        page.wall_at_start = Wall(page.wall_at_start.0 + seconds * 1_000_000_000);
        page
    };
    disk.put(&mut sink, at(1, 0));
    disk.put(&mut sink, at(2, 8));
    disk.put(&mut sink, at(3, 8));
    disk.finish(&mut sink);
    assert_eq!(disk.ids("out/results-000001.jsonl"), [1, 2]);
    assert_eq!(disk.ids("out/results-000002.jsonl"), [3]);
}

#[test]
fn a_file_that_gets_its_number_during_a_commit_is_renamed_after_the_next_one() {
    let (mut sink, mut disk) = (
        FileSink::new(rotated(true, Rotation::default())),
        Disk::default(),
    );
    disk.put(&mut sink, samples::page(1));
    let mut jobs = Vec::new();
    sink.prepare(Epoch(1), &mut jobs);
    disk.todo.extend(jobs.drain(..));
    while disk.turn(&mut sink) {}
    let names = |files: &[FileLength]| -> Vec<String> {
        files
            .iter()
            .map(|file| file.path.display().to_string())
            .collect()
    };
    let listed = sink.prepared(Epoch(1)).expect("all is durable");
    assert_eq!(names(&listed), ["out/results.jsonl"]);
    sink.rotate(&mut jobs);
    disk.todo.extend(jobs.drain(..));
    while disk.turn(&mut sink) {}
    sink.committed(Epoch(1), &mut jobs);
    disk.todo.extend(jobs);
    while disk.turn(&mut sink) {}
    assert!(
        disk.files.contains_key("out/results.jsonl"),
        "as the commit has it"
    );
    let listed = committed(&mut sink, &mut disk, 2);
    assert_eq!(listed[0].0, "out/results-000001.jsonl");
    assert_eq!(disk.ids("out/results-000001.jsonl"), [1]);
    assert!(!disk.files.contains_key("out/results.jsonl"));
}

/// Commits what the sink has; returns the files of the commit.
fn committed(sink: &mut FileSink, disk: &mut Disk, epoch: u64) -> Vec<(String, u64)> {
    let mut jobs = Vec::new();
    sink.prepare(Epoch(epoch), &mut jobs);
    disk.todo.extend(jobs.drain(..));
    while disk.turn(sink) {}
    let files = sink.prepared(Epoch(epoch)).expect("all is durable");
    sink.committed(Epoch(epoch), &mut jobs);
    disk.todo.extend(jobs);
    while disk.turn(sink) {}
    let named = |file: FileLength| (file.path.display().to_string(), file.length);
    files.into_iter().map(named).collect()
}

/// Length of the line of a sample.
fn line_length() -> u64 {
    let (mut sink, mut disk) = (FileSink::new(FileSinkOptions::new("out")), Disk::default());
    disk.put(&mut sink, samples::page(1));
    disk.finish(&mut sink);
    disk.files["out/results.jsonl"].len() as u64
}
