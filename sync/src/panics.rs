//! SHELL. Panics of user code: contained, kept until all else is done, or raised again. It guards nothing.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::panicking;

/// What foreign code returns; nothing if it panicked. Never panics.
pub fn caught<R>(foreign: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(foreign)).map_err(forget).ok()
}

/// What foreign code returns, or the message of its panic. Never panics.
pub fn attempt<R>(foreign: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(foreign)).map_err(|payload| {
        let message = message(&*payload);
        forget(payload);
        message
    })
}

/// The message of a panic, by its payload.
pub fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

/// Drops each thing, also after one that panics in its drop; then raises the first panic. A hash table on its own leaks what comes after
/// such a thing.
pub fn drop_each<T>(things: impl Iterator<Item = T>) {
    let mut result = Ok(());
    for thing in things {
        keep_first(&mut result, catch_unwind(AssertUnwindSafe(|| drop(thing))));
    }
    raise(result);
}

/// What a panic was raised with.
pub type Panic = Box<dyn Any + Send>;

/// Keeps the first panic of several steps that all have to be done.
pub fn keep_first(first: &mut Result<(), Panic>, next: Result<(), Panic>) {
    match next {
        Err(panic) if first.is_err() => forget(panic),
        Err(panic) => *first = Err(panic),
        Ok(()) => {}
    }
}

/// Raises the panic that was kept, unless one unwinds already: a second one would abort the process.
pub fn raise(result: Result<(), Panic>) {
    match result {
        Err(panic) if panicking() => forget(panic),
        Err(panic) => resume_unwind(panic),
        Ok(()) => {}
    }
}

/// A payload is any value: dropping it may panic, and so may dropping what that panics with.
pub fn forget(payload: Panic) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}
