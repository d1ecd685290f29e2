//! PURE. The classes of failures.

/// The class of a failure, which determines what happens to the key.
///
/// | | the key | counted as a failure | after shutdown |
/// |---|---|---|---|
/// | `Transient` | is retried after the delay of the queue's limiter, and [not before the minimum wait](crate::Controller::retry_after_at_least), up to [`max_attempts`](crate::ControllerConfig::max_attempts) | yes | a leftover |
/// | `Conflict` | is retried with [a backoff of its own](crate::ControllerConfig::conflict_backoff_initial) | no: the failure count is kept | a leftover |
/// | `Permanent` | is [given up](crate::Controller::on_give_up); the next change adds it again | no: the failure count is reset | is given up |
///
/// In all three cases, a key that was added while it was reconciled is reconciled again immediately. Exception: with [strict
/// backoff](flyball_workqueue::QueueBuilder::strict_backoff), it waits for the backoff of a transient failure.
///
/// # Examples
/// The classes of HTTP status codes, for a function passed to [`Controller::classify`](crate::Controller::classify):
/// ```
/// use flyball_controller::FailureClass;
///
/// fn class(status: u16) -> FailureClass {
///     match status {
///         409 => FailureClass::Conflict,
///         429 => FailureClass::Transient,
///         400..=499 => FailureClass::Permanent,
///         _ => FailureClass::Transient,
///     }
/// }
/// assert_eq!(class(503), FailureClass::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// The failure may go away without a change of the object, for example when a server is overloaded or down.
    #[default]
    Transient,
    /// Another writer changed the object first, so the reconcile was based on an outdated version. A retry can succeed once
    /// the cache has the newer version.
    Conflict,
    /// A retry cannot succeed before something changes, such as the object.
    Permanent,
}
