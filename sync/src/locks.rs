//! The only module of the flyball crates that uses locks, atomics or a model checker directly.
//!
//! The locks are those of parking_lot and std in a normal build, those of loom with `--cfg flyball_loom`, and those of
//! shuttle with `--cfg flyball_shuttle`. Apart from `thread_number`, this layer only adapts signatures and has neither
//! state nor branches, so the code that a model checker checks is the code that runs in production. A panic while a lock
//! is held does not poison the lock. The exception is loom's build: loom's locks panic once they are poisoned.
//!
//! `Arc` is std's in every build, because loom's `Arc` has no `Weak` and cannot be converted to an `Arc<dyn Trait>`.

#[cfg(all(flyball_loom, not(feature = "loom")))]
compile_error!("`--cfg flyball_loom` needs the feature `loom` of flyball-sync");
#[cfg(all(flyball_shuttle, not(feature = "shuttle")))]
compile_error!("`--cfg flyball_shuttle` needs the feature `shuttle` of flyball-sync");

use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub use imp::{AtomicBool, AtomicU64, AtomicUsize, Ordering, thread_local, thread_number};

/// A mutual exclusion lock.
#[derive(Debug, Default)]
pub struct Mutex<T>(imp::Mutex<T>);

/// The guard of a locked [`Mutex`]; dropping it unlocks.
#[derive(Debug)]
#[must_use = "dropping it unlocks at once"]
pub struct MutexGuard<'a, T>(imp::MutexGuard<'a, T>);

/// A readers-writer lock.
#[derive(Debug, Default)]
pub struct RwLock<T>(imp::RwLock<T>);

/// The guard of a [`RwLock`] that is locked for reading.
#[derive(Debug)]
#[must_use = "dropping it unlocks at once"]
pub struct RwLockReadGuard<'a, T>(imp::RwLockReadGuard<'a, T>);

/// The guard of a [`RwLock`] that is locked for writing.
#[derive(Debug)]
#[must_use = "dropping it unlocks at once"]
pub struct RwLockWriteGuard<'a, T>(imp::RwLockWriteGuard<'a, T>);

/// A condition variable: threads sleep until another thread signals it.
#[derive(Debug, Default)]
pub struct Condvar(imp::Condvar);

// === impl Mutex ===

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    #[inline]
    pub fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    /// Locks the mutex, blocking the thread if necessary.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(imp::lock(&self.0))
    }

    /// If the mutex is unlocked, locks it and returns the guard. Never blocks.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        imp::try_lock(&self.0).map(MutexGuard)
    }

    /// Returns the value of a mutex that no other thread can access.
    #[inline]
    pub fn into_inner(self) -> T {
        imp::into_inner(self.0)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

// === impl RwLock ===

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    #[inline]
    pub fn new(value: T) -> Self {
        Self(imp::RwLock::new(value))
    }

    /// Locks for reading; several readers may hold the lock.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard(imp::read(&self.0))
    }

    /// Locks for writing.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard(imp::write(&self.0))
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

// === impl Condvar ===

impl Condvar {
    /// Creates a condition variable without waiting threads.
    #[must_use]
    pub fn new() -> Self {
        Self(imp::Condvar::new())
    }

    /// Wakes one sleeping thread, if there is one.
    #[inline]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all sleeping threads.
    #[inline]
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Unlocks the mutex, sleeps until the condition variable is signalled, and locks the mutex again. May wake up without a signal.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard(imp::wait(&self.0, guard.0))
    }

    /// Like [`wait`](Self::wait), but for at most `limit`.
    pub fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
        MutexGuard(imp::wait_for(&self.0, guard.0, limit))
    }
}

/// Whether this build uses the locks and atomics of a model checker.
const MODELLED: bool = cfg!(any(flyball_loom, flyball_shuttle));

/// Returns [`MODELLED`], evaluated at run time.
pub(crate) fn are_modelled() -> bool {
    MODELLED
}

/// The number of wakers that a [`WakeBatch`](crate::waiting::WakeBatch) holds. The number is small in a model, so that the model often needs more
/// than one batch.
pub(crate) const BATCH: usize = if MODELLED { 2 } else { 8 };

#[cfg(not(any(flyball_loom, flyball_shuttle)))]
mod imp {
    use std::cell::Cell;
    use std::time::Duration;

    pub(super) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub use std::thread_local;

    #[inline]
    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }

    #[inline]
    pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock()
    }

    #[inline]
    pub(super) fn into_inner<T>(mutex: Mutex<T>) -> T {
        mutex.into_inner()
    }

    #[inline]
    pub(super) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
        lock.read()
    }

    #[inline]
    pub(super) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
        lock.write()
    }

    pub(super) fn wait<'a, T>(condvar: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(&mut guard);
        guard
    }

    pub(super) fn wait_for<'a, T>(
        condvar: &Condvar,
        mut guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> MutexGuard<'a, T> {
        condvar.wait_for(&mut guard, limit);
        guard
    }

    /// Returns a small number that is unique to this thread.
    #[inline]
    pub fn thread_number() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        thread_local! {
            static NUMBER: Cell<usize> = const { Cell::new(0) };
        }
        // Threads that are being destroyed share the number 0.
        let number = NUMBER.try_with(|number| {
            if number.get() == 0 {
                // Ordering: Relaxed, because `NEXT` is only a counter.
                number.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            number.get()
        });
        number.unwrap_or(0)
    }
}

#[cfg(any(flyball_loom, flyball_shuttle))]
mod imp {
    use std::sync::TryLockError;
    use std::time::Duration;

    #[cfg(flyball_loom)]
    pub use loom::thread_local;
    #[cfg(flyball_loom)]
    use loom::{lazy_static, sync as model};
    #[cfg(flyball_shuttle)]
    pub use shuttle::thread_local;
    #[cfg(flyball_shuttle)]
    use shuttle::{lazy_static, sync as model};

    pub use model::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub(super) use model::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        match mutex.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn into_inner<T>(mutex: Mutex<T>) -> T {
        mutex.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
        lock.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
        lock.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn wait_for<'a, T>(
        condvar: &Condvar,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> MutexGuard<'a, T> {
        condvar.wait_timeout(guard, limit).unwrap_or_else(|poisoned| poisoned.into_inner()).0
    }

    lazy_static! {
        static ref NEXT: AtomicU64 = AtomicU64::new(0);
    }

    thread_local! {
        // Ordering: Relaxed, because `NEXT` is only a counter.
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a small number that is unique to this thread.
    pub fn thread_number() -> usize {
        NUMBER.with(|number| *number as usize)
    }
}
