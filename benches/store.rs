//! Measures the store: 100 000 objects with two indexes.
//!
//! `cargo bench -p benches --bench store`

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use flyball_informer_cache::{Index, NamespacedName, Schema, Store, Version, Writer};

const OBJECTS: u64 = 100_000;

#[derive(Clone)]
struct Pod {
    name: NamespacedName,
    version: u64,
    node: Arc<str>,
    owner: Arc<str>,
}

const PODS: Schema<NamespacedName, Pod> =
    Schema::new(|pod: &Pod| pod.name.clone(), |pod| Version::new(pod.version));
static BY_NODE: Index<Pod, Arc<str>> = Index::new("node", |pod| pod.node.clone());
static BY_OWNER: Index<Pod, Arc<str>> = Index::new("owner", |pod| pod.owner.clone());

/// The pods are spread evenly over 1000 nodes (100 pods each) and over 10 000 owners (ten pods each).
fn pod(number: u64, version: u64) -> Pod {
    Pod {
        name: format!("namespace-{}/deployment-{number:06}", number % 50).parse().unwrap(),
        version,
        node: format!("node-{}", number % 1_000).into(),
        owner: format!("replicaset-{}", number % 10_000).into(),
    }
}

fn pods(version: u64) -> Vec<Pod> {
    (0..OBJECTS).map(|number| pod(number, version)).collect()
}

fn empty() -> Writer<NamespacedName, Pod> {
    Store::builder(PODS).index(&BY_NODE).index(&BY_OWNER).seed(1).build().unwrap()
}

fn store(criterion: &mut Criterion) {
    let mut full = empty();
    full.replace(pods(1), Version::new(1));
    let all = pods(1);
    let mut version = 1;
    // Visits the objects in an order in which the CPU's caches and prefetcher are of little use.
    let mut next = 0;
    let mut pick = move || {
        next = (next + 61_803) % OBJECTS;
        next as usize
    };

    let mut group = criterion.benchmark_group("store-get");
    group.bench_function("plain", |bencher| bencher.iter(|| full.get(black_box(&all[pick()].name))));
    group.finish();

    let mut group = criterion.benchmark_group("store-update");
    let mut newer = |pick: &mut dyn FnMut() -> usize| {
        version += 1;
        Pod { version, ..all[pick()].clone() }
    };
    group.bench_function("plain", |bencher| {
        bencher.iter_batched(|| newer(&mut pick), |pod| full.upsert(pod), BatchSize::SmallInput);
    });
    group.bench_function("a snapshot held and renewed every 100", |bencher| {
        let mut writes = 0;
        let mut held = full.snapshot();
        bencher.iter_batched(
            || newer(&mut pick),
            |pod| {
                writes += 1;
                if writes % 100 == 0 {
                    held = full.snapshot();
                }
                full.upsert(pod)
            },
            BatchSize::SmallInput,
        );
        drop(held);
    });
    group.bench_function("one subscription behind", |bencher| {
        let mut changes = full.subscribe();
        while changes.try_next().is_some() {}
        bencher.iter_batched(|| newer(&mut pick), |pod| full.upsert(pod), BatchSize::SmallInput);
    });
    group.finish();

    let mut group = criterion.benchmark_group("store-add");
    group.sample_size(10);
    group.throughput(criterion::Throughput::Elements(OBJECTS));
    group.bench_function("plain", |bencher| {
        bencher.iter_batched(
            || (empty(), pods(1)),
            |(mut store, pods)| {
                for pod in pods {
                    store.upsert(pod);
                }
                store
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();

    let mut group = criterion.benchmark_group("store-by-index");
    group.bench_function("plain", |bencher| bencher.iter(|| full.by_index(&BY_NODE, black_box("node-77"))));
    group.bench_function("in a snapshot", |bencher| {
        let view = full.snapshot();
        let versions = |node| view.by_index(&BY_NODE, node).unwrap().map(|pod| pod.version).sum::<u64>();
        bencher.iter(|| versions(black_box("node-77")));
    });
    group.finish();

    let mut group = criterion.benchmark_group("store-list");
    group.bench_function("a snapshot", |bencher| bencher.iter(|| full.snapshot()));
    group.bench_function("a snapshot and all objects", |bencher| {
        bencher.iter(|| full.snapshot().objects().map(|pod| pod.version).max());
    });
    group.finish();

    let mut group = criterion.benchmark_group("store-replace");
    group.sample_size(10);
    let mut list = 1_000_000_000;
    group.bench_function("plain", |bencher| {
        bencher.iter_batched(
            || {
                list += 1;
                pods(list)
            },
            |pods| full.replace(pods, Version::new(1)),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("unchanged", |bencher| {
        full.replace(pods(1), Version::new(1));
        bencher.iter_batched(|| pods(1), |pods| full.replace(pods, Version::new(1)), BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, store);
criterion_main!(benches);
