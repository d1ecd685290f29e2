//! The futures of a simulated queue, and the tasks that poll them.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_sync::{ManualTimer, Nanos};
use flyball_workqueue::{DrainOptions, Lease, LeaseOutcome, Queue, QueueLimiter};
use testkit::queue_setup::{Delay, SmallKey};
use testkit::wakers::{Counting, poll_with};

use crate::queue::orders::Kind;

pub(super) type Timer = ManualTimer;
pub(super) type Taken = Rc<RefCell<Vec<Lease<SmallKey>>>>;
type Waiting = Pin<Box<dyn Future<Output = Answer>>>;

/// What a future waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Get,
    GetMany(usize),
    GetTimeout(Duration),
    GetManyTimeout(usize, Duration),
    /// Ends a lease, and then gets a key.
    EndThenGet(u8, LeaseOutcome),
    /// A `Get` that is polled again after each key, for this many keys.
    Worker(u8),
    Idle,
    IdleTimeout(Duration),
    Empty,
    EmptyTimeout(Duration),
    Add(SmallKey),
    AddTimeout(SmallKey, Duration),
    Overdue(Duration),
    Drain,
    DrainTimeout(Duration),
    DrainAllTimeout(Duration),
}

/// The result of a future. The leases that it returned are in [`Taken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    /// The queue is closed.
    Closed,
    TimedOut,
}

impl Wait {
    pub(super) fn limit(self) -> Option<Duration> {
        match self {
            Self::GetTimeout(limit)
            | Self::GetManyTimeout(_, limit)
            | Self::IdleTimeout(limit)
            | Self::EmptyTimeout(limit)
            | Self::AddTimeout(_, limit)
            | Self::DrainTimeout(limit)
            | Self::DrainAllTimeout(limit) => Some(limit),
            _ => None,
        }
    }

    pub(super) fn is_getter(self) -> bool {
        matches!(
            self,
            Self::Get
                | Self::GetMany(_)
                | Self::GetTimeout(_)
                | Self::GetManyTimeout(..)
                | Self::EndThenGet(..)
                | Self::Worker(_)
        )
    }

    pub(super) fn is_adder(self) -> bool {
        matches!(self, Self::Add(_) | Self::AddTimeout(..))
    }

    pub(super) fn is_drain(self) -> bool {
        matches!(self, Self::Drain | Self::DrainTimeout(_) | Self::DrainAllTimeout(_))
    }

    /// Whether a wake-up says that the condition holds, so that the next poll completes if nothing changes before it.
    pub(super) fn is_condition(self) -> bool {
        self.is_drain()
            || matches!(self, Self::Idle | Self::IdleTimeout(_) | Self::Empty | Self::EmptyTimeout(_))
    }

    pub(super) fn future<O: Kind, L: QueueLimiter<SmallKey>>(
        self,
        queue: &Queue<SmallKey, O, L, Timer>,
        lease: impl FnOnce(u8) -> Option<Lease<SmallKey>>,
        taken: &Taken,
    ) -> Waiting {
        let (queue, taken) = (queue.clone(), taken.clone());
        let take = move |leases: Vec<_>| {
            let closed = leases.is_empty();
            taken.borrow_mut().extend(leases);
            if closed { Answer::Closed } else { Answer::Done }
        };
        let in_time = |ended: Option<()>| ended.map_or(Answer::TimedOut, |()| Answer::Done);
        match self {
            Self::Get => Box::pin(async move { take(Vec::from_iter(queue.get().await)) }),
            Self::GetMany(most) => Box::pin(async move { take(queue.get_many(most).await) }),
            Self::GetTimeout(limit) => Box::pin(async move {
                let taken = queue.timeout(limit, queue.get()).await;
                taken.map_or(Answer::TimedOut, |lease| take(Vec::from_iter(lease)))
            }),
            Self::GetManyTimeout(most, limit) => Box::pin(async move {
                let taken = queue.timeout(limit, queue.get_many(most)).await;
                taken.map_or(Answer::TimedOut, take)
            }),
            Self::EndThenGet(index, outcome) => {
                let lease = lease(index);
                Box::pin(async move {
                    if let Some(lease) = lease {
                        lease.end(outcome);
                    }
                    take(Vec::from_iter(queue.get().await))
                })
            }
            Self::Worker(keys) => Box::pin(async move {
                let mut get = queue.get();
                for _ in 0..keys {
                    if take(Vec::from_iter((&mut get).await)) == Answer::Closed {
                        return Answer::Closed;
                    }
                }
                Answer::Done
            }),
            Self::Idle => Box::pin(async move {
                queue.wait_idle().await;
                Answer::Done
            }),
            Self::IdleTimeout(limit) => {
                Box::pin(async move { in_time(queue.timeout(limit, queue.wait_idle()).await) })
            }
            Self::Empty => Box::pin(async move {
                queue.wait_empty().await;
                Answer::Done
            }),
            Self::EmptyTimeout(limit) => {
                Box::pin(async move { in_time(queue.timeout(limit, queue.wait_empty()).await) })
            }
            Self::Add(key) => Box::pin(async move {
                _ = queue.add_when_room(key).await;
                Answer::Done
            }),
            Self::AddTimeout(key, limit) => Box::pin(async move {
                let added = queue.timeout(limit, queue.add_when_room(key)).await;
                added.map_or(Answer::TimedOut, |_| Answer::Done)
            }),
            Self::Overdue(bound) => Box::pin(async move {
                if queue.next_overdue(bound).await.is_some() { Answer::Done } else { Answer::Closed }
            }),
            Self::Drain => Box::pin(async move {
                _ = queue.drain(DrainOptions::unlimited()).await;
                Answer::Done
            }),
            Self::DrainTimeout(limit) => Box::pin(async move {
                _ = queue.drain(DrainOptions::within(limit)).await;
                Answer::Done
            }),
            Self::DrainAllTimeout(limit) => Box::pin(async move {
                _ = queue.drain(DrainOptions::serve_waiting(limit)).await;
                Answer::Done
            }),
        }
    }
}

impl<'a> Arbitrary<'a> for Wait {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let limit = |u: &mut Unstructured<'a>| Ok(Delay::arbitrary(u)?.0);
        let many = |u: &mut Unstructured<'a>| Ok(usize::from(u8::arbitrary(u)? % 4));
        Ok(match u8::arbitrary(u)? % 64 {
            0..=13 => Self::Get,
            14..=16 => Self::GetMany(many(u)?),
            17..=21 => Self::GetTimeout(limit(u)?),
            22..=23 => Self::GetManyTimeout(many(u)?, limit(u)?),
            24..=27 => Self::EndThenGet(u.arbitrary()?, outcome(u)?),
            28..=30 => Self::Worker(u8::arbitrary(u)? % 4),
            31..=34 => Self::Idle,
            35..=36 => Self::IdleTimeout(limit(u)?),
            37..=40 => Self::Empty,
            41..=42 => Self::EmptyTimeout(limit(u)?),
            43..=47 => Self::Add(u.arbitrary()?),
            48..=50 => Self::AddTimeout(u.arbitrary()?, limit(u)?),
            51..=55 => Self::Overdue(limit(u)?),
            56 => Self::Drain,
            57 => Self::DrainTimeout(limit(u)?),
            // A time limit within which many operations run.
            58..=60 => Self::DrainAllTimeout(Duration::from_nanos(u64::from(u8::arbitrary(u)? % 64))),
            _ => Self::Get,
        })
    }
}

fn outcome(u: &mut Unstructured<'_>) -> arbitrary::Result<LeaseOutcome> {
    Ok(match u8::arbitrary(u)? % 6 {
        0 => LeaseOutcome::Done,
        1 => LeaseOutcome::DoneAndRequeueAfter(Delay::arbitrary(u)?.0),
        2 => LeaseOutcome::Succeeded,
        3 => LeaseOutcome::SucceededAndRequeueAfter(Delay::arbitrary(u)?.0),
        4 => LeaseOutcome::Failed { at_least: Delay::arbitrary(u)?.0 },
        _ => LeaseOutcome::Requeued,
    })
}

/// A future of a task.
pub(super) struct Waiter {
    pub(super) wait: Wait,
    /// `None` once the future has completed or was dropped.
    future: Option<Waiting>,
    /// The time at which the limit passes; set by the first poll.
    pub(super) until: Option<Nanos>,
}

/// A task with up to three futures, which it polls in order each time it is polled, as `join` does.
pub(super) struct Task {
    pub(super) waiters: Vec<Waiter>,
    wakes: Arc<Counting>,
    waker: Waker,
    /// How often the task had been woken at its last poll; `None` before the first poll.
    seen: Option<usize>,
    /// The number of changes before the last poll, and before the last wake-up.
    pub(super) polled_at: u64,
    pub(super) woken_at: u64,
    /// The task is neither polled again nor dropped before the end of the run.
    pub(super) leaked: bool,
    /// The task has yielded, and nothing has changed since.
    pub(super) has_yielded: bool,
}

/// What a poll of a task has found.
pub(super) struct Polled {
    /// The futures that have completed.
    pub(super) answers: Vec<(Wait, Option<Nanos>, Answer)>,
    /// Whether a future has woken the task during the poll.
    pub(super) woke_itself: bool,
    pub(super) was_first: bool,
}

impl Task {
    pub(super) fn new(waits: impl IntoIterator<Item = (Wait, Waiting)>) -> Self {
        let (wakes, waker) = Counting::waker();
        let waiter = |(wait, future)| Waiter { wait, future: Some(future), until: None };
        Self {
            waiters: waits.into_iter().map(waiter).collect(),
            wakes,
            waker,
            seen: None,
            polled_at: 0,
            woken_at: 0,
            leaked: false,
            has_yielded: false,
        }
    }

    /// Whether an executor would poll the task.
    pub(super) fn is_woken(&self) -> bool {
        self.seen.is_none_or(|seen| seen < self.wakes.wakes())
    }

    pub(super) fn was_polled(&self) -> bool {
        self.seen.is_some()
    }

    /// The futures that were polled and have not completed.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().filter(|waiter| waiter.future.is_some() && self.was_polled())
    }

    /// What the futures wait for that have neither completed nor been dropped, whether they were polled or not.
    pub(super) fn live(&self) -> impl Iterator<Item = Wait> {
        self.waiters.iter().filter(|waiter| waiter.future.is_some()).map(|waiter| waiter.wait)
    }

    pub(super) fn poll(&mut self, now: Nanos) -> Polled {
        let before = self.wakes.wakes();
        let was_first = self.seen.is_none();
        self.seen = Some(before);
        let mut answers = Vec::new();
        for waiter in &mut self.waiters {
            let Some(future) = &mut waiter.future else { continue };
            if waiter.until.is_none() {
                waiter.until = waiter.wait.limit().map(|limit| now + limit);
            }
            if let Poll::Ready(answer) = poll_with(future.as_mut(), &self.waker) {
                waiter.future = None;
                answers.push((waiter.wait, waiter.until, answer));
            }
        }
        Polled { answers, woke_itself: self.wakes.wakes() > before, was_first }
    }

    /// Drops one of the futures. Returns whether none is left.
    pub(super) fn drop_one(&mut self, index: usize) -> bool {
        let index = index % self.waiters.len();
        self.waiters[index].future = None;
        self.is_over()
    }

    pub(super) fn is_over(&self) -> bool {
        self.waiters.iter().all(|waiter| waiter.future.is_none())
    }
}
