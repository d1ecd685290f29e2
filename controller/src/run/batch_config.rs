//! PURE. The configuration of batches.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The configuration of batches: the maximum size, the maximum wait, and the group of a key. See
/// [`Controller::run_batches`](crate::Controller::run_batches).
///
/// # Examples
/// ```
/// use flyball_controller::BatchConfig;
/// use std::time::Duration;
///
/// // Up to a hundred keys of one namespace. A batch waits at most 50 ms for more keys.
/// let batches = BatchConfig::new(100)
///     .max_wait(Duration::from_millis(50))
///     .group_by(|(namespace, _name): &(String, String)| namespace.clone());
/// # let _ = batches;
/// ```
#[must_use = "a batch configuration does nothing until it is passed to `run_batches`"]
pub struct BatchConfig<K, G = ()> {
    pub(crate) max_size: usize,
    pub(crate) max_wait: Duration,
    pub(crate) group: Arc<dyn Fn(&K) -> G + Send + Sync>,
}

impl<K> BatchConfig<K> {
    /// Configures batches of up to `max_size` keys. By default all keys are in one group, and a batch does not wait for more keys.
    pub fn new(max_size: usize) -> Self {
        Self { max_size, max_wait: Duration::ZERO, group: Arc::new(|_| ()) }
    }
}

impl<K, G> BatchConfig<K, G> {
    /// Sets how long a batch that is not full waits for more keys, from its first key on. In a [drain](crate::ControllerConfig::drain_on_shutdown), and in
    /// a run that [stops when it is idle](crate::ControllerConfig::stop_when_idle) once all informers have stopped, no batch waits.
    ///
    /// Keys in open batches are leased, so they count toward a [lease limit](flyball_workqueue::Fair::max_leased) of `Fair`. A batch also waits if such a
    /// limit, a [rate](flyball_workqueue::Fair::rate) or a [pause](flyball_workqueue::Queue::pause) holds back the keys that would fill it. So with
    /// lease limits, which may be too low for a batch to ever be full, set `max_wait` to a small part of the duration of a reconcile, or leave it at zero.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// Groups keys: a batch contains only keys of one group. If `group` panics, the key fails like a key whose reconcile panicked, without a call of
    /// [`finally`](crate::Controller::finally).
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
