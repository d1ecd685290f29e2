//! PURE. The active faults, and their effect on a request.

use std::time::Duration;

use kube::core::Status;

use crate::request::RecordedRequest;
use crate::request_matcher::RequestMatcher;

#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) refuses_connections: bool,
    pub(crate) failures: Vec<Failure>,
    pub(crate) hanging: Vec<RequestMatcher>,
    pub(crate) latencies: Vec<(RequestMatcher, Duration)>,
}

/// Requests that are answered with an error.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) requests: RequestMatcher,
    /// How many more requests fail.
    pub(crate) left: u32,
    pub(crate) status: Status,
    /// Whether a request is executed before it is answered with the error.
    pub(crate) carried_out: bool,
}

/// The effect of the faults on a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    Answer,
    Fail(Status),
    /// The request is executed and answered with this status.
    FailResponse(Status),
    Hang,
    RefuseConnection,
}

impl Faults {
    pub(crate) fn latency(&self, request: &RecordedRequest) -> Option<Duration> {
        let matching = self.latencies.iter().filter(|(requests, _)| requests.matches(request));
        matching.map(|(_, latency)| *latency).max()
    }

    pub(crate) fn verdict(&mut self, request: &RecordedRequest) -> Verdict {
        if self.refuses_connections {
            return Verdict::RefuseConnection;
        }
        if self.hanging.iter().any(|requests| requests.matches(request)) {
            return Verdict::Hang;
        }
        let Some(index) = self.failures.iter().position(|failure| failure.requests.matches(request)) else {
            return Verdict::Answer;
        };
        let failure = &mut self.failures[index];
        failure.left -= 1;
        let (status, carried_out) = (failure.status.clone(), failure.carried_out);
        if failure.left == 0 {
            self.failures.remove(index);
        }
        if carried_out { Verdict::FailResponse(status) } else { Verdict::Fail(status) }
    }
}
