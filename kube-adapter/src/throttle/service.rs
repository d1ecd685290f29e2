//! SHELL. A service that many requests share. A request that waits does not hold the service.
//!
//! | guarded by `idle` | |
//! |---|---|
//! | the service | a request takes the service out, polls it for readiness and calls it in the same poll, so the service runs without a lock |
//! | `polled_again` | set if a different request is polled while the service is taken out; that request is woken when the service is put back |
//!
//! | guarded by `wakers` | |
//! |---|---|
//! | the wakers of requests that wait for readiness | when the service may be ready, all wakers are removed, and woken after unlocking |
//!
//! A waiting request only has a waker in a list, and owns nothing that other requests need. So a request that is kept but never polled again blocks
//! no other request. An async mutex was rejected, because it passes the lock to the first waiter even if that waiter is never polled again. The cost
//! of the list: when the inner service becomes ready, all requests that wait for it are polled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use tower_service::Service;

use flyball_sync::locks::Mutex;
use flyball_sync::panics::{keep_first, raise};

pub(super) struct SharedService<S> {
    idle: Mutex<Idle<S>>,
    waiting: Arc<Waiting>,
    /// The waker with which the service is polled. It wakes all waiters.
    waker: Waker,
}

struct Idle<S> {
    service: Option<S>,
    polled_again: bool,
}

#[derive(Default)]
struct Waiting {
    wakers: Mutex<Vec<Waker>>,
}

// === impl SharedService ===

impl<S> SharedService<S> {
    pub(super) fn new(service: S) -> Self {
        let waiting = Arc::<Waiting>::default();
        let waker = Waker::from(waiting.clone());
        Self { idle: Mutex::new(Idle { service: Some(service), polled_again: false }), waiting, waker }
    }

    /// Calls the service with `request` if it is ready; otherwise `waker` is woken when it may be ready.
    pub(super) fn poll_call<R>(
        &self,
        request: &mut Option<R>,
        waker: &Waker,
    ) -> Poll<Option<Result<S::Future, S::Error>>>
    where
        S: Service<R>,
    {
        let mut joined = false;
        loop {
            let mut idle = self.idle.lock();
            let service = idle.service.take();
            idle.polled_again |= service.is_none();
            drop(idle);
            if let Some(service) = service {
                let mut taken = Taken { shared: self, service: Some(service), called: false };
                let Some(service) = taken.service.as_mut() else { return Poll::Ready(None) };
                if let Poll::Ready(ready) = service.poll_ready(&mut Context::from_waker(&self.waker)) {
                    // If this request has registered a waker, the waker is not removed here, because a different request of the same task may wait
                    // with the same waker.
                    taken.called = true;
                    return Poll::Ready(match ready {
                        Ok(()) => request.take().map(|request| Ok(service.call(request))),
                        Err(error) => Some(Err(error)),
                    });
                }
            }
            if joined {
                return Poll::Pending;
            }
            // The loop then checks again, because the service may have become ready or been put back before this waker was registered.
            self.waiting.join(waker);
            joined = true;
        }
    }
}

/// Puts the service back on drop, even if the service has panicked.
struct Taken<'a, S> {
    shared: &'a SharedService<S>,
    service: Option<S>,
    /// Whether `poll_ready` returned `Ready`. If so, the service may also be ready for the next request, so the waiters must be woken.
    called: bool,
}

impl<S> Drop for Taken<'_, S> {
    fn drop(&mut self) {
        let mut idle = self.shared.idle.lock();
        idle.service = self.service.take();
        let polled_again = std::mem::take(&mut idle.polled_again);
        drop(idle);
        if polled_again || self.called || std::thread::panicking() {
            self.shared.waiting.wake_all();
        }
    }
}

impl Waiting {
    fn join(&self, waker: &Waker) {
        let waker = waker.clone();
        let mut wakers = self.wakers.lock();
        if !wakers.iter().any(|other| other.will_wake(&waker)) {
            wakers.push(waker);
        }
    }

    /// Wakes all waiters, even if one of their wakers panics.
    fn wake_all(&self) {
        let wakers = std::mem::take(&mut *self.wakers.lock());
        let mut panicked = Ok(());
        for waker in wakers {
            keep_first(&mut panicked, catch_unwind(AssertUnwindSafe(|| waker.wake())));
        }
        raise(panicked);
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}
