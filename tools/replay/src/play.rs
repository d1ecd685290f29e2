//! EDGE. One pass: runs six informers on the recorded cluster and two controllers, and compares the results at the end.
//!
//! Cancel safety: request a [`Stop`] to end a pass, instead of dropping its future. After this request, the controllers drain their queues
//! for at most [`GRACE`](crate::controllers::GRACE), the informers are shut down, and all tasks are joined.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use flyball_controller::RunReport;
use flyball_sync::{Clock, Monotonic};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::args::{Args, Speed};
use crate::controllers::{collect, count};
use crate::endpoints::{Endpoints, PODS_IN, SERVICES_IN};
use crate::faults::Injector;
use crate::horizon::Horizon;
use crate::ledger::Ledger;
use crate::objects::{Key, Moment};
use crate::progress::Progress;
use crate::replicas::{BY_OWNER, Replicas};
use crate::report::{Checked, Difference, Figures, Latency, compare};
use crate::resource::{AnyResource, Resource};
use crate::server::Cluster;
use crate::stop::Stop;
use crate::trace::Trace;
use crate::usage;

/// How a pass ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// All events were delivered and reconciled.
    Done(Box<Figures>, Vec<Difference>),
    /// A stop was requested.
    Stopped {
        /// How many positions of the trace the cluster had reached.
        places: usize,
        /// How many keys were still queued.
        leftovers: usize,
    },
}

/// Plays the trace once. `lose` is a fault for a test: the event at this position is not delivered.
pub(crate) async fn play(
    trace: &Trace,
    args: &Args,
    stop: &Stop,
    progress: &Progress,
    lose: Option<usize>,
) -> anyhow::Result<Ended> {
    let faults = Arc::new(Injector::new(args, trace.events));
    let paced = args.usage && args.speed != Speed::Max;
    let happened = if paced { vec![Moment::default(); trace.times.len()] } else { Vec::new() };
    let cluster = Arc::new(Cluster { horizon: Horizon::new(), faults: faults.clone(), lose, happened });
    let seed = args.seed;
    let pods = Resource::start("pods", 0, &trace.pods, &cluster, &[&BY_OWNER, &PODS_IN], seed)?;
    let services = Resource::start("services", 1, &trace.services, &cluster, &[&SERVICES_IN], seed)?;
    let nodes = Resource::start("nodes", 2, &trace.nodes, &cluster, &[], seed)?;
    let deployments = Resource::start("deployments", 3, &trace.deployments, &cluster, &[], seed)?;
    let replicasets = Resource::start("replicasets", 4, &trace.replicasets, &cluster, &[], seed)?;
    let endpointslices = Resource::start("endpointslices", 5, &trace.endpointslices, &cluster, &[], seed)?;

    let replicas = Arc::new(Replicas {
        pods: pods.cache.clone(),
        replicasets: replicasets.cache.clone(),
        ledger: Ledger::new(),
    });
    let endpoints = Arc::new(Endpoints {
        pods: pods.cache.clone(),
        services: services.cache.clone(),
        ledger: Ledger::new(),
    });
    let counting = count(&replicas, &faults, args, stop);
    let collecting = collect(&endpoints, &faults, args, stop);

    let all: [&dyn AnyResource; 6] = [&pods, &services, &nodes, &deployments, &replicasets, &endpointslices];
    let cpu = || args.usage.then(usage::cpu_seconds).flatten();
    let mut started = (Instant::now(), cpu());
    let played = tokio::select! {
        biased;
        () = stop.requested() => None,
        played = async {
            for resource in all {
                resource.synced().await?;
            }
            started = (Instant::now(), cpu());
            send_trace(trace, args.speed, &cluster, &all, progress).await
        } => Some(played),
    };
    // There are no further changes, so the informers are shut down. By the time they have stopped, the keys of all changes have been added. Then the
    // controllers drain their queues and end.
    all.iter().for_each(|resource| resource.shut_down());
    let counted = counting.await.context("the replicas controller")?.context("the replicas controller")?;
    let collected =
        collecting.await.context("the endpoints controller")?.context("the endpoints controller")?;
    let seconds = started.0.elapsed().as_secs_f64();
    let cpu_seconds = cpu().zip(started.1).map(|(now, before)| now - before);
    for resource in all {
        resource.stopped().await;
    }
    match played {
        Some(played) if !stop.is_requested() => played?,
        _ => {
            let places = cluster.horizon.place().min(trace.times.len());
            return Ok(Ended::Stopped { places, leftovers: left(&counted) + left(&collected) });
        }
    }

    let (replicas, [waits, lags]) = replicas.ledger.close();
    let (endpoints, [more_waits, more_lags]) = endpoints.ledger.close();
    let differences = compare(&trace.expected, &replicas, &endpoints);
    let sum = |figure: fn(&RunReport<Key>) -> u64| figure(&counted) + figure(&collected);
    let figures = Figures {
        events: trace.events,
        adds: sum(|report| report.keys_added),
        reconciles: sum(|report| report.reconciles),
        retries: sum(RunReport::retries),
        panics: sum(|report| report.panics),
        relists: all.iter().map(|resource| resource.relists()).sum(),
        faults: cluster.faults.fired(),
        seconds,
        events_per_second: trace.events as f64 / seconds,
        queue_latency_us: Latency::of([waits, more_waits].concat()),
        checked: Checked::of(&trace.expected),
        differences: differences.len(),
        converged: differences.is_empty(),
        change_latency_us: paced.then(|| Latency::of([lags, more_lags].concat())),
        cpu_seconds,
        memory: None,
    };
    Ok(Ended::Done(Box::new(figures), differences))
}

fn left(report: &RunReport<Key>) -> usize {
    let left = &report.leftovers;
    left.ready.len() + left.waiting.len() + left.leased.len()
}

/// Plays the trace, and waits until every cache has applied all events.
async fn send_trace(
    trace: &Trace,
    speed: Speed,
    cluster: &Cluster,
    all: &[&dyn AnyResource],
    progress: &Progress,
) -> anyhow::Result<()> {
    let sent = async {
        match speed {
            Speed::Max => cluster.horizon.chase(),
            Speed::Factor(factor) => keep_time(&trace.times, factor, cluster).await,
        }
        for resource in all {
            resource.caught_up().await?;
        }
        Ok(())
    };
    let mut sent = std::pin::pin!(sent);
    let mut looks = interval(Duration::from_millis(100));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            result = &mut sent => return result,
            _ = looks.tick() => progress.at(cluster.horizon.place().min(trace.times.len())),
        }
    }
}

/// Advances the horizon as time passes, at `factor` times the recorded speed. The first event happens immediately.
async fn keep_time(times: &[Duration], factor: f64, cluster: &Cluster) {
    let begin = Instant::now();
    let mut place = 0;
    while let Some(&next) = times.get(place) {
        sleep_until(begin + (next - times[0]).div_f64(factor)).await;
        let passed = begin.elapsed().mul_f64(factor) + times[0];
        // Because of rounding, `passed` may be just before the awaited time. Therefore `place` advances by at least one position.
        let before = place;
        place = times.partition_point(|&time| time <= passed).max(place + 1);
        if let Some(happening) = cluster.happened.get(before..place) {
            let now = Monotonic.now();
            happening.iter().for_each(|at| at.set(now));
        }
        cluster.horizon.move_to(place);
    }
}
