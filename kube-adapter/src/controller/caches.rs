//! SHELL. The controller's own caches: whether they have synced, and which of their requests fail.
//!
//! | guarded by | |
//! |---|---|
//! | `Caches::all` | the list; caches are added before the controller runs |
//! | `Cache::failures` | the failures of the cache, and when a warning was last logged. Log lines are written after unlocking |
//!
//! Cancel safety: dropping the future of [`Caches::log_status`] stops the logging of recoveries and of caches that have not synced, and has no other
//! effect.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flyball_informer_cache::{
    BackoffCause, Informer, InformerState, InformerStatus, NamespacedName, SourceErrorKind, SourceFailure,
};
use flyball_sync::Nanos;
use kube::runtime::watcher;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use flyball_sync::locks::Mutex;

/// The `tracing` target of log lines about lists and watches. It is the same as in kube-runtime, so that filters such as `kube=warn` match.
const TARGET: &str = "kube_runtime::watcher";
/// The minimum time between two warnings of a cache.
const WARNS_EVERY: Duration = Duration::from_secs(60);
/// The interval at which caches that fail, or have not synced, are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// If a cache has not synced this long after the controller started to reconcile, a warning is logged.
const SLOW: Duration = Duration::from_secs(5);

/// The status of one of a controller's own caches: the cache of its objects, or a cache of [`owns`](crate::Controller::owns) or
/// [`watches`](crate::Controller::watches). See [`Monitor::caches`](crate::Monitor::caches).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStatus {
    /// The kind of its objects.
    pub kind: String,
    /// Whether its first list is complete.
    pub synced: bool,
    /// The number of its objects.
    pub objects: usize,
    /// The status of its informer; `None` before the controller runs.
    pub informer: Option<InformerStatus>,
    /// The number of lists and watches that failed so far.
    pub failures: u64,
    /// The current failure of its lists and watches; `None` if no request is known to fail.
    pub failure: Option<WatchFailure>,
}

/// A series of consecutive failed lists and watches of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchFailure {
    /// The type of the last request that failed: `list`, `watch`, or `list or watch` if it timed out.
    pub request: &'static str,
    /// The error of the last failed request.
    pub message: String,
    /// How many consecutive requests have failed.
    pub consecutive_failures: u64,
    /// How long requests have been failing.
    pub failing_for: Duration,
}

/// All caches of one controller. Cloning increments a reference count.
#[derive(Clone, Default)]
pub(crate) struct Caches(Arc<Shared>);

#[derive(Default)]
struct Shared {
    all: Mutex<Vec<Arc<Cache>>>,
    /// Notified when a request fails.
    failed: Notify,
}

/// One cache.
pub(crate) struct Cache {
    kind: String,
    known: OnceLock<CacheInfo>,
    failures: Mutex<CacheFailures>,
    caches: Caches,
}

/// Functions that read the state of the cache's informer, with its types erased.
struct CacheInfo {
    is_synced: Box<dyn Fn() -> bool + Send + Sync>,
    objects: Box<dyn Fn() -> usize + Send + Sync>,
    status: Box<dyn Fn() -> InformerStatus + Send + Sync>,
}

#[derive(Default)]
struct CacheFailures {
    /// The total number of failures.
    failures: u64,
    current: Option<Current>,
    warned: Option<Instant>,
}

/// A series of consecutive failed requests.
struct Current {
    begun: Instant,
    failures: u64,
    request: &'static str,
    message: String,
    at: Nanos,
    /// The earliest time at which the loop checks whether the cache has recovered. This time is later than the retry of the failed request.
    next: Instant,
    warned: bool,
}

impl Caches {
    pub(crate) fn add(&self, kind: String) -> Arc<Cache> {
        let cache = Cache { kind, known: OnceLock::new(), failures: Mutex::default(), caches: self.clone() };
        let cache = Arc::new(cache);
        self.0.all.lock().push(cache.clone());
        cache
    }

    fn all(&self) -> Vec<Arc<Cache>> {
        self.0.all.lock().clone()
    }

    pub(crate) fn states(&self) -> Vec<CacheStatus> {
        self.all().iter().map(|cache| cache.state()).collect()
    }

    /// Logs the recovery of a cache, and the names of the caches that have not synced 5 s after the controller started to reconcile. Never completes.
    pub(crate) async fn log_status(&self, controller: &str, has_begun: impl Fn() -> bool) {
        let caches = self.all();
        let (mut begun, mut missed): (Option<Instant>, Option<Vec<bool>>) = (None, None);
        loop {
            let mut quiet = true;
            for cache in &caches {
                quiet &= !cache.recovers();
            }
            let missing: Vec<bool> = caches.iter().map(|cache| !cache.synced()).collect();
            if begun.is_none() && has_begun() {
                begun = Some(Instant::now());
            }
            match &missed {
                None if begun.is_some_and(|begun| begun.elapsed() >= SLOW || !missing.contains(&true)) => {
                    let kinds = kinds(&caches, &missing);
                    if !kinds.is_empty() {
                        tracing::warn!(
                            target: TARGET,
                            controller,
                            missing = kinds.join(", "),
                            "reconciles have begun although caches are not synced; until they are, objects of these kinds add no keys"
                        );
                    }
                    missed = Some(missing.clone());
                }
                Some(before) if *before != missing => {
                    let filled: Vec<bool> =
                        before.iter().zip(&missing).map(|(then, now)| *then && !now).collect();
                    tracing::info!(
                        target: TARGET,
                        controller,
                        filled = kinds(&caches, &filled).join(", "),
                        "caches have synced; their objects now add keys"
                    );
                    missed = Some(missing.clone());
                }
                _ => {}
            }
            // Once all caches have synced and none fails, the loop waits for the next failure.
            if quiet && missed.is_some() && !missing.contains(&true) {
                self.0.failed.notified().await;
            }
            sleep(CHECK_INTERVAL).await;
        }
    }
}

fn kinds<'a>(caches: &'a [Arc<Cache>], those: &[bool]) -> Vec<&'a str> {
    caches.iter().zip(those).filter(|(_, is)| **is).map(|(cache, _)| cache.kind.as_str()).collect()
}

impl Cache {
    pub(crate) fn watch<V: Send + Sync + 'static>(&self, informer: &Informer<NamespacedName, V>) {
        let (synced, objects, status) = (informer.clone(), informer.store().clone(), informer.clone());
        let known = CacheInfo {
            is_synced: Box::new(move || synced.is_synced()),
            objects: Box::new(move || objects.len()),
            status: Box::new(move || status.status()),
        };
        // `set` cannot fail, because it is called once: a cache has one informer.
        let _ = self.known.set(known);
    }

    fn synced(&self) -> bool {
        self.known.get().is_some_and(|known| (known.is_synced)())
    }

    fn state(&self) -> CacheStatus {
        let known = self.known.get();
        let (synced, objects) = (self.synced(), known.map_or(0, |known| (known.objects)()));
        let informer = known.map(|known| (known.status)());
        let failures = self.failures.lock();
        let failure = failures.current.as_ref().map(|current| WatchFailure {
            request: current.request,
            message: current.message.clone(),
            consecutive_failures: current.failures,
            failing_for: current.begun.elapsed(),
        });
        CacheStatus {
            kind: self.kind.clone(),
            synced,
            objects,
            informer,
            failures: failures.failures,
            failure,
        }
    }

    /// Records a failed request as a failure, and logs it. If the request failed because its version is too old or not available yet, it is only
    /// logged at the debug level: such failures are part of the normal operation of watches.
    pub(crate) fn failed(&self, failure: &SourceFailure<'_>, error: &watcher::Error) {
        use SourceErrorKind::{Expired, VersionTooLarge};
        let (request, message) = (request(failure, error), failure.to_string());
        let retry_in = failure.retry_at.map_or(Duration::ZERO, |until| until.since(failure.at));
        if matches!(failure.cause, BackoffCause::Failed(Expired | VersionTooLarge)) {
            tracing::debug!(target: TARGET, kind = self.kind, request, error = message, "the cache lists again");
            return;
        }
        let now = Instant::now();
        let mut failures = self.failures.lock();
        failures.failures += 1;
        let current = failures.current.get_or_insert_with(|| Current {
            begun: now,
            failures: 0,
            request,
            message: String::new(),
            at: failure.at,
            next: now,
            warned: false,
        });
        current.failures += 1;
        current.request = request;
        current.message.clone_from(&message);
        current.at = failure.at;
        current.next = now + retry_in + CHECK_INTERVAL;
        let consecutive = current.failures;
        let warns = failures.warned.is_none_or(|warned| now.duration_since(warned) >= WARNS_EVERY);
        if warns {
            failures.warned = Some(now);
            if let Some(current) = &mut failures.current {
                current.warned = true;
            }
        }
        drop(failures);
        self.caches.0.failed.notify_one();
        let kind = &*self.kind;
        let what = "a request of a cache failed; the cache does not change until a retry succeeds";
        if warns {
            tracing::warn!(target: TARGET, kind, request, error = message, failures = consecutive, ?retry_in, "{what}");
        } else {
            tracing::debug!(target: TARGET, kind, request, error = message, failures = consecutive, ?retry_in, "{what}");
        }
    }

    /// Returns whether requests still fail. Logs a recovery.
    fn recovers(&self) -> bool {
        let Some(known) = self.known.get() else { return false };
        let Some((at, next)) =
            self.failures.lock().current.as_ref().map(|current| (current.at, current.next))
        else {
            return false;
        };
        if Instant::now() < next {
            return true;
        }
        let status = (known.status)();
        if status.state != InformerState::Watching || status.last_success.is_none_or(|heard| heard <= at) {
            return true;
        }
        let mut failures = self.failures.lock();
        // A different request may have failed since the lock was released above.
        let Some(current) = failures.current.take_if(|current| current.at == at) else { return true };
        drop(failures);
        if current.warned {
            let (failures, lasted) = (current.failures, current.begun.elapsed());
            tracing::info!(target: TARGET, kind = self.kind, failures, ?lasted, "the cache is up to date again");
        }
        false
    }
}

/// Returns the type of the failed request: `list` or `watch`, or `list or watch` if it is unknown.
fn request(failure: &SourceFailure<'_>, error: &watcher::Error) -> &'static str {
    match (failure.error, error) {
        (Some(_), watcher::Error::InitialListFailed(_)) => "list",
        (None, _) if matches!(failure.cause, BackoffCause::Interrupted) => "list",
        (None, _) if matches!(failure.cause, BackoffCause::TimedOut) => "list or watch",
        _ => "watch",
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.states()).finish()
    }
}
