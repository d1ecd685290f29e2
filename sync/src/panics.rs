//! SHELL. Panics of user code: caught, kept until all other work is done, or resumed. Guards no state.

use std::any::Any;
use std::mem::needs_drop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::panicking;

/// Calls user code and returns its result; `None` if it panicked. Never panics.
pub fn caught<R>(foreign: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(foreign)).map_err(forget).ok()
}

/// Calls user code and returns its result, or the message of its panic. Never panics.
pub fn attempt<R>(foreign: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(foreign)).map_err(|payload| {
        let message = message(&*payload);
        forget(payload);
        message
    })
}

/// Returns the message of a panic's payload.
pub fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

/// Drops all items, even if some drops panic, and then resumes the first panic. A hash table, by contrast, leaks the
/// remaining items if the drop of an item panics.
pub fn drop_each<T>(things: impl Iterator<Item = T>) {
    let mut result = Ok(());
    for thing in things {
        keep_first(&mut result, catch_unwind(AssertUnwindSafe(|| drop(thing))));
    }
    raise(result);
}

/// Calls all steps, even if some of them panic, and then resumes the first panic.
pub fn run_each(steps: &mut [&mut dyn FnMut()]) {
    let mut result = Ok(());
    for step in steps {
        keep_first(&mut result, catch_unwind(AssertUnwindSafe(step)));
    }
    raise(result);
}

/// The payload of a panic.
pub type Panic = Box<dyn Any + Send>;

/// Keeps the first panic of several steps that must all run.
#[inline]
pub fn keep_first(first: &mut Result<(), Panic>, next: Result<(), Panic>) {
    match next {
        Err(panic) if first.is_err() => forget(panic),
        Err(panic) => *first = Err(panic),
        Ok(()) => {}
    }
}

/// Resumes a panic that was kept, unless the thread is panicking already: a second panic would abort the process.
#[inline]
pub fn raise(result: Result<(), Panic>) {
    if let Err(panic) = result {
        resume(panic);
    }
}

#[cold]
fn resume(panic: Panic) {
    if panicking() { forget(panic) } else { resume_unwind(panic) }
}

/// Drops a payload. A payload can be any value, so dropping it may panic. The payload of that second panic is leaked,
/// because dropping it may panic, too.
#[cold]
pub fn forget(payload: Panic) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

/// A value that is dropped beside other user code. If it is dropped while a panic unwinds, a panic of its own drop is discarded: it would abort the
/// process.
#[derive(Debug)]
pub struct DropContained<T>(Option<T>);

impl<T> DropContained<T> {
    /// Wraps a value.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T> Drop for DropContained<T> {
    #[inline]
    fn drop(&mut self) {
        if needs_drop::<T>() && panicking() {
            let value = self.0.take();
            caught(|| drop(value));
        }
    }
}
