//! The text formats of metrics, and the choice between them by an Accept header.

/// A text format of metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricsFormat {
    /// Prometheus text, version 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics text, version 1.0.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// All formats.
    pub const ALL: [MetricsFormat; 2] = [MetricsFormat::Prometheus, MetricsFormat::OpenMetrics];

    /// The value of the Content-Type header.
    pub const fn content_type(self) -> &'static str {
        match self {
            MetricsFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            MetricsFormat::OpenMetrics => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
        }
    }

    /// The format that an Accept header prefers. Prometheus text if it accepts both alike, or neither.
    pub fn from_accept(accept: &str) -> Self {
        let quality = |format: MetricsFormat| {
            let ranges = split(accept, ',').filter_map(MediaRange::parse);
            let fits = ranges.filter_map(|range| Some((range.precision_for(format)?, range)));
            let best = fits.max_by_key(|(precision, range)| (*precision, range.quality));
            best.map_or(0, |(_, range)| range.quality)
        };
        match quality(MetricsFormat::OpenMetrics) > quality(MetricsFormat::Prometheus) {
            true => MetricsFormat::OpenMetrics,
            false => MetricsFormat::Prometheus,
        }
    }

    /// Type, subtype and version of its media type.
    const fn media_type(self) -> (&'static str, &'static str, &'static str) {
        match self {
            MetricsFormat::Prometheus => ("text", "plain", "0.0.4"),
            MetricsFormat::OpenMetrics => ("application", "openmetrics-text", "1.0.0"),
        }
    }
}

/// One element of an Accept header (RFC 9110, section 12.5.1). Parameters other than the version are ignored.
struct MediaRange<'a> {
    main: &'a str,
    sub: &'a str,
    version: Option<&'a str>,
    /// In thousandths.
    quality: u16,
}

impl<'a> MediaRange<'a> {
    /// `None` if it is malformed.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = split(text, ';');
        let (main, sub) = parts.next()?.split_once('/')?;
        let mut range = MediaRange {
            main: main.trim(),
            sub: sub.trim(),
            version: None,
            quality: 1000,
        };
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (name.trim(), value.trim());
            if name.eq_ignore_ascii_case("q") {
                range.quality = quality(value)?;
            } else if name.eq_ignore_ascii_case("version") {
                range.version = Some(value.trim_matches('"'));
            }
        }
        Some(range)
    }

    /// How precisely it names a format; `None` if it names another.
    fn precision_for(&self, format: MetricsFormat) -> Option<u8> {
        let (main, sub, version) = format.media_type();
        if self.main == "*" && self.sub == "*" {
            return Some(0);
        }
        if !self.main.eq_ignore_ascii_case(main) {
            return None;
        }
        match (self.sub == "*", self.version) {
            (true, _) => Some(1),
            (false, _) if !self.sub.eq_ignore_ascii_case(sub) => None,
            (false, None) => Some(2),
            (false, Some(other)) => (other == version).then_some(3),
        }
    }
}

/// A quality in thousandths (RFC 9110, section 12.4.2).
fn quality(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_valid = fraction.len() <= 3 && fraction.bytes().all(|digit| digit.is_ascii_digit());
    let thousandths: u16 = format!("{fraction:0<3}").parse().ok()?;
    match whole {
        "0" if is_valid => Some(thousandths),
        "1" if is_valid && thousandths == 0 => Some(1000),
        _ => None,
    }
}

/// The trimmed parts between separators that are in no quoted string.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let parts = text.split(move |char: char| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match char {
            '"' if !was_escaped => is_quoted = !is_quoted,
            '\\' => is_escaped = is_quoted && !was_escaped,
            _ => {}
        }
        char == separator && !is_quoted
    });
    parts.map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(accept: &str, expected: MetricsFormat) {
        assert_eq!(MetricsFormat::from_accept(accept), expected, "{accept}");
    }

    #[test]
    fn a_scraper_gets_the_format_that_it_prefers() {
        // Prometheus 3, Prometheus 2, and one that knows the draft of OpenMetrics alone.
        check(
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;\
             escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            MetricsFormat::OpenMetrics,
        );
        check(
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;\
             q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            MetricsFormat::OpenMetrics,
        );
        check(
            "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            MetricsFormat::Prometheus,
        );
    }

    #[test]
    fn prometheus_text_is_the_default_of_browsers_and_of_those_without_a_preference() {
        for accept in [
            "",
            "*/*",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "image/png",
            "text/*, application/*",
            "text/plain, application/openmetrics-text",
        ] {
            check(accept, MetricsFormat::Prometheus);
        }
    }

    #[test]
    fn qualities_decide_and_the_most_precise_range_counts() {
        let open = MetricsFormat::OpenMetrics;
        check("text/plain;q=0.5, application/openmetrics-text", open);
        check(
            "text/plain;q=0.5, application/openmetrics-text;q=0.501",
            open,
        );
        check("text/plain;q=0, */*", open);
        check(
            "TEXT/PLAIN ; Q=0.1 , APPLICATION/OpenMetrics-Text ; Version=\"1.0.0\" ; q=0.2",
            open,
        );
        for note in ["\";q=1;\"", "\", text/plain ,\"", "\"\\\";q=1;\""] {
            let accept =
                format!("text/plain; q=0.2; note={note}, application/openmetrics-text; q=0.3");
            check(&accept, open);
        }
        let plain = MetricsFormat::Prometheus;
        check(
            "text/plain;q=0.3, application/openmetrics-text;q=0.2",
            plain,
        );
        check(
            "application/openmetrics-text;q=0, text/plain;q=0.001",
            plain,
        );
        check("application/*;q=0.1, text/plain;version=0.0.4;q=0.2", plain);
    }

    #[test]
    fn malformed_elements_are_ignored() {
        for accept in [
            "application/openmetrics-text;q=1.5",
            "application/openmetrics-text;q=0.1234",
            "application/openmetrics-text;q=NaN",
            "application/openmetrics-text;q=-1",
            "application/openmetrics-text;q",
            "openmetrics-text",
            "\"application/openmetrics-text",
            ",,;;=/",
            "\\",
        ] {
            check(accept, MetricsFormat::Prometheus);
        }
    }
}
