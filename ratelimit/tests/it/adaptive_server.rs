//! An adaptive limit in front of a server whose latency rises with its load: the limit stays near the knee of the latency curve, is
//! fair, backs off and recovers.

use std::time::Duration;

use drivers::limiter::loaded_server::{Client, Phase, Second, WORK, run};
use flyball_ratelimit::AimdLimit;

/// Three times the latency of an idle server.
const BOUND: Duration = Duration::from_millis(150);

fn client(start_at: u32, from: u64) -> Client {
    Client { limit: AimdLimit::new(1..=1_000, BOUND).initial_limit(start_at), from }
}

fn steady(workers: usize, until: u64) -> Phase {
    Phase { until, workers, down: false }
}

fn mean(seconds: &[Second], what: impl Fn(&Second) -> f64) -> f64 {
    seconds.iter().map(what).sum::<f64>() / seconds.len() as f64
}

/// The server has twenty workers, and a request takes 50 ms: with 20 or more requests in flight the server gives 400 answers per second, and with
/// 60 in flight the latency is 150 ms.
#[test]
fn converges_to_the_knee_from_below_and_from_above() {
    for start_at in [1, 20, 1_000] {
        let report = run(vec![client(start_at, 0)], &[steady(20, 120)]);
        let late = &report[0][60..];
        let limits = late.iter().map(|second| second.limit);
        let (least, most) = (limits.clone().min().unwrap(), limits.max().unwrap());
        assert!(least >= 20, "from {start_at}: the limit fell to {least}, too low to keep the server busy");
        assert!(most <= 70, "from {start_at}: the limit rose to {most}, so requests wait too long");
        let answered = mean(late, |second| second.answered.into());
        assert!(answered > 395.0, "from {start_at}: {answered} answers of 400 a second");
        let slowest = late.iter().map(|second| second.median).max().unwrap();
        assert!(slowest < BOUND * 5 / 4, "from {start_at}: {slowest:?}");
    }
}

#[test]
fn the_same_load_without_the_limiter_queues_up() {
    let fixed = Client { limit: AimdLimit::new(1_000..=1_000, BOUND), from: 0 };
    let report = run(vec![fixed], &[steady(20, 60)]);
    let median = report[0][59].median;
    assert!(median > Duration::from_secs(2), "without a limit the median is only {median:?}");
}

#[test]
fn a_client_that_starts_late_gets_its_share() {
    for (first, second) in [(1, 1), (60, 1), (1, 300)] {
        let report = run(vec![client(first, 0), client(second, 60)], &[steady(20, 360)]);
        let share = |client: usize| mean(&report[client][180..], |second| second.answered.into());
        let (one, two) = (share(0), share(1));
        assert!((0.8..1.25).contains(&(one / two)), "{first} and {second}: {one} and {two} a second");
        assert!(one + two > 390.0, "{one} and {two} of 400");
    }
}

#[test]
fn follows_a_server_that_becomes_slower_and_faster() {
    let phases = [steady(20, 60), steady(5, 120), steady(40, 240)];
    let report = &run(vec![client(20, 0)], &phases)[0];
    let slower = mean(&report[90..120], |second| second.limit.into());
    assert!(
        (5.0..18.0).contains(&slower),
        "five workers answer 15 requests in 150 ms, but the limit is {slower}"
    );
    assert!(report[110].median < BOUND * 3 / 2, "{:?}", report[110].median);
    let faster = mean(&report[200..240], |second| second.answered.into());
    assert!(faster > 780.0, "{faster} of 800");
}

#[test]
fn it_backs_off_when_all_fails_and_recovers() {
    let down = Phase { until: 70, workers: 20, down: true };
    let report = &run(vec![client(40, 0)], &[steady(20, 60), down, steady(20, 120)])[0];
    assert!(report[59].limit >= 30, "{}", report[59].limit);
    assert_eq!(report[69].limit, 1, "the limit did not fall to its minimum");
    assert!(report[60].refused > report[69].refused && report[69].answered == 0);
    let recovered = report[70..].iter().position(|second| second.answered >= 390).expect("it recovers");
    assert!(recovered <= 15, "recovered only after {recovered} s");
}

#[test]
fn a_limit_that_is_not_used_does_not_grow() {
    // The server has far more workers than the limit can use.
    let limited = Client { limit: AimdLimit::new(1..=8, BOUND), from: 0 };
    let report = &run(vec![limited], &[steady(100, 30)])[0];
    assert_eq!(report[29].limit, 8);
    assert!(report[29].median < WORK * 5 / 4);
}
