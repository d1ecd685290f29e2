//! Token buckets, and delays of failed keys: compares flyball's limiters with a naive port of client-go's limiters (a mutex around a
//! map, and floats).
//! Rows are named as in `RESULTS.md`: `limit-default` counts failures of 10 000 keys in the default limiter of controllers;
//! `limit-bucket` takes a token and passes the time as an argument. Keys are `Arc<str>` of 30 bytes, as in every bench.
//!
//! `cargo bench -p benches --bench limit`

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use benches::naive_limiter::{NaiveBucket, NaiveDefault, NaiveExponential};
use criterion::{Criterion, criterion_group, criterion_main};
use flyball_ratelimit::{Exponential, Limiter, Policy, Quota, TokenBucket, controller_default};
use flyball_sync::Nanos;

const KEYS: usize = 10_000;
const BASE: Duration = Duration::from_millis(5);
const CAP: Duration = Duration::from_secs(1_000);

fn keys() -> Vec<Arc<str>> {
    (0..KEYS).map(|key| format!("namespace-0000/object-{key:08}").into()).collect()
}

/// Returns a closure that calls `step` with the next key, round-robin.
fn over_keys<R>(step: impl Fn(&Arc<str>) -> R) -> impl FnMut() -> R {
    let keys = keys();
    let mut next = 0;
    move || {
        next = (next + 1) % KEYS;
        step(&keys[next])
    }
}

fn exponential(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("limit-exponential");
    let ours = Limiter::new(Exponential::new(BASE..=CAP));
    group.bench_function("flyball", |bencher| bencher.iter(over_keys(|key| ours.record_failure(key))));
    let naive = NaiveExponential::new(BASE, CAP);
    group.bench_function("naive-port", |bencher| bencher.iter(over_keys(|key| naive.when(key))));
    // Measures the policy alone, as a queue uses it: without a lock and without a clock.
    let mut policy = Exponential::new(BASE..=CAP);
    let (keys, mut next) = (keys(), 0);
    group.bench_function("flyball-policy", |bencher| {
        bencher.iter(|| {
            next = (next + 1) % KEYS;
            policy.record_failure(&keys[next], Nanos::ZERO, 0, &mut |_| false).wait
        });
    });
    group.finish();
}

fn fail_and_forget(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("limit-fail-and-forget");
    let ours = Limiter::new(Exponential::new(BASE..=CAP));
    let cycle = |key: &Arc<str>| {
        black_box(ours.record_failure(key));
        ours.forget(key);
    };
    group.bench_function("flyball", |bencher| bencher.iter(over_keys(cycle)));
    let naive = NaiveExponential::new(BASE, CAP);
    let cycle = |key: &Arc<str>| {
        black_box(naive.when(key));
        naive.forget(key);
    };
    group.bench_function("naive-port", |bencher| bencher.iter(over_keys(cycle)));
    group.finish();
}

fn bucket(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("limit-bucket");
    let (million, thousand) = (NonZeroU32::new(1_000_000).unwrap(), NonZeroU32::new(1_000).unwrap());
    // Half a token accrues from each check to the next: after the burst, every other check is refused.
    let mut ours = TokenBucket::new(Quota::per_second(million).allow_burst(thousand));
    let mut now = Nanos::ZERO;
    group.bench_function("flyball", |bencher| {
        bencher.iter(|| {
            now = now + Duration::from_nanos(500);
            ours.try_acquire(now).is_ok()
        });
    });
    let mut naive = NaiveBucket::new(1e6, 1e3);
    let mut seconds = 0.0;
    group.bench_function("naive-port", |bencher| {
        bencher.iter(|| {
            seconds += 500e-9;
            naive.try_acquire(seconds)
        });
    });
    group.finish();
}

fn default(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("limit-default");
    let ours = Limiter::new(controller_default());
    group.bench_function("flyball", |bencher| bencher.iter(over_keys(|key| ours.record_failure(key))));
    let naive = NaiveDefault::new();
    group.bench_function("naive-port", |bencher| bencher.iter(over_keys(|key| naive.when(key))));
    group.finish();
}

criterion_group!(limit, exponential, fail_and_forget, bucket, default);
criterion_main!(limit);
