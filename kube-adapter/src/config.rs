//! PURE. How a controller runs.

pub(crate) mod boxed_policy;
pub(crate) mod classify;
mod from_kube;

use std::error::Error;
use std::fmt;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::{ControllerMetrics, FailureClass};
use flyball_informer_cache::{NamespacedName, ReflectorConfig};
use flyball_ratelimit::{Exponential, Policy};

use self::boxed_policy::BoxedPolicy;
use self::classify::Classifier;

/// The wait after a first failure, and the longest, where objects have a backoff: 5 ms to 5 minutes.
pub(crate) const BACKOFF: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(300)];
/// The wait after a first conflict, and the longest, where there is a schedule for conflicts.
const CONFLICTS: [Duration; 2] = [Duration::from_millis(10), BACKOFF[1]];
/// How many objects are reconciled at once, as recommended.
const CONCURRENCY: u16 = 64;
/// How long reconciles in flight may take at a shutdown, as recommended.
const GRACE: Duration = Duration::from_secs(20);
/// How long they may still run after that, if nothing is said.
const ABORT_AFTER: Duration = Duration::from_secs(5);
/// A debounce may become this much longer, if nothing is said.
const DEBOUNCES: u32 = 10;

/// How a controller runs: kube-runtime's `controller::Config`, with more options.
///
/// The defaults are kube-runtime's: what a program does not say is as it was there. [`recommended`](Self::recommended) has the options
/// that most programs want.
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
///     .queue_order(QueueOrder::FairByNamespace { max_in_flight: Some(4) })
///     .debounce_with_max_wait(millis(100), secs(2)) // `debounce(millis(100))` has 1 s
///     // What happens to those that fail.
///     .reconcile_timeout(secs(60))
///     .backoff(millis(100)..=secs(60))
///     .conflict_backoff(millis(10)..=secs(60))
///     .respect_retry_after()
///     .classify_status(422, FailureClass::Permanent)
///     // Its lists and watches.
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
    pub(crate) debounce: Option<Debounce>,
    pub(crate) queue_order: QueueOrder,
    /// The backoff of each object; `None` leaves errors to the error policy.
    pub(crate) backoff: Option<Arc<dyn Fn() -> BoxedPolicy + Send + Sync>>,
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

/// A change is not reconciled at once, but so long after it, unless another one comes meanwhile.
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
    /// Objects from the initial list get the lowest priority: an object that changes meanwhile is reconciled before them. Each priority is
    /// FIFO, and while both have work one of five reconciles is of the initial list, so that nothing starves.
    Priority {
        /// The priority of objects from the initial list; changes have 0. A change raises the priority of its object for one
        /// reconcile.
        initial_priority: i8,
    },
    /// Round robin over namespaces, FIFO within each: ten thousand objects of one namespace do not delay those of
    /// others.
    FairByNamespace {
        /// The most objects of one namespace that are reconciled at once; 0 counts as 1. Objects without a namespace are one group.
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
    /// What is better than kube-runtime's defaults for most programs, all at once; each can be set by itself, too:
    ///
    /// - at most 64 reconciles at once ([`concurrency`](Self::concurrency));
    /// - a backoff for each object, 5 ms to 5 minutes, beside the delay of the error policy ([`backoff`](Self::backoff));
    /// - a schedule for conflicts, 10 ms to 5 minutes ([`conflict_backoff`](Self::conflict_backoff));
    /// - at least the delay that the API server asks for ([`respect_retry_after`](Self::respect_retry_after));
    /// - reconciles begin when all caches are filled ([`wait_for_all_caches`](Self::wait_for_all_caches));
    /// - reconciles in flight have 20 s to end at a shutdown, and are dropped after 5 s more ([`shutdown_grace`](Self::shutdown_grace)).
    ///
    /// What is queued at a shutdown is left all the same: the next process lists all objects anyway.
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
            .conflict_backoff(CONFLICTS[0]..=CONFLICTS[1])
            .respect_retry_after()
            .wait_for_all_caches()
            .shutdown_grace(GRACE)
    }

    /// Puts off what a change brings until nothing has happened to the object for so long: several changes become one
    /// reconcile. None by default; zero is none.
    ///
    /// It waits for at most ten times this, however often the object changes; see [`debounce_with_max_wait`](Self::debounce_with_max_wait).
    /// What is asked for from outside, by [`reconcile_on`](crate::Controller::reconcile_on) say, is put off as a change is. What a reconcile asks
    /// for itself does not wait, and retries do not.
    pub fn debounce(self, quiet: Duration) -> Self {
        self.debounce_with_max_wait(quiet, quiet.saturating_mul(DEBOUNCES))
    }

    /// As [`debounce`](Self::debounce), but no change waits for longer than `max_wait`.
    pub fn debounce_with_max_wait(mut self, quiet: Duration, max_wait: Duration) -> Self {
        self.debounce = (!quiet.is_zero()).then_some(Debounce { quiet, max_wait: max_wait.max(quiet) });
        self
    }

    /// How many objects are reconciled at once, at most. 0, the default, is no bound, as in kube-runtime.
    ///
    /// Without a bound the first list of ten thousand objects starts ten thousand reconciles, which share the client's connections and
    /// the memory limit of the pod; [`recommended`](Self::recommended) has 64. With a bound, objects wait for slow reconciles of others.
    /// [`Monitor::stats`](crate::Monitor::stats) reports how many are in flight, and a warning is logged, at most once a minute, when there are 256 or more.
    pub fn concurrency(mut self, most: u16) -> Self {
        self.concurrency = most;
        self
    }

    /// The order in which waiting objects are reconciled; [`QueueOrder::Priority`] by default.
    pub fn queue_order(mut self, order: QueueOrder) -> Self {
        self.queue_order = order;
        self
    }

    /// Sets a backoff for each object: after failures in a row it waits from the first to the longest of these, doubling. None by default.
    ///
    /// The later of this and of the delay of the error policy holds. The first success resets it. An object has one open wait: if it
    /// changes, is reconciled before the wait is over and fails again, neither the count nor the end of the wait changes. Panics and
    /// timeouts count, too.
    ///
    /// A `first` of zero is a nanosecond, and a longest that is shorter than the first is the first.
    pub fn backoff(self, waits: RangeInclusive<Duration>) -> Self {
        let first = (*waits.start()).max(Duration::from_nanos(1));
        let longest = (*waits.end()).max(first);
        self.backoff_policy(move || Exponential::new(first..=longest))
    }

    /// As [`backoff`](Self::backoff), with a policy of choice: `make` makes it when the controller runs.
    ///
    /// # Examples
    /// client-go's: a backoff for each object, and at most ten retries a second of all objects together:
    /// ```
    /// use flyball_kube::Config;
    /// use flyball_ratelimit::controller_default;
    ///
    /// let config = Config::default().backoff_policy(controller_default);
    /// # let _ = config;
    /// ```
    pub fn backoff_policy<P>(mut self, make: impl Fn() -> P + Send + Sync + 'static) -> Self
    where
        P: Policy<NamespacedName> + Send + 'static,
        P::Reservation: Send + 'static,
    {
        self.backoff = Some(Arc::new(move || BoxedPolicy::new(make())));
        self
    }

    /// The delay of the error policy, exactly, as by default: undoes [`backoff`](Self::backoff), [`backoff_policy`](Self::backoff_policy),
    /// [`conflict_backoff`](Self::conflict_backoff) and [`respect_retry_after`](Self::respect_retry_after).
    ///
    /// A reconcile that panics, or [takes too long](Self::reconcile_timeout), has no error for the policy: its object waits from 5 ms to
    /// 5 minutes, doubling with each in a row.
    ///
    /// # Examples
    /// ```
    /// use flyball_kube::Config;
    ///
    /// // As recommended, but `error_policy` alone decides when an object is retried.
    /// let config = Config::recommended().without_backoff();
    /// # let _ = config;
    /// ```
    pub fn without_backoff(mut self) -> Self {
        self.backoff = None;
        self.classifier.conflicts = false;
        self.classifier.respects_retry_after = false;
        self
    }

    /// Waits at least as long as the API server asks for in the status that it answers with, such as 429. Off by default: the error
    /// policy decides.
    ///
    /// kube's client does not pass on what a `Retry-After` header alone says.
    pub fn respect_retry_after(mut self) -> Self {
        self.classifier.respects_retry_after = true;
        self
    }

    /// The class of errors of requests that were answered with this status, such as 403, 404 or 422. By default all of them are
    /// [transient](FailureClass::Transient), and the delay of the error policy holds.
    ///
    /// | class | retried |
    /// |---|---|
    /// | [`Transient`](FailureClass::Transient) | after the delay of the error policy, and [backoff](Self::backoff) if there is one |
    /// | [`Conflict`](FailureClass::Conflict) | on the schedule of [`conflict_backoff`](Self::conflict_backoff), 10 ms to 5 minutes unless set there |
    /// | [`Permanent`](FailureClass::Permanent) | not until the object changes |
    pub fn classify_status(mut self, code: u16, class: FailureClass) -> Self {
        self.classifier.statuses.push((code, class));
        self
    }

    /// The class of an error of a reconcile, as [`classify_status`](Self::classify_status) describes them; where `of` returns `None`, the status decides.
    ///
    /// A panic of it counts as `None`.
    ///
    /// # Examples
    /// ```
    /// use flyball_kube::{Config, FailureClass};
    /// use std::num::ParseIntError;
    ///
    /// // A number that cannot be read stays so until somebody edits the object.
    /// let config = Config::default()
    ///     .classify(|error| error.is::<ParseIntError>().then_some(FailureClass::Permanent));
    /// # let _ = config;
    /// ```
    pub fn classify(
        mut self,
        of: impl Fn(&(dyn Error + 'static)) -> Option<FailureClass> + Send + Sync + 'static,
    ) -> Self {
        self.classifier.first = Some(Arc::new(of));
        self
    }

    /// Sets a schedule for conflicts (409): after conflicts in a row an object waits from the first to the longest of these, doubling,
    /// whatever the error policy says. None by default: a conflict is an error as any other.
    ///
    /// A conflict of versions is over when the cache has the next version. A conflict of field managers, or over a name, lasts. A change is
    /// reconciled at once; if that conflicts again, neither the count nor the end of the wait changes.
    pub fn conflict_backoff(mut self, waits: RangeInclusive<Duration>) -> Self {
        self.classifier.conflicts = true;
        let first = (*waits.start()).max(Duration::from_nanos(1));
        self.conflicts = first..=(*waits.end()).max(first);
        self
    }

    /// A reconcile that is not done after this long is dropped, where it awaits something, and counts as failed. No limit by default.
    ///
    /// The time in which nobody takes its result does not count.
    pub fn reconcile_timeout(mut self, limit: Duration) -> Self {
        self.timeout = (!limit.is_zero()).then_some(limit);
        self
    }

    /// Begins when all caches are filled, those of [`owns`](crate::Controller::owns) and [`watches`](crate::Controller::watches), too: an
    /// object is not reconciled once for itself and once more for what it owns.
    ///
    /// By default it begins when the cache of its own objects and those that are [shared](crate::Controller::owns_shared) with the program
    /// are, as reconciles read no others. The objects of the others raise what they concern when they come, and a warning names the kinds
    /// that are missing after five seconds. With this, a kind that may not be listed keeps all objects from being reconciled.
    pub fn wait_for_all_caches(mut self) -> Self {
        self.waits_for_all_caches = true;
        self
    }

    /// Reconciles what is queued when a shutdown begins, too, within the [grace](Self::shutdown_grace): set one. By default it is left, as in
    /// kube-runtime: the next process lists all objects anyway.
    ///
    /// What waits for a later time, retries among it, is left all the same.
    pub fn drain_on_shutdown(mut self) -> Self {
        self.drains = true;
        self
    }

    /// How long reconciles in flight, and a [drain](Self::drain_on_shutdown), may take at a shutdown. Then nothing is started any more, and
    /// what still runs has [some more time](Self::abort_after). No limit by default, as in kube-runtime.
    ///
    /// A pod has 30 s, unless it says otherwise, until it is killed; [`recommended`](Self::recommended) has 20 s, and 5 s more to end. That
    /// leaves time to give a lease away.
    pub fn shutdown_grace(mut self, limit: Duration) -> Self {
        self.grace = Some(limit);
        self
    }

    /// How long a list of the controller's own caches may make no progress, and how long the opening of a watch may take; then it is
    /// asked for again, after a wait. 2 minutes by default, and no limit for zero.
    ///
    /// A list whose bytes go on arriving is never cut off. For an informer of your own, see [`ReflectorConfig::request_timeout`].
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = Some(if limit.is_zero() { Duration::MAX } else { limit });
        self
    }

    /// The size of the pages of every list of the controller's own caches, whatever their watcher's configuration says.
    ///
    /// A server before Kubernetes 1.34 reads paged relists from etcd, not from its cache.
    pub fn page_size(mut self, size: NonZeroU32) -> Self {
        self.page_size = Some(size);
        self
    }

    /// The reflector of a cache of the controller's own, which its watcher's configuration wants like this.
    pub(crate) fn reflector(&self, mut reflector: ReflectorConfig) -> ReflectorConfig {
        reflector.request_timeout = self.request_timeout.unwrap_or(reflector.request_timeout);
        reflector.page_size = self.page_size.or(reflector.page_size);
        reflector
    }

    /// How long reconciles in flight may still run after the [grace](Self::shutdown_grace) is over. Then they are dropped where they await
    /// something. 5 s by default.
    pub fn abort_after(mut self, limit: Duration) -> Self {
        self.abort_after = limit;
        self
    }

    /// Reports every reconcile to these metrics.
    pub fn controller_metrics(mut self, metrics: impl ControllerMetrics) -> Self {
        self.controller_metrics = Some(Arc::new(metrics));
        self
    }

    /// Reports the queue to these metrics: depth, latency and the others of client-go.
    ///
    /// # Examples
    /// flyball-ops has adapters for Prometheus, `metrics` and `tracing`. A sink of your own has the methods that it needs:
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
            debounce: None,
            queue_order: QueueOrder::default(),
            backoff: None,
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
            .field("debounce", &self.debounce)
            .field("queue_order", &self.queue_order)
            .field("statuses", &self.classifier.statuses)
            .field("backs_off", &self.backoff.is_some())
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
