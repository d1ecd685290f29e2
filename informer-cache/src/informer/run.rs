//! EDGE. The run future, which performs the reflector's requests and writes the results to the store.
//!
//! Cancel safety: see the parent module. Besides the store, the run future holds the partial list, a batch of events that are not applied yet, and
//! the open watch. Dropping these affects nothing that is already published.

use std::future::{pending, poll_fn};
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use flyball_sync::panics::{DropContained, DropEach, caught, message};
use flyball_sync::random::SplitMix64;
use flyball_sync::{Nanos, Timer};

use super::Shared;
use super::failure::{Failed, OnError};
use super::retry_backoff::ChosenBackoff;
use super::tombstones::Tombstones;
use crate::signal::stop_signal::StopSignal;
use crate::store::RelistDraft;
use crate::{
    BackoffCause, EventVerdict, ListRequest, Page, Reflector, ReflectorPhase, ReflectorRequest, Schema,
    Source, SourceError, SourceErrorKind, Version, WatchEvent, WatchStream,
};

mod apply;

/// The run future yields to other tasks each time it has read this many events of a watch, staged a page or this many objects of a page, or
/// processed this many changes, or subscriptions without one, of a list that it publishes. A change counts once for each subscription and observer.
const BATCH: usize = 256;

/// The state of the run future.
pub(super) struct InformerTask<K, V, S, T> {
    pub(super) shared: Arc<Shared<K, V>>,
    pub(super) schema: Schema<K, V>,
    pub(super) source: DropContained<S>,
    pub(super) timer: DropContained<T>,
    pub(super) random: SplitMix64,
    pub(super) reflector: Reflector,
    /// Events that are accepted but not applied yet. Empty while the future is pending.
    pub(super) batch: Vec<(Version, WatchEvent<DropContained<V>>)>,
    /// The partial list: the objects of the pages, or of the streaming list, that have arrived so far.
    pub(super) partial_list: Option<RelistDraft<K, V>>,
    /// The deletions that the informer remembers: those in the store or, during a streaming list, those in the partial list.
    pub(super) tombstones: Tombstones<K>,
    /// The number of stale events.
    pub(super) stale: u64,
    /// The number of lists that the reflector counts as published, but whose publication panicked.
    pub(super) failed_lists: u64,
    /// The last error that the source has returned since its last successful answer.
    pub(super) last_answer: Option<SourceError>,
    pub(super) on_error: Option<OnError>,
    pub(super) backoff: ChosenBackoff,
}

/// The result of waiting until a request completes, the deadline passes, or a shutdown is requested.
enum PollOutcome<T> {
    Done(T),
    Late,
    Stop,
}

/// The error of an operation that stopped because a shutdown was requested.
struct Stop;

/// A page whose objects are dropped one by one, because several of their destructors may panic.
type ContainedPage<V> = (DropEach<V>, Version, Option<String>);

impl<K, V, S, T> InformerTask<K, V, S, T>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Source<Object = V>,
    T: Timer,
{
    /// Runs until a shutdown is requested. If the source or the timer panics, reports the panic and then resumes it.
    pub(super) async fn run(mut self) {
        let panic = {
            let mut running = pin!(self.perform_all());
            poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
                Ok(poll) => poll.map(|()| None),
                Err(panic) => Poll::Ready(Some(panic)),
            })
            .await
        };
        if let Some(panic) = panic {
            // The timer may be what panics.
            let now = caught(|| self.timer.now()).unwrap_or_default();
            self.handle_failure(now, BackoffCause::Panicked, Failed::Panic(&message(&*panic)));
            resume_unwind(panic);
        }
    }

    async fn perform_all(&mut self) {
        loop {
            self.report();
            if !self.reflector.has_partial_list() {
                if let Some(abandoned) = self.partial_list.take() {
                    if let Err(Stop) = Box::pin(self.discard_list(abandoned)).await {
                        return;
                    }
                }
            }
            if let Err(Stop) = self.perform().await {
                return;
            }
        }
    }

    async fn perform(&mut self) -> Result<(), Stop> {
        // The time limit of the request starts now: the source has not received the request yet, so the time that was spent before, for example to
        // stage or publish a list, does not count.
        self.reflector.sent(self.timer.now());
        match self.reflector.step() {
            ReflectorRequest::List(request) => {
                let page = self.list(request).await;
                self.listed(page).await
            }
            ReflectorRequest::Watch(request) => {
                let watch = async { self.source.watch(request).await.map(DropContained::new) };
                let watch = self.within(watch).await;
                match self.opened(watch)? {
                    Some(watch) => self.read(watch).await,
                    None => Ok(()),
                }
            }
            // `read` always reads an open watch to its end, so no watch is open at this point.
            ReflectorRequest::Read | ReflectorRequest::Wait => match self.within(pending()).await {
                PollOutcome::Done(never) => never,
                PollOutcome::Late => self.late(),
                PollOutcome::Stop => Err(Stop),
            },
        }
    }

    /// Requests a page. Each part of the page that arrives extends the deadline.
    async fn list(&mut self, request: ListRequest) -> PollOutcome<Result<ContainedPage<V>, SourceError>> {
        let Self { shared, source, timer, reflector, .. } = self;
        let (source, timer) = (&**source, &**timer);
        let mut future = DropContained::new(Box::pin(source.list(request)));
        let mut progress = source.list_progress();
        poll_fn(|cx| {
            if shared.stop.is_requested() {
                return Poll::Ready(PollOutcome::Stop);
            }
            if let Poll::Ready(page) = future.as_mut().poll(cx) {
                let contained =
                    |Page { items, version, continuation }| (DropEach::new(items), version, continuation);
                return Poll::Ready(PollOutcome::Done(page.map(contained)));
            }
            let before = std::mem::replace(&mut progress, source.list_progress());
            if progress != before {
                reflector.page_progressed(timer.now());
            }
            poll_interrupts(&shared.stop, timer, reflector.deadline(), cx)
        })
        .await
    }

    async fn listed(&mut self, page: PollOutcome<Result<ContainedPage<V>, SourceError>>) -> Result<(), Stop> {
        let (now, random) = self.now_and_random();
        match page {
            PollOutcome::Done(Ok((mut items, version, continuation))) => {
                let verdict = self.reflector.page(version, continuation, now, random);
                // A page with a repeated continuation is a failure, after which the reflector waits.
                if let Some(cause) = self.waits_after() {
                    let repeated = SourceError::new(SourceErrorKind::Other, "a list repeats a continuation");
                    self.handle_answer(now, cause, repeated);
                }
                if let EventVerdict::Stage | EventVerdict::Publish(_) = verdict {
                    let mut list =
                        self.partial_list.take().unwrap_or_else(|| RelistDraft::new(&self.shared.writer));
                    loop {
                        items.by_ref().take(BATCH).for_each(|object| self.stage(&mut list, object));
                        if items.len() == 0 {
                            break;
                        }
                        (items, list) = self.yield_with((items, list)).await?;
                    }
                    match verdict {
                        EventVerdict::Publish(version) => {
                            Box::pin(self.publish(list, version)).await?;
                            self.recall(|tombstones| tombstones.listed(version));
                        }
                        // Yields between pages, too, because a source may answer at once, with small pages.
                        _ => self.partial_list = Some(self.yield_with(list).await?),
                    }
                } else {
                    self.discard(items);
                }
            }
            PollOutcome::Done(Err(error)) => {
                self.reflector.list_failed(error.kind(), now, random);
                self.handle_answer(now, BackoffCause::Failed(error.kind()), error);
            }
            PollOutcome::Late => return self.late(),
            PollOutcome::Stop => return Err(Stop),
        }
        Ok(())
    }

    fn opened(
        &mut self,
        watch: PollOutcome<Result<DropContained<S::Watch>, SourceError>>,
    ) -> Result<Option<DropContained<S::Watch>>, Stop> {
        let (now, random) = self.now_and_random();
        match watch {
            PollOutcome::Done(Ok(watch)) => {
                self.reflector.watch_opened(now);
                self.succeeded(now);
                self.report();
                Ok(Some(watch))
            }
            PollOutcome::Done(Err(error)) => {
                self.reflector.watch_failed(error.kind(), now, random);
                self.handle_answer(now, BackoffCause::Failed(error.kind()), error);
                Ok(None)
            }
            PollOutcome::Late => self.late().map(|()| None),
            PollOutcome::Stop => Err(Stop),
        }
    }

    /// Reads a watch to its end. For each event of a plain watch, it polls the watch once, calls the reflector once and adds one entry to the batch.
    /// For this, it takes no lock, does not use the clock or the timer, and allocates nothing, except to let the batch grow.
    async fn read(&mut self, mut watch: DropContained<S::Watch>) -> Result<(), Stop> {
        let mut taken = 0;
        loop {
            let item = {
                let mut next = pin!(watch.next());
                poll_fn(|cx| match next.as_mut().poll(cx) {
                    Poll::Ready(item) => Poll::Ready(PollOutcome::Done(item)),
                    Poll::Pending => {
                        self.apply();
                        poll_interrupts(&self.shared.stop, &*self.timer, self.reflector.deadline(), cx)
                    }
                })
                .await
            };
            match item {
                PollOutcome::Done(Some(Ok(event))) => {
                    if let Some((list, version)) = self.accept(event) {
                        Box::pin(self.publish(list, version)).await?;
                        self.recall(|tombstones| tombstones.complete(version));
                        self.report();
                        if !matches!(self.reflector.step(), ReflectorRequest::Read) {
                            return Ok(());
                        }
                    }
                }
                PollOutcome::Done(ended) => {
                    drop(watch);
                    self.apply();
                    self.ended(ended.and_then(Result::err));
                    return self.yield_now().await;
                }
                PollOutcome::Late => return self.late(),
                PollOutcome::Stop => return Err(Stop),
            }
            taken += 1;
            if taken == BATCH {
                taken = 0;
                self.apply();
                self.yield_now().await?;
                if self.timer.now() >= self.reflector.deadline() {
                    return self.late();
                }
            }
        }
    }

    fn ended(&mut self, error: Option<SourceError>) {
        let (now, random) = self.now_and_random();
        match error {
            Some(error) => {
                self.reflector.watch_errored(error.kind(), now, random);
                self.handle_answer(now, BackoffCause::Failed(error.kind()), error);
            }
            None => {
                self.reflector.watch_closed(now, random);
                match self.waits_after() {
                    Some(cause) => self.handle_silence(now, cause),
                    None => self.backoff.succeeded(),
                }
            }
        }
    }

    /// Handles a deadline that has passed. If a response did not arrive in time, this is a failure, even if the next request is sent immediately.
    fn late(&mut self) -> Result<(), Stop> {
        let (now, random) = self.now_and_random();
        let is_open = matches!(self.reflector.step(), ReflectorRequest::Read);
        // A watch that has reached its maximum age counts as a failure if the reflector now waits: because the watch was short and had no new event,
        // or because no version is known from which the next watch could start.
        let cause = self.reflector.deadline_reached(now, random);
        match cause.or_else(|| if is_open { self.waits_after() } else { None }) {
            Some(cause) => self.handle_silence(now, cause),
            None if is_open => self.backoff.succeeded(),
            None => {}
        }
        Ok(())
    }

    /// Returns the cause of the reflector's current wait, or `None` if the reflector does not wait.
    fn waits_after(&self) -> Option<BackoffCause> {
        match self.reflector.phase() {
            ReflectorPhase::Waiting { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// Handles an error that the source has returned.
    fn handle_answer(&mut self, at: Nanos, cause: BackoffCause, error: SourceError) {
        self.handle_failure(at, cause, Failed::Answer(&error));
        let earlier = self.last_answer.replace(error);
        self.discard(earlier);
    }

    /// Handles a failure without an answer.
    fn handle_silence(&mut self, at: Nanos, cause: BackoffCause) {
        let before = self.last_answer.take();
        self.handle_failure(at, cause, Failed::Silent(before.as_ref()));
        self.last_answer = before;
    }

    /// Records a successful answer of the source.
    pub(super) fn succeeded(&mut self, now: Nanos) {
        self.shared.status.succeeded(now, self.stale);
        if let Some(earlier) = self.last_answer.take() {
            self.discard(earlier);
        }
    }

    /// Handles a failure of the source.
    fn handle_failure(&mut self, at: Nanos, cause: BackoffCause, how: Failed<'_>) {
        self.backoff.failed(&mut self.reflector, at);
        let message = how.to_failure(at, cause, None).to_string();
        self.shared.status.failed(at, &message);
        self.report_failure(at, cause, how);
    }

    /// Reports a failure to `on_error`.
    fn report_failure(&mut self, at: Nanos, cause: BackoffCause, how: Failed<'_>) {
        let phase = self.reflector.phase();
        let until = if let ReflectorPhase::Waiting { until, .. } = phase { Some(until) } else { None };
        let failure = how.to_failure(at, cause, until);
        // The status is updated before `on_error` is called, so that the status which `on_error` reads includes this failure.
        self.report();
        if let Some(observer_fn) = &mut self.on_error {
            let observer_fn = &mut **observer_fn;
            caught(|| observer_fn(&failure));
        }
    }

    fn report(&mut self) {
        let relists = self.reflector.lists().saturating_sub(1 + self.failed_lists);
        self.shared.status.moved(self.reflector.phase().into(), relists, self.reflector.watch_restarts());
    }

    fn now_and_random(&mut self) -> (Nanos, u64) {
        (self.timer.now(), self.random.next())
    }

    /// Yields once to the other tasks of this thread. Then returns `Stop` if a shutdown is requested.
    async fn yield_now(&self) -> Result<(), Stop> {
        let mut yielded = false;
        let turn = poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        turn.await;
        if self.shared.stop.is_requested() { Err(Stop) } else { Ok(()) }
    }

    /// Like [`yield_now`](Self::yield_now), and returns `held`. If a shutdown is requested, drops it; a panic of a destructor does not propagate then.
    async fn yield_with<D>(&mut self, held: D) -> Result<D, Stop> {
        match self.yield_now().await {
            Ok(()) => Ok(held),
            Err(Stop) => {
                self.discard(held);
                Err(Stop)
            }
        }
    }

    /// Waits for `future` and returns its output; or returns `Stop` if a shutdown is requested first, or `Late` if the reflector's deadline passes
    /// first.
    async fn within<F: Future>(&self, future: F) -> PollOutcome<F::Output> {
        let mut future = DropContained::new(Box::pin(future));
        poll_fn(|cx| {
            // The stop signal is checked first. Otherwise, a source whose futures are always ready could prevent the shutdown.
            if self.shared.stop.is_requested() {
                return Poll::Ready(PollOutcome::Stop);
            }
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(PollOutcome::Done(output)),
                Poll::Pending => {
                    poll_interrupts(&self.shared.stop, &*self.timer, self.reflector.deadline(), cx)
                }
            }
        })
        .await
    }
}

/// Returns `Pending` until a shutdown is requested or the deadline passes.
fn poll_interrupts<U>(
    stop: &StopSignal,
    timer: &impl Timer,
    deadline: Nanos,
    cx: &Context<'_>,
) -> Poll<PollOutcome<U>> {
    if stop.poll(cx) {
        return Poll::Ready(PollOutcome::Stop);
    }
    if timer.now() >= deadline {
        return Poll::Ready(PollOutcome::Late);
    }
    // Each pending poll sets the timer again: this poll may be the result of a timer that fired too early, and is no longer set.
    timer.wake_at(deadline, cx.waker());
    Poll::Pending
}
