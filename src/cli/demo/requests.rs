//! The log of the demo's servers: a line for each request when it arrives.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use argiope::base::time::Wall;
use argiope::serde_json::json;

/// A file of lines `{"at":TIME,"host":HOST,"method":METHOD,"path":PATH}`.
pub struct RequestLog {
    file: Option<File>,
}

impl RequestLog {
    /// Creates the file.
    ///
    /// # Errors
    /// It exists, or cannot be created.
    pub fn create(path: &Path) -> io::Result<RequestLog> {
        let file = Some(File::create_new(path)?);
        Ok(RequestLog { file })
    }

    /// Adds a request that has just arrived. Readers find it at once.
    pub fn add(&mut self, host: &str, method: &str, path: &str) {
        let Some(file) = &mut self.file else {
            return;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let at = Wall(now.as_ref().map_or(0, Duration::as_nanos) as u64).to_string();
        let line = json!({"at": at, "host": host, "method": method, "path": path});
        if let Err(error) = file.write_all(format!("{line}\n").as_bytes()) {
            log::warn!("the servers' log ends here: {error}");
            self.file = None;
        }
    }
}
