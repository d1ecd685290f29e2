//! SHELL. The shutdown request of an informer or of an event handler, and the waker of the run future that waits for it.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `requested` | whether a shutdown was requested or the run future has ended; never reset to `false` |
//! | `listener` | the waker of the run future's last pending poll; `None` once `requested` is set |
//!
//! One lock guards both fields, so that a waker is stored only while `requested` is `false`. So the request wakes every waker that is stored. Wakers
//! are cloned, woken and dropped outside the lock.

use std::task::{Context, Waker};

use flyball_sync::locks::Mutex;

#[derive(Debug, Default)]
pub(crate) struct StopSignal {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    requested: bool,
    listener: Option<Waker>,
}

impl StopSignal {
    /// Requests the shutdown, and wakes the run future. Idempotent.
    pub(crate) fn request(&self) {
        let mut state = self.state.lock();
        state.requested = true;
        let listener = state.listener.take();
        drop(state);
        if let Some(listener) = listener {
            listener.wake();
        }
    }

    /// Called when the run future has ended. Drops the waker of the run future, and sets `requested`, so that no further waker is stored.
    pub(crate) fn exited(&self) {
        let mut state = self.state.lock();
        state.requested = true;
        let listener = state.listener.take();
        drop(state);
        drop(listener);
    }

    /// Returns whether `requested` is set.
    pub(crate) fn is_requested(&self) -> bool {
        self.state.lock().requested
    }

    /// Returns whether `requested` is set. If it is not, stores the waker of the task, so that [`request`](Self::request) wakes the task.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> bool {
        let state = self.state.lock();
        let listens = state.listener.as_ref().is_some_and(|listener| listener.will_wake(cx.waker()));
        if state.requested || listens {
            return state.requested;
        }
        drop(state);
        let listener = cx.waker().clone();
        let mut state = self.state.lock();
        // Another thread may have set `requested` between the two critical sections. A waker that is stored after that would never be woken.
        let requested = state.requested;
        let unused = if requested { Some(listener) } else { state.listener.replace(listener) };
        drop(state);
        drop(unused);
        requested
    }
}
