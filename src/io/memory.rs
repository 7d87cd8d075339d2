//! How much memory this process may take, and how much is taken.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// A limit of memory, and how much of what it limits is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in use. Of a control group all its processes', without what the kernel can drop at once.
    pub used: u64,
    /// Bytes there may be.
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

/// The limit that is nearest; `None` where there is none. Reads some small files each time.
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

/// What counts against a limit of the address space, or of the data in it. `status` is what the kernel
/// says of the process. What the allocator has reserved and not touched is there to be used.
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

/// The limits of the control groups that a process is in, and of those above them. `groups` is what the
/// kernel says of the process, `mounted` where the hierarchies are.
fn of_groups(groups: &str, mounted: &Path) -> Vec<Memory> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, version): (PathBuf, &Version) = if controllers.is_empty() {
            // Beside an older hierarchy the newer one may be mounted below it.
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

/// The files of one kind of control group.
struct Version {
    limit: &'static str,
    /// What in `memory.stat` cannot be dropped.
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
        // `max`, or in the older kind nearly 2⁶³, is none.
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

/// What is untouched and yet taken: stacks of threads, and buffers of the receive pool.
const UNTOUCHED: u64 = 96 << 20;

/// No machine has so much.
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
    fn the_limits_of_a_group_and_of_those_above_it_are_found() {
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
    fn the_older_kind_of_groups_is_read_too() {
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
    fn what_the_allocator_has_reserved_is_not_in_use() {
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
    fn what_this_process_may_take_can_be_asked() {
        // Whatever it is: no file that is missing, and no odd line, is in the way.
        if let Some(memory) = memory() {
            assert!(memory.limit > 0 && memory.used > 0, "{memory:?}");
        }
    }
}
