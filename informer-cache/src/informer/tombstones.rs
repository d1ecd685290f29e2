//! PURE. Decides whether an event is stale if no object is stored under its key.
//!
//! The store compares an event with the stored object of its key. If no object is stored, there are three possibilities: the event reports a new
//! object, it is a late event of a deleted object, or it is older than the last list. The rules:
//!
//! | version of an event whose key has no stored object | the event is |
//! |---|---|
//! | none | applied |
//! | at most the **floor** | stale |
//! | lower than the lowest version that is accepted after a remembered deletion of the key | stale |
//! | anything else | applied |
//!
//! The floor is the version up to which the source has delivered every change: the version of the last list or of a newer bookmark. A deletion is
//! remembered until the floor reaches its version. If the number of remembered deletions exceeds the maximum, the older half is forgotten, and the
//! floor rises far enough that every event which these deletions made stale is still stale. So a late event never adds a deleted object again. But an
//! addition may count as stale only because many newer deletions (at least half the maximum) arrived before it.
//!
//! While a streaming list arrives, its deletions do not raise the floor, however many they are. Otherwise, an old object that the list delivers as an
//! addition could count as stale, and would be missing in the store. When the list is complete, and there are more deletions than the maximum, the
//! older ones are forgotten as described above.
//!
//! After the deletion at version *d* of an object stored at version *s*, an event at *d* is applied if *d* is above *s*, because one write of the
//! source may delete one object and create another under its key. (If such a deletion is delivered again, after the creation, it is stale, so it is not
//! recorded; see `is_stale_deletion`.) An event at *s* is stale even if *d* equals *s*, because some sources give a
//! deletion the version of the last update.
//!
//! # Invariants
//! 1. A deletion is remembered only if it makes a version above the floor stale.
//! 2. `highest` is the highest version of a remembered deletion, or the floor if no remembered deletion is higher.
//! 3. At most `most` deletions are remembered, except while a streaming list arrives.
//!
//! A panic of a key's destructor propagates when the call is complete.

use std::hash::Hash;

use flyball_sync::panics::{DropContained, drop_each};
use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::Version;

/// The floor and the remembered deletions, which decide whether an event is stale if no object is stored under its key.
pub(super) struct Tombstones<K> {
    floor: Version,
    /// For each key that was deleted at a version above the floor, the lowest version at which an event is applied.
    deletions: HashMap<DropContained<K>, Version, RandomState>,
    highest: Version,
    most: usize,
    /// Whether a streaming list arrives.
    streaming: bool,
}

impl<K: Eq + Hash> Tombstones<K> {
    /// Creates an empty `Tombstones`, which remembers at most `most` deletions.
    pub(super) fn new(most: usize) -> Self {
        let (floor, highest) = (Version::ZERO, Version::ZERO);
        Self { floor, deletions: HashMap::default(), highest, most, streaming: false }
    }

    /// Forgets all deletions, and sets the floor to `version`: the version of a list that was published.
    pub(super) fn listed(&mut self, version: Version) {
        self.restart(version, false);
    }

    /// Forgets all deletions, and sets the floor to zero, because a streaming list begins. It lasts until [`complete`](Self::complete).
    pub(super) fn stream_begun(&mut self) {
        self.restart(Version::ZERO, true);
    }

    fn restart(&mut self, floor: Version, streaming: bool) {
        // A streaming list may have had many deletions, whose memory is freed.
        let forgotten = std::mem::take(&mut self.deletions);
        (self.floor, self.highest, self.streaming) = (floor, floor, streaming);
        drop_each(forgotten.into_keys());
    }

    /// Raises the floor to this version, because the source has delivered every change up to it.
    pub(super) fn complete(&mut self, version: Version) {
        self.streaming = false;
        drop([self.raise(version), self.limit()]);
    }

    /// Records the deletion of an object. `version` is the version of the deletion (zero if unknown); `stored` is the version of the stored object,
    /// if there was one.
    pub(super) fn deleted(&mut self, key: K, version: Version, stored: Option<Version>) {
        let key = DropContained::new(key);
        let after =
            stored.filter(|stored| !stored.is_zero()).map_or(0, |stored| stored.get().saturating_add(1));
        let least = version.max(Version::new(after));
        if least.get() <= self.floor.get().saturating_add(1) {
            return;
        }
        self.highest = self.highest.max(least);
        let unused = match self.deletions.get_mut(&*key) {
            Some(known) => {
                *known = least.max(*known);
                Some(key)
            }
            None => {
                self.deletions.insert(key, least);
                None
            }
        };
        drop((self.limit(), unused));
    }

    /// Forgets the older deletions if there are too many. Returns their keys.
    fn limit(&mut self) -> Vec<DropContained<K>> {
        if self.streaming || self.deletions.len() <= self.most {
            return Vec::new();
        }
        let mut versions: Vec<_> = self.deletions.values().copied().collect();
        let newer = self.most.div_ceil(2);
        let (_, middle, _) = versions.select_nth_unstable(self.deletions.len() - 1 - newer);
        // `middle` is itself an accepted version, so the floor is the version before it.
        let floor = Version::new(middle.get() - 1);
        self.raise(floor)
    }

    /// Returns whether an event of this version can be stale. The caller looks up the event's key only if this is `true`, which is rare if versions
    /// arrive in order.
    pub(super) fn concerns(&self, version: Version) -> bool {
        !version.is_zero() && (version <= self.floor || version < self.highest)
    }

    /// Returns whether an event is stale, given that no object is stored under its key.
    pub(super) fn is_stale(&self, key: &K, version: Version) -> bool {
        let below = |least: &Version| version < *least;
        !version.is_zero() && (version <= self.floor || self.deletions.get(key).is_some_and(below))
    }

    /// Raises the floor to this version, unless it is there already. Returns the keys of the deletions that are no longer needed, because the floor
    /// rejects their stale events.
    fn raise(&mut self, floor: Version) -> Vec<DropContained<K>> {
        if floor <= self.floor {
            return Vec::new();
        }
        self.floor = floor;
        let is_needless =
            |_: &DropContained<K>, least: &mut Version| least.get() <= floor.get().saturating_add(1);
        let forgotten = self.deletions.extract_if(is_needless).map(|(key, _)| key).collect();
        self.deletions.shrink_to(2 * self.most);
        self.highest = self.deletions.values().copied().max().unwrap_or(floor).max(floor);
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use testkit::random::{Random, cases};

    use super::*;

    /// The reference implementation, which keeps every deletion and scans all of them for each query.
    #[derive(Default)]
    struct Naive {
        complete: u64,
        deleted: Vec<(u8, u64)>,
    }

    impl Naive {
        fn is_stale(&self, key: u8, version: u64) -> bool {
            let after = |deleted: &(u8, u64)| deleted.0 == key && version < deleted.1;
            version != 0 && (version <= self.complete || self.deleted.iter().any(after))
        }
    }

    #[test]
    fn matches_reference_below_capacity() {
        cases("tombstones", 2_000, 60, |bytes| {
            let (mut real, mut naive) = (Tombstones::new(64), Naive::default());
            for three in bytes.chunks_exact(3) {
                let (key, version) = (three[1] % 4, u64::from(three[2] % 32));
                match three[0] % 8 {
                    0 => {
                        real.listed(Version::new(version));
                        naive = Naive { complete: version, ..Naive::default() };
                    }
                    1 => {
                        real.complete(Version::new(version));
                        naive.complete = naive.complete.max(version);
                    }
                    roll => {
                        let stored = (roll > 4).then(|| u64::from(three[0] / 8));
                        real.deleted(key, Version::new(version), stored.map(Version::new));
                        let after = stored.filter(|stored| *stored > 0).map_or(0, |stored| stored + 1);
                        naive.deleted.push((key, version.max(after)));
                    }
                }
                for (key, version) in (0..4).flat_map(|key| (0..40).map(move |version| (key, version))) {
                    let stale = real.is_stale(&key, Version::new(version));
                    assert_eq!(stale, naive.is_stale(key, version), "{key}@{version}");
                    assert!(real.concerns(Version::new(version)) || !stale, "{key}@{version}");
                }
            }
        });
    }

    #[test]
    fn deletions_during_a_streaming_list_are_all_remembered() {
        let mut real = Tombstones::new(8);
        real.stream_begun();
        (0..100).for_each(|key| real.deleted(key, Version::new(100 + key), None));
        assert_eq!((real.deletions.len(), real.floor), (100, Version::ZERO));
        assert!(real.is_stale(&0, Version::new(99)) && !real.is_stale(&999, Version::new(2)));
        real.complete(Version::new(110));
        assert!(real.deletions.len() <= 8 && real.deletions.capacity() < 64);
        assert!((0..100).all(|key| real.is_stale(&key, Version::new(99 + key))));
        assert!(!real.is_stale(&999, Version::new(199)));
        // A second list without versions ends, too.
        real.stream_begun();
        (0..100).for_each(|key| real.deleted(key, Version::new(100 + key), None));
        real.complete(Version::ZERO);
        assert!(real.deletions.len() <= 8);
    }

    #[test]
    fn evicted_deletions_stay_stale() {
        let mut real = Tombstones::new(8);
        let (mut random, mut deleted) = (Random::new(7), BTreeMap::new());
        for turn in 1..2_000_u64 {
            let (key, version) = (random.below(500), turn + random.below(4));
            real.deleted(key, Version::new(version), None);
            let last = deleted.entry(key).or_insert(0);
            *last = version.max(*last);
            assert!(real.deletions.len() <= 8);
            for (key, version) in &deleted {
                assert!(real.is_stale(key, Version::new(version - 1)) || *version == 1, "{key}@{version}");
            }
            // A newer version is accepted.
            assert!(!real.is_stale(&999, Version::new(turn + 4)));
        }
    }
}
