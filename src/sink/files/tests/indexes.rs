//! Indexes of WARC files on an in-memory disk.

use super::*;

/// The WARC files with indexes.
fn indexed(disk: &Disk) -> Vec<String> {
    let of = |(name, content): (&String, &Vec<u8>)| {
        let warc = name.strip_suffix(".cdxj")?.to_owned() + ".warc.gz";
        assert_eq!(*content, format!("the index of {warc}").into_bytes());
        Some(warc)
    };
    disk.files.iter().filter_map(of).collect()
}

#[test]
fn each_warc_file_gets_an_index_once_it_has_its_final_name() {
    for options in [with_warc(), with_commits()] {
        let commits = options.commits;
        let mut options = options;
        options.warc.as_mut().unwrap().size_max = 20_000;
        let (mut sink, mut disk) = (FileSink::new(options), Disk::default());
        for id in 1..=20 {
            disk.put(&mut sink, samples::page(id));
            while disk.turn(&mut sink) {}
            assert!(!commits || indexed(&disk).is_empty());
        }
        assert_eq!(commits, indexed(&disk).is_empty());
        disk.finish(&mut sink);
        if commits {
            commit_all(&mut disk, &mut sink, 1);
        }
        while disk.turn(&mut sink) {}
        assert!(sink.is_done());
        assert_eq!(indexed(&disk), warcs(&disk));
    }
}

/// A sink with a page that has done all but the index of its WARC file, which is done next.
fn all_but_its_index() -> (FileSink, Disk) {
    let (mut sink, mut disk) = (FileSink::new(with_warc()), Disk::default());
    disk.delays_indexes = true;
    disk.put(&mut sink, samples::page(1));
    disk.finish(&mut sink);
    disk.delays_indexes = false;
    disk.todo.extend(disk.delayed.drain(..));
    assert!(!sink.is_done() && disk.todo.len() == 1 && indexed(&disk).is_empty());
    (sink, disk)
}

#[test]
fn the_end_waits_for_indexes() {
    let (mut sink, mut disk) = all_but_its_index();
    assert!(disk.turn(&mut sink) && sink.is_done());
    assert_eq!(indexed(&disk), warcs(&disk));
}

#[test]
fn an_index_that_cannot_be_made_is_no_failure_of_the_sink() {
    let (mut sink, mut disk) = all_but_its_index();
    disk.full = true;
    assert!(disk.turn(&mut sink) && sink.is_done() && sink.failure().is_none());
    assert!(indexed(&disk).is_empty() && warcs(&disk).len() == 1);
}

#[test]
fn no_index_is_made_unless_it_is_wanted() {
    let mut options = with_warc();
    options.warc.as_mut().unwrap().cdxj = false;
    let (mut sink, mut disk) = (FileSink::new(options), Disk::default());
    disk.put(&mut sink, samples::page(1));
    disk.finish(&mut sink);
    assert!(sink.is_done() && indexed(&disk).is_empty() && warcs(&disk).len() == 1);
}

#[test]
fn files_of_earlier_runs_get_their_missing_indexes() {
    let mut options = with_warc();
    let ours = "out/warc/argiope-20261128000000000-00007-a.warc.gz";
    let others = [
        "out/warc/mine.warc.gz",
        "other/warc/argiope-1-00001-a.warc.gz",
    ];
    let unindexed = [ours, others[0], others[1]].map(PathBuf::from);
    options.warc.as_mut().unwrap().unindexed = unindexed.to_vec();
    let (mut sink, mut disk) = (FileSink::new(options), Disk::default());
    for path in &unindexed {
        disk.files
            .insert(path.to_str().unwrap().to_owned(), Vec::new());
    }
    disk.finish(&mut sink);
    assert!(sink.is_done());
    assert_eq!(indexed(&disk), [ours]);
}
