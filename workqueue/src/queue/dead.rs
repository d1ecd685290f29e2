//! EDGE. Keys that failed too often.
//!
//! Cancel safety: nothing here waits.

/// How many failures are too many, and who is told.
pub(crate) struct DeadLetters<K> {
    most: u32,
    tell: Box<Tell<K>>,
}

type Tell<K> = dyn Fn(&K, u32) + Send + Sync;

impl<K> DeadLetters<K> {
    pub(crate) fn new(most: u32, tell: impl Fn(&K, u32) + Send + Sync + 'static) -> Self {
        Self { most, tell: Box::new(tell) }
    }

    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// User code: outside every lock.
    pub(crate) fn tell(&self, key: &K, failures: u32) {
        (self.tell)(key, failures);
    }
}
