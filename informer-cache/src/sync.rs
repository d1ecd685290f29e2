//! The only place of this crate that names a lock or an atomic.
//!
//! parking_lot in the shipped build, loom's or shuttle's under our own cfgs. The shim adapts signatures, so what is checked is what
//! ships; but for three numbers, on which nothing but time depends: of a thread, of seats, and of looks before one is taken.

pub(crate) use imp::{
    AtomicBool, AtomicU64, Condvar, Mutex, Ordering, QUIET, RwLock, seats, thread_local, thread_number,
};

#[cfg(not(any(flyball_loom, flyball_shuttle)))]
mod imp {
    use std::cell::Cell;
    use std::num::NonZeroUsize;
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicUsize;
    use std::thread::available_parallelism;
    use std::time::Duration;

    use parking_lot::MutexGuard;
    pub(crate) use parking_lot::{Mutex, RwLock};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(crate) use std::thread_local;

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

    /// A reader gets a seat after so many looks without a write.
    pub(crate) const QUIET: u32 = 32;

    /// How many seats readers get: two for each core up to 16, so that threads that run at one time seldom share one.
    pub(crate) fn seats() -> usize {
        // Asked once: it reads files.
        static SEATS: OnceLock<usize> = OnceLock::new();
        let cores = || available_parallelism().map_or(1, NonZeroUsize::get);
        *SEATS.get_or_init(|| cores().saturating_mul(2).next_power_of_two().clamp(8, 32))
    }

    /// A small number that is this thread's own.
    #[inline]
    pub(crate) fn thread_number() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        thread_local! {
            static NUMBER: Cell<usize> = const { Cell::new(0) };
        }
        // A thread that is ending shares the number 0.
        let number = NUMBER.try_with(|number| {
            if number.get() == 0 {
                // Ordering: Relaxed, it only counts.
                number.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            number.get()
        });
        number.unwrap_or(0)
    }
}

#[cfg(any(flyball_loom, flyball_shuttle))]
mod imp {
    #[cfg(flyball_loom)]
    pub(crate) use loom::thread_local;
    #[cfg(flyball_loom)]
    use loom::{lazy_static, sync as model};
    #[cfg(flyball_shuttle)]
    pub(crate) use shuttle::thread_local;
    #[cfg(flyball_shuttle)]
    use shuttle::{lazy_static, sync as model};
    use std::time::Duration;

    pub(crate) use model::atomic::{AtomicBool, AtomicU64, Ordering};
    use model::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    /// The first look gets a seat: there is nothing to be seen in the others.
    pub(crate) const QUIET: u32 = 1;

    /// None: each look would be two more steps. Models of seats ask for theirs.
    pub(crate) fn seats() -> usize {
        0
    }

    lazy_static! {
        static ref NEXT: AtomicU64 = AtomicU64::new(0);
    }

    thread_local! {
        // Ordering: Relaxed, it only counts.
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }

    /// A small number that is this thread's own.
    pub(crate) fn thread_number() -> usize {
        NUMBER.with(|number| *number as usize)
    }

    /// The model's mutex without poisoning, as parking_lot's.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(model::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(model::Mutex::new(value))
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
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
