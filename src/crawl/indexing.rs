//! Makes the CDXJ index of a WARC file without a crawl.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::io::derive;
use crate::sink::cdxj::{DeriveIndex, index_path};

/// Makes the CDXJ index of a WARC file beside it, as a crawl does once the file is closed, and returns its path. An
/// earlier index is replaced; a reader sees all of an index or none. Makes blocking calls to the file system.
///
/// # Errors
/// The error names the file. [`ErrorKind::InvalidInput`]: its name does not end with `.warc.gz`.
/// [`ErrorKind::InvalidData`] or [`ErrorKind::UnexpectedEof`]: it is damaged or cut at the offset that the message
/// names, and nothing is written. [`ErrorKind::ResourceBusy`]: another process makes the same index. Others: a file
/// cannot be read or written.
pub fn index_warc(warc: &Path) -> io::Result<PathBuf> {
    let name = warc.file_name().and_then(|name| name.to_str());
    let (Some(name), Some(index)) = (name, index_path(warc)) else {
        let text = format!(
            "{}: the name of a WARC file ends with .warc.gz",
            warc.display()
        );
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    };
    derive(warc, &index, &mut DeriveIndex::new(name))?;
    Ok(index)
}
