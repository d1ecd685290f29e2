//! Randomised elections of several candidates: requests and responses are lost or delayed, so a write without a response may or may not have been
//! executed; candidates are suspended, killed and restarted; wall clocks jump; the Lease is deleted by hand. Each candidate has its own monotonic clock
//! with its own origin.
//!
//! Three properties hold: the work of two candidates never overlaps; each term has a greater token than all earlier ones; and once the faults stop, one
//! candidate soon leads and stays the leader.
//!
//! The deletions obey the assumptions at the top of `candidate.rs`: when the Lease is deleted, all candidates know of it, and no request to create it is
//! in flight; candidates that start after a deletion start a lease duration later.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use flyball_kube_lease::candidate::{
    Candidate, CandidateStep, ElectionTiming, LeaderElectionRecord, LeaseRequest, LeaseResponse,
};
use flyball_sync::Nanos;
use testkit::random::Random;

type Time = u64;
const MS: Time = 1_000_000;
const SECOND: Time = 1000 * MS;

/// A Lease, and the API server that stores it.
#[derive(Default)]
struct Server {
    lease: Option<(LeaderElectionRecord, u64)>,
    versions: u64,
}

impl Server {
    fn answer(&mut self, request: &LeaseRequest) -> LeaseResponse {
        match (request, &mut self.lease) {
            (LeaseRequest::Get, None) => return LeaseResponse::NotFound,
            (LeaseRequest::Get, Some(_)) => {}
            (LeaseRequest::Create(record), lease @ None) => {
                self.versions += 1;
                *lease = Some((record.clone(), self.versions));
            }
            (LeaseRequest::Update { record, version }, Some((kept, at))) if version.parse() == Ok(*at) => {
                if record != kept {
                    self.versions += 1;
                    (*kept, *at) = (record.clone(), self.versions);
                }
            }
            _ => return LeaseResponse::Failed,
        }
        let (record, version) = self.lease.clone().unwrap();
        LeaseResponse::Found { record, version: version.to_string() }
    }
}

struct Simulated {
    candidate: Candidate,
    name: String,
    /// The time of the candidate's monotonic clock at the start of the simulation.
    origin: Time,
    /// The time of the candidate's wall clock at the start of the simulation, in microseconds. No two processes have the same.
    wall: i64,
    /// Whether the candidate's wall clock stands still.
    frozen: bool,
    /// The number of the open request. A restarted candidate has no open request, so it ignores responses to earlier requests.
    request: u64,
    /// The process starts at this time. It takes no step before.
    begins: Time,
    /// The candidate is suspended until this time.
    suspended_until: Time,
    /// The candidate is disconnected until this time.
    disconnected_until: Time,
    /// The responses that arrived while the candidate was suspended, with the numbers of their requests.
    pending_responses: Vec<(u64, LeaseResponse)>,
    /// Whether the last response that this candidate has handled, of those that say whether the Lease exists, said that it does.
    sees_lease: bool,
    /// The time from which this candidate may create the Lease, if it knows of a Lease that was deleted.
    may_create: Option<Time>,
    /// The time at which the candidate sent the last renewal that it knows to have succeeded.
    renewed: Option<Time>,
    worked: bool,
    /// `led`: whether the candidate has led since it began to campaign. `over`: whether it has led, and no longer leads.
    led: bool,
    over: bool,
    /// The time of the candidate's next step. A step event with any other time is ignored.
    alarm: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Step,
    /// A request arrives at the server.
    Arrives(u64),
    /// A response arrives at the candidate.
    Answered(u64),
    Fault,
}

struct World {
    random: Random,
    now: Time,
    server: Server,
    candidates: Vec<Simulated>,
    events: BinaryHeap<Reverse<(Time, u64, usize, Event)>>,
    number: u64,
    /// All requests so far, each with its response.
    requests: Vec<(LeaseRequest, Option<LeaseResponse>)>,
    /// The time at which each request was sent.
    sent: Vec<Time>,
    calm: bool,
    timing: ElectionTiming,
    /// The time from which new candidates may start.
    starts_allowed: Time,
    /// The token of the last term.
    token: u64,
    seen: Seen,
}

/// Counts the faults and the terms, so that the test fails if the simulations contained too few of them.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    terms: u64,
    lost_answers: u64,
    written_unheard: u64,
    stood: u64,
    died: u64,
    released: u64,
    takeovers: u64,
    deleted: u64,
    deleted_under_a_leader: u64,
    created_again: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let timing = match random.below(3) {
            0 => ElectionTiming::default(),
            // The stop grace is one millisecond below its limit of 5 s.
            1 => ElectionTiming::default().with_stop_grace(Duration::from_millis(4999)).unwrap(),
            _ => any_timing(&mut random),
        };
        let mut world = Self {
            random,
            now: 0,
            server: Server::default(),
            candidates: Vec::new(),
            events: BinaryHeap::new(),
            number: 0,
            requests: Vec::new(),
            sent: Vec::new(),
            calm: false,
            timing,
            starts_allowed: 0,
            token: 0,
            seen: Seen::default(),
        };
        let count = 2 + world.random.below(3);
        for n in 0..count as usize {
            let simulated = world.simulated(n, format!("candidate-{n}"));
            world.candidates.push(simulated);
            let begins = world.random.below(5 * SECOND);
            world.step_at(begins, n);
            world.at(begins, n, Event::Fault);
        }
        world
    }

    fn simulated(&mut self, n: usize, name: String) -> Simulated {
        let seed = self.random.next();
        Simulated {
            candidate: Candidate::new(name.clone(), self.timing, seed),
            name,
            // The simulated time continues when a process is killed, but the clock of the new process has a new origin.
            origin: self.random.below(1000) * SECOND,
            wall: 1_700_000_000_000_000 + n as i64 * 7_000_000 + i64::try_from(self.number).unwrap(),
            frozen: self.random.below(4) == 0,
            request: u64::MAX,
            begins: 0,
            suspended_until: 0,
            disconnected_until: 0,
            pending_responses: Vec::new(),
            sees_lease: false,
            may_create: None,
            renewed: None,
            worked: false,
            led: false,
            over: false,
            alarm: Time::MAX,
        }
    }

    fn at(&mut self, time: Time, n: usize, event: Event) {
        self.number += 1;
        self.events.push(Reverse((time, self.number, n, event)));
    }

    fn step_at(&mut self, time: Time, n: usize) {
        let time = time.max(self.candidates[n].begins);
        self.candidates[n].alarm = time;
        self.at(time, n, Event::Step);
    }

    fn clock(&self, n: usize) -> Nanos {
        Nanos::new(self.candidates[n].origin + self.now)
    }

    fn step(&mut self, n: usize) {
        let now = self.clock(n);
        loop {
            let simulated = &mut self.candidates[n];
            let elapsed = if simulated.frozen { 0 } else { i64::try_from(self.now / 1000).unwrap() };
            let wall = jiff::Timestamp::from_microsecond(simulated.wall + elapsed).unwrap();
            let step = simulated.candidate.step(now, wall);
            let over = simulated.candidate.has_ended()
                || simulated.candidate.lost().is_some() && !simulated.candidate.may_work(now);
            match step {
                CandidateStep::Request(ask) => {
                    if matches!(ask, LeaseRequest::Create(_)) {
                        let simulated = &self.candidates[n];
                        assert!(
                            simulated.may_create.is_none_or(|from| from <= self.now),
                            "creates a deleted Lease too early, at {} ms",
                            self.now / MS
                        );
                        self.seen.created_again += u64::from(simulated.may_create.is_some());
                    }
                    let request = self.requests.len() as u64;
                    self.requests.push((ask, None));
                    self.sent.push(self.now);
                    self.candidates[n].request = request;
                    if let Some(delay) = self.delay(n) {
                        self.at(self.now + delay, n, Event::Arrives(request));
                    }
                }
                CandidateStep::Wait(_) if over => {
                    simulated.candidate.campaign();
                    (simulated.led, simulated.over) = (false, false);
                    // A candidate whose leadership is over may pause before it campaigns again, so that others can lead.
                    if self.random.below(2) == 0 {
                        let pause = self.random.below(3 * SECOND);
                        self.step_at(self.now + pause, n);
                        return;
                    }
                }
                CandidateStep::Wait(until) => {
                    if until < Nanos::MAX {
                        let origin = self.candidates[n].origin;
                        self.step_at(until.get() - origin, n);
                    }
                    return;
                }
            }
        }
    }

    /// Returns how long a message takes; `None` if it is lost.
    fn delay(&mut self, n: usize) -> Option<Time> {
        if self.calm {
            return Some(1 + self.random.below(50 * MS));
        }
        if self.now < self.candidates[n].disconnected_until {
            self.seen.lost_answers += 1;
            return None;
        }
        match self.random.below(10) {
            0 | 1 => {
                self.seen.lost_answers += 1;
                None
            }
            2 => Some(self.random.below(20 * SECOND)),
            3 => Some(self.random.below(6 * SECOND)),
            _ => Some(self.random.below(200 * MS)),
        }
    }

    fn fault(&mut self, n: usize) {
        if self.calm {
            return;
        }
        let now = self.clock(n);
        match self.random.below(9) {
            0 => {
                self.candidates[n].wall += (self.random.below(3600) as i64 - 600) * 1_000_000;
            }
            1 => {
                self.seen.stood += 1;
                self.candidates[n].suspended_until = self.now + self.random.below(30 * SECOND);
                let until = self.candidates[n].suspended_until;
                self.step_at(until, n);
            }
            2 => {
                // The candidate is killed, and a new candidate starts, with the same name or a different one. Messages that the killed candidate has
                // sent are still delivered.
                self.seen.died += 1;
                let name = match self.random.below(2) {
                    0 => self.candidates[n].name.clone(),
                    _ => format!("{}'", self.candidates[n].name),
                };
                self.candidates[n] = self.simulated(n, name);
                let begins = self.now.max(self.starts_allowed) + self.random.below(10 * SECOND);
                self.candidates[n].begins = begins;
                self.step_at(begins, n);
            }
            3 => self.candidates[n].disconnected_until = self.now + self.random.below(40 * SECOND),
            // The work has ended, or the candidate was stopped before it led.
            4 if self.candidates[n].candidate.leads(now) == self.candidates[n].candidate.may_work(now)
                && self.candidates[n].suspended_until <= self.now =>
            {
                self.seen.released += 1;
                self.candidates[n].candidate.release(now);
                self.step_at(self.now, n);
            }
            5 | 6 if self.may_delete() => {
                self.seen.deleted += 1;
                self.seen.deleted_under_a_leader += u64::from(self.leader().is_some());
                self.server.lease = None;
                self.starts_allowed = self.now + self.lease_duration();
            }
            _ => {}
        }
        let next = self.now + self.random.below(20 * SECOND);
        self.at(next, n, Event::Fault);
    }

    /// Returns the lease duration as the record stores it: in whole seconds, rounded up.
    fn lease_duration(&self) -> Time {
        (self.timing.lease_duration.as_nanos() as Time).div_ceil(SECOND) * SECOND
    }

    /// Returns whether a deletion of the Lease by hand is within the assumptions.
    fn may_delete(&self) -> bool {
        let creates = |request: u64| matches!(self.requests[request as usize].0, LeaseRequest::Create(_));
        self.server.lease.is_some()
            && self.candidates.iter().all(|simulated| simulated.sees_lease)
            && !self
                .events
                .iter()
                .any(|Reverse((.., event))| matches!(event, Event::Arrives(n) if creates(*n)))
    }

    fn run_until(&mut self, end: Time) {
        while let Some(Reverse((time, ..))) = self.events.peek() {
            if *time > end {
                break;
            }
            let Reverse((time, _, n, event)) = self.events.pop().unwrap();
            self.now = time;
            match event {
                Event::Step => {
                    if self.candidates[n].suspended_until <= self.now && self.candidates[n].alarm == self.now
                    {
                        self.resume(n);
                    }
                }
                Event::Arrives(request) => self.arrives(n, request),
                Event::Answered(request) => {
                    let simulated = &mut self.candidates[n];
                    if simulated.request != request {
                        continue;
                    }
                    let answer = self.requests[request as usize].1.clone().unwrap();
                    simulated.pending_responses.push((request, answer));
                    if simulated.suspended_until <= self.now {
                        self.resume(n);
                    } else {
                        self.seen.written_unheard += 1;
                    }
                }
                Event::Fault => self.fault(n),
            }
            self.check();
        }
        self.now = end;
    }

    fn arrives(&mut self, n: usize, request: u64) {
        let (ask, answer) = &mut self.requests[request as usize];
        let given = self.server.answer(ask);
        *answer = Some(given);
        match self.delay(n) {
            Some(delay) => self.at(self.now + delay, n, Event::Answered(request)),
            None => self.seen.written_unheard += 1,
        }
    }

    /// After a suspension, the candidate handles its responses either before or after it takes a step, as a scheduler may decide.
    fn resume(&mut self, n: usize) {
        let now = self.clock(n);
        if self.random.below(2) == 0 {
            self.step(n);
        }
        for (request, answer) in std::mem::take(&mut self.candidates[n].pending_responses) {
            // A step has dropped the request for a new one, and with it the response.
            if self.candidates[n].request != request {
                continue;
            }
            let (ask, sent) = (&self.requests[request as usize].0, self.sent[request as usize]);
            if !matches!(ask, LeaseRequest::Get)
                && matches!(&answer, LeaseResponse::Found { record, .. } if record.holder_identity == self.candidates[n].name)
            {
                self.candidates[n].renewed = Some(sent);
            }
            let lease_duration = self.lease_duration();
            let simulated = &mut self.candidates[n];
            match &answer {
                _ if !simulated.candidate.waits_for_response() => {}
                LeaseResponse::Found { .. } => (simulated.sees_lease, simulated.may_create) = (true, None),
                LeaseResponse::NotFound if simulated.sees_lease => {
                    (simulated.sees_lease, simulated.may_create) = (false, Some(self.now + lease_duration));
                }
                LeaseResponse::NotFound | LeaseResponse::Failed => {}
            }
            let before = simulated.candidate.leads(now);
            let token: u64 = match &answer {
                LeaseResponse::Found { version, .. } => version.parse().unwrap(),
                _ => 0,
            };
            simulated.candidate.on_response(answer, now);
            if !before && simulated.candidate.leads(now) {
                self.seen.terms += 1;
                assert_eq!(simulated.candidate.term_version(), Some(&*token.to_string()));
                assert!(token > self.token, "the token {token} of a term is not greater than {}", self.token);
                self.token = token;
            }
        }
        self.step(n);
    }

    fn check(&mut self) {
        let mut working = Vec::new();
        for n in 0..self.candidates.len() {
            let now = self.clock(n);
            let simulated = &mut self.candidates[n];
            simulated.candidate.check(now).unwrap();
            let leads = simulated.candidate.leads(now);
            assert!(
                !(simulated.over && leads),
                "a leadership that was over continues after {} ms",
                self.now / MS
            );
            if leads {
                // The work of a candidate may start as long as the candidate reports that it leads, so the candidate's renew deadline must not have
                // passed.
                let deadline =
                    simulated.renewed.map(|sent| sent + self.timing.renew_deadline.as_nanos() as Time);
                assert!(
                    deadline.is_some_and(|deadline| self.now < deadline),
                    "a reconcile may start after the renew deadline, at {} ms",
                    self.now / MS
                );
            }
            simulated.over |= simulated.led && !leads;
            simulated.led |= leads;
            if simulated.candidate.may_work(now) {
                working.push(simulated.name.clone());
            }
            let works = simulated.candidate.may_work(now);
            if works && !simulated.worked && simulated.candidate.leader() == Some(&simulated.name) {
                self.seen.takeovers += 1;
            }
            simulated.worked = works;
        }
        assert!(
            working.len() < 2,
            "the work of two candidates overlaps at {} ms: {working:?}",
            self.now / MS
        );
    }

    fn leader(&self) -> Option<usize> {
        (0..self.candidates.len()).find(|&n| self.candidates[n].candidate.leads(self.clock(n)))
    }

    /// Ends the faults: from now on messages are fast, and no candidate is suspended or killed.
    fn end_faults(&mut self) {
        self.calm = true;
        for n in 0..self.candidates.len() {
            self.candidates[n].suspended_until = 0;
            self.step_at(self.now, n);
        }
        // Messages that have not arrived yet are lost.
        let now = self.now;
        self.events.retain(|Reverse((time, _, _, event))| match event {
            Event::Arrives(_) | Event::Answered(_) => *time <= now,
            Event::Step | Event::Fault => true,
        });
    }
}

/// Returns periods that the rules allow.
fn any_timing(random: &mut Random) -> ElectionTiming {
    loop {
        let longer = random.below(2) as usize;
        let mut upto = |most: u64| Duration::from_millis(1 + random.below(most));
        let most = [3_000, 30_000][longer];
        let (lease, renew, retry) = (upto(most), upto(most), upto(5_000));
        if let Ok(timing) = ElectionTiming::new(lease, renew, retry) {
            let most = (lease - renew).as_millis() as u64;
            return timing.with_stop_grace(Duration::from_millis(random.below(most))).unwrap_or(timing);
        }
    }
}

pub(crate) fn seeds(cases: u64) -> impl Iterator<Item = u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let first = number("FLYBALL_SEED").or_else(|| number("FLYBALL_FIRST_SEED")).unwrap_or(1);
    first..first + number("FLYBALL_CASES").unwrap_or(cases)
}

#[test]
fn leaders_never_overlap_and_one_leads_after_the_faults() {
    let mut seen = Seen::default();
    for seed in seeds(1500) {
        eprintln!("repeat with FLYBALL_SEED={seed} FLYBALL_CASES=1");
        let mut world = World::new(seed);
        let length = 60 * SECOND + world.random.below(240 * SECOND);
        world.run_until(length);
        world.end_faults();

        // If the periods are too short for the latency of messages, a candidate cannot renew its lease in time.
        if world.timing.renew_deadline < world.timing.retry_period * 6 / 5 + Duration::from_millis(400) {
            continue;
        }
        // The bound on the time until a candidate leads is the sum of the timeout of an open request, a candidate's wait, the lease duration of the
        // last record, the stop grace, and the latency of eight messages: two reads and two writes, each with a request and a response.
        let rest = world.timing.retry_period.mul_f64(2.2);
        let request_deadline = world.timing.renew_deadline / 2;
        let lease = Duration::from_secs(world.timing.lease_duration.as_secs_f64().ceil() as u64);
        let bound = request_deadline + rest + lease + world.timing.stop_grace + Duration::from_millis(400);
        let bound = bound.as_nanos() as Time + 1;
        let calm = world.candidates.iter().map(|simulated| simulated.begins).fold(world.now, Time::max);
        world.run_until(calm + bound);
        let leader = world.leader().unwrap_or_else(|| panic!("no candidate leads after {} ms", bound / MS));
        for _ in 0..60 {
            world.run_until(world.now + SECOND);
            assert_eq!(world.leader(), Some(leader), "a leader without faults must stay the leader");
        }
        let now = world.seen;
        seen.terms += now.terms;
        seen.lost_answers += now.lost_answers;
        seen.written_unheard += now.written_unheard;
        seen.stood += now.stood;
        seen.died += now.died;
        seen.released += now.released;
        seen.takeovers += now.takeovers;
        seen.deleted += now.deleted;
        seen.deleted_under_a_leader += now.deleted_under_a_leader;
        seen.created_again += now.created_again;
    }
    if std::env::var("FLYBALL_CASES").is_ok() {
        return;
    }
    assert!(seen.terms > 1000 && seen.lost_answers > 1000 && seen.written_unheard > 1000, "{seen:?}");
    assert!(
        seen.stood > 1000 && seen.died > 1000 && seen.released > 100 && seen.takeovers > 1000,
        "{seen:?}"
    );
    assert!(seen.deleted > 500 && seen.deleted_under_a_leader > 300 && seen.created_again > 200, "{seen:?}");
}
