//! PURE. What the server was told to do wrong.

use std::time::Duration;

use kube::core::Status;

use crate::request::Request;
use crate::request_matcher::Call;

#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) down: bool,
    pub(crate) failing: Vec<Failing>,
    pub(crate) frozen: Vec<Call>,
    pub(crate) slow: Vec<(Call, Duration)>,
}

#[derive(Debug)]
pub(crate) struct Failing {
    pub(crate) call: Call,
    /// How many more times.
    pub(crate) left: u32,
    pub(crate) status: Status,
    /// Whether the request is carried out all the same, and only its answer is this.
    pub(crate) done: bool,
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    Go,
    Fail(Status),
    /// Carried out, but the answer is this.
    Lie(Status),
    Hold,
    Refuse,
}

impl Faults {
    pub(crate) fn delay(&self, request: &Request) -> Option<Duration> {
        let slow = self.slow.iter().filter(|(call, _)| call.matches(request));
        slow.map(|(_, delay)| *delay).max()
    }

    pub(crate) fn verdict(&mut self, request: &Request) -> Verdict {
        if self.down {
            return Verdict::Refuse;
        }
        if self.frozen.iter().any(|call| call.matches(request)) {
            return Verdict::Hold;
        }
        let Some(place) = self.failing.iter().position(|failing| failing.call.matches(request)) else {
            return Verdict::Go;
        };
        let failing = &mut self.failing[place];
        failing.left -= 1;
        let (status, done) = (failing.status.clone(), failing.done);
        if failing.left == 0 {
            self.failing.remove(place);
        }
        if done { Verdict::Lie(status) } else { Verdict::Fail(status) }
    }
}
