//! SHELL. The workers that there are: when one comes, and when one goes.
//!
//! | guarded by | |
//! |---|---|
//! | `crew` | the lock of a `watch` channel. Every decision is one call of the core under it; whoever wants another worker wakes the run future, which alone starts them |
//!
//! Of a crew that neither grows nor shrinks nothing is ever asked.
//!
//! # No key waits for a worker that could come
//! A worker that takes a key leaves somebody idle behind, or the crew is as large as it may be (invariant 2 of the core). An
//! idle worker has looked at the queue after he was counted idle, or is about to. One that goes while he is woken hands
//! that on to another idle one, of whom there is one, or he would not go.

pub(crate) mod state;

use std::future::Future;
use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::sync::watch;

use crate::run::pool::state::Crew;
use crate::run::runtime::Runtime;

pub(crate) struct Staff {
    crew: watch::Sender<Crew>,
    elastic: bool,
    /// So long an idle worker waits for a key before he goes.
    linger: Duration,
}

impl Staff {
    pub(crate) fn new(workers: &RangeInclusive<usize>, linger: Duration) -> Self {
        let crew = Crew::new(*workers.start(), *workers.end());
        Self { elastic: crew.is_elastic(), crew: watch::Sender::new(crew), linger }
    }

    pub(crate) fn begin(&self) {
        self.crew.send_modify(Crew::begin);
    }

    /// How many are to be started now.
    pub(crate) fn hire(&self) -> usize {
        let mut wanted = 0;
        self.crew.send_if_modified(|crew| {
            wanted = crew.hire();
            false
        });
        wanted
    }

    /// Done when workers may be wanted.
    pub(crate) fn changes(&self) -> watch::Receiver<Crew> {
        self.crew.subscribe()
    }

    /// What a worker that is idle takes next; `None` when he is to go, or there is nothing more to take.
    pub(crate) async fn next<X, A, W>(
        &self,
        runtime: &X,
        mut may_leave: bool,
        mut take: impl FnMut() -> W + Send,
    ) -> Option<A>
    where
        X: Runtime,
        A: Send,
        W: Future<Output = Option<A>> + Send,
    {
        if !self.elastic {
            return take().await;
        }
        loop {
            let taken = match may_leave {
                true => runtime.timeout(self.linger, take()).await,
                false => Some(take().await),
            };
            match taken {
                Some(taken) => {
                    if taken.is_some() {
                        // A yes wakes the run future, which starts him.
                        self.crew.send_if_modified(Crew::takes);
                    }
                    return taken;
                }
                None if self.ask(Crew::leaves) => return None,
                // He is needed, and whoever comes to rest after him may go instead.
                None => may_leave = false,
            }
        }
    }

    /// A worker is done with his key; whether he may go if no other one comes.
    pub(crate) fn rests(&self) -> bool {
        self.elastic && self.ask(Crew::rests)
    }

    /// Whether a worker that begins may go if no key comes.
    pub(crate) fn is_large(&self) -> bool {
        self.elastic && self.crew.borrow().is_large()
    }

    /// What the core says. Wakes nobody.
    fn ask(&self, question: impl FnOnce(&mut Crew) -> bool) -> bool {
        let mut answer = false;
        self.crew.send_if_modified(|crew| {
            answer = question(crew);
            false
        });
        answer
    }
}
