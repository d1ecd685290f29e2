//! An in-memory cluster, the usual parts of a controller, and a log that reconciles write.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::RunReport;
use flyball_informer_cache::{
    Informer, ListRequest, Page, Schema, Source, SourceError, Version, WatchEvent, WatchRequest, WatchStream,
};
use flyball_ratelimit::Exponential;
use flyball_sync::TokioTimer;
use flyball_workqueue::{Fifo, Queue};
use parking_lot::Mutex;
use tokio::sync::watch;

pub(crate) type Keys = Queue<u32, Fifo, Exponential<u32>, TokioTimer>;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Returns a queue whose failed keys wait 1 s, 2 s, 4 s … up to 60 s.
pub(crate) fn queue() -> Keys {
    Queue::builder().limiter(Exponential::new(SECOND..=60 * SECOND)).timer(TokioTimer::current()).build()
}

/// An object: its key, its version and a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thing {
    pub(crate) key: u32,
    pub(crate) version: u64,
    pub(crate) value: u32,
}

pub(crate) const THINGS: Schema<u32, Thing> =
    Schema::new(|thing: &Thing| thing.key, |thing| Version::new(thing.version));

/// A source that keeps its whole history. It answers list requests only once it is open.
#[derive(Clone)]
pub(crate) struct HistorySource {
    history: Arc<watch::Sender<Vec<WatchEvent<Thing>>>>,
    open: Arc<watch::Sender<bool>>,
}

impl HistorySource {
    pub(crate) fn new() -> Self {
        Self { history: Arc::default(), open: Arc::new(watch::Sender::new(true)) }
    }

    /// Creates a source that is not open yet.
    pub(crate) fn closed() -> Self {
        Self { open: Arc::new(watch::Sender::new(false)), ..Self::new() }
    }

    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    pub(crate) fn put(&self, key: u32, value: u32) -> Version {
        self.push(|version| WatchEvent::Modified(Thing { key, version, value }))
    }

    pub(crate) fn remove(&self, key: u32) -> Version {
        self.push(|version| WatchEvent::Deleted(Thing { key, version, value: 0 }))
    }

    fn push(&self, event: impl FnOnce(u64) -> WatchEvent<Thing>) -> Version {
        self.history.send_modify(|history| {
            let version = history.len() as u64 + 1;
            history.push(event(version));
        });
        Version::new(self.history.borrow().len() as u64)
    }

    /// Starts an informer of this source on the current runtime.
    pub(crate) fn informer(&self) -> Informer<u32, Thing> {
        Informer::builder(THINGS, self.clone()).seed(1).start().expect("the configuration is the default")
    }
}

impl Source for HistorySource {
    type Object = Thing;
    type Watch = HistoryWatch;

    async fn list(&self, _: ListRequest) -> Result<Page<Thing>, SourceError> {
        let _ = self.open.subscribe().wait_for(|open| *open).await;
        let history = self.history.borrow();
        let mut items: Vec<Thing> = Vec::new();
        for event in history.iter() {
            let thing = event.object().expect("only changes are pushed");
            items.retain(|item| item.key != thing.key);
            if !matches!(event, WatchEvent::Deleted(_)) {
                items.push(*thing);
            }
        }
        Ok(Page { items, version: Version::new(history.len() as u64), continuation: None })
    }

    async fn watch(&self, request: WatchRequest) -> Result<HistoryWatch, SourceError> {
        let delivered =
            usize::try_from(request.from_version.get()).expect("a version is a length of the history");
        Ok(HistoryWatch { history: self.history.subscribe(), delivered })
    }
}

pub(crate) struct HistoryWatch {
    history: watch::Receiver<Vec<WatchEvent<Thing>>>,
    delivered: usize,
}

impl WatchStream for HistoryWatch {
    type Object = Thing;

    async fn next(&mut self) -> Option<Result<WatchEvent<Thing>, SourceError>> {
        let delivered = self.delivered;
        let history = self.history.wait_for(|history| history.len() > delivered).await.ok()?;
        self.delivered += 1;
        Some(Ok(history[delivered].clone()))
    }
}

/// A log of entries, in order. Clones share the entries.
#[derive(Debug)]
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Log<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn note(&self, entry: T) {
        self.0.lock().push(entry);
    }

    /// Returns the number of entries since the last `take`.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Removes and returns the entries since the last `take`.
    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock())
    }
}

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Yields until every other task is pending, without moving the clock.
pub(crate) async fn run_until_pending() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// Panics without calling the panic hook, which would print the message.
pub(crate) fn panic_quietly(message: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(message))
}

/// Returns the entries, sorted.
pub(crate) fn sorted<T: Ord + Debug>(mut entries: Vec<T>) -> Vec<T> {
    entries.sort();
    entries
}

/// Returns the number of leftover keys in a report.
pub(crate) fn left(report: &RunReport<u32>) -> usize {
    let left = &report.leftovers;
    left.ready.len() + left.waiting.len() + left.leased.len()
}

/// Returns whether the queue holds no key in any state.
pub(crate) fn holds_nothing(stats: &flyball_workqueue::QueueStats) -> bool {
    (stats.ready, stats.waiting, stats.leased, stats.dirty, stats.leased_waiting) == (0, 0, 0, 0, 0)
}
