//! Buckets by key, with more keys than fit, and keys that count what is done with them.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;

use flyball_ratelimit::{KeyedRateLimiter, Reservation, TryAcquireError};
use flyball_sync::{Clock, ManualClock, Nanos};

use super::op::{Key, SmallQuota};
use super::uses::{UseId, Uses};

/// A key that counts how often it is hashed, compared and cloned.
#[derive(Debug)]
struct Client(u8);

thread_local! {
    static HASHED: Cell<u32> = const { Cell::new(0) };
    static COMPARED: Cell<u32> = const { Cell::new(0) };
    static CLONED: Cell<u32> = const { Cell::new(0) };
}

fn count(counter: &'static std::thread::LocalKey<Cell<u32>>) {
    counter.set(counter.get() + 1);
}

impl Hash for Client {
    fn hash<H: Hasher>(&self, state: &mut H) {
        count(&HASHED);
        self.0.hash(state);
    }
}

impl PartialEq for Client {
    fn eq(&self, other: &Self) -> bool {
        count(&COMPARED);
        self.0 == other.0
    }
}

impl Eq for Client {}

impl Clone for Client {
    fn clone(&self) -> Self {
        count(&CLONED);
        Self(self.0)
    }
}

/// The maximum number of comparisons of an operation. A hash table compares a key with those whose hash has the same seven bits.
const COMPARISONS: u32 = 4;

/// A limiter by key, with the uses of each key.
pub(super) struct Keys {
    limiter: KeyedRateLimiter<Client, ManualClock>,
    clock: ManualClock,
    most: u32,
    uses: Vec<Uses>,
    held: Vec<(Key, Reservation, UseId)>,
}

impl Keys {
    pub(super) fn new(quota: SmallQuota, most: NonZeroU32, clock: &ManualClock) -> Self {
        let limiter = KeyedRateLimiter::with_clock(quota.quota(), clock.clone()).max_keys(most);
        let uses = (0..Key::COUNT).map(|_| Uses::new(quota)).collect();
        Self { limiter, clock: clock.clone(), most: most.get(), uses, held: Vec::new() }
    }

    pub(super) fn check(&self) {
        self.limiter.check().unwrap_or_else(|broken| panic!("{broken}"));
        let tracked = self.limiter.tracked_keys();
        assert!(tracked <= self.most as usize, "{tracked} keys, of at most {}", self.most);
    }

    /// Takes tokens if, and only if, they are available. Returns the due time otherwise.
    pub(super) fn try_acquire(&mut self, key: Key, count: NonZeroU32) -> Option<Nanos> {
        let now = self.clock.now();
        let available = self.limiter.available_tokens(&Client(key.0));
        let burst = self.uses(key).burst();
        assert!(available <= burst, "{available} tokens, with a burst of {burst}");
        match self.bounded(|limiter| limiter.try_acquire_many(&Client(key.0), count)) {
            Ok(()) => {
                assert!(count.get() <= available, "{count} of {available} tokens");
                self.uses(key).add(now.get(), now.get(), count.get());
                None
            }
            Err(TryAcquireError::NotYet(not_yet)) => {
                assert!(count.get() > available, "{count} of {available} tokens are denied");
                assert!(!not_yet.retry_after().is_zero(), "{not_yet}");
                Some(now + not_yet.retry_after())
            }
            Err(TryAcquireError::InsufficientCapacity(_)) => {
                assert!(count.get() > burst, "{count} tokens, with a burst of {burst}");
                None
            }
        }
    }

    pub(super) fn reserve(&mut self, key: Key, count: NonZeroU32) {
        let burst = self.uses(key).burst();
        match self.bounded(|limiter| limiter.reserve_many(&Client(key.0), count)) {
            Ok(reserved) => {
                let due = reserved.due();
                assert!(due >= self.clock.now(), "{reserved:?}");
                let id = self.uses(key).reserve(due, count.get());
                self.held.push((key, reserved, id));
            }
            Err(_) => assert!(count.get() > burst, "{count} tokens, with a burst of {burst}"),
        }
    }

    pub(super) fn cancel(&mut self, index: u8) {
        if self.held.is_empty() {
            return;
        }
        let (key, reserved, id) = self.held.swap_remove(usize::from(index) % self.held.len());
        if self.bounded(|limiter| limiter.cancel(&Client(key.0), reserved)) {
            self.uses(key).remove(id);
        }
    }

    pub(super) fn set_quota(&mut self, quota: SmallQuota) {
        self.limiter.set_quota(quota.quota());
        self.uses.iter_mut().for_each(|uses| uses.set_quota(quota));
    }

    /// After a jump back, reservations that were due are not due again, and the limiter cannot know it. So the driver drops them.
    pub(super) fn jumped_back(&mut self) {
        self.held.clear();
        self.uses.iter_mut().for_each(Uses::new_era);
    }

    fn uses(&mut self, key: Key) -> &mut Uses {
        &mut self.uses[usize::from(key.0)]
    }

    /// Checks that an operation hashes its key once, clones it at most once, and compares it with few others, however many keys are stored.
    fn bounded<R>(&self, operation: impl FnOnce(&KeyedRateLimiter<Client, ManualClock>) -> R) -> R {
        [&HASHED, &COMPARED, &CLONED].into_iter().for_each(|counter| counter.set(0));
        let result = operation(&self.limiter);
        let counted = [HASHED.get(), COMPARED.get(), CLONED.get()];
        let [hashed, compared, cloned] = counted;
        assert!(
            hashed == 1 && compared <= COMPARISONS && cloned <= 1,
            "hashed, compared, cloned: {counted:?}"
        );
        result
    }
}
