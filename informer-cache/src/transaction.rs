//! SHELL. Several writes that are seen as one.
//!
//! Guards nothing: it is collected by its owner, judged without a lock, and published like a relist.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use hashbrown::HashTable;

use crate::inner::{Arrival, Found, Inner};
use crate::recipe::Drafted;
use crate::record::Record;
use crate::relist::Verdict;
use crate::stage::changes;
use crate::step::Step;
use crate::store::{judge_event, last_state};
use crate::table::{Raced, Side, Table};
use crate::{Change, Version};

/// Writes of several objects that are published at once; made by [`Store::transaction`](crate::Store::transaction).
///
/// Nothing of it is seen before [`commit`](Self::commit); dropping it writes nothing. Of several writes of one key the last counts, and it is
/// held against what is stored at the commit by the rules of [`Store::upsert`](crate::Store::upsert) and
/// [`Store::delete`](crate::Store::delete): what is stale then is left out.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Store, Version};
///
/// let store = Store::builder(Schema::new(|account: &(&str, i64)| account.0, |_| Version::ZERO)).build()?;
/// store.upsert(("a", 100));
///
/// let mut transfer = store.transaction();
/// transfer.upsert(("a", 70));
/// transfer.upsert(("b", 30));
/// assert_eq!(store.len(), 1);
/// assert_eq!(transfer.commit().len(), 2);
/// assert_eq!(store.snapshot().objects().map(|account| account.1).sum::<i64>(), 100);
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
pub struct Transaction<K, V> {
    inner: Arc<Inner<K, V>>,
    writes: Vec<Write<K, V>>,
    /// Where in `writes` a key is.
    places: HashTable<usize>,
    version: Version,
}

enum Write<K, V> {
    Upsert { new: Record<K, V>, drafted: Option<Drafted<V>> },
    Delete { hash: u64, key: K, last: Option<Arc<V>>, version: Version },
}

impl<K, V> Write<K, V> {
    fn hash(&self) -> u64 {
        match self {
            Self::Upsert { new, .. } => new.hash(),
            Self::Delete { hash, .. } => *hash,
        }
    }

    fn key(&self) -> &K {
        match self {
            Self::Upsert { new, .. } => new.key(),
            Self::Delete { key, .. } => key,
        }
    }
}

/// A write that would change nothing, as long as what was found under its key is there.
struct LeftOut<K, V> {
    /// Which of the writes.
    at: usize,
    stored: Option<(u32, Record<K, V>)>,
}

/// What a transaction comes to, as it was judged.
type Judged<K, V> = (Vec<Step<K, V>>, Vec<Side<V>>, Vec<LeftOut<K, V>>);

impl<K: Eq, V> LeftOut<K, V> {
    fn stands(&self, table: &Table<K, V>, writes: &[Write<K, V>]) -> bool {
        let write = &writes[self.at];
        match &self.stored {
            Some((row, stored)) => table.has(*row, stored),
            None => table.find(write.hash(), |key| key == write.key()).is_none(),
        }
    }
}

impl<K, V> Transaction<K, V>
where
    K: Clone + Eq + Hash,
    V: 'static,
{
    pub(crate) fn new(inner: Arc<Inner<K, V>>) -> Self {
        Self { inner, writes: Vec::new(), places: HashTable::new(), version: Version::ZERO }
    }

    /// The number of keys to be written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there is nothing to be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Stores an object, at the commit.
    pub fn upsert(&mut self, object: V) {
        let new = self.inner.reading.read(object).after(None);
        let version = new.version;
        self.put(Write::Upsert { new, drafted: None });
        self.version = self.version.max(version);
    }

    /// Forgets the object of a key, at the commit. `last` is its last state, if somebody knows it.
    pub fn delete(&mut self, key: K, last: Option<V>) {
        let reading = &self.inner.reading;
        let hash = reading.seed.hash_one(&key);
        let version = last.as_ref().map_or(Version::ZERO, |last| reading.schema.version(last));
        let last = last.map(|last| Arc::new(reading.transform(last)));
        self.put(Write::Delete { hash, key, last, version });
        self.version = self.version.max(version);
    }

    fn put(&mut self, write: Write<K, V>) {
        let (writes, places) = (&mut self.writes, &mut self.places);
        let hash = write.hash();
        let known = places.find(hash, |&at| writes[at].hash() == hash && writes[at].key() == write.key());
        match known {
            Some(&at) => drop(std::mem::replace(&mut writes[at], write)),
            None => {
                writes.push(write);
                places.insert_unique(hash, writes.len() - 1, |&at| writes[at].hash());
            }
        }
    }

    /// Publishes everything at once, and says what changed: deletions first, then the rest in the order of their first writes.
    ///
    /// The store's version grows to the newest of the objects, also of those that are stale. Readers see all of it or nothing; they are kept out for
    /// the swap of one address. Where another writer comes in between, everything is judged again. O(writes).
    ///
    /// # Panics
    /// As [`Stage::publish`](crate::Stage::publish).
    pub fn commit(mut self) -> Vec<Change<K, V>> {
        let (steps, left_out) = loop {
            let (mut order, mut prepared, left_out) = self.judge();
            let arrival = Arrival::News(self.version);
            let published = self.inner.publish(arrival, |table| {
                let mut judged = order.iter().zip(&prepared);
                let stands = judged.all(|(step, side)| table.stands(step, side))
                    && left_out.iter().all(|one| one.stands(table, &self.writes));
                match stands {
                    true => Ok((std::mem::take(&mut order), std::mem::take(&mut prepared))),
                    false => Err(Raced),
                }
            });
            match published {
                Ok(steps) => break (steps, left_out),
                Err(Raced) => self.take_back(order, prepared),
            }
        };
        let changes = changes(&steps, &self.inner.reading.schema);
        drop((steps, left_out, self));
        changes
    }

    /// What each write does to what is stored now; and those that do nothing.
    fn judge(&mut self) -> Judged<K, V> {
        let reading = self.inner.reading;
        let (mut gone, mut rest, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        for (at, write) in self.writes.iter_mut().enumerate() {
            match write {
                Write::Upsert { new, drafted } => {
                    let Found { recipe, old, values, revision } =
                        self.inner.find(new.hash(), |key| key == new.key());
                    let verdict = old.as_ref().map(|(_, old)| judge_event(&reading.schema, old, new));
                    let row = old.as_ref().map(|(row, _)| *row);
                    let new = new.clone();
                    let step = match (old, verdict) {
                        (stored, Some(Verdict::Unchanged)) => {
                            left_out.push(LeftOut { at, stored });
                            continue;
                        }
                        (Some((_, old)), Some(Verdict::Updated)) => Step::Updated { old, new },
                        (Some((_, old)), Some(Verdict::Replaced)) => Step::Replaced { old, new },
                        (None, _) | (_, None) => Step::Added { new, initial: false },
                    };
                    let object = &step.after().expect("an upsert").object;
                    let drafted = Drafted::again(drafted.take(), recipe, object, values, &reading.seed);
                    rest.push((step, Side { row, drafted: Some(drafted), judged: revision }));
                }
                Write::Delete { hash, key, last, version } => {
                    let Found { old, revision, .. } = self.inner.find(*hash, |known| known == key);
                    match old {
                        Some((row, old)) if version.is_none() || *version >= old.version => {
                            let last = last_state(&reading.schema, &old, last.as_ref());
                            gone.push((
                                Step::Deleted { old, last },
                                Side { row: Some(row), drafted: None, judged: revision },
                            ));
                        }
                        stored => left_out.push(LeftOut { at, stored }),
                    }
                }
            }
        }
        let (steps, sides) = gone.into_iter().chain(rest).unzip();
        (steps, sides, left_out)
    }

    /// What the indexes said of the objects is kept for the next try.
    fn take_back(&mut self, steps: Vec<Step<K, V>>, sides: Vec<Side<V>>) {
        let judged = steps.iter().zip(sides);
        let mut judged = judged.filter_map(|(step, side)| Some((step.after()?, side.drafted))).peekable();
        for write in &mut self.writes {
            let Write::Upsert { new, drafted } = write else { continue };
            // In the order of the writes, some of which were left out.
            if let Some((_, kept)) = judged.next_if(|(other, _)| other.is(new)) {
                *drafted = kept;
            }
        }
    }
}

impl<K, V> fmt::Debug for Transaction<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("len", &self.writes.len()).finish_non_exhaustive()
    }
}
