//! PURE. The status of a watch of a controller.

use std::fmt;
use std::sync::Arc;

use flyball_informer_cache::InformerState;

/// The status of one watch of a controller: whether the cache that it watches has synced, and why not.
/// [`Health::watches`](crate::Health::watches) returns one for each watch; a cache that is watched twice has two.
///
/// # Examples
/// Returns the watches for whose caches a controller that is not ready still waits, as text for a log line:
/// ```
/// use flyball_controller::{Health, WatchStatus};
///
/// fn missing(health: &Health) -> Vec<String> {
///     let watches: Vec<WatchStatus> = health.watches();
///     let missing = watches.iter().filter(|watch| !watch.synced);
///     missing.map(|watch| format!("{watch}, which is {:?}", watch.state)).collect()
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchStatus {
    /// The number of the watch, in the order in which the watches were added to the controller, from 0.
    pub index: usize,
    /// The name of the object type, for display; its format is not stable.
    pub object_type: &'static str,
    /// Whether the first list of the cache is published.
    pub synced: bool,
    /// The state of the cache's informer.
    pub state: InformerState,
    /// The message of the source's last error; `None` once the source has responded without an error again.
    pub last_error: Option<Arc<str>>,
}

impl fmt::Display for WatchStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cache of `{}`, number {}", self.object_type, self.index)?;
        match &self.last_error {
            Some(error) => write!(f, " (last error: {error})"),
            None => Ok(()),
        }
    }
}
