//! SHELL. One backoff of the program's for all lists, watches and streams of a controller.
//!
//! | guarded by | |
//! |---|---|
//! | `Shared` | the backoff, and how many fail. `next` and `reset` of the backoff run under it |

use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::RetryBackoff;
use flyball_sync::locks::Mutex;
use kube::runtime::utils::Backoff;
use tokio::sync::Notify;

/// The backoff of [`Controller::trigger_backoff`](crate::Controller::trigger_backoff).
pub(crate) struct TriggerBackoff(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// The backoff has no further wait.
    gave_up: Notify,
}

struct State {
    backoff: Box<dyn Backoff>,
    failing: usize,
}

impl TriggerBackoff {
    pub(crate) fn new(backoff: impl Backoff + 'static) -> Self {
        let state = Mutex::new(State { backoff: Box::new(backoff), failing: 0 });
        Self(Arc::new(Shared { state, gave_up: Notify::new() }))
    }

    /// For one cache, or one stream.
    pub(crate) fn handle(&self) -> BackoffHandle {
        BackoffHandle { shared: self.0.clone(), fails: false }
    }

    /// Waits until it has no further wait.
    pub(crate) fn gave_up(&self) -> impl Future<Output = ()> + Send + use<> + 'static {
        let shared = self.0.clone();
        async move { shared.gave_up.notified().await }
    }
}

/// The waits of one cache, or one stream.
pub(crate) struct BackoffHandle {
    shared: Arc<Shared>,
    /// Whether its last request failed.
    fails: bool,
}

impl Iterator for BackoffHandle {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let mut state = self.shared.state.lock();
        state.failing += usize::from(!std::mem::replace(&mut self.fails, true));
        let wait = state.backoff.next();
        drop(state);
        if wait.is_none() {
            self.shared.gave_up.notify_one();
        }
        wait
    }
}

impl Backoff for BackoffHandle {
    /// One that works does not shorten the waits of one that does not.
    fn reset(&mut self) {
        if std::mem::replace(&mut self.fails, false) {
            let mut state = self.shared.state.lock();
            state.failing -= 1;
            if state.failing == 0 {
                state.backoff.reset();
            }
        }
    }
}

impl RetryBackoff for BackoffHandle {
    fn failed(&mut self) -> Duration {
        // The controller ends then.
        self.next().unwrap_or(Duration::MAX)
    }

    fn succeeded(&mut self) {
        self.reset();
    }
}

impl Drop for BackoffHandle {
    fn drop(&mut self) {
        self.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One second more each time.
    struct Linear(u64);

    impl Iterator for Linear {
        type Item = Duration;

        fn next(&mut self) -> Option<Duration> {
            self.0 += 1;
            Some(Duration::from_secs(self.0))
        }
    }

    impl Backoff for Linear {
        fn reset(&mut self) {
            self.0 = 0;
        }
    }

    #[test]
    fn begins_anew_when_nothing_fails_any_more() {
        let backoff = TriggerBackoff::new(Linear(0));
        let [mut one, mut other, mut sound] = [(); 3].map(|()| backoff.handle());
        let next = |handle: &mut BackoffHandle| handle.next().unwrap().as_secs();
        assert_eq!([next(&mut one), next(&mut other), next(&mut one)], [1, 2, 3]);
        sound.reset();
        one.reset();
        assert_eq!(next(&mut other), 4, "it still fails");
        other.reset();
        other.reset();
        assert_eq!([next(&mut one), next(&mut other)], [1, 2]);
        // One that is gone does not fail.
        drop(one);
        assert_eq!(next(&mut other), 3);
        drop(other);
        assert_eq!(next(&mut sound), 1);
    }
}
