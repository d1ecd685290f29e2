//! SHELL. What has changed since a version, from the store's log of changes. The log has a lock of its own, which only those take who hold
//! `writing`; the table of locks is in `inner`.

use std::error::Error;
use std::fmt;
use std::hash::Hash;

use crate::history::{self, Entry, History, Write};
use crate::inner::Inner;
use crate::step::Step;
use crate::table::Table;
use crate::{Change, Snapshot, Store, Version};

/// What has changed since a state, and the state it leads to; made by [`Store::changes_since`].
pub struct ChangesSince<K, V> {
    /// The changes, merged per key as those of a [`Subscription`](crate::Subscription), in the order in which the keys changed first.
    pub changes: Vec<Change<K, V>>,
    /// What there is after them.
    pub snapshot: Snapshot<K, V>,
}

/// The log of changes cannot say what has changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryError {
    /// More has changed since than is kept, or a list has taken the store back meanwhile: begin anew with a snapshot.
    TooOld {
        /// The earliest version it goes back to; later than the store's own if not even what happened within that is kept.
        oldest: Version,
    },
    /// The store has not got so far.
    Ahead {
        /// The store's version.
        version: Version,
    },
    /// The store was built without a [history](crate::StoreBuilder::history).
    NotKept,
}

impl<K, V> Store<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// What has changed since the store was at `version`, deletions included, if the [history](crate::StoreBuilder::history) goes back that far.
    ///
    /// For whoever keeps a copy and comes back with nothing but its version, as a client of a server does: put every new object, remove what is
    /// deleted, and the copy is what the snapshot shows. What happened *within* the version, as by an event with an older version than the store's,
    /// may be in the copy or not, so it is told again: an update may be of a key that the copy lacks, and so may a deletion.
    ///
    /// O(what it tells), and waits for a write in progress. The next one waits while what was missed is copied, a few counts for each change.
    ///
    /// # Errors
    /// When too much has changed since, when the version is ahead of the store, or when no history is kept.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{HistoryError, Schema, Store, Version};
    ///
    /// let schema = Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1));
    /// let store = Store::builder(schema).history(2).build()?;
    /// store.upsert(("a", 1));
    /// store.upsert(("b", 2));
    /// store.apply(flyball_informer_cache::Event::Deleted(("a", 3)));
    ///
    /// let since = store.changes_since(Version::new(1))?;
    /// let told: Vec<_> = since.changes.iter().map(|change| (*change.key(), change.new().is_some())).collect();
    /// assert_eq!(told, [("b", true), ("a", false)]);
    /// assert_eq!(since.snapshot.version(), Version::new(3));
    /// assert!(matches!(store.changes_since(Version::ZERO), Err(HistoryError::TooOld { oldest }) if oldest == Version::new(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn changes_since(&self, version: Version) -> Result<ChangesSince<K, V>, HistoryError> {
        self.inner.changes(|history, table| history.since(version, table.version))
    }

    /// What has changed since a snapshot of this store, exactly: applied in order, the changes lead from one to the other, as those of a
    /// subscription, whatever the versions say. Otherwise as [`changes_since`](Self::changes_since).
    ///
    /// # Errors
    /// When too much has changed since, or when no history is kept.
    pub fn changes_after(&self, snapshot: &Snapshot<K, V>) -> Result<ChangesSince<K, V>, HistoryError> {
        let revision = snapshot.table.revision;
        self.inner.changes(|history, _| history.after(revision))
    }
}

impl<K: Clone + Eq + Hash, V: 'static> Inner<K, V> {
    /// The version before a write, if it is to be noted. Under `writing`.
    pub(crate) fn version_to_note(&self) -> Option<Version> {
        self.history.as_ref().map(|_| self.published.look(|table| table.version))
    }

    /// Notes what has just been published, under `writing`, so that nothing has been published since. Runs no foreign code; gives back what
    /// is forgotten, to be dropped after unlocking.
    pub(crate) fn note(&self, before: Option<Version>, steps: &[Step<K, V>]) -> Vec<Entry<K, V>> {
        let mut forgotten = Vec::new();
        if let (Some(history), Some(before)) = (&self.history, before) {
            let (after, revision) = self.published.look(|table| (table.version, table.revision));
            history.lock().note(steps, Write { before, after, revision }, &mut forgotten);
        }
        forgotten
    }

    /// What the log says, and the state that it leads to.
    fn changes(
        &self,
        missed: impl FnOnce(&History<K, V>, &Table<K, V>) -> Result<Vec<Step<K, V>>, HistoryError>,
    ) -> Result<ChangesSince<K, V>, HistoryError> {
        let history = self.history.as_ref().ok_or(HistoryError::NotKept)?;
        let (steps, snapshot) = {
            // Behind the writer in progress.
            let _writing = self.writing.lock();
            let snapshot = self.snapshot();
            (missed(&history.lock(), &snapshot.table)?, snapshot)
        };
        Ok(ChangesSince { changes: history::fold(&steps, &self.reading.schema), snapshot })
    }
}

impl<K: fmt::Debug, V> fmt::Debug for ChangesSince<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangesSince").field("changes", &self.changes).finish_non_exhaustive()
    }
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooOld { oldest } => write!(f, "too old: the changes kept go back to version {oldest}"),
            Self::Ahead { version } => write!(f, "the store is at version {version} only"),
            Self::NotKept => f.write_str("the store keeps no changes"),
        }
    }
}

impl Error for HistoryError {}
