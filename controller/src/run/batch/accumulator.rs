//! PURE. Collects items by group, up to a size and for a limited time.
//!
//! # Invariants
//! 1. A group has at most one open batch, which has at least one item and fewer than `size` items.
//! 2. `open` sorts the groups by the order in which they were opened, which is also the order of their deadlines.
//! 3. `held` counts the items in open groups, and is below `max_held`.
//!
//! Times are durations since a fixed moment, and never decrease.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use flyball_sync::panics;

#[derive(Debug)]
pub(crate) struct Accumulator<G, T> {
    size: usize,
    window: Duration,
    /// The number of held items at which the oldest group is closed.
    max_held: usize,
    held: usize,
    /// The number of items that were added so far.
    added: u64,
    /// The open groups, each stored under the number that it received when it was opened.
    open: BTreeMap<u64, Open<G, T>>,
    numbers: HashMap<G, u64>,
    opened: u64,
}

#[derive(Debug)]
struct Open<G, T> {
    group: G,
    until: Duration,
    /// The number of items that had been added before this group was opened.
    added_before: u64,
    items: Vec<T>,
}

impl<G: Clone + Eq + Hash, T> Accumulator<G, T> {
    /// Creates an accumulator of batches. A batch has up to `size` items, and stays open for up to `window` after its first item. `size` must be
    /// positive.
    pub(crate) fn new(size: usize, window: Duration, max_held: usize) -> Self {
        Self {
            size,
            window,
            max_held,
            held: 0,
            added: 0,
            open: BTreeMap::new(),
            numbers: HashMap::new(),
            opened: 0,
        }
    }

    /// Opens the group if it is not open, and returns its number, under which the item must then be [added](Self::add).
    ///
    /// # Panics
    /// Panics if `Eq`, `Hash`, `Clone` or `Drop` of a group panics. No item is lost. No other function of this type panics.
    pub(crate) fn place(&mut self, group: G, now: Duration) -> u64 {
        // If `Eq`, `Hash` or `Clone` of a group panicked, `numbers` may still contain the number of a group that is no longer open.
        match self.numbers.get(&group).filter(|number| self.open.contains_key(number)) {
            Some(number) => *number,
            None => {
                self.opened += 1;
                let until = now.saturating_add(self.window);
                self.numbers.insert(group.clone(), self.opened);
                self.open
                    .insert(self.opened, Open { group, until, added_before: self.added, items: Vec::new() });
                self.opened
            }
        }
    }

    /// Adds an item to the group with this number. Returns the batch of the group if that batch is full now, or the oldest batch if `max_held` items
    /// are held.
    pub(crate) fn add(&mut self, number: u64, item: T) -> Option<Vec<T>> {
        let items = &mut self.open.get_mut(&number).expect("the group was opened by `place`").items;
        items.push(item);
        self.held += 1;
        self.added += 1;
        match items.len() >= self.size {
            true => self.close(number),
            false if self.held >= self.max_held => self.oldest(),
            false => None,
        }
    }

    /// Returns the oldest batch if its deadline has passed.
    pub(crate) fn due(&mut self, now: Duration) -> Option<Vec<T>> {
        self.next_due().filter(|until| *until <= now)?;
        self.oldest()
    }

    /// Returns the oldest batch if its deadline has passed, so that it must be closed even if more keys are Ready. With a `window` of zero the
    /// deadline passes immediately, so the batch is returned only after more than `max_held` items were added since it was opened.
    pub(crate) fn overdue(&mut self, now: Duration) -> Option<Vec<T>> {
        let (_, Open { added_before, .. }) = self.open.first_key_value()?;
        let passed_over = self.added.saturating_sub(*added_before) > self.max_held as u64;
        if self.window.is_zero() && !passed_over {
            return None;
        }
        self.due(now)
    }

    /// Returns the next deadline.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.open.first_key_value().map(|(_, open)| open.until)
    }

    /// Returns the oldest batch, even before its deadline.
    pub(crate) fn oldest(&mut self) -> Option<Vec<T>> {
        let number = *self.open.first_key_value()?.0;
        self.close(number)
    }

    fn close(&mut self, number: u64) -> Option<Vec<T>> {
        let Open { group, items, .. } = self.open.remove(&number)?;
        self.held -= items.len();
        // Removed and dropped apart: if both panicked at once, the process would abort.
        panics::caught(|| self.numbers.remove(&group));
        panics::caught(|| drop(group));
        Some(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    impl<G: Clone + Eq + Hash, T> Accumulator<G, T> {
        fn put(&mut self, group: G, item: T, now: Duration) -> Option<Vec<T>> {
            let number = self.place(group, now);
            self.add(number, item)
        }

        fn check(&self) {
            assert_eq!(self.open.len(), self.numbers.len(), "1");
            for (number, open) in &self.open {
                assert_eq!(self.numbers.get(&open.group), Some(number), "1");
                assert!((1..self.size).contains(&open.items.len()), "1");
            }
            let added_before: Vec<u64> = self.open.values().map(|open| open.added_before).collect();
            assert!(
                added_before.is_sorted()
                    && added_before.last().is_none_or(|added_before| *added_before < self.added),
                "2"
            );
            let times: Vec<Duration> = self.open.values().map(|open| open.until).collect();
            assert!(times.is_sorted(), "2");
            let held: usize = self.open.values().map(|open| open.items.len()).sum();
            assert!(held == self.held && held < self.max_held, "3");
        }
    }

    #[test]
    fn closes_by_size_deadline_and_limit() {
        let mut batches = Accumulator::new(2, 10 * MILLI, 4);
        assert_eq!(batches.put('a', 1, Duration::ZERO), None);
        assert_eq!(batches.put('b', 2, 5 * MILLI), None);
        assert_eq!(batches.next_due(), Some(10 * MILLI), "the deadline of the first group");
        assert_eq!(batches.due(9 * MILLI), None);
        assert_eq!(batches.put('b', 3, 9 * MILLI), Some(vec![2, 3]), "the group is full");
        assert_eq!(batches.put('b', 4, 9 * MILLI), None, "a new group with a new deadline");
        assert_eq!(batches.due(10 * MILLI), Some(vec![1]), "the deadline of the first group has passed");
        assert_eq!((batches.due(18 * MILLI), batches.due(19 * MILLI)), (None, Some(vec![4])));
        assert_eq!((batches.next_due(), batches.oldest()), (None, None));
        // A group that stays open while other groups are filled and closed.
        for (window, max_held) in [(0, 4), (10, 1_000)] {
            let mut batches = Accumulator::new(2, window * MILLI, max_held);
            assert_eq!(batches.put('a', 1, Duration::ZERO), None);
            assert_eq!(batches.overdue(Duration::ZERO), None);
            for now in 0..5 {
                assert_eq!(batches.put('b', 2, now * MILLI), None);
                assert_eq!(batches.put('b', 3, now * MILLI), Some(vec![2, 3]));
            }
            assert_eq!(batches.overdue(9 * MILLI).is_some(), window == 0);
            assert_eq!(batches.overdue(10 * MILLI).is_some(), window == 10);
        }
        // With the fourth item, the limit of held items is reached.
        assert_eq!(batches.put('a', 1, 20 * MILLI), None);
        assert_eq!(batches.put('b', 2, 20 * MILLI), None);
        assert_eq!(batches.put('c', 3, 20 * MILLI), None);
        assert_eq!(batches.put('d', 4, 20 * MILLI), Some(vec![1]), "the oldest group is closed");
        batches.check();
    }

    /// Each item is returned exactly once, in the order of the adds, in a batch that contains only its group and is not too large.
    #[test]
    fn returns_each_item_once() {
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        let mut kinds = [0; 3];
        for life in 0..500 {
            let (size, window) = (1 + life % 4, (life as u32 / 4 % 3) * MILLI);
            let mut batches = Accumulator::new(size, window, 2 * size);
            let (mut now, mut added, mut returned) = (Duration::ZERO, 0, Vec::new());
            for _ in 0..200 {
                let batch: Option<Vec<(u64, u32, Duration)>> = if below(3) == 0 {
                    now += below(3) as u32 * MILLI / 2;
                    let due = batches.due(now);
                    kinds[2] += usize::from(due.is_some());
                    due
                } else {
                    let group = below(4);
                    added += 1;
                    let full = batches.put(group, (group, added, now), now);
                    kinds[usize::from(full.as_ref().is_some_and(|full| full.len() < size))] += 1;
                    full
                };
                batches.check();
                assert!(batches.next_due().is_none_or(|due| due <= now + window));
                if let Some(batch) = &batch {
                    assert!((1..=size).contains(&batch.len()));
                    assert!(batch.windows(2).all(|pair| pair[0].0 == pair[1].0 && pair[0].1 < pair[1].1));
                }
                returned.extend(batch.into_iter().flatten().map(|(_, number, _)| number));
            }
            while let Some(batch) = batches.oldest() {
                returned.extend(batch.into_iter().map(|(_, number, _)| number));
            }
            returned.sort_unstable();
            assert_eq!(returned, (1..=added).collect::<Vec<_>>());
        }
        assert!(kinds.iter().all(|times| *times > 100), "{kinds:?}");
    }
}
