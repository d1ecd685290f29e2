//! PURE. What makes a batch, as it is said by the user.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What makes a batch: so many keys, for so long, of one group. See
/// [`Controller::run_batches`](crate::Controller::run_batches).
///
/// # Examples
/// ```
/// use flyball_controller::Batches;
/// use std::time::Duration;
///
/// // Up to a hundred of one namespace, and none waits longer than 50 ms for the others.
/// let batches = Batches::of(100)
///     .within(Duration::from_millis(50))
///     .by(|(namespace, _name): &(String, String)| namespace.clone());
/// # let _ = batches;
/// ```
#[must_use = "it only says what a batch is"]
pub struct Batches<K, G = ()> {
    pub(crate) size: usize,
    pub(crate) window: Duration,
    pub(crate) group: Arc<dyn Fn(&K) -> G + Send + Sync>,
}

impl<K> Batches<K> {
    /// Up to so many keys of what is Ready, whatever they are, and without waiting for more.
    pub fn of(size: usize) -> Self {
        Self { size, window: Duration::ZERO, group: Arc::new(|_| ()) }
    }
}

impl<K, G> Batches<K, G> {
    /// A batch that is not full waits so long for others, from its first key on.
    ///
    /// It waits no longer while a cap of [`Fair`](flyball_workqueue::Fair) holds Ready keys back: the keys of open batches count for that cap, and
    /// whether it is theirs is not known here. So as long as a group is at its cap, batches of other groups are smaller, too.
    pub fn within(self, window: Duration) -> Self {
        Self { window, ..self }
    }

    /// All keys of a batch are of one group. A key whose group is not found out, as this panics, is a failure.
    pub fn by<H>(self, group: impl Fn(&K) -> H + Send + Sync + 'static) -> Batches<K, H> {
        Batches { size: self.size, window: self.window, group: Arc::new(group) }
    }
}

impl<K, G> Clone for Batches<K, G> {
    fn clone(&self) -> Self {
        Self { size: self.size, window: self.window, group: self.group.clone() }
    }
}

impl<K, G> fmt::Debug for Batches<K, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Batches");
        debug.field("size", &self.size).field("window", &self.window).finish_non_exhaustive()
    }
}
