//! Free space that is not written to: `DISK_FREE_MIN`.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::{fstat, fstatvfs};

/// What each volume has above its reserve.
#[derive(Debug)]
pub(in crate::io) struct Reserve {
    /// Free bytes that remain on each volume; `None`: [`usual_reserve`].
    free_min: Option<u64>,
    volumes: BTreeMap<u64, Volume>,
    is_used: bool,
}

/// What may be written to a volume before it is asked again.
#[derive(Clone, Copy, Debug)]
struct Volume {
    bytes: u64,
    until: Instant,
}

impl Reserve {
    pub(in crate::io) fn new(free_min: Option<u64>) -> Self {
        Reserve {
            free_min,
            volumes: BTreeMap::new(),
            is_used: false,
        }
    }

    /// Lets all further bytes be written as long as there is any space.
    pub(super) fn use_up(&mut self) {
        self.is_used = true;
    }

    /// Takes space for bytes of a file, or in a folder.
    ///
    /// # Errors
    /// Less than the reserve would remain free: [`ErrorKind::StorageFull`].
    pub(super) fn take(&mut self, file: impl AsFd, bytes: u64) -> io::Result<()> {
        if self.is_used || self.free_min == Some(0) {
            return Ok(());
        }
        let device = fstat(&file)?.st_dev;
        let now = Instant::now();
        if let Some(volume) = self.volumes.get_mut(&device)
            && volume.bytes >= bytes
            && now < volume.until
        {
            volume.bytes -= bytes;
            return Ok(());
        }
        let volume = fstatvfs(&file)?;
        let free = volume.f_bavail.saturating_mul(volume.f_frsize);
        let size = volume.f_blocks.saturating_mul(volume.f_frsize);
        // Some file systems do not know their size.
        if size == 0 {
            return Ok(());
        }
        let free_min = self.free_min.unwrap_or_else(|| usual_reserve(size));
        let above = check(free, free_min, bytes)?;
        self.volumes.insert(
            device,
            Volume {
                // Other programs write, too.
                bytes: (above / 2).saturating_sub(bytes),
                until: now + ASKED_EVERY,
            },
        );
        Ok(())
    }
}

/// The reserve of a volume of this size: the lesser of 1 GiB and 2 %.
pub(in crate::io) fn usual_reserve(size: u64) -> u64 {
    (size / 50).min(1 << 30)
}

/// How many free bytes are above the reserve, if there are enough.
pub(in crate::io) fn check(free: u64, free_min: u64, bytes: u64) -> io::Result<u64> {
    let above = free.saturating_sub(free_min);
    if free >= free_min && bytes <= above {
        return Ok(above);
    }
    Err(io::Error::new(
        ErrorKind::StorageFull,
        format!(
            "{free} bytes are free on its volume, {bytes} are to be written, and DISK_FREE_MIN keeps \
             {free_min} free"
        ),
    ))
}

/// How long an answer of the system is used.
const ASKED_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_reserve_is_the_lesser_of_a_gibibyte_and_two_percent() {
        assert_eq!(usual_reserve(64 << 20), (64 << 20) / 50);
        assert_eq!(usual_reserve(1 << 40), 1 << 30);
    }

    #[test]
    fn bytes_are_taken_from_what_is_above_the_reserve() {
        assert_eq!(check(100, 40, 59).expect("there is room"), 60);
        assert_eq!(check(40, 40, 0).expect("there is room"), 0);
        for (free, bytes) in [(100, 61), (39, 0), (0, 1)] {
            let error = check(free, 40, bytes).expect_err("there is none");
            assert_eq!(error.kind(), ErrorKind::StorageFull);
            let text = error.to_string();
            assert!(text.contains(&format!("{free} bytes are free")), "{text}");
            assert!(text.contains("DISK_FREE_MIN keeps 40 free"), "{text}");
        }
    }

    #[test]
    fn a_reserve_of_zero_and_one_that_is_used_up_stop_nothing() {
        let folder = tempfile::tempfile().expect("a file");
        let mut none = Reserve::new(Some(0));
        none.take(&folder, u64::MAX).expect("it stops nothing");
        let mut all = Reserve::new(Some(u64::MAX));
        all.take(&folder, 1).expect_err("all is reserved");
        all.use_up();
        all.take(&folder, 1).expect("it is used");
    }
}
