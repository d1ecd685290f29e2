//! Tests of `PrometheusQueues`, which compare whole scrapes, line by line.

use std::time::Duration;

use flyball_ops::{InvalidBuckets, PrometheusQueues};
use flyball_ratelimit::Exponential;
use flyball_sync::ManualClock;
use flyball_workqueue::Queue;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn scrape(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

/// Returns the lines of a scrape without the help lines.
fn lines(scrape: &str) -> Vec<&str> {
    scrape.lines().filter(|line| !line.starts_with("# HELP")).collect()
}

fn registered(prometheus: &PrometheusQueues) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(prometheus.clone()));
    registry
}

#[test]
fn scrape_of_a_loaded_queue() {
    let clock = ManualClock::new();
    let prometheus = PrometheusQueues::with_buckets([1.0, 10.0]).unwrap();
    let registry = registered(&prometheus);
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(Exponential::new(secs(1)..=secs(8)))
        .capacity(4)
        .give_up_after(std::num::NonZeroU32::new(2).unwrap(), |_, _| {})
        .metrics(prometheus.queue("q"))
        .build();
    // Adds three keys and a duplicate of one of them, a delayed key, and a key that exceeds the capacity.
    _ = queue.add_many(["a", "b", "a", "c"]);
    queue.add_after("d", secs(2)).unwrap();
    assert!(queue.add("e").is_err());
    clock.advance(secs(1));
    let stuck = queue.try_get().unwrap(); // a, after 1 s
    queue.try_get().unwrap().retry(); // b, after 1 s; comes back at 2 s
    queue.add("a").unwrap(); // while it runs
    clock.advance(secs(11));
    queue.try_get().unwrap().succeed(); // c, after 12 s
    drop(queue.try_get().unwrap()); // d, 10 s after its deadline: it was added first; comes back at 13 s
    let expected = "\
# TYPE workqueue_depth gauge
workqueue_depth{name=\"q\"} 2
# TYPE workqueue_adds counter
workqueue_adds_total{name=\"q\"} 6
# TYPE workqueue_queue_duration_seconds histogram
# UNIT workqueue_queue_duration_seconds seconds
workqueue_queue_duration_seconds_sum{name=\"q\"} 24.0
workqueue_queue_duration_seconds_count{name=\"q\"} 4
workqueue_queue_duration_seconds_bucket{le=\"1.0\",name=\"q\"} 2
workqueue_queue_duration_seconds_bucket{le=\"10.0\",name=\"q\"} 3
workqueue_queue_duration_seconds_bucket{le=\"+Inf\",name=\"q\"} 4
# TYPE workqueue_work_duration_seconds histogram
# UNIT workqueue_work_duration_seconds seconds
workqueue_work_duration_seconds_sum{name=\"q\"} 0.0
workqueue_work_duration_seconds_count{name=\"q\"} 3
workqueue_work_duration_seconds_bucket{le=\"1.0\",name=\"q\"} 3
workqueue_work_duration_seconds_bucket{le=\"10.0\",name=\"q\"} 3
workqueue_work_duration_seconds_bucket{le=\"+Inf\",name=\"q\"} 3
# TYPE workqueue_unfinished_work_seconds gauge
# UNIT workqueue_unfinished_work_seconds seconds
workqueue_unfinished_work_seconds{name=\"q\"} 11.0
# TYPE workqueue_longest_running_processor_seconds gauge
# UNIT workqueue_longest_running_processor_seconds seconds
workqueue_longest_running_processor_seconds{name=\"q\"} 11.0
# TYPE workqueue_retries counter
workqueue_retries_total{name=\"q\"} 3
# TYPE workqueue_waiting gauge
workqueue_waiting{name=\"q\"} 1
# TYPE workqueue_leased gauge
workqueue_leased{name=\"q\"} 1
# TYPE workqueue_oldest_ready_seconds gauge
# UNIT workqueue_oldest_ready_seconds seconds
workqueue_oldest_ready_seconds{name=\"q\"} 10.0
# TYPE workqueue_capacity_left gauge
workqueue_capacity_left{name=\"q\"} 1
# TYPE workqueue_delay_latency_seconds histogram
# UNIT workqueue_delay_latency_seconds seconds
workqueue_delay_latency_seconds_sum{name=\"q\"} 10.0
workqueue_delay_latency_seconds_count{name=\"q\"} 1
workqueue_delay_latency_seconds_bucket{le=\"1.0\",name=\"q\"} 0
workqueue_delay_latency_seconds_bucket{le=\"10.0\",name=\"q\"} 1
workqueue_delay_latency_seconds_bucket{le=\"+Inf\",name=\"q\"} 1
# TYPE workqueue_failures counter
workqueue_failures_total{name=\"q\"} 2
# TYPE workqueue_dead_letters counter
workqueue_dead_letters_total{name=\"q\"} 0
# TYPE workqueue_refused counter
workqueue_refused_total{name=\"q\",reason=\"shut_down\"} 0
workqueue_refused_total{name=\"q\",reason=\"full\"} 1
workqueue_refused_total{name=\"q\",reason=\"exhausted\"} 0
# TYPE workqueue_leases_ended counter
workqueue_leases_ended_total{name=\"q\",outcome=\"done\"} 0
workqueue_leases_ended_total{name=\"q\",outcome=\"succeeded\"} 1
workqueue_leases_ended_total{name=\"q\",outcome=\"requeued\"} 0
workqueue_leases_ended_total{name=\"q\",outcome=\"failed\"} 1
workqueue_leases_ended_total{name=\"q\",outcome=\"dropped\"} 1
# TYPE workqueue_overdue counter
workqueue_overdue_total{name=\"q\"} 0
# EOF";
    let first = scrape(&registry);
    assert_eq!(lines(&first), expected.lines().collect::<Vec<_>>());
    for line in first.lines().filter(|line| line.starts_with("# HELP")) {
        assert!(line.ends_with('.') && line.split(' ').count() > 4, "{line}");
    }

    // A scrape changes no value. A drain is visible in scrapes while it runs. The series end when the queue is dropped.
    assert_eq!(scrape(&registry), first);
    queue.shut_down();
    assert!(queue.add("late").is_err());
    clock.advance(secs(9));
    let draining = scrape(&registry);
    for line in [
        "workqueue_unfinished_work_seconds{name=\"q\"} 20.0",
        "workqueue_longest_running_processor_seconds{name=\"q\"} 20.0",
        "workqueue_refused_total{name=\"q\",reason=\"shut_down\"} 1",
        "workqueue_depth{name=\"q\"} 2",
    ] {
        assert!(lines(&draining).contains(&line), "{line} is not in {draining}");
    }
    stuck.done();
    while let Ok(lease) = queue.try_get() {
        lease.done();
    }
    let drained = scrape(&registry);
    for line in [
        "workqueue_unfinished_work_seconds{name=\"q\"} 0.0",
        "workqueue_depth{name=\"q\"} 0",
        "workqueue_leased{name=\"q\"} 0",
        "workqueue_work_duration_seconds_sum{name=\"q\"} 20.0",
        "workqueue_adds_total{name=\"q\"} 6",
    ] {
        assert!(lines(&drained).contains(&line), "{line} is not in {drained}");
    }
    drop(queue);
    assert_eq!(scrape(&registry), "# EOF\n");
}

/// Several queues share each metric family, which is described once. If one queue is dropped, the series of the other queues stay.
#[test]
fn several_queues_in_one_family() {
    let prometheus = PrometheusQueues::new();
    let registry = registered(&prometheus);
    let unbuilt = prometheus.queue("unbuilt");
    assert_eq!(scrape(&registry), "# EOF\n", "no queue, no series");
    let pods = Queue::builder().metrics(prometheus.queue("pods")).build();
    let labelled = prometheus.queue_with_labels("nodes", [("controller", "a \"b\"\n")]).unwrap();
    let nodes = Queue::builder().capacity(2).metrics(labelled).build();
    pods.add("a").unwrap();
    nodes.add(1).unwrap();
    let both = scrape(&registry);
    let of = |text: &str, name: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains(name)).map(str::to_owned).collect()
    };
    let depth = of(&both, "workqueue_depth");
    assert!(depth[0].starts_with("# HELP workqueue_depth "));
    assert_eq!(
        depth[1..],
        [
            "# TYPE workqueue_depth gauge",
            "workqueue_depth{name=\"pods\"} 1",
            "workqueue_depth{name=\"nodes\",controller=\"a \\\"b\\\"\\n\"} 1",
        ]
    );
    assert_eq!(of(&both, "workqueue_capacity_left{").len(), 1, "only one has a capacity");
    drop(nodes);
    let one = scrape(&registry);
    assert_eq!(of(&one, "workqueue_depth{"), ["workqueue_depth{name=\"pods\"} 1"]);
    assert!(of(&one, "workqueue_capacity_left").is_empty(), "a family without series must not be described");
    drop((pods, unbuilt));
    assert_eq!(scrape(&registry), "# EOF\n");
}

/// A controller that starts while its predecessor is still stopping must not create a second series with the same name.
#[test]
fn queues_with_the_same_labels_are_one_series() {
    let prometheus = PrometheusQueues::new();
    let registry = registered(&prometheus);
    let queue = || Queue::builder().metrics(prometheus.queue("q")).build();
    let (old, new) = (queue(), queue());
    _ = old.add_many(["a", "b"]);
    new.add("a").unwrap();
    new.try_get().unwrap().done();
    let has =
        |line: &str| assert!(lines(&scrape(&registry)).contains(&line), "{line}: {}", scrape(&registry));
    has("workqueue_adds_total{name=\"q\"} 3");
    has("workqueue_depth{name=\"q\"} 2");
    drop(old);
    has("workqueue_adds_total{name=\"q\"} 3");
    has("workqueue_depth{name=\"q\"} 0");
    has("workqueue_work_duration_seconds_count{name=\"q\"} 1");
}

#[test]
fn with_buckets_sets_the_bounds() {
    let bounds = |bounds: &[f64]| PrometheusQueues::with_buckets(bounds.iter().copied()).map(drop);
    for bad in [&[][..], &[2.0, 1.0], &[1.0, 1.0], &[1.0, f64::INFINITY], &[f64::NAN]] {
        assert_eq!(bounds(bad), Err(InvalidBuckets), "{bad:?}");
    }
    assert_eq!(InvalidBuckets.to_string(), "bounds of buckets must rise and be finite");
    let prometheus = PrometheusQueues::new();
    let registry = registered(&prometheus);
    let queue = Queue::<&str>::builder().metrics(prometheus.queue("q")).build();
    let text = scrape(&registry);
    let bounds: Vec<&str> =
        text.lines().filter(|line| line.starts_with("workqueue_work_duration_seconds_bucket")).collect();
    assert_eq!(bounds.len(), 29);
    assert!(bounds[0].contains("le=\"1e-6\"") || bounds[0].contains("le=\"0.000001\""), "{}", bounds[0]);
    assert!(bounds[27].contains("le=\"1000.0\"") && bounds[28].contains("le=\"+Inf\""));
    drop(queue);
}

/// The registry's labels are added to the labels of each queue's series.
#[test]
fn labels_of_the_registry() {
    let prometheus = PrometheusQueues::new();
    let mut registry = Registry::with_labels([("cluster".into(), "c1".into())].into_iter());
    registry.register_collector(Box::new(prometheus.clone()));
    let queue = Queue::<&str>::builder().metrics(prometheus.queue("q")).build();
    assert!(lines(&scrape(&registry)).contains(&"workqueue_depth{cluster=\"c1\",name=\"q\"} 0"));
    drop(queue);
}
