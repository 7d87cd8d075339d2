//! Sites that block and sites that only look like it, reply by reply.

use super::*;

/// A site that replies every `gap` seconds.
struct Site {
    suspect: Suspect,
    backoff: Backoff,
    now: Instant,
    gap: f64,
    next: u64,
    raised: Vec<Suspicion>,
}

/// One reply of the site.
#[derive(Clone, Copy)]
struct SiteReply {
    status: u16,
    /// `None`: different from every other page.
    digest: Option<u64>,
    size: u64,
    latency: f64,
    mark: Option<&'static str>,
    items: Option<u32>,
}

const PAGE: SiteReply = SiteReply {
    status: 200,
    digest: None,
    size: 20_000,
    latency: 0.05,
    mark: None,
    items: None,
};

/// Served in place of every page during a block.
const BLOCK: SiteReply = SiteReply {
    digest: Some(1),
    size: 700,
    latency: 0.0001,
    ..PAGE
};

impl Site {
    fn new() -> Self {
        Site {
            suspect: Suspect::new(),
            backoff: Backoff::default(),
            now: Instant::START,
            gap: 0.05,
            next: 100,
            raised: Vec::new(),
        }
    }

    /// A site with a hundred normal pages.
    fn normal(page: SiteReply) -> Self {
        let mut site = Site::new();
        site.give(100, page);
        site
    }

    /// Gives `count` replies; returns after how many a suspicion was raised or cleared.
    fn give(&mut self, count: usize, given: SiteReply) -> Option<usize> {
        let mut raised = None;
        for number in 1..=count {
            self.next += 1;
            self.now += Duration::from_secs_f64(self.gap).max(self.suspect.delay());
            let ending = ExchangeEnd {
                size: given.size,
                digest: given.digest.unwrap_or(self.next),
                mark: given.mark,
                items: given.items,
                ..ExchangeEnd::default()
            };
            let latency = Some(Duration::from_secs_f64(given.latency));
            let signal = Signal {
                status: Some(given.status),
                ..Signal::default()
            };
            let reply = Reply::of(&signal, &ending, &self.backoff);
            let suspicion = self.suspect.ended(reply, latency, &ending, self.now);
            if let Some(suspicion) = suspicion {
                self.raised.push(suspicion);
                raised = raised.or(Some(number));
            }
        }
        raised
    }

    fn check(&self, expected: &[(Kind, bool)]) {
        let raised: Vec<_> = self.raised.iter().map(|h| (h.kind, h.cleared)).collect();
        assert_eq!(raised, expected);
    }
}

#[test]
fn f96_one_tiny_page_for_all_urls_is_recognised_within_ten_replies() {
    let mut site = Site::normal(PAGE);
    let took = site.give(50, BLOCK);
    assert!(took.is_some_and(|took| took <= 10), "{took:?}");
    site.check(&[(Kind::SameTinyPage, false)]);
}

#[test]
fn f96_one_block_page_is_recognised_on_a_site_of_small_pages() {
    let mut site = Site::normal(SiteReply { size: 500, ..PAGE });
    let took = site.give(50, BLOCK);
    assert!(took.is_some_and(|took| took <= 10), "{took:?}");
}

#[test]
fn f96_challenges_are_recognised_by_their_marks_even_if_each_differs() {
    let mut site = Site::normal(PAGE);
    let captcha = SiteReply {
        digest: None,
        mark: Some("g-recaptcha"),
        ..BLOCK
    };
    assert_eq!(site.give(50, captcha), Some(3));
    site.check(&[(Kind::Captcha, false)]);
    assert!(site.raised[0].reason.contains("g-recaptcha"));
}

#[test]
fn f96_a_refusal_with_a_challenge_in_it_needs_no_baseline() {
    let mut site = Site::new();
    let challenge = SiteReply {
        status: 403,
        mark: Some("challenge-platform"),
        ..BLOCK
    };
    assert_eq!(site.give(5, challenge), Some(3));
    site.check(&[(Kind::Captcha, false)]);
}

#[test]
fn f96_probes_become_rarer_and_normal_pages_end_the_suspicion_at_once() {
    let mut site = Site::normal(PAGE);
    assert_eq!(site.suspect.delay(), Duration::ZERO);
    site.give(8, BLOCK);
    assert_eq!(site.suspect.delay(), Duration::from_secs(5));
    site.give(1, BLOCK);
    assert_eq!(site.suspect.delay(), Duration::from_secs(10));
    site.give(20, BLOCK);
    assert_eq!(site.suspect.delay(), Duration::from_secs(300));
    site.give(1, PAGE);
    assert_eq!(site.suspect.delay(), Duration::from_secs(300));
    site.give(1, PAGE);
    assert_eq!(site.suspect.delay(), Duration::ZERO);
    site.check(&[(Kind::SameTinyPage, false), (Kind::SameTinyPage, true)]);
    // If the block starts again, it is detected again.
    assert_eq!(site.give(10, BLOCK), Some(8));
}

#[test]
fn f96_requests_in_flight_at_the_suspicion_do_not_increase_the_probe_gap() {
    let mut site = Site::normal(PAGE);
    site.give(8, BLOCK);
    let ending = ExchangeEnd {
        digest: 1,
        ..ExchangeEnd::default()
    };
    for _ in 0..16 {
        site.suspect.ended(Reply::Page, None, &ending, site.now);
    }
    assert_eq!(site.suspect.delay(), Duration::from_secs(5));
}

#[test]
fn f97_fast_replies_without_items_raise_exactly_one_alert() {
    let with_items = SiteReply {
        items: Some(12),
        ..PAGE
    };
    let itemless = SiteReply {
        items: Some(0),
        latency: 0.01,
        ..PAGE
    };
    let mut site = Site::normal(with_items);
    let took = site.give(200, itemless);
    assert!(took.is_some_and(|took| took <= 10), "{took:?}");
    site.check(&[(Kind::ItemsGone, false)]);
    site.give(2, with_items);
    site.check(&[(Kind::ItemsGone, false), (Kind::ItemsGone, true)]);
}

#[test]
fn f97_pages_without_items_raise_no_alert_if_usual_or_slow() {
    let page = |items, latency| SiteReply {
        items: Some(items),
        latency,
        ..PAGE
    };
    // About half of the pages have items, in batches.
    let mut site = Site::new();
    for itemless in [1, 5, 3, 4, 7, 5, 9, 2, 11, 12, 5, 20].repeat(3) {
        site.give(6, page(5, 0.05));
        site.give(itemless, page(0, 0.05));
    }
    site.check(&[]);
    // And at random: ten in a row without are rare then, but not rare enough.
    let mut site = Site::new();
    for itemless in [1, 1, 2, 1, 1, 3, 1, 1, 1, 2, 1, 10] {
        site.give(1, page(5, 0.05));
        site.give(itemless, page(0, 0.05));
    }
    site.check(&[]);
    // Only one in ten has items.
    let mut rare = Site::new();
    for _ in 0..30 {
        rare.give(1, page(5, 0.05));
        rare.give(9, page(0, 0.05));
    }
    rare.give(200, page(0, 0.05));
    rare.check(&[]);
    // No page has items.
    let mut none = Site::normal(page(0, 0.05));
    none.give(500, page(0, 0.05));
    none.check(&[]);
    // Items are gone but the server is slow: no block page is that slow.
    let mut slow = Site::normal(page(5, 0.05));
    slow.give(50, page(0, 0.5));
    slow.check(&[]);
}

#[test]
fn f96_a_site_that_always_looked_blocked_raises_no_alert() {
    // One page for all URLs, from the first on.
    let mut site = Site::new();
    site.give(500, BLOCK);
    site.check(&[]);
    // Two alternating small pages.
    let mut site = Site::new();
    for _ in 0..300 {
        site.give(
            1,
            SiteReply {
                digest: Some(1),
                size: 900,
                ..PAGE
            },
        );
        site.give(
            1,
            SiteReply {
                digest: Some(2),
                size: 800,
                ..PAGE
            },
        );
    }
    site.check(&[]);
    // Captchas in the forms of normal pages.
    let form = SiteReply {
        mark: Some("g-recaptcha"),
        ..PAGE
    };
    let mut site = Site::normal(form);
    site.give(50, SiteReply { size: 300, ..form });
    site.check(&[]);
}

#[test]
fn f96_occasional_equal_or_missing_pages_raise_no_alert() {
    let mut site = Site::normal(PAGE);
    // A few equal pages in a row: the empty end of a listing.
    for _ in 0..20 {
        site.give(5, BLOCK);
        site.give(3, PAGE);
    }
    // Small fast pages from one template.
    site.give(
        50,
        SiteReply {
            digest: None,
            ..BLOCK
        },
    );
    // Missing pages that are all equal; redirects.
    site.give(
        50,
        SiteReply {
            status: 404,
            ..BLOCK
        },
    );
    site.give(
        50,
        SiteReply {
            status: 302,
            ..BLOCK
        },
    );
    site.check(&[]);
    // Equal pages that are not small, or not fast.
    let mut site = Site::normal(PAGE);
    site.give(
        50,
        SiteReply {
            digest: Some(3),
            size: 15_000,
            ..PAGE
        },
    );
    site.check(&[]);
    let mut site = Site::normal(PAGE);
    site.give(
        50,
        SiteReply {
            digest: Some(4),
            size: 300,
            latency: 0.5,
            ..PAGE
        },
    );
    site.check(&[]);
}

#[test]
fn f96_a_captcha_form_on_a_normal_page_raises_no_alert() {
    let mut site = Site::normal(PAGE);
    let form = SiteReply {
        mark: Some("g-recaptcha"),
        ..PAGE
    };
    site.give(50, form);
    site.check(&[]);
    // Nor on a small page that has items.
    let mut site = Site::normal(SiteReply {
        items: Some(3),
        ..PAGE
    });
    site.give(
        50,
        SiteReply {
            size: 400,
            items: Some(3),
            ..form
        },
    );
    site.check(&[]);
}

#[test]
fn f103_refusals_at_every_pace_are_distinguished_from_a_rate_limit() {
    let refusal = SiteReply {
        status: 429,
        ..BLOCK
    };
    let mut site = Site::normal(PAGE);
    for step in 0..7 {
        site.gap = f64::from(1 << step);
        site.give(1, refusal);
    }
    site.check(&[(Kind::SlowingDoesNotHelp, false)]);
    site.give(50, refusal);
    site.check(&[(Kind::SlowingDoesNotHelp, false)]);
    site.give(2, PAGE);
    assert_eq!(site.raised.len(), 2);
    assert_eq!(site.suspect.kind(), None);
}

#[test]
fn f103_a_ban_at_the_longest_delay_is_recognised_by_its_length() {
    let mut site = Site::normal(PAGE);
    for gap in [0.1, 0.2, 0.4]
        .into_iter()
        .chain(std::iter::repeat_n(0.5, 17))
    {
        site.gap = gap;
        site.give(
            1,
            SiteReply {
                status: 503,
                ..BLOCK
            },
        );
    }
    site.check(&[(Kind::SlowingDoesNotHelp, false)]);
}

#[test]
fn which_statuses_are_refusals_is_a_setting() {
    let refusal = SiteReply {
        status: 420,
        ..BLOCK
    };
    for (http_codes, expected) in [(vec![420], 1), (vec![429, 503], 0)] {
        let mut site = Site::normal(PAGE);
        site.backoff.http_codes = http_codes;
        for step in 0..7 {
            site.gap = f64::from(1 << step);
            site.give(1, refusal);
        }
        assert_eq!(site.raised.len(), expected);
    }
}

#[test]
fn f103_only_403s_from_the_first_request_on_are_a_block() {
    let mut site = Site::new();
    assert_eq!(
        site.give(
            30,
            SiteReply {
                status: 403,
                ..BLOCK
            }
        ),
        Some(20)
    );
    site.check(&[(Kind::SlowingDoesNotHelp, false)]);
}

#[test]
fn f103_a_rate_limit_that_serves_some_requests_is_no_block() {
    let refusal = SiteReply {
        status: 429,
        ..BLOCK
    };
    let mut site = Site::new();
    // Far too fast: one page in sixty.
    site.gap = 0.003;
    for _ in 0..50 {
        site.give(60, refusal);
        site.give(1, PAGE);
    }
    // Backs off until it suffices, repeatedly.
    for _ in 0..20 {
        for step in 0..5 {
            site.gap = f64::from(1 << step);
            site.give(1, refusal);
        }
        site.give(3, PAGE);
    }
    // A few forbidden pages.
    for _ in 0..20 {
        site.give(
            10,
            SiteReply {
                status: 403,
                ..BLOCK
            },
        );
        site.give(1, PAGE);
    }
    site.check(&[]);
}

#[test]
fn the_detection_state_fits_into_128_bytes() {
    assert!(size_of::<Suspect>() <= 128);
}
