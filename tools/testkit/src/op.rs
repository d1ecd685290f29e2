//! Operations as data: what a random test, a fuzz target and a model check do to a primitive.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};

/// A key of a queue under test: few of them, so that operations meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SmallKey(pub u8);

impl SmallKey {
    /// How many there are.
    pub const COUNT: u8 = 4;

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }
}

impl<'a> Arbitrary<'a> for SmallKey {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self(u8::arbitrary(u)? % Self::COUNT))
    }
}

/// A duration from a set where the interesting things happen: nothing, a few nanoseconds (so that deadlines
/// coincide), and more than any clock holds.
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

/// How far a test moves its clock in one step: never so far that the clock stands at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step(pub Duration);

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        // One in sixteen is long enough to pass every finite delay of the set.
        Ok(Self(match u8::arbitrary(u)? % 16 {
            15 => Duration::from_secs(2),
            few => Duration::from_nanos(u64::from(few % 8)),
        }))
    }
}

/// One step of a random life of a queue. A lease is named by its index, modulo the leases held.
#[derive(Clone, Debug)]
pub enum QueueOp {
    /// Plain add.
    Add(SmallKey),
    /// Delayed add.
    AddAfter(SmallKey, Delay),
    /// Counts a failure and adds after the backoff.
    AddLimited(SmallKey),
    /// Takes a key if one is ready.
    TryGet,
    /// Polls an async getter once and drops it: takes exactly what `TryGet` would.
    PollGet,
    /// Ends a lease: nothing to say.
    Done(u8),
    /// Ends a lease: failures forgotten.
    Succeed(u8),
    /// Ends a lease: failures forgotten, comes back.
    RequeueAfter(u8, Delay),
    /// Ends a lease: a failure.
    Retry(u8),
    /// Ends a lease without a word: a failure.
    DropLease(u8),
    /// Takes a key out of the queue.
    Cancel(SmallKey),
    /// Forgets failures.
    Forget(SmallKey),
    /// Time passes.
    Advance(Step),
    /// No more adds.
    ShutDown,
    /// Polls a drain once and drops it.
    Drain,
    /// Hands back what is left.
    StopNow,
}

/// Weights by the first byte: ends are rare, or most sequences would be about closed queues.
impl<'a> Arbitrary<'a> for QueueOp {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(match u8::arbitrary(u)? {
            0..=41 => Self::Add(u.arbitrary()?),
            42..=79 => Self::AddAfter(u.arbitrary()?, u.arbitrary()?),
            80..=89 => Self::AddLimited(u.arbitrary()?),
            90..=119 => Self::TryGet,
            120..=134 => Self::PollGet,
            135..=144 => Self::Done(u.arbitrary()?),
            145..=154 => Self::Succeed(u.arbitrary()?),
            155..=166 => Self::RequeueAfter(u.arbitrary()?, u.arbitrary()?),
            167..=182 => Self::Retry(u.arbitrary()?),
            183..=194 => Self::DropLease(u.arbitrary()?),
            195..=208 => Self::Cancel(u.arbitrary()?),
            209..=213 => Self::Forget(u.arbitrary()?),
            214..=252 => Self::Advance(u.arbitrary()?),
            253 => Self::ShutDown,
            254 => Self::Drain,
            255 => Self::StopNow,
        })
    }
}

/// One step of a life that is all about time: many keys, delays, and leases that come back.
#[derive(Clone, Debug)]
pub enum DeadlineOp {
    /// Delayed add of one of 64 keys.
    AddAfter(u8, Delay),
    /// Plain add of one of 64 keys.
    Add(u8),
    /// Takes a key if one is due.
    TryGet,
    /// Ends the oldest lease, to come back.
    RequeueAfter(Delay),
    /// Ends the oldest lease as a failure.
    Retry,
    /// Takes a key out of the queue.
    Cancel(u8),
    /// Time passes.
    Advance(Step),
}

impl<'a> Arbitrary<'a> for DeadlineOp {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let key = |u: &mut Unstructured<'a>| Ok(u8::arbitrary(u)? % 64);
        Ok(match u8::arbitrary(u)? {
            0..=99 => Self::AddAfter(key(u)?, u.arbitrary()?),
            100..=119 => Self::Add(key(u)?),
            120..=174 => Self::TryGet,
            175..=189 => Self::RequeueAfter(u.arbitrary()?),
            190..=204 => Self::Retry,
            205..=219 => Self::Cancel(key(u)?),
            220..=255 => Self::Advance(u.arbitrary()?),
        })
    }
}

/// The operations in `bytes`, at most `most`.
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
