//! SHELL. Foreign code whose panic is nobody else's business; guards nothing.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::panicking;

/// What foreign code returns; nothing if it panicked. Never panics.
pub(crate) fn caught<R>(foreign: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(foreign)).map_err(forget).ok()
}

/// Drops each, also after one that panics in its drop; then the first panic goes on, unless another one is under way. A hash table on its own leaks what
/// comes after it.
pub(crate) fn drop_each<T>(things: impl Iterator<Item = T>) {
    let mut first = None;
    for thing in things {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(thing))) {
            match first {
                None => first = Some(panic),
                Some(_) => forget(panic),
            }
        }
    }
    match first {
        Some(panic) if panicking() => forget(panic),
        Some(panic) => resume_unwind(panic),
        None => {}
    }
}

/// A payload is any value: dropping it may panic, and so may dropping what that panics with.
fn forget(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}
