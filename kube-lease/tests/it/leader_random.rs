//! Random lives of several candidates of an election: requests and answers that are lost or late, whether or not the write happened; candidates that
//! stand still, die and come back; wall clocks that jump. Each has a monotonic clock of its own, with an origin of its own.
//!
//! Two things have to hold: never do two work at once, and once the faults stop somebody leads soon and stays.

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

/// A Lease, and the API server that keeps it.
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

struct Life {
    candidate: Candidate,
    name: String,
    /// What its monotonic clock shows when the world begins.
    origin: Time,
    /// What its wall clock shows then, in seconds.
    wall: i64,
    /// It shows that for ever.
    frozen: bool,
    /// Which of its requests is the open one; and which life this is.
    request: u64,
    /// It stands still until then.
    stands: Time,
    /// Nothing reaches it, and nothing leaves it, until then.
    cut: Time,
    /// What it heard while it stood still, and of which request.
    heard: Vec<(u64, LeaseResponse)>,
    /// When the last renewal was sent that it knows of to have succeeded.
    renewed: Option<Time>,
    worked: bool,
    /// It has led, and does so no more, since it has begun to campaign.
    led: bool,
    over: bool,
    /// Its next step; others that were planned before are void.
    alarm: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Step,
    /// A request arrives at the server.
    Arrives(u64),
    /// An answer arrives at the candidate.
    Answered(u64),
    Fault,
}

struct World {
    random: Random,
    now: Time,
    server: Server,
    lives: Vec<Life>,
    events: BinaryHeap<Reverse<(Time, u64, usize, Event)>>,
    number: u64,
    /// What was asked, and the answer on its way.
    requests: Vec<(LeaseRequest, Option<LeaseResponse>)>,
    /// When each was sent.
    sent: Vec<Time>,
    calm: bool,
    timing: ElectionTiming,
    seen: Seen,
}

/// What has happened: a simulation in which nothing does proves nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    terms: u64,
    lost_answers: u64,
    written_unheard: u64,
    stood: u64,
    died: u64,
    released: u64,
    takeovers: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let timing = match random.below(3) {
            0 => ElectionTiming::default(),
            // As near to the edge as the rules allow.
            1 => ElectionTiming::default().with_stop_grace(Duration::from_millis(4999)).unwrap(),
            _ => any_timing(&mut random),
        };
        let mut world = Self {
            random,
            now: 0,
            server: Server::default(),
            lives: Vec::new(),
            events: BinaryHeap::new(),
            number: 0,
            requests: Vec::new(),
            sent: Vec::new(),
            calm: false,
            timing,
            seen: Seen::default(),
        };
        let count = 2 + world.random.below(3);
        for n in 0..count as usize {
            let life = world.life(n, format!("candidate-{n}"));
            world.lives.push(life);
            let begins = world.random.below(5 * SECOND);
            world.step_at(begins, n);
            world.at(begins, n, Event::Fault);
        }
        world
    }

    fn life(&mut self, n: usize, name: String) -> Life {
        let seed = self.random.next();
        Life {
            candidate: Candidate::new(name.clone(), self.timing, seed),
            name,
            // Time does not go back when a process dies, but its clock may begin anew.
            origin: self.random.below(1000) * SECOND,
            wall: 1_700_000_000 + n as i64 * 7,
            frozen: self.random.below(4) == 0,
            request: u64::MAX,
            stands: 0,
            cut: 0,
            heard: Vec::new(),
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
        self.lives[n].alarm = time;
        self.at(time, n, Event::Step);
    }

    fn clock(&self, n: usize) -> Nanos {
        Nanos::new(self.lives[n].origin + self.now)
    }

    fn step(&mut self, n: usize) {
        let now = self.clock(n);
        loop {
            let life = &mut self.lives[n];
            let elapsed = if life.frozen { 0 } else { i64::try_from(self.now / 1000).unwrap() };
            let wall = jiff::Timestamp::from_microsecond(life.wall * 1_000_000 + elapsed).unwrap();
            let step = life.candidate.step(now, wall);
            let over = life.candidate.has_ended()
                || life.candidate.lost().is_some() && !life.candidate.may_work(now);
            match step {
                CandidateStep::Request(ask) => {
                    let request = self.requests.len() as u64;
                    self.requests.push((ask, None));
                    self.sent.push(self.now);
                    self.lives[n].request = request;
                    if let Some(delay) = self.delay(n) {
                        self.at(self.now + delay, n, Event::Arrives(request));
                    }
                }
                CandidateStep::Wait(_) if over => {
                    life.candidate.campaign();
                    (life.led, life.over) = (false, false);
                    // Whoever has given it away lets others try.
                    if self.random.below(2) == 0 {
                        let pause = self.random.below(3 * SECOND);
                        self.step_at(self.now + pause, n);
                        return;
                    }
                }
                CandidateStep::Wait(until) => {
                    if until < Nanos::MAX {
                        let origin = self.lives[n].origin;
                        self.step_at(until.get() - origin, n);
                    }
                    return;
                }
            }
        }
    }

    /// How long a message takes, if it arrives at all.
    fn delay(&mut self, n: usize) -> Option<Time> {
        if self.calm {
            return Some(1 + self.random.below(50 * MS));
        }
        if self.now < self.lives[n].cut {
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
        match self.random.below(7) {
            0 => {
                self.lives[n].wall += self.random.below(3600) as i64 - 600;
            }
            1 => {
                self.seen.stood += 1;
                self.lives[n].stands = self.now + self.random.below(30 * SECOND);
                let until = self.lives[n].stands;
                self.step_at(until, n);
            }
            2 => {
                // It dies; another begins, or the same again under its name. What it has sent is still under way.
                self.seen.died += 1;
                let name = match self.random.below(2) {
                    0 => self.lives[n].name.clone(),
                    _ => format!("{}'", self.lives[n].name),
                };
                self.lives[n] = self.life(n, name);
                let begins = self.now + self.random.below(10 * SECOND);
                self.step_at(begins, n);
            }
            3 => self.lives[n].cut = self.now + self.random.below(40 * SECOND),
            // Its work has ended, or it was told to stop before it led.
            4 if self.lives[n].candidate.leads(now) == self.lives[n].candidate.may_work(now)
                && self.lives[n].stands <= self.now =>
            {
                self.seen.released += 1;
                self.lives[n].candidate.release(now);
                self.step_at(self.now, n);
            }
            _ => {}
        }
        let next = self.now + self.random.below(20 * SECOND);
        self.at(next, n, Event::Fault);
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
                    if self.lives[n].stands <= self.now && self.lives[n].alarm == self.now {
                        self.wakes(n);
                    }
                }
                Event::Arrives(request) => self.arrives(n, request),
                Event::Answered(request) => {
                    let life = &mut self.lives[n];
                    if life.request != request {
                        continue;
                    }
                    let answer = self.requests[request as usize].1.clone().unwrap();
                    life.heard.push((request, answer));
                    if life.stands <= self.now {
                        self.wakes(n);
                    } else {
                        self.seen.written_unheard += 1;
                    }
                }
                Event::Fault => self.fault(n),
            }
            self.judge();
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

    /// Whether it hears or acts first after it stood still is up to its scheduler.
    fn wakes(&mut self, n: usize) {
        let now = self.clock(n);
        if self.random.below(2) == 0 {
            self.step(n);
        }
        for (request, answer) in std::mem::take(&mut self.lives[n].heard) {
            let (ask, sent) = (&self.requests[request as usize].0, self.sent[request as usize]);
            if !matches!(ask, LeaseRequest::Get)
                && matches!(&answer, LeaseResponse::Found { record, .. } if record.holder_identity == self.lives[n].name)
            {
                self.lives[n].renewed = Some(sent);
            }
            let before = self.lives[n].candidate.leads(now);
            self.lives[n].candidate.on_response(answer, now);
            if !before && self.lives[n].candidate.leads(now) {
                self.seen.terms += 1;
            }
        }
        self.step(n);
    }

    fn judge(&mut self) {
        let mut working = Vec::new();
        for n in 0..self.lives.len() {
            let now = self.clock(n);
            let life = &mut self.lives[n];
            life.candidate.check(now).unwrap();
            let leads = life.candidate.leads(now);
            assert!(!(life.over && leads), "a leadership that was over is not, after {} ms", self.now / MS);
            if leads {
                // Only a candidate that leads begins anything.
                let deadline = life.renewed.map(|sent| sent + self.timing.renew_deadline.as_nanos() as Time);
                assert!(
                    deadline.is_some_and(|deadline| self.now < deadline),
                    "a reconcile may begin after the renew deadline, after {} ms",
                    self.now / MS
                );
            }
            life.over |= life.led && !leads;
            life.led |= leads;
            if life.candidate.may_work(now) {
                working.push(life.name.clone());
            }
            let works = life.candidate.may_work(now);
            if works && !life.worked && life.candidate.leader() == Some(&life.name) {
                self.seen.takeovers += 1;
            }
            life.worked = works;
        }
        assert!(working.len() < 2, "two work at once, after {} ms: {working:?}", self.now / MS);
    }

    fn leader(&self) -> Option<usize> {
        (0..self.lives.len()).find(|&n| self.lives[n].candidate.leads(self.clock(n)))
    }

    /// From now on the network is quick and nobody dies.
    fn calm_down(&mut self) {
        self.calm = true;
        for n in 0..self.lives.len() {
            self.lives[n].stands = 0;
            self.step_at(self.now, n);
        }
        // What has not arrived yet never will.
        let now = self.now;
        self.events.retain(|Reverse((time, _, _, event))| match event {
            Event::Arrives(_) | Event::Answered(_) => *time <= now,
            Event::Step | Event::Fault => true,
        });
    }
}

/// Periods that the rules allow.
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
    let first = number("FLYBALL_SEED").unwrap_or(1);
    first..first + number("FLYBALL_CASES").unwrap_or(cases)
}

#[test]
fn never_do_two_work_at_once_and_once_faults_stop_somebody_leads_and_stays() {
    let mut seen = Seen::default();
    for seed in seeds(1500) {
        eprintln!("repeat with FLYBALL_SEED={seed} FLYBALL_CASES=1");
        let mut world = World::new(seed);
        let length = 60 * SECOND + world.random.below(240 * SECOND);
        world.run_until(length);
        world.calm_down();

        // Periods shorter than what messages take cannot be kept.
        if world.timing.renew_deadline < world.timing.retry_period * 6 / 5 + Duration::from_millis(400) {
            continue;
        }
        // An open request is given up, a candidate rests, it sees the last record, which runs out; and two messages each way for a look and a write,
        // twice.
        let rest = world.timing.retry_period.mul_f64(2.2);
        let request_deadline = world.timing.renew_deadline / 2;
        let lease = Duration::from_secs(world.timing.lease_duration.as_secs_f64().ceil() as u64);
        let bound = request_deadline + rest + lease + world.timing.stop_grace + Duration::from_millis(400);
        let bound = bound.as_nanos() as Time + 1;
        let calm = world.now;
        world.run_until(calm + bound);
        let leader = world.leader().unwrap_or_else(|| panic!("nobody leads after {} ms", bound / MS));
        for _ in 0..60 {
            world.run_until(world.now + SECOND);
            assert_eq!(world.leader(), Some(leader), "a leader that is not disturbed stays");
        }
        let now = world.seen;
        seen.terms += now.terms;
        seen.lost_answers += now.lost_answers;
        seen.written_unheard += now.written_unheard;
        seen.stood += now.stood;
        seen.died += now.died;
        seen.released += now.released;
        seen.takeovers += now.takeovers;
    }
    if std::env::var("FLYBALL_CASES").is_ok() {
        return;
    }
    assert!(seen.terms > 1000 && seen.lost_answers > 1000 && seen.written_unheard > 1000, "{seen:?}");
    assert!(
        seen.stood > 1000 && seen.died > 1000 && seen.released > 100 && seen.takeovers > 1000,
        "{seen:?}"
    );
}
