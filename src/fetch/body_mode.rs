//! Mode in which a sink takes a body; decided once the head is known.

/// Mode in which a sink takes the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyMode {
    /// Complete, in the page: up to `DOWNLOAD_MAXSIZE` bytes are kept in memory until the end.
    /// Required for links and WARC records.
    #[default]
    Keep,
    /// In pieces, through `Sink::on_body`, after content decoding: at most 64 KiB each, however
    /// much a few bytes decode to. The length is not limited; the page contains only the head, and
    /// no links are found.
    Take,
    /// Not at all. The body is read, so that the connection can be reused, and discarded; one
    /// longer than `DOWNLOAD_MAXSIZE` is cut there, and its connection closed.
    Skip,
    /// Not at all, and not read: the connection is closed, and the page ends as
    /// `cancelled.by_sink`.
    Cancel,
}
