//! Runs the same program with kube-runtime's and with flyball's `Controller`, in memory and on virtual time. The tests check that every setting that
//! the program makes has exactly its documented effect.
//!
//! kube-runtime rounds each delay up to the next millisecond, and then waits for a timer that has a resolution of one millisecond (D9). So each of
//! its delays is one or two milliseconds longer than flyball's.

mod engine;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use flyball_kube::Config;
use flyball_kube_testing::{ApiServer, RequestMatcher};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::core::Status;
use kube::runtime::controller::Action;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use self::engine::{BOTH, Engine, Program, Ran, map, secret, server};
use crate::log_capture::Lines;
use crate::world::Refused;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// Asserts that both lists have the same number of attempts. The times of the n-th attempt may differ by at most n × 3 ms.
fn assert_same_times(kube: &[u64], ours: &[u64]) {
    assert_eq!(kube.len(), ours.len(), "kube-runtime: {kube:?}, ours: {ours:?}");
    for (number, (kube, ours)) in kube.iter().zip(ours).enumerate() {
        let allowed = 3 * (number as u64 + 1);
        assert!(kube.abs_diff(*ours) <= allowed, "attempt {number}: {kube} and {ours}");
    }
}

async fn on_both(program: &Program, server: impl Fn() -> ApiServer, time: Duration) -> [Ran; 2] {
    let [kube, ours] = BOTH;
    [program.run(kube, &server(), time).await, program.run(ours, &server(), time).await]
}

fn one() -> ApiServer {
    server(["a".to_owned()])
}

fn conflict() -> Refused {
    Refused::status(409, 0)
}

/// The reconcile returns an error until 240 s have passed.
#[tokio::test(start_paused = true)]
async fn retries_after_the_delay_of_the_error_policy() {
    for error in [|| Refused(None), conflict, || Refused::status(429, 30), || Refused::status(503, 0)] {
        let reconcile = move |ready: Instant| async move {
            if Instant::now() < ready { Err(error()) } else { Ok(Action::await_change()) }
        };
        let mut times = Vec::new();
        for engine in BOTH {
            let ready = Instant::now() + 240 * SECOND;
            let program = Program::new(move |_| reconcile(ready), |_| Action::requeue(2 * SECOND));
            let ran = program.run(engine, &one(), 600 * SECOND).await;
            assert_eq!((ran.successes(), ran.ended), (1, None), "{engine:?}");
            times.push(ran.of("a"));
        }
        assert_same_times(&times[0], &times[1]);
        let exactly: Vec<u64> = (0..=120).map(|attempt| attempt * 2_000).collect();
        assert_eq!(times[1], exactly);
    }
}

#[tokio::test(start_paused = true)]
async fn a_requeue_after_zero_takes_place_after_two_milliseconds() {
    for (delay, fails) in [(Duration::ZERO, true), (Duration::ZERO, false), (Duration::from_nanos(1), false)]
    {
        let left = |engine| {
            let left = Arc::new(Mutex::new(100));
            let reconcile = move |_| {
                let mut left = left.lock();
                *left -= 1;
                std::future::ready(match (*left > 0, fails) {
                    (false, _) => Ok(Action::await_change()),
                    (true, false) => Ok(Action::requeue(delay)),
                    (true, true) => Err(Refused(None)),
                })
            };
            (engine, Program::new(reconcile, move |_| Action::requeue(delay)))
        };
        let mut times = Vec::new();
        for (engine, program) in BOTH.map(left) {
            let ran = program.run(engine, &one(), 10 * SECOND).await;
            assert_eq!(ran.runs.len(), 100, "{engine:?}");
            times.push(ran.of("a"));
        }
        assert_same_times(&times[0], &times[1]);
        assert_eq!(times[1], (0..100).map(|attempt| 2 * attempt).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_change_if_the_error_policy_returns_none() {
    let program = Program::new(async |_| Err(conflict()), |_| Action::await_change());
    let [kube, ours] = on_both(&program, one, 600 * SECOND).await;
    assert_same_times(&kube.of("a"), &ours.of("a"));
    assert_eq!(ours.of("a"), [0]);
}

/// A separate task changes the object twenty times in 400 ms, and each reconcile during that time ends in a conflict. Returns the time of the first
/// reconcile without a conflict.
async fn after_a_burst_of_conflicts(engine: Engine, config: Config) -> u64 {
    let (server, over) = (one(), Instant::now() + 400 * MILLI);
    let reconcile = move |_| async move {
        if Instant::now() < over { Err(conflict()) } else { Ok(Action::await_change()) }
    };
    let program = Program::new(reconcile, |_| Action::requeue(SECOND));
    let writer = server.clone();
    tokio::spawn(async move {
        for write in 0..20 {
            let mut map = map("a");
            map.annotations_mut().insert("write".to_owned(), write.to_string());
            writer.put(&map);
            sleep(20 * MILLI).await;
        }
    });
    let ran = program.run_with(engine, &server, 600 * SECOND, config).await;
    assert_eq!(ran.successes(), 1);
    ran.runs.last().unwrap().1
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_conflicts_stalls_no_object() {
    for engine in BOTH {
        let reconciled = after_a_burst_of_conflicts(engine, Config::default()).await;
        assert!(reconciled <= 1_400, "{engine:?}: after {reconciled} ms");
    }
    let config = Config::default().conflict_backoff(10 * MILLI..=300 * SECOND);
    let reconciled = after_a_burst_of_conflicts(Engine::Flyball, config).await;
    assert!(reconciled <= 1_000, "with a conflict backoff: after {reconciled} ms");
}

/// The reconciles of two hundred objects take ten minutes each; while they run, an object with a quick reconcile is created.
#[tokio::test(start_paused = true)]
async fn a_quick_object_does_not_wait_for_200_slow_ones() {
    let reconcile = async |map: Arc<ConfigMap>| {
        if map.name_any() != "quick" {
            sleep(600 * SECOND).await;
        }
        Ok(Action::await_change())
    };
    let program = Program::new(reconcile, |_| unreachable!());
    for engine in BOTH {
        let server = server((0..200).map(|number| format!("slow-{number}")));
        let putting = server.clone();
        tokio::spawn(async move {
            sleep(SECOND).await;
            putting.put(&map("quick"));
        });
        let ran = program.run(engine, &server, 1_500 * SECOND).await;
        assert!(ran.of("quick")[0] <= 1_010, "{engine:?}: {:?}", ran.of("quick"));
        assert_eq!(ran.successes(), 201);
    }
}

/// By default, Kubernetes kills a pod that has not ended after thirty seconds.
#[tokio::test(start_paused = true)]
async fn a_shutdown_finishes_what_is_in_flight_and_leaves_what_is_queued() {
    let reconcile = async |_| {
        sleep(SECOND).await;
        Ok(Action::await_change())
    };
    let mut program = Program::new(reconcile, |_| unreachable!());
    program.concurrency = Some(1);
    program.shutdown_after = Some(4_500 * MILLI);
    let objects = || server((0..600).map(|number| number.to_string()));
    let [kube, ours] = on_both(&program, objects, 1_000 * SECOND).await;
    for ran in [&kube, &ours] {
        assert_eq!((ran.runs.len(), ran.successes()), (5, 5));
    }
    assert_same_times(&[kube.ended.unwrap()], &[ours.ended.unwrap()]);
    assert_eq!(ours.ended, Some(5_000));
}

fn forbid_secrets(server: &ApiServer, times: u32) {
    let forbidden = Status::failure("secrets is forbidden", "Forbidden").with_code(403);
    server.fail_next(RequestMatcher::any().resource::<Secret>(), times, forbidden);
}

fn three() -> ApiServer {
    server(["a", "b", "c"].map(str::to_owned))
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_owned_kind_blocks_no_other_watch() {
    let mut program = Program::new(async |_| Ok(Action::await_change()), |_| unreachable!());
    program.owns_secrets = true;
    let forbidden = || {
        let server = three();
        forbid_secrets(&server, u32::MAX);
        server
    };
    let [kube, ours] = on_both(&program, forbidden, 60 * SECOND).await;
    for ran in [&kube, &ours] {
        assert_eq!(ran.runs.iter().filter(|(_, at)| *at < 10_000).count(), 3, "{ran:?}");
        assert!(ran.results.contains(&"!!".to_owned()), "the stream must report the failure: {ran:?}");
    }
    assert_eq!(kube.runs.len(), ours.runs.len());
}

#[tokio::test(start_paused = true)]
async fn an_owned_kind_that_is_allowed_later_catches_up() {
    let mut program = Program::new(async |_| Ok(Action::await_change()), |_| unreachable!());
    program.owns_secrets = true;
    let forbidden = || {
        let server = three();
        let owner = server.put(&map("b"));
        server.put(&secret("of-b", &owner));
        forbid_secrets(&server, 5);
        server
    };
    let [kube, ours] = on_both(&program, forbidden, 300 * SECOND).await;
    for ran in [&kube, &ours] {
        assert_eq!([ran.of("a").len(), ran.of("b").len(), ran.of("c").len()], [1, 2, 1], "{ran:?}");
    }
}

/// Uses the log filter that a program on kube-runtime may have: `kube=warn`.
#[tokio::test(start_paused = true)]
async fn a_forbidden_kind_is_a_warning_under_the_same_filter() {
    let mut program = Program::new(async |_| Ok(Action::await_change()), |_| unreachable!());
    program.owns_secrets = true;
    for engine in BOTH {
        let lines = Lines::of(|metadata| {
            metadata.target().starts_with("kube") && *metadata.level() <= tracing::Level::WARN
        });
        let _default = tracing::subscriber::set_default(lines.clone());
        let server = three();
        forbid_secrets(&server, u32::MAX);
        program.run(engine, &server, 3 * SECOND).await;
        assert!(!lines.with("secrets is forbidden").is_empty(), "{engine:?}: {:?}", lines.all());
    }
}
