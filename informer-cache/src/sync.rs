//! The only place of this crate that names a lock or an atomic.
//!
//! parking_lot in the shipped build, loom's or shuttle's under our own cfgs. The shim adapts signatures only: it
//! has no state and no branch, so what is checked is what ships.

pub(crate) use imp::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering, RwLock};

#[cfg(not(any(flyball_loom, flyball_shuttle)))]
mod imp {
    use std::time::Duration;

    use parking_lot::MutexGuard;
    pub(crate) use parking_lot::{Mutex, RwLock};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(&mut guard);
            guard
        }

        pub(crate) fn wait_for<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            limit: Duration,
        ) -> MutexGuard<'a, T> {
            self.0.wait_for(&mut guard, limit);
            guard
        }
    }
}

#[cfg(any(flyball_loom, flyball_shuttle))]
mod imp {
    #[cfg(flyball_loom)]
    use loom::sync as model;
    #[cfg(flyball_shuttle)]
    use shuttle::sync as model;
    use std::time::Duration;

    pub(crate) use model::atomic::{AtomicBool, AtomicU64, Ordering};
    use model::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    /// The model's mutex without poisoning, as parking_lot's.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(model::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(model::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(model::Condvar);

    impl Condvar {
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner())
        }

        pub(crate) fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
            self.0.wait_timeout(guard, limit).unwrap_or_else(|poisoned| poisoned.into_inner()).0
        }
    }

    /// The model's read-write lock without poisoning, as parking_lot's.
    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(model::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(model::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner())
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }
}
