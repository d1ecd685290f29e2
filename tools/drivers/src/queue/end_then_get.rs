//! Operations that end a lease and get the next key in one call. The queue executes them as one step, its model as two.

use flyball_workqueue::{LeaseOutcome, ManualTimer, QueueLimiter};
use testkit::queue_answers::Ending;
use testkit::queue_op::QueueOp;
use testkit::queue_setup::SmallKey;

use super::model_answers::{poll, taken};
use super::orders::Kind;
use super::random_operations::QueueRun;
use super::step::Step;

/// A call that ends a lease and gets the next key.
pub(crate) struct EndThenGet {
    index: u8,
    ending: Ending,
    outcome: LeaseOutcome,
    /// Whether the call is async; its future is polled once.
    polls: bool,
}

impl EndThenGet {
    /// Combines `op` and `next` into one call if `op` ends a lease and `next` gets a key. Does this only for half of the lease indexes; for the other
    /// half, returns `None`, so that `op` and `next` remain two calls.
    pub(crate) fn of(op: &QueueOp, next: Option<&QueueOp>) -> Option<Self> {
        let (index, ending, outcome) = match *op {
            QueueOp::Done(index) => (index, Ending::Done, LeaseOutcome::Done),
            QueueOp::DoneAfter(index, delay) => {
                (index, Ending::DoneAfter(delay.0), LeaseOutcome::DoneAndRequeueAfter(delay.0))
            }
            QueueOp::Succeed(index) => (index, Ending::Succeed, LeaseOutcome::Succeeded),
            QueueOp::RequeueAfter(index, delay) => {
                (index, Ending::RequeueAfter(delay.0), LeaseOutcome::SucceededAndRequeueAfter(delay.0))
            }
            QueueOp::Retry(index) => {
                (index, Ending::Retry, LeaseOutcome::Failed { at_least: std::time::Duration::ZERO })
            }
            QueueOp::RetryNoSooner(index, least) => {
                (index, Ending::RetryNoSooner(least.0), LeaseOutcome::Failed { at_least: least.0 })
            }
            QueueOp::DropLease(index) => (index, Ending::Dropped, LeaseOutcome::Dropped),
            _ => return None,
        };
        let polls = match next? {
            QueueOp::TryGet => false,
            QueueOp::PollGet => true,
            _ => return None,
        };
        (index >= 128).then_some(Self { index, ending, outcome, polls })
    }
}

impl<O: Kind, L: QueueLimiter<SmallKey>> QueueRun<O, L> {
    pub(crate) fn end_then_get(&mut self, step: &EndThenGet, at: &Step<'_>) {
        let EndThenGet { index, ending, outcome, polls } = *step;
        let Some(lease) = self.pick(index) else {
            return self.take(|queue| queue.try_get().map(|lease| vec![lease]), 1, at);
        };
        self.model.end(*lease, ending, self.now());
        let take = |queue: &flyball_workqueue::Queue<_, O, L, ManualTimer>| match polls {
            false => queue.try_end_and_get(lease, outcome).map(|lease| vec![lease]),
            true => taken(poll(queue.end_and_get(lease, outcome)).map(Vec::from_iter)),
        };
        self.take(take, 1, at);
    }
}
