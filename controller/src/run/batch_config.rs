//! PURE. What makes a batch, as it is said by the user.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What makes a batch: so many keys, for so long, of one group. See
/// [`Controller::run_batches`](crate::Controller::run_batches).
///
/// # Examples
/// ```
/// use flyball_controller::BatchConfig;
/// use std::time::Duration;
///
/// // Up to a hundred of one namespace, and none waits longer than 50 ms for the others.
/// let batches = BatchConfig::new(100)
///     .max_wait(Duration::from_millis(50))
///     .group_by(|(namespace, _name): &(String, String)| namespace.clone());
/// # let _ = batches;
/// ```
#[must_use = "it only says what a batch is"]
pub struct BatchConfig<K, G = ()> {
    pub(crate) max_size: usize,
    pub(crate) max_wait: Duration,
    pub(crate) group: Arc<dyn Fn(&K) -> G + Send + Sync>,
}

impl<K> BatchConfig<K> {
    /// Up to so many keys of what is Ready, whatever they are, and without waiting for more.
    pub fn new(max_size: usize) -> Self {
        Self { max_size, max_wait: Duration::ZERO, group: Arc::new(|_| ()) }
    }
}

impl<K, G> BatchConfig<K, G> {
    /// A batch that is not full waits so long for others, from its first key on.
    ///
    /// It waits no longer while a cap of [`Fair`](flyball_workqueue::Fair) holds Ready keys back: the keys of open batches count for that cap, and
    /// whether it is theirs is not known here. So as long as a group is at its cap, batches of other groups are smaller, too.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// All keys of a batch are of one group. A key whose group is not found out, as this panics, is a failure.
    pub fn group_by<H>(self, group: impl Fn(&K) -> H + Send + Sync + 'static) -> BatchConfig<K, H> {
        BatchConfig { max_size: self.max_size, max_wait: self.max_wait, group: Arc::new(group) }
    }
}

impl<K, G> Clone for BatchConfig<K, G> {
    fn clone(&self) -> Self {
        Self { max_size: self.max_size, max_wait: self.max_wait, group: self.group.clone() }
    }
}

impl<K, G> fmt::Debug for BatchConfig<K, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("BatchConfig");
        debug.field("max_size", &self.max_size).field("max_wait", &self.max_wait).finish_non_exhaustive()
    }
}
