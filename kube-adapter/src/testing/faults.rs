//! PURE. What the server was told to do wrong.

use std::time::Duration;

use kube::core::Status;

use super::call::Call;
use super::request::Request;

#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) down: bool,
    pub(super) failing: Vec<Failing>,
    pub(super) frozen: Vec<Call>,
    pub(super) slow: Vec<(Call, Duration)>,
}

#[derive(Debug)]
pub(super) struct Failing {
    pub(super) call: Call,
    /// How many more times.
    pub(super) left: u32,
    pub(super) status: Status,
    /// Whether the request is carried out all the same, and only its answer is this.
    pub(super) done: bool,
}

/// What becomes of a request.
#[derive(Debug)]
pub(super) enum Verdict {
    Go,
    Fail(Status),
    /// Carried out, but the answer is this.
    Lie(Status),
    Hold,
    Refuse,
}

impl Faults {
    pub(super) fn delay(&self, request: &Request) -> Option<Duration> {
        let slow = self.slow.iter().filter(|(call, _)| call.matches(request));
        slow.map(|(_, delay)| *delay).max()
    }

    pub(super) fn verdict(&mut self, request: &Request) -> Verdict {
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
