//! SHELL. A bucket's number, packed into 64 bits so that it can be used without a lock while there are no waiters.
//!
//! | what | guarded by |
//! |---|---|
//! | `word` | itself: changed by compare-and-exchange while it is open; opened and closed under the owner's lock |
//! | the epoch's constants | written under that lock while `word` is closed |
//! | [`LockedBucket`] | that lock |
//!
//! An *open* word is the exact time at which the bucket would be full, in parts, relative to a base that changes from epoch to epoch. A *closed* word
//! means that the number is behind the lock, where it has 128 bits. The word is closed while there are waiters or granted tokens that can still be
//! given back, while a thread changes the number under the lock, and while the number does not fit into the word (a burst that takes 2^62 parts to
//! fill, or a debt or clock jump of that length).
//!
//! # Why a stale thread changes nothing
//! A thread reads the word, then the constants, and changes or confirms the word last.
//! 1. If the thread has read a constant of a later epoch, the word was closed before that constant was written. The Acquire of that read makes this
//!    visible: the word now differs from the value that the thread read first.
//! 2. An epoch starts above all values that the word had before. So if the word is unchanged, the epoch is unchanged, too. The values wrap around
//!    after 2^63 parts, which is 292 years at rates with a whole number of nanoseconds per token, and at least two seconds at any rate. If a thread
//!    was stopped between two instructions for that long, and then found exactly the value that it had read before, its change would be wrong.
//!    Rejected remedies: a tag in the word, which leaves fewer bits for the time and wraps around sooner; a second atomic to count readers, which
//!    doubles the cost of all operations.

use std::num::NonZeroU32;

use flyball_sync::Nanos;
use flyball_sync::locks::{AtomicU64, Ordering};

use crate::bucket::fixed_point::FixedPointRate;
use crate::bucket::token_bucket::TokenBucket;
use crate::error::NotYet;

/// The value of a closed word, which means that the number is behind the lock.
const CLOSED: u64 = u64::MAX;
/// An epoch that would start above this value starts at zero.
const WRAP: u64 = 1 << 63;
/// The largest sum, in parts, of the burst and the missing tokens that fits into a word.
const ROOM: u128 = 1 << 62;
/// The latest time of an epoch, in the units of the word. A word that is higher than this by one burst still fits into 64 bits.
const LATEST: i128 = (1 << 64) - (1 << 62) - 1;
/// By how much, in parts, a clock reading may precede the start of the epoch, because the readings of several threads are not ordered.
const MARGIN: u64 = 1 << 32;

pub(crate) struct PackedBucket {
    word: AtomicU64,
    epoch: Epoch,
}

/// The meaning of the word: the time `now` has the value `now × rate + shift`, for times from `first` to `last`.
struct Epoch {
    first: Constant,
    last: Constant,
    rate: Constant,
    shift: Constant,
    token: Constant,
    capacity: Constant,
}

/// A constant of the epoch; it changes only while the word is closed.
struct Constant(AtomicU64);

impl Constant {
    #[inline]
    fn get(&self) -> u64 {
        // Ordering: Acquire, so that a thread that has read a constant of a later epoch then finds the word closed or changed.
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, value: u64) {
        // Ordering: Release, so that a thread that has read this value then finds the word closed or changed.
        self.0.store(value, Ordering::Release);
    }
}

/// The bucket behind the lock. While the word is open, only its quota is valid.
#[derive(Debug)]
pub(crate) struct LockedBucket {
    pub(crate) bucket: TokenBucket,
    /// The scale of the epoch; `None` before the first epoch.
    scale: Option<FixedPointRate>,
    /// A word of `value` represents `value + base`.
    base: i128,
    first: Nanos,
    last: Nanos,
    /// The largest value that the word had when it was closed, over all closings since the values last wrapped around.
    peak: u64,
}

impl LockedBucket {
    pub(crate) const fn new(bucket: TokenBucket) -> Self {
        Self { bucket, scale: None, base: 0, first: Nanos::ZERO, last: Nanos::ZERO, peak: 0 }
    }

    /// If the bucket fits into an epoch, starts an epoch above all previous values of the word, and returns true.
    fn begin(&mut self, now: Nanos) -> bool {
        let scale = *self.bucket.scale();
        let ahead = self.bucket.full_at().saturating_sub(scale.parts(now));
        if ahead.saturating_add(scale.capacity()) > ROOM {
            return false;
        }
        if self.peak >= WRAP {
            self.peak = 0;
        }
        // Below 2^63 + 2^62 + 2^33.
        let value = i128::from(self.peak) + 1 + ahead as i128 + i128::from(MARGIN);
        self.scale = Some(scale);
        self.base = self.bucket.full_at() as i128 - value;
        let rate = i128::from(scale.rate());
        // An epoch excludes `Nanos::MAX`: at that time all tokens are due, even if `full_at` is the horizon, and a word cannot represent the horizon.
        let clamped = |nanos: i128| Nanos::new(nanos.clamp(0, i128::from(u64::MAX) - 1) as u64);
        self.first = clamped((self.base.max(0) as u128).div_ceil(rate as u128) as i128);
        self.last = clamped((self.base + LATEST) / rate);
        true
    }

    /// Returns the value for an open word, if the epoch can represent the bucket and the time `now`.
    fn word(&self, now: Nanos) -> Option<u64> {
        let value = self.bucket.full_at() as i128 - self.base;
        let fits = self.scale == Some(*self.bucket.scale())
            && (0..=LATEST).contains(&value)
            && (self.first..=self.last).contains(&now);
        fits.then_some(value as u64)
    }
}

/// A reading of the word, with the constants of its epoch and the current time.
struct Sample {
    word: u64,
    /// The time, in the units of the word.
    present: u64,
    rate: u64,
    token: u64,
    capacity: u64,
}

impl PackedBucket {
    /// Creates a closed word.
    pub(crate) fn new() -> Self {
        let constant = || Constant(AtomicU64::new(1));
        let epoch = Epoch {
            first: constant(),
            last: constant(),
            rate: constant(),
            shift: constant(),
            token: constant(),
            capacity: constant(),
        };
        Self { word: AtomicU64::new(CLOSED), epoch }
    }

    /// Takes tokens if they are available; `None` if the lock is needed to decide.
    #[inline]
    pub(crate) fn try_acquire(&self, count: NonZeroU32, now: Nanos) -> Option<Result<(), NotYet>> {
        loop {
            let sample = self.read(now)?;
            let cost = sample.token.checked_mul(count.get().into())?;
            if cost > sample.capacity {
                return None;
            }
            let after = sample.word.max(sample.present).checked_add(cost)?;
            let debt = (after - sample.present).saturating_sub(sample.capacity);
            if debt > 0 {
                if self.is_still(&sample) {
                    // A division is the most expensive step, and the usual rate of one part per nanosecond needs none.
                    let wait = if sample.rate == 1 { debt } else { debt.div_ceil(sample.rate) };
                    let due = Nanos::new(now.get().saturating_add(wait));
                    return Some(Err(NotYet::new(due, now)));
                }
                continue;
            }
            if after == CLOSED {
                return None;
            }
            // Ordering: Relaxed. The value is the only shared data: taking a token orders no other memory. The Acquire
            // of the constants makes a closed word visible; the next iteration reads the word again.
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            if self.word.compare_exchange(sample.word, after, success, failure).is_ok() {
                return Some(Ok(()));
            }
        }
    }

    /// The number of tokens that could be taken now; `None` if the lock is needed to decide.
    pub(crate) fn available(&self, now: Nanos) -> Option<u32> {
        loop {
            let sample = self.read(now)?;
            if self.is_still(&sample) {
                let missing = sample.word.saturating_sub(sample.present);
                // At most `burst` tokens fit into the capacity.
                return Some((sample.capacity.saturating_sub(missing) / sample.token) as u32);
            }
        }
    }

    #[inline]
    fn read(&self, now: Nanos) -> Option<Sample> {
        // Ordering: Acquire, pairs with the Release in `open`: the constants are those of this word, or later ones.
        let word = self.word.load(Ordering::Acquire);
        let now = now.get();
        let Epoch { first, last, rate, shift, token, capacity } = &self.epoch;
        if word == CLOSED || now < first.get() || now > last.get() {
            return None;
        }
        let rate = rate.get();
        // From `first` to `last`, the result is from zero to `LATEST`, even if an intermediate result wraps around.
        let present = now.wrapping_mul(rate).wrapping_add(shift.get());
        Some(Sample { word, present, rate, token: token.get(), capacity: capacity.get() })
    }

    /// Returns whether the word is unchanged, so that all values in `sample` belong to the same epoch.
    #[inline]
    fn is_still(&self, sample: &Sample) -> bool {
        // Ordering: Relaxed, see `try_acquire`.
        self.word.load(Ordering::Relaxed) == sample.word
    }

    /// Closes the word, so that all operations take the lock. The caller must hold the lock.
    pub(crate) fn close(&self, exact: &mut LockedBucket) {
        // Ordering: Relaxed. The word is the only data that is read here; constants that change after this are stored with
        // Release.
        let word = self.word.swap(CLOSED, Ordering::Relaxed);
        if word != CLOSED {
            exact.peak = exact.peak.max(word);
            // `base` belongs to the epoch of this word. The sum is not negative, because no word represents a time before zero.
            exact.bucket.set_full_at((exact.base + i128::from(word)) as u128);
        }
    }

    /// If the bucket fits into the word, opens the word, so that operations need no lock. The caller must hold the lock.
    pub(crate) fn open(&self, exact: &mut LockedBucket, now: Nanos) {
        let word = match exact.word(now) {
            Some(word) => word,
            None => {
                if !exact.begin(now) {
                    return;
                }
                self.publish(exact);
                let Some(word) = exact.word(now) else { return };
                word
            }
        };
        // Ordering: Release, pairs with the Acquire in `read`.
        self.word.store(word, Ordering::Release);
    }

    fn publish(&self, exact: &LockedBucket) {
        let scale = exact.bucket.scale();
        let Epoch { first, last, rate, shift, token, capacity } = &self.epoch;
        first.set(exact.first.get());
        last.set(exact.last.get());
        rate.set(scale.rate().into());
        shift.set(exact.base.wrapping_neg() as u64);
        token.set(scale.token());
        // The capacity is at most `ROOM`; otherwise the epoch would not have started.
        capacity.set(scale.capacity() as u64);
    }
}
