//! SHELL. The wish that an informer end, and the run future that listens for it.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `wished` | set once, never unset |
//! | `listener` | the waker of the run future's last pending poll; none once the wish was made |
//!
//! Both under one lock: a listener that is stored has seen `wished` unset, so the wish that follows wakes it.
//! Wakers are cloned, woken and dropped outside the lock.

use std::task::{Context, Waker};

use flyball_sync::locks::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Stop {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    wished: bool,
    listener: Option<Waker>,
}

impl Stop {
    /// Wishes that the run future end. Again is the same.
    pub(crate) fn wish(&self) {
        let mut state = self.state.lock();
        state.wished = true;
        let listener = state.listener.take();
        drop(state);
        if let Some(listener) = listener {
            listener.wake();
        }
    }

    /// The run future is over and listens no more.
    pub(crate) fn over(&self) {
        let mut state = self.state.lock();
        state.wished = true;
        let listener = state.listener.take();
        drop(state);
        drop(listener);
    }

    /// Whether the end is wished for.
    pub(crate) fn is_wished(&self) -> bool {
        self.state.lock().wished
    }

    /// Whether the end is wished for; if not, the task is woken when it is.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> bool {
        let state = self.state.lock();
        let listens = state.listener.as_ref().is_some_and(|listener| listener.will_wake(cx.waker()));
        if state.wished || listens {
            return state.wished;
        }
        drop(state);
        let listener = cx.waker().clone();
        let mut state = self.state.lock();
        // The wish may have come between the two locks; then nobody would wake what is stored now.
        let wished = state.wished;
        let unused = if wished { Some(listener) } else { state.listener.replace(listener) };
        drop(state);
        drop(unused);
        wished
    }
}
