//! PURE. The options for failed reconciles: whether an object is retried, and after which delay.

use std::error::Error;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::FailureClass;
use flyball_informer_cache::NamespacedName;
use flyball_ratelimit::{Exponential, Policy};

use super::Config;
use super::boxed_policy::BoxedPolicy;

/// What follows a failed reconcile.
impl Config {
    /// Sets a backoff for each object: the wait after consecutive failures starts at the lower bound and doubles up to the
    /// upper bound. None by default.
    ///
    /// An object waits for the longer of this backoff and the delay of the error policy. The first success of an object resets its backoff. An object
    /// has at most one pending wait: if the object changes, is reconciled during the wait and fails again, the failure count and the end of the wait
    /// stay the same. Panics and timeouts count as failures.
    ///
    /// A lower bound of zero is raised to 1 ns, and an upper bound below the lower bound is raised to the lower bound.
    pub fn backoff(self, waits: RangeInclusive<Duration>) -> Self {
        let first = (*waits.start()).max(Duration::from_nanos(1));
        let longest = (*waits.end()).max(first);
        self.backoff_policy(move || Exponential::new(first..=longest))
    }

    /// Like [`backoff`](Self::backoff), with any policy: `make` creates the policy when the controller runs.
    ///
    /// # Examples
    /// client-go's defaults: a backoff for each object, and at most ten retries per second for all objects together:
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
    {
        self.backoff = Some(Arc::new(move || BoxedPolicy::new(make())));
        self
    }

    /// Makes the wait after a failed reconcile strict: a failed object is not reconciled again before its wait is over, even if it or a related object
    /// changes meanwhile, or a stream requests it. The wait is the longer of the [backoff](Self::backoff), if one is set, and the delay of the error policy; after a panic or a
    /// timeout, it is the backoff after these. By default, as in kube-runtime, a change ends the wait.
    ///
    /// Use it if `reconcile` writes a status even if it fails. Each such write is a change of the object, so without this option the object is
    /// reconciled again as soon as the watch reports the write, whatever the backoff is.
    ///
    /// Two changes do end the wait: a new `metadata.generation`, such as a correction of the spec, and the request to delete the object. They do not
    /// end it if they arrive while the reconcile is running that then fails. An object without a generation, such as a `ConfigMap`, waits
    /// until its wait is over whatever changes, so with a long backoff a correction of such an object has no effect for some time.
    ///
    /// A wait after a [conflict](Self::conflict_backoff) is not strict, because the change that ends it usually has the version that the retry
    /// needs. After [`Action::await_change`](crate::Action::await_change) there is no wait, so each change causes a reconcile. To ignore the changes
    /// of the status in all cases, use [`filter_changes`](crate::Controller::filter_changes) with
    /// [`predicate::spec`](crate::predicate::spec).
    pub fn strict_backoff(mut self) -> Self {
        self.strict_backoff = true;
        self
    }

    /// After this number of consecutive failures, an object is given up: it is not retried until it changes. 0, the default, means no limit, as in
    /// kube-runtime.
    ///
    /// When an object is given up, a warning is logged, and the failure is reported to
    /// [`ControllerMetrics::gave_up`](crate::ControllerMetrics::gave_up). The next change begins a new series of attempts. So if `reconcile` writes a
    /// status even if it fails, combine this option with [`filter_changes`](crate::Controller::filter_changes) and
    /// [`predicate::spec`](crate::predicate::spec): otherwise the write of the last attempt causes the next one.
    ///
    /// Errors, panics and timeouts count. Failures with a backoff or a class of their own do not: [conflicts](Self::conflict_backoff), and
    /// [permanent](Self::classify_status) failures, which are not retried anyway. If a [backoff](Self::backoff) is set, it counts at most one failure
    /// of an object per wait. A [policy](Self::backoff_policy) that counts no failures of single objects gives none up.
    pub fn max_attempts(mut self, most: u32) -> Self {
        self.max_attempts = most;
        self
    }

    /// Retries objects after exactly the delay of the error policy, but not before 2 ms, which is the default behaviour. This undoes [`backoff`](Self::backoff),
    /// [`backoff_policy`](Self::backoff_policy), [`strict_backoff`](Self::strict_backoff), [`conflict_backoff`](Self::conflict_backoff) and
    /// [`respect_retry_after`](Self::respect_retry_after).
    ///
    /// The error policy is not called for a reconcile that panics or [times out](Self::reconcile_timeout), because there is no error to
    /// pass. The object of such a reconcile waits for 5 ms; each consecutive failure doubles the wait, up to 5 minutes.
    ///
    /// # Examples
    /// ```
    /// use flyball_kube::Config;
    ///
    /// // As recommended, except that `error_policy` alone determines when an object is retried.
    /// let config = Config::recommended().without_backoff();
    /// # let _ = config;
    /// ```
    pub fn without_backoff(mut self) -> Self {
        self.backoff = None;
        self.strict_backoff = false;
        self.classifier.conflicts = false;
        self.classifier.respects_retry_after = false;
        self
    }

    /// Delays a retry for at least as long as the API server requests in the status of its answer, for example with 429. Off by default: only the
    /// delay of the error policy applies.
    ///
    /// A delay that the server sends only in a `Retry-After` header has no effect, because kube's client does not return it.
    pub fn respect_retry_after(mut self) -> Self {
        self.classifier.respects_retry_after = true;
        self
    }

    /// Sets the class of errors for requests that the API server answered with this status, such as 403, 404 or 422. By default all errors are
    /// [transient](FailureClass::Transient), and the object waits for the delay of the error policy.
    ///
    /// If the error policy returns [`Action::await_change`](crate::Action::await_change), the object is not retried until it changes, whatever its
    /// class. The status is that of the first error with a status, beginning with the error of `reconcile` and continuing with its
    /// [sources](std::error::Error::source). So a variant of your own error type needs a `source()` that returns the `kube::Error`. The same applies
    /// to [`conflict_backoff`](Self::conflict_backoff) and [`respect_retry_after`](Self::respect_retry_after).
    ///
    /// | class | retried |
    /// |---|---|
    /// | [`Transient`](FailureClass::Transient) | after the longer of the delay of the error policy and the [backoff](Self::backoff), if one is set |
    /// | [`Conflict`](FailureClass::Conflict) | with the backoff of [`conflict_backoff`](Self::conflict_backoff), by default 10 ms to 5 minutes |
    /// | [`Permanent`](FailureClass::Permanent) | not until the object changes |
    pub fn classify_status(mut self, code: u16, class: FailureClass) -> Self {
        self.classifier.statuses.push((code, class));
        self
    }

    /// Sets a function that returns the class of a reconcile's error; [`classify_status`](Self::classify_status) describes the classes. If `of`
    /// returns `None`, the status of the answer decides.
    ///
    /// If `of` panics, the result counts as `None`.
    ///
    /// # Examples
    /// ```
    /// use flyball_kube::{Config, FailureClass};
    /// use std::num::ParseIntError;
    ///
    /// // A number that cannot be parsed stays invalid until a user edits the object.
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

    /// Sets a backoff for conflicts (409): the wait after consecutive conflicts of an object starts at the lower bound and doubles up to the upper
    /// bound, whatever delay the error policy returns. After [`Action::await_change`](crate::Action::await_change) the object is not retried. By
    /// default there is no such backoff: a conflict is handled like any other error.
    ///
    /// A conflict between versions is resolved once the cache has received the newer version. A conflict between field managers, or over a name that
    /// is already in use, is not resolved by waiting. An object that changes during the wait is reconciled immediately; if that reconcile also ends
    /// in a conflict, the number of conflicts and the end of the wait stay the same.
    pub fn conflict_backoff(mut self, waits: RangeInclusive<Duration>) -> Self {
        self.classifier.conflicts = true;
        let first = (*waits.start()).max(Duration::from_nanos(1));
        self.conflicts = first..=(*waits.end()).max(first);
        self
    }
}
