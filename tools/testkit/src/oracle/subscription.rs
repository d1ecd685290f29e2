//! The reference subscription. It stores every step of a key since the last delivery, and merges the steps only when the subscriber takes the change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::oracle::store::{OracleChange, OracleStep};

/// The rows of the merge table: the pending change of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Row {
    Nothing,
    Added,
    Updated,
    Deleted,
    Replaced,
}

/// The columns of the merge table: the incoming change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Incoming {
    Added,
    Updated,
    Deleted,
    Replaced,
    Resync,
}

/// The kinds of changes, before the filter of a subscription is applied. `Again` is a delivery by a resync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum DeliveredKind {
    Initial,
    Added,
    Updated,
    Replaced,
    Deleted,
    Again,
}

/// How a change passes a filter: the kind of the change, whether the filter accepts the state that was delivered last, and whether it accepts the
/// newest state.
pub type Crossing = (DeliveredKind, bool, bool);

/// Coverage counters: one for each cell of the merge table, one for each [`Crossing`] at the filters of subscriptions, and one for each [`Crossing`]
/// at selections of objects.
#[derive(Clone, Debug, Default)]
pub struct MergeCells([[u64; 5]; 5], BTreeMap<Crossing, u64>, BTreeMap<Crossing, u64>);

impl MergeCells {
    const ROWS: [Row; 5] = [Row::Nothing, Row::Added, Row::Updated, Row::Deleted, Row::Replaced];
    const COLUMNS: [Incoming; 5] =
        [Incoming::Added, Incoming::Updated, Incoming::Deleted, Incoming::Replaced, Incoming::Resync];

    /// Returns whether a cell cannot occur. A key that is present is not added, a key that is absent can only be added, and a resync covers only keys
    /// that the consumer has.
    fn is_blank(row: Row, incoming: Incoming) -> bool {
        match (row, incoming) {
            (Row::Nothing, _) => false,
            (row, Incoming::Resync) => row == Row::Added,
            (Row::Deleted, incoming) => incoming != Incoming::Added,
            (_, incoming) => incoming == Incoming::Added,
        }
    }

    /// The combinations that can occur at a filter. An addition has no old state, a deletion has no new state, and a resync delivers the same state
    /// as old and new.
    fn crossings() -> impl Iterator<Item = Crossing> {
        let of = |kind, sides: &[(bool, bool)]| {
            sides.iter().map(|(was, is)| (kind, *was, *is)).collect::<Vec<_>>()
        };
        let (comes, goes) = ([(false, false), (false, true)], [(false, false), (true, false)]);
        let all = [(false, false), (false, true), (true, false), (true, true)];
        let again = [(false, false), (true, true)];
        [
            of(DeliveredKind::Initial, &comes),
            of(DeliveredKind::Added, &comes),
            of(DeliveredKind::Updated, &all),
            of(DeliveredKind::Replaced, &all),
            of(DeliveredKind::Deleted, &goes),
            of(DeliveredKind::Again, &again),
        ]
        .into_iter()
        .flatten()
    }

    fn crossed(&mut self, kind: DeliveredKind, was: bool, is: bool) {
        assert!(Self::crossings().any(|crossing| crossing == (kind, was, is)));
        *self.1.entry((kind, was, is)).or_default() += 1;
    }

    /// Counts the crossing of a step at a selection of objects.
    ///
    /// # Panics
    /// Panics if this crossing cannot occur.
    pub fn narrowed<K: Clone, V: Clone>(
        &mut self,
        step: &OracleStep<K, V>,
        of_interest: impl Fn(&V) -> bool,
    ) {
        let kind = match step {
            OracleStep::Added { .. } => DeliveredKind::Added,
            OracleStep::Updated { .. } => DeliveredKind::Updated,
            OracleStep::Replaced { .. } => DeliveredKind::Replaced,
            OracleStep::Deleted { .. } => DeliveredKind::Deleted,
        };
        let (before, after) = step.ends();
        let crossing = (kind, before.is_some_and(&of_interest), after.is_some_and(&of_interest));
        assert!(Self::crossings().any(|other| other == crossing));
        *self.2.entry(crossing).or_default() += 1;
    }

    /// Returns the crossings at selections of objects that were counted fewer than `floor` times.
    #[must_use]
    pub fn narrowings_below(&self, floor: u64) -> Vec<(Crossing, u64)> {
        let steps = Self::crossings()
            .filter(|(kind, ..)| !matches!(kind, DeliveredKind::Initial | DeliveredKind::Again));
        let counts = steps.map(|crossing| (crossing, self.2.get(&crossing).copied().unwrap_or(0)));
        counts.filter(|(_, count)| *count < floor).collect()
    }

    /// Returns the crossings at filters of subscriptions that were counted fewer than `floor` times.
    #[must_use]
    pub fn crossings_below(&self, floor: u64) -> Vec<(Crossing, u64)> {
        let counts =
            Self::crossings().map(|crossing| (crossing, self.1.get(&crossing).copied().unwrap_or(0)));
        counts.filter(|(_, count)| *count < floor).collect()
    }

    fn hit(&mut self, row: Row, incoming: Incoming) {
        assert!(!Self::is_blank(row, incoming), "{incoming:?} on {row:?} cannot happen");
        self.0[row as usize][incoming as usize] += 1;
    }

    /// Returns the cells of the merge table that were counted fewer than `floor` times, except for the cells that cannot occur.
    #[must_use]
    pub fn below(&self, floor: u64) -> Vec<(Row, Incoming, u64)> {
        let every = Self::ROWS.into_iter().flat_map(|row| Self::COLUMNS.map(|column| (row, column)));
        every
            .filter(|(row, column)| !Self::is_blank(*row, *column))
            .map(|(row, column)| (row, column, self.0[row as usize][column as usize]))
            .filter(|(.., hits)| *hits < floor)
            .collect()
    }
}

/// All steps of one key since its last delivery.
#[derive(Clone, Debug)]
struct Log<V> {
    /// The state delivered last.
    held: Option<V>,
    /// The newest state.
    now: Option<V>,
    /// For each deleted object of this key: its last state, and whether its deletion was missed.
    ends: Vec<(V, bool)>,
    /// Whether the first list of the store added the object.
    initial: bool,
}

/// The reference subscription.
#[derive(Clone, Debug)]
pub struct OracleSubscription<K, V> {
    same: fn(&V, &V) -> bool,
    /// The objects of the snapshot, of the initial objects or of a resync, that are not delivered yet, in the order of the snapshot.
    walk: VecDeque<(K, V)>,
    initial: bool,
    resync: bool,
    /// The pending keys, in the order in which they became pending.
    order: Vec<K>,
    logs: BTreeMap<K, Log<V>>,
    ready: VecDeque<OracleChange<K, V>>,
    /// The keys that have to be delivered before the initial objects are complete; `None` before the first list.
    awaited: Option<BTreeSet<K>>,
    /// Whether the changes in `ready` belong to a key that was in `awaited`.
    delivering_awaited: bool,
    /// Returns whether an object is delivered. With `None`, all objects are delivered.
    filter: Option<fn(&V) -> bool>,
    /// The period of the resyncs, and the time of the next resync.
    period: Option<(u64, u64)>,
    /// The maximum number of pending keys.
    most: usize,
    /// The number of keys that were pending when it exceeded the maximum; `None` if the maximum was not exceeded.
    lost: Option<usize>,
}

impl<K: Ord + Clone, V: Clone> OracleSubscription<K, V> {
    /// Creates a subscription that first delivers the objects of `snapshot`, in this order. `listed` is true if the store has received its first
    /// list.
    pub fn new(same: fn(&V, &V) -> bool, snapshot: impl IntoIterator<Item = (K, V)>, listed: bool) -> Self {
        let walk: VecDeque<_> = snapshot.into_iter().collect();
        Self {
            same,
            initial: !walk.is_empty(),
            walk,
            resync: false,
            order: Vec::new(),
            logs: BTreeMap::new(),
            ready: VecDeque::new(),
            awaited: listed.then(BTreeSet::new),
            delivering_awaited: false,
            filter: None,
            period: None,
            most: usize::MAX,
            lost: None,
        }
    }

    /// Sets the maximum number of pending keys.
    #[must_use]
    pub fn bounded(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Checks whether the maximum number of pending keys is exceeded, and if so, discards all pending changes. Call this after each write.
    pub fn wrote(&mut self) {
        if self.lost.is_none() && self.order.len() > self.most {
            self.lost = Some(self.order.len());
            self.order.clear();
            self.logs.clear();
        }
    }

    /// Whether the maximum number of pending keys was exceeded.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Restarts the subscription with the same options. The arguments are those of [`new`](Self::new).
    pub fn restart(&mut self, snapshot: impl IntoIterator<Item = (K, V)>, listed: bool) {
        let Self { same, filter, period, most, .. } = *self;
        *self = Self { filter, period, most, ..Self::new(same, snapshot, listed) };
    }

    /// Makes the subscription deliver only objects for which `filter` returns true.
    #[must_use]
    pub fn filtered(self, filter: fn(&V) -> bool) -> Self {
        Self { filter: Some(filter), ..self }
    }

    /// Makes the subscription resync `period` after `now`, and then `period` after each periodic resync.
    #[must_use]
    pub fn resync_every(self, period: u64, now: u64) -> Self {
        Self { period: Some((period, now + period)), ..self }
    }

    /// Whether a periodic resync is due at `now`.
    #[must_use]
    pub fn is_due(&self, now: u64) -> bool {
        self.period.is_some_and(|(_, next)| now >= next)
    }

    fn passes(&self, object: &V) -> bool {
        self.filter.is_none_or(|filter| filter(object))
    }

    fn crossed(&self, cells: &mut MergeCells, kind: DeliveredKind, was: bool, is: bool) {
        if self.filter.is_some() {
            cells.crossed(kind, was, is);
        }
    }

    /// The number of pending changes.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.walk.len() + self.order.len() + self.ready.len() + self.lost.unwrap_or(0)
    }

    /// Handles the end of a list. Call this after the steps of a list that the store has published were recorded.
    pub fn listed(&mut self) {
        if self.awaited.is_none() {
            self.awaited = Some(self.order.iter().cloned().collect());
            // The changes in `ready` were taken from the pending keys before the list was published, and have to be delivered before the initial
            // objects are complete.
            self.delivering_awaited = !self.ready.is_empty();
        }
    }

    /// Whether all initial objects were delivered.
    #[must_use]
    pub fn is_initial_delivered(&self) -> bool {
        let kind = self.awaited.as_ref().is_some_and(BTreeSet::is_empty);
        let delivering_awaited = self.delivering_awaited && !self.ready.is_empty();
        kind && !self.initial && !delivering_awaited && self.lost.is_none()
    }

    /// Records a step of the store.
    ///
    /// # Panics
    /// Panics if the step belongs to a cell of the merge table that cannot occur.
    pub fn record(&mut self, step: &OracleStep<K, V>, cells: &mut MergeCells) {
        if self.lost.is_some() {
            return;
        }
        let key = step.key().clone();
        let (old, new, end, incoming) = match step.clone() {
            OracleStep::Added { new, .. } => (None, Some(new), None, Incoming::Added),
            OracleStep::Updated { old, new, .. } => (Some(old), Some(new), None, Incoming::Updated),
            OracleStep::Replaced { old, new, .. } => {
                (Some(old.clone()), Some(new), Some((old, true)), Incoming::Replaced)
            }
            OracleStep::Deleted { old, last, missed, .. } => {
                (Some(old), None, Some((last, missed)), Incoming::Deleted)
            }
        };
        let initial = matches!(step, OracleStep::Added { initial: true, .. });
        cells.hit(self.row(&key), incoming);
        if !self.logs.contains_key(&key) {
            // No change of the key is pending. So the consumer has received the last state of the key, or will receive it before this change.
            self.order.push(key.clone());
            self.logs.insert(key.clone(), Log { held: old, now: None, ends: Vec::new(), initial });
        }
        let log = self.logs.get_mut(&key).expect("the log was inserted above");
        log.now = new;
        log.ends.extend(end);
        if log.held.is_none() && log.now.is_none() {
            self.forget(&key);
        }
    }

    fn row(&self, key: &K) -> Row {
        match self.logs.get(key) {
            None => Row::Nothing,
            Some(Log { held: None, .. }) => Row::Added,
            Some(Log { now: None, .. }) => Row::Deleted,
            Some(Log { ends, .. }) if ends.is_empty() => Row::Updated,
            Some(_) => Row::Replaced,
        }
    }

    fn forget(&mut self, key: &K) -> Option<Log<V>> {
        self.order.retain(|pending| pending != key);
        if let Some(awaited) = &mut self.awaited {
            awaited.remove(key);
        }
        self.logs.remove(key)
    }

    /// Requests a resync. A request has no effect while the initial objects or the objects of a resync are being delivered.
    pub fn resync(&mut self) {
        self.resync |= !self.initial && self.walk.is_empty();
    }

    /// Takes the next change at the time `now`. `objects` are the objects of the store in its order, or `None` if the store is closed.
    ///
    /// # Panics
    /// Panics if a resync covers a key that the consumer does not have.
    pub fn next<'a>(
        &mut self,
        cells: &mut MergeCells,
        objects: Option<&'a [(K, V)]>,
        now: u64,
    ) -> Option<OracleChange<K, V>>
    where
        K: 'a,
        V: 'a,
    {
        let mut resynced = false;
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Some(change);
            }
            if let Some((key, object)) = self.walk.pop_front() {
                if self.initial {
                    let object = self.forget(&key).map_or(Some(object), |log| log.now);
                    if let Some(object) = object {
                        let is = self.passes(&object);
                        self.crossed(cells, DeliveredKind::Initial, false, is);
                        self.ready.extend(is.then_some(OracleChange::Added { key, object, initial: true }));
                    }
                } else {
                    cells.hit(self.row(&key), Incoming::Resync);
                    if !self.logs.contains_key(&key) {
                        let (old, new) = (object.clone(), object);
                        let is = self.passes(&new);
                        self.crossed(cells, DeliveredKind::Again, is, is);
                        self.ready.extend(is.then_some(OracleChange::Updated { key, old, new }));
                    }
                }
                self.initial &= !self.walk.is_empty();
                continue;
            }
            let Some(key) = self.order.first().cloned() else {
                let due = !std::mem::take(&mut self.resync);
                if due && (resynced || objects.is_none() || !self.is_due(now)) {
                    return None;
                }
                if due {
                    resynced = true;
                    self.period = self.period.map(|(period, _)| (period, now + period));
                }
                self.walk.extend(objects.into_iter().flatten().cloned());
                continue;
            };
            self.delivering_awaited = self.awaited.as_ref().is_some_and(|awaited| awaited.contains(&key));
            let log = self.forget(&key).expect("the key is pending");
            self.queue_change(key, log, cells);
        }
    }

    /// Computes the change of a key from its steps, and puts it into `ready`. For the consumer, an object that the filter rejects does not exist.
    fn queue_change(&mut self, key: K, log: Log<V>, cells: &mut MergeCells) {
        let Log { held, now, ends, initial } = log;
        let was = held.as_ref().is_some_and(|held| self.passes(held));
        let is = now.as_ref().is_some_and(|now| self.passes(now));
        match (held, now) {
            (None, None) => {}
            (None, Some(object)) => {
                self.crossed(cells, DeliveredKind::Added, false, is);
                self.ready.extend(is.then_some(OracleChange::Added { key, object, initial }));
            }
            (Some(old), Some(new)) if (self.same)(&old, &new) => {
                self.crossed(cells, DeliveredKind::Updated, was, is);
                self.ready.extend(match (was, is) {
                    (true, true) => Some(OracleChange::Updated { key, old, new }),
                    (false, true) => Some(OracleChange::Added { key, object: new, initial: false }),
                    (true, false) => Some(OracleChange::Deleted { key, last: old, missed: false }),
                    (false, false) => None,
                });
            }
            (Some(old), now) => {
                let kind = if now.is_some() { DeliveredKind::Replaced } else { DeliveredKind::Deleted };
                self.crossed(cells, kind, was, is);
                let own = ends.last().filter(|(last, _)| (self.same)(&old, last));
                let (last, missed) = own.or(ends.first()).expect("a removed object has a last state").clone();
                self.ready.extend(match (now.filter(|_| is), was) {
                    (Some(new), true) => Some(OracleChange::Replaced { key, last, new }),
                    (Some(object), false) => Some(OracleChange::Added { key, object, initial: false }),
                    (None, true) => Some(OracleChange::Deleted { key, last, missed }),
                    (None, false) => None,
                });
            }
        }
    }
}
