//! Runs futures inside a model.
//!
//! [`block_on`] waits in the same way as the threads of the model; under loom it also explores one spurious poll. [`Counting`] counts wake-ups in
//! std's atomics, which loom does not track: the count records that a waker ran, and does not order other memory accesses.

pub use testkit::wakers::{Counting, poll_once, poll_with};

#[cfg(flyball_loom)]
pub use loom::future::block_on;
#[cfg(not(any(flyball_loom, flyball_shuttle)))]
pub use native::block_on;
#[cfg(flyball_shuttle)]
pub use shuttle::future::block_on;

#[cfg(not(any(flyball_loom, flyball_shuttle)))]
mod native {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake};
    use std::thread::{self, Thread};

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// Runs a future on this thread and parks the thread between polls.
    pub fn block_on<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        let waker = Arc::new(Unpark(thread::current())).into();
        let mut context = Context::from_waker(&waker);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    }
}
