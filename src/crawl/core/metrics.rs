//! The metrics of the crawl, and those of a target of a probe.

use crate::admin::format::MetricsFormat;
use crate::admin::response::Response;
use crate::admin::routes::Call;
use crate::crawl::core::Core;
use crate::crawl::metrics::Metrics;
use crate::crawl::probe::watch::NoMetrics;
use crate::io::Io;
use crate::wire::url::CrawlUrl;

impl<I: Io> Core<I> {
    /// The metrics now, as text.
    pub fn metrics(&self, format: MetricsFormat) -> String {
        let scopes_max = self.config.metrics_scopes_max;
        let (progress, pacing) = (self.progress(), self.pacing(scopes_max));
        let metrics = Metrics {
            stats: self.output.stats(),
            progress: &progress,
            pacing: &pacing,
            is_paused: self.control.is_paused(),
            scopes_max,
            watch: self.workload.watch_counts(),
        };
        metrics.render(format)
    }

    /// Answers a question for the metrics of a target: those of its last request.
    pub fn target_metrics(&self, call: &Call) -> Response {
        let Some(target) = call.parameter("target") else {
            return Response::error(400, "name a target: /probe?target=https://example.com/");
        };
        if let Some(name) = call.parameter("hostname") {
            let message = format!(
                "hostname has no effect here, as a scrape sends no request; give the target the field in its line: \
                 {{\"url\": \"{target}\", \"headers\": {{\"Host\": \"{name}\"}}}}"
            );
            return Response::error(400, &message);
        }
        // As in the blackbox exporter a bare host is http.
        let given = match target.contains("://") {
            true => CrawlUrl::parse(target),
            false => CrawlUrl::parse(&format!("http://{target}")),
        };
        let url = match given {
            Ok(url) => url,
            Err(error) => return Response::error(400, &format!("{target}: {error}")),
        };
        match self.workload.target_metrics(url.as_str(), call.format) {
            Ok(text) => Response::of(200, call.format.content_type(), text.into_bytes()),
            Err(NoMetrics::Unwatched) => {
                let message = "there are no targets; `argiope probe --targets FILE` has some";
                Response::error(404, message)
            }
            Err(NoMetrics::Unknown) => {
                let message = format!(
                    "{} is none of the targets; add it to their file and restart the probe",
                    url.as_str()
                );
                Response::error(404, &message)
            }
            Err(NoMetrics::Pending) => {
                let message = format!("{}: its first request has not ended", url.as_str());
                Response::error(503, &message).with("Retry-After", "1")
            }
        }
    }
}
