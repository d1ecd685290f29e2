//! PURE. How a controller runs.

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::{Class, Metrics};
use flyball_informer_cache::NamespacedName;
use flyball_ratelimit::{Exponential, Policy};

use crate::classes::Classes;
use crate::limit::Limit;

/// The wait after a first failure, and the longest: 5 ms to 5 minutes.
const BACKOFF: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(300)];
/// The wait after a first conflict, and the longest, which is that of any other failure.
const CONFLICTS: [Duration; 2] = [Duration::from_millis(10), BACKOFF[1]];
/// How many objects are reconciled at once, if nothing is said.
const CONCURRENCY: u16 = 64;
/// A debounce may become this much longer, if nothing is said.
const DEBOUNCES: u32 = 10;

/// How a controller runs: kube-runtime's `controller::Config`, with more to choose.
///
/// # Examples
/// ```
/// use flyball_controller::Class;
/// use flyball_kube::{Config, Turns};
/// use std::time::Duration;
///
/// let config = Config::default()
///     .concurrency(8)
///     .debounce(Duration::from_millis(100))
///     .turns(Turns::FairByNamespace { cap: Some(4) })
///     .backoff(Duration::from_millis(100)..=Duration::from_secs(60))
///     .status(422, Class::Permanent)
///     .reconcile_timeout(Duration::from_secs(60));
/// # let _ = config;
/// ```
#[derive(Clone)]
#[must_use = "a configuration does nothing until a controller has it"]
pub struct Config {
    pub(crate) concurrency: u16,
    pub(crate) debounce: Option<Debounce>,
    pub(crate) turns: Turns,
    pub(crate) limit: Arc<dyn Fn() -> Limit + Send + Sync>,
    pub(crate) classes: Classes,
    pub(crate) conflicts: RangeInclusive<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) grace: Option<Duration>,
    pub(crate) metrics: Option<Arc<dyn Metrics>>,
    pub(crate) queue_metrics: Option<Arc<dyn flyball_workqueue::Metrics>>,
}

/// A change is not reconciled at once, but so long after it, unless another one comes meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Debounce {
    pub(crate) quiet: Duration,
    pub(crate) longest: Duration,
}

/// Which of the objects that wait is reconciled next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Turns {
    /// First come, first served.
    Fifo,
    /// What there is at the start goes behind what happens after it; each of the two first come, first served. An object that
    /// waits is overtaken by at most 64 others for each level there is, so nothing starves.
    Priority {
        /// The priority of what there is at the start; changes have 0.
        initial: i8,
    },
    /// Namespaces take turns; within one, first come, first served. So one that has ten thousand objects does not keep those of
    /// others waiting.
    FairByNamespace {
        /// How many objects of one namespace are reconciled at once, at most. Objects without one are a group of their own, all of them.
        cap: Option<u32>,
    },
}

/// What there is at the start goes last.
impl Default for Turns {
    fn default() -> Self {
        Self::Priority { initial: -100 }
    }
}

impl Config {
    /// Puts off what a change brings until nothing has happened to the object for so long: several changes become one
    /// reconcile. None by default; zero is none.
    ///
    /// It waits for at most ten times this, however often the object changes; see [`debounce_within`](Self::debounce_within).
    /// What is asked for from outside, by [`reconcile_on`](crate::Controller::reconcile_on) say, is put off as a change is. What a reconcile asks
    /// for itself does not wait, and retries do not.
    pub fn debounce(self, quiet: Duration) -> Self {
        self.debounce_within(quiet, quiet.saturating_mul(DEBOUNCES))
    }

    /// As [`debounce`](Self::debounce), but no change waits for longer than `longest`.
    pub fn debounce_within(mut self, quiet: Duration, longest: Duration) -> Self {
        self.debounce = (!quiet.is_zero()).then_some(Debounce { quiet, longest: longest.max(quiet) });
        self
    }

    /// How many objects are reconciled at once, at most: 64 by default, and as many as there are for 0.
    ///
    /// kube-runtime has no bound by default. Workers come as they are needed and go when they are not.
    pub fn concurrency(mut self, most: u16) -> Self {
        self.concurrency = most;
        self
    }

    /// Which of the objects that wait is reconciled next; [`Turns::Priority`] by default.
    pub fn turns(mut self, turns: Turns) -> Self {
        self.turns = turns;
        self
    }

    /// How long an object waits after failures in a row: from the first to the longest wait, doubling; 5 ms to 5 minutes by default.
    ///
    /// The error policy may ask for longer waits. A `first` of zero is a nanosecond, and a longest that is shorter than the first is the first.
    pub fn backoff(self, waits: RangeInclusive<Duration>) -> Self {
        let first = (*waits.start()).max(Duration::from_nanos(1));
        let longest = (*waits.end()).max(first);
        self.limiter(move || Exponential::new(first..=longest))
    }

    /// How long an object waits after failures, by a policy of choice: `make` makes it, when the controller runs.
    ///
    /// # Examples
    /// client-go's: each object by itself, and at most ten retries in a second of all of them together:
    /// ```
    /// use flyball_kube::Config;
    /// use flyball_ratelimit::controller_default;
    ///
    /// let config = Config::default().limiter(controller_default);
    /// # let _ = config;
    /// ```
    pub fn limiter<P>(mut self, make: impl Fn() -> P + Send + Sync + 'static) -> Self
    where
        P: Policy<NamespacedName> + Send + 'static,
        P::Taken: Send + 'static,
    {
        self.limit = Arc::new(move || Limit::new(make()));
        self
    }

    /// No wait but the one the error policy asks for.
    pub fn no_backoff(self) -> Self {
        self.limiter(|| Exponential::new(Duration::from_nanos(1)..=Duration::from_nanos(1)))
    }

    /// What helps against a request that was answered with this status, such as 403, 404 or 422. 409 is a conflict by default,
    /// all others may go by themselves; see [`Class`].
    pub fn status(mut self, code: u16, class: Class) -> Self {
        self.classes.statuses.push((code, class));
        self
    }

    /// What helps against an error of a reconcile, where `of` knows; where it says `None`, the status decides.
    ///
    /// A panic of it counts as `None`.
    pub fn classify(
        mut self,
        of: impl Fn(&(dyn Error + 'static)) -> Option<Class> + Send + Sync + 'static,
    ) -> Self {
        self.classes.first = Some(Arc::new(of));
        self
    }

    /// How long an object waits after conflicts in a row, whatever the error policy says: 10 ms by default, doubling up to 5 minutes.
    ///
    /// A conflict of versions is over when the cache has the next one. One of field managers, or a name that is taken, lasts: the server is
    /// not asked each second for ever. A change is looked at at once all the same.
    pub fn conflict_backoff(mut self, waits: RangeInclusive<Duration>) -> Self {
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

    /// How long finishing may take at a shutdown; what runs then is dropped. No limit by default.
    pub fn shutdown_grace(mut self, limit: Duration) -> Self {
        self.grace = Some(limit);
        self
    }

    /// Is told of every reconcile.
    pub fn metrics(mut self, metrics: impl Metrics) -> Self {
        self.metrics = Some(Arc::new(metrics));
        self
    }

    /// Is told of the queue: depth, latency and what client-go's metrics tell of theirs.
    pub fn queue_metrics(mut self, metrics: impl flyball_workqueue::Metrics) -> Self {
        self.queue_metrics = Some(Arc::new(metrics));
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            concurrency: CONCURRENCY,
            debounce: None,
            turns: Turns::default(),
            limit: Arc::new(|| Limit::new(Exponential::new(BACKOFF[0]..=BACKOFF[1]))),
            classes: Classes::default(),
            conflicts: CONFLICTS[0]..=CONFLICTS[1],
            timeout: None,
            grace: None,
            metrics: None,
            queue_metrics: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("concurrency", &self.concurrency)
            .field("debounce", &self.debounce)
            .field("turns", &self.turns)
            .field("statuses", &self.classes.statuses)
            .field("conflicts", &self.conflicts)
            .field("timeout", &self.timeout)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}
