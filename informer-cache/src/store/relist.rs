//! SHELL. A relist in progress: its objects are collected page by page, and then published all at once, or discarded.
//!
//! This module guards no data, because the list is separate from the store until it is published.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::ControlFlow;

use flyball_sync::panics::{DropContained, attempt, drop_each};

use crate::store::object_reader::{ObjectReader, ParsedObject, Transform, transformed};
use crate::store::unnamed::{Candidates, Unnamed, Withheld};
use crate::store::write::is_stale_deletion;
use crate::table::persist::{Hashes, Paged};
use crate::table::record::{AllValues, Object, Record, allocated, object_of};
use crate::table::relist::{Listed, ListedState, RelistDiff, RowState, UNCHANGED, compare};
use crate::{Change, Store, Version, Writer};

/// A list that is not complete yet; made by [`Writer::relist`](crate::Writer::relist).
///
/// Readers see none of the listed objects before [`publish`](Self::publish). Dropping the `Relist` discards the list. If several objects with the
/// same key are listed, the last one counts.
///
/// A listed object that is unchanged is dropped immediately; only its entry in the list, of 4 bytes, stays until the relist ends. So the
/// list takes little more memory than the changed objects and one page. But like a [snapshot](crate::Snapshot), a relist keeps in memory the state
/// that the store had when the relist began.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Store, Version};
///
/// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
/// let mut list = pods.relist();
/// for page in [[("a", 1), ("b", 2)], [("c", 3), ("d", 4)]] {
///     page.into_iter().for_each(|pod| list.insert(pod));
/// }
/// assert_eq!(list.publish(Version::new(4)).len(), 4);
/// assert_eq!(pods.len(), 4);
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
pub struct Relist<'a, K, V> {
    writer: &'a mut Writer<K, V>,
    draft: RelistDraft<K, V>,
}

impl<'a, K, V> Relist<'a, K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn new(writer: &'a mut Writer<K, V>) -> Self {
        let draft = RelistDraft::new(writer);
        Self { writer, draft }
    }

    /// Adds an object to the list. Runs the functions of the schema and the transformation once. Also runs the index functions if the object differs
    /// from the stored object.
    ///
    /// # Panics
    /// Panics only if a function of the schema, the transformation, or a trait method of the key panics; the list is unchanged in that case. A panic
    /// of an index function does not propagate; it becomes an index error of this object.
    pub fn insert(&mut self, object: V) {
        self.draft.insert(object);
    }

    /// Removes the object with this key from the list, if there is one. A streaming list needs this, because it may report a deletion before the list
    /// is complete.
    ///
    /// # Panics
    /// Panics only if `Hash` or `Eq` of the key panics, or if the destructor of the removed object panics. If `Hash` or `Eq` panics, the list is
    /// unchanged.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Relist, Schema, Store, Version};
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let mut list: Relist<'_, &str, _> = pods.relist();
    /// list.insert(("a", 1));
    /// list.insert(("b", 2));
    /// list.remove("a"); // deleted while it was listed
    /// assert_eq!(list.publish(Version::new(3)).len(), 1);
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    pub fn remove<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.draft.remove(key);
    }

    /// For every stored object whose key is not listed yet, calls `keep`, and adds the object to the list unchanged if `keep` returns true. Use this
    /// for objects that still exist in the source, but whose current state is unknown.
    ///
    /// O(stored objects) if some stored object is not listed yet, otherwise O(1).
    ///
    /// # Panics
    /// Panics only if `keep` panics; the objects that it has accepted before stay listed.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version};
    ///
    /// let mut store = Store::builder(Schema::new(|object: &(&str, u64)| object.0, |object| Version::new(object.1))).build()?;
    /// store.replace([("a", 1), ("b", 1), ("c", 1)], Version::new(1));
    /// let mut list = store.relist();
    /// list.insert(("a", 2));
    /// list.keep_stored(|(name, _)| *name == "b");
    /// let deleted: Vec<_> = list.publish(Version::new(2)).iter().filter(|change| change.new().is_none()).map(|change| *change.key()).collect();
    /// assert_eq!(deleted, ["c"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep_stored(&mut self, mut keep: impl FnMut(&V) -> bool) {
        self.draft.keep_rows(0, usize::MAX, |_, stored| keep(stored));
    }

    /// Replaces the content of the store with the listed objects, sets the store's version, and returns the changes. Deletions come first, with the
    /// last known state of each object, and then updates and additions in the order of the list.
    ///
    /// Every stored object that is not listed is deleted. A listed object counts as unchanged if it has the version, the identity and the content of
    /// the stored object; then the store keeps the stored object. (See [`Schema::with_content_eq`](crate::Schema::with_content_eq). An object without
    /// a version never counts as unchanged.) The list is applied even if its version is older than that of the store.
    ///
    /// Readers read the old state until the new one is published. O(changes), plus O(stored objects) to find the objects that are not listed.
    ///
    /// # Panics
    /// Panics only if a function of the schema, a trait method of a key, or `Eq` of an index value that a subscription selects panics; nothing is
    /// changed in that case. Replaced objects are dropped last, so a panic in their destructors propagates after all changes are delivered.
    pub fn publish(self, version: Version) -> Vec<Change<K, V>> {
        let Self { writer, draft } = self;
        writer.access().publish(draft, version)
    }
}

impl<K, V> fmt::Debug for Relist<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relist").field("len", &self.draft.len).finish_non_exhaustive()
    }
}

/// The values of the user that a list does not keep, or no longer keeps.
pub(super) struct Unlisted<K, V> {
    /// Keys that are stored already.
    keys: Vec<DropContained<K>>,
    /// Objects that are stored already.
    objects: Vec<Record<K, V>>,
    /// Objects whose key was listed again.
    replaced: Vec<Listed<K, V>>,
    /// The object that is being listed, or was listed last.
    next: Option<Record<K, V>>,
}

// `Default` is not derived, because a derive would require `K: Default` and `V: Default`.
impl<K, V> Default for Unlisted<K, V> {
    fn default() -> Self {
        Self { keys: Vec::new(), objects: Vec::new(), replaced: Vec::new(), next: None }
    }
}

/// The record that is not listed, because the stored object is, and the entry that is no longer listed.
type Unkept<K, V> = (Option<Record<K, V>>, Option<Listed<K, V>>);

/// The list of a [`Relist`], without the reference to the writer.
pub(crate) struct RelistDraft<K, V> {
    pub(super) list: RelistDiff<K, V>,
    reader: ObjectReader<K, V>,
    transform: Option<Transform<V>>,
    /// For each listed key that has no row in the base: its position in `list.listed`. This map grows in small steps, unlike a `HashMap`.
    pub(super) new: Hashes,
    /// The number of keys in `new`, and of all listed keys.
    new_len: usize,
    len: usize,
    /// The list position that the next new key gets. The position of a removed key is not used again.
    next: u32,
    unnamed: Unnamed<V>,
    /// The rows of the base for whose keys `remove` was called, whether these keys were listed or not: 1 for each of them.
    removed_rows: Paged,
    /// The progress of [`keep_unreadable`](Self::keep_unreadable).
    keeping: Option<Keeping<V>>,
}

/// The progress of [`RelistDraft::keep_unreadable`].
struct Keeping<V> {
    unnamed: Unnamed<V>,
    may_be: Candidates<V>,
    /// The next row to be looked at.
    next: u32,
    /// The number of objects that are kept only because of `unnamed`.
    objects: u64,
}

impl<K, V> RelistDraft<K, V> {
    /// Returns an upper bound of the number of writes that publish this list.
    pub(super) fn most_writes(&self) -> usize {
        self.list.listed.len() + self.list.base.rows.len() + self.new_len - self.len
    }
}

/// The number of keys that a list can contain. The position of a key in the list, plus one, must fit in 31 bits.
const MOST: u32 = (1 << 31) - 2;

impl<K, V> RelistDraft<K, V>
where
    K: Clone + Eq + Hash,
    V: 'static,
{
    pub(crate) fn new(store: &Store<K, V>) -> Self {
        Self {
            list: RelistDiff::new(store.inner.table()),
            reader: store.inner.reader,
            transform: store.inner.transform.clone(),
            new: Hashes::new(),
            new_len: 0,
            len: 0,
            next: 0,
            unnamed: Unnamed::default(),
            removed_rows: Paged::new(),
            keeping: None,
        }
    }

    pub(super) fn insert(&mut self, object: V) {
        let object = allocated(object);
        let (hash, key) = self.reader.name(&object);
        let row = self.list.base.find(hash, |known| *known == *key);
        self.insert_at(row, hash, key, object);
    }

    /// Like [`insert`](Self::insert), but returns an error if a user's function panics on the object. In that case, the stored object with the same
    /// key is listed as unchanged, unless the key is listed already. If the key function itself panics, the key is unknown; then
    /// [`keep_unreadable`](Self::keep_unreadable) keeps the stored objects that may be this object.
    ///
    /// `late` receives the key and a function that returns the version listed under this key. If `late` returns true, the object is rejected, and
    /// this function returns `Ok(true)`.
    pub(crate) fn try_insert_unless(
        &mut self,
        object: Object<V>,
        late: impl FnOnce(&K, &dyn Fn() -> Option<Version>) -> bool,
    ) -> Result<bool, String> {
        let base = &self.list.base;
        let named = attempt(|| {
            let (hash, key) = self.reader.name(&object);
            let row = base.find(hash, |known| *known == *key);
            let late = late(&key, &|| self.listed_at(row, hash, &key).map(|listed| listed.version));
            (row, hash, key, late)
        });
        let (row, hash, key, late) = match named {
            Ok(named) => named,
            Err(panic) => {
                self.unnamed.add(object, &panic);
                return Err(panic);
            }
        };
        if late {
            return Ok(true);
        }
        let inserted = attempt(|| self.insert_at(row, hash, key, object));
        inserted.map(|()| false).inspect_err(|_| {
            if let Some(row) = row.filter(|row| matches!(self.list.state(*row), RowState::Unlisted)) {
                self.list_as_stored(row);
            }
        })
    }

    /// Returns the object that is currently listed under this key.
    pub(crate) fn listed(&self, key: &K) -> Option<&Record<K, V>> {
        let hash = self.reader.seed.hash_one(key);
        self.listed_at(self.list.base.find(hash, |known| known == key), hash, key)
    }

    /// Returns whether the deletion of `last` at this version is stale, compared with the object that is listed under `key`, the key of `last`.
    pub(crate) fn is_stale_deletion(&self, key: &K, last: Object<V>, version: Version) -> bool {
        let Some(listed) = self.listed(key) else { return false };
        // The identity is compared, as everywhere, after the transformation. It matters only if the versions are equal.
        let last = (version == listed.version).then(|| transformed(last, self.transform.as_ref()));
        is_stale_deletion(&self.reader.schema, listed, last.as_ref().map(object_of), version)
    }

    fn listed_at(&self, row: Option<u32>, hash: u64, key: &K) -> Option<&Record<K, V>> {
        match row.map(|row| (row, self.list.state(row))) {
            Some((row, RowState::Unchanged(_))) => self.list.base.rows.get(row),
            _ => self.changed_at(row, hash, key).map(|at| &self.list.listed(at).record),
        }
    }

    /// Returns the position of a key in `list.listed`. `row` is the row of the key in the base, if it has one.
    fn changed_at<Q>(&self, row: Option<u32>, hash: u64, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        match row.map(|row| self.list.state(row)) {
            Some(RowState::Unlisted | RowState::Unchanged(_)) => None,
            Some(RowState::Changed(at)) => Some(at),
            None => self.new.find(hash, |at| {
                let record = &self.list.listed(at as usize).record;
                (record.hash() == hash && record.key().borrow() == key).then_some(at as usize)
            }),
        }
    }

    /// Returns the number of listed keys, and the next position in the list, after one more key is listed.
    fn one_more(&self) -> (usize, u32) {
        assert!(self.next < MOST, "a list has at most {MOST} keys");
        (self.len + 1, self.next + 1)
    }

    /// Lists the stored object in this row of the base as unchanged. The row must not be listed yet.
    fn list_as_stored(&mut self, row: u32) {
        let more = self.one_more();
        self.list.set_state(row, RowState::Unchanged(self.next));
        (self.len, self.next) = more;
    }

    /// Lists an object. `row` is the row of its key in the base, if it has one.
    fn insert_at(&mut self, row: Option<u32>, hash: u64, key: DropContained<K>, object: Object<V>) {
        let arrived = self.reader.read_named(hash, key, object, self.transform.as_ref());
        let (record, key) = arrived.after(row.and_then(|row| self.list.base.rows.get(row)));
        // The unused key is dropped before the list changes, so that a panic in its destructor leaves the list unchanged.
        drop(key);
        drop(self.put(row, record));
    }

    /// Like [`insert`](Self::insert), but for the next of these objects, which have been read already; returns `false` if there is none. Adds the values
    /// that are not kept to `unlisted`. While user code runs, the object is in `items` or in `unlisted`, so a panic does not drop it.
    pub(super) fn insert_next(
        &mut self,
        items: &mut VecDeque<ParsedObject<K, V>>,
        unlisted: &mut Unlisted<K, V>,
    ) -> bool {
        let row = items.front().and_then(|next| self.list.base.find(next.hash, |known| *known == *next.key));
        let Some(next) = items.pop_front() else { return false };
        let (record, key) = next.after(row.and_then(|row| self.list.base.rows.get(row)));
        unlisted.keys.extend(key);
        unlisted.next = Some(record.clone());
        let (unchanged, replaced) = self.put(row, record);
        unlisted.objects.extend(unchanged);
        unlisted.replaced.extend(replaced);
        true
    }

    /// Lists a record, which was created after the record in this row of the base, if there is a row. Returns what is not kept.
    fn put(&mut self, row: Option<u32>, record: Record<K, V>) -> Unkept<K, V> {
        let reader = self.reader;
        let hash = record.hash();
        let old = row.and_then(|row| self.list.base.rows.get(row));
        let verdict = old.map(|old| compare(&reader.schema, old, &record));
        let known = self.changed_at(row, hash, record.key());
        let state = row.map(|row| self.list.state(row));
        let place = match (known, state) {
            (Some(at), _) => self.list.listed(at).place,
            (None, Some(RowState::Unchanged(place))) => place,
            (None, _) => self.next,
        };
        let counted = known.is_some() || matches!(state, Some(RowState::Unchanged(_)));
        let stored = row.zip(verdict);
        let more = if counted { (self.len, self.next) } else { self.one_more() };
        let (record, values, unkept) = match (stored, old, known) {
            (Some((row, ListedState::Unchanged)), _, None) => {
                self.list.set_state(row, RowState::Unchanged(place));
                (self.len, self.next) = more;
                return (Some(record), None);
            }
            // A key that is already in `listed` keeps its entry, even if the object is now unchanged.
            (Some((_, ListedState::Unchanged)), Some(old), _) => {
                (old.clone(), AllValues::new(), Some(record))
            }
            _ => {
                let values = self.list.base.lasting_values(row, &record.object, &reader.seed);
                (record, values, None)
            }
        };
        let new = Listed { record, values, stored, place };
        // After this line, nothing panics.
        (self.len, self.next) = more;
        let replaced = match known {
            Some(at) => self.list.listed.get_mut(at).and_then(|known| known.replace(new)),
            None => {
                let at = self.list.listed.len();
                match row {
                    Some(row) => self.list.set_state(row, RowState::Changed(at)),
                    None => {
                        self.new.insert(hash, at as u32);
                        self.new_len += 1;
                    }
                }
                self.list.listed.push(Some(new));
                None
            }
        };
        (unkept, replaced)
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.reader.seed.hash_one(key);
        let row = self.list.base.find(hash, |known| known.borrow() == key);
        let known = self.changed_at(row, hash, key);
        row.iter().for_each(|row| self.removed_rows.set(*row, 1));
        let state = row.map(|row| self.list.state(row));
        row.iter().for_each(|row| self.list.set_state(*row, RowState::Unlisted));
        let Some(at) = known else {
            self.len -= usize::from(matches!(state, Some(RowState::Unchanged(_))));
            return;
        };
        if row.is_none() {
            self.new.remove(hash, at as u32);
            self.new_len -= 1;
        }
        let removed = self.list.listed.swap_remove(at);
        if at < self.list.listed.len() {
            let last = self.list.listed.len() as u32;
            let Listed { record, stored, .. } = self.list.listed(at);
            match (stored.map(|(row, _)| row), record.hash()) {
                (Some(row), _) => self.list.set_state(row, RowState::Changed(at)),
                (None, hash) => {
                    self.new.remove(hash, last);
                    self.new.insert(hash, at as u32);
                }
            }
        }
        self.len -= 1;
        // The removed entry is dropped last, because its destructor may panic.
        drop(removed);
    }

    /// Calls `keep` for the stored objects that are not listed, from the row `from` on, and lists those for which it returns true. Calls it up
    /// to `most` times. Returns the row at which to continue; `None` at the end.
    fn keep_rows(&mut self, from: u32, most: usize, mut keep: impl FnMut(u32, &V) -> bool) -> Option<u32> {
        if self.len - self.new_len == self.list.base.rows.len() {
            return None;
        }
        let base = self.list.base.clone();
        let (mut seen, mut asked) = (0, 0);
        for (row, record) in base.rows.items().iter_from(from) {
            // A row that is listed costs less than a call of `keep`.
            if seen / UNCHANGED + asked >= most {
                return Some(row);
            }
            seen += 1;
            if matches!(self.list.state(row), RowState::Unlisted) {
                asked += 1;
                if keep(row, &record.object) {
                    self.list_as_stored(row);
                }
            }
        }
        None
    }

    /// Frees a list that will not be published, up to `most` objects or nodes. Returns whether little is left. A panic of a destructor propagates; then
    /// the next call continues.
    pub(crate) fn release(&mut self, most: usize) -> bool {
        let listed = &mut self.list.listed;
        drop_each((0..most).map_while(|_| listed.pop()));
        listed.is_empty() && self.new.free(most) > 0
    }

    /// Like [`keep_stored`](Relist::keep_stored). If the key function panicked on a listed object, also keeps each stored object that is not listed and
    /// has the identity of this object, because it is in the source. (Without an identity function, that is every object that is not listed.) An
    /// object that was removed from the list is not kept for this reason.
    ///
    /// Works in pieces of at most `most` stored objects. The last call returns `Break` with the objects that were kept only for this reason.
    pub(crate) fn keep_unreadable(
        &mut self,
        most: usize,
        mut keep: impl FnMut(&V) -> bool,
    ) -> ControlFlow<Option<Withheld>> {
        let mut keeping = self.keeping.take().unwrap_or_else(|| {
            let mut unnamed = std::mem::take(&mut self.unnamed);
            let may_be = unnamed.transformed(self.transform.as_ref());
            Keeping { unnamed, may_be, next: 0, objects: 0 }
        });
        let removed_rows = std::mem::replace(&mut self.removed_rows, Paged::new());
        let (schema, mut objects) = (self.reader.schema, 0);
        let next = self.keep_rows(keeping.next, most, |row, stored| {
            if keep(stored) {
                return true;
            }
            let kept = removed_rows.get(row) == 0 && keeping.may_be.may_be(&schema, stored);
            objects += u64::from(kept);
            kept
        });
        keeping.objects += objects;
        if let Some(next) = next {
            keeping.next = next;
            (self.keeping, self.removed_rows) = (Some(keeping), removed_rows);
            return ControlFlow::Continue(());
        }
        let Keeping { unnamed: Unnamed { count, panic, .. }, may_be, objects, .. } = keeping;
        may_be.discard();
        ControlFlow::Break((objects > 0).then_some(Withheld { objects, unnamed: count, panic }))
    }
}
