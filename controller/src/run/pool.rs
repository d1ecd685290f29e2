//! SHELL. The worker pool: when a worker is started, and when an idle one stops.
//!
//! | guarded by | |
//! |---|---|
//! | `pool` | the lock of a `watch` channel. Every decision is one call of the state machine under it; a worker that wants another one wakes the run future, which alone starts them |
//!
//! A pool of a fixed size is never locked.
//!
//! # A key waits only while all `max` workers are busy
//! A worker that takes a key leaves an idle one behind, or the pool is at its maximum (invariant 2 of the state machine). An
//! idle worker has looked at the queue after it was counted as idle, or is about to. One that stops while it is woken passes
//! the wake-up on to another idle one; there is one, or it would not stop.

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
    /// So long an idle worker waits for a key before it stops.
    idle_timeout: Duration,
}

impl WorkerPool {
    pub(crate) fn new(settings: &ControllerConfig) -> Self {
        let pool = PoolState::new(settings.workers, settings.max_workers.unwrap_or(settings.workers));
        let idle_timeout = settings.worker_idle_timeout;
        Self { scalable: pool.is_scalable(), pool: watch::Sender::new(pool), idle_timeout }
    }

    pub(crate) fn begin(&self) {
        self.pool.send_modify(PoolState::begin);
    }

    /// How many are to be started now.
    pub(crate) fn take_wanted(&self) -> usize {
        let mut wanted = 0;
        self.pool.send_if_modified(|pool| {
            wanted = pool.take_wanted();
            false
        });
        wanted
    }

    /// Done when workers may be wanted.
    pub(crate) fn changes(&self) -> watch::Receiver<PoolState> {
        self.pool.subscribe()
    }

    /// What an idle worker takes next; `None` when it is to stop, or there is nothing more to take.
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
                        // `true` wakes the run future, which starts it.
                        self.pool.send_if_modified(PoolState::worker_busy);
                    }
                    return taken;
                }
                None if self.ask(PoolState::worker_expired) => return None,
                // It is needed; one that becomes idle after it may stop instead.
                None => may_expire = false,
            }
        }
    }

    /// A worker is idle again; whether it may stop if no key comes.
    pub(crate) fn worker_idle(&self) -> bool {
        self.scalable && self.ask(PoolState::worker_idle)
    }

    /// Whether a worker that starts may stop if no key comes.
    pub(crate) fn exceeds_min(&self) -> bool {
        self.scalable && self.pool.borrow().exceeds_min()
    }

    /// What the state machine answers. Wakes nothing.
    fn ask(&self, question: impl FnOnce(&mut PoolState) -> bool) -> bool {
        let mut answer = false;
        self.pool.send_if_modified(|pool| {
            answer = question(pool);
            false
        });
        answer
    }
}
