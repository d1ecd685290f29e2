//! The waits of the simulation: for versions, for keys, for the first list, for the end, and for a consumer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use testkit::wakers::{Counting, poll_with};

/// What a wait has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Reached,
    Failed,
}

/// What a future waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Version(u64),
    FirstList,
    End,
    Consumer,
}

pub(super) struct Wait {
    pub(super) awaited: Awaited,
    future: Pin<Box<dyn Future<Output = Outcome>>>,
    wakes: Arc<Counting>,
    waker: Waker,
    waiting: bool,
}

impl Wait {
    pub(super) fn new(awaited: Awaited, future: impl Future<Output = Outcome> + 'static) -> Self {
        let (wakes, waker) = Counting::waker();
        Self { awaited, future: Box::pin(future), wakes, waker, waiting: false }
    }

    /// Polls the future. `holds` is whether what it waits for has happened. Returns whether the future is complete.
    pub(super) fn poll(&mut self, holds: Option<bool>) -> bool {
        let woken = self.wakes.wakes() > 0;
        if woken {
            // The next wait has a waker of its own, so that its wake-ups can be counted.
            (self.wakes, self.waker) = Counting::waker();
        }
        match poll_with(self.future.as_mut(), &self.waker) {
            Poll::Pending => {
                assert!(!woken || !self.waiting, "a wait for {:?} was woken without a cause", self.awaited);
                assert_ne!(holds, Some(true), "a wait for {:?} pends although it is over", self.awaited);
                self.waiting = true;
                false
            }
            Poll::Ready(outcome) => {
                assert!(woken || !self.waiting, "a wait for {:?} was not woken", self.awaited);
                assert!(
                    outcome == Outcome::Failed || holds != Some(false),
                    "{:?} is not reached",
                    self.awaited
                );
                true
            }
        }
    }

    /// Checks that the wait was woken if it is over. `over` is `None` if that is not known.
    pub(super) fn check(&self, over: Option<bool>) {
        let wakes = self.wakes.wakes();
        assert!(wakes <= 1, "a wait for {:?} was woken {wakes} times for one poll", self.awaited);
        assert!(
            !self.waiting || wakes > 0 || over != Some(true),
            "a wait for {:?} is over and was not woken",
            self.awaited
        );
        assert!(wakes == 0 || over != Some(false), "a wait for {:?} was woken without a cause", self.awaited);
    }

    /// Forgets the future without dropping it.
    pub(super) fn leak(self) {
        std::mem::forget(self.future);
    }
}
