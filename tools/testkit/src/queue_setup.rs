//! The arguments of random operations on a queue: few keys, delays whose deadlines often coincide, and small steps of time.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};

use crate::oracle::backoff::OracleExponential;
use crate::oracle::limiter::OracleQuota;

/// A key of a queue under test. There are only a few keys, so that operations often use the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SmallKey(pub u8);

impl SmallKey {
    /// The number of keys.
    pub const COUNT: u8 = 4;

    /// All keys.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }
}

impl<'a> Arbitrary<'a> for SmallKey {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self(u8::arbitrary(u)? % Self::COUNT))
    }
}

/// A duration from a fixed set of edge cases: zero; a few nanoseconds, so that deadlines often coincide; a second; and durations that never pass in a
/// test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay(pub Duration);

const DELAYS: [Duration; 16] = [
    Duration::ZERO,
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_nanos(1),
    Duration::from_nanos(2),
    Duration::from_nanos(2),
    Duration::from_nanos(3),
    Duration::from_nanos(4),
    Duration::from_nanos(5),
    Duration::from_nanos(6),
    Duration::from_nanos(8),
    Duration::from_nanos(10),
    Duration::from_nanos(16),
    Duration::from_secs(1),
    Duration::from_nanos(u64::MAX),
    Duration::MAX,
];

impl<'a> Arbitrary<'a> for Delay {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self(DELAYS[usize::from(u8::arbitrary(u)?) % DELAYS.len()]))
    }
}

/// The time by which a test advances its clock in one step. Every step is so short that the clock never reaches its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step(pub Duration);

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        // One step in sixteen takes two seconds, which is longer than all delays except for the two that never pass in a test.
        Ok(Self(match u8::arbitrary(u)? % 16 {
            15 => Duration::from_secs(2),
            few => Duration::from_nanos(u64::from(few % 8)),
        }))
    }
}

/// How a delayed add changes the deadline of a key that is already waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The earlier deadline applies.
    Earliest,
    /// The later deadline applies, but the key waits no longer than this delay after its first add.
    Latest(Delay),
    /// The new deadline applies.
    Replace,
}

impl<'a> Arbitrary<'a> for Mode {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(match u8::arbitrary(u)? % 8 {
            0 => Self::Earliest,
            1..=4 => Self::Latest(u.arbitrary()?),
            _ => Self::Replace,
        })
    }
}

/// The failures that an add restores: few, so many that the backoff is at its cap, or the most that can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures(pub u32);

impl<'a> Arbitrary<'a> for Failures {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self([0, 1, 1, 2, 2, 3, 70, u32::MAX][usize::from(u8::arbitrary(u)? % 8)]))
    }
}

/// A change of the limiter of a queue.
#[derive(Clone, Copy, Debug)]
pub struct LimiterChange {
    /// The new backoff, which has counted no failures; `None` if the backoff stays as it is.
    pub backoff: Option<OracleExponential>,
    /// The new quota of the bucket, if the limiter has one; `None` if the quota stays as it is.
    pub quota: Option<OracleQuota>,
}

impl<'a> Arbitrary<'a> for LimiterChange {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let choice = u8::arbitrary(u)?;
        let backoff = |base, cap| {
            Some(OracleExponential { base: Duration::from_nanos(base), cap: Duration::from_nanos(cap) })
        };
        Ok(Self {
            backoff: [None, backoff(2, 20), backoff(1, 3), backoff(7, 40)][usize::from(choice % 4)],
            quota: [None, Some((1, 3, 1)), Some((2, 1, 2)), Some((1, 30, 3))][usize::from(choice / 4 % 4)]
                .map(|(tokens, nanos, burst)| OracleQuota::per_nanos(tokens, nanos, burst)),
        })
    }
}

/// Decodes the operations in `bytes`, at most `most` of them.
pub fn operations<'a, T: Arbitrary<'a>>(bytes: &'a [u8], most: usize) -> Vec<T> {
    let mut food = Unstructured::new(bytes);
    let mut operations = Vec::new();
    while operations.len() < most && !food.is_empty() {
        match food.arbitrary() {
            Ok(operation) => operations.push(operation),
            Err(_) => break,
        }
    }
    operations
}
