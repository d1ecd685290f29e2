//! PURE. One candidate of an election, as a state machine: time, wall clock, answers and the seed of its jitter are arguments.
//!
//! # Invariants
//! 1. It leads at most until `renew_deadline` after it **sent** the last write that it knows to have succeeded, and its work goes on for at most `wind_down`
//!    longer. Together that is less than `lease_duration`.
//! 2. It overwrites only the version of a record that it has seen, and only one that says nobody, one that says itself, or one that it
//!    has seen unchanged, on its own clock, for as long as that record says.
//! 3. Once its leadership is over it leads no more, whatever is answered later, until it campaigns again.
//! 4. One question is open at a time, and not for longer than half of the renew deadline. What becomes of it after that is not known.
//! 5. A new holder adds one to the transitions; a renewal changes the time of renewal alone, and moves it on.
//! 6. A candidate that gives the lease away is over when the outcome of its last write is known, or has been looked for: no lease is left behind for its
//!    whole time because a candidate was stopped while it took it.
//!
//! # Never two at once
//! Let A lead by a write that it sent at s, that was done at w ≥ s, and of which the server kept the record R. Another candidate B writes over R only if B has seen R
//! unchanged for the lease duration (invariants 2, 5): from o ≥ w on. So B leads not before o + lease duration > s + renew deadline + wind-down, when A's work
//! is over (invariant 1). All of these are lengths of time, measured by clocks that need to agree on nothing but how long a second is; no wall clock
//! is compared. client-go measures the deadline from the answer on, so a slow answer can make two lead.
//!
//! That needs what any lease needs: nobody deletes it or writes over it by hand, the server does not go back to an old state, identities are unique, and a
//! work that has been dropped does nothing any more.

use std::time::Duration;

use flyball_sync::Nanos;
use flyball_sync::random::SplitMix64;
use jiff::Timestamp;

use crate::lease_request::{Answer, Ask, Lost, Step};
use crate::record::Record;
use crate::timing::{JITTER_PERCENT, Timing};

/// One candidate of an election, without time or requests of its own: for who drives it otherwise than [`Election`](crate::Election) does, and
/// for simulations.
///
/// Ask it for its next [`step`](Self::step) whenever the time of the last one has come, and after every answer.
///
/// # Examples
/// ```
/// use flyball_kube_lease::{Answer, Ask, Candidate, Step, Timing};
/// use flyball_sync::Nanos;
/// use std::time::Duration;
///
/// let wall = "2026-01-01T00:00:00Z".parse()?;
/// let mut candidate = Candidate::new("a", Timing::default(), 0);
/// let mut now = Nanos::ZERO;
/// assert_eq!(candidate.step(now, wall), Step::Ask(Ask::Get));
/// candidate.answered(Answer::NotFound, now);
/// let Step::Ask(Ask::Create(record)) = candidate.step(now, wall) else { panic!("there is none") };
/// candidate.answered(Answer::Found { record, version: "1".into() }, now);
/// assert!(candidate.leads(now));
/// now = now + Duration::from_secs(10);
/// assert!(!candidate.leads(now)); // it has not renewed its lease
/// # Ok::<(), jiff::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    timing: Timing,
    random: SplitMix64,
    seen: Option<Seen>,
    /// It has asked for a write and has not heard what came of it, nor looked since.
    unheard: bool,
    role: Role,
    phase: Phase,
}

/// The record as last read or written.
#[derive(Clone, Debug)]
struct Seen {
    record: Record,
    version: String,
    /// Since when it is known to be as it is.
    since: Nanos,
}

#[derive(Clone, Debug)]
enum Role {
    Campaigns,
    /// By a write sent then.
    Leads(Nanos),
    /// Its work may go on until then.
    Lost(Lost, Nanos),
    /// Gives the lease away, with so many tries left.
    Releases(u8),
    Over,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Rest(Nanos),
    Next(Kind),
    Asked { kind: Kind, sent: Nanos, until: Nanos },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A write over the version last seen, without a look first.
    Fast,
    Look,
    Write,
}

// === impl Candidate ===

impl Candidate {
    /// A candidate that campaigns. `seed` is that of its jitter.
    #[must_use]
    pub fn new(identity: impl Into<String>, timing: Timing, seed: u64) -> Self {
        let phase = Phase::Next(Kind::Look);
        Self {
            identity: identity.into(),
            timing,
            random: SplitMix64::new(seed),
            seen: None,
            unheard: false,
            role: Role::Campaigns,
            phase,
        }
    }

    /// Campaigns again, after an end. It keeps what it has seen.
    pub fn campaign(&mut self) {
        self.role = Role::Campaigns;
        self.phase = Phase::Next(Kind::Look);
    }

    /// Gives the lease away. To be called when the work is over, not before. A candidate that does not lead is over at once, unless the lease may be its own
    /// all the same: by a write that it is still to hear of, or that was never answered. It waits for that answer, or looks, and then gives the lease away.
    pub fn release(&mut self, now: Nanos) {
        let campaigns = matches!(self.role, Role::Campaigns);
        let own = self.seen.as_ref().is_some_and(|seen| seen.record.holder == self.identity);
        let phase = match self.phase {
            _ if self.leads(now) => Phase::Next(Kind::Fast),
            // Invariant 6: nobody else may give away what this brings.
            Phase::Asked { kind: Kind::Fast | Kind::Write, .. } if campaigns => self.phase,
            _ if campaigns && (own || self.unheard) => Phase::Next(Kind::Look),
            _ => {
                (self.role, self.phase) = (Role::Over, Phase::Rest(Nanos::MAX));
                return;
            }
        };
        (self.role, self.phase) = (Role::Releases(TRIES), phase);
    }

    /// Ends a leadership, as if it had not been renewed in time.
    pub fn lose(&mut self, now: Nanos) {
        if let Role::Leads(sent) = self.role {
            let until = sent + self.timing.renew_deadline + self.timing.wind_down;
            self.role = Role::Lost(Lost::NotRenewed, until.max(now));
            self.phase = Phase::Rest(Nanos::MAX);
        }
    }

    /// What to do at `now`, when the wall clock shows `wall`.
    pub fn step(&mut self, now: Nanos, wall: Timestamp) -> Step {
        self.expire(now);
        match self.phase {
            Phase::Asked { kind, until, .. } if until <= now => self.failed(kind, now),
            Phase::Rest(until) if until <= now => self.phase = Phase::Next(self.first()),
            _ => {}
        }
        match (&self.role, self.phase) {
            (Role::Over, _) => Step::Wait(Nanos::MAX),
            (Role::Lost(_, until), _) => Step::Wait(if *until > now { *until } else { Nanos::MAX }),
            (_, Phase::Next(kind)) => {
                self.phase = Phase::Asked { kind, sent: now, until: now + self.timing.patience() };
                Step::Ask(self.question(kind, wall))
            }
            (_, Phase::Rest(until) | Phase::Asked { until, .. }) => {
                Step::Wait(self.leads_until().map_or(until, |end| end.min(until)))
            }
        }
    }

    /// Takes the answer to what was asked last.
    pub fn answered(&mut self, answer: Answer, now: Nanos) {
        // Invariant 3: before the answer, which may be older than the deadline.
        self.expire(now);
        let Phase::Asked { kind, sent, .. } = self.phase else { return };
        self.unheard &= answer == Answer::Failed;
        match (kind, answer) {
            (Kind::Look, Answer::Found { record, version }) => self.looked(record, version, now),
            (Kind::Look, Answer::NotFound) => {
                self.seen = None;
                match self.role {
                    Role::Releases(_) => self.role = Role::Over,
                    _ => self.phase = Phase::Next(Kind::Write),
                }
                self.settle();
            }
            (Kind::Fast | Kind::Write, Answer::Found { record, version }) => {
                self.written(record, version, sent, now)
            }
            (_, Answer::NotFound | Answer::Failed) => self.failed(kind, now),
        }
    }

    /// Whether it leads.
    #[must_use]
    pub fn leads(&self, now: Nanos) -> bool {
        self.leads_until().is_some_and(|until| now < until)
    }

    /// Until when it leads if it does not renew its lease.
    #[must_use]
    pub fn leads_until(&self) -> Option<Nanos> {
        match self.role {
            Role::Leads(sent) => Some(sent + self.timing.renew_deadline),
            _ => None,
        }
    }

    /// Whether what it does as a leader may go on: it leads, or winds down.
    #[must_use]
    pub fn may_work(&self, now: Nanos) -> bool {
        match self.role {
            Role::Leads(sent) => now < sent + self.timing.renew_deadline + self.timing.wind_down,
            Role::Lost(_, until) => now < until,
            _ => false,
        }
    }

    /// Why its leadership is over, if it was not given away.
    #[must_use]
    pub fn lost(&self) -> Option<&Lost> {
        match &self.role {
            Role::Lost(why, _) => Some(why),
            _ => None,
        }
    }

    /// Whether it has given the lease away, or has tried to.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.role, Role::Over)
    }

    /// Whether an answer is awaited.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Asked { .. })
    }

    /// Who leads, by the record last seen.
    #[must_use]
    pub fn leader(&self) -> Option<&str> {
        self.seen.as_ref().map(|seen| &*seen.record.holder).filter(|holder| !holder.is_empty())
    }

    /// Walks the invariants.
    #[doc(hidden)]
    pub fn check(&self, now: Nanos) -> Result<(), String> {
        let fail = |number: u8| Err(format!("invariant {number}: {self:?} at {now:?}"));
        let Timing { lease_duration, renew_deadline, wind_down, .. } = self.timing;
        if renew_deadline + wind_down >= lease_duration || self.leads(now) && !self.may_work(now) {
            return fail(1);
        }
        let other = self.seen.as_ref().is_some_and(|seen| seen.record.holder != self.identity);
        if matches!(self.role, Role::Leads(sent) if sent > now || other) {
            return fail(2);
        }
        if matches!(self.role, Role::Lost(..) | Role::Over) && (self.leads(now) || self.is_asking()) {
            return fail(3);
        }
        if matches!(self.phase, Phase::Asked { kind: Kind::Fast | Kind::Write, .. }) && !self.unheard {
            return fail(6);
        }
        match self.phase {
            Phase::Asked { sent, until, .. } if until.since(sent) > self.timing.patience() || sent > now => {
                fail(4)
            }
            _ => Ok(()),
        }
    }

    fn question(&mut self, kind: Kind, wall: Timestamp) -> Ask {
        if kind == Kind::Look {
            return Ask::Get;
        }
        self.unheard = true;
        let record = self.record(wall);
        match &self.seen {
            Some(seen) => Ask::Update { record, version: seen.version.clone() },
            None => Ask::Create(record),
        }
    }

    /// What it writes over what it has seen.
    fn record(&self, wall: Timestamp) -> Record {
        let releases = matches!(self.role, Role::Releases(_));
        let old = self.seen.as_ref().map(|seen| &seen.record);
        let own = old.filter(|old| old.holder == self.identity);
        let wall = microseconds(wall);
        // Invariant 5: later than the last one also if the clock stands still, or went back. To be another is not enough: whoever looks at every second
        // renewal must see a change, too.
        let next = own
            .and_then(|own| own.renew_time)
            .map_or(wall, |last| last.checked_add(MICROSECOND).unwrap_or(last));
        let now = wall.max(next);
        Record {
            holder: if releases { String::new() } else { self.identity.clone() },
            lease_duration_seconds: if releases { 1 } else { self.timing.lease_seconds() },
            acquire_time: own.filter(|_| !releases).and_then(|own| own.acquire_time).or(Some(now)),
            renew_time: Some(now),
            transitions: match (own, old) {
                (Some(own), _) => own.transitions,
                (None, Some(old)) => old.transitions.saturating_add(1),
                (None, None) => 0,
            },
        }
    }

    fn looked(&mut self, record: Record, version: String, now: Nanos) {
        // A write that changes nothing but a label does not renew a lease.
        let unchanged = self.seen.as_ref().filter(|seen| seen.record == record);
        let since = unchanged.map_or(now, |seen| seen.since);
        let own = record.holder == self.identity;
        let expires = since + Duration::from_secs(record.lease_duration_seconds.max(0).unsigned_abs().into());
        let free = own || record.holder.is_empty() || expires <= now;
        let holder = record.holder.clone();
        self.seen = Some(Seen { record, version, since });
        match self.role {
            Role::Leads(_) if !own => {
                self.role = Role::Lost(Lost::Taken(holder), now);
                self.phase = Phase::Rest(Nanos::MAX);
            }
            Role::Releases(_) if !own => self.role = Role::Over,
            // Invariant 2.
            _ if free => self.phase = Phase::Next(Kind::Write),
            _ => self.phase = Phase::Rest(self.tick(now).min(expires)),
        }
        self.settle();
    }

    fn written(&mut self, record: Record, version: String, sent: Nanos, now: Nanos) {
        let own = record.holder == self.identity;
        self.seen = Some(Seen { record, version, since: now });
        match &mut self.role {
            // It was the lease that it was taking when it was stopped.
            Role::Releases(tries @ 1..) if own => {
                *tries -= 1;
                self.phase = Phase::Next(Kind::Fast);
            }
            Role::Releases(_) => self.role = Role::Over,
            // Invariant 1: from when it was sent. It may have been done then, and others may have seen it since.
            _ if own && now < sent + self.timing.renew_deadline => {
                self.role = Role::Leads(sent);
                self.phase = Phase::Rest(sent + self.timing.retry_period);
            }
            // The answer came too late, or was not what was written.
            _ => self.phase = Phase::Rest(self.tick(now)),
        }
        self.settle();
    }

    fn failed(&mut self, kind: Kind, now: Nanos) {
        self.phase = match (&mut self.role, kind) {
            (_, Kind::Fast) => Phase::Next(Kind::Look),
            (Role::Releases(0), _) => {
                self.role = Role::Over;
                Phase::Rest(Nanos::MAX)
            }
            (Role::Releases(tries), _) => {
                *tries -= 1;
                Phase::Next(Kind::Look)
            }
            (Role::Leads(_), _) => Phase::Rest(now + self.timing.retry_period),
            _ => Phase::Rest(self.tick(now)),
        };
    }

    /// What a try begins with.
    fn first(&self) -> Kind {
        if matches!(self.role, Role::Leads(_)) { Kind::Fast } else { Kind::Look }
    }

    fn expire(&mut self, now: Nanos) {
        if matches!(self.role, Role::Leads(sent) if sent + self.timing.renew_deadline <= now) {
            self.lose(now);
        }
    }

    fn settle(&mut self) {
        if self.is_over() {
            self.phase = Phase::Rest(Nanos::MAX);
        }
    }

    /// When a candidate that does not lead looks again.
    fn tick(&mut self, now: Nanos) -> Nanos {
        let part = u32::try_from(self.random.next() >> 40).unwrap_or_default();
        let most = self.timing.retry_period.saturating_mul(JITTER_PERCENT) / 100;
        now + self.timing.retry_period + most.mul_f64(f64::from(part) / f64::from(1_u32 << 24))
    }
}

/// As exact as a Lease keeps it.
fn microseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

const MICROSECOND: Duration = Duration::from_micros(1);

/// How often giving a lease away is tried again, after a conflict or an error.
const TRIES: u8 = 2;
