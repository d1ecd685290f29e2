//! PURE. Kinds of failures, by what helps against them.

/// What kind of failure it is, and with it what becomes of the key.
///
/// | | the key | counted as a failure | after shutdown |
/// |---|---|---|---|
/// | `Transient` | is retried when the queue's limiter says, and [no sooner than asked for](crate::Controller::retry_after_at_least), up to [`max_attempts`](crate::Controller::max_attempts) | yes | a leftover |
/// | `Conflict` | is retried on [a schedule of its own](crate::Controller::conflict_backoff) | no: what was counted stays | a leftover |
/// | `Permanent` | is [given up](crate::Controller::on_give_up): the next change brings it back | no: what was counted is forgotten | is given up |
///
/// A key that was added meanwhile runs again at once, whatever became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// It may go by itself: something is overloaded, or away.
    #[default]
    Transient,
    /// Somebody else was faster, so what the reconcile had read was out of date. Right after the cache has seen it, it
    /// will do.
    Conflict,
    /// Trying again cannot help, as long as nothing changes.
    Permanent,
}
