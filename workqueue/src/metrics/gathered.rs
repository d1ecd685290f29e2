//! SHELL. All queues that are published under the same labels, as one.
//!
//! | what | guarded by |
//! |---|---|
//! | the queues, and what has been counted | `inner`; queues are read without it, as that runs their clocks |
//!
//! Usually there is one. Two are there for a while when a controller is started anew before the old one is gone, and
//! must not make two series of the same name; nor may what is counted fall when one of them goes.

use flyball_sync::locks::Mutex;

use super::{Reading, Watch};

#[derive(Default)]
pub(crate) struct Gathered {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    queues: Vec<Counted>,
    adds: u64,
    delays: u64,
}

/// A queue, and what of its counts is in the sums.
#[derive(Clone)]
struct Counted {
    watch: Watch,
    adds: u64,
    delays: u64,
}

impl Gathered {
    pub(crate) fn watch(&self, queue: Watch) {
        self.inner.lock().queues.push(Counted { watch: queue, adds: 0, delays: 0 });
    }

    /// Reads all queues; `None` where none is left.
    pub(crate) fn read(&self) -> Option<Reading> {
        let queues: Vec<Watch> =
            self.inner.lock().queues.iter().map(|counted| counted.watch.clone()).collect();
        let read: Vec<_> = queues.into_iter().map(|watch| (watch.read(), watch)).collect();
        let mut inner = self.inner.lock();
        let Inner { queues, adds, delays } = &mut *inner;
        for (read, watch) in &read {
            let Some(counted) = queues.iter_mut().find(|counted| counted.watch.is(watch)) else { continue };
            // Somebody else may have read later, and been faster here.
            if let Some(read) = read {
                *adds += read.adds.saturating_sub(counted.adds);
                *delays += read.delays.saturating_sub(counted.delays);
                counted.adds = counted.adds.max(read.adds);
                counted.delays = counted.delays.max(read.delays);
            }
        }
        let gone = |watch: &Watch| read.iter().any(|(read, own)| read.is_none() && own.is(watch));
        queues.retain(|counted| !gone(&counted.watch));
        let all = read.iter().filter_map(|(read, _)| *read).reduce(together)?;
        Some(Reading { adds: *adds, delays: *delays, ..all })
    }
}

fn together(one: Reading, other: Reading) -> Reading {
    Reading {
        adds: one.adds + other.adds,
        delays: one.delays + other.delays,
        depth: one.depth + other.depth,
        waiting: one.waiting + other.waiting,
        leased: one.leased + other.leased,
        unfinished_work: one.unfinished_work.saturating_add(other.unfinished_work),
        longest_running: one.longest_running.max(other.longest_running),
        oldest_ready: one.oldest_ready.max(other.oldest_ready),
        room: one.room.zip(other.room).map(|(one, other)| one.saturating_add(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Watched;
    use std::sync::Arc;

    struct Fixed(u64);

    impl Watched for Fixed {
        fn read(&self) -> Option<Reading> {
            Some(Reading { adds: self.0, room: Some(2), ..Reading::default() })
        }
    }

    fn watch(queue: &Arc<Fixed>) -> Watch {
        let watched: Arc<dyn Watched> = queue.clone();
        Watch::new(Arc::downgrade(&watched))
    }

    /// What is gone is forgotten, but for what it counted; nothing is left of it to keep.
    #[test]
    fn the_gone_are_let_go() {
        let (gathered, one, other) = (Gathered::default(), Arc::new(Fixed(3)), Arc::new(Fixed(4)));
        assert!(gathered.read().is_none());
        gathered.watch(watch(&one));
        gathered.watch(watch(&other));
        let read = gathered.read().unwrap();
        assert_eq!((read.adds, read.room), (7, Some(4)));
        drop(one);
        let read = gathered.read().unwrap();
        assert_eq!((read.adds, read.room, gathered.inner.lock().queues.len()), (7, Some(2), 1));
        drop(other);
        assert!(gathered.read().is_none());
        assert!(gathered.inner.lock().queues.is_empty());
    }
}
