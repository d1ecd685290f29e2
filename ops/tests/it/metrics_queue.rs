//! `MetricsQueue` with a recorder that stores all values in a map.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit, with_local_recorder,
};
use flyball_ops::MetricsQueue;
use flyball_ratelimit::Exponential;
use flyball_sync::ManualClock;
use flyball_workqueue::Queue;

#[derive(Clone, Default)]
struct MapRecorder {
    values: Arc<Mutex<BTreeMap<String, Vec<f64>>>>,
    units: Arc<Mutex<BTreeMap<String, Option<Unit>>>>,
}

struct Cell(MapRecorder, String);

impl Cell {
    fn change(&self, change: impl Fn(&mut Vec<f64>)) {
        change(self.0.values.lock().unwrap().entry(self.1.clone()).or_default());
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.change(|values| {
            let sum = values.pop().unwrap_or(0.0) + value as f64;
            values.push(sum);
        });
    }

    fn absolute(&self, _: u64) {
        panic!("not additive");
    }
}

impl GaugeFn for Cell {
    fn increment(&self, _: f64) {
        panic!("gauges must only be set");
    }

    fn decrement(&self, _: f64) {
        panic!("gauges must only be set");
    }

    fn set(&self, value: f64) {
        self.change(|values| *values = vec![value]);
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.change(|values| values.push(value));
    }
}

impl MapRecorder {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Cell(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }

    fn describe(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        assert!(help.ends_with('.'), "{name:?}: {help}");
        self.units.lock().unwrap().insert(name.into_inner().to_string(), unit);
    }

    fn get(&self, name: &str) -> Vec<f64> {
        self.values.lock().unwrap().get(name).cloned().unwrap_or_default()
    }

    /// For each series whose key starts with `name`, returns the rest of the key and the first value of the series.
    fn all(&self, name: &str) -> Vec<(String, f64)> {
        let values = self.values.lock().unwrap();
        let own =
            values.iter().filter_map(|(key, values)| Some((key.strip_prefix(name)?.to_owned(), values[0])));
        own.collect()
    }
}

impl Recorder for MapRecorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(key, unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(key, unit, description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(key, unit, description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}

#[test]
fn scrape_of_a_loaded_queue() {
    let (map, clock) = (MapRecorder::default(), ManualClock::new());
    let metrics = with_local_recorder(&map, || MetricsQueue::with_labels("q", [("team", "a")]).unwrap());
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(Exponential::new(Duration::from_secs(1)..=Duration::from_secs(8)))
        .capacity(4)
        .give_up_after(std::num::NonZeroU32::new(2).unwrap(), |_, _| {})
        .metrics(metrics.clone())
        .build();
    _ = queue.add_many(["a", "b", "a", "c"]);
    queue.add_after("d", Duration::from_secs(2)).unwrap();
    assert!(queue.add("e").is_err());
    clock.advance(Duration::from_secs(1));
    let stuck = queue.try_get().unwrap();
    queue.try_get().unwrap().retry();
    clock.advance(Duration::from_secs(3));
    queue.try_get().unwrap().succeed(); // c
    queue.try_get().unwrap().succeed(); // d: due at the same time as b, and added before it
    drop(queue.try_get().unwrap()); // b: given up
    queue.add("f").unwrap();
    clock.advance(Duration::from_secs(1));
    with_local_recorder(&map, || assert!(metrics.record()));
    let of = |name: &str| map.get(&format!("workqueue_{name}{{name=q,team=a}}"));
    for (name, values) in [
        ("adds_total", vec![6.0]), // a, b, c, f, and d and b by their deadlines
        ("retries_total", vec![2.0]),
        ("depth", vec![1.0]),
        ("waiting", vec![0.0]),
        ("leased", vec![1.0]),
        ("unfinished_work_seconds", vec![4.0]),
        ("longest_running_processor_seconds", vec![4.0]),
        ("oldest_ready_seconds", vec![1.0]),
        ("capacity_left", vec![2.0]),
        ("queue_duration_seconds", vec![1.0, 1.0, 4.0, 2.0, 2.0]),
        ("delay_latency_seconds", vec![2.0, 2.0]),
        ("work_duration_seconds", vec![0.0, 0.0, 0.0, 0.0]),
        ("failures_total", vec![2.0]),
        ("dead_letters_total", vec![1.0]),
        ("overdue_total", vec![]),
    ] {
        assert_eq!(of(name), values, "{name}");
    }
    assert_eq!(map.all("workqueue_refused_total"), [("{name=q,team=a,reason=full}".to_owned(), 1.0)]);
    let ended = [("dropped", 1.0), ("failed", 1.0), ("succeeded", 2.0)];
    let ended = ended.map(|(how, count)| (format!("{{name=q,team=a,outcome={how}}}"), count));
    assert_eq!(map.all("workqueue_leases_ended_total"), ended);
    drop(stuck);
}

/// Each metric is described. Its unit is seconds if and only if its name ends in `_seconds`.
#[test]
fn describes_every_metric_with_its_unit() {
    let map = MapRecorder::default();
    let metrics = with_local_recorder(&map, || MetricsQueue::new("q"));
    let queue = Queue::<&str>::builder().capacity(9).metrics(metrics.clone()).build();
    with_local_recorder(&map, || metrics.record());
    drop(queue);
    let units = map.units.lock().unwrap();
    assert_eq!(units.len(), 17, "{units:?}");
    for (name, unit) in &*units {
        assert_eq!(*unit == Some(Unit::Seconds), name.ends_with("_seconds"), "{name}");
    }
}

/// Even if two clones of a `MetricsQueue` call `record`, each increment is passed to the recorder only once. Once the queue is dropped, `record` sets
/// all gauges to zero and returns `false`.
#[test]
fn new_totals_are_recorded_once() {
    let (map, clock) = (MapRecorder::default(), ManualClock::new());
    let metrics = with_local_recorder(&map, || MetricsQueue::new("q"));
    assert!(!metrics.record(), "no queue yet");
    let queue = Queue::builder().timer(clock.timer()).metrics(metrics.clone()).build();
    queue.add("a").unwrap();
    assert!(metrics.record() && metrics.clone().record());
    assert_eq!(map.get("workqueue_adds_total{name=q}"), [1.0]);
    queue.add_after("b", Duration::from_nanos(9)).unwrap();
    assert!(metrics.record());
    assert_eq!(map.get("workqueue_retries_total{name=q}"), [1.0]);
    drop(queue);
    assert!(!metrics.record());
    assert_eq!(map.get("workqueue_adds_total{name=q}"), [1.0], "a counter must not decrease");
    assert_eq!(map.get("workqueue_depth{name=q}"), [0.0]);
    assert_eq!(map.get("workqueue_waiting{name=q}"), [0.0]);
}

/// Two queues with the same name report the sums of their values to the recorder, as in client-go.
#[test]
fn two_queues_of_one_name() {
    let (map, clock) = (MapRecorder::default(), ManualClock::new());
    let metrics = with_local_recorder(&map, || MetricsQueue::new("q"));
    let queue = || Queue::builder().timer(clock.timer()).metrics(metrics.clone()).build();
    let (old, new) = (queue(), queue());
    _ = old.add_many(["a", "b"]);
    new.add("a").unwrap();
    assert!(metrics.record());
    let adds = || map.get("workqueue_adds_total{name=q}");
    assert_eq!((adds(), map.get("workqueue_depth{name=q}")), (vec![3.0], vec![3.0]));
    drop(old);
    new.add("c").unwrap();
    assert!(metrics.record());
    assert_eq!((adds(), map.get("workqueue_depth{name=q}")), (vec![4.0], vec![2.0]));
}
