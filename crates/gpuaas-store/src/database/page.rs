//! Pages of lists.

/// Which part of a list to read. A list is read whole by asking for the page after the last item
/// until a page is not full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<K> {
    /// Key of the last item of the page before; none: from the beginning.
    pub after: Option<K>,
    /// Most items of the page.
    pub limit: u32,
}

impl<K> Page<K> {
    /// The first `limit` items.
    #[must_use]
    pub const fn first(limit: u32) -> Self {
        Self { after: None, limit }
    }
}
