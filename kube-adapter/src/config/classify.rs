//! PURE. Classifies failed requests by the server's answer: whether to retry, and with which backoff.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::FailureClass;
use kube::core::Status;

/// The maximum number of errors that are read in a chain of causes. Without it, an error that is its own `source` would cause an infinite loop.
pub(crate) const DEEPEST_CAUSE: usize = 16;

/// A function that returns the class of an error. If it returns `None`, the status of the server's answer decides.
pub(crate) type Classify = Arc<dyn Fn(&(dyn Error + 'static)) -> Option<FailureClass> + Send + Sync>;

/// Classifies the error of a reconcile by the status of the API server's answer, if the error or one of its causes contains such a status.
///
/// | status | class |
/// |---|---|
/// | those set by [`Config::classify_status`](crate::Config::classify_status) | as set |
/// | 409 `Conflict`, if there is a [conflict backoff](crate::Config::conflict_backoff) | [`Conflict`](FailureClass::Conflict) |
/// | all others, including `429` and `5xx`; timeouts; errors without a status | [`Transient`](FailureClass::Transient) |
///
/// 409 with the reason `AlreadyExists` is not a conflict of versions, but the remedy is the same: read the current state.
#[derive(Clone, Default)]
pub(crate) struct Classifier {
    pub(crate) statuses: Vec<(u16, FailureClass)>,
    /// Whether the status 409 is classified as a conflict.
    pub(crate) conflicts: bool,
    /// Whether retries wait for the delay that the server requests.
    pub(crate) respects_retry_after: bool,
    pub(crate) first: Option<Classify>,
}

impl Classifier {
    pub(crate) fn of(&self, error: &(dyn Error + 'static)) -> FailureClass {
        if let Some(class) = self.first.as_ref().and_then(|classify| guarded(|| classify(error))) {
            return class;
        }
        let Some(status) = status_of(error) else { return FailureClass::Transient };
        // If the program has set the class of a status more than once, the last setting applies.
        match self.statuses.iter().rev().find(|(code, _)| *code == status.code) {
            Some((_, class)) => *class,
            None if self.conflicts && status.code == 409 => FailureClass::Conflict,
            None => FailureClass::Transient,
        }
    }

    /// Returns the delay that the server requests, if the configuration respects it.
    pub(crate) fn retry_after(&self, error: &(dyn Error + 'static)) -> Option<Duration> {
        if self.respects_retry_after { retry_after(error) } else { None }
    }
}

/// Calls user code; a panic counts as `None`.
fn guarded<T>(user: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(user)).unwrap_or(None)
}

/// Returns the delay that the server requests.
fn retry_after(error: &(dyn Error + 'static)) -> Option<Duration> {
    let seconds = status_of(error)?.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

/// Returns the API server's status from the error, or from the first of its causes that has a status.
fn status_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Status> {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    for error in causes.take(DEEPEST_CAUSE) {
        if let Some(kube::Error::Api(status)) = error.downcast_ref() {
            return Some(status);
        }
        // Some errors, kube's own among them, have the status itself as a cause.
        if let Some(status) = error.downcast_ref::<Status>() {
            return Some(status);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    /// An error of the user's program, with a `kube::Error` as its cause.
    #[derive(Debug)]
    struct Wrapped(kube::Error);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("cannot write the status")
        }
    }

    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    fn answer(code: u16, seconds: u32) -> Wrapped {
        let details = serde_json::from_value(serde_json::json!({ "retryAfterSeconds": seconds }));
        let status = Status::failure("no", "Reason").with_code(code).with_details(details.unwrap());
        Wrapped(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn the_answer_is_found_among_the_causes() {
        assert_eq!(Classifier::default().of(&answer(409, 0)), FailureClass::Transient);
        let classifier = Classifier { conflicts: true, ..Classifier::default() };
        assert_eq!(classifier.of(&answer(409, 0)), FailureClass::Conflict);
        for code in [400, 403, 404, 422, 429, 500, 503, 504] {
            assert_eq!(classifier.of(&answer(code, 0)), FailureClass::Transient, "{code}");
        }
        assert_eq!(classifier.of(&std::io::Error::other("not the server's")), FailureClass::Transient);
    }

    #[test]
    fn the_last_setting_applies() {
        let mut classifier = Classifier {
            statuses: vec![
                (422, FailureClass::Conflict),
                (422, FailureClass::Permanent),
                (409, FailureClass::Transient),
            ],
            conflicts: true,
            ..Classifier::default()
        };
        assert_eq!(classifier.of(&answer(422, 0)), FailureClass::Permanent);
        assert_eq!(classifier.of(&answer(409, 0)), FailureClass::Transient);
        classifier.first = Some(Arc::new(|error| error.is::<Wrapped>().then_some(FailureClass::Conflict)));
        assert_eq!(classifier.of(&answer(422, 0)), FailureClass::Conflict);
        assert_eq!(classifier.of(&answer(422, 0).0), FailureClass::Permanent);
    }

    #[test]
    fn reads_the_requeue_delay() {
        assert_eq!(retry_after(&answer(429, 7)), Some(Duration::from_secs(7)));
        assert_eq!(Classifier::default().retry_after(&answer(429, 7)), None);
        assert_eq!(retry_after(&answer(429, 0)), None);
        assert_eq!(retry_after(&std::io::Error::other("no")), None);
    }

    /// An error whose cause is the error itself.
    #[derive(Debug)]
    struct SourceCycle;

    impl fmt::Display for SourceCycle {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("because")
        }
    }

    impl Error for SourceCycle {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self)
        }
    }

    #[test]
    fn causes_without_an_end_have_one() {
        assert_eq!(Classifier::default().of(&SourceCycle), FailureClass::Transient);
        assert_eq!(retry_after(&SourceCycle), None);
    }
}
