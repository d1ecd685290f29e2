//! EDGE. Metrics of the controllers and quotas of `flyball_kube` and of the elections of `flyball_kube_lease`, which are read at the scrape.
//!
//! Cancel safety: nothing here waits.

use std::fmt;

use flyball_kube::{Monitor, ThrottleLayer};
use flyball_kube_lease::LeaderStatus;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;

use super::gauges::{Families, flag, level};

/// The handles by name.
#[derive(Debug, Default)]
pub(super) struct KubeGauges {
    pub(super) controllers: Vec<(String, Monitor)>,
    pub(super) throttles: Vec<(String, ThrottleLayer)>,
    pub(super) elections: Vec<(String, LeaderStatus)>,
}

impl Collector for KubeGauges {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        encode_controllers(&mut families, &self.controllers)?;
        encode_throttles(&mut families, &self.throttles)?;
        encode_elections(&mut families, &self.elections)
    }
}

fn encode_controllers(families: &mut Families<'_>, controllers: &[(String, Monitor)]) -> fmt::Result {
    let help = "Objects that the controller's own caches could not decode";
    families.add("controller_objects_skipped_total", help, controllers, |monitor| {
        ConstCounter::new(monitor.unreadable_count())
    })?;
    let help = "Failed lists and watches of the controller's own caches";
    families.add("controller_watch_failures_total", help, controllers, |monitor| {
        ConstCounter::new(monitor.caches().iter().map(|cache| cache.failures).sum::<u64>())
    })?;
    let help = "The controller's own caches whose lists or watches are failing";
    families.add("controller_caches_failing", help, controllers, |monitor| {
        level(monitor.caches().iter().filter(|cache| cache.failure.is_some()).count())
    })?;
    let help = "The controller's own caches that have not synced";
    families.add("controller_caches_unfilled", help, controllers, |monitor| {
        level(monitor.caches().iter().filter(|cache| !cache.synced).count())
    })?;
    let help = "Running reconciles";
    families.add("controller_reconciles_in_flight", help, controllers, |monitor| {
        level(monitor.stats().map_or(0, |counts| counts.leased))
    })
}

fn encode_throttles(families: &mut Families<'_>, throttles: &[(String, ThrottleLayer)]) -> fmt::Result {
    // The statistics of each throttle are read once, so they are consistent with each other.
    let read: Vec<_> =
        throttles.iter().map(|(name, throttle)| (name.clone(), (throttle.stats(), throttle))).collect();
    let help = "Requests that were granted a token";
    families
        .add("client_throttle_requests_total", help, &read, |(stats, _)| ConstCounter::new(stats.requests))?;
    let help = "Requests that had to wait";
    families
        .add("client_throttle_delayed_total", help, &read, |(stats, _)| ConstCounter::new(stats.delayed))?;
    let help = "Total time that requests have waited";
    families.add("client_throttle_wait_seconds_total", help, &read, |(stats, _)| {
        ConstCounter::new(stats.total_wait.as_secs_f64())
    })?;
    families
        .add("client_throttle_waiting", "Waiting requests", &read, |(_, throttle)| level(throttle.waiters()))
}

fn encode_elections(families: &mut Families<'_>, elections: &[(String, LeaderStatus)]) -> fmt::Result {
    let help = "Whether this process leads";
    families.add("leader_election_master_status", help, elections, |status| flag(status.is_leader()))?;
    let help = "How many times this process was elected";
    families.add("leader_election_terms_total", help, elections, |status| {
        ConstCounter::new(status.times_elected())
    })
}
