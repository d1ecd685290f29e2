//! The operations of the queue that the models combine in pairs and triples.

use std::task::Poll;
use std::time::Duration;

use flyball_workqueue::{AddOptions, DelayMode, DrainOptions, LeaseOutcome, Leftovers};

use crate::queue_ops::scene::{Lease, Tools};
use crate::queue_ops::task::{Answer, For, step};
use crate::wakers::poll_once;

const SECOND: Duration = Duration::from_secs(1);
/// A timeout in real time, long enough that it does not elapse.
const NEVER: Duration = Duration::from_secs(3600);

macro_rules! ops {
    ($($op:ident)*) => {
        /// An operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "they have the names of the methods")]
        pub enum Op { $($op),* }

        impl Op {
            /// All operations. A pair of operations is checked in the `pairs_…` model of the operation that comes first in this list.
            pub const ALL: &'static [Self] = &[$(Self::$op),*];
        }
    };
}

ops! {
    Keys Stats Len State TrackAges NumRequeues Forget
    NextOverdue
    WaitIdle
    AddWhenRoom
    ShutDown
    Get GetMany
    BlockingGet
    Drain BlockingDrain DrainWaiting BlockingDrainWaiting
    Pause Resume
    Advance
    Detach DoneByKey
    AddEarliest AddLatest AddReplace
    AddRateLimited
    Postpone
    AddMany
    Add
    Done Succeed Retry RequeueAfter DropLease DoneAfter
    Cancel
    TryGet TryGetMany
    StopNow
}

impl Op {
    /// Returns true if the operation blocks a thread.
    pub fn blocks(self) -> bool {
        use Op::*;
        matches!(self, BlockingGet | BlockingDrain | BlockingDrainWaiting)
    }

    pub(crate) fn takes_lease(self) -> bool {
        matches!(
            self,
            Self::Detach
                | Self::Done
                | Self::Succeed
                | Self::Retry
                | Self::RequeueAfter
                | Self::DropLease
                | Self::DoneAfter
        )
    }

    pub(crate) fn takes_detached(self) -> bool {
        self == Self::DoneByKey
    }

    /// The condition that the operation waits for, if any.
    pub fn waits_for(self) -> For {
        use Op::*;
        match self {
            Get | GetMany | BlockingGet => For::Key,
            AddWhenRoom => For::Room,
            Drain | BlockingDrain | DrainWaiting | BlockingDrainWaiting => For::Drained,
            WaitIdle => For::Idle,
            NextOverdue => For::Overdue,
            _ => For::Nothing,
        }
    }

    /// The largest number of steps that the operation takes. Each step is one critical section.
    pub(crate) fn steps(self) -> usize {
        match self {
            Self::Drain | Self::BlockingDrain => 2,
            Self::GetMany | Self::DrainWaiting | Self::BlockingDrainWaiting => 2,
            Self::Detach | Self::DoneByKey | Self::Succeed | Self::RequeueAfter | Self::AddRateLimited => 2,
            _ => 1,
        }
    }

    /// Runs the operation. If `stepwise` is true, the operation yields between its steps, and waits as a task instead of blocking a thread.
    pub(crate) async fn run(self, mut tools: Tools, stepwise: bool) -> Answer {
        let Tools { queue, clock, .. } = &tools;
        // Each adder has its own key.
        let own = 5 + tools.side;
        let lease =
            |lease: &mut Option<Lease>| lease.take().expect("the scene has no lease for the operation");
        match self {
            Self::Keys => {
                let keys = queue.keys();
                Answer::value(keys.iter().map(|info| (info.key, info.state)).collect::<Vec<_>>())
            }
            Self::Stats => Answer::value(queue.stats()),
            Self::Len => Answer::value(queue.ready_len()),
            Self::State => Answer::value(queue.state(&1)),
            Self::TrackAges => {
                queue.track_ages();
                Answer::nothing()
            }
            Self::NumRequeues => Answer::value(queue.num_requeues(&1)),
            Self::Forget => {
                queue.forget(&1);
                Answer::nothing()
            }
            Self::NextOverdue => Answer::value(queue.next_overdue(SECOND).await.map(|overdue| overdue.key)),
            Self::WaitIdle => {
                queue.wait_idle().await;
                Answer::nothing()
            }
            Self::AddWhenRoom => Answer::value(queue.add_when_room(own).await),
            Self::BlockingGet if !stepwise => Answer::leased(queue.blocking_get()),
            Self::Get | Self::BlockingGet => Answer::leased(queue.get().await),
            Self::GetMany if !stepwise => Answer::leased(queue.get_many(2).await),
            Self::GetMany => {
                let mut leases = Vec::from_iter(queue.get().await);
                if !leases.is_empty() {
                    step().await;
                    leases.extend(queue.try_get_many(1).into_iter().flatten());
                }
                Answer::leased(leases)
            }
            Self::BlockingDrain if !stepwise => {
                Answer::value(left(queue.blocking_drain(DrainOptions::unlimited())))
            }
            Self::Drain | Self::BlockingDrain => {
                if stepwise {
                    // A drain shuts the queue down in one step, and checks it in the next. Unlike `shut_down`, it ends no other drain.
                    drop(poll_once(Box::pin(queue.drain(DrainOptions::unlimited())).as_mut()));
                    step().await;
                }
                Answer::value(left(queue.drain(DrainOptions::unlimited()).await))
            }
            Self::BlockingDrainWaiting if !stepwise => {
                Answer::value(left(queue.blocking_drain(DrainOptions::serve_waiting(NEVER))))
            }
            Self::DrainWaiting | Self::BlockingDrainWaiting => {
                let limit = if self == Self::DrainWaiting { 2 * SECOND } else { NEVER };
                let mut drain = Box::pin(queue.drain(DrainOptions::serve_waiting(limit)));
                if stepwise {
                    // The first poll shuts the queue down.
                    if let Poll::Ready(leftovers) = poll_once(drain.as_mut()) {
                        return Answer::value(left(leftovers));
                    }
                    step().await;
                }
                Answer::value(left(drain.await))
            }
            Self::Pause => {
                queue.pause();
                Answer::nothing()
            }
            Self::Resume => {
                queue.resume();
                Answer::nothing()
            }
            Self::Advance => {
                clock.advance(SECOND);
                Answer::nothing()
            }
            Self::Detach => {
                let key = lease(&mut tools.lease).detach();
                if stepwise {
                    step().await;
                }
                Answer::value(tools.queue.done(&key))
            }
            Self::DoneByKey => Answer::value(queue.done(&tools.detached)),
            Self::AddEarliest => Answer::value(queue.add_after(1, SECOND / 2)),
            Self::AddLatest => {
                let mode = DelayMode::Debounce { max_wait: 4 * SECOND };
                Answer::value(
                    queue.add_with(1, AddOptions { delay: 2 * SECOND, mode, ..AddOptions::default() }),
                )
            }
            Self::AddReplace => Answer::value(queue.add_with(
                1,
                AddOptions { delay: 3 * SECOND, mode: DelayMode::Replace, ..AddOptions::default() },
            )),
            Self::AddRateLimited => Answer::value(queue.add_rate_limited(1)),
            Self::Postpone => Answer::value(queue.postpone(&1, 3 * SECOND)),
            Self::AddMany => {
                let many = queue.add_many([1, 4]);
                Answer::value((many.new, many.merged, many.promoted, many.dirty, many.refused))
            }
            Self::Add => Answer::value(queue.add(1)),
            Self::Done => {
                lease(&mut tools.lease).done();
                Answer::nothing()
            }
            Self::Succeed | Self::RequeueAfter => {
                let lease = lease(&mut tools.lease);
                if stepwise {
                    tools.queue.forget(&lease);
                    step().await;
                }
                match self {
                    Self::Succeed => lease.succeed(),
                    _ => lease.requeue_after(SECOND),
                }
                Answer::nothing()
            }
            Self::DoneAfter => {
                lease(&mut tools.lease).end(LeaseOutcome::DoneAndRequeueAfter(SECOND));
                Answer::nothing()
            }
            Self::Retry => {
                lease(&mut tools.lease).retry();
                Answer::nothing()
            }
            Self::DropLease => {
                drop(lease(&mut tools.lease));
                Answer::nothing()
            }
            Self::ShutDown => {
                queue.shut_down();
                Answer::nothing()
            }
            Self::Cancel => Answer::value(queue.cancel(&1)),
            Self::TryGet => Answer::leased(queue.try_get()),
            Self::TryGetMany => Answer::leased(queue.try_get_many(2).into_iter().flatten()),
            Self::StopNow => Answer::value(queue.stop_now()),
        }
    }
}

/// The leftovers of a drain: the keys that are Ready or leased, and those that wait. If a shutdown ends the drain, a getter may take a Ready key before
/// or after the drain looks at it.
fn left(leftovers: Leftovers<u32>) -> (Vec<u32>, Vec<u32>) {
    let Leftovers { ready, waiting, leased, .. } = leftovers;
    let mut held: Vec<u32> = ready.into_iter().chain(leased).collect();
    held.sort_unstable();
    (held, waiting)
}
