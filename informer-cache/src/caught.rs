//! SHELL. Foreign code whose panic is nobody else's business; guards nothing.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What foreign code returns; nothing if it panicked. Never panics.
pub(crate) fn caught<R>(foreign: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(foreign)).map_err(forget).ok()
}

/// A payload is any value: dropping it may panic, and so may dropping what that panics with.
fn forget(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}
