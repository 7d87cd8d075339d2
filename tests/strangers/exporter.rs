//! A latency exporter like Prometheus' blackbox exporter.
//!
//! `GET /probe?target=https://example.com/` requests the target once and returns metrics. All probes share
//! one crawl on its own thread, so each target is requested within its configured pace and concurrency,
//! whatever the number of scrapers. Latencies are by kernel timestamps, so a busy exporter does not change
//! them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use argiope::{
    Accuracy, BodyMode, Config, CrawlUrl, Crawler, Handle, Page, Reply, Request, Sink, SubmitError,
};
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode, body::Incoming, server::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The least time that a scrape is answered before its own end.
const MARGIN: Duration = Duration::from_millis(500);

/// Who waits for which probe, by its tag, and the attempts that it has made so far.
type Waiting = Arc<Mutex<HashMap<u64, (Vec<Page>, oneshot::Sender<Vec<Page>>)>>>;

/// Probes, from any task. The crawl ends with it.
pub struct Prober {
    handle: Handle,
    waiting: Waiting,
    tags: AtomicU64,
}

impl Prober {
    /// Starts the crawl that makes the probes.
    pub fn start(config: Config) -> Result<Self, Box<dyn Error>> {
        let config = config
            .with("ROBOTSTXT_OBEY", false)? // One's own targets.
            .with("FOLLOW", "none")?
            .with("RETRY_TIMES", 0)?
            .with("KEEPALIVE_MAX", 0)? // Each probe sees a connection being made.
            // A target in trouble is to be seen in trouble, at the same pace.
            .with("BACKOFF_ENABLED", false)?
            .with("RATELIMIT_HEADERS", "off")?
            .with("HOST_DOWN_AFTER", 0)?;
        let waiting = Waiting::default();
        let mut crawler = Crawler::builder(config)
            .sink(Answers(Arc::clone(&waiting)))
            .build()?;
        let handle = crawler.handle();
        thread::spawn(move || crawler.run());
        Ok(Self {
            handle,
            waiting,
            tags: AtomicU64::new(1),
        })
    }

    /// Probes a target, and writes what was seen in the text format of Prometheus.
    pub async fn probe(&self, target: &str, timeout: Duration) -> Result<String, SubmitError> {
        let tag = self.tags.fetch_add(1, Ordering::Relaxed);
        let (sender, mut answer) = oneshot::channel();
        self.waiting
            .lock()
            .unwrap()
            .insert(tag, (Vec::new(), sender));
        let request = Request::get(target).timeout(timeout).dont_filter().tag(tag);
        let number = match self.handle.try_submit(request) {
            Ok(number) => number,
            Err(not_taken) => {
                self.waiting.lock().unwrap().remove(&tag);
                return Err(not_taken);
            }
        };
        // The request's own timeout begins with its turn, and others of its target may be before it. What
        // is cancelled ends as well, so that there is always an answer.
        let attempts = match tokio::time::timeout(timeout + MARGIN / 2, &mut answer).await {
            Ok(attempts) => attempts,
            Err(_) => {
                let _ = self.handle.cancel(number);
                answer.await
            }
        };
        Ok(metrics(&attempts.unwrap_or_default())) // None where the crawl is over.
    }
}

/// Sends the attempts of each probe to its waiting scrape.
struct Answers(Waiting);

impl Sink for Answers {
    /// A body is read to its end, and not kept.
    fn on_head(&mut self, _reply: &Reply<'_>) -> BodyMode {
        BodyMode::Skip
    }

    fn put(&mut self, page: &mut Page) {
        let mut waiting = self.0.lock().unwrap();
        let Some((attempts, _)) = waiting.get_mut(&page.tag) else {
            return;
        };
        let (tag, is_final) = (page.tag, page.is_final);
        attempts.push(std::mem::take(page));
        if is_final && let Some((attempts, sender)) = waiting.remove(&tag) {
            let _ = sender.send(attempts); // Who scraped may be gone.
        }
    }
}

fn metrics(attempts: &[Page]) -> String {
    let mut out = String::new();
    let mut tell = |name: &str, value: f64| _ = writeln!(out, "{name} {value}");
    let last = attempts.last();
    let status = last.and_then(|page| page.status);
    let failure = last.and_then(|page| page.failure.as_ref());
    let is_fine = failure.is_none() && status.is_some_and(|status| (200..300).contains(&status));
    tell("probe_success", f64::from(u8::from(is_fine)));
    // However it ended, and without the wait for its turn.
    let took = attempts.first().zip(last);
    let took = took.map(|(first, last)| last.ended.saturating_since(first.timings.started));
    tell(
        "probe_duration_seconds",
        took.unwrap_or_default().as_secs_f64(),
    );
    tell("probe_http_status_code", f64::from(status.unwrap_or(0)));
    tell(
        "probe_http_redirects",
        attempts
            .iter()
            .filter(|page| page.redirect.is_some())
            .count() as f64,
    );

    // Each phase is the sum over all redirects.
    let (mut phases, mut worst) = ([Duration::ZERO; 5], None);
    for timings in attempts.iter().map(|page| &page.timings) {
        let of = timings.spans();
        let spans = [
            of.dns,
            of.connect,
            of.tls,
            timings.server_latency(),
            of.body,
        ];
        for (phase, span) in phases.iter_mut().zip(spans) {
            *phase += span.unwrap_or_default();
        }
        worst = worst.max(timings.accuracy().map(|label| label as u8));
    }
    for (name, phase) in ["resolve", "connect", "tls", "processing", "transfer"]
        .iter()
        .zip(phases)
    {
        tell(
            &format!("probe_http_duration_seconds{{phase=\"{name}\"}}"),
            phase.as_secs_f64(),
        );
    }
    // The source: exact or an upper bound, by kernel timestamps; or the program's own clock.
    for label in Accuracy::ALL {
        let is_worst = worst == Some(label as u8);
        tell(
            &format!("probe_http_stamp{{label=\"{}\"}}", label.as_str()),
            f64::from(u8::from(is_worst)),
        );
    }
    if let Some(failure) = failure {
        tell(
            &format!("probe_failure_info{{code=\"{}\"}}", failure.code()),
            1.0,
        );
    }
    let chain = last.into_iter().flat_map(|page| page.certificates.iter());
    let ends = chain.filter_map(|der| X509Certificate::from_der(der).ok());
    if let Some(end) = ends
        .map(|(_, certificate)| certificate.validity().not_after.timestamp())
        .min()
    {
        tell("probe_ssl_earliest_cert_expiry", end as f64);
    }
    out
}

/// Serves `/probe` until the future is dropped.
pub async fn serve(listener: TcpListener, prober: Arc<Prober>) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let prober = Arc::clone(&prober);
        let service = service_fn(move |request| answer(Arc::clone(&prober), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(
    prober: Arc<Prober>,
    request: hyper::Request<Incoming>,
) -> Result<Response<String>, Infallible> {
    let says = |status, text: String| {
        let mut response = Response::new(text);
        *response.status_mut() = status;
        Ok(response)
    };
    let url = CrawlUrl::parse(&format!("http://exporter{}", request.uri()));
    let target = url
        .ok()
        .filter(|url| url.path() == "/probe")
        .and_then(|url| url.query_value("target"));
    let Some(target) = target.filter(|_| request.method() == Method::GET) else {
        return says(StatusCode::NOT_FOUND, "GET /probe?target=URL\n".to_owned());
    };
    let scrape = request.headers().get("x-prometheus-scrape-timeout-seconds");
    let scrape = scrape.and_then(|text| text.to_str().ok()?.parse().ok());
    let timeout = Duration::try_from_secs_f64(scrape.unwrap_or(10.0)).unwrap_or(Duration::MAX);
    match prober
        .probe(
            &target,
            timeout
                .saturating_sub(MARGIN)
                .min(Duration::from_secs(3600)),
        )
        .await
    {
        Ok(text) => says(StatusCode::OK, text),
        Err(busy @ SubmitError::Full(_)) => {
            says(StatusCode::SERVICE_UNAVAILABLE, format!("{busy}\n"))
        }
        Err(other) => says(StatusCode::BAD_REQUEST, format!("{other}\n")),
    }
}
