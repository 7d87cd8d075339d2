//! Numbers and units that are two words of the command line, as in `--max-bytes 100 MB`: the unit would be read as a host.

use std::ffi::OsString;

use argiope::settings::span;

/// The whole message about the first number behind a flag whose unit is a word of its own.
pub fn apart(args: &[OsString]) -> Option<String> {
    let texts: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    texts.windows(3).find_map(|words| {
        let [flag, number, unit] = words else {
            return None;
        };
        number.parse::<f64>().ok().filter(|number| *number >= 0.0)?;
        let is_letters = unit.bytes().all(|byte| byte.is_ascii_alphabetic());
        let short = match *flag {
            _ if !is_letters => return None,
            flag if SIZE_FLAGS.contains(&flag) => size_unit(&unit.to_ascii_lowercase())?,
            flag if SPAN_FLAGS.contains(&flag) => span_unit(unit)?,
            _ => return None,
        };
        Some(format!(
            "{flag}: a number and its unit are one word (got {number} and {unit}); write {flag} {number}{short}"
        ))
    })
}

/// The unit of a size as it is read.
fn size_unit(unit: &str) -> Option<String> {
    let mut units = SIZES.iter();
    let (_, short) = units.find(|(names, _)| names.contains(&unit))?;
    Some((*short).to_owned())
}

/// The unit of a duration as it is read.
fn span_unit(unit: &str) -> Option<String> {
    let one = format!("1{}", unit.to_ascii_lowercase());
    let meant = match span(&one) {
        Ok(_) => one,
        Err(problem) => problem.mend.strip_prefix("write ")?.to_owned(),
    };
    meant.strip_prefix('1').map(str::to_owned)
}

/// The flags with a size.
const SIZE_FLAGS: [&str; 2] = ["--max-bytes", "--max-body"];

/// The flags with a duration.
const SPAN_FLAGS: [&str; 8] = [
    "--max-time",
    "--delay",
    "--timeout",
    "--stop-grace",
    "--duration",
    "--warmup",
    "--every",
    "--grace",
];

/// Names of units of a size, and the one that is read.
const SIZES: &[(&[&str], &str)] = &[
    (&["b", "byte", "bytes"], "B"),
    (&["k", "kib"], "KiB"),
    (&["m", "mib"], "MiB"),
    (&["g", "gib"], "GiB"),
    (&["kb"], "kB"),
    (&["mb"], "MB"),
    (&["gb"], "GB"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_behind_a_space_is_written_to_its_number() {
        let check = |line: &str, expected: Option<&str>| {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let found = apart(&args);
            match (&found, expected) {
                (None, None) => {}
                (Some(text), Some(end)) if text.ends_with(end) => {}
                _ => panic!("{line}: {found:?}"),
            }
        };
        let head = "argiope crawl http://a.test/";
        for (line, expected) in [
            ("--max-bytes 100 MB", Some("write --max-bytes 100MB")),
            ("--max-bytes 1.5 gib", Some("write --max-bytes 1.5GiB")),
            ("--max-time 10 minutes", Some("write --max-time 10m")),
            ("--delay 500 ms", Some("write --delay 500ms")),
            ("--delay 2 Seconds", Some("write --delay 2s")),
            ("--delay 2 a.test", None),
            ("--delay 2 rps", None),
            ("--max-bytes 100MB", None),
            ("--max-bytes 100 a.test", None),
            ("--max-pages 10 m", None),
            ("--contact me m", None),
        ] {
            check(&format!("{head} {line}"), expected);
        }
    }
}
