//! SHELL. Wakes the watches. Guards no state.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;
use std::thread::panicking;

/// Wakes all wakers, even if one panics, and then resumes the first panic. If the thread is panicking already, the panic is dropped, because a second one
/// would abort the process.
pub(super) fn wake_all(wakers: impl Iterator<Item = Waker>) {
    let mut first = None;
    for waker in wakers {
        // The drop of a waker may panic, too. `wake` drops it.
        match catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            Err(panic) if first.is_none() => first = Some(panic),
            Err(panic) => forget(panic),
            Ok(()) => {}
        }
    }
    match first {
        Some(panic) if panicking() => forget(panic),
        Some(panic) => resume_unwind(panic),
        None => {}
    }
}

/// Drops a payload. Its drop may panic; the payload of that second panic is leaked, because its drop may panic, too.
fn forget(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        mem::forget(again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Panicking(&'static str);

    impl Wake for Panicking {
        fn wake(self: Arc<Self>) {
            // Without a message on stderr, unlike `panic!`.
            resume_unwind(Box::new(self.0));
        }
    }

    fn between_panics(counting: &Arc<Counting>) -> Vec<Waker> {
        let counted = || counting.clone().into();
        let panics = |text| Arc::new(Panicking(text)).into();
        vec![counted(), panics("first"), counted(), panics("second"), counted()]
    }

    #[test]
    fn wakes_all_and_resumes_the_first_panic() {
        let counting = Arc::new(Counting(AtomicUsize::new(0)));
        let wakers = between_panics(&counting);
        let woken = catch_unwind(AssertUnwindSafe(|| wake_all(wakers.into_iter())));
        assert_eq!(woken.unwrap_err().downcast_ref(), Some(&"first"));
        assert_eq!(counting.0.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn wakes_all_while_the_thread_panics() {
        struct WakesWhenDropped(Vec<Waker>);
        impl Drop for WakesWhenDropped {
            fn drop(&mut self) {
                wake_all(self.0.drain(..));
            }
        }
        let counting = Arc::new(Counting(AtomicUsize::new(0)));
        let guard = WakesWhenDropped(between_panics(&counting));
        let panic = catch_unwind(AssertUnwindSafe(move || {
            let _guard = guard;
            resume_unwind(Box::new("outer"));
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"outer"));
        assert_eq!(counting.0.load(Ordering::SeqCst), 3);
    }
}
