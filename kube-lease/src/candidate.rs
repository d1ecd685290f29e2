//! PURE. A candidate of an election, as a state machine: the monotonic time, the wall-clock time, the responses and the seed of the jitter are passed
//! as arguments.
//!
//! # Invariants
//! 1. A candidate leads for at most `renew_deadline` after it **sent** the last write that it knows to have succeeded, and its work continues for at
//!    most `stop_grace` longer. The sum of these two periods is less than `lease_duration`.
//! 2. A candidate overwrites only the version of the record that it has read last. That record must have no holder, name this candidate as its
//!    holder, or have stayed unchanged for its lease duration, measured on the candidate's own clock.
//! 3. After its leadership has ended, a candidate does not lead until it campaigns again, regardless of the responses that arrive later.
//! 4. At most one request is open at a time. If it has no response after half of the renew deadline, its outcome counts as unknown.
//! 5. A new holder increments `leader_transitions`. A renewal changes only `renew_time`. Each record that a candidate sends has a later `renew_time`
//!    than all records that it has sent or read as its own, so no two of them are equal, even if the Lease was deleted between them.
//! 6. A candidate that is stopped while a write is open waits for the response to that write, or reads the Lease, before it ends. So if the write
//!    acquired or renewed the lease, the candidate releases the lease and does not leave it to expire.
//! 7. A leader whose Lease is missing stops immediately. A candidate that knows of the Lease, because it has read the Lease or has tried to create it,
//!    creates a missing Lease only when the longer of its own lease duration and the one that it read last has passed since the response that first
//!    reported the Lease as missing. A candidate that does not know of the Lease creates it immediately.
//!
//! # Never two leaders at once
//! Suppose that candidate A leads because it wrote the record R: A sent the write at time s, and the server executed it at time w ≥ s. Another
//! candidate B first reads R at a time o ≥ w, and overwrites R only if R stays unchanged for the lease duration after o (invariants 2, 5). So B leads
//! no earlier than o + lease duration. That is later than s + renew deadline + stop grace, and by that time A's work has ended (invariant 1). The
//! proof uses only durations: the clocks of A and B must run at the same rate, but need not show the same time. client-go measures the deadline from
//! the response, so two candidates can lead after a slow response.
//!
//! If the Lease is deleted, the deletion precedes the response in which B first reads that the Lease is missing, at a time o. A's last successful
//! write precedes the deletion, because an update of a missing Lease fails, and A creates no Lease while it leads. So B, which knows of the Lease,
//! leads no earlier than o + lease duration (invariant 7), and A's work has ended by then, for the same reason as above.
//!
//! The proof makes the assumptions that every lease needs: the Lease is not overwritten by hand, the server does not return to an old state, identities
//! are unique, and dropped work has no further effect. Deletions need two more, because a response that reports a missing Lease contains nothing about
//! earlier Leases: from a deletion until a lease duration later, no request to create the Lease is executed for a candidate that does not know of it;
//! and there is no second deletion before all candidates have read the new Lease. README.md states what happens otherwise.

pub(crate) mod lease_request;
pub(crate) mod loss_reason;
pub(crate) mod record;
pub(crate) mod timing;

use std::time::Duration;

use flyball_sync::Nanos;
use flyball_sync::random::SplitMix64;
use jiff::Timestamp;

pub use self::lease_request::{CandidateStep, LeaseRequest, LeaseResponse};
pub use self::loss_reason::LossReason;
pub use self::record::LeaderElectionRecord;
pub use self::timing::{ElectionTiming, InvalidElectionConfig};

use self::record::micro_time;
use self::timing::JITTER_PERCENT;

/// A candidate of an election, as a state machine that reads no clock and sends no requests.
///
/// Call [`step`](Self::step) after every response, and at the time that the previous call of `step` returned.
///
/// # Examples
/// ```
/// use flyball_kube_lease::candidate::{Candidate, CandidateStep, ElectionTiming, LeaseRequest, LeaseResponse};
/// use flyball_sync::Nanos;
/// use std::time::Duration;
///
/// let wall = "2026-01-01T00:00:00Z".parse()?;
/// let mut candidate = Candidate::new("a", ElectionTiming::default(), 0);
/// let mut now = Nanos::ZERO;
/// assert_eq!(candidate.step(now, wall), CandidateStep::Request(LeaseRequest::Get));
/// candidate.on_response(LeaseResponse::NotFound, now);
/// let CandidateStep::Request(LeaseRequest::Create(record)) = candidate.step(now, wall) else { panic!("there is no Lease") };
/// candidate.on_response(LeaseResponse::Found { record, version: "1".into() }, now);
/// assert!(candidate.leads(now));
/// now = now + Duration::from_secs(10);
/// assert!(!candidate.leads(now)); // it has not renewed its lease
/// # Ok::<(), jiff::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    timing: ElectionTiming,
    random: SplitMix64,
    seen: Option<Seen>,
    existence: Existence,
    /// The lease duration of the record that was read or written last.
    last_duration: Duration,
    /// The latest `renew_time` of the records that this candidate has sent, or has read as its own.
    last_renew_time: Option<Timestamp>,
    /// The version of the write whose response began the current or the last term.
    term_version: Option<String>,
    /// Whether the outcome of the last write is unknown and the Lease has not been read since that write.
    outcome_unknown: bool,
    role: Role,
    phase: Phase,
}

/// The record as last read or written.
#[derive(Clone, Debug)]
struct Seen {
    record: LeaderElectionRecord,
    version: String,
    /// The time since which the record is known to be unchanged.
    since: Nanos,
}

/// What is known about the existence of the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existence {
    /// This candidate has neither read the Lease nor tried to create it.
    Unknown,
    /// The Lease exists, or existed: it was read or written, or a request to create it was sent. Such a request may have failed because another
    /// candidate had created the Lease, even if its response was lost.
    Known,
    /// The Lease is missing since it was known. It may be created from this time on.
    Missing(Nanos),
}

#[derive(Clone, Debug)]
enum Role {
    Campaigns,
    /// Leads. The last successful write was sent at this time.
    Leads(Nanos),
    /// Has lost its leadership; its work may continue until this time.
    Lost(LossReason, Nanos),
    /// Releases the lease, with this number of retries left; one more while a write from before the release is open.
    Releases(u8),
    Ended,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Rest(Nanos),
    Next(Kind),
    Requested { kind: Kind, sent: Nanos, until: Nanos },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Writes over the last known version, without reading the Lease first.
    Fast,
    Read,
    Write,
}

// === impl Candidate ===

impl Candidate {
    /// Creates a candidate that campaigns. `seed` is the seed of its jitter.
    #[must_use]
    pub fn new(identity: impl Into<String>, timing: ElectionTiming, seed: u64) -> Self {
        let phase = Phase::Next(Kind::Read);
        Self {
            identity: identity.into(),
            timing,
            random: SplitMix64::new(seed),
            seen: None,
            existence: Existence::Unknown,
            last_duration: Duration::ZERO,
            last_renew_time: None,
            term_version: None,
            outcome_unknown: false,
            role: Role::Campaigns,
            phase,
        }
    }

    /// Starts to campaign again, and keeps the record that was read or written last.
    pub fn campaign(&mut self) {
        self.role = Role::Campaigns;
        self.phase = Phase::Next(Kind::Read);
    }

    /// Releases the lease. Call this when the work has ended, not before. A candidate that does not lead ends immediately, unless it may hold the
    /// lease: the last record names it as the holder, or the outcome of a write is unknown. If a write is open, the candidate first waits for its
    /// response. An open read is superseded.
    pub fn release(&mut self, now: Nanos) {
        let (campaigns, leads) = (matches!(self.role, Role::Campaigns), self.leads(now));
        let own = self.seen.as_ref().is_some_and(|seen| seen.record.holder_identity == self.identity);
        (self.role, self.phase) = match self.phase {
            // Invariant 6: the open write may acquire or renew the lease. A second write beside it would conflict with it.
            Phase::Requested { kind: Kind::Fast | Kind::Write, .. } if campaigns || leads => {
                (Role::Releases(RELEASE_RETRIES + 1), self.phase)
            }
            _ if leads => (Role::Releases(RELEASE_RETRIES), Phase::Next(Kind::Fast)),
            _ if campaigns && (own || self.outcome_unknown) => {
                (Role::Releases(RELEASE_RETRIES), Phase::Next(Kind::Read))
            }
            _ => (Role::Ended, Phase::Rest(Nanos::MAX)),
        };
    }

    /// Ends a leadership, as if the lease had not been renewed in time.
    pub fn abandon(&mut self, now: Nanos) {
        if let Role::Leads(sent) = self.role {
            let until = sent + self.timing.renew_deadline + self.timing.stop_grace;
            self.role = Role::Lost(LossReason::NotRenewed, until.max(now));
            self.phase = Phase::Rest(Nanos::MAX);
        }
    }

    /// Returns the next step at `now`, when the wall clock shows `wall`.
    pub fn step(&mut self, now: Nanos, wall: Timestamp) -> CandidateStep {
        self.expire(now);
        if let Phase::Requested { kind, sent, until } = self.phase
            && until <= now
        {
            self.failed(kind, sent, now);
        }
        if let Phase::Rest(until) = self.phase
            && until <= now
        {
            self.phase = Phase::Next(self.first());
        }
        match (&self.role, self.phase) {
            (Role::Ended, _) => CandidateStep::Wait(Nanos::MAX),
            (Role::Lost(_, until), _) => CandidateStep::Wait(if *until > now { *until } else { Nanos::MAX }),
            (_, Phase::Next(kind)) => {
                self.phase =
                    Phase::Requested { kind, sent: now, until: now + self.timing.request_deadline() };
                CandidateStep::Request(self.request(kind, wall))
            }
            (_, Phase::Rest(until) | Phase::Requested { until, .. }) => {
                CandidateStep::Wait(self.leads_until().map_or(until, |end| end.min(until)))
            }
        }
    }

    /// Handles the response to the last request.
    pub fn on_response(&mut self, response: LeaseResponse, now: Nanos) {
        // Invariant 3: the deadline is checked first, because a response that arrives after it must not extend the leadership.
        self.expire(now);
        let Phase::Requested { kind, sent, .. } = self.phase else { return };
        self.outcome_unknown &= response == LeaseResponse::Failed;
        match (kind, response) {
            (Kind::Read, LeaseResponse::Found { record, version }) => self.on_read(record, version, now),
            (Kind::Fast | Kind::Write, LeaseResponse::Found { record, version }) => {
                self.on_written(record, version, sent, now)
            }
            (_, LeaseResponse::NotFound) => self.on_missing(now),
            (_, LeaseResponse::Failed) => self.failed(kind, sent, now),
        }
    }

    /// Returns whether the candidate leads.
    #[must_use]
    pub fn leads(&self, now: Nanos) -> bool {
        self.leads_until().is_some_and(|until| now < until)
    }

    /// Returns the time until which the candidate leads if it does not renew its lease; `None` if it does not lead.
    #[must_use]
    pub fn leads_until(&self) -> Option<Nanos> {
        match self.role {
            Role::Leads(sent) => Some(sent + self.timing.renew_deadline),
            _ => None,
        }
    }

    /// Returns whether the work of a leader may continue: while it leads, and for the stop grace.
    #[must_use]
    pub fn may_work(&self, now: Nanos) -> bool {
        match self.role {
            Role::Leads(sent) => now < sent + self.timing.renew_deadline + self.timing.stop_grace,
            Role::Lost(_, until) => now < until,
            _ => false,
        }
    }

    /// Returns the reason for the loss; `None` if the leadership was not lost.
    #[must_use]
    pub fn lost(&self) -> Option<&LossReason> {
        match &self.role {
            Role::Lost(why, _) => Some(why),
            _ => None,
        }
    }

    /// Returns the version of the write whose response began the current term, or the last one; `None` if this candidate has never led. Renewals do not
    /// change it.
    #[must_use]
    pub fn term_version(&self) -> Option<&str> {
        self.term_version.as_deref()
    }

    /// Returns the time from which this candidate may create the Lease; `None` unless it waits because the Lease was deleted.
    #[must_use]
    pub fn creates_after(&self) -> Option<Nanos> {
        match self.existence {
            Existence::Missing(until) => Some(until),
            _ => None,
        }
    }

    /// Returns whether the candidate has ended: it has released the lease, has failed to release it, or had no lease to release.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.role, Role::Ended)
    }

    /// Returns whether the candidate waits for a response.
    #[must_use]
    pub fn waits_for_response(&self) -> bool {
        matches!(self.phase, Phase::Requested { .. })
    }

    /// Returns the leader according to the record that was read or written last.
    #[must_use]
    pub fn leader(&self) -> Option<&str> {
        self.seen.as_ref().map(|seen| &*seen.record.holder_identity).filter(|holder| !holder.is_empty())
    }

    /// Checks the invariants.
    #[doc(hidden)]
    pub fn check(&self, now: Nanos) -> Result<(), String> {
        let fail = |number: u8| Err(format!("invariant {number}: {self:?} at {now:?}"));
        let ElectionTiming { lease_duration, renew_deadline, stop_grace, .. } = self.timing;
        if renew_deadline + stop_grace >= lease_duration || self.leads(now) && !self.may_work(now) {
            return fail(1);
        }
        let other = self.seen.as_ref().is_some_and(|seen| seen.record.holder_identity != self.identity);
        if matches!(self.role, Role::Leads(sent) if sent > now || other) {
            return fail(2);
        }
        if matches!(self.role, Role::Lost(..) | Role::Ended) && (self.leads(now) || self.waits_for_response())
        {
            return fail(3);
        }
        if matches!(self.phase, Phase::Requested { kind: Kind::Fast | Kind::Write, .. })
            && !self.outcome_unknown
        {
            return fail(6);
        }
        // A leader has read the Lease, and a Lease that is missing has no record.
        let missing = matches!(self.existence, Existence::Missing(_));
        if (self.leads(now) || self.seen.is_some()) && self.existence != Existence::Known
            || missing && matches!(self.phase, Phase::Next(Kind::Fast))
        {
            return fail(7);
        }
        match self.phase {
            Phase::Requested { sent, until, .. }
                if until.since(sent) > self.timing.request_deadline() || sent > now =>
            {
                fail(4)
            }
            _ => Ok(()),
        }
    }

    fn request(&mut self, kind: Kind, wall: Timestamp) -> LeaseRequest {
        if kind == Kind::Read {
            return LeaseRequest::Get;
        }
        self.outcome_unknown = true;
        let record = self.record(wall);
        match &self.seen {
            Some(seen) => LeaseRequest::Update { record, version: seen.version.clone() },
            None => {
                // Invariant 7: whatever the outcome is, this candidate is not the first one from now on.
                self.existence = Existence::Known;
                LeaseRequest::Create(record)
            }
        }
    }

    /// Returns the record to write.
    fn record(&mut self, wall: Timestamp) -> LeaderElectionRecord {
        // Invariant 5: the time increases even if the clock does not advance or goes back. Each time must differ from all earlier ones, not only from
        // the previous one: a reader that misses every second renewal, or the deletion of the Lease, must also read a new time.
        let wall = microseconds(wall);
        let next = self.last_renew_time.map_or(wall, |last| last.checked_add(MICROSECOND).unwrap_or(last));
        let now = wall.max(next);
        self.last_renew_time = Some(now);
        let releases = matches!(self.role, Role::Releases(_));
        let old = self.seen.as_ref().map(|seen| &seen.record);
        let own = old.filter(|old| old.holder_identity == self.identity);
        let time = Some(micro_time(now));
        LeaderElectionRecord {
            holder_identity: if releases { String::new() } else { self.identity.clone() },
            lease_duration_seconds: if releases { 1 } else { self.timing.lease_seconds() },
            acquire_time: own.filter(|_| !releases).and_then(|own| own.acquire_time.clone()).or(time.clone()),
            renew_time: time,
            leader_transitions: match (own, old) {
                (Some(own), _) => own.leader_transitions,
                (None, Some(old)) => old.leader_transitions.saturating_add(1),
                (None, None) => 0,
            },
        }
    }

    fn on_read(&mut self, record: LeaderElectionRecord, version: String, now: Nanos) {
        // The records are compared, not the versions, because a write that changes only a label does not renew the lease.
        let unchanged = self.seen.as_ref().filter(|seen| seen.record == record);
        let since = unchanged.map_or(now, |seen| seen.since);
        let own = record.holder_identity == self.identity;
        let holder = record.holder_identity.clone();
        self.found(record, version, since);
        let expires = since + self.last_duration;
        let free = own || holder.is_empty() || expires <= now;
        match self.role {
            Role::Leads(_) if !own => {
                self.role = Role::Lost(LossReason::Taken(holder), now);
                self.phase = Phase::Rest(Nanos::MAX);
            }
            Role::Releases(_) if !own => self.role = Role::Ended,
            // Invariant 2.
            _ if free => self.phase = Phase::Next(Kind::Write),
            _ => self.phase = Phase::Rest(self.next_attempt(now).min(expires)),
        }
        self.end_if_released();
    }

    fn on_written(&mut self, record: LeaderElectionRecord, version: String, sent: Nanos, now: Nanos) {
        let own = record.holder_identity == self.identity;
        self.found(record, version.clone(), now);
        match &mut self.role {
            // The write was sent before the candidate was stopped: the next one releases the lease.
            Role::Releases(tries @ 1..) if own => {
                *tries -= 1;
                self.phase = Phase::Next(Kind::Fast);
            }
            Role::Releases(_) => self.role = Role::Ended,
            // Invariant 1: the term counts from the time at which the write was sent, because the server may have executed it at that time, and other
            // candidates may have read the record since then.
            role if own && now < sent + self.timing.renew_deadline => {
                if !matches!(role, Role::Leads(_)) {
                    self.term_version = Some(version);
                }
                *role = Role::Leads(sent);
                self.phase = Phase::Rest(sent + self.timing.retry_period);
            }
            // The response came too late, or does not contain the record that was written.
            _ => self.phase = Phase::Rest(self.next_attempt(now)),
        }
        self.end_if_released();
    }

    fn found(&mut self, record: LeaderElectionRecord, version: String, since: Nanos) {
        self.existence = Existence::Known;
        if record.holder_identity == self.identity {
            // A text that is no timestamp differs from every time that this candidate writes, so it need not be exceeded.
            let renew_time = record.renew_time.as_ref().and_then(|time| time.parse().ok());
            self.last_renew_time = self.last_renew_time.max(renew_time);
        }
        self.last_duration = Duration::from_secs(record.lease_duration_seconds.max(0).unsigned_abs().into());
        self.seen = Some(Seen { record, version, since });
    }

    fn on_missing(&mut self, now: Nanos) {
        // Invariant 7. The wait counts from the response, not from the request: the Lease may have been deleted, and before that renewed, while the
        // request was in flight.
        let creates_after = match self.existence {
            Existence::Unknown => now,
            Existence::Known => {
                let own = Duration::from_secs(self.timing.lease_seconds().unsigned_abs().into());
                now + own.max(self.last_duration)
            }
            Existence::Missing(until) => until,
        };
        if self.existence != Existence::Unknown {
            self.existence = Existence::Missing(creates_after);
        }
        self.seen = None;
        match self.role {
            // The leader stops immediately, because a candidate that does not know of the Lease creates it immediately.
            Role::Leads(_) => {
                self.role = Role::Lost(LossReason::Deleted, now);
                self.phase = Phase::Rest(Nanos::MAX);
            }
            Role::Releases(_) => self.role = Role::Ended,
            _ if creates_after <= now => self.phase = Phase::Next(Kind::Write),
            _ => self.phase = Phase::Rest(self.next_attempt(now).min(creates_after)),
        }
        self.end_if_released();
    }

    /// Handles the failure of a request of this kind, which was sent at `sent`.
    fn failed(&mut self, kind: Kind, sent: Nanos, now: Nanos) {
        self.phase = match (&mut self.role, kind) {
            // The write was sent before the candidate was stopped, so no release has failed yet.
            (Role::Releases(tries), _) if *tries > RELEASE_RETRIES => {
                *tries -= 1;
                Phase::Next(Kind::Read)
            }
            (_, Kind::Fast) => Phase::Next(Kind::Read),
            (Role::Releases(0), _) => {
                self.role = Role::Ended;
                Phase::Rest(Nanos::MAX)
            }
            (Role::Releases(tries), _) => {
                *tries -= 1;
                Phase::Rest(sent + self.timing.retry_period)
            }
            (Role::Leads(_), _) => Phase::Rest(now + self.timing.retry_period),
            _ => Phase::Rest(self.next_attempt(now)),
        };
    }

    /// Returns the first request of an attempt: a leader writes without reading the Lease first, any other candidate reads it.
    fn first(&self) -> Kind {
        if matches!(self.role, Role::Leads(_)) { Kind::Fast } else { Kind::Read }
    }

    fn expire(&mut self, now: Nanos) {
        if matches!(self.role, Role::Leads(sent) if sent + self.timing.renew_deadline <= now) {
            self.abandon(now);
        }
    }

    fn end_if_released(&mut self) {
        if self.has_ended() {
            self.phase = Phase::Rest(Nanos::MAX);
        }
    }

    /// Returns when a candidate that does not lead reads the Lease again.
    fn next_attempt(&mut self, now: Nanos) -> Nanos {
        let part = u32::try_from(self.random.next() >> 40).unwrap_or_default();
        let most = self.timing.retry_period.saturating_mul(JITTER_PERCENT) / 100;
        now + self.timing.retry_period + most.mul_f64(f64::from(part) / f64::from(1_u32 << 24))
    }
}

/// Truncates to microseconds, the precision of a Lease.
fn microseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

const MICROSECOND: Duration = Duration::from_micros(1);

/// How many times a release is retried after a conflict or an error, each time a retry period after the failed request was sent.
const RELEASE_RETRIES: u8 = 2;
