//! The report as one HTML page: no other file, no script, light and dark.

mod charts;
mod markup;
mod plots;
mod style;

pub use self::style::BEGINNING;

use self::charts::{counted, counted_plot, number, percentiles, ranking, seconds, text};
use self::markup::{Cell, Markup};
use self::plots::Bar;
use self::style::{HEAD, STYLE};
use super::advice::SUBJECTS;
use super::bodies::Sizes;
use super::figures::Report;
use super::gaps::WINDOW;
use super::hosts::HostRow;
use super::percentiles::Percentiles;
use crate::cli::progress::bytes;

/// Makes the page.
pub fn page(report: &Report) -> String {
    let mut page = Markup::new();
    page.raw(BEGINNING)
        .raw(HEAD)
        .element("<title>Crawl report: ", &report.directory, "</title>\n")
        .raw("<style>")
        .raw(STYLE)
        .raw("</style>\n</head>\n<body>\n")
        .element("<h1>Crawl report: ", &report.directory, "</h1>\n");
    overview(&mut page, report);
    recommendations(&mut page, report);
    throughput(&mut page, report);
    outcomes(&mut page, report);
    latency(&mut page, report);
    hosts(&mut page, report);
    gaps(&mut page, report);
    waits(&mut page, report);
    connections(&mut page, report);
    bodies(&mut page, report);
    depth(&mut page, report);
    page.raw("</body>\n</html>\n");
    page.finish()
}

fn overview(page: &mut Markup, report: &Report) {
    page.element("<p>Made at ", &report.made, " by argiope ")
        .element("", report.version, ". Durations are wall time.</p>\n");
    for note in &report.notes {
        page.element("<p class=\"note\">", note, "</p>\n");
    }
    let totals = &report.totals;
    let rate = |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!("{rate:.1}"));
    let rows = [
        (
            "ended because",
            report.finish_reason.clone().unwrap_or_default(),
        ),
        (
            "first request",
            totals.first_sent.clone().unwrap_or_default(),
        ),
        ("last request", totals.last_sent.clone().unwrap_or_default()),
        ("seconds between", rate(totals.seconds)),
        ("result lines", totals.attempts.to_string()),
        ("requests sent", totals.sent.to_string()),
        ("requests per second", rate(totals.sent_per_second)),
        ("pages with a status", totals.pages.to_string()),
        ("robots.txt", totals.robots.to_string()),
        ("sitemaps", totals.sitemaps.to_string()),
        ("retries", totals.retries.to_string()),
        ("redirects", totals.redirects.to_string()),
        ("fetched again after a crash", totals.refetched.to_string()),
        ("received", bytes(totals.bytes_wire)),
        ("bodies, decoded", bytes(totals.bytes_body)),
    ];
    let rows = rows.map(|(name, value)| vec![text(name), Cell::Number(value)]);
    page.table("The crawl", &["figure", "value"], rows);
}

fn recommendations(page: &mut Markup, report: &Report) {
    let all = &report.recommendations;
    page.raw("<h2>Recommendations</h2>\n");
    let rows = all.rows.iter().map(|advice| {
        let scope = advice.scope.as_deref().unwrap_or("the crawl");
        vec![
            text(heading_of(&advice.about)),
            text(scope),
            text(&advice.words),
        ]
    });
    page.table("Recommendations", &["subject", "scope", "remark"], rows);
    for (about, count) in &all.omitted {
        page.element("<p>", count, " more about ").element(
            "",
            about,
            " are not listed; stats.json has them.</p>\n",
        );
    }
}

/// The heading of a subject; one that this version does not know is its own.
fn heading_of(about: &str) -> &str {
    let known = SUBJECTS.iter().find(|(name, _)| *name == about);
    known.map_or(about, |(_, heading)| heading)
}

fn throughput(page: &mut Markup, report: &Report) {
    page.raw("<h2>Throughput over time</h2>\n<p>By departure; errors in the second colour.</p>\n");
    let throughput = &report.throughput;
    let width = throughput.interval_seconds;
    let intervals = &throughput.intervals;
    let highest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let sent: Vec<f64> = intervals.iter().map(|i| i.sent as f64 / width).collect();
    let errors = intervals.iter().map(|i| i.errors as f64 / width);
    let both: Vec<(f64, f64)> = sent.iter().copied().zip(errors).collect();
    let shown = format!("up to {:.1} requests per second", highest(&sent));
    plots::columns(
        page,
        "Requests and errors per second over time",
        &both,
        &shown,
    );
    let wire: Vec<f64> = intervals
        .iter()
        .map(|i| i.bytes_wire as f64 / width)
        .collect();
    let shown = format!("up to {} per second", bytes(highest(&wire) as u64));
    let wire: Vec<(f64, f64)> = wire.into_iter().map(|value| (value, 0.0)).collect();
    plots::columns(page, "Bytes received per second over time", &wire, &shown);
    let latency = intervals
        .iter()
        .map(|i| i.server_latency_mean.unwrap_or(0.0));
    let latency: Vec<f64> = latency.collect();
    let shown = format!("mean server latency, up to {}", seconds(highest(&latency)));
    let latency: Vec<(f64, f64)> = latency.into_iter().map(|value| (value, 0.0)).collect();
    plots::columns(page, "Mean server latency over time", &latency, &shown);
    page.element(
        "<details><summary>Intervals of ",
        width,
        " s as numbers</summary>\n",
    );
    let rows = intervals.iter().map(|interval| {
        vec![
            text(&interval.at),
            number(interval.sent),
            number(interval.errors),
            number(interval.bytes_wire),
            Cell::Number(
                interval
                    .server_latency_mean
                    .map_or_else(String::new, seconds),
            ),
        ]
    });
    let heads = [
        "from",
        "sent",
        "errors",
        "bytes received",
        "mean server latency",
    ];
    page.table("Departures over time", &heads, rows);
    page.raw("</details>\n");
}

fn outcomes(page: &mut Markup, report: &Report) {
    page.raw("<h2>Status and errors</h2>\n");
    let outcomes = &report.outcomes;
    let status = outcomes.status.iter();
    counted(
        page,
        "Attempts by status",
        "status",
        status.map(|(s, n)| (s.to_string(), *n)),
    );
    page.element("<p>Sent without a status: ", outcomes.without_status, "; ")
        .element("with a status from 400 on: ", outcomes.refused(), ".</p>\n");
    let errors = outcomes.errors.iter();
    counted_plot(
        page,
        "Attempts by error",
        errors.map(|e| (e.code.clone(), e.count)),
    );
    let rows = outcomes.errors.iter().map(|error| {
        vec![
            text(&error.code),
            number(error.count),
            text(&error.url),
            text(&error.detail),
        ]
    });
    let heads = ["error", "attempts", "first URL", "its detail"];
    page.table("Attempts by error", &heads, rows);
    if outcomes.errors_omitted > 0 {
        page.element(
            "<p>Attempts with other errors: ",
            outcomes.errors_omitted,
            ".</p>\n",
        );
    }
    let truncated = outcomes.truncated.iter();
    counted(
        page,
        "Incomplete bodies by reason",
        "reason",
        truncated.map(|(r, n)| (r.clone(), *n)),
    );
}

fn latency(page: &mut Markup, report: &Report) {
    page.raw("<h2>Latency</h2>\n").raw(LATENCY_TEXT);
    let latency = &report.latency;
    let all = [
        ("server latency", &latency.server_latency),
        ("latency with TLS", &latency.latency),
        ("lateness", &latency.lateness),
    ];
    let phases = latency
        .phases
        .iter()
        .map(|phase| (phase.phase, &phase.seconds));
    let rows: Vec<(&str, &Percentiles)> = all
        .into_iter()
        .chain(phases)
        .filter_map(|(name, row)| Some((name, row.as_ref()?)))
        .collect();
    plots::ranges(page, "Percentiles of latencies and phases", &rows);
    percentiles(page, "Latencies and phases, from result lines", &rows);
    let exact = report.phases_exact.iter();
    let exact: Vec<(&str, &Percentiles)> = exact
        .filter_map(|(name, row)| Some((name.as_str(), row.as_ref()?)))
        .collect();
    percentiles(
        page,
        "Phases from their first packet, from stats.json",
        &exact,
    );
    let bins = latency.distribution.iter().map(|bin| {
        let label = bin
            .to
            .map_or("longer".to_owned(), |to| format!("up to {}", seconds(to)));
        (label, bin.count)
    });
    counted(
        page,
        "Distribution of server latency",
        "server latency",
        bins,
    );
}

fn hosts(page: &mut Markup, report: &Report) {
    page.raw("<h2>Hosts</h2>\n");
    let hosts = &report.hosts;
    page.element("<p>", hosts.hosts, " hosts.</p>\n");
    let row = |host: &HostRow| {
        let latency = |value: Option<f64>| Cell::Number(value.map_or_else(String::new, seconds));
        vec![
            text(&host.host),
            latency(host.server_latency_mean),
            latency(host.server_latency_max),
            number(host.attempts.into()),
            number(host.errors.into()),
            number(host.pages.into()),
            number(host.same_as_before.into()),
        ]
    };
    let slowest = hosts.slowest.iter().map(|host| Bar {
        label: host.host.clone(),
        value: host.server_latency_mean.unwrap_or(0.0),
        shown: host.server_latency_mean.map_or_else(String::new, seconds),
    });
    let slowest: Vec<Bar> = slowest.collect();
    plots::bars(page, "Slowest hosts by mean server latency", &slowest);
    let heads = [
        "host",
        "mean server latency",
        "longest",
        "attempts",
        "errors",
        "pages",
        "same as before",
    ];
    page.table("Slowest hosts", &heads, hosts.slowest.iter().map(row));
    page.table(
        "Hosts with most errors",
        &heads,
        hosts.most_errors.iter().map(row),
    );
    page.table(
        "Hosts with mostly equal pages",
        &heads,
        hosts.same_pages.iter().map(row),
    );
}

fn gaps(page: &mut Markup, report: &Report) {
    page.raw("<h2>Gaps against what was promised</h2>\n")
        .element(GAPS_TEXT, WINDOW, GAPS_TEXT_REST);
    let gaps = &report.gaps;
    let rows = [
        ("compared", gaps.compared),
        ("shorter than promised", gaps.short),
        (
            "of several scopes, the longest gap compared",
            gaps.compared_longest,
        ),
        ("without a required gap", gaps.without_delay),
        (
            "without an earlier departure in the file",
            gaps.without_predecessor,
        ),
        ("of scopes that are not counted", gaps.omitted),
        (
            "of lines that came too late to be put in order",
            gaps.unordered,
        ),
    ];
    let rows = rows.map(|(name, count)| vec![text(name), number(count)]);
    page.table("Departures", &["departures", "count"], rows);
    let ranges = gaps.ratios.iter().filter(|_| gaps.compared > 0);
    let ranges = ranges.map(|range| {
        let label = match range.to {
            Some(to) => format!("{} to {to} times", range.from),
            None => format!("{} times and more", range.from),
        };
        (label, range.count)
    });
    counted(
        page,
        "Gap as a multiple of the promised delay",
        "gap",
        ranges,
    );
    let rows = [("promised delay", &gaps.delay), ("gap", &gaps.gap)];
    let rows: Vec<(&str, &Percentiles)> = rows
        .into_iter()
        .filter_map(|(name, row)| Some((name, row.as_ref()?)))
        .collect();
    percentiles(page, "Promised delays and gaps", &rows);
    let tightest = gaps.tightest.iter().map(|gap| {
        vec![
            text(&gap.scope),
            text(&gap.sent),
            Cell::Number(format!("{} s", gap.gap)),
            Cell::Number(format!("{} s", gap.delay)),
        ]
    });
    page.table(
        "Tightest gaps",
        &["scope", "sent", "gap", "promised"],
        tightest,
    );
}

fn waits(page: &mut Markup, report: &Report) {
    page.raw("<h2>Waits by cause</h2>\n");
    let (Some(waited), Some(decisions)) = (&report.waited, &report.decisions) else {
        page.raw("<p class=\"none\">Not known without stats.json.</p>\n");
        return;
    };
    let bar = |(cause, time): (&String, &f64)| Bar {
        label: cause.clone(),
        value: *time,
        shown: seconds(*time),
    };
    let bars: Vec<Bar> = waited.iter().map(bar).collect();
    plots::bars(page, "Time that scopes waited, by cause", &bars);
    let rows = bars
        .iter()
        .map(|bar| vec![text(&bar.label), Cell::Number(bar.shown.clone())]);
    page.table(
        "Time that scopes waited, summed over scopes",
        &["cause", "time"],
        rows,
    );
    let decisions = decisions
        .iter()
        .map(|(event, count)| (event.clone(), *count));
    counted(page, "Decisions about paces", "event", decisions);
}

fn connections(page: &mut Markup, report: &Report) {
    page.raw("<h2>Connections and TLS</h2>\n");
    let (reuse, tls) = (&report.connections, &report.tls);
    let share = reuse
        .share
        .map_or_else(String::new, |share| format!("{:.1} %", share * 100.0));
    let requests = [
        ("on a new connection", reuse.new),
        ("on a connection used before", reuse.reused),
    ];
    counted(
        page,
        "Requests by connection",
        "requests",
        requests.into_iter().map(named),
    );
    page.element("<p>Share on a connection used before: ", share, "</p>\n");
    let counts = [
        ("with TLS", tls.with_tls),
        ("without TLS", tls.without_tls),
        ("certificate not verified", tls.unverified),
        ("TLS handshakes", tls.handshakes),
        ("of these with a resumed session", tls.resumed),
    ];
    counted(
        page,
        "Requests by TLS",
        "requests",
        counts.into_iter().map(named),
    );
    ranking(page, "Requests by TLS version", "version", &tls.versions);
    ranking(
        page,
        "Requests by cipher suite",
        "cipher suite",
        &tls.ciphers,
    );
}

fn bodies(page: &mut Markup, report: &Report) {
    page.raw("<h2>Sizes and types</h2>\n");
    let bodies = &report.bodies;
    sizes(page, "Replies by size as received", &bodies.bytes_wire);
    sizes(
        page,
        "Replies by size of the decoded body",
        &bodies.bytes_body,
    );
    ranking(
        page,
        "Replies by content type",
        "content type",
        &bodies.types,
    );
    page.element(
        "<p>Replies without a content type: ",
        bodies.untyped,
        ".</p>\n",
    );
}

fn sizes(page: &mut Markup, caption: &'static str, sizes: &Sizes) {
    let ranges = sizes.ranges.iter();
    let ranges = ranges.map(|range| (format!("{} to {} B", range.from, range.to), range.count));
    counted(page, caption, "size", ranges);
    if let Some(mean) = sizes.mean {
        page.element("<p>Mean ", bytes(mean as u64), ", largest ")
            .element("", bytes(sizes.max), ".</p>\n");
    }
}

fn depth(page: &mut Markup, report: &Report) {
    page.raw("<h2>Depth</h2>\n");
    let depth = report.totals.depth.iter();
    let depth = depth.map(|(depth, count)| (depth.to_string(), *count));
    counted(page, "Attempts by links from a seed", "links", depth);
}

fn named((name, count): (&'static str, u64)) -> (String, u64) {
    (name.to_owned(), count)
}

const LATENCY_TEXT: &str = "<p>Server latency is from a request's departure to the last byte of its final head; \
lateness is delay caused by the crawler. A phase lasts from the end of the phase before it, so that a wait for the \
first packet of a connection, or for the departure, counts as connect or request. The bars are from the median to the \
99th percentile, with a mark at the 90th.</p>\n";

const GAPS_TEXT: &str = "<p>The gap from one departure of a scope to the next, compared with the delay of the later \
line. Departures are put in order within ";

const GAPS_TEXT_REST: &str = " lines, which is exact unless more lines than that finished during \
one request. The delay of a line is the longest that any of its scopes asked for; of a request with several scopes \
the longest gap is compared: one that is too short is a broken promise, but not every one is found. Times and gaps \
are exact to the nanosecond; percentiles to three digits.</p>\n";

#[cfg(test)]
mod tests;
