//! EDGE. A candidate's clock, requests and logs.
//!
//! Cancel safety: everything is polled, nothing spawned. When a driver is dropped, its term is over, and what it has asked is not awaited any more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use flyball_sync::Nanos;
use jiff::Timestamp;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::candidate::Candidate;
use crate::election::Election;
use crate::leadership::Leadership;
use crate::lease_api::{Request, Told};
use crate::lease_request::Step;

pub(crate) struct Driver<'a> {
    election: &'a mut Election,
    request: Option<Request>,
    sleep: Pin<Box<Sleep>>,
    pub(crate) term: Leadership,
    /// As the term was told last.
    until: Option<Nanos>,
    told: bool,
}

// === impl Driver ===

impl<'a> Driver<'a> {
    /// Begins to campaign.
    pub(crate) fn new(election: &'a mut Election) -> Self {
        election.candidate.campaign();
        tracing::info!(target: "flyball_kube_lease", lease = election.lease, identity = election.identity, "campaigns for a lease");
        Self {
            election,
            request: None,
            sleep: Box::pin(sleep_until(Instant::now())),
            term: Leadership::new(),
            until: None,
            told: false,
        }
    }

    pub(crate) fn candidate(&mut self) -> &mut Candidate {
        &mut self.election.candidate
    }

    pub(crate) fn now(&self) -> Nanos {
        self.election.clock()
    }

    /// Asks and answers as far as it goes now, and leaves the waker where it will be needed.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) {
        loop {
            let now = self.now();
            if let Some(request) = &mut self.request
                && let Poll::Ready(told) = request.as_mut().poll(context)
            {
                self.request = None;
                self.hear(told, now);
            }
            // The one place where a wall clock is read: it is told, and never compared.
            let step = self.election.candidate.step(now, Timestamp::now());
            self.term(now);
            self.leader();
            let unheard = self.request.is_some()
                && (!self.election.candidate.is_asking() || matches!(step, Step::Ask(_)));
            if unheard {
                self.request = None;
                self.failed("no answer in time");
            }
            match step {
                Step::Ask(ask) => self.request = Some(self.election.leases.ask(ask)),
                Step::Wait(until) => {
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

    /// The work is over, whatever others are told from now on.
    pub(crate) fn end_of_work(&self) {
        self.election.standing.view.send_modify(|view| view.others_from = None);
    }

    fn hear(&mut self, mut told: Told, now: Nanos) {
        self.election.leases.learn(&mut told);
        match told.error {
            Some(error) => self.failed(&error.to_string()),
            None => self.election.standing.view.send_modify(|view| view.error = None),
        }
        self.election.candidate.answered(told.answer, now);
    }

    fn failed(&self, error: &str) {
        let lease = &self.election.lease;
        let before = self.election.standing.view.borrow().error.is_some();
        if before {
            tracing::debug!(target: "flyball_kube_lease", lease, error, "a request for a lease has failed again");
        } else {
            tracing::warn!(target: "flyball_kube_lease", lease, error, "a request for a lease has failed");
        }
        self.election.standing.view.send_modify(|view| view.error = Some(error.into()));
    }

    /// What has become of the leadership.
    fn term(&mut self, now: Nanos) {
        let Election { candidate, lease, identity, timing, standing, origin, .. } = &mut *self.election;
        if let Some(until) = candidate.leads_until()
            && self.until != Some(until)
        {
            self.until = Some(until);
            let until = *origin + until.since(Nanos::ZERO);
            let begins = !self.term.has_begun();
            match self.term.prolong(until) {
                true if begins => {
                    tracing::info!(target: "flyball_kube_lease", lease, identity, "leads");
                    standing.view.send_modify(|view| view.terms += 1);
                }
                true => tracing::debug!(target: "flyball_kube_lease", lease, "has renewed its lease"),
                false => candidate.lose(now),
            }
            let renewed = until.checked_sub(timing.renew_deadline());
            standing.view.send_modify(|view| {
                view.term = Some(self.term.clone());
                view.renewed = renewed;
                view.others_from = renewed.map(|renewed| renewed + timing.lease_duration());
            });
        }
        if let Some(why) = candidate.lost()
            && !std::mem::replace(&mut self.told, true)
        {
            self.term.lose();
            tracing::warn!(target: "flyball_kube_lease", lease, identity, ?why, "leads no more");
        }
    }

    /// Who leads now.
    fn leader(&mut self) {
        let Election { candidate, lease, standing, on_new_leader, .. } = &*self.election;
        let leader = candidate.leader();
        if standing.view.borrow().leader.as_deref() == leader {
            return;
        }
        standing.view.send_modify(|view| view.leader = leader.map(Arc::from));
        let Some(leader) = leader else { return };
        tracing::info!(target: "flyball_kube_lease", lease, leader, "a new leader");
        if let Some(call) = on_new_leader
            && catch_unwind(AssertUnwindSafe(|| call(leader))).is_err()
        {
            tracing::error!(target: "flyball_kube_lease", lease, "on_new_leader has panicked");
        }
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        self.term.lose();
        self.election.standing.view.send_modify(|view| (view.term, view.others_from) = (None, None));
    }
}
