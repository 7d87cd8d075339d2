//! Requests that are admitted to a file: when they are recorded, and how their URLs count.

use std::path::Path;
use std::time::Duration;

use crate::crawl::config::Config;
use crate::crawl::core::tests::trial::{config, run_for, web_resolver};
use crate::crawl::journal::state::State;
use crate::crawl::{Crawler, Parts};
use crate::frontier::request::Request;
use crate::io::IoSettings;
use crate::io::sim::web::{Reply, Web};
use crate::io::sim::{Faults, Sim};
use crate::sink::NullSink;

/// A crawl with a state, whose requests wait in files.
fn crawl(web: &Web, edit: impl FnOnce(&mut Config)) -> Crawler<Sim> {
    let mut config = config(1);
    config.frontier.memory_max = 1;
    config.state_sync = Duration::from_millis(100);
    edit(&mut config);
    let state = State::new(Path::new("out"), String::new(), [3; 16]).expect("it is short");
    let mut io = Sim::with(1, IoSettings::default(), Faults::default(), web.world());
    let mut files = io.files().clone();
    state.beginning().write_to(&mut files);
    io.put_files(files);
    let mut parts = Parts::new(NullSink);
    parts.state = Some(state);
    let config = config.finish().expect("a sound config");
    Crawler::on(io, config, web_resolver(), parts).expect("a crawler")
}

/// What a crawl that is killed now leaves.
fn killed(crawler: &Crawler<Sim>) -> State {
    State::load_from(Path::new("out"), crawler.io().files()).expect("it can be read")
}

fn page(number: u64) -> Request {
    Request::get(format!("http://a.test/{number}"))
}

#[test]
fn a_request_in_the_tail_is_committed_though_nothing_else_happens() {
    let web = Web::new(|_| Reply::text("done").after(Duration::from_secs(7200)));
    let mut crawler = crawl(&web, |_| ());
    let handle = crawler.handle();
    for number in 0..20 {
        crawler.submit(page(number)).expect("it is a URL");
    }
    run_for(&mut crawler, Duration::from_secs(10));
    assert_eq!(killed(&crawler).queued(), 20);
    for number in 20..30 {
        crawler.submit(page(number)).expect("it is a URL");
    }
    run_for(&mut crawler, Duration::from_secs(10));
    assert_eq!(killed(&crawler).queued(), 30);
    drop(handle);
}
