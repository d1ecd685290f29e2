//! Wakers that count their wake-ups, and wakers that panic.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A [`Wake`] that counts its wake-ups.
#[derive(Debug, Default)]
pub struct Counting(AtomicUsize);

impl Counting {
    /// Returns a counter, and a waker that increments the counter each time it is woken.
    #[must_use]
    pub fn waker() -> (Arc<Self>, Waker) {
        let counting = Arc::new(Self::default());
        (counting.clone(), counting.into())
    }

    /// The number of wake-ups so far.
    #[must_use]
    pub fn wakes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A [`Wake`] that panics each time it is woken.
#[derive(Debug)]
pub struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        panic!("a hostile waker panics");
    }
}

/// Polls a future once with a waker.
pub fn poll_with<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// Polls a future once with a waker that does nothing.
pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    poll_with(future, Waker::noop())
}

/// Polls a future without waiting. If the future yields and wakes itself, it is polled a second time.
pub fn poll_at_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    let (wakes, waker) = Counting::waker();
    let polled = poll_with(future.as_mut(), &waker);
    match polled.is_pending() && wakes.wakes() > 0 {
        true => poll_with(future, &waker),
        false => polled,
    }
}
