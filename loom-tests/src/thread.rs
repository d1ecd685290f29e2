//! Threads of the build at hand: loom's, shuttle's or std's.

#[cfg(not(any(flyball_loom, flyball_shuttle)))]
use std::thread as imp;

#[cfg(flyball_loom)]
use loom::thread as imp;
#[cfg(flyball_shuttle)]
use shuttle::thread as imp;

pub use imp::{JoinHandle, yield_now};

/// Starts a thread of the model, and counts it.
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    #[cfg(flyball_loom)]
    count::spawned();
    imp::spawn(body)
}

#[cfg(flyball_loom)]
pub(crate) use count::{most, reset as reset_count, start_interleaving};

#[cfg(flyball_loom)]
mod count {
    use std::cell::Cell;

    std::thread_local! {
        // Loom runs all threads of a model on the thread that called it, so this is one model's count.
        static RUNNING: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }

    fn update(change: impl FnOnce(usize, usize) -> (usize, usize)) {
        RUNNING.with(|running| {
            let (now, most) = running.get();
            running.set(change(now, most));
        });
    }

    pub(crate) fn reset() {
        update(|_, _| (0, 0));
    }

    pub(crate) fn start_interleaving() {
        update(|_, most| (1, most.max(1)));
    }

    pub(crate) fn spawned() {
        update(|now, most| (now + 1, most.max(now + 1)));
    }

    /// Most threads of one interleaving since `reset`, the main one included.
    pub(crate) fn most() -> usize {
        RUNNING.with(Cell::get).1
    }
}
