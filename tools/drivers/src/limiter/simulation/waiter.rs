//! The futures of a simulation, each with a waker that notes when it is woken.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use flyball_ratelimit::{ConcurrencyLimiter, Permit, RateLimiter, TryAcquireError};
use flyball_sync::{Clock, ManualClock, ManualTimer, Nanos};
use testkit::wakers::poll_with;

use super::op::Wait;

/// The result of a future.
pub(super) enum Answer {
    Tokens(Result<(), TryAcquireError>),
    Permit(Permit<ManualClock>),
}

struct Noted {
    clock: ManualClock,
    wakes: AtomicUsize,
    /// The time of the last wake-up.
    at: AtomicU64,
}

impl Noted {
    fn waker(clock: &ManualClock) -> (Arc<Self>, Waker) {
        let noted =
            Arc::new(Self { clock: clock.clone(), wakes: AtomicUsize::new(0), at: AtomicU64::new(0) });
        (noted.clone(), noted.into())
    }

    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }
}

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.at.store(self.clock.now().get(), Ordering::SeqCst);
    }
}

pub(super) struct Waiter {
    pub(super) id: u64,
    pub(super) wait: Wait,
    future: Pin<Box<dyn Future<Output = Answer>>>,
    noted: Arc<Noted>,
    waker: Waker,
    /// Wakers that were replaced, with the number of their wake-ups at that time.
    replaced: Vec<(Arc<Noted>, usize)>,
    /// The wake-ups of earlier wakers, and those by which the future has yielded.
    before: usize,
    yields: usize,
    /// The wake-ups that have had a cause and were followed by a poll.
    pub(super) used: usize,
    /// The era in which the future was woken.
    pub(super) woken_in: Option<u64>,
    /// The time at which its limit passes.
    pub(super) until: Option<Nanos>,
    /// The earliest time at which its tokens count as used, and the era of this time, if a reservation has fixed their due time.
    pub(super) promised: Option<(u64, Nanos)>,
}

impl Waiter {
    pub(super) fn new(
        id: u64,
        wait: Wait,
        bucket: &RateLimiter<ManualTimer>,
        slots: &ConcurrencyLimiter<ManualClock>,
        clock: &ManualClock,
    ) -> Self {
        let (bucket, slots) = (bucket.clone(), slots.clone());
        let future: Pin<Box<dyn Future<Output = Answer>>> = match wait {
            Wait::Token => Box::pin(async move {
                bucket.acquire().await;
                Answer::Tokens(Ok(()))
            }),
            Wait::Tokens(count) => {
                Box::pin(async move { Answer::Tokens(bucket.acquire_many(count).await.map_err(Into::into)) })
            }
            Wait::TokensTimeout(count, limit) => {
                Box::pin(async move { Answer::Tokens(bucket.acquire_many_timeout(count, limit).await) })
            }
            Wait::Permit => Box::pin(async move { Answer::Permit(slots.acquire().await) }),
        };
        let (noted, waker) = Noted::waker(clock);
        let until = if let Wait::TokensTimeout(_, limit) = wait { Some(clock.now() + limit) } else { None };
        Self {
            id,
            wait,
            future,
            noted,
            waker,
            replaced: Vec::new(),
            before: 0,
            yields: 0,
            used: 0,
            woken_in: None,
            until,
            promised: None,
        }
    }

    /// How often the future was woken, except to yield.
    pub(super) fn wakes(&self) -> usize {
        self.before + self.noted.wakes() - self.yields
    }

    /// Whether the future was woken since its last poll.
    pub(super) fn is_woken(&self) -> bool {
        self.wakes() > self.used
    }

    /// The time of the last wake-up.
    pub(super) fn woken_at(&self) -> Nanos {
        Nanos::new(self.noted.at.load(Ordering::SeqCst))
    }

    pub(super) fn tokens(&self) -> Option<u32> {
        match self.wait {
            Wait::Token => Some(1),
            Wait::Tokens(count) | Wait::TokensTimeout(count, _) => Some(count.get()),
            Wait::Permit => None,
        }
    }

    /// Polls the future, and once more if it yields, which it may do at its first poll only.
    pub(super) fn poll(&mut self, is_first: bool) -> Poll<Answer> {
        let wakes = self.noted.wakes();
        let polled = poll_with(self.future.as_mut(), &self.waker);
        if is_first && polled.is_pending() && self.noted.wakes() > wakes {
            self.yields += 1;
            return poll_with(self.future.as_mut(), &self.waker);
        }
        polled
    }

    /// Polls with another waker from now on.
    pub(super) fn replace_waker(&mut self, clock: &ManualClock) {
        let (noted, waker) = Noted::waker(clock);
        noted.at.store(self.woken_at().get(), Ordering::SeqCst);
        let old = std::mem::replace(&mut self.noted, noted);
        self.waker = waker;
        let wakes = old.wakes();
        self.before += wakes;
        self.replaced.push((old, wakes));
    }

    /// Checks that no waker was woken that was replaced before.
    pub(super) fn check_replaced(&self) {
        let stale = self.replaced.iter().any(|(noted, wakes)| noted.wakes() > *wakes);
        assert!(!stale, "cause: {:?} was woken by a waker that it has replaced", self.wait);
    }
}
