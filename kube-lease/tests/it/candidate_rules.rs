//! Tests of the rules of a candidate, one rule per test: which requests it sends, which records it writes, and when.

use std::time::Duration;

use flyball_kube_lease::candidate::{
    Candidate, CandidateStep, ElectionTiming, LeaderElectionRecord, LeaseRequest, LeaseResponse, LossReason,
};
use flyball_sync::Nanos;
use jiff::Timestamp;

const SECOND: Duration = Duration::from_secs(1);

/// A candidate with the default periods, and its clocks.
struct Scripted {
    candidate: Candidate,
    now: Nanos,
    wall: Timestamp,
    versions: u32,
}

impl Scripted {
    fn new(identity: &str) -> Self {
        let candidate = Candidate::new(identity, ElectionTiming::default(), 7);
        // The candidate's monotonic clock does not start at zero.
        let wall = "2026-01-01T00:00:00Z".parse().unwrap();
        Self { candidate, now: Nanos::ZERO + 1_000 * SECOND, wall, versions: 0 }
    }

    fn step(&mut self) -> CandidateStep {
        self.candidate.check(self.now).unwrap();
        self.candidate.step(self.now, self.wall)
    }

    fn request(&mut self) -> LeaseRequest {
        match self.step() {
            CandidateStep::Request(ask) => ask,
            CandidateStep::Wait(until) => panic!("waits for {:?}", until.since(self.now)),
        }
    }

    /// Returns how long the candidate waits.
    fn waits(&mut self) -> Duration {
        match self.step() {
            CandidateStep::Wait(until) => until.since(self.now),
            CandidateStep::Request(ask) => panic!("requests {ask:?}"),
        }
    }

    /// Returns the record that the candidate writes next.
    fn expect_write(&mut self) -> LeaderElectionRecord {
        match self.request() {
            LeaseRequest::Create(record) | LeaseRequest::Update { record, .. } => record,
            LeaseRequest::Get => panic!("the candidate reads the Lease"),
        }
    }

    fn expect_get(&mut self) {
        assert_eq!(self.request(), LeaseRequest::Get);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn respond(&mut self, answer: LeaseResponse) {
        self.candidate.on_response(answer, self.now);
        self.candidate.check(self.now).unwrap();
    }

    /// Responds with `record` and a new version. The version also changes if a write changes only a label of the Lease.
    fn respond_record(&mut self, record: &LeaderElectionRecord) {
        self.versions += 1;
        self.respond(LeaseResponse::Found { record: record.clone(), version: self.versions.to_string() });
    }

    /// Returns a candidate that leads because it has created the Lease, and the record that it wrote.
    fn leading(identity: &str) -> (Self, LeaderElectionRecord) {
        let mut scripted = Self::new(identity);
        scripted.expect_get();
        scripted.respond(LeaseResponse::NotFound);
        let record = scripted.expect_write();
        scripted.respond_record(&record);
        assert!(scripted.candidate.leads(scripted.now));
        (scripted, record)
    }
}

/// Returns a record that another candidate has written.
fn held_by(holder: &str, seconds: i32) -> LeaderElectionRecord {
    LeaderElectionRecord {
        holder_identity: holder.into(),
        lease_duration_seconds: seconds,
        acquire_time: Some("2025-01-01T00:00:00Z".to_owned()),
        renew_time: Some("2025-06-01T00:00:00Z".to_owned()),
        leader_transitions: 3,
    }
}

#[test]
fn leads_immediately_after_a_restart_under_the_same_identity() {
    let mut scripted = Scripted::new("a");
    let before = held_by("a", 15);
    scripted.expect_get();
    scripted.respond_record(&before);
    let renewed = scripted.expect_write();
    assert_eq!(
        (&renewed.acquire_time, renewed.leader_transitions),
        (&before.acquire_time, 3),
        "the holder has not changed"
    );
    scripted.respond_record(&renewed);
    assert!(scripted.candidate.leads(scripted.now));
}

#[test]
fn a_new_holder_leads_since_now_and_adds_one() {
    let mut scripted = Scripted::new("a");
    scripted.expect_get();
    scripted.respond_record(&held_by("b", 0));
    let taken = scripted.expect_write();
    let now = Some("2026-01-01T00:00:00.000000Z".to_owned());
    assert_eq!((&taken.acquire_time, &taken.renew_time), (&now, &now));
    assert_eq!(
        (&*taken.holder_identity, taken.leader_transitions, taken.lease_duration_seconds),
        ("a", 4, 15)
    );
}

#[test]
fn acquires_a_free_lease_immediately() {
    let mut scripted = Scripted::new("a");
    scripted.expect_get();
    scripted.respond_record(&held_by("", 600));
    assert_eq!(scripted.expect_write().holder_identity, "a");
}

#[test]
fn reads_the_lease_exactly_when_it_expires() {
    let (mut scripted, kept) = (Scripted::new("a"), held_by("b", 7));
    let mut waited = Duration::ZERO;
    scripted.expect_get();
    // The response is slow. The candidate counts the lease duration from the arrival of the response, not from the time at which it sent the request.
    scripted.pass(SECOND);
    scripted.respond_record(&kept);
    while let CandidateStep::Wait(until) = scripted.step() {
        let wait = until.since(scripted.now);
        waited += wait;
        assert!(waited <= 7 * SECOND, "a new version with the same record must not count as a change");
        scripted.pass(wait);
        scripted.expect_get();
        scripted.respond_record(&kept);
    }
    assert_eq!(waited, 7 * SECOND);
}

#[test]
fn the_lease_duration_counts_from_the_last_observed_change() {
    let (mut scripted, mut kept) = (Scripted::new("a"), held_by("b", 3));
    for n in 0..20 {
        kept.renew_time = Some(format!("2025-06-01T00:00:{n:02}Z"));
        scripted.expect_get();
        scripted.respond_record(&kept);
        let wait = scripted.waits();
        assert!((2 * SECOND..=3 * SECOND).contains(&wait), "{wait:?}");
        scripted.pass(wait);
    }
}

#[test]
fn the_interval_of_reads_is_1_to_2_2_retry_periods_at_random() {
    let (mut scripted, kept) = (Scripted::new("a"), held_by("b", 100_000));
    let mut waits = Vec::new();
    for _ in 0..200 {
        scripted.expect_get();
        scripted.respond_record(&kept);
        waits.push(scripted.waits());
        scripted.pass(waits[waits.len() - 1]);
    }
    let (least, most) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
    assert!((2 * SECOND..SECOND * 22 / 10).contains(&least), "{least:?}");
    assert!((SECOND * 42 / 10..SECOND * 44 / 10).contains(&most), "{most:?}");
}

#[test]
fn a_leader_renews_each_retry_period_after_the_last_was_sent_and_each_after_a_failure() {
    let (mut scripted, mut record) = Scripted::leading("a");
    for _ in 0..5 {
        assert_eq!(scripted.waits(), 2 * SECOND);
        scripted.pass(2 * SECOND);
        record = scripted.expect_write();
        // The response is slow.
        scripted.pass(SECOND / 2);
        scripted.respond_record(&record);
        assert_eq!(
            scripted.candidate.leads_until(),
            Some(scripted.now + SECOND * 19 / 2),
            "the term must count from the time of sending"
        );
        scripted.pass(SECOND * 3 / 2);
        assert_eq!(scripted.expect_write().holder_identity, "a", "the renewal must not be late");
        scripted.respond_record(&record);
    }
    scripted.pass(2 * SECOND);
    scripted.expect_write();
    scripted.respond(LeaseResponse::Failed);
    scripted.expect_get();
    scripted.respond(LeaseResponse::Failed);
    assert_eq!(scripted.waits(), 2 * SECOND);
    assert_eq!(scripted.candidate.leader(), Some(&*record.holder_identity));
}

#[test]
fn wakes_at_the_deadline_of_the_term_during_a_request() {
    let (mut scripted, _) = Scripted::leading("a");
    let end = scripted.candidate.leads_until().unwrap();
    scripted.pass(9 * SECOND);
    scripted.expect_write();
    assert_eq!(
        scripted.waits(),
        SECOND,
        "the wait must end with the leadership, not with the request timeout"
    );
    scripted.pass(SECOND);
    assert_eq!(scripted.now, end);
    assert_eq!(scripted.waits(), SECOND * 5 / 2, "then the candidate waits for the end of its work");
    assert_eq!(scripted.candidate.lost(), Some(&LossReason::NotRenewed));
}

#[test]
fn a_lost_leadership_counts_the_time_of_its_work_from_the_deadline() {
    let (mut scripted, _) = Scripted::leading("a");
    // The candidate was suspended.
    scripted.pass(SECOND * 12);
    assert_eq!(scripted.waits(), SECOND / 2);
    assert!(scripted.candidate.may_work(scripted.now));
}

#[test]
fn keeps_its_observation_when_it_campaigns_again() {
    let (mut scripted, kept) = (Scripted::new("a"), held_by("b", 15));
    scripted.expect_get();
    scripted.respond_record(&kept);
    scripted.candidate.release(scripted.now);
    assert!(scripted.candidate.has_ended());
    scripted.pass(15 * SECOND);
    scripted.candidate.campaign();
    scripted.expect_get();
    scripted.respond_record(&kept);
    assert_eq!(
        scripted.expect_write().holder_identity,
        "a",
        "the record was unchanged for its lease duration"
    );
}

#[test]
fn a_failed_release_is_tried_again_a_retry_period_after_it_was_sent_and_three_times_in_all() {
    let (mut scripted, record) = Scripted::leading("a");
    scripted.candidate.release(scripted.now);
    assert_eq!(scripted.expect_write().holder_identity, "");
    scripted.respond(LeaseResponse::Failed);
    for _ in 0..2 {
        scripted.expect_get();
        scripted.respond_record(&record);
        assert_eq!(scripted.expect_write().holder_identity, "");
        assert!(!scripted.candidate.has_ended());
        scripted.pass(SECOND / 2);
        scripted.respond(LeaseResponse::Failed);
        assert_eq!(scripted.waits(), SECOND * 3 / 2);
        scripted.pass(SECOND * 3 / 2);
    }
    scripted.expect_get();
    scripted.respond(LeaseResponse::Failed);
    assert!(scripted.candidate.has_ended());
}

#[test]
fn a_release_waits_for_the_response_to_an_open_renewal() {
    for executed in [true, false] {
        let (mut scripted, record) = Scripted::leading("a");
        scripted.pass(2 * SECOND);
        let renewed = scripted.expect_write();
        assert_eq!(renewed.holder_identity, "a");
        scripted.pass(SECOND);
        scripted.candidate.release(scripted.now);
        assert_eq!(scripted.waits(), 4 * SECOND, "the renewal has half of the renew deadline");
        if executed {
            scripted.respond_record(&renewed);
        } else {
            scripted.respond(LeaseResponse::Failed);
            // The failure of the renewal is not one of the release, so the Lease is read immediately.
            scripted.expect_get();
            scripted.respond_record(&record);
        }
        assert_eq!(scripted.expect_write().holder_identity, "");
        scripted.respond_record(&held_by("", 1));
        assert!(scripted.candidate.has_ended());
    }
}

#[test]
fn a_time_that_is_no_timestamp_is_a_record_like_any_other() {
    // The last second of the year 9999 is a valid time of a Lease.
    let last = |fraction: u32| Some(format!("9999-12-31T23:59:59.{fraction:06}Z"));
    let (mut scripted, mut kept) = (Scripted::new("a"), held_by("b", 3));
    for n in 0..20 {
        kept.renew_time = last(n);
        scripted.expect_get();
        scripted.respond_record(&kept);
        let wait = scripted.waits();
        assert!((2 * SECOND..=3 * SECOND).contains(&wait), "{wait:?}: the record has changed");
        scripted.pass(wait);
    }
    let mut waited = Duration::ZERO;
    let taken = loop {
        match scripted.step() {
            CandidateStep::Wait(until) => {
                let wait = until.since(scripted.now);
                waited += wait;
                scripted.pass(wait);
            }
            CandidateStep::Request(LeaseRequest::Get) => scripted.respond_record(&kept),
            CandidateStep::Request(LeaseRequest::Create(record) | LeaseRequest::Update { record, .. }) => {
                break record;
            }
        }
    };
    assert!(waited <= 3 * SECOND, "{waited:?}: the record has not changed");
    assert_eq!(taken.holder_identity, "a");
    // Each renewal of its own record differs from all earlier ones.
    let mut own = held_by("a", 15);
    own.renew_time = last(0);
    scripted.respond(LeaseResponse::Failed);
    let wait = scripted.waits();
    scripted.pass(wait);
    scripted.expect_get();
    scripted.respond_record(&own);
    let mut times = vec![own.renew_time];
    for _ in 0..3 {
        let renewed = scripted.expect_write();
        scripted.respond_record(&renewed);
        times.push(renewed.renew_time);
        scripted.pass(2 * SECOND);
    }
    times.sort();
    times.dedup();
    assert_eq!(times.len(), 4, "{times:?}");
}

#[test]
fn a_deleted_or_foreign_lease_is_not_released() {
    let another = LeaseResponse::Found { record: held_by("b", 15), version: "2".into() };
    for found in [LeaseResponse::NotFound, another] {
        let (mut scripted, _) = Scripted::leading("a");
        scripted.candidate.release(scripted.now);
        scripted.expect_write();
        scripted.respond(LeaseResponse::Failed);
        scripted.expect_get();
        scripted.respond(found);
        assert!(scripted.candidate.has_ended());
        assert_eq!(scripted.step(), CandidateStep::Wait(Nanos::MAX));
    }
}

#[test]
fn a_response_after_the_deadline_makes_no_leader_and_ends_no_campaign() {
    let mut scripted = Scripted::new("a");
    scripted.expect_get();
    scripted.respond(LeaseResponse::NotFound);
    let record = scripted.expect_write();
    // The candidate was suspended; the lease that it wrote may have expired in the meantime.
    scripted.pass(10 * SECOND);
    scripted.respond_record(&record);
    assert!(!scripted.candidate.leads(scripted.now) && !scripted.candidate.may_work(scripted.now));
    assert_eq!(scripted.candidate.lost(), None, "a candidate that never led has lost nothing");
    let wait = scripted.waits();
    assert!((2 * SECOND..SECOND * 44 / 10).contains(&wait), "{wait:?}");
    scripted.pass(wait);
    scripted.expect_get();
    scripted.respond_record(&record);
    let renewed = scripted.expect_write();
    scripted.respond_record(&renewed);
    assert!(scripted.candidate.leads(scripted.now));
}

#[test]
fn a_write_that_was_answered_with_another_holder_makes_no_leader() {
    let mut scripted = Scripted::new("a");
    scripted.expect_get();
    scripted.respond(LeaseResponse::NotFound);
    scripted.expect_write();
    scripted.respond_record(&held_by("b", 15));
    assert!(!scripted.candidate.leads(scripted.now));
    assert_eq!(scripted.candidate.leader(), Some("b"));
}

#[test]
fn a_leader_whose_lease_is_missing_stops_immediately() {
    // The response to the read after a failed write, or to the write itself.
    for write_fails_first in [true, false] {
        let (mut scripted, _) = Scripted::leading("a");
        scripted.pass(2 * SECOND);
        scripted.expect_write();
        if write_fails_first {
            scripted.respond(LeaseResponse::Failed);
            scripted.expect_get();
        }
        scripted.respond(LeaseResponse::NotFound);
        assert!(!scripted.candidate.leads(scripted.now) && !scripted.candidate.may_work(scripted.now));
        assert_eq!(scripted.candidate.lost(), Some(&LossReason::Deleted));
        // It knows of the Lease, so it waits like every other candidate.
        scripted.candidate.campaign();
        scripted.expect_get();
        scripted.respond(LeaseResponse::NotFound);
        assert!(scripted.waits() > Duration::ZERO);
    }
}

/// Returns the time from the first response that reports the Lease as missing to the request that creates it.
fn time_to_create(scripted: &mut Scripted) -> Duration {
    scripted.expect_get();
    // The response is slow; the wait counts from its arrival.
    scripted.pass(SECOND);
    let first = scripted.now;
    loop {
        scripted.respond(LeaseResponse::NotFound);
        match scripted.step() {
            CandidateStep::Wait(until) => scripted.now = until,
            CandidateStep::Request(LeaseRequest::Create(_)) => return scripted.now.since(first),
            CandidateStep::Request(other) => panic!("requests {other:?}"),
        }
        scripted.expect_get();
    }
}

#[test]
fn a_candidate_that_has_read_the_lease_creates_a_missing_one_after_the_longer_lease_duration() {
    for (holder, seconds, wait) in [("b", 7, 15), ("b", 40, 40), ("", 1, 15)] {
        let mut scripted = Scripted::new("a");
        scripted.expect_get();
        scripted.respond_record(&held_by(holder, seconds));
        match scripted.step() {
            CandidateStep::Wait(until) => scripted.now = until,
            // The Lease is free; another candidate writes it first, and it is deleted.
            CandidateStep::Request(_) => {
                scripted.respond(LeaseResponse::Failed);
                let wait = scripted.waits();
                scripted.pass(wait);
            }
        }
        assert_eq!(time_to_create(&mut scripted), wait * SECOND, "{holder:?}, {seconds} s");
    }
}

#[test]
fn a_candidate_whose_request_to_create_the_lease_has_failed_waits_before_the_next() {
    let mut scripted = Scripted::new("a");
    scripted.expect_get();
    scripted.respond(LeaseResponse::NotFound);
    scripted.expect_write();
    // Another candidate has created the Lease, or the response is lost.
    scripted.respond(LeaseResponse::Failed);
    let wait = scripted.waits();
    scripted.pass(wait);
    assert_eq!(time_to_create(&mut scripted), 15 * SECOND);
    // Another candidate has created the Lease first, and it was deleted again: the wait starts again.
    scripted.respond(LeaseResponse::Failed);
    let wait = scripted.waits();
    scripted.pass(wait);
    assert_eq!(time_to_create(&mut scripted), 15 * SECOND);
}

#[test]
fn a_lease_that_reappears_is_waited_for_again_when_it_is_deleted_again() {
    let mut scripted = Scripted::new("a");
    scripted.expect_get();
    scripted.respond_record(&held_by("b", 15));
    let wait = scripted.waits();
    scripted.pass(wait);
    scripted.expect_get();
    scripted.respond(LeaseResponse::NotFound);
    assert!(scripted.candidate.creates_after().is_some());
    let wait = scripted.waits();
    scripted.pass(wait);
    scripted.expect_get();
    scripted.respond_record(&held_by("c", 15));
    assert_eq!(scripted.candidate.creates_after(), None);
    let wait = scripted.waits();
    scripted.pass(wait);
    assert_eq!(time_to_create(&mut scripted), 15 * SECOND);
}

#[test]
fn the_version_of_a_term_is_that_of_the_write_that_began_it() {
    let (mut scripted, record) = Scripted::leading("a");
    assert_eq!(scripted.candidate.term_version(), Some("1"));
    for _ in 0..3 {
        scripted.pass(2 * SECOND);
        scripted.expect_write();
        scripted.respond_record(&record);
        assert_eq!(scripted.candidate.term_version(), Some("1"), "a renewal must not change it");
    }
    // The leadership is lost, and the next term begins with the fifth write.
    scripted.pass(10 * SECOND);
    scripted.step();
    scripted.candidate.campaign();
    scripted.expect_get();
    scripted.respond_record(&record);
    scripted.expect_write();
    scripted.respond_record(&record);
    assert_eq!(scripted.candidate.term_version(), Some("6"));
}
