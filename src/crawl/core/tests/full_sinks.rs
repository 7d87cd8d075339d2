//! Crawls in virtual time whose sink takes nothing more.

use std::time::Duration;

use crate::crawl::core::tests::log::{capture, captured};
use crate::crawl::core::tests::trial::{calm, crawl, get, run_for};

#[test]
fn a_sink_that_stays_full_while_something_waits_for_it_is_warned_of_once() {
    let (mut crawler, _handle, record) = crawl(calm(Duration::from_millis(10)), 1, |_, _| {});
    let mut page = 0;
    let mut submit = |crawler: &mut crate::crawl::Crawler<_>| {
        for _ in 0..3 {
            crawler.submit(get(1, page)).expect("it is a URL");
            page += 1;
        }
    };
    let second = Duration::from_secs(1);
    capture();
    record.room.set(Some(0));
    submit(&mut crawler);
    run_for(&mut crawler, second * 19 / 2);
    assert_eq!(captured(), [""; 0], "a slow disk is not logged");
    run_for(&mut crawler, second);
    let warning = "WARN: the sink has not been ready for 10 s: 3 queued, 0 active and 0 finished \
                   requests wait for it";
    assert_eq!(captured(), [warning]);
    run_for(&mut crawler, second * 60);
    assert_eq!(captured(), [""; 0], "once");

    record.room.set(None);
    run_for(&mut crawler, second);
    assert_eq!(record.pages.borrow().len(), 3, "it goes on where it stood");
    record.room.set(Some(0));
    // A sleeping crawl does not poll the sink, so let it run first.
    run_for(&mut crawler, second);
    run_for(&mut crawler, second * 30);
    assert_eq!(captured(), [""; 0], "nothing waits for it");
    submit(&mut crawler);
    run_for(&mut crawler, second);
    assert_eq!(captured(), [warning], "another stretch");
}
