//! SHELL. The locks of a store, and the one way a write goes through them.
//!
//! | lock | guards | held |
//! |---|---|---|
//! | `writing` | the memory of the last plan, to be used again; and it serialises writers, so that what one finds still holds when it commits, and changes are fanned out in the order they were published | for a write |
//! | `published` | the table, the lists of feeds and listeners, the waits for versions, `listed`, `closed` | for one lookup, one commit in place, or one swap |
//! | a seat's | the table's address once more, for one thread ([`Seats`](crate::seats::Seats)) | for one lookup |
//! | a feed's | that consumer's pending changes | for one step, or a small chunk of a relist |
//!
//! Order: `writing` before each of the others; of those only `published` and then a seat together. (`synced`, the outcome of each wait and the list of what is
//! `held` have a lock of their own, the last in order.)
//!
//! A write goes like this, and the order is what makes it safe:
//! 1. **Prepare**, no lock: run the owner's functions (key, version, index values, identity), which may panic or call back.
//! 2. **Find**, under `writing`, and `published` or a feed: where do the feeds hold the key? Is what was judged still there? Which index values are
//!    known? Equality and order of keys and index values run here, and may panic: nothing has changed yet. If another writer was quicker, back to 1.
//! 3. **Commit**, under the same locks: no foreign code. (Many keys at once are found and committed aside, and `published` is held for a swap.)
//! 4. **Fan out**, under `writing` and one feed's lock after the other: no foreign code. After 3, so that a change
//!    received is in the store.
//! 5. **Tell and clean up**, no lock: tell the observers, wake, drop what was replaced.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use flyball_sync::locks::Mutex;

use crate::board::{Board, Published};
use crate::fan_out::{Effects, fan_out, find, narrow};
use crate::feed::Feed;
use crate::held::Held;
use crate::interest::{Findings, Interest};
use crate::observer;
use crate::recipe::{Reading, Recipe};
use crate::record::{Record, Values};
use crate::snapshot::Snapshot;
use crate::step::Step;
use crate::synced::Synced;
use crate::table::{Garbage, Plan, Raced, Side, Table};
use crate::wakers::Wakers;
use crate::{Stopped, Version, WaitForError};

/// What the handles of a store share.
pub(crate) struct Inner<K, V> {
    pub(crate) reading: Reading<K, V>,
    pub(crate) writing: Mutex<Plan>,
    pub(crate) published: Board<K, V>,
    pub(crate) held: Held<K, V>,
    pub(crate) synced: Synced,
}

/// What is stored under a key, and what a new object has to be asked.
pub(crate) struct Found<K, V> {
    pub(crate) recipe: Arc<Recipe<V>>,
    pub(crate) old: Option<(u32, Record<K, V>)>,
    /// The values of the old object in every index.
    pub(crate) values: Vec<Values>,
    /// The revision of the table at that instant.
    pub(crate) revision: u64,
}

impl<K, V> Inner<K, V> {
    pub(crate) fn new(reading: Reading<K, V>, published: Board<K, V>) -> Self {
        Self {
            reading,
            writing: Mutex::new(Plan::default()),
            published,
            held: Held::default(),
            synced: Synced::default(),
        }
    }

    pub(crate) fn table(&self) -> Arc<Table<K, V>> {
        self.published.look(Arc::clone)
    }

    pub(crate) fn snapshot(&self) -> Snapshot<K, V> {
        Snapshot { table: self.table(), reading: self.reading }
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
        if version <= self.published.look(|table| table.version) {
            return;
        }
        let mut wakers = Wakers::default();
        let writing = self.writing.lock();
        let (version, feeds) = {
            let mut published = self.published.write();
            // Another writer was quicker, and has told it. Nothing is left behind then.
            if version <= published.table.version {
                return;
            }
            self.note_superseded(&mut published);
            let version = published.advance(version, &mut wakers);
            (version, published.feeds.clone())
        };
        for feed in &*feeds {
            feed.merge(&[], std::iter::empty(), version, false, &mut wakers, &mut Vec::new());
        }
        drop(writing);
        wakers.wake();
    }

    /// The table is about to be changed: somebody who holds it keeps what there was.
    pub(crate) fn note_superseded(&self, published: &mut Published<K, V>) {
        // Nobody can begin to hold it meanwhile. Who lets go meanwhile is noted for nothing.
        if Arc::strong_count(&published.table) > 1 {
            self.held.superseded(&published.table);
        }
    }

    /// A snapshot, and a feed of everything after it, or of what is of interest; `most` keys may be pending.
    pub(crate) fn subscribe(
        &self,
        interest: Option<Interest<K, V>>,
        most: usize,
    ) -> (Snapshot<K, V>, Arc<Feed<K, V>>) {
        // What a write is to an interest is found before it commits, so none comes in the middle of one.
        let writing = interest.is_some().then(|| self.writing.lock());
        let mut published = self.published.write();
        let snapshot = Snapshot { table: published.table.clone(), reading: self.reading };
        // In one critical section with the table: a list is either in the snapshot or still to be told, and here it is known which.
        let (listed, closed) = (published.listed, published.closed);
        let ended = closed || interest.as_ref().is_some_and(|of| !of.stands(&snapshot.table.recipe));
        let feed = Arc::new(Feed::new(snapshot.version(), listed, ended, interest, most));
        let gone = (!closed).then(|| {
            // Those whose subscription is gone leave.
            let alive = published.feeds.iter().filter(|feed| Arc::strong_count(feed) > 1);
            let feeds = alive.chain([&feed]).cloned().collect();
            std::mem::replace(&mut published.feeds, feeds)
        });
        drop(published);
        drop(writing);
        // After unlocking: a feed holds what it was of.
        drop(gone);
        (snapshot, feed)
    }

    /// A feed that was too much for its consumer begins anew, with everything after this table.
    pub(crate) fn rejoin(&self, feed: &Feed<K, V>) -> Arc<Table<K, V>> {
        // Nothing is told meanwhile, and what was published has been told: table and feed are of one instant.
        let writing = self.writing.lock();
        let (table, listed, closed) = {
            let published = self.published.read();
            (published.table.clone(), published.listed, published.closed)
        };
        let ended = closed || feed.interest().is_some_and(|of| !of.stands(&table.recipe));
        let lost = feed.restart(table.version, listed, ended);
        drop(writing);
        drop(lost);
        table
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
    pub(crate) fn find(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> Found<K, V> {
        let published = self.published.read();
        let table = &published.table;
        let row = table.find(hash, eq);
        let old = row.and_then(|row| Some((row, table.rows.get(row)?.clone())));
        let values = row.map_or(Vec::new(), |row| table.values(row));
        Found { recipe: table.recipe.clone(), old, values, revision: table.revision }
    }

    /// Steps 2 to 5 for one key, in place.
    pub(crate) fn commit(&self, step: &Step<K, V>, side: &Side<V>, version: Version) -> Result<(), Raced> {
        // All of it is dropped after the locks, also when equality panics.
        let mut effects = Effects::default();
        let mut found = Findings::default();
        let (mut plan, mut known, mut listeners) = (Plan::default(), None, None);
        let mut writing = self.writing.lock();
        // Out of the lock's reach, since a plan that panics half way holds values.
        std::mem::swap(&mut plan, &mut writing);
        let mut published = self.published.write();
        if !published.feeds.is_empty() {
            let feeds = &*known.insert(published.feeds.clone());
            let (steps, sides) = (std::slice::from_ref(step), std::slice::from_ref(side));
            narrow(feeds, steps, sides, &published.table, &mut found);
            drop(published);
            find(feeds, steps, &mut found);
            published = self.published.write();
        }
        published.table.plan(step, side, &mut plan)?;
        self.note_superseded(&mut published);
        // Copied when a snapshot holds it: a few counts, no object.
        Arc::make_mut(&mut published.table).commit(step, side, &mut plan, &mut effects.garbage);
        let version = published.advance(version, &mut effects.wakers);
        if !published.listeners.is_empty() {
            listeners = Some(published.listeners.clone());
        }
        // Where there was no feed before, there is none yet: the lock was held all the time.
        let feeds = known.is_some().then(|| published.feeds.clone());
        drop(published);
        if let (Some(known), Some(feeds)) = (&known, &feeds) {
            fan_out(known, feeds, std::slice::from_ref(step), &found, version, false, &mut effects);
        }
        std::mem::swap(&mut plan, &mut writing);
        drop(writing);
        if let Some(listeners) = listeners {
            observer::tell(listeners, std::slice::from_ref(step), &self.reading.schema);
        }
        self.clean_up(effects);
        Ok(())
    }

    /// Steps 2 to 5 for many keys, built aside and published at once. `steps` tells what is to be done to the table there
    /// is; it runs under the writer lock, so no foreign code but equality of keys. An error of it is handed back.
    ///
    /// Readers are kept out for the swap of one address.
    pub(crate) fn publish<E>(
        &self,
        arrival: Arrival,
        steps: impl FnOnce(&Arc<Table<K, V>>) -> Result<(Vec<Step<K, V>>, Vec<Side<V>>), E>,
    ) -> Result<Vec<Step<K, V>>, E> {
        // Declared before the lock, so dropped after it, also when equality panics.
        let mut effects = Effects::default();
        let mut plan = Plan::default();
        let (mut next, current, before, listeners, sides, mut done, known);
        let mut found = Findings::default();
        let writing = self.writing.lock();
        current = self.table();
        (done, sides) = steps(&current)?;
        let list = matches!(arrival, Arrival::List(_));
        // Under the writer lock, as only a writer can make it another.
        let first_list = list && !self.published.read().listed;
        if first_list {
            done.iter_mut().for_each(Step::begins);
        }
        next = Arc::new(Table::clone(&current));
        build(Arc::make_mut(&mut next), &done, &sides, &mut plan, &mut effects.garbage);
        known = self.published.read().feeds.clone();
        narrow(&known, &done, &sides, &current, &mut found);
        find(&known, &done, &mut found);
        let (version, feeds) = {
            let mut published = self.published.write();
            // Two are this function's own.
            if Arc::strong_count(&published.table) > 2 {
                self.held.superseded(&published.table);
            }
            let now = current.version;
            let version = arrival.version(now);
            Arc::make_mut(&mut next).version = version;
            before = std::mem::replace(&mut published.table, next);
            published.listed |= list;
            listeners = published.listeners.clone();
            published.waiters.reached(version, &mut effects.wakers);
            if version < now {
                published.waiters.end_all(WaitForError::Rewound(version), &mut effects.wakers);
            }
            (version, published.feeds.clone())
        };
        fan_out(&known, &feeds, &done, &found, version, first_list, &mut effects);
        if list {
            self.synced.end(Ok(()), &mut effects.wakers);
        }
        drop(writing);
        observer::tell(listeners, &done, &self.reading.schema);
        self.clean_up(effects);
        // Here, because what panics in its drop while this function returns would take the return value with it.
        drop((sides, plan, current, before));
        Ok(done)
    }

    fn clean_up(&self, effects: Effects<V>) {
        if effects.detached {
            let gone = {
                let mut published = self.published.write();
                let alive = published.feeds.iter().filter(|feed| Arc::strong_count(feed) > 1);
                let alive = alive.cloned().collect();
                std::mem::replace(&mut published.feeds, alive)
            };
            // After unlocking: a feed holds what it was of.
            drop(gone);
        }
        effects.wakers.wake();
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let published = self.published.read();
        let (table, feeds) = (published.table.clone(), published.feeds.clone());
        published.waiters.check(table.version)?;
        drop(published);
        table.check(|key| self.reading.seed.hash_one(key))?;
        feeds.iter().try_for_each(|feed| feed.check())
    }
}

/// How a write of many keys moves the version.
#[derive(Clone, Copy)]
pub(crate) enum Arrival {
    /// Everything up to this version, be it older.
    List(Version),
    /// Some news, of which this is the newest.
    News(Version),
}

impl Arrival {
    fn version(self, now: Version) -> Version {
        match self {
            Self::List(version) => version,
            Self::News(version) => version.max(now),
        }
    }
}

/// Applies steps to a table that nobody else sees.
fn build<K: Eq + Hash, V: 'static>(
    table: &mut Table<K, V>,
    steps: &[Step<K, V>],
    sides: &[Side<V>],
    plan: &mut Plan,
    garbage: &mut Garbage,
) {
    for (step, side) in steps.iter().zip(sides) {
        table.plan_judged(side, plan);
        table.commit(step, side, plan, garbage);
    }
}

/// The last handle is gone: nobody will write again.
impl<K, V> Drop for Inner<K, V> {
    fn drop(&mut self) {
        self.close();
    }
}
