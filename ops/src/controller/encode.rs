//! EDGE. Encodes one scrape, metric by metric. The first eight metrics have the names and meanings of controller-runtime;
//! the others are flyball's own.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;

use super::series::{ByClass, Series};
use crate::unit::stem_and_unit;

pub(super) fn encode(encoder: DescriptorEncoder<'_>, series: &[Arc<Series>]) -> fmt::Result {
    let mut page = Page { encoder, series };
    page.by(
        "controller_runtime_reconcile_total",
        "Reconciles that ended, by result; panics and timeouts are errors.",
        |own| {
            let result = |value, counter| (Some(("result", value)), counter);
            vec![
                result("success", &own.successes),
                result("requeue_after", &own.requeues),
                result("error", &own.errors),
            ]
        },
    )?;
    page.one(
        "controller_runtime_reconcile_errors_total",
        "Reconciles that failed, by an error, a panic or a timeout.",
        |own| &own.errors,
    )?;
    page.one(
        "controller_runtime_terminal_reconcile_errors_total",
        "Reconciles with a permanent failure, which a retry cannot fix.",
        |own| &own.failures.permanent,
    )?;
    page.one(
        "controller_runtime_reconcile_panics_total",
        "Reconciles that panicked; each panic was caught.",
        |own| &own.panics,
    )?;
    page.one(
        "controller_runtime_reconcile_timeouts_total",
        "Reconciles that took too long, and were dropped.",
        |own| &own.timeouts,
    )?;
    page.one(
        "controller_runtime_reconcile_time_seconds",
        "Time from a key's hand-out to the end of its reconcile.",
        |own| &own.took,
    )?;
    page.one(
        "controller_runtime_max_concurrent_reconciles",
        "Maximum number of workers of all running controllers; infinite without a bound.",
        |own| &own.max_workers,
    )?;
    page.one("controller_runtime_active_workers", "Running reconciles at the scrape.", |own| &own.active)?;
    page.one("flyball_controller_workers", "Idle and busy workers at the scrape.", |own| &own.workers)?;
    page.by(
        "flyball_controller_failures_total",
        "Reconciles that failed, by the class of the failure.",
        |own| by_class(&own.failures),
    )?;
    page.by(
        "flyball_controller_given_up_total",
        "Keys that were given up, by the class of their last failure.",
        |own| by_class(&own.given_up),
    )?;
    page.one(
        "flyball_controller_recoveries_total",
        "Successful reconciles of keys that had failed before.",
        |own| &own.successful_retries,
    )?;
    page.one("flyball_controller_dropped_total", "Reconciles that were dropped with their worker.", |own| {
        &own.dropped
    })?;
    page.one(
        "flyball_controller_batches_total",
        "Batches that started; each of their keys is also a reconcile.",
        |own| &own.batches,
    )
}

type Label = (&'static str, &'static str);

fn by_class(of: &ByClass) -> Vec<(Option<Label>, &Counter)> {
    let class = |value, counter| (Some(("class", value)), counter);
    vec![
        class("transient", &of.transient),
        class("conflict", &of.conflict),
        class("permanent", &of.permanent),
    ]
}

struct Page<'e, 's> {
    encoder: DescriptorEncoder<'e>,
    series: &'s [Arc<Series>],
}

impl<'s> Page<'_, 's> {
    /// Encodes one value for each controller.
    fn one<M>(&mut self, name: &str, help: &str, value: impl Fn(&'s Series) -> &'s M) -> fmt::Result
    where
        M: EncodeMetric + TypedMetric + 's,
    {
        self.by(name, help, |own| vec![(None, value(own))])
    }

    /// Encodes a metric with a second label: for each controller, one sample for each value of that label.
    fn by<M>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Fn(&'s Series) -> Vec<(Option<Label>, &'s M)>,
    ) -> fmt::Result
    where
        M: EncodeMetric + TypedMetric + 's,
    {
        let (name, unit) = stem_and_unit(name);
        let mut family = self.encoder.encode_descriptor(name, help, unit.as_ref(), M::TYPE)?;
        for own in self.series {
            for (label, value) in values(own) {
                let mut labels = vec![("controller", own.controller.as_str())];
                labels.extend(label);
                value.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
