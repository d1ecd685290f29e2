//! EDGE. Drives a candidate: passes the time to it, sends its requests and writes logs.
//!
//! Cancel safety: the driver only polls, and spawns no task. Dropping the driver ends its term, and drops its open request.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use flyball_sync::Nanos;
use jiff::Timestamp;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::candidate::Candidate;
use crate::candidate::lease_request::{CandidateStep, LeaseResponse};
use crate::election::Election;
use crate::leadership::Leadership;
use crate::lease_api::{LeaseReply, PendingReply};

pub(crate) struct Driver<'a> {
    election: &'a mut Election,
    request: Option<PendingReply>,
    sleep: Pin<Box<Sleep>>,
    pub(crate) term: Leadership,
    /// The time until which the candidate leads if it does not renew the lease again; `None` before it is elected.
    until: Option<Nanos>,
    lost: bool,
    /// Whether the Lease is missing and its creation has to wait, and this was reported.
    missing: bool,
}

// === impl Driver ===

impl<'a> Driver<'a> {
    /// Starts to campaign.
    pub(crate) fn new(election: &'a mut Election) -> Self {
        election.candidate.campaign();
        let term = Leadership::new(election.timing.stop_grace);
        tracing::info!(target: "flyball_kube_lease", lease = election.lease, identity = election.identity, "campaigns for a lease");
        Self {
            election,
            request: None,
            sleep: Box::pin(sleep_until(Instant::now())),
            term,
            until: None,
            lost: false,
            missing: false,
        }
    }

    pub(crate) fn candidate(&mut self) -> &mut Candidate {
        &mut self.election.candidate
    }

    pub(crate) fn now(&self) -> Nanos {
        self.election.clock()
    }

    /// Releases the lease; see [`Candidate::release`].
    pub(crate) fn release(&mut self) {
        let now = self.now();
        self.election.candidate.release(now);
        if !self.election.candidate.waits_for_response() {
            // An open read is superseded. This is no failure.
            self.request = None;
        }
    }

    /// Sends requests and handles replies until no more progress is possible, and registers the waker.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) {
        loop {
            let now = self.now();
            if let Some(request) = &mut self.request
                && let Poll::Ready(reply) = request.as_mut().poll(context)
            {
                self.request = None;
                self.on_reply(reply, now);
            }
            // This is the only use of the wall clock. The time is written to the Lease; no decision depends on it.
            let step = self.election.candidate.step(now, Timestamp::now());
            self.update_term(now);
            self.update_leader();
            let timed_out = self.request.is_some()
                && (!self.election.candidate.waits_for_response()
                    || matches!(step, CandidateStep::Request(_)));
            if timed_out {
                self.request = None;
                self.failed_silently();
            }
            match step {
                CandidateStep::Request(request) => {
                    self.request = Some(self.election.lease_api.send(request));
                }
                CandidateStep::Wait(until) => {
                    let deadline = self.election.instant(until);
                    if self.sleep.deadline() != deadline || self.sleep.is_elapsed() {
                        self.sleep.as_mut().reset(deadline);
                    }
                    if self.sleep.as_mut().poll(context).is_pending() {
                        return;
                    }
                }
            }
        }
    }

    /// Records that the work has ended, so that `LeaderStatus::live` does not report an overrun.
    pub(crate) fn end_of_work(&self) {
        self.election.status.state.send_modify(|state| state.lease_expiry = None);
    }

    fn on_reply(&mut self, mut reply: LeaseReply, now: Nanos) {
        self.election.lease_api.store(&mut reply);
        match (reply.error, &reply.response) {
            (Some(error), _) => self.failed(&error.to_string()),
            // The creation may have failed, and is repeated only after a lease duration. Until then, its error says why no other replica leads.
            (None, LeaseResponse::NotFound) => {}
            (None, _) => self.election.status.state.send_modify(|state| state.last_error = None),
        }
        self.election.candidate.on_response(reply.response, now);
    }

    /// Records that there was no response in time. Keeps the error before it, because the same may have caused both.
    fn failed_silently(&self) {
        const LATE: &str = "no response in time";
        let before = self.election.status.state.borrow().last_error.clone();
        match before {
            None => self.failed(LATE),
            Some(before) if before.starts_with(LATE) => self.failed(&before),
            Some(before) => self.failed(&format!("{LATE}; before that: {before}")),
        }
    }

    fn failed(&self, error: &str) {
        let lease = &self.election.lease;
        let before = self.election.status.state.borrow().last_error.is_some();
        if before {
            tracing::debug!(target: "flyball_kube_lease", lease, error, "a request for a lease failed again");
        } else {
            tracing::warn!(target: "flyball_kube_lease", lease, error, "a request for a lease failed");
        }
        self.election.status.state.send_modify(|state| state.last_error = Some(error.into()));
    }

    /// Extends or ends the term, depending on the candidate's state.
    fn update_term(&mut self, now: Nanos) {
        let Election { candidate, lease, identity, timing, status, origin, .. } = &mut *self.election;
        if let Some(until) = candidate.leads_until()
            && self.until != Some(until)
        {
            self.until = Some(until);
            let until = *origin + until.since(Nanos::ZERO);
            let begins = !self.term.has_begun();
            let token = candidate.term_version().and_then(token);
            match self.term.prolong(until, token) {
                true if begins => {
                    tracing::info!(target: "flyball_kube_lease", lease, identity, "leads");
                    status.state.send_modify(|state| state.times_elected += 1);
                }
                true => tracing::debug!(target: "flyball_kube_lease", lease, "renewed its lease"),
                false => candidate.abandon(now),
            }
            let last_renewal = until.checked_sub(timing.renew_deadline);
            status.state.send_modify(|state| {
                state.term = Some(self.term.clone());
                state.last_renewal = last_renewal;
                state.lease_expiry = last_renewal.map(|sent| sent + timing.lease_duration);
            });
        }
        if let Some(why) = candidate.lost()
            && !std::mem::replace(&mut self.lost, true)
        {
            // The work may continue for the stop grace, unless another candidate may lead already.
            if candidate.may_work(now) {
                self.term.lose();
            } else {
                self.term.end();
            }
            tracing::warn!(target: "flyball_kube_lease", lease, identity, ?why, "lost the leadership");
        }
    }

    /// Reports a new leader, or that the Lease is missing.
    fn update_leader(&mut self) {
        let Election { candidate, lease, status, on_new_leader, .. } = &*self.election;
        let missing = candidate.creates_after().is_some();
        if missing && !self.missing {
            tracing::warn!(target: "flyball_kube_lease", lease, "the Lease is missing, although it existed or its creation was requested; it is created when a lease duration has passed");
        }
        let leader = candidate.leader();
        // Reported once, although a creation that fails is repeated.
        self.missing = missing || self.missing && leader.is_none();
        if status.state.borrow().leader.as_deref() == leader {
            return;
        }
        status.state.send_modify(|state| state.leader = leader.map(Arc::from));
        let Some(leader) = leader else { return };
        tracing::info!(target: "flyball_kube_lease", lease, leader, "a new leader");
        if let Some(call) = on_new_leader
            && catch_unwind(AssertUnwindSafe(|| call(leader))).is_err()
        {
            tracing::error!(target: "flyball_kube_lease", lease, "on_new_leader panicked");
        }
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        self.term.end();
        self.election.status.state.send_modify(|state| (state.term, state.lease_expiry) = (None, None));
    }
}

/// Returns the number that a version is; `None` if it is not a decimal number.
fn token(version: &str) -> Option<u64> {
    // `parse` alone would also accept a sign.
    version.bytes().all(|byte| byte.is_ascii_digit()).then(|| version.parse().ok()).flatten()
}
