//! A queue for a controller, and a log to which reconciles append entries.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_sync::TokioTimer;
use flyball_workqueue::{Fifo, Queue};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Returns a queue whose failed keys wait 1 s, 2 s, 4 s … up to 60 s.
pub(crate) fn queue() -> Queue<u32, Fifo, Exponential<u32>, TokioTimer> {
    Queue::builder().limiter(Exponential::new(SECOND..=60 * SECOND)).timer(TokioTimer::current()).build()
}

/// A log of entries. Clones share the entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Log<T> {
    pub(crate) fn note(&self, entry: T) {
        self.0.lock().unwrap().push(entry);
    }

    /// Removes and returns the entries that were appended since the previous call.
    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Panics without calling the panic hook, which would print the message.
pub(crate) fn panic_quietly(message: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(message))
}
