//! PURE. Threads that sleep in a blocking `get`, counted.

use flyball_ratelimit::Nanos;

/// Threads asleep in a blocking `get`.
#[derive(Default)]
pub(crate) struct Sleepers {
    pub(crate) asleep: usize,
    /// Signals given and not yet taken by a thread that woke up.
    pub(crate) signalled: usize,
    /// The deadline that one of them attends to: it sleeps no longer than until then.
    pub(crate) attended: Option<Nanos>,
}

impl Sleepers {
    /// A thread that slept is awake, whatever woke it.
    ///
    /// It takes one signal with it even if it woke for another reason; the thread that the signal really woke
    /// then wakes for nothing. The other way round, a signal would be lost.
    pub(crate) fn wake_up(&mut self, attended: Option<Nanos>) {
        self.asleep -= 1;
        self.signalled = self.signalled.saturating_sub(1);
        if attended.is_some() && self.attended == attended {
            self.attended = None;
        }
    }
}
