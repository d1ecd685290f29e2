//! A running operation that the test polls only after a wake-up, so a lost wake-up leaves it pending.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::queue_ops::scene::Lease;
use crate::wakers::{Counting, poll_with};

/// The result of an operation.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) value: String,
    pub(crate) leases: Vec<Lease>,
}

impl Answer {
    pub(crate) fn value(value: impl fmt::Debug) -> Self {
        Self { value: format!("{value:?}"), leases: Vec::new() }
    }

    pub(crate) fn nothing() -> Self {
        Self::value("done")
    }

    pub(crate) fn leased(leases: impl IntoIterator<Item = Lease>) -> Self {
        let leases: Vec<_> = leases.into_iter().collect();
        let keys: Vec<u32> = leases.iter().map(|lease| **lease).collect();
        Self { value: format!("got {keys:?}"), leases }
    }
}

/// The condition for which an operation waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// The operation does not wait.
    Nothing,
    /// A key that can be handed out.
    Key,
    /// Capacity for a key.
    Room,
    /// The end of a drain, after the queue was shut down.
    Drained,
    /// A queue that is idle.
    Idle,
    /// A lease that is overdue.
    Overdue,
}

pub(crate) struct Task {
    /// The number of the operation; 0 for the initial waiters.
    pub(crate) side: u32,
    pub(crate) waits_for: For,
    future: Pin<Box<dyn Future<Output = Answer> + Send>>,
    woken: Arc<Counting>,
    waker: Waker,
    /// The number of wake-ups before the last poll; `None` before the first poll.
    seen: Option<usize>,
    pub(crate) answer: Option<Answer>,
}

impl Task {
    pub(crate) fn new(
        side: u32,
        waits_for: For,
        future: impl Future<Output = Answer> + Send + 'static,
    ) -> Self {
        let (woken, waker) = Counting::waker();
        Self { side, waits_for, future: Box::pin(future), woken, waker, seen: None, answer: None }
    }

    /// Polls the operation unless it has completed or was not woken. Returns true if it was polled.
    pub(crate) fn poll(&mut self) -> bool {
        let wakes = self.woken.wakes();
        if self.answer.is_some() || self.seen == Some(wakes) {
            return false;
        }
        self.seen = Some(wakes);
        if let Poll::Ready(answer) = poll_with(self.future.as_mut(), &self.waker) {
            self.answer = Some(answer);
        }
        true
    }
}

/// Yields once between two steps of an operation, so that the other operation can run steps.
pub(crate) async fn step() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
