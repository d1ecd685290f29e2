//! Threads of the current build: those of loom, shuttle or std.

#[cfg(not(any(flyball_loom, flyball_shuttle)))]
use std::thread as imp;

#[cfg(flyball_loom)]
use loom::thread as imp;
#[cfg(flyball_shuttle)]
use shuttle::thread as imp;

pub use imp::{JoinHandle, yield_now};

/// Spawns a thread of the model and counts it.
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
        // loom runs all threads of a model on the thread that started the exploration, so this thread-local variable
        // counts the threads of only one model.
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

    /// The largest number of threads in one interleaving since `reset`, including the main thread.
    pub(crate) fn most() -> usize {
        RUNNING.with(Cell::get).1
    }
}
