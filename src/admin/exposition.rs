//! Writes families of metrics as Prometheus text or OpenMetrics text.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

use crate::admin::format::MetricsFormat;
use crate::wire::text::printable;

/// A family of metrics: samples with the same name and labels.
///
/// A name that ends in `_seconds` or `_bytes` has that unit.
#[derive(Debug)]
pub struct Family {
    /// The name, without the suffixes `_total` and `_info` of its samples.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// The names of the labels of each sample, without the `le` of buckets.
    pub labels: &'static [&'static str],
    /// What it measures, in one sentence.
    pub help: &'static str,
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that may shrink.
    Gauge,
    /// Cumulative buckets, sum and count.
    Histogram,
    /// Labels that describe the process; the number is 1.
    Info,
}

impl Family {
    /// The name of its samples; those of a histogram have further suffixes.
    pub fn sample_name(&self) -> Cow<'static, str> {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name).into(),
            Kind::Info => format!("{}_info", self.name).into(),
            Kind::Gauge | Kind::Histogram => self.name.into(),
        }
    }

    /// The unit, by the end of the name.
    pub fn unit(&self) -> Option<&'static str> {
        let mut units = ["seconds", "bytes"].into_iter();
        units.find(|unit| {
            let rest = self.name.strip_suffix(unit);
            rest.is_some_and(|rest| rest.ends_with('_'))
        })
    }

    /// Whether its names are valid, and free of what the writer adds.
    fn is_valid(&self) -> bool {
        let suffixes = ["_total", "_info", "_bucket", "_sum", "_count", "_created"];
        let is_reserved = |name: &str| name == "le" || name == "quantile" || name.starts_with('_');
        is_name(self.name)
            && !suffixes.iter().any(|suffix| self.name.ends_with(suffix))
            && self
                .labels
                .iter()
                .all(|name| is_name(name) && !is_reserved(name))
            && !self.help.contains(['\\', '\n', '"'])
    }
}

fn is_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(is_inner) && name.starts_with(|first: char| !first.is_ascii_digit())
}

/// The number of a sample.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A count.
    Whole(u64),
    /// A quantity; finite.
    Real(f64),
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Value::Whole(count)
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Value::Whole(count as u64)
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Self {
        Value::Whole(u64::from(is))
    }
}

/// In seconds.
impl From<Duration> for Value {
    fn from(span: Duration) -> Self {
        Value::Real(span.as_secs_f64())
    }
}

/// The text of metrics, written family by family.
#[derive(Debug)]
pub struct Exposition {
    format: MetricsFormat,
    text: String,
}

impl Exposition {
    /// An empty text.
    pub fn new(format: MetricsFormat) -> Self {
        Exposition {
            format,
            text: String::new(),
        }
    }

    /// Begins a family. Each is begun once.
    pub fn family<'a>(&'a mut self, family: &'a Family) -> Samples<'a> {
        debug_assert!(family.is_valid(), "a valid family: {family:?}");
        let text = &mut self.text;
        // Prometheus text has no information type, and names a counter with its suffix.
        let (name, kind, unit) = match self.format {
            MetricsFormat::Prometheus => {
                let kind = match family.kind {
                    Kind::Counter => "counter",
                    Kind::Gauge | Kind::Info => "gauge",
                    Kind::Histogram => "histogram",
                };
                (family.sample_name(), kind, None)
            }
            MetricsFormat::OpenMetrics => {
                let kind = match family.kind {
                    Kind::Counter => "counter",
                    Kind::Gauge => "gauge",
                    Kind::Histogram => "histogram",
                    Kind::Info => "info",
                };
                (family.name.into(), kind, family.unit())
            }
        };
        push(text, format_args!("# HELP {name} {}\n", family.help));
        push(text, format_args!("# TYPE {name} {kind}\n"));
        if let Some(unit) = unit {
            push(text, format_args!("# UNIT {name} {unit}\n"));
        }
        Samples {
            name: family.sample_name(),
            family,
            text,
        }
    }

    /// The text.
    pub fn finish(mut self) -> String {
        if self.format == MetricsFormat::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// Takes the samples of a family.
#[derive(Debug)]
pub struct Samples<'a> {
    family: &'a Family,
    name: Cow<'static, str>,
    text: &'a mut String,
}

impl Samples<'_> {
    /// Adds a sample with these values of the family's labels. No two samples have the same.
    pub fn add(&mut self, labels: &[&str], value: impl Into<Value>) {
        debug_assert_ne!(self.family.kind, Kind::Histogram, "{}", self.family.name);
        self.sample("", labels, None, value.into());
    }

    /// Adds a histogram. `buckets` has the number of observations up to each bound, both ascending; of all
    /// observations there are `count` and the sum is `sum`, in seconds.
    pub fn add_histogram(
        &mut self,
        labels: &[&str],
        buckets: impl Iterator<Item = (Duration, u64)>,
        count: u64,
        sum: f64,
    ) {
        debug_assert_eq!(self.family.kind, Kind::Histogram, "{}", self.family.name);
        for (bound, up_to) in buckets {
            debug_assert!(up_to <= count, "{}: {up_to} of {count}", self.family.name);
            // OpenMetrics wants the fraction also where it is zero; Prometheus takes both forms.
            let mut bound = bound.as_secs_f64().to_string();
            if !bound.contains('.') {
                bound.push_str(".0");
            }
            self.sample("_bucket", labels, Some(&bound), up_to.into());
        }
        self.sample("_bucket", labels, Some("+Inf"), count.into());
        self.sample("_sum", labels, None, Value::Real(sum));
        self.sample("_count", labels, None, count.into());
    }

    fn sample(&mut self, suffix: &str, labels: &[&str], bound: Option<&str>, value: Value) {
        debug_assert_eq!(
            labels.len(),
            self.family.labels.len(),
            "{}",
            self.family.name
        );
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        let named = self.family.labels.iter().zip(labels);
        let named = named.map(|(name, value)| (*name, label_value(value)));
        let bound = bound.map(|bound| ("le", Cow::Borrowed(bound)));
        let mut opening = '{';
        for (name, value) in named.chain(bound) {
            push(self.text, format_args!("{opening}{name}=\""));
            push_escaped(self.text, &value);
            self.text.push('"');
            opening = ',';
        }
        if opening == ',' {
            self.text.push('}');
        }
        match value {
            Value::Whole(count) => push(self.text, format_args!(" {count}\n")),
            Value::Real(number) => {
                debug_assert!(number.is_finite(), "{}: {number}", self.family.name);
                push(self.text, format_args!(" {number}\n"));
            }
        }
    }
}

/// Most bytes of a label's value. A host has 253 at most; a scope of a program may have any name.
const LABEL_BYTES_MAX: usize = 256;

/// A label's value as it is written: control characters, which a terminal interprets, become escapes like
/// `\u001b`, and what is too long is cut and ends in `…`. Different texts may become the same value.
pub fn label_value(text: &str) -> Cow<'_, str> {
    const MARK: &str = "…";
    let shown = printable(text);
    if shown.len() <= LABEL_BYTES_MAX {
        return shown;
    }
    let mut end = LABEL_BYTES_MAX - MARK.len();
    while !shown.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MARK}", &shown[..end]).into()
}

fn push_escaped(text: &mut String, value: &str) {
    for char in value.chars() {
        match char {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            char => text.push(char),
        }
    }
}

fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a string takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: Family = Family {
        name: "requests",
        kind: Kind::Counter,
        labels: &["host", "status"],
        help: "Requests sent.",
    };
    const QUEUED: Family = Family {
        name: "queued_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Bytes queued.",
    };
    const LATENCY: Family = Family {
        name: "latency_seconds",
        kind: Kind::Histogram,
        labels: &["phase"],
        help: "Latency.",
    };
    const BUILD: Family = Family {
        name: "build",
        kind: Kind::Info,
        labels: &["version"],
        help: "The program.",
    };

    fn example(format: MetricsFormat) -> String {
        let mut out = Exposition::new(format);
        out.family(&BUILD).add(&["1.2.3"], true);
        let mut requests = out.family(&REQUESTS);
        requests.add(&["a.test", "200"], 3_u64);
        requests.add(&["b.test", "404"], u64::MAX);
        out.family(&QUEUED).add(&[], 0_usize);
        let bounds = [(10, 1), (1_000_000, 2), (2_500_000, 2)];
        let buckets = bounds.map(|(micros, count)| (Duration::from_micros(micros), count));
        out.family(&LATENCY)
            .add_histogram(&["body"], buckets.into_iter(), 3, 4.25);
        out.finish()
    }

    #[test]
    fn prometheus_text_is_this_to_the_byte() {
        let expected = "\
# HELP build_info The program.
# TYPE build_info gauge
build_info{version=\"1.2.3\"} 1
# HELP requests_total Requests sent.
# TYPE requests_total counter
requests_total{host=\"a.test\",status=\"200\"} 3
requests_total{host=\"b.test\",status=\"404\"} 18446744073709551615
# HELP queued_bytes Bytes queued.
# TYPE queued_bytes gauge
queued_bytes 0
# HELP latency_seconds Latency.
# TYPE latency_seconds histogram
latency_seconds_bucket{phase=\"body\",le=\"0.00001\"} 1
latency_seconds_bucket{phase=\"body\",le=\"1.0\"} 2
latency_seconds_bucket{phase=\"body\",le=\"2.5\"} 2
latency_seconds_bucket{phase=\"body\",le=\"+Inf\"} 3
latency_seconds_sum{phase=\"body\"} 4.25
latency_seconds_count{phase=\"body\"} 3
";
        assert_eq!(example(MetricsFormat::Prometheus), expected);
    }

    #[test]
    fn openmetrics_text_is_this_to_the_byte() {
        let expected = "\
# HELP build The program.
# TYPE build info
build_info{version=\"1.2.3\"} 1
# HELP requests Requests sent.
# TYPE requests counter
requests_total{host=\"a.test\",status=\"200\"} 3
requests_total{host=\"b.test\",status=\"404\"} 18446744073709551615
# HELP queued_bytes Bytes queued.
# TYPE queued_bytes gauge
# UNIT queued_bytes bytes
queued_bytes 0
# HELP latency_seconds Latency.
# TYPE latency_seconds histogram
# UNIT latency_seconds seconds
latency_seconds_bucket{phase=\"body\",le=\"0.00001\"} 1
latency_seconds_bucket{phase=\"body\",le=\"1.0\"} 2
latency_seconds_bucket{phase=\"body\",le=\"2.5\"} 2
latency_seconds_bucket{phase=\"body\",le=\"+Inf\"} 3
latency_seconds_sum{phase=\"body\"} 4.25
latency_seconds_count{phase=\"body\"} 3
# EOF
";
        assert_eq!(example(MetricsFormat::OpenMetrics), expected);
    }

    #[test]
    fn hostile_label_values_stay_in_their_quotes() {
        let check = |value: &str, written: &str| {
            let mut out = Exposition::new(MetricsFormat::Prometheus);
            out.family(&BUILD).add(&[value], true);
            let text = out.finish();
            let line = format!("build_info{{version=\"{written}\"}} 1");
            assert_eq!(text.lines().last(), Some(line.as_str()));
            assert_eq!(text.lines().count(), 3, "{text}");
        };
        check("", "");
        check("a\"} 1\nforged 2", "a\\\"} 1\\nforged 2");
        check("\\", "\\\\");
        check("\\n\\\"", "\\\\n\\\\\\\"");
        check(
            "\x1b[2J\0\r\u{9b}",
            "\\\\u001b[2J\\\\u0000\\\\u000d\\\\u009b",
        );
        check("\u{202e}moc\u{2028}", "\\\\u202emoc\\\\u2028");
        check("bücher.test 💡\t{}=,#", "bücher.test 💡\t{}=,#");
    }

    #[test]
    fn long_label_values_are_cut_between_characters() {
        let check = |text: &str| {
            let value = label_value(text);
            assert!(value.len() <= LABEL_BYTES_MAX, "{}", value.len());
            assert!(value.ends_with('…') && value.len() > LABEL_BYTES_MAX - 4);
            assert_eq!(label_value(&value), value, "what was cut is not cut again");
        };
        for length in 257..270 {
            check(&"a".repeat(length));
            check(&format!(
                "{}{}",
                "a".repeat(length % 5),
                "💡".repeat(length)
            ));
        }
        check(&"\x1b".repeat(100_000));
        let host = "a".repeat(256);
        assert_eq!(label_value(&host), host);
    }

    #[test]
    fn only_a_name_that_ends_in_a_unit_has_one() {
        let check = |name: &'static str, unit| assert_eq!(Family { name, ..QUEUED }.unit(), unit);
        check("wire_bytes", Some("bytes"));
        check("turn_seconds", Some("seconds"));
        check("milliseconds", None);
        check("seconds_per_turn", None);
    }

    #[test]
    fn names_that_the_writer_or_the_format_reserves_are_invalid() {
        let is_valid = |name: &'static str, label: &'static str, help: &'static str| {
            let labels: &'static [&'static str] = Box::leak(Box::new([label]));
            let family = Family {
                name,
                kind: Kind::Gauge,
                labels,
                help,
            };
            family.is_valid()
        };
        assert!(is_valid("a_b1", "host", "Text."));
        for name in [
            "", "1a", "a-b", "a b", "a_total", "a_info", "a_bucket", "a_sum", "a_count",
        ] {
            assert!(!is_valid(name, "host", "Text."), "{name}");
        }
        for label in ["", "1a", "le", "quantile", "__name__", "a\"", "ä"] {
            assert!(!is_valid("a", label, "Text."), "{label}");
        }
        for help in ["two\nlines", "a \"quote\"", "a \\ backslash"] {
            assert!(!is_valid("a", "host", help), "{help}");
        }
    }
}
