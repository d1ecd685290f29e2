//! PURE. The status of a cache that a controller watches.

use std::fmt;
use std::sync::Arc;

use flyball_informer_cache::InformerState;

/// The status of a cache that a controller watches.
///
/// # Examples
/// Returns the caches for which a controller that is not ready still waits, as text for a log line:
/// ```
/// use flyball_controller::{CacheStatus, Health};
///
/// fn missing(health: &Health) -> Vec<String> {
///     let caches: Vec<CacheStatus> = health.caches();
///     let missing = caches.iter().filter(|cache| cache.required && !cache.synced);
///     missing.map(|cache| format!("{cache}, which is {:?}", cache.state)).collect()
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStatus {
    /// The number of the watch, in the order in which the watches were added to the controller, from 0.
    pub index: usize,
    /// The name of the object type, for display; its format is not stable.
    pub object_type: &'static str,
    /// Whether workers wait for the cache; see [`WatchOptions::optional`](crate::WatchOptions::optional).
    pub required: bool,
    /// Whether the first list is published.
    pub synced: bool,
    /// The state of the informer.
    pub state: InformerState,
    /// The message of the source's last error; `None` once the source has responded without an error again.
    pub last_error: Option<Arc<str>>,
}

impl fmt::Display for CacheStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cache of `{}`, number {}", self.object_type, self.index)?;
        match &self.last_error {
            Some(error) => write!(f, " (last error: {error})"),
            None => Ok(()),
        }
    }
}
