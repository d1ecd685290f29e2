//! SHELL. The restart of a subscription whose bound is exceeded. All shared state is in the buffer.
//!
//! When the number of pending keys exceeds the bound, the buffer merges no further changes. The subscription notices this when it is asked for the
//! next item, discards what it has not delivered, and begins again with a new snapshot.

use std::hash::Hash;

use super::Subscription;

impl<K, V, E> Subscription<K, V, E>
where
    K: Clone + Eq + Hash,
{
    /// Discards all undelivered changes, and begins with a new snapshot. If the store was dropped, there is none, and the subscription ends.
    ///
    /// `restarting` is set meanwhile. If user code panics, it stays set, and the next call of `take` repeats the restart.
    pub(super) fn restart(&mut self) {
        self.restarting = true;
        self.forget();
        match self.store.upgrade() {
            // The table and the store are dropped at the end of this arm, before the restart is marked as complete: they may have the last references
            // to objects, whose drop may panic.
            Some(store) => self.begin(&store.restart_buffer(&self.buffer)),
            None => self.buffer.detach(),
        }
        self.restarting = false;
    }

    /// Discards everything that was taken out of the buffer, and the rest of the snapshot, without delivering it.
    fn forget(&mut self) {
        self.resync = false;
        self.taken = None;
        self.initial = false;
        // The fields are cleared one by one, because each drop may panic.
        drop(self.walk.take());
        drop(self.due.take());
        drop(self.ready.take());
    }
}
