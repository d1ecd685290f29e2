//! EDGE. One scrape, metric by metric.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::series::Series;
use crate::metrics::Reading;
use crate::metrics::catalogue::{self, By, Metric};
use crate::metrics::labels::Labels;

type Read = (Arc<Series>, Reading);

pub(super) fn encode(encoder: DescriptorEncoder<'_>, series: &[Read]) -> fmt::Result {
    let mut page = Page { encoder, series };
    page.all(&catalogue::DEPTH, |(_, read)| level(read.depth))?;
    page.all(&catalogue::ADDS, |(_, read)| ConstCounter::new(read.adds))?;
    page.all(&catalogue::QUEUED, |(own, _)| own.queued.clone())?;
    page.all(&catalogue::WORKED, |(own, _)| own.worked.clone())?;
    page.all(&catalogue::UNFINISHED, |(_, read)| ConstGauge::new(read.unfinished_work.as_secs_f64()))?;
    page.all(&catalogue::LONGEST, |(_, read)| ConstGauge::new(read.longest_running.as_secs_f64()))?;
    page.all(&catalogue::DELAYS, |(_, read)| ConstCounter::new(read.delays))?;
    page.all(&catalogue::WAITING, |(_, read)| level(read.waiting))?;
    page.all(&catalogue::LEASED, |(_, read)| level(read.leased))?;
    page.all(&catalogue::OLDEST, |(_, read)| ConstGauge::new(read.oldest_ready.as_secs_f64()))?;
    page.some(&catalogue::ROOM, |(_, read)| read.room.map(level))?;
    page.all(&catalogue::LATE, |(own, _)| own.late.clone())?;
    page.all(&catalogue::FAILURES, |(own, _)| own.failures.clone())?;
    page.all(&catalogue::DEAD, |(own, _)| own.dead.clone())?;
    page.by(&catalogue::REFUSED, "reason", |(own, _)| &own.refused)?;
    page.by(&catalogue::ENDED, "outcome", |(own, _)| &own.ended)?;
    page.all(&catalogue::OVERDUE, |(own, _)| own.overdue.clone())
}

fn level(keys: usize) -> ConstGauge<u64> {
    ConstGauge::new(keys as u64)
}

struct Page<'e, 's> {
    encoder: DescriptorEncoder<'e>,
    series: &'s [Read],
}

impl<'s> Page<'_, 's> {
    /// A value of each queue.
    fn all<M: EncodeMetric>(&mut self, metric: &Metric, value: impl Fn(&Read) -> M) -> fmt::Result {
        self.some(metric, |read| Some(value(read)))
    }

    /// A value of those queues that have one.
    fn some<M: EncodeMetric>(&mut self, metric: &Metric, value: impl Fn(&Read) -> Option<M>) -> fmt::Result {
        let values = self.series.iter().filter_map(|read| Some((&read.0.labels, value(read)?)));
        encode_family(&mut self.encoder, metric, values)
    }

    /// A value of each queue for each value of a label.
    fn by<W, M, const N: usize>(
        &mut self,
        metric: &Metric,
        label: &str,
        values: impl Fn(&'s Read) -> &'s By<W, M, N>,
    ) -> fmt::Result
    where
        W: Copy + PartialEq + 's,
        M: EncodeMetric + Clone + 's,
    {
        let mut all: Vec<(Labels, M)> = Vec::new();
        for read in self.series {
            for (value, counter) in values(read).iter() {
                let mut labels = read.0.labels.clone();
                labels.push((label.to_owned(), value.to_owned()));
                all.push((labels, counter.clone()));
            }
        }
        encode_family(
            &mut self.encoder,
            metric,
            all.iter().map(|(labels, counter)| (labels, counter.clone())),
        )
    }
}

fn encode_family<'s, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    metric: &Metric,
    values: impl Iterator<Item = (&'s Labels, M)>,
) -> fmt::Result {
    let mut family: Option<MetricEncoder<'_>> = None;
    let (name, unit) = parts(metric.name);
    for (labels, value) in values {
        if family.is_none() {
            family =
                Some(encoder.encode_descriptor(name, metric.help, unit.as_ref(), value.metric_type())?);
        }
        if let Some(family) = &mut family {
            value.encode(family.encode_family(labels)?)?;
        }
    }
    Ok(())
}

/// The encoder adds the ends of the names itself.
fn parts(name: &str) -> (&str, Option<Unit>) {
    match name.strip_suffix("_seconds") {
        Some(name) => (name, Some(Unit::Seconds)),
        None => (name.strip_suffix("_total").unwrap_or(name), None),
    }
}
