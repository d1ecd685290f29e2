//! SHELL. Wakers are user code, and may panic when they are woken, cloned or dropped.
//!
//! Where the panic of a waker goes. The panic hook runs in every case, and in every case, all other waiters are woken first, no lock is held, and
//! the waiter is treated as woken.
//!
//! | woken by | the panic |
//! |---|---|
//! | an operation of a queue or a limiter | is resumed in the caller of the operation, or discarded if the thread is panicking already |
//! | a write to a cache | is discarded, because a writer must not fail because of a reader |
//! | an alarm of a queue or a limiter, `ThreadTimer`, `TokioTimer` | is discarded: the timer, and the runtime that drives it, also serve others |
//! | `ManualClock::advance`, `ManualClock::set` | is resumed in the caller, for a waker that was passed to a timer directly |
//!
//! A waker is cloned only inside the call that passes it, before this call changes anything. It is dropped by that waiter's next call, or when it is
//! woken.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::locks::Mutex;
use crate::panics::{Panic, caught, keep_first};

/// Wakes all wakers, even if some panic. The caller must not hold a lock.
///
/// # Errors
/// Returns the first panic.
#[inline]
pub fn wake_all(wakers: impl IntoIterator<Item = Waker>) -> Result<(), Panic> {
    let mut result = Ok(());
    for waker in wakers {
        keep_first(&mut result, catch_unwind(AssertUnwindSafe(|| waker.wake())));
    }
    result
}

/// A waker that can be given to foreign code, such as the timer driver of a runtime: waking, cloning and dropping it never panics. It wakes the user's
/// waker that was [set](Self::replace) last, at most once.
///
/// | guarded by the lock | |
/// |---|---|
/// | the user's waker | replaced; woken and dropped outside the lock |
#[derive(Debug)]
pub struct ContainedWaker {
    contained: Arc<Contained>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Contained(Mutex<Option<Waker>>);

impl ContainedWaker {
    /// Creates a waker that wakes nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let contained = Arc::new(Contained::default());
        Self { waker: contained.clone().into(), contained }
    }

    /// Sets the waker to wake, or none. Returns the one that was set before and not woken; dropping it may panic.
    #[must_use = "dropping it may panic"]
    pub fn replace(&self, waker: Option<Waker>) -> Option<Waker> {
        mem::replace(&mut *self.contained.0.lock(), waker)
    }

    /// The waker to give away.
    #[must_use]
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}

impl Default for ContainedWaker {
    fn default() -> Self {
        Self::new()
    }
}

impl Wake for Contained {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waker = self.0.lock().take();
        caught(|| waker.map(Waker::wake));
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let waker = self.0.lock().take();
        caught(|| drop(waker));
    }
}
