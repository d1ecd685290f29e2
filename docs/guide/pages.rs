//! Every Rust example of the guide and of the root README is compiled here by `cargo test`, and run. Two are only compiled
//! (`no_run`), since they need a cluster: those of `kube.md` and `production.md`.

/// The root README.
#[doc = include_str!("../../README.md")]
pub mod readme {}

/// The queue alone.
#[doc = include_str!("src/queue.md")]
pub mod queue {}

/// Who runs first: priorities and groups.
#[doc = include_str!("src/orders.md")]
pub mod orders {}

/// A thread pool without a runtime.
#[doc = include_str!("src/threads.md")]
pub mod threads {}

/// Workers on tokio.
#[doc = include_str!("src/tokio.md")]
pub mod tokio {}

/// Your queue or ours.
#[doc = include_str!("src/swap.md")]
pub mod swap {}

/// Seeing what a queue does.
#[doc = include_str!("src/metrics.md")]
pub mod metrics {}

/// The limiter alone.
#[doc = include_str!("src/limiter.md")]
pub mod limiter {}

/// A tower layer.
#[doc = include_str!("src/tower.md")]
pub mod tower {}

/// The cache alone.
#[doc = include_str!("src/cache.md")]
pub mod cache {}

/// Together.
#[doc = include_str!("src/together.md")]
pub mod together {}

/// Testing a reconciler.
#[doc = include_str!("src/testing.md")]
pub mod testing {}

/// A controller of Kubernetes.
#[doc = include_str!("src/kube.md")]
pub mod kube {}

/// Running in production.
#[doc = include_str!("src/production.md")]
pub mod production {}

/// kube-runtime's reconcile functions; a program of its own, in `docs/examples/kube-reconcile`.
#[doc = include_str!("src/kube-reconcile.md")]
pub mod kube_reconcile {}

#[cfg(test)]
mod tests {
    use flyball_ops::PrometheusQueues;
    use flyball_ops::prometheus_client::encoding::text::encode;
    use flyball_ops::prometheus_client::registry::Registry;
    use flyball_workqueue::Queue;

    /// The table of the guide has every metric there is, by name and type, and no other.
    #[test]
    fn every_metric_is_in_the_guide() {
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
        let page = include_str!("src/metrics.md");
        let rows = page.lines().filter(|line| line.starts_with("| `workqueue_"));
        let mut told: Vec<_> = rows.map(|row| row.split_inclusive('|').take(3).collect::<String>()).collect();
        published.sort();
        told.sort();
        assert_eq!(told, published);
    }
}
