//! Pages as a stream and requests as a sink, polled by hand.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use argiope::io::sim::Sim;
use argiope::sim::{Reply, Web};
use argiope::{
    AsyncCrawl, Builder, ChannelSource, Config, Crawler, FinishReason, Request, SubmitError,
};
use futures_core::stream::{FusedStream, Stream};
use futures_sink::Sink;
use tokio::runtime;
use tokio::time::timeout;

/// No test takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn run<F: Future>(test: F) -> F::Output {
    let runtime = runtime::Builder::new_current_thread().enable_time().build();
    let timed = async { timeout(PATIENCE, test).await.expect("it ends") };
    runtime.expect("a runtime").block_on(timed)
}

fn builder() -> Builder {
    let config = Config::default()
        .with("DOWNLOAD_DELAY", 0)
        .and_then(|config| config.with("ROBOTSTXT_OBEY", false))
        .and_then(|config| config.with("FOLLOW", "none"));
    Crawler::builder(config.expect("sound settings"))
}

fn spawn(builder: Builder) -> AsyncCrawl<Sim> {
    let crawler = builder.build_in(&Web::new(|_| Reply::page("hello")), 1);
    crawler.expect("a crawler").spawn().expect("a thread")
}

fn get(number: u64) -> Request {
    Request::get(format!("http://a.test/{number}")).tag(number)
}

async fn pages_of(mut crawl: AsyncCrawl<Sim>) -> usize {
    let mut count = 0;
    while poll_fn(|context| Pin::new(&mut crawl).poll_next(context))
        .await
        .is_some()
    {
        count += 1;
    }
    assert!(crawl.is_terminated());
    let crawler = crawl.finish().await;
    let reason = crawler.progress().finish_reason;
    assert_eq!(reason, Some(FinishReason::Finished));
    count
}

#[test]
fn requests_are_sent_into_a_sink_as_there_is_room_and_pages_are_a_stream() {
    run(async {
        let crawl = spawn(builder().ahead(3));
        let mut sink = crawl.handle().into_sink();
        tokio::spawn(async move {
            for number in 0..500 {
                poll_fn(|context| Pin::new(&mut sink).poll_ready(context))
                    .await
                    .expect("room");
                Pin::new(&mut sink)
                    .start_send(get(number))
                    .expect("it was ready");
            }
            let bad = Request::get("ftp://a.test/");
            poll_fn(|context| Pin::new(&mut sink).poll_ready(context))
                .await
                .expect("room");
            Pin::new(&mut sink).start_send(bad).expect("it was ready");
            let refused = poll_fn(|context| Pin::new(&mut sink).poll_flush(context)).await;
            assert!(
                matches!(refused, Err(SubmitError::Rejected { .. })),
                "{refused:?}"
            );
            poll_fn(|context| Pin::new(&mut sink).poll_ready(context))
                .await
                .expect("room");
            Pin::new(&mut sink)
                .start_send(get(500))
                .expect("it was ready");
            // Its handle, the last one, is dropped.
            poll_fn(|context| Pin::new(&mut sink).poll_close(context))
                .await
                .expect("flushed");
            let late = Pin::new(&mut sink).start_send(get(501));
            assert!(matches!(late, Err(SubmitError::Over(_))), "{late:?}");
            std::mem::forget(sink);
        });
        assert_eq!(pages_of(crawl).await, 501);
    });
}

#[test]
fn a_sink_is_not_ready_while_its_request_has_no_room() {
    run(async {
        let crawl = spawn(builder().ahead(1));
        let handle = crawl.handle();
        handle.as_handle().pause();
        let mut sink = handle.clone().into_sink();
        let mut context = Context::from_waker(Waker::noop());
        for number in 0..2 {
            let ready = Pin::new(&mut sink).poll_ready(&mut context);
            assert!(matches!(ready, Poll::Ready(Ok(()))));
            Pin::new(&mut sink)
                .start_send(get(number))
                .expect("it was ready");
        }
        assert!(Pin::new(&mut sink).poll_ready(&mut context).is_pending());
        assert!(Pin::new(&mut sink).poll_close(&mut context).is_pending());
        handle.as_handle().resume();
        drop(handle);
        tokio::spawn(async move {
            poll_fn(|context| Pin::new(&mut sink).poll_close(context))
                .await
                .expect("flushed");
        });
        assert_eq!(pages_of(crawl).await, 2);
    });
}

#[test]
fn a_receiver_of_tokio_is_a_source() {
    run(async {
        let (sender, receiver) = tokio::sync::mpsc::channel(2);
        let crawl = spawn(builder().source(ChannelSource::from(receiver)));
        tokio::spawn(async move {
            for number in 0..300 {
                sender.send(get(number)).await.expect("the crawl receives");
            }
        });
        assert_eq!(pages_of(crawl).await, 300);
    });
}
