//! The only place of this crate that names a lock or an atomic.
//!
//! parking_lot in the shipped build, loom's or shuttle's under our own cfgs. The shim adapts signatures only: it
//! has no state and no branch, so what is checked is what ships.

pub(crate) use imp::Mutex;

#[cfg(not(any(flyball_loom, flyball_shuttle)))]
mod imp {
    pub(crate) use parking_lot::Mutex;
}

#[cfg(any(flyball_loom, flyball_shuttle))]
mod imp {
    #[cfg(flyball_loom)]
    use loom::sync as model;
    #[cfg(flyball_shuttle)]
    use shuttle::sync as model;

    /// The model's mutex without poisoning, as parking_lot's.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(model::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(model::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> model::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
        }

        pub(crate) fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }
}
