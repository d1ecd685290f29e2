//! SHELL. The sum of all queues with the same labels.
//!
//! | what | guarded by |
//! |---|---|
//! | the queues, and the counts of their adds and delays so far | `inner`; each queue is read outside the lock, because a read calls its clock |
//!
//! Usually there is one queue. There are two queues while a new controller has already started and the old controller has not been dropped yet. Both
//! queues must share one series, and a counter must not decrease when one of them is dropped.

use flyball_sync::locks::Mutex;
use flyball_workqueue::{QueueStats, StatsReader};

#[derive(Default)]
pub(crate) struct Totals {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    queues: Vec<Counted>,
    next_id: u64,
    adds: u64,
    delays: u64,
}

/// A queue, and the part of its counts that the totals already contain.
#[derive(Clone)]
struct Counted {
    id: u64,
    reader: StatsReader,
    adds: u64,
    delays: u64,
}

impl Totals {
    pub(crate) fn register(&self, queue: StatsReader) {
        let mut inner = self.inner.lock();
        let id = inner.next_id;
        inner.next_id += 1;
        inner.queues.push(Counted { id, reader: queue, adds: 0, delays: 0 });
    }

    /// Reads all queues, and returns the sum of their statistics; `None` if no queue is left.
    pub(crate) fn read(&self) -> Option<QueueStats> {
        let queues: Vec<(u64, StatsReader)> =
            self.inner.lock().queues.iter().map(|counted| (counted.id, counted.reader.clone())).collect();
        let read: Vec<_> = queues.into_iter().map(|(id, reader)| (id, reader.read())).collect();
        let mut inner = self.inner.lock();
        let Inner { queues, adds, delays, .. } = &mut *inner;
        for (id, read) in &read {
            let Some(counted) = queues.iter_mut().find(|counted| counted.id == *id) else { continue };
            // A concurrent scrape may have read the queue later and taken the lock earlier, so `counted` may already contain more than `read`.
            if let Some(read) = read {
                *adds += read.adds.saturating_sub(counted.adds);
                *delays += read.delayed_adds.saturating_sub(counted.delays);
                counted.adds = counted.adds.max(read.adds);
                counted.delays = counted.delays.max(read.delayed_adds);
            }
        }
        let gone = |id: u64| read.iter().any(|(own, read)| read.is_none() && *own == id);
        queues.retain(|counted| !gone(counted.id));
        let mut total = read.iter().filter_map(|(_, read)| *read).reduce(sum)?;
        (total.adds, total.delayed_adds) = (*adds, *delays);
        Some(total)
    }
}

fn sum(one: QueueStats, other: QueueStats) -> QueueStats {
    let mut sum = one;
    sum.adds += other.adds;
    sum.delayed_adds += other.delayed_adds;
    sum.ready += other.ready;
    sum.dirty += other.dirty;
    sum.waiting += other.waiting;
    sum.leased_waiting += other.leased_waiting;
    sum.leased += other.leased;
    sum.unfinished_work = one.unfinished_work.saturating_add(other.unfinished_work);
    sum.oldest_lease = one.oldest_lease.max(other.oldest_lease);
    sum.oldest_ready = one.oldest_ready.max(other.oldest_ready);
    sum.oldest_available = one.oldest_available.max(other.oldest_available);
    sum.next_deadline = one.next_deadline.into_iter().chain(other.next_deadline).min();
    let capacity_left = one.capacity_left.zip(other.capacity_left);
    sum.capacity_left = capacity_left.map(|(one, other)| one.saturating_add(other));
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_workqueue::{Queue, QueueMetrics};
    use std::sync::Arc;

    struct Sink(Arc<Totals>);

    impl QueueMetrics for Sink {
        fn register(&self, queue: StatsReader) {
            self.0.register(queue);
        }
    }

    #[test]
    fn a_dropped_queue_leaves_its_counts_alone() {
        let totals = Arc::new(Totals::default());
        assert!(totals.read().is_none());
        let queue =
            |capacity| Queue::<u32>::builder().capacity(capacity).metrics(Sink(totals.clone())).build();
        let (one, other) = (queue(5), queue(6));
        _ = one.add_many(0..3);
        _ = other.add_many(0..4);
        let read = totals.read().unwrap();
        assert_eq!((read.adds, read.depth(), read.capacity_left), (7, 7, Some(4)));
        drop(one);
        let read = totals.read().unwrap();
        assert_eq!((read.adds, read.depth(), read.capacity_left), (7, 4, Some(2)));
        assert_eq!(totals.inner.lock().queues.len(), 1);
        drop(other);
        assert!(totals.read().is_none());
        assert!(totals.inner.lock().queues.is_empty());
    }
}
