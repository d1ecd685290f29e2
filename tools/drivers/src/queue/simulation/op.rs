//! The steps of a simulation.

use arbitrary::{Arbitrary, Unstructured};
use testkit::queue_op::{HeldOp, QueueOp};
use testkit::queue_setup::Step;

use super::waiter::Wait;

/// A step of a simulation. Indexes are used modulo the number of tasks.
#[derive(Clone, Debug)]
pub(super) enum SimOp {
    Queue(QueueOp),
    /// Starts a task with these futures. If the value is true, the task is polled at once.
    Start(Vec<Wait>, bool),
    /// Polls a task, whether it was woken or not.
    Poll(u8),
    /// Drops one future of a task.
    Drop(u8, u8),
    /// Drops a task.
    Abort(u8),
    /// Neither polls nor drops a task until the run is over.
    Leak(u8),
    /// Polls every woken task until none is woken.
    Settle,
    /// Moves the clock to the next alarm.
    NextAlarm,
    /// Moves the clock back.
    Back(Step),
    /// Waits as a thread with a limit of zero.
    Block(u8),
}

impl<'a> Arbitrary<'a> for SimOp {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(match u8::arbitrary(u)? {
            0..=59 => Self::Queue(u.arbitrary()?),
            60..=99 => Self::Queue(HeldOp::arbitrary(u)?.0),
            100..=159 => {
                let futures = [1, 1, 1, 2, 2, 3][usize::from(u8::arbitrary(u)? % 6)];
                let waits = (0..futures).map(|_| u.arbitrary()).collect::<arbitrary::Result<_>>()?;
                Self::Start(waits, u.arbitrary()?)
            }
            160..=174 => Self::Poll(u.arbitrary()?),
            175..=182 => Self::Drop(u.arbitrary()?, u.arbitrary()?),
            183..=190 => Self::Abort(u.arbitrary()?),
            191..=192 => Self::Leak(u.arbitrary()?),
            193..=219 => Self::Settle,
            220..=235 => Self::NextAlarm,
            236..=239 => Self::Back(u.arbitrary()?),
            240..=244 => Self::Block(u.arbitrary()?),
            245..=249 => Self::Queue(QueueOp::AddPriority([-1, 0, 0, 1][usize::from(u8::arbitrary(u)? % 4)])),
            _ => Self::Queue(QueueOp::Advance(u.arbitrary()?)),
        })
    }
}
