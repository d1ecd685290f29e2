//! The rules of a candidate, one per test: its requests, the records that it writes, and the times of both.

use std::time::Duration;

use flyball_kube_lease::candidate::{
    Candidate, CandidateStep, ElectionTiming, LeaderElectionRecord, LeaseRequest, LeaseResponse, LossReason,
};
use flyball_sync::Nanos;
use jiff::Timestamp;

const SECOND: Duration = Duration::from_secs(1);

/// A candidate with the default periods, and its clocks.
struct Play {
    candidate: Candidate,
    now: Nanos,
    wall: Timestamp,
    versions: u32,
}

impl Play {
    fn new(identity: &str) -> Self {
        let candidate = Candidate::new(identity, ElectionTiming::default(), 7);
        // Its monotonic clock does not start at zero.
        let wall = "2026-01-01T00:00:00Z".parse().unwrap();
        Self { candidate, now: Nanos::ZERO + 1_000 * SECOND, wall, versions: 0 }
    }

    fn step(&mut self) -> CandidateStep {
        self.candidate.check(self.now).unwrap();
        self.candidate.step(self.now, self.wall)
    }

    fn asks(&mut self) -> LeaseRequest {
        match self.step() {
            CandidateStep::Request(ask) => ask,
            CandidateStep::Wait(until) => panic!("waits for {:?}", until.since(self.now)),
        }
    }

    /// Returns how long the candidate waits.
    fn waits(&mut self) -> Duration {
        match self.step() {
            CandidateStep::Wait(until) => until.since(self.now),
            CandidateStep::Request(ask) => panic!("asks {ask:?}"),
        }
    }

    /// Returns the record that the candidate writes next.
    fn writes(&mut self) -> LeaderElectionRecord {
        match self.asks() {
            LeaseRequest::Create(record) | LeaseRequest::Update { record, .. } => record,
            LeaseRequest::Get => panic!("the candidate reads the Lease"),
        }
    }

    fn looks(&mut self) {
        assert_eq!(self.asks(), LeaseRequest::Get);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn hears(&mut self, answer: LeaseResponse) {
        self.candidate.on_response(answer, self.now);
        self.candidate.check(self.now).unwrap();
    }

    /// Delivers a record under a new version, as after a write that may have changed only a label.
    fn hears_of(&mut self, record: &LeaderElectionRecord) {
        self.versions += 1;
        self.hears(LeaseResponse::Found { record: record.clone(), version: self.versions.to_string() });
    }

    /// Returns a candidate that leads by a Lease that it has created.
    fn leading(identity: &str) -> (Self, LeaderElectionRecord) {
        let mut play = Self::new(identity);
        play.looks();
        play.hears(LeaseResponse::NotFound);
        let record = play.writes();
        play.hears_of(&record);
        assert!(play.candidate.leads(play.now));
        (play, record)
    }
}

/// Returns a record that another candidate has written.
fn held_by(holder: &str, seconds: i32) -> LeaderElectionRecord {
    LeaderElectionRecord {
        holder_identity: holder.into(),
        lease_duration_seconds: seconds,
        acquire_time: Some("2025-01-01T00:00:00Z".parse().unwrap()),
        renew_time: Some("2025-06-01T00:00:00Z".parse().unwrap()),
        leader_transitions: 3,
    }
}

#[test]
fn after_a_restart_under_its_name_it_goes_on_at_once() {
    let mut play = Play::new("a");
    let before = held_by("a", 15);
    play.looks();
    play.hears_of(&before);
    let renewed = play.writes();
    assert_eq!(
        (&renewed.acquire_time, renewed.leader_transitions),
        (&before.acquire_time, 3),
        "the holder has not changed"
    );
    play.hears_of(&renewed);
    assert!(play.candidate.leads(play.now));
}

#[test]
fn a_new_holder_leads_since_now_and_adds_one() {
    let mut play = Play::new("a");
    play.looks();
    play.hears_of(&held_by("b", 0));
    let taken = play.writes();
    assert_eq!((taken.acquire_time, taken.renew_time), (Some(play.wall), Some(play.wall)));
    assert_eq!(
        (&*taken.holder_identity, taken.leader_transitions, taken.lease_duration_seconds),
        ("a", 4, 15)
    );
}

#[test]
fn what_nobody_holds_is_taken_at_once_however_long_it_says() {
    let mut play = Play::new("a");
    play.looks();
    play.hears_of(&held_by("", 600));
    assert_eq!(play.writes().holder_identity, "a");
}

#[test]
fn it_looks_when_the_lease_has_run_out_and_not_a_moment_later() {
    let (mut play, kept) = (Play::new("a"), held_by("b", 7));
    let mut waited = Duration::ZERO;
    play.looks();
    // The response is slow: the record counts as seen when the response arrives, not when the request was sent.
    play.pass(SECOND);
    play.hears_of(&kept);
    while let CandidateStep::Wait(until) = play.step() {
        let wait = until.since(play.now);
        waited += wait;
        assert!(waited <= 7 * SECOND, "a new version with the same record must not count as a change");
        play.pass(wait);
        play.looks();
        play.hears_of(&kept);
    }
    assert_eq!(waited, 7 * SECOND);
}

#[test]
fn as_long_as_the_record_says_it_counts_from_the_last_change() {
    let (mut play, mut kept) = (Play::new("a"), held_by("b", 3));
    for n in 0..20 {
        kept.renew_time = Some("2025-06-01T00:00:00Z".parse::<Timestamp>().unwrap() + n * SECOND);
        play.looks();
        play.hears_of(&kept);
        let wait = play.waits();
        assert!((2 * SECOND..=3 * SECOND).contains(&wait), "{wait:?}");
        play.pass(wait);
    }
}

#[test]
fn between_two_looks_are_one_to_two_and_a_fifth_retry_periods_by_chance() {
    let (mut play, kept) = (Play::new("a"), held_by("b", 100_000));
    let mut waits = Vec::new();
    for _ in 0..200 {
        play.looks();
        play.hears_of(&kept);
        waits.push(play.waits());
        play.pass(waits[waits.len() - 1]);
    }
    let (least, most) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
    assert!((2 * SECOND..SECOND * 22 / 10).contains(&least), "{least:?}");
    assert!((SECOND * 42 / 10..SECOND * 44 / 10).contains(&most), "{most:?}");
}

#[test]
fn a_leader_renews_each_retry_period_after_the_last_was_sent_and_each_after_a_failure() {
    let (mut play, mut record) = Play::leading("a");
    for _ in 0..5 {
        assert_eq!(play.waits(), 2 * SECOND);
        play.pass(2 * SECOND);
        record = play.writes();
        // A slow response.
        play.pass(SECOND / 2);
        play.hears_of(&record);
        assert_eq!(
            play.candidate.leads_until(),
            Some(play.now + SECOND * 19 / 2),
            "the term must count from the time of sending"
        );
        play.pass(SECOND * 3 / 2);
        assert_eq!(play.writes().holder_identity, "a", "the renewal must not be late");
        play.hears_of(&record);
    }
    play.pass(2 * SECOND);
    play.writes();
    play.hears(LeaseResponse::Failed);
    play.looks();
    play.hears(LeaseResponse::Failed);
    assert_eq!(play.waits(), 2 * SECOND);
    assert_eq!(play.candidate.leader(), Some(&*record.holder_identity));
}

#[test]
fn it_wakes_when_its_leadership_is_over_though_a_request_may_take_longer() {
    let (mut play, _) = Play::leading("a");
    let end = play.candidate.leads_until().unwrap();
    play.pass(9 * SECOND);
    play.writes();
    assert_eq!(play.waits(), SECOND, "the wait must end with the leadership, not with the request timeout");
    play.pass(SECOND);
    assert_eq!(play.now, end);
    assert_eq!(play.waits(), SECOND * 5 / 2, "then the candidate waits for the end of its work");
    assert_eq!(play.candidate.lost(), Some(&LossReason::NotRenewed));
}

#[test]
fn a_lost_leadership_counts_the_time_of_its_work_from_the_deadline() {
    let (mut play, _) = Play::leading("a");
    // The candidate was suspended.
    play.pass(SECOND * 12);
    assert_eq!(play.waits(), SECOND / 2);
    assert!(play.candidate.may_work(play.now));
}

#[test]
fn what_it_has_seen_counts_when_it_campaigns_again() {
    let (mut play, kept) = (Play::new("a"), held_by("b", 15));
    play.looks();
    play.hears_of(&kept);
    play.candidate.release(play.now);
    assert!(play.candidate.has_ended());
    play.pass(15 * SECOND);
    play.candidate.campaign();
    play.looks();
    play.hears_of(&kept);
    assert_eq!(play.writes().holder_identity, "a", "the record was unchanged for its lease duration");
}

#[test]
fn giving_away_is_tried_three_times_and_no_more() {
    let (mut play, record) = Play::leading("a");
    play.candidate.release(play.now);
    assert_eq!(play.writes().holder_identity, "");
    play.hears(LeaseResponse::Failed);
    for _ in 0..2 {
        play.looks();
        play.hears_of(&record);
        assert_eq!(play.writes().holder_identity, "");
        assert!(!play.candidate.has_ended());
        play.hears(LeaseResponse::Failed);
    }
    play.looks();
    play.hears(LeaseResponse::Failed);
    assert!(play.candidate.has_ended());
}

#[test]
fn what_is_gone_or_another_has_is_not_given_away() {
    let another = LeaseResponse::Found { record: held_by("b", 15), version: "2".into() };
    for found in [LeaseResponse::NotFound, another] {
        let (mut play, _) = Play::leading("a");
        play.candidate.release(play.now);
        play.writes();
        play.hears(LeaseResponse::Failed);
        play.looks();
        play.hears(found);
        assert!(play.candidate.has_ended());
        assert_eq!(play.step(), CandidateStep::Wait(Nanos::MAX));
    }
}

#[test]
fn an_answer_after_the_deadline_makes_no_leader_and_ends_no_campaign() {
    let mut play = Play::new("a");
    play.looks();
    play.hears(LeaseResponse::NotFound);
    let record = play.writes();
    // The candidate was suspended; the lease that it wrote may have expired in the meantime.
    play.pass(10 * SECOND);
    play.hears_of(&record);
    assert!(!play.candidate.leads(play.now) && !play.candidate.may_work(play.now));
    assert_eq!(play.candidate.lost(), None, "a candidate that never led has lost nothing");
    let wait = play.waits();
    assert!((2 * SECOND..SECOND * 44 / 10).contains(&wait), "{wait:?}");
    play.pass(wait);
    play.looks();
    play.hears_of(&record);
    let renewed = play.writes();
    play.hears_of(&renewed);
    assert!(play.candidate.leads(play.now));
}

#[test]
fn a_write_that_was_answered_with_another_holder_makes_no_leader() {
    let mut play = Play::new("a");
    play.looks();
    play.hears(LeaseResponse::NotFound);
    play.writes();
    play.hears_of(&held_by("b", 15));
    assert!(!play.candidate.leads(play.now));
    assert_eq!(play.candidate.leader(), Some("b"));
}
