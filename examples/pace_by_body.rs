//! A pace by what pages say: "please slow down" in the first kilobyte doubles the delay, up to 60 s, and ten
//! good pages halve it.
//!
//! A [`Classify`] reads the refusal, which is retried like a 429; a [`Strategy`] sets the delay.
//!
//! ```sh
//! cargo run --example pace_by_body -- https://quotes.toscrape.com/
//! ```

use std::{env, error::Error, time::Duration};

use argiope::settings::ScopeSettings;
use argiope::{
    Answer, BodyPart, BodySignal, Builder, Classify, Config, Crawler, ExchangeEnd, Instant,
    Observation, Pace, Page, PageKind, Request, Strategy,
};

/// Judges a page by its first kilobyte.
pub struct ByWords;

impl Classify for ByWords {
    fn body_part(&self, _: &Answer<'_>) -> BodyPart {
        BodyPart::Start(1024)
    }

    fn classify_body(&self, _: &Answer<'_>, start: &[u8]) -> BodySignal {
        let asks = |words: &[u8]| words.eq_ignore_ascii_case(b"please slow down");
        match start.windows(16).any(asks) {
            true => BodySignal::nothing().status(429),
            false => BodySignal::nothing(),
        }
    }
}

/// Doubles the delay for a refusal or a request without an answer, and halves it for ten good pages.
#[derive(Default)]
pub struct Halving {
    /// Number of good pages since the delay changed.
    good: u32,
    /// Time of the last change. Answers to earlier requests do not concern the present delay: four refusals
    /// of requests that were in flight at once are one step, not four.
    changed: Instant,
}

impl Strategy for Halving {
    // Also of a request without an answer, and of a body that `ByWords` refuses.
    fn answer(
        &mut self,
        set: &ScopeSettings,
        pace: Pace,
        seen: &Observation<'_>,
        now: Instant,
    ) -> Pace {
        if !seen.refused || seen.sent < self.changed {
            return pace;
        }
        (self.good, self.changed) = (0, now);
        let delay = (pace.delay * 2).clamp(Duration::from_millis(100), Duration::from_secs(60));
        // The configured delay may be longer than a minute.
        let delay = delay.max(set.delay);
        Pace { delay, ..pace }
    }

    fn ended(&mut self, set: &ScopeSettings, pace: Pace, end: &ExchangeEnd, now: Instant) -> Pace {
        let is_page = end.kind == PageKind::Page && end.status == Some(200);
        if !is_page || end.failure.is_some() || end.sent < self.changed {
            return pace;
        }
        self.good += 1;
        if self.good < 10 {
            return pace;
        }
        (self.good, self.changed) = (0, now);
        let delay = (pace.delay / 2).max(set.delay);
        Pace { delay, ..pace }
    }
}

/// Adds both to a crawl.
pub fn by_body(builder: Builder) -> Builder {
    let halving = |_: &str| Some(Box::<Halving>::default() as Box<dyn Strategy>);
    builder.classify(ByWords).strategy(halving)
}

fn main() -> Result<(), Box<dyn Error>> {
    let print = |page: Page| println!("{:?} {}", page.judged_status(), page.url);
    let mut crawler = by_body(Crawler::builder(Config::default()).sink(print)).build()?;
    for url in env::args().skip(1) {
        crawler.submit(Request::get(url))?;
    }
    crawler.run();
    Ok(())
}
