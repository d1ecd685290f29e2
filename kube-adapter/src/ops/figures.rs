//! EDGE. What is known of caches, quotas and elections, as metrics. Read when somebody asks; cancel safety: nothing here waits.

use std::fmt;
use std::sync::Arc;

use flyball_informer_cache::Status;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::leader::Standing;
use crate::{Monitor, Throttle};

/// A cache, its types out of sight.
pub(super) struct Cache {
    pub(super) status: Box<dyn Fn() -> Status + Send + Sync>,
    pub(super) len: Box<dyn Fn() -> usize + Send + Sync>,
    pub(super) synced: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Everything that has figures, by name.
#[derive(Default)]
pub(super) struct Known {
    pub(super) caches: Vec<(String, Cache)>,
    pub(super) controllers: Vec<(String, Monitor)>,
    pub(super) throttles: Vec<(String, Throttle)>,
    pub(super) elections: Vec<(String, Standing)>,
}

/// [`Known`] in a registry.
pub(super) struct Figures(pub(super) Arc<Known>);

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").finish_non_exhaustive()
    }
}

impl Collector for Figures {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Known { caches, controllers, throttles, elections } = &*self.0;
        let mut page = Page(encoder);
        let level = |level: usize| ConstGauge::new(level as u64);
        let flag = |flag: bool| ConstGauge::new(u64::from(flag));
        // Each is read once, so that its figures are of one moment.
        let read: Vec<_> =
            caches.iter().map(|(name, cache)| (name.clone(), ((cache.status)(), cache))).collect();
        page.all("informer_objects", "Objects in the cache", None, &read, |(_, cache)| level((cache.len)()))?;
        page.all("informer_synced", "Whether the first list is there", None, &read, |(_, cache)| {
            flag((cache.synced)())
        })?;
        page.all("informer_over", "Whether it has ended", None, &read, |(status, _)| {
            flag(status.state.is_final())
        })?;
        page.all("informer_version", "The resourceVersion of the cache", None, &read, |(status, _)| {
            ConstGauge::new(status.version.get())
        })?;
        page.all("informer_relists", "Lists after the first", None, &read, |(status, _)| {
            ConstCounter::new(status.relists)
        })?;
        let help = "Watches opened without a list before them";
        page.all("informer_watch_restarts", help, None, &read, |(status, _)| {
            ConstCounter::new(status.watch_restarts)
        })?;

        let help = "Objects that its own caches could not read";
        page.all("controller_objects_skipped", help, None, controllers, |monitor| {
            ConstCounter::new(monitor.skipped())
        })?;
        let help = "Lists and watches of its own caches that failed";
        page.all("controller_watch_failures", help, None, controllers, |monitor| {
            ConstCounter::new(monitor.caches().iter().map(|cache| cache.failures).sum::<u64>())
        })?;
        let help = "Caches of its own whose lists or watches fail now";
        page.all("controller_caches_failing", help, None, controllers, |monitor| {
            level(monitor.caches().iter().filter(|cache| cache.failing.is_some()).count())
        })?;
        let help = "Caches of its own that are not filled";
        page.all("controller_caches_unfilled", help, None, controllers, |monitor| {
            level(monitor.caches().iter().filter(|cache| !cache.filled).count())
        })?;
        let help = "Reconciles that run now";
        page.all("controller_reconciles_in_flight", help, None, controllers, |monitor| {
            level(monitor.counts().map_or(0, |counts| counts.leased))
        })?;

        let read: Vec<_> =
            throttles.iter().map(|(name, throttle)| (name.clone(), (throttle.waits(), throttle))).collect();
        page.all("client_throttle_requests", "Requests that were let through", None, &read, |(waits, _)| {
            ConstCounter::new(waits.requests)
        })?;
        page.all("client_throttle_delayed", "Requests that had to wait", None, &read, |(waits, _)| {
            ConstCounter::new(waits.delayed)
        })?;
        let help = "For how long requests have waited, all together";
        page.all("client_throttle_wait", help, Some(Unit::Seconds), &read, |(waits, _)| {
            ConstCounter::new(waits.total.as_secs_f64())
        })?;
        page.all("client_throttle_waiting", "Requests that wait now", None, &read, |(_, throttle)| {
            level(throttle.waiting())
        })?;

        let help = "Whether this process leads";
        page.all("leader_election_master_status", help, None, elections, |standing| {
            flag(standing.is_leader())
        })?;
        let help = "How often this process has come to lead";
        page.all("leader_election_terms", help, None, elections, |standing| {
            ConstCounter::new(standing.terms())
        })
    }
}

struct Page<'e>(DescriptorEncoder<'e>);

impl Page<'_> {
    /// A figure of each; no family without one.
    fn all<T, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        of: &[(String, T)],
        value: impl Fn(&T) -> M,
    ) -> fmt::Result {
        let Some((_, first)) = of.first() else { return Ok(()) };
        let kind = value(first).metric_type();
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (name, one) in of {
            value(one).encode(family.encode_family(&[("name", name.as_str())])?)?;
        }
        Ok(())
    }
}
