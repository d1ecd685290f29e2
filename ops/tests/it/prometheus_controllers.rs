//! Tests of `PrometheusControllers`, which compare whole scrapes, line by line.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use flyball_controller::{
    Action, BatchConfig, Controller, ControllerConfig, ControllerMetrics, FailureClass, ReconcileOutcome,
};
use flyball_ops::PrometheusControllers;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::time::sleep;

use crate::support::{Log, SECOND, panic_quietly, queue};

fn registered(prometheus: &PrometheusControllers) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(prometheus.clone()));
    registry
}

fn scrape(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

/// Returns the lines of a scrape without the help lines, and checks that each help text is a sentence.
fn lines(scrape: &str) -> Vec<&str> {
    let help = |line: &&str| line.starts_with("# HELP");
    for line in scrape.lines().filter(help) {
        assert!(line.ends_with('.') && line.split(' ').count() > 5, "{line}");
    }
    scrape.lines().filter(|line| !help(line)).collect()
}

fn has(registry: &Registry, line: &str) {
    let text = scrape(registry);
    assert!(lines(&text).contains(&line), "{line} is not in {text}");
}

#[tokio::test(start_paused = true)]
async fn scrape_of_a_busy_controller() {
    let prometheus = PrometheusControllers::with_buckets([2.0, 8.0]).unwrap();
    let registry = registered(&prometheus);
    assert_eq!(scrape(&registry), "# EOF\n", "there are no series without a controller");
    let (queue, scraped) = (queue(), Log::default());
    queue.add(1).unwrap();
    let (runs, again, noted) = (AtomicU32::new(0), queue.clone(), scraped.clone());
    Controller::new(queue)
        .with_config(ControllerConfig {
            workers: 2.into(),
            reconcile_timeout: Some(9 * SECOND),
            ..ControllerConfig::default()
        })
        .metrics(prometheus.controller("pods"))
        .classify(|failure| match failure.to_string().as_str() {
            "conflict" => FailureClass::Conflict,
            "hopeless" => FailureClass::Permanent,
            _ => FailureClass::Transient,
        })
        .on_give_up(move |key, _| drop(again.add(*key)))
        .graceful_shutdown_on(sleep(100 * SECOND))
        .run(move |_, _| {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            if run == 7 {
                noted.note(scrape(&registry));
            }
            async move {
                sleep((run + 1) * SECOND).await;
                match run {
                    0 => Err("no luck"),
                    1 => panic_quietly("boom"),
                    2 => Err("conflict"),
                    3 | 5 => Ok(Action::requeue_after(SECOND)),
                    4 => pending().await,
                    6 => Err("hopeless"),
                    _ => Ok(Action::await_change()),
                }
            }
        })
        .await
        .unwrap();
    let expected = "\
# TYPE controller_runtime_reconcile counter
controller_runtime_reconcile_total{controller=\"pods\",result=\"success\"} 0
controller_runtime_reconcile_total{controller=\"pods\",result=\"requeue_after\"} 2
controller_runtime_reconcile_total{controller=\"pods\",result=\"error\"} 5
# TYPE controller_runtime_reconcile_errors counter
controller_runtime_reconcile_errors_total{controller=\"pods\"} 5
# TYPE controller_runtime_terminal_reconcile_errors counter
controller_runtime_terminal_reconcile_errors_total{controller=\"pods\"} 1
# TYPE controller_runtime_reconcile_panics counter
controller_runtime_reconcile_panics_total{controller=\"pods\"} 1
# TYPE controller_runtime_reconcile_timeouts counter
controller_runtime_reconcile_timeouts_total{controller=\"pods\"} 1
# TYPE controller_runtime_reconcile_time_seconds histogram
# UNIT controller_runtime_reconcile_time_seconds seconds
controller_runtime_reconcile_time_seconds_sum{controller=\"pods\"} 32.0
controller_runtime_reconcile_time_seconds_count{controller=\"pods\"} 7
controller_runtime_reconcile_time_seconds_bucket{le=\"2.0\",controller=\"pods\"} 2
controller_runtime_reconcile_time_seconds_bucket{le=\"8.0\",controller=\"pods\"} 6
controller_runtime_reconcile_time_seconds_bucket{le=\"+Inf\",controller=\"pods\"} 7
# TYPE controller_runtime_max_concurrent_reconciles gauge
controller_runtime_max_concurrent_reconciles{controller=\"pods\"} 2
# TYPE controller_runtime_active_workers gauge
controller_runtime_active_workers{controller=\"pods\"} 1
# TYPE flyball_controller_workers gauge
flyball_controller_workers{controller=\"pods\"} 2
# TYPE flyball_controller_failures counter
flyball_controller_failures_total{controller=\"pods\",class=\"transient\"} 3
flyball_controller_failures_total{controller=\"pods\",class=\"conflict\"} 1
flyball_controller_failures_total{controller=\"pods\",class=\"permanent\"} 1
# TYPE flyball_controller_given_up counter
flyball_controller_given_up_total{controller=\"pods\",class=\"transient\"} 0
flyball_controller_given_up_total{controller=\"pods\",class=\"conflict\"} 0
flyball_controller_given_up_total{controller=\"pods\",class=\"permanent\"} 1
# TYPE flyball_controller_recoveries counter
flyball_controller_recoveries_total{controller=\"pods\"} 2
# TYPE flyball_controller_dropped counter
flyball_controller_dropped_total{controller=\"pods\"} 0
# TYPE flyball_controller_batches counter
flyball_controller_batches_total{controller=\"pods\"} 0
# EOF";
    let scraped = scraped.take();
    assert_eq!(lines(&scraped[0]), expected.lines().collect::<Vec<_>>());
    assert_eq!(scrape(&registered(&prometheus)), "# EOF\n", "the series must end with the controller");
}

/// Reconciles and batches that are dropped are counted. The counts for a name are kept as long as a controller with that name exists.
#[tokio::test(start_paused = true)]
async fn controllers_of_the_same_name_are_one_series() {
    let prometheus = PrometheusControllers::new();
    let registry = registered(&prometheus);
    let (queue, kept) = (queue(), prometheus.controller("pods"));
    queue.add(1).unwrap();
    let running = Controller::new(queue.clone())
        .with_config(ControllerConfig {
            workers: (1..=3).into(),
            shutdown_grace: SECOND,
            ..ControllerConfig::default()
        })
        .metrics(prometheus.controller("pods"))
        .graceful_shutdown_on(sleep(SECOND))
        .run(|_, _| pending::<Result<Action, String>>());
    let running = tokio::spawn(running);
    sleep(SECOND / 2).await;
    kept.max_workers(4);
    let unbounded = prometheus.controller("pods");
    unbounded.max_workers(usize::MAX);
    has(&registry, "controller_runtime_max_concurrent_reconciles{controller=\"pods\"} inf");
    drop(unbounded);
    has(&registry, "controller_runtime_max_concurrent_reconciles{controller=\"pods\"} 7");
    has(&registry, "controller_runtime_active_workers{controller=\"pods\"} 1");
    has(&registry, "flyball_controller_workers{controller=\"pods\"} 2");
    drop(running.await.unwrap());
    has(&registry, "controller_runtime_max_concurrent_reconciles{controller=\"pods\"} 4");
    for line in [
        "controller_runtime_active_workers{controller=\"pods\"} 0",
        "flyball_controller_workers{controller=\"pods\"} 0",
        "flyball_controller_dropped_total{controller=\"pods\"} 1",
    ] {
        has(&registry, line);
    }
    let other = crate::support::queue();
    _ = other.add_many([1, 2, 3]);
    other.shut_down();
    Controller::new(other)
        .metrics(prometheus.controller("pods"))
        .run_batches(BatchConfig::new(2), |keys, _| async move {
            Ok::<_, String>(keys.iter().map(|_| Ok(Action::await_change())).collect())
        })
        .await
        .unwrap();
    has(&registry, "flyball_controller_batches_total{controller=\"pods\"} 2");
    has(&registry, "controller_runtime_reconcile_total{controller=\"pods\",result=\"success\"} 3");
    kept.reconcile_started();
    kept.reconcile_ended(ReconcileOutcome::Succeeded, Duration::from_millis(10));
    has(&registry, "controller_runtime_reconcile_time_seconds_bucket{le=\"0.01\",controller=\"pods\"} 4");
    let nodes = prometheus.controller("nodes");
    let text = scrape(&registry);
    assert_eq!(
        text.matches("# HELP controller_runtime_active_workers ").count(),
        1,
        "each metric must be described once"
    );
    assert!(text.contains("controller_runtime_active_workers{controller=\"nodes\"} 0\n"));
    drop((kept, nodes));
    assert_eq!(scrape(&registry), "# EOF\n");
}

#[test]
fn bounds_of_buckets_have_to_rise() {
    for bad in [vec![], vec![1.0, 1.0], vec![2.0, 1.0], vec![f64::INFINITY], vec![f64::NAN]] {
        assert!(PrometheusControllers::with_buckets(bad).is_err());
    }
}
