//! EDGE. The metrics of informers, which are read at the scrape.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use flyball_informer_cache::{Informer, InformerStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::unit::stem_and_unit;

/// A type-erased [`Informer`].
pub(super) trait InformerView: Send + Sync {
    fn status(&self) -> InformerStatus;
    fn objects(&self) -> usize;
    fn is_synced(&self) -> bool;
    fn is_stopped(&self) -> bool;
}

impl<K, V> InformerView for Informer<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn status(&self) -> InformerStatus {
        self.status()
    }

    fn objects(&self) -> usize {
        self.store().len()
    }

    fn is_synced(&self) -> bool {
        self.is_synced()
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped()
    }
}

/// Informers by name.
#[derive(Default)]
pub(super) struct InformerGauges(pub(super) Vec<(String, Arc<dyn InformerView>)>);

impl Collector for InformerGauges {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        // Each status is read once, so its values are consistent.
        let read: Vec<_> = self
            .0
            .iter()
            .map(|(name, informer)| (name.clone(), (informer.status(), informer.clone())))
            .collect();
        families.add("informer_objects", "Objects in the cache", &read, |(_, informer)| {
            level(informer.objects())
        })?;
        families.add("informer_synced", "Whether the first list is complete", &read, |(_, informer)| {
            flag(informer.is_synced())
        })?;
        families.add("informer_over", "Whether the informer has ended", &read, |(status, _)| {
            flag(status.state.is_final())
        })?;
        families.add("informer_version", "The resourceVersion of the cache", &read, |(status, _)| {
            ConstGauge::new(status.version.get())
        })?;
        families.add("informer_relists_total", "Lists after the first", &read, |(status, _)| {
            ConstCounter::new(status.relists)
        })?;
        let help =
            "Objects that the last list did not contain and could not delete, as a listed key was unreadable";
        families.add("informer_withheld_deletions", help, &read, |(status, _)| {
            ConstGauge::new(status.withheld_deletions)
        })?;
        let help = "Watches that were opened without a list before";
        families.add("informer_watch_restarts_total", help, &read, |(status, _)| {
            ConstCounter::new(status.watch_restarts)
        })
    }
}

impl fmt::Debug for InformerGauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// The metric families of one scrape.
pub(super) struct Families<'e>(pub(super) DescriptorEncoder<'e>);

impl Families<'_> {
    /// Adds a metric family with one sample for each item; the label `name` contains the name of the item. If there are no items, adds no family.
    pub(super) fn add<T, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        items: &[(String, T)],
        value: impl Fn(&T) -> M,
    ) -> fmt::Result {
        let Some((_, first)) = items.first() else { return Ok(()) };
        let kind = value(first).metric_type();
        let (stem, unit) = stem_and_unit(name);
        let mut family = self.0.encode_descriptor(stem, help, unit.as_ref(), kind)?;
        for (name, item) in items {
            value(item).encode(family.encode_family(&[("name", name.as_str())])?)?;
        }
        Ok(())
    }
}

pub(super) fn level(level: usize) -> ConstGauge<u64> {
    ConstGauge::new(level as u64)
}

pub(super) fn flag(flag: bool) -> ConstGauge<u64> {
    ConstGauge::new(u64::from(flag))
}
