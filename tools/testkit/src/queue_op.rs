//! The operations of random tests and fuzz targets on a queue.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};

use crate::queue_setup::{Delay, Failures, LimiterChange, Mode, SmallKey, Step};

/// One step of a random operation sequence on a queue. In the operations on leases, the `u8` selects the lease: it is used modulo the number of
/// leases that the test holds.
#[derive(Clone, Debug)]
pub enum QueueOp {
    /// Plain add.
    Add(SmallKey),
    /// Adds several keys, and takes the lock only once.
    AddMany(Vec<SmallKey>),
    /// Creates an add that waits for capacity, polls it once and drops it.
    AddWhenRoom(SmallKey),
    /// Delayed add.
    AddAfter(SmallKey, Delay),
    /// Delayed add, with a mode that decides which deadline applies if the key already has one.
    AddDelayed(SmallKey, Delay, Mode),
    /// Postpones a key by at least the delay.
    Postpone(SmallKey, Delay),
    /// Rate-limited add: counts a failure and adds the key after its backoff.
    AddLimited(SmallKey),
    /// Adds a key that has at least these failures.
    AddFailed(SmallKey, Failures),
    /// Changes the limiter.
    UpdateLimiter(LimiterChange),
    /// Gets a key if one is Ready.
    TryGet,
    /// Gets up to this many keys.
    GetMany(usize),
    /// Creates an async getter, polls it once and drops it. It takes the same key that `TryGet` would take.
    PollGet,
    /// Creates an async getter of several keys, polls it once and drops it.
    PollGetMany(usize),
    /// Creates an async getter with a time limit, polls it once and drops it.
    PollGetTimeout(Delay),
    /// Ends a lease with `done`.
    Done(u8),
    /// Ends a lease with `done` and a requeue after a delay.
    DoneAfter(u8, Delay),
    /// Ends a lease with `succeed`.
    Succeed(u8),
    /// Ends a lease with `succeed` and a requeue after a delay.
    RequeueAfter(u8, Delay),
    /// Ends a lease as a failure.
    Retry(u8),
    /// Ends a lease as a failure, after which the key waits for at least the delay.
    RetryNoSooner(u8, Delay),
    /// Drops a lease, which is a failure.
    DropLease(u8),
    /// Detaches a lease.
    Detach(u8),
    /// Ends a detached lease.
    DoneKey(SmallKey),
    /// Cancels a key.
    Cancel(SmallKey),
    /// Forgets failures.
    Forget(SmallKey),
    /// Pauses the queue.
    Pause,
    /// Resumes the queue.
    Resume,
    /// Reads the complete state.
    Snapshot,
    /// Creates a future that waits until the queue is idle, polls it once and drops it.
    WaitIdle,
    /// Creates a future that waits for an overdue lease, polls it once and drops it.
    PollOverdue(Delay),
    /// Advances the clock.
    Advance(Step),
    /// Shuts the queue down.
    ShutDown,
    /// Creates a drain, polls it once and drops it.
    Drain,
    /// Creates a drain that serves waiting keys for this time, polls it once and drops it.
    DrainWaiting(Delay),
    /// Stops the queue, which returns the leftovers.
    StopNow,
    /// Sets the priority of the adds that follow.
    AddPriority(i8),
    /// Sets the priority of a key.
    SetPriority(SmallKey, i8),
}

/// The first byte selects the operation; frequent operations have more values. The operations that shut the queue down are rare: otherwise, the queue
/// would be shut down during most of a sequence.
impl<'a> Arbitrary<'a> for QueueOp {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(match u8::arbitrary(u)? {
            0..=25 => Self::Add(u.arbitrary()?),
            26 => Self::AddFailed(u.arbitrary()?, u.arbitrary()?),
            27 => Self::UpdateLimiter(u.arbitrary()?),
            28..=32 => Self::AddMany(few(u)?),
            33..=35 => Self::AddWhenRoom(u.arbitrary()?),
            36..=40 => Self::Resume,
            41 => Self::Pause,
            42..=54 => Self::AddAfter(u.arbitrary()?, u.arbitrary()?),
            55..=69 => Self::AddDelayed(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?),
            70..=79 => Self::Postpone(u.arbitrary()?, u.arbitrary()?),
            80..=89 => Self::AddLimited(u.arbitrary()?),
            90..=115 => Self::TryGet,
            116..=119 => Self::GetMany(usize::from(u8::arbitrary(u)? % 4) + 1),
            120..=128 => Self::PollGet,
            129 => Self::PollOverdue(u.arbitrary()?),
            130..=131 => Self::PollGetMany(usize::from(u8::arbitrary(u)? % 4) + 1),
            132..=134 => Self::PollGetTimeout(u.arbitrary()?),
            135..=142 => Self::Done(u.arbitrary()?),
            143..=144 => Self::WaitIdle,
            145..=153 => Self::Succeed(u.arbitrary()?),
            154 => Self::Snapshot,
            155..=166 => Self::RequeueAfter(u.arbitrary()?, u.arbitrary()?),
            167..=182 => Self::Retry(u.arbitrary()?),
            183..=189 => Self::DropLease(u.arbitrary()?),
            190..=194 => Self::Detach(u.arbitrary()?),
            195..=202 => Self::Cancel(u.arbitrary()?),
            203..=208 | 212..=213 => Self::DoneKey(u.arbitrary()?),
            209..=211 => Self::Forget(u.arbitrary()?),
            214..=247 => Self::Advance(u.arbitrary()?),
            248..=249 => Self::RetryNoSooner(u.arbitrary()?, u.arbitrary()?),
            250..=251 => Self::DoneAfter(u.arbitrary()?, u.arbitrary()?),
            252 => Self::DrainWaiting(u.arbitrary()?),
            253 => Self::ShutDown,
            254 => Self::Drain,
            255 => Self::StopNow,
        })
    }
}

/// One step of an operation sequence in which leases are held for a long time, while other operations use the leased keys. There are only two keys,
/// so that operations use the same key more often.
#[derive(Clone, Debug)]
pub struct HeldOp(pub QueueOp);

impl<'a> Arbitrary<'a> for HeldOp {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let key = |u: &mut Unstructured<'a>| Ok(SmallKey(u8::arbitrary(u)? % 2));
        Ok(Self(match u8::arbitrary(u)? {
            0..=14 => QueueOp::Add(key(u)?),
            15..=21 => QueueOp::AddAfter(key(u)?, u.arbitrary()?),
            22..=55 => QueueOp::AddDelayed(key(u)?, u.arbitrary()?, u.arbitrary()?),
            56..=66 => QueueOp::Postpone(key(u)?, u.arbitrary()?),
            67..=100 => QueueOp::AddLimited(key(u)?),
            101 => QueueOp::AddFailed(key(u)?, u.arbitrary()?),
            102 => QueueOp::UpdateLimiter(u.arbitrary()?),
            103..=139 => QueueOp::TryGet,
            140..=142 => QueueOp::DoneAfter(u.arbitrary()?, u.arbitrary()?),
            143..=151 => QueueOp::Done(u.arbitrary()?),
            152..=160 => QueueOp::Succeed(u.arbitrary()?),
            161..=169 => QueueOp::RequeueAfter(u.arbitrary()?, u.arbitrary()?),
            170..=183 => QueueOp::Retry(u.arbitrary()?),
            184..=196 => QueueOp::DropLease(u.arbitrary()?),
            197..=201 => QueueOp::Detach(u.arbitrary()?),
            202..=206 => QueueOp::DoneKey(key(u)?),
            207..=215 => QueueOp::DoneKey(key(u)?),
            216..=224 => QueueOp::Cancel(key(u)?),
            225..=227 => QueueOp::Forget(key(u)?),
            228..=248 => QueueOp::Advance(u.arbitrary()?),
            249..=251 => QueueOp::RetryNoSooner(u.arbitrary()?, u.arbitrary()?),
            252 => QueueOp::PollOverdue(u.arbitrary()?),
            // This time limit is long enough for many operations.
            253..=255 => QueueOp::DrainWaiting(Delay(Duration::from_nanos(u8::arbitrary(u)?.into()))),
        }))
    }
}

/// One step of a sequence with priorities. There are only three priorities, so that several keys often have the same one.
#[derive(Clone, Debug)]
pub struct OrderedOp(pub QueueOp);

impl<'a> Arbitrary<'a> for OrderedOp {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        const PRIORITIES: [i8; 4] = [-100, 0, 0, 5];
        let priority = |u: &mut Unstructured<'a>| Ok(PRIORITIES[usize::from(u8::arbitrary(u)?) % 4]);
        Ok(Self(match u8::arbitrary(u)? {
            0..=29 => QueueOp::AddPriority(priority(u)?),
            30..=44 => QueueOp::SetPriority(u.arbitrary()?, priority(u)?),
            45..=63 => QueueOp::arbitrary(u)?,
            // A time limit within which many operations run.
            64 => QueueOp::DrainWaiting(Delay(Duration::from_nanos(u8::arbitrary(u)?.into()))),
            65.. => HeldOp::arbitrary(u)?.0,
        }))
    }
}

/// Generates zero to three keys, which may be equal.
fn few(u: &mut Unstructured<'_>) -> arbitrary::Result<Vec<SmallKey>> {
    let count = u8::arbitrary(u)? % 4;
    (0..count).map(|_| u.arbitrary()).collect()
}
