//! Numbers and units that are two words of the command line, as in `--max-bytes 100 MB`: the unit would be read as a host.

use std::ffi::OsString;

/// The whole message about the first number behind a flag whose unit is a word of its own.
pub fn apart(args: &[OsString]) -> Option<String> {
    let texts: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    texts.windows(3).find_map(|words| {
        let [flag, number, unit] = words else {
            return None;
        };
        let units = match FLAGS.iter().find(|(flags, _)| flags.contains(flag)) {
            Some((_, units)) => units,
            None => return None,
        };
        number.parse::<f64>().ok().filter(|number| *number >= 0.0)?;
        let unit_given = unit.to_ascii_lowercase();
        let (_, short) = (units.iter()).find(|(names, _)| names.contains(&unit_given.as_str()))?;
        Some(format!(
            "{flag}: a number and its unit are one word (got {number} and {unit}); write {flag} {number}{short}"
        ))
    })
}

/// Names of units, and the one that is read.
type Units = &'static [(&'static [&'static str], &'static str)];

/// The flags with a unit, and their units.
const FLAGS: [(&[&str], Units); 2] = [
    (&["--max-bytes", "--max-body"], SIZES),
    (
        &[
            "--max-time",
            "--delay",
            "--timeout",
            "--stop-grace",
            "--duration",
            "--warmup",
            "--every",
            "--grace",
        ],
        SPANS,
    ),
];

const SIZES: Units = &[
    (&["b", "byte", "bytes"], "B"),
    (&["k", "kib"], "KiB"),
    (&["m", "mib"], "MiB"),
    (&["g", "gib"], "GiB"),
    (&["kb"], "kB"),
    (&["mb"], "MB"),
    (&["gb"], "GB"),
];

const SPANS: Units = &[
    (&["ms", "msec", "msecs", "millis", "milliseconds"], "ms"),
    (&["s", "sec", "secs", "second", "seconds"], "s"),
    (&["m", "min", "mins", "minute", "minutes"], "m"),
    (&["h", "hr", "hrs", "hour", "hours"], "h"),
    (&["d", "day", "days"], "d"),
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
            ("--max-bytes 100MB", None),
            ("--max-bytes 100 a.test", None),
            ("--max-pages 10 m", None),
            ("--contact me m", None),
        ] {
            check(&format!("{head} {line}"), expected);
        }
    }
}
