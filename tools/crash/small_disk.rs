//! A small volume in memory, which is filled and emptied again.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Says that this process has its own mounts.
const INSIDE: &str = "ARGIOPE_CRASH_INSIDE";

/// Whether this process runs where it may mount the volume.
pub fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Runs this program again in a namespace of its own. `None` if that is not permitted.
pub fn run_inside() -> io::Result<Option<ExitStatus>> {
    let inside = |program: &Path| {
        let mut command = Command::new("unshare");
        command.arg("-rm").arg(program);
        command
    };
    let may = inside(Path::new("true")).output();
    if !may.is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    let mut command = inside(&env::current_exe()?);
    let status = command.args(env::args().skip(1)).env(INSIDE, "1").status();
    status.map(Some)
}

/// A mounted volume of a few megabytes.
pub struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts one on an empty folder.
    pub fn mount(folder: &Path, megabytes: u64) -> io::Result<SmallDisk> {
        fs::create_dir_all(folder)?;
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(folder)
            .status()?;
        match mounted.success() {
            true => Ok(SmallDisk {
                folder: folder.to_owned(),
            }),
            false => Err(io::Error::other("the volume cannot be mounted")),
        }
    }

    /// Takes all of its space.
    pub fn fill(&self) -> io::Result<()> {
        let mut ballast = File::create(self.ballast())?;
        let mut length = 1 << 20;
        while length > 0 {
            match ballast.write_all(&vec![b'x'; length]) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => length /= 2,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives it back.
    pub fn empty(&self) -> io::Result<()> {
        fs::remove_file(self.ballast())
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }
}
