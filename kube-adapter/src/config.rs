//! PURE. The configuration of a controller.

pub(crate) mod boxed_policy;
pub(crate) mod classify;
mod failures;
mod from_kube;

use std::fmt;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::ControllerMetrics;
use flyball_informer_cache::ReflectorConfig;

use self::boxed_policy::BoxedPolicy;
use self::classify::Classifier;

/// The initial and the maximum wait (5 ms and 5 minutes) of two backoffs: the recommended backoff for each object, and the backoff after panics and
/// timeouts.
pub(crate) const BACKOFF: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(300)];
/// The initial and the maximum wait of the backoff after conflicts, unless [`Config::conflict_backoff`] sets other values.
const CONFLICTS: [Duration; 2] = [Duration::from_millis(10), BACKOFF[1]];
/// The recommended number of concurrent reconciles.
const CONCURRENCY: u16 = 64;
/// The recommended time for which reconciles in flight may continue after a shutdown begins.
const GRACE: Duration = Duration::from_secs(20);
/// How long after the end of the grace reconciles that still run are dropped, by default.
const ABORT_AFTER: Duration = Duration::from_secs(5);
/// The default maximum wait of a debounce, as a multiple of its quiet period.
const DEBOUNCES: u32 = 10;

/// The configuration of a controller: kube-runtime's `controller::Config`, with more options.
///
/// The defaults are kube-runtime's: options that a program does not set behave as in kube-runtime.
/// [`recommended`](Self::recommended) sets the options that most programs want.
///
/// # Examples
/// ```
/// use flyball_kube::{Config, FailureClass, QueueOrder};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let (millis, secs) = (Duration::from_millis, Duration::from_secs);
/// let config = Config::default()
///     // When objects are reconciled.
///     .wait_for_all_caches()
///     .concurrency(8)
///     .max_failing_in_flight(4)
///     .queue_order(QueueOrder::FairByNamespace { max_in_flight: Some(4) })
///     .debounce_with_max_wait(millis(100), secs(2)) // `debounce(millis(100))` has 1 s
///     // When a reconcile fails, and when its object is retried.
///     .reconcile_timeout(secs(60))
///     .backoff(millis(100)..=secs(60))
///     .strict_backoff()
///     .max_attempts(20)
///     .conflict_backoff(millis(10)..=secs(60))
///     .respect_retry_after()
///     .classify_status(422, FailureClass::Permanent)
///     // The controller's lists and watches.
///     .request_timeout(secs(30))
///     .page_size(NonZeroU32::new(200).unwrap())
///     // A shutdown takes 25 s at most.
///     .drain_on_shutdown()
///     .shutdown_grace(secs(20))
///     .abort_after(secs(5));
/// # let _ = config;
/// ```
#[derive(Clone)]
#[must_use = "a configuration does nothing until a controller has it"]
pub struct Config {
    pub(crate) concurrency: u16,
    pub(crate) max_failing: u16,
    pub(crate) debounce: Option<Debounce>,
    pub(crate) queue_order: QueueOrder,
    /// The backoff of each object; `None` leaves the wait after errors to the error policy.
    pub(crate) backoff: Option<Arc<dyn Fn() -> BoxedPolicy + Send + Sync>>,
    pub(crate) strict_backoff: bool,
    /// 0 means no limit.
    pub(crate) max_attempts: u32,
    pub(crate) classifier: Classifier,
    pub(crate) conflicts: RangeInclusive<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) waits_for_all_caches: bool,
    pub(crate) drains: bool,
    pub(crate) grace: Option<Duration>,
    pub(crate) abort_after: Duration,
    request_timeout: Option<Duration>,
    page_size: Option<NonZeroU32>,
    pub(crate) controller_metrics: Option<Arc<dyn ControllerMetrics>>,
    pub(crate) queue_metrics: Option<Arc<dyn flyball_workqueue::QueueMetrics>>,
}

/// Delays the reconcile after a change until the object has not changed for `quiet`, but for at most `max_wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Debounce {
    pub(crate) quiet: Duration,
    pub(crate) max_wait: Duration,
}

/// The order in which waiting objects are reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueOrder {
    /// FIFO.
    Fifo,
    /// Objects from the initial list, and those of [`reconcile_all_on`](crate::Controller::reconcile_all_on), get the lowest priority: an object that changes in the meantime is reconciled before them. Each
    /// priority is FIFO. While both priorities have waiting objects, one of five reconciles is for an object of the lowest priority, so no
    /// object starves.
    Priority {
        /// The priority of these objects; changes have priority 0. A change raises the priority of its
        /// object for one reconcile.
        initial_priority: i8,
    },
    /// Round robin over namespaces, FIFO within each: ten thousand objects of one namespace do not delay the objects of
    /// other namespaces.
    FairByNamespace {
        /// The maximum number of objects of one namespace that are reconciled at once; 0 counts as 1. Objects without a
        /// namespace are one group.
        max_in_flight: Option<u32>,
    },
}

/// Objects from the initial list get the lowest priority.
impl Default for QueueOrder {
    fn default() -> Self {
        Self::Priority { initial_priority: -100 }
    }
}

impl Config {
    /// Sets values that are better than kube-runtime's defaults for most programs. Each of these options can also be set by itself:
    ///
    /// - at most 64 reconciles at once ([`concurrency`](Self::concurrency));
    /// - a backoff for each object, 5 ms to 5 minutes, in addition to the delay of the error policy ([`backoff`](Self::backoff));
    /// - a change of the object does not end these waits early ([`strict_backoff`](Self::strict_backoff));
    /// - a backoff for conflicts, 10 ms to 5 minutes ([`conflict_backoff`](Self::conflict_backoff));
    /// - retries wait at least for the delay that the API server requests ([`respect_retry_after`](Self::respect_retry_after));
    /// - reconciles start when all caches have synced ([`wait_for_all_caches`](Self::wait_for_all_caches));
    /// - at a shutdown, reconciles in flight may run for 20 s; those that still run 5 s later are dropped
    ///   ([`shutdown_grace`](Self::shutdown_grace)).
    ///
    /// Objects that are queued at a shutdown are left in the queue, as by default, because the next process lists all objects anyway.
    ///
    /// # Examples
    /// ```
    /// use flyball_kube::Config;
    /// use std::time::Duration;
    ///
    /// let config = Config::recommended().reconcile_timeout(Duration::from_secs(60));
    /// # let _ = config;
    /// ```
    pub fn recommended() -> Self {
        Self::default()
            .concurrency(CONCURRENCY)
            .backoff(BACKOFF[0]..=BACKOFF[1])
            .strict_backoff()
            .conflict_backoff(CONFLICTS[0]..=CONFLICTS[1])
            .respect_retry_after()
            .wait_for_all_caches()
            .shutdown_grace(GRACE)
    }

    /// Delays the reconcile after a change until the object has not changed for `quiet`, so that several changes cause
    /// one reconcile. By default, or if `quiet` is zero, there is no delay.
    ///
    /// A change waits for at most ten times `quiet`, however often the object changes; see [`debounce_with_max_wait`](Self::debounce_with_max_wait).
    /// Reconcile requests from other sources, such as [`reconcile_on`](crate::Controller::reconcile_on), are delayed like changes. Neither retries
    /// nor requeues that a reconcile returns are delayed.
    pub fn debounce(self, quiet: Duration) -> Self {
        self.debounce_with_max_wait(quiet, quiet.saturating_mul(DEBOUNCES))
    }

    /// Like [`debounce`](Self::debounce), but no change waits for longer than `max_wait`, or than `quiet` if that is longer.
    pub fn debounce_with_max_wait(mut self, quiet: Duration, max_wait: Duration) -> Self {
        self.debounce = (!quiet.is_zero()).then_some(Debounce { quiet, max_wait: max_wait.max(quiet) });
        self
    }

    /// Sets the maximum number of objects that are reconciled at once. 0, the default, means no limit, as in kube-runtime.
    ///
    /// Without a limit the first list of ten thousand objects starts ten thousand reconciles, which share the client's connections and the memory
    /// limit of the pod; [`recommended`](Self::recommended) sets 64. With a limit, an object may have to wait while slow reconciles of other objects
    /// run. [`Monitor::stats`](crate::Monitor::stats) reports the number of reconciles in flight. If 256 or more reconciles are in flight, a warning
    /// is logged, at most once a minute.
    pub fn concurrency(mut self, most: u16) -> Self {
        self.concurrency = most;
        self
    }

    /// Sets how many objects whose last reconcile failed are reconciled at once. 0, the default, means no limit, as in kube-runtime.
    ///
    /// Reconciles that fail are often slow, for example until a timeout. Without a limit, such objects take all of the
    /// [`concurrency`](Self::concurrency), and healthy objects wait for minutes. See
    /// [`ControllerConfig::max_failing_in_flight`](flyball_controller::ControllerConfig::max_failing_in_flight).
    pub fn max_failing_in_flight(mut self, most: u16) -> Self {
        self.max_failing = most;
        self
    }

    /// Sets the order in which waiting objects are reconciled; [`QueueOrder::Priority`] by default.
    pub fn queue_order(mut self, order: QueueOrder) -> Self {
        self.queue_order = order;
        self
    }

    /// Drops a reconcile at an await point if it has not completed within this time, and counts it as failed. By default, or if `limit` is zero,
    /// there is no limit.
    ///
    /// The limit applies to the reconcile alone: if its result has to wait until the consumer of the stream reads earlier results, this wait does not
    /// count.
    pub fn reconcile_timeout(mut self, limit: Duration) -> Self {
        self.timeout = (!limit.is_zero()).then_some(limit);
        self
    }

    /// Starts reconciles only when all caches have synced, including those of [`owns`](crate::Controller::owns) and
    /// [`watches`](crate::Controller::watches), so that an object is not reconciled once for itself and once more for its
    /// owned objects.
    ///
    /// By default reconciles start when the cache of the controller's own objects and the informers that are [shared](crate::Controller::owns_shared)
    /// with the program have synced, because reconciles read only these caches. Objects of the other caches add their keys when they arrive, and
    /// after five seconds a warning names the kinds that have not synced. With this option, no object is reconciled while any of the kinds cannot be
    /// listed, for example because a permission is missing.
    pub fn wait_for_all_caches(mut self) -> Self {
        self.waits_for_all_caches = true;
        self
    }

    /// Also reconciles the objects that are queued when a shutdown begins, within the
    /// [grace](Self::shutdown_grace). Set a grace, because the default grace is unlimited. Without this option the objects are left in the queue,
    /// as in kube-runtime: the next process lists all objects anyway.
    ///
    /// Delayed objects, including retries, are not reconciled at a shutdown, with or without this option.
    pub fn drain_on_shutdown(mut self) -> Self {
        self.drains = true;
        self
    }

    /// Sets how long reconciles in flight, and a [drain](Self::drain_on_shutdown), may take at a shutdown. After this time no reconcile is started.
    /// Reconciles that still run are dropped after a [further time](Self::abort_after). No limit by default, as in kube-runtime.
    ///
    /// By default, Kubernetes kills a pod after 30 s. [`recommended`](Self::recommended) sets a grace of 20 s, and reconciles that still run are
    /// dropped 5 s later, which leaves 5 s to release a lease.
    pub fn shutdown_grace(mut self, limit: Duration) -> Self {
        self.grace = Some(limit);
        self
    }

    /// Sets how long a list of the controller's own caches may receive no bytes, and how long opening a watch may take. After this time the request
    /// is cancelled, and is retried after a wait. The default is 2 minutes; zero means no limit.
    ///
    /// A list whose bytes keep arriving is never cancelled. For an informer of your own, see
    /// [`ReflectorConfig::request_timeout`].
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = Some(if limit.is_zero() { Duration::MAX } else { limit });
        self
    }

    /// Sets the page size of every list of the controller's own caches. It overrides the page sizes in their watcher configurations.
    ///
    /// A server before Kubernetes 1.34 reads paged relists from etcd, not from its cache.
    pub fn page_size(mut self, size: NonZeroU32) -> Self {
        self.page_size = Some(size);
        self
    }

    /// Applies this configuration to the reflector of one of the controller's own caches.
    pub(crate) fn reflector(&self, mut reflector: ReflectorConfig) -> ReflectorConfig {
        reflector.request_timeout = self.request_timeout.unwrap_or(reflector.request_timeout);
        reflector.page_size = self.page_size.or(reflector.page_size);
        reflector
    }

    /// Sets how long reconciles in flight may still run after the [grace](Self::shutdown_grace) is over. After this time they are dropped at an await
    /// point. The default is 5 s.
    pub fn abort_after(mut self, limit: Duration) -> Self {
        self.abort_after = limit;
        self
    }

    /// Reports every reconcile to `metrics`.
    pub fn controller_metrics(mut self, metrics: impl ControllerMetrics) -> Self {
        self.controller_metrics = Some(Arc::new(metrics));
        self
    }

    /// Reports the queue's depth, its latency and the other queue metrics of client-go to `metrics`.
    ///
    /// # Examples
    /// flyball-ops has adapters for Prometheus, `metrics` and `tracing`. Your own metrics type implements only the methods that it needs:
    /// ```
    /// use flyball_controller::ReconcileOutcome;
    /// use flyball_kube::{Config, ControllerMetrics, QueueMetrics};
    /// use std::time::Duration;
    ///
    /// struct Log;
    ///
    /// impl ControllerMetrics for Log {
    ///     fn reconcile_ended(&self, outcome: ReconcileOutcome, took: Duration) {
    ///         println!("{} after {took:?}", outcome.label());
    ///     }
    /// }
    ///
    /// impl QueueMetrics for Log {
    ///     fn dequeued(&self, queued: Duration, _: bool) {
    ///         println!("dequeued after {queued:?}");
    ///     }
    /// }
    ///
    /// let config = Config::default().controller_metrics(Log).queue_metrics(Log);
    /// # let _ = config;
    /// ```
    pub fn queue_metrics(mut self, metrics: impl flyball_workqueue::QueueMetrics) -> Self {
        self.queue_metrics = Some(Arc::new(metrics));
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            concurrency: 0,
            max_failing: 0,
            debounce: None,
            queue_order: QueueOrder::default(),
            backoff: None,
            strict_backoff: false,
            max_attempts: 0,
            classifier: Classifier::default(),
            conflicts: CONFLICTS[0]..=CONFLICTS[1],
            timeout: None,
            waits_for_all_caches: false,
            drains: false,
            grace: None,
            abort_after: ABORT_AFTER,
            request_timeout: None,
            page_size: None,
            controller_metrics: None,
            queue_metrics: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("concurrency", &self.concurrency)
            .field("max_failing", &self.max_failing)
            .field("debounce", &self.debounce)
            .field("queue_order", &self.queue_order)
            .field("statuses", &self.classifier.statuses)
            .field("backs_off", &self.backoff.is_some())
            .field("strict_backoff", &self.strict_backoff)
            .field("max_attempts", &self.max_attempts)
            .field("conflicts", &self.classifier.conflicts.then_some(&self.conflicts))
            .field("respects_retry_after", &self.classifier.respects_retry_after)
            .field("timeout", &self.timeout)
            .field("waits_for_all_caches", &self.waits_for_all_caches)
            .field("drains", &self.drains)
            .field("grace", &self.grace)
            .field("abort_after", &self.abort_after)
            .field("request_timeout", &self.request_timeout)
            .field("page_size", &self.page_size)
            .finish_non_exhaustive()
    }
}
