//! PURE. The faults of a server that last until they are cleared.

/// The faults of a [`TestServer`](super::TestServer) that last until they are cleared. None by default.
///
/// # Examples
/// ```
/// use flyball_informer_cache::testing::{Faults, TestServer};
/// use flyball_informer_cache::{ListRequest, ListVersion, Schema, Source, Version};
///
/// let server = TestServer::new(Schema::new(|n: &u64| *n, |_| Version::ZERO), |_, _, _| {});
/// server.put(7);
/// let list = || server.list(ListRequest { min_version: ListVersion::Any, limit: None, continuation: None });
/// let ask = || flyball_sync::block_on_timeout(list(), std::time::Duration::from_millis(1));
///
/// server.set_faults(|faults: &mut Faults| faults.unresponsive = true);
/// assert!(ask().is_none());
/// server.clear_faults();
/// assert_eq!(ask().unwrap()?.items, [7]);
/// # Ok::<(), flyball_informer_cache::SourceError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Faults {
    /// Whether the server does not answer requests. Open watches still deliver events.
    pub unresponsive: bool,
    /// Whether lists are not in the order of the keys, and a page may repeat an object of the page before.
    pub shuffled_lists: bool,
    /// Whether a streaming list never completes, because the event that ends it is not sent.
    pub endless_streaming_list: bool,
    /// Whether a watch first delivers events from before the version at which it starts.
    pub repeated_events: bool,
}
