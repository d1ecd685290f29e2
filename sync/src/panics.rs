//! SHELL. Panics of user code: caught, kept until all other work is done, or resumed. Guards no state.

use std::any::Any;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem::needs_drop;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::panicking;
use std::vec;

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
/// remaining items if the drop of an item panics. The iterator itself must not panic.
pub fn drop_each<T>(mut things: impl Iterator<Item = T>) {
    let mut result = Ok(());
    // One `catch_unwind` for all items; after a panic, another one for the remaining items.
    while let Err(panic) = catch_unwind(AssertUnwindSafe(|| things.by_ref().for_each(drop))) {
        keep_first(&mut result, Err(panic));
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

/// A value of the user whose destructor may panic. If it is dropped while a panic unwinds, a panic of its own destructor is discarded: it would abort
/// the process.
///
/// So a struct or a list of such values needs no destructor of its own. If the destructors of several values panic, all values are dropped, and the
/// first panic propagates. The same holds if another function of the user panics, and the values are dropped while its panic unwinds. The exception is
/// a hash table, which leaks its remaining items; see [`drop_each`].
pub struct DropContained<T>(Option<T>);

impl<T> DropContained<T> {
    /// Wraps a value.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// Returns the value.
    #[inline]
    pub fn into_inner(mut self) -> T {
        self.0.take().unwrap_or_else(|| absent())
    }
}

/// Only [`DropContained::into_inner`] and the destructor take the value out, and nothing uses it afterwards.
#[cold]
fn absent() -> ! {
    unreachable!("a value that is dropped")
}

impl<T> Deref for DropContained<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_ref().unwrap_or_else(|| absent())
    }
}

impl<T> DerefMut for DropContained<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap_or_else(|| absent())
    }
}

impl<T> Borrow<T> for DropContained<T> {
    #[inline]
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: PartialEq> PartialEq for DropContained<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for DropContained<T> {}

impl<T: Hash> Hash for DropContained<T> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: Clone> Clone for DropContained<T> {
    #[inline]
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Drop for DropContained<T> {
    #[inline]
    fn drop(&mut self) {
        if needs_drop::<T>() && self.0.is_some() && panicking() {
            self.drop_unwinding();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for DropContained<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> DropContained<T> {
    #[cold]
    fn drop_unwinding(&mut self) {
        let value = self.0.take();
        caught(|| drop(value));
    }
}

/// The items of a list of the user, each of which is dropped by itself, as if it were in a [`DropContained`].
#[derive(Debug)]
pub struct DropEach<T>(vec::IntoIter<T>);

impl<T> DropEach<T> {
    /// Wraps a list.
    #[inline]
    pub fn new(items: Vec<T>) -> Self {
        Self(items.into_iter())
    }

    /// Returns the remaining items.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        self.0.as_slice()
    }

    /// Returns the remaining items as a list.
    #[inline]
    pub fn into_vec(mut self) -> Vec<T> {
        std::mem::take(&mut self.0).collect()
    }
}

impl<T> Iterator for DropEach<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T> ExactSizeIterator for DropEach<T> {}

impl<T> Drop for DropEach<T> {
    #[inline]
    fn drop(&mut self) {
        if needs_drop::<T>() && self.0.len() > 0 {
            drop_each(self.0.by_ref());
        }
    }
}
