//! EDGE. The run future: performs what the reflector asks for, and feeds the store.
//!
//! Cancel safety: see the parent module. What this future holds besides the store is the half list, a batch of
//! events not applied yet, and the open watch; dropping them loses nothing that was published.

use std::future::{pending, poll_fn};
use std::hash::{BuildHasher, Hash};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use flyball_ratelimit::{Nanos, Timer};
use foldhash::quality::FixedState;

use super::Shared;
use super::failure::{OnError, SourceFailure};
use crate::caught::caught;
use crate::{
    Cause, Event, Page, Phase, Reflector, Schema, Source, SourceError, Stage, Step, Verdict, Version, Watch,
};

/// Events taken from a busy watch, or objects from a page, before others get their turn, on the processor and on the store.
const BATCH: usize = 256;

/// Everything the run future works with.
pub(super) struct Drive<K, V, S, T> {
    pub(super) shared: Arc<Shared<K, V>>,
    pub(super) schema: Schema<K, V>,
    pub(super) source: S,
    pub(super) timer: T,
    pub(super) random: Random,
    pub(super) reflector: Reflector,
    /// Events that are accepted and not applied yet; none while the future is pending.
    pub(super) batch: Vec<Event<V>>,
    /// The half list, from pages or from a stream.
    pub(super) half: Option<Stage<K, V>>,
    pub(super) on_error: Option<OnError>,
}

/// A seeded stream of random numbers: the hashes of 1, 2, 3…
pub(super) struct Random {
    hasher: FixedState,
    drawn: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { hasher: FixedState::with_seed(seed), drawn: 0 }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.drawn += 1;
        self.hasher.hash_one(self.drawn)
    }
}

/// What a wait ended with.
enum Outcome<T> {
    Done(T),
    Late,
    Stop,
}

/// The wish to end was seen.
struct Stop;

impl<K, V, S, T> Drive<K, V, S, T>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Source<Object = V>,
    T: Timer,
{
    /// Runs until the end is wished for.
    pub(super) async fn run(mut self) {
        loop {
            self.report();
            if let Err(Stop) = self.perform().await {
                return;
            }
        }
    }

    async fn perform(&mut self) -> Result<(), Stop> {
        match self.reflector.step() {
            Step::List(request) => {
                let page = self.within(self.source.list(request)).await;
                self.listed(page).await
            }
            Step::Watch(request) => {
                let watch = self.within(self.source.watch(request)).await;
                match self.opened(watch)? {
                    Some(watch) => self.read(watch).await,
                    None => Ok(()),
                }
            }
            // A watch is read to its end as soon as it is open, so there is none to read here.
            Step::Read | Step::Wait => match self.within(pending()).await {
                Outcome::Done(never) => never,
                Outcome::Late => self.late(),
                Outcome::Stop => Err(Stop),
            },
        }
    }

    async fn listed(&mut self, page: Outcome<Result<Page<V>, SourceError>>) -> Result<(), Stop> {
        let (now, random) = self.moment();
        match page {
            Outcome::Done(Ok(Page { items, version, continuation })) => {
                let verdict = self.reflector.page(version, continuation, now, random);
                if let Verdict::Stage | Verdict::Publish(_) = verdict {
                    let mut stage = self.half.take().unwrap_or_else(|| self.shared.store.stage());
                    let mut items = items.into_iter();
                    loop {
                        items.by_ref().take(BATCH).for_each(|object| stage.put(object));
                        if items.len() == 0 {
                            break;
                        }
                        self.breathe().await?;
                    }
                    match verdict {
                        Verdict::Publish(version) => self.publish(stage, version),
                        _ => self.half = Some(stage),
                    }
                }
            }
            Outcome::Done(Err(error)) => {
                self.reflector.list_failed(error.kind(), now, random);
                self.erred(now, Cause::Failed(error.kind()), Some(&error));
            }
            Outcome::Late => return self.late(),
            Outcome::Stop => return Err(Stop),
        }
        Ok(())
    }

    fn opened(&mut self, watch: Outcome<Result<S::Watch, SourceError>>) -> Result<Option<S::Watch>, Stop> {
        let (now, random) = self.moment();
        match watch {
            Outcome::Done(Ok(watch)) => {
                self.reflector.watch_opened(now);
                self.shared.status.succeeded(now);
                self.report();
                Ok(Some(watch))
            }
            Outcome::Done(Err(error)) => {
                self.reflector.watch_failed(error.kind(), now, random);
                self.erred(now, Cause::Failed(error.kind()), Some(&error));
                Ok(None)
            }
            Outcome::Late => self.late().map(|()| None),
            Outcome::Stop => Err(Stop),
        }
    }

    /// Reads a watch to its end. Each event costs a poll of the watch, a look by the reflector and a place in the
    /// batch: no lock, clock, timer or allocation.
    async fn read(&mut self, mut watch: S::Watch) -> Result<(), Stop> {
        let mut taken = 0;
        loop {
            let told = {
                let mut next = pin!(watch.next());
                poll_fn(|cx| match next.as_mut().poll(cx) {
                    Poll::Ready(told) => Poll::Ready(Outcome::Done(told)),
                    Poll::Pending => {
                        self.apply();
                        self.patience(cx)
                    }
                })
                .await
            };
            match told {
                Outcome::Done(Some(Ok(event))) => self.accept(event),
                Outcome::Done(ended) => {
                    drop(watch);
                    self.apply();
                    self.ended(ended.and_then(Result::err));
                    return self.breathe().await;
                }
                Outcome::Late => return self.late(),
                Outcome::Stop => return Err(Stop),
            }
            taken += 1;
            if taken == BATCH {
                taken = 0;
                self.apply();
                self.breathe().await?;
                if self.timer.now() >= self.reflector.deadline() {
                    return self.late();
                }
            }
        }
    }

    fn accept(&mut self, event: Event<V>) {
        match self.reflector.event(event.as_ref().map(|object| self.schema.version(object))) {
            Verdict::Apply => self.batch.push(event),
            Verdict::Ignore => {}
            Verdict::Stage => {
                let stage = self.half.get_or_insert_with(|| self.shared.store.stage());
                match event {
                    Event::Added(object) | Event::Modified(object) => stage.put(object),
                    Event::Deleted(object) => stage.remove(&self.schema.key(&object)),
                    Event::Bookmark(_) | Event::InitialEnd(_) => {}
                }
            }
            Verdict::Publish(version) => {
                let stage = self.half.take().unwrap_or_else(|| self.shared.store.stage());
                self.publish(stage, version);
                self.report();
            }
        }
    }

    /// Applies the batch.
    fn apply(&mut self) {
        if !self.batch.is_empty() {
            self.shared.store.apply_many(self.batch.drain(..));
            self.shared.status.succeeded(self.timer.now());
        }
    }

    fn publish(&self, mut stage: Stage<K, V>, version: Version) {
        stage.keep(|stored| self.source.unread(stored));
        drop(stage.publish(version));
        self.shared.status.succeeded(self.timer.now());
    }

    fn ended(&mut self, error: Option<SourceError>) {
        let (now, random) = self.moment();
        match error {
            Some(error) => {
                self.reflector.watch_broke(error.kind(), now, random);
                self.erred(now, Cause::Failed(error.kind()), Some(&error));
            }
            None => {
                self.reflector.watch_closed(now, random);
                if let Some(cause) = self.waits_after() {
                    self.erred(now, cause, None);
                }
            }
        }
    }

    /// The deadline has passed. That a wait is over is no failure; all else has not come in time, also where another request makes
    /// up for it at once.
    fn late(&mut self) -> Result<(), Stop> {
        let (now, random) = self.moment();
        let silent = self.waits_after().is_none() && now >= self.reflector.deadline();
        self.reflector.time_passed(now, random);
        if silent {
            self.erred(now, self.waits_after().unwrap_or(Cause::TimedOut), None);
        }
        Ok(())
    }

    /// The failure that the reflector waits after, if it waits.
    fn waits_after(&self) -> Option<Cause> {
        match self.reflector.phase() {
            Phase::Waiting { cause, .. } => Some(cause),
            _ => None,
        }
    }

    fn erred(&mut self, at: Nanos, cause: Cause, error: Option<&SourceError>) {
        let phase = self.reflector.phase();
        let until = if let Phase::Waiting { until, .. } = phase { Some(until) } else { None };
        let failure = SourceFailure { at, cause, error, until };
        self.shared.status.erred(at, &failure.to_string());
        // The listener sees what comes of it, too.
        self.report();
        if let Some(listener) = &mut self.on_error {
            caught(|| listener(&failure));
        }
    }

    fn report(&mut self) {
        if !self.reflector.holds_half_list() {
            // Thrown away here rather than kept through a wait.
            self.half = None;
        }
        let relists = self.reflector.lists().saturating_sub(1);
        self.shared.status.moved(self.reflector.phase().into(), relists, self.reflector.rewatches());
    }

    fn moment(&mut self) -> (Nanos, u64) {
        (self.timer.now(), self.random.next())
    }

    /// Lets everybody else on this thread have a turn, and looks whether the end is wished for.
    async fn breathe(&self) -> Result<(), Stop> {
        let mut yielded = false;
        let turn = poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        turn.await;
        if self.shared.stop.is_wished() { Err(Stop) } else { Ok(()) }
    }

    /// The future's output, unless the end is wished for or the reflector's deadline passes before.
    async fn within<F: Future>(&self, future: F) -> Outcome<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            // First, so that a source that always has an answer cannot keep the informer from ending.
            if self.shared.stop.is_wished() {
                return Poll::Ready(Outcome::Stop);
            }
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Outcome::Done(output)),
                Poll::Pending => self.patience(cx),
            }
        })
        .await
    }

    /// Pending until the end is wished for or the deadline passes.
    fn patience<U>(&self, cx: &Context<'_>) -> Poll<Outcome<U>> {
        if self.shared.stop.poll(cx) {
            return Poll::Ready(Outcome::Stop);
        }
        let deadline = self.reflector.deadline();
        if self.timer.now() >= deadline {
            return Poll::Ready(Outcome::Late);
        }
        // Armed again at each pending poll: the alarm may have been what woke this one, too early.
        self.timer.wake_at(deadline, cx.waker());
        Poll::Pending
    }
}
