//! An operation under way, polled by hand: only when it was woken, so a lost wake-up leaves it where it is.

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
    pub(crate) said: String,
    pub(crate) leases: Vec<Lease>,
}

impl Answer {
    pub(crate) fn said(said: impl fmt::Debug) -> Self {
        Self { said: format!("{said:?}"), leases: Vec::new() }
    }

    pub(crate) fn nothing() -> Self {
        Self::said("done")
    }

    pub(crate) fn handed(leases: impl IntoIterator<Item = Lease>) -> Self {
        let leases: Vec<_> = leases.into_iter().collect();
        let keys: Vec<u32> = leases.iter().map(|lease| **lease).collect();
        Self { said: format!("got {keys:?}"), leases }
    }
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// It does not wait.
    Nothing,
    /// A key that can be handed out.
    Key,
    /// Room for a key.
    Room,
    /// The end of a queue that is shut down.
    Drained,
    /// A queue that is idle.
    Idle,
    /// A lease that is overdue.
    Overdue,
}

pub(crate) struct Task {
    /// 0 for the waiters from before the operations.
    pub(crate) side: u32,
    pub(crate) waits_for: For,
    future: Pin<Box<dyn Future<Output = Answer> + Send>>,
    woken: Arc<Counting>,
    waker: Waker,
    /// Wake-ups before the last poll; `None` before the first.
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

    /// Polls it unless it has its answer, or sleeps. Says whether it did.
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

/// Between two steps of an operation: the other one may take some of its own here.
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
