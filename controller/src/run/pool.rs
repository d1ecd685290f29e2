//! SHELL. The worker pool, which starts workers and stops idle ones.
//!
//! | guarded by | |
//! |---|---|
//! | `pool` | the lock of a `watch` channel; each decision is one call of the state machine under this lock |
//!
//! Only the run future starts workers. If a worker takes a key while no other worker is idle, it wakes the run future.
//!
//! If the size of the pool is fixed, its workers never take this lock.
//!
//! # A key waits only while the maximum number of workers is busy
//! When a worker takes a key, another idle worker remains, or the pool is at its maximum (invariant 2 of the state machine). A worker that becomes
//! idle is first counted as idle, and then checks the queue. A worker that is woken while it stops passes the wake-up on to another idle worker.
//! Such a worker exists, because a worker stops only if another worker is idle.

pub(crate) mod state;

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;

use crate::ControllerConfig;
use crate::run::pool::state::PoolState;
use crate::run::runtime::Runtime;

pub(crate) struct WorkerPool {
    pool: watch::Sender<PoolState>,
    scalable: bool,
    /// How long an idle worker waits for a key before it stops.
    idle_timeout: Duration,
}

impl WorkerPool {
    pub(crate) fn new(settings: &ControllerConfig) -> Self {
        let pool = PoolState::new(settings.workers.min, settings.workers.max);
        let idle_timeout = settings.worker_idle_timeout;
        Self { scalable: pool.is_scalable(), pool: watch::Sender::new(pool), idle_timeout }
    }

    pub(crate) fn begin(&self) {
        self.pool.send_modify(PoolState::begin);
    }

    /// Returns the number of workers to start now, and resets that number to 0.
    pub(crate) fn take_wanted(&self) -> usize {
        let mut wanted = 0;
        self.pool.send_if_modified(|pool| {
            wanted = pool.take_wanted();
            false
        });
        wanted
    }

    /// Returns a receiver that is notified when workers may have to be started.
    pub(crate) fn changes(&self) -> watch::Receiver<PoolState> {
        self.pool.subscribe()
    }

    /// Returns the next key for an idle worker; `None` if the worker must stop, or if the queue is closed.
    pub(crate) async fn next<X, A, W>(
        &self,
        runtime: &X,
        mut may_expire: bool,
        mut take: impl FnMut() -> W + Send,
    ) -> Option<A>
    where
        X: Runtime,
        A: Send,
        W: Future<Output = Option<A>> + Send,
    {
        if !self.scalable {
            return take().await;
        }
        loop {
            let taken = match may_expire {
                true => runtime.timeout(self.idle_timeout, take()).await,
                false => Some(take().await),
            };
            match taken {
                Some(taken) => {
                    if taken.is_some() {
                        // Returning `true` wakes the run future, which starts the worker.
                        self.pool.send_if_modified(PoolState::worker_busy);
                    }
                    return taken;
                }
                None if self.update(PoolState::worker_expired) => return None,
                // The pool keeps this worker; a different worker may still stop after it becomes idle.
                None => may_expire = false,
            }
        }
    }

    /// Counts a worker as idle again; returns whether the worker may stop if no key arrives.
    pub(crate) fn worker_idle(&self) -> bool {
        self.scalable && self.update(PoolState::worker_idle)
    }

    /// Returns whether a worker that starts now may stop if no key arrives.
    pub(crate) fn exceeds_min(&self) -> bool {
        self.scalable && self.pool.borrow().exceeds_min()
    }

    /// Applies a transition of the state machine, and returns its result. Does not wake the run future.
    fn update(&self, transition: impl FnOnce(&mut PoolState) -> bool) -> bool {
        let mut result = false;
        self.pool.send_if_modified(|pool| {
            result = transition(pool);
            false
        });
        result
    }
}
