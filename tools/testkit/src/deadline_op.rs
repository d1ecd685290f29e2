//! Operations on a queue with many waiting keys.

use arbitrary::{Arbitrary, Unstructured};

use crate::queue_setup::{Delay, Mode, Step};

/// One step of a random run that uses many keys with deadlines: delayed adds, and leases that end with a delay.
#[derive(Clone, Debug)]
pub enum DeadlineOp {
    /// Delayed add of one of 64 keys.
    AddAfter(u8, Delay),
    /// Delayed add of one of 64 keys, with a mode that decides how an old and a new deadline are combined.
    AddDelayed(u8, Delay, Mode),
    /// Plain add of one of 64 keys.
    Add(u8),
    /// Gets a key if one is due.
    TryGet,
    /// Postpones a key by at least the delay.
    Postpone(u8, Delay),
    /// Ends the oldest lease and requeues its key after a delay.
    RequeueAfter(Delay),
    /// Ends the oldest lease as a failure.
    Retry,
    /// Cancels a key.
    Cancel(u8),
    /// Advances the clock.
    Advance(Step),
}

impl<'a> Arbitrary<'a> for DeadlineOp {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let key = |u: &mut Unstructured<'a>| Ok(u8::arbitrary(u)? % 64);
        Ok(match u8::arbitrary(u)? {
            0..=59 => Self::AddAfter(key(u)?, u.arbitrary()?),
            60..=99 => Self::AddDelayed(key(u)?, u.arbitrary()?, u.arbitrary()?),
            100..=119 => Self::Add(key(u)?),
            120..=159 => Self::TryGet,
            160..=174 => Self::Postpone(key(u)?, u.arbitrary()?),
            175..=189 => Self::RequeueAfter(u.arbitrary()?),
            190..=204 => Self::Retry,
            205..=219 => Self::Cancel(key(u)?),
            220..=255 => Self::Advance(u.arbitrary()?),
        })
    }
}
