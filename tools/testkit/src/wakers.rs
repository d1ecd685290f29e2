//! Wakers that count their wake-ups, and wakers that panic.

use std::fmt::{self, Debug, Formatter};
use std::future::Future;
use std::pin::Pin;
#[allow(clippy::disallowed_types, reason = "this crate depends on no primitive")]
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};

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

/// The functions of a waker that a primitive calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakerCall {
    /// `Waker::wake` or `Waker::wake_by_ref`.
    Wake,
    /// `Clone::clone`.
    Clone,
    /// `Drop::drop`.
    Drop,
}

/// A waker whose clone, wake-up or drop panics or runs a function on demand, and which counts its copies.
#[derive(Debug, Default)]
pub struct HostileWaker {
    /// The call that panics, plus one; 0 if none does.
    panics: AtomicUsize,
    wakes: AtomicUsize,
    live: AtomicI64,
    hooks: Hooks,
}

type Hook = Box<dyn FnOnce() + Send>;

/// Functions that each run in one call.
#[derive(Default)]
#[allow(clippy::disallowed_types, reason = "this crate depends on no primitive")]
struct Hooks(Mutex<Vec<(WakerCall, Hook)>>);

impl Debug for Hooks {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

impl HostileWaker {
    /// Creates a state without wakers, in which no call panics.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Creates a waker.
    #[must_use]
    pub fn waker(self: &Arc<Self>) -> Waker {
        // SAFETY: with the table of `raw`, each waker owns one reference count of the `Arc`, and `HostileWaker` is `Send` and `Sync`.
        unsafe { Waker::from_raw(raw(self.clone())) }
    }

    /// Makes each of these calls panic from now on, also while the thread is panicking already; with `None`, no call panics.
    pub fn panic_in(&self, call: Option<WakerCall>) {
        self.panics.store(call.map_or(0, |call| call as usize + 1), Ordering::SeqCst);
    }

    /// Runs `hook` in the next such call.
    pub fn run_in(&self, call: WakerCall, hook: impl FnOnce() + Send + 'static) {
        self.hooks.0.lock().unwrap_or_else(PoisonError::into_inner).push((call, Box::new(hook)));
    }

    /// The number of wake-ups so far, including those that panicked.
    #[must_use]
    pub fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }

    /// The number of existing wakers. At the end of a test, any number except 0 means that a waker was leaked.
    #[must_use]
    pub fn live(&self) -> i64 {
        self.live.load(Ordering::SeqCst)
    }

    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.called(WakerCall::Wake);
    }

    fn called(&self, call: WakerCall) {
        let mut hooks = self.hooks.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = hooks.iter().position(|(own, _)| *own == call).map(|at| hooks.remove(at));
        drop(hooks);
        if let Some((_, hook)) = own {
            hook();
        }
        if self.panics.load(Ordering::SeqCst) == call as usize + 1 {
            panic!("a hostile waker panics in {call:?}");
        }
    }
}

fn raw(waker: Arc<HostileWaker>) -> RawWaker {
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            let waker = borrow(data);
            waker.called(WakerCall::Clone);
            raw(waker)
        },
        |data| own(data).wake(),
        |data| borrow(data).wake(),
        |data| own(data).called(WakerCall::Drop),
    );
    waker.live.fetch_add(1, Ordering::SeqCst);
    RawWaker::new(Arc::into_raw(waker).cast(), &TABLE)
}

/// Takes over the reference count that the waker with this data pointer owns.
fn own(data: *const ()) -> Arc<HostileWaker> {
    // SAFETY: `data` comes from `raw`, and the waker no longer uses its reference count.
    let waker: Arc<HostileWaker> = unsafe { Arc::from_raw(data.cast()) };
    waker.live.fetch_sub(1, Ordering::SeqCst);
    waker
}

/// Returns an `Arc` with a reference count of its own. The waker with this data pointer keeps its reference count.
fn borrow(data: *const ()) -> Arc<HostileWaker> {
    // SAFETY: `data` comes from `raw`, and the waker, which is borrowed, owns a reference count.
    unsafe {
        Arc::increment_strong_count(data.cast::<HostileWaker>());
        Arc::from_raw(data.cast())
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
