//! Test vectors of third parties, outside of the package, in the folder `ARGIOPE_VECTORS`.

#[path = "../../src/base/loud.rs"]
mod loud;

use std::path::{Path, PathBuf};
use std::{env, fs};

use serde::de::DeserializeOwned;

/// The content of the file with this name; prints `SKIPPED` if it does not exist.
pub fn read<T: DeserializeOwned>(name: &str) -> Option<T> {
    let folder = env::var_os("ARGIOPE_VECTORS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors"),
        PathBuf::from,
    );
    let file = folder.join(name);
    let Ok(text) = fs::read_to_string(&file) else {
        let file = file.display();
        loud::skip(format!(
            "no {file}; ARGIOPE_VECTORS names the folder of the vectors"
        ));
        return None;
    };
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}")))
}
