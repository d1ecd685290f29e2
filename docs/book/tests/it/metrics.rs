//! Checks that the table of queue metrics in the book has exactly the metrics of a scrape, with the same names and types.

use flyball_ops::PrometheusQueues;
use flyball_ops::prometheus_client::encoding::text::encode;
use flyball_ops::prometheus_client::registry::Registry;
use flyball_workqueue::Queue;

#[test]
fn every_metric_of_a_queue_is_in_the_book() {
    let queues = PrometheusQueues::new();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(queues.clone()));
    let _queue = Queue::<&str>::builder().capacity(1).metrics(queues.queue("q")).build();
    let mut scrape = String::new();
    encode(&mut scrape, &registry).unwrap();
    let published = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(|line| {
        let (name, kind) = line.split_once(' ').unwrap();
        let total = if kind == "counter" { "_total" } else { "" };
        format!("| `{name}{total}` | {kind} |")
    });
    let mut published: Vec<_> = published.collect();
    let page = include_str!("../../src/guides/metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `workqueue_"));
    let mut documented: Vec<_> =
        rows.map(|row| row.split_inclusive('|').take(3).collect::<String>()).collect();
    published.sort();
    documented.sort();
    assert_eq!(documented, published);
}
