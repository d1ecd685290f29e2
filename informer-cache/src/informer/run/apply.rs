//! EDGE. How the run future writes to the store. It compares each event with the stored object of its key, stages objects, publishes lists, and
//! catches panics of the user's functions.
//!
//! Cancel safety: if the future is dropped, a list that is already published is still delivered, and a list that is not published yet is discarded.

use std::hash::Hash;
use std::ops::ControlFlow;

use flyball_sync::panics::{DropContained, attempt};
use flyball_sync::{Nanos, Timer};

use super::super::failure::Failed;
use super::super::tombstones::Tombstones;
use super::{BATCH, InformerTask, Stop};
use crate::store::{Publication, RelistDraft, Stage, Withheld};
use crate::table::record::allocated;
use crate::{
    BackoffCause, EventVerdict, Schema, SharedWriter, Source, SourceErrorKind, Version, WatchEvent,
    WriteOutcome,
};

impl<K, V, S, T> InformerTask<K, V, S, T>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Source<Object = V>,
    T: Timer,
{
    /// Accepts an event. If the event completes a streaming list, returns the list and its version.
    pub(super) fn accept(&mut self, event: WatchEvent<V>) -> Option<(RelistDraft<K, V>, Version)> {
        let schema = &self.schema;
        let event = event.map(DropContained::new);
        let seen = match attempt(|| event.as_ref().map(|object| schema.version(object))) {
            Ok(seen) => seen,
            Err(panic) => {
                match event {
                    // Staging the object calls the same function, which panics again. The second panic is reported, and the list keeps the stored
                    // object unchanged.
                    WatchEvent::Added(object) | WatchEvent::Modified(object)
                        if self.reflector.has_partial_list() =>
                    {
                        self.stage_event(WatchEvent::Added(object), Version::ZERO);
                    }
                    // A deletion is applied even if its version cannot be read.
                    WatchEvent::Deleted(object) if self.reflector.has_partial_list() => {
                        self.stage_event(WatchEvent::Deleted(object), Version::ZERO);
                        self.panicked(&panic);
                    }
                    WatchEvent::Deleted(object) => {
                        self.batch.push((Version::ZERO, WatchEvent::Deleted(object)))
                    }
                    lost => {
                        self.panicked(&panic);
                        self.discard(lost);
                    }
                }
                return None;
            }
        };
        let (WatchEvent::Added(version)
        | WatchEvent::Modified(version)
        | WatchEvent::Deleted(version)
        | WatchEvent::Bookmark(version)
        | WatchEvent::InitialListEnd(version)) = seen;
        match self.reflector.event(seen) {
            EventVerdict::Apply => self.batch.push((version, event)),
            EventVerdict::Ignore => {}
            EventVerdict::Stage => self.stage_event(event, version),
            EventVerdict::Publish(version) => {
                let list = self.take_streaming_list();
                return Some((list, version));
            }
        }
        None
    }

    /// Returns the streaming list that arrives. If this is its first event or its end, the list is empty, and earlier deletions are forgotten, because
    /// the source may have been restored to an earlier version.
    fn take_streaming_list(&mut self) -> RelistDraft<K, V> {
        if self.partial_list.is_none() {
            self.recall(Tombstones::stream_begun);
        }
        self.partial_list.take().unwrap_or_else(|| RelistDraft::new(&self.shared.writer))
    }

    /// Changes the remembered deletions. A panic of the destructor of a forgotten key is reported.
    pub(super) fn recall(&mut self, change: impl FnOnce(&mut Tombstones<K>)) {
        if let Err(panic) = attempt(|| change(&mut self.tombstones)) {
            self.panicked(&panic);
        }
    }

    /// Stages an event of a streaming list. It is compared with the object that is listed under its key, just as an event of a plain watch is
    /// compared with the stored object.
    fn stage_event(&mut self, event: WatchEvent<DropContained<V>>, version: Version) {
        let mut list = self.take_streaming_list();
        let (schema, tombstones) = (&self.schema, &mut self.tombstones);
        let is_older = |listed: Version| !version.is_zero() && version < listed;
        let late = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                // The drop of a rejected object may panic, too.
                let inserted = attempt(|| {
                    list.try_insert_unless(allocated(object.into_inner()), |key, listed| match listed() {
                        Some(listed) => is_older(listed),
                        None => tombstones.is_stale(key, version),
                    })
                });
                inserted.and_then(|late| late)
            }
            WatchEvent::Deleted(object) => {
                let removed = attempt(|| {
                    let key = DropContained::new(schema.key(&object));
                    let listed = list.listed(&key).map(|listed| listed.version);
                    // As in `apply_event`, the deletion is applied if the identity function panics.
                    let late =
                        attempt(|| list.is_stale_deletion(&key, allocated(object.into_inner()), version));
                    if !matches!(late, Ok(true)) {
                        list.remove(&*key);
                        tombstones.deleted(key.into_inner(), version, listed);
                    }
                    late
                });
                removed.and_then(|late| late)
            }
            WatchEvent::Bookmark(_) | WatchEvent::InitialListEnd(_) => Ok(false),
        };
        self.partial_list = Some(list);
        self.count_result(late);
    }

    /// Stages a listed object.
    pub(super) fn stage(&mut self, list: &mut RelistDraft<K, V>, object: V) {
        let object = allocated(object);
        let put = attempt(|| list.try_insert_unless(object, |_, _| false));
        self.count_result(put.and_then(|late| late));
    }

    /// Applies the batch.
    pub(super) fn apply(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let mut batch = std::mem::take(&mut self.batch);
        for (version, event) in batch.drain(..) {
            let (store, schema, tombstones) = (&self.shared.writer, &self.schema, &mut self.tombstones);
            let late = attempt(|| apply_event(store, schema, tombstones, version, event));
            self.count_result(late.and_then(|late| late));
        }
        self.batch = batch;
        self.succeeded(self.timer.now());
        self.backoff.succeeded();
    }

    /// Publishes a list in pieces, and yields to other tasks between two pieces. Callers box the future of this function, because it is rarely needed
    /// and would enlarge the run future.
    pub(super) async fn publish(
        &mut self,
        mut list: RelistDraft<K, V>,
        version: Version,
    ) -> Result<(), Stop> {
        let kept = loop {
            match attempt(|| list.keep_unreadable(BATCH, |stored| self.source.is_unreadable(stored))) {
                Ok(ControlFlow::Continue(())) => list = self.yield_with(list).await?,
                Ok(ControlFlow::Break(withheld)) => break Ok(withheld),
                Err(panic) => break Err(panic),
            }
        };
        let published = match kept {
            Ok(withheld) => {
                let list = Publication::of_list(&self.shared.writer, list, version);
                self.publish_in_pieces(list).await?.map(|()| withheld)
            }
            Err(panic) => {
                self.discard_list(list).await?;
                Err(panic)
            }
        };
        match published {
            Ok(withheld) => {
                let now = self.timer.now();
                self.record_withheld(now, withheld);
                self.succeeded(now);
                self.backoff.succeeded();
            }
            Err(panic) => {
                // Because of the panic, an object may be missing from the store, so the informer must list again. To cause this, it reports to the
                // reflector that the watch after this list has failed.
                self.failed_lists += 1;
                let (now, random) = self.now_and_random();
                self.reflector.watch_failed(SourceErrorKind::Other, now, random);
                self.reflector.watch_errored(SourceErrorKind::Other, now, random);
                self.backoff.failed(&mut self.reflector, now);
                self.panicked(&panic);
            }
        }
        Ok(())
    }

    /// Records and reports the deletions that a published list has withheld.
    fn record_withheld(&mut self, at: Nanos, withheld: Option<Withheld>) {
        let Some(Withheld { objects, unnamed, panic }) = withheld else {
            return self.shared.status.listed(at, 0, None);
        };
        let message = format!(
            "{objects} stored objects that are not listed are not deleted, because the key function panicked on {unnamed} listed objects: {panic}"
        );
        self.shared.status.listed(at, objects, Some(&message));
        self.report_failure(at, BackoffCause::Panicked, Failed::Panic(&message));
    }

    async fn publish_in_pieces(&mut self, mut list: Publication<K, V>) -> Result<Result<(), String>, Stop> {
        let mut done = 0;
        while list.stage() < Stage::Done {
            let piece = attempt(|| match list.stage() {
                Stage::Committing => {
                    self.shared.writer.commit(&mut list);
                    0
                }
                _ => list.advance(BATCH - done),
            });
            match piece {
                Ok(piece) => done += piece,
                Err(panic) => {
                    self.discard(list);
                    return Ok(Err(panic));
                }
            }
            if done >= BATCH {
                done = 0;
                list.wake();
                list = self.yield_with(list).await?;
            }
        }
        loop {
            match attempt(|| list.release(BATCH)) {
                Ok(true) => {
                    // `list` may still hold, for example, the last references to index values.
                    self.discard(list);
                    return Ok(Ok(()));
                }
                Ok(false) => list = self.yield_with(list).await?,
                Err(panic) => self.panicked(&panic),
            }
        }
    }

    /// Drops a list that is not published, in pieces, and yields to other tasks between two pieces. So an abandoned list is not kept during a wait.
    pub(super) async fn discard_list(&mut self, mut list: RelistDraft<K, V>) -> Result<(), Stop> {
        loop {
            match attempt(|| list.release(BATCH)) {
                Ok(true) => {
                    self.discard(list);
                    return Ok(());
                }
                Ok(false) => list = self.yield_with(list).await?,
                Err(panic) => self.panicked(&panic),
            }
        }
    }

    /// Evaluates the result of applying or staging an object: counts a stale event, or reports the panic of a user's function.
    fn count_result(&mut self, late: Result<bool, String>) {
        match late {
            Ok(late) => self.stale += u64::from(late),
            Err(panic) => self.panicked(&panic),
        }
    }

    /// Drops objects or index values, and reports a panic of their drop.
    pub(super) fn discard<D>(&mut self, dropped: D) {
        if let Err(panic) = attempt(|| drop(dropped)) {
            self.panicked(&panic);
        }
    }

    /// Reports a panic of a user's function. The panic has left all state intact.
    fn panicked(&mut self, message: &str) {
        let at = self.timer.now();
        self.shared.status.panicked(at, message);
        self.report_failure(at, BackoffCause::Panicked, Failed::Panic(message));
    }
}

/// Applies an event. Returns whether the event was stale. If a user's function panics, returns the panic message as the error. A deletion is applied
/// nevertheless, unless the key function panics.
fn apply_event<K, V>(
    store: &SharedWriter<K, V>,
    schema: &Schema<K, V>,
    tombstones: &mut Tombstones<K>,
    version: Version,
    event: WatchEvent<DropContained<V>>,
) -> Result<bool, String>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let is_stale = |outcome| matches!(outcome, WriteOutcome::Stale { .. });
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
            if tombstones.concerns(version) {
                let key = DropContained::new(schema.key(&object));
                if store.get(&*key).is_none() && tombstones.is_stale(&key, version) {
                    return Ok(true);
                }
            }
            Ok(is_stale(store.upsert(object.into_inner())))
        }
        WatchEvent::Deleted(object) => {
            let key = DropContained::new(schema.key(&object));
            let stored = store.stored_version(&key);
            let deleted = attempt(|| is_stale(store.delete(&*key, Some(object.into_inner()))));
            let late = match &deleted {
                Ok(late) => *late,
                Err(_) => {
                    let late = !version.is_zero() && stored.is_some_and(|stored| version < stored);
                    if !late {
                        store.delete(&*key, None);
                    }
                    store.apply(WatchEvent::Bookmark(version));
                    late
                }
            };
            if !late {
                tombstones.deleted(key.into_inner(), version, stored);
            }
            deleted
        }
        WatchEvent::Bookmark(version) | WatchEvent::InitialListEnd(version) => {
            store.apply(WatchEvent::Bookmark(version));
            tombstones.complete(version);
            Ok(false)
        }
    }
}
