//! PURE. The number of workers, between a minimum and a maximum.
//!
//! When all workers are busy, another worker is started. A worker that has been idle for a while stops, unless it is the only idle worker. So at any
//! time a worker is idle and can take the next key, or the pool is at its maximum. This state machine reads no clock, because its caller measures how
//! long a worker is idle, and it does not use the number of queued keys.
//!
//! # Invariants
//! 1. `min <= workers <= max`, once the pool has [begun](PoolState::begin).
//! 2. `idle > 0`, or `workers == max`. A worker counts as idle from the moment at which it is requested.
//! 3. `idle <= workers`, and `wanted <= idle`.
//!
//! Hence the pool shrinks to `min` once all workers are idle. A worker stays after its idle timeout in only two cases. Either it was the only idle
//! worker when its timeout ended (there is at most one such worker), or the pool had at most `min` workers when it became idle or when its timeout
//! ended, and has requested no worker since.

/// How many workers a controller has, and how many of them are idle.
#[derive(Debug)]
pub(crate) struct PoolState {
    min: usize,
    max: usize,
    workers: usize,
    /// Workers that wait for a key, or are about to wait.
    idle: usize,
    /// Workers that were requested but not yet started.
    wanted: usize,
}

impl PoolState {
    /// Requires `1 <= min <= max`.
    pub(crate) fn new(min: usize, max: usize) -> Self {
        Self { min, max, workers: 0, idle: 0, wanted: 0 }
    }

    /// Returns whether the number of workers can change.
    pub(crate) fn is_scalable(&self) -> bool {
        self.min < self.max
    }

    pub(crate) fn begin(&mut self) {
        (self.workers, self.idle, self.wanted) = (self.min, self.min, self.min);
    }

    /// Returns the number of workers to start now, and resets that number to 0.
    pub(crate) fn take_wanted(&mut self) -> usize {
        std::mem::take(&mut self.wanted)
    }

    /// Counts an idle worker as busy; returns whether another worker is needed.
    pub(crate) fn worker_busy(&mut self) -> bool {
        self.idle -= 1;
        let wanted = self.idle == 0 && self.workers < self.max;
        if wanted {
            self.workers += 1;
            self.idle += 1;
            self.wanted += 1;
        }
        wanted
    }

    /// Counts a busy worker as idle; returns whether the worker may stop if no key arrives for a while.
    pub(crate) fn worker_idle(&mut self) -> bool {
        self.idle += 1;
        self.exceeds_min()
    }

    /// Returns whether there are more workers than `min`.
    pub(crate) fn exceeds_min(&self) -> bool {
        self.workers > self.min
    }

    /// Called when an idle worker has received no key for a while; returns whether the worker must stop.
    pub(crate) fn worker_expired(&mut self) -> bool {
        // The only idle worker must stay for the next key.
        let stops = self.exceeds_min() && self.idle > 1;
        if stops {
            self.workers -= 1;
            self.idle -= 1;
        }
        stops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state of a simulated worker. An idle worker may stop only if `may_expire` is set.
    #[derive(Clone, Copy, PartialEq)]
    enum Worker {
        Busy,
        Idle { may_expire: bool },
    }

    fn idle(workers: &[Worker]) -> usize {
        workers.iter().filter(|worker| **worker != Worker::Busy).count()
    }

    #[test]
    fn stays_within_bounds_and_shrinks_to_min_when_idle() {
        let mut random = 1_u64;
        let mut below = |bound: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % bound
        };
        let (mut largest, mut stopped) = (0, 0);
        for run in 0..2_000 {
            let min = 1 + run % 3;
            let max = min + run % 5;
            let mut pool = PoolState::new(min, max);
            pool.begin();
            let mut workers = Vec::new();
            for _ in 0..below(200) {
                for _ in 0..pool.take_wanted() {
                    workers.push(Worker::Idle { may_expire: pool.exceeds_min() });
                }
                assert!((min..=max).contains(&workers.len()), "1");
                assert_eq!((pool.workers, pool.idle), (workers.len(), idle(&workers)));
                assert!(pool.idle > 0 || pool.workers == max, "2");
                largest = largest.max(workers.len() - min);
                let one = below(workers.len());
                match &mut workers[one] {
                    worker @ Worker::Busy => *worker = Worker::Idle { may_expire: pool.worker_idle() },
                    Worker::Idle { may_expire } if *may_expire && below(2) == 0 => {
                        match pool.worker_expired() {
                            true => drop((workers.remove(one), stopped += 1)),
                            false => *may_expire = false,
                        }
                    }
                    worker => {
                        *worker = Worker::Busy;
                        let grew = pool.worker_busy();
                        assert_eq!(grew, pool.wanted == 1);
                    }
                }
            }
            // All workers become idle and stay idle until they expire.
            for _ in 0..pool.take_wanted() {
                workers.push(Worker::Idle { may_expire: pool.exceeds_min() });
            }
            for worker in workers.iter_mut().filter(|worker| **worker == Worker::Busy) {
                *worker = Worker::Idle { may_expire: pool.worker_idle() };
            }
            while let Some(one) = workers.iter().position(|of| *of == Worker::Idle { may_expire: true }) {
                match pool.worker_expired() {
                    true => drop(workers.remove(one)),
                    false => workers[one] = Worker::Idle { may_expire: false },
                }
            }
            assert_eq!((pool.workers, workers.len()), (min, min), "of {min} to {max}");
        }
        assert_eq!(largest, 4, "the pool never reached its maximum");
        assert!(stopped > 1_000, "few workers stopped: {stopped}");
    }
}
