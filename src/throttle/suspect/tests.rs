//! Sites that block and sites that only look like it, reply by reply.

use super::*;

/// A site's replies, one every `gap` seconds.
struct Site {
    suspect: Suspect,
    now: Instant,
    gap: f64,
    next: u64,
    heard: Vec<Suspicion>,
}

/// One reply, of the kind that a normal page is.
#[derive(Clone, Copy)]
struct Given {
    status: u16,
    /// `None`: like no other.
    digest: Option<u64>,
    size: u64,
    latency: f64,
    mark: Option<&'static str>,
    items: Option<u32>,
}

const PAGE: Given = Given {
    status: 200,
    digest: None,
    size: 20_000,
    latency: 0.05,
    mark: None,
    items: None,
};

/// What is served in place of every page during a block.
const BLOCK: Given = Given {
    digest: Some(1),
    size: 700,
    latency: 0.0001,
    ..PAGE
};

impl Site {
    fn new() -> Self {
        Site {
            suspect: Suspect::new(),
            now: Instant::START,
            gap: 0.05,
            next: 100,
            heard: Vec::new(),
        }
    }

    /// A site that was normal for a hundred pages.
    fn normal(page: Given) -> Self {
        let mut site = Site::new();
        site.give(100, page);
        site
    }

    /// Gives `count` replies; says how many it took until something was heard.
    fn give(&mut self, count: usize, given: Given) -> Option<usize> {
        let mut heard = None;
        for number in 1..=count {
            self.next += 1;
            self.now += Duration::from_secs_f64(self.gap).max(self.suspect.delay());
            let ending = Ending {
                size: given.size,
                digest: given.digest.unwrap_or(self.next),
                mark: given.mark,
                items: given.items,
                ..Ending::default()
            };
            let latency = Some(Duration::from_secs_f64(given.latency));
            let news = self
                .suspect
                .ended(Some(given.status), latency, &ending, self.now);
            if let Some(news) = news {
                self.heard.push(news);
                heard = heard.or(Some(number));
            }
        }
        heard
    }

    fn check(&self, expected: &[(Kind, bool)]) {
        let heard: Vec<_> = self.heard.iter().map(|h| (h.kind, h.cleared)).collect();
        assert_eq!(heard, expected);
    }
}

#[test]
fn f96_one_tiny_page_for_every_url_is_recognised_within_ten_replies() {
    let mut site = Site::normal(PAGE);
    let took = site.give(50, BLOCK);
    assert!(took.is_some_and(|took| took <= 10), "{took:?}");
    site.check(&[(Kind::SameTinyPage, false)]);
}

#[test]
fn f96_on_a_site_of_small_pages_too() {
    let mut site = Site::normal(Given { size: 500, ..PAGE });
    let took = site.give(50, BLOCK);
    assert!(took.is_some_and(|took| took <= 10), "{took:?}");
}

#[test]
fn f96_challenges_are_recognised_by_their_marks_even_where_each_differs() {
    let mut site = Site::normal(PAGE);
    let captcha = Given {
        digest: None,
        mark: Some("g-recaptcha"),
        ..BLOCK
    };
    assert_eq!(site.give(50, captcha), Some(3));
    site.check(&[(Kind::Captcha, false)]);
    assert!(site.heard[0].reason.contains("g-recaptcha"));
}

#[test]
fn f96_a_refusal_with_a_challenge_in_it_needs_no_baseline() {
    let mut site = Site::new();
    let challenge = Given {
        status: 403,
        mark: Some("challenge-platform"),
        ..BLOCK
    };
    assert_eq!(site.give(5, challenge), Some(3));
    site.check(&[(Kind::Captcha, false)]);
}

#[test]
fn f96_the_scope_slows_down_more_and_more_and_is_back_at_once_with_normal_pages() {
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
    // Were it to begin anew, it would be seen anew.
    assert_eq!(site.give(10, BLOCK), Some(8));
}

#[test]
fn f96_what_was_in_flight_when_the_suspicion_came_up_widens_nothing() {
    let mut site = Site::normal(PAGE);
    site.give(8, BLOCK);
    let ending = Ending {
        digest: 1,
        ..Ending::default()
    };
    for _ in 0..16 {
        site.suspect.ended(Some(200), None, &ending, site.now);
    }
    assert_eq!(site.suspect.delay(), Duration::from_secs(5));
}

#[test]
fn f97_an_end_of_items_while_replies_are_quick_gives_exactly_one_alert() {
    let fertile = Given {
        items: Some(12),
        ..PAGE
    };
    let barren = Given {
        items: Some(0),
        latency: 0.01,
        ..PAGE
    };
    let mut site = Site::normal(fertile);
    let took = site.give(200, barren);
    assert!(took.is_some_and(|took| took <= 10), "{took:?}");
    site.check(&[(Kind::ItemsGone, false)]);
    site.give(2, fertile);
    site.check(&[(Kind::ItemsGone, false), (Kind::ItemsGone, true)]);
}

#[test]
fn f97_pages_without_items_are_no_alert_where_they_are_usual_or_slow() {
    let page = |items, latency| Given {
        items: Some(items),
        latency,
        ..PAGE
    };
    // About half of the pages have items, in batches.
    let mut site = Site::new();
    for barren in [1, 5, 3, 4, 7, 5, 9, 2, 11, 12, 5, 20].repeat(3) {
        site.give(6, page(5, 0.05));
        site.give(barren, page(0, 0.05));
    }
    site.check(&[]);
    // And by chance: ten in a row are rare then, but not too rare.
    let mut site = Site::new();
    for barren in [1, 1, 2, 1, 1, 3, 1, 1, 1, 2, 1, 10] {
        site.give(1, page(5, 0.05));
        site.give(barren, page(0, 0.05));
    }
    site.check(&[]);
    // Only one in ten.
    let mut rare = Site::new();
    for _ in 0..30 {
        rare.give(1, page(5, 0.05));
        rare.give(9, page(0, 0.05));
    }
    rare.give(200, page(0, 0.05));
    rare.check(&[]);
    // Never any.
    let mut none = Site::normal(page(0, 0.05));
    none.give(500, page(0, 0.05));
    none.check(&[]);
    // Gone, but the server is slow: nobody answers in its place.
    let mut slow = Site::normal(page(5, 0.05));
    slow.give(50, page(0, 0.5));
    slow.check(&[]);
}

#[test]
fn f96_no_alarm_where_it_always_was_like_that() {
    // One page for all URLs, from the first on.
    let mut site = Site::new();
    site.give(500, BLOCK);
    site.check(&[]);
    // Two small pages that take turns.
    let mut site = Site::new();
    for _ in 0..300 {
        site.give(
            1,
            Given {
                digest: Some(1),
                size: 900,
                ..PAGE
            },
        );
        site.give(
            1,
            Given {
                digest: Some(2),
                size: 800,
                ..PAGE
            },
        );
    }
    site.check(&[]);
    // Captchas in the forms of ordinary pages.
    let form = Given {
        mark: Some("g-recaptcha"),
        ..PAGE
    };
    let mut site = Site::normal(form);
    site.give(50, Given { size: 300, ..form });
    site.check(&[]);
}

#[test]
fn f96_no_alarm_for_what_a_normal_site_does_now_and_then() {
    let mut site = Site::normal(PAGE);
    // A few equal pages in a row: the empty end of a listing.
    for _ in 0..20 {
        site.give(5, BLOCK);
        site.give(3, PAGE);
    }
    // Small quick pages of one template.
    site.give(
        50,
        Given {
            digest: None,
            ..BLOCK
        },
    );
    // Missing pages, all of them alike; redirects.
    site.give(
        50,
        Given {
            status: 404,
            ..BLOCK
        },
    );
    site.give(
        50,
        Given {
            status: 302,
            ..BLOCK
        },
    );
    site.check(&[]);
    // Equal pages that are not small, or not quick.
    let mut site = Site::normal(PAGE);
    site.give(
        50,
        Given {
            digest: Some(3),
            size: 15_000,
            ..PAGE
        },
    );
    site.check(&[]);
    let mut site = Site::normal(PAGE);
    site.give(
        50,
        Given {
            digest: Some(4),
            size: 300,
            latency: 0.5,
            ..PAGE
        },
    );
    site.check(&[]);
}

#[test]
fn f96_no_alarm_for_a_form_with_a_captcha_on_a_page_like_all_others() {
    let mut site = Site::normal(PAGE);
    let form = Given {
        mark: Some("g-recaptcha"),
        ..PAGE
    };
    site.give(50, form);
    site.check(&[]);
    // Nor on a small one that has what the crawl is after.
    let mut site = Site::normal(Given {
        items: Some(3),
        ..PAGE
    });
    site.give(
        50,
        Given {
            size: 400,
            items: Some(3),
            ..form
        },
    );
    site.check(&[]);
}

#[test]
fn f103_refusals_at_every_pace_are_told_from_a_rate_limit() {
    let refusal = Given {
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
    assert_eq!(site.heard.len(), 2);
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
            Given {
                status: 503,
                ..BLOCK
            },
        );
    }
    site.check(&[(Kind::SlowingDoesNotHelp, false)]);
}

#[test]
fn f103_everything_forbidden_from_the_first_request_on_is_a_block() {
    let mut site = Site::new();
    assert_eq!(
        site.give(
            30,
            Given {
                status: 403,
                ..BLOCK
            }
        ),
        Some(20)
    );
    site.check(&[(Kind::SlowingDoesNotHelp, false)]);
}

#[test]
fn f103_a_rate_limit_that_lets_something_through_is_no_block() {
    let refusal = Given {
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
    // Backing off until it suffices, again and again.
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
            Given {
                status: 403,
                ..BLOCK
            },
        );
        site.give(1, PAGE);
    }
    site.check(&[]);
}

#[test]
fn the_state_of_a_scope_fits_into_128_bytes() {
    assert!(size_of::<Suspect>() <= 128);
}
