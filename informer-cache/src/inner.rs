//! SHELL. The locks of a store, and the one way a write goes through them.
//!
//! | lock | guards | held |
//! |---|---|---|
//! | `writing` | nothing by itself: it serialises writers, so that what one finds still holds when it commits, and changes are fanned out in the order they were published | for a write |
//! | `published` | the table, the lists of feeds and listeners, the waits for versions, `closed` | for one lookup, one commit in place, or one swap |
//! | a feed's | that consumer's pending changes | for one step, or a small chunk of a relist |
//!
//! Order: `writing` before each of the others; never two of the others together. (`synced` and the outcome of each wait have a
//! lock of their own, the last in order.)
//!
//! A write goes like this, and the order is what makes it safe:
//! 1. **Prepare**, no lock: run the owner's functions (key, version, index values, identity), which may panic or call back.
//! 2. **Find**, under `writing`: is what was judged still there? Which index values are known? Where do the feeds hold the key? Equality
//!    of keys and index values runs here, and may panic: nothing has changed yet. If another writer was quicker, back to 1.
//! 3. **Commit**, under `writing` and `published`: no foreign code.
//! 4. **Fan out**, under `writing` and one feed's lock after the other: no foreign code. After 3, so that a change
//!    received is in the store.
//! 5. **Tell and clean up**, no lock: tell the observers, wake, drop what was replaced.

use std::hash::Hash;
use std::sync::Arc;

use crate::feed::{Feed, Feeds};
use crate::observer::{self, Listeners};
use crate::pending::Ticket;
use crate::recipe::Recipe;
use crate::record::{AnyValue, Record};
use crate::relist::Verdict;
use crate::snapshot::Snapshot;
use crate::step::{Last, Step};
use crate::sync::{Mutex, RwLock};
use crate::synced::Synced;
use crate::table::Table;
use crate::waiters::Waiters;
use crate::wakers::Wakers;
use crate::{Stopped, Version, WaitForError, relist};

/// What the handles of a store share.
pub(crate) struct Inner<K, V> {
    pub(crate) recipe: Arc<Recipe<K, V>>,
    writing: Mutex<()>,
    pub(crate) published: RwLock<Published<K, V>>,
    pub(crate) synced: Synced,
}

/// What readers see, all of it at once.
pub(crate) struct Published<K, V> {
    pub(crate) table: Arc<Table<K, V>>,
    pub(crate) feeds: Feeds<K, V>,
    pub(crate) listeners: Listeners<K, V>,
    pub(crate) waiters: Waiters,
    pub(crate) closed: bool,
}

/// Another writer was quicker: what was judged is no longer stored.
pub(crate) struct Raced;

impl<K, V> Inner<K, V> {
    pub(crate) fn new(recipe: Recipe<K, V>) -> Self {
        let recipe = Arc::new(recipe);
        let published = Published {
            table: Arc::new(Table::new(recipe.clone())),
            feeds: Arc::new([]),
            listeners: Arc::new([]),
            waiters: Waiters::default(),
            closed: false,
        };
        let published = RwLock::new(published);
        Self { recipe, writing: Mutex::new(()), published, synced: Synced::default() }
    }

    pub(crate) fn table(&self) -> Arc<Table<K, V>> {
        self.published.read().table.clone()
    }

    /// The table at an instant when every change of it has been fanned out, if `provided` holds at that instant. It may lock
    /// a feed.
    pub(crate) fn settled(&self, provided: impl FnOnce() -> bool) -> Option<Arc<Table<K, V>>> {
        let _writing = self.writing.lock();
        provided().then(|| self.table())
    }

    /// The store is at least at this version; nothing changed.
    pub(crate) fn advance(&self, version: Version) {
        // Most stale events bring no news, and need not queue behind a writer to find that out.
        if version <= self.published.read().table.version {
            return;
        }
        let mut wakers = Wakers::default();
        let writing = self.writing.lock();
        let (version, feeds) = {
            let mut published = self.published.write();
            let version = published.advance(version, &mut wakers);
            (version, published.feeds.clone())
        };
        for feed in &*feeds {
            feed.merge(&[], std::iter::empty(), version, &mut wakers, &mut Vec::new());
        }
        drop(writing);
        wakers.wake();
    }

    /// A snapshot, and a feed of everything after it.
    pub(crate) fn subscribe(&self) -> (Snapshot<K, V>, Arc<Feed<K, V>>) {
        let mut published = self.published.write();
        let snapshot = Snapshot { table: published.table.clone() };
        let feed = Arc::new(Feed::new(snapshot.version(), published.closed));
        if !published.closed {
            // Those whose subscription is gone leave; they hold nothing that could be dropped.
            let alive = published.feeds.iter().filter(|feed| Arc::strong_count(feed) > 1);
            published.feeds = alive.chain([&feed]).cloned().collect();
        }
        (snapshot, feed)
    }

    /// Ends the feeds, the listeners and the waits.
    pub(crate) fn close(&self) {
        let mut wakers = Wakers::default();
        // Behind the writer in progress: what it published is told before the end.
        let writing = self.writing.lock();
        let (feeds, listeners) = {
            let mut published = self.published.write();
            published.closed = true;
            published.waiters.end_all(WaitForError::Closed, &mut wakers);
            let feeds = std::mem::replace(&mut published.feeds, Arc::new([]));
            (feeds, std::mem::replace(&mut published.listeners, Arc::new([])))
        };
        for feed in &*feeds {
            feed.end(&mut wakers);
        }
        self.synced.end(Err(Stopped), &mut wakers);
        drop(writing);
        drop(listeners);
        wakers.wake();
    }
}

impl<K: Clone + Eq + Hash, V: 'static> Inner<K, V> {
    pub(crate) fn find(&self, hash: u64, eq: impl Fn(&K) -> bool) -> Option<Arc<Record<K, V>>> {
        self.published.read().table.find(hash, eq).cloned()
    }

    /// Steps 2 to 5 for one key, in place.
    pub(crate) fn commit(&self, step: &mut Step<K, V>, version: Version) -> Result<(), Raced> {
        // All of it is dropped after the locks, also when equality panics.
        let labels = step.after().map_or(0, |new| new.labels.len());
        let (mut interned, mut effects) = (Vec::with_capacity(labels), Effects::default());
        let mut found = Vec::new();
        let listeners;
        let writing = self.writing.lock();
        let known = {
            let published = self.published.read();
            published.table.confirm(step)?;
            intern(&published.table, step, &mut interned);
            published.feeds.clone()
        };
        find(&known, std::slice::from_ref(step), &mut found);
        let (version, feeds) = {
            let mut published = self.published.write();
            // Copied when a snapshot holds it: a few counts, no object.
            Arc::make_mut(&mut published.table).commit(step.before(), step.after());
            listeners = published.listeners.clone();
            (published.advance(version, &mut effects.wakers), published.feeds.clone())
        };
        fan_out(&known, &feeds, std::slice::from_ref(step), &found, version, &mut effects);
        drop(writing);
        observer::tell(&listeners, std::slice::from_ref(step), &self.recipe.schema);
        self.clean_up(effects);
        Ok(())
    }

    /// Steps 2 to 5 for a relist: the listed records, whose keys are distinct, become the store's. `judge` runs under the
    /// writer lock, so it must run no foreign code; see [`relist::diff`].
    ///
    /// Readers are kept out for the swap of one address.
    pub(crate) fn replace(
        &self,
        version: Version,
        mut listed: Vec<Arc<Record<K, V>>>,
        judge: impl FnMut(usize, &Arc<Record<K, V>>) -> Verdict,
    ) -> Vec<Step<K, V>> {
        // Declared before the lock, so dropped after it, also when equality panics.
        let (mut interned, mut effects) = (Vec::new(), Effects::default());
        let (mut steps, mut next, before, listeners);
        let mut found = Vec::new();
        let writing = self.writing.lock();
        let current = self.table();
        steps = relist::diff(&current, &mut listed, judge);
        next = Arc::new(Table::clone(&current));
        build(Arc::make_mut(&mut next), &mut steps, version, &mut interned);
        let known = self.published.read().feeds.clone();
        find(&known, &steps, &mut found);
        let feeds = {
            let mut published = self.published.write();
            before = std::mem::replace(&mut published.table, next);
            listeners = published.listeners.clone();
            published.waiters.reached(version, &mut effects.wakers);
            if version < before.version {
                published.waiters.end_all(WaitForError::Rewound(version), &mut effects.wakers);
            }
            published.feeds.clone()
        };
        fan_out(&known, &feeds, &steps, &found, version, &mut effects);
        self.synced.end(Ok(()), &mut effects.wakers);
        drop(writing);
        observer::tell(&listeners, &steps, &self.recipe.schema);
        self.clean_up(effects);
        // Here, because what panics in its drop while this function returns would take the return value with it.
        drop((interned, listed, current, before));
        steps
    }

    fn clean_up(&self, effects: Effects<V>) {
        if effects.detached {
            let mut published = self.published.write();
            let alive = published.feeds.iter().filter(|feed| Arc::strong_count(feed) > 1);
            published.feeds = alive.cloned().collect();
        }
        effects.wakers.wake();
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let published = self.published.read();
        let (table, feeds) = (published.table.clone(), published.feeds.clone());
        published.waiters.check(table.version)?;
        drop(published);
        table.check()?;
        feeds.iter().try_for_each(|feed| feed.check())
    }
}

impl<K, V> Published<K, V> {
    /// The version grows to this one at least.
    fn advance(&mut self, version: Version, wakers: &mut Wakers) -> Version {
        if version > self.table.version {
            Arc::make_mut(&mut self.table).version = version;
            self.waiters.reached(version, wakers);
        }
        self.table.version
    }
}

impl<K: Eq + Hash, V> Table<K, V> {
    /// Whether a step still starts from what is stored. By address: the step holds its old record, so its address is not
    /// used again.
    fn confirm(&self, step: &Step<K, V>) -> Result<(), Raced> {
        let record = step.record();
        let stored = self.find(record.hash, |key| *key == record.key);
        match stored.map(Arc::as_ptr) == step.before().map(Arc::as_ptr) {
            true => Ok(()),
            false => Err(Raced),
        }
    }
}

/// What a write leaves to be done without locks.
struct Effects<V> {
    wakers: Wakers,
    /// What nobody will hear of any more.
    dropped: Vec<Last<V>>,
    /// Whether a consumer turned out to be gone.
    detached: bool,
}

// Not derived: nothing is asked of `V`.
impl<V> Default for Effects<V> {
    fn default() -> Self {
        Self { wakers: Wakers::default(), dropped: Vec::new(), detached: false }
    }
}

/// Step 2 for the values of a step's new record, which nobody else has yet.
fn intern<K: Eq + Hash, V: 'static>(
    table: &Table<K, V>,
    step: &mut Step<K, V>,
    replaced: &mut Vec<Arc<AnyValue>>,
) {
    let old = step.before().cloned();
    if let Some(new) = step.after_mut() {
        table.intern(new, old.as_deref(), replaced);
    }
}

/// Applies steps to a table that nobody else sees.
fn build<K: Eq + Hash, V: 'static>(
    table: &mut Table<K, V>,
    steps: &mut [Step<K, V>],
    version: Version,
    interned: &mut Vec<Arc<AnyValue>>,
) {
    for step in steps {
        intern(table, step, interned);
        table.commit(step.before(), step.after());
    }
    table.version = version;
}

/// Step 2 for the feeds: one ticket per feed and step.
fn find<K: Eq, V>(feeds: &Feeds<K, V>, steps: &[Step<K, V>], found: &mut Vec<Option<Ticket>>) {
    for feed in &**feeds {
        feed.find(steps, found);
    }
}

/// Step 4. `found` belongs to the `known` feeds. A feed registered since begins with a snapshot from before the commit, and has heard of
/// nothing: there is nothing to be found in it.
fn fan_out<K, V>(
    known: &Feeds<K, V>,
    feeds: &Feeds<K, V>,
    steps: &[Step<K, V>],
    found: &[Option<Ticket>],
    version: Version,
    effects: &mut Effects<V>,
) {
    for (at, feed) in feeds.iter().enumerate() {
        let place = match known.get(at) {
            Some(same) if Arc::ptr_eq(same, feed) => Some(at),
            _ => known.iter().position(|known| Arc::ptr_eq(known, feed)),
        };
        let found = place.map_or(&[][..], |place| &found[place * steps.len()..][..steps.len()]);
        let there =
            feed.merge(steps, found.iter().copied(), version, &mut effects.wakers, &mut effects.dropped);
        effects.detached |= !there;
    }
}

/// The last handle is gone: nobody will write again.
impl<K, V> Drop for Inner<K, V> {
    fn drop(&mut self) {
        self.close();
    }
}
