//! EDGE. The future that deletes expired objects at their deadlines.
//!
//! Cancel safety: the future holds no object. If it is dropped, the deadlines stay, and writes and [`sweep`](super::TtlWriter::sweep) delete what has
//! expired. It holds a weak reference to the writer, so it does not keep the store open.

use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use flyball_sync::panics::caught;

use super::Shared;

/// The maximum number of objects that are deleted in one poll.
const STEP: usize = 64;

pub(super) struct Sweeper<K, V> {
    shared: Weak<Shared<K, V>>,
}

impl<K, V> Sweeper<K, V> {
    pub(super) fn new(shared: &Arc<Shared<K, V>>) -> Self {
        Self { shared: Arc::downgrade(shared) }
    }
}

impl<K, V> Future for Sweeper<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(shared) = self.shared.upgrade() else { return Poll::Ready(()) };
        let now = shared.timer.now();
        for _ in 0..STEP {
            // A panic of user code is ignored: the deletion is complete, or the object expires again later.
            if caught(|| shared.sweep_next(now)) == Some(false) {
                let waker = Some(cx.waker().clone());
                // One critical section; invariant 2.
                let (replaced, first) = {
                    let mut deadlines = shared.deadlines.lock();
                    (deadlines.sleep(waker), deadlines.first())
                };
                drop(replaced);
                match first {
                    Some(deadline) => shared.timer.wake_at(deadline, cx.waker()),
                    None => shared.timer.disarm(),
                }
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Drops the waker of the task, and removes the alarm.
impl<K, V> Drop for Sweeper<K, V> {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let waker = shared.deadlines.lock().sleep(None);
        caught(|| drop(waker));
        caught(|| shared.timer.disarm());
    }
}
