//! SHELL. The workers that there are: when one comes, and when one goes.
//!
//! | guarded by | |
//! |---|---|
//! | `pool` | the lock of a `watch` channel. Every decision is one call of the core under it; whoever wants another worker wakes the run future, which alone starts them |
//!
//! Of a pool that neither grows nor shrinks nothing is ever asked.
//!
//! # No key waits for a worker that could come
//! A worker that takes a key leaves somebody idle behind, or the pool is as large as it may be (invariant 2 of the core). An
//! idle worker has looked at the queue after he was counted idle, or is about to. One that goes while he is woken hands
//! that on to another idle one, of whom there is one, or he would not go.

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
    /// So long an idle worker waits for a key before he goes.
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

    /// What a worker that is idle takes next; `None` when he is to go, or there is nothing more to take.
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
                        // A yes wakes the run future, which starts him.
                        self.pool.send_if_modified(PoolState::worker_busy);
                    }
                    return taken;
                }
                None if self.ask(PoolState::worker_expired) => return None,
                // He is needed, and whoever comes to rest after him may go instead.
                None => may_expire = false,
            }
        }
    }

    /// A worker is done with his key; whether he may go if no other one comes.
    pub(crate) fn worker_idle(&self) -> bool {
        self.scalable && self.ask(PoolState::worker_idle)
    }

    /// Whether a worker that begins may go if no key comes.
    pub(crate) fn exceeds_min(&self) -> bool {
        self.scalable && self.pool.borrow().exceeds_min()
    }

    /// What the core says. Wakes nobody.
    fn ask(&self, question: impl FnOnce(&mut PoolState) -> bool) -> bool {
        let mut answer = false;
        self.pool.send_if_modified(|pool| {
            answer = question(pool);
            false
        });
        answer
    }
}
