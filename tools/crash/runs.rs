//! Runs of the command: started, killed, and resumed.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::web::Web;

/// A crawl of a web in a folder of its own.
pub struct Crawl {
    argiope: PathBuf,
    folder: PathBuf,
    args: Vec<String>,
}

impl Crawl {
    /// A new crawl. `settings`: `NAME=VALUE`.
    pub fn new(argiope: &Path, folder: &Path, web: &Web, settings: &[String]) -> io::Result<Crawl> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("seeds"), web.seeds())?;
        let everywhere = format!("*:{}:127.0.0.1", web.port());
        let args = [
            "--seeds",
            "seeds",
            "--follow",
            "all",
            "--resolve",
            &everywhere,
        ];
        let mut args: Vec<String> = args.map(str::to_owned).to_vec();
        for argument in ["--allow-net", "loopback", "--contact", "crash@example.com"] {
            args.push(argument.to_owned());
        }
        for setting in settings {
            args.extend(["-s".to_owned(), setting.clone()]);
        }
        Ok(Crawl {
            argiope: argiope.to_owned(),
            folder: folder.to_owned(),
            args,
        })
    }

    /// The output directory.
    pub fn out(&self) -> PathBuf {
        self.folder.join("out")
    }

    /// Runs it to its end.
    pub fn run_whole(&self) -> io::Result<()> {
        self.run(&self.args)?.finish()
    }

    /// Starts its first run; returns once it can be resumed: a crawl that is killed before is begun anew.
    pub fn start(&self) -> io::Result<Run> {
        let mut run = self.run(&self.args)?;
        let beginning = self.out().join("state/journal-00000000");
        while !fs::metadata(&beginning).is_ok_and(|file| file.len() > 0) {
            if run.ends_within(Duration::from_millis(1))? {
                break;
            }
        }
        Ok(run)
    }

    /// Continues it, with these settings in place of its own.
    pub fn resume(&self, settings: &[String]) -> io::Result<Run> {
        let mut args = vec!["--resume".to_owned()];
        for setting in settings {
            args.extend(["-s".to_owned(), setting.clone()]);
        }
        self.run(&args)
    }

    fn run(&self, args: &[String]) -> io::Result<Run> {
        let errors = self.folder.join("stderr");
        let child = Command::new(&self.argiope)
            .args(["crawl", "--quiet", "--out", "out"])
            .args(args)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&errors)?)
            .spawn()?;
        Ok(Run { child, errors })
    }
}

/// A run of the command, which does not outlive this value.
pub struct Run {
    child: Child,
    errors: PathBuf,
}

impl Run {
    /// Whether it has ended within this time.
    pub fn ends_within(&mut self, span: Duration) -> io::Result<bool> {
        let until = Instant::now() + span;
        while self.child.try_wait()?.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            thread::sleep(left.min(Duration::from_millis(5)));
        }
        Ok(true)
    }

    /// Kills it, if it has not ended.
    pub fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        let status = self.child.wait()?;
        match status.signal() {
            Some(_) => Ok(()),
            None => self.check(status),
        }
    }

    /// Waits for its end, which must be a success.
    pub fn finish(mut self) -> io::Result<()> {
        let status = self.child.wait()?;
        self.check(status)
    }

    fn check(&self, status: ExitStatus) -> io::Result<()> {
        if status.success() {
            return Ok(());
        }
        let errors = fs::read_to_string(&self.errors)?;
        Err(io::Error::other(format!(
            "argiope ended with {status}: {errors}"
        )))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
