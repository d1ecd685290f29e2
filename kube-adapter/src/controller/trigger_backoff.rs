//! SHELL. A backoff that the program sets, and that all lists, watches and streams of a controller share.
//!
//! | guarded by | |
//! |---|---|
//! | `Shared` | the backoff, whose `next` and `reset` run under the lock |

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::RetryBackoff;
use flyball_sync::locks::Mutex;
use flyball_sync::panics::caught;
use kube::Resource;
use kube::runtime::utils::Backoff;
use tokio::sync::Notify;

use super::Controller;

impl<K> Controller<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    /// Sets the backoff of the controller's own lists, watches and streams. By default each list, watch and stream has a backoff of its own, from 800
    /// ms to 30 s with jitter. If the server requests a longer wait than the backoff, the longer wait applies. A shared informer keeps its own
    /// backoff.
    ///
    /// All of the controller's lists, watches and streams share `backoff`, as in kube-runtime: after each failure, the retry waits for the next
    /// duration of `backoff`. Each object or request that arrives and maps to an object of the controller [resets](Backoff::reset) `backoff`. A
    /// bookmark, an empty list and the end of a watch do not reset it, and neither does an owned object without an owner of this kind. Only the list,
    /// watch or stream that failed waits. When `backoff` returns `None`, the controller [shuts down](Self::graceful_shutdown_on). `backoff` is called under a lock.
    ///
    /// # Examples
    /// A controller that ends after three consecutive failures of its lists and watches:
    /// ```
    /// # use flyball_kube_testing::ApiServer;
    /// use flyball_kube::{Action, Controller};
    /// use futures_util::StreamExt;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::Api;
    /// use kube::runtime::{utils::Backoff, watcher};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// struct Retries {
    ///     left: u32,
    /// }
    ///
    /// impl Iterator for Retries {
    ///     type Item = Duration;
    ///
    ///     fn next(&mut self) -> Option<Duration> {
    ///         self.left = self.left.checked_sub(1)?;
    ///         Some(Duration::from_secs(1))
    ///     }
    /// }
    ///
    /// impl Backoff for Retries {
    ///     fn reset(&mut self) {
    ///         self.left = 2;
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let server = ApiServer::new();
    /// # server.register::<ConfigMap>();
    /// # server.refuse_connections();
    /// # let client = server.client();
    /// let results: Vec<_> = Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default())
    ///     .trigger_backoff(Retries { left: 2 })
    ///     .run(
    ///         |_, _| async { Ok::<_, kube::Error>(Action::await_change()) },
    ///         |_, _, _| Action::await_change(),
    ///         Arc::new(()),
    ///     )
    ///     .collect()
    ///     .await;
    /// assert_eq!(results.len(), 3);
    /// assert!(results.iter().all(Result::is_err));
    /// # }
    /// ```
    pub fn trigger_backoff(mut self, backoff: impl Backoff + 'static) -> Self {
        self.backoff = Some(TriggerBackoff::new(backoff));
        self
    }
}

/// The backoff of [`Controller::trigger_backoff`](crate::Controller::trigger_backoff).
pub(crate) struct TriggerBackoff(Arc<Shared>);

struct Shared {
    backoff: Mutex<Box<dyn Backoff>>,
    /// Notified when the backoff returns `None`.
    gave_up: Notify,
}

impl TriggerBackoff {
    pub(crate) fn new(backoff: impl Backoff + 'static) -> Self {
        Self(Arc::new(Shared { backoff: Mutex::new(Box::new(backoff)), gave_up: Notify::new() }))
    }

    /// Returns a handle of the shared backoff for one cache or one stream.
    pub(crate) fn handle(&self) -> BackoffHandle {
        BackoffHandle(self.0.clone())
    }

    /// Returns a future that completes when the backoff has returned `None`.
    pub(crate) fn gave_up(&self) -> impl Future<Output = ()> + Send + use<> + 'static {
        let shared = self.0.clone();
        async move { shared.gave_up.notified().await }
    }
}

/// A handle of the shared backoff, for one cache or one stream.
#[derive(Clone)]
pub(crate) struct BackoffHandle(Arc<Shared>);

impl BackoffHandle {
    /// Resets the backoff. Must be called when an item maps to an object of the controller, and only then, because kube-runtime applies the backoff to
    /// its stream of reconcile requests.
    ///
    /// This resets the backoff even if another list or watch still fails, as in kube-runtime. If the backoff were reset only after every stream has
    /// succeeded, one kind that cannot be listed would raise the wait of all other streams to the maximum. It would also end the controller if the
    /// backoff has a limited number of waits.
    pub(crate) fn requested(&self) {
        caught(|| self.0.backoff.lock().reset());
    }
}

impl Iterator for BackoffHandle {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = self.0.backoff.lock().next();
        if wait.is_none() {
            self.0.gave_up.notify_one();
        }
        wait
    }
}

impl Backoff for BackoffHandle {
    /// Does nothing, because an item may map to no object. See [`requested`](Self::requested).
    fn reset(&mut self) {}
}

impl RetryBackoff for BackoffHandle {
    fn failed(&mut self) -> Duration {
        // If the backoff returns `None`, the controller ends, so there is no retry.
        self.next().unwrap_or(Duration::MAX)
    }

    /// Does nothing, because a list may be empty and a batch of events may consist of bookmarks. See [`requested`](Self::requested).
    fn succeeded(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A backoff whose waits grow by one second.
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
    fn begins_anew_with_any_request() {
        let backoff = TriggerBackoff::new(Linear(0));
        let [mut one, mut other] = [(); 2].map(|()| backoff.handle());
        let next = |handle: &mut BackoffHandle| handle.next().unwrap().as_secs();
        assert_eq!([next(&mut one), next(&mut other), next(&mut one)], [1, 2, 3]);
        other.requested();
        assert_eq!([next(&mut one), next(&mut other)], [1, 2]);
    }
}
