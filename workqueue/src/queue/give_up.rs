//! EDGE. Giving up keys that failed too often.
//!
//! Cancel safety: nothing here waits.

/// The number of failures after which a key is given up, and the hook that is then called.
pub(crate) struct GiveUp<K> {
    most: u32,
    hook: Box<OnGiveUp<K>>,
}

type OnGiveUp<K> = dyn Fn(&K, u32) + Send + Sync;

impl<K> GiveUp<K> {
    pub(crate) fn new(most: u32, hook: impl Fn(&K, u32) + Send + Sync + 'static) -> Self {
        Self { most, hook: Box::new(hook) }
    }

    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Calls the hook. The hook is user code, so call this outside every lock.
    pub(crate) fn notify(&self, key: &K, failures: u32) {
        (self.hook)(key, failures);
    }
}
