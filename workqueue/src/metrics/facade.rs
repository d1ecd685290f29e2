//! EDGE. A queue behind the facade crate `metrics`.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Counter, Gauge, Histogram, Label, describe_counter, describe_gauge, describe_histogram};
use flyball_sync::locks::Mutex;

use super::catalogue::{self, By, Metric, OUTCOMES, REASONS};
use super::gathered::Gathered;
use super::labels::{InvalidLabel, Labels, labels, named};
use super::{Ended, Metrics, Reading, Watch};
use crate::error::AddErrorKind;

/// A queue's metrics through the facade `metrics`, with client-go's names and ours beside them.
///
/// Histograms, and counters of what is rare, are recorded as it happens. Gauges, adds and retries are written by
/// [`record`](Self::record), which belongs before each scrape: nothing polls. Clones are handles to the same metrics:
/// give one to the queue, and keep one.
///
/// Install the recorder first: what is made without one records nothing, for ever. The facade knows no end of a series:
/// once the queue is gone, `record` sets its gauges to zero and says so. The guide says what each name means.
///
/// # Examples
/// ```
/// use flyball_workqueue::{MetricsFacade, Queue};
///
/// let facade = MetricsFacade::new("pods");
/// let queue = Queue::builder().metrics(facade.clone()).build();
/// queue.add("a")?;
/// assert!(facade.record()); // before each scrape
/// drop(queue);
/// assert!(!facade.record()); // all gauges are zero: it is gone
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MetricsFacade(Arc<Inner>);

struct Inner {
    labels: Labels,
    gathered: Gathered,
    /// Of the adds and delays read, so many have been recorded.
    recorded: Mutex<(u64, u64)>,
    adds: Counter,
    delays: Counter,
    depth: Gauge,
    waiting: Gauge,
    leased: Gauge,
    unfinished: Gauge,
    longest: Gauge,
    oldest: Gauge,
    /// Only a queue with a capacity has it: it is made when first needed.
    room: Mutex<Option<Gauge>>,
    queued: Histogram,
    late: Histogram,
    worked: Histogram,
    failures: Counter,
    dead: Counter,
    overdue: Counter,
    refused: By<AddErrorKind, Counter, 3>,
    ended: By<Ended, Counter, 5>,
}

impl MetricsFacade {
    /// The metrics of one queue, under the label `name`, in the recorder that is installed now.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self::of(named(name))
    }

    /// The metrics of one queue, under the label `name` and others.
    ///
    /// # Errors
    /// [`InvalidLabel`] where the name of one cannot stand beside ours.
    pub fn labelled<N, V>(
        name: impl Into<String>,
        more: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidLabel>
    where
        N: Into<String>,
        V: Into<String>,
    {
        Ok(Self::of(labels(name, more)?))
    }

    fn of(labels: Labels) -> Self {
        let own = || labels.iter().map(|(name, value)| Label::new(name.clone(), value.clone())).collect();
        let by = |metric: &Metric, label: &'static str, value: &'static str| {
            let mut labels: Vec<Label> = own();
            labels.push(Label::from_static_parts(label, value));
            describe_counter!(metric.name, metric.help);
            ::metrics::counter!(metric.name, labels)
        };
        let count = |metric: &Metric| {
            describe_counter!(metric.name, metric.help);
            ::metrics::counter!(metric.name, own())
        };
        let time = |metric: &Metric| {
            describe_histogram!(metric.name, ::metrics::Unit::Seconds, metric.help);
            ::metrics::histogram!(metric.name, own())
        };
        Self(Arc::new(Inner {
            gathered: Gathered::default(),
            recorded: Mutex::new((0, 0)),
            adds: count(&catalogue::ADDS),
            delays: count(&catalogue::DELAYS),
            depth: gauge(&catalogue::DEPTH, &labels),
            waiting: gauge(&catalogue::WAITING, &labels),
            leased: gauge(&catalogue::LEASED, &labels),
            unfinished: gauge(&catalogue::UNFINISHED, &labels),
            longest: gauge(&catalogue::LONGEST, &labels),
            oldest: gauge(&catalogue::OLDEST, &labels),
            room: Mutex::new(None),
            queued: time(&catalogue::QUEUED),
            late: time(&catalogue::LATE),
            worked: time(&catalogue::WORKED),
            failures: count(&catalogue::FAILURES),
            dead: count(&catalogue::DEAD),
            overdue: count(&catalogue::OVERDUE),
            refused: By::new(REASONS, |value| by(&catalogue::REFUSED, "reason", value)),
            ended: By::new(OUTCOMES, |value| by(&catalogue::ENDED, "outcome", value)),
            labels,
        }))
    }

    /// Reads the queue and records what it says; `false` when there is no queue, any more or yet, and all gauges were
    /// set to zero.
    ///
    /// What is added after the last `record` before the queue goes is not in `workqueue_adds_total`.
    ///
    /// # Panics
    /// When the queue's clock or the recorder does.
    pub fn record(&self) -> bool {
        let inner = &*self.0;
        let read = inner.gathered.read();
        if let Some(read) = read {
            // Read by several at once, counters must not be told the same twice.
            let mut recorded = inner.recorded.lock();
            let new = (read.adds.saturating_sub(recorded.0), read.delays.saturating_sub(recorded.1));
            *recorded = (recorded.0 + new.0, recorded.1 + new.1);
            drop(recorded);
            inner.adds.increment(new.0);
            inner.delays.increment(new.1);
        }
        inner.set(&read.unwrap_or_default());
        read.is_some()
    }
}

impl Inner {
    fn set(&self, read: &Reading) {
        self.depth.set(read.depth as f64);
        self.waiting.set(read.waiting as f64);
        self.leased.set(read.leased as f64);
        self.unfinished.set(read.unfinished_work.as_secs_f64());
        self.longest.set(read.longest_running.as_secs_f64());
        self.oldest.set(read.oldest_ready.as_secs_f64());
        let made = self.room.lock().clone();
        let room = match (made, read.room) {
            (None, Some(_)) => {
                // Made by two at once, it is the same to the recorder.
                let made = gauge(&catalogue::ROOM, &self.labels);
                *self.room.lock() = Some(made.clone());
                Some(made)
            }
            (made, _) => made,
        };
        if let Some(gauge) = room {
            gauge.set(read.room.unwrap_or(0) as f64);
        }
    }
}

fn gauge(metric: &Metric, labels: &Labels) -> Gauge {
    let labels: Vec<Label> =
        labels.iter().map(|(name, value)| Label::new(name.clone(), value.clone())).collect();
    if metric.name.ends_with("_seconds") {
        describe_gauge!(metric.name, ::metrics::Unit::Seconds, metric.help);
    } else {
        describe_gauge!(metric.name, metric.help);
    }
    ::metrics::gauge!(metric.name, labels)
}

impl Metrics for MetricsFacade {
    fn watch(&self, queue: Watch) {
        self.0.gathered.watch(queue);
    }

    fn handed_out(&self, queued: Duration, delayed: bool) {
        self.0.queued.record(queued);
        if delayed {
            self.0.late.record(queued);
        }
    }

    fn ended(&self, how: Ended, worked: Duration) {
        self.0.worked.record(worked);
        if let Some(counter) = self.0.ended.get(how) {
            counter.increment(1);
        }
    }

    fn failed(&self) {
        self.0.failures.increment(1);
    }

    fn gave_up(&self, _: u32) {
        self.0.dead.increment(1);
    }

    fn refused(&self, reason: AddErrorKind) {
        if let Some(counter) = self.0.refused.get(reason) {
            counter.increment(1);
        }
    }

    fn overdue(&self, _: Duration) {
        self.0.overdue.increment(1);
    }
}

impl fmt::Debug for MetricsFacade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsFacade").field("labels", &self.0.labels).finish_non_exhaustive()
    }
}
