//! EDGE. Encodes one scrape, metric by metric.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flyball_workqueue::QueueStats;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::by_label::ByLabel;
use super::labels::Labels;
use super::names::{self, Metric};
use super::series::Series;
use crate::unit::stem_and_unit;

type Read = (Arc<Series>, QueueStats);

pub(super) fn encode(encoder: DescriptorEncoder<'_>, series: &[Read]) -> fmt::Result {
    let mut page = Page { encoder, series };
    page.all(&names::DEPTH, |(_, read)| level(read.depth()))?;
    page.all(&names::ADDS, |(_, read)| ConstCounter::new(read.adds))?;
    page.all(&names::QUEUED, |(own, _)| own.queued.clone())?;
    page.all(&names::WORK_DURATION, |(own, _)| own.work_duration.clone())?;
    page.all(&names::UNFINISHED, |(_, read)| ConstGauge::new(read.unfinished_work.as_secs_f64()))?;
    page.all(&names::LONGEST, |(_, read)| ConstGauge::new(seconds(read.oldest_lease)))?;
    page.all(&names::DELAYS, |(_, read)| ConstCounter::new(read.delayed_adds))?;
    page.all(&names::WAITING, |(_, read)| level(read.waiting + read.leased_waiting))?;
    page.all(&names::LEASED, |(_, read)| level(read.leased))?;
    page.all(&names::OLDEST, |(_, read)| ConstGauge::new(seconds(read.oldest_ready)))?;
    page.some(&names::CAPACITY_LEFT, |(_, read)| read.capacity_left.map(level))?;
    page.all(&names::DELAY_LATENCY, |(own, _)| own.delay_latency.clone())?;
    page.all(&names::FAILURES, |(own, _)| own.failures.clone())?;
    page.all(&names::GIVEN_UP, |(own, _)| own.given_up.clone())?;
    page.by(&names::REFUSED, "reason", |(own, _)| &own.refused)?;
    page.by(&names::ENDED, "outcome", |(own, _)| &own.ended)?;
    page.all(&names::OVERDUE, |(own, _)| own.overdue.clone())
}

fn seconds(age: Option<Duration>) -> f64 {
    age.unwrap_or_default().as_secs_f64()
}

fn level(keys: usize) -> ConstGauge<u64> {
    ConstGauge::new(keys as u64)
}

struct Page<'e, 's> {
    encoder: DescriptorEncoder<'e>,
    series: &'s [Read],
}

impl<'s> Page<'_, 's> {
    /// Encodes one value for each queue.
    fn all<M: EncodeMetric>(&mut self, metric: &Metric, value: impl Fn(&Read) -> M) -> fmt::Result {
        self.some(metric, |read| Some(value(read)))
    }

    /// Encodes a metric that some queues do not have: one sample for each queue for which `value` returns `Some`.
    fn some<M: EncodeMetric>(&mut self, metric: &Metric, value: impl Fn(&Read) -> Option<M>) -> fmt::Result {
        let values = self.series.iter().filter_map(|read| Some((&read.0.labels, value(read)?)));
        encode_family(&mut self.encoder, metric, values)
    }

    /// Encodes a metric with a further label: for each queue, one sample for each value of that label.
    fn by<W, M, const N: usize>(
        &mut self,
        metric: &Metric,
        label: &str,
        values: impl Fn(&'s Read) -> &'s ByLabel<W, M, N>,
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
    let (name, unit) = stem_and_unit(metric.name);
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
