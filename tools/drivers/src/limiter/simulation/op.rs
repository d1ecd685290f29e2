//! The steps of a simulation.

use std::num::NonZeroU32;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_ratelimit::Quota;

/// A step of a simulation. Indexes are used modulo the number of waiters, permits or reservations.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// Starts a future, and polls it once.
    Start(Wait),
    /// Polls a future, whether it was woken or not. If the value is true, with a waker that it has not seen before.
    Poll(u8, bool),
    Drop(u8),
    /// Neither polls nor drops a future until the run is over.
    Leak(u8),
    /// Polls every woken future.
    PollWoken,
    /// Waits as a thread with a limit of zero; with `None`, for a permit.
    Block(Option<NonZeroU32>),
    Try(NonZeroU32),
    Reserve(NonZeroU32),
    Cancel(u8),
    SetQuota(SmallQuota),
    TryPermit,
    /// Ends a permit.
    End(u8, End),
    KeyTry(Key, NonZeroU32),
    /// Like `KeyTry`; a request that is denied is repeated at its due time.
    KeyWait(Key, NonZeroU32),
    KeyReserve(Key, NonZeroU32),
    KeyCancel(u8),
    KeySetQuota(SmallQuota),
    Advance(Step),
    /// Moves the clock to the next alarm.
    NextAlarm,
    /// Moves the clock back.
    Back(Step),
}

/// What a future waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Token,
    Tokens(NonZeroU32),
    TokensTimeout(NonZeroU32, Duration),
    Permit,
}

/// How a permit ends.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum End {
    Succeed,
    Fail,
    Ignore,
    Drop,
}

/// A quota of so few tokens that the due times of different requests often coincide.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmallQuota {
    pub(super) tokens: u32,
    /// In nanoseconds.
    pub(super) period: u64,
    pub(super) burst: u32,
}

/// The number of a key. Half of the operations use one of three keys; the others use many keys, so that there is no room for all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key(pub(super) u8);

impl Key {
    pub(super) const COUNT: u8 = 48;
}

impl<'a> Arbitrary<'a> for Key {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let byte = u8::arbitrary(u)?;
        Ok(Self(if byte < 128 { byte % 3 } else { byte % Self::COUNT }))
    }
}

/// A duration from a fixed set of edge cases. A slot stays reserved for 100 ms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step(pub(super) Duration);

const MILLISECOND: u64 = 1_000_000;
const STEPS: [u64; 16] = [
    0,
    1,
    1,
    2,
    3,
    4,
    5,
    7,
    10,
    16,
    MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND - 1,
    100 * MILLISECOND,
    250 * MILLISECOND,
    2_000 * MILLISECOND,
];
const PERIODS: [u64; 8] = [4, 5, 6, 7, 10, 30, MILLISECOND, 50 * MILLISECOND];

impl SmallQuota {
    pub(super) fn quota(self) -> Quota {
        let nz = |value| NonZeroU32::new(value).expect("not zero");
        let quota = Quota::new(nz(self.tokens), Duration::from_nanos(self.period)).expect("a valid quota");
        quota.allow_burst(nz(self.burst))
    }
}

impl<'a> Arbitrary<'a> for SmallQuota {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let byte = u8::arbitrary(u)?;
        let period = PERIODS[usize::from(byte % 8)];
        Ok(Self { tokens: u32::from(byte / 8 % 4) + 1, period, burst: u32::from(byte / 32 % 8) + 1 })
    }
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self(Duration::from_nanos(STEPS[usize::from(u8::arbitrary(u)? % 16)])))
    }
}

impl<'a> Arbitrary<'a> for Wait {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(match u8::arbitrary(u)? % 8 {
            0 => Self::Token,
            1..=2 => Self::Tokens(count(u)?),
            3 => Self::TokensTimeout(count(u)?, Step::arbitrary(u)?.0),
            _ => Self::Permit,
        })
    }
}

impl<'a> Arbitrary<'a> for Op {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(match u8::arbitrary(u)? {
            0..=49 => Self::Start(u.arbitrary()?),
            50..=64 => Self::Poll(u.arbitrary()?, u.arbitrary()?),
            65..=74 => Self::Drop(u.arbitrary()?),
            75..=77 => Self::Leak(u.arbitrary()?),
            78..=99 => Self::PollWoken,
            100..=105 => Self::Block((u8::arbitrary(u)? % 2 == 0).then_some(count(u)?)),
            106..=113 => Self::Try(count(u)?),
            114..=119 => Self::Reserve(count(u)?),
            120..=125 => Self::Cancel(u.arbitrary()?),
            126..=129 => Self::SetQuota(u.arbitrary()?),
            130..=139 => Self::TryPermit,
            140..=164 => Self::End(u.arbitrary()?, u.arbitrary()?),
            165..=179 => Self::KeyTry(u.arbitrary()?, count(u)?),
            180..=183 => Self::KeyWait(u.arbitrary()?, count(u)?),
            184..=191 => Self::KeyReserve(u.arbitrary()?, count(u)?),
            192..=198 => Self::KeyCancel(u.arbitrary()?),
            199..=201 => Self::KeySetQuota(u.arbitrary()?),
            202..=229 => Self::Advance(u.arbitrary()?),
            230..=247 => Self::NextAlarm,
            _ => Self::Back(u.arbitrary()?),
        })
    }
}

fn count(u: &mut Unstructured<'_>) -> arbitrary::Result<NonZeroU32> {
    Ok(NonZeroU32::MIN.saturating_add([0, 0, 0, 1, 1, 2, 3, 7][usize::from(u8::arbitrary(u)? % 8)]))
}
