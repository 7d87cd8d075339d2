//! What is left when a crawl ends: queued requests and unread seeds, for `pending.jsonl` and the state.

use std::cell::RefCell;
use std::iter;
use std::path::Path;
use std::time::Duration;

use argiope::Crawler;

use super::feed::{Feeder, Unfed};
use super::pending;
use super::room::Room;
use super::signals::Received;
use super::unread;

/// Writes the queued requests and the unread seeds to `pending.jsonl`. Returns their count, and the error
/// of reading the seeds, if any. `room_within`: how long space is waited for; `None`: until a stop signal.
pub fn keep_pending(
    crawler: &mut Crawler,
    feeder: Feeder,
    out: &Path,
    received: &Received,
    room_within: Option<Duration>,
) -> anyhow::Result<(u64, Option<String>)> {
    let patience = crawler.config().stop_grace();
    let mut unfed = feeder.unfed(patience, received);
    let queued = crawler.take_pending().map(|pending| pending.request);
    let unread = unfed.iter_mut().flatten();
    let mut room = Room::new(
        pending::NAME,
        "discard the queued requests",
        received.clone(),
    )
    .for_at_most(room_within);
    let count = pending::write(queued.chain(unread), out, &mut |error| room.wait(error))
        .map_err(|error| anyhow::anyhow!("{error:#}; what is not in it is lost"))?;
    Ok((count, unfed.and_then(Unfed::failure)))
}

/// The same for a crawl with a state. What pipes delivered goes into it; it has all the rest, or the run that resumes
/// the crawl reads it again. So the file is a copy, for which nothing waits.
///
/// # Errors
/// What pipes delivered cannot be written.
pub fn export_pending(
    crawler: &mut Crawler,
    feeder: Feeder,
    folder: &Path,
    out: &Path,
    received: &Received,
    room_within: Option<Duration>,
) -> anyhow::Result<(u64, Option<String>)> {
    let patience = crawler.config().stop_grace();
    let is_of_pipe = feeder.is_of_pipe();
    let mut unfed = feeder.unfed(patience, received);
    let mut pipes = unfed.as_mut().map(Unfed::split_pipes);
    // What was submitted and not taken: as many as may be submitted ahead.
    let submitted = RefCell::new(Vec::new());
    let queued = crawler.take_pending().filter_map(|pending| {
        match pending.position.is_some_and(&is_of_pipe) {
            true => {
                submitted.borrow_mut().push(pending.request);
                None
            }
            false => Some(pending.request),
        }
    });
    // Once all that was submitted is known.
    let mut lost = None;
    let of_pipes = iter::once(()).flat_map(|()| {
        let mut room = Room::new(
            "the state",
            "discard what pipes delivered",
            received.clone(),
        )
        .for_at_most(room_within);
        let submitted = submitted.take().into_iter();
        let all = submitted.chain(pipes.iter_mut().flatten());
        let written = unread::write(all, folder, &mut |error| room.wait(error));
        let read = written.and_then(|path| path.map(|path| unread::requests(&path)).transpose());
        read.unwrap_or_else(|error| {
            lost = Some(error.context("what pipes delivered and is not in it is lost"));
            None
        })
        .into_iter()
        .flatten()
    });
    let of_files = unfed.iter_mut().flatten();
    let mut requests = queued.chain(of_files).chain(of_pipes);
    let mut count = 0;
    let counted = requests.by_ref().inspect(|_| count += 1);
    if let Err(error) = pending::write(counted, folder, &mut |_| false) {
        pending::remove_unfinished(folder);
        count += requests.by_ref().count() as u64;
        let out = out.display();
        log::warn!(
            "{error:#}; nothing is lost: continue with --resume --out {out}, or write them by `argiope state {out} --export`"
        );
    }
    drop(requests);
    match lost {
        Some(lost) => Err(lost),
        None => {
            let failures = unfed.into_iter().chain(pipes).filter_map(Unfed::failure);
            Ok((count, failures.into_iter().next()))
        }
    }
}

/// A message with the number of requests that are not saved, queued or in unread seeds; `None` if there
/// are none. And the error of reading the seeds, if any.
pub fn unsaved(
    crawler: &mut Crawler,
    feeder: Feeder,
    received: &Received,
) -> (Option<String>, Option<String>) {
    let patience = crawler.config().stop_grace();
    let mut unfed = feeder.unfed(patience, received);
    let seeds = unfed.iter_mut().flatten().take(COUNTED_MAX).count();
    let more = if seeds == COUNTED_MAX { " or more" } else { "" };
    let lost = match crawler.take_pending().count() + seeds {
        0 => None,
        count => Some(format!("{count}{more} queued requests are not saved")),
    };
    (lost, unfed.and_then(Unfed::failure))
}

/// Maximum unread seeds that are counted, so that a long file does not delay the end of a crawl.
const COUNTED_MAX: usize = 1_000_000;
