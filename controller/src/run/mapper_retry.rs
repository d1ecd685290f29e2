//! SHELL. If a mapper panics at a change, calls it again with this change until it returns. Also maps all objects again at each resync.
//!
//! | guarded by | |
//! |---|---|
//! | `failed` | a `watch` channel: the informer adds changes, and the run future takes them out. No user code runs under its lock, except when the `Mapper` is dropped, which drops the changes under the lock |
//! | `waiting` | the changes that the run future has taken out of `failed`, with a backoff for each object. `Hash`, `Eq` and `Clone` of keys run under its lock, which is never contended |

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use flyball_informer_cache::{Change, Informer};
use tokio::sync::watch;

use crate::report::ReportCounters;
use crate::run::runtime::Runtime;
use crate::run::watch_set::WatchSet;
use crate::run::watched_informer::BoxFuture;
use flyball_sync::panics;
use tokio::sync::Mutex as AsyncMutex;

/// The first and the longest wait before the changes of an object are mapped again; each wait is twice as long as the previous one.
const WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];

/// The maximum number of failed changes that are kept for an object.
const MAX_KEPT_CHANGES: usize = 16;

/// The mapper of one informer, and its failed changes: the changes at which it panicked.
pub(crate) struct Mapper<OK, V, M> {
    /// `None` only while this `Mapper` is being dropped.
    map: Option<M>,
    informer: Informer<OK, V>,
    resync_every: Option<Duration>,
    failed: watch::Sender<Vec<Change<OK, V>>>,
    waiting: AsyncMutex<Waiting<OK, V>>,
    counters: Arc<ReportCounters>,
}

/// A type-erased [`Mapper`].
pub(crate) trait RetryMapping: Send + Sync {
    /// Moves new failed changes from `failed` to `waiting`. Returns the time at which the next waiting change must be mapped again, or `None` if no
    /// change waits.
    fn next_due(&self, now: Duration) -> Option<Duration>;

    /// Maps the changes of one due object again; returns `false` if no object is due.
    fn remap_due(&self, now: Duration) -> bool;

    /// Maps all failed changes again.
    fn remap_all(&self, now: Duration);

    /// Returns the number of failed changes.
    fn pending(&self, now: Duration) -> usize;

    /// Waits until there is a new failed change.
    fn failed(&self) -> BoxFuture<()>;

    /// Returns the period after which all objects are mapped again; `None` if resyncs are off.
    fn resync_every(&self) -> Option<Duration>;

    /// Maps all existing objects, one object per poll. The returned future never wakes its task, so the caller must poll it repeatedly.
    fn resync(self: Arc<Self>) -> BoxFuture<()>;
}

/// The failed changes. Objects are sorted by the time at which they are mapped again; the changes of one object are kept oldest first.
///
/// # Invariants
/// 1. `objects` and `order` contain the same objects, and `objects` maps each object to its key in `order`.
/// 2. Each object has 1 to `MAX_KEPT_CHANGES` changes.
struct Waiting<OK, V> {
    objects: HashMap<OK, RetryKey>,
    order: BTreeMap<RetryKey, Failed<OK, V>>,
    tickets: u64,
}

/// The key in `order`: the deadline, and a ticket, which distinguishes objects that are due at the same time.
type RetryKey = (Duration, u64);

struct Failed<OK, V> {
    changes: VecDeque<Change<OK, V>>,
    /// The duration of the current wait; the next wait is twice as long.
    wait: Duration,
}

impl<OK: Clone + Eq, V, M: Fn(&Change<OK, V>, bool)> Mapper<OK, V, M> {
    /// The second argument of `map` is `true` if an object is mapped because of a resync, and `false` if a change is mapped.
    pub(crate) fn new(
        map: M,
        informer: Informer<OK, V>,
        resync_every: Option<Duration>,
        counters: Arc<ReportCounters>,
    ) -> Self {
        let waiting = Waiting { objects: HashMap::new(), order: BTreeMap::new(), tickets: 0 };
        Self {
            map: Some(map),
            informer,
            resync_every,
            failed: watch::Sender::new(Vec::new()),
            waiting: AsyncMutex::new(waiting),
            counters,
        }
    }

    pub(crate) fn changed(&self, change: &Change<OK, V>) {
        if self.maps(change, false) {
            return;
        }
        // If `Clone` of the key panics, too, the change is lost.
        let Ok(change) = panics::attempt(|| change.clone()) else { return };
        self.failed.send_modify(|failed| failed.push(change));
    }

    fn maps(&self, change: &Change<OK, V>, resync: bool) -> bool {
        let mapped = panics::caught(|| self.map.as_ref().map(|map| map(change, resync))).is_some();
        if !mapped {
            self.counters.callback_panics.count();
        }
        mapped
    }
}

impl<OK: Clone + Eq + Hash, V> Waiting<OK, V> {
    /// Adds a change behind the waiting changes of the same object. If `Hash`, `Eq` or `Clone` of the key panics, the change is lost.
    fn add(&mut self, change: Change<OK, V>, now: Duration) {
        let retry_key = match self.objects.get(change.key()) {
            Some(retry_key) => *retry_key,
            None => {
                self.tickets += 1;
                let retry_key = (now + WAITS[0], self.tickets);
                self.objects.insert(change.key().clone(), retry_key);
                retry_key
            }
        };
        let fresh = || Failed { changes: VecDeque::new(), wait: WAITS[0] };
        let failed = self.order.entry(retry_key).or_insert_with(fresh);
        failed.changes.push_back(change);
        // Drops the oldest change. The remaining changes still yield the keys of the newest state and of the state before it.
        if failed.changes.len() > MAX_KEPT_CHANGES {
            discard(failed.changes.pop_front());
        }
    }

    /// Removes and returns the first object that is due.
    fn take_due(&mut self, now: Duration) -> Option<Failed<OK, V>> {
        let first = self.order.first_entry().filter(|first| first.key().0 <= now)?;
        let failed = first.remove();
        if let Some(change) = failed.changes.front() {
            panics::caught(|| self.objects.remove(change.key()));
        }
        Some(failed)
    }

    /// Puts back an object at which the mapper has panicked again, and doubles the object's wait.
    fn put_back(&mut self, mut failed: Failed<OK, V>, now: Duration) {
        let Some(change) = failed.changes.front() else { return };
        let wait = failed.wait.saturating_mul(2).min(WAITS[1]);
        self.tickets += 1;
        let retry_key = (now.saturating_add(wait), self.tickets);
        panics::caught(|| self.objects.insert(change.key().clone(), retry_key));
        failed.wait = wait;
        self.order.insert(retry_key, failed);
    }
}

/// Drops a value that contains user types, and catches a panic in the drop.
fn discard<T>(what: T) {
    panics::caught(|| drop(what));
}

/// Discards its value when it is dropped.
struct DiscardOnDrop<T>(Option<T>);

impl<T> Drop for DiscardOnDrop<T> {
    fn drop(&mut self) {
        discard(self.0.take());
    }
}

impl<OK, V, M> Mapper<OK, V, M>
where
    OK: Clone + Eq + Hash,
    M: Fn(&Change<OK, V>, bool),
{
    /// Calls `act` with the waiting changes. Only the run future calls this method, and never recursively, so `try_lock` succeeds.
    fn waiting<T>(&self, act: impl FnOnce(&mut Waiting<OK, V>) -> T) -> Option<T> {
        Some(act(&mut *self.waiting.try_lock().ok()?))
    }

    /// Moves new failed changes from `failed` to `waiting`; they are mapped again after a wait.
    fn take_failed(&self, now: Duration) {
        let mut taken = Vec::new();
        self.failed.send_if_modified(|failed| {
            taken = std::mem::take(failed);
            false
        });
        for change in taken {
            let added = panics::attempt(|| self.waiting(|waiting| waiting.add(change, now)));
            if added.is_err() {
                self.counters.callback_panics.count();
            }
        }
    }

    fn remap(&self, mut failed: Failed<OK, V>, now: Duration) {
        let changes = std::mem::take(&mut failed.changes);
        for change in changes {
            if self.maps(&change, false) {
                discard(change);
            } else {
                failed.changes.push_back(change);
            }
        }
        self.waiting(|waiting| waiting.put_back(failed, now));
    }
}

impl<OK, V, M> RetryMapping for Mapper<OK, V, M>
where
    OK: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    M: Fn(&Change<OK, V>, bool) + Send + Sync + 'static,
{
    fn next_due(&self, now: Duration) -> Option<Duration> {
        self.take_failed(now);
        self.waiting(|waiting| waiting.order.first_key_value().map(|(key, _)| key.0))?
    }

    fn remap_due(&self, now: Duration) -> bool {
        let due = self.waiting(|waiting| waiting.take_due(now)).flatten();
        due.map(|failed| self.remap(failed, now)).is_some()
    }

    fn remap_all(&self, now: Duration) {
        self.take_failed(now);
        let all = self
            .waiting(|waiting| (std::mem::take(&mut waiting.objects), std::mem::take(&mut waiting.order)));
        let (objects, all) = all.unwrap_or_default();
        // `discard` catches panics: a panic in the drop of a key would otherwise end the run.
        discard(objects);
        all.into_values().for_each(|failed| self.remap(failed, now));
    }

    fn pending(&self, now: Duration) -> usize {
        self.take_failed(now);
        self.waiting(|waiting| waiting.order.values().map(|failed| failed.changes.len()).sum()).unwrap_or(0)
    }

    fn failed(&self) -> BoxFuture<()> {
        let mut changes = self.failed.subscribe();
        // The new receiver is not notified of changes that are already in the channel.
        let there = !self.failed.borrow().is_empty();
        Box::pin(async move {
            if !there {
                // The wait cannot fail, because the mapper holds the sender.
                let _ = changes.changed().await;
            }
        })
    }

    fn resync_every(&self) -> Option<Duration> {
        self.resync_every
    }

    fn resync(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            // The snapshot may hold the last reference to an object, and the drop of that object may panic.
            let objects = DiscardOnDrop(Some(self.informer.snapshot()));
            for change in objects.0.iter().flat_map(|objects| objects.initial_changes()) {
                // A stopped informer is not resynced, because the keys of each resync could keep the controller from ever becoming idle.
                if self.informer.is_stopped() {
                    return;
                }
                self.maps(&change, true);
                discard(change);
                let mut polled = false;
                poll_fn(
                    |_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending },
                )
                .await;
            }
        })
    }
}

impl<OK, V, M> Drop for Mapper<OK, V, M> {
    fn drop(&mut self) {
        // A panic in one drop must affect neither the other drops nor the caller.
        discard(self.map.take());
        let waiting = self.waiting.get_mut();
        std::mem::take(&mut waiting.order).into_values().flat_map(|failed| failed.changes).for_each(discard);
        discard(std::mem::take(&mut waiting.objects));
        self.failed.send_if_modified(|failed| {
            std::mem::take(failed).into_iter().for_each(discard);
            false
        });
    }
}

/// Maps the failed changes of each object again after the object's own backoff, and maps all objects again at each resync. Never completes.
async fn map_again<X: Runtime>(mapper: Arc<dyn RetryMapping>, runtime: X) {
    let period = mapper.resync_every();
    let mut resync_at = period.map(|period| runtime.now().saturating_add(period));
    loop {
        let now = runtime.now();
        match mapper.next_due(now).into_iter().chain(resync_at).min() {
            None => mapper.failed().await,
            Some(due) if due > now => _ = runtime.timeout(due - now, mapper.failed()).await,
            Some(_) => {
                // Maps one object at a time, so that the run future can end and other tasks of this thread can run.
                while mapper.remap_due(now) {
                    runtime.yield_now().await;
                }
            }
        }
        let Some((period, due)) = period.zip(resync_at).filter(|(_, due)| *due <= now) else { continue };
        let mut objects = mapper.clone().resync();
        while poll_fn(|cx| Poll::Ready(objects.as_mut().poll(cx).is_pending())).await {
            runtime.yield_now().await;
        }
        let (next, now) = (due.saturating_add(period), runtime.now());
        resync_at = Some(if next > now { next } else { now.saturating_add(period) });
    }
}

/// Runs `map_again` for every active watch. Never completes.
pub(crate) async fn map_all_again<X: Runtime>(watches: &WatchSet, runtime: &X) {
    let mut changes = watches.subscribe();
    let mut running: Vec<(usize, BoxFuture<()>)> = Vec::new();
    loop {
        let active = changes.borrow_and_update().mappers();
        running.retain(|(index, _)| active.iter().any(|(there, _)| there == index));
        for (index, mapper) in active {
            if running.iter().all(|(there, _)| *there != index) {
                running.push((index, Box::pin(map_again(mapper, runtime.clone()))));
            }
        }
        let run_all = poll_fn(|cx| {
            running.iter_mut().for_each(|(_, retry)| _ = retry.as_mut().poll(cx));
            // The future that is polled first can use most of the task's budget, so the order rotates.
            let first = usize::from(!running.is_empty());
            running.rotate_left(first);
            Poll::<()>::Pending
        });
        tokio::select! {
            biased;
            // The wait cannot fail, because the set holds the sender.
            _ = changes.changed() => {}
            () = run_all => {}
        }
    }
}
