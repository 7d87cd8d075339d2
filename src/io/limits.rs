//! Limits of this process: open files and memory, and how much of the memory is in use.

use std::fs;
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the process's limit of open files to its maximum and returns it.
///
/// The limit is the whole process's, so the library never calls this. A program that wants many sockets
/// calls it before it makes a crawler.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // If the system refuses, the limit stays as it was.
    let _ = setrlimit(Resource::Nofile, raised);
    open_files()
}

/// The process's present limit of open files.
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many sockets the open-file limit leaves, at most `wanted`.
pub(super) fn sockets_allowed(wanted: usize) -> io::Result<usize> {
    let limit = open_files();
    let left = usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .saturating_sub(KEPT_BACK);
    match left.min(wanted) {
        0 => Err(io::Error::other(format!(
            "the limit of {limit} open files leaves none for sockets; raise it above {KEPT_BACK}"
        ))),
        allowed => Ok(allowed),
    }
}

/// Makes the process's table of descriptors large enough for `sockets`, at most [`DESCRIPTORS_MADE`].
///
/// The kernel grows the table by doubling, when a socket is made. While threads share it, that call waits
/// until no processor reads the former table, which took 10 to 20 ms of a turn each time.
pub(super) fn make_descriptors(sockets: usize, any: impl AsFd) {
    let last = sockets.saturating_add(KEPT_BACK).min(DESCRIPTORS_MADE) as u64;
    let last = last.min(open_files()).saturating_sub(1);
    let Ok(last) = RawFd::try_from(last) else {
        return;
    };
    // The copy is closed at once; the table never shrinks. If the system refuses, the table grows later.
    drop(fcntl_dupfd_cloexec(any, last));
}

/// A limit of memory, and how much of what it limits is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in use. For a control group: of all its processes, without what the kernel can drop at
    /// once.
    pub used: u64,
    /// The limit in bytes.
    pub limit: u64,
    /// What limits it: `memory.max`, `memory.limit_in_bytes`, `RLIMIT_AS` or `RLIMIT_DATA`.
    pub by: &'static str,
}

impl Memory {
    /// How much of it is in use, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.used as f64 / self.limit.max(1) as f64
    }
}

/// The limit nearest to being reached; `None` without any. Reads some small files.
pub(super) fn memory() -> Option<Memory> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_groups = of_groups(&groups, Path::new("/sys/fs/cgroup"));
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = [(Resource::As, "RLIMIT_AS"), (Resource::Data, "RLIMIT_DATA")];
    let of_process = limits.into_iter().filter_map(|(resource, by)| {
        let limit = getrlimit(resource).current?;
        let used = mapped(&status, resource == Resource::As)?;
        Some(Memory { used, limit, by })
    });
    let all = of_groups.into_iter().chain(of_process);
    all.max_by(|a, b| a.share().total_cmp(&b.share()))
}

/// What counts against a limit of the address space, or of its data. `status` is /proc/self/status.
/// Memory that the allocator has reserved and not touched counts as free.
fn mapped(status: &str, all: bool) -> Option<u64> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
        Some(kilobytes << 10)
    };
    let (size, data, touched) = (field("VmSize:")?, field("VmData:")?, field("RssAnon:")?);
    let used = data.min(touched.saturating_add(UNTOUCHED));
    Some(if all {
        used + size.saturating_sub(data)
    } else {
        used
    })
}

/// The limits of the process's control groups and of their parents. `groups` is /proc/self/cgroup,
/// `mounted` the mount point of the hierarchies.
fn of_groups(groups: &str, mounted: &Path) -> Vec<Memory> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, version): (PathBuf, &Version) = if controllers.is_empty() {
            // Beside version 1, version 2 may be mounted below it.
            let unified = mounted.join("unified");
            (
                if unified.is_dir() {
                    unified
                } else {
                    mounted.to_owned()
                },
                &V2,
            )
        } else if controllers.split(',').any(|name| name == "memory") {
            (mounted.join("memory"), &V1)
        } else {
            continue;
        };
        let own = root.join(path.trim_start_matches('/'));
        // In a container the path may be the host's, and the root is the group itself.
        let own = if own.is_dir() { own } else { root.clone() };
        let groups = own.ancestors().take_while(|group| group.starts_with(&root));
        found.extend(groups.filter_map(|group| version.read(group)));
    }
    found
}

/// The files of a control group version.
struct Version {
    limit: &'static str,
    /// Fields of `memory.stat` that the kernel cannot drop.
    kept: &'static [&'static str],
}

const V2: Version = Version {
    limit: "memory.max",
    kept: &[
        "anon",
        "sock",
        "kernel_stack",
        "pagetables",
        "slab_unreclaimable",
        "shmem",
    ],
};
const V1: Version = Version {
    limit: "memory.limit_in_bytes",
    kept: &["total_rss", "total_shmem"],
};

impl Version {
    fn read(&self, group: &Path) -> Option<Memory> {
        let limit = fs::read_to_string(group.join(self.limit)).ok()?;
        // No limit is `max`, or nearly 2⁶³ in version 1.
        let limit: u64 = limit
            .trim()
            .parse()
            .ok()
            .filter(|limit| *limit < NO_LIMIT)?;
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let used = stat.lines().filter_map(|line| {
            let (name, bytes) = line.split_once(' ')?;
            self.kept
                .contains(&name)
                .then(|| bytes.trim().parse::<u64>().ok())?
        });
        Some(Memory {
            used: used.sum(),
            limit,
            by: self.limit,
        })
    }
}

/// Descriptors kept for files, pipes, the connections of two listeners and the back end itself.
const KEPT_BACK: usize = 64;

/// Descriptors that the table is made for at the start, 1 MiB of the kernel's memory.
const DESCRIPTORS_MADE: usize = 1 << 17;

/// Memory that is untouched and yet in use: stacks of threads and buffers of the receive pool.
const UNTOUCHED: u64 = 96 << 20;

/// More memory than any machine has.
const NO_LIMIT: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files.
    fn mounted(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn check(groups: &str, files: &[(&str, &str)], expected: &[(u64, u64, &str)]) {
        let folder = mounted(files);
        let found = of_groups(groups, folder.path());
        let found: Vec<_> = found.iter().map(|m| (m.used, m.limit, m.by)).collect();
        assert_eq!(found, expected, "{groups}");
    }

    #[test]
    fn limits_of_a_group_and_its_parents_are_found() {
        let files = [
            ("memory.stat", "anon 5\n"),
            ("a/memory.max", "4000\n"),
            (
                "a/memory.stat",
                "anon 300\nfile 2000\nsock 20\ninactive_file 7\n",
            ),
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.stat", "anon 100\n"),
        ];
        check("0::/a/b\n", &files, &[(320, 4000, "memory.max")]);
        check("0::/\n", &files, &[]);
    }

    #[test]
    fn in_a_container_the_root_is_the_group() {
        let files = [("memory.max", "1000\n"), ("memory.stat", "anon 250\n")];
        let expected = [(250, 1000, "memory.max")];
        check("0::/\n", &files, &expected);
        check("0::/docker/0123\n", &files, &expected);
    }

    #[test]
    fn version_1_groups_are_read() {
        let files = [
            ("memory/a/memory.limit_in_bytes", "1000\n"),
            (
                "memory/a/memory.stat",
                "cache 9\nrss 1\ntotal_rss 200\ntotal_cache 70\n",
            ),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.stat", "total_rss 2000\n"),
        ];
        let groups = "5:cpu:/a\n4:cpuset,memory:/a\n0::/x\n";
        check(groups, &files, &[(200, 1000, "memory.limit_in_bytes")]);
        check("garbage\n::\n", &files, &[]);
    }

    #[test]
    fn memory_reserved_by_the_allocator_is_not_in_use() {
        let status = |data, touched| {
            format!(
                "VmSize:\t 3000000 kB\nVmRSS:\t 9 kB\nRssAnon:\t{touched} kB\nVmData:\t{data} kB\n"
            )
        };
        let reserved = status(1_000_000, 100_000);
        let in_use = (100_000 << 10) + UNTOUCHED;
        assert_eq!(mapped(&reserved, false), Some(in_use));
        assert_eq!(mapped(&reserved, true), Some(in_use + (2_000_000 << 10)));
        assert_eq!(
            mapped(&status(120_000, 100_000), false),
            Some(120_000 << 10)
        );
        assert_eq!(mapped("VmSize: odd", true), None);
    }

    #[test]
    fn the_limit_of_this_process_can_be_read() {
        // Neither a missing file nor an unexpected line is an error.
        if let Some(memory) = memory() {
            assert!(memory.limit > 0 && memory.used > 0, "{memory:?}");
        }
    }
}
