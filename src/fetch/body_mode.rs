//! How much of a reply's body is wanted, which is known once its head is there.

/// What a sink wants of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyMode {
    /// All of it at once, in the page: up to `DOWNLOAD_MAXSIZE` bytes are kept in memory until then.
    /// Links are looked for in it, and records can be written of it.
    #[default]
    Keep,
    /// Piece by piece, by `Sink::on_body`, content codings undone: 64 KiB at most in each, however much a few
    /// bytes decode to. It may be of any length; of the page only the head is kept, and no links are found.
    Take,
    /// Nothing. It is read, so that the connection can be used again, and dropped; one longer than
    /// `DOWNLOAD_MAXSIZE` is cut there, and its connection closed.
    Skip,
    /// Nothing, nor is it read: the connection ends here, and the page is `cancelled.by_sink`.
    Cancel,
}
